r"""Networks that do what a worst case over a class asks of W, for devices that are alike.

The conditions on Y = W X are those of one symmetric operator S on the differences of a device, y = S x with its
eigenvalues in [lo, hi]. Let device i hold T_i d in place of the differences d, with T_i orthogonal and sum_i T_i = 0.
All devices then have the same Gram matrix as the kind, so what the conditions say of the kind is true of every device.
What is left is to find W with sum_j W_ij T_j = T_i S:

- one W: in S's eigenbasis let T_i be diagonal, the i-th entries of characters of a group, which are signs, or pairs
  (cos, sin). Then W = 11'/N + sum_a s_a P_a, with P_a the projection on the a-th character. N devices have N - 1
  characters of signs where N is a power of two, and N/2, rounded down, otherwise.
- a new W in each round: let T_i run over the group of 2 x 2 signed permutations, or products of such. Its matrices
  span all matrices, so W_ij = 1/N + (m/N) trace(T_i S T_j') does for every S of size m.

So for devices of one kind, and enough of them, the conditions are sufficient too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import hadamard

if TYPE_CHECKING:
    from ownstep.pep.networks.network_enclosure import Upper
    from ownstep.pep.networks.question import Question

Array = NDArray[np.float64]

MOST_DEVICES = 128
"""Largest network that is looked for."""

CUT, SMALL = 1e-9, 1e-6
"""Directions of a device's differences, and sizes of its vectors, that are rounding of the solver."""

INWARD = 2.0**-34
"""Eigenvalues of W are kept this much of the interval's width within it, so that rounding W breaks nothing."""


@dataclass(frozen=True, eq=False)
class Mirror:
    """A network, and what its devices hold.

    Parameters
    ----------
    frame : the differences of a device, as columns over fewer coordinates.
    turns : T_i of each device.
    W : the matrix, or one per round.
    """

    frame: Array
    turns: Array
    W: Array


def can_mirror(asked: Question) -> bool:
    """Is there a class of networks, and are the devices of one kind, all judged alike, and four or more?"""
    network, d = asked.network, asked.devices
    if network is None or asked.metric.endswith("_worst") or any(np.ptp(row) > 0 for row in (d.weights, d.L, d.mu)):
        return False
    return network.any_number or 4 <= len(d) <= MOST_DEVICES


def mirror(asked: Question, found: Upper) -> Mirror | None:
    """A network for the solver's answer over the whole class; None where there is none of that size.

    Parameters
    ----------
    found : an answer a little inside its conditions, see ``network_enclosure.INSIDE``.
    """
    blocks, network = found.program.blocks, asked.network
    assert network is not None
    if not can_mirror(asked) or not found.path.steps:
        return None
    frame = _frame(found.proof.grams[1], blocks.units[1])
    groups: dict[int, list[tuple[Array, Array]]] = {}
    for group, x, y in found.path.steps:
        groups.setdefault(group, []).append((frame @ blocks.rows(x)[1][0], frame @ blocks.rows(y)[1][0]))
    lo, hi = network.lo, network.hi
    edge = INWARD * (hi - lo)
    S = {group: _operator(pairs, lo + edge, hi - edge) for group, pairs in groups.items()}
    count = None if network.any_number else len(asked.devices)
    if network.each_round:
        return _by_signed_permutations(frame, S, asked.rounds, count, lo + edge)
    return _by_characters(frame, S[0], count, lo + edge)


def _frame(gram: Array, unit: Array) -> Array:
    """Columns whose Gram matrix this is, over the directions that are more than rounding."""
    size = np.sqrt(np.maximum(np.diag(gram), 0.0)) / unit
    size = unit * np.maximum(size, SMALL * size.max(initial=0) or 1.0)
    values, vectors = np.linalg.eigh(gram / np.outer(size, size))
    kept = values > CUT * max(values[-1] if len(values) else 0.0, 0.0)
    return np.asarray(np.sqrt(values[kept])[:, None] * vectors[:, kept].T * size)


