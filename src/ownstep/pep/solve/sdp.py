r"""The semidefinite program and its solver.

The dual of a worst case is small and sparse, so that is what is handed to Clarabel: minimise

    tau r0^2 + sum_c rho_c rstar^2     over  tau, rho, lambda >= 0

such that the values cancel, sum_r lambda_r a_r = a_metric, and the slack is positive semidefinite,

    S = sum_r lambda_r M_r + tau x0 x0^T + sum_c rho_c z_c z_c^T - M_metric >= 0,

with one more such matrix for each difference block. The multipliers of S are the Gram matrix itself. Two margins of
1e-9 or so, far below the accuracy asked for, put both answers strictly inside their sets: S is kept a little above
zero and the interpolation conditions a little below. Then neither is spoilt by the solver's own rounding.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import clarabel
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ownstep.pep.conditions.assemble import Conditions, pack, triangle, unpack
from ownstep.pep.conditions.gram import Gram
from ownstep.support.errors import OwnstepError

Array = NDArray[np.float64]

USABLE = ("Solved", "AlmostSolved", "InsufficientProgress", "MaxIterations")
"""Statuses after which an answer is worth checking; it is the check, not the status, that makes it a bound."""


LARGE = 120
"""Columns up to which their units alone usually scale the problem well enough."""

SCALED_BY = (0.1, 10.0)
"""How far the solver may scale rows and columns where there are twins: further takes half as many iterations more."""


@dataclass(frozen=True, eq=False)
class Objective:
    """The metric as coefficients on the mean block and the values, divided by ``size``."""

    matrix: Array
    values: Array
    size: float


@dataclass(frozen=True, eq=False)
class Limits:
    """The rows ||x^0||^2 <= r0^2 and, for each group, ||z||^2 <= rstar^2, divided by their right sides."""

    mean: tuple[Array, ...]
    differences: tuple[tuple[Array | None, ...], ...]
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Solution:
    """What the solver found, in scaled units.

    Parameters
    ----------
    limits, multipliers : the dual: tau and the rho_c, then lambda.
    gram, differences, values : the primal.
    moves : how far to move the parameters, where the slack was allowed to follow them.
    """

    limits: Array
    multipliers: Array
    gram: Array
    differences: list[Array]
    values: Array
    status: str
    iterations: int
    seconds: float
    moves: Array = field(default_factory=lambda: np.zeros(0))


def objective(gram: Gram, metric: str, shared: bool) -> Objective:
    """The measure of error, as a quadratic form over the mean block plus a linear one over the values."""
    n = len(gram.columns)
    matrix, values = np.zeros((n, n)), np.zeros(len(gram.value_scale))
    weights = np.array([g.weight for g in gram.groups])
    final = gram.final if len(gram.final) > 1 else np.repeat(gram.final, len(gram.groups), axis=0)
    if metric == "distance":
        rows = final if not shared else final[:1]
        matrix += (rows.T * (weights if not shared else 1.0)) @ rows
    else:
        at = gram.final_value
        assert at is not None
        v = np.stack([t.v[at] for t in gram.triples])
        mu = np.array([g.mu for g in gram.groups])
        if metric == "gradient":
            gradient = weights @ (v + mu[:, None] * final + (0 if shared else gram.tilts))
            matrix += np.outer(gradient, gradient)
        else:
            matrix += (final.T * (weights * mu / 2)) @ final
            if not shared:
                cross = (final.T * weights) @ gram.tilts
                matrix += (cross + cross.T) / 2
            for c, triples in enumerate(gram.triples):
                if (index := triples.value[at]) >= 0:
                    values[index] = weights[c] * gram.value_scale[index]
    size = max(np.abs(matrix).max(initial=0), np.abs(values).max(initial=0))
    return Objective(matrix / (size or 1.0), values / (size or 1.0), float(size))


def limits(gram: Gram, r0: float, rstar: float) -> Limits:
    """The radii, as rank-one matrices."""
    start = gram.start[0] / r0
    mean, names = [np.outer(start, start)], ["||x0 - x*||^2 <= r0^2"]
    differences: list[tuple[Array | None, ...]] = [tuple(None for _ in gram.groups)]
    if gram.local_optima:
        for c, triples in enumerate(gram.triples):
            own = triples.x[-1] / rstar
            mean.append(np.outer(own, own))
            names.append(f"group {c}: ||x_own - x*||^2 <= rstar^2")
            apart = None if triples.x_difference is None else triples.x_difference[-1] / rstar
            differences.append(
                tuple(np.outer(apart, apart) if j == c and apart is not None else None for j in range(len(gram.groups)))
            )
    return Limits(tuple(mean), tuple(differences), tuple(names))


def blocks(gram: Gram) -> list[int]:
    """Groups that have a difference block."""
    return [c for c, scale in enumerate(gram.difference_scale) if scale is not None]


def solve(
    gram: Gram,
    rows: Conditions,
    target: Objective,
    radii: Limits,
    *,
    margin: float,
    tolerance: float = 1e-9,
    chordal: bool = True,
    scaling: bool = True,
    seconds: float = math.inf,
    slopes: Array | sp.csr_array | None = None,
    reach: Array | None = None,
) -> Solution:
    """One call of the solver.

    Parameters
    ----------
    margin : how far inside their sets both answers are asked to be, in scaled units.
    chordal : let the solver split a banded slack into overlapping small ones.
    scaling : let the solver scale the problem too; up to :data:`LARGE` columns it is often faster without.
    seconds : time after which the solver gives up.
    slopes, reach : packed derivatives of the mean block's slack by parameters of the method, one row each, and how far
        each may move either way: then the parameters are chosen too, as if the slack were linear in them.
    """
    began = time.perf_counter()
    slopes = np.zeros((0, triangle(len(gram.columns)))) if slopes is None else slopes
    count, heads, free = len(rows.pairs), len(radii.mean), slopes.shape[0]
    twins = blocks(gram)
    variables = heads + count
    cost = np.concatenate([np.ones(heads), np.full(count, -margin), np.zeros(free)])
    equal = sp.hstack(
        [sp.csr_array((len(target.values), heads)), rows.values.T, sp.csr_array((len(target.values), free))]
    )
    parts = [equal, sp.hstack([-sp.eye_array(variables), sp.csr_array((variables, free))])]
    right = [target.values, np.zeros(variables)]
    cones = [clarabel.ZeroConeT(len(target.values)), clarabel.NonnegativeConeT(variables)]
    if reach is not None:
        box = sp.hstack([sp.csr_array((2 * free, variables)), sp.vstack([sp.eye_array(free), -sp.eye_array(free)])])
        parts.append(box)
        right.append(np.tile(reach, 2))
        cones.append(clarabel.NonnegativeConeT(2 * free))
    n = len(gram.columns)
    parts.append(-sp.hstack([_column_stack([pack(m) for m in radii.mean]), rows.mean.T, sp.csr_array(slopes.T)]))
    right.append(-pack(target.matrix) - margin * pack(np.eye(n)))
    cones.append(clarabel.PSDTriangleConeT(n))
    for position, c in enumerate(twins):
        width = len(gram.difference_scale[c])  # type: ignore[arg-type]
        zero = np.zeros(triangle(width))
        head = [zero if (m := d[c]) is None else pack(m) for d in radii.differences]
        still = sp.csr_array((triangle(width), free))  # what sets twins apart does not depend on the steps
        parts.append(-sp.hstack([_column_stack(head), rows.differences[position].T, still]))
        right.append(-margin * pack(np.eye(width)))
        cones.append(clarabel.PSDTriangleConeT(width))
    settings = quiet(tolerance)
    settings.chordal_decomposition_enable = chordal
    settings.equilibrate_enable = scaling
    if twins:
        settings.equilibrate_min_scaling, settings.equilibrate_max_scaling = SCALED_BY
    settings.time_limit = seconds
    quadratic = sp.csc_matrix((variables + free, variables + free))
    matrix = sp.csc_matrix(sp.vstack(parts))
    matrix.sort_indices()
    answer = clarabel.DefaultSolver(quadratic, cost, matrix, np.concatenate(right), cones, settings).solve()
    status = str(answer.status)
    if status not in USABLE:
        raise OwnstepError(f"it stopped without an answer ({status})")
    dual, z = np.asarray(answer.x), np.asarray(answer.z)
    if not (np.isfinite(dual).all() and np.isfinite(z).all()):
        raise OwnstepError(f"it returned no finite numbers ({status})")
    at = len(target.values)
    values = -z[:at]
    at += variables + (0 if reach is None else 2 * free)
    mean = unpack(z[at : at + triangle(n)], n)
    at += triangle(n)
    apart = []
    for c in twins:
        width = len(gram.difference_scale[c])  # type: ignore[arg-type]
        apart.append(unpack(z[at : at + triangle(width)], width))
        at += triangle(width)
    seconds = time.perf_counter() - began
    limits, multipliers, moves = dual[:heads], dual[heads:variables], dual[variables:]
    return Solution(limits, multipliers, mean, apart, values, status, answer.iterations, seconds, moves)


def quiet(tolerance: float) -> Any:
    """The solver's settings: one thread, no output."""
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
    settings.max_threads = 1
    return settings


def _column_stack(columns: list[Array]) -> sp.csr_array:
    return sp.csr_array(np.column_stack(columns))
