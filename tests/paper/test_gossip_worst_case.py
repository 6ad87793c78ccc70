"""Own steps against gossip methods over networks: what is compared, and how the verdict follows."""

from __future__ import annotations

import pytest

from ownstep.paper.ours import gossip_worst_case as experiment
from ownstep.support.errors import OwnstepError

YES, PARTLY, NO = "holds", "holds partly", "does not hold here"


class Enclosed:
    """A worst case whose proof fails, or proves a little more than the upper end."""

    def __init__(self, upper, fails=False):
        self.exact, self.fails = upper, fails

    def certify(self):
        if self.fails:
            raise OwnstepError("the bound does not survive exact arithmetic")
        return type("Proved", (), {"upper": self.exact})()


def row(lower, upper, exact=None, fails=False):
    return {"lower": lower, "upper": upper, "bound": Enclosed(exact or upper, fails)}


@pytest.mark.parametrize(
    ("ours", "rival", "word"),
    [
        (row(0.8, 0.9), row(0.95, 1.0), "smaller"),
        (row(0.8, 0.9, exact=0.96), row(0.95, 1.0), "undecided"),  # what is proved exactly decides
        (row(0.8, 0.9, fails=True), row(0.95, 1.0), "undecided"),
        (row(0.8, 0.96), row(0.95, 1.0), "undecided"),
        (row(1.1, 1.2), row(0.95, 1.0), "larger"),
        (row(1.1, 1.2), row(0.95, 1.0, fails=True), "undecided"),
        ({"failed": "no answer"}, row(0.95, 1.0), "undecided"),
    ],
)
def test_a_comparison_needs_a_proof_and_an_instance(ours, rival, word):
    assert experiment._compared(ours, rival)["word"] == word


def cell(*words, searched=True, radius=0.1):
    """Words against DGD, gradient tracking and both tuned; the other pairs are undecided."""
    pairs = {f"{ours} / {rival}": {"word": "undecided"} for ours, rival in experiment.PAIRS}
    for rival, word in zip((*experiment.RIVALS, *experiment.TUNED_RIVALS), words, strict=True):
        pairs[f"{experiment.OURS} / {rival}"] = {"word": word}
    if not searched:
        pairs = {name: w for name, w in pairs.items() if "tuned" not in name}
    return {"L": [0.5, 1.5], "rounds": 3, "lambda": 0.5, "radius": radius, "compared": pairs}


A, B, U = "smaller", "larger", "undecided"


@pytest.mark.parametrize(
    ("cells", "word", "fair", "both", "worse"),
    [
        ([cell(A, A, A, A), cell(A, A, A, A)], YES, YES, 2, 0),
        ([cell(A, A, A, B), cell(A, B, A, A)], PARTLY, PARTLY, 1, 1),
        ([cell(A, U, B, A), cell(U, A, B, A)], NO, NO, 0, 0),
        ([cell(A, A, A, A), cell(A, A, B, B, searched=False)], YES, YES, 2, 0),
        ([cell(B, A, A, A, searched=False)], NO, "not tested", 0, 1),
    ],
)
def test_the_verdict(cells, word, fair, both, worse):
    found = experiment.verdict({"cells": cells})
    assert found["verdict"] == word
    assert f"lower ends in {both} of {len(cells)}" in found["rule"]
    assert f"in {worse} a rival's" in found["rule"]
    assert experiment.fair({"cells": cells})["verdict"] == fair


def test_the_map_has_a_panel_for_each_rival():
    drawn = experiment.figure({"cells": [cell(A, B, U, A, radius=r) for r in (0.1, 1.0)]})
    assert len(drawn.axes) == 4


def test_the_settings_that_are_run():
    asked = experiment._settings(quick=False)
    assert len(asked) == len(set(asked)) == 39
    assert len(experiment._settings(quick=True)) == 3
