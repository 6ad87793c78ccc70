from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression, Ridge

from ownstep import partition
from ownstep.engines import describe
from ownstep.problems import (
    BinaryLogistic,
    LeastSquares,
    MultinomialLogistic,
    Poisson,
    ReferenceLogistic,
    logistic_regression,
    optimum,
)
from ownstep.problems.linear.model import LARGEST_MU
from ownstep.support.errors import InvalidInput, OwnstepError

from ..conftest import make_logistic, unequal_owner

MODELS = {
    "binary": (BinaryLogistic, 2),
    "multinomial": (MultinomialLogistic, 3),
    "squares": (LeastSquares, 0),
    "reference": (ReferenceLogistic, 3),
    "poisson": (Poisson, 4),
}


def problem(kind: str, seed: int = 0, devices: int = 3, sparse: bool = False, **options):
    model, classes = MODELS[kind]
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((30, 4)) * (rng.random((30, 4)) < 0.6)
    targets = rng.permutation(np.arange(30) % classes) if classes else rng.standard_normal(30)
    owner = rng.permutation(unequal_owner(30, devices))
    weights = rng.uniform(1, 3, devices)
    options = {"weights": weights / weights.sum(), "mu": 0.1} | options
    return model(sp.csr_array(rows) if sparse else rows, targets, partition.given(owner), **options)


def plain_loss(kind: str, rows, targets, x, mu):
    """The objective of one device, written straight from its definition."""
    if kind == "squares":
        losses = (rows @ x - targets) ** 2 / 2
    elif kind == "binary":
        losses = np.logaddexp(0, -np.where(targets > 0, 1, -1) * (rows @ x))
    elif kind == "poisson":
        losses = np.exp(rows @ x) - targets * (rows @ x)
    elif kind == "reference":
        z = np.column_stack([np.zeros(len(rows)), rows @ x.reshape(rows.shape[1], -1)])
        losses = logsumexp(z, axis=1) - z[np.arange(len(z)), targets]
    else:
        z = rows @ x.reshape(rows.shape[1], -1)
        losses = logsumexp(z, axis=1) - z[np.arange(len(z)), targets]
    return losses.mean() + mu / 2 * x @ x


@pytest.mark.parametrize("kind", ["binary", "multinomial", "reference"])
@pytest.mark.parametrize("far", [1e3, -1e3])
def test_scores_far_beyond_what_exp_can_take(kind, far):
    """Losses of thousands and shares of zero and one, not inf and nan."""
    rng = np.random.default_rng(6)
    rows, targets = rng.uniform(0.5, 2, (20, 3)), rng.permutation(np.arange(20) % MODELS[kind][1])
    made = MODELS[kind][0](rows, targets, mu=0.0)
    x = far * rng.uniform(0.5, 1, made.dim)
    losses, gradient = made.mix(x, made.weights)
    assert losses[0] == pytest.approx(plain_loss(kind, rows, targets, x, 0.0), rel=1e-12)
    step = 1e-3 * rng.standard_normal(made.dim)
    slope = plain_loss(kind, rows, targets, x + step, 0.0) - plain_loss(kind, rows, targets, x - step, 0.0)
    assert gradient @ step == pytest.approx(slope / 2, rel=1e-6, abs=1e-11)
    assert np.isfinite(made.hessian_product(x, step)).all()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_values_and_gradients_against_the_definition(kind, sparse):
    rng = np.random.default_rng(5)
    rows, n = rng.standard_normal((20, 3)), 20
    targets = rng.permutation(np.arange(n) % MODELS[kind][1]) if MODELS[kind][1] else rng.standard_normal(n)
    owner = rng.permutation(np.repeat([0, 1], [7, 13]))
    made = MODELS[kind][0](
        sp.csr_array(rows) if sparse else rows, targets, partition.given(owner), mu=0.3, weights=[0.6, 0.4]
    )
    x = rng.standard_normal(made.dim)
    losses, _ = made.mix(x, made.weights)
    gradients = made.gradients(x)
    for i in range(2):
        mine = owner == i

        def local(v, mine=mine):
            return plain_loss(kind, rows[mine], targets[mine], v, 0.3)

        assert losses[i] == pytest.approx(local(x), rel=1e-12)
        np.testing.assert_allclose(gradients[i], approx_fprime(x, local, 1e-7), atol=1e-6)
    assert made.value(x) == pytest.approx(0.6 * losses[0] + 0.4 * losses[1])


@given(
    st.sampled_from(sorted(MODELS)),
    st.integers(0, 1000),
    st.integers(1, 6),
    st.booleans(),
    st.sampled_from([0, 1, 3]),
    st.booleans(),
)
def test_mix_is_the_sum_of_the_devices_gradients(kind, seed, devices, sparse, columns, intercept):
    made = problem(kind, seed, devices, sparse, intercept=intercept)
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(made.dim)
    c = rng.standard_normal((devices, columns) if columns else devices)
    _, total = made.mix(x, c)
    np.testing.assert_allclose(total, made.gradients(x).T @ c, atol=1e-12)


