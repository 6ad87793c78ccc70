"""The federated rivals on the paper's MNIST network: rounds to shares of the first loss, after the same search.

    python benchmarks/pack_gpu_data.py mnist
    python benchmarks/gpu_rivals.py --out OUT           # on a machine with a CUDA GPU, torch and numpy; eight minutes

500 images per class, five devices with two digits each, the paper's printed constants, full batches, float32. Every
method is searched with as many trials on the first draw, five local steps where it has them. What was found is run on
three draws, and on the first draw again: GPU sums differ in the last bits, so the same seed need not give the same run.
The largest ratio between reruns is the noise floor; a difference below it is none.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import numpy as np
import torch

from ownstep import partition as partitions
from ownstep.engines import rivals, run
from ownstep.engines.compare import searched
from ownstep.engines.noise import floor, judge
from ownstep.methods import GD, At, FedLin, Method, Nesterov, OwnStep, Scaffnew
from ownstep.paper.appendix.mnist import PAPER_L, choose
from ownstep.paper.machinery.runner import provenance
from ownstep.plan import Devices
from ownstep.problems import Network, TensorNorms
from ownstep.problems.network.models import mnist_cnn, pixels

SHARES = (0.6, 0.4, 0.2)
OURS = "Algorithm 1"


def methods(rounds: int) -> dict[str, Method]:
    """Algorithm 1 with the paper's switch, two pooled methods, and the federated ones."""
    ours: dict[str, Method] = {OURS: OwnStep(At(int(0.8 * rounds))), "GD": GD("mean"), "Nesterov": Nesterov("mean")}
    return ours | rivals() | {"Scaffnew": Scaffnew(p=0.2), "FedLin": FedLin()}


def problem_of(given: argparse.Namespace, data: Any, seed: int) -> Any:
    """One draw of the images, two digits per device."""
    at = choose(data["labels"], given.per_class, seed)
    x, y = pixels(data["images"][at]).to(given.device), data["labels"][at].astype(np.int64)
    return Network(mnist_cnn(seed), x, y, partitions.by_label(y, 5), penalty=TensorNorms(0.01), device=given.device)


def counts(history: Any) -> dict[str, int | None]:
    """Rounds to each share of the first loss."""
    values = np.asarray(history.value, float)
    out = {}
    for share in SHARES:
        there = np.flatnonzero(values <= share * values[0])
        out[f"{share:g}"] = int(there[0]) if len(there) else None
    return out


def attempt(name: str, method: Method, given: argparse.Namespace, problems: list[Any], left: float) -> dict[str, Any]:
    """Search on the first draw, then run on all, and on the first again."""
    first, began = problems[0], time.monotonic()
    devices = Devices(first.weights, np.array(PAPER_L), names=first.names)
    goal = min(SHARES) * first.value(first.x0())
    row: dict[str, Any] = {"method": name}
    try:
        found, chosen, cost = searched(method, first, given.rounds, given.trials, devices, goal, 0)
        row |= {"found": repr(found), "search_rounds": cost.get("tuning", {}).get("rounds_spent", 0)}
        row["runs"], row["again"] = [], []
        for i, problem in enumerate([*problems, *[first] * given.again]):
            if time.monotonic() - began > left:
                row["cut"] = True
                break
            history = run(found, problem, given.rounds, devices=chosen, target=goal, progress=False, seed=0)
            row["runs" if i < len(problems) else "again"].append(counts(history) | {"stopped": history.stopped})
    except Exception as error:  # one method that fails must not lose the others
        row["failed"] = f"{type(error).__name__}: {error}"
    return row | {"seconds": time.monotonic() - began}


def verdicts(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Every method against Algorithm 1 at each share, beyond the noise floor of the two."""
    known = {r["method"]: r for r in rows if r.get("runs")}
    if OURS not in known:
        return {}
    out: dict[str, Any] = {}
    for share in (f"{s:g}" for s in SHARES):
        took = {n: [run[share] for run in (*r["runs"], *r["again"])] for n, r in known.items()}
        for name, theirs in took.items():
            if name != OURS:
                level = floor({"a": took[OURS], "b": theirs})
                ratio, word = judge(took[OURS], theirs, level)
                out.setdefault(name, {})[share] = {"ratio": ratio, "floor": level, "algorithm 1 is": word}
    return out


def main() -> None:
    """All methods, what is done written after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("gpu-data/mnist.npz"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--again", type=int, default=2)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--per-class", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=450)
    parser.add_argument("--methods", help="names with commas; all by default")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    began, data = time.monotonic(), np.load(given.data)
    problems = [problem_of(given, data, seed) for seed in range(given.seeds)]
    chosen, rows = methods(given.rounds), []
    wanted = list(chosen) if given.methods is None else given.methods.split(",")
    given.out.mkdir(parents=True, exist_ok=True)
    for name in wanted:
        left = given.seconds - (time.monotonic() - began)
        if left <= 0:
            rows.append({"method": name, "not run": "out of time"})
            continue
        rows.append(attempt(name, chosen[name], given, problems, left))
        print(json.dumps(rows[-1]), flush=True)
        gpu = {"device": torch.cuda.get_device_name() if given.device == "cuda" else "cpu", "torch": torch.__version__}
        settings = {k: v for k, v in vars(given).items() if isinstance(v, int | float)} | {"shares": SHARES}
        told = {"rows": rows, "verdicts": verdicts(rows), "settings": settings, "provenance": provenance(0) | gpu}
        (given.out / "gpu-rivals.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
