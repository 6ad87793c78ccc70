"""Small mistakes of the kind people make, one at a time, in Python source: what ``tools/mutate.py`` plants.

A mutant replaces one expression or statement by a wrong one. Left alone are docstrings, annotations and what is
imported for them, messages of errors, and keywords that change no result (``repr``, ``strict``, ``stacklevel``).
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
NAMES = {
    "min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum",
    "fmin": "fmax", "fmax": "fmin", "argmin": "argmax", "argmax": "argmin", "floor": "ceil", "ceil": "floor",
    "zeros": "ones", "ones": "zeros", "sum": "mean", "mean": "sum",
}  # fmt: skip
HARMLESS = {"repr", "strict", "stacklevel", "dtype", "encoding", "help", "description", "indent", "flush", "compare"}
NOTHING = {"np.zeros(0)", "np.ones(0)", "len(self.weights)", "len(devices.weights)", "len(state.devices.weights)"}
"""No number is in the one, and only the length of the others is read: equal weights would be as many."""
SKIPPED = ("__repr__", "__str__", "describe_", "figure", "charts")


@dataclass(frozen=True)
class Mutant:
    """One mistake: the text between two offsets of a module becomes another.

    ``function`` is the innermost one around it; ``nth`` counts the same mistake in the same line of text, from 1.
    """

    module: str
    line: int
    start: int
    end: int
    was: str
    now: str
    kind: str
    code: str
    function: str = ""
    nth: int = 1

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """What stays the same while lines around it move."""
        return self.module, self.code, self.was, self.now, self.nth

    def apply(self, source: bytes) -> bytes:
        """The module with the mistake in it."""
        return source[: self.start] + self.now.encode() + source[self.end :]


def mutants(module: str, source: str) -> list[Mutant]:
    """Every mutant of a module, in the order of its lines."""
    tree = ast.parse(source)
    lines = source.encode().splitlines(keepends=True)
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    found = []
    for node, new, kind in _changes(tree):
        start = offsets[node.lineno - 1] + node.col_offset
        end = offsets[node.end_lineno - 1] + node.end_col_offset
        was = source.encode()[start:end].decode()
        now = new if isinstance(new, str) else ast.unparse(new)
        if isinstance(node, ast.expr) and not isinstance(node, ast.Constant | ast.Name | ast.Attribute):
            now = f"({now})"
        now = now.replace("\n", "\n" + " " * node.col_offset)
        if isinstance(new, ast.AST) and ast.unparse(node) == ast.unparse(new):
            continue
        around = [f for f in functions if f.lineno <= node.lineno and node.end_lineno <= f.end_lineno]
        function = max(around, key=lambda f: f.lineno).name if around else ""
        code = lines[node.lineno - 1].decode().strip()
        found.append(Mutant(module, node.lineno, start, end, was, now, kind, code, function))
    unique = {(m.start, m.end, m.now): m for m in found}
    return _counted(sorted(unique.values(), key=lambda m: (m.start, m.end, m.now)))


def _counted(found: list[Mutant]) -> list[Mutant]:
    """The same mutants, each with its place among those that read alike."""
    seen: Counter[tuple[str, str, str]] = Counter()
    numbered = []
    for mutant in found:
        alike = (mutant.code, mutant.was, mutant.now)
        seen[alike] += 1
        numbered.append(replace(mutant, nth=seen[alike]))
    return numbered


def _changes(tree: ast.AST) -> Iterator[tuple[ast.AST, ast.AST | str, str]]:
    for node in _walk(tree):
        yield from _expression(node)
        yield from _statement(node)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """What can be mutated: no annotations, docstrings, messages or decorators."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(
                child, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom
            ):
                continue
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                continue
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            if isinstance(child, ast.FunctionDef) and child.name.startswith(SKIPPED):
                continue
            if isinstance(child, ast.Call) and ast.unparse(child.func).endswith(
                ("Error", "InvalidInput", "cast", "TypeVar")
            ):
                continue
            if isinstance(child, ast.keyword) and child.arg in HARMLESS:
                continue
            if isinstance(child, ast.Call) and ast.unparse(child) in NOTHING:
                continue
            yield child
            yield from _walk(child)


def _with(node: ast.AST, **fields: object) -> ast.AST:
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _expression(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST | str, str]]:
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and not isinstance(node.left, ast.JoinedStr):
        yield node, _with(node, op=ARITHMETIC[type(node.op)]()), "arithmetic"
    elif isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            yield node, _with(node, ops=[*node.ops[:i], COMPARISONS[type(op)](), *node.ops[i + 1 :]]), "comparison"
    elif isinstance(node, ast.BoolOp):
        yield node, _with(node, op=ast.And() if isinstance(node.op, ast.Or) else ast.Or()), "and for or"
        for i in range(len(node.values)):
            rest = [*node.values[:i], *node.values[i + 1 :]]
            yield node, _with(node, values=rest) if len(rest) > 1 else rest[0], "a condition left out"
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        yield node, node.operand, "sign or negation dropped"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield node, ast.Constant(not node.value), "constant"
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield (
            node,
            ast.Constant(node.value + 1 if node.value in (0, 1) or isinstance(node.value, int) else 2 * node.value),
            "constant",
        )
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in ("min", "max", "any", "all"):
        yield node, ast.Name(NAMES[node.id]), "another function"
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node.attr == "weights":
        text = ast.unparse(node)
        yield node, f"(0 * {text} + 1 / len({text}))", "equal weights"
    elif isinstance(node, ast.IfExp):
        yield node, node.body, "one branch always"
        yield node, node.orelse, "one branch always"
    elif isinstance(node, ast.Call):
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in NAMES:
            yield function, _with(function, attr=NAMES[function.attr]), "another function"
        if node.args and ast.unparse(function).endswith(("default_rng", "manual_seed", "SeedSequence")):
            yield node, _with(node, args=[ast.Constant(0)]), "a seed ignored"
        for i, word in enumerate(node.keywords):
            if word.arg is not None and word.arg not in HARMLESS:
                yield node, _with(node, keywords=[*node.keywords[:i], *node.keywords[i + 1 :]]), "an argument left out"


def _statement(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST | str, str]]:
    if isinstance(node, ast.If) and not isinstance(node.test, ast.Compare | ast.BoolOp | ast.UnaryOp):
        yield node.test, f"not ({ast.unparse(node.test)})", "condition turned round"
    if isinstance(node, ast.If):
        yield node.test, "False", "a check that never fires"
    stored = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute | ast.Subscript)
    called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    if stored or called or isinstance(node, ast.AugAssign):
        yield node, "pass", "statement left out"
