r"""Steps that compose: a start for designs without momentum, by a rule (Grimmer, Shu and Wang, 2024).

Gradient descent with steps h_k / L on a convex function of smoothness L ends at most eta L R_0^2 / 2 above the minimum.
Two kinds of sequences can be joined by one long step 1 + t between them:

    inner a:   prod_k (a_k - 1)   = 1 / (1 + sum_k a_k)   = eta_a,      the empty one has eta = 1
    last  b:   prod_k (b_k - 1)^2 = 1 / (1 + 2 sum_k b_k) = eta_b.

Inner sequences a and a' make an inner one [a, 1 + t, a'] where eta_a eta_a' t (t + 1/eta_a + 1/eta_a') = 1. Inner a and
last b make a last one [a, 1 + t, b] where eta_a^2 eta_b t^2 (2 t + 2/eta_a + 1/eta_b) = 1. Both keep their identity, so
the best sequence of each length follows from the best shorter ones.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

Array = NDArray[np.float64]


def composed_steps(rounds: int) -> Array:
    """The best last sequence of that length that is composed of shorter ones, in units of 1/L.

    Examples
    --------
    >>> composed_steps(2).round(3).tolist()
    [1.414, 1.877]
    """
    inner: list[tuple[float, list[float]]] = [(1.0, [])]
    last: list[tuple[float, list[float]]] = [(1.0, [])]
    for length in range(1, rounds + 1):
        last.append(min(_last(*inner[cut], *last[length - 1 - cut]) for cut in range(length)))
        inner.append(min(_inner(*inner[cut], *inner[length - 1 - cut]) for cut in range(length)))
    return np.array(last[rounds][1])


def _inner(eta: float, a: list[float], other: float, b: list[float]) -> tuple[float, list[float]]:
    half = (1 / eta + 1 / other) / 2
    t = math.sqrt(half**2 + 1 / (eta * other)) - half
    return eta * t * other, [*a, 1 + t, *b]


def _last(eta: float, a: list[float], other: float, b: list[float]) -> tuple[float, list[float]]:
    t = float(brentq(lambda t: eta**2 * other * t**2 * (2 * t + 2 / eta + 1 / other) - 1, 0.0, 1 / eta, xtol=1e-15))
    return eta**2 * t**2 * other, [*a, 1 + t, *b]
