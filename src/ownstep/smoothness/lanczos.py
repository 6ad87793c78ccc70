"""The largest eigenvalue of many symmetric matrices at once, by Lanczos iteration from products with vectors alone.

After m products with a positive semidefinite H the largest eigenvalue theta of the m x m tridiagonal matrix T is a
lower bound of H's, and some eigenvalue of H lies within

    r = beta_m |s_m|,          s_m: last entry of theta's eigenvector of T,

of it; where the next eigenvalue is further away than a gap, the error is at most r^2 / gap.
Vectors are not reorthogonalised: for the largest eigenvalue that only costs products, never accuracy (Paige 1971).

Where products are limited, a theta that is not known yet comes with an upper bound of the largest eigenvalue lambda
(van Dorsselaer, Hochstenbach and van der Vorst 2000). The vectors of the iteration are p_k(H) v with polynomials p_0,
..., p_m of degrees 0 to m, p_m = det(x - T) / (beta_1 ... beta_m). They are orthonormal. So for lambda's eigenvector u
(u.v)^2 sum_k p_k(lambda)^2 is the square of u's projection on them, at most 1, and

    lambda <= the x > theta with sum_k p_k(x)^2 = 1 / c^2          wherever |u.v| >= c.

A random direction in s dimensions has |u.v| < c with a probability of at most c sqrt(2 s / pi), whatever u is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal

from ownstep.support.errors import OwnstepError

Array = NDArray[np.float64]
Chosen = NDArray[np.bool_]

TOLERANCE, ERROR = 1e-8, 1e-11
"""When an eigenvalue is known: r, or r^2 over the gap to the next one, relative to it.

They are so small for the sake of certainty: r says that some eigenvalue is near. A start that has little of the
largest one's direction converges to the second first. An ERROR of 1e-6 went wrong for 1 to 16 of 1,000 random
matrices, by up to 3 %; this one for none of 42,000.
"""

MOST = 2000
"""Products after which an eigenvalue that has not converged is an error."""

UNLUCKY = 1e-3
"""Probability, at most, that an upper bound is too low: that a start has too little of the eigenvector's direction."""

HALVINGS = 9
"""Halvings of the interval that an upper bound is looked for in."""

FEW = 8
"""Matrices up to which each has its own call of LAPACK."""

LAGUERRE = 60
"""Steps towards the largest eigenvalue of a tridiagonal matrix; five to eight are enough, else LAPACK finds it."""


class Blocks(ABC):
    """Symmetric positive semidefinite matrices of one size, known by their products.

    Parameters
    ----------
    sizes : rows of each matrix; those from there on are padding, and zero.
    """

    def __init__(self, sizes: NDArray[np.intp]) -> None:
        self.sizes = sizes

    @abstractmethod
    def __matmul__(self, v: Array) -> Array:
        """Every matrix times its row of v, as a new array."""

    @abstractmethod
    def only(self, chosen: Chosen) -> Blocks:
        """Some of the matrices alone."""


class One(Blocks):
    """A single matrix, given by its product with a vector."""

    def __init__(self, product: Callable[[Array], Array], size: int) -> None:
        super().__init__(np.array([size]))
        self.product = product

    def __matmul__(self, v: Array) -> Array:
        return np.asarray(self.product(v[0]), float)[None]

    def only(self, chosen: Chosen) -> Blocks:
        """There is one."""
        return self


class Stack(Blocks):
    """Matrices that are written out, as an array of shape (count, m, m) where m is the largest size."""

    def __init__(self, G: Array, sizes: NDArray[np.intp]) -> None:
        super().__init__(sizes)
        self.G = G

    def __matmul__(self, v: Array) -> Array:
        return np.asarray((self.G @ v[:, :, None])[:, :, 0])

    def only(self, chosen: Chosen) -> Blocks:
        """Some of the matrices alone."""
        return Stack(self.G[chosen], self.sizes[chosen])


class Enclosure(NamedTuple):
    """Bounds of the largest eigenvalue of every matrix, the same number twice where it is known."""

    lower: Array
    upper: Array


def largest_eigenvalues(H: Blocks, seed: int = 0) -> Array:
    """The largest eigenvalue of every matrix.

    Parameters
    ----------
    H : the matrices.
    seed : of the random start.
    """
    found = enclose(H, MOST, seed)
    if (found.lower < found.upper).any():
        raise OwnstepError(f"Lanczos did not converge on the Hessian bound in {MOST} products")
    return found.upper


