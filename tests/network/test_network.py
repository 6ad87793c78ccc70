"""The problem: one pass gives every mix, flat vectors lose nothing, and bad models are refused."""

import re
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from ownstep import GD, At, InvalidInput, Nesterov, OwnStep, OwnstepError, partition, run  # noqa: E402
from ownstep.problems import Blocks, Network, PerDevice, Pooled, Problem, SquaredL2, Stratified, TensorNorms  # noqa: E402
from ownstep.problems.network.inputs import as_tensor, check_per_sample  # noqa: E402
from ownstep.problems.network.models import CropFlip, build, cifar_cnn, mlp, mnist_cnn, pixels  # noqa: E402
from ownstep.problems.network.parameters import load_into  # noqa: E402

from .helpers import F64, constants, data, problem  # noqa: E402


@pytest.mark.parametrize("penalty", [None, SquaredL2(0.3), TensorNorms(0.2)])
@pytest.mark.parametrize("devices", [1, 2, 7])
def test_a_mix_is_the_sum_of_the_devices_own_gradients(devices, penalty):
    made = problem(devices, penalty=penalty)
    x, y = data()
    model = mlp(4, 3, 6).double()
    c = np.random.default_rng(1).random(devices)
    expected, losses = 0, []
    for i in range(devices):
        at = torch.as_tensor(made.partition.indices(i))
        loss = nn.functional.cross_entropy(model(x[at]), y[at])
        if penalty is not None:
            tensors = list(model.parameters())
            total = (
                sum(p.norm() for p in tensors)
                if isinstance(penalty, TensorNorms)
                else sum((p**2).sum() for p in tensors) / 2
            )
            loss = loss + penalty.mu * total
        losses.append(loss.item())
        expected = expected + c[i] * torch.cat([g.ravel() for g in torch.autograd.grad(loss, model.parameters())])
    found, total = made.mix(made.x0(), c)
    np.testing.assert_allclose(found, losses, rtol=1e-12)
    assert (total - expected).abs().max() < 1e-10
    assert made.value(made.x0()) == pytest.approx(float(made.weights @ losses), rel=1e-12)
    two = made.mix(made.x0(), np.column_stack([c, made.weights]))[1]
    assert (two[:, 0] - total).abs().max() < 1e-14
    assert (torch.as_tensor(c) @ made.gradients(made.x0()) - total).abs().max() < 1e-12


def test_it_is_a_problem():
    made = problem()
    assert isinstance(made, Problem)
    assert made.strong_convexity == 0


@pytest.mark.parametrize("chunk", [1, 7, 59, 60, 1000])
def test_chunks_change_nothing(chunk):
    whole, cut = problem(penalty=TensorNorms(0.1)), problem(penalty=TensorNorms(0.1), chunk=chunk)
    c = np.arange(1.0, 5.0)
    (a, g), (b, h) = whole.mix(whole.x0(), c), cut.mix(cut.x0(), c)
    np.testing.assert_allclose(a, b, rtol=1e-13)
    assert (g - h).abs().max() < 1e-13


def test_blocks_are_the_same_data_in_parts():
    x, y = data()
    split = partition.iid(60, 3)
    one = Network(mlp(4, 3).double(), x, y, split)
    cut = Network(mlp(4, 3).double(), Blocks([(x[:10],), (x[10:45],), (x[45:],)]), y, split)
    assert (one.mix(one.x0(), np.ones(3))[1] - cut.mix(cut.x0(), np.ones(3))[1]).abs().max() < 1e-14
    assert one.accuracy(one.x0()) == cut.accuracy(cut.x0())
    rows = sum(len(t) for i in range(3) for _, t in cut.rows(i))
    assert rows == 60


