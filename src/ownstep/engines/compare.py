"""A fair comparison: Algorithm 1 beside every baseline, on one problem, from one start, to one optimum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ownstep.engines import checkpoint as ckpt
from ownstep.engines.arguments import check_method
from ownstep.engines.local.engine import describe, run
from ownstep.engines.participation import Participation
from ownstep.history import History, finite
from ownstep.methods import GD, ITEM, LBFGS, AdGD, BarzilaiBorwein, Method, Nesterov, NesterovRestart, OwnStep
from ownstep.plan import Plan
from ownstep.smoothness import Smoothness
from ownstep.support.errors import InvalidInput, unknown_name

if TYPE_CHECKING:
    from ownstep.problems.linear.model import LinearModel

TOLERANCES = (1e-2, 1e-4, 1e-6)


def baselines() -> dict[str, Method]:
    """Algorithm 1 and what it must be measured against, in the order of the tables."""
    return {
        "Algorithm 1": OwnStep(),
        "GD 1/L-bar": GD("mean"),
        "GD 1/L": GD("true"),
        "GD matched step": GD("matched"),
        "GD tuned": GD("tuned"),
        "Nesterov": Nesterov(),
    }


def beyond() -> dict[str, Method]:
    """The extensions of Algorithm 1, and what they must be measured against."""
    return {
        "adaptive own steps": OwnStep(smoothness="adaptive"),
        "own steps, ITEM": OwnStep(momentum="item"),
        "own steps, Nesterov": OwnStep(momentum="nesterov"),
        "Barzilai-Borwein": BarzilaiBorwein(),
        "AdGD": AdGD(),
        "Nesterov, restart": NesterovRestart(),
        "ITEM 1/L": ITEM(),
        "ITEM 1/L-bar": ITEM("mean"),
        "L-BFGS": LBFGS(),
    }


@dataclass(frozen=True, eq=False)
class Comparison:
    """Histories of several methods on one problem, and the optimum they are measured against."""

    histories: Mapping[str, History]
    plan: Plan
    optimum: float
    tolerances: tuple[float, ...] = TOLERANCES

    def rounds(self, name: str) -> list[int | None]:
        """Rounds the named method took to each tolerance."""
        if name not in self.histories:
            raise unknown_name("method of this comparison", name, self.histories)
        return [self.histories[name].rounds_to(t, self.optimum) for t in self.tolerances]

    def rows(self) -> list[dict[str, Any]]:
        """One row per method: mean step, what it took to each tolerance, when it switched, why it stopped.

        ``key`` names the method in one unique word. ``exchanges`` counts how often the server waited for the devices:
        one per round, as every trial point of a line search is a round. ``bytes`` is what one device sent and received.
        """
        out: list[dict[str, Any]] = []
        for name, history in self.histories.items():
            tuning = history.settings.get("tuning")
            rounds = dict(zip([f"{t:g}" for t in self.tolerances], self.rounds(name), strict=True))
            out.append(
                {
                    "method": name,
                    "key": _unique(str(history.settings.get("key") or slug(name)), {row["key"] for row in out}),
                    "step": finite(float(history.columns["step"][0])) if history.rounds else None,
                    "rounds": rounds,
                    "exchanges": rounds,
                    "bytes": {t: None if k is None else history.bytes_per_device(k) for t, k in rounds.items()},
                    "seconds": {f"{t:g}": history.seconds_to(t, self.optimum) for t in self.tolerances},
                    "switched_at": history.switched_at,
                    "final_gap": float(history.gap(self.optimum)[-1]),
                    "search_rounds": tuning["rounds_spent"] if tuning else 0,
                    "stopped": history.stopped,
                }
            )
        return out

    def costs(self) -> dict[str, dict[str, float]]:
        """By method: bytes sent and received in a round, all devices together, and the median seconds of one."""
        out = {}
        for name, history in self.histories.items():
            traffic = history.columns["bytes_up"] + history.columns["bytes_down"]
            seconds = float(np.median(history.columns["seconds"]))
            out[name] = {"bytes_a_round": float(traffic.sum()) / max(1, history.rounds), "seconds_a_round": seconds}
        return out

    def to_dict(self, series: bool = False) -> dict[str, Any]:
        """Plain data: the plan, the optimum, the table, and with ``series`` every round."""
        out = {"plan": self.plan.to_dict(), "optimum": self.optimum, "rows": self.rows()}
        if series:
            out["histories"] = {n: h.to_dict() for n, h in self.histories.items()}
        return out

    def save(self, folder: str | Path) -> None:
        """Every history under its method's name."""
        for name, history in self.histories.items():
            history.save(Path(folder) / slug(name))


