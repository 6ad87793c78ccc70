"""Worst cases over networks, rates and designs do not depend on units: 1e-12 and 1e12 give what 1 gives.

With L = a L', R = b R' and steps a times as short the method is the same, so values are a b^2 times as large, distances
b^2 times and rates the same. Where a and b are powers of two nothing is rounded, and all digits agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from ownstep import pep
from ownstep.engines.participation import Bernoulli
from ownstep.methods import EXTRA, GD, NIDS, DecentralisedGD, FedAvg, GradientTracking, Never, OwnStep
from ownstep.pep.networks.instances.exact_replay import exact_error
from ownstep.pep.networks.instances.replay import _run
from ownstep.pep.networks.kind_vectors import Agents, Frame, Kinds
from ownstep.pep.networks.network_bound import question
from ownstep.pep.networks.question import Question, callers_question, canonical_question
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput
from tests.pep import plain_network

SCALES = ((1e12, 1.0), (1e-12, 1e-12), (3e7, 1e12))
EXACT = (2.0**40, 2.0**-37)
NETWORK = pep.Spectral(-0.5, 0.5)
POWER = {"value": 1, "distance": 0, "gradient": 2, "consensus": 0}

Ask = Callable[[float, float], Any]


def unit(metric: str, a: float, b: float) -> float:
    return a ** POWER[metric.partition("_")[0]] * b**2


def alike(a: float) -> Devices:
    return pep.repeated([a], 0.1 * a, [2])


def unlike(a: float) -> Devices:
    return pep.repeated([0.5 * a, 1.5 * a], 0.1 * a, weights=[1.0, 2.0])


def over(method: Callable[[float], Any], devices: Callable[[float], Devices], metric: str, **options: Any) -> Ask:
    def ask(a: float, b: float) -> Any:
        start = options.get("start")
        start = None if start is None else pep.Start("mean", trackers=start * a * b)
        rstar = math.inf if start is not None else b / 2
        return pep.worst_case(method(a), devices(a), 2, b, rstar, metric, network=NETWORK, start=start)

    return ask


CASES: dict[str, tuple[str, Ask]] = {
    "EXTRA": ("value", over(lambda a: EXTRA(0.3 / a), alike, "value")),
    "EXTRA, consensus": ("consensus", over(lambda a: EXTRA(0.3 / a), alike, "consensus")),
    "own steps": ("value", over(lambda _: DecentralisedGD("own"), unlike, "value")),
    "own steps, worst device": ("distance_worst", over(lambda _: DecentralisedGD("own"), unlike, "distance_worst")),
    "tracking": ("distance_worst", over(lambda a: GradientTracking(0.1 / a), alike, "distance_worst")),
    "tracking, bounded trackers": ("value", over(lambda a: GradientTracking(0.1 / a), alike, "value", start=1.0)),
    "tracking, devices": ("distance_devices", over(lambda a: GradientTracking(0.1 / a), unlike, "distance_devices")),
    "NIDS": ("gradient", over(lambda _: NIDS("own"), unlike, "gradient")),
    "NIDS, average": ("value_average", over(lambda _: NIDS("own"), unlike, "value_average")),
    "local steps": (
        "value",
        lambda a, b: pep.worst_case(FedAvg(0.2 / a, local_steps=2), unlike(a), 1, b, b / 2, "value"),
    ),
    "a schedule": (
        "gradient",
        lambda a, b: pep.worst_case(
            GD(1 / a), unlike(a), 2, b, b / 2, "gradient", schedule=np.array([[True, False], [True, True]])
        ),
    ),
    "a mean over schedules": (
        "value",
        lambda a, b: pep.worst_case(GD(1 / a), unlike(a), 1, b, b / 2, "value", schedule=Bernoulli(0.5)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_worst_cases_carry_through(name: str) -> None:
    """Both ends: steps of 1e-12 are not lost beside points of 1. Means over schedules are replayed in doubles."""
    metric, ask = CASES[name]
    base = ask(1.0, 1.0)
    assert 0 < base.lower <= base.upper
    for a, b in SCALES:
        moved = ask(a, b)
        assert moved.upper / unit(metric, a, b) == pytest.approx(base.upper, rel=3e-6)
        rounded = 3e-5 if "mean" in name else 3e-6
        assert moved.lower / unit(metric, a, b) == pytest.approx(base.lower, rel=rounded)


@pytest.mark.parametrize("name", CASES)
def test_powers_of_two_change_no_digit(name: str) -> None:
    metric, ask = CASES[name]
    base, moved = ask(1.0, 1.0), ask(*EXACT)
    assert moved.lower == unit(metric, *EXACT) * base.lower
    assert moved.upper == unit(metric, *EXACT) * base.upper
    assert (moved.solves, moved.status) == (base.solves, base.status)
    assert moved.certificate().bound == moved.upper


@pytest.mark.parametrize("scale", [1e12, 1e-12])
def test_against_a_plain_program(scale: float) -> None:
    """The plain program of the tests, in units of one, is a second route to what the library says in others."""
    found = pep.worst_case(DecentralisedGD("own"), unlike(scale), 2, 1.0, 0.5, "value", network=NETWORK)
    d = unlike(1.0)
    setting = (2, 1.0, 0.5, "value", NETWORK.lo, NETWORK.hi)
    plain = plain_network.worst_case("dgd", "cta", d.L, d.mu, d.weights, 1 / d.L, *setting)
    assert found.upper / scale == pytest.approx(plain, rel=1e-5)


@pytest.mark.parametrize(("a", "b"), [*SCALES, EXACT])
def test_instances_are_in_the_callers_units(a: float, b: float) -> None:
    """The method's own run on the functions handed out, with the caller's numbers, errs by the lower end."""
    asked = question(DecentralisedGD("own"), unlike(a), 2, b, b / 2, "value", NETWORK, None, None, "rescale")
    found = pep.worst_case(asked.method, asked.devices, 2, b, b / 2, "value", network=NETWORK)
    example = found.example()
    assert example.error == found.lower
    assert np.linalg.norm(example.x0[0]) == pytest.approx(b, rel=1e-6)
    np.testing.assert_array_equal(example.devices.L, asked.devices.L)
    assert _run(asked, example, None) * example.scale**2 == pytest.approx(found.lower, rel=1e-6)


@pytest.mark.parametrize("scale", [1e12, 1e-12])
@pytest.mark.parametrize(
    ("method", "metric"),
    [(lambda a: EXTRA(0.3 / a), "value"), (lambda a: GradientTracking(0.1 / a), "distance_devices")],
)
def test_certificates_carry_through(method: Callable[[float], Any], metric: str, scale: float) -> None:
    """Rational numbers, in the caller's units, accepted by the checker; steps of 1e-12 are not dust."""
    ask = over(method, alike, metric)
    exact, floating = ask(scale, 1.0).certify(), ask(scale, 1.0)
    assert float(exact.bound) == pytest.approx(floating.upper, rel=1e-9)
    assert {Fraction(d["L"]) for d in exact.certificate["statement"]["devices"]} == {
        Fraction(scale).limit_denominator(10**12)
    }


