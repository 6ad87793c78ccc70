"""Every recorded result, judged again: the rules give today what the pages show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ownstep import paper
from ownstep.paper.machinery import contest, mnist_problem

RESULTS = Path(__file__).parents[2] / "results"


def same(found, recorded, where="verdict"):
    """Words are the same words; numbers may differ in their last bits, as processors do."""
    if isinstance(recorded, dict):
        assert set(found) == set(recorded), where
        for key, value in recorded.items():
            same(found[key], value, f"{where}, {key}")
    elif isinstance(recorded, list):
        assert len(found) == len(recorded), where
        for n, (mine, theirs) in enumerate(zip(found, recorded, strict=True)):
            same(mine, theirs, f"{where}, {n}")
    elif isinstance(recorded, float):
        assert found == pytest.approx(recorded, rel=1e-9), where
    else:
        assert found == recorded, where


@pytest.mark.parametrize("name", paper.EXPERIMENTS)
def test_the_recorded_verdict_is_what_the_rules_say_of_the_recorded_runs(name):
    whole = json.loads((RESULTS / name / "result.json").read_text())
    same(json.loads(json.dumps(paper.load_experiment(name).verdict(whole["result"]))), whole["verdict"])


@pytest.mark.parametrize("name", ["gossip", "fedopt"])
def test_of_a_run_that_diverges_nothing_is_drawn_above_three_times_the_first_gap(name):
    result = json.loads((RESULTS / name / "result.json").read_text())["result"]
    left_out = 0
    for shown in paper.load_experiment(name).charts(result):
        assert "nothing above 3 is drawn" in shown["note"]
        for line in shown["lines"]:
            assert all(y is None or y <= 3 for y in line["y"])
            left_out += line["y"].count(None)
    parts = mnist_problem.parts(result).values()
    gaps = [g for part in parts for arm in contest.firsts(part["arms"]).values()
            for series in arm["series"].values() for g in series["gap"]]  # fmt: skip
    assert left_out == sum(g is None or g > 3 for g in gaps)
