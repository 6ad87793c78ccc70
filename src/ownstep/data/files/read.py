"""One file, or a folder with one file per device, as a dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.data.dataset import Dataset
from ownstep.data.files.columns import MISSING_RULES, as_features, encode, is_number, kept_as_words, level_name
from ownstep.data.files.frames import Table, is_gap, read_table, stacked
from ownstep.data.files.libsvm import read_libsvm
from ownstep.data.files.npz import read_npz
from ownstep.data.files.stream import FORMATS, SUFFIXES, Place, recognise
from ownstep.data.files.wording import option
from ownstep.support.errors import InvalidInput, unknown_name

USUAL_LABELS = ("label", "target", "y")


@dataclass(frozen=True)
class Reading:
    """How a file is to be read.

    Parameters
    ----------
    label : the column to be predicted; ``label``, ``target`` or ``y`` where there is one of that name.
    site : the column that says who holds a row.
    missing : ``"drop"`` leaves out rows with missing values, ``"mean"`` fills in the column's mean; None refuses.
    format : ``"libsvm"``, ``"csv"``, ``"tsv"``, ``"parquet"`` or ``"npz"``; recognised by default.
    categories : columns of numbers that are names, such as a chest pain type of 1 to 4.
    ignore : columns to leave out.
    """

    label: str | None = None
    site: str | None = None
    missing: str | None = None
    format: str | None = None
    categories: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.missing is not None and self.missing not in MISSING_RULES:
            raise unknown_name("rule for missing values", self.missing, MISSING_RULES)
        if self.format is not None and self.format not in FORMATS:
            raise unknown_name("format", self.format, FORMATS)
        if self.site is not None and self.site == self.label:
            raise InvalidInput(f"{option('site', self.site)}: that column is the label; name another one")
        for said, name in (("label", self.label), ("site", self.site)):
            for kind in ("categories", "ignore"):
                if name in getattr(self, kind):
                    raise InvalidInput(f"{option(kind, name)}: that column is the {said}; leave it out there")

    def options(self) -> dict[str, Any]:
        """As keyword arguments of ``load``."""
        return dict(vars(self))

    @property
    def columns_only(self) -> dict[str, Any]:
        """The options that only make sense where columns have names, as far as they were given."""
        every = {name: getattr(self, name) for name in ("label", "site", "missing", "categories", "ignore")}
        return {name: value for name, value in every.items() if value}


def read(name: str, how: Reading | None = None, progress: bool | None = None) -> Dataset:
    """Read a file, a folder with one file per device, or standard input (``-``)."""
    how = how or Reading()
    if name and name != "-" and Path(name).is_dir():
        return _folder(Path(name), how, progress)
    if name != "-" and not (name and Path(name).exists()):
        raise InvalidInput(f"there is no file {name!r}")
    return read_place(Place.of(name), how, progress)


def read_place(place: Place, how: Reading, progress: bool | None = None) -> Dataset:
    """Read one file, or standard input, which can be had once only."""
    kind = recognise(place, how.format)
    title = "-" if place.path is None else place.path.name
    if kind in ("csv", "tsv", "parquet"):
        return _dataset(title, [_table(place, kind, how, progress)], None, how)
    _refuse(how, kind)
    if kind == "npz":
        rows, labels, sites, features = read_npz(place)
        return Dataset(title, rows, labels, features=features, sites=sites)
    (rows,), labels, first = read_libsvm([place], progress)
    return Dataset(title, rows, labels, features=_from_zero(rows.shape[1], first))


def read_features(
    name: str, features: Sequence[str], levels: Mapping[str, Sequence[str]], format: str | None = None
) -> Any:
    """The columns that a model was fitted on, by name, from a file of new rows; a label in it is not needed.

    A file without names is taken for a model whose columns have none either: they were numbered when it was fitted.
    """
    if name != "-" and not Path(name).is_file():
        raise InvalidInput(f"there is no file {name!r}")
    place = Place.of(name)
    kind = recognise(place, format)
    if kind in ("csv", "tsv", "parquet"):
        return as_features(read_table(place, kind, words=kept_as_words(levels)), features, levels)
    if kind == "npz":
        rows, _, _, names = read_npz(place)
        if not np.isfinite(rows.data if hasattr(rows, "indptr") else rows).all():
            raise InvalidInput(f"{place.name!r}: rows must be finite, and nan or inf is among them")
        return _by_name(place, rows, names, features)
    first = 0 if tuple(features) == numbered(len(features), 0) else 1
    _check_numbered(place, "a LIBSVM file", features, first)
    (rows,), _, _ = read_libsvm([place], first=first)
    if rows.shape[1] > len(features):
        raise InvalidInput(f"{place.name!r} has {rows.shape[1]} features, the model knows {len(features)}")
    return _stack([rows], [name], len(features))


def numbered(columns: int, first: int = 1) -> tuple[str, ...]:
    """What columns without names are called."""
    return tuple(f"x{i + first}" for i in range(columns))


def _from_zero(columns: int, first: int) -> tuple[str, ...]:
    """The names of a LIBSVM file's columns: only where they count from 0 they are not the usual ones."""
    return () if first else numbered(columns, 0)


