r"""An interior-point method of our own for many different devices, where the general solver's matrices do not fit.

The program is that of :mod:`ownstep.pep.solve.sdp`: minimise c.y over multipliers y >= 0 with E y = e and slacks
S = sum_r y_r A_r - C >= 0, one for each block. The solver there keeps a square matrix whose side is the number of
*entries* of a slack: 9 GB for 20 different devices over 10 rounds. Here the side is the number of conditions. With X
the Gram matrix, which is the multiplier of S, a step dy solves

    (M + diag(z / y)) dy - E^T nu = right side,    M_rs = <A_r, X A_s S^-1>,

the direction of Helmberg, Kojima and Monteiro with Mehrotra's corrector. How M is made is in
:mod:`ownstep.pep.solve.slack`. What comes out is an answer like the other solver's: checked, and not trusted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from ownstep.pep.conditions.assemble import Conditions, triangle
from ownstep.pep.conditions.gram import Gram
from ownstep.pep.solve.sdp import Limits, Objective, Solution
from ownstep.pep.solve.slack import Block, program
from ownstep.support.errors import OwnstepError

Array = NDArray[np.float64]
Index = NDArray[np.int64]

MOST = 100
"""Iterations at most."""

FIRST, INSIDE = (0.1, 1.0, 1.0, 1.0), (0.9, 0.09)
"""Where y, z, S and X begin, in units in which all A_r are of one size; and how much of the way to the border a step
goes: more where the way is long."""

GIVE_UP, FAR = 4, 1e-2
"""Iterations without any progress, after which the best answer so far is handed back; far from one they are usual."""

REFINE = 2
"""Times that what rounding left over of a step is solved for again."""


GROUPS, GENERAL = 5, 3e5
"""From so many groups, and so much work for the general solver, on this one is faster; it also gets further."""


def suits(rounds: int, groups: int, local_optima: bool) -> bool:
    """Is this the solver for a program of that size?"""
    return groups >= GROUPS and general_work(rounds, groups, local_optima) > GENERAL


def general_work(rounds: int, groups: int, local_optima: bool) -> float:
    """Entries of the general solver's matrix, which has a block for each round."""
    block = (4 if local_optima else 2) * groups + 2
    return float((rounds + 1) * triangle(block) ** 2)


def core(rounds: int, groups: int, local_optima: bool) -> int:
    """How many conditions such a program has to begin with (:func:`~ownstep.pep.conditions.cuts.core_pairs`)."""
    return groups * (2 * (rounds + (rounds + 1)) + (2 * (rounds + 2) if local_optima else 0))


def memory(count: int) -> float:
    """Bytes for so many conditions: the matrix M, its factor and what they are made from."""
    return 8.0 * 3 * count**2


def start(gram: Gram, plain: Gram) -> Array:
    """The Gram matrix to begin with: that of orthonormal columns in the plain basis, x^0 and every v."""
    ours, theirs = (
        np.vstack([g.start, g.tilts, *(t.x for t in g.triples), *(t.v for t in g.triples)]) for g in (gram, plain)
    )
    rows = np.linalg.lstsq(ours, theirs, rcond=None)[0]
    return np.asarray(rows @ rows.T)


@dataclass(eq=False)
class _State:
    """Where an iteration stands: y, z >= 0, S and X for each block, and nu of the equations."""

    y: Array
    z: Array
    S: list[Array]
    X: list[Array]
    nu: Array


