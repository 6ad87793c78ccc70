from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import ownstep.sklearn
from ownstep.methods import LBFGS, Newton
from ownstep.sklearn import OwnStepClassifier, OwnStepRegressor


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([OwnStepClassifier(), OwnStepRegressor()])
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("load", [load_breast_cancer, load_iris])
@pytest.mark.parametrize("partition", ["by_norm", "by_label"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_agrees_with_logistic_regression_at_the_optimum(load, partition, fit_intercept):
    rows, labels = load(return_X_y=True)
    rows = StandardScaler().fit_transform(rows)
    ours = OwnStepClassifier(
        partition, C=0.01, fit_intercept=fit_intercept, tol=1e-10, max_iter=50_000, method="own_step"
    )
    theirs = LogisticRegression(C=0.01, fit_intercept=fit_intercept, tol=1e-13, max_iter=10_000, solver="newton-cg")
    ours.fit(rows, labels)
    theirs.fit(rows, labels)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.predict_proba(rows), theirs.predict_proba(rows), atol=1e-6)
    assert (ours.classes_ == theirs.classes_).all()
    assert ours.gain_ >= 1
    assert ours.history_.rounds == ours.n_iter_
    assert len(ours.smoothness_.values) == (2 if partition == "by_norm" else len(ours.classes_))


def test_the_default_s_coefficients_of_digits_are_those_of_newton_cholesky_to_1e_6():
    """As asked of a gradient norm of 1e-8; L-BFGS by its own name stops just below the tolerance and is farther off."""
    rows, labels = load_digits(return_X_y=True)
    rows = StandardScaler().fit_transform(rows)
    theirs = LogisticRegression(solver="newton-cholesky", tol=1e-14, max_iter=100).fit(rows, labels)
    far = {
        method: abs(OwnStepClassifier(tol=1e-8, method=method).fit(rows, labels).coef_ - theirs.coef_).max()
        for method in ("auto", "lbfgs")
    }
    assert far["auto"] < 1e-6
    assert far["auto"] < far["lbfgs"] / 3


def test_works_in_a_pipeline_and_a_grid_search():
    rows, labels = load_breast_cancer(return_X_y=True)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), OwnStepClassifier(tol=1e-3)),
        {"ownstepclassifier__C": [0.01, 0.1], "ownstepclassifier__devices": [2, 4]},
        cv=3,
    )
    search.fit(rows, labels)
    assert search.best_score_ > 0.95


def test_sparse_rows_and_string_labels():
    rows, labels = load_breast_cancer(return_X_y=True)
    rows = StandardScaler().fit_transform(rows)
    words = np.where(labels == 1, "benign", "malignant")
    dense = OwnStepClassifier(C=0.01).fit(rows, words)
    sparse = OwnStepClassifier(C=0.01).fit(sp.csr_matrix(rows), words)
    np.testing.assert_allclose(dense.coef_, sparse.coef_, atol=1e-9)
    assert set(dense.predict(rows)) == {"benign", "malignant"}


def test_a_given_partition_is_used():
    rows, labels = load_iris(return_X_y=True)
    owner = np.arange(len(labels)) % 5
    fitted = OwnStepClassifier(owner, C=0.1).fit(rows - rows.mean(axis=0), labels)
    assert len(fitted.smoothness_.values) == 5


def test_it_warns_when_it_has_not_converged():
    rows, labels = load_breast_cancer(return_X_y=True)
    with pytest.warns(ConvergenceWarning, match="Scale the features"):
        OwnStepClassifier(max_iter=3).fit(rows, labels)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        OwnStepClassifier(devices=0).fit(rows, labels)
    with pytest.raises(ValueError, match="C must be a finite number > 0, got -1"):
        OwnStepClassifier(C=-1).fit(rows, labels)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_warm_start_of_several_classes_begins_at_the_end(fit_intercept):
    rows, labels = load_iris(return_X_y=True)
    model = OwnStepClassifier(C=0.1, warm_start=True, tol=1e-8, fit_intercept=fit_intercept).fit(rows, labels)
    first = model.coef_.copy()
    assert model.history_.rounds > 0
    assert model.fit(rows, labels).history_.rounds == 0
    np.testing.assert_allclose(model.coef_, first, rtol=1e-12)
    other = OwnStepRegressor(warm_start=True).fit(rows, labels * 1.0)
    assert other.fit(rows[:, :2], labels * 1.0).coef_.shape == (2,)  # a start of another shape is left


def test_no_random_state_draws_another_split_each_time():
    rows, labels = load_iris(return_X_y=True)

    def constants(state):
        return tuple(
            OwnStepClassifier("iid", 3, max_iter=10, tol=1, random_state=state).fit(rows, labels).smoothness_.values
        )

    assert len({constants(None) for _ in range(4)}) > 1
    assert constants(np.random.RandomState(3)) == constants(np.random.RandomState(3))
    assert constants(np.random.RandomState(3)) != constants(np.random.RandomState(4))
    assert constants(0) == constants(0) != constants(1)


