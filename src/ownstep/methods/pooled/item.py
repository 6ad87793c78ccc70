"""ITEM, the optimal fixed-step method for smooth strongly convex functions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ownstep.methods.base import Answer, Ask, Vector
from ownstep.methods.pooled.ogm import Optimal, OptimalState
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput

SETTLED = 1e14
"""A_k grows without end; once q A_k is this large the steps no longer change in double precision."""


@dataclass(frozen=True)
class ITEM(Optimal):
    """The information-theoretic exact method of Taylor and Drori (2023), for smooth strongly convex f.

        y^k     = (1 - beta_k) z^k + beta_k x^k
        x^{k+1} = y^k - alpha grad f(y^k)
        z^{k+1} = (1 - q delta_k) z^k + q delta_k y^k - alpha delta_k grad f(y^k),        q = alpha mu,

    with A_0 = 0, A_{k+1} = ((1 + q) A_k + 2 (1 + sqrt((1 + A_k)(1 + q A_k)))) / (1 - q)^2, beta_k = A_k / ((1 - q)
    A_{k+1}) and delta_k = ((1 - q)^2 A_{k+1} - (1 + q) A_k) / (2 (1 + q + q A_k)). Its answer is z^k, for which
    ||z^k - x*||^2 <= ||x^0 - x*||^2 / (1 + q A_k), for every k at once; no method can promise less.

    Parameters
    ----------
    step : alpha, 1/L by name or number; ``"true"`` by default. mu is sum_i w_i mu_i; where it is 0 this is OGM without
        a horizon, and x^k is the answer.
    """

    step: float | str = "true"

    def start(self, x0: Vector, devices: Devices) -> OptimalState:
        """Begin at x0, at rest; x holds z, the other sequence x."""
        state, mu = super().start(x0, devices), float(devices.weights @ devices.mu)
        if not state.step * mu < 1:
            raise InvalidInput(f"ITEM needs alpha mu < 1, got alpha = {state.step:g} and mu = {mu:g}")
        return replace(state, number=0.0)

    def ask(self, state: OptimalState) -> Ask:
        """Grad f between the two sequences."""
        beta, _, _ = self._numbers(state)
        return Ask(self._between(state, beta), state.devices.weights)

    def tell(self, state: OptimalState, answer: Answer) -> OptimalState:
        """One short step and one long one, from the same gradient."""
        beta, delta, coming = self._numbers(state)
        y, q = self._between(state, beta), self._q(state)
        z = (1 - q * delta) * state.x + (q * delta) * y - (state.step * delta) * answer.sum
        return replace(state, x=z, other=y - state.step * answer.sum, k=state.k + 1, number=coming)

    def point(self, state: OptimalState) -> Vector:
        """z^k, or x^k where mu = 0."""
        return state.x if self._q(state) > 0 else state.other

    def _between(self, state: OptimalState, beta: float) -> Vector:
        return (1 - beta) * state.x + beta * state.other

    def _q(self, state: OptimalState) -> float:
        return state.step * float(state.devices.weights @ state.devices.mu)

    def _numbers(self, state: OptimalState) -> tuple[float, float, float]:
        return item_numbers(self._q(state), state.number)


def item_numbers(q: float, A: float) -> tuple[float, float, float]:
    """(beta_k, delta_k, A_{k+1}) from A_k; in the limit q = 1 one gradient step is all there is to do."""
    if q >= 1:
        return 0.0, 1.0, A
    coming = ((1 + q) * A + 2 * (1 + math.sqrt((1 + A) * (1 + q * A)))) / (1 - q) ** 2
    delta = ((1 - q) ** 2 * coming - (1 + q) * A) / (2 * (1 + q + q * A))
    return A / ((1 - q) * coming), delta, min(coming, SETTLED / q) if q > 0 else coming
