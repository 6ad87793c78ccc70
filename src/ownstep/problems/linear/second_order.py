"""Second derivatives of linear models, from their rows and the pointwise second derivative alone.

    H_i = (1/n_i) sum_j a_j a_j^T (x) W_j + diag(penalty),        W_j = the C x C second derivative at z_j = a_j^T x

with C outputs; coordinate (feature f, output c) of x is number f C + c. Dense rows go through in blocks, so that no
copy of all of them is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ownstep.support.lazy import LazyModule

if TYPE_CHECKING:
    from ownstep.problems.linear.model import LinearModel

sp = LazyModule("scipy.sparse")
Array = NDArray[Any]
BLOCK = 2**21
"""Entries of a block of dense rows, or of a product with them."""
NARROW = 0.9
"""Share of its columns that a sparse device may use for the others to be left out."""


class DataHessian:
    """The Hessian of a device's data term at x, known by what it does to vectors.

    Parameters
    ----------
    model, x, device : whose, where, and of which device.
    """

    convex = True

    def __init__(self, model: LinearModel, x: Array, device: int) -> None:
        self.rows = model.rows(device)
        self.features, self.outputs, self.dim = model.features, model.outputs, model.dim
        self.template = x
        self.penalty, self.free = model.mu, model.outputs * model.intercept
        self.curved = pointwise(model, x, self.rows) / self.count

    @property
    def count(self) -> int:
        """Rows of the device."""
        return int(self.rows.shape[0])

    def __matmul__(self, V: Array) -> Array:
        """H_i V, for the columns of V at once."""
        k = V.shape[1]
        if not k:  # a sketch of rank 0
            return np.zeros_like(V)
        wide, out = V.reshape(self.features, self.outputs * k), None
        for block in blocks(self.rows, self.outputs * k):
            rows = self.rows if block == slice(None) else self.rows[block]
            seen = rows @ wide
            if self.outputs == 1:
                seen *= self.curved[block, 0]
            else:
                seen = (self.curved[block] @ seen.reshape(-1, self.outputs, k)).reshape(-1, self.outputs * k)
            image = rows.T @ seen
            out = image if out is None else np.add(out, image, out=out)
        return np.asarray(out).reshape(V.shape)

    def root(self) -> Root | None:
        """A with A^T A = H_i: for one output, where the loss is convex at every row."""
        if self.outputs > 1 or self.curved.min() < 0:
            return None
        return Root(self.rows, np.sqrt(self.curved[:, 0]), self.used if sp.issparse(self.rows) else None)

    @cached_property
    def used(self) -> NDArray[np.bool_]:
        """The columns of the device's rows that are not 0."""
        if not sp.issparse(self.rows):
            used = np.asarray(self.rows[0] != 0)  # most often all of them are
            used[~used] = self.rows[:, ~used].any(axis=0)
            return used
        used = np.zeros(self.features, bool)
        used[self.rows.indices] = True
        return used

    @property
    def span(self) -> int:
        """At most so many eigenvalues of H_i are not 0: of each row, and of each column that is not 0, rank W_j."""
        flat = self.outputs > 1 and np.abs(self.curved.sum(axis=2)).max() <= 1e-6 * np.abs(self.curved).max()
        return min(self.count, int(self.used.sum())) * (self.outputs - int(flat))

    @property
    def trace(self) -> float:
        """sum_j ||a_j||^2 trace W_j / n_i."""
        curved = np.trace(self.curved, axis1=1, axis2=2).astype(float)
        if sp.issparse(self.rows):
            return float(np.repeat(curved, np.diff(self.rows.indptr)) @ self.rows.data.astype(float) ** 2)
        return float(np.einsum("ij,ij->i", self.rows, self.rows).astype(float) @ curved)


