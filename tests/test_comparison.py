"""What a comparison's rows say: keys, exchanges, bytes, seconds."""

from __future__ import annotations

import numpy as np
import pytest

from ownstep.engines import baselines, beyond, compare, describe
from ownstep.engines.compare import searched
from ownstep.methods import GD, LBFGS, METHODS, At, FedAdam, FedAvg, Newton, OwnStep, key_of

from .conftest import make_logistic


def test_keys_name_what_is_not_default():
    assert key_of(GD(), METHODS) == "gd:mean"
    assert key_of(GD("matched"), METHODS) == "gd:matched"
    assert key_of(LBFGS(), METHODS) == "lbfgs"
    assert key_of(LBFGS(3), METHODS) == "lbfgs:3"
    assert key_of(FedAvg(server_step=float("1")), METHODS) == "fedavg"  # the default, as another object
    assert key_of(OwnStep(smoothness="adaptive"), METHODS) == "own_step:adaptive"
    assert key_of(OwnStep(At(3), momentum="item"), METHODS) == "own_step:switch=At(rounds=3),momentum=item"


def test_rows_have_unique_keys_exchanges_and_bytes():
    problem = make_logistic()
    found = compare(problem, baselines() | beyond() | {"again": LBFGS(), "Newton": Newton()}, 200)
    rows = found.rows()
    keys = [row["key"] for row in rows]
    assert len(set(keys)) == len(keys)
    assert {"gd:matched", "gd:tuned", "lbfgs", "lbfgs#2", "newton", "own_step", "own_step:adaptive"} <= set(keys)
    for row in rows:
        history = found.histories[row["method"]]
        k = row["rounds"]["0.01"]
        assert row["exchanges"]["0.01"] == k
        assert row["seconds"]["0.01"] == pytest.approx(history.columns["seconds"][: k + 1].sum())
    by_key = {row["key"]: row for row in rows}
    each = 2 * (problem.dim * 8 + 8)
    assert by_key["lbfgs"]["bytes"]["0.01"] == by_key["lbfgs"]["rounds"]["0.01"] * each
    triangle = 8 * problem.dim * (problem.dim + 1) // 2
    assert by_key["newton"]["bytes"]["0.01"] == by_key["newton"]["rounds"]["0.01"] * (each + triangle)


def test_the_seed_of_a_search_decides_what_it_tries():
    """For a step that is tuned and for a method with settings of its own."""
    problem = make_logistic()
    devices = describe(problem).devices
    for method in (GD("tuned"), FedAdam()):
        tried = [searched(method, problem, 5, 9, devices, 0.0, seed)[2]["tuning"]["trials"] for seed in (0, 0, 1)]
        assert tried[0] == tried[1] != tried[2]


def test_a_search_leaves_alone_what_needs_no_constant_and_scales_the_rest():
    problem = make_logistic()
    devices = describe(problem).devices
    method, same, spent = searched(LBFGS(), problem, 5, 9, devices, 0.0, 0)
    assert (method, same, spent) == (LBFGS(), devices, {})
    method, scaled, spent = searched(OwnStep(), problem, 5, 9, devices, 0.0, 0)
    assert method == OwnStep()
    assert len(spent["tuning"]["trials"]) == 9
    np.testing.assert_allclose(scaled.L * spent["tuning"]["scale"], devices.L)
    assert spent["tuning"]["scale"] != 1
