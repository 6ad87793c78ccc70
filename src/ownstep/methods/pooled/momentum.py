"""Gradient descent with momentum: Polyak's heavy ball and Nesterov's method."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from ownstep.methods.base import Answer, Ask, Vector
from ownstep.methods.pooled.gd import Descent, DescentState
from ownstep.plan import Devices
from ownstep.support.checks import number
from ownstep.support.errors import InvalidInput


@dataclass(frozen=True)
class HeavyBall(Descent):
    """Polyak's method, x^{k+1} = x^k - alpha grad f(x^k) + beta (x^k - x^{k-1}).

    Parameters
    ----------
    step : alpha; ``"mean"`` by default.
    momentum : beta in [0, 1); by default (1 - sqrt(alpha mu))^2 with mu = sum_i w_i mu_i.
    """

    step: float | str = "mean"
    momentum: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.momentum is not None and not 0 <= number("momentum", self.momentum) < 1:
            raise InvalidInput(f"momentum must be in [0, 1), got {self.momentum!r}")

    def _momentum(self, step: float, devices: Devices) -> float:
        if self.momentum is not None:
            return self.momentum
        return float((1 - math.sqrt(min(1.0, step * float(devices.weights @ devices.mu)))) ** 2)

    def tell(self, state: DescentState, answer: Answer) -> DescentState:
        """One gradient step and a share of the last move."""
        x = state.x - state.step * answer.sum + state.momentum * (state.x - state.previous)
        return replace(state, x=x, previous=state.x, k=state.k + 1)


@dataclass(frozen=True)
class Nesterov(Descent):
    """Nesterov's accelerated gradient.

        y^k     = x^k + beta_k (x^k - x^{k-1})
        x^{k+1} = y^k - alpha grad f(y^k)

    Parameters
    ----------
    step : alpha, 1/L by name or number; ``"true"`` by default, the best this baseline can claim.
    momentum : beta_k. By default (1 - q)/(1 + q) with q = sqrt(alpha mu), mu = sum_i w_i mu_i, when f is
        strongly convex, and (k - 1)/(k + 2) when mu = 0 (k = 1 in the first round).
    """

    step: float | str = "true"
    momentum: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.momentum is not None:
            number("momentum", self.momentum)

    def _momentum(self, step: float, devices: Devices) -> float | None:
        if self.momentum is not None:
            return self.momentum
        q = math.sqrt(min(1.0, step * float(devices.weights @ devices.mu)))
        return (1 - q) / (1 + q) if q > 0 else None

    def ask(self, state: DescentState) -> Ask:
        """Grad f at the extrapolated point y."""
        return Ask(self._extrapolated(state), state.devices.weights)

    def tell(self, state: DescentState, answer: Answer) -> DescentState:
        """One gradient step from y."""
        x = self._extrapolated(state) - state.step * answer.sum
        return replace(state, x=x, previous=state.x, k=state.k + 1)

    def _extrapolated(self, state: DescentState) -> Vector:
        beta: Any = state.k / (state.k + 3) if state.momentum is None else state.momentum
        return state.x + beta * (state.x - state.previous)
