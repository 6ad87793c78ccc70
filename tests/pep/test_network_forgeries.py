"""Forged worst cases over networks: every condition of ``check_network`` is what stops one of them.

Each condition is left out in turn. Then a forgery that is refused in that condition's own words must get through, or
crash in place of being refused; for a condition that others imply, none does, and a table says why.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from ownstep.pep.proof import check_network
from tests.pep.leaving_out import Checker, Condition, let_through, only, verdict

CHECKER = Checker(check_network)
WHOLE = CHECKER.whole()
BYTES, BITS = 2_000, 70
"""A file may be this long here: what is longer need not be made."""

KINDS = [(1, "1/4", "0", "1"), (2, "3/8", "1/2", "2")]
"""One device and a pair of twins, as (count, weight, mu, L): f(x0) - f* <= 7/8 where all share x*."""
FLAT = [(1, "1/2", "1", "1"), (1, "1/2", "1/4", "1/4")]
"""Two quadratics, whose gradients are mu x."""
ALONE = [(1, "1", "0", "1")]


def entry(*own: list, means: Any = ()) -> dict:
    """A vector of one kind: pairs [atom, number] of its own, and [kind, atom, number] of the means."""
    return {"own": list(own), "means": list(means)}


X0 = [entry([0, "1"])] * 2
MIDDLE = [entry(means=[[0, 0, "1/3"], [1, 0, "2/3"]])] * 2
"""The mean of the starts of KINDS."""
NETWORK = {"lo": "-1/2", "hi": "1/2"}
GRADIENT = {"do": "gradient", "of": X0, "group": 0}
MIX = {"do": "mix", "of": X0, "group": 0}
AGAIN = {"do": "mix", "of": [entry([1, "1"])] * 2, "group": 0}
AVERAGED: Any = {"network": NETWORK, "steps": [MIX], "Z": [[["0"]]], "a": [[[]]]}
TWICE: Any = {"network": NETWORK, "steps": [MIX, AGAIN], "points": "mean", "final": MIDDLE} | {
    "stack": [entry([0, "2"], [2, "-1"])] * 2, "a": [[[], ["-4"]]]}  # fmt: skip
"""2 X - W W X, of which as much as four times the square can be left: where W has an eigenvalue 0."""


def made(devices: Any, metric: str, bound: str, times: list[str], conditions: Any = (), **more: Any) -> dict:
    """A certificate by hand: all start at x0, which is also the last point, and do nothing unless told."""
    kinds = [dict(zip(("count", "weight", "mu", "L"), d, strict=True)) for d in devices]
    start = {"points": "same", "r0": "1", "rstar": "0", "gradients": None, "trackers": None}
    s = {"devices": kinds, "any_number": False, "network": None, "metric": metric, "steps": [], "stack": None}
    m = {"start": times, "conditions": list(conditions), "Z": [], "a": []}
    final = more.pop("final", X0[:1] * len(kinds))
    for part in (start, s, m):
        part |= {name: more.pop(name) for name in list(more) if name in part}
    statement = s | {"start": start, "points": [final]}
    method = {"name": "made by hand", "digest": check_network.digest(statement)} | more.pop("method", {})
    statement |= {"method": method}
    return {"format": check_network.FORMAT, "statement": statement, "bound": bound, "multipliers": m} | more


VALUE = [[0, "*", "K", "1/4"], [1, "*", "K", "3/4"]]
TILTS: Any = {"rstar": "1", "gradients": "10"}
HONEST = {
    "still": made(KINDS, "distance", "1", ["1"]),
    "a value": made(KINDS, "value", "7/8", ["7/8"], VALUE),
    "from a ball": made(KINDS, "distance", "1", ["1/3", "2/3"], points="ball", final=MIDDLE),
    "averaged": made(KINDS, "consensus", "1/4", ["1/4"], points="mean", final=MIDDLE, stack=[entry([1, "1"])] * 2,
                     **AVERAGED | {"Z": [[["1"]]]}),
    "averaged twice": made(KINDS, "consensus", "4", ["4"], Z=[[["0"], ["0", "1"]]], **TWICE),
    "averaged for nothing": made(KINDS, "distance", "1", ["1"], **AVERAGED),
    "with tilts": made(KINDS, "distance", "1", ["1", "0", "0", "0"], **TILTS),
    "as many steps as may be": made(KINDS, "distance", "1", ["1"], steps=[GRADIENT] * 200),
    "a number of a thousand digits": made(KINDS, "distance", "1".zfill(1000), ["1"]),
    "as many matrices as steps": made(KINDS, "distance", "1", ["1"], [], network=NETWORK, Z=[[["0"]]] * 2,
                                      a=[[[]]] * 2, steps=[MIX, MIX | {"group": 1}]),
    "no tilts at all": made(KINDS, "distance", "1", ["1"], gradients="0"),
    "any number of them": made(ALONE, "consensus", "1", ["1"], any_number=True, points="mean", stack=X0[:1],
                               final=[entry(means=[[0, 0, "1"]])]),
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_honest_certificates_pass(name: str) -> None:
    assert check_network.check(HONEST[name]) == Fraction(HONEST[name]["bound"])


STATEMENT = ("devices", "method", "any_number", "network", "start", "metric", "steps", "points", "stack")
START = ("points", "r0", "rstar", "gradients", "trackers")
SHAPES = "the multipliers of the mixing steps"
SLACK = "the slack is not positive semidefinite"
TRACKERS = "a bound on the first gradients needs them as the first step, at the start"
HALFWAY = [entry(means=[[0, 0, "1/2"], [1, 0, "1/2"]])] * 2
"""The mean of the starts of FLAT."""
DEVICES, EIGENVALUES, NAMELESS = "the devices", "the eigenvalues", "a number must be a text of a reasonable length"


def told(name: str, *path: str) -> dict:
    """The honest "still" with one name more somewhere."""
    out = json.loads(json.dumps(HONEST["still"]))
    place = out
    for key in path:
        place = place[key]
    place[name] = "and for every other function"
    return out


def still(devices: Any = KINDS, **more: Any) -> dict:
    """What does not depend on the devices: ||x0 - x*|| <= 1."""
    return made(devices, "distance", "1", ["1"], **more)


FORGED: dict[str, tuple[str, Any]] = {
    "more is said": (only("format", "statement", "bound", "multipliers"), told("note")),
    "more is stated": (only(*STATEMENT), told("note", "statement")),
    "more is said of the start": (only(*START), told("note", "statement", "start")),
    "more multipliers": (only("start", "conditions", "Z", "a"), told("note", "multipliers")),
    "a list in place of an object": (only("format", "statement", "bound", "multipliers"), [*HONEST["still"]]),
    "a number, not a text": (NAMELESS, still() | {"bound": 1}),
    "a number too long": (NAMELESS, still() | {"bound": "1".zfill(1001)}),
    "a power of ten": ("'1e0' is no exact number", still() | {"bound": "1e0"}),
    "another format": (f"the format must be {check_network.FORMAT!r}", still(format="ownstep certificate 2")),
    "true devices": (DEVICES, still([(True, "1/4", "0", "1"), KINDS[1]])),
    "no devices of a kind": (DEVICES, still([*KINDS, (0, "1", "0", "1")])),
    "a negative weight": (DEVICES, made([(1, "3/2", "0", "1"), (1, "-1/2", "0", "2")], "value", "3/4", ["3/4"],
                                        [[0, "*", "K", "3/2"], [1, "K", "*", "1/2"]])),
    "a negative mu": (DEVICES, still([(1, "1/4", "-1", "1"), KINDS[1]])),
    "a mu above L": (DEVICES, still([(1, "1/4", "3/2", "1"), KINDS[1]])),
    "no curvature at all": (DEVICES, still([(1, "1/4", "0", "0"), KINDS[1]])),
    "half of the objective": ("the weights do not sum to one",
                              made([(1, "1/8", "0", "1"), (2, "3/16", "1/2", "2")], "value", "7/16", ["7/16"],
                                   [[0, "*", "K", "1/8"], [1, "*", "K", "3/8"]])),
    "no devices": ("the weights do not sum to one", still([])),
    "perhaps any number": ("whether the number of devices is left open", still(any_number=1)),
    "an eigenvalue of -1": (EIGENVALUES, still(**AVERAGED | {"network": {"lo": "-1", "hi": "1/2"}})),
    "an eigenvalue of 1": (EIGENVALUES, still(**AVERAGED | {"network": {"lo": "-1/2", "hi": "1"}})),
    "eigenvalues between nothing": (EIGENVALUES, still(**AVERAGED | {"network": {"lo": "1/2", "hi": "-1/2"}})),
    "a network that nobody uses": (EIGENVALUES, still(network={"lo": "-3", "hi": "7"})),
    "a vector of a kind that is none": ("a vector has one entry for each kind",
                                        still(final=[*X0, entry(means=[[0, 0, "1"]])])),
    "a start from anywhere": ("the start", made(KINDS, "distance", "1", ["1/3", "2/3"], points="anywhere",
                                                final=MIDDLE)),
    "a negative radius": ("a radius is negative", still(rstar="-1")),
    "a negative bound on the gradients": ("a radius is negative", still(gradients="-1")),
    "a negative bound on the trackers": ("a radius is negative",
                                         made(KINDS, "distance", "1", ["1", "0"], trackers="-1", steps=[GRADIENT])),
    "no distance at all": ("r0", made(KINDS, "distance", "0", ["1"], r0="0")),
    "too many steps": ("the statement is too large to be checked", still(steps=[GRADIENT] * 201)),
    "a vector before the first": ("there is nothing at -1", still(final=[entry([-1, "1"])] * 2)),
    "a kind called false": ("there is nothing at False", made(KINDS, "value", "7/8", ["7/8"],
                                                              [[False, "*", "K", "1/4"], VALUE[1]])),
    "a matrix beyond the last": ("there is nothing at 7", still(**AVERAGED | {"steps": [MIX | {"group": 7}]})),
    "a point that knows the solution": ("a point is tied to the origin",
                                        made(KINDS, "distance", "1/4", ["1/4"], final=[entry([0, "1/2"])] * 2)),
    "a device that knows the solution": (
        "a vector is tied to the origin in one kind of device and not in another",
        made(KINDS, "distance_devices", "11/27", ["11/27"], stack=[entry([0, "1"]), entry([0, "1/3"])])),
    "points of twins apart": ("a point is not one for all devices", made(
        KINDS, "distance", "1", ["1/3", "2/3"], points="ball",
        final=[entry([0, "1"], means=[[c, 0, "-1"], *MIDDLE[0]["means"]]) for c in (0, 1)])),
    "points of kinds apart": ("a point is not one for all devices", made(
        FLAT, "distance", "0", ["0"], steps=[GRADIENT],
        final=[entry(means=[[0, 0, "1"], [c, 1, "-1"]]) for c in (0, 1)])),
    "a gradient of a matrix": ("a gradient has no mixing matrix", still(steps=[GRADIENT | {"group": 1}])),
    "a step that is no mixing": ("step 0 does neither", still(**AVERAGED | {"steps": [MIX | {"do": "add"}]})),
    "mixing without a network": ("step 0 does neither", still(**AVERAGED | {"network": None})),
    "trackers before gradients": (TRACKERS, made(KINDS, "distance", "1", ["1", "0"], trackers="1", **AVERAGED)),
    "trackers elsewhere": (TRACKERS, made(  # gradients at the mean of the starts are not those at the starts
        FLAT, "consensus", "1", ["0", "0", "1"], points="ball", trackers="1", steps=[GRADIENT | {"of": HALFWAY}],
        final=HALFWAY, stack=[entry([1, "1"], means=HALFWAY[0]["means"])] * 2)),
    "a metric of its own": ("the metric", made(FLAT, "speed", "1", ["1"])),
    "no Z": (SHAPES, still(**AVERAGED | {"Z": []})),
    "no a": (SHAPES, still(**AVERAGED | {"a": []})),
    "multipliers of no matrix": (SHAPES, still(**AVERAGED | {"Z": [[["0"]]] * 2, "a": [[[]]] * 2})),
    "a Z too wide": ("the shape of Z", still(**AVERAGED | {"Z": [[["0", "0"]]]})),
    "an a too wide": ("the shape of a", still(**AVERAGED | {"a": [[["0"]]]})),
    "a matrix that is exactly at its ends": ("Z is not positive semidefinite", made(
        KINDS, "consensus", "49/16", ["49/16"], Z=[[["-15/4"], ["0", "1"]]], **TWICE)),
    "a point called false": ("there is no point '*' or False",
                             made(KINDS, "distance", "1", ["1"], [[0, "*", False, "0"]], steps=[GRADIENT])),
    "a condition to nowhere": ("there is no point '*' or 'nowhere'",
                               made(KINDS, "distance", "1", ["1"], [[0, "*", "nowhere", "0"]])),
    "negative multipliers of conditions": ("the condition 0, 0, *, -1/2", made(
        ALONE, "value", "0", ["0"], [[0, 0, "*", "-1/2"], [0, 0, "K", "1/2"], [0, "K", "*", "-1/2"]],
        steps=[GRADIENT | {"of": X0[:1]}], final=[entry([0, "1"], means=[[0, 1, "-1"]])])),
    "a condition on a quadratic": ("the condition 0, *, K, 0",
                                   made(FLAT, "value", "5/16", ["5/16"], [[0, "*", "K", "0"]])),
    "a condition with itself": ("the condition 0, K, K, 1/4", made(
        KINDS, "value", "1", ["1"], [[0, "*", "K", "1/2"], [0, "K", "K", "1/4"], VALUE[1]])),
    "no multiplier of the start": ("the multipliers of the start", made(KINDS, "distance", "1", [])),
    "a multiplier of no start": ("the multipliers of the start", made(KINDS, "distance", "1", ["1", "0"])),
    "a negative multiplier of the start": ("a multiplier of the start is negative", made(
        KINDS, "distance", "-189/2", ["1", "1/2", "4", "-1"],
        [[c, *pair, t] for c, t in ((0, "1"), (1, "3")) for pair in (("*", "own"), ("own", "*"))], **TILTS)),
    "values that do not cancel": ("the values do not cancel", made(KINDS, "value", "3/16", ["3/16"])),
    "a slack that is not semidefinite": (SLACK, made(KINDS, "value", "1/2", ["1/2"], VALUE)),
    "a square that is not there": (SLACK, made(ALONE, "value", "0", ["0"], [[0, "*", "K", "1"]])),  # 0 x^2 - xv + v^2/2
    "twins that may not differ": (SLACK, made([(2, "1/2", "0", "1")], "consensus", "0", ["0"], points="mean",
                                              stack=X0[:1], final=[entry(means=[[0, 0, "1"]])])),
    "any number that is one": (SLACK, HONEST["any number of them"] | {"bound": "0"}
                               | {"multipliers": HONEST["any number of them"]["multipliers"] | {"start": ["0"]}}),
    "tilts that vanish": (SLACK, made(FLAT, "distance_devices", "9/32", ["9/32"], rstar="inf", steps=[GRADIENT],
                                      stack=[entry([0, "1"], [1, "-1"])] * 2)),
    "a mean that mixing changes": (SLACK, made(
        KINDS, "distance", "0", ["0"], **AVERAGED | {"final": [entry(means=[[0, 1, "1/3"], [1, 1, "2/3"]])] * 2})),
    "another method": ("the digest is not that of the steps", still(method={"digest": "0" * 64})),
    "more is said of the method": (only("name", "digest"), still(method={"note": "and of every other one"})),
    "a denominator too long": ("the numbers have too many different denominators to be checked",
                               still() | {"bound": f"{2**71}/{2**70}"}),
    "a bound below what is proved": ("the multipliers do not prove the bound stated", still() | {"bound": "1/2"}),
}  # fmt: skip


def files(folder: Path) -> dict[str, tuple[str, Any]]:
    """Files that can be read in two ways, or for too long."""
    text = json.dumps(HONEST["still"])
    (folder / "twice.json").write_text('{"bound": "1/3", ' + text[1:])
    (folder / "long.json").write_text(text + " " * (BYTES + 1 - len(text)))
    words = "a name stands twice among ['bound', 'format', 'statement', 'bound', 'multipliers']"
    return {
        "said twice": (words, folder / "twice.json"),
        "too long": (f"the file is larger than {BYTES} bytes", folder / "long.json"),
    }


def checked(module: ModuleType, data: Any) -> Fraction:
    module.__dict__.update(MOST_BYTES=BYTES, MOST_BITS=BITS)
    bound: Fraction = module.check(module.read(str(data)) if isinstance(data, Path) else data)
    return bound


def test_a_file_may_be_as_long_as_is_said(tmp_path: Path) -> None:
    assert (check_network.MOST_BYTES, check_network.MOST_DIGITS, check_network.MOST_STEPS) == (50_000_000, 1_000, 200)
    assert check_network.MOST_BITS == 20_000
    assert checked(WHOLE, still() | {"bound": f"{2**70}/{2**69}"}) == 2  # 70 bits
    text = json.dumps(HONEST["still"])
    (tmp_path / "long.json").write_text(text + " " * (BYTES - len(text)))
    assert checked(WHOLE, tmp_path / "long.json") == 1


def test_every_forgery_is_refused_for_its_own_reason(tmp_path: Path) -> None:
    for name, (why, data) in (FORGED | files(tmp_path)).items():
        assert verdict(lambda d: checked(WHOLE, d), data) == f"refused: {why}", name


IMPLIED = {
    "len(m['Z']) == len(m['a'])": "zip(strict=True) over both and the groups stops as well",
    "len(m['a']) == len(groups)": "the same zip",
    "len(m['start']) == len(bounded)": "zip(strict=True) over both stops as well",
}
"""Conditions without which everything is still refused, though less clearly, and why."""


@pytest.mark.parametrize("condition", CHECKER.conditions, ids=CHECKER.texts)
def test_every_condition_stops_a_forgery(condition: Condition, tmp_path: Path) -> None:
    weakened = CHECKER.without(condition)
    found = let_through(lambda data: checked(weakened, data), FORGED | files(tmp_path), condition)
    assert bool(found) is (condition.text not in IMPLIED), f"without {condition.text!r} these get through: {found}"


def test_conditions_that_are_implied_are_conditions() -> None:
    assert set(IMPLIED) <= set(CHECKER.texts)


@pytest.mark.parametrize(
    ("was", "now", "name"),
    [
        ('read[c][0] > 1 or s["any_number"]]', 's["any_number"]]', "twins that may not differ"),
        ('read[c][0] > 1 or s["any_number"]]', "read[c][0] > 1]", "any number that is one"),
        ('several = case.devices > 1 or s["any_number"]', "several = False", "tilts that vanish"),
        ("held=case.mean(x)", "held={}", "a mean that mixing changes"),
    ],
)
def test_what_is_derived_stops_a_forgery(was: str, now: str, name: str) -> None:
    """Members that may differ, tilts, and the mean that W keeps."""
    assert verdict(CHECKER.rewritten(was, now).check, FORGED[name][1]) == "passed"


def test_a_matrix_need_not_be_at_its_ends() -> None:
    """W = the mean of all leaves 4 of the square where the forgery with Z < 0 says 49/16."""
    x, W = np.array([1.0, -0.25, -0.75]), np.full((3, 3), 1 / 3)
    left = 2 * x - W @ W @ x
    assert left @ left / (x @ x) == pytest.approx(4)
    assert Fraction(FORGED["a matrix that is exactly at its ends"][1]["bound"]) < 4
