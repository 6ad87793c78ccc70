r"""The smallest exact semidefinite program for a method's worst case, in coordinates that keep it sparse.

The minimiser x* sits at the origin and every loss is tilted, h_i(x) = f_i(x) - f_i(x*) - <s_i, x> with
s_i = grad f_i(x*), so that its triple at x* is zero; the tilt stays in the class and sum_i w_i s_i = 0. With the
curvature taken out, v = grad h - mu x, what is left unknown is

    x^0,   v_c^k  for group c of devices at the k-th point,   s_c (all but one),   z_c  the local minimisers,

and the method sees the gradients v + mu x + s. At z_c that gradient is zero. All metrics and conditions are linear
in the Gram matrix of these vectors and in the values.

The *basis* is then changed: in round k the v of the group with the largest mix makes room for the new iterate
x^{k+1} itself. The inequalities between consecutive points, and with the optima, then touch only the columns of two
neighbouring rounds and the few of s and z: the dual matrix is banded with a narrow border.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from ownstep.pep.trace.scales import Sizes, expected_sizes
from ownstep.pep.trace.symbolic import Trace
from ownstep.pep.trace.symmetry import Group

Array = NDArray[np.float64]

Column = tuple[str, int, int]
"""A column of the mean block: its letter, its group and its round; -1 where there is none."""

ROUNDING = 1e-14
"""Coefficients this much smaller than their row's largest, in scaled units, are what is left of a cancellation."""

FEW, LOST = 40, 1e-11
"""Up to so many rounds the points are computed in fractions, where rounding may have lost that part of one."""


@dataclass(frozen=True, eq=False)
class Triples:
    """One group's triples, as rows over the scaled columns of the Gram blocks; the first is x*.

    Parameters
    ----------
    names : ``"*"``, the rounds ``"0"``, ``"1"``, ..., and ``"own"`` for the group's own minimiser.
    x, v : rows over the mean block.
    x_difference, v_difference : rows over the group's difference block, when it has twins.
    value : index of each triple's phi among all values; -1 where it is zero.
    curvature : L - mu.
    """

    names: tuple[str, ...]
    x: Array
    v: Array
    x_difference: Array | None
    v_difference: Array | None
    value: NDArray[np.int64]
    curvature: float


@dataclass(frozen=True, eq=False)
class Gram:
    """The columns of the Gram blocks and everything expressed in them.

    Parameters
    ----------
    columns : what the mean block's columns are: x^k, v_c^k, s_c or z_c, see :data:`Column`.
    scale : what one unit of each column stands for, so that all entries of an optimal Gram matrix are of order one.
    difference_scale : the same for each group's difference block (None without twins).
    triples : one a group.
    start, final : x^0 and the method's answer x^K, as rows.
    final_value : for the groups, the row of triples that holds x^K (None for the distance metric).
    tilts : s_c of each group, as rows (zero where it does not matter).
    value_scale : size of each phi.
    """

    groups: tuple[Group, ...]
    columns: tuple[Column, ...]
    scale: Array
    difference_scale: tuple[Array | None, ...]
    triples: tuple[Triples, ...]
    start: Array
    final: Array
    final_value: int | None
    tilts: Array
    value_scale: Array
    local_optima: bool


def build(
    trace: Trace,
    groups: list[Group],
    r0: float,
    rstar: float,
    *,
    evaluate_final: bool,
    local_optima: bool,
    sparse: bool = True,
    in_time: Callable[[], None] = lambda: None,
) -> Gram:
    """Express the method's points and the devices' triples in the columns of the Gram blocks.

    Unless ``sparse``, the columns are x^0 and every v, and no iterate. ``in_time`` is called often, and may raise.
    """
    rounds, labels = trace.rounds, trace.rounds + int(evaluate_final)
    columns = _Columns(groups, labels, local_optima)
    tilts = columns.tilts(groups)
    sizes = expected_sizes(trace, groups, r0, rstar if local_optima else 0.0, evaluate_final=evaluate_final)
    names, scale = columns.names, columns.scales(groups, sizes, r0, rstar)
    x, v, points, lost = _run(trace, groups, columns, tilts, in_time)
    if rounds <= FEW and float((lost * scale / sizes.points[:, None]).max()) > LOST:
        x, v, points, _ = _run(trace, groups, columns, tilts, in_time, exactly=True)
    own = labels + 1
    for c, group in enumerate(groups):
        if local_optima and group.quadratic:
            x[c, own] = -tilts[c] / group.mu
        elif local_optima:
            x[c, own, columns.z(c)] = 1.0
            v[c, own] = -tilts[c] - group.mu_own * x[c, own]
    if trace.shared and sparse:
        names, scale, change = _swap(columns, groups, points[:, 0], scale, sizes, in_time)
        x, v, points, tilts = change(x), change(v), change(points), change(tilts)
    keep = own + 1 if local_optima else own
    return _assemble(
        groups, names, scale, x[:, :keep], v[:, :keep], points, tilts, sizes, rstar, evaluate_final, local_optima
    )


