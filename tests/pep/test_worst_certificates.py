"""Rational proofs of the worst device, of two devices and of means over schedules, and forgeries of them."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from ownstep import Bernoulli, Cohort, Never, OwnStep, pep
from ownstep.methods import EXTRA, NIDS, DecentralisedGD, FedAvg, GradientTracking, Mixing
from ownstep.pep.networks.network_bound import question
from ownstep.pep.networks.network_proof import restate_network
from ownstep.pep.proof import check_network, check_worst
from ownstep.pep.proof.compare_statements import differences_of
from ownstep.support.errors import OwnstepError
from tests.pep.leaving_out import Checker, forge, let_through, verdict

UNLIKE = pep.repeated([1.0, 2.5], [0.1, 0.4], [2, 1], [1.0, 2.0])
INTERLEAVED = pep.repeated([1.0, 2.5, 1.0], [0.1, 0.4, 0.1], [1, 2, 2], [1.0, 2.0, 1.0])
TWO = pep.repeated([1.0, 3.0], [0.1, 0.3], [1, 1], [1.0, 2.0])
NETWORK = pep.Spectral(-0.5, 0.5)
W = Mixing(np.array([[0.6, 0.3, 0.1], [0.3, 0.5, 0.2], [0.1, 0.2, 0.7]]))
CASES = {
    "own steps": (DecentralisedGD("own", order="atc"), UNLIKE, "distance_worst", {"network": NETWORK}),
    "many alike": (GradientTracking(0.1), pep.repeated([1.0], 0.1, [50]), "value_worst", {"network": NETWORK}),
    "interleaved, apart": (
        NIDS("own"),
        INTERLEAVED,
        "value_worst",
        {"network": NETWORK, "start": pep.Start("ball", gradients=2.0)},
    ),
    "a given network": (EXTRA(0.2, graph=W), UNLIKE, "distance_worst", {"start": pep.Start()}),
    "cohort": (OwnStep(Never()), TWO, "value", {"schedule": Cohort(1)}),
    "cohort, gradient": (OwnStep(Never()), UNLIKE, "gradient", {"schedule": Cohort(2), "rounds": 1}),
    "coins": (FedAvg(0.2, local_steps=2), TWO, "distance", {"schedule": Bernoulli(0.6), "rounds": 1}),
}


def bounded(name: str):
    method, devices, metric, options = CASES[name]
    options = dict(options)
    return pep.worst_case(method, devices, options.pop("rounds", 2), 1.0, 0.5, metric, effort=0.2, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_worst_devices_and_means_are_proved(name: str) -> None:
    bound = bounded(name)
    proved = bound.certify()
    assert bound.lower <= proved.upper <= bound.upper * (1 + 1e-12)
    said = "the mean of" if "schedule" in CASES[name][3] else "at the last point x = x_i^K of every device"
    assert said in proved.statement


@pytest.fixture(scope="module")
def worst() -> dict:
    return bounded("own steps").certify().certificate


@pytest.fixture(scope="module")
def mean() -> dict:
    return bounded("cohort").certify().certificate


@pytest.fixture(scope="module")
def two() -> dict:
    return of_two(("distance", NETWORK))


def of_two(*parts: tuple[str, pep.Spectral]) -> dict:
    """Two devices that step by 1/L; for several parts of the spectrum, their proofs put together as one."""
    pair = pep.repeated([1.0], 0.1, [2])
    proofs = [
        pep.worst_case(DecentralisedGD(1.0, order="atc"), pair, 3, 1.0, 0.5, metric, network=network)
        .certify()
        .certificate
        for metric, network in parts
    ]
    if len(proofs) == 1:
        return proofs[0]
    many = [p["statement"]["network"] | {"multipliers": p["multipliers"]} for p in proofs]
    whole = proofs[0]["statement"] | {"network": {"lo": many[0]["lo"], "hi": many[-1]["hi"]}}
    bound = str(max(Fraction(p["bound"]) for p in proofs))
    return {"format": check_worst.TWO, "statement": whole, "bound": bound, "multipliers": many}


@pytest.fixture(scope="module")
def changing() -> dict:
    """Each part is proved for a new W in each round; but then W may be of another part in each round."""
    return of_two(*(("distance", pep.Spectral(lo, lo + 0.5, each_round=True)) for lo in (-0.5, 0.0)))


def test_two_devices_are_proved_part_by_part(two: dict) -> None:
    """Below the bound for more devices, whose W may have two eigenvalues."""
    assert two["format"] == check_worst.TWO
    assert [(part["lo"], part["hi"]) for part in two["multipliers"]] == [("-1/2", "0"), ("0", "1/2")]
    assert "[-1/2, 1/2]" in check_worst.describe(two)
    four = pep.worst_case(
        DecentralisedGD(1.0, order="atc"), pep.repeated([1.0], 0.1, [4]), 3, 1.0, 0.5, "distance", network=NETWORK
    )
    assert check_worst.check(two) < 0.99 * four.lower


def test_the_device_that_is_judged_is_split_off(worst: dict) -> None:
    """Run both statements on random atoms: the split one has the same vectors, and judges the first of the twins."""
    s, rng = worst["statement"], np.random.default_rng(3)
    parted = check_worst.split(s, 0)
    assert [d["count"] for d in s["devices"]] == [2, 1]
    assert [d["count"] for d in parted["devices"]] == [1, 1, 1]
    atoms = rng.standard_normal((len(s["steps"]) + 1, 3))  # of the twins 0, 1 and the single device 2
    kinds, alone = ([0, 1], [2]), ([1], [2], [0])

    def values(written, members, device):
        kind = next(c for c, some in enumerate(members) if device in some)
        own = sum(float(Fraction(t)) * atoms[a, device] for a, t in written[kind]["own"])
        shared = [float(Fraction(t)) * atoms[a, members[k]].mean() for k, a, t in written[kind]["means"]]
        return own + sum(shared)

    for one, other in zip(s["steps"], parted["steps"], strict=True):
        for device in range(3):
            assert values(other["of"], alone, device) == pytest.approx(values(one["of"], kinds, device))
    for device in range(3):
        assert values(parted["points"][-1], alone, device) == pytest.approx(values(s["stack"], kinds, 0))
    assert check_worst.split(s, 1)["devices"] == s["devices"]


def signed(certificate: dict) -> dict:
    """With the digest of what it now says."""
    s = certificate["statement"]
    s["method"]["digest"] = check_network.digest(s, *(("steps", "ends") if "ends" in s else ()))
    return certificate


BOUND, SLACK = "the multipliers do not prove the bound stated", "the slack is not positive semidefinite"
ONLY = "an object must have the fields"
OF_WORST = [
    ("bound", lambda b: str(Fraction(b) * Fraction(999, 1000)), f"kind [01]: {BOUND}"),
    ("note", "and of all others", ONLY),
    ("statement/note", "and of all others", ONLY),
    ("statement/any_number", True, "the worst device depends on how many there are"),
    ("statement/metric", "gradient_worst", "the metric"),
    ("statement/metric", "value", "the metric"),
    ("statement/stack", None, "no device has a point of its own"),
    ("statement/network/hi", "3/5", f"kind 0: {SLACK}"),
    ("statement/devices/0/count", True, "the devices"),
    ("statement/devices/0/L", "2", f"kind 0: {SLACK}"),
    ("statement/start/r0", "2", f"kind 0: {BOUND}"),
    ("statement/stack", lambda v: v[:1], "a vector has one entry for each kind"),
    ("statement/stack/0/own", lambda own: [[atom, str(2 * Fraction(t))] for atom, t in own], "kind 0: "),
    ("statement/stack/1/own", lambda own: [[atom, str(2 * Fraction(t))] for atom, t in own], "kind 1: "),
    ("multipliers", lambda m: m[:1], "there is one proof for each kind"),
    ("multipliers", lambda m: [*m, m[0]], "there is one proof for each kind"),
    ("multipliers", lambda m: m[::-1], "kind 0: "),
    ("multipliers/1/start/0", lambda t: "-" + t, "kind 1: a multiplier of the start is negative"),
    ("statement/method/digest", "0" * 64, "the digest is not that of the steps"),
    ("statement/method/note", "any", "kind 0: " + ONLY),
    ("statement/points/2/0/means/0/2", "1", "a vector is tied to the origin in one kind"),
    ("statement/points/2/0/means/0/1", 2, "a point is not one for all devices"),
    ("statement/points/2/0/means/0/0", 5, "there is nothing at 5"),
]


@pytest.mark.parametrize(("path", "value", "over"), OF_WORST)
def test_forgeries_of_the_worst_device_are_refused(worst: dict, path: str, value, over: str) -> None:
    assert check_worst.check(worst) == Fraction(worst["bound"])
    with pytest.raises(ValueError, match=f"^{over}"):
        check_worst.check(forge(worst, path, value))


OF_MEAN = [
    ("format", check_network.FORMAT, "the format must be"),
    ("bound", lambda b: str(Fraction(b) * Fraction(999, 1000)), BOUND),
    ("note", "and of all others", ONLY),
    ("statement/note", "and of all others", ONLY),
    ("statement/start/note", "small", ONLY),
    ("multipliers/note", "all", ONLY),
    ("statement/any_number", True, "a mean over schedules is of a method with a server"),
    ("statement/network", {"lo": "0", "hi": "0"}, "a mean over schedules is of a method with a server"),
    ("statement/metric", "value_average", "the metric"),
    ("statement/metric", "distance", "the values do not cancel"),
    ("statement/ends", [], "the probabilities"),
    ("statement/ends", lambda ends: ends[1:], "the probabilities"),
    ("statement/ends", lambda ends: [["-1/4", ends[0][1]], ["1/2", ends[0][1]], *ends[1:]], "the probabilities"),
    ("statement/ends", lambda ends: [["0", 0], *ends], "the probabilities"),
    ("statement/ends/0/0", "1/2", "the probabilities"),
    ("statement/ends/0/1", lambda j: j + 1, "the values do not cancel"),
    ("statement/ends/0/1", -1, "there is nothing at -1"),
    ("statement/devices/0/L", "2", SLACK),
    ("statement/start/r0", "2", BOUND),
    ("statement/method/digest", "0" * 64, "the digest is not that of the steps"),
    ("statement/method/note", "any", ONLY),
]


@pytest.mark.parametrize(("path", "value", "over"), OF_MEAN)
def test_forgeries_of_a_mean_are_refused(mean: dict, path: str, value, over: str) -> None:
    assert check_worst.check(mean) == Fraction(mean["bound"])
    with pytest.raises(ValueError, match=f"^{over}"):
        check_worst.check(forge(mean, path, value))


OF_TWO = [
    ("format", check_worst.MEAN, ONLY),
    ("bound", lambda b: str(Fraction(b) * Fraction(999, 1000)), rf"eigenvalues in \[.*\]: {BOUND}"),
    ("note", "and of all others", ONLY),
    ("statement/note", "and of all others", r"eigenvalues in .*" + ONLY),
    ("statement/any_number", True, "there are not two devices"),
    ("statement/devices/0", lambda d: d | {"count": 4, "weight": "1/4"}, "there are not two devices"),
    ("statement/network/hi", "3/5", "the parts do not end where the spectrum does"),
    ("statement/network/lo", "-3/5", "the part from -1/2 does not begin where the one before ends"),
    ("statement/network/note", "any", ONLY),
    ("multipliers/0/note", "any", ONLY),
    ("multipliers", [], "there is no part of the spectrum"),
    ("multipliers", lambda m: m[:1], "the parts do not end where the spectrum does"),
    ("multipliers", lambda m: m[1:], "the part from 0 does not begin where the one before ends"),
    ("multipliers", lambda m: m[::-1], "the part from 0 does not begin where the one before ends"),
    ("multipliers/0/hi", "1/10", r"eigenvalues in \[-1/2, 1/10\]: "),
    ("multipliers/1/lo", "1/10", "the part from 1/10 does not begin where the one before ends"),
    ("multipliers/0/multipliers/start/0", lambda t: "-" + t, "eigenvalues in .* a multiplier of the start is negative"),
    ("statement/start/r0", "2", "eigenvalues in .*" + BOUND),
    ("statement/metric", "distance_worst", "eigenvalues in .*"),
    ("statement/method/digest", "0" * 64, "eigenvalues in .*the digest is not that of the steps"),
]


@pytest.mark.parametrize(("path", "value", "over"), OF_TWO)
def test_forgeries_of_two_devices_are_refused(two: dict, path: str, value, over: str) -> None:
    assert check_worst.check(two) == Fraction(two["bound"])
    with pytest.raises(ValueError, match=f"^{over}"):
        check_worst.check(forge(two, path, value))


def test_parts_are_of_one_matrix(changing: dict) -> None:
    """With a new W in each round the parts prove nothing of W that go from one part to the other."""
    with pytest.raises(ValueError, match="there is more than one matrix"):
        check_worst.check(changing)


def test_other_probabilities_and_other_steps_need_other_multipliers(mean: dict) -> None:
    """Each is a proper statement, with its own digest, and not what was proved."""
    refused = 0
    shifted = forge(mean, "statement/ends/0/0", "1/8")
    forged = [signed(forge(shifted, "statement/ends/1/0", "3/8"))]
    for j, step in enumerate(mean["statement"]["steps"]):
        for c, part in itertools.product((0, 1), ("own", "means")):
            for i in range(len(step["of"][c][part])):
                double = forge(mean, f"statement/steps/{j}/of/{c}/{part}/{i}/-1", lambda t: str(2 * Fraction(t)))
                forged.append(signed(double))
    for one in forged:
        with pytest.raises(ValueError, match="slack|cancel|origin|one for all"):
            check_worst.check(one)
        refused += 1
    assert refused > 20


def test_probabilities_are_exact() -> None:
    """0.6 is 3/5: coins over two devices and one round have 9/25, 6/25, 6/25 and 4/25."""
    setting = question(FedAvg(0.2), TWO, 1, 1.0, 0.5, "value", None, None, Bernoulli(0.6), "rescale")
    assert sorted(p for p, _ in restate_network(setting)["ends"]) == ["4/25", "6/25", "6/25", "9/25"]


@pytest.mark.parametrize("kind", ["worst", "mean"])
def test_the_checker_needs_one_file_beside_it(kind: str, tmp_path, request) -> None:
    certificate = request.getfixturevalue(kind)
    path = tmp_path / "proof.json"
    path.write_text(json.dumps(certificate))
    command = [sys.executable, "-S", "-E", check_worst.__file__, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert certificate["bound"] in done.stdout


def test_a_proof_is_of_its_setting(worst: dict) -> None:
    setting = (UNLIKE, 2, 1.0, 0.5, "distance_worst", NETWORK, None, None, "rescale")
    same, other = DecentralisedGD("own", order="atc"), DecentralisedGD("own", order="cta")
    assert differences_of(worst["statement"], restate_network(question(same, *setting))) == []
    assert differences_of(worst["statement"], restate_network(question(other, *setting)))


def test_mean_points_are_not_judged(worst: dict) -> None:
    """The worst device is judged at its own last point. With other mean points the same is proved, of other steps."""
    moved = json.loads(json.dumps(worst))
    points = moved["statement"]["points"]
    points[-1] = points[-2]
    assert check_worst.check(signed(moved)) == Fraction(worst["bound"])
    assert "take" in " ".join(differences_of(moved["statement"], worst["statement"]))
    points.pop()
    assert check_worst.check(signed(moved)) == Fraction(worst["bound"])
    assert "K = 1 rounds" in check_worst.describe(moved)
    assert differences_of(moved["statement"], worst["statement"])


def test_one_point_for_all_has_no_worst_device() -> None:
    bound = pep.worst_case(FedAvg(0.2), TWO, 1, 1.0, 0.5, "value_worst", start=pep.Start())
    with pytest.raises(OwnstepError, match="no device has a point of its own: certify the metric 'value'"):
        bound.certify()


START = {"points": "mean", "r0": "1", "rstar": "0", "gradients": None, "trackers": None}
ITSELF, MEAN_OF_TWO = [{"own": [[0, "1"]], "means": []}], [{"own": [], "means": [[0, 0, "1"]]}]
LEFT = {"start": ["2"], "conditions": [], "Z": [], "a": []}


def by_hand(kind: str) -> dict:
    """Two devices that do nothing: 1/2 sum_i ||x_i||^2 <= 1, so ||x_i||^2 <= 2; or one end, where both start at x.

    Or the only other eigenvalue of W is 1/4: there is one part of the spectrum.
    """
    twins = {"devices": [{"count": 2, "weight": "1/2", "mu": "0", "L": "1"}], "any_number": False, "network": None}
    if kind == "worst":
        does = {"steps": [], "points": [MEAN_OF_TWO], "stack": ITSELF}
        form, metric, start, multipliers = check_worst.FORMAT, "distance_worst", START, [LEFT]
    elif kind == "two":
        ends = {"lo": "1/4", "hi": "1/4"}
        does = {"network": ends, "steps": [], "points": [MEAN_OF_TWO], "stack": ITSELF}
        form, metric, start, multipliers = check_worst.TWO, "distance_devices", START, [ends | {"multipliers": LEFT}]
    else:
        does = {"steps": [{"do": "gradient", "of": ITSELF, "group": 0}], "ends": [["1", 0]]}
        form, metric, start, multipliers = check_worst.MEAN, "distance", START | {"points": "same"}, LEFT
    s = twins | does | {"metric": metric, "start": start, "method": {"name": "still", "digest": ""}}
    return signed({"format": form, "statement": s, "bound": "2", "multipliers": multipliers})


OF_HAND = [
    ("worst", "statement/any_number", True, "the worst device depends on how many there are"),
    ("worst", "bound", "199/100", "kind 0: " + BOUND),
    ("worst", "statement/devices/0/count", 3, "the weights do not sum to one"),
    ("mean", "statement/any_number", True, "a mean over schedules is of a method with a server"),
    ("mean", "statement/network", {"lo": "0", "hi": "0"}, "a mean over schedules is of a method with a server"),
    ("mean", "statement/metric", "speed", "the metric"),
    ("two", "multipliers", [], "there is no part of the spectrum"),
]


@pytest.mark.parametrize(("kind", "path", "value", "over"), OF_HAND)
def test_forgeries_made_by_hand_are_refused(kind: str, path: str, value, over: str) -> None:
    assert check_worst.check(by_hand(kind)) == 2
    with pytest.raises(ValueError, match=f"^{over}"):
        check_worst.check(forge(by_hand(kind), path, value))


def test_three_devices_leave_more_to_one_of_them() -> None:
    """1/3 sum_i ||x_i||^2 <= 1 allows ||x_1||^2 = 3: the proof for two devices is none for three."""
    three = forge(forge(by_hand("worst"), "statement/devices/0/count", 3), "statement/devices/0/weight", "1/3")
    with pytest.raises(ValueError, match=f"^kind 0: {SLACK}"):
        check_worst.check(three | {"bound": "29/10"})
    right = forge(three, "multipliers/0/start/0", "3")
    assert check_worst.check(right | {"bound": "3"}) == 3


IMPLIED = {
    "fields(s, 'devices', 'method', 'any_number', 'network', 'start', 'metric', 'steps', 'points', 'stack')": (
        "check_network looks at the names of every split statement"
    ),
}
"""Conditions without which everything is still refused, and why."""
CHECKER = Checker(check_worst)


def forged(worst: dict, mean: dict, two: dict, changing: dict) -> dict[str, tuple[str, dict]]:
    """Every forgery above with what is said of it, with the digest of what it says where that is not forged."""
    made = {f"worst: {j}": (worst, path, value) for j, (path, value, _) in enumerate(OF_WORST)}
    made |= {f"mean: {j}": (mean, path, value) for j, (path, value, _) in enumerate(OF_MEAN)}
    made |= {f"two: {j}": (two, path, value) for j, (path, value, _) in enumerate(OF_TWO)}
    made |= {"changing": (changing, "format", check_worst.TWO)}
    made |= {f"by hand: {j}": (by_hand(kind), path, value) for j, (kind, path, value, _) in enumerate(OF_HAND)}
    out = {}
    for name, (honest, path, value) in made.items():
        data = forge(honest, path, value)
        data = data if "digest" in path else signed(data)
        out[name] = (verdict(check_worst.check, data).removeprefix("refused: "), data)
    return out


@pytest.mark.slow
def test_every_condition_stops_a_forgery(worst: dict, mean: dict, two: dict, changing: dict) -> None:
    """Without it one of the forgeries above gets through, or crashes in place of being refused."""
    known = forged(worst, mean, two, changing)
    idle = {
        condition.text
        for condition in CHECKER.conditions
        if not let_through(CHECKER.without(condition).check, known, condition)
    }
    assert idle == set(IMPLIED)
