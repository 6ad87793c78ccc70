"""How recorded curves of networks are judged, on curves whose answers can be seen."""

import os
import subprocess
import sys

import numpy as np
import pytest

from ownstep import InvalidInput
from ownstep.data import SOURCES
from ownstep.paper.machinery import neural
from ownstep.paper.machinery.curves import on_one_grid
from ownstep.paper.machinery.neural import MATCHED, NESTEROV, OURS, POOLED, TUNED

ROUNDS = list(range(0, 101, 10))


def line(rate, end=None, step=0.1):
    """2 - rate k, or from 2 to ``end`` in the last round."""
    loss = [2 - rate * k for k in ROUNDS]
    return {"rounds": ROUNDS, "loss": loss if end is None else [*loss[:-1], end], "step": step, "stopped": ""}


def one(seed=0, **methods):
    names = {"ours": OURS, "pooled": POOLED, "matched": MATCHED, "tuned": TUNED, "nesterov": NESTEROV}
    found = {names[k]: v for k, v in methods.items()}
    return {"seed": seed, "devices": {"gain": 1.2, "mean_step": 0.1}, "methods": found}


def test_speed_up_counts_rounds_to_the_worse_of_the_ends():
    run = one(ours=line(0.01), pooled=line(0.005), matched=line(0.0125))
    assert neural.speed_up(run) == pytest.approx(100 / 50)  # 1.5, where GD ends, is ours in round 50
    assert neural.speed_up(run, against=MATCHED) == pytest.approx(80 / 100)  # 1.0, where we end, is theirs in round 80
    assert neural.speed_up(run, against=NESTEROV) is None


@pytest.mark.parametrize("end", [None, 19.0])
def test_who_diverges_or_ends_above_the_start_is_lost(end):
    wild = {**line(0.01), "loss": [*line(0.01)["loss"][:-1], end]}
    assert neural.speed_up(one(ours=wild, pooled=line(0.005))) == 0.0
    assert neural.speed_up(one(ours=line(0.005), pooled=wild)) is None
    assert neural.speed_up(one(ours=wild, pooled=wild)) is None
    arm = {"runs": [one(s, ours=line(0.01), pooled=line(0.005), nesterov=wild) for s in (0, 1)]}
    assert "Nesterov 1/L-bar diverged" in neural.judge({"a": arm})["findings"][0]


def test_a_tuned_step_is_compared_at_the_loss_it_was_tuned_for():
    runs = [
        one(0, ours=line(0.01), pooled=line(0.005), tuned=line(0.05, end=1e6, step=2.0)),
        one(1, ours=line(0.01), pooled=line(0.005), tuned=line(0.04, step=1.5)),
        one(2, ours=line(0.01), pooled=line(0.005), tuned=line(-1.0, step=2.5)),
    ]
    found = neural.judge({"a": {"runs": runs}}, (1.5, 1.2))
    tuned = next(n for n in found["numbers"] if TUNED in n["group"])
    assert tuned["value"] == pytest.approx(np.mean([16 / 80, 20 / 80]))  # to 1.2, in the two runs that get there
    assert tuned["what"] == "to a loss of 1.2"
    assert "at 15 to 25 times Algorithm 1's mean step" in found["findings"][0]
    assert "reaches a loss of 1.2 in 2 of 3 runs, in 0.23 [0.20, 0.25] times" in found["findings"][0]
    assert TUNED not in found["findings"][0].split("Final training loss: ")[1].split(". ")[0]


def test_who_never_arrives_is_named():
    runs = [one(s, ours=line(0.001), pooled=line(0.0005), tuned=line(0.01, step=2.0)) for s in (0, 1)]
    (said,) = neural.judge({"a": {"runs": runs}}, (1.2,))["findings"]
    assert "reaches a loss of 1.2 in 2 of 2 runs; Algorithm 1 in none" in said


def test_a_tuned_step_that_never_arrives_says_nothing_of_algorithm_1():
    runs = [one(s, ours=line(0.01), pooled=line(0.005), tuned=line(-1.0, step=None)) for s in (0, 1)]
    (said,) = neural.judge({"a": {"runs": runs}}, (1.2,))["findings"]
    assert said.endswith("GD tuned reaches a loss of 1.2 in 0 of 2 runs")


def test_a_first_look_after_the_start_is_no_start():
    late = {**line(0.01), "rounds": [k + 10 for k in ROUNDS], "loss": [1e15] * 10 + [1e14]}
    assert (
        neural.speed_up(
            one(ours=late | {"stopped": "f(x) is 1e+05 at round 7: the step is too long"}, pooled=line(0.01))
        )
        == 0
    )
    assert neural.speed_up(one(ours=line(0.01), pooled={**late, "loss": [1.0] * 10 + [1.1]})) > 0


def test_runs_of_other_lengths_are_laid_on_one_grid():
    rounds, rows = on_one_grid([([0, 2, 4, 6], [3, 2, 1, 0]), ([0, 3], [6, 3]), ([0, 1, 2], [1, 5, None])], after=99)
    np.testing.assert_array_equal(rounds, [0, 2, 4, 6])
    np.testing.assert_array_equal(rows, [[3, 2, 1, 0], [6, 4, np.nan, np.nan], [1, 99, 99, 99]])


def test_the_verdict_needs_the_whole_interval_at_every_loss():
    fast, slow = one(0, ours=line(0.01), pooled=line(0.005)), one(1, ours=line(0.005), pooled=line(0.01))
    assert neural.judge({"a": {"runs": [fast, fast]}}, (1.8,))["verdict"] == "holds"
    assert neural.judge({"a": {"runs": [fast, slow]}}, (1.8,))["verdict"] == "does not hold here"
    assert neural.judge({"a": {"runs": [fast]}})["verdict"] == "not judged"


def test_more_methods_for_the_same_seeds():
    part = {"arms": {"paper": {"runs": [one(s, ours=line(0.01), pooled=line(0.005)) for s in (0, 1)]}}}
    more = {"arms": {"paper": {"runs": [one(1, nesterov=line(0.015))]}}}
    both = neural.completed(part, more)["arms"]["paper"]
    assert [list(run["methods"]) for run in both["runs"]] == [[OURS, POOLED], [OURS, POOLED, NESTEROV]]
    assert neural.labels(both) == [OURS, POOLED, NESTEROV]
    assert len(part["arms"]["paper"]["runs"][1]["methods"]) == 2  # what was given is left as it was


def test_methods_by_name():
    assert list(neural.methods(8)) == [OURS, POOLED, MATCHED, TUNED, NESTEROV]
    assert list(neural.methods(8, [NESTEROV, OURS])) == [NESTEROV, OURS]
    with pytest.raises(InvalidInput, match="Nestrov"):
        neural.methods(8, ["Nestrov"])


def test_what_runs_on_a_gpu_needs_torch_and_numpy_alone(tmp_path):
    code = """
import sys
for absent in ("matplotlib", "scipy", "sklearn", "typer", "rich", "clarabel", "platformdirs"):
    sys.modules[absent] = None  # importing it fails
from importlib import import_module
from ownstep.data import SOURCES, fetch
for remote in SOURCES["mnist"].files:
    assert fetch.locate(remote) is not None
from ownstep.paper import load_experiment
import_module("ownstep.paper.machinery.runner")
for name in "mnist cifar10 sst2 estimates dirichlet devices participation gossip fedopt".split():
    load_experiment(name)
"""
    for remote in SOURCES["mnist"].files:
        (tmp_path / remote.path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / remote.path).touch()
    data = os.environ | {"OWNSTEP_DATA": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=data)
    assert done.returncode == 0, done.stderr
