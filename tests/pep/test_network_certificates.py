"""Rational proofs over networks and with local steps, and forgeries of them."""

from __future__ import annotations

import copy
import itertools
import json
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from ownstep import Never, OwnStep, pep
from ownstep.methods import EXTRA, NIDS, DecentralisedGD, FedAvg, GradientTracking, Mixing, Scaffold
from ownstep.pep.networks.network_bound import question
from ownstep.pep.networks.network_proof import restate_network
from ownstep.pep.proof import check_network
from ownstep.pep.proof.compare_statements import differences_of
from tests.pep.leaving_out import forge

ALIKE = pep.repeated([1.0], 0.1, [2])
UNLIKE = pep.repeated([1.0, 2.5], [0.1, 0.4], [2, 1], [1.0, 2.0])
NETWORK = pep.Spectral(-0.5, 0.5)
W = Mixing(np.array([[0.6, 0.3, 0.1], [0.3, 0.5, 0.2], [0.1, 0.2, 0.7]]))
WHO = np.array([[True, False, True], [False, True, True]])
CASES = {
    "dgd": (DecentralisedGD(0.3), ALIKE, "value", {"network": NETWORK}),
    "own steps": (DecentralisedGD("own", order="atc"), UNLIKE, "gradient", {"network": NETWORK}),
    "nids": (NIDS("own"), UNLIKE, "value_average", {"network": NETWORK}),
    "tracking": (GradientTracking(0.1), ALIKE, "distance_devices", {"network": NETWORK}),
    "one eigenvalue": (DecentralisedGD(0.3), ALIKE, "distance_average", {"network": pep.Spectral(0.25, 0.25)}),
    "apart": (EXTRA(0.3), ALIKE, "consensus", {"network": NETWORK, "start": pep.Start("ball", trackers=0.5)}),
    "any number": (
        EXTRA(0.3),
        pep.repeated([1.0], 0.1),
        "value",
        {"network": pep.Spectral(-0.5, 0.5, any_number=True, each_round=True)},
    ),
    "fedavg": (FedAvg(0.2, local_steps=2), UNLIKE, "value", {}),
    "scaffold": (Scaffold(0.2, local_steps=2), UNLIKE, "value", {}),
    "absent": (FedAvg("own", local_steps=2), UNLIKE, "value", {"schedule": WHO}),
    "absent, dropped": (OwnStep(Never()), UNLIKE, "distance", {"schedule": WHO, "missing": "drop"}),
    "a given network": (DecentralisedGD("own", graph=W, order="atc"), UNLIKE, "value", {}),
    "tracking on a given network": (GradientTracking(0.1, graph=W), UNLIKE, "gradient", {}),
    "a given network, apart": (EXTRA(0.2, graph=W), UNLIKE, "consensus", {"start": pep.Start("ball")}),
}


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_worst_case_is_proved(name: str) -> None:
    """The checker derives every condition anew from the statement; it accepts no bound above the solver's."""
    method, devices, metric, options = CASES[name]
    bound = pep.worst_case(method, devices, 2, 1.0, 0.5, metric, **options)
    proved = bound.certify()
    again = 1e-7 if name in ("a given network", "tracking on a given network") else 1e-12  # proved a second way
    assert bound.lower <= proved.upper <= bound.upper * (1 + again)


@pytest.fixture(scope="module")
def honest() -> dict:
    method = DecentralisedGD("own", order="atc")
    return pep.worst_case(method, UNLIKE, 2, 1.0, 0.5, network=NETWORK).certify().certificate


def doubled(text: str) -> str:
    return str(2 * Fraction(text))


SLACK = "the slack is not positive semidefinite"
BOUND = "the multipliers do not prove the bound stated"
NOWHERE = [{"own": [], "means": []}] * 2
FORGERIES = [
    ("bound", lambda b: str(Fraction(b) * Fraction(999, 1000)), BOUND),
    ("statement/network/hi", "9/10", SLACK),
    ("statement/network/lo", "-9/10", SLACK),
    ("statement/network/hi", "1", "the eigenvalues"),
    ("statement/start/r0", "2", BOUND),
    ("statement/start/rstar", "2", BOUND),
    ("statement/start/rstar", "-1/2", "a radius is negative"),
    ("statement/start/rstar", "inf", "there is no point '\\*' or 'own'"),
    ("statement/start/points", "anywhere", "the start"),
    ("statement/devices/0/L", "2", SLACK),
    ("statement/devices/1/L", "3", SLACK),
    ("statement/devices/0/mu", "0", SLACK),
    ("statement/devices/0/mu", "2", "the devices"),
    ("statement/devices/0/count", 3, "the weights do not sum to one"),
    ("statement/devices/0/weight", "1", "the weights do not sum to one"),
    ("statement/metric", "speed", "the metric"),
    ("statement/metric", "distance_devices", "there is no point '\\*' or 'K'"),
    ("statement/any_number", 1, "whether the number of devices is left open"),
    ("statement/steps/0/of", NOWHERE, "a point is tied to the origin"),
    ("statement/steps/0/group", 1, "a gradient has no mixing matrix"),
    ("statement/steps/1/do", "nothing", "step 1 does neither"),
    ("statement/steps/1/group", -1, "there is nothing at -1"),
    ("statement/points/-1", NOWHERE, "a point is tied to the origin"),
    ("statement/extra", "said beside it", "an object must have the fields devices, .* and no others"),
    ("multipliers/start/0", lambda t: "-" + t, "a multiplier of the start is negative"),
    ("multipliers/conditions/0/3", lambda t: "-" + t, "the condition 0, \\*, 0, -"),
    ("multipliers/conditions/0/3", doubled, "the values do not cancel"),
    ("multipliers/conditions/0/3", 0.5, "a number must be a text"),
    ("multipliers/conditions/0/3", "1e3", "'1e3' is no exact number"),
    ("multipliers/conditions", [], "the values do not cancel"),
    ("multipliers/Z/0/0/0", "-1", "Z is not positive semidefinite"),
    ("multipliers/Z", [], "the multipliers of the mixing steps"),
    ("multipliers/a/0", [], "the shape of a"),
    ("format", "ownstep certificate 2", "the format must be"),
]


