"""What devices solve on their own: GIANT's systems and DANE's minimisations, on a loss that is not quadratic."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from ownstep.engines import run
from ownstep.engines.local import solving
from ownstep.engines.local.answering import Answering
from ownstep.methods import DANE, GIANT, LBFGS, Ask
from ownstep.methods.base import SolveWork
from ownstep.problems import LeastSquares, optimum
from ownstep.support.errors import InvalidInput

from ..conftest import make_logistic


@pytest.mark.parametrize("dense", [400, 0])
def test_a_device_solves_its_newton_system(dense, monkeypatch):
    monkeypatch.setattr(solving, "DENSE", dense)
    problem, rng = make_logistic(features=6), np.random.default_rng(0)
    x, v, c = rng.standard_normal(6), rng.standard_normal(6), np.array([0.2, 0.0, 0.7])
    expected = sum(c[i] * np.linalg.solve(problem.hessian(x, np.eye(3)[i]) + 0.3 * np.eye(6), v) for i in range(3))
    np.testing.assert_allclose(solving.solved(problem, x, SolveWork(v, 0.3), c), expected, rtol=1e-5 if dense else 1e-4)


def test_a_device_gives_up_after_as_many_products_as_there_are_unknowns(monkeypatch):
    """So that a device whose Hessian is all but singular does not compute for ever."""
    monkeypatch.setattr(solving, "DENSE", 0)
    rows = np.random.default_rng(0).standard_normal((40, 12)) * np.geomspace(1, 1e-7, 12)
    one = LeastSquares(rows, np.ones(40), mu=0.0)
    products = []
    monkeypatch.setattr(
        type(one), "hessian_product", lambda self, x, v: products.append(1) or rows.T @ (rows @ v) / len(rows)
    )
    solving.solved(one, one.x0(), SolveWork(np.ones(12)), np.ones(1))
    assert len(products) <= 12 + 1  # one more for the first residual


@pytest.mark.parametrize("prox", [0.0, 2.0])
def test_a_device_minimises_its_corrected_loss(prox):
    problem, rng = make_logistic(features=5), np.random.default_rng(1)
    x, v, c = rng.standard_normal(5), rng.standard_normal(5), np.array([0.5, 0.1, 0.4])
    expected = 0
    for i in range(3):
        one = problem.only(i)

        def loss(y, one=one):
            shift = one.gradients(x)[0] - v
            return (
                one.value(y) - shift @ y + prox / 2 * (y - x) @ (y - x),
                one.gradients(y)[0] - shift + prox * (y - x),
            )

        expected = expected + c[i] * (x - minimize(loss, x, jac=True, tol=1e-12, options={"gtol": 1e-10}).x)
    np.testing.assert_allclose(solving.solved(problem, x, SolveWork(v, prox, True), c), expected, atol=1e-6)


def test_an_exchange_for_a_direction_is_a_vector_each_way():
    problem = make_logistic()
    x, w = problem.x0(), problem.weights
    seen = Answering(problem, None)(Ask(x, w, solve=SolveWork(x + 1)), np.ones(3, bool))
    assert (seen.up == 4 * 8 + 8).all()
    assert (seen.down == 4 * 8 + 8).all()


def test_they_reach_the_minimum_on_devices_that_differ():
    problem = make_logistic(devices=4)
    best = optimum(problem).value
    for method in (GIANT(), DANE(), DANE(1.0)):
        history = run(method, problem, 80)
        assert history.best_value == pytest.approx(best, rel=1e-4)


def test_a_problem_whose_devices_solve_nothing_is_told_so():
    problem = make_logistic()

    class Bare:
        weights, dim, names, work, strong_convexity = problem.weights, 4, problem.names, 1.0, 0.0
        x0, mix, value, gradients = problem.x0, problem.mix, problem.value, problem.gradients

    assert run(LBFGS(), Bare(), 3).rounds == 3
    with pytest.raises(InvalidInput, match=r"Bare has no devices that solve.*LBFGS\(\)"):
        run(GIANT(), Bare(), 3)