def solve(
    gram: Gram,
    rows: Conditions,
    target: Objective,
    radii: Limits,
    *,
    margin: float,
    tolerance: float = 1e-8,
    seconds: float = math.inf,
    first: Array | None = None,
) -> Solution:
    """Multipliers and Gram matrix, as :func:`ownstep.pep.solve.sdp.solve` gives them.

    Raises
    ------
    OwnstepError
        When time is up.
    """
    began = time.perf_counter()
    heads, count = len(radii.mean), len(rows.pairs)
    parts = program(gram, rows, target, radii, margin)
    path = _Path(parts, rows, target, heads, margin, first)
    best, left, stalled, status, iteration = path.state, math.inf, 0, "InsufficientProgress", 0
    while iteration < MOST:
        iteration += 1
        off = path.off()
        stalled = 0 if off < left else stalled + 1
        if off < left:
            best, left = path.state, off
        if off <= tolerance:
            status = "Solved"
            break
        if time.perf_counter() - began > seconds:
            raise OwnstepError("it stopped without an answer (MaxTime)")
        try:
            path.step()
        except np.linalg.LinAlgError:
            break
        if stalled > GIVE_UP and left < FAR:
            break
    return Solution(
        best.y[:heads], best.y[heads : heads + count], best.X[0], best.X[1:], best.nu, status, iteration,
        time.perf_counter() - began,
    )  # fmt: skip


class _Path:
    """The iteration."""

    def __init__(
        self, parts: list[Block], rows: Conditions, target: Objective, heads: int, margin: float, first: Array | None
    ) -> None:
        count = len(rows.pairs)
        self.parts = parts
        self.cost = np.concatenate([np.ones(heads), np.full(count, -margin)])
        self.E = sp.csr_array(sp.hstack([sp.csr_array((len(target.values), heads)), rows.values.T]))
        self.e = target.values
        self.total = heads + count + sum(len(b.constant) for b in parts)
        y, z, s, x = FIRST
        ones, eyes = np.ones(heads + count), [np.eye(len(b.constant)) for b in parts]
        S, X = [s * i for i in eyes], [x * i for i in eyes]
        if first is not None:
            S[0], X[0] = np.asarray(s * np.linalg.inv(first), dtype=float), x * first
        squares = np.zeros(len(ones))
        for b, begin in zip(parts, X, strict=True):
            squares[b.rows] += b.sizes(begin)
        size = np.sqrt(squares)
        self.state = _State(y / size, z * size, S, X, np.zeros(len(self.e)))

    def _inner(self, matrices: list[Array]) -> Array:
        return np.asarray(sum(b.inner(m) for b, m in zip(self.parts, matrices, strict=True)))

    def off(self) -> float:
        """How far the state is from an answer: what the equations leave over, and the gap between the two values."""
        now = self.state
        self.off_S = [b.total(now.y) - b.constant - S for b, S in zip(self.parts, now.S, strict=True)]
        off_y = self.cost - self._inner(now.X) - self.E.T @ now.nu - now.z
        self.off_e = self.e - self.E @ now.y
        upper = float(self.cost @ now.y)
        lower = float(self.e @ now.nu) + sum(
            float(np.sum(b.constant * X)) for b, X in zip(self.parts, now.X, strict=True)
        )
        sizes = [np.abs(self.off_e).max(initial=0), np.abs(off_y).max(), *(np.abs(o).max() for o in self.off_S)]
        return max(abs(upper - lower), *map(float, sizes)) / max(1.0, abs(upper))

    def step(self) -> None:
        """One step of predictor and corrector."""
        now, parts = self.state, self.parts
        roots = [scipy.linalg.cholesky(S, lower=True) for S in now.S]
        T = [_symmetric(scipy.linalg.cho_solve((root, True), np.eye(len(root)))) for root in roots]
        X_roots = [scipy.linalg.cholesky(X, lower=True) for X in now.X]
        mu = (sum(float(np.sum(X * S)) for X, S in zip(now.X, now.S, strict=True)) + float(now.y @ now.z)) / self.total
        M = np.zeros((len(now.y), len(now.y)))
        for b, X, t in zip(parts, now.X, T, strict=True):
            b.add_products(X, t, M)

        def apply(dy: Array) -> Array:
            turned = [_symmetric(X @ b.total(dy) @ t) for b, X, t in zip(parts, now.X, T, strict=True)]
            return np.asarray(self._inner(turned) + now.z / now.y * dy)

        system = _System(M, now.z / now.y, self.E, apply)
        aim, bend, bend_z = 0.0, [0.0 * S for S in now.S], np.zeros(len(now.y))
        for corrected in (False, True):
            held = [aim * t - _symmetric(X @ o @ t) - c for X, t, o, c in zip(now.X, T, self.off_S, bend, strict=True)]
            dy, nu = system.solve(self._inner(held) + (aim - bend_z) / now.y - self.cost, self.off_e)
            dS = [b.total(dy) + o for b, o in zip(parts, self.off_S, strict=True)]
            dX = [aim * t - X - _symmetric(X @ d @ t) - c for X, t, d, c in zip(now.X, T, dS, bend, strict=True)]
            dz = (aim - bend_z) / now.y - now.z - now.z * dy / now.y
            up = min(_along(now.y, dy), *(_reach(root, d) for root, d in zip(roots, dS, strict=True)))
            down = min(_along(now.z, dz), *(_reach(root, d) for root, d in zip(X_roots, dX, strict=True)))
            part = INSIDE[0] + INSIDE[1] * min(1.0, up, down)
            if corrected:
                up, down = min(1.0, part * up), min(1.0, part * down)
                break
            up, down = min(1.0, up), min(1.0, down)
            left = float((now.y + up * dy) @ (now.z + down * dz))
            for X, S, d, s in zip(now.X, now.S, dX, dS, strict=True):
                left += float(np.sum((X + down * d) * (S + up * s)))
            aim = mu * min((left / self.total / mu) ** 3, 1.0)
            bend = [_symmetric(d @ s @ t) for d, s, t in zip(dX, dS, T, strict=True)]
            bend_z = dy * dz
        self.state = _State(
            now.y + up * dy,
            now.z + down * dz,
            [S + up * d for S, d in zip(now.S, dS, strict=True)],
            [X + down * d for X, d in zip(now.X, dX, strict=True)],
            now.nu + down * (nu - now.nu),
        )


