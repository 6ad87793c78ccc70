"""A metric kept thin: a diagonal and a few rows, inverted by Woodbury's formula.

    M = D + B^T B,        M^{-1} v = D^{-1} v - D^{-1} B^T (I + B D^{-1} B^T)^{-1} B D^{-1} v.

D has two numbers, as the last coordinates may be without penalty. Where B has more rows than columns, M itself is
factorised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.methods.base import Vector
from ownstep.methods.search.pairs import stacked
from ownstep.support.vectors import like, to_numpy

Solver = Callable[[NDArray[np.float64]], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Metric:
    """M = D + B^T B.

    Parameters
    ----------
    rows : B, (m, d).
    high, low : D is ``high`` but in the last ``free`` coordinates, where it is ``low``; both positive.
    """

    rows: Vector = field(repr=False)
    high: float
    low: float
    free: int = 0

    def inverse(self, v: Vector) -> Vector:
        """M^{-1} v."""
        if not len(self.rows):
            return self._by_diagonal(v)
        if self._tall:
            solved = self._solve(to_numpy(v).astype(float))
            return like(solved.astype(to_numpy(v[:1]).dtype), v)
        scaled = self._by_diagonal(v)
        inner = self._solve(to_numpy(self.rows @ scaled).astype(float))
        back = self.rows.T @ like(inner.astype(to_numpy(v[:1]).dtype), v)
        return scaled - self._by_diagonal(back)

    def product(self, v: Vector) -> Vector:
        """M v."""
        out = self.high * v
        if self.free:
            out[-self.free :] = self.low * v[-self.free :]
        return out + self.rows.T @ (self.rows @ v) if len(self.rows) else out

    @property
    def _tall(self) -> bool:
        return bool(self.rows.shape[0] > self.rows.shape[1])

    @cached_property
    def _solve(self) -> Solver:
        m, d = self.rows.shape
        if self._tall:
            B = to_numpy(self.rows).astype(float)
            diagonal = np.full(d, self.high)
            diagonal[d - self.free :] = self.low
            return solver(B.T @ B + np.diag(diagonal))
        halved = self.rows / self.high**0.5
        if self.free:
            halved[:, -self.free :] = self.rows[:, -self.free :] / self.low**0.5
        gram = to_numpy(halved @ halved.T).astype(float)
        return solver(gram + np.eye(m))

    def _by_diagonal(self, v: Vector) -> Vector:
        out = v / self.high
        if self.free:
            out[-self.free :] = v[-self.free :] / self.low
        return out


def compressed(rows: Vector, most: int) -> tuple[Vector, float]:
    """(At most ``most`` rows C with C^T C ~ B^T B, the trace that was lost): the leading part, a block at a time."""
    lost, kept = 0.0, rows[:0]
    for start in range(0, len(rows), most):
        block = rows[start : start + most]
        both = block if not len(kept) else stacked([kept, block])
        gram = to_numpy(both @ both.T).astype(float)
        values, W = np.linalg.eigh((gram + gram.T) / 2)
        lost += float(np.maximum(values[:-most], 0).sum()) if len(values) > most else 0.0
        turn: NDArray[Any] = W[:, -most:][:, ::-1].T.astype(to_numpy(rows[:1]).dtype)
        kept = like(turn, rows) @ both
    return kept, lost


def solver(matrix: NDArray[np.float64]) -> Solver:
    """B -> matrix^{-1} b for a positive definite matrix: by SciPy's triangular solves where SciPy is."""
    try:
        from scipy.linalg import cho_factor, cho_solve  # here, so that the folder needs numpy alone
    except ImportError:
        inverse = np.linalg.inv(np.linalg.cholesky(matrix))
        return lambda b: np.asarray(inverse.T @ (inverse @ b))
    factor = cho_factor(matrix, check_finite=False)
    return lambda b: np.asarray(cho_solve(factor, b))
