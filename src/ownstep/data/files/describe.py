"""What is in a file, column by column, before anything is decided about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.data.dataset import Dataset
from ownstep.data.files.columns import is_number
from ownstep.data.files.frames import Table, is_gap, read_table
from ownstep.data.files.read import Reading, read
from ownstep.data.files.stream import Place, recognise
from ownstep.support.errors import InvalidInput

MOST_SHOWN = 8
"""Levels of a category that are listed."""


def describe(name: str, how: Reading | None = None, progress: bool | None = None) -> dict[str, Any]:
    """Rows, columns, types, missing values, levels and ranges of a file or of every file in a folder."""
    how = how or Reading()
    path = Path(name)
    if name != "-" and not path.exists():
        raise InvalidInput(f"there is no file {name!r}")
    if name != "-" and path.is_dir():
        files = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
        if not files:
            raise InvalidInput(f"the folder {name!r} holds no file")
        return {"folder": name, "files": [describe(str(p), how, progress) for p in files]}
    place = Place.of(name)
    kind = recognise(place, how.format)
    told: dict[str, Any] = {"file": name, "format": kind, "bytes": place.size}
    if kind not in ("csv", "tsv", "parquet"):
        return told | describe_dataset(read(name, Reading(format=kind), progress))
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
        told["labels"] = {str(c): int(n) for c, n in zip(classes, counts, strict=True)}
    else:
        told["labels"] = {"different": len(classes), "min": str(classes[0]), "max": str(classes[-1])}
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
    return told


def _category(name: str, values: NDArray[Any]) -> dict[str, Any]:
    gaps = is_gap(values)
    levels, counts = np.unique(values[~gaps].astype(str), return_counts=True)
    top = np.argsort(-counts, kind="stable")[:MOST_SHOWN]
    kind = "words" if not any(map(is_number, levels)) else "words and numbers"
    return {
        "name": name, "type": kind, "missing": int(gaps.sum()), "different": len(levels),
        "levels": {str(levels[i]): int(counts[i]) for i in top},
    }  # fmt: skip


def _incomplete(table: Table) -> NDArray[np.bool_]:
    gaps = [np.isnan(table.numbers).any(axis=1), *(is_gap(values) for values in table.words.values())]
    out: NDArray[np.bool_] = np.logical_or.reduce(gaps)
    return out
