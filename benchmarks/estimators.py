"""The estimator against scikit-learn's LogisticRegression, both to a gradient norm of 1e-8: seconds, and coefficients.

    python benchmarks/estimators.py              digits, breast cancer, w8a
    python benchmarks/estimators.py large        1,000,000 x 100 dense as well (6 GiB of memory, minutes)

A solver's own ``tol`` means something else for each: every peer is run at the loosest of 1e-4, 1e-5, ... whose gradient
is small enough, so that none does more than it has to. Times are the best of five runs (of one, for the large table).
"""

from __future__ import annotations

import sys
import time
import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import ownstep
from ownstep.problems import logistic_regression
from ownstep.sklearn import OwnStepClassifier

GOAL = 1e-8


def gradient_norm(problem, model) -> float:
    table = np.column_stack([model.coef_, model.intercept_])
    return float(np.linalg.norm(problem.mix(table.T.ravel(), problem.weights)[1]))


def seconds(make, rows, labels, repeats: int):
    best, model = np.inf, None
    for _ in range(repeats):
        model = make()
        began = time.perf_counter()
        model.fit(rows, labels)
        best = min(best, time.perf_counter() - began)
    return best, model


def at_goal(solver: str, rows, labels, problem, repeats: int):
    for power in range(4, 13):
        make = lambda tol=10.0**-power: LogisticRegression(solver=solver, tol=tol, max_iter=10_000)  # noqa: E731
        model = make().fit(rows, labels)
        if gradient_norm(problem, model) <= GOAL:
            break
    return seconds(make, rows, labels, repeats)  # the tightest, where none is tight enough


def compare(name: str, rows, labels, repeats: int = 5) -> None:
    problem = logistic_regression(rows, labels, mu=1 / rows.shape[0], intercept=True)
    ours, model = seconds(lambda: OwnStepClassifier(tol=GOAL), rows, labels, repeats)
    print(f"{name}: ours {ours:.4f} s, {model.n_iter_} rounds, gradient {gradient_norm(problem, model):.1e}")
    times = {}
    for solver in ("lbfgs", "newton-cholesky"):
        taken, theirs = at_goal(solver, rows, labels, problem, repeats)
        reached, gap = gradient_norm(problem, theirs), float(abs(theirs.coef_ - model.coef_).max())
        print(f"  {solver}: {taken:.4f} s, gradient {reached:.1e}, coefficients differ by at most {gap:.1e}")
        if reached <= GOAL:
            times[solver] = taken
    better = min(times, key=times.__getitem__)
    print(f"  ratio to the better one ({better}): {ours / times[better]:.2f}")


def large(samples: int = 1_000_000, features: int = 100):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((samples, features))
    labels = (rows @ rng.standard_normal(features) / 5 + rng.logistic(size=samples) > 0).astype(int)
    return rows, labels


def main() -> None:
    warnings.simplefilter("ignore")
    for name, load in {"breast cancer": load_breast_cancer, "digits": load_digits}.items():
        rows, labels = load(return_X_y=True)
        compare(name, StandardScaler().fit_transform(rows), labels)
    compare("w8a", *ownstep.load("w8a").table())
    if sys.argv[1:] == ["large"]:
        compare("1,000,000 x 100", *large(), repeats=1)


if __name__ == "__main__":
    main()
