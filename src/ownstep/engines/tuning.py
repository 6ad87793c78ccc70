"""The best settings of a method on a given problem, and what it cost to find them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np

from ownstep.engines.arguments import check_method
from ownstep.engines.local.engine import describe, run
from ownstep.engines.participation import Participation
from ownstep.history import History, finite
from ownstep.methods import GD, Method
from ownstep.plan import Devices
from ownstep.problems.base import Problem
from ownstep.support.checks import generator
from ownstep.support.errors import InvalidInput
from ownstep.support.progress import Bar

OCTAVES = (-1.0, 6.0)
"""Steps from half to 64 times 1/L: on real losses the best constant step is often far above 1/L."""

SCALES = tuple(2.0**o for o in range(-2, 7))
"""Factors on the steps of methods without a setting of their own: the octaves every other step is searched over."""

Settings = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Tuned:
    """The best settings of a search, and the rounds that the search took."""

    method: Any
    settings: Settings
    trials: tuple[tuple[Settings, int, float], ...]
    """(settings, rounds run, best f reached) for every candidate, in the order tried."""

    @property
    def step(self) -> float:
        """The step that won, where a step was searched for."""
        return dict(self.settings)["step"]

    @property
    def rounds_spent(self) -> int:
        """Rounds of the whole search: the price of tuning."""
        return sum(rounds for _, rounds, _ in self.trials)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for reports."""
        trials = [dict(s) | {"rounds": r, "best_value": finite(v)} for s, r, v in self.trials]
        return dict(self.settings) | {"rounds_spent": self.rounds_spent, "trials": trials}


class _Race:
    """Candidates tried one after the other; who reaches the target sets the limit for those who follow."""

    def __init__(
        self,
        method: Any,
        problem: Problem,
        rounds: int,
        devices: Devices | None,
        target: float | None,
        engine: Callable[..., Any] = run,
        **options: Any,
    ) -> None:
        self.devices = describe(problem).devices if devices is None else devices
        self.engine = engine
        self.method, self.problem, self.limit, self.target, self.options = method, problem, rounds, target, options
        self.scores: dict[Settings, tuple[float, float]] = {}
        self.trials: list[tuple[Settings, int, float]] = []

    def attempt(self, **settings: float) -> tuple[float, float]:
        """Run one candidate; smaller scores are better: rounds to the target, then the lowest f at the end."""
        return self.attempt_as(replace(self.method, **settings), tuple(settings.items()))

    def attempt_as(self, candidate: Any, key: Settings) -> tuple[float, float]:
        """Run one candidate that is known by some settings."""
        history: History = self.engine(
            candidate,
            self.problem,
            self.limit,
            devices=self.devices,
            target=self.target,
            progress=False,
            **self.options,
        )
        last = float(history.value[-1])
        reached = self.target is not None and last <= self.target
        if reached:
            self.limit = min(self.limit, history.rounds)
        self.trials.append((key, history.rounds, history.best_value))
        self.scores[key] = (history.rounds if reached else np.inf, last if np.isfinite(last) else np.inf)
        return self.scores[key]

    def result(self) -> Tuned:
        """The best so far."""
        best = min(self.scores, key=lambda key: self.scores[key])
        return Tuned(replace(self.method, **dict(best)), best, tuple(self.trials))


