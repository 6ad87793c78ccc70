"""The small problems that devices solve on their own; see :class:`~ownstep.methods.base.SolveWork`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.methods.base import SolveWork
from ownstep.methods.pooled.newton import newton_step
from ownstep.support.errors import InvalidInput

Array = NDArray[np.float64]
DENSE = 400
"""Up to this size a device's Hessian is written out; beyond, conjugate gradients use its products."""
LOOSE, TIGHT, MOST = 1e-6, 1e-12, 50
"""Of conjugate gradients and of a device's Newton steps, both relative; Newton steps at most."""


def solved(problem: Any, x: Any, work: SolveWork, mix: Array) -> Any:
    """sum_i c_i p_i over the devices with c_i not 0."""
    if not hasattr(problem, "only"):
        raise InvalidInput(
            f"{type(problem).__name__} has no devices that solve problems of their own; LBFGS() needs gradients alone"
        )
    total = np.zeros(problem.dim)
    for i in np.flatnonzero(mix):
        one = problem.only(int(i))
        p = _whole(one, x, work) if work.whole else _newton(one, x, work.vector, work.prox)
        total += float(mix[i]) * p
    return total.astype(x.dtype)


def _newton(one: Any, x: Array, vector: Array, prox: float) -> Array:
    """(H_i + prox I)^{-1} vector."""
    if one.dim <= DENSE:
        H = one.hessian(x, np.ones(1)) + prox * np.eye(one.dim)
        return -newton_step(H[np.triu_indices(one.dim)], np.asarray(vector, float))
    from scipy.sparse.linalg import LinearOperator, cg  # here, so that the folder needs numpy alone

    product = LinearOperator(
        (one.dim,) * 2, matvec=lambda v: one.hessian_product(x, np.ravel(v)) + prox * np.ravel(v), dtype=float
    )
    return np.asarray(cg(product, np.asarray(vector, float), rtol=LOOSE, maxiter=one.dim)[0])


def _whole(one: Any, x: Array, work: SolveWork) -> Array:
    """The move x - argmin_y f_i(y) - <grad f_i(x) - vector, y> + prox/2 ||y - x||^2, by damped Newton steps."""
    y, ones = np.asarray(x, float), np.ones(1)
    shift = one.mix(y, ones)[1] - work.vector

    def model(point: Array) -> tuple[float, Array]:
        losses, slope = one.mix(point, ones)
        far = point - x
        value = float(losses[0]) - float(shift @ point) + work.prox / 2 * float(far @ far)
        return value, slope - shift + work.prox * far

    value, gradient = model(y)
    goal = TIGHT * float(np.linalg.norm(gradient))
    for _ in range(MOST):
        if np.linalg.norm(gradient) <= goal:
            break
        p, t = _newton(one, y, gradient, work.prox), 1.0
        while t > 1e-8:
            lower, slope = model(y - t * p)
            if lower <= value - 1e-4 * t * float(gradient @ p) + 1e-15 * abs(value):
                break
            t /= 2
        if t <= 1e-8:
            break
        y, value, gradient = y - t * p, lower, slope
    return np.asarray(x - y)
