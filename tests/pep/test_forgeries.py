"""Forged certificates: every condition of the checker is what stops one of them.

The checker's source is taken apart: each conjunct of each ``need(...)``, and each reason for which ``semidefinite``
says no, is left out in turn. Then some forgery must get through (or crash in place of being refused).
"""

from __future__ import annotations

import ast
import copy
import hashlib
import itertools
import json
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from ownstep import pep
from ownstep.methods import GD, At, OwnStep
from ownstep.pep.proof import check as checker
from ownstep.plan import Devices

SOURCE = Path(checker.__file__).read_text()


def sealed(certificate: dict, **changes: Any) -> dict:
    """With other fields, and the digest of the method that it then states."""
    out = copy.deepcopy(certificate)
    for name, value in changes.items():
        (out if name == "bound" else out["multipliers"] if name in out["multipliers"] else out["statement"])[name] = (
            value
        )
    s = out["statement"]
    points = [r["ask"] for r in s["rounds"]] + [s["final"]]
    told = [[[str(Fraction(a)) for a in row] for row in table] for table in (points, [r["steps"] for r in s["rounds"]])]
    s["method"]["digest"] = hashlib.sha256(json.dumps(told).encode()).hexdigest()
    return out


def made(devices: list[tuple], metric: str, bound: str, start: str, conditions: list, **more: Any) -> dict:
    """A certificate by hand: kinds as (count, weight, mu, L), no rounds unless told."""
    kinds = [dict(zip(("count", "weight", "mu", "L"), d, strict=True)) for d in devices]
    s = {"devices": kinds, "method": {"name": "by hand", "digest": ""}, "rounds": [], "final": ["1"], "r0": "1",
         "rstar": "0", "metric": metric}  # fmt: skip
    m = {"start": start, "own": [], "conditions": conditions}
    out = {"format": checker.FORMAT, "statement": s | {k: v for k, v in more.items() if k != "own"}, "bound": bound}
    return sealed(out | {"multipliers": m | {k: v for k, v in more.items() if k == "own"}})


ONE = [(1, "1", "0", "1")]
"""One device, convex, L = 1: after no rounds f(x0) - f* <= 1/2, and the distance is at most 1."""
STEP = {"rounds": [{"ask": ["1"], "steps": ["1"]}], "final": ["1", "-1"]}
"""One step of gradient descent."""
HONEST = {
    "half": made(ONE, "value", "1/2", "1/2", [[0, "*", 0, "1"]]),
    "still": made(ONE, "distance", "1", "1", []),
    "pair": pep.worst_case(OwnStep(At(2)), Devices.uniform([1 / 3, 3], 0.1), 4, 10, 1).certify().certificate,
    "far": pep.worst_case(OwnStep(At(1)), Devices.uniform([1 / 3, 3], 0.1), 2, 1, 0.5, "distance")
    .certify()
    .certificate,
    "pooled": pep.worst_case(OwnStep(At(2)), Devices.uniform([1 / 3, 3], 0.1), 3, 1, 0, "gradient")
    .certify()
    .certificate,
    "twins": pep.worst_case(OwnStep(At(2)), pep.repeated([1 / 3, 3], 0.1, [2, 2]), 4, 10, 1).certify().certificate,
}


BACKWARDS = HONEST["pair"]["multipliers"]["conditions"][::-1]
IDLE = {"rounds": [{"ask": ["1"], "steps": ["0", "1"]}], "final": ["1"]}
"""Two kinds of device with steps of their own, the first of which does nothing, and an answer that is x0."""
TWO = [(1, "1/2", "0", "1"), (1, "1/2", "0", "2")]
HONEST |= {
    "in another order": sealed(HONEST["pair"], conditions=BACKWARDS),
    "a kind that does nothing": made(TWO, "distance", "1", "1", [], rstar="1", own=["0", "0"], **IDLE),
    "a multiplier of zero": made(ONE, "value", "1/2", "1/2", [[0, "*", 0, "1"], [0, 0, "*", "0"]]),
    "a number of a thousand digits": made(ONE, "value", "0" * 997 + "1/2", "1/2", [[0, "*", 0, "1"]]),
    "as many unknowns as may be": made([(1, "1/100", "0", "1")] * 100, "distance", "1", "1", []),
    "one quadratic": pep.worst_case(OwnStep(At(2)), Devices.uniform([0.1, 3], 0.1), 4, 1, 0.5).certify().certificate,
    "twins and one": pep.worst_case(OwnStep(At(2)), pep.repeated([1 / 3, 3], 0.1, [3, 1]), 4, 1, 0.5)
    .certify()
    .certificate,
}


