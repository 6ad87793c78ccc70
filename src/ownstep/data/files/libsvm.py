"""LIBSVM text: ``label index:value ...``, one sample per line.

Plain files are read by whole blocks of lines with NumPy. Whatever else the format allows (comments, ``qid:``, blank
lines, several spaces) and whatever is wrong goes to scikit-learn's reader, which gives the same numbers, more slowly.
"""

from __future__ import annotations

import codecs
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.data.files.columns import whole_if_whole
from ownstep.data.files.stream import CHUNK, Place, opened
from ownstep.support.errors import InvalidInput

PLAIN = b"0123456789+-.eE: \n"
"""Bytes of a plain file. Others, as in ``nan``, ``#`` and ``qid``, are for scikit-learn's reader."""
LONGEST_INDEX, LARGEST_INDEX = 9, 2**31 - 1
"""Digits that surely fit into 32 bits, and the largest index that does."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Consecutive lines: the indices are as in the file, ``counts`` says how many values each line has."""

    values: NDArray[np.float64]
    indices: NDArray[Any]
    counts: NDArray[Any]
    labels: NDArray[np.float64]


def read_libsvm(
    places: Sequence[Place], progress: bool | None = None, first: int | None = None
) -> tuple[list[Any], NDArray[Any], int]:
    """(sparse rows of every file, all labels, the index that is the first column: 0 or 1).

    Indices count from 1, unless a 0 is among them or ``first`` says 0. That is decided for all files at once: a file
    of a folder may happen to have no sample with the first feature. Labels that are whole numbers become integers.
    """
    found = [_plain(place, progress) or _any(place, progress) for place in places]
    least = [int(part.indices.min()) if len(part.indices) else 1 for part in found]
    base = min(1, *least, 1 if first is None else first)
    if first == 1 and base == 0:
        name = places[least.index(0)].name
        raise InvalidInput(f"{name!r} has the index 0, and the model's columns count from 1; renumber the file")
    width = max(1, *(int(part.indices.max()) + 1 - base for part in found if len(part.indices)), 1)
    return [_matrix(part, base, width) for part in found], whole_if_whole(_joined(found, "labels")), base


def _matrix(part: Samples, first: int, width: int) -> Any:
    import scipy.sparse as sp

    pointers = np.concatenate([[0], np.cumsum(part.counts, dtype=np.int64)])
    indices = part.indices - first if first else part.indices
    return sp.csr_array((part.values, indices, pointers), shape=(len(part.labels), width))


def _plain(place: Place, progress: bool | None) -> Samples | None:
    """All samples of a plain file, None where there is anything that is not plain."""
    blocks: list[Samples] = []
    rest = b""
    with opened(place, progress) as file:
        while more := file.read(CHUNK):
            lines = rest + more if rest or blocks else more.removeprefix(codecs.BOM_UTF8)
            cut = lines.rfind(b"\n") + 1
            rest = lines[cut:]
            if cut and not _add(blocks, lines[:cut]):
                return None
    if (rest and not _add(blocks, rest + b"\n")) or not blocks:
        return None
    made = Samples(*(_joined(blocks, name) for name in Samples.__annotations__))
    return made if np.isfinite(made.values).all() and np.isfinite(made.labels).all() else None


def _joined(blocks: Sequence[Samples], name: str) -> NDArray[Any]:
    return np.concatenate([getattr(block, name) for block in blocks])


def _add(blocks: list[Samples], lines: bytes) -> bool:
    """Read these whole lines into one more block; False where they are not plain."""
    lines = lines.replace(b"\r\n", b"\n").replace(b" \n", b"\n")
    if lines.translate(None, PLAIN):
        return False
    text = np.frombuffer(lines, np.uint8).copy()
    ends = np.flatnonzero((text == 32) | (text == 58) | (text == 10))  # a space, a colon, a line's end
    mark = text[ends]
    lengths = np.diff(ends, prepend=-1) - 1
    colon = mark == 58
    # Every colon follows a space and every space is followed by a colon: label, then pairs, nothing else.
    if not lengths.all() or colon[0] or not np.array_equal(colon[1:], mark[:-1] == 32):
        return False
    indices = _indices(text, ends[colon], lengths[colon])
    if indices is None:
        return False
    text[ends[colon]] = 32
    counts = (np.diff(np.flatnonzero(mark == 10), prepend=-1) - 1) // 2
    starts = np.concatenate([[0], np.cumsum(counts)])
    if len(indices) > 1:
        rises = indices[1:] > indices[:-1]
        rises[starts[1:-1][(starts[1:-1] > 0) & (starts[1:-1] < len(indices))] - 1] = True  # another line begins
        if not rises.all():
            return False
    numbers = _numbers(text)
    if numbers is None or len(numbers) != len(counts) + len(indices):
        return False
    of_label = np.zeros(len(numbers), bool)
    of_label[starts[:-1] + np.arange(len(counts))] = True
    blocks.append(Samples(numbers[~of_label], indices, counts, numbers[of_label]))
    return True


def _indices(text: NDArray[np.uint8], ends: NDArray[np.intp], lengths: NDArray[np.intp]) -> NDArray[np.int32] | None:
    """The whole numbers that end there, digit by digit for all at once; they are blanked out in the text."""
    longest = int(lengths.max(initial=0))
    if longest > LONGEST_INDEX:
        return None
    out = np.zeros(len(ends), np.int32)
    which = np.arange(len(ends))
    for place in range(longest):
        at = ends[which] - 1 - place
        digits = text[at] - np.uint8(48)
        if (digits > 9).any():
            return None
        out[which] += digits.astype(np.int32) * np.int32(10**place)
        text[at] = 32
        which = np.flatnonzero(lengths > place + 1)
    return out


def _numbers(text: NDArray[np.uint8]) -> NDArray[np.float64] | None:
    """Numbers between blanks, each as ``float`` reads it; None where one is no number."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # NumPy stops at what is no number, and warns
        try:
            return np.fromstring(text.tobytes(), sep=" ")
        except (ValueError, DeprecationWarning):
            return None


def _any(place: Place, progress: bool | None) -> Samples:
    """All samples by scikit-learn's reader, or the first line that is wrong."""
    from sklearn.datasets import load_svmlight_file

    try:
        with opened(place, progress) as file, warnings.catch_warnings():
            warnings.simplefilter("error")
            rows, labels = load_svmlight_file(file, zero_based=True)
    except InvalidInput:
        raise
    except (ValueError, TypeError, IndexError, OverflowError, UnicodeDecodeError, Warning) as error:
        raise _first_fault(place) or InvalidInput(f"{place.name!r} is no LIBSVM file: {error}") from error
    if not rows.shape[0]:
        raise InvalidInput(f"{place.name!r} has no line with a sample")
    if not (np.isfinite(rows.data).all() and np.isfinite(labels).all()):
        raise _first_fault(place) or InvalidInput(f"{place.name!r} holds a number that is not finite")
    return Samples(rows.data, rows.indices, np.diff(rows.indptr), labels)


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
                if int(index) > LARGEST_INDEX:
                    return InvalidInput(f"{where}: the index {index} is above the largest, {LARGEST_INDEX}")
                last = int(index)
    return None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