@pytest.mark.parametrize("chunk", [None, 4])
@pytest.mark.parametrize("blocks", [1, 3])
def test_each_device_at_a_point_of_its_own(chunk, blocks):
    x, y = data()
    inputs = x if blocks == 1 else Blocks([(x[:10],), (x[10:45],), (x[45:],)])
    made = Network(mlp(4, 3).double(), inputs, y, partition.iid(60, 5), penalty=TensorNorms(0.1), chunk=chunk)
    points = made.x0() + 0.1 * torch.randn(5, made.dim, dtype=torch.float64, generator=torch.manual_seed(1))
    losses, rows = made.each(points)
    for i, unit in enumerate(np.eye(5)):
        f, row = made.mix(points[i], unit)
        assert losses[i] == pytest.approx(f[i], rel=1e-13)
        assert (rows[i] - row).abs().max() < 1e-13
    with pytest.raises(InvalidInput, match=r"or \(5, \d+\), got \(4, "):
        made.each(points[:4])


@pytest.mark.slow
def test_one_device_is_torch_sgd():
    x, y = data()
    made = Network(mlp(4, 3, 6).double(), x, y)
    history = run(GD(0.1), made, 40, devices=constants(made))
    model = mlp(4, 3, 6).double()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(40):
        sgd.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        sgd.step()
    assert np.abs(history.x - made.layout.join(dict(model.named_parameters())).numpy()).max() < 1e-14


def test_flat_and_back_is_exact_and_frozen_stays_frozen():
    model = mlp(4, 3, 6)
    model[0].bias.requires_grad_(False)
    x, y = data()
    made = Network(model, x.float(), y)
    assert made.dim == sum(p.numel() for p in model.parameters()) - 6
    point = torch.randn(made.dim)
    state = made.state_dict(point)
    assert list(state) == list(model.state_dict())
    assert torch.equal(made.flat(state), point)
    history = run(GD(0.5), made, 5, devices=constants(made))
    after = made.state_dict(torch.as_tensor(history.x))
    assert torch.equal(after["0.bias"], model[0].bias)
    assert not torch.equal(after["0.weight"], model[0].weight)
    fresh = mlp(4, 3, 6, seed=5)
    load_into(fresh, after, "here")
    assert torch.equal(made.outputs(torch.as_tensor(history.x), x.float()), fresh(x.float()))


@pytest.mark.parametrize("method", [OwnStep(At(3)), Nesterov(0.1)])
@pytest.mark.parametrize("batch", [None, PerDevice(2), Pooled(9), Stratified(12)])
def test_a_resumed_run_is_the_unbroken_one(tmp_path, batch, method):
    for name in ("run.npz", "run.safetensors"):
        if name.endswith("safetensors"):
            pytest.importorskip("safetensors")
        made = problem(3, batch=batch)
        devices = constants(made)
        whole = run(method, made, 17, devices=devices)
        path = tmp_path / name
        run(method, problem(3, batch=batch), 6, devices=devices, checkpoint=path)
        resumed = run(method, problem(3, batch=batch), 17, devices=devices, checkpoint=path)
        assert np.array_equal(whole.x, resumed.x)
        assert np.array_equal(whole.value, resumed.value)


def test_a_checkpoint_of_another_model_is_left_alone(tmp_path):
    path = tmp_path / "run.npz"
    made = problem()
    run(GD(0.1), made, 2, devices=constants(made), checkpoint=path)
    before = path.read_bytes()
    x, y = data()
    other = Network(mlp(4, 3, 7).double(), x, y, made.partition)
    with pytest.raises(OwnstepError, match=r"another run .*dim"):
        run(GD(0.1), other, 2, devices=constants(other), checkpoint=path)
    renamed = Network(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double(), x[:, :3], y, made.partition)
    with pytest.raises(OwnstepError, match="another model"):
        load_into(renamed.model, made.state_dict(made.x0()), "the file")
    assert path.read_bytes() == before
    named = made.state_dict(made.x0())
    first = next(iter(named))
    for wrong, why in (
        ({k: v for k, v in named.items() if k != first}, f"it lacks {first!r}"),
        (named | {"more": named[first]}, "it has 'more'"),
        (named | {first: named[first][:-1]}, f"{first!r} is "),
    ):
        with pytest.raises(OwnstepError, match=f"the file is of another model than Sequential: {re.escape(why)}"):
            load_into(made.model, wrong, "the file")


