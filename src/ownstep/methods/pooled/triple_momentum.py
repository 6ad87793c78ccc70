"""The triple momentum method, the fastest known with constant steps on smooth strongly convex functions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ownstep.methods.base import Answer, Ask, Vector
from ownstep.methods.pooled.gd import Descent, DescentState
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput


@dataclass(frozen=True)
class TripleMomentum(Descent):
    """The triple momentum method (Van Scoy, Freeman and Lynch 2018), to which ITEM tends as k grows.

        y^k     = (1 + gamma) z^k - gamma z^{k-1}
        z^{k+1} = (1 + beta) z^k - beta z^{k-1} - alpha grad f(y^k)
        x^k     = (1 + delta) z^k - delta z^{k-1},                          its answer

    with rho = 1 - sqrt(mu/L), alpha = (1 + rho)/L, beta = rho^2/(2 - rho), gamma = rho^2/((1 + rho)(2 - rho)) and
    delta = rho^2/(1 - rho^2). ||x^k - x*|| shrinks by rho in a round.

    Parameters
    ----------
    step : 1/L, a number or by name; ``"true"`` by default. mu is sum_i w_i mu_i; where it is 0 there is no such rate,
        and the method is gradient descent at this step.
    """

    step: float | str = "true"

    def _momentum(self, step: float, devices: Devices) -> float | None:
        q = step * float(devices.weights @ devices.mu)
        if q > 1:
            raise InvalidInput(f"the triple momentum method needs mu/L <= 1, got {q:g}")
        return 1 - math.sqrt(q) if q > 0 else None

    def ask(self, state: DescentState) -> Ask:
        """Grad f at y^k."""
        rho = state.momentum or 0.0
        return Ask(self._ahead(state, rho**2 / ((1 + rho) * (2 - rho))), state.devices.weights)

    def tell(self, state: DescentState, answer: Answer) -> DescentState:
        """z^{k+1}."""
        rho = state.momentum or 0.0
        z = self._ahead(state, rho**2 / (2 - rho)) - (1 + rho) * state.step * answer.sum
        return replace(state, x=z, previous=state.x, k=state.k + 1)

    def point(self, state: DescentState) -> Vector:
        """x^k."""
        rho = state.momentum or 0.0
        return self._ahead(state, rho**2 / (1 - rho**2))

    def _ahead(self, state: DescentState, factor: float) -> Vector:
        return state.x + factor * (state.x - state.previous)
