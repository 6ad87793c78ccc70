"""Charts out of a result, by the shape of its data: an experiment nobody here knows is drawn all the same.

An experiment's module may offer ``charts(result)`` with charts of its own, as plain data (see :func:`given`). Otherwise
the result is walked, and wherever it holds one of the shapes that experiments write, a chart is made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ownstep.paper.machinery.curves import on_one_grid, spread
from ownstep.report.formatting import is_number, spell

MOST = 12
"""Charts an experiment may have on the page; what is left out is said."""
XS = ("round", "rounds", "draws", "epoch", "K", "k", "n", "x", "devices", "samples", "eps", "scale")
"""Names of columns that go on the horizontal axis."""
LABELS = {
    "loss": "training loss",
    "gap": "(f − f*) / (f(x⁰) − f*)",
    "value": "f(x)",
    "gradient_norm": "‖∇f‖",
    "test_accuracy": "test accuracy",
    "train_accuracy": "training accuracy",
    "upper": "worst case",
    "rounds": "round",
    "round": "round",
    "L": "smoothness L",
    "draws": "draws",
}
FIRST = ("gap", "loss", "ratio", "upper", "test_accuracy", "gradient_norm", "train_accuracy")
"""Measures in the order in which a reader wants them."""
SKIPPED = {"plan", "class_smoothness", "smoothness", "price", "devices", "recorded"}
"""Parts of a result that describe a run and are no curves of it."""
HIDDEN = {"batch_loss_by_epoch", "seconds", "solves", "conditions", "r0", "rstar", "lower"}


@dataclass(frozen=True)
class Line:
    """One curve, with the range of its runs where there are several."""

    name: str
    x: list[float]
    y: list[float | None]
    low: list[float | None] | None = None
    high: list[float | None] | None = None


@dataclass(frozen=True)
class View:
    """One measure of a chart; a chart with several has a button for each."""

    label: str
    lines: list[Line]
    log: bool


@dataclass(frozen=True)
class Chart:
    """A figure of the page and where its data stands in the json."""

    title: str
    pointer: str
    x: str
    views: list[View]
    x_log: bool = False
    ticks: list[str] | None = None
    kind: str = "line"
    note: str = ""
    reference: float | None = None
    """A value at which a thin line is drawn across, such as 1: no speed-up."""


def charts(module: Any, result: Any) -> tuple[list[Chart], int]:
    """An experiment's charts, and how many were left out."""
    offered = getattr(module, "charts", None)
    found = [] if offered is None else _as_far_as_possible(given(c) for c in _once(offered, result))
    if not found:  # or a result of another shape than the module writes today: draw it by its shape
        walked = _as_far_as_possible(_walk(result, (), _context(result)))
        found = [c for c in walked if any(view.lines for view in c.views)]
    return found[:MOST], max(0, len(found) - MOST)


def _once(offered: Callable[[Any], list[Any]], result: Any) -> Iterator[Any]:
    yield from offered(result)


def _as_far_as_possible(made: Iterator[Chart]) -> list[Chart]:
    """Charts until the data is no longer what it should be: a page with fewer charts beats no page."""
    found: list[Chart] = []
    try:
        for chart in made:
            found.append(chart)
    except (KeyError, TypeError, ValueError, IndexError, StopIteration, AttributeError, RuntimeError):
        pass
    return found


def given(data: Mapping[str, Any]) -> Chart:
    """A chart from plain data: title, x, views (y, log, lines of name, x, y, low, high), pointer, ticks, kind, note."""
    views = data.get("views", [data])
    return Chart(
        data["title"], data.get("pointer", "result"), data.get("x", "round"),
        [View(v.get("y", ""), [_line(**line) for line in v["lines"]], bool(v.get("log"))) for v in views],
        bool(data.get("x_log")), data.get("ticks"), data.get("kind", "line"), data.get("note", ""),
    )  # fmt: skip


