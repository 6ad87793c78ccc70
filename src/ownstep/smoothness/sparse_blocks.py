"""The Hessian bounds of many devices with sparse rows, as one block-diagonal matrix for Lanczos iteration.

The rows of the devices are laid below each other and their columns side by side, a band of columns for each device:

    B = diag(A_1, ..., A_K),          A_i padded with empty rows to the height of the tallest.

Nothing is sorted or stored twice for that: the column numbers of device i are moved by i times the number of features.
Where the bands would be nearly empty, each device's columns are numbered anew.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ownstep.smoothness.lanczos import Array, Blocks, Chosen

EMPTY = 16
"""Columns of all bands per stored number from which each device's columns are numbered anew."""

CACHED = 2**17
"""Numbers of B^T u that fit the L2 cache."""

SAMPLED = 7
"""Every so manieth stored number is looked at to guess how many features two rows share."""

STEPS = 15
"""Products that a matrix is expected to take, where it has as many rows."""

FORMING = 50
"""What a stored number costs in SciPy's product of two sparse matrices, and before it: see below."""


class Rows(Blocks):
    """A_i A_i^T by its factors: B (B^T u), for a few devices after the other, whose B^T u stays in the cache."""

    def __init__(self, B: Any, sizes: NDArray[np.intp]) -> None:
        super().__init__(sizes)
        self.B = B
        self.parts = [(some, part, part.T) for some, part in _in_cache(B, len(sizes), CACHED)]

    def __matmul__(self, u: Array) -> Array:
        out = np.empty_like(u)
        for some, B, Bt in self.parts:
            out[some] = (B @ (Bt @ u[some].ravel())).reshape(-1, u.shape[1])
        return out

    def only(self, chosen: Chosen) -> Blocks:
        """Some of the devices alone."""
        return Rows(_diagonal(self.B, chosen), self.sizes[chosen])


class Gram(Blocks):
    """A_i A_i^T written out, sparse."""

    def __init__(self, G: Any, sizes: NDArray[np.intp]) -> None:
        super().__init__(sizes)
        self.G = G

    def __matmul__(self, u: Array) -> Array:
        return np.asarray(self.G @ u.ravel()).reshape(u.shape)

    def only(self, chosen: Chosen) -> Blocks:
        """Some of the devices alone."""
        return Gram(_diagonal(self.G, chosen), self.sizes[chosen])


class Features(Blocks):
    """scale_i A_i^T A_i + diag(penalty_i)."""

    def __init__(self, B: Any, sizes: NDArray[np.intp], scale: Array, penalty: Array) -> None:
        super().__init__(sizes)
        self.B, self.Bt, self.scale, self.penalty = B, B.T, scale, penalty

    def __matmul__(self, v: Array) -> Array:
        seen = (self.B @ v.ravel()).reshape(len(v), -1)
        seen *= self.scale[:, None]
        out = np.asarray(self.Bt @ seen.ravel()).reshape(v.shape)
        out += self.penalty * v
        return out

    def only(self, chosen: Chosen) -> Blocks:
        """Some of the devices alone."""
        return Features(_diagonal(self.B, chosen), self.sizes[chosen], self.scale[chosen], self.penalty[chosen])


def by_rows(rows: Any, counts: NDArray[np.intp]) -> Blocks:
    """A_i A_i^T of consecutive devices with so many rows each."""
    B, _, _ = _banded(rows, counts)
    return Gram(_written(B, len(counts)), counts) if _worth_writing(rows, counts, B.shape[1]) else Rows(B, counts)


def tiny_grams(rows: Any, counts: NDArray[np.intp]) -> Array:
    """A_i A_i^T of consecutive devices with so few rows, dense: B B^T times the unit vectors, all at once."""
    B, count, height = _banded(rows, counts)[0], len(counts), int(counts.max())
    G, units = np.empty((count, height, height)), np.tile(np.eye(height), (count, 1))
    for some, part in _in_cache(B, count, CACHED):
        G[some] = (part @ (part.T @ units[: part.shape[0]])).reshape(-1, height, height)
    return G


