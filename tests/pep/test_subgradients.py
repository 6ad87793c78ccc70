"""Losses that are only convex, with bounded subgradients: closed forms, a plain program, published settings, proofs."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from ownstep import Cohort, Never, OwnStep, pep
from ownstep.methods import EXTRA, GD, DecentralisedGD, FedAvg, GradientTracking
from ownstep.pep.proof import check_network, check_subgradients, check_worst
from ownstep.pep.solve.interpolant import Pieces
from ownstep.support.errors import InvalidInput
from tests.pep import plain_network
from tests.pep.leaving_out import Checker, forge, let_through, verdict

NETWORK = pep.Spectral(-0.5, 0.5)
COLLA = (DecentralisedGD(1 / np.sqrt(10)), pep.lipschitz([1.0], [2]), 10, 1.0, np.inf, "value_average")
"""Decentralised subgradient descent as Colla and Hendrickx analyse it: step 1/sqrt(10), B = 1, ||x^0 - x*|| <= 1."""


@pytest.mark.parametrize(("rounds", "step"), [(2, 1.0), (5, 0.3), (5, 0.7)])
def test_the_subgradient_method(rounds: int, step: float) -> None:
    """f(mean of K + 1 points) - f* <= (R^2 + (K + 1) h^2 B^2) / (2 (K + 1) h), reached near h = R / (B sqrt(K))."""
    for B, R in ((1.0, 1.0), (2e4, 3e-3)):
        bound = pep.worst_case(GD(step * R / B), pep.lipschitz([B]), rounds, R, 0.0, "value_average")
        known = (1 + (rounds + 1) * step**2) / (2 * (rounds + 1) * step)
        assert bound.upper == pytest.approx(B * R * known, rel=1e-6)
        assert bound.gap <= 1e-6


UNLIKE = pep.lipschitz([1.0, 2.0], [2, 1], [1.0, 2.0])
PLAIN = {
    "dgd": ("dgd", "cta", DecentralisedGD(0.3), UNLIKE, 2, np.inf, "value", "same"),
    "apart": ("dgd", "atc", DecentralisedGD(0.3, order="atc"), UNLIKE, 2, 0.5, "distance_devices", "ball"),
    "extra": ("extra", "", EXTRA(0.2), pep.lipschitz([1.0], [2]), 3, np.inf, "value_average", "mean"),
    "tracking": ("tracking", "cta", GradientTracking(0.2), pep.lipschitz([1.0], [2]), 2, np.inf, "consensus", "same"),
}


@pytest.mark.parametrize("name", PLAIN)
def test_against_a_plain_program(name: str) -> None:
    called, order, method, devices, rounds, rstar, metric, points = PLAIN[name]
    options: Any = {"network": NETWORK, "start": pep.Start(points), "effort": 0.0}
    mine = pep.worst_case(method, devices, rounds, 1.0, rstar, metric, **options)
    them = (devices.bounds, 0 * devices.bounds, devices.weights)
    spectrum = (NETWORK.lo, NETWORK.hi, False, points, None)
    steps = [method.step] * len(devices)
    full = plain_network.worst_case(
        called, order, *them, steps, rounds, 1.0, rstar, metric, *spectrum, steep=devices.bounds
    )
    assert mine.upper == pytest.approx(full, rel=2e-5)


def test_what_colla_and_hendrickx_say_of_dgd() -> None:
    """Their worst W is (1 + a) 11'/N - a I; the bound is far below theirs by hand, and does not depend on N."""
    two = pep.worst_case(*COLLA, network=NETWORK)
    assert two.gap <= 1e-5
    assert two.factor == -0.5
    by_hand = 2 / (2 * np.sqrt(10)) + 2 / (np.sqrt(10) * (1 - 0.5))
    assert two.upper < 0.4 * by_hand
    class_bounds = [
        pep.worst_case(COLLA[0], pep.lipschitz([1.0], [n]), *COLLA[2:], network=NETWORK, effort=0.0).upper
        for n in (2, 5)
    ]
    assert class_bounds[1] == pytest.approx(class_bounds[0], rel=1e-5)
    assert two.upper <= class_bounds[0] <= 1.001 * two.upper  # "nearly tight"


def test_units_do_not_matter() -> None:
    here = pep.worst_case(DecentralisedGD(0.3), UNLIKE, 2, 1.0, 0.5, network=NETWORK, effort=0.2)
    steep = pep.lipschitz([1e8, 2e8], [2, 1], [1.0, 2.0])
    there = pep.worst_case(DecentralisedGD(0.3e-12), steep, 2, 1e-4, 0.5e-4, network=NETWORK, effort=0.2)
    assert there.upper == pytest.approx(1e4 * here.upper, rel=1e-6)
    assert there.lower == pytest.approx(1e4 * here.lower, rel=1e-4)


