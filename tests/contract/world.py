"""Devices that differ in everything, written out in plain NumPy: what the literal loops look at.

    f_i(x) = ||A_i x - b_i||^2 / (2 n_i) + ridge/2 ||x||^2,      f = sum_i w_i f_i

Nothing here uses the library but ``problem`` and ``devices``, which hand the same numbers to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ownstep import partition
from ownstep.plan import Devices
from ownstep.problems import LeastSquares

COUNTS = (19, 14, 26, 16)
WEIGHTS = (0.35, 0.15, 0.4, 0.1)
SCALES = (0.6, 1.7, 0.9, 1.2)


@dataclass(frozen=True, eq=False)
class World:
    """Rows A_i, targets b_i, and the constants that methods are told."""

    A: list[np.ndarray]
    b: list[np.ndarray]
    ridge: float
    w: np.ndarray
    L: np.ndarray
    mu: np.ndarray
    L_true: float
    x0: np.ndarray

    @property
    def n(self) -> int:
        return len(self.A)

    def hessian(self, i: int) -> np.ndarray:
        """H_i."""
        return self.A[i].T @ self.A[i] / len(self.A[i]) + self.ridge * np.eye(len(self.x0))

    def loss(self, i: int, x: np.ndarray) -> float:
        """f_i(x)."""
        return float(sum((self.A[i] @ x - self.b[i]) ** 2) / (2 * len(self.A[i])) + self.ridge / 2 * x @ x)

    def gradient(self, i: int, x: np.ndarray) -> np.ndarray:
        """grad f_i(x)."""
        return self.A[i].T @ (self.A[i] @ x - self.b[i]) / len(self.A[i]) + self.ridge * x

    def f(self, x: np.ndarray) -> float:
        return sum(self.w[i] * self.loss(i, x) for i in range(self.n))

    def g(self, x: np.ndarray) -> np.ndarray:
        """grad f(x)."""
        return sum(self.w[i] * self.gradient(i, x) for i in range(self.n))

    @classmethod
    def of(cls, problem: LeastSquares) -> World:
        """The devices of a least-squares problem, without the constants of theirs that no loop with a rule needs."""
        n = len(problem.counts)
        A = [np.asarray(problem.rows(i)) for i in range(n)]
        b = [problem._y[problem.block(i)] for i in range(n)]
        unknown = np.full(n, np.nan)
        return cls(A, b, problem.mu, problem.weights, unknown, unknown, np.nan, problem.x0())

    @property
    def problem(self) -> LeastSquares:
        """The same for the library."""
        return self._problem(np.float64)

    @property
    def single(self) -> LeastSquares:
        """The same in single precision."""
        return self._problem(np.float32)

    def _problem(self, dtype: type) -> LeastSquares:
        owner = np.repeat(np.arange(self.n), [len(b) for b in self.b])
        rows, targets = np.vstack(self.A), np.concatenate(self.b)
        return LeastSquares(rows, targets, partition.given(owner), mu=self.ridge, weights=self.w, dtype=dtype)

    @property
    def devices(self) -> Devices:
        """The same for the library."""
        return Devices(self.w, self.L, self.mu, L_pooled=self.L_true)


def make_world(seed: int = 0, features: int = 12, ridge: float = 0.01, flat: bool = False, devices: int = 4) -> World:
    """Devices of unequal size, weight, scale, L_i and mu_i; ``flat`` tells the methods that every mu_i is 0."""
    rng = np.random.default_rng(seed)
    some = slice(None) if devices == 4 else slice(1, 1 + devices)
    A = [s * rng.standard_normal((m, features)) for s, m in zip(SCALES[some], COUNTS[some], strict=True)]
    b = [a @ rng.standard_normal(features) + rng.standard_normal(len(a)) for a in A]
    H = [a.T @ a / len(a) + ridge * np.eye(features) for a in A]
    w = np.array(WEIGHTS[some]) / sum(WEIGHTS[some])
    L_true = np.linalg.eigvalsh(sum(c * h for c, h in zip(w, H, strict=True)))[-1]
    spectra = np.array([np.linalg.eigvalsh(h) for h in H])
    mu = 0 * spectra[:, 0] if flat else spectra[:, 0]
    return World(A, b, ridge, w, spectra[:, -1], mu, float(L_true), rng.standard_normal(features))


def named(step: float | str, world: World) -> float:
    """The number that a step's name stands for."""
    if step == "mean":
        return 1 / sum(w * L for w, L in zip(world.w, world.L, strict=True))
    if step == "true":
        return 1 / world.L_true
    if step == "largest":
        return 1 / max(world.L)
    if step == "matched":
        return sum(w / L for w, L in zip(world.w, world.L, strict=True))
    return step