RATES: dict[str, Callable[[float], Any]] = {
    "gd": lambda a: pep.rate(GD(1 / a), alike(a)),
    "own steps": lambda a: pep.rate(OwnStep(Never()), unlike(a)),
    "EXTRA": lambda a: pep.rate(EXTRA(0.3 / a), alike(a), network=NETWORK),
    "tracking": lambda a: pep.rate(GradientTracking(0.1 / a), alike(a), network=NETWORK),
    "NIDS": lambda a: pep.rate(NIDS("own"), pep.repeated([0.5 * a, 1.5 * a], 0.1 * a), network=NETWORK),
}


@pytest.mark.parametrize("name", RATES)
def test_rates_have_no_units(name: str) -> None:
    """The same rate, its certificate in the caller's units, and all digits where units are powers of two."""
    base = RATES[name](1.0)
    for scale in (1e12, 1e-12):
        moved = RATES[name](scale)
        assert moved.rho == pytest.approx(base.rho, abs=1e-5)
        assert moved.lower == pytest.approx(base.lower, rel=1e-9)
        assert moved.exact == base.exact
        assert float(moved.certify().bound) == pytest.approx(moved.rho, rel=1e-12)
    moved = RATES[name](EXACT[0])
    assert (moved.rho, moved.lower, moved.solves) == (base.rho, base.lower, base.solves)


@pytest.mark.parametrize(
    ("method", "devices", "network"),
    [
        (lambda a: DecentralisedGD(0.3 / a), alike, NETWORK),
        (lambda _: DecentralisedGD("own", order="atc"), unlike, NETWORK),
        (lambda _: OwnStep(Never()), unlike, None),
    ],
)
def test_neighbourhoods_carry_through(method: Any, devices: Any, network: Any) -> None:
    base = pep.neighbourhood(method(1.0), devices(1.0), 1.0, network=network)
    assert 0 < base.lower <= base.radius
    for a, b in SCALES:
        moved = pep.neighbourhood(method(a), devices(a), b, network=network)
        assert moved.radius / b == pytest.approx(base.radius, rel=1e-6)
        assert moved.lower / b == pytest.approx(base.lower, rel=1e-5)
    moved = pep.neighbourhood(method(EXACT[0]), devices(EXACT[0]), EXACT[1], network=network)
    assert (moved.radius / EXACT[1], moved.lower / EXACT[1]) == (base.radius, base.lower)


