"""One backward pass for any number of devices, against a loop with one backward each and plain PyTorch GD.

    python benchmarks/network.py [--samples 2000] [--rounds 5] [--device cpu]

Prints, for 5 and 1,000 devices, the median time of a full-batch iteration on the MNIST network and three ratios:
Algorithm 1 over GD on the same problem, over plain PyTorch GD on the pooled data, and the loop over devices over it.
Needs torch and numpy alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import numpy as np
import torch
import torch.nn.functional as F

from ownstep import partition as partitions
from ownstep.methods import GD, Answer, Method, Never, OwnStep
from ownstep.plan import Devices
from ownstep.problems.network.models import mnist_cnn
from ownstep.problems.network.problem import Network


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def times(work: Callable[[], Any], rounds: int, device: str, warm: int = 2) -> list[float]:
    """Seconds of each call, the device idle before and after."""
    for _ in range(warm):
        work()
    out = []
    for _ in range(rounds):
        wait(device)
        began = time.perf_counter()
        work()
        wait(device)
        out.append(time.perf_counter() - began)
    return out


def rounds_of(method: Method, problem: Network, devices: Devices) -> Callable[[], None]:
    """One ask and tell a call, going on where the last ended."""
    state = [method.start(problem.x0(), devices)]

    def work() -> None:
        ask = method.ask(state[0])
        losses, total = problem.mix(ask.x, ask.mix)
        state[0] = method.tell(state[0], Answer(total, float(problem.weights @ losses)))

    return work


def plain_gd(x: torch.Tensor, y: torch.Tensor, device: str) -> Callable[[], None]:
    model = mnist_cnn().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def work() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return work


def loop_over_devices(x: torch.Tensor, y: torch.Tensor, split: partitions.Partition, device: str) -> Callable[[], None]:
    """What simulations usually do: every device's own backward pass, then a weighted sum."""
    model = mnist_cnn().to(device)
    parameters = list(model.parameters())
    parts = [torch.as_tensor(split.indices(i), device=device) for i in range(len(split))]
    data = [(x[at], y[at]) for at in parts]
    weights = split.counts / split.counts.sum() * 0.01

    def work() -> None:
        total = [torch.zeros_like(p) for p in parameters]
        for (a, b), weight in zip(data, weights, strict=True):
            for t, g in zip(total, torch.autograd.grad(F.cross_entropy(model(a), b), parameters), strict=True):
                t.add_(g, alpha=float(weight))
        with torch.no_grad():
            for p, t in zip(parameters, total, strict=True):
                p.sub_(t)

    return work


def measure(
    samples: int, rounds: int, device: str, counts: tuple[int, ...] = (5, 1000), **options: Any
) -> list[dict[str, Any]]:
    """One row for each number of devices; the contestants take turns, so that a busy machine is fair to all."""
    rng = np.random.default_rng(0)
    x = torch.as_tensor(rng.random((samples, 1, 28, 28), np.float32)).to(device)
    labels = rng.integers(0, 10, samples)
    y = torch.as_tensor(labels).to(device)
    rows = []
    for count in counts:
        split = partitions.iid(samples, count)
        devices = Devices(split.counts / samples, 100 * np.exp(rng.standard_normal(count)))
        problem = Network(mnist_cnn(), x, y, split, device=device, **options)
        work = {
            "Algorithm 1": rounds_of(OwnStep(Never()), problem, devices),
            "GD": rounds_of(GD("mean"), problem, devices),
            "plain PyTorch GD": plain_gd(x, y, device),
            "loop over devices": loop_over_devices(x, y, split, device),
        }
        took: dict[str, list[float]] = {name: [] for name in work}
        for name, run in work.items():
            times(run, 1, device, warm=1 if name == "loop over devices" else 3)
        for turn in range(rounds):
            for name, run in work.items():
                if name != "loop over devices" or turn < 3:
                    took[name] += times(run, 1, device, warm=0)
        median = {name: statistics.median(t) for name, t in took.items()}
        # Neighbours in time are compared with each other: the median of ratios, not the ratio of medians.
        ratio = statistics.median(a / b for a, b in zip(took["Algorithm 1"], took["GD"], strict=True))
        rows.append(
            {
                "devices": count, "samples": samples, "seconds": median,
                "Algorithm 1 / GD": ratio,
                "Algorithm 1 / plain PyTorch GD": median["Algorithm 1"] / median["plain PyTorch GD"],
                "loop over devices / Algorithm 1": median["loop over devices"] / median["Algorithm 1"],
                "replay": problem.replay_note,
            }
        )  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    for row in measure(options.samples, options.rounds, options.device):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
