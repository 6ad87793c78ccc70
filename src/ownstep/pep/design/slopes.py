r"""How a worst case changes with the method's own numbers: the derivative of a semidefinite program.

The worst case is min tau r0^2 + ... over multipliers for which the slack S(multipliers, theta) is positive
semidefinite, and the Gram matrix G of the worst instance is the multiplier of that constraint. So (the envelope
theorem)

    d worst case / d theta_j = -<dS/dtheta_j, G>.

S depends on theta through the points x^k alone. They are combinations of x^0 and of the sums that were told, with the
coefficients that the symbolic run of the method reads off; how those change with theta is chained through here:

    dx^k         = sum_a (d ask_{k,a}) atom_a + ask_{k,a} d atom_a,
    d atom_{k+1} = sum_c (d mix_{k,c}) g_c^k + mix_{k,c} mu_c dx^k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ownstep.pep.conditions.assemble import Conditions, pack
from ownstep.pep.conditions.gram import Gram
from ownstep.pep.solve.sdp import Objective
from ownstep.pep.trace.symbolic import Trace

Array = NDArray[np.float64]

STEP = 1e-5
"""Half the width of the central differences of coefficients: polynomials of low degree, so exact to ten digits."""


@dataclass(frozen=True, eq=False)
class Coefficients:
    """A method's coefficients: rows of asks and the last point over the atoms, and the mix by group and round."""

    asks: Array
    mixes: Array

    def __sub__(self, other: Coefficients) -> Coefficients:
        return Coefficients(self.asks - other.asks, self.mixes - other.mixes)


def coefficients(path: Trace, members: list[list[int]]) -> Coefficients:
    """The numbers of a traced method with one shared point; ``members`` are the devices of each group."""
    rows = [*path.asks, path.points[-1]]
    width = path.points[-1].shape[1]
    asks = np.stack([np.pad(row[0], (0, width - row.shape[1])) for row in rows])
    mixes = [[float(np.asarray(mix)[index].sum()) for index in members] for mix in path.mixes]
    return Coefficients(asks, np.array(mixes).reshape(len(path.asks), len(members)))


def jacobian(family: Callable[[Array], Coefficients], theta: Array) -> list[Coefficients]:
    """Derivatives of the coefficients by each parameter, by central differences of the symbolic run."""
    found = []
    for j in range(len(theta)):
        step = np.zeros(len(theta))
        step[j] = STEP * max(1.0, abs(theta[j]))
        change = family(theta + step) - family(theta - step)
        found.append(Coefficients(change.asks / (2 * step[j]), change.mixes / (2 * step[j])))
    return found


def slack_slopes(
    at: Coefficients, changes: list[Coefficients], gram: Gram, rows: Conditions, target: Objective, multipliers: Array,
    metric: str,
) -> Array:  # fmt: skip
    """The packed derivatives dS/dtheta_j of the mean block's slack, one row a parameter, multipliers held."""
    mu = np.array([g.mu for g in gram.groups])
    rounds = len(at.mixes)
    x = np.stack([t.x for t in gram.triples])
    v = np.stack([t.v for t in gram.triples])
    gradients = v + mu[:, None, None] * x + gram.tilts[:, None, :]
    atoms = np.stack([gram.start[0], *(at.mixes[k] @ gradients[:, k + 1] for k in range(rounds))])
    pull = _pulls(gram, rows, multipliers, rounds, v)
    pull[rounds] -= _metric_pull(gram, target, metric, v, mu)
    out = np.zeros((len(changes), len(gram.columns) * (len(gram.columns) + 1) // 2))
    for j, change in enumerate(changes):
        moved_atoms = np.zeros_like(atoms)
        moved = np.zeros((rounds + 1, len(gram.columns)))
        for k in range(rounds + 1):
            moved[k] = change.asks[k] @ atoms + at.asks[k] @ moved_atoms
            if k < rounds:
                drift = float(at.mixes[k] @ mu)
                moved_atoms[k + 1] = change.mixes[k] @ gradients[:, k + 1] + drift * moved[k]
        half = pull.T @ moved / 2
        out[j] = pack(half + half.T)
    return out


def _pulls(gram: Gram, rows: Conditions, multipliers: Array, rounds: int, v: Array) -> Array:
    """For each point, the vector b with S = sym(b x^T) + ...: multipliers times the v_q of its conditions."""
    group, p, q = rows.pairs.T
    factor = multipliers / rows.size
    out = np.zeros((v.shape[1], v.shape[2]))
    np.add.at(out, p, factor[:, None] * v[group, q])
    np.add.at(out, q, -factor[:, None] * v[group, q])
    seen = out[1 : 1 + rounds + int(gram.final_value is not None)]
    return np.vstack([seen, np.zeros((rounds + 1 - len(seen), v.shape[2]))])


def _metric_pull(gram: Gram, target: Objective, metric: str, v: Array, mu: Array) -> Array:
    """The vector b with d metric = <b, dx^K>."""
    final = gram.final[0]
    if metric == "distance":
        return np.asarray(2 * final / target.size)
    weights = np.array([g.weight for g in gram.groups])
    mean = float(weights @ mu)
    if metric == "value":
        return np.asarray(mean * final / target.size)
    return np.asarray(2 * mean * (weights @ v[:, gram.final_value] + mean * final) / target.size)