def apart(*counts: int) -> dict:
    """Two kinds, whose devices may differ in the second only: ``counts`` of each, of weight 1/2 together.

    Each pair of conditions between z_c and x* adds 4 s_c^2 + 4 s_c z_c, the radii 3/4 z_1^2 and 2 z_2^2; s_2 = -s_1.
    4 s^2 + 4 s z + r z^2 is semidefinite from r = 1 on: for the second kind. Of the first there is only one device, as
    the second has 2 s^2 to spare, and 6 s^2 + 4 s z + 3/4 z^2 is semidefinite.
    """
    kinds = [(n, str(Fraction(1, 2 * n)), "0", "1") for n in counts]
    pairs = [[c, *points, "4"] for c in (0, 1) for points in (("own", "*"), ("*", "own"))]
    return made(kinds, "distance", "15/4", "1", pairs, rstar="1", own=["3/4", "2"], **IDLE)


HONEST |= {"twins of the kind that may differ": apart(1, 2), "no twins": apart(1, 1)}


@pytest.mark.parametrize("name", HONEST)
def test_honest_certificates_pass(name: str) -> None:
    assert checker.check(HONEST[name]) == Fraction(HONEST[name]["bound"])


def changed(certificate: dict, *path: Any, to: Any) -> dict:
    out = copy.deepcopy(certificate)
    place = out
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return out


LOCAL = (OwnStep(At(6)), 6, 1, 1, "distance")


def one_for_two(*which: int) -> dict:
    """The proof for one device of each kind, said to be of two: nothing stops twins from differing."""
    single = pep.worst_case(*LOCAL[:1], Devices.uniform([1 / 3, 3], 0.1), *LOCAL[1:]).certify().certificate
    twins = {"count": 2, "weight": "1/4"}
    kinds = [d | twins if i in which else d for i, d in enumerate(single["statement"]["devices"])]
    return sealed(single, devices=kinds)


def negative_radii() -> tuple[dict, Devices]:
    """A true proof plus a form that is semidefinite and lowers the bound, as one radius has a negative multiplier.

    Both conditions between z_c and x*, times t_c, add t_c (s^2 + (L + mu) s z + mu L z^2) / (L - mu).
    The second device is nearly a quadratic, so that z_2 is nearly -s_2 / L_2: much is lost by taking z_2 away.
    """
    devices = Devices(np.array([0.5, 0.5]), np.array([1.0, 3.0]), np.array([0.5, 2.875]))
    honest = pep.worst_case(OwnStep(At(1)), devices, 2, 1.0, 1.0).certify().certificate
    t, a, b = [Fraction(1), Fraction(50)], Fraction(2), Fraction(-4)
    factor = Fraction(1, 1000)
    m = copy.deepcopy(honest["multipliers"])
    m["own"] = [str(Fraction(r) + factor * x) for r, x in zip(m["own"], (a, b), strict=True)]
    terms = {tuple(names): Fraction(text) for *names, text in m["conditions"]}
    for c in (0, 1):
        for pair in ((c, "own", "*"), (c, "*", "own")):
            terms[pair] = terms.get(pair, Fraction(0)) + factor * t[c]
    m["conditions"] = [[*names, str(term)] for names, term in terms.items()]
    bound = Fraction(m["start"]) + sum(map(Fraction, m["own"]))
    return honest | {"multipliers": m, "bound": str(bound)}, devices


