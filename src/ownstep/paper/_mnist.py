"""The problem that five of the appendix's experiments share: which images, which model, which constants.

Another model takes its place by changing :func:`problem` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep import partition as partitions
from ownstep.data import load
from ownstep.engines import describe
from ownstep.partition import Partition
from ownstep.plan import Plan
from ownstep.problems import LinearModel, MultinomialLogistic, optimum
from ownstep.smoothness import exact

PER_CLASS = 500
MU = 1e-3
SETTINGS = (
    ("images", "MNIST, 500 a class", "the same; quick: scikit-learn's 8x8 digits", "digits need no download"),
    ("model", "a small convolutional network", "multinomial logistic regression, mu = 0.001",
     "convex: its optimum and constants are known, so that rounds to a gap can be counted"),
    ("L_i", "estimated from 1,000 samples", "largest eigenvalue of the Hessian bound",
     "an upper bound, never too small"),
    ("weights", "1/N", "samples", "1/N minimises another function when devices differ in size"),
)  # fmt: skip

Splitter = Callable[[NDArray[Any], NDArray[Any]], Partition]


@dataclass(frozen=True, eq=False)
class Setting:
    """A problem with its plan, its optimum and a way to tell how good a point is."""

    problem: LinearModel
    plan: Plan
    optimum: float
    accuracy: Callable[[NDArray[Any]], dict[str, float]]
    data_bytes: list[int]
    """Size of every device's images as they are stored, one byte a pixel."""


def problem(quick: bool, seed: int, split: Splitter) -> Setting:
    """The images drawn with ``seed``, split over devices by ``split(rows, labels)``."""
    rows, labels, test_rows, test_labels = _images(quick, seed)
    model = MultinomialLogistic(rows, labels, split(rows, labels), mu=MU)

    def accuracy(x: NDArray[Any]) -> dict[str, float]:
        table = x.reshape(model.features, model.outputs)
        parts = {"train": (rows, labels), "test": (test_rows, test_labels)}
        return {n: float((model.classes[(r @ table).argmax(axis=1)] == y).mean()) for n, (r, y) in parts.items()}

    sizes = [int(n) * rows.shape[1] for n in model.counts]
    return Setting(model, describe(model), optimum(model).value, accuracy, sizes)


def _images(quick: bool, seed: int) -> tuple[NDArray[Any], ...]:
    rng = np.random.default_rng(seed)
    data = load("digits" if quick else "mnist")
    rows, labels = data.table()
    if quick:
        order = rng.permutation(len(rows))
        train, test = order[360:], order[:360]
        return rows[train], labels[train], rows[test], labels[test]
    chosen = np.concatenate([rng.choice(np.flatnonzero(labels == c), PER_CLASS, replace=False) for c in range(10)])
    tests: Any = data.test_rows
    return rows[chosen], labels[chosen], tests.reshape(len(tests), -1) / 255.0, np.asarray(data.test_labels)


def dirichlet(devices: int, alpha: float, seed: int) -> Splitter:
    """Every class spread over the devices by a Dirichlet draw."""
    return lambda rows, labels: partitions.dirichlet(labels, devices, alpha, seed)


def two_classes(devices: int, seed: int) -> Splitter:
    """Two classes a device: five devices take neighbours in the order of their constants, more take shards."""

    def split(rows: NDArray[Any], labels: NDArray[Any]) -> Partition:
        classes = np.unique(labels)
        if 2 * devices != len(classes):
            return partitions.shards(labels, devices, 2, seed)
        alone = MultinomialLogistic(rows, labels, partitions.by_label(labels), mu=MU)
        return partitions.by_label(labels, devices, classes[np.argsort(exact(alone).values)].tolist())

    return split