def _in_cache(B: Any, count: int, columns: int) -> list[tuple[slice, Any]]:
    """(some devices, their part of B), with so many columns at a time."""
    height, width = B.shape[0] // count, B.shape[1] // count
    step, parts = max(1, columns // width), []
    for a, b in pairwise([*range(0, count, step), count]):
        here = slice(B.indptr[a * height], B.indptr[b * height])
        indptr = B.indptr[a * height : b * height + 1] - here.start
        shape = ((b - a) * height, (b - a) * width)
        parts.append((slice(a, b), _csr(B.data[here], B.indices[here] - np.int32(a * width), indptr, shape)))
    return parts


def _written(B: Any, count: int) -> Any:
    """B B^T, which is block-diagonal too."""
    grams = [part @ part.T.tocsr() for _, part in _in_cache(B, count, 4 * CACHED)]
    first = np.cumsum([0, *(gram.shape[0] for gram in grams)])
    column = np.concatenate([gram.indices + np.int32(a) for gram, a in zip(grams, first[:-1], strict=True)])
    lengths = np.concatenate([np.diff(gram.indptr) for gram in grams])
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return _csr(np.concatenate([gram.data for gram in grams]), column, indptr, (B.shape[0], B.shape[0]))


def _worth_writing(rows: Any, counts: NDArray[np.intp], columns: int) -> bool:
    """Is forming every A_i A_i^T, and one product with it per step, less work than two with the rows?

    In units of 0.6 ns: what SciPy takes for a number in a product. Zeros for B^T u are half a unit each.
    """
    some = rows.indices[::SAMPLED]
    common = float(np.sum((SAMPLED * np.bincount(some) / rows.shape[0]) ** 2))  # features that two rows share
    written = float(np.sum(counts.astype(float) ** 2)) * min(1.0, common) + rows.shape[0]
    steps = min(STEPS, int(counts.max()))
    return bool(FORMING * rows.nnz + steps * written < steps * (2 * rows.nnz + columns / 2))


def by_features(rows: Any, counts: NDArray[np.intp], scale: Array, penalty: Array) -> Blocks:
    """scale_i A_i^T A_i + diag(penalty) of consecutive devices; of their own features alone, where these are few."""
    B, features, sizes = _banded(rows, counts)
    width = B.shape[1] // len(counts)
    if features is None:
        return Features(B, sizes, scale, np.broadcast_to(penalty, (len(counts), width)))
    own = np.zeros((len(counts), width))
    own.flat[features[1]] = penalty[features[0]]
    return Features(B, sizes, scale, own)


def _banded(rows: Any, counts: NDArray[np.intp]) -> tuple[Any, Any, NDArray[np.intp]]:
    """(B, (features, the columns of B that they stand in) or None where all stand in their order, columns of each)."""
    (n, d), K, height = rows.shape, len(counts), int(counts.max())
    owner = np.repeat(np.arange(K), counts)
    entries = np.bincount(owner, np.diff(rows.indptr), minlength=K).astype(np.int64)
    if K * d <= EMPTY * max(1, rows.nnz):
        width, features, sizes = d, None, np.full(K, d)
        column = rows.indices + np.repeat((np.arange(K) * d).astype(np.int32), entries) if K > 1 else rows.indices
    else:
        key = np.repeat(np.arange(K) * d, entries) + rows.indices
        used, place = np.unique(key, return_inverse=True)
        ends = np.searchsorted(used, np.arange(K + 1) * d)
        sizes = np.diff(ends)
        width = max(1, int(sizes.max()))
        at = np.arange(len(used)) + np.repeat(np.arange(K) * width - ends[:-1], sizes)
        column, features = at[place].astype(np.int32), (used % d, at)
    lengths = np.zeros(K * height, np.int32)
    lengths[np.arange(n) + np.repeat(np.arange(K) * height - np.cumsum(counts) + counts, counts)] = np.diff(rows.indptr)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    data = rows.data.astype(float, copy=False)
    return _csr(data, column, indptr, (K * height, K * width)), features, sizes


def _diagonal(B: Any, chosen: Chosen) -> Any:
    """Some blocks of a block-diagonal matrix alone."""
    height, width = B.shape[0] // len(chosen), B.shape[1] // len(chosen)
    entries, at = np.diff(B.indptr[::height]), np.flatnonzero(chosen)
    here = np.repeat(chosen, entries)
    moved = ((at - np.arange(len(at))) * width).astype(np.int32)
    column = B.indices[here] - np.repeat(moved, entries[chosen])
    lengths = np.diff(B.indptr).reshape(-1, height)[at].ravel()
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return _csr(B.data[here], column, indptr, (len(at) * height, len(at) * width))


def _csr(data: Array, column: Any, indptr: Any, shape: tuple[int, int]) -> Any:
    """Without the checks and copies of the constructor."""
    matrix = sp.csr_array(shape, dtype=float)
    matrix.data, matrix.indices, matrix.indptr = data, column, indptr
    return matrix
