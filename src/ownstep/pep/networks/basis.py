r"""Coordinates in which the conditions of a worst case over networks are sparse, and known instances in them.

The trace writes a point over the columns that came with the gradients and the averages before it. With x = Y - alpha g
and g = v + mu x + s, a point of round k is then a sum of nearly all columns. Here each point that is asked at or
averaged takes the place of one average Y that it was made of. Points are then columns of their own, an average is a sum
of few neighbours, and the solver can split the slack into small overlapping parts.

With P the vectors behind the trace's columns and Q those behind the new ones, P = B Q; a row r over the old columns is
the row r B over the new ones.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ownstep.pep.networks.kind_vectors import Agents, padded
from ownstep.pep.networks.network_trace import Path
from ownstep.pep.networks.program import Blocks

Array = NDArray[np.float64]

LEAST = 1e-2
"""An average takes part in a point, to be replaced by it, from this share of the point's largest term on."""


def rebased(path: Path) -> Blocks:
    """The blocks of a trace, with every point a column of its own where averages lead to it."""
    blocks = Blocks(path.frame)
    if not path.steps:
        return blocks
    points = [*(e.x for e in path.evaluations), *(x for _, x, _ in path.steps)]
    points.sort(key=lambda x: (x.difference.shape[1], x.mean_rows.shape[1]))
    mean, apart = _averages(blocks, path)
    found = []
    for b, n in enumerate(blocks.sizes):
        basis, unit, free = np.eye(n), blocks.units[b].copy(), (mean if b == 0 else apart).copy()
        for row in (row for x in points for row in _rows(blocks, b, x)):
            _replace(basis, unit, free, row, path.frame.units[0])
        found.append((basis, unit))
    return Blocks(path.frame, [basis for basis, _ in found], [unit for _, unit in found])


def on_class(path: Path, blocks: Blocks, factor: float, grams: tuple[Array, ...]) -> list[Array]:
    """Gram blocks of a class of networks from those on W = lambda I + (1 - lambda) 11'/N, a member of it.

    On that matrix an average is no new vector, Y = mean(X) + lambda (X - mean(X)): its columns follow from the others.
    """
    count, last = len(blocks.kinds), int(np.argmax(blocks.kinds.shares))
    others = [c for c in range(count) if c != last]
    mean, apart = _averages(blocks, path)
    vectors = []
    for b, (n, gram) in enumerate(zip(blocks.sizes, grams, strict=True)):
        old = np.zeros((n, len(gram)))
        old[np.flatnonzero(~(mean if b == 0 else apart)), np.arange(len(gram))] = 1.0
        vectors.append(old)
    for _, x, y in path.steps:
        middle = x.mean()
        reached = middle + factor * (x - middle)
        rows, differences = padded(reached.mean_rows, blocks.width), padded(reached.difference, blocks.apart)
        first = y.mean_rows.shape[1] - len(others)
        for position, c in enumerate(others):
            vectors[0][first + position] = rows[c] @ vectors[0]
        for b, c in enumerate(blocks.twins, start=1):
            vectors[b][y.difference.shape[1] - 1] = differences[c] @ vectors[b]
    out = []
    for b, gram in enumerate(grams):
        new = vectors[b] if blocks.basis is None else np.linalg.solve(blocks.basis[b], vectors[b])
        out.append(np.asarray(new @ gram @ new.T))
    return out


def _averages(blocks: Blocks, path: Path) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which columns came with averages, among the means and among the differences."""
    mean, apart = np.zeros(blocks.width, bool), np.zeros(blocks.apart, bool)
    for _, _, y in path.steps:
        width = y.mean_rows.shape[1]
        mean[width - len(blocks.kinds) + 1 : width] = True
        apart[y.difference.shape[1] - 1] = True
    return mean, apart


def _rows(blocks: Blocks, b: int, x: Agents) -> Array:
    if b == 0:
        return padded(x.mean_rows, blocks.width)
    return padded(x.difference, blocks.apart)[[blocks.twins[b - 1]]]


def _replace(basis: Array, unit: Array, free: NDArray[np.bool_], row: Array, length: float) -> None:
    """Put a vector, a row over the trace's columns, in the place of a free column that it contains.

    It counts in the unit of the start: a sum over the units of its terms would grow with every round.
    """
    now = row @ basis
    sizes = np.abs(now) * unit
    now[sizes <= 1e-12 * sizes.max(initial=0)] = 0.0
    open_sizes = np.where(free, sizes, 0.0)
    at = int(np.argmax(open_sizes))
    if open_sizes[at] <= LEAST * sizes.max(initial=0):
        return
    free[at] = False
    if np.count_nonzero(now) > 1:
        column = basis[:, at] / now[at]
        basis -= np.outer(column, now)
        basis[:, at] = column
        unit[at] = length
