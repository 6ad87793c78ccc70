"""Worst cases over a class of networks: against a plain all-pairs program, against sampled networks; their rules."""

from __future__ import annotations

import numpy as np
import pytest

from ownstep import pep
from ownstep.methods import EXTRA, GD, NIDS, DecentralisedGD, GradientTracking, Mixing
from ownstep.pep.networks.network_bound import question
from ownstep.pep.networks.network_enclosure import pose
from ownstep.pep.networks.spectral import parse_network
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput, OwnstepError
from tests.pep import plain_network

METHODS = {
    "dgd-cta": (DecentralisedGD, {"order": "cta"}),
    "dgd-atc": (DecentralisedGD, {"order": "atc"}),
    "extra-": (EXTRA, {}),
    "nids-": (NIDS, {}),
    "tracking-cta": (GradientTracking, {"order": "cta"}),
    "tracking-atc": (GradientTracking, {"order": "atc"}),
}
ALIKE = Devices.uniform([1.0, 1.0], 0.1)
UNLIKE = pep.repeated([1.0, 2.5], [0.1, 0.4], [2, 1], [1.0, 2.0])


def plain(name, devices, steps, rounds, metric, network, rstar=0.5, points="same", gstar=None):
    method, _, order = name.partition("-")
    them, spectrum = (devices.L, devices.mu, devices.weights), (network.lo, network.hi, network.each_round)
    return plain_network.worst_case(method, order, *them, steps, rounds, 1.0, rstar, metric, *spectrum, points, gstar)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("metric", ["value", "distance_devices"])
def test_every_method_against_a_plain_program(name: str, metric: str) -> None:
    """Devices alike, all differences and one mean: the reduced program has the value of the full one."""
    make, options = METHODS[name]
    network, rounds = pep.Spectral(-0.4, 0.7), 2 if name == "tracking-atc" else 3  # the plain one fails at its third
    mine = pep.worst_case(make(0.3, **options), ALIKE, rounds, 1.0, 0.5, metric, network=network, effort=0.0)
    assert mine.upper == pytest.approx(plain(name, ALIKE, [0.3] * 2, rounds, metric, network), rel=2e-5)
    assert mine.lower <= mine.upper


def test_four_rounds_against_a_plain_program() -> None:
    """Two devices that differ, four rounds; every method, metric and start is in the benchmark's recorded run."""
    unlike, network = pep.repeated([1.0, 1.8], [0.1, 0.3]), pep.Spectral(-0.3, 0.6)
    mine = pep.worst_case(NIDS(0.25), unlike, 4, 1.0, 0.5, "consensus", network=network, effort=0.0)
    assert mine.upper == pytest.approx(plain("nids-", unlike, [0.25] * 2, 4, "consensus", network), rel=2e-5)


@pytest.mark.parametrize(("spectrum", "points"), [((-0.03, 0.02), "same"), ((0.21, 0.22), "mean")])
def test_narrow_classes_against_a_plain_program(spectrum: tuple[float, float], points: str) -> None:
    """Of W hardly anything is unknown, and no digits are lost over it: both programs agree, and ours is not below."""
    unlike, network = pep.repeated([1.2, 1.9], [0.1, 0.25]), pep.Spectral(*spectrum, each_round=True)
    start = pep.Start(points)
    mine = pep.worst_case(NIDS(0.1), unlike, 3, 1.0, 0.3, "distance_worst", network=network, start=start, effort=0.0)
    each = [plain("nids-", unlike, [0.1] * 2, 3, f"distance_worst{i}", network, 0.3, points) for i in (0, 1)]
    assert (1 - 1e-7) * max(each) <= mine.upper <= (1 + 1e-6) * max(each)