def _check_numbered(place: Place, kind: str, features: Sequence[str], first: int = 1) -> None:
    if tuple(features) != numbered(len(features), first):
        raise InvalidInput(
            f"{place.name!r} is {kind}, whose columns have no names, and the model's columns are found by name: "
            f"{_listed(features)}; give a CSV or Parquet file with these columns"
        )


def _by_name(place: Place, rows: Any, names: Sequence[str], features: Sequence[str]) -> Any:
    """The model's columns of an archive, in the model's order."""
    if not names:
        _check_numbered(place, "an npz file without the array 'features'", features)
        return rows
    lacking = [name for name in features if name not in names]
    if lacking:
        raise InvalidInput(f"the model needs a column {lacking[0]!r}, {place.name!r} has {_listed(names)}")
    return rows[:, [names.index(name) for name in features]]


def _folder(path: Path, how: Reading, progress: bool | None) -> Dataset:
    """Every file is a device, named after it."""
    if how.site is not None:
        raise InvalidInput(
            f"{option('site', how.site)}: in the folder {str(path)!r} every file is a site; leave that out"
        )
    files = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
    if not files:
        raise InvalidInput(f"the folder {str(path)!r} holds no file")
    places = [Place(str(p), p) for p in files]
    kinds = [recognise(place, how.format) for place in places]
    other = next((i for i, kind in enumerate(kinds) if kind != kinds[0]), None)
    if other is not None:
        raise InvalidInput(
            f"{str(path)!r}: all files of a folder must have one format; {files[0].name!r} is {kinds[0]} and "
            f"{files[other].name!r} is {kinds[other]}"
        )
    names = [_stem(p) for p in files]
    twice = next((i for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        one, two = files[names.index(names[twice])].name, files[twice].name
        raise InvalidInput(f"{str(path)!r}: {one!r} and {two!r} are both the device {names[twice]!r}; rename one")
    if kinds[0] in ("csv", "tsv", "parquet"):
        return _dataset(path.name, _alike(places, kinds[0], how, progress), names, how)
    _refuse(how, kinds[0])
    if kinds[0] == "npz":
        return _archives(path, places, names)
    rows, labels, first = read_libsvm(places, progress)
    sites = np.repeat(names, [r.shape[0] for r in rows])
    features = _from_zero(rows[0].shape[1], first)
    return Dataset(path.name, _stack(rows, [str(p) for p in files]), labels, features=features, sites=sites)


def _archives(path: Path, places: Sequence[Place], names: list[str]) -> Dataset:
    """A folder of npz files; where they name their columns, these are put into one order."""
    rows, labels, features = [], [], None
    for place in places:
        here, known, _, columns = read_npz(place)
        features = columns if features is None else features
        if set(columns) != set(features):
            raise InvalidInput(
                f"{place.name!r} and {places[0].name!r} have different columns: {_listed(columns) or 'no names'} and "
                f"{_listed(features) or 'no names'}; name them alike in the array 'features'"
            )
        rows.append(here if columns == features else here[:, [columns.index(name) for name in features]])
        labels.append(known)
    sites = np.repeat(names, [r.shape[0] for r in rows])
    whole = _stack(rows, [place.name for place in places])
    return Dataset(path.name, whole, np.concatenate(labels), features=features or (), sites=sites)


def _stack(rows: list[Any], names: list[str], least: int = 0) -> Any:
    import scipy.sparse as sp

    if not sp.issparse(rows[0]):
        width = [r.shape[1:] for r in rows]
        other = next((i for i, w in enumerate(width) if w != width[0]), None)
        if other is not None:
            raise InvalidInput(f"{names[0]!r} has rows of shape {width[0]}, {names[other]!r} of {width[other]}")
        return np.concatenate(rows)
    widest = max(least, *(r.shape[1] for r in rows))
    return sp.vstack([sp.csr_array((r.data, r.indices, r.indptr), shape=(r.shape[0], widest)) for r in rows], "csr")


def _alike(places: Sequence[Place], kind: str, how: Reading, progress: bool | None) -> list[Table]:
    """The tables of all sites, refused where their columns differ; a column with words anywhere is words everywhere."""
    tables = [_table(place, kind, how, progress) for place in places]
    for place, table in zip(places[1:], tables[1:], strict=True):
        here, there = set(table.columns), set(tables[0].columns)
        if here != there:
            lacks, has = sorted(there - here), sorted(here - there)
            said = [f"it lacks {', '.join(map(repr, lacks))}"] * bool(lacks)
            said += [f"it has {', '.join(map(repr, has))} more"] * bool(has)
            raise InvalidInput(
                f"{place.name!r} and {places[0].name!r} have different columns: {' and '.join(said)}; "
                f"rename the columns, or leave them out with {option('ignore')}"
            )
    words = {name for table in tables for name in table.words}
    words |= {name for t in tables for name, v in t.apart.items() if v.dtype.kind == "O"}
    for name in (name for name in tables[0].apart if name in words):
        _refuse_two_ways(places, [table.apart[name] for table in tables], name)
    for i, table in enumerate(tables):
        if words & (set(table.numeric) | {n for n, v in table.apart.items() if v.dtype.kind == "f"}):
            tables[i] = _table(places[i], kind, how, progress, words)
    return tables


def _refuse_two_ways(places: Sequence[Place], labels: Sequence[NDArray[Any]], name: str) -> None:
    """Refuse labels that are numbers in one file and words in another, none of them a number: 0/1 and no/yes."""
    numbers, words = dict[str, str](), dict[str, str]()
    for place, values in zip(places, labels, strict=True):
        known = values[~is_gap(values)]
        if known.dtype.kind == "f" and len(known):
            numbers[place.name] = ", ".join(map(level_name, np.unique(known)[:3]))
        elif len(known) and not any(map(is_number, found := sorted(set(known)))):
            words[place.name] = ", ".join(found[:3])
    if numbers and words:
        (one, these), (two, those) = next(iter(numbers.items())), next(iter(words.items()))
        raise InvalidInput(
            f"column {name!r} is {these} in {one!r} and {those} in {two!r}: write it alike in all files of the folder"
        )


def _table(place: Place, kind: str, how: Reading, progress: bool | None, words: Any = ()) -> Table:
    wanted = {how.label} if how.label is not None else set(USUAL_LABELS)
    sites = set() if how.site is None else {how.site}
    apart, words = wanted | sites, {*words, *sites}
    table = read_table(place, kind, apart, how.ignore, words, progress)
    several = [(name, kind) for kind in ("categories", "ignore") for name in getattr(how, kind)]
    for name, said in ((how.label, "label"), (how.site, "site"), *several):
        if name is not None and name not in table.columns:
            raise _no_column(place, name, said, table.columns)
    if how.label is None:
        found = [name for name in USUAL_LABELS if name in table.apart]
        if len(found) != 1:
            raise InvalidInput(
                f"{place.name!r}: say which column is to be predicted with {option('label')}; "
                f"it has {_listed(table.columns)}"
            )
    return table


def _dataset(title: str, tables: list[Table], names: list[str] | None, how: Reading) -> Dataset:
    label = how.label or next(name for name in USUAL_LABELS if name in tables[0].apart)
    where = names and [name for name, table in zip(names, tables, strict=True) for _ in range(len(table))]
    whole = joined(tables)
    site = how.site
    if where is not None:
        site = "\0file"  # no column can have this name
        whole = Table(
            whole.columns, whole.numbers, whole.numeric, whole.words, {**whole.apart, site: np.array(where, object)},
            whole.where,
        )  # fmt: skip
    made = encode(whole, label, site, how.categories, how.missing)
    return Dataset(
        title, made.rows, made.labels, features=made.features, sites=made.sites, note=made.note, label=label,
        levels=made.levels,
    )  # fmt: skip


def joined(tables: list[Table]) -> Table:
    """Tables with the same columns, one below the other, in the order of the first one's columns."""
    first = tables[0]
    if len(tables) == 1:
        return first
    starts = np.cumsum([0, *map(len, tables)])

    def where(row: int) -> str:
        at = int(np.searchsorted(starts, row, side="right")) - 1
        return tables[at].where(row - int(starts[at]))

    def column(name: str, part: Callable[[Table], Any]) -> NDArray[Any]:
        return np.concatenate([part(table)[name] for table in tables])

    blocks = [
        t.numbers if t.numeric == first.numeric else t.numbers[:, [t.numeric.index(n) for n in first.numeric]]
        for t in tables
    ]
    words = {name: column(name, lambda t: t.words) for name in first.words}
    return Table(
        first.columns, stacked(blocks), first.numeric, words,
        {name: column(name, lambda t: t.apart) for name in first.apart}, where,
    )  # fmt: skip


def _refuse(how: Reading, kind: str) -> None:
    for name, value in how.columns_only.items():
        raise InvalidInput(
            f"{option(name, value)} is for files whose columns have names (CSV, TSV, Parquet), and this is {kind}"
        )


def _no_column(place: Place, name: str, said: str, columns: Sequence[str]) -> InvalidInput:
    return InvalidInput(f"{option(said, name)}: {place.name!r} has no such column; it has {_listed(columns)}")


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(columns[:20]) + (f" and {len(columns) - 20} more" if len(columns) > 20 else "")


def _stem(path: Path) -> str:
    name = path.name
    for suffix in reversed(path.suffixes):
        if suffix.lower() not in {*SUFFIXES, ".gz", ".bz2", ".xz", ".data", ".txt"}:
            break
        name = name.removesuffix(suffix)
    return name or path.name