def _line(name: str, x: Sequence[Any], y: Sequence[Any], low: Any = None, high: Any = None) -> Line:
    if len(x) != len(y):
        raise ValueError(f"line {name!r} has {len(x)} x and {len(y)} y values")
    at = [float(v) for v in x]
    if not np.isfinite(at).all():
        raise ValueError(f"line {name!r} has x values that are no numbers")
    order = np.argsort(at, kind="stable")

    def sorted_by_x(column: Sequence[Any] | None) -> list[float | None] | None:
        found = None if column is None else _floats(column)
        return found and [found[i] for i in order]

    return Line(name, [at[i] for i in order], sorted_by_x(y) or [], sorted_by_x(low), sorted_by_x(high))


def _floats(values: Sequence[Any]) -> list[float | None]:
    return [float(v) if is_number(v) and np.isfinite(v) else None for v in values]


def _context(result: Any) -> dict[str, Any]:
    """What a part of a result needs to know of the whole."""
    whole = result if isinstance(result, Mapping) else {}
    return {"rounds": whole.get("rounds"), "axis": whole.get("axis")}


def _walk(node: Any, path: tuple[str, ...], context: Mapping[str, Any]) -> Iterator[Chart]:
    if isinstance(node, Mapping):
        used: set[str] = set()
        for key, shape in SHAPES.items():
            made = [] if key not in node else list(shape(node, path, context))
            if made:
                used.add(key)
                yield from made
        whole = (_family(node, path) or _columns(node, path)) if not used else None
        if whole is not None:
            yield whole
            return
        for key, value in node.items():
            if key not in used and key not in SKIPPED:
                yield from _walk(value, (*path, str(key)), context)
    elif isinstance(node, list):
        if (rows := _rows(node, path)) is not None:
            yield rows
            return
        for i, value in enumerate(node):
            if isinstance(value, Mapping | list):
                yield from _walk(value, (*path, _name(value, i, context)), context)


def _name(node: Any, index: int, context: Mapping[str, Any]) -> str:
    if isinstance(node, Mapping):
        if isinstance(node.get("name"), str):
            return str(node["name"])
        if is_number(node.get("value")):
            return f"{context.get('axis') or 'value'} = {node['value']:g}"
    return str(index)


def _runs(node: Mapping[str, Any], path: tuple[str, ...], context: Mapping[str, Any]) -> Iterator[Chart]:
    """Runs of several methods: the median of every measure, its range, and the constants of the first run."""
    runs = [r for r in node["runs"] if isinstance(r, Mapping)] if isinstance(node["runs"], list) else []
    if not runs:
        return
    pointer, title = pointer_to((*path, "runs")), title_of(path)
    collected: dict[str, dict[str, list[tuple[list[Any], list[Any]]]]] = {}
    for one in runs:
        for method, record in _mapping(one.get("methods")).items():
            for measure, pair in _measures(_mapping(record)).items():
                collected.setdefault(measure, {}).setdefault(method, []).append(pair)
        for method, record in _mapping(one.get("series")).items():
            curve = _curve(record, context.get("rounds"))
            if curve is not None:
                collected.setdefault("gap", {}).setdefault(method, []).append(curve)
    tops = {m: _top(by) if m == "loss" else np.inf for m, by in collected.items()}
    views = [
        View(LABELS.get(m, words(m)), [_middle(name, pairs, m, tops[m]) for name, pairs in by.items()], m == "gap")
        for m, by in _ordered(collected).items()
    ]
    if views:
        count = len(runs)
        note = "one run" if count == 1 else f"Lines: the median of {count} runs. Shaded: their range"
        if any(v is not None and v > tops["loss"] for p in collected.get("loss", {}).values() for _, y in p for v in y):
            note += f". Losses above {tops['loss']:.3g}, as of runs that diverge, are not drawn"
        yield Chart(title, pointer, "round", views, note=note)
    first = _mapping(runs[0].get("devices"))
    if isinstance(first.get("L"), list) and isinstance(first.get("names"), list):
        names = [str(n) for n in first["names"]]
        at = list(range(len(names)))
        lines = [_line("L of the device", at, first["L"])]
        if is_number(first.get("L_bar")):
            lines.append(_line("L-bar", at, [first["L_bar"]] * len(at)))
        gain = first.get("gain")
        note = f"run {spell(runs[0].get('seed', 0))}" + (f", predicted gain {gain:.3f}" if is_number(gain) else "")
        yield Chart(
            f"{title}: constants", f"{pointer}[0].devices", "device", [View("smoothness L", lines, False)], ticks=names,
            kind="bars", note=note,
        )  # fmt: skip


