"""A checker without one of its conditions, so that a test can show what this condition stops.

Conditions are what stands in ``need(...)``, taken apart at every ``and``, at every link of ``a < b <= c`` and inside
``all(... for ...)``; the reasons for which ``semidefinite`` says no; and ``fields(...)`` where it only looks at names.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

ANYTHING = ".*"


@dataclass(frozen=True)
class Condition:
    """What it says, a pattern of the words in which it refuses, where it stands, and what stands there without it."""

    text: str
    words: str
    holder: Any
    key: Any
    instead: ast.expr


class Checker:
    """A checker's source, whole or with something left out."""

    def __init__(self, module: ModuleType) -> None:
        self.path, self.package = str(module.__file__), module.__package__
        self.source = Path(self.path).read_text()
        self.tree = ast.parse(self.source)
        self.conditions = _conditions(self.tree)
        self.texts = [condition.text for condition in self.conditions]

    def whole(self) -> ModuleType:
        """A copy of the checker."""
        return self._compiled(self.tree)

    def without(self, condition: Condition) -> ModuleType:
        """The checker without one condition."""
        holder, key = condition.holder, condition.key
        kept, holder[key] = holder[key], condition.instead
        try:
            return self._compiled(self.tree)
        finally:
            holder[key] = kept

    def rewritten(self, was: str, now: str) -> ModuleType:
        """The checker with another text in one place."""
        assert self.source.count(was) == 1, was
        return self._compiled(ast.parse(self.source.replace(was, now)))

    def _compiled(self, tree: ast.Module) -> ModuleType:
        module = ModuleType("weakened")
        module.__dict__["__package__"] = self.package
        exec(compile(tree, self.path, "exec"), module.__dict__)
        return module


def only(*names: str) -> str:
    """What a checker says of an object with other names."""
    return f"an object must have the fields {', '.join(names)} and no others"


def verdict(check: Callable[[Any], Fraction], data: Any) -> str:
    """``passed``; ``refused: `` and why, where a ValueError says so; ``crashed`` where anything else goes wrong."""
    try:
        check(data)
    except Exception as error:
        return f"refused: {error}" if type(error) is ValueError else "crashed"
    return "passed"


def let_through(
    weakened: Callable[[Any], Fraction], forged: Mapping[str, tuple[str, Any]], condition: Condition
) -> list[str]:
    """The forgeries that are refused in the words of this condition, and not refused where it is left out."""
    mine = {name: data for name, (why, data) in forged.items() if re.fullmatch(condition.words, why)}
    return [name for name, data in mine.items() if not verdict(weakened, data).startswith("refused")]


def _conditions(tree: ast.Module) -> list[Condition]:
    """Every part of every condition of a checker."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "need":
            found += _parts(node.args, 0, ast.And, True, _words(tree, node.args[1]))
        if isinstance(node, ast.Expr) and getattr(getattr(node.value, "func", None), "id", "") == "fields":
            names = [ast.literal_eval(argument) for argument in node.value.args[1:]]
            found += _parts(node.__dict__, "value", ast.And, True, re.escape(only(*names)))
        if isinstance(node, ast.FunctionDef) and node.name == "semidefinite":
            inner = next(n for n in ast.walk(node) if isinstance(n, ast.If))
            found += _parts(inner.__dict__, "test", ast.Or, False, ANYTHING + "positive semidefinite")
    return found


def _words(tree: ast.Module, node: ast.expr) -> str:
    """A message as a pattern."""
    if isinstance(node, ast.Name):
        assigned = (n for n in ast.walk(tree) if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == node.id)
        return _words(tree, next(assigned).value)
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return "".join(re.escape(str(part.value)) if isinstance(part, ast.Constant) else ANYTHING for part in parts)


def _parts(holder: Any, key: Any, joined: type[ast.boolop], neutral: bool, words: str) -> list[Condition]:
    """The conjuncts (or disjuncts) of the expression ``holder[key]``."""
    node = holder[key]
    if isinstance(node, ast.BoolOp) and isinstance(node.op, joined):
        return [part for i in range(len(node.values)) for part in _parts(node.values, i, joined, neutral, words)]
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "all" and isinstance(node.args[0], ast.GeneratorExp):
        return _parts(node.args[0].__dict__, "elt", joined, neutral, words)
    left_out: list[tuple[ast.expr, ast.expr]] = [(node, ast.Constant(neutral))]
    if isinstance(node, ast.Compare) and len(node.ops) > 1:
        terms = [node.left, *node.comparators]
        pairs: list[ast.expr] = [ast.Compare(terms[i], [op], [terms[i + 1]]) for i, op in enumerate(node.ops)]
        rests = [[pair for j, pair in enumerate(pairs) if j != i] for i in range(len(pairs))]
        left_out = [(p, ast.BoolOp(ast.And(), [*r, ast.Constant(True)])) for p, r in zip(pairs, rests, strict=True)]
    fix = ast.fix_missing_locations
    return [Condition(ast.unparse(part), words, holder, key, fix(instead)) for part, instead in left_out]


def forge(certificate: dict, path: str, value) -> dict:
    """A copy with one entry replaced, or changed by a function of it; ``path`` has its keys between slashes."""
    forged = copy.deepcopy(certificate)
    *way, last = [int(part) if part.lstrip("-").isdigit() else part for part in path.split("/")]
    at = forged
    for part in way:
        at = at[part]
    at[last] = value(at.get(last) if isinstance(at, dict) else at[last]) if callable(value) else value
    return forged
