"""CSV, TSV and Parquet: read in pieces, numbers into one matrix, words beside it."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ownstep.data.files import faults, parquet
from ownstep.data.files.stream import Place, opened
from ownstep.data.files.wording import option
from ownstep.support.errors import InvalidInput, require_extra

PIECE = 500_000
"""Values that are read at a time: few enough for the processor's cache, and the memory needed beyond the data's own."""
FEWEST_ROWS = 5000
"""Rows that are read at a time at least: pandas takes some microseconds per piece and column."""
WHOLE = 1 << 28
"""Bytes up to which pandas reads a text file whole, on all cores: for a moment the numbers are there twice."""
NUMBERS = "iufb"
"""Kinds of columns that are numbers, in NumPy's letters."""
MISSING = ["?"]
"""What marks a missing value, beside an empty field and what pandas knows (NA, NaN, null, ...)."""
BETWEEN_BLANKS = {"", "?", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"}
"""The same where blanks stand around it, which pandas takes for words."""


@dataclass(frozen=True, eq=False)
class Table:
    """The columns of a table as they are in the file.

    Parameters
    ----------
    columns : all names, in the file's order.
    numbers : (rows, numeric columns), nan where a value is missing; Fortran order is never used.
    numeric : the names of its columns.
    words : columns of text, None where a value is missing.
    apart : columns that were asked for by name (the label, the site), in neither of the others.
    where : from a row's index to its file and line, for messages.
    """

    columns: tuple[str, ...]
    numbers: NDArray[np.float64]
    numeric: tuple[str, ...]
    words: Mapping[str, NDArray[Any]]
    apart: Mapping[str, NDArray[Any]]
    where: Callable[[int], str]

    def __len__(self) -> int:
        return len(self.numbers)

    def column(self, name: str) -> NDArray[Any]:
        """The values of a column, wherever they are."""
        for kept in (self.words, self.apart):
            if name in kept:
                return kept[name]
        return self.numbers[:, self.numeric.index(name)]


class _Retype(Exception):
    """A column holds numbers here and words there: it has to be read as words."""


class _Gaps(Exception):
    """These words are missing values between blanks."""


class _Spaces(Exception):
    """Fields begin with spaces, which pandas skips only where told to: that costs a sixth of its time."""


@dataclass
class _Known:
    """What was found out about a file: columns of words, spaces before fields, words that are missing values."""

    words: set[str]
    spaces: bool = False
    gaps: list[str] = field(default_factory=lambda: MISSING)


def read_table(
    place: Place,
    kind: str,
    apart: Collection[str] = (),
    ignore: Collection[str] = (),
    words: Collection[str] = (),
    progress: bool | None = None,
) -> Table:
    """Read a table; ``apart`` are columns to keep out of the matrix, ``words`` those to be read as text."""
    known = _Known(set(words))
    while True:
        try:
            return _assemble(place, kind, apart, ignore, known, progress)
        except _Retype as found:
            known.words.add(str(found))
        except _Spaces:
            known.spaces = True
        except _Gaps as found:  # without them a column of words may be one of numbers
            known.words, known.gaps = set(words), [*known.gaps, *found.args]


def _assemble(
    place: Place, kind: str, apart: Collection[str], ignore: Collection[str], known: _Known, progress: bool | None
) -> Table:
    made = _Matrix()
    texts: dict[str, list[NDArray[Any]]] = {}
    aside: dict[str, list[NDArray[Any]]] = {}
    columns: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    truths: set[str] = set()
    gap = False
    header, separator, pieces = _pieces(place, kind, known, progress)
    for frame, expected in pieces:
        gap = gap or bool(frame.iloc[:, -1].isna().any())
        if not columns:
            columns = tuple(frame.columns)
            _check_names(place, columns, ignore)
            rest = [c for c in columns if c not in apart and c not in ignore]
            numeric = tuple(c for c in rest if _is_number(frame[c]))
            truths = {c for c in numeric if frame[c].dtype.kind == "b"}
            texts = {c: [] for c in rest if c not in numeric}
            aside = {c: [] for c in columns if c in apart}
        kinds = dict(zip(frame.columns, (dtype.kind for dtype in frame.dtypes), strict=True))  # 30 Series cost more
        for name in numeric:
            if kinds[name] not in NUMBERS or (kinds[name] == "b") != (name in truths):
                raise _Retype(name)
        for name, parts in texts.items():
            if name not in known.words and _is_number(frame[name]) and not frame[name].isna().all():
                raise _Retype(name)
            parts.append(_as_words(frame[name], known))
        for name, parts in aside.items():
            number = _is_number(frame[name])
            if name not in known.words and parts and number != (parts[0].dtype.kind == "f"):
                raise _Retype(name)
            parts.append(frame[name].to_numpy(float) if number else _as_words(frame[name], known))
        block = made.room(len(frame), len(numeric), expected)
        _fill(block, frame, numeric)
    numbers = made.rows()
    if not len(numbers):
        raise InvalidInput(f"{place.name!r} has no row of data")
    if kind != "parquet" and gap:
        wrong = faults.ragged(place, separator)  # a line that is too short looks like missing values at its end
        if wrong is not None:
            raise wrong

    def where(row: int) -> str:
        return (
            f"{place.name!r}, row {row + 1}"
            if kind == "parquet"
            else f"{place.name!r}, line {faults.line_of(place, separator, row, header)}"
        )

    return Table(
        columns,
        numbers,
        numeric,
        {name: np.concatenate(parts) for name, parts in texts.items()},
        {name: np.concatenate(parts) for name, parts in aside.items()},
        where,
    )


def _fill(block: NDArray[np.float64], frame: Any, numeric: tuple[str, ...]) -> None:
    """Copy the numeric columns; neighbours of one type are copied at once, as pandas keeps them together."""
    types, at = list(frame.dtypes), [frame.columns.get_loc(name) for name in numeric]
    start = 0
    for end in range(1, len(at) + 1):
        if end < len(at) and at[end] == at[end - 1] + 1 and types[at[end]] == types[at[start]]:
            continue
        block[:, start:end] = frame.iloc[:, at[start] : at[start] + end - start].to_numpy()
        start = end


class _Matrix:
    """Rows that come piece by piece, each written where it stays as long as there is room for what was expected."""

    def __init__(self) -> None:
        self._whole, self._filled = np.empty((0, 0)), 0
        self._more: list[NDArray[np.float64]] = []

    def room(self, rows: int, columns: int, expected: int) -> NDArray[np.float64]:
        """Where the next rows go; ``expected`` is how many there will be in all, 0 where nobody knows."""
        if not self._filled and not self._more:
            self._whole = np.empty((expected, columns))  # pages that are never written take no memory
        if self._more or self._filled + rows > len(self._whole):
            self._more.append(np.empty((rows, columns)))
            return self._more[-1]
        self._filled += rows
        return self._whole[self._filled - rows : self._filled]

    def rows(self) -> NDArray[np.float64]:
        """All of them."""
        filled = self._whole[: self._filled]
        return stacked([filled] * bool(self._filled) + self._more) if self._more else filled


def stacked(blocks: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The blocks one below the other; each is let go as soon as it is copied."""
    if len(blocks) == 1:
        return np.ascontiguousarray(blocks[0])
    out = np.empty((sum(map(len, blocks)), blocks[0].shape[1]))
    end = len(out)
    while blocks:
        block = blocks.pop()
        out[end - len(block) : end] = block
        end -= len(block)
    return out


def _pieces(place: Place, kind: str, known: _Known, progress: bool | None) -> tuple[bool, str, Iterator[Any]]:
    try:
        import pandas  # noqa: F401
    except ModuleNotFoundError as error:
        raise require_extra("pandas", "files") from error
    if kind == "parquet":
        return True, "", parquet.pieces(place, known.words, _rows_at_a_time, progress)
    header, separator, names = _first_line(place, kind)
    return header, separator, _text(place, header, separator, names, known, progress)


def _rows_at_a_time(columns: int) -> int:
    return max(FEWEST_ROWS, PIECE // max(1, columns))


def _first_line(place: Place, kind: str) -> tuple[bool, str, list[str]]:
    """(has it a header, what separates fields, names of the columns)."""
    try:
        with opened(place, False) as file:
            text = io.TextIOWrapper(file, "utf-8-sig", newline="")
            first = next((line for line in text if line.strip()), "")
            text.detach()
    except UnicodeDecodeError as error:
        raise faults.undecodable(place) from error
    if not first:
        raise InvalidInput(f"{place.name!r} is empty: it has no line")
    if first.endswith("\r"):
        raise InvalidInput(
            f"{place.name!r}: lines end with a carriage return alone, as old Macs wrote them; convert the file, for "
            "example with tr '\\r' '\\n'"
        )
    separator = "\t" if kind == "tsv" else max((",", ";", "\t"), key=first.count)
    fields = [f.strip() for f in next(csv.reader([first], delimiter=separator))]
    if all(f in ("", *MISSING) or _is_float(f) for f in fields):
        return False, separator, [str(i + 1) for i in range(len(fields))]
    return True, separator, [f or f"column {i + 1}" for i, f in enumerate(fields)]


def _check_names(place: Place, columns: tuple[str, ...], ignore: Collection[str]) -> None:
    for name in columns:
        if columns.count(name) > 1:
            raise InvalidInput(f"{place.name!r}: two columns are named {name!r}; rename one")
        if name.startswith("column ") and name not in ignore and name[7:] == str(columns.index(name) + 1):
            raise InvalidInput(
                f"{place.name!r}: {name} has no name in the first line; name it, or leave it out with "
                f"{option('ignore', name)}"
            )


def _text(
    place: Place, header: bool, separator: str, names: list[str], known: _Known, progress: bool | None
) -> Iterator[Any]:
    import pandas as pd

    options: dict[str, Any] = {
        "sep": separator, "header": None, "names": names, "index_col": False, "na_values": known.gaps,
        "dtype": dict.fromkeys(known.words, str) or None, "low_memory": False, "skipinitialspace": known.spaces,
        "chunksize": _rows_at_a_time(len(names)),
    }  # fmt: skip
    try:
        _refuse_two_of_a_name(place, names)
        with opened(place, progress) as file, warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            lines = _skip_header(file) if header else 0
            packed, read = not isinstance(file, io.BufferedReader), 0
            whole = None if packed or place.path is None or place.size > WHOLE else _whole(place, lines, options)
            if whole is not None:
                yield whole, len(whole)
                return
            for frame in pd.read_csv(file, **options):
                read += len(frame)
                yield frame, 0 if packed else int(1.05 * read * place.size / max(1, file.tell())) + 1000
    except UnicodeDecodeError as error:
        raise faults.undecodable(place) from error
    except pd.errors.EmptyDataError as error:
        raise InvalidInput(f"{place.name!r} has a header and no row of data") from error
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        if not known.spaces:  # a quote after a space is none, unless spaces are skipped
            raise _Spaces from error
        raise faults.ragged(place, separator) or InvalidInput(f"{place.name!r} cannot be read: {error}") from error


def _whole(place: Place, lines: int, options: dict[str, Any]) -> Any:
    """All rows at once; None where this pandas does not read on several cores, or the file has to be read in order."""
    import pandas as pd

    try:
        pd.get_option("mode.max_threads")
    except KeyError:
        return None
    alone = {key: value for key, value in options.items() if key not in ("chunksize", "low_memory")}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return pd.read_csv(place.path, skiprows=lines, compression=None, **alone)
    except Exception:  # words here and numbers there, a ragged line: reading in order says where
        return None


def _refuse_two_of_a_name(place: Place, names: list[str]) -> None:
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise InvalidInput(f"{place.name!r}: two columns are named {twice!r}; rename one")


def _skip_header(file: IO[bytes]) -> int:
    """How many lines were skipped: blank lines before the header are skipped with it."""
    lines = 1
    while not file.readline().strip():
        lines += 1
    return lines


def _is_number(column: Any) -> bool:
    return column.dtype.kind in NUMBERS


def _as_words(column: Any, known: _Known) -> NDArray[Any]:
    import pandas as pd

    codes, levels = pd.factorize(column)
    words = [str(level) for level in levels]
    if not known.spaces and any(word.startswith(" ") for word in words):
        raise _Spaces
    gaps = [word for word in words if word.strip() in BETWEEN_BLANKS and word not in known.gaps]
    if gaps:
        raise _Gaps(*gaps)
    stripped = np.array([*[word.strip() for word in words], None], object)
    return np.asarray(stripped[codes])  # the code of a gap is -1


def is_gap(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Where a column is missing: nan among numbers, None among words."""
    if values.dtype.kind == "f":
        return np.asarray(np.isnan(values))
    return np.asarray(np.equal(values, np.array(None, object)))


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
