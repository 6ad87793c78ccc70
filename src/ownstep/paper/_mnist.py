"""The problem that five of the appendix's experiments share: which images, which model, which constants.

In full it is the paper's network where torch finds a GPU, and a convex model of the same images elsewhere.
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
from ownstep.problems import MultinomialLogistic, optimum
from ownstep.smoothness import exact

PER_CLASS = 500
MU = 1e-3
SETTINGS = (
    ("images", "MNIST, 500 a class", "the same; quick: scikit-learn's 8x8 digits", "digits need no download"),
    ("model", "a small convolutional network", "the same on a GPU; elsewhere logistic regression, mu = 0.001",
     "convex: its optimum and constants are known, so that rounds to a gap can be counted"),
    ("L_i", "estimated from 1,000 samples", "1,000 gradient differences; logistic: largest eigenvalue",
     "the eigenvalue is that of a bound on the Hessian, so never too small"),
    ("progress", "training loss", "loss over that at the start; logistic: relative gap to the optimum", ""),
    ("weights", "1/N", "samples", "1/N minimises another function when devices differ in size"),
)  # fmt: skip

NETWORK, LOGISTIC = "the paper's network", "logistic regression"

Splitter = Callable[[NDArray[Any], NDArray[Any]], Partition]


@dataclass(frozen=True, eq=False)
class Setting:
    """A problem with its plan, its optimum (0 where nobody knows it) and a way to tell how good a point is."""

    problem: Any
    plan: Plan
    optimum: float
    accuracy: Callable[[NDArray[Any]], dict[str, float]]
    data_bytes: list[int]
    """Size of every device's images as they are stored, one byte a pixel."""
    model: str = NETWORK


def notice(result: Any) -> str:
    """What a reader must know first: whether the paper's network was trained, or its place was taken."""
    first = result.get("arms") if isinstance(result.get("arms"), list) else list(result["arms"].values())
    model = result.get("model") or first[0].get("model")
    if model is None or model == NETWORK:
        return ""
    return (
        "The model is not the paper's. Where there is no GPU, logistic regression takes the place of the "
        "paper's network: it is convex, so that its optimum and the devices' constants are known exactly."
    )


def on_gpu(quick: bool) -> bool:
    """Is the network of the paper what is trained?"""
    if quick:
        return False
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def levels(quick: bool, convex: tuple[float, ...]) -> tuple[float, ...]:
    """What counts as progress: the given gaps, or for the network shares of the first loss."""
    return (0.8, 0.6, 0.4)[-len(convex) :] if on_gpu(quick) else convex


def problem(quick: bool, seed: int, split: Splitter) -> Setting:
    """The images drawn with ``seed``, split over devices by ``split(rows, labels)``."""
    return network(seed, split) if on_gpu(quick) else logistic(quick, seed, split)


def logistic(quick: bool, seed: int, split: Splitter) -> Setting:
    """Multinomial logistic regression, to its optimum."""
    rows, labels, test_rows, test_labels = _images(quick, seed)
    model = MultinomialLogistic(rows, labels, split(rows, labels), mu=MU)

    def accuracy(x: NDArray[Any]) -> dict[str, float]:
        table = x.reshape(model.features, model.outputs)
        parts = {"train": (rows, labels), "test": (test_rows, test_labels)}
        return {n: float((model.classes[(r @ table).argmax(axis=1)] == y).mean()) for n, (r, y) in parts.items()}

    sizes = [int(n) * rows.shape[1] for n in model.counts]
    return Setting(model, describe(model), optimum(model).value, accuracy, sizes, LOGISTIC)


def network(
    seed: int,
    split: Splitter,
    per_class: int = PER_CLASS,
    draws: int = 1000,
    test: int | None = None,
    device: str = "cuda",
) -> Setting:
    """The paper's network with its penalty; constants from ``draws`` gradient differences around N(0, 0.05^2)."""
    import torch

    from ownstep.problems import Network, TensorNorms
    from ownstep.problems.models import mnist_cnn
    from ownstep.smoothness import Region, differences

    rows, labels, *held_out = _images(False, seed, per_class)
    test_rows, test_labels = (part[:test] for part in held_out)
    images, tests = (torch.as_tensor(r.reshape(-1, 1, 28, 28), dtype=torch.float32) for r in (rows, test_rows))
    targets = labels.astype(np.int64)
    model = Network(
        mnist_cnn(seed), images.to(device), targets, split(rows, labels), penalty=TensorNorms(0.01), device=device
    )
    tests, test_targets = tests.to(device), torch.as_tensor(test_labels.astype(np.int64)).to(device)
    measured = differences(model, Region(0.05), draws, 1e-6, 100, seed=seed, progress=False)

    def accuracy(x: NDArray[Any]) -> dict[str, float]:
        point = torch.as_tensor(x).to(device)
        return {"train": model.accuracy(point), "test": model.accuracy(point, tests, test_targets)}

    return Setting(model, describe(model, measured), 0.0, accuracy, [int(n) * 784 for n in model.counts])


def _images(quick: bool, seed: int, per_class: int = PER_CLASS) -> tuple[NDArray[Any], ...]:
    rng = np.random.default_rng(seed)
    data = load("digits" if quick else "mnist")
    rows, labels = data.table()
    if quick:
        order = rng.permutation(len(rows))
        train, test = order[360:], order[:360]
        return rows[train], labels[train], rows[test], labels[test]
    chosen = np.concatenate([rng.choice(np.flatnonzero(labels == c), per_class, replace=False) for c in range(10)])
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