def _run(
    trace: Trace, groups: list[Group], columns: _Columns, tilts: Array, in_time: Callable[[], None],
    exactly: bool = False,
) -> tuple[Array, Array, Array, Array]:  # fmt: skip
    """(x and v of the groups where gradients are taken, x^0 to x^K, what rounding may have lost of these), as rows.

    A point can be what is left of terms that are much larger. ``exactly`` it is computed in fractions.
    """

    def given(numbers: Any) -> Any:
        return _fractions(numbers) if exactly else numbers

    rounds, count, labels = trace.rounds, len(groups), columns.labels
    atoms = given(np.zeros((trace.points[-1].shape[1], len(columns))))
    atoms[0, 0] = given(np.ones(1))[0]
    x = given(np.zeros((count, labels + 2, len(columns))))
    v, leans, fresh = np.zeros(x.shape), given(tilts), 1
    for k in range(labels):
        in_time()
        points = given(trace.asks[k] if k < rounds else trace.points[-1]) @ atoms
        for c, group in enumerate(groups):
            x[c, k + 1] = points[c if len(points) > 1 else 0]
            if not group.quadratic:
                v[c, k + 1, columns.v(c, k)] = 1.0
        if k == rounds:
            break
        slopes = given(v[:, k + 1])
        mu = given(np.array([g.mu for g in groups]))
        gradients = slopes + mu[:, None] * x[:, k + 1] + leans
        if trace.mixes[k] is None:
            atoms[fresh : fresh + count] = gradients
            fresh += count
        else:
            mix = np.array([g.mix[k] for g in groups]) if trace.shared else np.asarray(trace.mixes[k])
            atoms[fresh] = given(mix) @ gradients
            for c, g in enumerate(groups):
                atoms[fresh] += 0 if g.pull is None else given(np.array(g.pull[k] - g.mix[k] * g.mu)) * x[c, k + 1]
            fresh += 1
    found = np.stack([given(p) @ atoms for p in trace.points])
    terms = np.abs(np.stack(trace.points)) @ np.abs(atoms).astype(float)
    return x.astype(float), v, found.astype(float), np.finfo(float).eps * terms.max(axis=1)


_fractions = np.vectorize(Fraction, otypes=[object])


class _Columns:
    """Numbers the unknown vectors: x^0, then v_c^k round by round, then s_c and z_c."""

    def __init__(self, groups: list[Group], labels: int, local_optima: bool) -> None:
        self.free = [c for c, g in enumerate(groups) if not g.quadratic]
        self.labels, self.local_optima = labels, local_optima
        # sum_c W_c s_c = 0: the heaviest group's tilt follows from the others
        self.dependent = int(np.argmax([g.weight for g in groups]))
        self.names: list[Column] = [("x", -1, 0)] + [("v", c, k) for k in range(labels) for c in self.free]
        self._s: dict[int, int] = {}
        self._z: dict[int, int] = {}
        if local_optima:
            for c in range(len(groups)):
                if c != self.dependent:
                    self._s[c] = len(self.names)
                    self.names.append(("s", c, -1))
            for c in self.free:
                self._z[c] = len(self.names)
                self.names.append(("z", c, -1))

    def __len__(self) -> int:
        return len(self.names)

    def v(self, c: int, k: int) -> int:
        return 1 + k * len(self.free) + self.free.index(c)

    def z(self, c: int) -> int:
        return self._z[c]

    def tilts(self, groups: list[Group]) -> Array:
        rows = np.zeros((len(groups), len(self)))
        for c, column in self._s.items():
            rows[c, column] = 1.0
            rows[self.dependent, column] = -groups[c].weight / groups[self.dependent].weight
        return rows

    def scales(self, groups: list[Group], sizes: Sizes, r0: float, rstar: float) -> Array:
        scale = np.full(len(self), float(r0))
        for k in range(self.labels):
            for c in self.free:
                scale[self.v(c, k)] = sizes.slopes[c, k]
        for c, column in self._s.items():
            bound = min(g.weight * g.L for g in groups) / groups[c].weight
            scale[column] = max(bound, groups[c].mu) * rstar
        for column in self._z.values():
            scale[column] = rstar
        return scale


