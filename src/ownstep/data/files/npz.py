"""NumPy archives: ``rows`` (or a sparse matrix's parts) and ``labels``, with ``sites`` and ``features`` if known."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.data.files.stream import Place, opened
from ownstep.support.errors import InvalidInput
from ownstep.support.files import what_ails

ROWS, LABELS = ("rows", "X", "x"), ("labels", "y", "targets")
SPARSE = ("data", "indices", "indptr", "shape")


def read_npz(place: Place) -> tuple[Any, NDArray[Any], NDArray[Any] | None, tuple[str, ...]]:
    """(rows, labels, sites, names of the columns); nothing in the file is ever unpickled."""
    try:
        with opened(place, False) as file, np.load(io.BytesIO(file.read()), allow_pickle=False) as archive:
            found = {key: archive[key] for key in archive.files}
    except InvalidInput:
        raise
    except (ValueError, zipfile.BadZipFile, EOFError, AttributeError, NotImplementedError, RuntimeError) as error:
        raise InvalidInput(f"{place.name!r} cannot be read: {what_ails(error)}") from error
    labels = _one(place, found, LABELS)
    if all(part in found for part in SPARSE):
        rows: Any = _sparse(place, found)
    else:
        rows = _one(place, found, ROWS)
    if rows.ndim < 2 or len(labels) != rows.shape[0] or labels.ndim != 1:
        raise InvalidInput(
            f"{place.name!r}: rows of shape {rows.shape} need one label each, got labels of shape {labels.shape}"
        )
    if rows.dtype.kind not in "iufb":
        raise InvalidInput(f"{place.name!r}: rows must be numbers, got dtype {rows.dtype}")
    if rows.ndim == 2 and rows.dtype.kind != "f":  # only pictures, which have more axes, are bytes of brightness
        rows = rows.astype(float)
    if not len(labels):
        raise InvalidInput(f"{place.name!r} has no row of data")
    sites = found.get("sites")
    if sites is not None and sites.shape != labels.shape:
        raise InvalidInput(f"{place.name!r}: {len(labels)} samples need {len(labels)} sites, got shape {sites.shape}")
    names = _names(place, found, rows.shape[1:])
    return rows, labels, None if sites is None else sites.astype(str), names


def _sparse(place: Place, found: dict[str, NDArray[Any]]) -> Any:
    """A matrix from its parts, which nobody has checked."""
    import scipy.sparse as sp

    try:
        rows = sp.csr_array(tuple(found[part] for part in SPARSE[:3]), shape=tuple(found["shape"]))
        rows.check_format(full_check=True)
    except (ValueError, TypeError, IndexError) as error:
        raise InvalidInput(f"{place.name!r}: {', '.join(SPARSE)} are no sparse matrix: {error}") from error
    return rows


def _names(place: Place, found: dict[str, NDArray[Any]], columns: tuple[int, ...]) -> tuple[str, ...]:
    names = found.get("features")
    if names is None:
        return ()
    if names.shape != columns or len(set(names.tolist())) < len(names):
        raise InvalidInput(
            f"{place.name!r}: features must be {columns[0]} different names, one per column, got "
            + (f"{len(set(names.tolist()))} different ones" if names.shape == columns else f"shape {names.shape}")
        )
    return tuple(str(name) for name in names)


def _one(place: Place, found: dict[str, Any], names: tuple[str, ...]) -> NDArray[Any]:
    for name in names:
        if name in found:
            return np.asarray(found[name])
    raise InvalidInput(
        f"{place.name!r} has no array {names[0]!r} (or {' or '.join(names[1:])}); it has {', '.join(found)}"
    )
