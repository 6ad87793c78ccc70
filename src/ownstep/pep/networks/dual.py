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

ATTEMPTS = (
    (1e-4, 1e-9), (1e-2, 1e-9), (1e-1, 1e-9), (1e-3, 1e-8), (1e-2, 1e-8), (1e-2, 3e-8), (1e-1, 1e-7), (1.0, 1e-6),
)  # fmt: skip
"""(Smallest change of a column's unit over the largest, how far inside their cones multipliers are asked to be); the
next one is tried where a proof came out short."""

NARROW = ((1e-2, 1e-9), (1e-1, 1e-9))
"""The same for a program whose scales are known before it is solved."""

SOLVED = "Solved"
"""What the solver says of an answer of the accuracy asked for."""

REACH = 3
"""How far apart mixing steps may be whose conditions are used at first, in a long program."""

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


@dataclass(frozen=True, eq=False)
class Hint:
    """What is known of a worst case before its program is solved: one of its instances.

    Parameters
    ----------
    likely : conditions that probably matter.
    enough : a bound that needs no improvement.
    grams, values : the instance, in the program's units.
    """

    likely: NDArray[np.bool_]
    enough: float
    grams: list[Array]
    values: Array


def prove(
    program: Program, tolerance: float = 1e-9, *, inside: float | None = None, deadline: float = math.inf,
    hint: Hint | None = None, hasty: bool = False,
) -> Proof:  # fmt: skip
    """Solve the program and check the answer; long programs begin with few conditions and add those that are broken.

    Where the solver fails, or proves nothing, that is an OwnstepError.

    Parameters
    ----------
    inside : how far inside its conditions to look for an instance; its answer is handed back, proved or not.
    deadline : when to end with what is proved, even within a solve; in seconds of ``time.monotonic``.
    hint : where to begin with a long program.
    hasty : whether any proof will do that few conditions give.
    """
    every = program.interpolation
    narrow = None if hint is None else narrowly(program, hint, deadline, tolerance)
    if narrow is not None and hint is not None and (hasty or narrow.bound <= hint.enough):
        return narrow
    try:
        if len(every.pairs) <= (MANY if inside is None else MANY_INSIDE):
            proof = _prove(program, tolerance, inside, deadline)
        else:
            proof = _in_parts(program, tolerance, inside, deadline, None if hint is None else hint.likely)
    except OwnstepError:
        if narrow is None:
            raise
        return narrow
    return proof if narrow is None or proof.bound < narrow.bound else narrow


def narrowly(program: Program, hint: Hint, deadline: float, tolerance: float = 1e-9) -> Proof | None:
    """A proof from few conditions, those on mixing steps only between neighbours; None where there is none.

    The slack is then sparse in the coordinates of ``networks/basis``, and its solver an order of magnitude faster. An
    instance that is known tells how large every vector is, and when the bound is small enough.
    """
    every = program.interpolation
    _, p, q = every.pairs.T
    chosen = hint.likely | (p == 0) | (q == 0)
    mixings = tuple(replace(mix, reach=REACH) for mix in program.mixings)
    part = replace(program, interpolation=_part(every, chosen), mixings=mixings)
    try:
        proof = _prove(part, tolerance, None, deadline, _known(part, hint), NARROW)
    except OwnstepError:
        return None
    return _over_all(proof, every, chosen, proof.solves)


def _known(program: Program, hint: Hint) -> tuple[Scaled, _Found]:
    """An instance in place of a first answer, its vectors and values in units of one."""
    scaled = Scaled(program, [np.ones(n) for n in program.blocks.sizes], np.ones(program.interpolation.count))
    grams = [gram[np.ix_(keep, keep)] for gram, keep in zip(hint.grams, scaled.kept, strict=True)]
    nothing = np.zeros(0)
    return scaled, _Found((nothing, nothing, [], []), grams, hint.values, "known")


def _over_all(proof: Proof, every: Interpolation, chosen: NDArray[np.bool_], solves: int) -> Proof:
    """A proof that used some conditions, with a multiplier for each of them all."""
    conditions = np.zeros(len(every.pairs))
    conditions[chosen] = proof.multipliers.conditions
    return replace(proof, multipliers=replace(proof.multipliers, conditions=conditions), solves=solves)


def _in_parts(
    program: Program, tolerance: float, inside: float | None, deadline: float, likely: NDArray[np.bool_] | None
) -> Proof:
    """A proof that begins with some of the conditions and adds those that are broken."""
    every = program.interpolation
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
        if not len(worst):
            break
    assert best is not None
    return _over_all(best[0], every, best[1], solves)


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
    scaled = Scaled(program, program.blocks.units, program.value_units)
    return scaled, _solve(scaled, 1e-7, 1e-4, deadline, refined=False)


def _prove(
    program: Program, tolerance: float, inside: float | None, deadline: float,
    known: tuple[Scaled, _Found] | None = None, attempts: tuple[tuple[float, float], ...] = ATTEMPTS,
) -> Proof:  # fmt: skip
    """One program, with all the conditions it has; ``known`` is a first answer that will do for it."""
    scaled, rough = known or _rough(program, deadline)
    failure, solves = "", int(known is None)
    ways = attempts if inside is None else ((attempts[0][0], inside),)
    for refined, (smallest, margin) in ((False, ways[0]), *((True, way) for way in ways)):
        finer = Scaled(program, *_sizes(program, scaled, rough, smallest))
        solves += 1
        try:
            found = _solve(finer, margin, max(tolerance, margin / 10), deadline, refined)
        except OwnstepError as error:
            failure = str(error)
            continue
        if found.status != SOLVED and not refined:
            continue
        proof = _checked(program, finer, found, solves)
        if proof.slack > 0 or inside is not None:
            return proof
        failure = f"its answer ({found.status}) proves nothing, the slack has an eigenvalue of {proof.slack:.2g}"
    in_time(deadline)
    raise OwnstepError(f"the semidefinite solver failed: {failure}")