def test_designs_carry_through() -> None:
    """A design's steps are a times as short; its search goes the same way to the last digit."""

    def ask(a: float, b: float) -> Any:
        return pep.tune_network(DecentralisedGD(), unlike(a), 1, b, b / 2, what="own", network=NETWORK, effort=0.1)

    base, moved = ask(1.0, 1.0), ask(*EXACT)
    np.testing.assert_array_equal(EXACT[0] * np.asarray(moved.method.step), np.asarray(base.method.step))
    assert moved.bound.upper == unit("value", *EXACT) * base.bound.upper
    first = {name: value / unit("value", *EXACT) for name, (value, _) in moved.starts.items()}
    assert first == {name: value for name, (value, _) in base.starts.items()}
    for a, b in SCALES[1:]:
        assert ask(a, b).bound.upper / unit("value", a, b) == pytest.approx(base.bound.upper, rel=1e-4)


def test_a_question_goes_there_and_back() -> None:
    """Nothing is rounded; the method keeps its own numbers, and the devices it knows."""
    devices, start = unlike(3e7), pep.Start("mean", gradients=5e-3, trackers=7e-4)
    asked = Question(NIDS("own"), devices, 2, 3e-4, 1e-5, "gradient", NETWORK, start)
    small = canonical_question(asked)
    assert 0.5 <= small.devices.L.max() <= 2
    assert 0.5 <= small.r0 <= 2
    np.testing.assert_array_equal(small.told.L, devices.L)
    np.testing.assert_array_equal(small.told.mu, devices.mu)
    back = callers_question(small)
    assert (back.r0, back.rstar, back.start, back.method) == (asked.r0, asked.rstar, start, asked.method)
    np.testing.assert_array_equal(back.devices.L, devices.L)


def test_devices_that_differ_by_a_short_step_do_not_agree() -> None:
    """Every column counts in its own unit: 1e-14 of a gradient of 1e14 is one, and next to 1 it is seen."""
    frame = Frame(Kinds.of(unlike(1.0)))
    x, g = frame.shared(1.0), frame.stack(1e14)
    stack: Agents = x - 1e-14 * g
    assert not stack.agree()
    assert (x.spread() + 1e-30 * g).agree()


def test_a_withdrawn_lower_end_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no instance is found at all the lower end is 0, and that is no enclosure."""
    from ownstep.pep.networks.instances import lower_search

    monkeypatch.setattr(lower_search.Search, "_keep", lambda *_: None)
    found = pep.worst_case(EXTRA(0.3), alike(1.0), 1, 1.0, 0.5, "distance_worst", network=NETWORK)
    assert found.lower == 0
    assert found.status.startswith("the lower end is withdrawn")
    assert "enclosed" not in found.status


def test_what_doubles_do_not_hold_is_refused() -> None:
    with pytest.raises(InvalidInput, match="factor of 1e\\+12 apart"):
        pep.worst_case(EXTRA(1e-50), Devices.uniform([1.0, 1e50]), 2, network=NETWORK)
    with pytest.raises(InvalidInput, match="leave the range of doubles"):
        pep.worst_case(EXTRA(1e-200), Devices.uniform([1e200, 2e200]), 2, 1e99, network=NETWORK)
    with pytest.raises(InvalidInput, match="factor of 1e\\+12 apart"):
        pep.rate(EXTRA(1e-50), Devices.uniform([1.0, 1e50]), network=NETWORK)


def test_exact_runs_tell_the_method_its_own_gradients() -> None:
    """In canonical units the exact run's error is the lower end over the metric's unit, to the last digit."""
    from ownstep.pep.networks.instances.replay import recover
    from ownstep.pep.networks.network_enclosure import upper

    asked = question(NIDS("own"), unlike(3e7), 2, 2e-3, 1e-3, "value", NETWORK, None, None, "rescale")
    small = canonical_question(asked)
    tried = upper(small, NETWORK.hi, inside=1e-7)
    instance = recover(small, tried, NETWORK.hi)
    assert instance.data is not None
    exact = exact_error(small, instance, instance.data, None)
    assert exact == pytest.approx(_run(small, instance, None) * instance.scale**2, rel=1e-6)
    found = pep.worst_case(asked.method, asked.devices, 2, 2e-3, 1e-3, "value", network=NETWORK)
    assert exact is not None
    assert exact * small.units.metric("value") <= found.upper