@given(st.sampled_from(sorted(MODELS)), st.integers(0, 1000))
def test_permuting_devices_changes_nothing(kind, seed):
    rng = np.random.default_rng(seed)
    rows, n = rng.standard_normal((24, 3)), 24
    targets = rng.permutation(np.arange(n) % MODELS[kind][1]) if MODELS[kind][1] else rng.standard_normal(n)
    owner, other = rng.permutation(unequal_owner(n, 4)), rng.permutation(4)
    first = MODELS[kind][0](rows, targets, partition.given(owner), mu=0.1)
    second = MODELS[kind][0](rows, targets, partition.given(other[owner]), mu=0.1)
    x, c = rng.standard_normal(first.dim), rng.random(4)
    swapped = np.empty(4)
    swapped[other] = c
    np.testing.assert_allclose(first.mix(x, c)[1], second.mix(x, swapped)[1], atol=1e-13)
    np.testing.assert_allclose(first.mix(x, c)[0], second.mix(x, swapped)[0][other], atol=1e-13)


def test_one_point_a_device():
    made = problem("binary", devices=3)
    points = np.random.default_rng(0).standard_normal((3, made.dim))
    expected = [made.gradients(points[i])[i] for i in range(3)]
    np.testing.assert_allclose(made.gradients(points), expected, atol=1e-14)


@pytest.mark.parametrize("kind", ["binary", "multinomial"])
def test_stable_at_enormous_margins(kind):
    rows = np.array([[1e4], [-1e4], [1e4], [-1e4]])
    made = MODELS[kind][0](rows, np.array([1, 0, 0, 1] if kind == "binary" else [1, 0, 2, 1]), mu=0.0)
    x = np.ones(1) if kind == "binary" else np.array([-1.0, 1.0, 0.0])
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        losses, total = made.mix(x, np.ones(1))
    assert np.isfinite(losses).all()
    assert np.isfinite(total).all()
    if kind == "binary":  # two rows are right by 1e4, two are wrong by it
        assert losses[0] == pytest.approx(1e4 / 2)
        assert total[0] == pytest.approx(1e4 / 2)


@pytest.mark.parametrize("kind", MODELS)
def test_hessian_products_against_differences_of_gradients(kind):
    made = problem(kind, intercept=True)
    rng = np.random.default_rng(1)
    x, v = rng.standard_normal((2, made.dim))
    step = 1e-6
    change = (made.mix(x + step * v, made.weights)[1] - made.mix(x - step * v, made.weights)[1]) / (2 * step)
    np.testing.assert_allclose(made.hessian_product(x, v), change, atol=1e-7)


def test_optimum_agrees_with_scikit_learn():
    made = problem("squares", devices=1)
    ridge = Ridge(alpha=0.1 * 30, fit_intercept=False, tol=1e-14)
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((30, 4)) * (rng.random((30, 4)) < 0.6)
    ridge.fit(rows, rng.standard_normal(30))
    np.testing.assert_allclose(optimum(made).x, ridge.coef_, atol=1e-10)
    rng = np.random.default_rng(3)
    rows, labels = rng.standard_normal((80, 5)), rng.integers(0, 3, 80)
    ours = optimum(logistic_regression(rows, labels, mu=1 / 80, intercept=True)).x.reshape(6, 3)
    theirs = LogisticRegression(C=1.0, tol=1e-12, max_iter=10_000).fit(rows, labels)
    np.testing.assert_allclose(ours[:-1].T, theirs.coef_, atol=1e-5)


def test_an_optimum_is_as_flat_as_it_says():
    for seed in range(12):
        made = make_logistic(seed=seed)
        found = optimum(made)
        gradient = made.mix(found.x, made.weights)[1]
        first = np.linalg.norm(made.mix(made.x0(), made.weights)[1])
        assert found.gradient_norm == pytest.approx(np.linalg.norm(gradient), rel=1e-6)
        assert found.gradient_norm <= 1e-11 * max(1.0, first)
        assert found.value == pytest.approx(made.value(found.x), rel=1e-14)


def test_a_start_that_is_flat_enough_is_the_optimum():
    """A tolerance of one is met at the start, where the gradient is exactly as long as allowed."""
    made = problem("squares", mu=0.3)
    scaled = LeastSquares(9 * made.rows(0), 9 * np.arange(made.counts[0]), mu=0.3)
    losses, gradient = scaled.mix(scaled.x0(), scaled.weights)
    assert np.linalg.norm(gradient) > 1
    found = optimum(scaled, tolerance=1.0)
    assert (found.x == scaled.x0()).all()
    assert (found.value, found.gradient_norm) == (losses[0], np.linalg.norm(gradient))
    with pytest.raises(OwnstepError, match=r"is still .* after 0 Newton steps"):
        optimum(scaled, max_steps=0)
    rows, targets = scaled.rows(0), 9 * np.arange(made.counts[0])
    exact = np.linalg.solve(rows.T @ rows / len(rows) + 0.3 * np.eye(4), rows.T @ targets / len(rows))
    np.testing.assert_allclose(optimum(scaled).x, exact, rtol=1e-10)


