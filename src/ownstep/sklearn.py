"""Estimators for scikit-learn: logistic regression and ridge regression by any method of this package."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from ownstep import partition as partitions
from ownstep.engines import describe, run
from ownstep.history import History
from ownstep.methods import LBFGS, METHODS, Method, Newton, OwnStep, parse_switch
from ownstep.partition import Partition
from ownstep.plan import Devices
from ownstep.problems import LeastSquares, LinearModel, logistic_regression
from ownstep.problems.linear.table import DenseTable
from ownstep.support.checks import number, truth, whole_number
from ownstep.support.errors import InvalidInput, unknown_name

NEWTON_UP_TO, NEWTON_FOR_SEVERAL = 1000, 300
"""Coefficients up to which ``auto`` is Newton's method, for two classes and for more: beyond, its matrices cost more
than the extra passes of L-BFGS."""
LARGE, WIDE, FIRST_ROUNDS = 10_000_000, 50, 20
"""Numbers in a dense table, and columns, from which ``auto`` gives L-BFGS this many rounds before it takes Newton's
method: there a Hessian costs about d/10 gradients, and on columns of like scale L-BFGS is done by then."""
BEYOND = 0.1
"""The share of ``tol`` to which ``auto`` takes L-BFGS. Newton's last step ends far below ``tol``, L-BFGS just below it,
with coefficients farther from the minimum. On digits a tenth takes 196 rounds in place of 169."""


class _Linear(BaseEstimator, ABC):  # type: ignore[misc]
    """What both estimators share: splitting, weighting, solving."""

    def _solve(
        self, X: Any, y: NDArray[Any], mu: float, sample_weight: Any, groups: Any, start: Any = None
    ) -> LinearModel:
        """Run the method; leaves ``history_`` and, where the data was split, ``smoothness_`` and ``gain_``."""
        number("tol", self.tol, 0)
        truth("fit_intercept", self.fit_intercept)
        truth("warm_start", self.warm_start)
        whole_number("max_iter", self.max_iter, 0)
        if not isinstance(self.switch, str):
            raise InvalidInput(f"switch must be a word such as 'plateau' or 'at:50', got {self.switch!r}")
        split = self._split(X, y, groups)
        told = split is not None
        problem = self._weighted(X, y, split, sample_weight, mu)
        method = self._method(problem)
        needed = told or not getattr(method, "constant_free", False)
        plan = describe(problem, "auto" if needed else "adaptive")
        before: list[float] = []
        rounds = self.max_iter
        if self.method == "auto" and isinstance(method, Newton) and _costly(problem):
            first = self._run(LBFGS(), problem, min(FIRST_ROUNDS, rounds), plan.devices, start)
            rounds, start, before = rounds - first.rounds, first.x, first.value[:-1].tolist()
            self.history_ = first
        if not before or (rounds and self.history_.gradient_norm[-1] > self.tol):
            self.history_ = self._run(method, problem, rounds, plan.devices, start)
        else:
            before = []
        if self.history_.gradient_norm[-1] > self.tol:
            warnings.warn(
                f"||grad f|| is {self.history_.gradient_norm[-1]:.3g} after {self.history_.rounds} rounds, above "
                f"tol={self.tol:g}: {self.history_.stopped}. Scale the features, raise max_iter or the penalty.",
                ConvergenceWarning,
                stacklevel=3,
            )
        if needed:
            self.smoothness_, self.gain_ = plan.smoothness, plan.devices.gain
        self.n_iter_ = max(1, len(before) + self.history_.rounds)
        self.loss_curve_ = [*before, *self.history_.value.tolist()]
        return problem

    def _run(self, method: Method, problem: LinearModel, rounds: int, devices: Devices, start: Any) -> History:
        tolerance = self.tol * BEYOND if self.method == "auto" and isinstance(method, LBFGS) else self.tol
        return run(
            method, problem, rounds, devices=devices, x0=start,
            gradient_tolerance=tolerance, measure_gradient=True, progress=False,
        )  # fmt: skip

    def _weighted(self, X: Any, y: NDArray[Any], split: Partition | None, weight: Any, mu: float) -> LinearModel:
        """The problem; rows of a device with different weights become devices of their own, which is the same f."""
        if weight is None:
            return self._problem(X, y, split, mu / X.shape[0], None)
        if len(weight) * float(weight.max()) == np.inf:
            raise InvalidInput(f"sample_weight must have a finite sum, and its largest is {weight.max():g}: scale it")
        kept = np.flatnonzero(weight)
        X, y, weight = X[kept], y[kept], weight[kept]
        owner = np.zeros(len(y), np.intp) if split is None else split.device_of[kept]
        pairs, codes, counts = np.unique(
            np.column_stack([owner, weight]), axis=0, return_inverse=True, return_counts=True
        )
        share = pairs[:, 1] * counts
        return self._problem(X, y, Partition(codes.ravel(), "weights"), mu / float(share.sum()), share / share.sum())

    @abstractmethod
    def _problem(self, X: Any, y: NDArray[Any], split: Partition | None, mu: float, weights: Any) -> LinearModel:
        """The objective as a problem; ``mu`` is the penalty per sample."""

    def _method(self, problem: LinearModel) -> Method:
        if not isinstance(self.method, str):
            if not isinstance(self.method, Method):
                raise InvalidInput(f"method must be 'auto', a method's name or a method, got {self.method!r}")
            return self.method
        if self.method == "auto":
            return (
                Newton() if problem.dim <= (NEWTON_UP_TO if problem.outputs == 1 else NEWTON_FOR_SEVERAL) else LBFGS()
            )
        if self.method == "own_step":
            return OwnStep(parse_switch(self.switch))
        if self.method not in METHODS:
            raise unknown_name("method", self.method, ["auto", *METHODS])
        made: Method = METHODS[self.method]()
        return made

    def _split(self, X: Any, y: NDArray[Any], groups: Any) -> Partition | None:
        seed = self._seed()
        if self.devices is not None:
            whole_number("devices", self.devices, 1)
        if groups is not None:
            groups = np.asarray(groups)
            missing = partitions.gaps(groups) if groups.ndim == 1 else np.zeros(1, bool)
            if missing.any():
                row = int(np.argmax(missing))
                raise InvalidInput(f"groups must say who holds each row, got {groups[row]} for row {row}")
            try:
                return partitions.given(np.unique(groups, return_inverse=True)[1])
            except TypeError:
                raise InvalidInput("groups must be one number or one word per row, got others among them") from None
        if self.partition is None:
            return None
        if not isinstance(self.partition, str):
            return partitions.given(self.partition)
        by_label = self.partition == "by_label"
        most = len(np.unique(y)) if by_label else X.shape[0]
        wanted = (most if by_label else min(2, most)) if self.devices is None else min(self.devices, most)
        return partitions.make(self.partition, X, y, wanted, seed)

    def _seed(self) -> int:
        """``random_state`` as a seed; None and a generator draw one, as everywhere in scikit-learn."""
        if self.random_state is None or isinstance(self.random_state, np.random.RandomState):
            return int(check_random_state(self.random_state).randint(2**31))
        return whole_number("random_state", self.random_state, 0)

    def _unpacked(self, problem: LinearModel) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(coefficients, intercepts), one row per output."""
        table = self.history_.x.reshape(problem.features, problem.outputs).T
        if not self.fit_intercept:
            return table, np.zeros(len(table))
        common = table[:, -1].mean() if len(table) > 1 else 0.0  # a softmax does not see it: it could be anything
        return table[:, :-1], table[:, -1] - common

    def _start(self, outputs: int, features: int) -> NDArray[np.float64] | None:
        """The last solution, for a warm start, where it has the right shape."""
        if not self.warm_start or not hasattr(self, "coef_"):
            return None
        coef, intercept = np.atleast_2d(self.coef_), np.atleast_1d(self.intercept_)
        if coef.shape != (outputs, features):
            return None
        return np.column_stack([coef, intercept] if self.fit_intercept else [coef]).T.ravel().astype(float)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _costly(problem: LinearModel) -> bool:
    """Does a Hessian cost so much more than a gradient that L-BFGS is worth a try?"""
    return isinstance(problem.table, DenseTable) and problem.dim >= WIDE and problem.table.size >= LARGE


