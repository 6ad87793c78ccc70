"""Poisson regression: counts whose logarithm of the mean is linear."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.problems.linear.model import LinearModel
from ownstep.support.errors import InvalidInput

Array = NDArray[Any]


class Poisson(LinearModel):
    """Counts with the mean exp(a_j^T x).

        f_i(x) = (1/n_i) sum_j [ exp(a_j^T x) - y_j a_j^T x ] + mu/2 ||x||^2

    The curvature of exp has no bound, so there are no constants L_i: use a method that needs none, as ``Newton()``.
    Parameters are those of :class:`~ownstep.problems.linear.model.LinearModel`.
    """

    curvature = np.inf
    curvature_kind = "upper bound"

    def _prepare(self, A: Any, y: Array) -> tuple[Any, Array]:
        y = y.astype(A.dtype)
        wrong = ~(np.isfinite(y) & (y >= 0))
        if wrong.any():
            raise InvalidInput(f"counts must be finite and at least 0, got {y[wrong][0]:g}")
        return A, y

    def _pointwise(self, z: Array, block: slice) -> tuple[Array, Array]:
        with np.errstate(over="ignore"):  # a trial too far gives inf, which a line search refuses
            mean = np.exp(z)
        return mean - self._y[block] * z, mean - self._y[block]

    def _second(self, z: Array, u: Array) -> Array:
        out: Array = np.exp(z) * u
        return out
