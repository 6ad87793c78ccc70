"""Worst cases that are known on paper."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ownstep import pep
from ownstep.methods import GD, At, HeavyBall, Nesterov, Never, OwnStep
from ownstep.plan import Devices

RADIUS = 1.7


def enclosed(bound: pep.Bound, exact: float, tolerance: float = 1e-5) -> None:
    """The exact value lies in the enclosure, up to rounding, and the enclosure is tight."""
    assert bound.lower <= exact * (1 + 1e-9) + 1e-300
    assert bound.upper >= exact * (1 - 1e-9)
    assert bound.gap <= tolerance


def one(L: float = 2.0, mu: float = 0.0) -> Devices:
    return Devices.uniform([L], mu)


@pytest.mark.parametrize("rounds", [1, 4, 9])
def test_gd_on_smooth_convex_functions(rounds: int) -> None:
    """Drori and Teboulle (2014): f - f* <= L R^2/(4K+2); and ||grad|| <= L R/(K+1)."""
    L = 2.0
    enclosed(pep.worst_case(GD(1 / L), one(L), rounds, RADIUS), L * RADIUS**2 / (4 * rounds + 2))
    enclosed(pep.worst_case(GD(1 / L), one(L), rounds, RADIUS, metric="gradient"), (L * RADIUS / (rounds + 1)) ** 2)


@pytest.mark.parametrize("rounds", [1, 3, 7])
@pytest.mark.parametrize("step", ["1/L", "2/(L+mu)"])
def test_gd_on_strongly_convex_functions(rounds: int, step: str) -> None:
    """Taylor, Hendrickx and Glineur (2017), with k = mu/L and h = L times the step."""
    L, mu = 2.0, 0.3
    alpha = 1 / L if step == "1/L" else 2 / (L + mu)
    k, h = mu / L, L * alpha
    fast = (1 - h) ** (2 * rounds)
    value = L * RADIUS**2 / 2 * max(k / (k - 1 + (1 - k * h) ** (-2 * rounds)), fast)
    distance = RADIUS**2 * max((1 - mu * alpha) ** 2, (1 - L * alpha) ** 2) ** rounds
    gradient = (L * RADIUS) ** 2 * max((k / (k - 1 + (1 - k * h) ** (-rounds))) ** 2, fast)
    for metric, exact in (("value", value), ("distance", distance), ("gradient", gradient)):
        enclosed(pep.worst_case(GD(alpha), one(L, mu), rounds, RADIUS, metric=metric), exact)


def test_no_rounds_at_all() -> None:
    devices = Devices.uniform([0.5, 3.0], 0.1)
    enclosed(pep.worst_case(GD(), devices, 0, RADIUS, 1.0), devices.L_bar / 2 * RADIUS**2)
    enclosed(pep.worst_case(GD(), devices, 0, RADIUS, 1.0, "distance"), RADIUS**2)
    enclosed(pep.worst_case(GD(), devices, 0, RADIUS, 1.0, "gradient"), (devices.L_bar * RADIUS) ** 2)


@pytest.mark.parametrize(
    "method", [GD(), HeavyBall(), Nesterov(step="mean"), OwnStep(At(2))], ids=lambda m: type(m).__name__
)
def test_identical_devices_are_one_function(method) -> None:
    alone = pep.worst_case(method, one(2.0, 0.2), 4, RADIUS)
    many = pep.worst_case(method, Devices.uniform([2.0] * 5, 0.2), 4, RADIUS, 0.4)
    apart = pep.worst_case(method, Devices.uniform([2.0] * 3, 0.2), 4, RADIUS, 0.4, symmetry=False)
    for other in (many, apart):
        assert other.lower <= alone.upper * (1 + 1e-9)
        assert other.upper >= alone.lower * (1 - 1e-9)
        assert other.upper == pytest.approx(alone.upper, rel=1e-5)


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_common_minimiser_by_hand(rounds: int) -> None:
    """With R* = 0, own steps map x to x - sum_i w_i grad f_i(x)/L_i: a contraction by 1 - sum_i w_i mu_i/L_i."""
    devices = Devices(np.array([0.3, 0.7]), np.array([0.5, 4.0]), np.array([0.1, 1.0]))
    rate = 1 - float(devices.weights @ (devices.mu / devices.L))
    bound = pep.worst_case(OwnStep(Never()), devices, rounds, RADIUS, 0.0, "distance")
    enclosed(bound, RADIUS**2 * rate ** (2 * rounds))


def test_quadratics_only() -> None:
    """mu = L: every loss is L_i/2 ||x - a_i||^2, so one round of own steps lands on sum_i w_i a_i, whatever x^0 is."""
    devices = Devices(np.array([0.5, 0.5]), np.array([1.0, 4.0]), np.array([1.0, 4.0]))
    zero = pep.worst_case(OwnStep(Never()), devices, 1, RADIUS, 0.0, "distance")
    assert zero.upper <= 1e-8 * RADIUS**2
    # a_1 = r, and w_1 L_1 a_1 + w_2 L_2 a_2 = 0 gives a_2 = -r/4: the mean is 3r/8
    enclosed(pep.worst_case(OwnStep(Never()), devices, 3, RADIUS, 0.2, "distance"), (3 / 8 * 0.2) ** 2)


@pytest.mark.parametrize("below", [0.1, 0.01])
def test_one_quadratic_among_others(below: float) -> None:
    """A device with mu = L is the limit of devices with mu below it, whose larger classes do worse."""
    nearly = Devices(np.array([0.5, 0.5]), np.array([1.0, 3.0]), np.array([1.0 - below, 0.2]))
    exactly = Devices(np.array([0.5, 0.5]), np.array([1.0, 3.0]), np.array([1.0, 0.2]))
    a, b = (pep.worst_case(OwnStep(At(2)), d, 4, 1.0, 0.3) for d in (nearly, exactly))
    assert max(a.gap, b.gap) <= 1e-5
    assert b.lower <= a.upper
    assert a.upper <= b.upper * (1 + 5 * below)


def test_without_a_radius() -> None:
    devices = Devices.uniform([0.5, 3.0], 0.1)
    free = pep.worst_case(GD(), devices, 3, 1.0, math.inf)
    assert free.upper == pytest.approx(pep.worst_case(GD(), devices, 3, 1.0, 0.0).upper, rel=1e-6)
    lost = pep.worst_case(OwnStep(At(2)), devices, 3, 1.0, math.inf)
    assert lost.upper == math.inf
    assert "unbounded" in lost.status


PAPER = [
    (GD(), 5, 5.4549, 2e-5),
    (OwnStep(At(3)), 5, 3.8071, 2e-5),
    (GD(), 10, 1.994405, 1e-6),
    (OwnStep(At(5)), 10, 0.896475, 2e-6),
    (GD(), 20, 0.456959, 2e-6),
    (OwnStep(At(10)), 20, 0.093444, 1e-5),
    (OwnStep(Never()), 20, 0.246268, 3e-5),
]


@pytest.mark.parametrize(("method", "rounds", "value", "digits"), PAPER, ids=lambda v: str(v))
def test_values_found_elsewhere(method, rounds: int, value: float, digits: float) -> None:
    """mu = 0.1, L = (1/3, 3), R0 = 10, R* = 1, computed independently and printed to a few digits."""
    bound = pep.worst_case(method, Devices.uniform([1 / 3, 3], 0.1), rounds, 10, 1)
    assert bound.gap <= 1e-5
    assert bound.upper == pytest.approx(value, rel=digits)


def test_more_rounds_and_larger_radii() -> None:
    """The worst case is homogeneous of degree two in the radii."""
    devices = Devices.uniform([0.5, 3.0], 0.1)
    small, large = (pep.worst_case(OwnStep(At(2)), devices, 4, r, 0.1 * r) for r in (1e-3, 1e3))
    assert large.upper == pytest.approx(1e12 * small.upper, rel=1e-6)


@pytest.mark.parametrize("metric", ["value", "distance", "gradient"])
def test_one_step_of_gd_ends_on_a_round_bowl(metric: str) -> None:
    """f = L/2 ||x - x*||^2 and the step 1/L: x^1 = x*, so that every error is exactly zero."""
    bound = pep.worst_case(GD("mean"), one(2.0, 2.0), 1, RADIUS, 0.0, metric)
    assert (bound.lower, bound.upper) == (0.0, 0.0)
    assert bound.status.startswith("zero")