def _swap(
    columns: _Columns, groups: list[Group], points: Array, scale: Array, sizes: Sizes, in_time: Callable[[], None]
) -> tuple[list[Column], Array, Callable[[Array], Array]]:
    """Let each new iterate take the place of one group's v; returns the names, scales and the change of basis."""
    columns_scale = scale
    names, scale = list(columns.names), scale.copy()
    basis = np.eye(len(names))
    for k in range(len(points) - 1):
        share = [abs(groups[c].mix[k]) * (groups[c].L - groups[c].mu) for c in columns.free]
        if not share:
            continue
        column = columns.v(columns.free[int(np.argmax(share))], k)
        row = points[k + 1]
        if abs(row[column]) <= 1e-9 * np.abs(row).max():
            continue  # this round's answer does not move the iterate: keep v
        basis[column] = row
        names[column], scale[column] = ("x", -1, k + 1), sizes.points[k + 1]
    scaled = basis * columns_scale / scale[:, None]  # in units in which all entries of a row are comparable
    factors = scipy.linalg.lu_factor(scaled.T)
    exact = scaled.astype(np.longdouble)

    def change(rows: Array) -> Array:
        flat = rows.reshape(-1, rows.shape[-1]) * columns_scale
        new = _without_dust(scipy.linalg.lu_solve(factors, flat.T).T)
        for _ in range(2):  # what rounding left over, computed with more digits; few columns make up a row
            in_time()
            left = flat - sp.csr_array(new.astype(np.longdouble)) @ exact
            new = _without_dust(new + scipy.linalg.lu_solve(factors, np.asarray(left, dtype=float).T).T)
        return np.asarray((new / scale).reshape(rows.shape))

    return names, scale, change


def _without_dust(rows: Array) -> Array:
    largest = np.abs(rows).max(axis=1, keepdims=True)
    return np.where(np.abs(rows) <= ROUNDING * largest, 0.0, rows)


def _assemble(
    groups: list[Group],
    names: list[Column],
    scale: Array,
    x: Array,
    v: Array,
    points: Array,
    tilts: Array,
    sizes: Sizes,
    rstar: float,
    evaluate_final: bool,
    local_optima: bool,
) -> Gram:
    labels = sizes.slopes.shape[1]
    triples: list[Triples] = []
    value_scale: list[float] = []
    difference_scale: list[Array | None] = []
    for c, group in enumerate(groups):
        curvature = group.L - group.mu
        value = np.full(x.shape[1], -1)
        if not group.quadratic:
            value[1:] = len(value_scale) + np.arange(x.shape[1] - 1)
            value_scale += [*map(float, sizes.values[c]), *([curvature * rstar**2] * local_optima)]
        x_d = v_d = scale_d = None
        if group.twins:
            x_d, v_d, scale_d = _differences(group, sizes.slopes[c], rstar)
            x_d, v_d = x_d * scale_d, v_d * scale_d
        triples.append(Triples(_names(labels, local_optima), x[c] * scale, v[c] * scale, x_d, v_d, value, curvature))
        difference_scale.append(scale_d)
    return Gram(
        groups=tuple(groups),
        columns=tuple(names),
        scale=scale,
        difference_scale=tuple(difference_scale),
        triples=tuple(triples),
        start=points[0] * scale,
        final=points[-1] * scale,
        final_value=labels if evaluate_final else None,
        tilts=tilts * scale,
        value_scale=np.array(value_scale),
        local_optima=local_optima,
    )


def _names(labels: int, local_optima: bool) -> tuple[str, ...]:
    return ("*", *(str(k) for k in range(labels)), *(["own"] if local_optima else []))


def _differences(group: Group, slopes: Array, rstar: float) -> tuple[Array, Array, Array]:
    """Twins share every point but their own minimiser: columns v^0, v^1, ..., s, z of their differences."""
    labels = len(slopes)
    free = labels if not group.quadratic else 0
    width = free + 1 + int(not group.quadratic)
    x, v = np.zeros((labels + 2, width)), np.zeros((labels + 2, width))
    s = free
    if group.quadratic:
        x[-1, s] = -1 / group.mu
        return x, v, np.array([group.mu * rstar])
    v[1 : labels + 1, :labels] = np.eye(labels)
    x[-1, s + 1] = 1.0
    v[-1] = -np.eye(width)[s] - group.mu_own * x[-1]
    curvature = group.L - group.mu
    return x, v, np.array([*slopes, math.sqrt(group.L * curvature) * rstar, rstar])
