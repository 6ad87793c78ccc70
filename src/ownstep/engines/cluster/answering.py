"""Answers of devices that measure their own curvature, on many ranks: still one all-reduce of one vector.

[ sum_i c_i grad f_i | a second sum, if asked for | grad f, for the history | f_i | L_i | losses before, a rank each ]
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.engines.cluster.rows import Placement, Rows
from ownstep.engines.cluster.shared import Shared
from ownstep.engines.cluster.sketching import SharedSketching
from ownstep.engines.local.answering import Answered, Answering, local_work, server_bytes
from ownstep.engines.local.secant import Memory, each
from ownstep.engines.local.solving import solved
from ownstep.engines.participation import Missing, effective_mix
from ownstep.methods import Answer, Ask, LocalWork, alike, norm
from ownstep.methods.base import SolveWork
from ownstep.methods.local_work import lengths
from ownstep.support.errors import InvalidInput
from ownstep.support.vectors import like, to_numpy

Present = NDArray[np.bool_]


class SharedMemory(Memory):
    """What this rank's devices remember; for a checkpoint, what all do."""

    def __init__(self, shared: Shared, absences: bool) -> None:
        super().__init__(shared.problem, absences)
        self.home: Placement = shared.home
        self.whole: dict[str, NDArray[Any]] = {}
        self.previous_of_all = np.nan

    def gather(self) -> None:
        """Bring everything to rank 0, to be written; all ranks call it."""
        if self.points is None:
            return
        rows = {"gradients": Rows(self.gradients, self.home)}
        if self.absences:
            rows["points"] = Rows(self.points, self.home)
        self.whole = {name: stack.gathered() for name, stack in rows.items()}  # type: ignore[misc]
        for name in ("losses", "known", "fresh", "curvature"):
            mine = np.asarray(getattr(self, name))
            parts = [np.frombuffer(part, mine.dtype) for part in self.home.ranks.gather(mine.tobytes())]
            self.whole[name] = np.concatenate(parts)
        if not self.absences:
            self.whole["points"] = to_numpy(self.points)
        self.whole["previous"] = np.asarray(self.previous_of_all)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """For a checkpoint, after :meth:`gather`."""
        return {f"memory_{name}": array for name, array in self.whole.items()}

    def restore(self, arrays: dict[str, NDArray[Any]], template: Any) -> None:
        """From a checkpoint: this rank's devices' part of it."""
        if "memory_points" not in arrays:
            return
        mine = self.home.mine
        for name in ("gradients", "losses", "known", "fresh", "curvature"):
            part = arrays.pop(f"memory_{name}")[mine]
            setattr(self, name, like(part, template) if name == "gradients" else part)
        points = arrays.pop("memory_points")
        self.points = like(points[mine] if points.ndim == 2 else points, template)
        # The mean over ranks of the same number is that number.
        self.previous = self.previous_of_all = float(arrays.pop("memory_previous"))


class SharedAnswering(Answering):
    """As in one process, but for the asks that look at every gradient on its own."""

    problem: Shared

    def __init__(self, problem: Shared, missing: Missing | None, measure_gradient: bool = False) -> None:
        super().__init__(problem, missing, measure_gradient)
        self.memory: SharedMemory = SharedMemory(problem, missing is not None)
        self.sketching = SharedSketching(problem)

    def _solved(self, x: Any, work: SolveWork, mix: NDArray[np.float64]) -> Any:
        """Every rank's devices solve their problems; the sums of their solutions are added up."""
        shared = self.problem
        return shared.ranks.add(solved(shared.problem, x, work, mix[shared.mine]), np.zeros(0))[0]

    def _measured(self, ask: Ask, asked: NDArray[np.float64], present: Present) -> Answered:
        if ask.local is not None:
            raise InvalidInput("curvature and a second sum are of gradients at x; local steps have neither")
        shared, mine = self.problem, self.problem.mine
        weights, here, count = shared.weights, present[mine], len(shared.weights)
        losses, rows = each(shared.problem, ask.x)
        numbers = np.zeros(2 * count + shared.ranks.size)
        numbers[mine] = losses
        share = float(weights[mine][here].sum())
        if ask.curvature:
            curvature, previous = self.memory.measure(ask.x, losses, rows, here)
            numbers[count + mine] = curvature
            numbers[2 * count + shared.ranks.rank] = share * previous if share else 0.0
        seen = rows
        if self.missing == "last":
            seen = rows + 0.0
            kept = Rows(seen, shared.home)
            kept[~present] = 0 if self.last is None else self.last[~present]
            self.last = kept
        mixes = [asked] if ask.also is None else [asked, ask.also]
        if self.missing in ("rescale", "drop"):
            mixes = [effective_mix(mix, weights, present, self.missing) for mix in mixes]
        sums = alike(np.stack([mix[mine] for mix in mixes]), seen) @ seen
        gradient = alike(weights[mine][None], rows) @ rows
        shared.sent = (sums,)
        joined = np.concatenate([sums, gradient]) if isinstance(sums, np.ndarray) else _cat(sums, gradient)
        total, numbers = shared.ranks.add(joined, numbers)
        shared.ranks.bytes -= total[-1].nbytes  # grad f is for the history
        losses, curvature, before = np.split(numbers, [count, 2 * count])
        all_there = float(weights[present].sum())
        previous = float(before.sum()) / all_there if all_there else np.nan
        self.memory.previous_of_all = previous if ask.curvature else np.nan
        answer = Answer(
            total[0], self._value(losses, present), None, self._seen(present),
            None if ask.also is None else total[1], curvature if ask.curvature else None,
            previous if ask.curvature else np.nan,
        )  # fmt: skip
        return Answered(answer, losses, norm(total[-1]), *server_bytes(ask, present))

    def _moves(self, x: Any, work: LocalWork) -> tuple[NDArray[np.float64], Any, Any]:
        """Every rank walks with its own devices; the losses and grad f at x, for the history, are added up."""
        shared, mine = self.problem, self.problem.mine
        losses, rows = each(shared.problem, x)
        numbers = np.zeros(len(shared.weights))
        numbers[mine] = losses
        gradient, numbers = shared.ranks.add(alike(shared.weights[mine], rows) @ rows, numbers)
        shared.ranks.bytes -= gradient.nbytes
        shift = work.shift.block if isinstance(work.shift, Rows) else work.shift
        here = replace(replace(work, shift=None).keep(mine), shift=shift)
        return numbers, gradient, Rows(local_work(shared.problem, x, here, (losses, rows)), shared.home)

    def _squares(self, rows: Rows) -> NDArray[np.float64]:
        numbers = np.zeros(len(rows))
        numbers[self.problem.mine] = lengths(rows.block) ** 2
        return self.problem.ranks.add(np.zeros(0), numbers)[1]


def _cat(*parts: Any) -> Any:
    import torch

    return torch.cat(parts)
