"""What every loader returns: rows, labels, and what is known about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.support.errors import InvalidInput


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset in its natural form.

    Parameters
    ----------
    rows : samples first: a sparse matrix (w8a), uint8 images (mnist, cifar10), a float table, or sentences.
    labels : one per sample.
    test_rows, test_labels : the authors' held-out part, where there is one. For w8a it is a subset of the
        training rows, so it is not held out; for sst2 it is the dev part, as the test labels are not public.
    citation : who is to be named.
    features : one name per column of a table; empty where the columns have no names.
    sites : for every sample the name of who holds it, in data that several sites hold; None otherwise.
    note : what the loader had to do, such as leaving out rows with missing values.
    label : the name of what the labels are.
    levels : of every category that became 0/1 columns, its values; the first has no column, it is the reference.
    """

    name: str
    rows: Any
    labels: NDArray[Any]
    test_rows: Any = None
    test_labels: NDArray[Any] | None = None
    citation: str = ""
    scaling: str = field(default="as published", repr=False)
    features: tuple[str, ...] = field(default=(), repr=False)
    sites: NDArray[Any] | None = field(default=None, repr=False)
    note: str = ""
    label: str = "label"
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        shape: tuple[int, ...] = getattr(self.rows, "shape", (len(self.rows),))
        wide = f", {shape[1]:,} features" if len(shape) == 2 else f" of shape {tuple(shape[1:])}" if shape[1:] else ""
        different = len(set(self.labels.tolist()))
        values = "different values" if self.labels.dtype.kind == "f" else "classes"
        sites = "" if self.sites is None else f", {len(set(self.sites.tolist())):,} sites"
        said = f"{shape[0]:,} samples{wide}, label {self.label!r} of {different:,} {values}{sites}"
        return f"Dataset({self.name!r}: {said})"

    def at(self, which: NDArray[Any]) -> Dataset:
        """Some of the samples, by a mask or by their indices; the authors' held-out part stays as it is."""
        rows = [self.rows[i] for i in np.arange(len(self.rows))[which]] if isinstance(self.rows, list) else None
        return replace(
            self, rows=self.rows[which] if rows is None else rows, labels=self.labels[which],
            sites=None if self.sites is None else self.sites[which],
        )  # fmt: skip

    def table(self) -> tuple[Any, NDArray[Any]]:
        """(features as a 2-D float matrix, labels), ready for a linear model.

        Images become rows of pixels in [0, 1]; text has no table.
        """
        if isinstance(self.rows, list):
            raise InvalidInput(f"{self.name} is text: linear models need numbers; sst2_words has it as word weights")
        if getattr(self.rows, "dtype", None) == np.uint8:
            return self.rows.reshape(len(self.rows), -1) / 255.0, self.labels
        return self.rows, self.labels
