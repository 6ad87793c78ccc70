r"""From triples to the solver's numbers: every condition as one sparse row, all rows at once.

A condition r of the primal reads <M_r, G> + <D_r, H> + a_r phi <= 0, with H the difference block of its group. Blocks
are stored as upper triangles column by column, off-diagonals times sqrt(2), so that inner products of the stored
vectors are those of the matrices (Clarabel's ``PSDTriangleConeT``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ownstep.pep.conditions.gram import Gram

Array = NDArray[np.float64]
Index = NDArray[np.int64]


def triangle(n: int) -> int:
    """Entries in the upper triangle of an n by n matrix."""
    return n * (n + 1) // 2


def unpack(packed: Array, n: int) -> Array:
    """The symmetric matrix behind a stored triangle."""
    columns, rows = np.tril_indices(n)
    full = np.zeros((n, n))
    full[rows, columns] = packed * np.where(rows == columns, 1.0, 1 / math.sqrt(2))
    return full + np.triu(full, 1).T


def pack(matrix: Array) -> Array:
    """The stored triangle of a symmetric matrix."""
    n = len(matrix)
    columns, rows = np.tril_indices(n)
    return np.asarray(matrix[rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2)))


def quadratics(a: Array, b: Array, d: Array, factor: Array) -> sp.csr_array:
    """Rows that hold the triangles of sym(a b^T) + factor d d^T, for many (a, b, d, factor) at once."""
    count, n = a.shape
    touched = (a != 0) | (b != 0) | (d != 0)
    width = max(int(touched.sum(axis=1).max(initial=0)), 1)
    where = np.argsort(~touched, axis=1, kind="stable")[:, : min(width, n)]
    where.sort(axis=1)
    a, b, d = (np.take_along_axis(m, where, axis=1) for m in (a, b, d))
    i, j = np.triu_indices(where.shape[1])
    entry = (a[:, i] * b[:, j] + a[:, j] * b[:, i]) / 2 + factor[:, None] * d[:, i] * d[:, j]
    entry *= np.where(i == j, 1.0, math.sqrt(2))
    position = where[:, j] * (where[:, j] + 1) // 2 + where[:, i]
    row = np.broadcast_to(np.arange(count)[:, None], entry.shape)
    kept = entry != 0
    return sp.csr_array((entry[kept], (row[kept], position[kept])), shape=(count, triangle(n)))


@dataclass(frozen=True, eq=False)
class Conditions:
    """Interpolation conditions as rows over the mean block, the difference blocks and the values.

    Parameters
    ----------
    pairs : rows (group, p, q) of indices into the groups' triples.
    mean, differences, values : the coefficients; one matrix a difference block.
    size : what each row was divided by, so that its largest entry is one.
    """

    pairs: Index
    mean: sp.csr_array
    differences: tuple[sp.csr_array, ...]
    values: sp.csr_array
    size: Array

    def residuals(self, gram: Array, differences: list[Array], values: Array) -> Array:
        """Left sides at a solution: a positive entry is a broken condition."""
        total = self.mean @ pack(gram) + self.values @ values
        for rows, block in zip(self.differences, differences, strict=True):
            total = total + rows @ pack(block)
        return np.asarray(total)


def conditions(gram: Gram, pairs: Index) -> Conditions:
    """Assemble the interpolation conditions phi_q - phi_p + <v_q, x_p - x_q> + ||v_p - v_q||^2/(2(L-mu)) <= 0."""
    group, p, q = pairs.T
    count = len(pairs)
    x = np.stack([t.x for t in gram.triples])
    v = np.stack([t.v for t in gram.triples])
    factor = np.array([1 / (2 * t.curvature) if t.curvature else 0.0 for t in gram.triples])[group]
    mean = quadratics(v[group, q], x[group, p] - x[group, q], v[group, p] - v[group, q], factor)
    differences = []
    for c, triples in enumerate(gram.triples):
        if triples.x_difference is None or triples.v_difference is None:
            continue
        x_d, v_d = triples.x_difference, triples.v_difference
        mine = np.flatnonzero(group == c)
        part = quadratics(v_d[q[mine]], x_d[p[mine]] - x_d[q[mine]], v_d[p[mine]] - v_d[q[mine]], factor[mine])
        place = sp.csr_array((np.ones(len(mine)), (mine, np.arange(len(mine)))), shape=(count, len(mine)))
        differences.append(sp.csr_array(place @ part))
    index = np.stack([t.value for t in gram.triples])
    row = np.tile(np.arange(count), 2)
    column = np.concatenate([index[group, q], index[group, p]])
    sign = np.repeat([1.0, -1.0], count)
    kept = column >= 0
    entries = sign[kept] * gram.value_scale[column[kept]]
    values = sp.csr_array((entries, (row[kept], column[kept])), shape=(count, len(gram.value_scale)))
    size = np.zeros(count)
    for block in (mean, values, *differences):
        size = np.maximum(size, abs(block).max(axis=1).toarray().ravel() if block.shape[1] else 0.0)
    scaled = sp.diags_array(1 / size)
    return Conditions(
        pairs,
        sp.csr_array(scaled @ mean),
        tuple(sp.csr_array(scaled @ m) for m in differences),
        sp.csr_array(scaled @ values),
        size,
    )
