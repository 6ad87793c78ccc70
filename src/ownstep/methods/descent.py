"""Gradient descent and its accelerated relatives on f = sum_i w_i f_i: the baselines of every comparison."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from ownstep.errors import InvalidInput, unknown_name
from ownstep.methods.base import Answer, Ask, Progress, Vector
from ownstep.plan import Devices

STEPS = {
    "mean": "1/L_bar with L_bar = sum_i w_i L_i, the paper's centralised step",
    "true": "1/L with the smoothness L of f itself",
    "matched": "sum_i w_i/L_i, the mean step of Algorithm 1's local phase",
    "largest": "1 / max_i L_i, which suits every device on its own",
    "tuned": "found by a seeded search over constant steps, whose cost is reported",
}


def resolve_step(step: float | str, devices: Devices) -> float:
    """The number behind a named step (see :data:`STEPS`)."""
    if not isinstance(step, str):
        return float(step)
    if step == "mean":
        return 1 / devices.L_bar
    if step == "matched":
        return devices.mean_step
    if step == "largest":
        return 1 / float(devices.L.max())
    if step == "true":
        if devices.L_pooled is None:
            raise InvalidInput("step='true' needs L_pooled, the smoothness of f itself, which was not measured")
        return 1 / devices.L_pooled
    raise InvalidInput("step='tuned' must be searched for first: engines.tune_step(...), or run(...) which calls it")


def check_step(step: float | str) -> None:
    """A name of :data:`STEPS`, or a positive number."""
    if not isinstance(step, str):
        check_positive("a step", step)
    elif step not in STEPS:
        raise unknown_name("step", step, STEPS)


def octaves(devices: Devices) -> tuple[float, ...]:
    """Steps to search: from 1/4 to 64 times 1/L_bar, as 1/L is often far too careful."""
    return tuple(2.0**o / devices.L_bar for o in range(-2, 7))


def check_positive(name: str, value: float) -> None:
    """A positive, finite number."""
    if not (math.isfinite(value) and value > 0):
        raise InvalidInput(f"{name} must be positive and finite, got {value!r}")


@dataclass(frozen=True, eq=False)
class DescentState:
    """An iterate, the one before it, and the constants the method was started with."""

    x: Vector
    previous: Vector
    k: int
    step: float
    momentum: float | None
    devices: Devices = field(repr=False)


class _Descent:
    """What the methods of this file share: they ask for sum_i w_i grad f_i = grad f."""

    step: float | str

    def __post_init__(self) -> None:
        check_step(self.step)

    def start(self, x0: Vector, devices: Devices) -> DescentState:
        """Begin at x0, at rest."""
        step = resolve_step(self.step, devices)
        return DescentState(x0, x0, 0, step, self._momentum(step, devices), devices)

    def _momentum(self, step: float, devices: Devices) -> float | None:
        return None

    def ask(self, state: DescentState) -> Ask:
        """Grad f at x."""
        return Ask(state.x, state.devices.weights)

    def point(self, state: DescentState) -> Vector:
        """x^k."""
        return state.x

    def progress(self, state: DescentState) -> Progress:
        """One phase, one step."""
        return Progress("common", state.step)


@dataclass(frozen=True)
class GD(_Descent):
    """Gradient descent, x^{k+1} = x^k - alpha grad f(x^k).

    Parameters
    ----------
    step : alpha, as a number or by name: see :data:`STEPS`.
    """

    step: float | str = "mean"

    def tell(self, state: DescentState, answer: Answer) -> DescentState:
        """One gradient step."""
        return replace(state, x=state.x - state.step * answer.sum, k=state.k + 1)


@dataclass(frozen=True)
class HeavyBall(_Descent):
    """Polyak's method, x^{k+1} = x^k - alpha grad f(x^k) + beta (x^k - x^{k-1}).

    Parameters
    ----------
    step : alpha; ``"mean"`` by default.
    momentum : beta in [0, 1); by default (1 - sqrt(alpha mu))^2 with mu = sum_i w_i mu_i.
    """

    step: float | str = "mean"
    momentum: float | None = None

    def _momentum(self, step: float, devices: Devices) -> float:
        if self.momentum is not None:
            return self.momentum
        return float((1 - math.sqrt(min(1.0, step * float(devices.weights @ devices.mu)))) ** 2)

    def tell(self, state: DescentState, answer: Answer) -> DescentState:
        """One gradient step and a share of the last move."""
        x = state.x - state.step * answer.sum + state.momentum * (state.x - state.previous)
        return replace(state, x=x, previous=state.x, k=state.k + 1)


@dataclass(frozen=True)
class Nesterov(_Descent):
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