def cubed() -> dict:
    """The radius 1/2 to the third power in place of its square."""
    m = HONEST["far"]["multipliers"]
    assert HONEST["far"]["statement"]["rstar"] == "1/2"
    return HONEST["far"] | {"bound": str(Fraction(m["start"]) + sum(map(Fraction, m["own"])) / 8)}


def nearer() -> dict:
    """As if the minimiser of the quadratic were at -2 s / mu: a quarter of its multiplier would do."""
    honest, own = HONEST["one quadratic"], list(HONEST["one quadratic"]["multipliers"]["own"])
    flat = next(i for i, d in enumerate(honest["statement"]["devices"]) if d["mu"] == d["L"])
    own[flat] = str(Fraction(own[flat]) / 4)
    return sealed(honest, own=own)


FORGED: dict[str, Any] = {
    "more is said": HONEST["half"] | {"note": "and for every other function"},
    "a list in place of an object": ["format", "statement", "bound", "multipliers"],
    "a number, not a text": changed(HONEST["half"], "bound", to=1),
    "a number too long": changed(HONEST["half"], "bound", to="0" * 998 + "1/2"),
    "a power of ten": changed(HONEST["half"], "bound", to="5e-1"),
    "another format": HONEST["half"] | {"format": "ownstep certificate 1"},
    "a digest of other steps": changed(HONEST["pair"], "statement", "method", "digest", to="0" * 64),
    "a negative distance": sealed(HONEST["pair"], r0="-10"),
    "a negative radius": sealed(HONEST["pair"], rstar="-1"),
    "a metric of its own": sealed(HONEST["still"], metric="loss"),
    "a step for nobody": made(ONE, "distance", "1", "1", [], rounds=[{"ask": ["1"], "steps": ["0", "7"]}]),
    "a point that is no point": sealed(HONEST["half"], final=[]),
    "a point that knows what it is not told": sealed(HONEST["half"], final=["1", "-1"]),
    "a point that knows the solution": made(ONE, "distance", "1/4", "1/4", [], final=["1/2"]),
    "true devices": made([(True, "1", "0", "1")], "value", "1/2", "1/2", [[0, "*", 0, "1"]]),
    "no devices of a kind": made([(1, "1", "0", "1"), (0, "1", "0", "1")], "value", "1/2", "1/2", [[0, "*", 0, "1"]]),
    "a negative weight": made([(1, "3/2", "0", "1"), (1, "-1/2", "0", "2")], "value", "1/4", "1/4", [[0, "*", 0, "1"]]),
    "a negative mu": made([(1, "1", "-1", "1")], "distance", "1", "1", []),
    "a mu above L": made([(1, "1", "2", "1")], "distance", "1", "1", []),
    "no curvature at all": made([(1, "1", "0", "0")], "distance", "1", "1", []),
    "half of the objective": made([(1, "1/2", "0", "1")], "value", "1/4", "1/4", [[0, "*", 0, "1/2"]]),
    "too many unknowns": made([(1, "1/43", "0", "1")] * 43, "distance", "1", "1", [],
                              rounds=[{"ask": ["1"], "steps": ["0"] * 43}] * 4),
    "a weight of zero": made([(1, "1", "0", "1"), (1, "0", "0", "1")], "distance", "1", "1", []),
    "no distance at all": made(ONE, "distance", "0", "1", [], r0="0"),
    "a minimiser of its own": made(ONE, "value", "1/2", "1/2", [[0, "*", 0, "1"], [0, "own", 0, "0"]]),
    "the cube of a radius": cubed(),
    "a minimiser half as far as it is": nearer(),
    "a multiplier of a radius that is none": sealed(HONEST["pair"], own=[*HONEST["pair"]["multipliers"]["own"], "0"]),
    "a kind called true": made(ONE, "value", "1/2", "1/2", [[False, "*", 0, "1"]]),
    "a point between points": made(ONE, "value", "1/2", "1/2", [[0, "*", 0.0, "1"]]),
    "a condition from nowhere": made(ONE, "value", "1/2", "1/2", [[0, "*", 0, "1"], [0, "nowhere", 0, "0"]]),
    "a condition to nowhere": made(ONE, "value", "1/2", "1/2", [[0, "*", 0, "1"], [0, 0, "nowhere", "0"]]),
    "a condition with itself": made(ONE, "value", "1", "1", [[0, "*", 0, "3/2"], [0, 0, 0, "1/2"]]),
    "negative multipliers of conditions": made(
        ONE, "value", "0", "0", [[0, 0, "*", "-1/2"], [0, 0, 1, "1/2"], [0, 1, "*", "-1/2"]], **STEP),
    "a condition on a quadratic": made([(1, "1", "1", "1")], "value", "1/2", "1/2", [[0, "*", 0, "0"]]),
    "values that do not cancel": made([(1, "1", "1/2", "1")], "value", "1/4", "1/4", []),
    "a square that is not there": made(  # 0 u^2 + u x + x^2 / 2
        ONE, "distance", "3/2", "3/2", [[0, 0, "*", "1"], [0, "*", 0, "1"]], **STEP),
    "a slack that is not semidefinite": made(ONE, "value", "1/3", "1/3", [[0, "*", 0, "1"]]),
    "a bound below what is proved": changed(HONEST["half"], "bound", to="1/3"),
    "twins that may not differ": one_for_two(0, 1),
    "twins of the first kind that may not differ": one_for_two(0),
    "twins of the kind that may not differ": apart(2, 1),
    "twins of both kinds": apart(2, 3),
    "negative multipliers of the radii": negative_radii()[0],
    "a condition that stands ten times": made(ONE, "value", "1/2", "1/2", [[0, "*", 0, "1/10"]] * 10),
    "a method without a name": changed(HONEST["half"], "statement", "method", "name", to=None),
    "sums of nothing but long denominators": made(ONE, "distance", "1", "1", [], rounds=[
        {"ask": ["1"], "steps": [f"1/{10**900 + k}"]} for k in range(1, 9)]),
    "a slack of long numbers": made(
        [(1, "1", "0", f"{10**480 + 7}/{10**480 + 3}")], "value", *[f"{10**480 + 7}/{2 * 10**480 + 6}"] * 2,
        [[0, "*", 0, "1"]]),
}  # fmt: skip


