"""Random problems against an independent route on another solver, and what must not change the answer."""

from __future__ import annotations

import numpy as np
import pytest

from ownstep import pep
from ownstep.methods import GD, At, DecentralisedGD, Never, OwnStep
from ownstep.plan import Devices

from . import independent
from .problems import problem

pytest.importorskip("cvxopt")

SURE = 1e-6
"""What the reference may be off by; where its own two objectives are further apart it says nothing."""


@pytest.mark.parametrize("first", range(0, 48, 8))
def test_truth_lies_between_the_ends(first: int) -> None:
    compared = 0
    for seed in range(1000 + first, 1008 + first):
        asked = problem(seed)
        bound = pep.worst_case(*asked.arguments())
        truth = independent.worst_case(*asked.arguments())
        if not truth.unsure < SURE:
            continue
        compared += 1
        assert bound.lower <= truth.value * (1 + SURE), f"seed {seed}: {asked}"
        assert bound.upper >= truth.value * (1 - SURE), f"seed {seed}: {asked}"
        assert bound.gap <= 1e-3, f"seed {seed}: {asked}"
    assert compared >= 6


DEVICES = Devices(np.array([0.2, 0.5, 0.3]), np.array([0.4, 3.0, 1.0]), np.array([0.1, 0.0, 0.05]))
METHODS = [OwnStep(At(1)), OwnStep(Never()), GD()]


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("rstar", [0.0, 0.4])
def test_names_of_devices_do_not_matter(method, rstar: float) -> None:
    order = [2, 0, 1]
    renamed = Devices(DEVICES.weights[order], DEVICES.L[order], DEVICES.mu[order])
    one, other = (pep.worst_case(method, d, 3, 1.0, rstar, "distance") for d in (DEVICES, renamed))
    assert one.lower <= other.upper
    assert other.lower <= one.upper
    assert max(one.gap, other.gap) <= 1e-5


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_equal_halves_of_a_device(method) -> None:
    """Where all minimisers are x* halves act as the whole; where not, they may differ, and only do worse."""
    index = [0, 1, 1, 2]
    halves = Devices(DEVICES.weights[index] * np.array([1, 0.5, 0.5, 1]), DEVICES.L[index], DEVICES.mu[index])
    whole, split = (pep.worst_case(method, d, 3, 1.0, 0.0) for d in (DEVICES, halves))
    assert split.upper == pytest.approx(whole.upper, rel=1e-6)
    whole, split = (pep.worst_case(method, d, 2, 1.0, 0.4) for d in (DEVICES, halves))
    assert split.upper >= whole.lower


@pytest.mark.parametrize("method", [*METHODS, DecentralisedGD()], ids=repr)
@pytest.mark.parametrize("rstar", [0.0, 0.4])
def test_a_device_of_hardly_any_weight(method, rstar: float) -> None:
    """It leaves the worst case of a method with a server as it is; a device in a network counts whatever its weight."""
    small = 1e-8
    more = Devices(
        np.append(DEVICES.weights * (1 - small), small), np.append(DEVICES.L, 2.0), np.append(DEVICES.mu, 0.1)
    )
    without, joined = (pep.worst_case(method, d, 2, 1.0, rstar) for d in (DEVICES, more))
    assert joined.lower <= joined.upper
    if not isinstance(method, DecentralisedGD):
        assert joined.upper == pytest.approx(without.upper, rel=1e-4)
