"""One list of columns, categories and classes, of what every site has; differences are named."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.data import Dataset
from ownstep.data.files.columns import is_number
from ownstep.glm.families import FAMILIES, Family, classes_of, settle
from ownstep.support.errors import InvalidInput, OwnstepError, plain_text


@dataclass(frozen=True, eq=False)
class Columns:
    """What a site has, without any value of a row.

    Parameters
    ----------
    name : of the site.
    label : the column to be predicted.
    features : the columns as they are there.
    levels : of every category, its values there, the reference first.
    classes : values of the label there, empty where it is a quantity.
    sparse : most entries are zero and none is stored, so columns are scaled and, unless nearly full, not centred.
    """

    name: str
    label: str
    features: tuple[str, ...]
    levels: Mapping[str, tuple[str, ...]]
    classes: NDArray[Any]
    sparse: bool

    @classmethod
    def of(cls, name: str, data: Dataset, family: str) -> Columns:
        """Of a site's own data."""
        rows, labels = data.table()
        names = data.features or tuple(f"x{i + 1}" for i in range(rows.shape[1]))
        return cls(name, data.label, names, data.levels, classes_of(family, labels), not isinstance(rows, np.ndarray))

    def to_words(self) -> dict[str, Any]:
        """As it travels."""
        return {
            "name": self.name, "label": self.label, "features": list(self.features),
            "levels": json.dumps({k: list(v) for k, v in self.levels.items()}), "classes": self.classes.tolist(),
            "sparse": self.sparse,
        }  # fmt: skip

    @classmethod
    def from_words(cls, told: Mapping[str, Any]) -> Columns:
        """The inverse of :meth:`to_words`; what a site says is checked."""
        try:
            levels = {str(k): tuple(map(str, v)) for k, v in json.loads(told["levels"]).items()}
            features = tuple(str(name) for name in told["features"])
            classes = np.array(told["classes"])
            if not features or classes.ndim != 1 or (len(classes) and classes.dtype.kind not in "iufbU"):
                raise ValueError("it names no column")
            return cls(str(told["name"]), str(told["label"]), features, levels, classes, bool(told["sparse"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise OwnstepError(
                f"site {plain_text(told.get('name', '?'), 80)!r} did not say what columns it has: {plain_text(error)}"
            ) from error

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns before categories became 0/1 columns, in their order; those of one value alone come last."""
        out = dict.fromkeys(source(name, self.levels) for name in self.features)
        return tuple(out | dict.fromkeys(self.levels))


def source(feature: str, levels: Mapping[str, Sequence[str]]) -> str:
    """The column that a 0/1 column was made of, or the column itself."""
    return next((c for c in levels if feature.startswith(f"{c}=") and feature[len(c) + 1 :] in levels[c]), feature)


@dataclass(frozen=True, eq=False)
class Agreed:
    """What all sites make of their data."""

    kind: Family
    classes: NDArray[Any]
    label: str
    features: tuple[str, ...]
    levels: Mapping[str, tuple[str, ...]]
    centred: bool

    def to_words(self) -> dict[str, Any]:
        """As it travels."""
        return {
            "family": self.kind.name, "classes": self.classes.tolist(), "label": self.label,
            "features": list(self.features), "levels": json.dumps({k: list(v) for k, v in self.levels.items()}),
            "centred": self.centred,
        }  # fmt: skip

    @classmethod
    def from_words(cls, told: Mapping[str, Any]) -> Agreed:
        """The inverse of :meth:`to_words`."""
        return cls(
            FAMILIES[told["family"]], np.array(told["classes"]), told["label"], tuple(told["features"]),
            {k: tuple(v) for k, v in json.loads(told["levels"]).items()}, bool(told["centred"]),
        )  # fmt: skip

    def rows_of(self, here: Columns, rows: Any) -> Any:
        """A site's rows with the columns agreed on: a category it has no row of is a column of zeros."""
        if here.features == self.features:
            return rows
        at = {name: i for i, name in enumerate(here.features)}
        if all(name in at for name in self.features):
            return rows[:, [at[name] for name in self.features]]
        out = np.zeros((rows.shape[0], len(self.features)))
        for i, name in enumerate(self.features):
            if name in at:
                out[:, i] = rows[:, at[name]]
                continue
            category = source(name, self.levels)
            if here.levels[category][0] == name[len(category) + 1 :]:  # the reference there, which has no column
                others = [at[f"{category}={level}"] for level in here.levels[category][1:]]
                out[:, i] = 1 - rows[:, others].sum(axis=1)
        return out


def agree(every: Sequence[Columns], family: str) -> Agreed:
    """The columns of all sites, or an error that names who differs in what."""
    first = max(every, key=lambda site: len(site.features))
    for site in every:
        _check_columns(first, site)
    levels = {c: _union([site.levels.get(c, ()) for site in every]) for c in first.levels}
    features: list[str] = []
    for name in first.sources:
        features += [f"{name}={level}" for level in levels[name][1:]] if name in levels else [name]
    if not features:
        raise InvalidInput("no column is left to learn from: all are constant")
    kind, classes = settle(family, _classes(every))
    return Agreed(kind, classes, first.label, tuple(features), levels, not any(site.sparse for site in every))


def _check_columns(first: Columns, site: Columns) -> None:
    if site.label != first.label:
        raise InvalidInput(
            f"{site.name} predicts {site.label!r} and {first.name} predicts {first.label!r}: name the same label"
        )
    here, there = set(site.sources), set(first.sources)
    if here != there:
        said = [f"lacks {', '.join(map(repr, sorted(there - here)))}"] * bool(there - here)
        said += [f"has {', '.join(map(repr, sorted(here - there)))} more"] * bool(here - there)
        raise InvalidInput(
            f"{site.name} and {first.name} have different columns: {site.name} {' and '.join(said)}; rename the "
            "columns, or leave them out with ignore="
        )
    other = set(site.levels) ^ set(first.levels)
    if other:
        column = sorted(other)[0]
        words, numbers = (site, first) if column in site.levels else (first, site)
        raise InvalidInput(
            f"column {column!r} is a category at {words.name} and a number at {numbers.name}: read it there with "
            f"categories=[{column!r}]"
        )


def _union(parts: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """All levels, in the order a file with all rows would have them: numbers by size, words by alphabet."""
    every = {level for part in parts for level in part}
    try:
        return tuple(sorted(every, key=float))
    except ValueError:
        return tuple(sorted(every))


def _classes(every: Sequence[Columns]) -> NDArray[Any]:
    """Of all sites; none where the label is a quantity somewhere."""
    if any(not len(site.classes) for site in every):
        words = next((site for site in every if site.classes.dtype.kind == "U"), None)
        if words is not None:
            number = next(site for site in every if not len(site.classes))
            raise InvalidInput(f"the label is a word at {words.name} and a quantity at {number.name}")
        return np.zeros(0)
    numbers = [site for site in every if site.classes.dtype.kind != "U"]
    others = [s for s in every if s.classes.dtype.kind == "U" and not any(map(is_number, s.classes))]
    for one, two in zip(numbers[:1], others[:1], strict=False):
        here, there = (", ".join(map(str, site.classes[:3])) for site in (one, two))
        raise InvalidInput(f"the label is {here} at {one.name} and {there} at {two.name}: write it alike")
    return np.unique(np.concatenate([site.classes for site in every]))
