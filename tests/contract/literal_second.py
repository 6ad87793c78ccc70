"""Methods of second order: SciPy's own L-BFGS-B and Newton's step."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize


def lbfgs(method, world):
    """Every point at which SciPy's L-BFGS-B evaluates f: Liu and Nocedal (1989), More and Thuente (1994)."""
    points = []

    def evaluate(x):
        points.append(x.copy())
        return world.f(x), world.g(x)

    options = {"maxcor": method.memory, "ftol": 0.0, "gtol": 0.0, "maxfun": 200, "maxiter": 200}
    minimize(evaluate, world.x0, jac=True, method="L-BFGS-B", options=options)
    yield from points[1:]


def newton(method, world):
    """x <- x - H^{-1} grad f(x)."""
    x = world.x0
    while True:
        H = sum(world.w[i] * world.hessian(i) for i in range(world.n))
        x = x - np.linalg.solve(H, world.g(x))
        yield x