@pytest.mark.parametrize(
    ("batch", "sizes"),
    [(PerDevice(2), [12] * 5), (Pooled(10), [5, 10, 15, 10, 20]), (Stratified(12), [5, 10, 15, 10, 20])],
)
def test_batches_are_unbiased_over_an_epoch(batch, sizes):
    """Every sample is seen once an epoch, so the epoch's mean of a linear function of the samples is the whole's."""
    x, y = data()
    split = partition.given(np.random.default_rng(3).permutation(np.repeat(np.arange(5), sizes)))
    weights = [0.3, 0.1, 0.2, 0.25, 0.15]
    whole, part = (Network(mlp(4, 3).double(), x, y, split, batch=b, weights=weights) for b in (None, batch))
    point, c = whole.x0(), np.arange(1.0, 6.0)
    sums, losses, seen = [], [], []
    for k in range(60 // part.dealer.size):
        part.begin_round(k)
        found, total = part.mix(point, c)
        sums.append(total)
        losses.append(found)
        seen.append(part.dealer.indices(k))
    assert sorted(np.concatenate(seen)) == list(range(60))
    assert (torch.stack(sums).mean(0) - whole.mix(point, c)[1]).abs().max() < 1e-12
    np.testing.assert_allclose(np.mean(losses, axis=0), whole.mix(point, c)[0], rtol=1e-12)


def test_without_weights_every_sample_counts_alike():
    x, y = data()
    split = partition.given(np.random.default_rng(1).permutation(np.repeat([0, 1, 2], [7, 20, 33])))
    made = Network(mlp(4, 3, 6).double(), x, y, split)
    np.testing.assert_allclose(made.weights, [7 / 60, 20 / 60, 33 / 60])
    whole = nn.functional.cross_entropy(mlp(4, 3, 6).double()(x), y)
    assert made.value(made.x0()) == pytest.approx(whole.item(), rel=1e-12)


def test_batches_depend_on_seed_and_round_alone():
    split = partition.given(np.arange(60) % 5)
    one, two = (PerDevice(3).deal(split, 7) for _ in range(2))
    late = [two.indices(k) for k in (9, 0, 5)]
    assert [list(one.indices(k)) for k in (9, 0, 5)] == [list(i) for i in late]
    assert list(PerDevice(3).deal(split, 8).indices(0)) != list(one.indices(0))
    assert set(split.device_of[one.indices(4)]) == set(range(5))


def test_devices_without_samples_in_a_batch_are_told():
    split = partition.given([0] * 3 + [1] * 57)
    x, y = data()
    with pytest.raises(InvalidInput, match=r"PerDevice\(4\) takes 4 samples of device 'D1' per round, which holds 3"):
        Network(mlp(4, 3).double(), x, y, split, batch=PerDevice(4))
    with pytest.raises(InvalidInput, match=r"Stratified\(5\) leaves device 'D1' without a sample"):
        Network(mlp(4, 3).double(), x, y, split, batch=Stratified(5))
    with pytest.raises(InvalidInput, match="more than the 60 samples"):
        Network(mlp(4, 3).double(), x, y, split, batch=Pooled(61))
    made = Network(mlp(4, 3).double(), x, y, split, batch=Pooled(2))
    lonely = next(k for k in range(20) if 0 not in split.device_of[made.dealer.indices(k)])
    made.begin_round(lonely)
    with pytest.raises(InvalidInput, match=f"'D1' has no sample in the batch of round {lonely}"):
        made.gradients(made.x0())


def test_bad_input_is_quoted():
    x, y = data()
    model = mlp(4, 3).double()
    with pytest.raises(InvalidInput, match=r"3 samples gave shape \(\)"):
        Network(model, x, y, loss=nn.CrossEntropyLoss())
    with pytest.raises(InvalidInput, match="depends on the others"):
        Network(model, x, y, loss=lambda z, t: nn.functional.cross_entropy(z - 9 * z.mean(0), t, reduction="none"))
    frozen = mlp(4, 3).requires_grad_(False)
    with pytest.raises(InvalidInput, match="no trainable parameter: all of its 4"):
        Network(frozen, x, y)
    with pytest.raises(InvalidInput, match="BatchNorm1d '1' mixes the samples"):
        Network(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), x.float(), y)
    fixed = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).eval()
    assert Network(fixed, x.float(), y).dim == 21
    with pytest.raises(InvalidInput, match="60 samples need 60 targets"):
        Network(model, x, y[:-1])
    with pytest.raises(InvalidInput, match="the partition covers 5"):
        Network(model, x, y, partition.iid(5, 1))
    with pytest.raises(InvalidInput, match="unknown loss 'entropy'"):
        Network(model, x, y, loss="entropy")
    made = Network(model, x, y)
    with pytest.raises(InvalidInput, match="x must have shape"):
        made.mix(torch.zeros(3), np.ones(1))
    with pytest.raises(InvalidInput, match="one coefficient for each of 1"):
        made.mix(made.x0(), np.ones(2))
    with pytest.raises(InvalidInput, match="chunk"):
        Network(model, x, y, chunk=0)
    with pytest.raises(InvalidInput, match="one piece"):
        Network(model, Blocks([(x[:5],), (x[5:],)]), y, batch=Pooled(3))
    with pytest.raises(InvalidInput, match="at least 0"):
        TensorNorms(-1.0)
    with pytest.raises(InvalidInput, match="not known to torch"):
        Network(model, x, y, device="gpu")


