"""The problem that five of the appendix's experiments share: which images, which model, which constants.

In full it is the paper's network where torch finds a GPU, and a convex model of the same images elsewhere, with what a
GPU gave for the network beside it. On a GPU torch and numpy are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep import partition as partitions
from ownstep.data import load
from ownstep.engines import describe
from ownstep.methods import At, Method, OwnStep
from ownstep.paper.machinery import neural
from ownstep.paper.machinery.neural import OURS, OURS_DEFAULT
from ownstep.partition import Partition
from ownstep.plan import Plan

PER_CLASS = 500
MU = 1e-3
SETTINGS = (
    ("images", "MNIST, 500 per class", "the same; quick: scikit-learn's 8x8 digits", "digits need no download"),
    ("model", "a small convolutional network", "the same on a GPU; elsewhere logistic regression, mu = 0.001",
     "convex: its optimum and constants are known, so that rounds to a gap can be counted"),
    ("L_i", "estimated from 1,000 samples", "1,000 gradient differences; logistic: largest eigenvalue",
     "the eigenvalue is that of a bound on the Hessian, so never too small"),
    ("progress", "training loss", "loss over that at the start; logistic: relative gap to the optimum", ""),
    ("switch", "MNIST: no earlier than round 800",
     "the default rule; the network: after 80 % of the rounds, and the default too",
     "the default needs no tuning"),
    ("weights", "1/N", "samples", "1/N minimises another function when devices differ in size"),
)  # fmt: skip

NETWORK, LOGISTIC = "the paper's network", "logistic regression"
SWITCH = 0.8
"""The paper's code for MNIST keeps the local phase for at least this share of its 1,000 rounds."""

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


def ours(model: str, rounds: int, both: bool = True) -> dict[str, Method]:
    """Algorithm 1 as it is judged: for the network with the paper's switch, and the default one too with ``both``."""
    if model != NETWORK:
        return {OURS: OwnStep()}
    out: dict[str, Method] = {OURS: OwnStep(At(int(SWITCH * rounds))), OURS_DEFAULT: OwnStep()}
    return out if both else {OURS: out[OURS]}


def with_network(name: str, result: dict[str, Any], quick: bool = False) -> dict[str, Any]:
    """The convex model's result, with what a GPU gave for the paper's network beside it, where that is recorded."""
    if quick or on_gpu(quick):
        return result
    found = neural.committed(name, optional=(f"gpu-{name}.json",))
    return result | {"network": found[name]["result"], "recorded": neural.recorded(found)} if found else result


def parts(result: Mapping[str, Any]) -> dict[str, Any]:
    """The result of every model in it, by the model's name; the paper's network first."""
    network = result.get("network")
    return ({} if network is None else {NETWORK: network}) | {_model(result): result}


def pointer(result: Mapping[str, Any], part: Mapping[str, Any]) -> str:
    """Where the arms of a part stand in the result file."""
    return "result.arms" if part is result else "result.network.arms"


