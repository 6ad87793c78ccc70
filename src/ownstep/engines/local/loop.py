"""One run in progress: ask, evaluate, record, tell; saved and resumed between two rounds."""

from __future__ import annotations

import hashlib
import time
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.engines import checkpoint as ckpt
from ownstep.engines.limits import Limits, local_steps, vectors_sent, work_of_round
from ownstep.engines.local.answering import Answered, Answering
from ownstep.engines.participation import Participation
from ownstep.history import COLUMNS, History
from ownstep.methods import METHODS, Answer, Ask, Method, Watch, key_of, norm
from ownstep.plan import Devices
from ownstep.problems.base import Problem
from ownstep.support.errors import InvalidInput, OwnstepError
from ownstep.support.files import what_ails
from ownstep.support.logs import RoundLog
from ownstep.support.vectors import is_vector, like, small_enough, to_numpy

DIVERGED = 1e4
"""A run has diverged once f(x^k) exceeds f(x^0) by this many times max(1, |f(x^0)|). Methods that need no constant are
let go on: they find out about a curvature by trying, and come back."""
NOTHING = Answer()
FEWEST_JUDGED = 10
"""Rounds that must have been run, and be looked at, before a finished run is called divergent."""


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
        self.everyone = np.ones(len(problem.weights), bool)
        self.everyone.flags.writeable = False  # one array for all rounds
        self.x0 = x0
        self.state = method.start(x0, devices)
        self.k, self.stopped = 0, ""
        self.sound = True  # False once the point has no finite loss or has diverged: then it is not written down
        self.partial = participation is not None
        self.notes: dict[str, Any] = {}  # plain data that a checkpoint carries along
        self.limits: Limits | None = None
        self.log: RoundLog | None = None
        # what rounds 0 to j - 1 spent and the lowest f in them, where something is limited
        self.sums: dict[str, list[float]] = {"bytes": [0.0], "seconds": [0.0], "lowest": [np.inf]}
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
        self.fingerprint = self.settings | {"data": digest(devices.weights, x0)}
        self.fingerprint |= {"setting": getattr(problem, "settings", None)}
        self.settings |= {"key": key_of(method, METHODS)} | extra | getattr(problem, "settings", {})

    @np.errstate(over="ignore", invalid="ignore")  # a step too long: the verdict says so, in one line
    def evaluate(self) -> None:
        """Ask, evaluate, and record what the round sees; nothing moves yet."""
        began = time.perf_counter()
        if self.sampled:
            self.problem.begin_round(self.k)  # type: ignore[attr-defined]
        ask, present = self.method.ask(self.state), self.everyone
        if self.participation is not None:
            present = self.participation.present(self.k, len(present))
        seen = self.answering(ask, present)
        took = time.perf_counter() - began  # what follows is measured for the record, not part of the method
        self.answer, self.asked = seen.answer, ask
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
            "participants": int(np.count_nonzero(present)),
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
        self.tell_log()
        return self.verdict(rounds, target, gradient_tolerance)

    def tell_log(self) -> None:
        """The round that was evaluated, to the operator's log, where there is one."""
        if self.log is None:
            return
        why = {e["site"]: e["why"] for e in self.notes.get("absences", []) if e["last"] == self.k}
        away = [name for name, here in zip(self.devices.names, self.present, strict=True) if not here]
        row = {column: entries[-1] for column, entries in self.columns.items()}
        self.log.round(self.name, self.k, row, {name: why.get(name, "") for name in away}, len(self.present))

    def verdict(self, rounds: int, target: float | None, gradient_tolerance: float | None) -> bool:
        """Is the iterate that was evaluated the last one, and why?"""
        value, first = self.columns["value"][-1], self.columns["value"][0]
        recovers = getattr(self.method, "constant_free", False)
        gradient_norm = self.columns["gradient_norm"][-1]
        refused = getattr(self.method, "searches", False) and np.isfinite(first) and self.k < rounds
        self.sound = bool(np.isfinite(value))
        if not self.sound and not refused:
            self._stop(f"f(x) is {value} at round {self.k}")
        elif self.sound and not small_enough(*vectors(self.answer)):
            self._stop(f"f(x) is {value:.6g} at round {self.k}, but {self.culprits()}")
        elif value - first > DIVERGED * max(1.0, abs(first)) and not recovers:
            self.sound = False
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
        elif self.limits is not None and (why := self.limits.exceeded(self)):
            self._stop(why)
        return bool(self.stopped)

    def _worse_than_its_start(self) -> str:
        """Why a run whose last tenth was mostly far above f(x^0) is called divergent; nothing of any other.

        Losses that grow like a line, as the logistic one, never reach :data:`DIVERGED` however far the iterates swing.
        """
        values = np.asarray(self.columns["value"], float)
        last = values[-max(FEWEST_JUDGED, self.k // 10) :]
        first = abs(values[0])
        if self.k < FEWEST_JUDGED or not first > 0 or not np.nanmedian(last) - values[0] > first:
            return ""
        return (
            f"diverged: all {self.k} rounds done, but f(x) rose from {values[0]:.4g} to {values[-1]:.4g} and was more "
            f"than twice its start for most of the last {len(last)} rounds; the step is too long"
        )

    @np.errstate(over="ignore", invalid="ignore")
    def advance(self) -> None:
        """Tell the method; the round is complete."""
        began = time.perf_counter()
        state = self.method.tell(self.state, self.answer)
        self.columns["seconds"][-1] += time.perf_counter() - began
        if self.partial:
            self.took_part.append(self.present)
        if getattr(self.method, "varying_steps", False):
            self.notes.setdefault("local_steps", []).append(local_steps(self, self.k))
        if work := work_of_round(self):
            self.notes.setdefault("extra_work", []).append([self.k, work])
        self.state, self.k = state, self.k + 1
        self.answer = NOTHING  # so that its memory can be used again

    def culprits(self) -> str:
        """Whose gradient is not finite, in words."""
        x = self.asked.x
        rows: Any = self.problem.gradients(x) if np.ndim(x) == 1 else self.answer.gradients
        bad = [name for name, row in zip(self.devices.names, rows, strict=True) if not small_enough(row)]
        if not bad:
            return "the sum of gradients is not finite, or its square is not; evaluated again it is, so it can go on"
        return (
            f"the gradient of {', '.join(bad[:5])}{' and others' * (len(bad) > 5)} is not finite, or its square is not"
        )

    def interrupt(self) -> None:
        """Ctrl-C: forget a half-evaluated round and stop at the iterate the last complete one left."""
        for entries in (*self.columns.values(), self.took_part):
            del entries[self.k :]
        self.evaluate()
        self.sound = bool(np.isfinite(self.columns["value"][-1]))
        self._stop(f"interrupted after {self.k} rounds")

    def save(self, path: Path) -> None:
        """Write a checkpoint of the last complete round; nothing of one that is not sound: the last good one stays."""
        points = [v for v in ckpt.flatten(self.state)[0].values() if v.ndim and v.shape[-1] == self.problem.dim]
        if not self.sound or not small_enough(*points):
            return
        arrays = {c: np.asarray(v[: self.k]) for c, v in self.columns.items()}
        arrays |= {"took_part": np.asarray(self.took_part, bool), "best_x": to_numpy(self.best_x)}
        if self.answering.last is not None:
            arrays["last"] = to_numpy(self.answering.last)
        arrays |= self.answering.memory.arrays() | self.answering.sketching.arrays()
        about = {"k": self.k, "best_value": self.best_value, "fingerprint": self.fingerprint, "start": self.signature}
        about |= {"notes": self.notes, "constants": self._constants()}
        ckpt.save(path, self.state, about, arrays)

    def resume(self, path: Path, shown: Path | None = None) -> None:
        """Continue from a checkpoint of the same method, problem and start; errors call it ``shown``."""
        about = ckpt.about(path, shown)
        try:
            differs = [key for key, value in self.fingerprint.items() if about["fingerprint"].get(key) != value]
            if (
                "constants" not in about
            ):  # files of old: their digest has the last bits of L, which processors disagree on
                differs = [key for key in differs if key != "data"]
            elif not _close(about["constants"], self._constants(), 0.0):
                differs.append("smoothness")
            if not differs and not _close(about["start"], self.signature):
                differs = ["problem"]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ckpt.Unreadable(f"{str(shown or path)!r} is not a readable checkpoint: {what_ails(error)}") from error
        if differs:
            raise OwnstepError(
                f"the checkpoint {str(shown or path)!r} is of another run (its {', '.join(differs)} differs); "
                "it was left alone: name another file or remove it"
            )
        state, about, arrays = ckpt.load(path, self.state, shown)
        try:
            _check_lengths(about["k"], arrays)
            best_x, took_part = like(arrays.pop("best_x"), self.best_x), list(arrays.pop("took_part"))
            last = like(arrays.pop("last"), self.best_x) if "last" in arrays else None
            columns = {c: list(arrays[c]) for c in COLUMNS}
            self.answering.memory.restore(arrays, self.best_x)
            self.answering.sketching.restore(arrays, self.best_x)
            best_value = float(about["best_value"])
        except (KeyError, TypeError, ValueError) as error:
            raise ckpt.Unreadable(f"{str(shown or path)!r} is not a readable checkpoint: {what_ails(error)}") from error
        self.state, self.k, self.best_x, self.best_value = state, about["k"], best_x, best_value
        self.notes, self.took_part, self.columns = about.get("notes", {}), took_part, columns
        if last is not None:
            self.answering.last = last

    def _constants(self) -> list[float]:
        """What other constants L_i would not give; compared to five digits, as another processor rounds otherwise."""
        L, w = self.devices.L, self.devices.weights
        return [float(n) for n in (w @ L, L.min(), L.max(), np.arange(1, len(L) + 1) @ L / len(L))]

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
        if "local_steps" in self.notes:
            settings["local_steps_by_round"] = self.notes["local_steps"]
        if "extra_work" in self.notes:
            settings["extra_work"] = self.notes["extra_work"]
        if ask.links is not None:
            settings["vectors_sent"] = vectors_sent(self)
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
            self.answer,
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


def vectors(answer: Answer) -> list[Any]:
    """Those vectors of an answer that every engine holds whole."""
    return [v for v in (answer.sum, answer.also, answer.gradients) if v is not None and is_vector(v)]


def _check_lengths(k: Any, arrays: dict[str, NDArray[Any]]) -> None:
    """One entry per round, whatever else the file says."""
    if not isinstance(k, int) or k < 0 or len(arrays["took_part"]) not in (0, k):
        raise ValueError(f"it is of round {k!r}")
    wrong = [c for c in COLUMNS if arrays[c].shape != (k,)]
    if wrong:
        raise ValueError(f"its {wrong[0]} has shape {arrays[wrong[0]].shape} after {k} rounds")


def _close(old: Any, new: list[float], zero: float = 1e-9) -> bool:
    return len(old) == len(new) and np.allclose(old, new, rtol=1e-5, atol=zero)


def digest(*arrays: Any) -> str:
    """A short hash of the numbers of some arrays."""
    sha = hashlib.sha256()
    for array in arrays:
        sha.update(np.ascontiguousarray(to_numpy(array)).tobytes())
    return sha.hexdigest()[:16]
