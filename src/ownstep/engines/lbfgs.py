"""L-BFGS as scikit-learn runs it, recorded like any other history: every evaluation of f and grad f is a round."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.engines.local.engine import first_point
from ownstep.engines.local.loop import DTYPES
from ownstep.history import COLUMNS, History
from ownstep.problems.base import Problem
from ownstep.support.threads import calm_blas
from ownstep.support.vectors import to_numpy


class _Arrived(Exception):
    """The target was reached, or the rounds are used up."""


def run_lbfgs(
    problem: Problem,
    rounds: int,
    *,
    x0: Any = None,
    target: float | None = None,
    memory: int = 10,
    name: str = "L-BFGS (scipy)",
) -> History:
    """``scipy.optimize.minimize(method="L-BFGS-B")``, the solver behind scikit-learn's ``LogisticRegression``.

    It is no ask/tell method: scipy's line search decides where to look. As a distributed method each of its
    evaluations is a round, one vector each way.

    Parameters
    ----------
    rounds : evaluations at most; scipy may end before, where it finds no further descent.
    target : stop once f is at most this.
    memory : pairs kept.
    """
    from scipy.optimize import minimize

    start = to_numpy(first_point(problem, x0)).astype(float)
    rows: list[tuple[float, float, float]] = []
    points: list[NDArray[Any]] = []
    clock = time.perf_counter()

    def evaluate(x: NDArray[Any]) -> tuple[float, NDArray[np.float64]]:
        nonlocal clock
        losses, gradient = problem.mix(x, problem.weights)
        value = float(problem.weights @ losses)
        gradient = to_numpy(gradient).astype(float)
        rows.append((value, float(np.linalg.norm(gradient)), time.perf_counter() - clock))
        points.append(x.copy())
        clock = time.perf_counter()
        if len(rows) > rounds or (target is not None and value <= target):
            raise _Arrived
        return value, gradient

    with calm_blas(problem.work):
        try:
            options = {"maxcor": memory, "maxiter": rounds + 1, "maxfun": rounds + 1, "ftol": 0.0, "gtol": 0.0}
            stopped = str(minimize(evaluate, start, jac=True, method="L-BFGS-B", options=options).message)
        except _Arrived:
            reached = target is not None and rows[-1][0] <= target
            stopped = f"f(x) = {rows[-1][0]:.10g} reached the target" if reached else f"all {rounds} rounds done"
    value, size, seconds = (np.array(column) for column in zip(*rows, strict=True))
    n, traffic = len(rows), len(problem.weights) * (start.nbytes + 8)
    sent = np.array([traffic] * (n - 1) + [0])
    columns = {
        "value": value, "gradient_norm": size, "seconds": seconds, "bytes_up": sent, "bytes_down": sent,
        "phase": np.array(["common"] * (n - 1) + ["end"]), "step": np.full(n, np.nan),
        "participants": np.array([len(problem.weights)] * (n - 1) + [0]),
    }  # fmt: skip
    columns = {c: columns[c].astype(DTYPES.get(c, float)) for c in COLUMNS}
    settings = {"method": f"L-BFGS, {memory} pairs", "problem": type(problem).__name__, "devices": len(problem.weights)}
    return History(name, columns, points[-1], points[int(np.argmin(value))], stopped, settings=settings)
