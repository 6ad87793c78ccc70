r"""Is there a Lyapunov function that shrinks by rho^2 in a round? One small semidefinite program.

    V_k = a quadratic form in the state's vectors, and the gradients and mixed vectors of ``memory`` rounds from k on,
          plus multiples of the values seen in them

such that, for every instance of the class, V_k >= ||x^k - x*||^2 and V_{k+1} <= rho^2 V_k. Both are asked for as sums
of interpolation and spectral conditions with multipliers, as in a worst case:

    rho^2 V_0 - V_1       +  sum lambda_r M_r + sum Z_kl F_kl + sum a_kl E_kl  >= 0,
    V_0 - ||x^0 - x*||^2  +  the same of the first ``memory`` rounds           >= 0,        values cancel in both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import clarabel
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ownstep.pep.conditions.assemble import pack, triangle, unpack
from ownstep.pep.networks.kind_vectors import Agents, Shared, padded
from ownstep.pep.networks.program import (
    Blocks,
    Form,
    Interpolation,
    Mixings,
    Rows,
    interpolate,
    mixings,
    symmetric,
    triples,
)
from ownstep.pep.rates.lift import Lifted
from ownstep.pep.solve.sdp import USABLE, quiet

Array = NDArray[np.float64]
Index = NDArray[np.int64]

Label = tuple[int, str | int, int]

INDEPENDENT = 1e-9
"""Arguments of V are left out where they depend on others up to this."""

MARGINS = (1e-7, 1e-5, 1e-3)
"""How far inside their cones the multipliers are asked to be; the next one is tried where a proof came out short."""


@dataclass(frozen=True, eq=False)
class Search:
    """Everything about a rate but rho.

    Parameters
    ----------
    arguments : for each block the rows of V's arguments at the window's start, and one round later.
    labels : what these arguments are: (rounds from now, field of the state or place of the gradient, kind).
    values : indices of the values in V at the start, and one round later.
    measure : the square that V bounds from above.
    conditions, mixed : (of the whole window, of its first ``memory`` rounds).
    """

    blocks: Blocks
    arguments: tuple[tuple[Array, Array], ...]
    labels: tuple[tuple[Label, ...], ...]
    values: tuple[Index, Index]
    measure: Form
    conditions: tuple[Interpolation, Interpolation]
    mixed: tuple[tuple[Mixings, ...], tuple[Mixings, ...]]


@dataclass(frozen=True, eq=False)
class Lyapunov:
    """A checked Lyapunov function for one rho.

    Parameters
    ----------
    forms : P, one matrix per block, over the arguments.
    values : p, over the values.
    multipliers : (lambda, Z, a) of the decrease, then of V >= ||x - x*||^2.
    slack : smallest eigenvalue of all matrices that have to be positive definite, in scaled units.
    """

    rho: float
    forms: tuple[Array, ...]
    values: Array
    multipliers: tuple[tuple[Array, tuple[Array, ...], tuple[Array, ...]], ...]
    slack: float

    def carried(self, search: Search) -> Lyapunov:
        """The same function of slopes and values in the method's own unit of curvature."""
        unit = search.blocks.kinds.unit
        forms = []
        for P, labels in zip(self.forms, search.labels, strict=True):
            sizes = np.array([1.0 if isinstance(what, str) else unit for _, what, _ in labels])
            forms.append(P / np.outer(sizes, sizes))
        sides = tuple((numbers / unit, matrices, free) for numbers, matrices, free in self.multipliers)
        return replace(self, forms=tuple(forms), values=self.values / unit, multipliers=sides)


def pose(lifted: Lifted, memory: int, lo: float, hi: float) -> Search:
    """The program of a window of ``memory + 1`` rounds."""
    blocks, rounds = Blocks(lifted.frame), lifted.rounds
    names, found = triples(blocks, [e for r in rounds for e in r.evaluations], None, None)
    every = interpolate(blocks, names, found)
    early = _early(every, sum(len(r.evaluations) for r in rounds[:memory]))
    mixed = [tuple(mixings(blocks, [s for r in part for s in r.steps], lo, hi)) for part in (rounds, rounds[:memory])]
    first = rounds[0].asked
    if isinstance(first, Agents):
        measure = blocks.average(first, first, blocks.kinds.shares)
    else:
        measure = blocks.square(rounds[0].point)
    (arguments, labels), values = _arguments(lifted, memory, blocks), _values(lifted, memory, every)
    return Search(blocks, arguments, labels, values, measure, (every, early), (mixed[0], mixed[1]))


