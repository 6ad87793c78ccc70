"""A scikit-learn classifier that splits its training data on purpose."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ownstep import partition as partitions
from ownstep.engines import describe, run
from ownstep.history import History
from ownstep.methods import OwnStep, parse_switch
from ownstep.problems import logistic_regression
from ownstep.support.checks import number, whole_number
from ownstep.support.errors import InvalidInput


class OwnStepClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Logistic regression trained by Algorithm 1 on a deliberate split of the data.

    Minimises the objective of scikit-learn's ``LogisticRegression``, divided by C n:

        (1/n) sum_j loss(a_j^T x + b, y_j) + 1/(2 C n) ||x||^2,

    with the logistic loss for two classes and the softmax loss for more; the intercept b is not penalised.

    Parameters
    ----------
    partition : ``"by_norm"``, ``"by_eigenvalue"``, ``"by_label"``, ``"dirichlet"``, ``"shards"``, ``"iid"``, or the
        device index of every sample as an array (which then fits one set of samples only, so no cross-validation).
    devices : how many devices; None takes two, or one a class for ``by_label``. More than the split can fill is
        cut down to what it can.
    C : inverse strength of the L2 term.
    fit_intercept : add a constant that is not penalised.
    switch : ``"plateau"``, ``"never"``, ``"at:ROUND"`` or ``"norm:EPS"``.
    tol : stop once ||grad f|| is at most this.
    max_iter : rounds at most.
    random_state : seed of a random partition, a generator, or None to draw one.

    Attributes
    ----------
    coef_, intercept_ : as in ``LogisticRegression``.
    classes_ : the labels seen.
    history_ : every round of the run.
    smoothness_ : the measured constants L_i.
    gain_ : the predicted gain (sum w_i L_i)(sum w_i / L_i).
    n_iter_ : rounds used.
    """

    def __init__(
        self,
        partition: str | ArrayLike = "by_norm",
        devices: int | None = None,
        C: float = 1.0,
        fit_intercept: bool = True,
        switch: str = "plateau",
        tol: float = 1e-4,
        max_iter: int = 10_000,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.partition = partition
        self.devices = devices
        self.C = C
        self.fit_intercept = fit_intercept
        self.switch = switch
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike) -> OwnStepClassifier:
        """Split the rows over devices, measure their smoothness, and run Algorithm 1."""
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        check_classification_targets(y)
        if np.inf != self.C:  # no L2 term at all, as in LogisticRegression
            number("C", self.C, above=0)
        number("tol", self.tol, 0)
        whole_number("max_iter", self.max_iter, 0)
        if self.devices is not None:
            whole_number("devices", self.devices, 1)
        if not isinstance(self.switch, str):
            raise InvalidInput(f"switch must be a word such as 'plateau' or 'at:50', got {self.switch!r}")
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"This solver needs at least 2 classes, the data has one class: {self.classes_[0]!r}")
        n = X.shape[0]
        problem = logistic_regression(
            X, codes, self._split(X, codes), mu=1 / (self.C * n), intercept=self.fit_intercept
        )
        plan = describe(problem)
        self.history_: History = run(
            OwnStep(parse_switch(self.switch)), problem, self.max_iter, devices=plan.devices,
            gradient_tolerance=self.tol, measure_gradient=True, progress=False,
        )  # fmt: skip
        if self.history_.gradient_norm[-1] > self.tol:
            warnings.warn(
                f"||grad f|| is {self.history_.gradient_norm[-1]:.3g} after {self.history_.rounds} rounds, above "
                f"tol={self.tol:g}: {self.history_.stopped}. Scale the features, raise max_iter or lower C.",
                ConvergenceWarning,
                stacklevel=2,
            )
        self.smoothness_ = plan.smoothness
        self.gain_ = plan.devices.gain
        self.n_iter_ = self.history_.rounds
        table = self.history_.x.reshape(problem.features, problem.outputs).T
        self.coef_ = table[:, :-1] if self.fit_intercept else table
        self.intercept_ = table[:, -1] if self.fit_intercept else np.zeros(len(table))
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """a^T x + b: one column a class, or one number for two classes."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        z = np.asarray(X @ self.coef_.T + self.intercept_)
        return z.ravel() if len(self.classes_) == 2 else z

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class of every row."""
        z = self.decision_function(X)
        out: NDArray[Any] = self.classes_[(z > 0).astype(int) if z.ndim == 1 else z.argmax(axis=1)]
        return out

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Class probabilities, one column a class."""
        z = self.decision_function(X)
        return np.column_stack([expit(-z), expit(z)]) if z.ndim == 1 else np.asarray(softmax(z, axis=1))

    def _split(self, X: Any, codes: NDArray[np.intp]) -> partitions.Partition:
        if not isinstance(self.partition, str):
            return partitions.given(self.partition)
        most = len(self.classes_) if self.partition == "by_label" else X.shape[0]
        usual = most if self.partition == "by_label" else min(2, most)
        wanted = usual if self.devices is None else min(self.devices, most)
        return partitions.make(self.partition, X, codes, wanted, self._seed())

    def _seed(self) -> int:
        """``random_state`` as a seed; None and a generator draw one, as everywhere in scikit-learn."""
        if self.random_state is None or isinstance(self.random_state, np.random.RandomState):
            return int(check_random_state(self.random_state).randint(2**31))
        return whole_number("random_state", self.random_state, 0)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


__all__ = ["OwnStepClassifier"]