def test_a_program_that_the_solver_fails_at_is_written_in_other_columns() -> None:
    """Three devices that differ, a narrow class: over the columns for such classes Clarabel ends in an error."""
    weights = np.array([0.3676987304208019, 0.357472701076474, 0.2748285685027241])
    L, mu = np.array([1.76054355, 1.27107897, 1.55356367]), np.array([0.20071549, 0.26052182, 0.2801072])
    three, network = Devices(weights, L, mu), pep.Spectral(-0.67, -0.65)
    options = {"network": network, "start": pep.Start("mean"), "effort": 0.0}
    mine = pep.worst_case(NIDS(0.174), three, 3, 1.0, 0.5, "distance_average", **options)
    full = plain("nids-", three, [0.174] * 3, 3, "distance_average", network, 0.5, "mean")
    assert (1 - 1e-7) * full <= mine.upper <= (1 + 1e-6) * full


@pytest.mark.parametrize("metric", ["distance", "gradient", "value_average", "distance_average", "consensus"])
def test_every_metric_with_unlike_devices(metric: str) -> None:
    """Two kinds, unequal weights, own steps: kinds, shares and the weights N w_i all enter."""
    network = pep.Spectral(-0.3, 0.6)
    mine = pep.worst_case(DecentralisedGD("own", order="atc"), UNLIKE, 2, 1.0, 0.5, metric, network=network)
    assert mine.upper == pytest.approx(plain("dgd-atc", UNLIKE, 1 / UNLIKE.L, 2, metric, network), rel=2e-5)
    assert mine.lower <= mine.upper


@pytest.mark.parametrize("metric", ["value_worst", "distance_worst"])
def test_the_worst_device(metric: str) -> None:
    """The largest over the devices, each judged in a program of its own."""
    network = pep.Spectral(-0.3, 0.6)
    mine = pep.worst_case(NIDS("own"), UNLIKE, 2, 1.0, 0.5, metric, network=network)
    steps = 1 / (3 * UNLIKE.weights * UNLIKE.L)
    each = [plain("nids-", UNLIKE, steps, 2, f"{metric}{i}", network) for i in (0, 2)]
    assert mine.upper == pytest.approx(max(each), rel=2e-5)


@pytest.mark.parametrize("points", ["ball", "mean"])
@pytest.mark.parametrize("each_round", [False, True])
def test_starts_and_changing_networks(points: str, each_round: bool) -> None:
    """Devices that start apart mix from the first round on; a new W in each round binds the products less."""
    network = pep.Spectral(-0.5, 0.5, each_round=each_round)
    start = pep.Start(points, gradients=0.7)
    options = {"network": network, "start": start, "effort": 0.0}
    mine = pep.worst_case(GradientTracking(0.2), ALIKE, 2, 1.0, np.inf, "value", **options)
    full = plain("tracking-cta", ALIKE, [0.2] * 2, 2, "value", network, np.inf, points, 0.7)
    assert mine.upper == pytest.approx(full, rel=2e-5)


def test_averages_do_not_depend_on_the_number_of_devices() -> None:
    bounds = [
        pep.worst_case(EXTRA(0.4), pep.repeated([1.0], 0.1, [n]), 4, 1.0, 0.5, network=pep.Spectral(-0.5, 0.5))
        for n in (2, 5, 100)
    ]
    any_number = pep.Spectral(-0.5, 0.5, any_number=True)
    left_open = pep.worst_case(EXTRA(0.4), Devices.uniform([1.0], 0.1), 4, 1.0, 0.5, network=any_number)
    for bound in bounds:
        assert bound.upper == pytest.approx(left_open.upper, rel=1e-7)
        assert bound.gap <= 1e-5
    assert left_open.gap <= 1e-5


def test_extra_of_colla_and_hendrickx_does_not_depend_on_the_number_of_devices() -> None:
    """Their EXTRA setting (15 rounds, eigenvalues within 0.5, L = 1, mu = 0.1): one program for 2, 10 and 100."""
    posed = []
    for n in (2, 10, 100):
        options = (
            EXTRA(0.25),
            pep.repeated([1.0], 0.1, [n]),
            15,
            1.0,
            np.inf,
            "value_average",
            pep.Spectral(-0.5, 0.5),
        )
        posed.append(pose(question(*options, pep.Start("mean", gradients=1.0), None, "rescale"))[0])
    for other in posed[1:]:
        assert other.blocks.sizes == posed[0].blocks.sizes
        for name in ("heads", "target", "target_values"):
            assert getattr(other, name) == pytest.approx(getattr(posed[0], name), abs=1e-12)
        assert abs(other.interpolation.rows.blocks - posed[0].interpolation.rows.blocks).max() < 1e-12
        assert other.mixings[0].bounded == pytest.approx(posed[0].mixings[0].bounded, abs=1e-12)