class OwnStepClassifier(ClassifierMixin, _Linear):  # type: ignore[misc]
    """Logistic regression by any method of this package, on data that may be split over devices.

    Minimises the objective of scikit-learn's ``LogisticRegression``, divided by C and by the sum of the weights s_j:

        sum_j s_j loss(a_j^T x + b, y_j) / sum_j s_j + 1/(2 C sum_j s_j) ||x||^2,

    with the logistic loss for two classes and the softmax loss for more; the intercept b is not penalised.

    Parameters
    ----------
    partition : how to split the rows: ``"by_norm"``, ``"by_eigenvalue"``, ``"by_label"``, ``"dirichlet"``,
        ``"shards"``, ``"iid"``, or who holds each sample as an array (which then fits one set of samples only, so no
        cross-validation: pass ``groups`` to ``fit`` there). None leaves the rows in one place.
    devices : how many devices; None takes two, or one per class for ``by_label``. More than the split can fill is cut
        down to what it can.
    C : inverse strength of the L2 term.
    fit_intercept : add a constant that is not penalised.
    switch : of method ``"own_step"``: ``"plateau"``, ``"never"``, ``"at:ROUND"`` or ``"norm:EPS"``.
    tol : stop once ||grad f|| is at most this, or a tenth of it where ``auto`` takes L-BFGS.
    max_iter : rounds at most.
    random_state : seed of a random partition, a generator, or None to draw one.
    method : ``"auto"`` takes the fastest to a tolerance, Newton's method or, for many coefficients, L-BFGS; on large
        dense tables L-BFGS first, and Newton's method where it takes long;
        ``"own_step"`` is Algorithm 1; any other name in ``ownstep.methods.METHODS``, or a method object.
    class_weight : ``"balanced"`` or a dictionary by class, as in scikit-learn.
    warm_start : begin from the last solution.

    Attributes
    ----------
    coef_, intercept_ : as in ``LogisticRegression``.
    classes_ : the labels seen.
    history_ : every round of the run; where ``auto`` changed the method, of its second part.
    n_iter_, loss_curve_ : rounds used, and f before each of them and after the last.
    smoothness_, gain_ : where the rows were split or the method needs them: the measured constants L_i and the
        predicted gain (sum w_i L_i)(sum w_i / L_i).
    """

    def __init__(
        self,
        partition: str | ArrayLike | None = None,
        devices: int | None = None,
        C: float = 1.0,
        fit_intercept: bool = True,
        switch: str = "plateau",
        tol: float = 1e-4,
        max_iter: int = 10_000,
        random_state: int | np.random.RandomState | None = 0,
        method: str | Method = "auto",
        class_weight: Any = None,
        warm_start: bool = False,
    ) -> None:
        self.partition = partition
        self.devices = devices
        self.C = C
        self.fit_intercept = fit_intercept
        self.switch = switch
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.method = method
        self.class_weight = class_weight
        self.warm_start = warm_start

    def fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: Any = None
    ) -> OwnStepClassifier:
        """Minimise; ``groups`` says who holds each row, in place of ``partition``."""
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        check_classification_targets(y)
        if np.inf != self.C:  # no L2 term at all, as in LogisticRegression
            number("C", self.C, above=0)
        self.classes_, codes = np.unique(y, return_inverse=True)
        weight = None
        if sample_weight is not None or self.class_weight is not None:
            weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            if self.class_weight is not None:
                balance = compute_class_weight(
                    self.class_weight, classes=self.classes_, y=np.asarray(y), sample_weight=weight
                )
                if not (np.isfinite(balance).all() and (balance >= 0).all()):
                    raise InvalidInput(f"class_weight must be finite and at least 0, got {self.class_weight!r}")
                weight = weight * balance[codes]
        counted = codes if weight is None else codes[weight > 0]
        if len(np.unique(counted)) < 2:
            left = self.classes_[counted[0]] if len(counted) else "none"
            raise ValueError(f"This solver needs at least 2 classes, the data has one class: {left!r}")
        if weight is not None and len(np.unique(codes[weight > 0])) < len(self.classes_):
            raise ValueError("This solver needs every class, some have rows of weight 0 only")
        outputs = 1 if len(self.classes_) == 2 else len(self.classes_)
        problem = self._solve(X, codes, 1 / self.C, weight, groups, self._start(outputs, X.shape[1]))
        self.coef_, self.intercept_ = self._unpacked(problem)
        return self

    def _problem(self, X: Any, y: NDArray[Any], split: Partition | None, mu: float, weights: Any) -> LinearModel:
        return logistic_regression(X, y, split, mu=mu, intercept=self.fit_intercept, weights=weights)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """a^T x + b: one column per class, or one number for two classes."""
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
        """Class probabilities, one column per class."""
        z = self.decision_function(X)
        return np.column_stack([expit(-z), expit(z)]) if z.ndim == 1 else np.asarray(softmax(z, axis=1))

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Logarithms of the class probabilities, without the detour over numbers that round to 0."""
        z = self.decision_function(X)
        return np.column_stack([log_expit(-z), log_expit(z)]) if z.ndim == 1 else np.asarray(log_softmax(z, axis=1))


class OwnStepRegressor(RegressorMixin, _Linear):  # type: ignore[misc]
    """Least squares with an L2 term by any method of this package, on data that may be split over devices.

    Minimises the objective of scikit-learn's ``Ridge``, divided by twice the sum of the weights s_j:

        sum_j s_j (a_j^T x + b - y_j)^2 / (2 sum_j s_j) + alpha/(2 sum_j s_j) ||x||^2;

    the intercept b is not penalised. Parameters and attributes are those of :class:`OwnStepClassifier`, with

    alpha : strength of the L2 term, at least 0.
    """

    def __init__(
        self,
        partition: str | ArrayLike | None = None,
        devices: int | None = None,
        alpha: float = 1.0,
        fit_intercept: bool = True,
        switch: str = "plateau",
        tol: float = 1e-4,
        max_iter: int = 10_000,
        random_state: int | np.random.RandomState | None = 0,
        method: str | Method = "auto",
        warm_start: bool = False,
    ) -> None:
        self.partition = partition
        self.devices = devices
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.switch = switch
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.method = method
        self.warm_start = warm_start

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: Any = None) -> OwnStepRegressor:
        """Minimise; ``groups`` says who holds each row, in place of ``partition``."""
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, y_numeric=True)
        number("alpha", self.alpha, 0)
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        problem = self._solve(X, np.asarray(y, float), float(self.alpha), weight, groups, self._start(1, X.shape[1]))
        coef, intercept = self._unpacked(problem)
        self.coef_, self.intercept_ = coef[0], float(intercept[0])
        return self

    def _problem(self, X: Any, y: NDArray[Any], split: Partition | None, mu: float, weights: Any) -> LinearModel:
        return LeastSquares(X, y, split, mu=mu, intercept=self.fit_intercept, weights=weights)

    def predict(self, X: Any) -> NDArray[np.float64]:
        """a^T x + b."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return np.asarray(X @ self.coef_ + self.intercept_)


__all__ = ["OwnStepClassifier", "OwnStepRegressor"]