def _early(every: Interpolation, count: int) -> Interpolation:
    """The conditions among x* and the first ``count`` evaluations; the values keep their numbers."""
    chosen = np.flatnonzero((every.pairs[:, 1:] <= count).all(axis=1))
    rows = Rows(sp.csr_array(every.rows.blocks[chosen]), sp.csr_array(every.rows.values[chosen]))
    return Interpolation(every.names, every.pairs[chosen], every.value, rows)


def _values(lifted: Lifted, memory: int, every: Interpolation) -> tuple[Index, Index]:
    """Indices of the values of rounds 0, ..., memory - 1, and of those one round later."""
    names = {name: j for j, name in enumerate(every.names)}
    pair = []
    for shift in (0, 1):
        wanted = [e.name for r in lifted.rounds[shift : shift + memory] for e in r.evaluations]
        index = [every.value[c, names[name]] for c in range(len(every.value)) for name in wanted]
        pair.append(np.array([i for i in index if i >= 0], int))
    return pair[0], pair[1]


def _arguments(
    lifted: Lifted, memory: int, blocks: Blocks
) -> tuple[tuple[tuple[Array, Array], ...], tuple[tuple[Label, ...], ...]]:
    """Rows of V's arguments in every block, now and one round later, with labels; dependent ones are left out."""
    states = [r.state for r in lifted.rounds] + [lifted.last]
    out, names = [], []
    for b, n in enumerate(blocks.sizes):
        pair, labels = [], []
        for shift in (0, 1):
            rows: list[Array] = []
            for k in range(shift, shift + memory + 1):
                seen = lifted.rounds[k].evaluations if k < shift + memory else ()
                things: list[tuple[str | int, Agents | Shared]] = [*states[k].items()]
                things += [(j, e.v) for j, e in enumerate(seen)]
                for name, vector in things:
                    found = _rows(vector, blocks, b)
                    rows += found
                    if not shift:
                        labels += [(k, name, c if b == 0 else blocks.twins[b - 1]) for c in range(len(found))]
            pair.append(np.stack(rows) if rows else np.zeros((0, n)))
        chosen = _independent(pair[0] * blocks.units[b])
        out.append((pair[0][chosen], pair[1][chosen]))
        names.append(tuple(labels[j] for j in chosen))
    return tuple(out), tuple(names)


def _rows(x: Agents | Shared, blocks: Blocks, b: int) -> list[Array]:
    if b == 0:
        rows = x.mean_row[None, :] if isinstance(x, Shared) else x.mean_rows
        return list(padded(rows, blocks.width))
    return [] if isinstance(x, Shared) else [padded(x.difference, blocks.apart)[blocks.twins[b - 1]]]


def _independent(rows: Array) -> list[int]:
    chosen: list[int] = []
    for j in range(len(rows)):
        trial = rows[[*chosen, j]]
        trial = trial / np.maximum(np.linalg.norm(trial, axis=1, keepdims=True), 1e-300)
        if np.linalg.svd(trial, compute_uv=False)[-1] > INDEPENDENT:
            chosen.append(j)
    return chosen