class Root:
    """A = diag(scale) rows, by its products; sparse rows without the columns that they do not use.

    Parameters
    ----------
    rows, scale : (n, d), and (n, 1) numbers of at least 0.
    used : (d,) which columns of sparse rows are not 0; None for dense rows.
    """

    def __init__(self, rows: Any, scale: Array, used: NDArray[np.bool_] | None) -> None:
        self.dim, self.scale, self.at = int(rows.shape[1]), scale, None
        self.rows, self.entries = rows, int(rows.size)
        if used is not None:
            width, columns = self.dim, rows.indices
            if 0 < int(used.sum()) <= NARROW * self.dim:
                self.at = np.flatnonzero(used)
                width, columns = len(self.at), (np.cumsum(used) - 1).astype(columns.dtype)[columns]
            data = rows.data * np.repeat(scale[:, 0], np.diff(rows.indptr))
            self.rows = sp.csr_array((rows.shape[0], width), dtype=data.dtype)  # without the constructor's checks
            self.rows.data, self.rows.indices, self.rows.indptr = data, columns, rows.indptr
        self.shape = self.rows.shape

    def __matmul__(self, V: Array) -> Array:
        """A V."""
        out: Array = self.rows @ V
        if not sp.issparse(self.rows):
            out *= self.scale
        return out

    def back(self, Z: Array) -> Array:
        """A^T Z."""
        return np.asarray(self.rows.T @ (Z if sp.issparse(self.rows) else self.scale * Z))

    def narrow(self, V: Array) -> Array:
        """The rows of V, (d, k), that stand for columns of A."""
        return V if self.at is None else V[self.at]

    def widen(self, U: Array) -> Array:
        """U, (k, columns of A), with zeros for the columns that are not used."""
        if self.at is None:
            return U
        whole = np.zeros((len(U), self.dim), U.dtype)
        whole[:, self.at] = U
        return whole


def pointwise(model: LinearModel, x: Array, rows: Any) -> Array:
    """(n, C, C) second derivatives W_j of the loss at these rows."""
    z = rows @ model._shaped(x)
    if model.outputs == 1:
        return np.asarray(model._second(z, np.ones_like(z)))[:, None, None]
    return model._curved(z)


def hessian(model: LinearModel, x: Array, c: NDArray[np.float64]) -> NDArray[np.float64]:
    """sum_i c_i H_i at x, penalty included, as a (d, d) matrix; one pass whatever the number of devices."""
    A, F, C = model.table.A, model.features, model.outputs
    if C == 1:
        z = A @ x
        curved = model._second(z, model.spread(np.asarray(c / model.counts, z.dtype), slice(None)) * np.ones_like(z))
        H = gram(A, np.asarray(curved, float))
        H.flat[:: F + 1] += float(np.sum(c)) * model.penalty
        return H
    curved = pointwise(model, x, A).astype(float) * model.spread(c / model.counts, slice(None))[:, None, None]
    total = np.zeros((F, C, F, C))
    for a in range(C):
        for b in range(a, C):
            total[:, a, :, b] = gram(A, curved[:, a, b])
            total[:, b, :, a] = total[:, a, :, b]
        total[np.arange(F), a, np.arange(F), a] += float(np.sum(c)) * model.penalty
    return total.reshape(F * C, F * C)


def gram(rows: Any, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """sum_j weights_j a_j a_j^T."""
    if sp.issparse(rows):
        scaled = sp.diags_array(weights) @ rows
        return np.asarray((rows.T @ scaled).toarray(), float)
    total = np.zeros((rows.shape[1],) * 2)
    if weights.min() < 0:
        for block in blocks(rows, rows.shape[1]):
            total += rows[block].T @ (rows[block] * weights[block, None])
        return total
    roots = np.sqrt(weights)
    for block in blocks(rows, rows.shape[1]):
        scaled = np.multiply(rows[block], roots[block, None], dtype=float)
        total += scaled.T @ scaled  # NumPy sees that this is symmetric: half the work
    return total


def blocks(rows: Any, width: int) -> Iterator[slice]:
    """Slices of rows whose products with ``width`` columns stay small."""
    n = rows.shape[0]
    size = max(256, BLOCK // max(1, width))
    if size >= n:
        yield slice(None)
        return
    for start in range(0, n, size):
        yield slice(start, min(n, start + size))