def test_the_functions_of_an_instance_are_of_the_class() -> None:
    bound = pep.worst_case(DecentralisedGD(0.3), UNLIKE, 2, 1.0, 0.5, network=NETWORK)
    example, rng = bound.example(), np.random.default_rng(0)
    bounds = UNLIKE.bounds
    points = rng.standard_normal((50, *example.x0.shape))
    for X, Y in itertools.pairwise(points):
        slopes = example.gradients(X)
        assert (np.linalg.norm(slopes, axis=1) <= bounds * (1 + 1e-6)).all()
        for i, j in enumerate(example.of):
            at = [example.losses[j](row) + example.tilts[j] @ row for row in (X[i], Y[i])]
            assert at[1] >= at[0] + slopes[i] @ (Y[i] - X[i]) - 1e-9
    np.testing.assert_allclose(example.devices.weights @ example.gradients(0 * example.x0), 0, atol=1e-9)


def test_pieces() -> None:
    f = Pieces(np.array([[0.0], [1.0]]), np.array([[0.0], [2.0]]), np.array([0.0, 1.0]), 0.0, 1.0)
    assert f.both(np.array([0.25])) == (0.0, [0.0])
    assert f.both(np.array([2.0])) == (3.0, [2.0])


def test_what_is_refused() -> None:
    one, two = pep.lipschitz([1.0]), pep.lipschitz([1.0, 2.0])
    for bad in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(InvalidInput, match="bounds on subgradients must be positive and finite"):
            pep.lipschitz([bad])
    for method in (GD(), OwnStep(Never()), FedAvg("own", local_steps=2)):
        with pytest.raises(InvalidInput, match="steps by smoothness constants, and these losses have none"):
            pep.worst_case(method, two, 2)
    with pytest.raises(InvalidInput, match="these losses have none"):
        pep.worst_case(DecentralisedGD("own", order="atc"), two, 2, network=NETWORK)
    with pytest.raises(InvalidInput, match="many subgradients"):
        pep.worst_case(GD(0.1), one, 2, metric="gradient")
    with pytest.raises(InvalidInput, match="give one schedule"):
        pep.worst_case(GD(0.1), two, 1, schedule=Cohort(1))
    for what, call in {
        "a rate": lambda: pep.rate(GD(0.1), one),
        "a neighbourhood": lambda: pep.neighbourhood(GD(0.1), one),
        "a curve": lambda: pep.curve(GD(0.1), one, 2),
        "a design": lambda: pep.tune_network(DecentralisedGD(0.1), two, 2, network=NETWORK),
    }.items():
        with pytest.raises(InvalidInput, match=f"{what} needs smooth losses"):
            call()
    with pytest.raises(InvalidInput, match="a design needs smooth losses"):
        pep.tune(one, 2)


@pytest.fixture(scope="module")
def proof() -> dict:
    start = pep.Start("ball", gradients=0.9)
    bound = pep.worst_case(DecentralisedGD(0.3), UNLIKE, 2, 1.0, 0.5, network=NETWORK, start=start, effort=0.2)
    return bound.certify().certificate


@pytest.mark.parametrize("metric", ["distance_devices", "value_worst"])
def test_two_devices_and_the_worst_are_proved_too(metric: str) -> None:
    """Parts of the spectrum, and devices one by one, by the checkers for these that stand on this one."""
    method, two = DecentralisedGD(0.3), pep.lipschitz([1.0, 2.0])
    options: Any = {"network": NETWORK, "start": pep.Start("ball"), "effort": 0.3}
    bound = pep.worst_case(method, two, 1, 1.0, np.inf, metric, **options)
    proved = bound.certify()
    assert bound.lower <= proved.upper <= bound.upper * (1 + 1e-12)
    assert "f_i convex, subgradients at most 1 long" in proved.statement
    divided = proved.certificate["format"] == check_worst.TWO
    assert divided == ("divided" in bound.status)


def test_a_given_matrix_and_absent_devices_are_proved() -> None:
    who = np.array([[True, False], [True, True]])
    bound = pep.worst_case(GD(0.3), pep.lipschitz([1.0, 2.0]), 2, 1.0, np.inf, schedule=who)
    assert bound.gap <= 1e-4
    assert bound.lower <= bound.certify().upper <= bound.upper * (1 + 1e-12)


