"""Appendix: a convolutional network on MNIST, five devices with two digits each, full batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ownstep import partition as partitions
from ownstep.paper.machinery import neural
from ownstep.paper.machinery.runner import Pieces
from ownstep.plan import Devices

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLAIM = "On MNIST, five devices with two digits each need substantially fewer full-batch iterations than pooled GD."

SAYS = (
    "Near epoch 440 of eight runs: GD 1.50 to 1.84, Algorithm 1 0.94 to 1.14; example constants 119, 145, 178, 336, "
    "488, L-bar 253."
)


def why(result: dict[str, Any]) -> str:
    """What differs in the settings, and what the longer step alone gives."""
    return (
        "The direction agrees, the size does not: the paper's losses are further apart than ours, with the same "
        "network, penalty and example constants. Its initialisation and image scaling are not given. The constants "
        "come from gradient-difference ratios, which measure jumps of the max-pooling's gradient and not curvature. "
        "So every step is far shorter than the loss allows. GD with the same mean step shows what a longer step alone "
        "gives."
        + neural.beside(result["arms"], neural.MATCHED)
        + neural.beside(result["arms"], neural.NESTEROV)
        + lagging(result["arms"])
    )


def lagging(arms: dict[str, Any]) -> str:
    """Until when Algorithm 1's mean test accuracy lags behind both GD's, in words; empty if it never does."""
    told, three = [], (neural.OURS, neural.POOLED, neural.MATCHED)
    for name, arm in arms.items():
        runs = [one["methods"] for one in arm["runs"]]
        if not all("test_accuracy" in run.get(method, {}) for run in runs for method in three):
            continue
        rounds = runs[0][neural.OURS]["test_accuracy"]["rounds"]
        ours, gd, matched = (
            np.mean([run[method]["test_accuracy"]["values"] for run in runs], axis=0) for method in three
        )
        below = (ours < gd) & (ours < matched)
        if below.any():
            last = rounds[np.flatnonzero(below)[-1]]
            told.append(f"{name}: in {below.sum()} of {len(rounds)} measurements, the last at iteration {last}")
    if not told:
        return ""
    return (
        " Algorithm 1's mean test accuracy lags behind GD at 1/L-bar and at the matched step (" + "; ".join(told) + ")."
    )


WHY = why

SETTINGS = (
    ("network", "two 5x5 convolutions (16, 32), ELU, max-pool, linear", "the same; pooled before the ELU",
     "the ELU is increasing, so the function is the same and cheaper"),
    ("images", "500 per class", "500 per class, drawn anew for every run; and all 60,000", "the whole set is harder"),
    ("penalty", "0.01 sum of tensor norms", "the same", ""),
    ("devices", "classes sorted by estimated L and paired, constants averaged", "the same", ""),
    ("L_i", "largest of 10,000 ratios at N(0, 0.05^2), eps 1e-6, probably in float32",
     "the same in float64, fewer draws (see the results), 100 images per class",
     "float32 cannot resolve eps; the ratios are made by jumps of the max-pool's gradient, so they do not settle"),
    ("L_i, second arm", "example printed: 119, 145, 178, 336, 488", "these, in ascending order", "comparable losses"),
    ("rounds, switch", "1000, no earlier than 800", "1000, at 800", ""),
    ("start", "random", "torch's default, by seed", ""),
    ("baselines", "GD at 1/L-bar",
     "and GD at the matched mean step; with the paper's constants on 500 per class also GD with the step that is first "
     "at a loss of 0.5, and Nesterov at 1/L-bar", "separates a longer step from local geometry"),
)  # fmt: skip

PAPER_L = (119.0, 145.0, 178.0, 336.0, 488.0)
LOSSES = (2.0, 1.5, 1.0, 0.5)
"""Training losses to which rounds are counted."""
FILES, BASELINES = ("gpu-500.json", "gpu-60000.json"), ("gpu-500-baselines.json",)
"""What a GPU gave; and more methods for the same seeds, run later."""


def run(
    quick: bool = False,
    seed: int = 0,
    progress: bool | None = None,
    seeds: int | None = None,
    device: str | None = None,
    pieces: Pieces | None = None,
) -> dict[str, Any]:
    """Quick: 3 images per class, two runs of 3 rounds. Full: on a GPU or the device named, or what a GPU gave."""
    import torch

    if not quick and device is None and not torch.cuda.is_available():
        found = neural.committed("mnist", *FILES, optional=BASELINES, seeds=seeds)
        where = neural.recorded(found)
        if "500-baselines" in found:
            found["500"] = neural.completed(found["500"], found.pop("500-baselines"))
        return {"arms": _arms(found), "recorded": where}
    from ownstep.data import load

    data: Any = load("mnist")
    small: dict[str, Any] = {
        "per_class": 3,
        "rounds": 3,
        "switch": 2,
        "draws": 3,
        "samples": 3,
        "test": 200,
        "looks": 2,
    }
    common = small | {"device": device or "cpu"} if quick else {"device": device or "cuda"}
    kept = pieces or Pieces()

    def all_seeds(name: str, **options: Any) -> dict[str, Any]:
        def one(s: int) -> dict[str, Any]:
            return experiment(data.rows, data.labels, data.test_rows, data.test_labels, [s], **(common | options))

        return neural.joined([kept(f"{name}, {s}", one, s) for s in range(seed, seed + (seeds or (2 if quick else 8)))])

    found = {"500": all_seeds("500")}
    if not quick:
        found["60000"] = all_seeds("60000", per_class=None, constants=("differences",))
    return {"arms": _arms(found)}


def _arms(found: dict[str, Any]) -> dict[str, Any]:
    return {
        f"{part['samples']:,} images, {kind}": arm for part in found.values() for kind, arm in part["arms"].items()
    }  # fmt: skip


def experiment(
    images: NDArray[np.uint8],
    labels: NDArray[Any],
    test_images: NDArray[np.uint8],
    test_labels: NDArray[Any],
    seeds: Any,
    *,
    per_class: int | None = 500,
    rounds: int = 1000,
    switch: int = 800,
    draws: int = 1000,
    samples: int = 100,
    constants: tuple[str, ...] = ("differences", "paper"),
    names: Sequence[str] | None = None,
    device: str = "cpu",
    test: int | None = None,
    looks: int = 20,
    fused: bool = False,
    clock: neural.Clock | None = None,
    say: neural.Say = lambda text: None,
    keep: neural.Keep = lambda so_far: None,
) -> dict[str, Any]:
    """All runs as plain data; stops cleanly, keeping whole runs, when the clock runs out.

    ``constants`` are ``"paper"``, the printed ones, or ratios measured for every run: ``"differences"`` in float64,
    ``"float32"``, or exact Hessian ``"products"``. ``names`` are the methods, all of :func:`neural.methods` by default;
    tuned GD has the step that is first at the last of :data:`LOSSES`. ``keep`` is given what there is after every seed.
    """
    import torch

    from ownstep.engines import run as run_method
    from ownstep.problems import Network, TensorNorms
    from ownstep.problems.network.models import mnist_cnn, pixels
    from ownstep.smoothness import Region, differences

    clock = neural.Clock() if clock is None else clock
    test_x = pixels(test_images[:test]).to(device)
    test_y = torch.as_tensor(test_labels[:test].astype(np.int64)).to(device)
    arms: dict[str, Any] = {kind: {"runs": []} for kind in constants}
    out: dict[str, Any] = {"arms": {}}
    longest = 0.0
    for seed in seeds:
        began = clock.spent
        if not clock.allows(1.1 * longest):
            say(f"out of time before seed {seed}")
            break
        at = choose(labels, per_class, seed)
        x, y = pixels(images[at]).to(device), labels[at].astype(np.int64)
        common: dict[str, Any] = {"penalty": TensorNorms(0.01), "device": device, "channels_last": device == "cuda"}
        by_class = Network(mnist_cnn(seed), x, y, partitions.by_label(y), **common)
        few = max(1, draws // 20)
        measured = {
            "differences": differences(by_class, Region(0.05), draws, 1e-6, samples, seed=seed),
            "products": differences(by_class, Region(0.05), few, samples=samples, seed=seed, products=True),
        }
        if "float32" in constants:
            measured["float32"] = differences(
                by_class, Region(0.05), draws, 1e-6, samples, seed=seed, dtype=torch.float32
            )
        for kind, arm in arms.items():
            found = measured["differences" if kind == "paper" else kind].values
            order = np.argsort(found)
            problem = Network(mnist_cnn(seed), x, y, partitions.by_label(y, 5, order.tolist()), fused=fused, **common)
            pairs = np.array(PAPER_L) if kind == "paper" else found[order].reshape(5, 2).mean(axis=1)
            devices = Devices(problem.weights, pairs, names=problem.names)
            done = {}
            for label, method in neural.methods(switch, names).items():
                accuracy: dict[int, float] = {}

                def observe(k: int, point: Any, kept: dict[int, float] = accuracy, problem: Network = problem) -> None:
                    if k % max(1, rounds // looks) == 0:
                        kept[k] = problem.accuracy(point, test_x, test_y)

                history = run_method(
                    method, problem, rounds, devices=devices, progress=False, observe=observe, search_target=LOSSES[-1]
                )
                done[label] = neural.record(history, {"test_accuracy": accuracy})
                done[label]["train_accuracy"] = problem.accuracy(torch.as_tensor(history.x))
                say(f"seed {seed} {kind} {label}: loss {history.value[-1]:.4f} in {done[label]['seconds']:.1f} s")
            arm["runs"].append({"seed": int(seed), "devices": neural.describe(devices), "methods": done})
        arms[constants[0]].setdefault("class_smoothness", []).append(
            {"seed": int(seed)} | {kind: found.to_dict() for kind, found in measured.items()}
        )
        longest = max(longest, clock.spent - began)
        out = {
            "arms": arms, "samples": len(at), "rounds": rounds, "switch": switch, "draws": draws,
            "samples_for_L": samples, "replay": problem.replay_note, "seconds": clock.spent,
        }  # fmt: skip
        keep(out)
    return out


def choose(labels: NDArray[Any], per_class: int | None, seed: int) -> NDArray[np.intp]:
    """So many samples of each class, drawn with the seed; all of them for None."""
    if per_class is None:
        return np.arange(len(labels))
    rng = np.random.default_rng(seed)
    return np.concatenate(
        [rng.choice(np.flatnonzero(labels == c), per_class, replace=False) for c in np.unique(labels)]
    )  # fmt: skip


def verdict(result: dict[str, Any]) -> dict[str, Any]:
    """Computed from the runs."""
    out = neural.judge(result["arms"], LOSSES)
    for name, arm in result["arms"].items():
        for known in arm.get("class_smoothness", [])[:1]:
            jumps, smooth = max(known["differences"]["L"]), max(known["products"]["L"])
            out["findings"].append(
                f"{name}: the largest gradient-difference ratio is {jumps:.3g}, the largest exact Hessian-vector ratio "
                f"{smooth:.3g}: the estimate measures jumps of the max-pool's gradient over eps, not curvature"
                if jumps > 3 * smooth
                else f"{name}: gradient differences ({jumps:.3g}) and Hessian products ({smooth:.3g}) agree"
            )
    return out


def fair(result: dict[str, Any]) -> dict[str, Any]:
    """Against fair rivals, to the larger of the two final losses."""
    return neural.fair(result["arms"])


def figure(result: dict[str, Any]) -> Figure:
    """Training loss and test accuracy, one row per arm."""
    from ownstep.paper.machinery.race_pictures import networks

    whose = {"paper": "the paper's constants", "differences": "our constants"}
    titles = {name: ", ".join(whose.get(part, part) for part in name.split(", ")) for name in result["arms"]}
    return networks(result["arms"], titles)