def tune(
    method: Method,
    problem: Problem,
    rounds: int,
    *,
    grid: Mapping[str, Sequence[float]] | None = None,
    budget: int | None = None,
    devices: Devices | None = None,
    x0: Any = None,
    participation: Participation | None = None,
    target: float | None = None,
    seed: int = 0,
    progress: bool | None = None,
    engine: Callable[..., Any] = run,
) -> Tuned:
    """Search a grid of a method's settings.

    Parameters
    ----------
    grid : values by name of a parameter; by default the method's own ``search_space``, which follows its paper.
    budget : try at most so many points of the grid: half of them drawn with ``seed``, the others neighbours of the
        best so far; all of them by default.
    target : the winner needs the fewest rounds to it; without one, or if none arrives, it has the lowest f after
        ``rounds``. Candidates are stopped as soon as they cannot win.
    engine : who runs the candidates, with the arguments of :func:`ownstep.engines.run`.
    """
    check_method(method)
    race = _Race(method, problem, rounds, devices, target, engine, x0=x0, participation=participation)
    space: Any = getattr(method, "search_space", None)
    if grid is None and space is None:
        raise InvalidInput(f"{method!r} has no search space of its own: give tune(...) a grid")
    values = {name: tuple(v) for name, v in (space(race.devices) if grid is None else grid).items()}
    if not values or not all(values.values()):
        raise InvalidInput(f"a grid needs a value for every parameter, got {dict(values)!r}")
    points = list(product(*(range(len(v)) for v in values.values())))
    count = len(points) if budget is None else min(budget, len(points))
    if count < 1:
        raise InvalidInput(f"a search needs a budget of at least 1, got {budget!r}")
    order = [points[i] for i in generator(seed).permutation(len(points))]
    drawn = order if count == len(points) else order[: -(-count // 2)]
    scores: dict[tuple[int, ...], tuple[float, float]] = {}

    def attempt(point: tuple[int, ...]) -> None:
        scores[point] = race.attempt(**{n: float(v[i]) for (n, v), i in zip(values.items(), point, strict=True)})

    with Bar(f"tuning {type(method).__name__}", count, progress) as bar:
        for point in drawn:
            attempt(point)
            bar.update(len(scores))
        while len(scores) < count:
            attempt(_nearest(min(scores, key=lambda p: scores[p]), [p for p in order if p not in scores]))
            bar.update(len(scores))
    return race.result()


def replayed(trials: Mapping[str, Sequence[float]]) -> Callable[..., Any]:
    """An engine that answers from runs that are done: f(x^0), f(x^1), ... by the ``repr`` of their method.

    They have run for as many rounds as the search allows, or to its target. A shorter run is the beginning of a longer
    one, so trials can run side by side, in any order, and the search finds what it finds alone.
    """

    def engine(method: Any, problem: Problem, rounds: int, **_: Any) -> Any:
        values = np.asarray(trials[repr(method)][: rounds + 1], float)
        best = np.nanmin(values) if np.isfinite(values).any() else np.inf
        return SimpleNamespace(value=values, rounds=len(values) - 1, best_value=float(best))

    return engine


def tune_scale(
    method: Method,
    problem: Problem,
    rounds: int,
    *,
    devices: Devices,
    budget: int = len(SCALES),
    x0: Any = None,
    participation: Participation | None = None,
    target: float | None = None,
    engine: Callable[..., Any] = run,
) -> tuple[Tuned, Devices]:
    """Search one factor on all steps of a method that takes them from the constants L_i, as Algorithm 1 does.

    It has no setting of its own, so this is its share of a fair search: every L_i divided by 1/4 to 64. Returns what
    was found and the devices to run with.
    """
    race = _Race(method, problem, rounds, devices, target, engine, x0=x0, participation=participation)
    chosen = sorted(SCALES, key=lambda s: abs(np.log2(s) - 2))[: max(1, budget)]  # from the middle outwards
    for scale in chosen:
        race.devices = scaled(devices, scale)
        race.attempt_as(method, (("scale", scale),))
    best = min(race.scores, key=lambda key: race.scores[key])
    return Tuned(method, best, tuple(race.trials)), scaled(devices, dict(best)["scale"])


def scaled(devices: Devices, scale: float) -> Devices:
    """The devices with every constant divided by a factor, so that all steps are that much longer."""
    pooled = None if devices.L_pooled is None else devices.L_pooled / scale
    return Devices(devices.weights, devices.L / scale, np.minimum(devices.mu, devices.L / scale), devices.names, pooled)


def _nearest(best: tuple[int, ...], left: list[tuple[int, ...]]) -> tuple[int, ...]:
    return min(left, key=lambda p: sum((a - b) ** 2 for a, b in zip(best, p, strict=True)))


def tune_step(
    problem: Problem,
    rounds: int,
    *,
    devices: Devices | None = None,
    x0: Any = None,
    target: float | None = None,
    participation: Participation | None = None,
    seed: int = 0,
    coarse: int = 14,
    fine: int = 6,
    progress: bool | None = None,
    engine: Callable[..., Any] = run,
) -> Tuned:
    """Search constant steps for gradient descent, on a log scale around 1/L.

    ``coarse`` candidates are drawn one from each of as many equal slices of the range, then ``fine`` more between the
    best one's neighbours. The winner is that of :func:`tune`.
    """
    race = _Race(GD(), problem, rounds, devices, target, engine, x0=x0, participation=participation)
    rng = generator(seed)
    L = race.devices.L_pooled or race.devices.L_bar
    edges = np.linspace(*OCTAVES, coarse + 1)
    found: dict[float, tuple[float, float]] = {}

    def attempt(octave: float) -> None:
        found[octave] = race.attempt(step=float(2.0**octave / L))

    with Bar("tuning the step", coarse + fine, progress) as bar:
        # From the middle outwards: an early good candidate cuts the others short.
        for i in sorted(range(coarse), key=lambda i: abs(i - coarse // 2)):
            attempt(rng.uniform(edges[i], edges[i + 1]))
            bar.update(len(found))
        for _ in range(fine):
            tried = sorted(found)
            at = tried.index(min(tried, key=lambda o: found[o]))
            low, high = tried[max(at - 1, 0)], tried[min(at + 1, len(tried) - 1)]
            attempt(rng.uniform(low, high))
            bar.update(len(found))
    return race.result()
