"""``ownstep train`` and the neural experiments, on data that needs no download."""

import json
import re

import numpy as np
import pytest
import scipy.sparse as sp

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from ownstep import cli  # noqa: E402
from ownstep.cli.learn.train import usual_model  # noqa: E402
from ownstep.data import Dataset  # noqa: E402
from ownstep.paper import load_experiment  # noqa: E402
from ownstep.paper.machinery import neural  # noqa: E402
from ownstep.problems.network.models import build  # noqa: E402

ARGUMENTS = [
    "train",
    "--data",
    "digits",
    "--model",
    "mlp",
    "--devices",
    "5",
    "--draws",
    "10",
    "--samples",
    "5",
    "--rows",
    "200",
    "--json",
]


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        cli.main(list(arguments))
    done = capsys.readouterr()
    return stopped.value.code, done.out, done.err


def report(capsys, *arguments):
    code, out, err = call(capsys, *ARGUMENTS, *arguments)
    assert code == 0, err
    return json.loads(out)


def test_it_trains_and_tells(capsys, tmp_path):
    out = report(capsys, "--rounds", "15", "--smoothness", "power", "--out", str(tmp_path))
    assert out["rounds"] == 15
    assert out["final_value"] < 2.4
    assert 0 < out["train_accuracy"] <= 1
    assert out["plan"]["smoothness"]["kind"] == "estimate"
    names = {p.name for p in tmp_path.iterdir()}
    assert names - {"checkpoint.1.json"} == {
        "checkpoint.safetensors",
        "checkpoint.1.safetensors",  # the one before
        "checkpoint.json",
        "model.safetensors",
        "report.json",
        "history.npz",
        "history.json",
    }
    from safetensors.torch import load_file

    model, _ = build("mlp", np.zeros((3, 64)), 10)
    model.load_state_dict(load_file(tmp_path / "model.safetensors"))


@pytest.mark.parametrize("batch", [[], ["--batch", "per_device:2"]])
def test_resuming_is_exact(capsys, tmp_path, batch):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    options = ["--smoothness", "20", *batch]
    report(capsys, *options, "--rounds", "12", "--out", str(whole))
    report(capsys, *options, "--rounds", "5", "--out", str(parts))
    report(capsys, *options, "--rounds", "12", "--out", str(parts))
    assert (whole / "model.safetensors").read_bytes() == (parts / "model.safetensors").read_bytes()


def test_another_models_checkpoint_is_not_overwritten(capsys, tmp_path):
    report(capsys, "--rounds", "3", "--smoothness", "20", "--out", str(tmp_path))
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    code, _, err = call(
        capsys,
        *["train", "--data", "breast_cancer", "--model", "mlp", "--rounds", "3", "--smoothness", "20", "--out"],
        str(tmp_path),
    )
    assert code == 1
    assert "of another run" in err
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    for damaged, expected in (
        ("checkpoint.safetensors", 0),
        ("checkpoint*.safetensors", 1),
    ):  # one gives way to the other
        for file in tmp_path.glob(damaged):
            file.write_bytes(b"not a checkpoint")
        code, _, err = call(capsys, *ARGUMENTS, "--smoothness", "20", "--rounds", "3", "--out", str(tmp_path))
        assert code == expected
    assert "not a readable checkpoint" in err


def test_mu_is_short_for_a_squared_penalty(capsys):
    command = ["train", "breast_cancer", "--model", "mlp", "--rounds", "2", "--smoothness", "20", "--json"]
    short, long, none = (
        json.loads(call(capsys, *command, *more)[1])["final_value"]
        for more in (("--mu", "0.5"), ("--penalty", "l2:0.5"), ())
    )
    assert short == long
    assert short != none


@pytest.mark.parametrize(
    ("rows", "model"),
    [
        (np.zeros((3, 2)), "mlp"),
        (sp.csr_array((3, 2)), "mlp"),
        (np.zeros((3, 9, 9)), "cnn"),
        (["a", "b", "c"], "encoder"),
    ],
)
def test_the_model_suits_the_data(rows, model):
    assert usual_model(Dataset("some", rows, np.zeros(3))) == model