def _measures(record: Mapping[str, Any]) -> dict[str, tuple[list[Any], list[Any]]]:
    """The curves of a method's record, over its ``rounds`` or over rounds of their own."""
    out: dict[str, tuple[list[Any], list[Any]]] = {}
    rounds = record.get("rounds")
    for key, value in record.items():
        if key in HIDDEN or key == "rounds":
            continue
        if isinstance(value, Mapping) and isinstance(value.get("rounds"), list) and "values" in value:
            out[key] = (value["rounds"], value["values"])
        elif isinstance(value, list) and isinstance(rounds, list) and len(value) == len(rounds):
            out[key] = (rounds, value)
    return out


def _curve(record: Any, rounds: Any) -> tuple[list[Any], list[Any]] | None:
    """Rounds and gaps, whether the rounds were written down or are evenly spaced over all of them."""
    if isinstance(record, list) and len(record) > 1:
        step = max(1, int(rounds) // 100) if is_number(rounds) else 1
        return [step * i for i in range(len(record))], record
    if isinstance(record, Mapping) and isinstance(record.get("round"), list):
        return record["round"], record.get("gap", record.get("value", []))
    return None


def _top(curves: Mapping[str, Sequence[tuple[list[Any], list[Any]]]]) -> float:
    """A little above where the highest curve starts."""
    starts = [y[0] for pairs in curves.values() for x, y in pairs if x and y and x[0] == 0 and is_number(y[0])]
    return 1.3 * max(starts, default=np.inf)


def _middle(name: str, pairs: Sequence[tuple[list[Any], list[Any]]], measure: str, top: float) -> Line:
    """The median over runs where any of them has a value, and their range; nothing, and no range, above ``top``."""
    after = np.inf if measure in ("loss", "gap") else np.nan
    at, table = on_one_grid([(x[: len(y)], _floats(y[: len(x)])) for x, y in pairs if x and y], after)
    middle, low, high = spread(table)
    shown = np.where(middle > top, np.nan, middle).tolist()
    if len(pairs) == 1:
        return _line(name, at.tolist(), shown)
    low, high = (np.where(high > top, np.nan, bound) for bound in (low, high))
    return _line(name, at.tolist(), shown, low.tolist(), high.tolist())


def _series(node: Mapping[str, Any], path: tuple[str, ...], context: Mapping[str, Any]) -> Iterator[Chart]:
    """One run of several methods: columns of rounds and measures for each."""
    views = _side_by_side(_mapping(node["series"]), log=True)
    if views:
        yield Chart(title_of(path), pointer_to((*path, "series")), "round", views, x_log=True)


def _family(node: Mapping[str, Any], path: tuple[str, ...]) -> Chart | None:
    """Two or more tables by columns over the same x belong on one chart."""
    x = next((k for k in XS if all(_rising(_mapping(v).get(k)) for v in node.values())), None)
    if len(node) < 2 or x is None:
        return None
    views = _side_by_side(node)
    return Chart(title_of(path), pointer_to(path), LABELS.get(x, words(x)), views) if views else None


def _side_by_side(records: Mapping[str, Any], log: bool | None = None) -> list[View]:
    """One view per measure, one line per record; without ``log``, the values decide whether the axis is logarithmic."""
    by: dict[str, list[Line]] = {}
    for name, record in records.items():
        for measure, (x, y) in _measures_beside(record).items():
            by.setdefault(measure, []).append(_line(str(name), x, y))
    if "gap" in by:
        by.pop("value", None)  # the same curve on another axis
    return [View(words(m), lines, _wide(lines) if log is None else log) for m, lines in _ordered(by).items()]


def _measures_beside(record: Any) -> dict[str, tuple[list[Any], list[Any]]]:
    record = _mapping(record)
    x = next((record[k] for k in XS if isinstance(record.get(k), list)), None)
    if x is None:
        return {}
    return {k: (x, v) for k, v in record.items() if isinstance(v, list) and v is not x and _numeric(v, len(x))}


def _curves(node: Mapping[str, Any], path: tuple[str, ...], context: Mapping[str, Any]) -> Iterator[Chart]:
    """Enclosed worst cases round by round, one list of bounds per method."""
    lines = []
    for name, bounds in _mapping(node["curves"]).items():
        if isinstance(bounds, list) and all(isinstance(b, Mapping) and "upper" in b for b in bounds):
            lines.append(
                _line(str(name), [b.get("rounds", i) for i, b in enumerate(bounds)], [b["upper"] for b in bounds])
            )
    if lines:
        note = "every point is enclosed between a function that attains it and a proof"
        yield Chart(
            title_of(path) or "Worst case after K rounds", pointer_to((*path, "curves")), "rounds K",
            [View("worst f(x) − f(x*)", lines, True)], kind="points", note=note,
        )  # fmt: skip


SHAPES = {"runs": _runs, "series": _series, "curves": _curves}


def _columns(node: Mapping[str, Any], path: tuple[str, ...]) -> Chart | None:
    """A table by columns: an x that rises, and lists of the same length."""
    key = next((k for k in XS if _rising(node.get(k))), None)
    if key is None:
        return None
    beside = {k: v for k, v in node.items() if k != key and _numeric(v, len(node[key]))}
    if not beside:
        return None
    lines = [_line(words(k), node[key], v) for k, v in beside.items()]
    return Chart(title_of(path), pointer_to(path), LABELS.get(key, words(key)), [View("", lines, _wide(lines))])


def _rows(node: list[Any], path: tuple[str, ...]) -> Chart | None:
    """A table by rows: the first number that rises is the x, every other number a view."""
    if len(node) < 3 or not all(isinstance(row, Mapping) and "method" not in row for row in node):
        return None
    flat = [dict(flatten(row)) for row in node]
    shared = [k for k in flat[0] if all(is_number(row.get(k)) for row in flat) and k.split(".")[-1] not in HIDDEN]
    key = next((k for k in shared if _rising([row[k] for row in flat])), None)
    if key is None:
        return None
    x = [row[key] for row in flat]
    measures = {k: [_line(words(k), x, [row[k] for row in flat])] for k in shared if k != key}
    views = [View(words(k), lines, _wide(lines)) for k, lines in _ordered(measures).items()]
    wide = x[0] > 0 and x[-1] / x[0] > 50
    return Chart(title_of(path), pointer_to(path), words(key), views[:6], wide, kind="points") if views else None


def flatten(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested records as one, with names like ``rounds.0.1``; lists are left out."""
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        elif not isinstance(value, list):
            yield f"{prefix}{key}", value


def _ordered(measures: Mapping[str, Any]) -> dict[str, Any]:
    rank = {name: i for i, name in enumerate(FIRST)}
    return dict(sorted(measures.items(), key=lambda item: rank.get(item[0].split(".")[-1], len(rank))))


def _numeric(values: Any, length: int) -> bool:
    return isinstance(values, list) and len(values) == length and all(v is None or is_number(v) for v in values)


def _rising(values: Any) -> bool:
    numbers = isinstance(values, list) and len(values) > 1 and all(is_number(v) for v in values)
    return numbers and bool((np.diff(values) > 0).all())


def _wide(lines: Sequence[Line]) -> bool:
    """Do positive values span so much that only a logarithmic axis shows them?"""
    values = [v for line in lines for v in line.y if v is not None]
    return bool(values) and min(values) > 0 and max(values) > 50 * min(values)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def words(key: str) -> str:
    """A key as people say it."""
    return LABELS.get(key, key.replace("_", " ").replace(".", " ", 1))


def title_of(path: Sequence[str]) -> str:
    """What stands at a path, in words."""
    kept = [p for p in path if p not in ("arms", "result", "rows", "runs", "experiments", "first")]
    return ", ".join(p.replace("_", " ") for p in kept)


def pointer_to(path: Sequence[str]) -> str:
    """Where a path leads in the json."""
    return "result" + "".join(f".{p}" if p.isidentifier() else f"[{p}]" if p.isdigit() else f'["{p}"]' for p in path)
