"""The largest eigenvalue of many symmetric matrices at once, by Lanczos iteration from products with vectors alone.

After m products with a positive semidefinite H the largest eigenvalue theta of the m x m tridiagonal matrix T is a
lower bound of H's, and some eigenvalue of H lies within

    beta_m |s_m|,          s_m: last entry of theta's eigenvector of T,

of it; where the next eigenvalue is further away than a gap, the error is at most that bound squared over the gap.
Vectors are not reorthogonalised: for the largest eigenvalue that only costs products, never accuracy (Paige 1971).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal

from ownstep.support.errors import OwnstepError

Array = NDArray[np.float64]

TOLERANCE, ERROR = 1e-8, 1e-11
"""When an eigenvalue is known: the error bound above, or its square over the gap to the next value, relative to it."""

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


class _Ritz(ABC):
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

    @abstractmethod
    def _update(self, beta: Array) -> bool:
        """Find the largest eigenvalue of each T, which ``beta`` couples to what is left: are all known?"""


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
            eigh_tridiagonal(diagonal[:, i], side[:, i], select="i", select_range=(max(0, m - 2), m - 1))
            for i in range(len(beta))
        ]
        self.values = np.array([values[-1] for values, _ in found])
        gap = np.array([np.ptp(values) for values, _ in found])
        residual = beta * np.array([abs(vectors[-1, -1]) for _, vectors in found])
        sharp = residual**2 <= ERROR * self.values * gap
        return bool((sharp | (residual <= TOLERANCE * self.values)).all())


class _Many(_Ritz):
    """All matrices at once, step by step.

    Let q_j be the pivots of theta - T. The last one vanishes at theta_m, the largest eigenvalue:

        (theta - alpha_m) q_{m-1}(theta) = beta_{m-1}^2.

    Right of theta_{m-1}, where q_{m-1} is concave and increasing, its tangent gives a quadratic equation whose larger
    root is at most theta_m; so repeating this climbs to theta_m. The derivative of q_m there is 1 / s_m^2.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self.done = np.zeros(count, bool)
        self.slope = np.ones(count)

    def _update(self, beta: Array) -> bool:
        if len(self.alpha) == 1:
            self.values = self.alpha[0].copy()
        else:
            self._climb()
        residual = beta / np.sqrt(self.slope)
        self.done |= residual <= TOLERANCE * self.values
        left = np.flatnonzero(~self.done)
        if len(left):
            # the error is at most residual^2 / gap, and the gap is wide enough if no second value of T lies within it
            wide = residual[left] ** 2 / (ERROR * self.values[left])
            self.done[left] = (wide < self.values[left]) & self._single(self.values[left] - wide, left)
        return bool(self.done.all())

    def _climb(self) -> None:
        """From the largest eigenvalue of every T without its last row to that of T."""
        alpha, beta = self.alpha[-1], self.beta[-1]
        theta, pivot, slope = self.values, np.zeros_like(alpha), self.slope
        for _ in range(NEWTON):
            above = theta - alpha
            half = (pivot + slope * above) / 2
            root = np.sqrt(np.maximum(half**2 + slope * (beta**2 - pivot * above), 0))
            move = (root - half) / slope
            theta = np.where(self.done, theta, theta + move)
            pivot, slope, good = self._pivot(theta)
            settled = np.abs(move) <= 1e-13 * theta
            if (self.done | ~good | settled).all():
                break
        good &= settled
        with np.errstate(all="ignore"):
            slope = 1 + (beta / pivot) ** 2 * slope
        good &= np.isfinite(slope)
        self.values, self.slope = theta, np.where(self.done, self.slope, slope)
        for i in np.flatnonzero(~good & ~self.done):
            self.values[i], self.slope[i] = self._alone(int(i))

    def _pivot(self, theta: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
        """The last pivot but one of theta - T, its derivative, and whether all up to it are positive."""
        pivot, slope = theta - self.alpha[0], np.ones_like(theta)
        good = pivot > 0
        with np.errstate(all="ignore"):
            for alpha, beta in zip(self.alpha[1:-1], self.beta, strict=False):
                ratio = beta / pivot
                slope = 1 + ratio**2 * slope
                pivot = theta - alpha - beta * ratio
                good &= pivot > 0
        good &= np.isfinite(slope)
        return np.where(good, pivot, 1), np.where(good, slope, 1), good

    def _single(self, bound: Array, chosen: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Does exactly one eigenvalue of T lie above the bound? As many do as pivots of bound - T are negative."""
        pivot = bound - self.alpha[0][chosen]
        above = (pivot < 0).astype(int)
        with np.errstate(all="ignore"):
            for alpha, beta in zip(self.alpha[1:], self.beta, strict=True):
                pivot = bound - alpha[chosen] - beta[chosen] ** 2 / pivot
                above += pivot < 0
        return np.asarray((above == 1) & np.isfinite(pivot))

    def _alone(self, i: int) -> tuple[float, float]:
        """(theta, 1 / s_m^2) of one matrix, from LAPACK, where rounding has spoilt the pivots."""
        diagonal, side = np.array([a[i] for a in self.alpha]), np.array([b[i] for b in self.beta])
        (value,), vector = eigh_tridiagonal(diagonal, side, select="i", select_range=(len(diagonal) - 1,) * 2)
        return float(value), float(1 / max(vector[-1, 0] ** 2, np.finfo(float).tiny))