def test_a_table_needs_no_model_named(capsys):
    told = json.loads(call(capsys, *["train", "breast_cancer", "--rounds", "2", "--smoothness", "20", "--json"])[1])
    assert (told["model"], told["rounds"]) == ("mlp", 2)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("--data digits --model cnn", "'cnn' is for mnist"),
        ("--data digits --model resnet", "unknown model 'resnet'"),
        ("--data digits --model encoder", "reads sentences"),
        ("--data digits --model mlp --batch 10", "unknown batch '10'"),
        ("--data digits --model mlp --penalty l3:1", "unknown penalty 'l3:1'"),
        ("--data digits --model mlp --penalty l2:x", "cannot be read"),
        ("--data digits --model mlp --penalty l2:1 --mu 0.1", "--mu 0.1 and --penalty l2:1 both give a penalty"),
        ("--data digits --model mlp --mu -1", "--mu must be a finite number >= 0, got -1.0"),
        ("--data digits --model mlp --smoothness secant", "unknown smoothness 'secant'"),
        ("--data digits --model mlp --every 0", "--every"),
        ("--data digits --model mlp --method sgd", "unknown method"),
        ("--data nowhere", "unknown dataset"),
        ("nowhere", "unknown dataset"),
        ("digits --data mnist", "train needs one dataset"),
        ("--model mlp", "train needs one dataset"),
    ],
)
def test_bad_options_exit_with_two(capsys, arguments, text):
    code, _, err = call(capsys, "train", *arguments.split())
    assert code == 2
    assert text in err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu_is_a_failure_that_says_so(capsys):
    code, _, err = call(capsys, *["train", "--data", "digits", "--model", "mlp", "--device", "cuda"])
    assert code == 1
    assert "sees no CUDA GPU" in err


def fake(name):
    rng = np.random.default_rng(0)
    if name == "sst2":
        words = [" ".join(rng.choice(list("abcdef"), 4)) for _ in range(60)]
        return Dataset("sst2", words, rng.integers(0, 2, 60), words[:40], rng.integers(0, 2, 40))
    shape = (28, 28) if name == "mnist" else (3, 32, 32)
    draw = lambda n: rng.integers(0, 255, (n, *shape)).astype(np.uint8)  # noqa: E731
    return Dataset(name, draw(80), np.arange(80) % 10, draw(40), np.arange(40) % 10)


def assert_is_the_plain_loop(arm):
    """MNIST's first seed again in plain torch: pairs of classes in the order of their constants, the printed L_i."""
    from ownstep.problems.network.models import mnist_cnn

    data, rng = fake("mnist"), np.random.default_rng(0)
    at = np.concatenate([rng.choice(np.flatnonzero(data.labels == c), 3, replace=False) for c in range(10)])
    images, labels = torch.tensor(data.rows[at] / 255.0, dtype=torch.float32)[:, None], data.labels[at]
    L = np.array([float(c) for c in arm["runs"][0]["devices"]["L"]])
    pairs = [[int(c) for c in re.findall(r"\d", name)] for name in arm["runs"][0]["devices"]["names"]]
    assert sorted(c for pair in pairs for c in pair) == list(range(10))

    def losses(model):
        for pair in pairs:
            mine = np.isin(labels, pair)
            yield torch.nn.functional.cross_entropy(model(images[mine]), torch.tensor(labels[mine]))

    for name, steps in ((neural.OURS, lambda k: 1 / L if k < 2 else np.full(5, 1 / L.mean())),
                        (neural.POOLED, lambda k: np.full(5, 1 / L.mean()))):  # fmt: skip
        model = mnist_cnn(0)
        for k, seen in enumerate(arm["runs"][0]["methods"][name]["loss"]):
            each = list(losses(model))
            penalty = 0.01 * sum(p.norm() for p in model.parameters())
            assert (sum(each) / 5 + penalty).item() == pytest.approx(seen, rel=1e-4)
            step = torch.tensor(steps(k), dtype=torch.float32)
            total = sum(s * (loss + penalty) / 5 for s, loss in zip(step, each, strict=True))
            slopes = torch.autograd.grad(total, list(model.parameters()))
            with torch.no_grad():
                for p, slope in zip(model.parameters(), slopes, strict=True):
                    p -= slope


