r"""What the slack of a worst case is made of, for the solver of :mod:`ownstep.pep.solve.interior`.

Every condition has a matrix A_r = sym(a b^T) + f d d^T of three vectors: a = v_q, b = x_p - x_q, d = v_p - v_q. So the
products <A_r, X A_s T> that the solver needs take a few entries of U X U^T and U T U^T each, where the rows of U are
the points and slopes of all devices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ownstep.pep.conditions.assemble import Conditions, pack, triangle, unpack
from ownstep.pep.conditions.gram import Gram
from ownstep.pep.solve.sdp import Limits, Objective, blocks

Array = NDArray[np.float64]
Index = NDArray[np.int64]

ROWS = 48
"""Rows of M that are made at a time, so that what they are made of stays in the cache."""


@dataclass(frozen=True, eq=False)
class Block:
    """One slack, and the vectors that its matrices A_r are made of.

    Parameters
    ----------
    vectors : rows over the block's columns: x of every triple, v of every triple, zero, and one for each radius.
    rows : the multipliers that take part in it.
    a, plus, minus, turn : which vectors make up each of their A_r = scale (sym(a b^T) + factor d d^T), where b = plus -
        minus and d = turn - a.
    constant : C.
    matrix : all A_r as packed triangles, one column for each multiplier.
    zero : where the zero vector stands.
    """

    vectors: Array
    rows: Index
    a: Index
    plus: Index
    minus: Index
    turn: Index
    factor: Array
    scale: Array
    constant: Array
    matrix: sp.csr_array
    zero: int

    def total(self, y: Array) -> Array:
        """The matrix sum_r y_r A_r."""
        return unpack(self.matrix @ y, len(self.constant))

    def inner(self, matrix: Array) -> Array:
        """The products <A_r, matrix>, one for each multiplier."""
        return np.asarray(self.matrix.T @ pack(matrix))

    def add_products(self, X: Array, T: Array, out: Array) -> None:
        """Add <A_r, X A_s T> to the lower triangle of ``out``, which may be added to above the diagonal too."""
        tables = [self.vectors @ Y @ self.vectors.T for Y in (X, T)]
        for low in range(0, len(self.rows), ROWS):
            here, end = slice(low, low + ROWS), min(low + ROWS, len(self.rows))
            (aa, ab, ad, ba, bb, bd, da, db, dd), other = (self._products(table, here, end) for table in tables)
            taa, tab, tad, tba, tbb, tbd, tda, tdb, tdd = other
            f, g = self.factor[here, None], self.factor[None, :end]
            part = (ba * tab + bb * taa + aa * tbb + ab * tba) / 4
            part += (bd * tad + ad * tbd) * (g / 2)
            part += (da * tdb + db * tda) * (f / 2)
            part += dd * tdd * (f * g)
            part *= self.scale[here, None] * self.scale[None, :end]
            if len(self.rows) == len(out):
                out[here, :end] += part
            else:
                out[np.ix_(self.rows[here], self.rows[:end])] += part

    def sizes(self, X: Array) -> Array:
        """The products <A_r, X A_r X>."""
        table = self.vectors @ X @ self.vectors.T

        def inner(one: tuple[Index, Index], other: tuple[Index, Index]) -> Array:
            (plus, minus), (right, left) = one, other
            return np.asarray(table[plus, right] - table[plus, left] - table[minus, right] + table[minus, left])

        none = np.full(len(self.a), self.zero)
        a, b, d = (self.a, none), (self.plus, self.minus), (self.turn, self.a)
        mixed = (inner(a, b) ** 2 + inner(a, a) * inner(b, b)) / 2
        both = 2 * self.factor * inner(a, d) * inner(b, d)
        return np.asarray(self.scale**2 * (mixed + both + (self.factor * inner(d, d)) ** 2))

    def _products(self, table: Array, here: slice, end: int) -> list[Array]:
        """Products of a, b and d of some rows with a, b and d of the first ``end``, through a table of all vectors."""
        a, plus, minus, turn = (index[:end] for index in (self.a, self.plus, self.minus, self.turn))
        first, found = table[self.a[here]], []
        for rows in (first, table[self.plus[here]] - table[self.minus[here]], table[self.turn[here]] - first):
            with_a = rows[:, a]
            found += [with_a, rows[:, plus] - rows[:, minus], rows[:, turn] - with_a]
        return found


def program(gram: Gram, rows: Conditions, target: Objective, radii: Limits, margin: float) -> list[Block]:
    """The blocks of the slack: the mean block, then those of twins."""
    group, p, q = rows.pairs.T
    points, heads = len(gram.triples[0].names), len(radii.mean)
    curvature = np.array([t.curvature for t in gram.triples])
    factor = np.where(curvature > 0, 1 / (2 * np.where(curvature > 0, curvature, 1.0)), 0.0)[group]
    own = [gram.start[0], *((t.x[-1] for t in gram.triples) if gram.local_optima else ())]
    x, v = np.vstack([t.x for t in gram.triples]), np.vstack([t.v for t in gram.triples])
    every = np.arange(heads + len(rows.pairs))
    ends = [_root(matrix, end) for matrix, end in zip(radii.mean, own, strict=True)]
    constant = target.matrix + margin * np.eye(len(gram.columns))
    of_heads = sp.csr_array(np.column_stack([pack(m) for m in radii.mean]))
    at = (group * points + p, group * points + q)
    found = [_block(x, v, ends, every, at, factor, rows.size, constant, sp.hstack([of_heads, rows.mean.T]))]
    for position, c in enumerate(blocks(gram)):
        x_d, v_d = gram.triples[c].x_difference, gram.triples[c].v_difference
        assert x_d is not None
        assert v_d is not None
        width = x_d.shape[1]
        mine = np.flatnonzero(group == c)
        held = {j: m for j, matrices in enumerate(radii.differences) if (m := matrices[c]) is not None}
        ends = [_root(matrix, x_d[-1]) for matrix in held.values()]
        of_heads = sp.csr_array(np.zeros((triangle(width), heads)))
        if held:
            columns = np.zeros((triangle(width), heads))
            columns[:, list(held)] = np.column_stack([pack(m) for m in held.values()])
            of_heads = sp.csr_array(columns)
        index, at = np.concatenate([np.array([*held], np.int64), heads + mine]), (p[mine], q[mine])
        matrix = sp.hstack([of_heads, rows.differences[position].T])
        small = (factor[mine], rows.size[mine], margin * np.eye(width))
        found.append(_block(x_d, v_d, ends, index, at, *small, matrix))
    return found


def _block(
    x: Array, v: Array, ends: list[Array], rows: Index, at: tuple[Index, Index], factor: Array, size: Array,
    constant: Array, matrix: sp.sparray,
) -> Block:  # fmt: skip
    """A block from its points and slopes; its first rows are the radii's, u u^T for each u of ``ends``."""
    zero, points, (p, q) = 2 * len(x), len(x), at
    own, none = zero + 1 + np.arange(len(ends)), np.full(len(ends), zero)
    return Block(
        np.vstack([x, v, np.zeros((1, x.shape[1])), *ends]),
        rows,
        a=np.concatenate([own, points + q]),
        plus=np.concatenate([own, p]),
        minus=np.concatenate([none, q]),
        turn=np.concatenate([own, points + p]),
        factor=np.concatenate([np.zeros(len(ends)), factor]),
        scale=np.concatenate([np.ones(len(ends)), 1 / size]),
        constant=constant,
        matrix=sp.csr_array(matrix),
        zero=zero,
    )


def _root(matrix: Array, along: Array) -> Array:
    """The vector u with u u^T = matrix, a multiple of the one given."""
    size = float(along @ along)
    return np.asarray(along * math.sqrt(float(along @ matrix @ along)) / size if size > 0 else along)
