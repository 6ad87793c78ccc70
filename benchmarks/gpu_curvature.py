"""Own curvature on the paper's MNIST network, full batch: loss by exchange against L-BFGS, Nesterov and Algorithm 1.

    python benchmarks/pack_gpu_data.py mnist
    python benchmarks/gpu_curvature.py --out OUT           # on a machine with a CUDA GPU, torch and numpy; ten minutes

500 images per class, float32, three seeds, with the paper's penalty or, with ``--penalty 0``, the data's loss alone.
Devices: one, ten with one digit each, ten by Dirichlet 0.1. Nesterov and Algorithm 1 have the paper's printed constants
(five devices, two digits each). Every trial of a line search counts.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ownstep import partition as partitions
from ownstep.engines import run
from ownstep.methods import LBFGS, At, Nesterov, OwnCurvature, OwnStep
from ownstep.paper.appendix.mnist import PAPER_L, choose
from ownstep.paper.machinery.runner import provenance
from ownstep.plan import Devices
from ownstep.problems import Network, TensorNorms
from ownstep.problems.network.models import mnist_cnn, pixels

LEVELS = (1.0, 0.5, 0.2, 0.1, 0.05, 0.01)


def record(history: Any, seconds: float) -> dict[str, Any]:
    values = [float(v) if np.isfinite(v) else None for v in history.value]
    reached = {f"{t:g}": next((k for k, v in enumerate(values) if v is not None and v <= t), None) for t in LEVELS}
    kept = {"loss": values[:: max(1, len(values) // 200)], "every": max(1, len(values) // 200), "exchanges": reached}
    sent = int(history.columns["bytes_up"].sum()) if "bytes_up" in history.columns else None
    return kept | {
        "bytes_up": sent,
        "seconds": seconds,
        "stopped": history.stopped,
        "ranks": history.settings.get("sketch_ranks"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("gpu-data/mnist.npz"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--per-class", type=int, default=500)
    parser.add_argument("--exchanges", type=int, default=80)
    parser.add_argument("--rank", type=int, help="the default, reduced on devices of few rows, if left out")
    parser.add_argument("--penalty", type=float, default=0.01, help="the paper's; with it no loss is below about 0.1")
    parser.add_argument("--own", action="store_true", help="L-BFGS and own curvature alone: a minute and a half")
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    began, data, runs = time.monotonic(), np.load(given.data), []
    for seed in range(given.seeds):
        at = choose(data["labels"], given.per_class, seed)
        x, y = pixels(data["images"][at]).to(given.device), data["labels"][at].astype(np.int64)
        one = partitions.given(np.zeros(len(y), int))
        pairs = partitions.by_label(y, 5)
        splits = {"one device": one, "ten by label": partitions.by_label(y),
                  "ten, Dirichlet 0.1": partitions.dirichlet(y, 10, 0.1, seed)}  # fmt: skip
        arms = [("L-BFGS", LBFGS(), one, given.exchanges)]
        arms += [
            (f"own curvature, {name}", OwnCurvature(rank=given.rank), s, given.exchanges) for name, s in splits.items()
        ]
        arms += [
            (
                "own curvature, sums",
                OwnCurvature(rank=given.rank, sketch="sum"),
                splits["ten by label"],
                given.exchanges,
            )
        ]
        slow = [("Nesterov 1/L-bar", Nesterov("mean"), pairs, 1000), ("Algorithm 1", OwnStep(At(800)), pairs, 1000)]
        arms += [] if given.own else slow
        methods: dict[str, Any] = {}
        for name, method, split, rounds in arms:
            if time.monotonic() - began > given.seconds:
                break
            problem = Network(mnist_cnn(seed), x, y, split, penalty=TensorNorms(given.penalty), device=given.device)
            constants = PAPER_L if len(problem.weights) == 5 else [float(np.mean(PAPER_L))] * len(problem.weights)
            devices = Devices(problem.weights, np.array(constants), names=problem.names)
            start = time.monotonic()
            try:
                history = run(method, problem, rounds, devices=devices, progress=False)
                methods[name] = record(history, time.monotonic() - start)
            except Exception as error:  # one arm that fails must not lose the others
                methods[name] = {"failed": f"{type(error).__name__}: {error}"}
            print(seed, name, json.dumps({k: v for k, v in methods[name].items() if k != "loss"}), flush=True)
        runs.append({"seed": seed, "methods": methods})
        given.out.mkdir(parents=True, exist_ok=True)
        known = {
            "device": torch.cuda.get_device_name() if given.device == "cuda" else "cpu",
            "torch": torch.__version__,
        }
        settings = {
            "per_class": given.per_class, "rank": given.rank, "penalty": given.penalty, "precision": "float32",
            "levels": LEVELS,
        }  # fmt: skip
        result = {"runs": runs, "settings": settings, "provenance": provenance(0) | known}
        (given.out / "gpu-curvature.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
