"""The largest eigenvalue of every device's Hessian bound, for any number of devices.

    L_i = lambda_max( kappa A_i^T A_i / n_i + diag(penalty) )

Large devices go one by one, each on a thread. Small ones go in batches: without an intercept A_i A_i^T has the same
largest eigenvalue, so a batch of dense devices is a stack of small Gram matrices, and a batch of sparse devices is one
block-diagonal matrix, whose columns are only those that each device uses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ownstep.problems.linear.model import LinearModel
from ownstep.problems.linear.second_order import gram
from ownstep.smoothness.lanczos import FEW, largest_eigenvalues

Array = NDArray[np.float64]
Product = Callable[[Array], Array]

DENSE_LIMIT = 128
"""Up to this size a Gram matrix is formed: it is faster than Lanczos and just as exact."""

GRAM_LIMIT = 1024
"""The same for many dense rows: forming it takes as long as some twenty products with them."""

GRAM_ROWS = 64
"""Rows up to which the A_i A_i^T of small sparse devices are written out and handed to LAPACK in a stack."""

LARGE = 2**17
"""Stored numbers from which a device is worked on alone."""

BATCH = 2**21
"""Stored numbers of small devices that are worked on together, at most; an eighth of them all where that is less."""

SHARED = 3
"""Entries of sparse Gram matrices per stored number up to which they are formed: one product with them replaces two."""


def tops(problem: LinearModel, seed: int = 0) -> tuple[Array, float]:
    """(L_i of every device, L of f itself)."""
    if len(problem.counts) == 1:
        alone = pooled_top(problem, seed)
        return np.array([alone]), alone
    long = problem.counts.min() >= 8 * problem.features  # then all Gram matrices together take less than the rows
    if long and problem.features <= GRAM_LIMIT and not sp.issparse(problem.table.A):
        return _from_grams(problem)
    return devices_tops(problem, seed), pooled_top(problem, seed)


def devices_tops(problem: LinearModel, seed: int = 0) -> Array:
    """L_i of every device."""
    sparse = sp.issparse(problem.table.A)
    sizes = np.diff(problem.table.A.indptr[problem.starts]) if sparse else problem.counts * problem.features
    values = np.empty(len(sizes))

    def measure(devices: NDArray[np.intp]) -> None:
        if len(devices) == 1:
            values[devices] = _alone(problem, int(devices[0]), seed)
        else:
            values[devices] = (_sparse_batch if sparse else _dense_batch)(problem, devices, seed)

    # Devices that are worked on together have about as many rows, or few.
    group = (problem.counts <= GRAM_ROWS) if sparse else np.ceil(np.log2(problem.counts))
    together = sizes < LARGE
    if not sparse and problem.features > DENSE_LIMIT:
        together &= (problem.counts <= DENSE_LIMIT) & (not problem.intercept)
    alone, small = np.flatnonzero(~together), np.flatnonzero(together)
    small = small[np.argsort(group[small], kind="stable")]
    most = max(1, min(BATCH, int(sizes[small].sum()) // 8))
    batch = (np.cumsum(sizes[small]) - sizes[small]) // most * 64 + group[small].astype(int)
    tasks = [np.array([i]) for i in alone] + np.split(small, np.flatnonzero(np.diff(batch)) + 1)
    problem.table.share_out(measure, [task for task in tasks if len(task)])
    return values


def pooled_top(problem: LinearModel, seed: int = 0) -> float:
    """L = lambda_max( kappa sum_i w_i A_i^T A_i / n_i + diag(penalty) ), of f itself."""
    scale, penalty, table = problem.curvature * problem.weights / problem.counts, problem.penalty, problem.table
    n, d = table.A.shape
    if d <= GRAM_LIMIT and d <= n and not sp.issparse(table.A):
        cuts = np.unique(np.linspace(0, n, 33).astype(int))
        parts: list[Any] = [None] * (len(cuts) - 1)

        def part(at: int) -> None:
            block = slice(cuts[at], cuts[at + 1])
            parts[at] = gram(table.rows(block), np.broadcast_to(problem.spread(scale, block), cuts[at + 1] - cuts[at]))

        table.share_out(part, range(len(parts)))
        return float(np.linalg.eigvalsh(sum(parts) + np.diag(penalty))[-1])

    def product(v: Array) -> Array:
        return table.transposed(lambda z, block: z * problem.spread(scale, block), v) + penalty * v

    return float(largest_eigenvalues(product, np.array([0, problem.features]), seed)[0])


def _from_grams(problem: LinearModel) -> tuple[Array, float]:
    """Both from one pass over the rows of few large devices: the Gram matrices add up to that of f."""
    scale, penalty = problem.curvature / problem.counts, np.diag(problem.penalty)
    values, parts = np.empty(len(scale)), list(scale)

    def measure(i: int) -> None:
        total: Any = sum(gram(rows, np.full(rows.shape[0], scale[i])) for _, rows in problem.pieces(i))
        values[i], parts[i] = np.linalg.eigvalsh(total + penalty)[-1], problem.weights[i] * total

    problem.table.share_out(measure, range(len(scale)))
    return values, float(np.linalg.eigvalsh(sum(parts) + penalty)[-1])


def _alone(problem: LinearModel, device: int, seed: int) -> float:
    scale, penalty = problem.curvature / problem.counts[device], problem.penalty
    limit = DENSE_LIMIT if sp.issparse(problem.table.A) else min(GRAM_LIMIT, int(problem.counts[device]))
    if problem.features <= max(limit, DENSE_LIMIT):
        parts = (gram(rows, np.full(rows.shape[0], scale)) for _, rows in problem.pieces(device))
        return float(np.linalg.eigvalsh(sum(parts) + np.diag(penalty))[-1])

    def product(v: Array) -> Array:
        return np.asarray(scale * sum(rows.T @ (rows @ v) for _, rows in problem.pieces(device)) + penalty * v)

    return float(largest_eigenvalues(product, np.array([0, problem.features]), seed)[0])


def _dense_batch(problem: LinearModel, devices: NDArray[np.intp], seed: int) -> Array:
    """Devices with few rows, or with few features, as a stack of Gram matrices."""
    counts, d = problem.counts[devices], problem.features
    X = np.zeros((len(devices), counts.max(), d))
    for row, i in enumerate(devices):
        X[row, : counts[row]] = problem.rows(int(i))
    scale = problem.curvature / counts
    if X.shape[1] <= d and not problem.intercept:
        return _stack_tops(X @ X.transpose(0, 2, 1), seed) * scale + problem.mu
    return _stack_tops(X.transpose(0, 2, 1) @ X * scale[:, None, None] + np.diag(problem.penalty), seed)


def _stack_tops(G: Array, seed: int) -> Array:
    count, m, _ = G.shape
    if m <= 2 * FEW or count <= FEW:
        return np.asarray(np.linalg.eigvalsh(G)[:, -1])
    return largest_eigenvalues(
        lambda v: (G @ v.reshape(count, m, 1)).ravel(), np.arange(0, count * m + 1, m), seed
    )  # fmt: skip


def _sparse_batch(problem: LinearModel, devices: NDArray[np.intp], seed: int) -> Array:
    """Devices with few entries: a stack of small matrices, or one block-diagonal matrix."""
    counts, scale = problem.counts[devices], problem.curvature / problem.counts[devices]
    rows = _rows(problem, devices)
    if not rows.nnz:
        return np.full(len(devices), problem.mu)
    crowded = len(devices) * problem.features <= 16 * rows.nnz  # else there are too many empty columns
    if crowded and not problem.intercept and counts.max() <= GRAM_ROWS:
        return _gram_tops(rows, counts) * scale + problem.mu
    B, Bt, columns, ends = _packed(rows, counts)
    if not problem.intercept:
        starts = np.concatenate([[0], np.cumsum(counts)])
        shared = np.diff(Bt.indptr).astype(float)  # rows of a device that have a feature in common
        if shared @ shared <= SHARED * rows.nnz:
            G = B @ Bt
            return largest_eigenvalues(lambda u: G @ u, starts, seed) * scale + problem.mu
        return largest_eigenvalues(lambda u: B @ (Bt @ u), starts, seed) * scale + problem.mu
    factor, penalty = np.repeat(scale, counts), problem.penalty[columns]
    tops = largest_eigenvalues(lambda v: Bt @ (factor * (B @ v)) + penalty * v, ends, seed)
    unused = np.diff(ends) < problem.features  # a feature that no row has curves by its penalty alone
    return np.where(unused, np.maximum(tops, problem.mu), tops)


def _gram_tops(rows: Any, counts: NDArray[np.intp]) -> Array:
    """The largest eigenvalue of every A_i A_i^T, a few devices at a time: their columns are laid side by side."""
    d, most = rows.shape[1], int(counts.max())
    starts, values = np.concatenate([[0], np.cumsum(counts)]), np.empty(len(counts))
    step = max(1, 2**18 // max(d, most**2))
    for first in range(0, len(counts), step):
        some = slice(first, min(first + step, len(counts)))
        owner = np.repeat(np.arange(some.stop - first), counts[some])
        place = np.arange(starts[first], starts[some.stop]) - np.repeat(starts[some], counts[some])
        indptr = rows.indptr[starts[first] : starts[some.stop] + 1]
        at = slice(indptr[0], indptr[-1])
        columns = rows.indices[at] + np.repeat((owner * d).astype(np.int32), np.diff(indptr))
        apart = sp.csr_array((rows.data[at], columns, indptr - indptr[0]), shape=(len(owner), (some.stop - first) * d))
        G = (apart @ apart.T).tocoo()
        stack = np.zeros((some.stop - first, most, most))
        stack[owner[G.row], place[G.row], place[G.col]] = G.data
        values[some] = np.linalg.eigvalsh(stack)[:, -1]
    return values


def _rows(problem: LinearModel, devices: NDArray[np.intp]) -> Any:
    """The rows of some devices, one after the other."""
    runs = np.split(devices, np.flatnonzero(np.diff(devices) != 1) + 1)
    parts = [problem.table.rows(slice(problem.starts[r[0]], problem.starts[r[-1] + 1])) for r in runs]
    return parts[0] if len(parts) == 1 else sp.vstack(parts, format="csr")


def _packed(rows: Any, counts: NDArray[np.intp]) -> tuple[Any, Any, NDArray[np.intp], NDArray[np.intp]]:
    """The rows of consecutive devices as a block-diagonal B without empty columns.

    Returns
    -------
    (B, B^T in rows of its own, the feature behind every column of B, where each device's columns start and end).
    """
    (n, d), nnz = rows.shape, int(rows.nnz)
    row = np.repeat(np.arange(n, dtype=np.int32), np.diff(rows.indptr))
    column = np.repeat(np.arange(len(counts)) * d, counts)[row] + rows.indices
    at = _counted(rows, column, counts, d) if nnz * 8 > len(counts) * d else _sorted(column)
    column = column[at]
    first = np.concatenate([[True], column[1:] != column[:-1]])
    place = np.empty(nnz, np.int32)
    place[at] = np.cumsum(first) - 1
    used, data = column[first], rows.data.astype(float)
    B = sp.csr_array((data, place, rows.indptr), shape=(n, len(used)))
    ends = np.append(np.flatnonzero(first), nnz).astype(np.int32)
    Bt = sp.csr_array((data[at], row[at], ends), shape=(len(used), n))
    return B, Bt, used % d, np.searchsorted(used, np.arange(len(counts) + 1) * d)


def _sorted(column: NDArray[np.int64]) -> NDArray[np.int64]:
    """The order of the columns by one sort of plain integers: the column above, the place below."""
    bits = len(column).bit_length()
    key = (column << bits) | np.arange(len(column))
    key.sort()
    return key & ((1 << bits) - 1)


def _counted(rows: Any, column: NDArray[np.int64], counts: NDArray[np.intp], d: int) -> NDArray[np.int64]:
    """The same by counting, a few devices at a time: faster where the devices' columns are not nearly all empty."""
    starts = np.concatenate([[0], np.cumsum(counts)])
    found = np.empty(len(column), np.int64)
    step = max(1, 2**16 // d)
    for i in range(0, len(counts), step):
        j = min(i + step, len(counts))
        indptr = rows.indptr[starts[i] : starts[j] + 1]
        at = slice(indptr[0], indptr[-1])
        places, shape = np.arange(at.start, at.stop), (len(indptr) - 1, (j - i) * d)
        found[at] = sp.csr_array((places, column[at] - i * d, indptr - indptr[0]), shape=shape).tocsc().data
    return found
