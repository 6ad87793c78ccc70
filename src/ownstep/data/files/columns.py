"""From columns to numbers: categories become 0/1 columns, missing values are refused, dropped or filled in."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.data.files import dates
from ownstep.data.files.frames import Table, is_gap
from ownstep.data.files.wording import option
from ownstep.support.errors import InvalidInput, unknown_name

MISSING_RULES = ("drop", "mean")
MOST_LEVELS = 1000
LARGEST_WHOLE = 2.0**53
LONG = 20
"""Digits from which a whole number fits into no type of pandas, which then gives text."""
_DRESSED = re.compile(r"[-+]?[$\u20ac\u00a3]?\s*\d[\d.,' ]*\s*[%$\u20ac\u00a3]?")
"""Numbers that ``float`` does not read: 1,5 or 1,234.50 or 12 % or $3."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """A table as numbers: its rows, their columns' names, labels, sites, the levels of categories, what was done."""

    rows: NDArray[np.float64]
    features: tuple[str, ...]
    labels: NDArray[Any]
    sites: NDArray[Any] | None
    levels: dict[str, tuple[str, ...]]
    note: str


def encode(
    table: Table, label: str, site: str | None, categories: Collection[str] = (), missing: str | None = None
) -> Encoded:
    """A table as numbers.

    A column of words with k levels becomes k - 1 columns of 0 and 1, named ``column=level``. The first level, in
    alphabetical order (numbers by size), is the reference. All others are compared with it.
    """
    if missing is not None and missing not in MISSING_RULES:
        raise unknown_name("rule for missing values", missing, MISSING_RULES)
    absent = set(categories) - set(table.columns)
    if absent:
        raise unknown_name("column", sorted(absent)[0], table.columns)
    with np.errstate(over="ignore", invalid="ignore"):  # numbers near the largest there is
        total = float(table.numbers.sum())
    kept, note = _without_gaps(table, total, label, site, missing)
    numbers = table.numbers if kept is None else table.numbers[kept]
    plain = [i for i, name in enumerate(table.numeric) if name not in categories]
    names = [table.numeric[i] for i in plain]
    matrix = numbers if len(plain) == numbers.shape[1] else numbers[:, plain]
    if not np.isfinite(total):
        _check_finite(table, numbers, kept)
    parts, kinds, stay = [matrix], {}, None if kept is None else np.flatnonzero(kept)

    def where(row: int) -> str:
        return table.where(row if stay is None else int(stay[row]))

    dates.refuse_day_numbers(where, matrix, names)
    if missing == "mean":
        _fill_in(table, matrix, names)
    for name in [c for c in table.columns if c in table.words or (c in table.numeric and c in categories)]:
        values = table.column(name)
        values = values if kept is None else values[kept]
        columns, kinds[name] = _levels(where, name, values, name in categories)
        parts.append(columns)
        names += [f"{name}={level}" for level in kinds[name][1:]]
    alike = [
        f"column {name!r} is {levels[0]!r} in every row: left out" for name, levels in kinds.items() if not levels[1:]
    ]
    note = "; ".join([note] * bool(note) + alike)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInput(f"two columns would be called {twice!r}, one of them a level of a category: rename one")
    rows = parts[0] if len(parts) == 1 else np.hstack(parts)
    if not rows.shape[1]:
        raise InvalidInput("no column is left to learn from: all others are the label, the site, constant or ignored")
    labels, sites = table.apart[label], None if site is None else table.apart[site]
    if kept is not None:
        labels, sites = labels[kept], None if sites is None else sites[kept]
    dates.refuse_label(where, label, labels)
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        raise InvalidInput(f"{where(int(np.argmax(np.isinf(labels))))}: column {label!r} must be finite, got inf")
    return Encoded(rows, tuple(names), _labels(labels), None if sites is None else sites.astype(str), kinds, note)


