"""Which interpolation conditions to use: few, and those that keep the dual matrix narrow.

Leaving conditions out can only raise the maximum, so any choice gives a valid upper bound. Conditions between
neighbouring rounds and with the optima keep the dual matrix banded. All conditions of a single point, a *hub*, add only
that point's few columns to the border of the band, so hubs keep the cost linear in K. The last point and the start
are the first hubs to try, as the metric and the radius live there, then those where the method changes its steps, then
those that take part in most of what is broken. Small problems take all conditions at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ownstep.pep.conditions.gram import Gram
from ownstep.pep.solve.sdp import Solution, blocks
from ownstep.pep.trace.symbolic import Trace

Array = NDArray[np.float64]
Index = NDArray[np.int64]


SMALL = 450
"""Up to this many conditions in all, leaving some out saves nothing worth having."""


BROKEN = 1e-3
"""A condition that is broken by less than this part of the most broken one is left alone."""


class Pairs:
    """A growing set of conditions (group, p, q), in the order they were added."""

    def __init__(self, first: Index) -> None:
        self._all = dict.fromkeys(map(tuple, first.tolist()))

    def add(self, more: Index) -> int:
        """Add conditions; returns how many were new."""
        before = len(self._all)
        self._all.update(dict.fromkeys(map(tuple, more.tolist())))
        return len(self._all) - before

    def __len__(self) -> int:
        return len(self._all)

    def array(self) -> Index:
        """All of them, as rows."""
        return np.array(list(self._all), dtype=np.int64).reshape(-1, 3)


def all_pairs(gram: Gram) -> Index:
    """Every ordered pair of every group's triples."""
    pairs = [
        (c, p, q)
        for c, group in enumerate(gram.groups)
        if not group.quadratic
        for p in range(len(gram.triples[c].names))
        for q in range(len(gram.triples[c].names))
        if p != q
    ]
    return np.array(pairs, dtype=np.int64).reshape(-1, 3)


def core_pairs(gram: Gram) -> Index:
    """Consecutive points, and every point with the optima: what keeps the dual matrix banded."""
    pairs = []
    for c, group in enumerate(gram.groups):
        if group.quadratic:
            continue
        last = len(gram.triples[c].names) - 1
        rounds = last - int(gram.local_optima)
        steps = [(k, k + 1) for k in range(1, rounds)]
        steps += [(0, k) for k in range(1, last + 1)]
        if gram.local_optima:
            steps += [(k, last) for k in range(1, rounds + 1)]
        pairs += [(c, p, q) for a, b in steps for p, q in ((a, b), (b, a))]
    return np.array(pairs, dtype=np.int64).reshape(-1, 3)


def hub_pairs(gram: Gram, hub: int) -> Index:
    """All conditions between triple ``hub`` of each group and its others."""
    pairs = [
        pair
        for c, group in enumerate(gram.groups)
        if not group.quadratic
        for k in range(len(gram.triples[c].names))
        if k != hub
        for pair in ((c, k, hub), (c, hub, k))
    ]
    return np.array(pairs, dtype=np.int64).reshape(-1, 3)


def broken(gram: Gram, found: Solution) -> list[Array]:
    """By how much each pair of a group's triples breaks its condition, relative to the size of its values."""
    mean = _coordinates(found.gram)
    apart = dict(zip(blocks(gram), (_coordinates(block) for block in found.differences), strict=True))
    out = []
    for c, t in enumerate(gram.triples):
        x, v = t.x @ mean, t.v @ mean
        if t.x_difference is not None and t.v_difference is not None:
            x = np.hstack([x, t.x_difference @ apart[c]])
            v = np.hstack([v, t.v_difference @ apart[c]])
        if gram.groups[c].quadratic:
            out.append(np.zeros((len(x), len(x))))
            continue
        scale = np.append(gram.value_scale, 0.0)
        phi = np.append(found.values * gram.value_scale, 0.0)[t.value]
        squares = np.einsum("ij,ij->i", v, v)
        distance = squares[:, None] + squares - 2 * v @ v.T
        excess = phi - phi[:, None] + x @ v.T - np.einsum("ij,ij->i", x, v) + distance / (2 * t.curvature)
        size = np.maximum(scale[t.value][:, None], scale[t.value])
        np.fill_diagonal(size, 1.0)
        out.append(np.maximum(excess / size, 0.0))
    return out


def most_broken(gram: Gram, found: Solution) -> Index:
    """Of each point of each group the condition that is broken most, in either role."""
    pairs: list[tuple[int, int, int]] = []
    for c, excess in enumerate(broken(gram, found)):
        least = BROKEN * max(float(excess.max(initial=0.0)), BROKEN)
        pairs += [(c, int(p), int(excess[p].argmax())) for p in np.flatnonzero(excess.max(axis=1) > least)]
        pairs += [(c, int(excess[:, q].argmax()), int(q)) for q in np.flatnonzero(excess.max(axis=0) > least)]
    return np.array(pairs, dtype=np.int64).reshape(-1, 3)


def turning_points(trace: Trace) -> list[int]:
    """Triples at which a method with one shared point starts to ask for another mix."""
    if not trace.shared:
        return []
    mixes = [np.asarray(mix) for mix in trace.mixes]
    return [k + 1 for k in range(1, len(mixes)) if not np.allclose(mixes[k], mixes[k - 1], rtol=1e-9, atol=0)]


def worst_point(gram: Gram, found: Solution, known: list[int]) -> int | None:
    """The point that takes part in most of what is broken; None when nothing is."""
    score = np.zeros(len(gram.triples[0].names))
    for excess in broken(gram, found):
        score += excess.sum(axis=0) + excess.sum(axis=1)
    score[known] = 0.0
    best = int(np.argmax(score))
    return best if score[best] > 1e-9 else None


def _coordinates(matrix: Array) -> Array:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