def _checked(program: Program, scaled: Scaled, found: _Found, solves: int) -> Proof:
    """The solver's answer, repaired so that values cancel; a proof where its slack is positive."""
    heads, conditions, matrices, free = found.dual
    heads, conditions = np.maximum(heads, 0.0), np.maximum(conditions, 0.0)
    conditions = _cancel(scaled, conditions)
    slack = min(_slacks(scaled, heads, conditions, matrices, free))
    multipliers = scaled.multipliers(heads, conditions, matrices, free)
    grams, values = tuple(_full(program, scaled, found)), found.values * scaled.value_units
    return Proof(float(multipliers.heads.sum()), multipliers, slack, grams, values, found.status, solves)


@dataclass(frozen=True, eq=False)
class _Found:
    dual: tuple[Array, Array, list[Array], list[Array]]
    grams: list[Array]
    values: Array
    status: str


def _solve(scaled: Scaled, margin: float, tolerance: float, deadline: float, refined: bool) -> _Found:
    """One call of the solver; without ``refined``, what rounding leaves of each step is not solved for again.

    That takes half the time, and mostly the answer is as good.
    """
    in_time(deadline)
    heads, count = len(scaled.heads), scaled.conditions.shape[0]
    mixings = scaled.program.mixings
    sizes = [(int(mix.used.sum()), int(mix.used.sum()) - mix.steps) for mix in mixings]
    variables = heads + count + sum(a + b for a, b in sizes)
    cost = np.zeros(variables)
    cost[:heads] = 1.0
    cost[heads : heads + count] = -margin
    columns = [sp.csr_array(scaled.heads.T), sp.csr_array(scaled.conditions.T)]
    loose = []
    for mix, bounded, equal in zip(mixings, scaled.bounded, scaled.symmetric, strict=True):
        c, r = np.tril_indices(mix.steps)
        columns.append(sp.csr_array((np.where(c == r, 1.0, math.sqrt(2))[:, None] * bounded)[mix.used].T))
        loose.append(sp.csr_array(equal[mix.used[c != r]].T))
    everything = sp.csr_array(sp.hstack(columns + loose))
    zero = sp.csr_array((len(scaled.target_values), heads))
    rest = sp.csr_array((len(scaled.target_values), variables - heads - count))
    parts = [sp.hstack([zero, scaled.values.T, rest])]
    parts.append(sp.hstack([-sp.eye_array(heads + count), sp.csr_array((heads + count, variables - heads - count))]))
    right = [scaled.target_values, np.zeros(heads + count)]
    cones = [clarabel.ZeroConeT(len(scaled.target_values)), clarabel.NonnegativeConeT(heads + count)]
    at = heads + count
    for mix, (size, _) in zip(mixings, sizes, strict=True):
        where = (np.flatnonzero(mix.used), at + np.arange(size))
        parts.append(sp.csr_array((-np.ones(size), where), shape=(triangle(mix.steps), variables)))
        right.append(-margin * pack(np.eye(mix.steps)))
        cones.append(clarabel.PSDTriangleConeT(mix.steps))
        at += size
    start = 0
    for n in scaled.sizes:
        size = triangle(n)
        parts.append(-everything[start : start + size])
        right.append(-scaled.target[start : start + size] - margin * pack(np.eye(n)))
        cones.append(clarabel.PSDTriangleConeT(n))
        start += size
    matrix = sp.csc_matrix(sp.vstack(parts))
    matrix.eliminate_zeros()
    matrix.sort_indices()
    settings = quiet(tolerance)
    settings.time_limit = max(deadline - time.monotonic(), 0.0)
    settings.direct_solve_method = "faer"  # these systems are dense: it is several times faster than the default
    settings.iterative_refinement_enable = refined
    empty = sp.csc_matrix((variables, variables))
    answer = clarabel.DefaultSolver(empty, cost, matrix, np.concatenate(right), cones, settings).solve()
    return _read(scaled, answer)


def _read(scaled: Scaled, answer: Any) -> _Found:
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
    mixings = scaled.program.mixings
    for mix in mixings:
        whole = np.zeros(triangle(mix.steps))
        whole[mix.used] = x[at : at + mix.used.sum()]
        matrices.append(unpack(whole, mix.steps))
        at += int(mix.used.sum())
    for mix in mixings:
        c, r = np.tril_indices(mix.steps)
        between = mix.used[c != r]
        whole = np.zeros(len(between))
        whole[between] = x[at : at + between.sum()]
        free.append(whole)
        at += int(between.sum())
    grams, at = [], len(scaled.target_values) + heads + count + sum(triangle(mix.steps) for mix in mixings)
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
    for unit, keep, mine, size in zip(program.blocks.units, scaled.kept, scaled.units, reached, strict=True):
        fresh = unit.copy()
        fresh[keep] = mine * np.maximum(size, least or 1.0)
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