def test_patience_and_effort() -> None:
    """Without patience nothing is proved; without effort one matrix is tried, and the upper end is the same."""
    network = pep.Spectral(-0.5, 0.5)
    options = (DecentralisedGD("own", order="atc"), UNLIKE, 2, 1.0, 1.0, "distance")
    whole, once = (pep.worst_case(*options, network=network, effort=effort) for effort in (1.0, 0.0))
    assert once.upper == whole.upper
    assert once.lower <= whole.lower
    assert once.solves < whole.solves
    with pytest.raises(OwnstepError, match="time is up"):
        pep.worst_case(*options, network=network, patience=0.0)
    with pytest.raises(InvalidInput, match="effort"):
        pep.worst_case(*options, network=network, effort=-1.0)


def test_the_worst_device_depends_on_the_number_of_devices() -> None:
    few, many = (
        pep.worst_case(DecentralisedGD(0.3), pep.repeated([1.0], 0.1, [n]), 2, 1.0, 0.5, "value_worst",
                       network=pep.Spectral(-0.5, 0.5)).upper
        for n in (2, 6)
    )  # fmt: skip
    assert many > 1.05 * few


@pytest.mark.parametrize("name", METHODS)
def test_no_sampled_network_is_worse(name: str) -> None:
    """Random W of the class (entries of either sign, any size) and random quadratics never beat the bound."""
    make, options = METHODS[name]
    lo, hi, rounds, rng = -0.6, 0.8, 5, np.random.default_rng(21)
    network = pep.Spectral(lo, hi, any_number=True)
    one = Devices.uniform([1.0], 0.1)
    bound = pep.worst_case(make(0.25, **options), one, rounds, 1.0, 0.5, "distance_devices", network=network).upper
    worst = 0.0
    for _ in range(400):
        n = int(rng.integers(2, 7))
        basis = np.linalg.qr(np.column_stack([np.ones(n), rng.standard_normal((n, n - 1))]))[0]
        spread = rng.choice([lo, hi], n - 1) if rng.random() < 0.5 else rng.uniform(lo, hi, n - 1)
        W = np.ones((n, n)) / n + basis[:, 1:] * spread @ basis[:, 1:].T
        curvature = rng.choice([0.1, 1.0], n) if rng.random() < 0.5 else rng.uniform(0.1, 1.0, n)
        optima = rng.uniform(-1, 1, n)
        optima = optima - curvature @ optima / curvature.sum()  # the minimiser of the mean is 0
        optima *= 0.5 / max(np.abs(optima).max(), 1e-9)
        method = make(0.25, graph=_Any(W), **options)
        state = method.start(np.ones(1), Devices.uniform(np.ones(n), 0.1))
        for _ in range(rounds):
            x = method.ask(state).x
            state = method.tell(state, _answer(curvature[:, None] * (x - optima[:, None])))
        worst = max(worst, float(np.mean(method.ask(state).x ** 2)))
    assert worst <= bound
    assert worst >= 0.3 * bound  # the sample is worth something


class _Any(Mixing):
    """A mixing matrix with entries of either sign."""

    def __post_init__(self) -> None:
        pass


def _answer(gradients):
    from ownstep.methods.base import Answer

    return Answer(gradients=gradients)


def test_perfect_averaging_is_gradient_descent() -> None:
    """With [lo, hi] = [0, 0] averaging is complete, and adapt-then-combine is gradient descent on f."""
    mine = pep.worst_case(DecentralisedGD(0.4, order="atc"), ALIKE, 3, 1.0, 0.3, network=pep.Spectral(0, 0))
    assert mine.upper == pytest.approx(pep.worst_case(GD(0.4), ALIKE, 3, 1.0, 0.3).upper, rel=1e-6)


