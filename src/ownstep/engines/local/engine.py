"""The local engine: all devices in this process, one pass over the data a round."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.engines import checkpoint as ckpt
from ownstep.engines.arguments import check_run
from ownstep.engines.local.answering import Answered, Answering
from ownstep.engines.participation import Participation
from ownstep.history import COLUMNS, History
from ownstep.methods import METHODS, Ask, Method, Watch, key_of, norm
from ownstep.plan import Devices, Plan, plan
from ownstep.problems.base import Problem
from ownstep.smoothness import Smoothness, measure
from ownstep.support.errors import InvalidInput, OwnstepError
from ownstep.support.progress import Bar
from ownstep.support.threads import calm_blas
from ownstep.support.vectors import like, to_numpy

CHECKPOINT_SECONDS = 3.0
DIVERGED = 1e4
"""A run has diverged once f(x^k) exceeds f(x^0) by this many times max(1, |f(x^0)|). Methods that need no constant are
let go on: they find out about a curvature by trying, and come back."""
FEWEST_JUDGED = 10
"""Rounds that must have been run, and be looked at, before a finished run is called divergent."""


def describe(problem: Problem, smoothness: Smoothness | str = "exact") -> Plan:
    """Weights from the problem, constants from a measurement: what methods are started with.

    With ``"adaptive"`` nothing is measured: enough for methods that need no constant (``constant_free``). A problem
    whose data is elsewhere describes itself.
    """
    if smoothness == "adaptive":
        ones = np.full(len(problem.weights), max(1.0, problem.strong_convexity))
        smoothness = Smoothness(ones, "unknown", "not measured: placeholders for methods that measure on their way")
    if hasattr(problem, "describe"):
        told: Plan = problem.describe(smoothness)
        return told
    measured = measure(smoothness, problem) if isinstance(smoothness, str) else smoothness
    return plan(problem.weights, measured, problem.strong_convexity, problem.names)


def run(
    method: Method,
    problem: Problem,
    rounds: int,
    *,
    smoothness: Smoothness | str = "exact",
    devices: Devices | None = None,
    x0: Any = None,
    participation: Participation | None = None,
    target: float | None = None,
    gradient_tolerance: float | None = None,
    checkpoint: str | Path | None = None,
    progress: bool | None = None,
    name: str | None = None,
    measure_gradient: bool = False,
    seed: int = 0,
    search_target: float | None = None,
    observe: Callable[[int, Any], None] | None = None,
) -> History:
    """Run a method on a problem and record every round.

    Parameters
    ----------
    method, problem, rounds : what to run, on what, and K in Algorithm 1.
    smoothness : a measurement, or how to make one; not used when ``devices`` is given, nor by methods that need no
        constant.
    x0 : the start; ``problem.x0()`` by default.
    participation : who takes part in each round; everyone by default.
    target : stop once f(x^k) is at most this.
    gradient_tolerance : stop once ||grad f(x^k)|| is at most this.
    checkpoint : a file written every few seconds and on Ctrl-C. If it exists, the run goes on from it, and its
        history is the one an unbroken run would have given.
    progress : draw a progress bar; only on a terminal by default.
    name : label of the history; the method by default.
    measure_gradient : record ||grad f(x^k)|| in every round. It is free wherever grad f is what the method asks
        for; in Algorithm 1's local phase it takes a second sum in the same pass, and is nan unless asked for here.
    seed, search_target : of the search behind ``GD("tuned")``, and the f it races to; ``target`` by default.
    observe : called with (k, x^k) for every iterate, to measure along the way; it must not change x.

    Returns
    -------
    History. A run that meets NaN, diverges, or is interrupted still returns one: ``stopped`` says why.
    """
    check_run(
        method, problem, rounds, devices=devices, participation=participation, target=target, seed=seed, x0=x0,
        gradient_tolerance=gradient_tolerance,
    )  # fmt: skip
    if devices is None:
        needed = "adaptive" if getattr(method, "constant_free", False) else smoothness
        devices = describe(problem, needed).devices
    tuning: dict[str, Any] = {}
    if getattr(method, "step", None) == "tuned":
        from ownstep.engines.tuning import tune_step

        goal = target if search_target is None else search_target
        tuned = tune_step(
            problem,
            rounds,
            devices=devices,
            x0=x0,
            target=goal,
            participation=participation,
            seed=seed,
            progress=progress,
        )
        method, tuning = tuned.method, {"key": key_of(method, METHODS), "tuning": tuned.to_dict()}
    start = first_point(problem, x0)
    measured = measure_gradient or gradient_tolerance is not None
    loop = Loop(method, problem, devices, start, participation, name or repr(method), tuning, measured)
    if checkpoint is not None and Path(checkpoint).exists():
        loop.resume(Path(checkpoint))
        if loop.k > rounds:
            raise InvalidInput(f"rounds={rounds}, but the checkpoint {str(checkpoint)!r} already has {loop.k}")
    saved = time.monotonic()
    with calm_blas(problem.work), Bar(loop.name, rounds, progress) as bar:
        try:
            while True:
                done = loop.finished(rounds, target, gradient_tolerance)
                if observe is not None:
                    observe(loop.k, loop.method.point(loop.state))
                if done:
                    break
                loop.advance()
                bar.update(loop.k, f"f = {loop.columns['value'][-1]:.6g} ({loop.columns['phase'][-1]})")
                if checkpoint is not None and time.monotonic() - saved > CHECKPOINT_SECONDS:
                    loop.save(Path(checkpoint))
                    saved = time.monotonic()
        except KeyboardInterrupt:
            loop.interrupt()
    if checkpoint is not None:
        loop.save(Path(checkpoint))
    return loop.history()


class Loop:
    """One run in progress. Between two calls it is always consistent, so it can be saved there."""

    def __init__(
        self,
        method: Method,
        problem: Problem,
        devices: Devices,
        x0: Any,
        participation: Participation | None,
        name: str,
        extra: dict[str, Any],
        measure_gradient: bool,
    ) -> None:
        self.method, self.problem, self.devices, self.participation, self.name = (
            method, problem, devices, participation, name,
        )  # fmt: skip
        if participation is not None and getattr(method, "needs_everyone", False):
            raise InvalidInput(f"{method!r} needs every device in every round: no partial participation")
        if getattr(problem, "batch", None) is not None and getattr(method, "searches", False):
            raise InvalidInput(
                f"{method!r} compares two points of one loss, which mini-batches change: use full batches"
            )
        missing = None if participation is None else participation.missing
        self.answering = Answering(problem, missing, measure_gradient)
        self.sampled = hasattr(problem, "begin_round")  # mini-batches are drawn from (seed, k)
        self.x0 = x0
        self.state = method.start(x0, devices)
        self.k, self.stopped = 0, ""
        self.partial = participation is not None
        self.notes: dict[str, Any] = {}  # plain data that a checkpoint carries along
        self.columns: dict[str, list[Any]] = {c: [] for c in COLUMNS}
        self.took_part: list[NDArray[np.bool_]] = []
        self.best_x, self.best_value = x0, np.inf
        self.settings = {
            "method": repr(method),
            "problem": getattr(problem, "kind", type(problem).__name__),
            "devices": len(devices),
            "dim": problem.dim,
            "participation": repr(participation) if participation else None,
        }
        self.fingerprint = self.settings | {"data": digest(devices.weights, devices.L, x0)}
        self.fingerprint |= {"setting": getattr(problem, "settings", None)}
        self.settings |= {"key": key_of(method, METHODS)} | extra | getattr(problem, "settings", {})

    def evaluate(self) -> None:
        """Ask, evaluate, and record what the round sees; nothing moves yet."""
        began = time.perf_counter()
        if self.sampled:
            self.problem.begin_round(self.k)  # type: ignore[attr-defined]
        ask, weights = self.method.ask(self.state), self.problem.weights
        present = np.ones(len(weights), bool)
        if self.participation is not None:
            present = self.participation.present(self.k, len(weights))
        seen = self.answering(ask, present)
        took = time.perf_counter() - began  # what follows is measured for the record, not part of the method
        self.answer = seen.answer
        point, value, gradient_norm = self.look(ask, seen)
        row = {
            "value": value,
            "gradient_norm": gradient_norm,
            "bytes_up": int(seen.up.sum()),
            "bytes_down": int(seen.down.sum()),
        }
        self.record(row, point, present, took)

    def record(self, row: dict[str, Any], point: Any, present: NDArray[np.bool_], took: float) -> None:
        """Write down what the round at x^k, the point, saw, and who took part in it."""
        progress = self.method.progress(self.state)
        row |= {
            "phase": progress.phase,
            "step": progress.step,
            "participants": int(present.sum()),
            "seconds": took,
        }
        for column, entry in row.items():
            self.columns[column].append(entry)
        if row["value"] < self.best_value:
            self.best_x, self.best_value = point, row["value"]
        self.present = present

    def look(self, ask: Ask, seen: Answered) -> tuple[Any, float, float]:
        """(x^k, f(x^k), ||grad f(x^k)||), measured where the method stands, not where it looked."""
        point, weights = self.method.point(self.state), self.problem.weights
        if seen.losses is not None and point is ask.x:
            return point, float(weights @ seen.losses), seen.gradient_norm
        losses, gradient = self.problem.mix(point, weights)
        return point, float(weights @ losses), norm(gradient)

    def finished(self, rounds: int, target: float | None, gradient_tolerance: float | None) -> bool:
        """Evaluate the present iterate, and say whether it is the last."""
        self.evaluate()
        return self.verdict(rounds, target, gradient_tolerance)

    def verdict(self, rounds: int, target: float | None, gradient_tolerance: float | None) -> bool:
        """Is the iterate that was evaluated the last one, and why?"""
        value, first = self.columns["value"][-1], self.columns["value"][0]
        recovers = getattr(self.method, "constant_free", False)
        gradient_norm = self.columns["gradient_norm"][-1]
        refused = getattr(self.method, "searches", False) and np.isfinite(first) and self.k < rounds
        if not np.isfinite(value) and not refused:
            self._stop(f"f(x) is {value} at round {self.k}")
        elif value - first > DIVERGED * max(1.0, abs(first)) and not recovers:
            self._stop(
                f"diverged: f(x) rose from {first:.4g} to {value:.4g} by round {self.k}; "
                "the step is too long, so some smoothness constant is too small"
            )
        elif target is not None and value <= target:
            self._stop(f"f(x) = {value:.10g} reached the target {target:.10g}")
        elif gradient_tolerance is not None and gradient_norm <= gradient_tolerance:
            self._stop(f"||grad f(x)|| = {gradient_norm:.3g} is at most {gradient_tolerance:g}")
        elif self.k >= rounds:
            self._stop(self._worse_than_its_start() or f"all {rounds} rounds done")
        return bool(self.stopped)

    def _worse_than_its_start(self) -> str:
        """Why a run whose last tenth never came back near f(x^0) is called divergent; nothing of any other.

        Losses that grow like a line, as the logistic one, never reach :data:`DIVERGED` however far the iterates swing.
        """
        values = np.asarray(self.columns["value"], float)
        last = values[-max(FEWEST_JUDGED, self.k // 10) :]
        first = abs(values[0])
        if self.k < FEWEST_JUDGED or not first > 0 or not np.nanmin(last) - values[0] > first:
            return ""
        return (
            f"diverged: all {self.k} rounds done, but f(x) rose from {values[0]:.4g} to {values[-1]:.4g} and stayed at "
            f"more than twice its start for the last {len(last)} rounds; the step is too long"
        )

    def advance(self) -> None:
        """Tell the method; the round is complete."""
        began = time.perf_counter()
        state = self.method.tell(self.state, self.answer)
        self.columns["seconds"][-1] += time.perf_counter() - began
        if self.partial:
            self.took_part.append(self.present)
        self.state, self.k = state, self.k + 1

    def interrupt(self) -> None:
        """Ctrl-C: forget a half-evaluated round and stop at the iterate the last complete one left."""
        for entries in (*self.columns.values(), self.took_part):
            del entries[self.k :]
        self.evaluate()
        self._stop(f"interrupted after {self.k} rounds")

    def save(self, path: Path) -> None:
        """Write a checkpoint of the last complete round."""
        arrays = {c: np.asarray(v[: self.k]) for c, v in self.columns.items()}
        arrays |= {"took_part": np.asarray(self.took_part, bool), "best_x": to_numpy(self.best_x)}
        if self.answering.last is not None:
            arrays["last"] = to_numpy(self.answering.last)
        arrays |= self.answering.memory.arrays() | self.answering.sketching.arrays()
        about = {"k": self.k, "best_value": self.best_value, "fingerprint": self.fingerprint, "start": self.signature}
        about |= {"notes": self.notes}
        ckpt.save(path, self.state, about, arrays)

    def resume(self, path: Path, shown: Path | None = None) -> None:
        """Continue from a checkpoint of the same method, problem and start; errors call it ``shown``."""
        about = ckpt.about(path, shown)
        differs = [key for key, value in self.fingerprint.items() if about["fingerprint"].get(key) != value]
        if not differs and not np.allclose(about["start"], self.signature, rtol=1e-5, atol=1e-9):
            differs = ["problem"]
        if differs:
            raise OwnstepError(
                f"the checkpoint {str(shown or path)!r} is of another run (its {', '.join(differs)} differs); "
                "it was left alone: name another file or remove it"
            )
        state, about, arrays = ckpt.load(path, self.state, shown)
        self.state, self.k, self.best_value = state, about["k"], about["best_value"]
        self.notes = about.get("notes", {})
        self.best_x = like(arrays.pop("best_x"), self.best_x)
        self.took_part = list(arrays.pop("took_part"))
        if "last" in arrays:
            self.answering.last = like(arrays.pop("last"), self.best_x)
        self.answering.memory.restore(arrays, self.best_x)
        self.answering.sketching.restore(arrays, self.best_x)
        self.columns = {c: list(arrays[c]) for c in COLUMNS}

    @cached_property
    def signature(self) -> list[float]:
        """What another dataset or split would not give: f_i at x^0, and grad f there along a fixed direction."""
        if self.sampled:
            self.problem.begin_round(0)  # type: ignore[attr-defined]
        losses, gradient = self.problem.mix(self.x0, self.problem.weights)
        direction = np.random.default_rng(0).standard_normal(self.problem.dim)
        return [*losses.tolist(), float(to_numpy(gradient).astype(float) @ direction)]

    def history(self) -> History:
        """What happened, as data."""
        watch = getattr(self.state, "watch", Watch())
        columns = {c: np.asarray(v, dtype=DTYPES.get(c, float)) for c, v in self.columns.items()}
        who = np.asarray(self.took_part, bool) if self.partial else None
        x = to_numpy(self.method.point(self.state))
        ask, settings = self.method.ask(self.state), dict(self.settings)
        if ask.local is not None:
            settings["local_steps"] = np.asarray(ask.local.steps).tolist()
        if ranks := self.answering.sketching.ranks:
            settings["sketch_ranks"] = [min(ranks), max(ranks)]
        if ask.links is not None:
            settings["vectors_sent"] = ask.links.sum(axis=1).tolist()
        return History(
            self.name,
            columns,
            x,
            to_numpy(self.best_x),
            self.stopped,
            watch.fired,
            watch.why,
            who,
            settings,
        )

    def _stop(self, why: str) -> None:
        self.stopped = why
        for column, last in {
            "phase": "end",
            "step": np.nan,
            "participants": 0,
            "bytes_up": 0,
            "bytes_down": 0,
        }.items():
            self.columns[column][-1] = last


DTYPES: dict[str, Any] = {
    "phase": "U6",
    "participants": np.int64,
    "bytes_up": np.int64,
    "bytes_down": np.int64,
}


def first_point(problem: Problem, x0: Any) -> Any:
    """The start that was given, checked, or the problem's own."""
    if x0 is None:
        return problem.x0()
    if np.shape(x0) != (problem.dim,):
        raise InvalidInput(f"x0 must have shape ({problem.dim},), got {np.shape(x0)}")
    return x0


def digest(*arrays: Any) -> str:
    """A short hash of the numbers of some arrays."""
    sha = hashlib.sha256()
    for array in arrays:
        sha.update(np.ascontiguousarray(to_numpy(array)).tobytes())
    return sha.hexdigest()[:16]
