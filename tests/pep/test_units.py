"""Worst cases do not depend on units, and what cannot be analysed says so before anything is solved."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from ownstep import pep
from ownstep.cli import main
from ownstep.methods import GD, At, DecentralisedGD, Nesterov, Never, OwnStep
from ownstep.methods.base import Ask
from ownstep.pep.trace import symmetry
from ownstep.pep.trace.scales import beyond_doubles
from ownstep.pep.trace.symbolic import Trace, _anchored, trace
from ownstep.pep.trace.units import AS_GIVEN, Setting, canonical, units_of
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput

LENGTHS, CURVATURES = (1e-12, 3e-5, 1.0, 7e6, 1e12), (1e12, 1e-12, 1.0, 2e-7, 5e11)


@pytest.mark.parametrize(
    "method", [OwnStep(Never()), OwnStep(At(2)), Nesterov("mean"), DecentralisedGD()], ids=lambda m: repr(m)[:20]
)
@pytest.mark.parametrize("metric", ["value", "distance", "gradient"])
def test_units_carry_through(method: Any, metric: str) -> None:
    """L = a L', R = b R': the worst case is a b^2, b^2 or a^2 b^2 times as large."""
    weights, L, mu = np.array([0.3, 0.7]), np.array([1.0, 1.5]), np.array([0.1, 0.2])
    base = pep.worst_case(method, Devices(weights, L, mu), 3, 1.0, 0.5, metric)
    assert base.gap <= 1e-5
    for a, b in zip(CURVATURES, LENGTHS, strict=True):
        moved = pep.worst_case(method, Devices(weights, a * L, a * mu), 3, b, b / 2, metric)
        unit = {"value": a * b**2, "distance": b**2, "gradient": a**2 * b**2}[metric]
        assert moved.upper / unit == pytest.approx(base.upper, rel=2e-6)
        assert moved.lower / unit == pytest.approx(base.lower, rel=2e-6)


@pytest.mark.parametrize("scale", ["1e11,1.5e11 --mu 1e10", "1e-11,1.5e-11 --mu 1e-12", "1e-12,1.5e-12 --mu 1e-13"])
def test_steps_of_any_length_are_told_apart(scale: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An absolute tolerance took all steps below 1e-11 for equal, and printed 0.4985302 and 0.7140903."""
    with pytest.raises(SystemExit):
        main(["pep", "--L", *scale.split(), "--rounds", "4", "--rstar", "1", "--metric", "distance", "--json"])
    assert json.loads(capsys.readouterr().out)["upper"] == pytest.approx(0.7693982, rel=1e-6)


@pytest.mark.parametrize(("r0", "rstar"), [(3e-4, 1e-5), (2e-5, 7e3), (5.0, math.inf), (40.0, 0.0), (1e8, 3e8)])
def test_the_longer_radius_is_the_unit(r0: float, rstar: float) -> None:
    """Otherwise the longer one would be up to 1e12 units long, and its square beyond what the solver resolves."""
    devices = Devices(np.array([0.25, 0.75]), np.array([3e7, 1e9]), np.array([0.0, 2e5]))
    setting, units = canonical(Setting(trace(OwnStep(At(1)), devices, 2), devices, r0, rstar, "value"))
    longest = max(r for r in (setting.r0, setting.rstar) if math.isfinite(r))
    assert 0.5 <= longest <= 2
    assert (setting.r0 * units.length, setting.rstar * units.length) == (r0, rstar)


def test_canonical_units_round_nothing() -> None:
    """A power of two there and back; mixes near one, and the same products of mix and coefficient."""
    devices = Devices(np.array([0.25, 0.75]), np.array([3e7, 1e9]), np.array([0.0, 2e5]))
    path = trace(OwnStep(At(1)), devices, 3)
    setting, units = canonical(Setting(path, devices, 3e-4, 1e-5, "gradient"))
    assert units.metric("gradient") == units.curvature**2 * units.length**2
    np.testing.assert_array_equal(setting.devices.L * units.curvature, devices.L)
    np.testing.assert_array_equal(setting.devices.mu * units.curvature, devices.mu)
    assert setting.r0 * units.length == 3e-4
    assert 0.5 <= setting.r0 <= 2
    assert 0.5 <= setting.devices.L.max() <= 2
    for k, (old, new) in enumerate(zip(path.mixes, setting.path.mixes, strict=True)):
        assert 0.5 <= np.abs(new).max() <= 2
        moved = setting.path.points[-1][0, k + 1] * new
        np.testing.assert_array_equal(moved, path.points[-1][0, k + 1] * old * units.curvature)


def test_devices_keep_steps_that_differ_by_much() -> None:
    """Own steps of 1 and 1e-11 are not those of equal devices, which would be pooled."""
    apart = pep.worst_case(OwnStep(Never()), Devices.uniform([1.0, 1e11]), 2)
    pooled = pep.worst_case(GD(), Devices.uniform([1.0, 1e11]), 2)
    assert apart.upper != pytest.approx(pooled.upper, rel=1e-3)


