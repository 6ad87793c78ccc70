"""Columns in units of their own: kilometres for millimetres must not break what sees curvature."""

from __future__ import annotations

import numpy as np
import pytest

from ownstep.engines import run
from ownstep.engines.recommend import recommend
from ownstep.methods import LBFGS, Newton, OwnCurvature
from ownstep.methods.pooled.newton import newton_step
from ownstep.partition import by_norm, given
from ownstep.problems import logistic_regression, optimum
from ownstep.smoothness.sketch import nystrom

from ..conftest import unequal_owner


def table(decades: float, features: int = 10, samples: int = 400, seed: int = 0):
    """Rows whose columns have scales from 1e6 down, over so many decades, and labels that depend on all of them."""
    rng = np.random.default_rng(seed)
    plain = rng.standard_normal((samples, features))
    labels = np.where(plain @ rng.standard_normal(features) + rng.standard_normal(samples) > 0, 1, -1)
    return plain * np.geomspace(1e6, 10 ** (6 - decades), features), labels


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("decades", [2, 7, 11, 20])
def test_vectors_are_orthonormal_whatever_the_eigenvalues_are(dtype, decades):
    rng = np.random.default_rng(decades)
    basis = np.linalg.qr(rng.standard_normal((12, 12)))[0]
    true = 3e5 * np.geomspace(1, 10.0**-decades, 12)
    H = (basis * true) @ basis.T
    vectors, values = nystrom(np.eye(12, dtype=dtype), H.astype(dtype))
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(len(values)), atol=1e-4)
    assert (values >= 0).all()
    seen = true[: len(values)]
    np.testing.assert_allclose(values, seen, atol=20 * np.finfo(dtype).eps * true[0], rtol=1e-4)
    assert (true[len(values) :] <= 100 * np.finfo(dtype).eps * true[0]).all()  # what is left out is rounding


@pytest.mark.parametrize("decades", [4, 8, 10])
def test_own_curvature_runs_on_columns_of_any_scale(decades):
    rows, labels = table(decades)
    problem = logistic_regression(rows, labels, by_norm(rows, devices=5), mu=1e-5)
    best = optimum(problem).value
    own = run(OwnCurvature(), problem, 60)
    assert own.value[-1] - best < 1e-2 * (own.value[0] - best)
    assert own.value[-1] < run(LBFGS(), problem, 60).value[-1]


def test_a_plan_recommends_among_those_that_run(monkeypatch):
    rows, labels = table(8)
    problem = logistic_regression(rows, labels, by_norm(rows, devices=5), mu=1e-5)
    assert recommend(problem).best is not None
    monkeypatch.setattr(
        "ownstep.smoothness.sketch.nystrom", lambda K, image, rank=None: (2 * K.T[:rank], np.ones(K.shape[1])[:rank])
    )
    without = {row.method: row for row in recommend(problem).rows}
    assert "not orthonormal" in without["own curvature"].note
    assert without["Newton"].seconds is not None


def test_newtons_steps_do_not_depend_on_units():
    """With z_j = s_j x_j the step is s_j times as long, bit for bit where s_j are powers of two."""
    rng = np.random.default_rng(3)
    A = rng.standard_normal((9, 6))
    H, g = A.T @ A, rng.standard_normal(6)
    units = 2.0 ** np.array([0, 30, -30, 7, -41, 12])
    upper = np.triu_indices(6)
    plain = newton_step(H[upper], g)
    np.testing.assert_allclose(plain, -np.linalg.solve(H, g), rtol=1e-9)
    np.testing.assert_array_equal(newton_step((H / np.outer(units, units))[upper], g / units), units * plain)


def test_newton_needs_few_exchanges_on_columns_of_any_scale():
    rows, labels = table(10)
    owner = unequal_owner(len(rows), 3)
    problem = logistic_regression(rows, labels, given(owner), mu=0.0)
    scaled = logistic_regression(rows / np.abs(rows).max(axis=0), labels, given(owner), mu=0.0)
    far, near = run(Newton(), problem, 7), run(Newton(), scaled, 7)
    np.testing.assert_allclose(far.value, near.value, rtol=1e-6)
