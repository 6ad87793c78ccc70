r"""Coordinates in which the conditions of a worst case over networks are sparse, and known instances in them.

The trace writes a point over the columns that came with the gradients and the averages before it. With x = Y - alpha g
and g = v + mu x + s, a point of round k is then a sum of nearly all columns. Here each point that is asked at or
averaged takes the place of one average Y that it was made of. Points are then columns of their own, an average is a sum
of few neighbours, and the solver can split the slack into small overlapping parts.

Where the spectrum [lo, hi] is narrow, Y = WX is nearly known. With c, h its middle and half its width,

    Y = mean(X) + c (X - mean(X)) + h E,    (Y - lo X)'(Y - hi X) = h^2 (E'E - X'X)    without the means,

so E, which is as large as X, is the column. A solver that is given Y must find E among its last digits.

With P the vectors behind the trace's columns and Q those behind the new ones, P = B Q; a row r over the old columns is
the row r B over the new ones.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ownstep.pep.networks.kind_vectors import Agents, padded
from ownstep.pep.networks.network_trace import Path
from ownstep.pep.networks.program import Blocks

Array = NDArray[np.float64]

LEAST = 0.2
"""What is unknown of an average is replaced by a point from this share of the point's largest term on."""


def rebased(path: Path, lo: float, hi: float) -> Blocks:
    """The blocks of a trace, with every point a column of its own where averages lead to it."""
    blocks = Blocks(path.frame)
    if not path.steps:
        return blocks
    bases = _unknown(blocks, path, (lo + hi) / 2, (hi - lo) / 2)
    points = [*(e.x for e in path.evaluations), *(x for _, x, _ in path.steps)]
    points.sort(key=lambda x: (x.difference.shape[1], x.mean_rows.shape[1]))
    mean, apart = _averages(blocks, path)
    found = []
    for b in range(len(blocks.sizes)):
        basis, unit, free = bases[b], blocks.units[b].copy(), (mean if b == 0 else apart).copy()
        for row in (row for x in points for row in _rows(blocks, b, x)):
            _replace(basis, unit, free, row, path.frame.units[0])
        found.append((basis, unit))
    return Blocks(path.frame, [basis for basis, _ in found], [unit for _, unit in found])


def on_class(path: Path, blocks: Blocks, factor: float, grams: tuple[Array, ...]) -> list[Array]:
    """Gram blocks of a class of networks from those on W = lambda I + (1 - lambda) 11'/N, a member of it.

    On that matrix an average is no new vector, Y = mean(X) + lambda (X - mean(X)): its columns follow from the others.
    """
    mean, apart = _averages(blocks, path)
    vectors = []
    for b, (n, gram) in enumerate(zip(blocks.sizes, grams, strict=True)):
        old = np.zeros((n, len(gram)))
        old[np.flatnonzero(~(mean if b == 0 else apart)), np.arange(len(gram))] = 1.0
        vectors.append(old)
    for b, column, row in _on_one_matrix(blocks, path, factor):
        vectors[b][column] = row @ vectors[b]
    out = []
    for b, gram in enumerate(grams):
        new = vectors[b] if blocks.basis is None else np.linalg.solve(blocks.basis[b], vectors[b])
        out.append(np.asarray(new @ gram @ new.T))
    return out


def _on_one_matrix(blocks: Blocks, path: Path, factor: float) -> Iterator[tuple[int, int, Array]]:
    """(block, column, its row over earlier columns) of every average, if W were lambda I + (1 - lambda) 11'/N."""
    last = int(np.argmax(blocks.kinds.shares))
    others = [c for c in range(len(blocks.kinds)) if c != last]
    for _, x, y in path.steps:
        middle = x.mean()
        reached = middle + factor * (x - middle)
        rows, differences = padded(reached.mean_rows, blocks.width), padded(reached.difference, blocks.apart)
        first = y.mean_rows.shape[1] - len(others)
        for position, c in enumerate(others):
            yield 0, first + position, rows[c]
        for b, c in enumerate(blocks.twins, start=1):
            yield b, y.difference.shape[1] - 1, differences[c]


def _unknown(blocks: Blocks, path: Path, middle: float, half: float) -> list[Array]:
    """The bases in which the columns of an average Y are those of E, with Y = mean + c (X - mean) + h E."""
    bases = [np.eye(n) for n in blocks.sizes]
    for b, column, row in _on_one_matrix(blocks, path, middle):
        bases[b][column] = row @ bases[b]
        bases[b][column, column] = half
    return bases


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
