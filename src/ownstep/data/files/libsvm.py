"""LIBSVM text: ``label index:value ...``, one sample per line."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.data.files.columns import whole_if_whole
from ownstep.data.files.stream import Place, opened
from ownstep.support.errors import InvalidInput


def read_libsvm(place: Place, progress: bool | None = None, features: int | None = None) -> tuple[Any, NDArray[Any]]:
    """(sparse rows, labels) by scikit-learn's reader; labels that are whole numbers become integers."""
    from sklearn.datasets import load_svmlight_file

    try:
        with opened(place, progress) as file, warnings.catch_warnings():
            warnings.simplefilter("error")
            rows, labels = load_svmlight_file(file, n_features=features)
    except InvalidInput:
        raise
    except (ValueError, TypeError, IndexError, OverflowError, UnicodeDecodeError, Warning) as error:
        raise _first_fault(place) or InvalidInput(f"{place.name!r} is no LIBSVM file: {error}") from error
    if not rows.shape[0]:
        raise InvalidInput(f"{place.name!r} has no line with a sample")
    if not (np.isfinite(rows.data).all() and np.isfinite(labels).all()):
        raise _first_fault(place) or InvalidInput(f"{place.name!r} holds a number that is not finite")
    return rows, whole_if_whole(labels)


def _first_fault(place: Place) -> InvalidInput | None:
    """Which line is wrong, and how."""
    with opened(place, False) as file:
        for number, raw in enumerate(file, 1):
            where = f"{place.name!r}, line {number}"
            try:
                words = raw.split(b"#")[0].decode().split()
            except UnicodeDecodeError as error:
                return InvalidInput(f"{where}: byte 0x{raw[error.start]:02x} is not UTF-8; is this a LIBSVM file?")
            if not words:
                continue
            if ":" in words[0]:
                return InvalidInput(f"{where}: the label is missing, the line starts with {words[0]!r}")
            if _number(words[0]) is None:
                return InvalidInput(f"{where}: the label must be a finite number, got {words[0]!r}")
            last = -1
            for word in words[1:]:
                index, colon, value = word.partition(":")
                if index == "qid":
                    continue
                if not colon or not index.isdigit() or _number(value) is None:
                    return InvalidInput(f"{where}: {word!r} must be index:value with a finite value")
                if int(index) <= last:
                    return InvalidInput(f"{where}: indices must ascend, {index} comes after {last}")
                last = int(index)
    return None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
