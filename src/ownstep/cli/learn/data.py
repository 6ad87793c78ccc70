"""``ownstep data``: what there is, get it, where it is."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from ownstep.cli.options import Data, Format, Json, Seed
from ownstep.cli.plain import App
from ownstep.cli.terminal import console, emit, show_table
from ownstep.data import Reading, fetch, load, names
from ownstep.data.files.describe import FEWEST, describe, describe_dataset
from ownstep.data.sources import SOURCES
from ownstep.support.errors import unknown_name

BUNDLED = {
    "digits": "1,797 handwritten digits, 8x8, ten classes (comes with scikit-learn)",
    "breast_cancer": "569 tumours, 30 measurements, two classes (comes with scikit-learn)",
}
WIDEST_LIST, LONGEST_LEVEL = 50, 24
"""Characters of a list of levels, and of a level, that a table shows."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = App(help="Datasets: list them, fetch them, say where they are.", no_args_is_help=True)
    group.command("list")(list_)
    group.command("fetch")(fetch_)
    group.command("describe")(describe_)
    group.command()(where)
    app.add_typer(group, name="data")


def _present(name: str) -> bool:
    return name in BUNDLED or all(fetch.locate(remote) for remote in SOURCES[name].files)


def list_(as_json: Json = False, seed: Seed = 0) -> None:
    """Every dataset, and whether it is here.

    Example: ownstep data list
    """
    about = {name: BUNDLED.get(name) or SOURCES[name].about for name in names()}
    if as_json:
        emit([{"name": n, "about": a, "here": _present(n)} for n, a in about.items()])
        return
    table = Table("name", "here", "what", box=None, header_style="bold")
    for name, text in about.items():
        table.add_row(name, "yes" if _present(name) else "no", text)
    console().print(table)


def fetch_(
    name: Annotated[str, typer.Argument(help="Dataset, or all.")],
    force: Annotated[bool, typer.Option(help="Fetch again what is already in the cache.")] = False,
    as_json: Json = False,
    seed: Seed = 0,
) -> None:
    """Download a dataset from its authors, verify it and keep it in the cache.

    Example: ownstep data fetch w8a
    """
    wanted = names() if name == "all" else [name]
    if name != "all" and name not in names():
        raise unknown_name("dataset", name, [*names(), "all"])
    paths = {n: [str(p) for p in fetch.fetch(SOURCES[n], force)] for n in wanted if n in SOURCES}
    if as_json:
        emit(paths)
        return
    for n in wanted:
        typer.echo(f"{n}: " + ("comes with scikit-learn" if n in BUNDLED else f"{len(paths[n])} files, verified"))


def describe_(
    data: Data,
    format: Format = None,
    as_json: Json = False,
    seed: Seed = 0,
) -> None:
    """What is in a file: rows, columns, their types, missing values, levels and ranges; or in a dataset by name.

    Example: ownstep data describe patients.csv
    """
    told = (
        {"dataset": data} | describe_dataset(load(data)) if data in names() else describe(data, Reading(format=format))
    )
    if as_json:
        emit(told)
        return
    for part in told.get("files", [told]):
        _show(part)
    for difference in told.get("differences", []):
        typer.echo(difference)


def _show(told: dict[str, Any]) -> None:
    out = console()
    out.print(f"{told.get('file', told.get('dataset'))}: {told['rows']:,} rows" + _about(told))
    if "columns" in told:
        table = Table("column", "type", "missing", "different", "values", box=None, header_style="bold")
        for column in told["columns"]:
            span = f"{column['min']:g} to {column['max']:g}, mean {column['mean']:g}" if "mean" in column else ""
            if column["type"] == "dates" and "min" in column:
                span = f"{column['min']:.0f} to {column['max']:.0f}"
            table.add_row(
                column["name"], column["type"], f"{column['missing']:,}", f"{column.get('different', 0):,}",
                span or _levels(column),
            )  # fmt: skip
        show_table(table, out)
    for key in ("labels", "sites"):
        if key in told:
            shown = [f"{name} ({count})" for name, count in told[key].items()]
            if key == "labels" and told.get("rarer_labels"):
                shown.append(f"{told['rarer_labels']} of fewer than {FEWEST} rows")
            out.print(f"{key}: {', '.join(shown)}")
    if told.get("note"):
        out.print(f"note: {told['note']}")


def _levels(column: dict[str, Any]) -> str:
    """The commonest levels of a category with their rows, as many as fit, and how many there are besides."""
    shown: list[str] = []
    for level, rows in column.get("levels", {}).items():
        text = f"{level if len(level) <= LONGEST_LEVEL else level[: LONGEST_LEVEL - 3] + '...'} ({rows:,})"
        if sum(map(len, shown)) + 2 * len(shown) + len(text) > WIDEST_LIST:
            break
        shown.append(text)
    more = column.get("different", 0) - len(shown)
    if column["type"] == "dates" or not more:
        return ", ".join(shown)
    few = f" of fewer than {FEWEST} rows" if more == column["rarer"] else ""
    return ", ".join(shown) + (" and " if shown else "") + f"{more:,}{' more' if shown else ''}{few}"


def _about(told: dict[str, Any]) -> str:
    parts = [f", {told['format']}, {told['bytes']:,} bytes"] if "format" in told else []
    parts += [f", {told['rows_with_missing_values']:,} with missing values"] if "columns" in told else []
    parts += [f", shape {tuple(told['shape'])}"] if "shape" in told else []
    parts += [f", {told['nonzeros']:,} nonzeros"] if "nonzeros" in told else []
    return "".join(parts)


def where(as_json: Json = False, seed: Seed = 0) -> None:
    """Folders that are looked in, in order.

    Example: OWNSTEP_DATA=/data ownstep data where
    """
    folders = [str(f) for f in fetch.folders()]
    if as_json:
        emit(folders)
    else:
        typer.echo("\n".join(folders))
