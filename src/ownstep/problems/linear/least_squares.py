"""Least squares with an L2 term: the problem whose every fixed point is known in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.problems.linear.model import LinearModel
from ownstep.support.errors import InvalidInput

Array = NDArray[Any]


class LeastSquares(LinearModel):
    """Ridge regression.

        f_i(x) = (1/n_i) sum_j (a_j^T x - y_j)^2 / 2 + mu/2 ||x||^2

    Parameters are those of :class:`~ownstep.problems.linear.model.LinearModel`.
    """

    curvature = 1.0
    curvature_kind = "exact"

    def _prepare(self, A: Any, y: Array) -> tuple[Any, Array]:
        try:
            y = y.astype(A.dtype, casting="same_kind") if y.dtype.kind in "biuf" else y.astype(object).astype(A.dtype)
        except (TypeError, ValueError):
            raise InvalidInput(f"targets must be real numbers, got {y.ravel()[0]!r} and others of {y.dtype}") from None
        if not np.isfinite(y).all():
            raise InvalidInput(f"targets must be finite, got {y[~np.isfinite(y)][0]}")
        return A, y

    def _pointwise(self, z: Array, block: Any) -> tuple[Array, Array]:
        residual = z - self._y[block]
        return residual**2 / 2, residual

    def _second(self, z: Array, u: Array) -> Array:
        return u
