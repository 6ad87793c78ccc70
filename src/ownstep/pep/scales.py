"""How large the iterates of each round can be expected to get: units in which a worst case keeps its digits.

After forty rounds iterates may be a thousand times smaller than the start and their squares a million times. A
solver that stops at 1e-8 of the largest entry would see nothing of them. So every column of the Gram matrix is
measured in units of its expected size, taken from runs of the same method on a handful of quadratics. The units
change the numbers the solver sees, not the problem.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ownstep.pep.symbolic import Trace
from ownstep.pep.symmetry import Group

Array = NDArray[np.float64]

SMALLEST = 1e-7
"""No unit is smaller than this fraction of the largest: beyond, squares leave the range of doubles' digits."""


@dataclass(frozen=True, eq=False)
class Sizes:
    """Expected norms of the points asked about (one a round) and of the answers x^0, ..., x^K."""

    asks: Array
    points: Array

    def evaluated(self, labels: int) -> list[float]:
        """Of the points where gradients are taken: all asked about, then x^K when it is evaluated too."""
        return [*map(float, self.asks), float(self.points[-1])][:labels]


def expected_sizes(trace: Trace, groups: list[Group], r0: float, rstar: float) -> Sizes:
    """Largest norms over one-dimensional quadratics h_c = q_c/2 x^2 with q_c from mu_c to L_c, tilted or not."""
    asks, points = _run(trace, groups, *_scenarios(groups, rstar), r0)
    asked = np.array([np.abs(x).max() for x in asks])
    reached = np.array([np.abs(x).max() for x in points])
    floor = SMALLEST * max(reached.max(), asked.max(initial=0.0))
    return Sizes(np.maximum(asked, floor), np.maximum(reached, floor))


def _run(trace: Trace, groups: list[Group], q: Array, s: Array, x0: float) -> tuple[list[Array], list[Array]]:
    """The traced method on h_c = q_c/2 x^2 with tilts s_c, from x0; one column a scenario."""
    atoms = np.zeros((trace.points[-1].shape[1], q.shape[1]))
    atoms[0] = x0
    asks, fresh = [], 1
    for k in range(trace.rounds):
        asks.append(trace.asks[k] @ atoms)
        gradients = q * asks[-1] + s
        mix = trace.mixes[k]
        if mix is None:
            atoms[fresh : fresh + len(groups)] = gradients
            fresh += len(groups)
        else:
            totals = np.array([g.mix[k] for g in groups]) if trace.shared else mix
            atoms[fresh] = totals @ gradients
            fresh += 1
    return asks, [point @ atoms for point in trace.points]


def _scenarios(groups: list[Group], rstar: float) -> tuple[Array, Array]:
    """Curvatures and tilts, one column a scenario."""
    mu = np.array([g.mu for g in groups])
    span = np.array([g.L for g in groups]) - mu
    weight = np.array([g.weight for g in groups])
    shares = [np.full(len(groups), t) for t in (0.0, 0.05, 0.2, 0.5, 0.8, 1.0)]
    if len(groups) > 1:
        shares += [one for row in np.eye(len(groups)) for one in (row, 1 - row)]
    curvatures, tilts = [], []
    for share in shares:
        q = mu + share * span
        curvatures.append(q)
        tilts.append(np.zeros(len(groups)))
        for c in range(len(groups) if rstar and len(groups) > 1 else 0):
            pull = np.full(len(groups), -1 / (len(groups) - 1))
            pull[c] = 1.0  # weights times tilts: they sum to zero, and no minimiser leaves its radius
            limit = float(np.min(weight * q / np.abs(pull)))
            for sign in (1.0, -1.0):
                curvatures.append(q)
                tilts.append(sign * limit * rstar * pull / weight)
    return np.array(curvatures).T, np.array(tilts).T


def tilt_moves(trace: Trace, groups: list[Group]) -> bool:
    """Does a tilt of the losses move x^K on some quadratics? Then, scaled up, it moves it as far as one likes."""
    q, s = _scenarios(groups, 1.0)
    return bool(np.abs(_run(trace, groups, q, s, 0.0)[1][-1]).max() > 1e-12 * np.abs(s).max())
