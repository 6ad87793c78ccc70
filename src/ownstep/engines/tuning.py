"""The best constant step for gradient descent on a given problem, and what it cost to find."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ownstep.engines.local import describe, run
from ownstep.history import History, finite
from ownstep.methods import GD
from ownstep.plan import Devices
from ownstep.problems.base import Problem
from ownstep.progress import Bar

OCTAVES = (-1.0, 6.0)
"""Steps from half to 64 times 1/L: on real losses the best constant step is often far above 1/L."""


@dataclass(frozen=True)
class Tuned:
    """The winner of a search over steps, and the rounds that were spent on all the others."""

    step: float
    trials: tuple[tuple[float, int, float], ...]
    """(step, rounds run, best f reached) for every candidate, in the order tried."""

    @property
    def method(self) -> GD:
        """Gradient descent at the step that won."""
        return GD(self.step)

    @property
    def rounds_spent(self) -> int:
        """Rounds of the whole search: the price of tuning."""
        return sum(rounds for _, rounds, _ in self.trials)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for reports."""
        return {
            "step": self.step,
            "rounds_spent": self.rounds_spent,
            "trials": [{"step": s, "rounds": r, "best_value": finite(v)} for s, r, v in self.trials],
        }


def tune_step(
    problem: Problem,
    rounds: int,
    *,
    devices: Devices | None = None,
    x0: Any = None,
    target: float | None = None,
    seed: int = 0,
    coarse: int = 14,
    fine: int = 6,
    progress: bool | None = None,
) -> Tuned:
    """Search constant steps for gradient descent, on a log scale around 1/L.

    ``coarse`` candidates are drawn one from each of as many equal slices of the range, then ``fine`` more between the
    best one's neighbours. The winner needs the fewest rounds to ``target``; without a target, or if
    none reaches it, it has the lowest f after ``rounds``. Candidates are stopped as soon as they cannot win.
    """
    devices = describe(problem).devices if devices is None else devices
    rng = np.random.default_rng(seed)
    L = devices.L_pooled or devices.L_bar
    edges = np.linspace(*OCTAVES, coarse + 1)
    found: dict[float, tuple[float, float]] = {}
    trials: list[tuple[float, int, float]] = []
    limit = rounds

    def attempt(octave: float) -> None:
        nonlocal limit
        step = float(2.0**octave / L)
        history = run(GD(step), problem, limit, devices=devices, x0=x0, target=target, progress=False)
        trials.append((step, history.rounds, history.best_value))
        found[octave] = _score(history, target)
        if target is not None and history.value[-1] <= target:
            limit = min(limit, history.rounds)

    with Bar("tuning the step", coarse + fine, progress) as bar:
        # From the middle outwards: an early good candidate cuts the others short.
        for i in sorted(range(coarse), key=lambda i: abs(i - coarse // 2)):
            attempt(rng.uniform(edges[i], edges[i + 1]))
            bar.update(len(trials))
        for _ in range(fine):
            tried = sorted(found)
            at = tried.index(min(tried, key=lambda o: found[o]))
            low, high = tried[max(at - 1, 0)], tried[min(at + 1, len(tried) - 1)]
            attempt(rng.uniform(low, high))
            bar.update(len(trials))
    return Tuned(float(2.0 ** min(found, key=lambda o: found[o]) / L), tuple(trials))


def _score(history: History, target: float | None) -> tuple[float, float]:
    """Smaller is better: rounds to the target, then the lowest f at the end."""
    reached = target is not None and history.value[-1] <= target
    last = float(history.value[-1])
    return (history.rounds if reached else np.inf, last if np.isfinite(last) else np.inf)
