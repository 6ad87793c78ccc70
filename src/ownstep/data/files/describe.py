"""What is in a file, column by column, before anything is decided about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.data.dataset import Dataset
from ownstep.data.files.columns import is_number
from ownstep.data.files.dates import are_dates, are_day_numbers
from ownstep.data.files.frames import Table, is_gap, read_table
from ownstep.data.files.read import Reading, read_place
from ownstep.data.files.stream import Place, recognise
from ownstep.support.errors import InvalidInput

MOST_SHOWN = 8
"""Levels of a category that are listed."""
FEWEST = 5
"""Rows that a level or label needs to be listed: a rarer one may point at a person."""

KINDS = {"0/1": "numbers", "number": "numbers", "words and numbers": "words"}
"""Types of columns that do not make a difference between files."""


def describe(name: str, how: Reading | None = None, progress: bool | None = None) -> dict[str, Any]:
    """Rows, columns, types, missing values, levels and ranges of a file or of every file in a folder."""
    how = how or Reading()
    path = Path(name)
    told: dict[str, Any]
    if name != "-" and not (name and path.exists()):
        raise InvalidInput(f"there is no file {name!r}")
    if name != "-" and path.is_dir():
        files = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
        if not files:
            raise InvalidInput(f"the folder {name!r} holds no file")
        told = {"folder": name, "files": [describe(str(p), how, progress) for p in files]}
        return told | {"differences": _differences(told["files"])}
    place = Place.of(name)
    kind = recognise(place, how.format)
    told = {"file": name, "format": kind, "bytes": place.size}
    if kind not in ("csv", "tsv", "parquet"):
        return told | describe_dataset(read_place(place, Reading(format=kind), progress))
    table = read_table(place, kind, progress=progress)
    told |= {"rows": len(table), "columns": [_column(table, column) for column in table.columns]}
    told["rows_with_missing_values"] = int(_incomplete(table).sum())
    return told


def describe_dataset(data: Dataset) -> dict[str, Any]:
    """Shape, label counts and sites of a dataset that is loaded."""
    rows = data.rows
    classes, counts = np.unique(data.labels, return_counts=True)
    told: dict[str, Any] = {"rows": len(data.labels)}
    if hasattr(rows, "shape"):
        told["shape"] = [int(n) for n in rows.shape]
    if hasattr(rows, "nnz"):
        told["nonzeros"] = int(rows.nnz)
    if data.features:
        told["features"] = list(data.features)
    if len(classes) <= 100:
        told["labels"] = {str(c): int(n) for c, n in zip(classes, counts, strict=True) if n >= FEWEST}
        told["rarer_labels"] = len(classes) - len(told["labels"])
    else:
        told["labels"] = {"different": len(classes)}
        if classes.dtype.kind in "iuf":
            told["labels"] |= {"min": str(classes[0]), "max": str(classes[-1])}
    if data.sites is not None:
        names, sizes = np.unique(data.sites, return_counts=True)
        told["sites"] = {str(n): int(k) for n, k in zip(names, sizes, strict=True)}
    if data.note:
        told["note"] = data.note
    return told


def _column(table: Table, name: str) -> dict[str, Any]:
    if name in table.words:
        return _category(name, table.words[name])
    values = table.numbers[:, table.numeric.index(name)]
    known = values[~np.isnan(values)]
    told: dict[str, Any] = {"name": name, "type": "number", "missing": int(len(values) - len(known))}
    if len(known):
        different = np.unique(known)
        told |= {
            "different": len(different),
            "min": float(known.min()),
            "mean": float(known.mean()),
            "max": float(known.max()),
        }
        if len(different) == 2 and set(different) == {0.0, 1.0}:
            told["type"] = "0/1"
        if are_day_numbers(known):
            told["type"] = "dates"
    return told


def _category(name: str, values: NDArray[Any]) -> dict[str, Any]:
    gaps = is_gap(values)
    levels, counts = np.unique(values[~gaps].astype(str), return_counts=True)
    top = [i for i in np.argsort(-counts, kind="stable")[:MOST_SHOWN] if counts[i] >= FEWEST]
    kind = "words" if not any(map(is_number, levels)) else "words and numbers"
    if len(levels) and are_dates(levels):
        kind, top = "dates", []
    return {
        "name": name, "type": kind, "missing": int(gaps.sum()), "different": len(levels),
        "levels": {str(levels[i]): int(counts[i]) for i in top}, "rarer": int((counts < FEWEST).sum()),
    }  # fmt: skip


def _differences(files: list[dict[str, Any]]) -> list[str]:
    """One sentence for every file whose columns are not those of the first."""
    tables = [file for file in files if "columns" in file]
    kinds = [{c["name"]: KINDS.get(c["type"], c["type"]) for c in file["columns"]} for file in tables]
    out = []
    for file, mine in zip(tables[1:], kinds[1:], strict=True):
        first, said = kinds[0], []
        for verb, names, more in (
            ("lacks", first.keys() - mine.keys(), ""),
            ("has", mine.keys() - first.keys(), " more"),
        ):
            said += [f"{verb} {', '.join(map(repr, sorted(names)))}{more}"] * bool(names)
        said += [f"has {mine[c]} in {c!r}, not {first[c]}" for c in first if mine.get(c, first[c]) != first[c]]
        if said:
            out.append(f"{Path(file['file']).name} differs from {Path(tables[0]['file']).name}: it {', '.join(said)}")
    return out


def _incomplete(table: Table) -> NDArray[np.bool_]:
    gaps = [np.isnan(table.numbers).any(axis=1), *(is_gap(values) for values in table.words.values())]
    out: NDArray[np.bool_] = np.logical_or.reduce(gaps)
    return out
