from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from ownstep.engines import beyond, compare, run_lbfgs
from ownstep.problems import optimum

from ..conftest import make_logistic


def test_every_evaluation_is_a_round():
    problem = make_logistic()
    count = 0

    def f(x):
        nonlocal count
        count += 1
        losses, gradient = problem.mix(x, problem.weights)
        return problem.weights @ losses, gradient

    options = {"maxcor": 10, "ftol": 0.0, "gtol": 0.0, "maxfun": 501, "maxiter": 501}
    found = minimize(f, problem.x0(), jac=True, method="L-BFGS-B", options=options)
    history = run_lbfgs(problem, 500)
    assert history.rounds + 1 == count
    np.testing.assert_allclose(history.best_value, found.fun)
    assert history.best_value == pytest.approx(optimum(problem).value, rel=1e-9)


def test_it_stops_at_the_target_and_at_the_limit():
    problem = make_logistic()
    best = optimum(problem).value
    goal = best + 1e-3
    arrived = run_lbfgs(problem, 100, target=goal)
    assert arrived.value[-1] <= goal < arrived.value[:-1].min()
    short = run_lbfgs(problem, 3)
    assert short.rounds == 3
    assert short.stopped == "all 3 rounds done"


def test_a_comparison_counts_rounds_and_seconds():
    found = compare(make_logistic(), beyond(), 200, lbfgs=True)
    for row in found.rows():
        history = found.histories[row["method"]]
        k = row["rounds"]["0.01"]
        assert row["seconds"]["0.01"] == pytest.approx(history.columns["seconds"][: k + 1].sum())
    assert "L-BFGS (scipy)" in found.histories