def test_without_torch_the_error_names_the_extra():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import ownstep\n"
        "try:\n    from ownstep.problems import Network\n"
        "except ownstep.OwnstepError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'ownstep[torch]'" in done.stdout


@pytest.mark.slow
def test_the_package_does_not_bring_torch_in():
    code = "import ownstep, ownstep.cli, sys; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there():
    x, y = data()
    with pytest.raises(OwnstepError, match="sees no CUDA GPU"):
        Network(mlp(4, 3), x, y, device="cuda")


def test_a_nan_loss_stops_the_run_and_says_so():
    made = problem()
    history = run(GD(1e200), made, 20, devices=constants(made))
    assert history.rounds < 20
    assert "f(x) is nan" in history.stopped or "diverged" in history.stopped or "inf" in history.stopped


def test_the_papers_networks():
    assert sum(p.numel() for p in mnist_cnn().parameters()) == 16 * 26 + 32 * (400 + 1) + 10 * 1569
    convolutions = 32 * 28 + 64 * 289 + 128 * 577 + 128 * 1153
    assert sum(p.numel() for p in cifar_cnn().parameters()) == convolutions + 2 * (32 + 64 + 128 + 128) + 1290
    images = pixels(np.arange(2 * 28 * 28, dtype=np.uint8).reshape(2, 28, 28))
    assert images.shape == (2, 1, 28, 28)
    assert images.max() <= 1
    # Pooling before an increasing activation is pooling after it.
    net = mnist_cnn(3)
    after = nn.Sequential(net[0], net[2], net[1], net[3], net[5], net[4], net[6], net[7])
    assert torch.allclose(net(images), after(images), atol=1e-6)
    state = torch.get_rng_state()
    assert torch.equal(mnist_cnn(1)[0].weight, mnist_cnn(1)[0].weight)
    assert torch.equal(state, torch.get_rng_state())


