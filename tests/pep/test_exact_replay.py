"""Lower ends over networks in exact numbers: their arithmetic, what they accept, and what they refuse."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from ownstep import pep
from ownstep.methods import EXTRA, NIDS, DecentralisedGD, FedAvg, GradientTracking
from ownstep.pep.networks.instances.exact_replay import Dyadic, _largest, _Run, dyadic, exact_error
from ownstep.pep.networks.instances.replay import _run, recover
from ownstep.pep.networks.network_bound import question
from ownstep.pep.networks.network_enclosure import INSIDE, upper

ALIKE = pep.repeated([1.0], 0.1, [2])
UNLIKE = pep.repeated([1.0, 2.5], [0.1, 0.4], [2, 1], [1.0, 2.0])
NETWORK = pep.Spectral(-0.5, 0.5)


def test_the_numbers_are_exact() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, 4)) * 10.0 ** rng.integers(-20, 20, (2, 4))
    W = rng.standard_normal((4, 4))
    x, y = dyadic(a), dyadic(b)
    for mine, exact in (
        (W @ x - 0.1 * y, [sum(Fraction(w) * Fraction(u) for w, u in zip(row, a, strict=True)) for row in W.tolist()]),
        (x * y + 3, [Fraction(u) * Fraction(v) + 3 + Fraction(0.1) * Fraction(v) for u, v in zip(a, b, strict=True)]),
    ):
        want = [e - Fraction(0.1) * Fraction(v) for e, v in zip(exact, b, strict=True)]
        assert [m.fraction for m in mine] == want
    assert (Dyadic(3, 2) * 2**70).fraction == Fraction(3 * 2**70, 4)
    assert float(1 - Dyadic(1, 1)) == 0.5


CASES = {
    "value": (DecentralisedGD(0.3), ALIKE, 3, 1.0, 0.5, "value", {"network": NETWORK}),
    "weights": (DecentralisedGD("own", order="atc"), UNLIKE, 2, 1.0, 0.5, "gradient", {"network": NETWORK}),
    "average": (NIDS("own"), UNLIKE, 2, 1.0, 0.5, "value_average", {"network": NETWORK}),
    "consensus": (EXTRA(0.3), ALIKE, 2, 1.0, np.inf, "consensus",
                  {"network": NETWORK, "start": pep.Start("ball", trackers=0.5)}),
    "doubled": (GradientTracking(0.1), pep.repeated([1 / 3, 3], 0.1), 2, 1.0, 0.5, "distance_devices",
                {"network": pep.Spectral(-0.5, 0.5, any_number=True)}),
    "local steps": (FedAvg("own", local_steps=2), UNLIKE, 2, 1.0, 0.5, "value", {}),
}  # fmt: skip


def found(name: str):
    method, devices, rounds, r0, rstar, metric, options = CASES[name]
    network, start = options.get("network"), options.get("start")
    asked = question(method, devices, rounds, r0, rstar, metric, network, start, None, "rescale")
    factor = None if network is None else network.hi
    for margin in INSIDE:  # the next one where exact numbers refute an instance, as the library does it
        tried = upper(asked, factor, inside=margin)
        instance = recover(asked, tried, factor)
        if exact_error(asked, instance, instance.data, tried.marked):
            break
    return asked, tried, instance


@pytest.mark.parametrize("name", CASES)
def test_the_exact_run_is_the_real_one(name: str) -> None:
    """It agrees with the run on interpolated functions, and the proof's exact bound is above it."""
    asked, tried, instance = found(name)
    exact = exact_error(asked, instance, instance.data, tried.marked)
    assert exact == pytest.approx(_run(asked, instance, tried.marked) * instance.scale**2, rel=1e-6)
    method, devices, rounds, r0, rstar, metric, options = CASES[name]
    bound = pep.worst_case(method, devices, rounds, r0, rstar, metric, **options)
    assert "checked in exact arithmetic" in bound.status
    assert Fraction(exact) <= bound.certify().bound


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: replace(data, v=1.5 * data.v),  # steeper than L allows
        lambda data: replace(data, v=-data.v),  # not convex
        lambda data: replace(data, own=1.01 * data.own),  # beyond rstar
        lambda data: replace(data, v=data.v[:1]),  # nothing to answer the second ask with
    ],
)
def test_data_that_no_functions_have_prove_nothing(spoil) -> None:
    asked, tried, instance = found("value")
    assert exact_error(asked, instance, spoil(instance.data), tried.marked) == 0


def test_a_start_too_far_away_proves_nothing() -> None:
    asked, tried, instance = found("value")
    far = replace(instance, x0=1.001 * instance.x0)
    assert exact_error(asked, far, instance.data, tried.marked) == 0


def test_the_matrix_is_of_the_class_and_the_tilts_cancel() -> None:
    """Three devices: 1/3 is no binary number, yet rows sum to one and the gradients at x* to nothing."""
    asked, tried, instance = found("weights")
    run = _Run(asked, instance, instance.data, tried.marked)
    W = run._matrix()
    assert all(sum(x.fraction for x in row) == 1 for row in W)
    a = 1 - 3 * W[0, 1].fraction
    assert Fraction(-0.5) <= a <= Fraction(0.5)
    assert float(a) == pytest.approx(0.5, abs=1e-15)
    weights = [Fraction(float(w)) for w in instance.devices.weights]
    for column in run.tilts[instance.of].T:
        assert sum(w * x.fraction for w, x in zip(weights, column, strict=True)) == 0


def test_values_are_shortest_distances() -> None:
    """x^2/2 at 0 and 1 in the class mu = 0, L = 1: between <v_0, x_1> + 1/2 and <v_1, x_1> - 1/2, both 1/2."""
    zero, one = [Fraction(0)], [Fraction(1)]
    assert _largest([zero, one], [zero, one], Fraction(1)) == [0, Fraction(1, 2)]


def test_many_devices_stay_in_floating_point() -> None:
    bound = pep.worst_case(EXTRA(0.3), pep.repeated([1.0], 0.1, [200]), 2, 1.0, 0.5, network=NETWORK)
    assert "exact arithmetic" not in bound.status
    assert bound.lower <= bound.upper
