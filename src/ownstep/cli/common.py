"""What several commands share: their options, and how results reach the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Column, Table

from ownstep import partition as partitions
from ownstep.data import Dataset, Reading, load, names
from ownstep.engines import Comparison
from ownstep.engines.cluster import torchrun
from ownstep.glm.families import choose
from ownstep.history import finite
from ownstep.partition import Partition
from ownstep.plan import Plan
from ownstep.problems import LeastSquares, LinearModel, logistic_regression
from ownstep.support.checks import whole_number
from ownstep.support.errors import InvalidInput, OwnstepError
from ownstep.support.files import write_atomically
from ownstep.support.logs import RoundLog

MOST_COLUMNS = 1000
"""Characters in a line that no table here needs."""
UNEVEN = 1e3
"""Ratio of the columns' sizes from which standardising them is advised."""

Json = Annotated[bool, typer.Option("--json", help="Print one json document instead of tables.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]
DATA_HELP = (
    "Dataset by name (ownstep data list), or a file: LIBSVM, CSV, TSV, Parquet or npz, a folder of them with one per "
    "device, or - for standard input."
)
Data = Annotated[str, typer.Argument(help=DATA_HELP)]
Label = Annotated[str | None, typer.Option(help="For files: the column to be predicted.")]
Site = Annotated[str | None, typer.Option(help="For files: the column that says who holds a row.")]
MissingValues = Annotated[
    str | None,
    typer.Option("--missing", help="For files: drop rows with missing values, or fill in the column's mean."),
]
Format = Annotated[str | None, typer.Option(help="For files: libsvm, csv, tsv, parquet or npz; recognised by default.")]
Categories = Annotated[
    str | None, typer.Option(help="For files: columns of numbers that stand for names, separated by commas.")
]
Ignore = Annotated[str | None, typer.Option(help="For files: columns to leave out, separated by commas.")]
FamilyName = Annotated[
    str,
    typer.Option(
        "--family",
        help="What the label is: logistic (two classes), softmax (classes) or linear (a quantity, by least squares); "
        "auto goes by its values.",
    ),
]
Standardise = Annotated[
    bool, typer.Option("--standardise", help="Scale every column to mean 0 and variance 1 over all rows first.")
]
Split = Annotated[
    str | None,
    typer.Option(
        "--partition",
        help="by_norm, by_eigenvalue, by_label, dirichlet, shards, iid, or site: as the data says, the default "
        "where it does.",
    ),
]
Count = Annotated[int | None, typer.Option("--devices", help="How many devices; by_label: one per class by default.")]
Mu = Annotated[float, typer.Option(help="Weight of the L2 term mu/2 ||x||^2.")]
Measure = Annotated[str, typer.Option(help="How smoothness is measured: auto, exact or trace.")]
PerDevice = Annotated[int, typer.Option(help="Shards per device of --partition shards.")]
Alpha = Annotated[float, typer.Option(help="Concentration of --partition dirichlet.")]
Rows = Annotated[int | None, typer.Option(help="Use only the first so many samples.")]

LogJson = Annotated[
    Path | None, typer.Option(help="Append one line of json per round to this file, for an operator's tools.")
]
Metrics = Annotated[
    Path | None,
    typer.Option(help="Keep this file in Prometheus' format up to date: round, seconds, bytes, absent."),
]


def round_log(log_json: Path | None, metrics: Path | None) -> RoundLog | None:
    """Where rounds are told as they end; nobody listens by default."""
    return None if log_json is None and metrics is None else RoundLog(log_json, metrics)


def reading(
    label: str | None = None,
    site: str | None = None,
    missing: str | None = None,
    format: str | None = None,
    categories: str | None = None,
    ignore: str | None = None,
) -> Reading:
    """How a file is to be read, from the options of the command line."""
    return Reading(label, site, missing, format, listed(categories), listed(ignore))


def listed(text: str | None) -> tuple[str, ...]:
    """The parts of a list separated by commas."""
    return () if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


def numbers(option: str, text: str, kind: type = float) -> list[Any]:
    """The numbers of a list separated by commas, or of the file that ``@file`` names: commas, spaces or lines there."""
    if text.startswith("@"):
        return _from_file(option, Path(text[1:]), kind)
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise InvalidInput(f"{option} takes {what} separated by commas, got {text!r}") from None


def _from_file(option: str, path: Path, kind: type) -> list[Any]:
    """The numbers of a file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{option} cannot read {str(path)!r}: {error}") from None
    found = []
    for at, line in enumerate(lines, start=1):
        for part in line.replace(",", " ").split():
            try:
                found.append(kind(part))
            except ValueError:
                what = "whole numbers" if kind is int else "numbers"
                raise InvalidInput(f"{option}: line {at} of {str(path)!r} holds {part!r}, {what} are read") from None
    if not found:
        raise InvalidInput(f"{option}: {str(path)!r} holds no numbers")
    return found


def split(
    data: Dataset,
    rows: Any,
    labels: Any,
    rule: str | None,
    devices: int | None,
    seed: int,
    alpha: float = 0.1,
    per_device: int = 2,
    usual: str = "by_norm",
) -> Partition:
    """The partition asked for; by default the sites of the data, where it has any, else ``usual``."""
    if rule is None:
        rule = usual if data.sites is None else "site"
    if rule == "site":
        if data.sites is None:
            raise InvalidInput(
                f"--partition site: {data.name} does not say who holds a row; name the column with --site"
            )
        held = data.sites[: len(labels)]
        if devices is not None and devices != len(set(held.tolist())):
            raise InvalidInput(f"--devices {devices}: the data has {len(set(held.tolist()))} sites; leave it out")
        return partitions.given(held)
    every: dict[str, dict[str, Any]] = {"dirichlet": {"alpha": alpha}, "shards": {"per_device": per_device}}
    return partitions.make(rule, rows, labels, devices, seed, **every.get(rule, {}))


def build(
    name: str,
    rule: str | None,
    devices: int | None,
    mu: float,
    seed: int,
    alpha: float = 0.1,
    rows: int | None = None,
    per_device: int = 2,
    how: Reading | None = None,
    family: str = "auto",
    standardise: bool = False,
) -> tuple[LinearModel, Partition]:
    """The problem of a dataset by name or of a file, split as asked; which loss was chosen for a file is said."""
    data = load(name, **(how or Reading()).options())
    table, labels = data.table()
    if rows is not None:
        table, labels = table[: whole_number("--rows", rows, 1)], labels[:rows]
    classes = _chosen_classes(data, labels, family, said=name not in names())
    if not classes and rule in ("by_label", "dirichlet"):
        raise InvalidInput(f"--partition {rule} needs classes, and the label {data.label!r} is a quantity: use shards")
    if standardise:
        table, labels = _standardised(table, labels, classes)
    made = split(data, table, labels, rule, devices, seed, alpha, per_device)
    return (logistic_regression if classes else LeastSquares)(table, labels, made, mu=mu), made


def _chosen_classes(data: Dataset, labels: Any, family: str, said: bool) -> bool:
    """Are the labels classes? Chosen as ``ownstep fit`` does; what is no matter of course is said in one line."""
    kind, classes = choose(family, labels)
    if kind.name == "poisson":
        raise InvalidInput(
            "--family poisson: its loss has no smoothness constants, which these methods need; ownstep fit takes it"
        )
    if said and family == "auto" and kind.name != "logistic":
        count = len(classes) or len(set(labels.tolist()))
        numbers = labels.dtype.kind in "iuf"
        what, chosen, other = (
            ("classes", "softmax", "--family linear takes it as a quantity" if numbers else "")
            if kind.classes
            else ("different numbers", "least squares", "--family softmax takes them as classes")
        )
        tell(f"label {data.label!r}: {count:,} {what}, so {chosen}" + (f"; {other}" if other else ""))
    return kind.classes


def _standardised(table: Any, labels: Any, classes: bool) -> tuple[Any, Any]:
    """Columns of mean 0 and variance 1, and a quantity less its mean, as there is no intercept.

    Sparse columns are scaled and not centred, which would fill them; the label is not centred then either.
    """
    from sklearn.preprocessing import StandardScaler

    sparse = hasattr(table, "tocsr")
    with np.errstate(over="ignore", invalid="ignore"):
        scaler = StandardScaler(with_mean=not sparse).fit(table)
    if not np.isfinite(scaler.var_).all():
        raise InvalidInput("--standardise: a column has values so large that their squares overflow; scale it yourself")
    centred = not sparse and not classes
    tell(
        f"columns scaled to {'variance 1' if sparse else 'mean 0 and variance 1'} over all {table.shape[0]:,} rows"
        + (f", and the label to mean 0 (it was {labels.mean():.6g})" if centred else "")
    )
    return scaler.transform(table), labels - labels.mean() if centred else labels


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