class Program:
    """The semidefinite program in scaled columns; only a few of its numbers depend on rho."""

    def __init__(self, search: Search) -> None:
        self.search = search
        blocks = search.blocks
        self.scale = np.concatenate([pack(np.outer(u, u)) / pack(np.ones((len(u),) * 2)) for u in blocks.units])
        self.value_unit = float(blocks.kinds.L.max())
        self.sizes = [np.linalg.norm(a * u, axis=1) for (a, _), u in zip(search.arguments, blocks.units, strict=True)]
        now = [self._products(b, rows[0]) for b, rows in enumerate(search.arguments)]
        later = [self._products(b, rows[1]) for b, rows in enumerate(search.arguments)]
        self.now, self.later = np.vstack(now), np.vstack(later)
        self.sides = [_Side(self, *pair) for pair in zip(search.conditions, search.mixed, strict=True)]
        self.measure = blocks.packed([search.measure])[0] * self.scale

    def _products(self, b: int, rows: Array) -> Array:
        """Packed forms sym(row_i row_j') of block b, in the arguments' units, times sqrt(2) off the diagonal."""
        blocks = self.search.blocks
        out = []
        for j in range(len(rows)):
            for i in range(j + 1):
                form = blocks.zero()
                factor = (1.0 if i == j else math.sqrt(2)) / (self.sizes[b][i] * self.sizes[b][j])
                form[b] = factor * symmetric(rows[i], rows[j])
                out.append(form)
        return np.asarray(blocks.packed(out) * self.scale)

    def certify(self, rho: float) -> Lyapunov | None:
        """A checked Lyapunov function for this rho, or None where none was found."""
        for margin in MARGINS:
            found = self._attempt(rho, margin)
            if found is None or found.slack > 0:
                return found
        return None

    def _attempt(self, rho: float, margin: float) -> Lyapunov | None:
        """One solve; None where the solver says that there is nothing to find."""
        square, quads = rho**2, len(self.now)
        lead = quads + len(self.search.values[0])
        total = lead + sum(side.variables for side in self.sides)
        forms = (square * self.now - self.later, self.now)
        constants = (np.zeros(len(self.scale)), -self.measure)
        cones, cost, at = _Cones(total, margin), np.zeros(total), lead
        for j, side in enumerate(self.sides):
            first = j == 0
            rows = np.zeros((side.values.shape[1], total))
            rows[:, at : at + side.count] = side.values.T.toarray()
            for i, (now, later) in enumerate(zip(*self.search.values, strict=True)):
                rows[now, quads + i] += square if first else 1.0
                rows[later, quads + i] -= 1.0 if first else 0.0
            cones.zero(rows)
            cones.nonnegative(at, side.count)
            cost[at : at + side.count] = 1.0
            inner = at + side.count
            for t in side.steps:
                cones.semidefinite(sp.eye_array(triangle(t), total, k=inner), np.zeros(triangle(t)), t)
                cost[inner : inner + triangle(t)] = pack(np.eye(t))
                inner += triangle(t)
            matrix = np.zeros((len(self.scale), total))
            matrix[:, :quads], matrix[:, at : at + side.variables] = forms[j].T, side.matrix
            self._slacks(matrix, constants[j], cones)
            at += side.variables
        x = cones.solve(cost)
        if x is None:
            return None
        at = lead
        for j, side in enumerate(self.sides):
            x = self._repaired(x, at, side, square, first=j == 0, lead=lead)
            at += side.variables
        return self._named(rho, x, lead, cones.smallest(x))

    def _slacks(self, matrix: Array, constant: Array, cones: _Cones) -> None:
        """Positive definite blocks, over the columns that anything touches."""
        at = 0
        for n in self.search.blocks.sizes:
            rows = slice(at, at + triangle(n))
            touched = np.abs(matrix[rows]).sum(axis=1) + np.abs(constant[rows])
            keep = np.flatnonzero(unpack(touched, n).any(axis=1))
            columns, lines = np.tril_indices(n)
            inside = np.flatnonzero(np.isin(columns, keep) & np.isin(lines, keep))
            cones.semidefinite(sp.csr_array(matrix[rows][inside]), constant[rows][inside], len(keep))
            at += triangle(n)

    def _repaired(self, x: Array, at: int, side: _Side, square: float, *, first: bool, lead: int) -> Array:
        """Nonnegative multipliers for which the values cancel: what is left goes onto the conditions with x*."""
        x = x.copy()
        mine = np.maximum(x[at : at + side.count], 0.0)
        left = side.values.T @ mine
        p = x[lead - len(self.search.values[0]) : lead]
        for j, (now, later) in enumerate(zip(*self.search.values, strict=True)):
            left[now] += p[j] * (square if first else 1.0)
            if first:
                left[later] -= p[j]
        kind, low, high = side.inter.pairs.T
        for chosen, point, sign in ((np.flatnonzero(low == 0), high, -1.0), (np.flatnonzero(high == 0), low, 1.0)):
            index = side.inter.value[kind[chosen], point[chosen]]
            unit = self.value_unit / side.row_size[chosen]
            mine[chosen] += np.maximum(sign * left[index], 0.0) / unit
        x[at : at + side.count] = mine
        return x

    def _named(self, rho: float, x: Array, lead: int, slack: float) -> Lyapunov:
        forms, at = [], 0
        for sizes in self.sizes:
            n = len(sizes)
            forms.append(unpack(x[at : at + triangle(n)], n) / np.outer(sizes, sizes))
            at += triangle(n)
        values = x[at:lead] / self.value_unit
        found, at = [], lead
        for side in self.sides:
            found.append(side.named(x[at : at + side.variables]))
            at += side.variables
        return Lyapunov(rho, tuple(forms), values, tuple(found), slack)


