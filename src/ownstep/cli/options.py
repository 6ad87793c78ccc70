"""Options that several commands take, each said once, and the objects they stand for.

A group is a dataclass whose fields are options. A command takes it as one parameter, and :func:`spread` turns that into
the options of its fields: typer wants every option as a parameter of its own.
"""

from __future__ import annotations

import csv
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import numpy as np
import typer

from ownstep import partition as partitions
from ownstep.cli.terminal import tell
from ownstep.data import Dataset, Reading, load, names
from ownstep.glm.families import choose
from ownstep.partition import Partition
from ownstep.problems import LeastSquares, LinearModel, logistic_regression
from ownstep.support.checks import whole_number
from ownstep.support.errors import InvalidInput
from ownstep.support.logs import RoundLog

Json = Annotated[bool, typer.Option("--json", help="Print one json document instead of tables.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]
DATA_HELP = (
    "Dataset by name (ownstep data list), or a file: LIBSVM, CSV, TSV, Parquet or npz, a folder of them with one per "
    "device, or - for standard input."
)
Data = Annotated[str, typer.Argument(help=DATA_HELP)]
Format = Annotated[str | None, typer.Option(help="For files: libsvm, csv, tsv, parquet or npz; recognised by default.")]
Measure = Annotated[str, typer.Option(help="How smoothness is measured: auto, exact or trace.")]


def spread(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with the options of its groups in place of the groups."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        kind = parameter.annotation
        if not is_dataclass(kind):
            parameters.append(parameter)
            continue
        groups[parameter.name], hints = kind, get_type_hints(kind, include_extras=True)
        parameters += [
            parameter.replace(name=f.name, default=f.default, annotation=hints[f.name]) for f in fields(kind)
        ]
    if not groups:
        return command

    @wraps(command)
    def spread_out(**given: Any) -> Any:
        made = {name: kind(**{f.name: given.pop(f.name) for f in fields(kind)}) for name, kind in groups.items()}
        return command(**given, **made)

    spread_out.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    spread_out.__annotations__ = {p.name: p.annotation for p in parameters}
    return spread_out


@dataclass(frozen=True)
class FileOptions:
    """How a file is read."""

    label: Annotated[str | None, typer.Option(help="For files: the column to be predicted.")] = None
    site: Annotated[str | None, typer.Option(help="For files: the column that says who holds a row.")] = None
    missing: Annotated[
        str | None, typer.Option(help="For files: drop rows with missing values, or fill in the column's mean.")
    ] = None
    categories: Annotated[
        str | None, typer.Option(help="For files: columns of numbers that stand for names, separated by commas.")
    ] = None
    ignore: Annotated[str | None, typer.Option(help="For files: columns to leave out, separated by commas.")] = None
    format: Format = None

    def load(self, data: str) -> Dataset:
        """The dataset of this name, or the file read like this."""
        how = Reading(
            self.label, self.site, self._rule(data), self.format, listed(self.categories), listed(self.ignore)
        )
        return load(data, **how.options())

    def _rule(self, data: str) -> str | None:
        """What is done about missing values."""
        return self.missing


@dataclass(frozen=True)
class SplitOptions:
    """Who holds which row."""

    partition: Annotated[
        str | None,
        typer.Option(
            help="by_norm, by_eigenvalue, by_label, dirichlet, shards, iid, or site: as the data says, the default "
            "where it does."
        ),
    ] = None
    devices: Annotated[int | None, typer.Option(help="How many devices; by_label: one per class by default.")] = None
    alpha: Annotated[float, typer.Option(help="Concentration of --partition dirichlet.")] = 0.1
    per_device: Annotated[int, typer.Option(help="Shards per device of --partition shards.")] = 2
    seed: Seed = 0

    def split(self, data: Dataset, rows: Any, labels: Any, usual: str = "by_norm") -> Partition:
        """The partition asked for; by default the sites of the data, where it has any, else ``usual``."""
        rule, devices = self.partition, self.devices
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
        every: dict[str, dict[str, Any]] = {
            "dirichlet": {"alpha": self.alpha}, "shards": {"per_device": self.per_device}
        }  # fmt: skip
        return partitions.make(rule, rows, labels, devices, self.seed, **every.get(rule, {}))


@dataclass(frozen=True)
class TableOptions(SplitOptions, FileOptions):
    """A linear model of a table that is split over devices."""

    family: Annotated[
        str,
        typer.Option(
            help="What the label is: logistic (two classes), softmax (classes) or linear (a quantity, by least "
            "squares); auto goes by its values."
        ),
    ] = "auto"
    standardise: Annotated[
        bool, typer.Option("--standardise", help="Scale every column to mean 0 and variance 1 over all rows first.")
    ] = False
    rows: Annotated[int | None, typer.Option(help="Use only the first so many samples.")] = None

    def build(self, name: str, mu: float) -> tuple[LinearModel, Partition]:
        """The problem of a dataset by name or of a file, split as asked; which loss was chosen for a file is said."""
        data = self.load(name)
        table, labels = data.table()
        if self.rows is not None:
            table, labels = table[: whole_number("--rows", self.rows, 1)], labels[: self.rows]
        classes = _chosen_classes(data, labels, self.family, said=name not in names())
        if not classes and self.partition in ("by_label", "dirichlet"):
            raise InvalidInput(
                f"--partition {self.partition} needs classes, and the label {data.label!r} is a quantity: use shards"
            )
        if self.standardise:
            table, labels = _standardised(table, labels, classes)
        made = self.split(data, table, labels)
        return (logistic_regression if classes else LeastSquares)(table, labels, made, mu=mu), made


@dataclass(frozen=True)
class LogOptions:
    """Where an operator's tools hear of every round."""

    log_json: Annotated[
        Path | None, typer.Option(help="Append one line of json per round to this file, for an operator's tools.")
    ] = None
    metrics: Annotated[
        Path | None,
        typer.Option(help="Keep this file in Prometheus' format up to date: round, seconds, bytes, absent."),
    ] = None

    def opened(self) -> RoundLog | None:
        """Where rounds are told as they end; nobody listens by default."""
        return None if self.log_json is None and self.metrics is None else RoundLog(self.log_json, self.metrics)


def listed(text: str | None) -> tuple[str, ...]:
    """The parts of a list separated by commas; in double quotes a part may have commas itself."""
    parts = [] if not text else next(csv.reader([text], skipinitialspace=True), [])
    return tuple(part.strip() for part in parts if part.strip())


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
