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

from ownstep.pep.trace.symbolic import Trace
from ownstep.pep.trace.symmetry import Group

Array = NDArray[np.float64]

SMALLEST = 1e-15
"""No unit is smaller than this fraction of the largest: beyond, iterates are what rounding left of them."""

LEAST_SLOPE = 0.3
"""Gradients are expected to be at least this fraction of what smoothness allows at their point."""


@dataclass(frozen=True, eq=False)
class Sizes:
    """Expected sizes: of the answers x^0, ..., x^K, and of what devices see where gradients are taken.

    Parameters
    ----------
    points : ||x^k||, k = 0, ..., K.
    slopes : ||v_c^k||, a row for each group, a column for each point where gradients are taken.
    values : phi_c^k, likewise.
    """

    points: Array
    slopes: Array
    values: Array


def expected_sizes(trace: Trace, groups: list[Group], r0: float, rstar: float, *, evaluate_final: bool) -> Sizes:
    """Largest sizes over one-dimensional quadratics h_c = q_c/2 x^2 with q_c from mu_c to L_c, tilted or not."""
    q, s = scenarios(groups, rstar)
    asks, points = run_quadratics(trace, groups, q, s, r0)
    evaluated = asks + [points[-1]] * evaluate_final
    excess = q - np.array([[g.mu] for g in groups])
    span = np.array([[g.L - g.mu] for g in groups])
    shape = (len(groups), len(evaluated))
    slopes = np.array([np.abs(excess * x).max(axis=1) for x in evaluated]).reshape(shape[::-1]).T
    values = np.array([(excess * x**2).max(axis=1) for x in evaluated]).reshape(shape[::-1]).T
    reached = np.array([np.abs(x).max() for x in points])
    visited = np.array([np.abs(x).max() for x in evaluated])
    slopes = np.maximum(slopes, LEAST_SLOPE * span * visited)
    values = np.maximum(values, LEAST_SLOPE * span * visited**2)
    largest = max(float(reached.max()), *(float(np.abs(x).max()) for x in evaluated)) if evaluated else r0
    floor = SMALLEST * largest
    return Sizes(np.maximum(reached, floor), np.maximum(slopes, span * floor), np.maximum(values, span * floor**2))


def run_quadratics(trace: Trace, groups: list[Group], q: Array, s: Array, x0: float) -> tuple[list[Array], list[Array]]:
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


def scenarios(groups: list[Group], rstar: float) -> tuple[Array, Array]:
    """Curvatures and tilts, one column a scenario."""
    mu = np.array([g.mu for g in groups])
    span = np.array([g.L for g in groups]) - mu
    weight = np.array([g.weight for g in groups])
    shares = [np.full(len(groups), t) for t in (0.0, 0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1.0)]
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


def beyond_doubles(trace: Trace, groups: list[Group], r0: float, rstar: float) -> str:
    """Why a worst case of so many rounds is not found: the iterates are what rounding left of them; else nothing."""
    q, s = scenarios(groups, rstar)
    points = [float(np.abs(x).max()) for x in run_quadratics(trace, groups, q, s, r0)[1]]
    if points[-1] > SMALLEST * max(points):
        return ""
    return (
        f"; x^K - x* is expected to be less than {SMALLEST:g} of the largest iterate, and double precision sees no "
        "less: ask about fewer rounds, or for a rate, which holds for all of them"
    )


def tilt_moves(trace: Trace, groups: list[Group]) -> bool:
    """Does a tilt of the losses move x^K on some quadratics? Then, scaled up, it moves it as far as one likes."""
    q, s = scenarios(groups, 1.0)
    return bool(np.abs(run_quadratics(trace, groups, q, s, 0.0)[1][-1]).max() > 1e-12 * np.abs(s).max())