def as_features(table: Table, features: Sequence[str], levels: Mapping[str, Sequence[str]]) -> NDArray[np.float64]:
    """The columns that a model was fitted on, from another table: by name, in the model's order.

    A level that the model has not seen is refused, and so is a missing value: nothing is made up.
    """
    out = np.empty((len(table), len(features)))
    for i, feature in enumerate(features):
        category = next((c for c, known in levels.items() if feature in {f"{c}={level}" for level in known[1:]}), None)
        name = feature if category is None or (feature in table.columns and category not in table.columns) else category
        if name not in table.columns:
            raise InvalidInput(f"the model needs a column {name!r}, the file has {', '.join(table.columns[:20])}")
        values = table.column(name)
        gaps = is_gap(values)
        if gaps.any():
            raise InvalidInput(f"{table.where(int(np.argmax(gaps)))}: column {name!r} has no value; complete it")
        if name == feature:
            if name in table.words:
                raise InvalidInput(f"{table.where(0)}: column {name!r} must be a number, got {values[0]!r}")
            if np.isinf(values).any():
                row = int(np.argmax(np.isinf(values)))
                raise InvalidInput(f"{table.where(row)}: column {name!r} must be finite, got {values[row]}")
            out[:, i] = values
            continue
        words = np.array(list(map(level_name, values))) if values.dtype.kind == "f" else values.astype(str)
        strange = ~np.isin(words, levels[name])
        if strange.any():
            row = int(np.argmax(strange))
            raise InvalidInput(
                f"{table.where(row)}: column {name!r} is {str(words[row])!r}, the model knows {', '.join(levels[name])}"
            )
        out[:, i] = words == feature[len(name) + 1 :]
    return out


def kept_as_words(levels: Mapping[str, Sequence[str]]) -> set[str]:
    """The categories whose levels are not all numbers: there 01 and True are names too."""

    def whole(level: str) -> bool:
        return is_number(level) and level_name(float(level)) == level

    return {name for name, known in levels.items() if not all(map(whole, known))}


def _without_gaps(
    table: Table, total: float, label: str, site: str | None, missing: str | None
) -> tuple[NDArray[np.bool_] | None, str]:
    """(which rows stay, None for all; a sentence about those that do not)."""
    gaps: dict[str, NDArray[np.bool_]] = {}
    holes = np.isnan(table.numbers) if np.isnan(total) else None
    if holes is not None:
        gaps = {name: holes[:, i] for i, name in enumerate(table.numeric) if holes[:, i].any()}
    for name, values in {**table.words, **table.apart}.items():
        found = is_gap(values)
        if found.any():
            gaps[name] = found
    if not gaps:
        return None, ""
    incomplete = np.logical_or.reduce(list(gaps.values()))
    if missing == "drop":
        if incomplete.all():
            whole = [name for name, found in gaps.items() if found.all()]
            hint = [f"; column {n!r} has no value at all, leave it out with {option('ignore', n)}" for n in whole[:1]]
            raise InvalidInput(f"every row has a missing value, so none is left{''.join(hint)}")
        return ~incomplete, f"{int(incomplete.sum()):,} of {len(table):,} rows left out: they have missing values"
    for name in gaps:
        if missing is None or name in (label, site):
            raise _gap(table, name, gaps, label, site, int(incomplete.sum()))
    return None, f"missing values of {', '.join(gaps)} replaced by the mean of their column"


def _gap(
    table: Table, name: str, gaps: dict[str, NDArray[np.bool_]], label: str, site: str | None, rows: int
) -> InvalidInput:
    kind = "label" if name == label else "site" if name == site else "value"
    where = table.where(int(np.argmax(gaps[name])))
    others = f" in columns {', '.join(gaps)}" if len(gaps) > 1 else ""
    advice = option("missing", "drop") + ("" if name in (label, site) else f" or {option('missing', 'mean')}")
    return InvalidInput(
        f"{where}: column {name!r} has no {kind}; {rows:,} of {len(table):,} rows have missing values{others}: "
        f"use {advice}, or leave columns out with {option('ignore')}"
    )


def _check_finite(table: Table, numbers: NDArray[np.float64], kept: NDArray[np.bool_] | None) -> None:
    infinite = np.isinf(numbers)
    if infinite.any():
        row, column = (int(i) for i in np.argwhere(infinite)[0])
        at = row if kept is None else int(np.flatnonzero(kept)[row])
        raise InvalidInput(f"{table.where(at)}: column {table.numeric[column]!r} must be finite, got inf")


def _fill_in(table: Table, matrix: NDArray[np.float64], names: list[str]) -> None:
    for i, name in enumerate(names):
        gaps = np.isnan(matrix[:, i])
        if gaps.all():
            raise InvalidInput(f"column {name!r} has no value at all; leave it out with {option('ignore', name)}")
        if gaps.any():
            matrix[gaps, i] = matrix[~gaps, i].mean()


