"""Fig. 5: a BERT-type encoder on SST-2, all frozen but its last layer and the head, five devices, full batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ownstep import partition as partitions
from ownstep.paper.machinery import neural
from ownstep.plan import Devices

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ownstep.problems.network.encoder import Encoder

CLAIM = "Fine-tuning an encoder's last layer on SST-2 over five uneven devices converges faster than pooled GD."

SAYS = (
    "Algorithm 1 is ahead of GD in training loss, training accuracy and test accuracy (Fig. 5). No numbers are given."
)
WHY = (
    "The encoder and the constants differ. The paper takes the largest of many gradient-difference ratios. Here the "
    "constants are the largest Hessian eigenvalues at the start. They are so alike that own steps are on average "
    "hardly longer than the common one: see the predicted gain."
)
NOTICE = (
    "The encoder is not the paper's, because BERT-base was not at hand. Two sentence encoders take its place and are "
    "fine-tuned in the same way. all-mpnet-base-v2 has BERT-base's size (12 layers, 110 million parameters), "
    "all-MiniLM-L6-v2 is smaller (6 layers, 22 million)."
)

SETTINGS = (
    ("encoder", "BERT-base (12 layers, 110M)",
     "all-MiniLM-L6-v2 (6 layers, 22M) and all-mpnet-base-v2 (12 layers, 110M)", "bert-base-uncased was not at hand"),
    ("trained", "last encoder layer and classification head", "the same; the head is linear on the mean token",
     "these encoders were trained for mean pooling"),
    ("sentences", "67,349; test accuracy on the dev set", "the same", ""),
    ("devices", "5, Dirichlet 0.1 by label", "the same, drawn with the run's seed", ""),
    ("L_i", "gradient differences over tens of thousands of draws, region not said",
     "largest Hessian eigenvalue at the start; gradient differences too",
     "in 1.8 million dimensions a random direction misses the steep ones, and 1/L_i would diverge"),
    ("switch", "not said", "at 80 % of the rounds", "as on MNIST"),
    ("rounds", "not said", "200", "by then all methods have nearly stopped"),
    ("baselines", "GD at 1/L-bar", "and GD at the matched mean step; in one run Nesterov at 1/L-bar",
     "separates a longer step from local geometry"),
)  # fmt: skip

LOSSES = (0.6, 0.5, 0.4)
"""Training losses to which rounds are counted."""
FILES, LARGER = ("gpu-minilm.json",), ("gpu-mpnet.json",)


def run(quick: bool = False, seed: int = 0, progress: bool | None = None, seeds: int | None = None) -> dict[str, Any]:
    """Quick: a tiny random encoder on 60 sentences. Full: what a GPU gave, as its inputs need packing first."""
    if not quick:
        found = neural.committed("sst2", *FILES, optional=LARGER, seeds=seeds)
        arms = {f"{name}, {kind}": arm for name, part in found.items() for kind, arm in part["arms"].items()}
        return {"arms": arms, "recorded": neural.recorded(found)}
    from ownstep.data import load
    from ownstep.problems.network.encoder import Encoder, Shape
    from ownstep.problems.network.models import seeded

    data: Any = load("sst2")
    words = {w: i + 1 for i, w in enumerate(sorted({w for s in data.rows[:60] for w in s.split()}))}
    known = [[words.get(w, 0) for w in s.split()] or [0] for s in [*data.rows[:60], *data.test_rows[:40]]]
    ids = [np.array(s, np.int32) for s in known]
    shape = Shape(len(words) + 1, 64, 16, 32, 2, 2, 1e-12)
    encoder: Any = seeded(lambda: Encoder(shape), seed)
    found = experiment(
        encoder.eval(), ids[:60], data.labels[:60], ids[60:], data.test_labels[:40],
        range(seed, seed + (seeds or 2)), rounds=30,
        draws=10,
    )  # fmt: skip
    return {"arms": found["arms"]}


def experiment(
    encoder: Encoder,
    ids: Sequence[NDArray[np.int32]],
    labels: NDArray[Any],
    test_ids: Sequence[NDArray[np.int32]],
    test_labels: NDArray[Any],
    seeds: Any,
    *,
    rounds: int = 300,
    draws: int = 100,
    samples: int = 32,
    constants: tuple[str, ...] = ("power",),
    names: Sequence[str] = (neural.OURS, neural.POOLED, neural.MATCHED),
    device: str = "cpu",
    autocast: Any = None,
    fused: bool = False,
    clock: neural.Clock | None = None,
    say: neural.Say = lambda text: None,
    keep: neural.Keep = lambda so_far: None,
) -> dict[str, Any]:
    """All runs as plain data; stops cleanly, keeping whole runs, when the clock runs out.

    ``names`` are the methods, of :func:`neural.methods`. ``keep`` is given what there is after every seed.
    """
    import torch

    from ownstep.engines import run as run_method
    from ownstep.problems import Network
    from ownstep.problems.network.text import frozen_activations, text_classifier
    from ownstep.smoothness import Region, differences, power

    clock = neural.Clock() if clock is None else clock
    blocks, order = frozen_activations(encoder, ids, device)
    test_blocks, test_order = frozen_activations(encoder, test_ids, device)
    y, test_y = np.asarray(labels)[order], torch.as_tensor(np.asarray(test_labels)[test_order]).to(device)
    say(f"frozen layers run once over {len(y)} sentences in {clock.spent:.1f} s, {len(blocks.parts)} blocks")
    arms: dict[str, Any] = {kind: {"runs": []} for kind in constants}
    out: dict[str, Any] = {"arms": {}}
    longest = 0.0
    for seed in seeds:
        began = clock.spent
        if not clock.allows(1.1 * longest):
            say(f"out of time before seed {seed}")
            break
        split = partitions.dirichlet(y, 5, 0.1, seed)
        model = text_classifier(encoder, 2, seed).to("cpu")
        plain = Network(model, blocks, y, split, device=device, autocast=autocast)
        x0 = plain.x0()
        measured = {
            "power": power(plain, x0, tolerance=0.02, most=20, dtype=torch.float32, seed=seed),
            "differences": differences(plain, Region(0.01, x0), draws, 1e-6, samples, seed=seed),
        }
        problem = Network(model, blocks, y, split, device=device, autocast=autocast, fused=True) if fused else plain
        say(f"seed {seed}: L by power {measured['power'].values}, by differences {measured['differences'].values}")
        for kind, arm in arms.items():
            found: Any = measured[kind]
            devices = Devices(problem.weights, found.values, names=problem.names, L_pooled=found.pooled)
            done = {}
            for label, method in neural.methods(int(0.8 * rounds), names).items():
                accuracy: dict[int, float] = {}

                def observe(k: int, point: Any, kept: dict[int, float] = accuracy, problem: Network = problem) -> None:
                    if k % max(1, rounds // 20) == 0:
                        kept[k] = problem.accuracy(point, test_blocks, test_y)

                history = run_method(method, problem, rounds, devices=devices, progress=False, observe=observe)
                done[label] = neural.record(history, {"test_accuracy": accuracy})
                done[label]["train_accuracy"] = problem.accuracy(torch.as_tensor(history.x))
                say(
                    f"seed {seed} {kind} {label}: loss {history.value[-1]:.4f} in "
                    f"{done[label]['seconds']:.1f} s; {history.stopped}"
                )
            arm["runs"].append(
                {
                    "seed": int(seed), "devices": neural.describe(devices), "samples": split.counts.tolist(),
                    "smoothness": {k: v.to_dict() for k, v in measured.items()}, "methods": done,
                }
            )  # fmt: skip
        longest = max(longest, clock.spent - began)
        out = {
            "arms": arms, "samples": len(y), "tokens": int(sum(p[1].sum() for p in blocks.parts)), "rounds": rounds,
            "draws": draws, "autocast": str(autocast), "replay": problem.replay_note, "seconds": clock.spent,
        }  # fmt: skip
        keep(out)
    return out


def verdict(result: dict[str, Any]) -> dict[str, Any]:
    """Computed from the runs."""
    return neural.judge(result["arms"], LOSSES)


def fair(result: dict[str, Any]) -> dict[str, Any]:
    """Against fair rivals, to the larger of the two final losses."""
    return neural.fair(result["arms"])


def figure(result: dict[str, Any]) -> Figure:
    """Training loss and test accuracy, one row per encoder."""
    from ownstep.paper.machinery.race_pictures import networks

    return networks(
        result["arms"], {"minilm, power": "all-MiniLM-L6-v2 (22M)", "mpnet, power": "all-mpnet-base-v2 (110M)"}
    )
