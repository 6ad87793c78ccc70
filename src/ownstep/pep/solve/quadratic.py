"""The worst of a handful of quadratics: a first lower bound that costs nothing.

For some methods a quadratic is the worst function of all, and then often two very different ones are equally bad. A
solver returns a mixture of such optima, which leaving conditions out makes hard to take apart again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ownstep.pep.conditions.gram import Gram
from ownstep.pep.solve.sdp import Objective, Solution, blocks
from ownstep.pep.trace.scales import run_quadratics, scenarios
from ownstep.pep.trace.symbolic import Trace

Array = NDArray[np.float64]


def worst_quadratic(trace: Trace, gram: Gram, target: Objective, r0: float, rstar: float) -> Solution:
    """The one of :func:`~ownstep.pep.trace.scales.scenarios` with the largest metric, as a solution of rank one."""
    groups = list(gram.groups)
    q, s = scenarios(groups, rstar if gram.local_optima else 0.0)
    asks, points = run_quadratics(trace, groups, q, s, r0)
    seen = np.stack([np.broadcast_to(x, q.shape) for x in [*asks, points[-1]]])
    excess = q - np.array([[g.mu] for g in groups])
    own = np.where(q > 0, -s / np.where(q > 0, q, 1.0), 0.0)

    def size(kind: str, c: int, k: int) -> Array:
        return np.asarray({"x": points[k][0], "v": excess[c] * seen[k, c], "s": s[c], "z": own[c]}[kind])

    vectors = np.stack([size(*column) for column in gram.columns]) / gram.scale[:, None]
    at = [*seen, own] if gram.local_optima and gram.final_value else [*seen[:-1], own] if gram.local_optima else [*seen]
    values = np.zeros((len(gram.value_scale), q.shape[1]))
    for c, triples in enumerate(gram.triples):
        for row, index in enumerate(triples.value):
            if index >= 0:
                values[index] = excess[c] / 2 * at[row - 1][c] ** 2 / gram.value_scale[index]
    errors = np.einsum("is,ij,js->s", vectors, target.matrix, vectors) + target.values @ values
    best = int(np.argmax(errors))
    apart = [np.zeros((len(gram.difference_scale[c]),) * 2) for c in blocks(gram)]  # type: ignore[arg-type]
    chosen = vectors[:, best]
    none = np.zeros(0)
    return Solution(none, none, np.outer(chosen, chosen), apart, values[:, best], "a quadratic", 0, 0.0)
