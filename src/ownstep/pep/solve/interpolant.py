r"""A function through given triples: the proof that a worst case is attained, and a thing one can evaluate.

For triples (x_j, v_j, phi_j) of a convex function of smoothness M,

    W(y) = min over weights a_j >= 0, sum_j a_j = 1, of
           M/2 || y - sum_j a_j (x_j - v_j/M) ||^2 + sum_j a_j (phi_j - ||v_j||^2 / (2M))

is convex and M-smooth *whatever the triples are* (a Moreau envelope), with gradient M (y - sum_j a_j (x_j - v_j/M)),
and it takes the value phi_j and the gradient v_j at x_j exactly when the triples meet the interpolation conditions
(Drori, 2018; Taylor, Hendrickx and Glineur, 2017). Adding mu/2 ||y||^2 gives a member of F(mu, L) with M = L - mu.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Interpolant:
    """A mu-strongly convex, L-smooth function, built from triples; call it for its value, or ask for both.

    Parameters
    ----------
    x, g, f : points and gradients as rows, and values.
    """

    def __init__(self, x: Array, g: Array, f: Array, mu: float, L: float) -> None:
        self.x, self.g, self.f, self.mu, self.L = x, g, f, float(mu), float(L)
        self._M = M = L - mu
        self._origin: tuple[float, Array] | None = None
        if M > 0:
            v = g - mu * x
            phi = f - mu / 2 * np.einsum("ij,ij->i", x, x)
            self._corners = x - v / M
            self._heights = phi - np.einsum("ij,ij->i", v, v) / (2 * M)

    def origin(self) -> tuple[float, Array]:
        """f(0) and grad f(0), computed once."""
        if self._origin is None:
            self._origin = self.both(np.zeros(self.x.shape[1]))
        return self._origin

    def __call__(self, y: Array) -> float:
        """f(y)."""
        return self.both(y)[0]

    def gradient(self, y: Array) -> Array:
        """Grad f(y)."""
        return self.both(y)[1]

    def both(self, y: Array) -> tuple[float, Array]:
        """f(y) and grad f(y)."""
        value, gradient = self.mu / 2 * float(y @ y), self.mu * y
        if self._M > 0:
            support, shares = _nearest(self._corners, self._heights, self._M, y)
            apart = y - shares @ self._corners[support]
            value += self._M / 2 * float(apart @ apart) + float(shares @ self._heights[support])
            gradient = gradient + self._M * apart
        return value, gradient


class Pieces(Interpolant):
    """The largest of the affine functions f_j + <g_j, y - x_j>: the smallest convex function through triples.

    At a point where several are the largest, the gradient is that of the first of them.
    """

    def both(self, y: Array) -> tuple[float, Array]:
        """f(y) and one of its subgradients."""
        heights = self.f + np.einsum("ij,ij->i", self.g, y - self.x)
        best = int(np.argmax(heights))
        return float(heights[best]), self.g[best]


def _nearest(corners: Array, heights: Array, M: float, y: Array) -> tuple[list[int], Array]:
    """The weights a of W(y): an active-set method on the simplex that ends exactly, usually at one corner."""
    offset = corners - y
    costs = M / 2 * np.einsum("ij,ij->i", offset, offset) + heights
    support, shares = [int(np.argmin(costs))], np.ones(1)
    for _ in range(10 * len(corners)):
        pull = offset @ (shares @ offset[support])
        slope = heights + M * pull
        best = int(np.argmin(slope))
        level = float(shares @ slope[support])
        size = np.abs(heights[[best, *support]]) + M * np.abs(pull[[best, *support]])
        if best in support or slope[best] >= level - 4e-16 * size.max():
            break
        support, shares = _face(offset, heights, M, [*support, best], np.append(shares, 0.0))
    return support, shares


def _face(offset: Array, heights: Array, M: float, support: list[int], shares: Array) -> tuple[list[int], Array]:
    """Minimise over the face of ``support``, leaving corners whose weight reaches zero."""
    while len(support) > 1:
        edges = offset[support[1:]] - offset[support[0]]
        slope = heights[support[1:]] - heights[support[0]] + M * edges @ (shares @ offset[support])
        basis, size, _ = np.linalg.svd(edges, full_matrices=len(edges) > edges.shape[1])
        curved = size > 1e-12 * size[0] if size[0] > 0 else np.zeros(len(size), bool)
        rank = int(curved.sum())
        flat = basis[:, rank:] @ (basis[:, rank:].T @ slope)
        if np.abs(flat).max() > 1e-13 * np.abs(slope).max() and rank < len(edges):
            move, longest = -flat, np.inf  # linear along this direction: go until a weight vanishes
        else:
            newton = (basis[:, :rank].T @ slope) / (M * size[:rank] ** 2)
            move, longest = -basis[:, :rank] @ newton, 1.0
        step = np.concatenate([[-move.sum()], move])
        falling = step < 0
        limits = np.where(falling, shares / np.where(falling, -step, 1.0), np.inf)
        blocking = int(np.argmin(limits))
        length = min(longest, float(limits[blocking]))
        if not np.isfinite(length):
            break
        shares = np.maximum(shares + length * step, 0.0)
        if limits[blocking] > longest:
            break
        support = support[:blocking] + support[blocking + 1 :]
        shares = np.delete(shares, blocking)
    return support, shares / shares.sum()