def test_crops_and_flips():
    images = torch.arange(2 * 3 * 6 * 6, dtype=F64).reshape(2, 3, 6, 6)
    same = CropFlip(2).apply(images, torch.tensor([[2, 2, 0], [2, 2, 1]]))
    assert torch.equal(same[0], images[0])
    assert torch.equal(same[1], images[1].flip(-1))
    moved = CropFlip(2).apply(images, torch.tensor([[0, 1, 0], [4, 2, 0]]))
    assert torch.equal(moved[0][:, 2:, 1:], images[0][:, :-2, :-1])
    assert torch.equal(moved[1][:, :-2], images[1][:, 2:])
    assert (moved[1][:, -2:] == 0).all()
    assert CropFlip().draw(np.random.default_rng(0), 100).max(0).tolist() == [8, 8, 1]


def test_losses_that_are_not_numbers_are_not_blamed_on_the_batch():
    """A model that gives nan gives it alone and in company; the run says so later, by its name."""
    inputs, targets = (torch.zeros(4, 2),), torch.zeros(4)
    check_per_sample(lambda few, some: torch.full((len(some),), torch.nan), inputs, targets)
    with pytest.raises(InvalidInput, match="depends on the others in its batch"):
        check_per_sample(lambda few, some: torch.full((len(some),), float(len(some))), inputs, targets)


@pytest.mark.parametrize("rule", [PerDevice, Pooled, Stratified])
def test_the_smallest_and_the_largest_batch(rule):
    split = partition.given(np.zeros(5, int))
    for b in (1, 5):
        assert sorted(rule(b).deal(split, 0).indices(0)) == sorted(set(rule(b).deal(split, 0).indices(0)))
        assert rule(b).deal(split, 0).size == b
    with pytest.raises(InvalidInput):
        rule(6).deal(split, 0)
    for b in (0, -1, 1.5):
        with pytest.raises(InvalidInput, match=rf"{rule.__name__}\(b\) must be a whole number of at least 1, got {b}"):
            rule(b)


@pytest.mark.parametrize(
    ("value", "hint"), [([[1.0], [1.0, 2.0]], False), ((1, "a"), False), (object(), False), ({"a": 1}, True)]
)
def test_what_is_no_tensor_is_told_how_to_become_one(value, hint):
    with pytest.raises(InvalidInput, match=f"inputs must be a tensor, got {type(value).__name__}") as told:
        as_tensor("inputs", value)
    assert ("give the samples themselves" in str(told.value)) == hint


def test_another_option_is_another_problem_to_a_checkpoint():
    """Each of them changes what the settings say, and a seed only where something is drawn with it."""
    rng = np.random.default_rng(0)
    images, labels = torch.as_tensor(rng.random((12, 1, 4, 4))).float(), np.arange(12) % 3
    flat = lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 3))  # noqa: E731

    def told(model=flat, rows=12, **options):
        return Network(model(), images[:rows], labels[:rows], partition.given(labels[:rows]), **options).settings

    class Other(nn.Sequential):
        pass

    same = {"batch": PerDevice(2), "seed": 3}
    assert told() == told() == told(seed=5) == told(chunk=5)
    assert told(**same) == told(**same) != told(**same | {"seed": 4})
    assert told()["batch_seed"] is None
    assert told(**same)["batch_seed"] == 3
    others = [
        {"model": lambda: Other(nn.Flatten(), nn.Linear(16, 3))}, {"rows": 9}, {"penalty": SquaredL2(0.1)},
        {"model": lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 4))}, {"penalty": SquaredL2(0.2)},
        {"batch": Pooled(4)}, {"batch": Pooled(6)},
        {"dtype": F64}, {"autocast": torch.bfloat16}, {"autocast": torch.float16},
        {"batch": Pooled(4), "augment": CropFlip(1)},
        {"batch": Pooled(4), "augment": CropFlip(2)},
    ]  # fmt: skip
    seen = [told(), *(told(**options) for options in others)]
    assert all(a != b for i, a in enumerate(seen) for b in seen[:i])
    assert told()["samples"] == 12
    assert told()["model"] == "Sequential"


