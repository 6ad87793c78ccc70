r"""The conditions of a worst case over kinds of devices, as rows over the blocks of Gram matrices.

The blocks are the Gram matrix M of the means and one matrix D_c for each kind whose members may differ. For vectors
u, w of the devices, with parts u_c, w_c in the means and rows a, b in the differences,

    own product of kind c          mean over its members of <u_i, w_i>  =  <u_c, w_c>  +  a' D_c b
    product of the deviations      1/N sum_i <u_i - u, w_i - w>  =  sum_c share_c (<u_c - u, w_c - w> + a' D_c b).

All conditions are linear in the blocks and in the values phi_c of each kind, but for the one matrix inequality of the
mixing steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ownstep.pep.conditions.assemble import pack, quadratics, triangle
from ownstep.pep.networks.kind_vectors import Agents, Frame, Kinds, Shared, padded
from ownstep.pep.networks.network_trace import Evaluation
from ownstep.support.errors import OwnstepError

Array = NDArray[np.float64]

Form = list[Array]
"""A quadratic form: one symmetric matrix per block."""

DUST = 1e-13
"""Coefficients this much smaller than their vector's largest are what is left of a cancellation."""


def in_time(deadline: float) -> None:
    """Stop where a deadline, in seconds of ``time.monotonic``, has passed."""
    if time.monotonic() > deadline:
        raise OwnstepError("time is up (patience), and nothing is proved yet")


class Blocks:
    """The Gram blocks of a finished trace, and quadratic forms over them.

    Parameters
    ----------
    basis : the trace's columns as rows over other columns, block by block, see :mod:`ownstep.pep.networks.basis`.
    sizes : rows of each block: the means first, then the differences of each kind with twins.
    units : what one unit of each column stands for, block by block.
    """

    def __init__(self, frame: Frame, basis: list[Array] | None = None, units: list[Array] | None = None) -> None:
        self.frame, self.kinds, self.basis = frame, frame.kinds, basis
        self.twins = [c for c in range(len(self.kinds)) if self.kinds.twins[c]]
        self.width, self.apart = len(frame.units), len(frame.difference_units)
        self.sizes = [self.width] + [self.apart] * len(self.twins)
        self.units = units or [np.array(frame.units)] + [np.array(frame.difference_units)] * len(self.twins)

    def zero(self) -> Form:
        """The form that vanishes."""
        return [np.zeros((n, n)) for n in self.sizes]

    def rows(self, x: Agents) -> tuple[Array, Array]:
        """A stack's rows over all columns."""
        mean, apart = padded(x.mean_rows, self.width), padded(x.difference, self.apart)
        if self.basis is None:
            return mean, apart
        moved = np.zeros_like(apart)  # kinds without twins have no differences
        for b, c in enumerate(self.twins, start=1):
            moved[c] = self._moved(apart[[c]], b)[0]
        return self._moved(mean, 0), moved

    def _moved(self, rows: Array, b: int) -> Array:
        """Rows of a block over its new columns, without what is left of cancellations."""
        if self.basis is None:
            return rows
        out = np.asarray(rows @ self.basis[b])
        sizes = np.abs(out) * self.units[b]
        out[sizes <= DUST * sizes.max(axis=1, keepdims=True, initial=0)] = 0.0
        return out

    def product(self, u: Agents, w: Agents, c: int) -> Form:
        """Mean over the members of kind c of <u_i, w_i>."""
        out = self.zero()
        (a, a_d), (b, b_d) = self.rows(u), self.rows(w)
        out[0] = symmetric(a[c], b[c])
        if c in self.twins:
            out[1 + self.twins.index(c)] = symmetric(a_d[c], b_d[c])
        return out

    def average(self, u: Agents, w: Agents, weights: Array) -> Form:
        """sum_c weights_c (own product of kind c)."""
        return combine([self.product(u, w, c) for c in range(len(self.kinds))], weights)

    def deviation(self, u: Agents, w: Agents) -> Form:
        """1/N sum_i <u_i - u, w_i - w> with u, w the means."""
        return self.average(u - u.mean(), w - w.mean(), self.kinds.shares)

    def square(self, x: Shared) -> Form:
        """||x||^2 of a vector all devices share."""
        out, row = self.zero(), self._moved(padded(x.mean_row, self.width)[None, :], 0)[0]
        out[0] = np.outer(row, row)
        return out

    def packed(self, forms: Sequence[Form]) -> Array:
        """One row per form."""
        if not forms:
            return np.zeros((0, self.length))
        return np.stack([np.concatenate([pack(block) for block in form]) for form in forms])

    @property
    def length(self) -> int:
        """Entries of a packed row."""
        return sum(triangle(n) for n in self.sizes)


