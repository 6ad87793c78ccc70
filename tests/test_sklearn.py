from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from ownstep.sklearn import OwnStepClassifier


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([OwnStepClassifier()])
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("load", [load_breast_cancer, load_iris])
@pytest.mark.parametrize("partition", ["by_norm", "by_label"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_agrees_with_logistic_regression_at_the_optimum(load, partition, fit_intercept):
    rows, labels = load(return_X_y=True)
    rows = StandardScaler().fit_transform(rows)
    ours = OwnStepClassifier(partition, C=0.01, fit_intercept=fit_intercept, tol=1e-10, max_iter=50_000)
    theirs = LogisticRegression(C=0.01, fit_intercept=fit_intercept, tol=1e-13, max_iter=10_000, solver="newton-cg")
    ours.fit(rows, labels)
    theirs.fit(rows, labels)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.predict_proba(rows), theirs.predict_proba(rows), atol=1e-6)
    assert (ours.classes_ == theirs.classes_).all()
    assert ours.gain_ >= 1
    assert ours.history_.rounds == ours.n_iter_
    assert len(ours.smoothness_.values) == (2 if partition == "by_norm" else len(ours.classes_))


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