def compare(
    problem: LinearModel,
    methods: Mapping[str, Method] | None = None,
    rounds: int = 2000,
    *,
    smoothness: Smoothness | str = "exact",
    optimum: float | None = None,
    x0: Any = None,
    participation: Participation | None = None,
    tolerances: Sequence[float] = TOLERANCES,
    full: bool = False,
    seed: int = 0,
    checkpoint: str | Path | None = None,
    progress: bool | None = None,
    measure_gradient: bool = False,
    engine: Callable[..., History] = run,
) -> Comparison:
    """Run every method from the same start until the tightest tolerance or ``rounds``.

    Parameters
    ----------
    methods : by label; :func:`baselines` by default.
    optimum : f(x*), when it is known; solved for by Newton's method otherwise.
    tolerances : relative gaps (f(x^k) - f*) / (f(x^0) - f*) whose rounds are counted.
    full : run all ``rounds`` even after the tightest tolerance was reached.
    seed : of the step search.
    checkpoint : a folder with one checkpoint a method; an interrupted comparison goes on from there.
    measure_gradient : record ||grad f|| in every round; a second sum in Algorithm 1's local phase, and its seconds.
    engine : who runs them, with the arguments of :func:`ownstep.engines.run`.
    """
    if methods is not None and not isinstance(methods, Mapping):
        raise InvalidInput(f"compare takes methods by label, such as {{'GD': GD()}}, got {type(methods).__name__}")
    chosen = dict(methods) if methods is not None else baselines()
    for method in chosen.values():
        check_method(method)
    if not chosen:
        raise InvalidInput("compare needs at least one method, got none")
    check_labels(chosen)
    made = describe(problem, smoothness)
    if optimum is None:
        from ownstep.problems.reference import optimum as solve

        best = solve(problem).value
    else:
        best = optimum
    start = problem.value(problem.x0() if x0 is None else x0)
    if not start > best:
        raise InvalidInput(f"the start is already optimal: f(x0) = {start!r}, f* = {best!r}")
    goal = best + min(tolerances) * (start - best)
    histories: dict[str, History] = {}
    for name, method in chosen.items():
        histories[name] = engine(
            method,
            problem,
            rounds,
            devices=made.devices,
            x0=x0,
            participation=participation,
            target=None if full else goal,
            checkpoint=None if checkpoint is None else _checkpoint(checkpoint, name),
            progress=progress,
            name=name,
            measure_gradient=measure_gradient,
            seed=seed,
            search_target=goal,
        )
        if histories[name].stopped.startswith("interrupted"):
            raise KeyboardInterrupt
    if checkpoint is not None:  # nothing is left to go on from
        for name in chosen:
            ckpt.remove(_checkpoint(checkpoint, name))
    return Comparison(histories, made, best, tuple(tolerances))


def _unique(key: str, taken: set[str]) -> str:
    """The key, numbered where it is taken already."""
    return next(k for k in (key, *(f"{key}#{i}" for i in range(2, len(taken) + 3))) if k not in taken)


def _checkpoint(folder: str | Path, name: str) -> Path:
    return Path(folder) / f"{slug(name)}.ckpt.npz"


def check_labels(names: Iterable[str]) -> None:
    """Labels become file names: two that become the same would overwrite each other's history."""
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(slug(name), name)) != name:
            raise InvalidInput(f"{other!r} and {name!r} would both be kept as {slug(name)!r}: name one otherwise")


def slug(name: str) -> str:
    """A file name for a label."""
    return "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-")
