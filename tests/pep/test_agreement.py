"""The same numbers by other routes: PEPit, and the appendix written out plainly."""

from __future__ import annotations

import numpy as np
import pytest

from ownstep import pep
from ownstep.methods import GD, At, Never, OwnStep
from ownstep.plan import Devices

from . import plain
from .reference import Setting, mixes, pepit, random_devices

pytest.importorskip("cvxpy")


def case(number: int):
    """Varied settings: up to 4 devices, up to 8 rounds, all metrics, weights, steps and radii."""
    rng = np.random.default_rng(number)
    count = 1 + number % 4
    rounds = [8, 5, 3, 3][count - 1] if number % 2 else [4, 3, 2, 2][count - 1]
    devices = random_devices(rng, count, convex=number % 5 == 4)
    local = int(rng.integers(1, rounds + 1))
    methods = [OwnStep(At(local)), GD(float(rng.uniform(0.4, 1.9) / devices.L_bar)), OwnStep(Never())]
    method = methods[number % 3]
    metric = ["value", "distance", "gradient"][(number // 2) % 3]
    r0 = float(rng.uniform(0.5, 5))
    rstar = float([0.3, 0.05, 1.0][number % 3] * r0)
    return method, Setting(devices, mixes(method, devices, rounds), r0, rstar, metric)


@pytest.mark.parametrize("number", range(14))
def test_pepit_agrees(number: int) -> None:
    pytest.importorskip("PEPit")
    method, s = case(number)
    ours = pep.worst_case(method, s.devices, len(s.mixes), s.r0, s.rstar, s.metric)
    assert ours.gap <= 1e-5
    assert ours.upper == pytest.approx(pepit(s), rel=1e-5)


@pytest.mark.parametrize("number", [1, 2, 5, 9, 14])
def test_plain_formulation_agrees(number: int) -> None:
    method, s = case(number)
    ours = pep.worst_case(method, s.devices, len(s.mixes), s.r0, s.rstar, s.metric)
    d = s.devices
    assert ours.upper == pytest.approx(
        plain.worst_case(d.L, d.mu, d.weights, s.mixes, s.r0, s.rstar, s.metric), rel=1e-5
    )


def test_appendix_to_the_letter() -> None:
    """With the vanishing vectors as <G, v v^T> = 0 a solver keeps half the digits; they agree."""
    d = Devices.uniform([1 / 3, 3], 0.1)
    asked = mixes(OwnStep(At(1)), d, 2)
    ours = pep.worst_case(OwnStep(At(1)), d, 2, 10, 1)
    assert ours.upper == pytest.approx(plain.worst_case(d.L, d.mu, d.weights, asked, 10, 1, literal=True), rel=1e-3)


def test_the_printed_matrix_is_only_a_relaxation() -> None:
    """(1 - mu/L)/2 in place of 1/(2(1 - mu/L)) admits data that no function has: the maximum comes out larger."""
    d = Devices.uniform([1 / 3, 3], 0.1)
    asked = mixes(OwnStep(At(2)), d, 4)
    right, printed = (plain.worst_case(d.L, d.mu, d.weights, asked, 10, 1, printed=p) for p in (False, True))
    assert printed > 1.1 * right
    assert pep.worst_case(OwnStep(At(2)), d, 4, 10, 1).upper == pytest.approx(right, rel=1e-5)


@pytest.mark.parametrize("half", [1, 2, 3])
def test_symmetry_against_the_unreduced_problem(half: int) -> None:
    """N = 2, 4, 6: the reduced problem, the plain one and PEPit."""
    pytest.importorskip("PEPit")
    devices = pep.repeated([1 / 3, 3], 0.1, [half, half])
    method, rounds = OwnStep(At(1)), 2
    ours = pep.worst_case(method, devices, rounds, 10, 1)
    asked = mixes(method, devices, rounds)
    assert ours.upper == pytest.approx(pepit(Setting(devices, asked, 10, 1, "value")), rel=1e-5)
    assert ours.upper == pytest.approx(plain.worst_case(devices.L, devices.mu, devices.weights, asked, 10, 1), rel=1e-5)
    apart = pep.worst_case(method, devices, rounds, 10, 1, symmetry=False)
    assert apart.lower <= ours.upper * (1 + 1e-9)
    assert apart.upper >= ours.lower * (1 - 1e-9)


def test_twins_that_differ_do_worse() -> None:
    """Two devices of a kind can be worse than one: the difference block is not decoration. PEPit sees all four."""
    pytest.importorskip("PEPit")
    L, method, rounds = [2.5, 1.2], OwnStep(At(1)), 3
    alone = pep.worst_case(method, pep.repeated(L), rounds, 1.0, 1.0, "distance")
    devices = pep.repeated(L, 0.0, [2, 2])
    twins = pep.worst_case(method, devices, rounds, 1.0, 1.0, "distance")
    assert twins.lower > 1.005 * alone.upper
    assert twins.gap <= 1e-5
    assert twins.upper == pytest.approx(
        pepit(Setting(devices, mixes(method, devices, rounds), 1.0, 1.0, "distance")), rel=1e-5
    )
    three = pep.worst_case(method, pep.repeated(L, 0.0, [3, 3]), rounds, 1.0, 1.0, "distance", symmetry=True)
    assert three.gap <= 1e-5
    assert three.upper == pytest.approx(twins.upper, rel=1e-5)
