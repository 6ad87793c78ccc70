r"""A better instance near the solver's: the worst case as a small nonlinear program, all conditions in it.

With conditions left out, the solver's Gram matrix is that of an instance which breaks some of them, and the function
recovered from it is not quite the worst. But a worst instance lives in a space of two or three dimensions: G = R R^T
with a thin R. In R and the values phi the worst case reads

    max  <M, R R^T> + a phi   such that  <M_r, R R^T> + a_r phi <= 0  for *every* pair r, and the radii,

solved by sequential quadratic programming. The Hessian of its Lagrangian is -2 S for each column of R, with S the slack
of the proof at hand: positive semidefinite, as a proof must be, so every quadratic program is convex. Most pairs are
tight at a worst instance, as its losses have few pieces and each piece holds many points; nearly all of them follow
from others. So only the most broken ones of each point enter.
"""

from __future__ import annotations

from collections.abc import Iterator

import clarabel
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ownstep.pep.conditions.assemble import Conditions
from ownstep.pep.conditions.gram import Gram
from ownstep.pep.proof.certificate import Proof
from ownstep.pep.solve.sdp import Objective, Solution, quiet

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

VISIBLE = 5e-3
"""Eigenvalues above this fraction of the largest are directions of the instance; below, of the solver's mixture."""

RANKS = (2, 4)  # dimensions to look in, at least and at most
BROKEN = 1e-10  # a left side above this, in units of the pair's values, is a broken condition
FAR = 0.1  # a condition with more room than this is left to the check after each step
LITTLE = 1e-7  # a step that gains less than this fraction is the last
NONE = -1e9  # stands for the left side of pairs that are no condition


def polish(
    gram: Gram,
    target: Objective,
    found: Solution,
    rows: Conditions,
    proof: Proof,
    slack: Array,
    *,
    r0: float,
    rstar: float,
    steps: int,
) -> Iterator[Solution]:
    """Ever better instances, as solutions of low rank, the start first; replaying them is what makes them bounds.

    Not for twins, which may differ in many more dimensions.

    Parameters
    ----------
    found, rows, proof : where to start, the conditions it was found with, and what was proved.
    slack : S of the mean block in that proof.
    steps : quadratic programs to solve at most.
    """
    problem = _Problem(gram, target, r0, rstar)
    size, directions = np.linalg.eigh(found.gram)
    size, directions = size[::-1], directions[:, ::-1]
    rank = int(np.clip(np.sum(size > VISIBLE * size[0]), *RANKS))
    thin = directions[:, :rank] * np.sqrt(np.maximum(size[:rank], 0.0))
    values = found.values.copy()
    yield _solution(thin, values)
    pairs = tuple(rows.pairs.T)
    # twice the sum of the multipliers: breaking conditions then never pays
    penalty = 2 * float(np.sum(proof.multipliers / rows.size * problem.size[pairs]) + proof.limits.sum())
    broken = problem.left(thin, values)
    merit = problem.merit(thin, values, broken, penalty)
    chosen = np.zeros(broken.shape, bool)
    chosen[pairs] = True
    chosen &= broken > -FAR
    chosen |= _most_broken(broken)
    damping = 1e-3
    for _ in range(steps):
        step = problem.step(thin, values, broken, chosen, slack, damping, penalty)
        if step is None:
            return
        trial, trial_values = thin + step[0], values + step[1]
        left = problem.left(trial, trial_values)
        chosen |= _most_broken(left)
        new = problem.merit(trial, trial_values, left, penalty)
        if not new < merit:
            damping *= 10
            continue
        gain, merit = merit - new, new
        thin, values, broken = trial, trial_values, left
        damping = max(damping / 5, 1e-6)
        yield _solution(thin, values)
        if gain <= LITTLE * abs(merit):
            return


def _solution(thin: Array, values: Array) -> Solution:
    none = np.zeros(0)
    return Solution(none, none, thin @ thin.T, [], values, "polished", 0, 0.0)


def _most_broken(left: Array) -> Mask:
    """Of each point's broken conditions the worst, in either role."""
    out = np.zeros(left.shape, bool)
    for axis in (1, 2):
        worst = np.expand_dims(left.argmax(axis=axis), axis)
        np.put_along_axis(out, worst, np.take_along_axis(left, worst, axis) > BROKEN, axis)
    return out


