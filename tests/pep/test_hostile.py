"""Settings that are hard on floating point, against an independent route: the truth lies between the ends.

Constants that are 1e8 apart, weights of 1e-8, mu = 0, losses that are nearly quadratics, radii that are tiny or huge,
one round.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from ownstep import pep
from ownstep.methods import GD, At, HeavyBall, Nesterov, Never, OwnStep
from ownstep.plan import Devices
from ownstep.support.errors import OwnstepError

from . import independent

pytest.importorskip("cvxopt")

SURE = 1e-6
REFUSED = (1,)
"""Gradients of losses whose constants are 1e8 apart: no answer of the solver proves anything, and that is said."""

METHODS = (OwnStep(At(1)), OwnStep(Never()), GD(), Nesterov("mean"), HeavyBall())


def setting(number: int) -> tuple[Any, ...]:
    """The arguments of one worst case, by its number; there are ten kinds."""
    rng = np.random.default_rng([31, number])
    n, kind = int(rng.integers(1, 4)), number % 10
    L, w = np.exp(rng.uniform(-1, 1, n)), rng.uniform(0.5, 2, n)
    rounds, r0, rstar = int(rng.integers(1, 4)), 1.0, float(rng.choice([0, 0.3, 1.0]))
    if kind == 0:
        L, w = np.array([1.0, 1e8, 1e3]), np.ones(3)
    if kind == 1:
        L, w = np.array([1e-4, 1e4]), np.ones(2)
    if kind == 2:
        L, w = np.exp(rng.uniform(-1, 1, 3)), np.array([1e-8, 1.0, 1.0])
    if kind == 7:
        L = 2 * (1 + 1e-9 * np.arange(n))
    mu = {0: 0.0, 3: 0.0, 4: 1 - 1e-6, 7: 0.0, 9: 0.0}.get(kind, 0.1) * L
    if kind == 8:
        mu = np.append(0.5, np.ones(n - 1)) * L
    if kind == 3:
        rounds, rstar = 1, 0.0
    if kind in (5, 6):
        rstar = {5: 1e-7, 6: 1e4}[kind]
    if kind == 9:
        r0, rstar = 1e-9, float(rng.choice([0, 1e-9, 1.0]))
    metric = str(rng.choice(["value", "distance", "gradient"]))
    return METHODS[int(rng.integers(5))], Devices(w / w.sum(), L, mu), rounds, r0, rstar, metric


def reached(bound: pep.Bound, r0: float, rstar: float) -> bool:
    """Does the real method err by as much as the lower end on functions of the class, within both radii?"""
    found = bound.instance()
    own = [float(np.linalg.norm(one.minimiser)) for one in found.losses if one.minimiser is not None]
    inside = float(np.linalg.norm(found.x0)) <= r0 * (1 + 1e-12) and max(own, default=0.0) <= rstar * (1 + 1e-12)
    return inside and found.error >= bound.lower * (1 - 1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 60, 10))
@pytest.mark.filterwarnings("ignore:divide by zero|invalid value:RuntimeWarning")
def test_the_truth_lies_between_the_ends(first: int) -> None:
    """Where the other route gives no number, or one below an error that is reached, it says nothing."""
    compared = 0
    for number in range(first, first + 10):
        asked = setting(number)
        if number in REFUSED:
            with pytest.raises(OwnstepError, match="the semidefinite solver failed"):
                pep.worst_case(*asked)
            continue
        bound = pep.worst_case(*asked)
        assert 0 < bound.lower <= bound.upper, number
        assert bound.gap <= (0.05 if number % 10 == 0 else 1e-3), number
        truth = independent.worst_case(*asked)
        if not truth.unsure < SURE:
            continue
        compared += 1
        assert bound.upper >= truth.value * (1 - SURE), number
        assert bound.lower <= truth.value * (1 + SURE) or reached(bound, asked[3], asked[4]), number
    assert compared >= 5


@pytest.mark.parametrize("rounds", [1, 2])
def test_points_that_are_left_of_larger_terms(rounds: int) -> None:
    """Losses that are nearly quadratics: after two rounds 1e-12 of the start is left, which doubles see 1e-4 of.

    The upper end was below the lower one, and below the error on a quadratic, here in fractions.
    """
    w, L = np.array([0.27167699, 0.72832301]), np.array([0.93914794, 2.63681357])
    devices = Devices(w, L, L * (1 - 1e-6))
    bound = pep.worst_case(HeavyBall(), devices, rounds, 1.0, 0.0, "distance")
    assert bound.gap <= 1e-5
    state, reach = HeavyBall().start(np.ones(1), devices), Fraction(0)
    step, momentum = Fraction(state.step), Fraction(state.momentum)
    for curved in (devices.mu, L):
        q = sum((Fraction(a) * Fraction(b) for a, b in zip(w.tolist(), curved.tolist(), strict=True)), Fraction(0))
        x = before = Fraction(1)
        for _ in range(rounds):
            x, before = x - step * q * x + momentum * (x - before), x
        reach = max(reach, x**2)
    assert bound.upper >= float(reach) * (1 - 1e-12)
