"""What the sketches of other devices say of the directions that a device did not send.

A device tells k eigenpairs (U_i, Lambda_i), and of the rest of its Hessian only the trace. Spread evenly, that rest is
too small along what the others sent and too large elsewhere, where devices are alike. With S = sum_j w_j U_j Lambda_j
U_j^T, all that was sent, and P_i = I - U_i U_i^T,

    H_i  ~  U_i Lambda_i U_i^T + b_i P_i S P_i + rho_i P_i,       rho_i = (left_i - b_i tr P_i S P_i) / (d - k_i),
    b_i = min(a_i, left_i / (2 tr P_i S P_i)),                     left_i = tr(H_i - U_i Lambda_i U_i^T).

a_i, at most 1, says how well the others foretell what the device did send: the trace of what they sent along U_i,
tr U_i^T (S - w_i U_i Lambda_i U_i^T) U_i / (1 - w_i), over tr Lambda_i. And at most half of the rest is taken to lie
where the others' sketches are, so that no direction is without curvature. S has the weights of the devices, so one of
few rows says little about one of many. One device alone, and one that sends everything, is as before.

All of it happens in the span of all vectors, or in R^d where they are more than d.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ownstep.methods.base import Vector
from ownstep.support.vectors import like, to_numpy

Array = NDArray[np.float64]
MOST_FILLED = 2000
"""Size of the largest matrix that is decomposed here; beyond it every rest is spread evenly."""
SHARE = 0.5
"""Of a device's rest, at most so much is taken to lie where the others' sketches are."""


def filled(vectors: Vector, values: Array, owner: NDArray[np.int_], share: Array, left: Array) -> tuple[Vector, float]:
    """(B, rho) for which B^T B + rho I is the sum of w_i H_i.

    Parameters
    ----------
    vectors, values, owner : (m, d) orthonormal rows per device, their eigenvalues, and whose each is.
    share : w_i, 0 for a device that is not known; below 1 each, summing to 1.
    left : the trace of what is left of each device.
    """
    m, d = vectors.shape
    if m < d:
        Z, back = _coordinates(to_numpy(vectors @ vectors.T).astype(float), float(np.finfo(_dtype(vectors)).eps))
    else:
        Z, back = to_numpy(vectors).astype(float), None
    core, rho = _summed(Z, values, owner, share, left, d)
    sizes, E = np.linalg.eigh(core)
    kept = sizes > np.finfo(float).eps * max(sizes[-1], 0.0)
    rows = np.sqrt(sizes[kept])[:, None] * E[:, kept].T
    if back is None:
        return like(rows.astype(_dtype(vectors)), vectors), rho
    return like((rows @ back).astype(_dtype(vectors)), vectors) @ vectors, rho


def _coordinates(gram: Array, eps: float) -> tuple[Array, Array]:
    """(Z, T) with V = Z Q for the orthonormal rows Q = T V, from V V^T."""
    squares, W = np.linalg.eigh((gram + gram.T) / 2)
    kept = squares > eps**0.75 * squares[-1]  # what is below stands for no direction of its own
    squares, W = squares[kept], W[:, kept]
    return W * np.sqrt(squares), (W / np.sqrt(squares)).T


def _summed(Z: Array, values: Array, owner: NDArray[np.int_], share: Array, left: Array, d: int) -> tuple[Array, float]:
    """(sum_i w_i H_i - rho I, rho) in coordinates in which the rows of Z are the vectors."""
    S = Z.T @ ((share[owner] * values)[:, None] * Z)
    F, inner = Z @ S, np.zeros_like(Z)
    total, blocks = float(np.trace(S)), [np.flatnonzero(owner == i) for i in range(len(share))]
    trace = np.array([max(0.0, total - float(np.einsum("ij,ij->", F[at], Z[at]))) for at in blocks])
    sent, tiny = np.bincount(owner, values, len(share)), np.finfo(float).tiny
    foretold = np.maximum(total - trace - share * sent, 0.0) / np.maximum((1 - share) * sent, tiny)
    b = np.minimum(np.where(sent > 0, np.minimum(foretold, 1.0), 1.0), SHARE * left / np.maximum(trace, tiny))
    others = np.maximum(d - np.bincount(owner, minlength=len(share)), 1)
    rho, a = (left - b * trace) / others, share * b
    for i, at in enumerate(blocks):
        inner[at] = a[i] * ((F[at] @ Z[at].T) @ Z[at])
    moved = a[owner][:, None] * F
    core = Z.T @ ((share[owner] * (values - rho[owner]))[:, None] * Z + inner - moved) - moved.T @ Z + a.sum() * S
    return (core + core.T) / 2, float(share @ rho)


def _dtype(vectors: Vector) -> np.dtype:
    return to_numpy(vectors[:1]).dtype
