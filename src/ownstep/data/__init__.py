"""Datasets by name: fetched from their authors, verified by hash, cached.

>>> from ownstep.data import load
>>> load("digits").rows.shape
(1797, 64)
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.data import fetch as _fetch
from ownstep.data.sources import SOURCES, Source
from ownstep.support.errors import InvalidInput, OwnstepError, unknown_name


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset in its natural form.

    Parameters
    ----------
    rows : samples first: a sparse matrix (w8a), uint8 images (mnist, cifar10), a float table, or sentences.
    labels : one a sample.
    test_rows, test_labels : the authors' held-out part, where there is one. For w8a it is a subset of the
        training rows, so it is not held out; for sst2 it is the dev part, as the test labels are not public.
    """

    name: str
    rows: Any
    labels: NDArray[Any]
    test_rows: Any = None
    test_labels: NDArray[Any] | None = None
    citation: str = ""
    scaling: str = field(default="as published", repr=False)

    def table(self) -> tuple[Any, NDArray[Any]]:
        """(features as a 2-D float matrix, labels), ready for a linear model.

        Images become rows of pixels in [0, 1]; text has no table.
        """
        if self.name == "sst2":
            raise InvalidInput("sst2 is text: linear models need numbers, and no encoder was asked for")
        if getattr(self.rows, "dtype", None) == np.uint8:
            return self.rows.reshape(len(self.rows), -1) / 255.0, self.labels
        return self.rows, self.labels


def names() -> list[str]:
    """Every dataset that can be loaded."""
    return list(LOADERS)


def load(name: str, progress: bool | None = None) -> Dataset:
    """Load a dataset by name, fetching it when it is not here.

    Looks in the folder named by ``OWNSTEP_DATA`` first, then in the cache, then at the authors' addresses.
    """
    if name not in LOADERS:
        raise unknown_name("dataset", name, LOADERS)
    return LOADERS[name](progress)


def _contents(name: str, progress: bool | None) -> tuple[Source, list[bytes]]:
    source = SOURCES[name]
    return source, [_fetch.read(source, remote, progress) for remote in source.files]


def _w8a(progress: bool | None) -> Dataset:
    from sklearn.datasets import load_svmlight_file

    source, (train, test) = _contents("w8a", progress)
    (rows, labels), (test_rows, test_labels) = (
        load_svmlight_file(io.BytesIO(part), n_features=300) for part in (train, test)
    )
    return Dataset("w8a", rows, labels.astype(int), test_rows, test_labels.astype(int), source.citation)


def _mnist(progress: bool | None) -> Dataset:
    source, parts = _contents("mnist", progress)
    images, labels, test_images, test_labels = (gzip.decompress(part) for part in parts)
    return Dataset(
        "mnist", _idx(images, 16).reshape(-1, 28, 28), _idx(labels, 8),
        _idx(test_images, 16).reshape(-1, 28, 28), _idx(test_labels, 8), source.citation,
    )  # fmt: skip


def _idx(raw: bytes, header: int) -> NDArray[np.uint8]:
    return np.frombuffer(raw, np.uint8, offset=header)


def _cifar10(progress: bool | None) -> Dataset:
    source, parts = _contents("cifar10", progress)
    table = np.frombuffer(b"".join(parts), np.uint8).reshape(-1, 3073)
    images, labels = table[:, 1:].reshape(-1, 3, 32, 32), table[:, 0]
    return Dataset("cifar10", images[:50000], labels[:50000], images[50000:], labels[50000:], source.citation)


def _sst2(progress: bool | None) -> Dataset:
    source, (train, dev, _) = _contents("sst2", progress)
    (rows, labels), (test_rows, test_labels) = (_sentences(part) for part in (train, dev))
    return Dataset("sst2", rows, labels, test_rows, test_labels, source.citation)


def _sentences(raw: bytes) -> tuple[list[str], NDArray[np.int64]]:
    lines = csv.reader(io.StringIO(raw.decode(), newline=""), delimiter="\t", quoting=csv.QUOTE_NONE)
    if next(lines) != ["sentence", "label"]:
        raise OwnstepError("an SST-2 file must begin with the header 'sentence<TAB>label'")
    pairs = list(lines)
    return [sentence for sentence, _ in pairs], np.array([int(label) for _, label in pairs])


def _digits(progress: bool | None) -> Dataset:
    from sklearn.datasets import load_digits

    rows, labels = load_digits(return_X_y=True)
    return Dataset("digits", rows / 16, labels, citation="Alpaydin and Kaynak (1998), UCI", scaling="pixels / 16")


def _breast_cancer(progress: bool | None) -> Dataset:
    from sklearn.datasets import load_breast_cancer

    rows, labels = load_breast_cancer(return_X_y=True)
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    return Dataset(
        "breast_cancer", rows, labels, citation="Wolberg et al. (1995), UCI", scaling="features standardised"
    )


LOADERS: dict[str, Callable[[bool | None], Dataset]] = {
    "w8a": _w8a,
    "mnist": _mnist,
    "cifar10": _cifar10,
    "sst2": _sst2,
    "digits": _digits,
    "breast_cancer": _breast_cancer,
}

__all__ = ["Dataset", "load", "names"]
