"""Datasets by name, fetched from their authors and verified, and files of your own.

``files/`` reads files of your own. May import from support alone.

Examples
--------
>>> from ownstep.data import load
>>> load("digits").rows.shape
(1797, 64)
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ownstep.data.dataset import Dataset
from ownstep.data.files import Reading, read, wording
from ownstep.data.named import LOADERS
from ownstep.data.sources import SOURCES
from ownstep.support.errors import InvalidInput, unknown_name


def names() -> list[str]:
    """Every dataset that can be loaded by name."""
    return list(LOADERS)


def load(
    name: str | os.PathLike[str],
    progress: bool | None = None,
    *,
    label: str | None = None,
    site: str | None = None,
    missing: str | None = None,
    format: str | None = None,
    categories: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> Dataset:
    """Load a dataset by name, fetching it when it is not here, or read a file of your own.

    A named dataset is looked for in the folder named by ``OWNSTEP_DATA`` first, then in the cache, then at its authors'
    addresses. Anything else is a path to a LIBSVM, CSV, TSV, Parquet or npz file, plain or packed by gzip, bzip2 or xz.
    A folder holds one such file per device, and ``-`` is standard input. A name wins over a file of the same name, and
    ``./name`` is the file.

    Parameters
    ----------
    label : the column to be predicted; ``label``, ``target`` or ``y`` where there is one of that name.
    site : the column that says who holds a row.
    missing : ``"drop"`` leaves out rows with missing values, ``"mean"`` fills in the mean of their column; by default
        missing values are an error.
    format : of the file, where neither its name nor its first line tells.
    categories : columns of numbers that stand for names. Columns of words are categories anyway.
    ignore : columns to leave out.

    Examples
    --------
    >>> load("digits").table()[1].shape
    (1797,)
    """
    several = [(names,) if isinstance(names, str) else tuple(names) for names in (categories, ignore)]
    how = Reading(label, site, missing, format, *several)
    if not isinstance(name, str | os.PathLike):
        raise InvalidInput(f"load takes the name of a dataset or the path of a file, got {name!r}")
    text = os.fspath(name)
    if text in LOADERS:
        for option, value in (how.columns_only | ({"format": format} if format else {})).items():
            raise InvalidInput(
                f"{wording.option(option, value)} is for files; {text} is a dataset by name, ./{text} would be the file"
            )
        return LOADERS[text](progress)
    if text == "-" or Path(text).exists() or os.sep in text or Path(text).suffix:
        return read(text, how, progress)
    raise unknown_name("dataset", text, LOADERS, "; or give the path of a file")


__all__ = ["SOURCES", "Dataset", "Reading", "load", "names", "read"]