def judged(result: Mapping[str, Any], judge: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """The verdict on the paper's network where there is one, with what the other model says beside it."""
    found = {model: judge(part) for model, part in parts(result).items()}
    (first, decides), *others = found.items()
    if not others:
        return decides
    return {
        "verdict": decides["verdict"],
        "rule": f"{first}: {decides['rule']}"
        + "".join(f". By the same rule, {model}: {one['verdict']}" for model, one in others),
        "findings": [f"{model}, {one['verdict']}: {one['rule']}" for model, one in others]
        + [f"{model}: {text}" for model, one in found.items() for text in one["findings"]],
        "numbers": [
            number | {"group": f"{model}: {number['group']}"}
            for model, one in found.items()
            for number in one.get("numbers", [])
        ],
    }


def _model(result: Mapping[str, Any]) -> str:
    return str(result.get("model") or _first(result).get("model") or NETWORK)


def _first(result: Mapping[str, Any]) -> Mapping[str, Any]:
    arms = result["arms"]
    return next(iter(arms if isinstance(arms, list) else arms.values()), {})


def gap_label(model: str) -> str:
    """What a gap is: nobody knows the least loss of a network, so that zero is taken for it."""
    return "f / f(x⁰)" if model == NETWORK else "(f − f*) / (f(x⁰) − f*)"


def notice(result: Any) -> str:
    """What a reader must know first: whether the paper's network was trained, or its place was taken."""
    if "network" in result:
        return (
            "There are two models. The claim is judged by the paper's network, trained on a GPU. "
            "Logistic regression of the same images is shown too: its optimum and constants are known exactly."
        )
    if _model(result) == NETWORK:
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
    return (0.6, 0.4, 0.2)[-len(convex) :] if on_gpu(quick) else convex


def problem(quick: bool, seed: int, split: Splitter) -> Setting:
    """The images drawn with ``seed``, split over devices by ``split(rows, labels)``."""
    return network(seed, split) if on_gpu(quick) else logistic(quick, seed, split)


def logistic(quick: bool, seed: int, split: Splitter, best: float | None = None) -> Setting:
    """Multinomial logistic regression, to its optimum; ``best`` is f(x*) where it is known."""
    from scipy.sparse import csr_matrix

    from ownstep.problems import MultinomialLogistic, optimum

    rows, labels, test_rows, test_labels = _images(quick, seed)
    table = rows if quick else csr_matrix(rows)  # four pixels in five are black
    model = MultinomialLogistic(table, labels, split(rows, labels), mu=MU)

    def accuracy(x: NDArray[Any]) -> dict[str, float]:
        weights = x.reshape(model.features, model.outputs)
        parts = {"train": (rows, labels), "test": (test_rows, test_labels)}
        return {n: float((model.classes[(r @ weights).argmax(axis=1)] == y).mean()) for n, (r, y) in parts.items()}

    sizes = [int(n) * rows.shape[1] for n in model.counts]
    least = optimum(model).value if best is None else best
    return Setting(model, describe(model), least, accuracy, sizes, LOGISTIC)


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
    from ownstep.problems.network.models import mnist_cnn
    from ownstep.smoothness import Region, differences

    rows, labels, *held_out = _images(False, seed, per_class)
    test_rows, test_labels = (part[:test] for part in held_out)
    images, tests = (torch.as_tensor(r.reshape(-1, 1, 28, 28), dtype=torch.float32) for r in (rows, test_rows))
    targets = labels.astype(np.int64)
    model = Network(
        mnist_cnn(seed), images.to(device), targets, split(rows, labels), penalty=TensorNorms(0.01), device=device,
        fused=device.startswith("cuda"), channels_last=device.startswith("cuda"),
    )  # fmt: skip
    tests, test_targets = tests.to(device), torch.as_tensor(test_labels.astype(np.int64)).to(device)
    at_once = max(1, 40 // len(model.counts))  # forty models: one shape a number of devices, tried out by cuDNN once
    measured = differences(model, Region(0.05), draws, 1e-6, 100, chunk=at_once, seed=seed, progress=False)

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
    """Two classes per device: five devices take neighbours in the order of their constants, more take shards."""

    def split(rows: NDArray[Any], labels: NDArray[Any]) -> Partition:
        classes = np.unique(labels)
        if 2 * devices != len(classes):
            return partitions.shards(labels, devices, 2, seed)
        return partitions.by_label(labels, devices, classes[np.argsort(_class_constants(rows, labels))].tolist())

    return split


def _class_constants(rows: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.float64]:
    """The exact smoothness of every class's logistic loss: half the largest eigenvalue of its second moments.

    One device a class: the softmax's Hessian is at most 1/2, so that L_c = lambda_max(A_c^T A_c) / (2 n_c) + mu.
    """
    found = [rows[labels == c] for c in np.unique(labels)]
    return np.array([np.linalg.eigvalsh(part.T @ part / (2 * len(part)))[-1] for part in found])