@pytest.mark.parametrize(("path", "value", "over"), FORGERIES)
def test_forgeries_are_refused(honest: dict, path: str, value, over: str) -> None:
    assert check_network.check(honest) == Fraction(honest["bound"])
    with pytest.raises(ValueError, match=f"^{over}"):
        check_network.check(forge(honest, path, value))


@pytest.mark.parametrize("text", ["0.5", "1e3", " 1", "1 ", "1_0", "+1", "1/0", "1/-2", "--1", "", "\u0661", 1, None])
def test_numbers_are_written_in_one_way(text) -> None:
    """What reads as another number elsewhere, or as none, is refused; Python's own Fraction takes most of these."""
    with pytest.raises(ValueError, match=r"no exact number|must be a text"):
        check_network.exact(text)
    assert [check_network.exact(t) for t in ("-1/3", "2", "0", "4/02")] == [Fraction(-1, 3), 2, 0, 2]


@pytest.mark.parametrize("name", ["Z", "a"])
@pytest.mark.parametrize("change", [lambda rows: rows[:-1], lambda rows: [*rows, ["0"]], lambda rows: [*rows[:-1], []]])
def test_multipliers_of_another_shape_are_named(honest: dict, name: str, change) -> None:
    """Neither too few, which would fail somewhere inside, nor some that nobody looks at."""
    forged = copy.deepcopy(honest)
    forged["multipliers"][name][0] = change(forged["multipliers"][name][0])
    with pytest.raises(ValueError, match=f"the shape of {name}"):
        check_network.check(forged)


def test_changes_of_the_method_are_refused(honest: dict) -> None:
    """A step doubled in one place is another method: the multipliers do not prove it."""
    refused = 0
    for j, step in enumerate(honest["statement"]["steps"]):
        for c, part in itertools.product((0, 1), ("own", "means")):
            for i in range(len(step["of"][c][part])):
                forged = forge(honest, f"statement/steps/{j}/of/{c}/{part}/{i}/-1", doubled)
                with pytest.raises(ValueError, match=f"{SLACK}|tied to the origin"):
                    check_network.check(forged)
                refused += 1
    assert refused >= 6


def test_the_checker_stands_alone(honest: dict, tmp_path) -> None:
    """One file, the standard library, no site packages."""
    path = tmp_path / "proof.json"
    path.write_text(json.dumps(honest))
    command = [sys.executable, "-I", "-S", check_network.__file__, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert honest["bound"] in done.stdout


@pytest.mark.parametrize("name", ["absent", "a given network"])
def test_who_takes_part_and_the_given_network_are_part_of_the_proof(name: str) -> None:
    """The multipliers of one schedule, or one W, prove nothing of another, even with the digest of its steps."""
    method, devices, metric, options = CASES[name]
    certificate = pep.worst_case(method, devices, 2, 1.0, 0.5, metric, **options).certify().certificate
    other = {"schedule": ~WHO} if options else {}
    elsewhere = Mixing(np.full((3, 3), 0.1) + 0.7 * np.eye(3))
    changed = method if options else DecentralisedGD("own", graph=elsewhere, order="atc")
    setting = question(changed, devices, 2, 1.0, 0.5, metric, None, None, other.get("schedule"), "rescale")
    stated = restate_network(setting)
    assert stated["method"]["digest"] != certificate["statement"]["method"]["digest"]
    assert differences_of(certificate["statement"], stated)
    with pytest.raises(ValueError, match="slack|cancel|multipliers"):
        check_network.check(certificate | {"statement": stated})
    longer = restate_network(question(method, devices, 3, 1.0, 0.5, metric, None, None, None, "rescale"))
    assert not any("other steps" in line for line in differences_of(certificate["statement"], longer))  # as it must be
    same = question(method, devices, 2, 1.0, 0.5, metric, None, None, options.get("schedule"), "rescale")
    assert differences_of(certificate["statement"], restate_network(same)) == []
