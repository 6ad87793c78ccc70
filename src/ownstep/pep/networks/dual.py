r"""The dual semidefinite program of a worst case over kinds of devices, its solver, and the check of its answer.

Minimise sum_j tau_j over tau, lambda >= 0, one symmetric Z >= 0 for each mixing matrix and free numbers a such that the
values cancel, sum_r lambda_r a_r = a_metric, and for every block of the Gram matrices

    S = sum_j tau_j H_j + sum_r lambda_r M_r + sum_kl Z_kl F_kl + sum_kl a_kl E_kl - M_metric >= 0,

with H_j the bounds on the start (divided by their right sides), M_r the interpolation conditions, F and E the
spectral conditions. Then metric <= sum_j tau_j for every instance. The solver's answer is repaired and S computed
afresh; only if every S and every Z is positive definite is there a bound.

The program is solved twice. The first answer tells how large every vector gets; the second solve measures each in that
unit, so that small ones keep their digits.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import clarabel
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ownstep.pep.conditions.assemble import pack, triangle, unpack
from ownstep.pep.networks.program import Interpolation, Rows, in_time
from ownstep.pep.networks.scaled import Multipliers, Program, Scaled
from ownstep.pep.solve.sdp import USABLE, quiet
from ownstep.support.errors import OwnstepError

Array = NDArray[np.float64]

ATTEMPTS = ((1e-4, 1e-9), (1e-2, 1e-9), (1e-3, 1e-8), (1e-2, 1e-8), (1e-1, 1e-7), (1.0, 1e-6))
"""(Smallest change of a column's unit over the largest, how far inside their cones multipliers are asked to be); the
next one is tried where a proof came out short."""

MANY = 260
"""Interpolation conditions up to which all are used at once."""

MANY_INSIDE = 600
"""The same for an instance, whose matrix is given: its program is smaller, and a condition left out can refute it."""

MOST_SOLVES = 3
"""Times to come back for broken conditions; a bound with some left out is a bound, only a little larger."""

BROKEN, ROUGHLY_BROKEN = 1e-6, 1e-4
"""A condition counts as broken from here on, relative to the largest value; in a rough answer from the second on."""


@dataclass(frozen=True, eq=False)
class Proof:
    """Checked multipliers, and what they prove: the metric is at most ``bound``.

    Parameters
    ----------
    slack : smallest eigenvalue of the slacks and of the Z, in the solver's units; positive.
    grams, values : the solver's worst case.
    """

    bound: float
    multipliers: Multipliers
    slack: float
    grams: tuple[Array, ...]
    values: Array
    status: str
    solves: int


def prove(
    program: Program, tolerance: float = 1e-9, *, inside: float | None = None, deadline: float = math.inf,
    likely: NDArray[np.bool_] | None = None, enough: float = 0.0,
) -> Proof:  # fmt: skip
    """Solve the program and check the answer; long programs begin with few conditions and add those that are broken.

    Parameters
    ----------
    inside : how far inside its conditions to look for an instance; its answer is handed back, proved or not.
    deadline : when to end with what is proved, even within a solve; in seconds of ``time.monotonic``.
    likely, enough : where there are many conditions, some to begin with, and a bound that needs no more of them.

    Raises
    ------
    OwnstepError : when the solver fails, or proves nothing.
    """
    every = program.interpolation
    if len(every.pairs) <= (MANY if inside is None else MANY_INSIDE):
        return _prove(program, tolerance, inside, deadline)
    chosen = _core(every) if likely is None else _core(every) | likely
    first = replace(program, interpolation=_part(every, chosen))
    rough, solves = _rough(first, deadline), 1
    grams, values = _full(first, *rough), rough[1].values * rough[0].value_units
    chosen[_broken(every, chosen, grams, values, ROUGHLY_BROKEN)] = True
    best: tuple[Proof, NDArray[np.bool_]] | None = None
    for _ in range(MOST_SOLVES):
        part = replace(program, interpolation=_part(every, chosen))
        try:
            proof = _prove(part, tolerance, inside, deadline, rough)
        except OwnstepError:
            if best is not None:
                break  # a larger program that fails takes nothing away from the bound already proved
            proof = _prove(part, tolerance, inside, deadline)
        best, solves = (proof, chosen.copy()), solves + proof.solves
        worst = _broken(every, chosen, list(proof.grams), proof.values, BROKEN)
        chosen[worst] = True
        if not len(worst) or proof.bound <= enough:
            break
    assert best is not None
    proof, used = best
    conditions = np.zeros(len(every.pairs))
    conditions[used] = proof.multipliers.conditions
    return replace(proof, multipliers=replace(proof.multipliers, conditions=conditions), solves=solves)


def _broken(every: Interpolation, chosen: NDArray[np.bool_], grams: list[Array], values: Array, least: float) -> Any:
    """The conditions that were left out and are broken most."""
    excess = every.rows.blocks @ np.concatenate([pack(g) for g in grams]) + every.rows.values @ values
    broken = np.where(chosen, 0.0, excess)
    worst = np.argsort(-broken)[: len(chosen) // 5]
    return np.asarray(worst[broken[worst] > least * float(np.abs(values).max(initial=0))])


def _core(every: Interpolation) -> NDArray[np.bool_]:
    """Conditions with x*, with the last points, and between neighbours."""
    _, p, q = every.pairs.T
    last = len(every.names) - 1
    edge = (p == 0) | (q == 0) | (np.maximum(p, q) >= last - 1)
    return np.asarray(edge | (np.abs(p - q) == 1))


def _part(every: Interpolation, chosen: NDArray[np.bool_]) -> Interpolation:
    index = np.flatnonzero(chosen)
    rows = Rows(sp.csr_array(every.rows.blocks[index]), sp.csr_array(every.rows.values[index]))
    return Interpolation(every.names, every.pairs[index], every.value, rows)


def _rough(program: Program, deadline: float) -> tuple[Scaled, _Found]:
    """A first answer, which tells how large every vector gets."""
    count = program.interpolation.count
    scaled = Scaled(program, program.blocks.units, np.full(count, program.value_unit))
    return scaled, _solve(scaled, 1e-7, 1e-4, deadline)


def _prove(
    program: Program, tolerance: float, inside: float | None, deadline: float,
    known: tuple[Scaled, _Found] | None = None,
) -> Proof:  # fmt: skip
    """One program, with all the conditions it has; ``known`` is a first answer that will do for it."""
    scaled, rough = known or _rough(program, deadline)
    failure, before = "", int(known is None)
    for attempt, (smallest, margin) in enumerate(ATTEMPTS if inside is None else [(ATTEMPTS[0][0], inside)]):
        finer = Scaled(program, *_sizes(program, scaled, rough, smallest))
        try:
            found = _solve(finer, margin, max(tolerance, margin / 10), deadline)
        except OwnstepError as error:
            failure = str(error)
            continue
        heads, conditions, matrices, free = found.dual
        heads, conditions = np.maximum(heads, 0.0), np.maximum(conditions, 0.0)
        conditions = _cancel(finer, conditions)
        slack = min(_slacks(finer, heads, conditions, matrices, free))
        if slack > 0 or inside is not None:
            multipliers = finer.multipliers(heads, conditions, matrices, free)
            return Proof(
                float(multipliers.heads.sum()),
                multipliers,
                slack,
                tuple(_full(program, finer, found)),
                found.values * finer.value_units,
                found.status,
                attempt + 1 + before,
            )
        failure = f"its answer ({found.status}) proves nothing, the slack has an eigenvalue of {slack:.2g}"
    in_time(deadline)
    raise OwnstepError(f"the semidefinite solver failed: {failure}")


@dataclass(frozen=True, eq=False)
class _Found:
    dual: tuple[Array, Array, list[Array], list[Array]]
    grams: list[Array]
    values: Array
    status: str


def _solve(scaled: Scaled, margin: float, tolerance: float, deadline: float) -> _Found:
    in_time(deadline)
    heads, count = len(scaled.heads), scaled.conditions.shape[0]
    steps = [mix.steps for mix in scaled.program.mixings]
    variables = heads + count + sum(triangle(t) for t in steps) + sum(triangle(t - 1) for t in steps)
    cost = np.zeros(variables)
    cost[:heads] = 1.0
    cost[heads : heads + count] = -margin
    columns = [sp.csr_array(scaled.heads.T), sp.csr_array(scaled.conditions.T)]
    loose = []
    for t, bounded, equal in zip(steps, scaled.bounded, scaled.symmetric, strict=True):
        c, r = np.tril_indices(t)
        columns.append(sp.csr_array((np.where(c == r, 1.0, math.sqrt(2))[:, None] * bounded).T))
        loose.append(sp.csr_array(equal.T))
    everything = sp.csr_array(sp.hstack(columns + loose))
    zero = sp.csr_array((len(scaled.target_values), heads))
    rest = sp.csr_array((len(scaled.target_values), variables - heads - count))
    parts = [sp.hstack([zero, scaled.values.T, rest])]
    parts.append(sp.hstack([-sp.eye_array(heads + count), sp.csr_array((heads + count, variables - heads - count))]))
    right = [scaled.target_values, np.zeros(heads + count)]
    cones = [clarabel.ZeroConeT(len(scaled.target_values)), clarabel.NonnegativeConeT(heads + count)]
    at = heads + count
    for t in steps:
        size = triangle(t)
        parts.append(-sp.eye_array(size, variables, k=at))
        right.append(-margin * pack(np.eye(t)))
        cones.append(clarabel.PSDTriangleConeT(t))
        at += size
    start = 0
    for n in scaled.sizes:
        size = triangle(n)
        parts.append(-everything[start : start + size])
        right.append(-scaled.target[start : start + size] - margin * pack(np.eye(n)))
        cones.append(clarabel.PSDTriangleConeT(n))
        start += size
    matrix = sp.csc_matrix(sp.vstack(parts))
    matrix.sort_indices()
    settings = quiet(tolerance)
    settings.time_limit = max(deadline - time.monotonic(), 0.0)
    settings.direct_solve_method = "faer"  # these systems are dense: it is several times faster than the default
    empty = sp.csc_matrix((variables, variables))
    answer = clarabel.DefaultSolver(empty, cost, matrix, np.concatenate(right), cones, settings).solve()
    return _read(scaled, answer, steps)


def _read(scaled: Scaled, answer: Any, steps: list[int]) -> _Found:
    """The solver's answer, taken apart."""
    heads, count = len(scaled.heads), scaled.conditions.shape[0]
    status = str(answer.status)
    if status == "MaxTime":
        raise OwnstepError("time is up (patience), and nothing is proved yet")
    if status not in USABLE:
        raise OwnstepError(f"it stopped without an answer ({status})")
    x, z = np.asarray(answer.x), np.asarray(answer.z)
    if not (np.isfinite(x).all() and np.isfinite(z).all()):
        raise OwnstepError(f"it returned no finite numbers ({status})")
    matrices, free, at = [], [], heads + count
    for t in steps:
        matrices.append(unpack(x[at : at + triangle(t)], t))
        at += triangle(t)
    for t in steps:
        free.append(x[at : at + triangle(t - 1)])
        at += triangle(t - 1)
    grams, at = [], len(scaled.target_values) + heads + count + sum(triangle(t) for t in steps)
    for n in scaled.sizes:
        grams.append(unpack(z[at : at + triangle(n)], n))
        at += triangle(n)
    values = -z[: len(scaled.target_values)]
    dual = (x[:heads], x[heads : heads + count], matrices, free)
    return _Found(dual, grams, values, status)


def _sizes(program: Program, scaled: Scaled, found: _Found, smallest: float) -> tuple[list[Array], Array]:
    """Units for the second solve: how large the first one found every vector and value."""
    units, reached = [], [np.sqrt(np.maximum(np.diag(gram), 0.0)) for gram in found.grams]
    least = smallest * max((size.max(initial=0) for size in reached), default=0.0)
    for unit, keep, size in zip(program.blocks.units, scaled.kept, reached, strict=True):
        fresh = unit.copy()
        fresh[keep] *= np.maximum(size, least or 1.0)
        units.append(fresh)
    values = np.abs(found.values)
    return units, scaled.value_units * np.maximum(values, smallest**2 * max(values.max(initial=0), 1e-12))


def _cancel(scaled: Scaled, multipliers: Array) -> Array:
    """Put what is left of each value onto its condition with x*, which is triple 0."""
    inter, out = scaled.program.interpolation, multipliers.copy()
    left = scaled.target_values - scaled.values.T @ multipliers
    kind, p, q = inter.pairs.T
    adds, takes = np.flatnonzero(p == 0), np.flatnonzero(q == 0)
    for chosen, point, sign in ((adds, q, 1.0), (takes, p, -1.0)):
        index = inter.value[kind[chosen], point[chosen]]
        unit = scaled.value_units[index] / scaled.row_size[chosen]
        out[chosen] += np.maximum(sign * left[index], 0.0) / unit
    return out


def _slacks(scaled: Scaled, heads: Array, conditions: Array, matrices: list[Array], free: list[Array]) -> list[float]:
    """Smallest eigenvalues of every S and every Z."""
    total = heads @ scaled.heads + scaled.conditions.T @ conditions - scaled.target
    for Z, a, bounded, equal in zip(matrices, free, scaled.bounded, scaled.symmetric, strict=True):
        columns, rows = np.tril_indices(len(Z))
        total = total + (Z[rows, columns] * np.where(rows == columns, 1.0, 2.0)) @ bounded + a @ equal
    found, at = [float(np.linalg.eigvalsh(Z)[0]) for Z in matrices], 0
    for n in scaled.sizes:
        if n:
            found.append(float(np.linalg.eigvalsh(unpack(total[at : at + triangle(n)], n))[0]))
        at += triangle(n)
    return found


def _full(program: Program, scaled: Scaled, found: _Found) -> list[Array]:
    """The solver's Gram blocks in the program's units, with the columns that were left out."""
    out = []
    for n, keep, unit, gram in zip(program.blocks.sizes, scaled.kept, scaled.units, found.grams, strict=True):
        full = np.zeros((n, n))
        full[np.ix_(keep, keep)] = gram * np.outer(unit, unit)
        out.append(full)
    return out
