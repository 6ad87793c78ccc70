"""The optimal fixed-step methods, against the worst cases their authors proved in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ownstep.methods import GD, ITEM, OGM, Nesterov, Schedule
from ownstep.pep import tune, worst_case
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput


@pytest.mark.parametrize("K", [1, 2, 5, 8])
def test_ogm_has_the_proved_worst_case(K):
    """L R^2 / (2 theta_K^2), Kim and Fessler (2016), Theorem 2; exact."""
    theta = 1.0
    for k in range(K):
        theta = (1 + math.sqrt(1 + (8 if k == K - 1 else 4) * theta**2)) / 2
    bound = worst_case(OGM("mean", K), Devices.uniform([2.0]), K, 3.0)
    assert bound.upper == pytest.approx(2.0 * 9.0 / (2 * theta**2), rel=1e-5)


@pytest.mark.parametrize("K", [1, 4, 9])
def test_ogm_without_a_horizon_keeps_its_promise_in_every_round(K):
    theta = 1.0
    for _ in range(K - 1):
        theta = (1 + math.sqrt(1 + 4 * theta**2)) / 2
    assert worst_case(OGM("mean"), Devices.uniform([1.0]), K).upper <= 1 / (4 * theta**2)


@pytest.mark.parametrize(("L", "mu", "K"), [([1 / 3, 3], 0.1, 20), ([1.0], 0.01, 7), ([0.5, 1.5, 4.0], 0.2, 1)])
def test_item_has_the_proved_worst_case(L, mu, K):
    """R^2 / (1 + q A_K), Taylor and Drori (2023), Theorem 3, whatever the devices are as long as L_bar is the same."""
    devices = Devices.uniform(L, mu)
    q, A = mu / devices.L_bar, 0.0
    for _ in range(K):
        A = ((1 + q) * A + 2 * (1 + math.sqrt((1 + A) * (1 + q * A)))) / (1 - q) ** 2
    bound = worst_case(ITEM("mean"), devices, K, 1.0, 0.1, "distance")
    assert bound.upper == pytest.approx(1 / (1 + q * A), rel=1e-5)


def test_item_without_strong_convexity_is_ogm():
    devices = Devices.uniform([1.0, 2.0])
    bounds = [worst_case(method("mean"), devices, 6).upper for method in (ITEM, OGM)]
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-4)


def test_the_order_of_the_centralised_methods():
    """GD 0.0842, Nesterov 0.00475 and ITEM 0.00003 after 20 rounds."""
    devices = Devices.uniform([1 / 3, 3], 0.1)
    found = [worst_case(m, devices, 20, 1.0, 0.1, "distance").upper for m in (GD(), Nesterov("mean"), ITEM("mean"))]
    np.testing.assert_allclose(found, [0.0842, 0.00475, 0.00003], rtol=5e-3)


def test_item_says_what_it_needs():
    with pytest.raises(InvalidInput, match=r"ITEM needs alpha mu < 1, got alpha = 5 and mu = 0.5"):
        ITEM(5.0).start(np.zeros(2), Devices.uniform([1.0], 0.5))
    with pytest.raises(InvalidInput, match=r"horizon must be a whole number of at least 1, got 0"):
        OGM(horizon=0)


@pytest.mark.parametrize("steps", [(1.5,), (math.sqrt(2), 1 + math.sqrt(2), 1.5)])
def test_long_steps_have_the_worst_case_that_was_found_for_them(steps):
    """1 / (2 (2 sum_k h_k + 1)) for the best steps of gradient descent (Das Gupta, Van Parys and Ryu, 2024)."""
    bound = worst_case(Schedule(tuple((h,) for h in steps)), Devices.uniform([1.0]), len(steps))
    assert bound.upper == pytest.approx(1 / (2 * (2 * sum(steps) + 1)), rel=1e-6)
    assert bound.gap <= 1e-5


def test_a_design_from_gradient_descent_ends_there():
    found = tune(Devices.uniform([1.0]), 2, what="schedule", tolerance=1e-6)
    assert found.bound.upper == pytest.approx(0.0659460, rel=1e-4)