def compiled(tree: ast.Module) -> ModuleType:
    module = ModuleType("checker")
    module.__dict__["__name__"] = "checker"
    exec(compile(ast.fix_missing_locations(tree), "check.py", "exec"), module.__dict__)
    return module


def write_forgeries(folder: Path) -> dict[str, Path]:
    """Files that can be read in two ways, or for too long."""
    text = json.dumps(HONEST["half"])
    files = {"said twice": '{"bound": "1/3", ' + text[1:], "too long": text + " " * 1000}
    for name, content in files.items():
        (folder / f"{name}.json").write_text(content)
    return {name: folder / f"{name}.json" for name in files}


def verdicts(module: ModuleType, folder: Path) -> dict[str, str]:
    """For every forgery: refused, passed, or crashed."""
    out = {}
    files, module.MOST_BYTES = write_forgeries(folder), len(json.dumps(HONEST["half"])) + 100
    module.__dict__["MOST_WORK"] = 20_000
    cases = {name: lambda data=data: module.check(data) for name, data in FORGED.items()}
    cases |= {name: lambda path=path: module.check(module.read(str(path))) for name, path in files.items()}
    for name, attempt in cases.items():
        try:
            attempt()
            out[name] = "passed"
        except ValueError as error:
            out[name] = "crashed" if isinstance(error, json.JSONDecodeError) else "refused"
        except Exception:
            out[name] = "crashed"
    return out


