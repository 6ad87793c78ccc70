"""Forged certificates: every condition of the checker is what stops one of them.

The checker's source is taken apart: each conjunct of each ``need(...)``, and each reason for which ``semidefinite``
says no, is left out in turn. Then some forgery must get through (or crash in place of being refused).
"""

from __future__ import annotations

import ast
import copy
import hashlib
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


def one_for_two() -> dict:
    """The proof for one device of each kind, said to be of two: nothing stops twins from differing."""
    single = pep.worst_case(*LOCAL[:1], Devices.uniform([1 / 3, 3], 0.1), *LOCAL[1:]).certify().certificate
    kinds = [d | {"count": 2, "weight": "1/4"} for d in single["statement"]["devices"]]
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
    for c in (0, 1):
        m["conditions"] += [[c, "own", "*", str(factor * t[c])], [c, "*", "own", str(factor * t[c])]]
    bound = Fraction(m["start"]) + sum(map(Fraction, m["own"]))
    return honest | {"multipliers": m, "bound": str(bound)}, devices


FORGED: dict[str, Any] = {
    "more is said": HONEST["half"] | {"note": "and for every other function"},
    "a list in place of an object": ["format", "statement", "bound", "multipliers"],
    "a number, not a text": changed(HONEST["half"], "bound", to=1),
    "a number too long": changed(HONEST["half"], "bound", to="0" * 1000 + "1/2"),
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
    "too many unknowns": made([(1, "1/300", "0", "1")] * 300, "distance", "1", "1", []),
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
    "twins that may not differ": one_for_two(),
    "negative multipliers of the radii": negative_radii()[0],
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