@pytest.mark.parametrize(
    ("devices", "r0", "rstar", "message"),
    [
        (Devices.uniform([1.0, 1e50]), 1.0, 0.0, "factor of 1e\\+12 apart"),
        (Devices.uniform([1.0, 2.0]), 1.0, 1e-30, "r0 and rstar"),
        (Devices.uniform([1e200, 2e200]), 1e99, 0.0, "leave the range of doubles"),
    ],
)
def test_what_doubles_do_not_hold_is_refused(devices: Devices, r0: float, rstar: float, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        pep.worst_case(OwnStep(Never()), devices, 2, r0, rstar)


@pytest.mark.parametrize("metric", ["value", "distance", "gradient"])
@pytest.mark.parametrize(("L", "r0"), [(1e270, 1.0), (1e-270, 1.0), (1.0, 1e135), (1.0, 1e-135)])
def test_errors_near_either_end_of_the_doubles_are_refused(L: float, r0: float, metric: str) -> None:
    """Twelve digits to the fourth power are left free at both ends: L r0^2 from 1e-260 to 1e260."""
    with pytest.raises(InvalidInput, match="leave the range of doubles"):
        units_of(np.array([L]), r0, 0.0, metric)
    assert units_of(np.array([L**0.4]), r0**0.4, 0.0, metric).curvature > 0


@dataclass(frozen=True, eq=False)
class Steps:
    """x <- shrink x - steps[k] grad f(x), and no more rounds than steps; ``twice`` asks for the sum in two parts."""

    steps: tuple[float, ...]
    shrink: float = 1.0
    twice: bool = False

    @dataclass(frozen=True, eq=False)
    class State:
        x: Any
        devices: Devices
        k: int = 0

    def start(self, x0, devices):
        return self.State(x0, devices)

    def ask(self, state):
        mix = self.steps[state.k] * state.devices.weights
        return Ask(state.x, mix / 4, also=mix * 3 / 4) if self.twice else Ask(state.x, mix)

    def tell(self, state, answer):
        total = answer.sum + answer.also if self.twice else answer.sum
        return replace(state, x=self.shrink * state.x - total, k=state.k + 1)

    def point(self, state):
        return state.x

    def progress(self, state):
        raise NotImplementedError


DEVICES = Devices.uniform([0.5, 1.5], 0.1)


def test_methods_that_know_the_origin_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"round 1 holds x\^0 0.9 times.*where the origin is"):
        pep.worst_case(Steps((0.5, 0.5), shrink=0.9), DEVICES, 2)


def test_one_device_that_knows_the_origin_is_enough() -> None:
    """Of several points that a method asks for, one holds 0.9 times x^0."""
    asks = np.array([[1.0, 0.0], [0.9, -0.5]])
    path = Trace((asks,), (None,), (np.array([[1.0, 0.0]]),))
    with pytest.raises(InvalidInput, match=r"asks in round 0 holds x\^0 0.9 times"):
        _anchored(path, GD())


def test_a_method_may_end_with_its_rounds() -> None:
    """Tracing looks ahead; where the method has no more steps it must not stumble."""
    ended = pep.worst_case(Steps((0.5, 1.0)), DEVICES, 2)
    assert ended.upper == pytest.approx(pep.worst_case(Steps((0.5, 1.0) * 9), DEVICES, 2).upper, rel=1e-9)
    with pytest.raises(InvalidInput, match="fails in round 3: IndexError"):
        pep.worst_case(Steps((0.5, 1.0)), DEVICES, 3)
    whoever = pep.worst_case(Steps((0.5, 1.0)), DEVICES, 2, start=pep.Start())
    assert whoever.upper == pytest.approx(ended.upper, rel=1e-6)
    with pytest.raises(InvalidInput, match="fails within 3 rounds: IndexError"):
        pep.worst_case(Steps((0.5, 1.0)), DEVICES, 3, start=pep.Start())


def test_a_second_sum_is_linear() -> None:
    bound = pep.worst_case(Steps((0.5, 1.0), twice=True), DEVICES, 2, 1.0, 0.3)
    assert bound.upper == pytest.approx(pep.worst_case(Steps((0.5, 1.0)), DEVICES, 2, 1.0, 0.3).upper, rel=1e-5)
    assert bound.instance().error == pytest.approx(bound.lower, rel=1e-5)


@pytest.mark.parametrize(
    ("method", "rounds", "message"),
    [
        (Steps((math.nan, 1.0)), 2, "finite"),
        (Steps((math.inf, 1.0)), 2, "finite"),
        (GD(), math.nan, "rounds"),
        (GD(), math.inf, "rounds"),
    ],
)
def test_what_is_no_number_is_refused(method: Any, rounds: float, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        pep.worst_case(method, DEVICES, rounds)  # type: ignore[arg-type]


def test_errors_that_doubles_do_not_see_are_said_to_be_so() -> None:
    """||x^K|| is at most 0.8^K ||x^0|| for GD with mu = L/5 or more: below 1e-15 from K = 155 on; tilts keep it up."""
    devices = Devices.uniform([1.0, 1.0], 0.2)
    for rounds, seen in ((150, True), (160, False)):
        path = trace(GD(), devices, rounds)
        groups = symmetry.groups(path, devices, local_optima=False, symmetry=True)
        assert (beyond_doubles(path, groups, 3.0, 0.0) == "") == seen
    apart = Devices.uniform([1.0, 2.0], 0.2)
    path = trace(OwnStep(Never()), apart, 240)
    groups = symmetry.groups(path, apart, local_optima=True, symmetry=True)
    assert beyond_doubles(path, groups, 1.0, 0.1) == ""
    assert "fewer rounds" in beyond_doubles(path, groups, 1.0, 0.0)


@pytest.mark.parametrize("metric", ["value", "distance_worst", "gradient", "consensus"])
def test_the_caller_s_own_units_change_nothing(metric: str) -> None:
    assert (AS_GIVEN.curvature, AS_GIVEN.length, AS_GIVEN.metric(metric)) == (1.0, 1.0, 1.0)