class _System:
    """The linear system of a step, factorised; what rounding leaves over is solved for again."""

    def __init__(self, M: Array, diagonal: Array, E: sp.csr_array, apply: Callable[[Array], Array]) -> None:
        self.E, self.apply = E, apply
        here = np.diag_indices(len(M))
        M[here] += diagonal
        self.size = np.sqrt(M[here])
        M /= self.size[:, None]
        M /= self.size
        M[here] += 1e-13
        self.root = scipy.linalg.cholesky(M, lower=True, overwrite_a=True, check_finite=False)
        self.F = self._half((E / self.size).toarray().T)
        inner = self.F.T @ self.F
        inner[np.diag_indices(len(inner))] *= 1 + 1e-13
        self.inner = scipy.linalg.cholesky(inner, lower=True)

    def _half(self, right: Array, trans: int = 0) -> Array:
        return np.asarray(scipy.linalg.solve_triangular(self.root, right, lower=True, trans=trans, check_finite=False))

    def _once(self, right: Array, off: Array) -> tuple[Array, Array]:
        half = self._half(right / self.size)
        nu = scipy.linalg.cho_solve((self.inner, True), off - self.F.T @ half)
        return self._half(half + self.F @ nu, trans=1) / self.size, nu

    def solve(self, right: Array, off: Array) -> tuple[Array, Array]:
        """The dy and nu with (M + D) dy - E^T nu = right and E dy = off."""
        dy, nu = self._once(right, off)
        for _ in range(REFINE):
            more, turn = self._once(right - self.apply(dy) + self.E.T @ nu, off - self.E @ dy)
            dy, nu = dy + more, nu + turn
        return dy, nu


def _symmetric(matrix: Array) -> Array:
    return np.asarray((matrix + matrix.T) / 2)


def _along(y: Array, dy: Array) -> float:
    """How far one can go from y > 0 along dy: at most so many times its length."""
    return float(1 / max(np.max(-dy / y), 1e-3))


def _reach(root: Array, change: Array) -> float:
    """The same from a positive definite matrix, whose Cholesky factor is given."""
    half = scipy.linalg.solve_triangular(root, change, lower=True, check_finite=False)
    whole = scipy.linalg.solve_triangular(root, half.T, lower=True, check_finite=False)
    least = float(scipy.linalg.eigvalsh(_symmetric(whole), subset_by_index=[0, 0])[0])
    return float(1 / max(-least, 1e-3))