def test_one_given_matrix_is_a_member_of_the_class() -> None:
    """Two devices have the matrices of one number lambda: the given matrix at the end of the class is the worst."""
    given = Mixing(np.array([[0.75, 0.25], [0.25, 0.75]]))
    one = pep.worst_case(DecentralisedGD(0.3, graph=given), ALIKE, 3, 1.0, 0.5, "distance")
    every = pep.worst_case(DecentralisedGD(0.3), ALIKE, 3, 1.0, 0.5, "distance", network=pep.Spectral(-0.5, 0.5))
    exact = pep.worst_case(DecentralisedGD(0.3), ALIKE, 3, 1.0, 0.5, "distance", network=pep.Spectral(0.5, 0.5))
    assert exact.upper == pytest.approx(one.upper, rel=1e-5)
    assert every.upper >= (1 - 1e-7) * exact.upper


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_units_do_not_matter(unit: float) -> None:
    network = pep.Spectral(-0.5, 0.5)
    here = pep.worst_case(EXTRA(0.3), ALIKE, 3, 1.0, 0.5, network=network)
    there = pep.worst_case(EXTRA(0.3), ALIKE, 3, unit, 0.5 * unit, network=network)
    steep = pep.worst_case(EXTRA(0.3 / unit), Devices.uniform([unit] * 2, 0.1 * unit), 3, 1.0, 0.5, network=network)
    assert there.upper == pytest.approx(unit**2 * here.upper, rel=1e-6)
    assert steep.upper == pytest.approx(unit * here.upper, rel=1e-6)


def test_what_is_refused() -> None:
    spectral = pep.Spectral(-0.5, 0.5)
    with pytest.raises(InvalidInput, match="cannot exceed"):
        pep.Spectral(0.5, 0.2)
    with pytest.raises(InvalidInput, match=r"\(-1, 1\), got hi=1"):
        pep.Spectral(-0.5, 1)
    for bad in ("0.2", None, float("nan"), 1j):
        with pytest.raises(InvalidInput, match=r"\(-1, 1\), got lo="):
            pep.Spectral(bad, 0.5)
        with pytest.raises(InvalidInput, match=r"the bound on the trackers must be positive and finite"):
            pep.Start(trackers=bad or "none")
    with pytest.raises(InvalidInput, match="both given"):
        pep.worst_case(EXTRA(0.3, graph="path"), ALIKE, 2, network=spectral)
    with pytest.raises(InvalidInput, match="without a network"):
        pep.worst_case(GD(0.3), ALIKE, 2, network=spectral)
    with pytest.raises(InvalidInput, match="two devices or more"):
        pep.worst_case(EXTRA(0.3), Devices.uniform([1.0]), 2, network=spectral)
    with pytest.raises(InvalidInput, match="how many"):
        pep.worst_case(EXTRA(0.3), ALIKE, 2, metric="value_worst", network=pep.Spectral(0, 0.5, any_number=True))
    with pytest.raises(InvalidInput, match="rstar=inf"):
        pep.worst_case(EXTRA(0.3), ALIKE, 2, rstar=np.inf, network=spectral)
    with pytest.raises(InvalidInput, match="metric"):
        pep.worst_case(EXTRA(0.3), ALIKE, 2, metric="speed", network=spectral)
    for rounds in (0, 2):
        with pytest.raises(InvalidInput, match="GD has one point for all devices: they cannot start apart"):
            pep.worst_case(GD(0.3), ALIKE, rounds, start=pep.Start("ball"))
    with pytest.raises(InvalidInput, match="a first round that asks for them at the start"):
        pep.worst_case(EXTRA(0.3), ALIKE, 0, network=spectral, start=pep.Start(trackers=1.0))
    with pytest.raises(InvalidInput, match="spectral:LO:HI"):
        parse_network("ring")
    assert parse_network("spectral:-0.5:0.5:each_round") == pep.Spectral(-0.5, 0.5, each_round=True)
