"""The largest eigenvalue of many symmetric matrices at once, by Lanczos iteration from products with vectors alone.

After m products with a positive semidefinite H the largest eigenvalue theta of the m x m tridiagonal matrix T is a
lower bound of H's, and some eigenvalue of H lies within

    beta_m |s_m|,          s_m: last entry of theta's eigenvector of T,

of it. As for every Rayleigh-Ritz value, the true error is of the order of that bound squared. Vectors are not
reorthogonalised: for the largest eigenvalue that only costs products, never accuracy (Paige 1971).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal

from ownstep.support.errors import OwnstepError

Array = NDArray[np.float64]

TOLERANCE = 1e-8
"""The error bound of every eigenvalue at the end, relative to it."""

MOST = 2000
"""Products after which an eigenvalue that has not converged is an error."""

NEWTON = 20
"""Newton steps on a tridiagonal matrix's eigenvalue before LAPACK is called."""

FEW = 8
"""Matrices up to which each has its own call of LAPACK."""


def largest_eigenvalues(product: Callable[[Array], Array], starts: NDArray[np.intp], seed: int = 0) -> Array:
    """The largest eigenvalue of every diagonal block of a block-diagonal positive semidefinite matrix.

    Parameters
    ----------
    product : v -> (the matrix) v.
    starts : where each block starts, and where the last one ends.
    seed : of the random start.
    """
    sizes = np.diff(starts)

    def spread(per_block: Array) -> Array:
        return per_block if len(sizes) == 1 else np.repeat(per_block, sizes)

    def dots(a: Array, b: Array) -> Array:
        return np.asarray([a @ b]) if len(sizes) == 1 else np.asarray(np.add.reduceat(a * b, starts[:-1]))

    v = np.random.default_rng(seed).standard_normal(starts[-1])
    v /= spread(np.sqrt(dots(v, v)))
    before, beta = np.zeros_like(v), np.zeros(len(sizes))
    ritz = _Few() if len(sizes) <= FEW else _Many(len(sizes))
    for _ in range(MOST):
        w = np.asarray(product(v), float)
        w -= spread(beta) * before
        alpha = dots(w, v)
        w -= spread(alpha) * v
        beta = np.sqrt(dots(w, w))
        if ritz.converged(alpha, beta):
            return ritz.values
        beta[beta <= np.finfo(float).eps * ritz.scale] = 0  # nothing new is left in this block: T is all of it
        with np.errstate(divide="ignore"):
            before, v = v, w * spread(np.where(beta > 0, 1 / beta, 0))
    raise OwnstepError(f"Lanczos did not converge on the Hessian bound in {MOST} products")


class _Ritz:
    """The tridiagonal matrices, and the largest eigenvalue of each."""

    def __init__(self) -> None:
        self.alpha: list[Array] = []
        self.beta: list[Array] = []
        self.values: Array = np.zeros(0)
        self.scale: Any = 0.0

    def converged(self, alpha: Array, beta: Array) -> bool:
        """Take in one more row of each T: are all values known?"""
        self.scale = np.maximum(self.scale, np.abs(alpha) + beta)
        self.alpha.append(alpha)
        done = self._update(beta)
        self.beta.append(beta)
        return done

    def _update(self, beta: Array) -> bool:
        raise NotImplementedError


class _Few(_Ritz):
    """One call of LAPACK per matrix, and only now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.next = 4

    def _update(self, beta: Array) -> bool:
        m = len(self.alpha)
        ended = bool((beta <= np.finfo(float).eps * self.scale).all())
        if m < self.next and not ended:
            return False
        self.next = m + max(2, m // 6)
        diagonal, side = np.array(self.alpha), np.array(self.beta)
        found = [
            eigh_tridiagonal(diagonal[:, i], side[:, i], select="i", select_range=(m - 1, m - 1))
            for i in range(len(beta))
        ]
        self.values = np.array([value[0] for value, _ in found])
        residual = beta * np.array([abs(vector[-1, 0]) for _, vector in found])
        return bool((residual <= TOLERANCE * self.values).all())


class _Many(_Ritz):
    """All matrices at once, step by step.

    theta_m is the zero of the last pivot of theta - T, which is concave and increasing right of theta_{m-1}; Newton's
    method from the left then climbs to it. The 2 x 2 matrix ((theta, r), (r, alpha_m)), with r the last residual, gives
    a start on the left; the pivot's slope at theta is 1 / s_m^2.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self.done = np.zeros(count, bool)
        self.residual = np.zeros(count)

    def _update(self, beta: Array) -> bool:
        last, m = self.alpha[-1], len(self.alpha)
        if m == 1:
            self.values, slope = last.copy(), np.ones_like(last)
        else:
            mean, half = (self.values + last) / 2, (self.values - last) / 2
            theta = np.where(self.done, self.values, mean + np.sqrt(half**2 + self.residual**2))
            good = np.zeros(len(theta), bool)
            for _ in range(NEWTON):
                pivot, slope, good = self._pivot(theta)
                move = np.divide(pivot, slope, out=np.zeros_like(theta), where=good & ~self.done)
                theta = theta - move
                if (np.abs(move) <= 4 * np.finfo(float).eps * theta).all():
                    break
            else:
                good &= np.abs(move) <= 1e-13 * theta
            self.values = theta
            for i in np.flatnonzero(~good & ~self.done):
                self.values[i], slope[i] = self._alone(int(i))
        self.residual = np.where(self.done, self.residual, beta / np.sqrt(slope))
        self.done |= self.residual <= TOLERANCE * self.values
        return bool(self.done.all())

    def _pivot(self, theta: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
        """The last pivot of theta - T, its derivative, and whether all others are positive."""
        pivot, slope, good = theta - self.alpha[0], np.ones_like(theta), np.ones(len(theta), bool)
        with np.errstate(all="ignore"):
            for alpha, beta in zip(self.alpha[1:], self.beta, strict=True):
                good &= pivot > 0
                ratio = beta / pivot
                slope = 1 + ratio**2 * slope
                pivot = theta - alpha - beta * ratio
        good &= np.isfinite(pivot) & np.isfinite(slope)
        return pivot, slope, good

    def _alone(self, i: int) -> tuple[float, float]:
        """(theta, 1 / s_m^2) of one matrix, from LAPACK, where rounding has spoilt the pivots."""
        diagonal, side = np.array([a[i] for a in self.alpha]), np.array([b[i] for b in self.beta])
        (value,), vector = eigh_tridiagonal(diagonal, side, select="i", select_range=(len(diagonal) - 1,) * 2)
        return float(value), float(1 / max(vector[-1, 0] ** 2, np.finfo(float).tiny))