def enclose(H: Blocks, most: int, seed: int = 0) -> Enclosure:
    """The largest eigenvalue of every matrix, or bounds of it where it is not known after ``most`` products.

    A matrix leaves when its own error is small enough: the others then go on without it. The upper bounds hold with a
    probability of at least 1 - ``UNLUCKY`` each.
    """
    v = np.random.default_rng(seed).standard_normal(int(H.sizes.max())) * _inside(H.sizes)
    v /= np.sqrt(_dots(v, v))[:, None]
    before, work = np.zeros_like(v), np.empty_like(v)
    values, left = np.empty(len(v)), np.arange(len(v))  # and which of them the vectors belong to
    unknown, often, every = np.ones(len(v), bool), *((12, 2) if len(v) <= FEW else (4, 3))  # LAPACK looks fast
    T: list[tuple[Array, Array]] = []
    beta, scale, look = np.zeros(len(v)), np.zeros(len(v)), 6
    for m in range(1, most + 1):
        w = H @ v
        w -= np.multiply(before, beta[:, None], out=work)
        alpha = _dots(w, v)
        w -= np.multiply(v, alpha[:, None], out=work)
        beta = np.sqrt(_dots(w, w))
        scale = np.maximum(scale, np.abs(alpha) + beta)
        beta[(beta <= TOLERANCE / 4 * scale) | (m >= 2 * H.sizes)] = 0  # r is as small: T is all there is
        T.append((alpha, beta))
        due = m >= look
        look = m + max(every, m // often) if due else look
        if m == most or (due and _worth_a_look(T)) or not beta[unknown].any():
            some = np.flatnonzero(unknown)
            values[left[some]], known = _tops(*np.array(T)[:, :, some].swapaxes(0, 1))
            unknown[some[known]] = False
            if known.all():
                return Enclosure(values, values)
            if m < most and 3 * unknown.sum() <= 2 * len(unknown):
                H, left, work = H.only(unknown), left[unknown], work[: unknown.sum()]
                T = [(a[unknown], b[unknown]) for a, b in T]
                v, w, beta, scale = v[unknown], w[unknown], beta[unknown], scale[unknown]
                unknown = unknown[unknown]
        with np.errstate(divide="ignore"):
            w *= np.where(beta > 0, 1 / beta, 0)[:, None]
        before, v = v, w
    upper, some, (alphas, betas) = values.copy(), left[unknown], np.array(T)[:, :, unknown].swapaxes(0, 1)
    upper[some] = _ceilings(alphas, betas, values[some], H.sizes[unknown])
    return Enclosure(values, upper)


def tops_of_stack(G: Array) -> Array:
    """The largest eigenvalue of many small symmetric matrices, from their tridiagonal forms by Householder's method.

    Parameters
    ----------
    G : (count, m, m).
    """
    A, m = np.ascontiguousarray(np.moveaxis(G, 0, 2)), G.shape[1]
    beta = np.zeros((m - 1, len(G)))
    for j in range(m - 2):
        v, rest = A[j + 1 :, j].copy(), A[j + 1 :, j + 1 :]
        beta[j] = np.sqrt((v * v).sum(axis=0))
        v[0] += np.copysign(beta[j], v[0])
        square = (v * v).sum(axis=0)
        p = np.einsum("abk,bk->ak", rest, v) * (2 / np.where(square > 0, square, 1))
        p -= (p * v).sum(axis=0) / np.where(square > 0, square, 1) * v
        rest -= v[:, None] * p + p[:, None] * v
    if m > 1:
        beta[-1] = A[-1, -2]
    return _many(np.array(np.diagonal(A).T), np.abs(beta))[0]


def _ceilings(alpha: Array, beta: Array, top: Array, sizes: NDArray[np.intp]) -> Array:
    """Upper bounds of the largest eigenvalues of matrices whose T have ``top`` as theirs: where c^2 sum_k p_k^2 is 1.

    beta_1 ... beta_m p_m(x) is at least (x - top)^m, which tells where to look.
    """
    c = UNLUCKY * np.sqrt(np.pi / (2 * sizes))
    low, high = top, top + np.exp((np.log(beta).sum(axis=0) - np.log(c)) / len(alpha))
    for _ in range(HALVINGS):
        x = (low + high) / 2
        q = x - alpha[0]
        p = c * q / beta[0]
        total = c**2 + p**2
        for diagonal, before, side in zip(alpha[1:], beta[:-1], beta[1:], strict=True):
            q = x - diagonal - before**2 / q
            p *= q / side
            total += p**2
        low, high = np.where(total < 1, x, low), np.where(total < 1, high, x)
    return np.asarray(high)


def _inside(sizes: NDArray[np.intp]) -> Array:
    return np.asarray(np.arange(sizes.max()) < sizes[:, None], float)


def _dots(a: Array, b: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->i", a, b))


def _worth_a_look(T: list[tuple[Array, Array]]) -> bool:
    """May a third of the eigenvalues be known? Not while r is too large, which products tell without eigenvalues.

    With s the eigenvector of theta, |s_1 s_m| = beta_1 ... beta_{m-1} / prod (theta - theta_i) over the m - 1 other
    eigenvalues. These differences add up to m theta - trace T, so their product is largest where all are alike.
    Gershgorin bounds theta.
    """
    alpha, beta = np.array(T).swapaxes(0, 1)
    m, sides = len(alpha), np.pad(beta[:-1], ((1, 1), (0, 0)))
    theta = (alpha + sides[:-1] + sides[1:]).max(axis=0)
    apart = (m * theta - alpha.sum(axis=0)) / max(1, m - 1)
    with np.errstate(all="ignore"):
        least = np.prod(beta[:-1] / apart, axis=0) * beta[-1] / theta
    return bool(3 * (~(least**2 > ERROR)).sum() >= len(least))


def _tops(alpha: Array, beta: Array) -> tuple[Array, Chosen]:
    """(the largest eigenvalue of every T, whether it is that of H up to the error).

    ``alpha`` and ``beta`` have a column for every T: its diagonal, and its side with the coupling to the rest below.
    """
    top, bottom, second = (_few if alpha.shape[1] <= FEW else _many)(alpha, beta[:-1])
    r = beta[-1] * bottom
    known = (r <= TOLERANCE * top) | second(top - r**2 / (ERROR * np.maximum(top, np.finfo(float).tiny)))
    return top, np.asarray(known)


Found = tuple[Array, Array, Callable[[Array], Chosen]]
"""(largest eigenvalues theta, |s_m| of each, x -> is theta the only eigenvalue above x?)"""


def _few(alpha: Array, beta: Array) -> Found:
    """One call of LAPACK per matrix."""
    m, count = alpha.shape
    last = (max(0, m - 2), m - 1)
    found = [eigh_tridiagonal(alpha[:, i], beta[:, i], select="i", select_range=last) for i in range(count)]
    values = np.array([values for values, _ in found])
    bottom = np.array([abs(vectors[-1, -1]) for _, vectors in found])
    return values[:, -1], bottom, lambda x: x > (values[:, 0] if m > 1 else 0)


def _many(alpha: Array, beta: Array) -> Found:
    """All matrices at once, by Laguerre's method on p(x) = det(x - T) from the right of all eigenvalues.

    p is the product of the pivots q_1 = x - alpha_1, q_j = x - alpha_j - beta_{j-1}^2 / q_{j-1}. With G = p'/p and
    F = G^2 - p''/p a step of m / (G + sqrt((m - 1) (m F - G^2))) never passes the largest eigenvalue, and the error is
    cubed in the end. The derivative of q_m there is 1 / s_m^2.
    """
    squares = beta**2
    sides = np.pad(beta, ((1, 1), (0, 0)))
    x = (alpha + sides[:-1] + sides[1:]).max(axis=0)  # Gershgorin
    x[x <= 0] = 1  # the zero matrix
    top, bottom, left = x.copy(), np.zeros_like(x), np.arange(len(x))
    a, b = alpha, squares
    with np.errstate(all="ignore"):
        for _ in range(LAGUERRE):
            step, slope = _laguerre(a, b, x)
            x = x - step
            top[left], bottom[left] = x, np.where(np.isfinite(slope), 1 / np.sqrt(slope), 0)
            unsettled = ~(step <= 1e-13 * x)
            if not unsettled.any():
                break
            if 2 * unsettled.sum() <= len(x):  # where two eigenvalues nearly meet, steps are short and many
                a, b, x, left = a[:, unsettled], b[:, unsettled], x[unsettled], left[unsettled]
                unsettled = unsettled[unsettled]
        else:
            left = left[unsettled]
            top[left], bottom[left], _ = _few(alpha[:, left], beta[:, left])
    return top, bottom, lambda bound: _above(alpha, squares, bound) == 1


def _laguerre(alpha: Array, squares: Array, x: Array) -> tuple[Array, Array]:
    """(Laguerre's step from x towards the largest eigenvalue, the derivative of q_m at x)."""
    m = len(alpha)
    q, dq, ddq = x - alpha[0], np.ones_like(x), np.zeros_like(x)
    a, b, least = dq / q, ddq, q
    G, F = a, a**2
    for diagonal, square in zip(alpha[1:], squares, strict=True):
        t = square / q
        q, dq, ddq = x - diagonal - t, 1 + t * a, t * (b - 2 * a**2)
        a, b, least = dq / q, ddq / q, np.minimum(least, q)
        G, F = G + a, F + a**2 - b
    step = m / (G + np.sqrt(np.maximum((m - 1) * (m * F - G**2), 0)))
    # else rounding has taken x to an eigenvalue already
    return np.where((step > 0) & (least > 0), step, 0), dq


def _above(alpha: Array, squares: Array, x: Array) -> NDArray[np.intp]:
    """How many eigenvalues of each T are above x: as many as pivots of x - T are negative."""
    q = x - alpha[0]
    count = (q < 0).astype(int)
    with np.errstate(all="ignore"):
        for diagonal, square in zip(alpha[1:], squares, strict=True):
            q = x - diagonal - square / q
            count += q < 0
    return np.where(np.isfinite(q), count, -1)
