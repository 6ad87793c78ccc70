"""Many runs in one program give each run's own history."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ownstep import (  # noqa: E402
    EXTRA,
    GD,
    At,
    Devices,
    FedAvg,
    InvalidInput,
    OwnStep,
    OwnstepError,
    Plateau,
    Scaffold,
    partition,
    run,
)  # fmt: skip
from ownstep.engines.local import stacked  # noqa: E402
from ownstep.engines.local.stacked import Job, Stack, run_stacked  # noqa: E402
from ownstep.problems import Network, PerDevice, Pooled, Stratified, TensorNorms  # noqa: E402
from ownstep.problems.network.cuda_graph import Replay  # noqa: E402
from ownstep.problems.network.models import CropFlip, GlobalMean, mlp, seeded  # noqa: E402
from ownstep.problems.network.stack import LAYOUTS, layouts, stacked_forward  # noqa: E402

from .helpers import Conv, data  # noqa: E402


def jobs(methods=None, seeds=2, augment=None):
    rng = np.random.default_rng(0)
    images, labels = torch.as_tensor(rng.random((36, 1, 6, 6))), torch.arange(36) % 3
    split = partition.by_label(labels.numpy())
    out = []
    for seed in range(seeds):
        for method, batch in methods or (
            (OwnStep(At(3)), PerDevice(2)),
            (GD("mean"), Pooled(6)),
            (GD("matched"), Stratified(6)),
        ):
            model = seeded(Conv, seed).double()
            made = Network(
                model, images, labels, split, batch=batch, penalty=TensorNorms(0.01), augment=augment, seed=seed
            )
            devices = Devices(made.weights, np.array([2.0, 3.0, 5.0]) * (1 + seed))
            out.append(Job(f"{batch!r} {seed}", method, made, devices, made.x0()))
    return out


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("every", [2, 100])
def test_a_stack_is_its_runs(layout, every):
    made = jobs(augment=CropFlip(1))
    together = run_stacked(made, 9, every=every, layout=layout)
    for job, mine in zip(made, together, strict=True):
        alone = run(job.method, job.problem, 9, devices=job.devices, x0=job.x0)
        np.testing.assert_allclose(mine.value, alone.value, rtol=1e-11)
        np.testing.assert_allclose(mine.x, alone.x, atol=1e-12)
        np.testing.assert_array_equal(mine.phase, alone.phase)
        for column in ("step", "participants", "bytes_up", "bytes_down"):
            np.testing.assert_array_equal(mine.columns[column], alone.columns[column])
        assert np.isnan(mine.columns["gradient_norm"]).all()
        assert (mine.switched_at, mine.name, mine.stopped) == (alone.switched_at, job.name, "all 9 rounds done")
        assert mine.rounds == 9
        said = {
            name: mine.settings[name] for name in ("method", "problem", "devices", "dim", "stacked", "stacked_layout")
        }
        expected = [repr(job.method), "Network", 3, job.problem.dim, len(made), layout]
        assert list(said.values()) == expected


def test_switches_that_look_at_the_loss_work_too():
    made = jobs([(OwnStep(Plateau()), PerDevice(2))])
    for job, mine in zip(made, run_stacked(made, 20, every=7), strict=True):
        assert mine.switched_at == run(job.method, job.problem, 20, devices=job.devices).switched_at


def test_looking_on_and_running_out_of_time():
    seen = []

    def observe(k, stack):
        loss, right = stack.losses_and_accuracy(stack.first.parts[0][0], stack.first.targets)
        seen.append((k, loss, right))

    made = jobs()
    run_stacked(made, 4, every=2, observe=observe)
    assert [k for k, *_ in seen] == [2, 4, 4]
    x = torch.as_tensor(run(made[0].method, made[0].problem, 4, devices=made[0].devices).x)
    assert seen[-1][2][0] == pytest.approx(made[0].problem.accuracy(x))
    first = made[0].problem
    with torch.no_grad():
        out = torch.func.functional_call(first.model, dict(first.layout.split(x)), (first.parts[0][0],))
    assert seen[-1][1][0] == pytest.approx(float(torch.nn.functional.cross_entropy(out, first.targets)))
    stack = Stack(made)
    stack.x[0] = x
    torch.testing.assert_close(stack.outputs(first.parts[0][0], chunk=7)[0], out)
    short = run_stacked(made, 50, every=2, seconds=0.0)
    assert short[0].rounds == 1
    assert "out of time" in short[0].stopped


def test_an_interrupted_stack_goes_on_where_it_was(tmp_path):
    made, file = jobs(augment=CropFlip(1)), tmp_path / "stack.npz"
    unbroken = run_stacked(made, 9, every=2)
    notes = {"looks": []}
    first = run_stacked(
        made, 9, every=2, seconds=0.0, checkpoint=file, notes=notes, observe=lambda k, _: notes["looks"].append(k)
    )
    assert {h.rounds for h in first} == {1}
    again = {"looks": []}
    second = run_stacked(
        jobs(augment=CropFlip(1)), 9, every=2, checkpoint=file, notes=again,
        observe=lambda k, _: again["looks"].append(k),
    )  # fmt: skip
    assert again["looks"] == [2, 4, 6, 8, 9]
    for a, b in zip(unbroken, second, strict=True):
        assert a.stopped == b.stopped
        assert a.switched_at == b.switched_at
        for name in ("value", "phase", "step"):
            np.testing.assert_array_equal(a.columns[name], b.columns[name])
        np.testing.assert_array_equal(a.x, b.x)
    before = file.read_bytes()
    with pytest.raises(OwnstepError, match="of other runs"):
        run_stacked(jobs([(GD(0.01), Pooled(6))]), 9, checkpoint=file)
    with pytest.raises(OwnstepError, match="more rounds than 1"):
        run_stacked(made, 1, checkpoint=file)
    other = jobs(augment=CropFlip(1))
    other[0].problem.targets[0] = (other[0].problem.targets[0] + 1) % 3
    with pytest.raises(OwnstepError, match="of other runs"):
        run_stacked(other, 9, checkpoint=file)
    assert file.read_bytes() == before


def test_a_stack_is_saved_now_and_then_and_not_at_its_end(tmp_path, monkeypatch):
    made, saved = jobs(seeds=1), []
    real = stacked.ckpt.save
    monkeypatch.setattr(stacked.ckpt, "save", lambda path, state, about, arrays: (
        saved.append((about["k"], arrays["values"].shape, arrays["phases"].shape)), real(path, state, about, arrays)
    ))  # fmt: skip
    run_stacked(made, 5, every=2, checkpoint=tmp_path / "a.npz")
    assert saved == []  # not within half a minute, and what is done needs none
    monkeypatch.setattr(stacked, "CHECKPOINT_SECONDS", -1.0)
    run_stacked(made, 5, every=2, checkpoint=tmp_path / "a.npz")
    assert saved == [(2, (2, 3), (3, 2)), (4, (4, 3), (3, 4))]
    run_stacked(made, 5, every=2)
    assert len(saved) == 2


def test_a_diverging_run_does_not_spoil_the_others():
    made = jobs([(GD(1e150), PerDevice(2)), (GD(0.01), PerDevice(2))], seeds=1)
    wild, calm = run_stacked(made, 6)
    assert "too long" in wild.stopped
    assert wild.rounds < 6
    assert calm.rounds == 6
    assert np.isfinite(calm.value).all()


@pytest.mark.parametrize(
    ("start", "rise", "wrong"),
    [(0.5, 0.99, False), (0.5, 1.01, True), (5.0, 4.9, False), (5.0, 5.1, True), (-5.0, 5.1, True)],
)
def test_a_stacked_run_diverges_like_a_single_one(start, rise, wrong, monkeypatch):
    """Where f has risen by the limit times |f(x0)|, or times one where that is less; the rounds before are kept."""
    from ownstep.engines.local import stacked

    monkeypatch.setattr(stacked, "DIVERGED", 1.0)
    made = jobs([(GD(0.01), PerDevice(2))], seeds=1)
    going = stacked._Run(Stack(made), made, None, {})
    going.go(3, 9, None, None)
    going.values = [np.array([[start], [start], [start + rise], [start]])]
    (found,) = going._histories("done", 0.0)
    assert found.stopped == (f"f(x) is {start + rise:.4g} at round 2: the step is too long" if wrong else "done")
    assert found.rounds == (2 if wrong else 3)


def test_what_cannot_be_stacked():
    x, y = data()
    full = Network(mlp(4, 3).double(), x, y)
    with pytest.raises(InvalidInput, match="share data, architecture"):
        run_stacked([Job("a", GD(0.1), full, Devices.uniform([1.0]), full.x0())], 2)
    job = jobs(seeds=1)[0]
    first = job.problem
    images, labels, split = first.parts[0][0], first.targets, first.partition
    given = {"batch": PerDevice(2), "penalty": TensorNorms(0.01), "seed": 0}
    whole = partition.given(np.zeros(36, int))
    others = {
        "the same": (Conv, images, split, {}), "a copy": (Conv, images.clone(), split, {}),
        "penalty": (Conv, images, split, {"penalty": TensorNorms(0.02)}),
        "augment": (Conv, images, split, {"augment": CropFlip(1)}),
        "size": (Conv, images, split, {"batch": PerDevice(3)}),
        "full": (Conv, images, split, {"batch": None}), "devices": (Conv, images, whole, {"batch": PerDevice(6)}),
        "model": (lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 3)), images, split, {}),
    }  # fmt: skip
    for name, (model, rows, owners, options) in others.items():
        other = Network(seeded(model, 0).double(), rows, labels, owners, **given | options)
        second = Job("second", job.method, other, Devices(other.weights, np.ones(len(other.weights))), other.x0())
        if name == "the same":
            assert Stack([job, second]).jobs[1] is second
            continue
        with pytest.raises(InvalidInput, match="'second' differs from 'PerDevice"):
            Stack([job, second])
    for method in (FedAvg(local_steps=3), OwnStep(smoothness="adaptive"), EXTRA(), Scaffold()):
        with pytest.raises(InvalidInput, match=f"{type(method).__name__}.* asks for more"):
            run_stacked([Job("a", method, first, job.devices, job.x0)], 2)
    with pytest.raises(InvalidInput, match="rounds must be a whole number of at least 0, got -1"):
        run_stacked([job], -1)
    assert len(run_stacked([job], 0)[0].value) == 1
    assert layouts(torch.nn.Bilinear(2, 2, 2)) == ("vmap",)
    assert layouts(Conv()) == LAYOUTS
    assert layouts(mlp(4, 3)) == LAYOUTS


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tables_stack_too(layout):
    x, y = data()
    made = Network(mlp(4, 3).double(), x, y, batch=Pooled(6))
    job = Job("a", GD(0.1), made, Devices.uniform([1.0]), made.x0())
    mine = run_stacked([job, job], 5, layout=layout)[1]
    np.testing.assert_allclose(mine.x, run(GD(0.1), made, 5, devices=job.devices).x, atol=1e-13)


def test_replay_is_a_plain_call_without_a_gpu():
    double = Replay(lambda a: (2 * a,))
    assert double(torch.ones(2))[0].tolist() == [2, 2]
    assert "not on a GPU" in double.note
    assert double(torch.full((2,), 3.0))[0].tolist() == [6, 6]


@pytest.mark.parametrize("layout", ["grouped", "patches"])
@pytest.mark.parametrize("ends", ["flatten", "mean", "mean and flatten"])
@pytest.mark.parametrize("pool", [torch.nn.MaxPool2d((2, 1)), torch.nn.AvgPool2d((1, 2)), torch.nn.Identity()])
def test_every_layer_of_a_stack_is_that_layer_of_each_model(layout, ends, pool):
    """Images that are not square, kernels, strides and paddings that differ: against one model at a time."""
    tail = {"flatten": [torch.nn.Flatten()], "mean": [GlobalMean()]}
    tail["mean and flatten"] = tail["mean"] + tail["flatten"]
    body = [
        torch.nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 0)), torch.nn.GroupNorm(2, 4), torch.nn.ELU(), pool,
        torch.nn.Conv2d(4, 6, (1, 2), padding=(0, 1)), torch.nn.Tanh(), *tail[ends],
    ]  # fmt: skip
    torch.manual_seed(0)
    x = torch.randn(3, 5, 2, 7, 6, dtype=torch.float64)
    width = torch.nn.Sequential(*body).double()(x[0]).shape[1]
    model = torch.nn.Sequential(*body, torch.nn.Linear(width, 3), torch.nn.Flatten()).double()
    assert layouts(model) == LAYOUTS
    tensors = {name: torch.randn(3, *p.shape, dtype=torch.float64) for name, p in model.named_parameters()}
    found = stacked_forward(model, tensors, x, layout)
    for m in range(3):
        alone = torch.func.functional_call(model, {name: t[m] for name, t in tensors.items()}, (x[m],))
        torch.testing.assert_close(found[m], alone, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    "layer",
    [
        torch.nn.Conv2d(2, 2, 1, groups=2), torch.nn.Conv2d(2, 2, 2, dilation=2), torch.nn.Conv2d(2, 2, 1, bias=False),
        torch.nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect"), torch.nn.GroupNorm(1, 2, affine=False),
        torch.nn.Flatten(2), torch.nn.Flatten(1, 2), torch.nn.Linear(2, 2, bias=False), torch.nn.BatchNorm2d(2),
        torch.nn.Dropout(),
    ],
    ids=str,
)  # fmt: skip
def test_a_layer_that_the_layouts_do_not_know_is_left_to_vmap(layer):
    assert layouts(torch.nn.Sequential(torch.nn.ReLU(), layer)) == ("vmap",)
    assert layouts(torch.nn.Sequential(torch.nn.ReLU())) == LAYOUTS
    assert layouts(torch.nn.ModuleList([torch.nn.ReLU()])) == ("vmap",)
    with pytest.raises(InvalidInput, match="unknown layout 'sideways'"):
        stacked_forward(torch.nn.Sequential(torch.nn.ReLU()), {}, torch.ones(1, 1, 1), "sideways")


def test_the_layout_is_the_one_that_was_asked_for_or_the_faster(monkeypatch):
    """On what is fused, copies cost nothing; and only what is to be fused is compiled."""
    made, compiled = jobs(), []
    monkeypatch.setattr(torch, "compile", lambda call, **_: compiled.append(call) or call)
    for options, layout in (({}, "grouped"), ({"layout": "vmap"}, "vmap"), ({"fused": True}, "patches"),
                            ({"fused": True, "layout": "grouped"}, "grouped")):  # fmt: skip
        assert Stack(made, **options).layout == layout
    x, y = data()
    other = Network(torch.nn.Sequential(torch.nn.Linear(4, 3, bias=False)).double(), x, y, batch=Pooled(6))
    job = Job("a", GD(0.1), other, Devices.uniform([1.0]), other.x0())
    assert Stack([job], fused=True).layout == Stack([job]).layout == "vmap"
    assert len(compiled) == 3