def symmetric(a: Array, b: Array) -> Array:
    """The symmetric part of a b'."""
    outer = np.outer(a, b)
    return np.asarray((outer + outer.T) / 2)


def combine(forms: Sequence[Form], factors: Array | Sequence[float]) -> Form:
    """sum_j factors_j forms_j."""
    return [np.asarray(sum(f * form[b] for f, form in zip(factors, forms, strict=True))) for b in range(len(forms[0]))]


@dataclass(frozen=True, eq=False)
class Rows:
    """Conditions of one sort, as rows over the packed blocks and over the values."""

    blocks: sp.csr_array
    values: sp.csr_array

    def __len__(self) -> int:
        return int(self.blocks.shape[0])


@dataclass(frozen=True, eq=False)
class Interpolation:
    """The triples of all kinds and the conditions between them.

    Parameters
    ----------
    names : of the triples; the first is x*.
    pairs : rows (kind, p, q).
    value : index of phi for (kind, triple); -1 where it is zero.
    """

    names: tuple[str, ...]
    pairs: NDArray[np.int64]
    value: NDArray[np.int64]
    rows: Rows

    @property
    def count(self) -> int:
        """How many values there are."""
        return int(self.value.max(initial=-1)) + 1


def triples(
    blocks: Blocks, evaluations: Sequence[Evaluation], own: Agents | None, tilt: Agents | None
) -> tuple[tuple[str, ...], list[tuple[Agents, Agents]]]:
    """(x, v) of every triple but x*: the evaluations, then the devices' own minimisers, where the gradient is zero."""
    names = ["*", *(e.name for e in evaluations)]
    found = [(e.x, e.v) for e in evaluations]
    if own is not None:
        names.append("own")
        found.append((own, v_of_own(own, tilt)))
    return tuple(names), found


def v_of_own(own: Agents, tilt: Agents | None) -> Agents:
    """The v of the devices' own minimisers, where v + mu x + tilt = 0."""
    mu = own.frame.kinds.mu[:, None]
    bent = Agents(mu * own.mean_rows, mu * own.difference, own.frame)
    return -bent if tilt is None else -(bent + tilt)


def interpolate(blocks: Blocks, names: tuple[str, ...], found: Sequence[tuple[Agents, Agents]]) -> Interpolation:
    """phi_q - phi_p + <v_q, x_p - x_q> + ||v_p - v_q||^2 / (2 (L - mu)) <= 0, for all pairs of triples of all kinds."""
    kinds, count = blocks.kinds, len(names)
    x, v = np.zeros((len(kinds), count, blocks.width)), np.zeros((len(kinds), count, blocks.width))
    x_d, v_d = np.zeros((len(kinds), count, blocks.apart)), np.zeros((len(kinds), count, blocks.apart))
    for j, (point, slope) in enumerate(found, start=1):
        x[:, j], x_d[:, j] = blocks.rows(point)
        v[:, j], v_d[:, j] = blocks.rows(slope)
    value = np.full((len(kinds), count), -1)
    free = [c for c in range(len(kinds)) if kinds.mu[c] < kinds.L[c]]
    for position, c in enumerate(free):
        value[c, 1:] = position * (count - 1) + np.arange(count - 1)
    p, q = (index.ravel() for index in np.nonzero(~np.eye(count, dtype=bool)))
    parts: list[sp.csr_array] = []
    for c in free:
        factor = np.full(len(p), 1 / (2 * (kinds.L[c] - kinds.mu[c])) if kinds.smooth else 0.0)
        row = [quadratics(v[c, q], x[c, p] - x[c, q], v[c, p] - v[c, q], factor)]
        for twin in blocks.twins:
            if twin == c:
                row.append(quadratics(v_d[c, q], x_d[c, p] - x_d[c, q], v_d[c, p] - v_d[c, q], factor))
            else:
                row.append(sp.csr_array((len(p), triangle(blocks.apart))))
        parts.append(sp.csr_array(sp.hstack(row)))
    pairs = np.concatenate([np.column_stack([np.full(len(p), c), p, q]) for c in free] or [np.zeros((0, 3), int)])
    total = max(len(free) * (count - 1), 0)
    line = np.arange(len(pairs))
    up, down = value[pairs[:, 0], pairs[:, 2]], value[pairs[:, 0], pairs[:, 1]]
    entries = np.concatenate([np.ones((up >= 0).sum()), -np.ones((down >= 0).sum())])
    where = (np.concatenate([line[up >= 0], line[down >= 0]]), np.concatenate([up[up >= 0], down[down >= 0]]))
    values = sp.csr_array((entries, where), shape=(len(pairs), total))
    stacked = sp.csr_array(sp.vstack(parts)) if parts else sp.csr_array((0, blocks.length))
    return Interpolation(names, pairs, value, Rows(stacked, values))


