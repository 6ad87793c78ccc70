"""Forged rates: every condition of ``check_rate`` is what stops one of them.

Each condition is left out in turn. Then a forgery that is refused in that condition's own words must get through, or
crash in place of being refused; for a condition that others imply, none does, and a table says why. What both checkers
of networks rely on (numbers, devices, mixing, semidefinite forms) is left out in ``test_network_forgeries``.
"""

from __future__ import annotations

import copy
from fractions import Fraction
from typing import Any

import pytest

from ownstep.pep.proof import check_network, check_rate
from tests.pep.leaving_out import Checker, Condition, let_through, only, verdict

CHECKER = Checker(check_rate)

KINDS = [(2, "1/4", "1", "3"), (1, "1/2", "2", "4")]
"""A pair of twins and one device, as (count, weight, mu, L): steps of 1/2 and 1/3 contract by 1/2 and 1/3."""
FLAT = [(1, "1/2", "1", "1"), (1, "1/2", "2", "2")]
"""Two quadratics, whose gradients are mu x; with a step of 1/2 the second is at its minimum at once."""
TWINS = [(2, "1/4", "1", "1"), (2, "1/4", "2", "2")]


def entry(*own: list, means: Any = ()) -> dict:
    """A vector of one kind: pairs [vector, number] of its own, and [kind, vector, number] of the means."""
    return {"own": list(own), "means": list(means)}


def vector(*means: Any, apart: Any = (), shared: Any = False) -> dict:
    """A vector of the state: None where it is free, and otherwise what it is tied to."""
    return {"shared": shared, "means": list(means), "apart": list(apart)}


def form(*of: Any, P: Any) -> dict:
    """A quadratic form in the arguments ``of``: its lower triangle, row by row."""
    return {"of": [list(at) for at in of], "P": [list(row) for row in P]}


def now(c: int, j: int = 0) -> list:
    """The vector j of the state now, for kind c."""
    return [0, "state", j, c]


X = entry([0, "1"])
GRADIENT = {"do": "gradient", "of": [X, X]}
MIX = {"do": "mix", "of": [X, X]}
NOTHING = form(P=[])
SQUARES: Any = {"mean": form(now(0), now(1), P=[["2/3"], ["0", "1/3"]]), "apart": [form(now(0), P=[["2/3"]])]}
"""V = the mean of ||x_i||^2 over KINDS."""
SPREAD: Any = {"mean": form(now(0), now(1), P=[["2/9"], ["-2/9", "2/9"]]), "apart": SQUARES["apart"]}
"""V = the mean of ||x_i - mean||^2 over KINDS."""
OFF = [entry([0, "1"], means=[[0, 0, "-2/3"], [1, 0, "-1/3"]])] * 2
"""How far a device is from the mean of all."""
BOTH = [[0, 0, 1, "1/3"], [0, 1, 0, "1/3"], [1, 0, 1, "2/27"], [1, 1, 0, "2/27"]]
"""The conditions between a point and x*, as a step of every device's own needs them."""


def made(rate: str, V: dict, conditions: Any = (), devices: Any = KINDS, **more: Any) -> dict:
    """A certificate by hand; unless told, every device takes a step of its own and V looks at one round."""
    s = {"devices": [dict(zip(("count", "weight", "mu", "L"), d, strict=True)) for d in devices]}
    s |= {"any_number": False, "network": None, "each_round": False, "memory": 1, "measure": [X, X]}
    s |= {"state": [vector(None, None, apart=[None])], "steps": [GRADIENT]}
    s |= {"next": [[entry([0, "1"], [1, "-1/2"]), entry([0, "1"], [1, "-1/3"])]]}
    m: Any = {"decrease": {"conditions": list(conditions), "Z": [], "a": []}}
    m |= {"positive": {"conditions": [], "Z": [], "a": []}}
    s |= {name: more.pop(name) for name in list(more) if name in s}
    for name in ("decrease", "positive"):
        m[name] |= more.pop(name, {})
    V = {"values": []} | V
    method = {"name": "made by hand", "digest": check_network.digest(s, *check_rate.ROUND)} | more.pop("method", {})
    s |= {"method": method}
    return {"format": check_rate.FORMAT, "statement": s, "rate": rate, "V": V, "multipliers": m} | more