def test_a_free_intercept_leaves_a_direction_without_curvature():
    rows, labels = np.random.default_rng(0).standard_normal((12, 3)), np.arange(12) % 2
    for intercept, mu in ((False, 0.2), (True, 0.0)):
        made = logistic_regression(rows, labels, mu=0.2, intercept=intercept)
        assert made.strong_convexity == mu
        np.testing.assert_allclose(made.penalty, [0.2] * 3 + [0.0] * intercept)


def test_one_device_alone_and_other_weights():
    made = problem("binary", devices=3)
    x = np.random.default_rng(0).standard_normal(made.dim)
    alone = made.only(1)
    np.testing.assert_allclose(alone.mix(x, np.ones(1))[1], made.gradients(x)[1], atol=1e-14)
    heavier = made.reweighted([3.0, 2.0, 1.0])
    assert heavier.value(x) == pytest.approx(np.array([3, 2, 1]) / 6 @ made.mix(x, made.weights)[0])
    assert made.weights.sum() == pytest.approx(1)


def test_dtype_is_kept():
    made = problem("binary", dtype=np.float32)
    assert made.x0().dtype == np.float32
    assert made.mix(made.x0(), made.weights)[1].dtype == np.float32


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((np.array([[np.nan], [1.0]]), [0, 1]), {}, "features must be finite, got nan"),
        ((np.array([[np.inf], [1.0]]), [0, 1]), {}, "features must be finite, got inf"),
        ((sp.csr_array(np.array([[np.nan], [1.0]])), [0, 1]), {}, "features must be finite, got nan"),
        ((np.eye(2), [1, 1]), {}, "at least two classes, all labels are 1"),
        ((np.eye(2), [0.0, np.nan]), {}, "labels must be finite, got nan"),
        ((np.eye(3), [0, 1]), {}, r"3 rows need 3 targets, got shape \(2,\)"),
        ((np.ones(3), [0, 1, 0]), {}, "table of samples by features"),
        ((np.eye(2), [0, 1]), {"mu": -0.5}, "mu must be a finite number >= 0, got -0.5"),
        ((np.eye(2), [0, 1]), {"weights": [0.7]}, "they sum to 0.7"),
        ((np.eye(2), [0, 1]), {"weights": [0.5, 0.5]}, "2 weights for 1 devices"),
        ((np.eye(2), [0, 1]), {"partition": partition.given([0, 0, 1])}, "covers 3 samples, the data has 2"),
    ],
)
def test_bad_input_is_quoted(arguments, options, message):
    with pytest.raises(InvalidInput, match=message):
        logistic_regression(*arguments, **options)


def test_bad_points_and_mixes():
    made = problem("binary", devices=3)
    with pytest.raises(InvalidInput, match=r"x must have shape \(4,\), got \(3,\)"):
        made.value(np.zeros(3))
    with pytest.raises(InvalidInput, match=r"each of 3 devices, got \(2,\)"):
        made.mix(made.x0(), np.ones(2))
    with pytest.raises(InvalidInput, match="needs two classes, got 3"):
        BinaryLogistic(np.eye(3), [0, 1, 2])
    with pytest.raises(InvalidInput, match="targets must be finite, got inf"):
        LeastSquares(np.eye(2), [0.0, np.inf])


def test_a_separable_problem_without_penalty_has_no_optimum():
    with pytest.raises(OwnstepError, match=r"mu = 0 a separable problem has none"):
        optimum(BinaryLogistic(np.array([[1.0], [-1.0]]), [1, 0], mu=0.0), max_steps=5)


def test_a_sparse_table_of_zeros_is_a_table():
    made = BinaryLogistic(sp.csr_array((6, 3)), np.array([0, 1, 0, 1, 1, 0]), partition.iid(6, 2), mu=0.1)
    assert made.value(np.zeros(3)) == pytest.approx(np.log(2))
    assert pytest.approx([0.1, 0.1]) == describe(made).devices.L


def test_the_softmax_with_a_reference_curves_at_most_by_a_half():
    """Of z -> log(1 + sum exp z_c) the Hessian is diag(p) - p p^T, whose largest eigenvalue is at most 1/2."""
    made = problem("reference")
    for i, L in enumerate(describe(made).devices.L):
        rows = made.rows(i)
        assert pytest.approx(np.linalg.norm(rows, 2) ** 2 / len(rows) / 2 + 0.1) == L


def test_the_largest_penalty_is_allowed():
    rows, labels = np.eye(2), np.array([0, 1])
    assert BinaryLogistic(rows, labels, mu=LARGEST_MU).mu == LARGEST_MU
    with pytest.raises(InvalidInput, match="mu must be at most"):
        BinaryLogistic(rows, labels, mu=np.nextafter(LARGEST_MU, np.inf))