def test_a_file_may_be_as_long_as_is_said_and_no_longer(tmp_path: Path) -> None:
    module, text = compiled(ast.parse(SOURCE)), json.dumps(HONEST["half"])
    assert (module.MOST_BYTES, module.MOST_DIGITS, module.MOST_UNKNOWNS) == (50_000_000, 1_000, 300)
    assert (module.MOST_BITS, module.MOST_WORK) == (20_000, 5 * 10**11)
    assert module.TINY == 2.0**-44  # a float rounds by 2^-53
    module.MOST_BYTES = len(text) + 5
    (tmp_path / "c.json").write_text(text + " " * 5)
    assert module.check(module.read(str(tmp_path / "c.json"))) == Fraction(1, 2)
    (tmp_path / "c.json").write_text(text + " " * 6)
    with pytest.raises(ValueError, match="larger than"):
        module.read(str(tmp_path / "c.json"))


def test_denominators_are_taken_together_up_to_what_is_said() -> None:
    module = compiled(ast.parse(SOURCE))
    data = {"a": ["1/3", "-2/5", 7, None, "12"], "b": {"c": "5/6", "d": "no 1/11"}}
    assert module.together(data) == 30
    assert module.together([]) == module.together("3") == 1
    module.MOST_BITS = 5
    assert module.together("1/31") == 31  # five bits
    with pytest.raises(ValueError, match="too many different denominators"):
        module.together(["1/4", "1/8", "1/32"])
    with pytest.raises(ValueError, match="too many different denominators"):
        module.together(["1/5", {"a": "1/7"}])  # together six


@pytest.mark.parametrize(
    ("bound", "said"), [("1/2", "0.5"), ("1/3", "0.33333333333333337"), ("2/3", "0.6666666666666667")]
)
def test_what_a_certificate_proves_is_said_in_full(bound: str, said: str) -> None:
    """The bound never rounded down, and everything that it depends on."""
    text = checker.describe(HONEST["half"] | {"bound": bound})
    assert f"<= {said} after K = 0 rounds" in text
    for part in (
        "f(x_K) - f(x*)",
        "1 with weight 1 and f_i in F(mu=0, L=1)",
        "||x_0 - x*|| <= 1",
        "||x_i* - x*|| <= 0",
    ):
        assert part in text
    assert HONEST["half"]["statement"]["method"]["digest"] in text


def test_an_elimination_may_take_as_long_as_is_said() -> None:
    module, one = compiled(ast.parse(SOURCE)), Fraction(1)
    form = {(0, 0): 255 * one, (1, 1): one, (0, 1): -one, (1, 0): -one}
    module.MOST_WORK = 2**4 * 8  # two unknowns, eight bits in the longest number
    assert module.semidefinite(form)
    module.MOST_WORK -= 1
    with pytest.raises(ValueError, match="takes too long"):
        module.semidefinite(form)
    module.MOST_WORK = 0
    assert module.semidefinite({})
    assert module.semidefinite({(0, 0): 0 * one})


def test_what_is_plainly_positive_needs_no_elimination() -> None:
    """Of large certificates the elimination would take too long; entries that are not there are zero."""
    module, one = compiled(ast.parse(SOURCE)), Fraction(1)
    assert module.positive({(0, 0): one, (1, 1): one, (2, 2): one / 3})
    module.MOST_WORK = 0
    assert module.check(HONEST["pair"]) == Fraction(HONEST["pair"]["bound"])
    with pytest.raises(ValueError, match="takes too long"):
        module.check(HONEST["half"])  # its slack is singular


def test_there_are_at_most_as_many_conditions_as_pairs_of_points() -> None:
    """One kind and no rounds: x0, x* and the device's own minimiser."""
    (condition,) = HONEST["half"]["multipliers"]["conditions"]
    for more, accepted in ((8, True), (9, False)):
        certificate = sealed(HONEST["half"], conditions=[condition, *[[0, 0, "*", "0"]] * more])
        if accepted:
            assert checker.check(certificate) == Fraction(1, 2)
        else:
            with pytest.raises(ValueError, match="more conditions than pairs"):
                checker.check(certificate)


