"""Smoothness of linear models from their data: the largest eigenvalue, or the trace that bounds it.

With pointwise curvature at most kappa (1/4 for two-class logistic loss, 1/2 for softmax, 1 for squares)

    L_i = lambda_max( kappa A_i^T A_i / n_i + mu I )        L = lambda_max( kappa sum_i w_i A_i^T A_i / n_i + mu I ).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from ownstep.partition import squared_norms
from ownstep.problems.linear.model import LinearModel
from ownstep.smoothness.base import Smoothness
from ownstep.smoothness.every_device import DENSE_LIMIT, Search, tops
from ownstep.smoothness.lanczos import UNLUCKY
from ownstep.support.errors import InvalidInput, OwnstepError

FEW_DEVICES, SMALL = 128, 2**20
"""Up to so many devices and multiplications in a product, each has its own Gram matrix or call of ARPACK."""

HOW = "largest eigenvalue of the Hessian bound, by Lanczos"


def exact(problem: LinearModel, seed: int = 0) -> Smoothness:
    """L_i and the true L of f: Lanczos on A^T (A v), no d x d matrix when d is large.

    Exact for two-class logistic and least squares; for the softmax an upper bound, as no single x makes
    every row's curvature 1/2.
    """
    _require_linear(problem)
    small = problem.table.size * problem.outputs <= SMALL
    if small and len(problem.counts) <= FEW_DEVICES and not _wide_sparse(problem):
        every = range(len(problem.counts))
        values = np.array([_top(problem, [i], np.ones(1), seed) for i in every])
        pooled = float(values[0]) if len(every) == 1 else _top(problem, every, problem.weights, seed)
    else:
        values, pooled = tops(problem, Search(seed))
    return Smoothness(values, problem.curvature_kind, HOW, pooled)


def auto(problem: LinearModel, seed: int = 0) -> Smoothness:
    """Like ``exact``, but it takes about the time of 25 rounds at most: upper bounds where that is too short.

    Lanczos stops after 21 products, with several devices after 7 for L and 12 for the L_i. Where an eigenvalue is not
    known by then, an upper bound takes its place, which holds with a probability of 99.9 %. ``how`` says how far it may
    be above the eigenvalue. Tables of at most 2^20 stored numbers on at most 128 devices are measured exactly.
    """
    _require_linear(problem)
    if problem.table.size * problem.outputs <= SMALL and len(problem.counts) <= FEW_DEVICES:
        return exact(problem, seed)
    search = Search(seed, limited=True)
    values, pooled = tops(problem, search)
    gap = max(search.gaps, default=0.0)
    if not gap:
        return Smoothness(values, problem.curvature_kind, HOW, pooled)
    how = (
        f"upper bounds of the largest eigenvalue of the Hessian bound, at most {100 * gap:.3g} % above it, by Lanczos "
        f"stopped early; each holds with a probability of {100 * (1 - UNLUCKY):g} %"
    )
    return Smoothness(values, "upper bound", how, pooled)


def trace(problem: LinearModel) -> Smoothness:
    """Kappa mean_j ||a_j||^2 + mu, the mean over samples of each one's own constant.

    An upper bound, since a trace is at least the largest eigenvalue. It is what the paper's Fig. 2b shows.
    """
    _require_linear(problem)
    squares = np.empty(problem.starts[-1])

    def measure(block: slice) -> None:
        squares[block] = squared_norms(problem.table.rows(block))

    problem.table.share_out(measure, problem.table.blocks)
    values = problem.curvature * problem.means(squares) + problem.mu
    how = "mean over samples of the largest eigenvalue of each one's Hessian bound"
    return Smoothness(values, "upper bound", how, float(problem.weights @ values))


def _top(problem: LinearModel, devices: Any, weights: NDArray[np.float64], seed: int) -> float:
    """lambda_max of kappa sum_i weights_i A_i^T A_i / n_i + diag(penalty) over the given devices."""
    blocks = [problem.rows(i) for i in devices]
    scales = [problem.curvature * w / b.shape[0] for w, b in zip(weights, blocks, strict=True)]
    penalty = problem.penalty
    if len(blocks) == 1 and blocks[0].shape[0] <= DENSE_LIMIT and not problem.intercept:
        gram = _dense(blocks[0] @ blocks[0].T)  # A A^T has the same largest eigenvalue as A^T A
        return float(scales[0] * np.linalg.eigvalsh(gram)[-1]) + problem.mu
    if problem.features <= DENSE_LIMIT:
        total = sum(s * _dense(b.T @ b) for s, b in zip(scales, blocks, strict=True))
        return float(np.linalg.eigvalsh(total + np.diag(penalty))[-1])

    rows = blocks[0] if len(blocks) == 1 else (sp.vstack(blocks) if sp.issparse(blocks[0]) else np.vstack(blocks))
    factor = np.repeat(scales, [b.shape[0] for b in blocks])
    transposed = rows.T

    def product(v: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(transposed @ (factor * (rows @ v.ravel())) + penalty * v.ravel())

    return lanczos(product, problem.features, seed)


def lanczos(product: Callable[[NDArray[Any]], NDArray[Any]], dim: int, seed: int = 0) -> float:
    """Largest eigenvalue of the symmetric operator v -> product(v), by ARPACK's Lanczos iteration."""
    start = np.random.default_rng(seed).standard_normal(dim)
    try:
        top = eigsh(
            LinearOperator((dim, dim), matvec=product, dtype=float),
            k=1,
            which="LA",
            v0=start,
            return_eigenvectors=False,
        )
    except ArpackError as error:
        raise OwnstepError(f"Lanczos did not converge on the Hessian bound: {error}") from error
    return float(top[0])


def _wide_sparse(problem: LinearModel) -> bool:
    """Are products with all devices at once faster than Gram matrices, and than products with one after the other?"""
    return bool(sp.issparse(problem.table.A)) and problem.features > DENSE_LIMIT


def _dense(matrix: Any) -> NDArray[np.float64]:
    return np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix, float)


def _require_linear(problem: Any) -> None:
    if not isinstance(problem, LinearModel):
        raise InvalidInput(f"smoothness from the data needs a linear model, got {type(problem).__name__}")
