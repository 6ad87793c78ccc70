"""How results reach the terminal: tables at their full width, one json document, one line beside them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Column, Table

from ownstep.engines import Comparison
from ownstep.engines.cluster import torchrun
from ownstep.history import finite
from ownstep.plan import Plan
from ownstep.problems import LinearModel
from ownstep.support.errors import OwnstepError
from ownstep.support.files import write_atomically

MOST_COLUMNS = 1000
"""Characters in a line that no table here needs."""
UNEVEN = 1e3
"""Ratio of the columns' sizes from which standardising them is advised."""


def tell(text: str) -> None:
    """One line to whoever reads along, away from the output; by one process alone."""
    if torchrun.first():
        typer.echo(text, err=True)


def uneven_scales(problem: LinearModel) -> str:
    """Advice where the columns' sizes differ so much that few rounds get nowhere; empty where they do not."""
    A = problem.table.A
    squares = A.multiply(A).sum(axis=0) if hasattr(A, "multiply") else np.einsum("ij,ij->j", A, A)
    sizes = np.sqrt(np.asarray(squares, float).ravel())
    sizes = sizes[sizes > 0]
    ratio = sizes.max() / sizes.min() if len(sizes) else 1.0
    return f"the columns' sizes differ by a factor of {ratio:.0e}: try --standardise" if ratio > UNEVEN else ""


def emit(data: Any) -> None:
    """Print plain data as json."""
    typer.echo(json.dumps(_finite(data), indent=1, allow_nan=False))


def write_report(report: Mapping[str, Any], out: Path) -> None:
    """Write a report as json, all of it or nothing."""
    try:
        with write_atomically(out) as file:
            file.write((json.dumps(report, indent=1) + "\n").encode())
    except OSError as error:
        raise OwnstepError(f"cannot write to {str(out)!r}: {error}") from error


def _finite(data: Any) -> Any:
    """Plain data whose infinities and NaNs are null, for which json has no other word."""
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return finite(data)


def console() -> Console:
    """Where tables go: the terminal, or plain text when there is none."""
    return Console(soft_wrap=False, highlight=False)


def show_table(table: Table, out: Console) -> None:
    """A table at its full width, so that no number loses a digit.

    On a terminal that is too narrow for it the columns that do not fit come below, beside the first column again.
    """
    before = out.width
    if out.is_terminal and _width(table, out) > before:
        table.pad_edge = False
    try:
        for part in _parts(table, out) if out.is_terminal else [table]:
            out.width = max(before, _width(part, out))
            out.print(part)
    finally:
        out.width = before


def _width(table: Table, out: Console) -> int:
    """Columns of a terminal that a table takes."""
    return table.__rich_measure__(out, out.options.update(width=MOST_COLUMNS, max_width=MOST_COLUMNS)).maximum


def _parts(table: Table, out: Console) -> list[Table]:
    """The table, or as many columns of it at a time as the terminal is wide."""

    def part(columns: Sequence[Column]) -> Table:
        made = Table(box=None, header_style=table.header_style, pad_edge=table.pad_edge)
        for column in columns:
            made.add_column(column.header, justify=column.justify, no_wrap=column.no_wrap)
        for row in zip(*(column.cells for column in columns), strict=True):
            made.add_row(*row)
        return made

    first, *rest = table.columns
    parts: list[list[Column]] = [[first]]
    for column in rest:
        if len(parts[-1]) > 1 and _width(part([*parts[-1], column]), out) > out.width:
            parts.append([first])
        parts[-1].append(column)
    return [table] if len(parts) == 1 else [part(columns) for columns in parts]


def show_plan(plan: Plan, samples: Sequence[int | None], out: Console) -> None:
    """Devices, constants, gain and verdict as a table; None where the number of samples is not known."""
    devices = plan.devices
    kind = plan.smoothness.kind if plan.smoothness else ""
    table = Table("device", "samples", "weight", f"L ({kind})", "step 1/L", box=None, header_style="bold")
    shown = range(len(devices)) if len(devices) <= 12 else [*range(6), *range(len(devices) - 6, len(devices))]
    for n, i in enumerate(shown):
        if n and i != shown[n - 1] + 1:
            table.add_row("...")
        table.add_row(
            devices.names[i], "" if samples[i] is None else f"{samples[i]:,}", f"{devices.weights[i]:.4f}",
            f"{devices.L[i]:.5g}", f"{1 / devices.L[i]:.5g}",
        )  # fmt: skip
    show_table(table, out)
    true = "not measured" if devices.L_pooled is None else f"{devices.L_pooled:.5g}"
    out.print(f"L-bar {devices.L_bar:.5g}   true L {true}   mean local step {devices.mean_step:.5g}")
    out.print(f"predicted gain {devices.gain:.3f}")
    out.print(plan.verdict)


def show_comparison(comparison: Comparison, out: Console, costs: bool = False) -> None:
    """Rounds to each tolerance, one row per method, with ``costs`` also what a round takes; the notes below."""
    levels = [f"{t:g}" for t in comparison.tolerances]
    heads = [
        *[f"to {level}" for level in levels],
        f"s to {levels[-1]}",
        *(["bytes per round", "ms per round"] if costs else []),
    ]
    table = Table("method", "step", *heads, box=None, header_style="bold")
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    below = []
    for row in comparison.rows():
        notes = []
        if row["switched_at"] is not None:
            notes.append(f"switched after {row['switched_at']} rounds")
        if row["search_rounds"]:
            notes.append(f"found by a search of {row['search_rounds']:,} rounds")
        if "diverged" in row["stopped"]:
            notes.append("diverged")
        if row["stopped"].startswith(("out of budget", "no progress")):
            notes.append(row["stopped"])
        counts = ["never" if row["rounds"][level] is None else f"{row['rounds'][level]:,}" for level in levels]
        step = "" if row["step"] is None else f"{row['step']:.4g}"
        took = row["seconds"][levels[-1]]
        ending = ["" if took is None else f"{took:.3g}"]
        if costs:
            price = comparison.costs()[row["method"]]
            ending += [f"{price['bytes_a_round']:,.0f}", _milliseconds(price["seconds_a_round"])]
        below += [f"{row['method']}: {'; '.join(notes)}"] if notes else []
        table.add_row(row["method"], step, *counts, *ending)
    show_table(table, out)
    out.print("rounds until (f - f*) / (f(x0) - f*) is at most the value above, and seconds they took", style="dim")
    for line in below:
        out.print(line, style="dim")
    if comparison.reruns:
        show_verdicts(comparison, out)


def show_verdicts(comparison: Comparison, out: Console) -> None:
    """Every method's median rounds over the first one's, and what that is worth given the noise floor."""
    ours, levels = next(iter(comparison.histories)), [f"{t:g}" for t in comparison.tolerances]
    table = Table("method", *[f"to {level}" for level in levels], box=None, header_style="bold")
    found = comparison.verdicts(ours)
    for name, cells in found.items():
        table.add_row(name, *[_verdict(cells[t]) for t in levels])
    out.print()
    show_table(table, out)
    out.print(
        f"median rounds over those of {ours}; faster: {ours} is. In brackets the noise floor, the largest ratio "
        "between reruns of either with other seeds: what is below it is no difference.",
        style="dim",
    )


def _verdict(cell: Mapping[str, Any]) -> str:
    if cell["ratio"] is None:
        return str(cell["verdict"])
    return f"{cell['ratio']:.2f} ({cell['floor']:.2f}) {cell['verdict']}"


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}" if seconds < 1 else f"{1e3 * seconds:,.0f}"