@pytest.mark.parametrize("name", ["mnist", "cifar10", "sst2"])
def test_quick_experiments_run_are_judged_and_drawn(monkeypatch, name, tmp_path):
    import ownstep.data

    monkeypatch.setattr(ownstep.data, "load", lambda which: fake(which))
    experiment = load_experiment(name)
    result = json.loads(json.dumps(experiment.run(quick=True)))
    judged = experiment.verdict(result)
    assert judged["verdict"] in ("holds", "holds partly", "does not hold here")
    assert judged["findings"]
    for arm in result["arms"].values():
        assert len(arm["runs"]) == 2
        for one in arm["runs"]:  # all from one point, and Algorithm 1 switches when four fifths are over
            starts = [method["loss"][0] for method in one["methods"].values()]
            np.testing.assert_allclose(starts, starts[0], rtol=1e-2)  # CIFAR-10 looks at random crops
            rounds = max(method["rounds"][-1] for method in one["methods"].values())
            assert one["methods"][neural.OURS]["switched_at"] in (None, int(0.8 * rounds))
        first, second = (one["methods"][neural.POOLED]["loss"] for one in arm["runs"])
        assert first[0] != second[0]  # another seed, other weights
    if name == "mnist":
        assert_is_the_plain_loop(result["arms"]["30 images, paper"])
    experiment.figure(result).savefig(tmp_path / "figure.png")
    assert all(len(row) == 4 for row in experiment.SETTINGS)


def test_speed_up_counts_rounds_to_the_worse_final_loss():
    def run(**losses):
        return {"methods": {k: {"rounds": [0, 10, 20], "loss": v} for k, v in losses.items()}}

    faster = run(**{neural.OURS: [3.0, 1.0, 0.5], neural.POOLED: [3.0, 2.0, 1.0]})
    assert neural.speed_up(faster) == 2.0
    slower = run(**{neural.OURS: [3.0, 2.0, 1.0], neural.POOLED: [3.0, 1.0, 0.5]})
    assert neural.speed_up(slower) == 0.5
    assert neural.speed_up(run(**{neural.OURS: [3.0, None, None], neural.POOLED: [3.0, 1.0, 0.5]})) == 0.0
    assert neural.speed_up(run(**{neural.OURS: [3.0, 1.0, 0.5], neural.POOLED: [3.0, None, None]})) is None
    assert neural.speed_up(faster, against=neural.MATCHED) is None


def test_verdicts_follow_the_interval():
    def arm(*pairs):
        runs = [
            {
                "devices": {"gain": 1.5},
                "methods": {
                    neural.OURS: {"rounds": [0, 10, 20], "loss": [3.0, a, a - 0.5]},
                    neural.POOLED: {"rounds": [0, 10, 20], "loss": [3.0, b, b - 0.5]},
                },
            }
            for a, b in pairs
        ]
        return {"runs": runs}

    good, bad = arm(*[(1.0, 2.0)] * 4), arm(*[(2.0, 1.0)] * 4)
    assert neural.judge({"a": good})["verdict"] == "holds"
    assert neural.judge({"a": bad})["verdict"] == "does not hold here"
    assert neural.judge({"a": good, "b": bad})["verdict"] == "holds partly"


def test_runs_in_which_ours_diverged_count_against_it():
    other = {"rounds": [0, 10, 20], "loss": [3.0, 2.0, 1.0]}
    well, lost = {"rounds": [0, 10, 20], "loss": [3.0, 1.0, 0.5]}, {"rounds": [0, 10], "loss": [3.0, None]}
    runs = [
        {"devices": {"gain": 1.5}, "methods": {neural.OURS: ours, neural.POOLED: other}}
        for ours in (well, well, lost, lost)
    ]
    judged = neural.judge({"a": {"runs": runs}})
    assert judged["verdict"] == "does not hold here"  # twice as fast where it did not diverge
    assert "0 in 2 in which Algorithm 1 diverged" in judged["findings"][0]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_the_full_form_reads_what_a_gpu_gave_or_says_it_cannot(monkeypatch, tmp_path):
    from ownstep import OwnstepError

    monkeypatch.setattr(neural, "__file__", str(tmp_path / "a" / "b" / "c" / "d" / "neural.py"))
    with pytest.raises(OwnstepError, match="runs on a CUDA GPU"):
        load_experiment("mnist").run()
    folder = tmp_path / "results" / "cifar10"
    folder.mkdir(parents=True)
    (folder / "gpu-cifar10.json").write_text(
        json.dumps({"arms": {"paper": {"runs": []}}, "provenance": {"device": "one"}})
    )
    assert load_experiment("cifar10").run() == {
        "arms": {"paper": {"runs": []}},
        "recorded": {"cifar10": {"device": "one"}},
    }
    with pytest.raises(OwnstepError, match="with 4 seeds of its own needs a CUDA GPU"):
        load_experiment("cifar10").run(seeds=4)