def _operator(pairs: list[tuple[Array, Array]], lo: float, hi: float) -> Array:
    """A symmetric S with S x = y for all pairs, and its eigenvalues in [lo, hi].

    T = (S - middle) / half has norm one at most, and its columns on the span of the x are known. What it does elsewhere
    is Krein's extension: T = [A B'; B C] with B = K sqrt(1 - A^2) and C = -K A K'.
    """
    size = max(max(float(np.linalg.norm(x)) for x, _ in pairs), 1e-300)
    lengths = [max(float(np.linalg.norm(x)), SMALL * size) for x, _ in pairs]
    X, Y = (np.stack([pair[side] / n for pair, n in zip(pairs, lengths, strict=True)], axis=1) for side in (0, 1))
    u, s, vt = np.linalg.svd(X, full_matrices=True)
    rank = int((s > SMALL * s.max(initial=0)).sum())
    known, rest = u[:, :rank], u[:, rank:]
    middle, half = (lo + hi) / 2, (hi - lo) / 2
    image = (Y @ (vt[:rank].T / s[:rank]) - middle * known) / half
    A = known.T @ image
    values, vectors = np.linalg.eigh((A + A.T) / 2)
    values = np.clip(values, -1.0, 1.0)
    left = np.sqrt(1 - values**2)
    inverse = np.where(left > 1e-4, 1 / np.maximum(left, 1e-4), 0.0)
    K = (rest.T @ image) @ vectors * inverse
    B, C = K * left @ vectors.T, -K * values @ K.T
    basis = np.hstack([known, rest])
    T = basis @ np.block([[vectors * values @ vectors.T, B.T], [B, C]]) @ basis.T
    values, vectors = np.linalg.eigh((T + T.T) / 2)
    return np.asarray(vectors * (middle + half * np.clip(values, -1.0, 1.0)) @ vectors.T)


def _by_characters(frame: Array, S: Array, count: int | None, other: float) -> Mirror | None:
    values, vectors = np.linalg.eigh(S)
    modes: list[list[int]] = []  # directions whose eigenvalues are equal up to rounding share a character
    for a, value in enumerate(values):
        if not modes or value - values[modes[-1][0]] > SMALL:
            modes.append([])
        modes[-1].append(a)
    n = count or 1 << len(modes).bit_length()  # at least len(modes) + 1
    tables = _characters(n)
    if len(modes) > len(tables) or n > MOST_DEVICES:
        return None
    W = np.full((n, n), (1 - other) / n) + other * np.eye(n)
    turns = np.zeros((n, len(values), 2, len(values)))
    for mine, table in zip(modes, tables, strict=False):
        W += (float(values[mine].mean()) - other) * table @ table.T / float(np.sum(table[:, 0] ** 2))
        for a in mine:
            turns[:, a, : table.shape[1], a] = table
    return Mirror(vectors.T @ frame, turns.reshape(n, -1, len(values)), W)


def _characters(n: int) -> list[Array]:
    """Orthogonal tables, each with a unit vector for every device that all add up to zero."""
    if n & (n - 1) == 0:
        return [np.asarray(column, float)[:, None] for column in hadamard(n).T[1:]]
    angles = 2 * np.pi * np.outer(np.arange(1, (n - 1) // 2 + 1), np.arange(n)) / n
    found = [np.column_stack([np.cos(row), np.sin(row)]) for row in angles]
    return found + ([np.where(np.arange(n) % 2, -1.0, 1.0)[:, None]] if n % 2 == 0 else [])


def _by_signed_permutations(
    frame: Array, S: dict[int, Array], rounds: int, count: int | None, other: float
) -> Mirror | None:
    m = len(frame)
    factors = max((m - 1).bit_length(), 1)
    size = 1 << factors
    turns = np.stack(list(_signed(factors)))
    n = len(turns)
    times, rest = divmod(count or n, n)
    if max(n, times * n) > MOST_DEVICES or rest or not times:
        return None
    turns = np.tile(turns, (times, 1, 1))
    n = len(turns)
    wide = np.zeros((size, frame.shape[1]))
    wide[:m] = frame
    W = np.empty((rounds, n, n))
    for k in range(rounds):
        whole = other * np.eye(size)
        whole[:m, :m] = S.get(k, other * np.eye(m))
        mixed = np.einsum("iab,bc,jac->ij", turns, whole - other * np.eye(size), turns)
        W[k] = np.full((n, n), (1 - other) / n) + other * np.eye(n) + size / n * mixed
    return Mirror(wide, turns, W)


def _signed(factors: int) -> Iterator[Array]:
    """Products of 2 x 2 signed permutations, with both signs: as many as twice their coordinates squared."""
    swap, flip = np.array([[0.0, 1.0], [1.0, 0.0]]), np.diag([1.0, -1.0])
    for chosen in itertools.product((np.eye(2), swap, flip, swap @ flip), repeat=factors):
        whole = np.ones((1, 1))
        for part in chosen:
            whole = np.kron(whole, part)
        yield whole
        yield -whole