def _levels(
    where: Callable[[int], str], name: str, values: NDArray[Any], asked: bool
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """(0/1 columns of a category, all its levels); a missing value becomes the levels' shares, their columns' mean.

    ``asked`` says that the column was called a category, so that nothing is wrong with levels that look like numbers.
    """
    gaps = is_gap(values)
    if gaps.all():
        raise InvalidInput(f"column {name!r} has no value at all; leave it out with {option('ignore', name)}")
    levels, codes = _sorted(values if not gaps.any() else values[~gaps])
    if levels.dtype.kind != "f":
        _check_words(where, name, values, levels, asked)
    if len(levels) > MOST_LEVELS or (len(levels) > 20 and 2 * len(levels) > len(values)):
        raise InvalidInput(
            f"column {name!r} has {len(levels):,} different values in {len(values):,} rows: too many for a category; "
            f"leave it out with {option('ignore', name)}"
        )
    out = np.zeros((len(values), len(levels) - 1))
    held = np.flatnonzero(codes)
    out[held if not gaps.any() else np.flatnonzero(~gaps)[held], codes[held] - 1] = 1
    if gaps.any():
        out[gaps] = out[~gaps].mean(axis=0)
    return out, tuple(level_name(level) if levels.dtype.kind == "f" else str(level) for level in levels)


def _sorted(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """(the different values in order, the index of each value among them): words are hashed, and only levels sorted."""
    if values.dtype.kind == "f":
        return np.unique(values, return_inverse=True)
    import pandas as pd

    codes, levels = pd.factorize(values)
    words = levels.astype(str)
    order = np.argsort(words, kind="stable")
    place = np.empty(len(order), np.intp)
    place[order] = np.arange(len(order))
    return words[order], place[codes]


def _check_words(
    where: Callable[[int], str], name: str, values: NDArray[Any], levels: NDArray[Any], asked: bool
) -> None:
    """Refuse dates, numbers that are written as nothing else reads them, and numbers with a word among them."""
    if dates.are_dates(levels):
        row = next(i for i, v in enumerate(values) if v is not None and dates.is_date(v))
        raise InvalidInput(
            f"{where(row)}: column {name!r} holds dates ({values[row]!r}): {dates.ADVICE} {option('ignore', name)}"
        )
    odd = [level for level in levels if not is_number(level)]
    if not asked and all(_DRESSED.fullmatch(level) for level in odd) and len(odd) * 2 > len(levels):
        row = next(i for i, v in enumerate(values) if v is not None and not is_number(v))
        raise InvalidInput(
            f"{where(row)}: column {name!r} holds numbers with a comma or a sign ({values[row]!r}): write them with a "
            f"point and digits alone, as 1234.5; or, if they are names, say {option('categories', name)}"
        )
    longest = max(levels, key=len)
    if not odd and not asked and len(longest) >= LONG:
        raise InvalidInput(
            f"{where(values.tolist().index(longest))}: column {name!r} holds whole numbers too long to be kept exactly "
            f"({longest!r}): write it in another unit, or leave it out with {option('ignore', name)}"
        )
    if odd and len(levels) > 2 and len(odd) < len(levels) / 2:
        row = next(i for i, v in enumerate(values) if v is not None and not is_number(v))
        raise InvalidInput(
            f"{where(row)}: column {name!r} must be a number as in the other lines, got {values[row]!r}; "
            f"correct it, or leave it empty and use {option('missing')}"
        )


def _labels(labels: NDArray[Any]) -> NDArray[Any]:
    if labels.dtype.kind == "f":
        return whole_if_whole(labels)
    return labels.astype(str)


def whole_if_whole(values: NDArray[Any]) -> NDArray[Any]:
    """As integers, where all are whole numbers that a float has exactly."""
    whole = (values == np.round(values)).all() and (np.abs(values) < LARGEST_WHOLE).all()
    return values.astype(int) if whole else values


def level_name(value: float) -> str:
    """A number as the name of a level: with all its digits, so that no two levels share a name."""
    return str(int(value)) if value == np.floor(value) and abs(value) < LARGEST_WHOLE else repr(float(value))


def is_number(text: str) -> bool:
    """Does this text read as a number?"""
    try:
        float(text)
    except ValueError:
        return False
    return True