class _Cones:
    """Rows of a conic program, one cone after the other."""

    def __init__(self, total: int, margin: float) -> None:
        self.total, self.margin = total, margin
        self.parts: list[Any] = []
        self.right: list[Array] = []
        self.cones: list[Any] = []
        self.matrices: list[tuple[Any, Array, int]] = []

    def zero(self, rows: Array) -> None:
        """Sums that vanish, rows x = 0."""
        self._add(sp.csr_array(rows), np.zeros(len(rows)), clarabel.ZeroConeT(len(rows)))

    def nonnegative(self, at: int, count: int) -> None:
        """x_at, ..., x_(at + count - 1) >= 0."""
        rows = -sp.eye_array(count, self.total, k=at)
        self._add(rows, np.zeros(count), clarabel.NonnegativeConeT(count))

    def semidefinite(self, rows: Any, constant: Array, n: int) -> None:
        """The packed matrix rows x + constant >= margin."""
        self.matrices.append((rows, constant, n))
        self._add(-rows, constant - self.margin * pack(np.eye(n)), clarabel.PSDTriangleConeT(n))

    def _add(self, rows: Any, right: Array, cone: Any) -> None:
        self.parts.append(rows)
        self.right.append(right)
        self.cones.append(cone)

    def solve(self, cost: Array) -> Array | None:
        """A minimiser, or None where there is none."""
        matrix = sp.csc_matrix(sp.vstack(self.parts))
        matrix.sort_indices()
        empty = sp.csc_matrix((self.total, self.total))
        right = np.concatenate(self.right)
        answer = clarabel.DefaultSolver(empty, cost, matrix, right, self.cones, quiet(1e-10)).solve()
        x = np.asarray(answer.x)
        return x if str(answer.status) in USABLE and np.isfinite(x).all() else None

    def smallest(self, x: Array) -> float:
        """The smallest eigenvalue of any of the matrices at x."""
        found = [
            float(np.linalg.eigvalsh(unpack(np.asarray(rows @ x) + constant, n))[0])
            for rows, constant, n in self.matrices
            if n
        ]
        return min(found, default=math.inf)


class _Side:
    """The conditions one inequality may use, scaled."""

    def __init__(self, program: Program, inter: Interpolation, mixed: tuple[Mixings, ...]) -> None:
        self.inter, self.steps = inter, [m.steps for m in mixed]
        blocks = sp.csr_array(inter.rows.blocks @ sp.diags_array(program.scale)).toarray()
        values = inter.rows.values.toarray() * program.value_unit
        largest = np.maximum(np.abs(blocks).max(axis=1, initial=0), np.abs(values).max(axis=1, initial=0))
        self.row_size = np.where(largest > 0, largest, 1.0)
        self.values = sp.csr_array(values / self.row_size[:, None])
        self.count = len(self.row_size)
        columns = [(blocks / self.row_size[:, None]).T]
        loose = []
        self.step_sizes = []
        for m in mixed:
            bounded, equal = m.bounded * program.scale, m.symmetric * program.scale
            ends = [triangle(j + 1) - 1 for j in range(m.steps)]
            sizes = np.sqrt(np.abs(bounded[ends]).max(axis=1))
            c, r = np.tril_indices(m.steps)
            weight = sizes[c] * sizes[r]
            columns.append((np.where(c == r, 1.0, math.sqrt(2))[:, None] * bounded / weight[:, None]).T)
            loose.append((equal / weight[c != r][:, None]).T)
            self.step_sizes.append(sizes)
        self.matrix = np.hstack(columns + loose)
        self.variables = self.matrix.shape[1]

    def named(self, x: Array) -> tuple[Array, tuple[Array, ...], tuple[Array, ...]]:
        """The multipliers in the conditions' own units."""
        matrices, free, at = [], [], self.count
        for t, sizes in zip(self.steps, self.step_sizes, strict=True):
            matrices.append(unpack(x[at : at + triangle(t)], t) / np.outer(sizes, sizes))
            at += triangle(t)
        for t, sizes in zip(self.steps, self.step_sizes, strict=True):
            c, r = np.tril_indices(t)
            free.append(x[at : at + triangle(t - 1)] / (sizes[c] * sizes[r])[c != r])
            at += triangle(t - 1)
        return x[: self.count] / self.row_size, tuple(matrices), tuple(free)