class _Problem:
    """The nonlinear program: left sides of all conditions, and their linearisations."""

    def __init__(self, gram: Gram, target: Objective, r0: float, rstar: float) -> None:
        self.target = target
        self.points = len(gram.triples[0].names)
        self.x = sp.csr_array(np.vstack([t.x for t in gram.triples]))
        self.v = sp.csr_array(np.vstack([t.v for t in gram.triples]))
        self.curvature = np.array([t.curvature for t in gram.triples])
        self.free = [c for c, group in enumerate(gram.groups) if not group.quadratic]
        self.index = np.stack([t.value for t in gram.triples])
        self.scale = np.append(gram.value_scale, 0.0)
        unit = self.scale[self.index]
        self.size = np.maximum(unit[:, :, None], unit[:, None, :])
        self.size[self.size == 0] = 1.0
        own = [t.x[-1] / rstar for t in gram.triples] if gram.local_optima else []
        self.heads = np.array([gram.start[0] / r0, *own])

    def left(self, thin: Array, values: Array) -> Array:
        """Left sides, entry (group, p, q), in units of the pair's values; positive where broken."""
        phi = (np.append(values, 0.0) * self.scale)[self.index]
        x = (self.x @ thin).reshape(*self.index.shape, -1)
        v = (self.v @ thin).reshape(*self.index.shape, -1)
        out = np.full(self.size.shape, NONE)
        for c in self.free:
            squares = np.einsum("ij,ij->i", v[c], v[c])
            apart = squares[:, None] + squares - 2 * v[c] @ v[c].T
            slope = x[c] @ v[c].T - np.einsum("ij,ij->i", x[c], v[c])
            out[c] = (phi[c] - phi[c][:, None] + slope + apart / (2 * self.curvature[c])) / self.size[c]
            np.fill_diagonal(out[c], NONE)
        return out

    def outside(self, thin: Array) -> Array:
        """By how much each radius is exceeded, squared and relative."""
        return np.asarray(np.sum((self.heads @ thin) ** 2, axis=1) - 1)

    def merit(self, thin: Array, values: Array, left: Array, penalty: float) -> float:
        """The error with its sign turned, plus what the worst broken condition costs."""
        error = float(np.sum((self.target.matrix @ thin) * thin) + self.target.values @ values)
        return penalty * max(float(left.max()), float(self.outside(thin).max()), 0.0) - error

    def slopes(self, thin: Array, chosen: Mask) -> sp.csr_array:
        """Derivatives of the chosen left sides by the columns of R, one after the other, then by the values."""
        c, p, q = np.nonzero(chosen)
        weight = 1 / self.size[c, p, q]
        ip, iq = c * self.points + p, c * self.points + q
        x, v = self.x @ thin, self.v @ thin
        dx, dv, vq = self.x[ip] - self.x[iq], self.v[ip] - self.v[iq], self.v[iq]
        parts = [
            sp.diags_array(weight * v[iq, a]) @ dx
            + sp.diags_array(weight * (x[ip, a] - x[iq, a])) @ vq
            + sp.diags_array(weight * (v[ip, a] - v[iq, a]) / self.curvature[c]) @ dv
            for a in range(thin.shape[1])
        ]
        column = np.concatenate([self.index[c, q], self.index[c, p]])
        entry = np.concatenate([weight, -weight]) * self.scale[column]
        kept = column >= 0
        row = np.tile(np.arange(len(c)), 2)
        phi = sp.csr_array((entry[kept], (row[kept], column[kept])), shape=(len(c), len(self.scale) - 1))
        return sp.csr_array(sp.hstack([*parts, phi]))

    def step(
        self, thin: Array, values: Array, left: Array, chosen: Mask, slack: Array, damping: float, penalty: float
    ) -> tuple[Array, Array] | None:
        """One quadratic program; its last variable is how far all conditions may stay broken, at a price."""
        n, rank = thin.shape
        count, radii, free = int(chosen.sum()), len(self.heads), len(values)
        reach = self.heads @ thin
        rim = sp.csr_array(np.hstack([2 * reach[:, [a]] * self.heads for a in range(rank)]))
        matrix = sp.vstack(
            [
                sp.hstack([self.slopes(thin, chosen), sp.csr_array(-np.ones((count, 1)))]),
                sp.hstack([rim, sp.csr_array((radii, free)), sp.csr_array(-np.ones((radii, 1)))]),
                sp.csr_array(([-1.0], ([0], [rank * n + free])), shape=(1, rank * n + free + 1)),
            ]
        )
        right = np.concatenate([-left[chosen], -self.outside(thin), [0.0]])
        bend = sp.triu(2 * sp.csr_array(slack) + damping * sp.eye_array(n))
        hessian = sp.block_diag([*[bend] * rank, 1e-9 * sp.eye_array(free), sp.csr_array((1, 1))])
        cost = np.concatenate([-(2 * self.target.matrix @ thin).T.ravel(), -self.target.values, [penalty]])
        curved, linear = sp.csc_matrix(hessian), sp.csc_matrix(matrix)
        cones = [clarabel.NonnegativeConeT(len(right))]
        move = np.asarray(clarabel.DefaultSolver(curved, cost, linear, right, cones, quiet(1e-8)).solve().x)
        if not np.isfinite(move).all():
            return None
        return move[: rank * n].reshape(rank, n).T, move[rank * n : rank * n + free]
