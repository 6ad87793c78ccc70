"""The reference solution that every comparison is measured against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, cg

from ownstep.problems.linear.model import LinearModel
from ownstep.support.errors import OwnstepError
from ownstep.support.threads import calm_blas


@dataclass(frozen=True, eq=False)
class Optimum:
    """A minimiser x*, f(x*), and how flat f is there."""

    x: NDArray[Any]
    value: float
    gradient_norm: float


def optimum(problem: LinearModel, tolerance: float = 1e-11, max_steps: int = 100) -> Optimum:
    """Minimise f by damped Newton steps, each solved by conjugate gradients on Hessian products.

    Stops when ||grad f|| <= ``tolerance`` max(1, ||grad f(0)||), or when rounding allows no further decrease.
    With strong convexity mu the value is then within ||grad f||^2 / (2 mu) of the minimum.
    """
    with calm_blas(problem.work):
        return _newton(problem, tolerance, max_steps)


def _newton(problem: LinearModel, tolerance: float, max_steps: int) -> Optimum:
    x = problem.x0().astype(float)
    weights = problem.weights
    losses, gradient = problem.mix(x, weights)
    value = float(weights @ losses)
    goal = tolerance * max(1.0, float(np.linalg.norm(gradient)))
    for _ in range(max_steps):
        size = float(np.linalg.norm(gradient))
        if size <= goal:
            break
        hessian = LinearOperator((problem.dim,) * 2, matvec=_product(problem, x), dtype=float)
        # Solving as loosely as the gradient is large keeps early steps cheap and the last ones quadratic.
        step, _ = cg(hessian, -gradient, rtol=min(1e-2, size), maxiter=10 * problem.dim)
        slope, length = float(gradient @ step), 1.0
        while True:
            losses, trial = problem.mix(x + length * step, weights)
            if float(weights @ losses) <= value + 1e-4 * length * slope + 1e-15 * abs(value) or length < 1e-10:
                break
            length /= 2
        if not np.linalg.norm(trial) < size and float(weights @ losses) >= value:
            break
        x, value, gradient = x + length * step, float(weights @ losses), trial
    size = float(np.linalg.norm(gradient))
    if not size <= max(goal, 1e-6):
        raise OwnstepError(
            f"no minimiser found: ||grad f|| is still {size:.2g} after {max_steps} Newton steps. "
            "With mu = 0 a separable problem has none; give the problem a positive mu."
        )
    return Optimum(x, value, size)


def _product(problem: LinearModel, x: NDArray[Any]) -> Any:
    return lambda v: problem.hessian_product(x, np.ravel(v))
