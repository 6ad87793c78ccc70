"""A fair comparison: Algorithm 1 and every baseline, on one problem, from one start, to one optimum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ownstep.engines import checkpoint as ckpt
from ownstep.engines import noise, tuning
from ownstep.engines.arguments import check_method
from ownstep.engines.limits import Limits
from ownstep.engines.local.engine import describe, run
from ownstep.engines.participation import Participation
from ownstep.history import History, finite
from ownstep.methods import (
    GD,
    ITEM,
    LBFGS,
    AdGD,
    BarzilaiBorwein,
    DeltaSGD,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedDyn,
    FedExP,
    FedNova,
    FedProx,
    FedSPS,
    FedYogi,
    Method,
    Nesterov,
    NesterovRestart,
    OwnCurvature,
    OwnStep,
    Scaffnew,
    Scaffold,
)
from ownstep.plan import Devices, Plan
from ownstep.smoothness import Smoothness
from ownstep.support.checks import whole_number
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
        "own curvature": OwnCurvature(),
    }


def rivals() -> dict[str, Method]:
    """The federated methods that a reviewer asks for, with five local steps where they have them."""
    return {
        "FedAvg": FedAvg(local_steps=5),
        "FedProx": FedProx(),
        "FedNova": FedNova(),
        "SCAFFOLD": Scaffold(),
        "FedDyn": FedDyn(),
        "Scaffnew": Scaffnew(),
        "FedAvgM": FedAvgM("mean"),
        "FedAdam": FedAdam(),
        "FedYogi": FedYogi(),
        "FedExP": FedExP(),
        "FedSPS": FedSPS(),
        "Delta-SGD": DeltaSGD(),
    }


@dataclass(frozen=True, eq=False)
class Comparison:
    """Histories of several methods on one problem, and the optimum they are measured against."""

    histories: Mapping[str, History]
    plan: Plan
    optimum: float
    tolerances: tuple[float, ...] = TOLERANCES
    reruns: Mapping[str, tuple[History, ...]] = field(default_factory=dict)

    def counts(self, tolerance: float) -> dict[str, list[int | None]]:
        """By method, the rounds to a tolerance of its run and of its reruns with other seeds."""
        return {
            name: [h.rounds_to(tolerance, self.optimum) for h in (history, *self.reruns.get(name, ()))]
            for name, history in self.histories.items()
        }

    def verdicts(self, ours: str | None = None) -> dict[str, dict[str, dict[str, Any]]]:
        """By method and tolerance: its median rounds over those of ``ours`` (the first by default), and a word.

        ``faster`` means that ``ours`` is, by more than the noise floor of the two at that tolerance, see
        :func:`ownstep.engines.noise.judge`. Without reruns the floor is 1: nothing is known of it.
        """
        name = next(iter(self.histories)) if ours is None else ours
        out: dict[str, dict[str, dict[str, Any]]] = {other: {} for other in self.histories if other != name}
        for tolerance in self.tolerances:
            counts = self.counts(tolerance)
            if name not in counts:
                raise unknown_name("method of this comparison", name, counts)
            for other, cells in out.items():
                level = noise.floor({n: counts[n] for n in (name, other)})
                ratio, word = noise.judge(counts[name], counts[other], level)
                cells[f"{tolerance:g}"] = {"ratio": ratio, "verdict": word, "floor": level}
        return out

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
                    "rounds_of_reruns": {f"{t:g}": self.counts(t)[name][1:] for t in self.tolerances},
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
        out = {"plan": self.plan.to_dict(), "optimum": self.optimum, "rows": self.rows(), "verdicts": self.verdicts()}
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
    smoothness: Smoothness | str = "auto",
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
    tune: int | None = None,
    reruns: int = 0,
    limits: Limits | None = None,
) -> Comparison:
    """Run every method from the same start until the tightest tolerance or ``rounds``.

    Parameters
    ----------
    methods : by label; :func:`baselines` by default.
    optimum : f(x*), when it is known; solved for by Newton's method otherwise.
    tolerances : relative gaps (f(x^k) - f*) / (f(x^0) - f*) whose rounds are counted.
    full : run all ``rounds`` even after the tightest tolerance was reached.
    seed : of the step search.
    checkpoint : a folder with one checkpoint per method. An interrupted comparison continues from there.
    measure_gradient : record ||grad f|| in every round; a second sum in Algorithm 1's local phase, and its seconds.
    engine : who runs them and their searches, with the arguments of :func:`ownstep.engines.run`. On a cluster every
        rank calls ``compare`` with what :func:`ownstep.engines.cluster.deal` gave it, and ``engine=cluster.run``.
    tune : search so many settings of every method first, the same number for all: the method's own ``search_space``, or
        one factor on all steps where they come from the constants alone. Its rounds are reported, not charged.
    reruns : run everything again with so many other seeds, searches included, to measure the noise floor.
    limits : a budget or patience for every run, searches not included.
    """
    if methods is not None and not isinstance(methods, Mapping):
        raise InvalidInput(f"compare takes methods by label, such as {{'GD': GD()}}, got {type(methods).__name__}")
    chosen = dict(methods) if methods is not None else baselines()
    for method in chosen.values():
        check_method(method)
    if not chosen:
        raise InvalidInput("compare needs at least one method, got none")
    whole_number("reruns", reruns, 0)
    if tune is not None:
        whole_number("tune", tune, 1)
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
    if not len(tolerances):
        raise InvalidInput("compare needs at least one tolerance, got none")
    goal = best + min(tolerances) * (start - best)
    options = {"x0": x0, "progress": progress}
    again: dict[str, list[History]] = {name: [] for name in chosen}
    for name, method in chosen.items():
        for more in range(reruns + 1):
            rule, subject, devices = noise.reseeded(participation, more), noise.reseeded(method, more), made.devices
            cost: dict[str, Any] = {}
            if tune is not None:
                subject, devices, cost = searched(
                    subject, problem, rounds, tune, devices, goal, seed + more, participation=rule, x0=x0,
                    engine=engine,
                )  # fmt: skip
            label = name if not more else f"{name}, rerun {more}"
            history = engine(
                subject,
                problem,
                rounds,
                devices=devices,
                participation=rule,
                target=None if full else goal,
                checkpoint=None if checkpoint is None else _checkpoint(checkpoint, label),
                name=name,
                measure_gradient=measure_gradient,
                seed=seed + more,
                search_target=goal,
                **options,
                **({} if limits is None else {"limits": limits}),
            )
            if history.stopped.startswith("interrupted"):
                raise KeyboardInterrupt
            again[name].append(replace(history, settings=dict(history.settings) | cost))
    if checkpoint is not None:  # nothing is left to go on from
        for file in Path(checkpoint).glob("*.ckpt.npz"):
            ckpt.remove(file)
    first = {name: histories[0] for name, histories in again.items()}
    return Comparison(first, made, best, tuple(tolerances), {n: tuple(h[1:]) for n, h in again.items() if h[1:]})


def searched(
    method: Any, problem: Any, rounds: int, budget: int, devices: Devices, goal: float, seed: int, **options: Any
) -> tuple[Method, Devices, dict[str, Any]]:
    """(the method with its best settings, the devices to run it with, what the search cost).

    Every method is given the same number of trials: its ``search_space``; the octaves of a step; or a factor on steps
    that come from the constants. Methods that need no constant and have no setting are left alone.
    """
    search = options | {"devices": devices, "target": goal}
    if getattr(method, "step", None) == "tuned":
        coarse = max(1, round(0.7 * budget))
        found = tuning.tune_step(problem, rounds, coarse=coarse, fine=budget - coarse, seed=seed, **search)
    elif hasattr(method, "search_space"):
        found = tuning.tune(method, problem, rounds, budget=budget, seed=seed, progress=False, **search)
    elif getattr(method, "constant_free", False):
        return method, devices, {}
    else:
        found, devices = tuning.tune_scale(method, problem, rounds, budget=budget, **search)
    return found.method, devices, {"tuning": found.to_dict()}


def _unique(key: str, taken: set[str]) -> str:
    """The key, numbered where it is taken already."""
    return next(k for k in (key, *(f"{key}#{i}" for i in range(2, len(taken) + 3))) if k not in taken)


def _checkpoint(folder: str | Path, name: str) -> Path:
    return Path(folder) / f"{slug(name)}.ckpt.npz"


def check_labels(names: Iterable[str]) -> None:
    """Labels become file names: two that become the same would overwrite each other's history."""
    seen: dict[str, str] = {}
    for name in names:
        if not isinstance(name, str):
            raise InvalidInput(f"labels of methods must be words, got {name!r}")
        if (other := seen.setdefault(slug(name), name)) != name:
            raise InvalidInput(f"{other!r} and {name!r} would both be kept as {slug(name)!r}: name one otherwise")


def slug(name: str) -> str:
    """A file name for a label."""
    return "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-")