BOUND, SLACK = "the multipliers do not prove the bound stated", "the slack is not positive semidefinite"
ONLY = "an object must have the fields"
FORGED = [
    ("format", check_network.FORMAT, "the format must be"),
    ("bound", lambda b: str(Fraction(b) * Fraction(999, 1000)), BOUND),
    ("note", "and of all others", ONLY),
    ("statement/note", "and of all others", ONLY),
    ("statement/start/note", "small", ONLY),
    ("multipliers/note", "all", ONLY),
    ("statement/devices/0/L", "1", ONLY),
    ("statement/devices/0/subgradients", "0", "a bound on subgradients is not positive"),
    ("statement/devices/0/subgradients", "-1", "a bound on subgradients is not positive"),
    ("statement/devices/0/subgradients", "3/2", BOUND),
    ("statement/metric", "distance", "there is no subgradient at 'K'"),
    ("statement/network/hi", "3/5", SLACK),
    ("statement/start/r0", "2", BOUND),
    ("statement/start/gradients", "2", BOUND),
    ("statement/method/digest", "0" * 64, "the digest is not that of the steps"),
    ("statement/method/note", "any", ONLY),
    ("multipliers/subgradients/0/2", lambda t: "-" + t, "a multiplier of a subgradient is negative"),
    ("multipliers/subgradients", lambda m: [*m, [0, "0", "-1"]], "there is no subgradient at '0'"),
    ("multipliers/subgradients", lambda m: [*m, [0, "own", "1"]], "there is no subgradient at 'own'"),
    ("multipliers/subgradients", lambda m: [*m, [0, [], "1"]], r"there is no subgradient at \[\]"),
    ("multipliers/subgradients", lambda m: [*m, [2, "*", "1"]], "there is nothing at 2"),
    ("multipliers/subgradients", lambda m: m[1:], SLACK),
    ("multipliers/conditions", lambda m: m[1:], "the values do not cancel"),
    ("multipliers/conditions/0/3", lambda t: "-" + t, "the condition"),
]


@pytest.mark.parametrize(("path", "value", "over"), FORGED)
def test_forgeries_are_refused(proof: dict, path: str, value, over: str) -> None:
    assert check_subgradients.check(proof) == Fraction(proof["bound"])
    with pytest.raises(ValueError, match=f"^{over}"):
        check_subgradients.check(forge(proof, path, value))


def test_a_proof_for_smooth_losses_is_none_for_these(proof: dict) -> None:
    """And neither is the other way round: the checkers read different devices."""
    with pytest.raises(ValueError, match="the format must be"):
        check_network.check(proof)
    with pytest.raises(ValueError, match=ONLY):
        check_network.check({**proof, "format": check_network.FORMAT})


STILL = [{"own": [], "means": [[0, 0, "1"]]}]


def by_hand() -> dict:
    """One device that does nothing, from ||x|| <= 1: its distance is 1 at most, and no subgradient matters."""
    does = {"steps": [{"do": "gradient", "of": STILL, "group": 0}], "points": [STILL], "stack": None}
    start = {"points": "same", "r0": "1", "rstar": "0", "gradients": None, "trackers": None}
    s = {"devices": [{"count": 1, "weight": "1", "subgradients": "1"}], "any_number": False, "network": None, **does}
    s |= {"metric": "distance", "start": start, "method": {"name": "still", "digest": check_network.digest(s)}}
    multipliers = {"start": ["1"], "subgradients": [], "conditions": [], "Z": [], "a": []}
    return {"format": check_subgradients.FORMAT, "statement": s, "bound": "1", "multipliers": multipliers}


BY_HAND = [
    ("multipliers/subgradients", [[0, "*", "-1"]], "a multiplier of a subgradient is negative"),
    ("multipliers/subgradients", [[0, 0.0, "1"]], "there is no subgradient at 0.0"),
    ("statement/devices/0/subgradients", "0", "a bound on subgradients is not positive"),
]


def test_every_condition_stops_a_forgery(proof: dict) -> None:
    """Without it one of the forgeries gets through, or crashes in place of being refused."""
    assert check_subgradients.check(by_hand()) == 1
    known = {}
    forged = [(proof, *one) for one in FORGED] + [(by_hand(), *one) for one in BY_HAND]
    for j, (honest, path, value, _) in enumerate(forged):
        data = forge(honest, path, value)
        known[str(j)] = (verdict(check_subgradients.check, data).removeprefix("refused: "), data)
    checker = Checker(check_subgradients)
    idle = [c.text for c in checker.conditions if not let_through(checker.without(c).check, known, c)]
    assert idle == []


def test_the_checker_needs_one_file_beside_it(proof: dict, tmp_path) -> None:
    path = tmp_path / "proof.json"
    path.write_text(json.dumps(proof))
    command = [sys.executable, "-S", "-E", check_subgradients.__file__, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert proof["bound"] in done.stdout
    assert "f_i convex, subgradients at most 2 long" in done.stdout