@pytest.mark.parametrize("seed", range(20))
def test_semidefinite_forms_against_their_eigenvalues(seed: int) -> None:
    """Random whole matrices of every rank, some with a pivot of zero; the floats decide where they can."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6))
    rows = rng.integers(-3, 4, (n, int(rng.integers(1, n + 1))))
    rows[rng.random(n) < 0.3] = 0
    for matrix in (rows @ rows.T, rows @ rows.T - np.diag(rng.integers(0, 2, n)), -rows @ rows.T):
        form = {(i, j): Fraction(int(matrix[i, j]), 6) for i in range(n) for j in range(n) if matrix[i, j]}
        lowest = np.linalg.eigvalsh(matrix)[0]
        assert checker.semidefinite(form) is bool(lowest > -1e-9)
        assert lowest > -1e-9 or not checker.positive(form)


@pytest.mark.parametrize("seed", range(12))
def test_what_is_plainly_positive_is_so_in_any_units(seed: int) -> None:
    """Seen for a lowest eigenvalue of 1e-3, for columns a factor of 1e40 apart; at 0 or below it is not."""
    rng = np.random.default_rng([3, seed])
    n = int(rng.integers(1, 9))
    rows = rng.integers(-9, 10, (n, max(n - 1, 1)))
    units = [Fraction(10) ** int(e) for e in rng.integers(-20, 21, n)]
    names = [("v", 0, k) for k in range(n)]
    vector = [Fraction(int(a), 7) for a in rng.integers(1, 9, n)]
    for more in (Fraction(1, 1000), Fraction(0), Fraction(-1, 10**30)):
        form = {}
        for i, j in itertools.product(range(n), repeat=2):
            entry = int(rows[i] @ rows[j]) + more * (vector[i] * vector[j] + (i == j))
            form[names[i], names[j]] = entry * units[i] * units[j]
        singular = n > 1 or not rows.any()
        assert checker.positive(form) is (more > 0 or (more == 0 and not singular) or (n == 1 and bool(rows.any())))
    assert checker.positive({})


def test_forms_that_floats_cannot_hold_are_not_positive() -> None:
    """Entries off the diagonal of any size; a factor that grows beyond all floats before its diagonal is seen."""
    one, huge = Fraction(1), Fraction(10) ** 900
    assert not checker.positive({(0, 0): one, (1, 1): one, (0, 1): huge, (1, 0): huge})
    assert checker.positive({(0, 0): huge, (1, 1): 1 / huge, (0, 1): one / 2, (1, 0): one / 2})
    n, close = 60, 1 - Fraction(1, 10**9)
    growing = {(i, j): one if i == j else close * (1 if (i + j) % 2 else -1) for i in range(n) for j in range(n)}
    assert not checker.positive(growing)


@pytest.mark.parametrize(("rows", "factor", "accepted"), [
    ([[5], [3, 5]], [[0], [0, 0]], True),
    ([[5], [-3, 5]], [[0], [0, 0]], True),
    ([[4], [3, 9]], [[0], [0, 0]], False),
    ([[9], [3, 4]], [[0], [0, 0]], False),
    ([[9], [-3, 4]], [[0], [0, 0]], False),
    ([[4 + 2], [2, 1 + 9 + 2]], [[2], [1, 3]], True),
    ([[4 + 2], [2, 1 + 9 + 1]], [[2], [1, 3]], False),
    ([[4 + 1], [2, 1 + 9 + 2]], [[2], [1, 3]], False),
    ([[4 + 3], [1, 1 + 9 + 3]], [[2], [1, 3]], True),
    ([[4 + 3], [0, 1 + 9 + 3]], [[2], [1, 3]], False),
    ([[10**40 + 1], [10**40, 10**40 + 1]], [[10**20], [10**20, 0]], False),
])  # fmt: skip
def test_a_dominant_rest_counts_its_rows_whole(rows: list[list[int]], factor: list[list[int]], accepted: bool) -> None:
    """B - R R^T by hand: n = 2 is left for what B was rounded by, whatever R is."""
    assert checker.dominant(rows, factor) is accepted


def test_every_forgery_is_refused(tmp_path: Path) -> None:
    assert set(verdicts(compiled(ast.parse(SOURCE)), tmp_path).values()) == {"refused"}


def conditions(tree: ast.Module) -> list[tuple[str, list[tuple[Any, str, int | None]]]]:
    """Every part of a condition: what it says, and where it stands in the tree."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "need":
            found += parts(node, "args", 0, ast.And, True)
        if isinstance(node, ast.FunctionDef) and node.name == "semidefinite":
            inner = next(n for n in ast.walk(node) if isinstance(n, ast.If))
            found += parts(inner, "test", None, ast.Or, False)
    return found