def own(rate: str = "1/2", V: Any = SQUARES, **more: Any) -> dict:
    """Every device takes a step of its own: the rate is 1/2."""
    return made(rate, V, BOTH, **more)


def looking(*at: Any, value: Any = 0) -> dict:
    """The same, where V also looks there, times zero, and at a value, times zero."""
    mean = form(now(0), now(1), at, P=[["2/3"], ["0", "1/3"], ["0", "0", "0"]])
    return made("1/2", SQUARES | {"mean": mean, "values": [[value, 0, 0, "0"]]}, BOTH)


def mixing(**more: Any) -> dict:
    """Averaging with W in each round brings the devices together by 1/2."""
    network = {"lo": "-1/2", "hi": "1/2"}
    settings = {"network": network, "steps": [MIX], "next": [[entry([1, "1"])] * 2], "measure": OFF, "memory": 0}
    return made("1/2", SPREAD, **settings | {"decrease": {"Z": [[["1"]]], "a": [[[]]]}} | more)


def shared(rate: str, of: list, *told: Any, after: Any = None, **more: Any) -> dict:
    """One point for two quadratics, and a V of it: together they step to a quarter of it, or as ``after`` says."""
    together = [entry([0, "1"], means=[[0, 1, "-1/4"], [1, 1, "-1/4"]])] * 2
    state = told[0] if told else vector(None, shared=True)
    return made(rate, {"mean": form(of, P=[["1"]]), "apart": []}, devices=FLAT, state=[state],
                next=[after or together], **more)  # fmt: skip


