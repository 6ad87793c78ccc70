"""Random worst-case problems from a seed: devices, methods, radii and metrics of every kind, in any units."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ownstep.methods import (
    EXTRA,
    GD,
    ITEM,
    NIDS,
    OGM,
    At,
    DecentralisedGD,
    FedAvgM,
    GradientTracking,
    HeavyBall,
    Nesterov,
    Never,
    OwnStep,
    Schedule,
)  # fmt: skip
from ownstep.methods.base import Ask
from ownstep.plan import Devices

METRICS = ("value", "distance", "gradient")


@dataclass(frozen=True)
class Problem:
    """One worst case to compute."""

    method: Any
    devices: Devices
    rounds: int
    r0: float
    rstar: float
    metric: str

    def arguments(self) -> tuple:
        return (self.method, self.devices, self.rounds, self.r0, self.rstar, self.metric)

    def __str__(self) -> str:
        d = self.devices
        numbers = f"w={d.weights.tolist()}, L={d.L.tolist()}, mu={d.mu.tolist()}"
        return f"{self.method!r} on {numbers}, K={self.rounds}, r0={self.r0!r}, rstar={self.rstar!r}, {self.metric}"


@dataclass(frozen=True, eq=False)
class Anything:
    """A user's method: x^{k+1} is x^0 plus any combination of all sums told, each with any mix; looks at any point."""

    asks: tuple[tuple[float, ...], ...]
    mixes: tuple[tuple[float, ...], ...]
    unit: float

    @dataclass(frozen=True, eq=False)
    class State:
        x0: Any
        told: tuple = ()

    def start(self, x0, devices):
        return self.State(x0)

    def ask(self, state):
        return Ask(self.point(state), self.unit * np.array(self.mixes[len(state.told)]))

    def tell(self, state, answer):
        return replace(state, told=(*state.told, answer.sum))

    def point(self, state):
        x = state.x0
        for a, t in zip(self.asks[len(state.told)], state.told, strict=False):
            x = x - a * t
        return x

    def progress(self, state):
        raise NotImplementedError


def problem(seed: int) -> Problem:
    """The ``seed``-th problem: 1 to 4 classes, up to 5 devices and rounds, units from 1e-12 to 1e12."""
    rng = np.random.default_rng([17, seed])
    kinds = int(rng.integers(1, 5))
    counts = np.ones(kinds, dtype=int)
    if rng.random() < 0.3 and kinds < 4:
        counts[rng.integers(kinds)] = 2
    L = np.exp(rng.uniform(-2, 1.5, kinds))
    mu = np.zeros(kinds) if rng.random() < 0.35 else L * 10 ** rng.uniform(-3, -0.3, kinds)
    if rng.random() < 0.2:
        mu[rng.integers(kinds)] = 0.0
    weights = np.ones(kinds) if rng.random() < 0.3 else np.exp(rng.uniform(-2, 2, kinds))
    a, b = 10 ** rng.uniform(-12, 12, 2)
    w = np.repeat(weights, counts)
    devices = Devices(w / w.sum(), a * np.repeat(L, counts), a * np.repeat(mu, counts))
    rounds = int(rng.integers(0, 6 if len(devices) < 4 else 4))
    method = _method(rng, devices, rounds)
    rstar = [0.0, float(10 ** rng.uniform(-3, 0.5)), float(10 ** rng.uniform(-1, 0.2)), math.inf][rng.integers(4)]
    if math.isinf(rstar) and not isinstance(method, GD | Nesterov | HeavyBall | OGM | ITEM):
        rstar = 0.3
    return Problem(method, devices, rounds, float(b), float(b * rstar), METRICS[rng.integers(3)])


def _method(rng: np.random.Generator, devices: Devices, rounds: int) -> Any:
    n, L_bar = len(devices), devices.L_bar
    strongly = bool(devices.mu.max() > 0)
    scales = tuple(tuple(rng.uniform(0.2, 1.6, n).tolist()) for _ in range(max(rounds, 1)))
    pairs = tuple(tuple(rng.uniform(-0.1, 0.6, 2).tolist()) for _ in range(max(rounds, 1)))
    choices = [
        lambda: OwnStep(At(int(rng.integers(0, rounds + 1)))),
        lambda: OwnStep(Never()),
        lambda: OwnStep(At(int(rng.integers(0, rounds + 1))), momentum="item" if strongly else "nesterov"),
        lambda: GD(),
        lambda: GD(float(rng.uniform(0.3, 1.95) / L_bar)),
        lambda: HeavyBall(),
        lambda: Nesterov("mean"),
        lambda: OGM("mean", horizon=max(rounds, 1)),
        lambda: ITEM("mean") if strongly else OGM("mean", horizon=max(rounds, 1)),
        lambda: Schedule(scales),
        lambda: Schedule(scales, pairs),
        lambda: Anything(
            tuple(tuple(rng.uniform(-0.2, 1.2, k).tolist()) for k in range(rounds + 1)),
            tuple(tuple(rng.uniform(-0.1, 1, n).tolist()) for _ in range(rounds)),
            1 / (n * L_bar),
        ),
        lambda: DecentralisedGD(),
        lambda: GradientTracking(),
        lambda: EXTRA(),
        lambda: NIDS(),
        lambda: FedAvgM(),
    ]
    return choices[rng.integers(len(choices))]()