def parts(parent: Any, field: str, index: int | None, joined: type, neutral: bool) -> list[tuple[str, Any]]:
    """The conjuncts (disjuncts) of an expression, each with a function that leaves it out."""
    get = (lambda: getattr(parent, field)[index]) if index is not None else (lambda: getattr(parent, field))
    node = get()

    def put(value: ast.expr) -> None:
        if index is None:
            setattr(parent, field, value)
        else:
            getattr(parent, field)[index] = value

    if isinstance(node, ast.BoolOp) and isinstance(node.op, joined):
        return [found for i in range(len(node.values)) for found in parts(node, "values", i, joined, neutral)]
    if isinstance(node, ast.Compare) and len(node.ops) > 1:
        links = [node.left, *node.comparators]
        pairs = [ast.Compare(links[i], [op], [links[i + 1]]) for i, op in enumerate(node.ops)]
        return [
            (ast.unparse(pair), lambda i=i: put(ast.BoolOp(ast.And(), [p for j, p in enumerate(pairs) if j != i] * 2)))
            for i, pair in enumerate(pairs)
        ]
    return [(ast.unparse(node), lambda: put(ast.Constant(neutral)))]


NAMES = [name for name, _ in conditions(ast.parse(SOURCE))]


@pytest.mark.parametrize("number", range(len(NAMES)), ids=NAMES)
def test_every_condition_stops_a_forgery(number: int, tmp_path: Path) -> None:
    tree = ast.parse(SOURCE)
    _, leave_out = conditions(tree)[number]
    leave_out()
    found = verdicts(compiled(tree), tmp_path)
    assert set(found.values()) != {"refused"}, f"nothing gets through without {NAMES[number]!r}"


def test_twins_that_differ_are_worse_than_the_forgery_says() -> None:
    """0.9635 would pass where an instance of four devices reaches 1.0522."""
    forged = Fraction(FORGED["twins that may not differ"]["bound"])
    real = pep.worst_case(*LOCAL[:1], pep.repeated([1 / 3, 3], 0.1, [2, 2]), *LOCAL[1:])
    assert (float(forged), real.lower) == pytest.approx((0.9635, 1.0522), abs=1e-4)
    weak = SOURCE.replace("if kind[0] > 1)", "if False)")
    assert weak != SOURCE
    assert compiled(ast.parse(weak)).check(FORGED["twins that may not differ"]) == forged


def test_negative_multipliers_of_the_radii_prove_less_than_the_truth() -> None:
    forged, devices = negative_radii()
    real = pep.worst_case(OwnStep(At(1)), devices, 2, 1.0, 1.0)
    assert float(Fraction(forged["bound"])) < 0.9 * real.lower


def test_one_step_does_not_find_the_minimum() -> None:
    """What negative multipliers of conditions "prove" is that GD ends in one step; it leaves up to L r0^2 / 6."""
    real = pep.worst_case(GD(1.0), Devices.uniform([1.0]), 1, 1.0)
    assert real.lower == pytest.approx(1 / 6, rel=1e-5)