LATER: Any = {"memory": 1, "positive": {"Z": [[["0"]]], "a": [[[]]]}}
ONCE: Any = LATER | {"decrease": {"Z": [[["1"], ["0", "0"]]], "a": [[[], ["0"]]]}}
COPY = vector([[0, 0, "1"]], [[0, 1, "1"]], apart=[[[0, "1"]]])
ALIKE = entry([0, "1"], [2, "-1/2"]), entry([0, "1"], [2, "-1/3"])
HONEST = {
    "own steps": own(),
    "a longer look": looking(0, "gradient", 0, 1),
    "a look ahead": looking(1, "state", 0, 0),
    "as long a memory as may be": own(memory=19),
    "as many steps as may be": own(steps=[GRADIENT] * 99, memory=0),
    "mixing": mixing(),
    "mixing, for two rounds": mixing(**ONCE),
    "mixing anew": mixing(each_round=True, **LATER | {"decrease": {"Z": [[["1"]], [["0"]]], "a": [[[]], [[]]]}}),
    "one point": shared("1/4", now(0)),
    "two vectors that are one": own(state=[vector(None, None, apart=[None]), COPY], next=[ALIKE, ALIKE],
                                    measure=[entry([1, "1"])] * 2, steps=[GRADIENT]),
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_honest_certificates_pass(name: str) -> None:
    assert check_rate.check(HONEST[name]) == Fraction(HONEST[name]["rate"])


def told(*path: str) -> dict:
    """The honest "own steps" with one name more somewhere."""
    out = copy.deepcopy(HONEST["own steps"])
    place = out
    for key in path:
        place = place[key]
    place["note"] = "and for every other function"
    return out


STATEMENT = ("devices", "method", "any_number", "network", "each_round", "memory", "state", "steps", "next", "measure")
HALVES = [entry([0, "1"], [1, "-1/2"])] * 2
APART = {"state": [vector([], [], apart=[None, None])], "next": [HALVES], "devices": TWINS}
EMPTY: Any = {"V": {"mean": NOTHING, "apart": [NOTHING]}, "measure": [entry()] * 2, "decrease": {"conditions": []}}
BREAKS, NEITHER = "a round breaks what is said of vector {} of the state", "step 0 does neither"
UNSEEN = "a value that V may not look at"
FORGED: dict[str, tuple[str, Any]] = {
    "more is stated": (only(*STATEMENT), told("statement")),
    "more multipliers": (only("decrease", "positive"), told("multipliers")),
    "more conditions": (only("conditions", "Z", "a"), told("multipliers", "positive")),
    "another format": (f"the format must be {check_rate.FORMAT!r}", own(format="ownstep network certificate 1")),
    "a negative rate": ("a rate is not negative", own(rate="-1/2")),
    "a memory that is true": ("the memory", own(memory=True)),
    "a memory of less than nothing": ("the memory", own(memory=-1, **EMPTY)),
    "too long a memory": ("the memory", own(memory=20)),
    "perhaps a new matrix": ("the state", own(each_round=1)),
    "a state that is forgotten": ("the state", own(next=[])),
    "a state from nowhere": ("the state", own(next=HONEST["own steps"]["statement"]["next"] * 2)),
    "no state at all": ("the state", own(state=[], next=[], steps=[], memory=0, **EMPTY)),
    "too many steps": ("the statement is too large to be checked", own(steps=[GRADIENT] * 100, memory=0)),
    "a vector that may be shared": ("whether a vector is shared", shared("1/4", now(0), vector(None, shared=1))),
    "two means of one point": ("the means of a vector of the state",
                               shared("1/4", now(0), vector(None, None, shared=True))),
    "a mean of nobody": ("the means of a vector of the state", own(state=[vector(None, None, None, apart=[None])])),
    "differences of one device": ("the differences of a vector of the state",
                                  own(state=[vector(None, None, apart=[None, None])])),
    "differences of one point": ("the differences of a vector of the state",
                                 shared("1/4", now(0), vector(None, apart=[None], shared=True))),
    # The second quadratic is at its minimum after one step: V looks at it alone, and the first is said to be there too.
    "a point that does not stay one": (BREAKS.format(0), shared("0", now(1), after=HALVES)),
    "means that do not stay equal": (BREAKS.format(0), shared("0", now(1), vector(None, [[0, 0, "1"]]), after=HALVES)),
    "differences that do not stay equal": (BREAKS.format(1), made(  # the first vector is 0 at once, the second stays
        "0", {"mean": NOTHING, "apart": [form(now(0), P=[["2/3"]])]}, measure=[entry([1, "1"])] * 2,
        state=[vector([], [], apart=[None]), vector([], [], apart=[[[0, "1"]]])],
        next=[[entry()] * 2, [entry([1, "1"])] * 2])),
    "differences of a faster kind": ("a difference of another kind", made(
        "0", {"mean": NOTHING, "apart": [form(now(1), P=[["1/2"]])] * 2}, **APART)),
    "a step that is no mixing": (NEITHER, mixing(steps=[MIX | {"do": "add"}])),
    "mixing without a network": (NEITHER, mixing(network=None)),
    "mixing anew as if it were not": ("the multipliers of the mixing steps", mixing(each_round=True, **ONCE)),
    "a round called false": ("the argument [False, 'state', 0]", looking(False, "state", 0, 0)),
    "a round before": ("the argument [-3, 'state', 0]", looking(-3, "state", 0, 0)),
    "a round too far": ("the argument [2, 'state', 0]", looking(2, "state", 0, 0)),
    "what is no gradient": ("the argument [0, 'slope', 0]", looking(0, "slope", 0, 0)),
    "a gradient too far": ("V may not look at [1, 'gradient', 0]", looking(1, "gradient", 0, 0)),
    "no form of the differences": ("the forms of V", made("1/2", SQUARES | {"apart": []}, BOTH)),
    "a form of no differences": ("the forms of V", made("1/2", SQUARES | {"apart": SQUARES["apart"] * 2}, BOTH)),
    "a row of P too few": ("the shape of P", made(
        "1/2", SQUARES | {"mean": form(now(0), now(1), now(0), P=SQUARES["mean"]["P"])}, BOTH)),
    "a value of round false": (UNSEEN, looking(0, "gradient", 0, 0, value=False)),
    "a value of a round before": (UNSEEN, looking(0, "gradient", 0, 0, value=-3)),
    "a value of a round too far": (UNSEEN, looking(0, "gradient", 0, 0, value=3)),
    "a negative multiplier": ("the condition 0, 0, 1, -1",
                              made("1/2", SQUARES, [[0, 0, 1, "4/3"], [0, 0, 1, "-1"], *BOTH[1:]])),
    "a condition on a quadratic": ("the condition 0, 0, 1, 0",
                                   shared("1/4", now(0), decrease={"conditions": [[0, 0, 1, "0"]]})),
    "a condition with itself": ("the condition 0, 1, 1, 1/6", made(
        "3/4", SQUARES, [[0, 0, 1, "1/2"], [0, 1, 1, "1/6"], *BOTH[1:]])),
    "values that do not cancel": ("the values do not cancel in V_{k+1} <= rate^2 V_k", made(  # steps that diverge
        "1/4", SQUARES, [[0, 0, 1, "1/4"], [0, 1, 0, "5/4"], [1, 0, 1, "1/16"], [1, 1, 0, "1/8"]],
        next=[[entry([0, "1"], [1, "-3/4"]), entry([0, "1"], [1, "-3/8"])]])),
    "a better rate": ("the slack of V_{k+1} <= rate^2 V_k is not positive semidefinite", own(rate="2/5")),
    "another method": ("the digest is not that of the steps", own(method={"digest": "0" * 64})),
    "more is said of the method": (only("name", "digest"), own(method={"note": "and of every other one"})),
    "a larger measure": ("the slack of V_k >= measure_k is not positive semidefinite",
                         own(measure=[entry([0, "2"])] * 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_every_forgery_is_refused_for_its_own_reason(name: str) -> None:
    why, data = FORGED[name]
    assert verdict(check_rate.check, data) == f"refused: {why}"


IMPLIED = {
    "len(s['state']) == len(s['next'])": "_kept goes through both with zip(strict=True), which stops as well",
    "what == 'state' or ahead < self.memory": "V is also taken a round later; no gradient of that last round is kept",
    "len(apart) == len(self.case.twins)": "zip(strict=True) over both stops as well",
}
"""Conditions without which everything is still refused, though less clearly, and why."""


@pytest.mark.parametrize("condition", CHECKER.conditions, ids=CHECKER.texts)
def test_every_condition_stops_a_forgery(condition: Condition) -> None:
    found = let_through(CHECKER.without(condition).check, FORGED, condition)
    assert bool(found) is (condition.text not in IMPLIED), f"without {condition.text!r} these get through: {found}"


def test_relations_are_said_to_be_those_of_the_start() -> None:
    """A quadratic that starts at its minimum stays there, from elsewhere it need not: whose rate it is must be said."""
    still = shared("0", now(0), vector([], shared=True))
    assert check_rate.check(still) == 0
    assert check_rate.describe(still).endswith("from every start that satisfies the relations of its state")
    assert "relations" not in check_rate.describe(HONEST["one point"])


def test_conditions_that_are_implied_are_conditions() -> None:
    assert set(IMPLIED) <= set(CHECKER.texts)
    assert (check_rate.MOST_ROUNDS, check_rate.MOST_STEPS) == (20, 100)


def test_a_matrix_of_every_round_is_another() -> None:
    """A proof for one W in all rounds would do for a new one in each, if its steps were taken together."""
    weakened = CHECKER.rewritten('k if self.s["each_round"] else 0', "0")
    assert verdict(weakened.check, FORGED["mixing anew as if it were not"][1]) == "passed"
