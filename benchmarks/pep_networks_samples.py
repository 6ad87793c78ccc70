"""Random networks and losses against the bounds: none may be worse than its worst case.

    python benchmarks/pep_networks_samples.py [--out FOLDER] [--samples COUNT] [--processes N] [--seed SEED] [--only J]

A setting is a method, a metric, a start, one W or a new one in each round, and devices that are alike or of two kinds.
For each, random W of the class and random losses are run; then a hill climb goes on from the worst of them. A third of
the W have the characters of a group as eigenvectors, which treat all devices alike. The bound is for every number of
devices, but for the worst device, whose bound is for those sampled.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import itertools
import json
import multiprocessing
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg

from ownstep import pep
from ownstep.methods import EXTRA, NIDS, DecentralisedGD, GradientTracking, Mixing
from ownstep.methods.base import Answer
from ownstep.plan import Devices

R0, RSTAR, ROUNDS = 1.0, 0.5, 5
LO, HI = -0.5, 0.5
METHODS = {
    "DGD": DecentralisedGD(0.25),
    "DGD, atc": DecentralisedGD(0.25, order="atc"),
    "own steps, atc": DecentralisedGD("own", order="atc"),
    "EXTRA": EXTRA(0.25),
    "NIDS": NIDS(0.25),
    "DIGing": GradientTracking(0.1),
    "gradient tracking, atc": GradientTracking(0.25, order="atc"),
}
KINDS = {"alike": ([1.0], [0.1]), "two kinds": ([1.0, 2.5], [0.1, 0.4])}
METRICS = ("value", "distance_devices", "consensus", "value_worst")
WORST = 4
"""How many devices there are where the worst one is judged."""


@dataclass(frozen=True)
class Setting:
    """What one bound is of."""

    method: str
    metric: str
    start: str
    each_round: bool
    kinds: str

    def devices(self, count: int) -> Devices:
        """So many devices, of each kind the same number."""
        L, mu = KINDS[self.kinds]
        return pep.repeated(L, mu, [count // len(L)] * len(L))

    def bound(self) -> Any:
        """The worst case."""
        alone = self.metric.endswith("_worst")
        network = pep.Spectral(LO, HI, each_round=self.each_round, any_number=not alone)
        devices = self.devices(WORST if alone else len(KINDS[self.kinds][0]))
        options: Any = {"network": network, "start": pep.Start(self.start)}
        return pep.worst_case(METHODS[self.method], devices, ROUNDS, R0, RSTAR, self.metric, **options)


class AnyW(Mixing):
    """A mixing matrix with entries of either sign."""

    def __post_init__(self) -> None:
        pass


class Case:
    """Networks W, and losses sum_j mu/2 x_j^2 + (curved_j - mu) huber(x_j - centre_j), bent where it exceeds bend_j."""

    def __init__(self, rng: np.random.Generator, setting: Setting, like: Case | None = None, width: float = 0.0):
        self.setting = setting
        if like is None:
            self._draw(rng)
        else:
            self._near(rng, like, width)
        self.curved = np.clip(self.curved, self.devices.mu[:, None], self.devices.L[:, None])
        self.spread = np.clip(self.spread, LO, HI)
        self.W = [self._network(k) for k in range(len(self.spread))]
        self.tilt = np.zeros(self.centre.shape[1])
        self.tilt = -self.devices.weights @ self.slope(np.zeros_like(self.centre))  # x* = 0 minimises f

    def _draw(self, rng: np.random.Generator) -> None:
        alone = self.setting.metric.endswith("_worst")
        n = WORST if alone else int(rng.integers(1, 5)) * 2
        if self.setting.kinds == "alike" and not alone and rng.random() < 0.3:
            n += 1
        self.devices, dim = self.setting.devices(n), int(rng.integers(1, 4))
        networks = ROUNDS if self.setting.each_round else 1
        self.basis = rng.standard_normal((networks, n, n - 1))
        if rng.random() < 0.33:  # characters: no device is special
            whole = scipy.linalg.hadamard(n) if n in (2, 4, 8) else scipy.linalg.dft(n).real + scipy.linalg.dft(n).imag
            self.basis[:] = whole[:, 1:]
        ends = rng.random() < 0.5
        shape = (networks, n - 1)
        self.spread = rng.choice([LO, HI], shape) if ends else rng.uniform(LO, HI, shape)
        L, mu = self.devices.L[:, None], self.devices.mu[:, None]
        self.curved = mu + (L - mu) * (
            rng.integers(0, 2, (n, dim)) if rng.random() < 0.5 else rng.uniform(0, 1, (n, dim))
        )
        self.centre, self.bend = rng.uniform(-1, 1, (n, dim)), 10.0 ** rng.uniform(-2, 2, (n, dim))
        self.at = rng.standard_normal((n, dim))

    def _near(self, rng: np.random.Generator, like: Case, width: float) -> None:
        self.devices = like.devices
        for name in ("basis", "spread", "curved", "centre", "at"):
            was = getattr(like, name)
            setattr(self, name, was + width * rng.standard_normal(was.shape))
        self.bend = like.bend * np.exp(width * rng.standard_normal(like.bend.shape))

    def _network(self, k: int) -> np.ndarray:
        n = len(self.devices)
        q = np.linalg.qr(np.column_stack([np.ones(n), self.basis[k]]))[0][:, 1:]
        return np.ones((n, n)) / n + q * self.spread[k] @ q.T

    def slope(self, x: np.ndarray) -> np.ndarray:
        """Gradients of all devices at their points."""
        mu = self.devices.mu[:, None]
        return mu * x + (self.curved - mu) * np.clip(x - self.centre, -self.bend, self.bend) + self.tilt

    def value(self, x: np.ndarray) -> float:
        """f(x) - f(0)."""

        def at(y: np.ndarray) -> np.ndarray:
            off = np.abs(y - self.centre)
            huber = np.where(off <= self.bend, off**2 / 2, self.bend * (off - self.bend / 2))
            mu = self.devices.mu[:, None]
            return np.sum(mu / 2 * y**2 + (self.curved - mu) * huber + self.tilt * y, axis=1)

        return float(self.devices.weights @ (at(x) - at(0 * x)))

    def radius(self) -> float:
        """The largest |x_i*|: the losses are strongly convex, so a bisection finds each coordinate."""
        low, high = np.full(self.centre.shape, -200.0), np.full(self.centre.shape, 200.0)
        for _ in range(50):
            middle = (low + high) / 2
            above = self.slope(middle) > 0
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        return float(np.linalg.norm(np.maximum(np.abs(low), np.abs(high)), axis=1).max())

    def error(self) -> float:
        """The metric, scaled so that the start is at most R0 and every |x_i*| at most RSTAR."""
        scale = max(R0, self.radius() * R0 / RSTAR)  # t^2 f(x / t) from t x^0 has the same shape
        size = np.linalg.norm(self.at, axis=1, keepdims=True)
        x0 = scale * (self.at / size)
        x0 = x0[0] if self.setting.start == "same" else x0
        method = METHODS[self.setting.method]
        fixed: Any = replace(method, graph=AnyW(self.W[0]))
        state = fixed.start(x0, self.devices)
        for k in range(ROUNDS):
            if self.setting.each_round:
                state = replace(state, mixing=AnyW(self.W[k]))
            state = fixed.tell(state, Answer(gradients=self.slope(fixed.ask(state).x)))
        return self._metric(fixed.ask(state).x) / scale**2

    def _metric(self, x: np.ndarray) -> float:
        middle, metric = x.mean(axis=0), self.setting.metric
        if metric == "value":
            return self.value(np.broadcast_to(middle, x.shape))
        if metric == "value_worst":
            return max(self.value(np.broadcast_to(row, x.shape)) for row in x)
        return float(np.sum((x - (middle if metric == "consensus" else 0)) ** 2, axis=1).mean())


def sampled(task: tuple[int, Setting, int, int]) -> dict[str, Any]:
    """One setting: its bound, the worst of the samples, and of a climb from there."""
    index, setting, count, seed = task
    began, rng = time.process_time(), np.random.default_rng([seed, index])
    bound = setting.bound()
    solved = time.process_time() - began
    worse, best, worst = 0, Case(rng, setting), -np.inf
    for _ in range(count):
        case = Case(rng, setting)
        error = case.error()
        worse += error > bound.upper
        if error > worst:
            best, worst = case, error
    drawn, climb = worst, max(count // 4, 1)
    for width in np.geomspace(0.3, 0.01, climb):
        trial = Case(rng, setting, best, width)
        error = trial.error()
        worse += error > bound.upper
        if error > worst:
            best, worst = trial, error
    row = {**vars(setting), "lower": bound.lower, "upper": bound.upper, "tries": count + climb, "worst_sample": drawn}
    row |= {"worst_climbed": worst, "of_the_bound": worst / bound.upper, "worse_than_bound": int(worse)}
    print(f"{index:3d} {setting.method:22s} {setting.metric:16s} {setting.start:4s} {setting.kinds:9s} "
          f"{'new W' if setting.each_round else 'one W'}  [{bound.lower:.6f}, {bound.upper:.6f}]  samples {drawn:.6f}, "
          f"climbed {worst:.6f}, worse than the bound {worse}", flush=True)  # fmt: skip
    return row | {"bound_s": solved, "samples_s": time.process_time() - began - solved}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--samples", type=int, default=2000, help="per setting; the climb adds a quarter")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=21)
    parser.add_argument("--only", type=int, default=None, help="every setting by default, or every one in so many")
    chosen = parser.parse_args()
    every = itertools.product(METHODS, METRICS, ("same", "ball"), (False, True), KINDS)
    tasks = [(j, Setting(*one), chosen.samples, chosen.seed) for j, one in enumerate(every)][:: chosen.only or 1]
    with multiprocessing.Pool(chosen.processes) as pool:
        rows = list(pool.imap(sampled, tasks))
    told: dict[str, Any] = {"network": [LO, HI], "rounds": ROUNDS, "r0": R0, "rstar": RSTAR, "seed": chosen.seed}
    told |= {"settings": len(rows), "tries": sum(row["tries"] for row in rows)}
    told |= {"worse_than_bound": sum(row["worse_than_bound"] for row in rows), "rows": rows}
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "pep-networks-samples.json").write_text(json.dumps(told, indent=1))
    print(f"{told['tries']} tries in {told['settings']} settings, {told['worse_than_bound']} worse than their bound")


if __name__ == "__main__":
    main()
