"""Fig. 4: a convolutional network on CIFAR-10, ten devices with one class each, one sample per device and iteration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ownstep import partition as partitions
from ownstep.history import finite
from ownstep.methods import GD, At, OwnStep
from ownstep.paper.appendix.mnist import choose
from ownstep.paper.machinery import neural
from ownstep.paper.machinery.runner import Pieces
from ownstep.plan import Devices

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLAIM = "On CIFAR-10, ten devices with one class and one sample each need fewer iterations than GD on batches of ten."

SAYS = (
    "Training loss at the end of eight runs: GD 1.069 to 1.284, Algorithm 1 0.908 to 1.089; example constants 392 to "
    "528, L-bar 444 (Fig. 4)."
)


def why(result: dict[str, Any]) -> str:
    """Which baseline separates the two things that differ, and what it shows."""
    return (
        "The two methods also draw their batches differently: GD takes ten images of all, Algorithm 1 one of each "
        "class. GD on batches drawn class by class, with its one common step, is the comparison that separates the two."
        + neural.beside(result["arms"], neural.STRATIFIED)
    )


WHY = why

SETTINGS = (
    ("network", "four 3x3 convolutions, GroupNorm(1), LeakyReLU, max-pool", "the same; pooled before the LeakyReLU",
     "the LeakyReLU is increasing, so the function is the same and cheaper"),
    ("images", "500 per class", "500 per class, the same for all runs, values in [0, 1]", "the scaling is not said"),
    ("augmentation", "random crop (pad 4) and flip", "the same", ""),
    ("penalty", "1e-5 sum of tensor norms", "the same", ""),
    ("iterations", "150 epochs of 500", "the same, in shuffled epochs", ""),
    ("batches", "1 per device (Algorithm 1), 10 pooled (GD)", "the same", ""),
    ("L_i", "largest ratio at N(0, 0.5^2), eps 1e-8, probably in float32",
     "the example it prints; float64 ratios too",
     "the ratios are made by jumps of the gradient and float32 noise; they do not settle"),
    ("switch", "not said", "at 80 % of the iterations", "as on MNIST"),
    ("baselines", "GD at 1/L-bar on pooled batches", "and at the matched step, and both on stratified batches",
     "separates the step, the sampling and the local geometry"),
)  # fmt: skip

PAPER_L = (528.0, 392.0, 495.0, 422.0, 510.0, 393.0, 405.0, 410.0, 440.0, 448.0)
LOSSES = (1.6, 1.4, 1.2, 1.0)
"""Training losses to which rounds are counted."""
FILES = ("gpu-cifar10.json",)


def run(
    quick: bool = False,
    seed: int = 0,
    progress: bool | None = None,
    seeds: int | None = None,
    device: str | None = None,
    pieces: Pieces | None = None,
) -> dict[str, Any]:
    """Quick: 4 images per class, two runs of 8 iterations. Full: on a GPU or the device named, or what a GPU gave."""
    import torch

    if not quick and device is None and not torch.cuda.is_available():
        found = neural.committed("cifar10", *FILES, seeds=seeds)
        return {"arms": found["cifar10"]["arms"], "recorded": neural.recorded(found)}
    from ownstep.data import load

    data: Any = load("cifar10")
    at = choose(data.labels, 4 if quick else 500, seed)
    small: dict[str, Any] = {"epochs": 2, "draws": 1, "samples": 1, "evaluations": 1, "test": 40}
    folder = None if pieces is None else pieces.folder
    return experiment(
        data.rows[at], data.labels[at], data.test_rows, data.test_labels,
        range(seed, seed + (seeds or (2 if quick else 8))), checkpoint=folder and folder / "stack.npz",
        **(small | {"device": device or "cpu"} if quick else {"device": device or "cuda"}),
    )  # fmt: skip


def experiment(
    images: NDArray[np.uint8],
    labels: NDArray[Any],
    test_images: NDArray[np.uint8],
    test_labels: NDArray[Any],
    seeds: Any,
    *,
    epochs: int = 150,
    draws: int = 200,
    samples: int = 10,
    evaluations: int = 5,
    also: Mapping[str, int] | None = None,
    device: str = "cpu",
    layout: str | None = None,
    fused: bool = False,
    test: int | None = None,
    checkpoint: Path | None = None,
    clock: neural.Clock | None = None,
    say: neural.Say = lambda text: None,
) -> dict[str, Any]:
    """Every seed and method in one stack; ``evaluations`` is how many epochs lie between two looks at all data.

    All runs take the constants the paper prints. ``also`` adds arms with measured ones, for so many of the seeds:
    ``"differences"`` in float64, in ``"float32"``, or exact Hessian ``"products"``. With a ``checkpoint`` an
    interrupted stack goes on where it was.
    """
    import torch

    from ownstep.engines.local.stacked import Job, run_stacked
    from ownstep.problems import Network, PerDevice, Pooled, Stratified, TensorNorms
    from ownstep.problems.network.models import CropFlip, cifar_cnn, pixels
    from ownstep.smoothness import Region, differences

    clock = neural.Clock() if clock is None else clock
    x, y = pixels(images).to(device), torch.as_tensor(labels.astype(np.int64)).to(device)
    test_x = pixels(test_images[:test]).to(device)
    test_y = torch.as_tensor(test_labels[:test].astype(np.int64)).to(device)
    split = partitions.by_label(labels)
    per_epoch = len(labels) // 10
    rounds = epochs * per_epoch
    ours = OwnStep(At(int(0.8 * rounds)))
    wanted = {"paper": len(seeds)} | dict(also or {})
    arms: dict[str, Any] = {kind: {"runs": [], "smoothness": []} for kind in wanted}
    jobs, places = [], []
    for turn, seed in enumerate(seeds):

        def problem(batch: Any, seed: int = seed) -> Network:
            return Network(
                cifar_cnn(seed), x, y, split, penalty=TensorNorms(1e-5), batch=batch, augment=CropFlip(), device=device,
                seed=seed,
            )  # fmt: skip

        def measure(kind: str, problem: Any = problem, seed: int = seed) -> Any:
            few = {"products": max(1, draws // 4)}.get(kind, draws)
            return differences(
                problem(None), Region(0.5), few, 1e-8, samples, seed=seed, products=kind == "products",
                dtype=torch.float32 if kind == "float32" else torch.float64,
            )  # fmt: skip

        for kind, arm in arms.items():
            if turn >= wanted[kind]:
                continue
            L = np.array(PAPER_L[: len(split)])
            if kind != "paper":
                measured = measure(kind)
                L = measured.values
                arm["smoothness"].append({"seed": int(seed), kind: measured.to_dict()})
            arm["runs"].append({"seed": int(seed), "methods": {}})
            for label, method, batch in (
                (neural.OURS, ours, PerDevice(1)),
                (neural.POOLED, GD("mean"), Pooled(10)),
                (neural.MATCHED, GD("matched"), Pooled(10)),
                (neural.STRATIFIED, GD("mean"), Stratified(10)),
                (neural.STRATIFIED_MATCHED, GD("matched"), Stratified(10)),
            ):
                made = problem(batch)
                devices = Devices(made.weights, L, names=made.names)
                arm["runs"][-1]["devices"] = neural.describe(devices)
                jobs.append(Job(label, method, made, devices, made.x0()))
                places.append(arm["runs"][-1]["methods"])
    say(f"{len(jobs)} runs of {rounds} iterations; constants took {clock.spent:.0f} s")
    notes: dict[str, Any] = {"looks": []}

    def observe(k: int, stack: Any) -> None:
        epoch, looks = k // per_epoch, notes["looks"]
        if (epoch % evaluations == 0 or k >= rounds) and (not looks or looks[-1][0] != k):
            losses, right = stack.losses_and_accuracy(x, y)
            test_right = stack.losses_and_accuracy(test_x, test_y)[1]
            looks.append([k, losses.tolist(), right.tolist(), test_right.tolist()])
            say(
                f"epoch {epoch} at {clock.spent:.0f} s: loss {losses.mean():.4f} (first four {np.round(losses[:4], 4)})"
            )

    histories = run_stacked(
        jobs, rounds, every=per_epoch, layout=layout, fused=fused, seconds=clock.left, observe=observe,
        checkpoint=checkpoint, notes=notes,
    )  # fmt: skip
    looks = notes["looks"]
    for m, (history, place) in enumerate(zip(histories, places, strict=True)):
        kept = {"rounds": [k for k, *_ in looks], "values": [float(right[m]) for *_, right in looks]}
        place[history.name] = _record(history, m, looks, per_epoch) | {"test_accuracy": kept}
    return {
        "arms": {"paper": arms.pop("paper")}, "also": arms, "rounds": histories[0].rounds, "planned": rounds,
        "per_epoch": per_epoch, "draws": draws,
        "samples_for_L": samples, "replay": histories[0].settings["replay"],
        "seconds": clock.spent,
    }  # fmt: skip


def _record(history: Any, m: int, looks: list[Any], per_epoch: int) -> dict[str, Any]:
    """Losses of the whole training set where they were looked at, and the batches' own, averaged by epoch."""
    whole = len(history.value) // per_epoch * per_epoch
    running = history.value[:whole].reshape(-1, per_epoch).mean(axis=1)
    return {
        "rounds": [k for k, *_ in looks],
        "loss": [finite(float(losses[m])) for _, losses, *_ in looks],
        "train_accuracy": {"rounds": [k for k, *_ in looks], "values": [float(r[m]) for _, _, r, _ in looks]},
        "batch_loss_by_epoch": [finite(float(v)) for v in running],
        "step": float(history.columns["step"][0]),
        "switched_at": history.switched_at,
        "stopped": history.stopped,
    }


def verdict(result: dict[str, Any]) -> dict[str, Any]:
    """Computed from the runs."""
    return neural.judge({f"constants: {kind}": arm for kind, arm in result["arms"].items()}, LOSSES)


def fair(result: dict[str, Any]) -> dict[str, Any]:
    """Against fair rivals, to the larger of the two final losses."""
    return neural.fair(result["arms"])


def figure(result: dict[str, Any]) -> Figure:
    """Training loss and test accuracy, one row per arm."""
    from ownstep.paper.machinery.race_pictures import networks

    return networks(result["arms"], {"paper": "The paper's constants"})