@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_pieces_of_any_size_add_up_to_the_whole(chunk):
    x, y = data(n=22)
    owner = np.random.default_rng(3).permutation(np.repeat([0, 1, 2], [3, 7, 12]))
    blocks = Blocks([(x[:9],), (x[9:],)])
    model, c = mlp(4, 3, 6).double(), np.array([0.3, -0.2, 2.0])
    whole = Network(model, x, y, partition.given(owner), penalty=SquaredL2(0.2))
    for inputs in (x, blocks):
        made = Network(model, inputs, y, partition.given(owner), penalty=SquaredL2(0.2), chunk=chunk)
        for mine, theirs in zip(made.mix(made.x0(), c), whole.mix(made.x0(), c), strict=True):
            torch.testing.assert_close(torch.as_tensor(mine), torch.as_tensor(theirs), rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(made.gradients(made.x0()), whole.gradients(made.x0()), rtol=1e-12, atol=1e-13)
        for i in range(3):
            pieces = list(made.rows(i))
            assert max(len(targets) for _, targets in pieces) <= chunk
            assert sum(len(targets) for _, targets in pieces) == made.counts[i]
            assert all(len(inputs[0]) == len(targets) for inputs, targets in pieces)
        torch.testing.assert_close(made.outputs(made.x0(), x, chunk=chunk), whole.outputs(made.x0(), x))
        assert made.accuracy(made.x0()) == whole.accuracy(made.x0(), x, y)
    for wrong in (0, -1, 2.5):
        with pytest.raises(InvalidInput, match="chunk must be a whole number of at least 1"):
            Network(model, x, y, chunk=wrong)


@pytest.mark.parametrize("graph", [True, False])
def test_passes_are_recorded_where_they_are_in_one_piece_and_asked_for(graph, monkeypatch):
    """On a GPU, that is: a CPU has its samples in pieces. Many devices alone are not, each would be a graph."""
    asked, network = [], sys.modules[Network.__module__]
    monkeypatch.setattr(network, "Replay", lambda call, record, *more: asked.append(record) or call)
    problem(3, graph=graph)
    monkeypatch.setattr(network, "CPU_CHUNK", None)  # as elsewhere
    problem(3, graph=graph)
    problem(3, graph=graph, chunk=5)
    monkeypatch.setattr(network, "MOST_RECORDED", 3)
    problem(3, graph=graph)
    monkeypatch.setattr(network, "MOST_RECORDED", 2)
    problem(3, graph=graph)
    assert asked == [False, False, graph, graph, False, False, graph, graph, graph, False]


def test_models_by_name_and_what_they_take():
    """Bytes become numbers from 0 to 1, whatever the model; other numbers stay as they are, sparse ones too."""
    rng = np.random.default_rng(1)
    bytes_ = rng.integers(0, 256, (3, 4, 5)).astype(np.uint8)
    model, table = build("mlp", bytes_, 7, seed=2)
    np.testing.assert_allclose(table(bytes_), bytes_.reshape(3, 20) / 255, rtol=1e-6)
    assert model(table(bytes_)).shape == (3, 7)
    assert torch.equal(model[0].weight, mlp(20, 7, seed=2)[0].weight)
    rows = rng.standard_normal((3, 6))
    for given in (rows, sp.csr_array(rows)):
        model, table = build("mlp", given, 2)
        np.testing.assert_allclose(table(given), rows, rtol=1e-6)
        assert model(table(given)).shape == (3, 2)
    for shape, expected in (((2, 28, 28), (2, 1, 28, 28)), ((2, 3, 32, 32), (2, 3, 32, 32))):
        images = rng.integers(0, 256, shape).astype(np.uint8)
        model, made = build("cnn", images, 10, seed=4)
        assert made(images).shape == expected
        np.testing.assert_allclose(made(images).reshape(-1), images.reshape(-1) / 255, rtol=1e-6)
        assert model(made(images)).shape == (2, 10)
        same = (mnist_cnn if shape[1] == 28 else cifar_cnn)(4)
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), same.parameters(), strict=True))
    for name, wrong, message in (
        ("cnn", np.zeros((2, 8, 8)), r"got rows of shape \(8, 8\)"), ("mlp", ["a", "b"], "needs rows of numbers"),
        ("mlp", np.zeros(4), "needs rows of numbers"), ("rnn", rows, "unknown model 'rnn'"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=message):
            build(name, wrong, 2)


def by_hand(parameters, layers, x):
    """Layers by their names, with the next of the parameters."""
    parameters, F = iter(parameters), nn.functional
    for layer in layers.split():
        if layer in ("conv3", "conv5"):
            x = F.conv2d(x, next(parameters), next(parameters), padding=int(layer[-1]) // 2)
        elif layer == "norm":
            mean, scale, shift = x.mean((1, 2, 3), keepdim=True), next(parameters), next(parameters)
            x = (x - mean) / (((x - mean) ** 2).mean((1, 2, 3), keepdim=True) + 1e-5).sqrt()
            x = x * scale[:, None, None] + shift[:, None, None]
        elif layer == "pool":
            x = x.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).amax((3, 5))
        elif layer == "elu":
            x = torch.where(x > 0, x, x.exp() - 1)
        elif layer == "leaky":
            x = torch.where(x > 0, x, 0.01 * x)
        elif layer == "mean":
            x = x.mean((2, 3))
        else:
            assert layer == "linear"
            x = x.flatten(1) @ next(parameters).T + next(parameters)
    assert next(parameters, None) is None
    return x


@pytest.mark.parametrize(
    ("make", "shape", "layers"),
    [
        (mnist_cnn, (1, 28, 28), "conv5 pool elu conv5 pool elu linear"),
        (
            cifar_cnn, (3, 32, 32),
            "conv3 norm leaky conv3 norm pool leaky conv3 norm leaky conv3 norm pool leaky mean linear",
        ),
    ],
)  # fmt: skip
def test_the_networks_are_their_layers_written_out(make, shape, layers):
    x = torch.as_tensor(np.random.default_rng(3).standard_normal((2, *shape)))
    model = make(seed=1).double()
    torch.testing.assert_close(model(x), by_hand(model.parameters(), layers, x), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("autocast", [None, torch.float16])
def test_a_mix_is_as_exact_for_small_coefficients(autocast):
    """Half precision ends at 6e-8; the sum is linear in the coefficients all the same, to the last bit."""
    x, y = data()
    made = Network(mlp(4, 3, 6), x.float(), y, partition.given(np.arange(60) % 3), autocast=autocast)
    c = np.array([0.3, 0.0, -1.0])
    whole = made.mix(made.x0(), c)[1]
    assert whole.norm() > 0.01
    assert not made.mix(made.x0(), 0 * c)[1].any()
    for power in (-20, 20):
        torch.testing.assert_close(made.mix(made.x0(), 2.0**power * c)[1], 2.0**power * whole, rtol=0, atol=0)


def test_crops_and_mirror_images_pixel_by_pixel():
    rng = np.random.default_rng(2)
    images, change = rng.random((5, 2, 4, 6)), CropFlip(2)
    drawn = change.draw(np.random.default_rng(3), 5)
    drawn[0], drawn[1] = [0, 4, 1], [4, 0, 0]
    found = change.apply(torch.as_tensor(images), torch.as_tensor(drawn)).numpy()
    for n, (top, left, mirrored) in enumerate(drawn):
        padded = np.pad(images[n], ((0, 0), (2, 2), (2, 2)))
        cut = padded[:, top : top + 4, left : left + 6]
        np.testing.assert_array_equal(found[n], cut[:, :, ::-1] if mirrored else cut)
    many = change.draw(np.random.default_rng(4), 4000)
    assert [sorted(set(column)) for column in many.T.tolist()] == [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [0, 1]]
    assert CropFlip().pad == 4
