"""The verdict against fair rivals, at the edges of its rule."""

from __future__ import annotations

import pytest

from ownstep.paper.machinery.fairness import BY, RIVALS, against

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
