"""Datasets by name, one loader each."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ownstep.data import fetch as _fetch
from ownstep.data.dataset import Dataset
from ownstep.data.sources import SOURCES, Source
from ownstep.support.errors import OwnstepError


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


def _sst2_words(progress: bool | None) -> Dataset:
    """SST-2 as a table: every sentence the tf-idf weights of its words, scaled to length one.

    Words and weights are learned on the training sentences alone, with scikit-learn's ``TfidfVectorizer`` as it is.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    source, (train, dev, _) = _contents("sst2_words", progress)
    (rows, labels), (test_rows, test_labels) = (_sentences(part) for part in (train, dev))
    weights = TfidfVectorizer()
    table = weights.fit_transform(rows)
    return Dataset(
        "sst2_words", table, labels, weights.transform(test_rows), test_labels, source.citation,
        "tf-idf, rows of length one", tuple(weights.get_feature_names_out()),
    )  # fmt: skip


HEART_COLUMNS = (
    "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak", "slope", "ca", "thal",
    "num",
)  # fmt: skip
"""The columns of the four hospitals' files, by UCI's names."""
HEART_MOSTLY_MISSING = ("slope", "ca", "thal")
"""Measured in Cleveland and nearly nowhere else."""


def _heart_disease(progress: bool | None) -> Dataset:
    """Four hospitals, 740 patients with every value known, 13 features; the label is any disease at all (num > 0).

    As in Fed-Heart-Disease of FLamby: three columns that are missing nearly everywhere are left out, then every patient
    with a missing value; chest pain type and ECG become 0/1 columns. Nothing is standardised.
    """
    source, contents = _contents("heart_disease", progress)
    tables = [
        np.array([[np.nan if v == "?" else float(v) for v in line.split(",")] for line in part.decode().split()])
        for part in contents
    ]
    hospitals = [remote.path.split(".")[1] for remote in source.files]
    sites = np.repeat(hospitals, [len(t) for t in tables])
    table = np.concatenate(tables)
    wanted = [i for i, name in enumerate(HEART_COLUMNS) if name not in HEART_MOSTLY_MISSING]
    known = ~np.isnan(table[:, wanted]).any(axis=1)
    features: list[str] = []
    columns: list[NDArray[np.float64]] = []
    kinds: dict[str, tuple[str, ...]] = {}
    for i in wanted[:-1]:
        name, values = HEART_COLUMNS[i], table[known, i]
        if name not in ("cp", "restecg"):
            features, columns = [*features, name], [*columns, values]
            continue
        kinds[name] = tuple(f"{level:g}" for level in np.unique(values))
        features += [f"{name}={level}" for level in kinds[name][1:]]
        columns += [(values == float(level)).astype(float) for level in kinds[name][1:]]
    note = f"{int((~known).sum())} of {len(known)} patients left out: they have missing values"
    return Dataset(
        "heart_disease", np.column_stack(columns), (table[known, -1] > 0).astype(int), citation=source.citation,
        features=tuple(features), sites=sites[known], note=note, label="disease", levels=kinds,
    )  # fmt: skip


def _sentences(raw: bytes) -> tuple[list[str], NDArray[np.int64]]:
    lines = csv.reader(io.StringIO(raw.decode(), newline=""), delimiter="\t", quoting=csv.QUOTE_NONE)
    if next(lines) != ["sentence", "label"]:
        raise OwnstepError("an SST-2 file must begin with the header 'sentence<TAB>label'")
    pairs = list(lines)
    return [sentence for sentence, _ in pairs], np.array([int(label) for _, label in pairs])


@cache
def _read_digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Read once: scikit-learn parses its text file anew each time."""
    from sklearn.datasets import load_digits

    rows, labels = load_digits(return_X_y=True)
    return rows, labels


def _digits(progress: bool | None) -> Dataset:
    rows, labels = _read_digits()
    return Dataset(
        "digits", rows / 16, labels.copy(), citation="Alpaydin and Kaynak (1998), UCI", scaling="pixels / 16"
    )


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
    "sst2_words": _sst2_words,
    "heart_disease": _heart_disease,
    "digits": _digits,
    "breast_cancer": _breast_cancer,
}