def value_units(inter: Interpolation, kinds: Kinds, unit: float) -> Array:
    """What one unit of each value stands for, which is less where losses are nearly quadratics."""
    units = np.empty(inter.count)
    for c, bend in enumerate(kinds.bend):
        units[inter.value[c][inter.value[c] >= 0]] = unit * bend
    return units


@dataclass(frozen=True, eq=False)
class Mixings:
    """What is known of the mixing steps of one matrix W.

    Parameters
    ----------
    steps : how many there are, t.
    bounded : packed rows of the t (t + 1) / 2 entries, column by column, of (Y - lo X)'(Y - hi X), which is <= 0.
    symmetric : packed rows of x_k'y_l - x_l'y_k, which vanish, for k < l in the order of the entries above.
    reach : conditions between steps further apart than this are left out of a proof; all are used by default.
    """

    steps: int
    bounded: Array
    symmetric: Array
    reach: int | None = None

    @property
    def used(self) -> NDArray[np.bool_]:
        """Which of the entries take part in a proof."""
        later, earlier = np.tril_indices(self.steps)
        return np.asarray(later - earlier <= (self.steps if self.reach is None else self.reach))


def mixings(
    blocks: Blocks, steps: Sequence[tuple[int, Agents, Agents]], lo: float, hi: float, deadline: float = math.inf
) -> list[Mixings]:
    """The spectral conditions, one set for each matrix."""
    found = []
    for group in sorted({g for g, _, _ in steps}):
        in_time(deadline)
        mine = [(x, y) for g, x, y in steps if g == group]
        x, y = (_deviations(blocks, [pair[side] for pair in mine]) for side in (0, 1))
        below = [b - lo * a for a, b in zip(x, y, strict=True)]
        above = [b - hi * a for a, b in zip(x, y, strict=True)]
        j, i = np.tril_indices(len(mine))
        bounded = _products(blocks, below, above, i, j) / 2 + _products(blocks, below, above, j, i) / 2
        j, i = j[i < j], i[i < j]
        equal = _products(blocks, x, y, i, j) - _products(blocks, x, y, j, i)
        found.append(Mixings(len(mine), bounded, equal))
    return found


def _deviations(blocks: Blocks, stacks: Sequence[Agents]) -> list[Array]:
    """Rows of the stacks less their means: (kind, stack, column) of the means, then of the differences."""
    rows = [blocks.rows(x - x.mean()) for x in stacks]
    return [np.stack([pair[side] for pair in rows], axis=1) for side in (0, 1)]


def _products(blocks: Blocks, a: list[Array], b: list[Array], i: Any, j: Any) -> Array:
    """Packed rows of 1/N sum over the devices of <a_i, b_j>, for many pairs of stacks without means."""
    shares, zero = blocks.kinds.shares, np.zeros(len(i))
    mean, apart = np.zeros((len(i), triangle(blocks.width))), []
    for c, share in enumerate(shares):
        mean += share * quadratics(a[0][c, i], b[0][c, j], np.zeros((len(i), blocks.width)), zero).toarray()
        if c in blocks.twins:
            rows = quadratics(a[1][c, i], b[1][c, j], np.zeros((len(i), blocks.apart)), zero)
            apart.append(share * rows.toarray())
    return np.hstack([mean, *apart])
