"""What devices remember between two rounds to measure their own curvature; see :class:`~ownstep.methods.Ask`.

For N devices in one process that is N gradients, and one point (N points where devices may be absent, as each then
remembers where it was last asked). A device of its own keeps one gradient and one point.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.problems.base import Problem
from ownstep.support.vectors import like, to_numpy

Array = NDArray[np.float64]
Present = NDArray[np.bool_]


def secants(s: Any, y: Any) -> Array:
    """L_i = ||y_i||^2 / <y_i, s_i>, or ||y_i|| / ||s_i|| where that is not positive; nan where nothing changed."""
    products = [to_numpy((a * b).sum(-1)).astype(float) for a, b in ((y, y), (y, s), (s, s))]
    change, along, moved = (np.atleast_1d(p) for p in products)
    with np.errstate(divide="ignore", invalid="ignore"):
        L = np.where(along > 0, change / along, np.sqrt(change / moved))
    return np.where(np.isfinite(L) & (L > 0), L, np.nan)


class Memory:
    """The last point, gradient and loss of every device, and what they say about the next ones."""

    def __init__(self, problem: Problem, absences: bool) -> None:
        self.problem, self.absences = problem, absences
        self.points: Any = None
        self.gradients: Any = None
        self.losses = np.zeros(0)
        self.known = self.fresh = np.zeros(len(problem.weights), bool)
        self.curvature, self.previous = np.full(len(problem.weights), np.nan), np.nan

    def measure(self, x: Any, losses: Array, gradients: Any, present: Present) -> tuple[Array, float]:
        """(L_i of every device, their mean loss where they were before), and remember this round instead.

        Asked about the same point again, as when a stopped run goes on, the answer is the same again.
        """
        weights = self.problem.weights
        if self.points is not None:
            moved = to_numpy(((x - self.points) ** 2).sum(-1)) > 0
            if not (present & moved).any() and (present == self.fresh).all():
                return self.curvature, self.previous
        curvature, previous = np.full(len(present), np.nan), np.nan
        if self.points is not None:
            batches = getattr(self.problem, "batch", None) is not None  # f_i is another function in every round
            rows = each(self.problem, self.points)[1] if batches else self.gradients
            curvature = np.where(present & self.known, secants(x - self.points, gradients - rows), np.nan)
            if present.any() and (self.fresh | ~present).all() and not batches:
                previous = float(weights[present] @ self.losses[present] / weights[present].sum())
        self._remember(x, losses, gradients, present)
        self.curvature, self.previous = curvature, previous
        return curvature, previous

    def _remember(self, x: Any, losses: Array, gradients: Any, present: Present) -> None:
        if not self.absences:
            self.points, self.gradients, self.losses = x, gradients, losses
        else:
            if self.points is None:  # a copy of its own to write into
                self.points, self.gradients, self.losses = 0 * gradients, 0 * gradients, np.zeros(len(present))
            self.points[present], self.gradients[present] = x, gradients[present]
            self.losses[present] = losses[present]
        self.known, self.fresh = self.known | present, present.copy()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """For a checkpoint."""
        kept = {} if self.points is None else {name: to_numpy(getattr(self, name)) for name in _KEPT}
        return {f"memory_{name}": array for name, array in kept.items()}

    def restore(self, arrays: dict[str, NDArray[Any]], template: Any) -> None:
        """From a checkpoint."""
        for name in _KEPT if "memory_points" in arrays else ():
            array = arrays.pop(f"memory_{name}")
            setattr(self, name, like(array, template) if name in ("points", "gradients") else array)
        self.previous = float(self.previous)


_KEPT = ("points", "gradients", "losses", "known", "fresh", "curvature", "previous")


def each(problem: Any, x: Any) -> tuple[Array, Any]:
    """(f_i, grad f_i as rows); in one pass where the problem offers that."""
    if hasattr(problem, "each"):
        losses, rows = problem.each(x)
        return losses, rows
    return problem.mix(x, problem.weights)[0], problem.gradients(x)
