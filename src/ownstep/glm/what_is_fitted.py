"""What ``fit`` is given, as it is used: a table with names, labels, sites; or one line that says what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ownstep import partition as partitions
from ownstep.data.files.read import numbered
from ownstep.partition import Partition
from ownstep.support.errors import InvalidInput


def table_of(rows: Any, features: Sequence[str] | None) -> tuple[Any, tuple[str, ...]]:
    """(the rows as a dense or sparse matrix of real numbers, one name per column); a data frame names its own."""
    names = () if features is None else tuple(str(name) for name in features)
    if hasattr(rows, "columns") and hasattr(rows, "to_numpy"):
        names = names or tuple(str(name) for name in rows.columns)
        for name, kind in zip(rows.columns, rows.dtypes, strict=True):
            if kind.kind not in "iufb":
                raise InvalidInput(
                    f"column {str(name)!r} must hold numbers, got {kind}; write the frame to a file and take "
                    "ownstep.load, which turns categories into 0/1 columns"
                )
        rows = rows.to_numpy(float)
    if np.ma.is_masked(rows):
        raise InvalidInput("rows have masked entries: complete them, or leave out their rows")
    table = rows if sp.issparse(rows) else np.asarray(rows)
    if table.ndim != 2 or 0 in table.shape:
        raise InvalidInput(f"rows must be a non-empty table of samples by features, got shape {table.shape}")
    if table.dtype.kind not in "iufb":
        raise InvalidInput(f"rows must be real numbers, got dtype {table.dtype}")
    names = names or numbered(table.shape[1])
    if len(names) != table.shape[1]:
        raise InvalidInput(f"features must name the {table.shape[1]} columns of the rows, got {len(names)} names")
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise InvalidInput(f"features must be different names, got {twice!r} twice")
    return table, names


def labels_of(labels: Any, rows: int) -> NDArray[Any]:
    """One label per row, none of them missing."""
    y = partitions.as_labels(labels)
    if y.shape != (rows,):
        raise InvalidInput(f"{rows} rows need {rows} labels, got shape {y.shape}")
    missing = partitions.gaps(y)
    if missing.any():
        raise InvalidInput(
            f"row {int(np.argmax(missing)) + 1} has no label, got {y[int(np.argmax(missing))]}; leave it out"
        )
    return y


def split_of(sites: Any, rows: int) -> Partition:
    """Who holds each row; all in one place for None."""
    if sites is None:
        return Partition(np.zeros(rows, np.intp), "one place", ("all rows",))
    split = partitions.given(sites)
    if len(split.device_of) != rows:
        raise InvalidInput(f"{rows} rows need {rows} sites, got {len(split.device_of)}")
    return split
