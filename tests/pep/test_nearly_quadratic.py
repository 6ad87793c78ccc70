"""Losses that are quadratics, or nearly, over networks and with local steps; and no rounds at all."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from ownstep import pep
from ownstep.methods import EXTRA, NIDS, DecentralisedGD, FedAvg, Never, OwnStep
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput

L, STEP, ROUNDS, RSTAR = np.array([1.0, 2.0]), 0.3, 2, 0.5
NETWORK = pep.Spectral(-0.5, 0.5)


def on_quadratics(ends: tuple[float, ...]) -> float:
    """The largest squared distance from x* = 0 of DGD on f_i = L_i/2 (x - z_i)^2, run on numbers."""
    worst = 0.0
    for x0, sign, a in itertools.product((-1.0, 1.0), (-1.0, 1.0), ends):
        z = sign * RSTAR * np.array([1.0, -L[0] / L[1]])  # L_1 z_1 + L_2 z_2 = 0, and the larger is at RSTAR
        x, W = np.full(2, x0), a * np.eye(2) + (1 - a) / 2
        for _ in range(ROUNDS):
            x = W @ x - STEP * L * (x - z)
        worst = max(worst, x.mean() ** 2)
    return worst


@pytest.mark.parametrize("off", [0.0, 1e-9, 1e-5])
def test_quadratics_over_networks(off: float) -> None:
    """What little is left open beyond mu may not be lost beside it, nor set the tilts free where nothing is open."""
    devices = Devices(np.full(2, 0.5), L, (1 - off) * L)
    bound = pep.worst_case(DecentralisedGD(STEP), devices, ROUNDS, 1.0, RSTAR, "distance", network=NETWORK)
    reached = on_quadratics((-0.5, 0.5))
    assert bound.gap < 1e-5
    assert reached * (1 - 1e-9) <= bound.upper <= reached * (1 + 1e-6 + 10 * off)
    proved = bound.certify()
    assert Fraction(bound.lower) <= proved.bound <= Fraction(bound.upper) * Fraction(1 + 1e-12)


@pytest.mark.parametrize("off", [0.0, 1e-6])
def test_quadratics_with_local_steps(off: float) -> None:
    devices = Devices(np.full(2, 0.5), L, (1 - off) * L)
    bound = pep.worst_case(FedAvg(0.1, local_steps=2), devices, 2, 1.0, 1.0, "distance")
    assert bound.gap < 1e-5
    assert bound.certify().bound >= Fraction(bound.lower)


@pytest.mark.parametrize("metric", ["distance", "distance_average", "distance_devices", "distance_worst", "value"])
@pytest.mark.parametrize("rstar", [0.0, 0.5])
def test_no_rounds_over_networks(metric: str, rstar: float) -> None:
    """All are where they start, within r0 = 2 of x*: ||x - x*||^2 <= 4 and f(x) - f* <= L_bar/2 4."""
    devices = Devices(np.full(2, 0.5), L, 0.1 * L)
    for method in (EXTRA(0.3), NIDS(0.3)):
        bound = pep.worst_case(method, devices, 0, 2.0, rstar, metric, network=NETWORK)
        assert bound.upper == pytest.approx(3.0 if metric == "value" else 4.0, rel=1e-6)
        assert bound.gap < 1e-6
        assert Fraction(bound.lower) <= bound.certify().bound


def test_a_method_that_rests_at_once_has_no_rate() -> None:
    """Steps of 1/L on L/2 (x - z)^2 end in one round."""
    with pytest.raises(InvalidInput, match="rests after one round"):
        pep.rate(OwnStep(Never()), Devices(np.full(2, 0.5), L, L))


def test_a_quadratic_without_tilt_has_no_minimiser_of_its_own() -> None:
    """R_* = 0: f_i = L_i/2 x^2, and one round of a common step leaves (1 - step L_bar)^2 of the start."""
    devices = Devices(np.full(2, 0.5), L, L)
    bound = pep.worst_case(DecentralisedGD(STEP), devices, 1, 1.0, 0.0, "distance", network=NETWORK)
    assert bound.upper == pytest.approx((1 - STEP * 1.5) ** 2, rel=1e-6)
    assert bound.gap < 1e-6