METHODS = ["auto", "newton", "lbfgs", LBFGS(), Newton(), "barzilai_borwein"]


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("load", [load_breast_cancer, load_iris])
def test_every_way_leads_to_the_same_coefficients(load, method):
    rows, labels = load(return_X_y=True)
    rows = StandardScaler().fit_transform(rows)
    weight = np.random.default_rng(0).integers(0, 4, len(labels)).astype(float)
    ours = OwnStepClassifier(C=0.1, tol=1e-10, method=method, class_weight="balanced").fit(rows, labels, weight)
    theirs = LogisticRegression(C=0.1, tol=1e-13, max_iter=10_000, solver="newton-cg", class_weight="balanced")
    theirs.fit(rows, labels, weight)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.predict_log_proba(rows), np.log(theirs.predict_proba(rows)), atol=1e-5)
    assert ours.n_iter_ == len(ours.loss_curve_) - 1
    assert ours.loss_curve_[-1] < ours.loss_curve_[0]
    assert not hasattr(ours, "gain_")  # nothing was split and no constant was needed


@pytest.mark.parametrize("split", [{}, {"partition": "by_norm", "devices": 3}])
def test_the_regressor_is_ridge_regression(split):
    rows, targets = load_diabetes(return_X_y=True)
    weight = np.random.default_rng(1).uniform(0.5, 2, len(targets)).round(1)
    ours = OwnStepRegressor(alpha=0.3, tol=1e-9, **split).fit(rows, targets, weight)
    theirs = Ridge(alpha=0.3, tol=1e-12).fit(rows, targets, weight)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-8)
    assert ours.intercept_ == pytest.approx(theirs.intercept_)
    assert ours.n_iter_ <= 2
    assert OwnStepRegressor(fit_intercept=False).fit(rows, targets).intercept_ == 0


def test_groups_split_the_rows_and_a_warm_start_begins_at_the_end():
    rows, labels = load_breast_cancer(return_X_y=True)
    rows = StandardScaler().fit_transform(rows)
    hospital = np.array(["Basel", "Zurich", "Aarau"])[np.arange(len(labels)) % 3]
    model = OwnStepClassifier(C=0.01, warm_start=True, tol=1e-8).fit(rows, labels, groups=hospital)
    assert len(model.smoothness_.values) == 3
    assert model.gain_ >= 1
    first = model.coef_.copy()
    assert model.fit(rows, labels, groups=hospital).history_.rounds == 0
    np.testing.assert_array_equal(model.coef_, first)
    cold = OwnStepClassifier(C=0.01, tol=1e-8).fit(rows, labels, groups=hospital)
    assert cold.fit(rows, labels).history_.rounds > 0


def test_methods_that_are_none_are_refused():
    rows, labels = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="unknown method 'newtons'. Did you mean 'newton'"):
        OwnStepClassifier(method="newtons").fit(rows, labels)
    with pytest.raises(ValueError, match="method must be 'auto', a method's name or a method, got 3"):
        OwnStepClassifier(method=3).fit(rows, labels)
    with pytest.raises(ValueError, match="alpha must be a finite number >= 0, got -1"):
        OwnStepRegressor(alpha=-1).fit(rows, labels)


def test_a_large_dense_table_begins_with_lbfgs_and_ends_with_newton(monkeypatch):
    """Whichever of the two ends it, the coefficients are LogisticRegression's, and all rounds are counted."""
    rng = np.random.default_rng(4)
    like = rng.standard_normal((400, 6))
    labels = (like @ np.arange(6.0) / 3 + rng.logistic(size=400) > 0).astype(int)
    monkeypatch.setattr(ownstep.sklearn, "LARGE", 0)
    monkeypatch.setattr(ownstep.sklearn, "WIDE", 1)
    for rows, changes in ((like, False), (like * np.geomspace(1, 1e3, 6), True)):
        model = OwnStepClassifier(tol=1e-9).fit(rows, labels)
        peer = LogisticRegression(solver="newton-cholesky", tol=1e-10).fit(rows, labels)
        np.testing.assert_allclose(model.coef_, peer.coef_, rtol=1e-6)
        assert (model.history_.settings["key"] == "newton") == changes
        assert len(model.loss_curve_) == model.n_iter_ + 1
        assert model.n_iter_ == model.history_.rounds + (ownstep.sklearn.FIRST_ROUNDS if changes else 0)
    short = OwnStepClassifier(max_iter=3, tol=1e-9)
    with pytest.warns(ConvergenceWarning):
        assert short.fit(like, labels).n_iter_ == 3
