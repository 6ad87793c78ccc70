"""The verdict against fair rivals, at the edges of its rule."""

from __future__ import annotations

import pytest

from ownstep.paper.machinery.fairness import BY, RIVALS, against, speed_up
from ownstep.paper.ours import beyond, curvature_findings, which_method

EDGE = 1e-9


def test_every_fair_rival_beaten_everywhere_holds():
    cells = {name: [[BY + EDGE], [2.0, 2.1, 2.2]] for name in ("GD matched step", "GD tuned", "Nesterov", "L-BFGS")}
    found = against(cells)
    assert found["verdict"] == "holds"
    assert found["missing"] == []
    cells["Nesterov"][0] = [BY]  # not faster by more than it
    assert against(cells)["verdict"] == "holds partly"
    cells["Nesterov"][1] = [0.4]  # now never beaten
    assert against(cells)["verdict"] == "does not hold here"


def test_the_low_end_of_the_interval_decides_not_the_mean():
    wide = [[0.1, 3.0, 3.0, 3.0]]  # a mean of 2.3
    assert against({"GD tuned": wide})["rivals"]["GD tuned"]["won"] == 0
    assert against({"GD tuned": [[3.0] * 4]})["rivals"]["GD tuned"]["won"] == 1


def test_what_was_not_run_is_named_and_what_is_no_fair_rival_is_ignored():
    found = against({"GD 1/L-bar": [[5.0]], "GD 1/L": [[5.0]]})
    assert found["verdict"] == "not tested"
    assert found["missing"] == list(RIVALS)
    found = against({"Nesterov 1/L-bar": [[0.2]], "GD tuned": [[]]})
    assert found["missing"] == ["GD matched step", "GD tuned", "L-BFGS"]
    assert found["verdict"] == "does not hold here"


def test_a_diverged_run_of_ours_counts_as_zero():
    found = against({"GD matched step": [[0.0, 2.0, 2.0]]})
    assert found["rivals"]["GD matched step"]["won"] == 0
    assert found["rivals"]["GD matched step"]["speed_up"] == pytest.approx(4 / 3)


def test_stratified_gd_stands_for_the_matched_step_where_it_was_run():
    found = against({"GD matched step": [[1.4]], "GD stratified": [[1.01]]})
    assert found["rivals"]["GD matched step"]["name"] == "GD stratified"
    assert found["verdict"] == "does not hold here"


def test_over_settings_the_spread_is_that_of_their_means_and_of_one_setting_that_of_its_runs():
    one = against({"GD tuned": [[1.0, 3.0]]})["rivals"]["GD tuned"]
    assert (one["speed_up"], one["low"], one["high"]) == (2.0, 1.0, 3.0)
    two = against({"GD tuned": [[1.0, 3.0], [4.0, 8.0], []]})["rivals"]["GD tuned"]
    assert (two["speed_up"], two["low"], two["high"], two["of"]) == (4.0, 2.0, 6.0, 2)


def test_a_rival_that_runs_out_of_rounds_counts_as_needing_all_of_them():
    found = [speed_up(20, 30, 400), speed_up(20, None, 400), speed_up(None, 30, 400), speed_up(None, None, 400)]
    assert found == [1.5, 20, 0, None]


def test_own_curvature_meets_each_rival_on_the_same_data_and_draw():
    def row(method, data, seed, exchanges, devices=10, rank=None):
        return {"method": method, "data": data, "split": "label", "devices": devices, "seed": seed, "rank": rank,
                "exchanges": exchanges}  # fmt: skip

    ours = ("own_curvature", "a", 0, 10), ("own_curvature", "a", 1, 20), ("own_curvature", "b", 0, None)
    rows = [row(*one, rank=curvature_findings.DEFAULT) for one in ours]
    rows += [row("own_curvature", "a", 0, 1, rank=20), row("own_curvature", "a", 0, 1, 1, curvature_findings.DEFAULT)]
    rows += [row("lbfgs", "a", 0, 30, 1), row("lbfgs", "a", 1, 40, 1), row("lbfgs", "b", 0, 50, 1)]
    rows += [row("nesterov", "a", 0, None)]
    found = curvature_findings.fair({"rows": rows})
    lbfgs, nesterov = found["rivals"]["L-BFGS"], found["rivals"]["Nesterov"]
    assert (lbfgs["won"], lbfgs["of"]) == (1, 2)  # (30/10, 40/20) on a; on b only the rival gets there
    assert lbfgs["speed_up"] == pytest.approx((2.5 + 0) / 2)
    assert nesterov["speed_up"] == curvature_findings.FAIR["nesterov"][1] / 10
    assert found["missing"] == ["GD matched step", "GD tuned"]
    assert found["verdict"] == "holds partly"


def test_extensions_and_tuned_algorithm_1_have_a_verdict_against_fair_rivals():
    rounds = {"L-BFGS": 10, "GD tuned": 50, "Nesterov": None} | dict.fromkeys(beyond.ABLATIONS, 20)
    rows = [{"method": name, "rounds": {"0.01": k}} for name, k in rounds.items()]
    found = beyond.fair({"full": {"digits": {"rows": rows}}})
    speeds = {name: one["speed_up"] for name, one in found["rivals"].items()}
    assert speeds == {"L-BFGS": 0.5, "GD tuned": 2.5, "Nesterov": 2.5}  # all had 50 rounds at least
    assert found["verdict"] == "does not hold here"

    def kind(**rounds):
        return [{"method": name.replace("_", " "), "rounds": {"0.01": k}} for name, k in rounds.items()]

    case = {
        "rounds": 150,
        "as set": kind(Algorithm_1=30, GD_tuned=1, Nesterov=60),
        "tuned": kind(Algorithm_1=40, GD=80),
    }
    found = which_method.fair({"cases": {"digits": case}})
    assert {name: one["speed_up"] for name, one in found["rivals"].items()} == {"GD tuned": 2, "Nesterov": 2}
    assert found["verdict"] == "holds"
