"""Gradient descent on f = sum_i w_i f_i: the baseline of every comparison."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ownstep.methods.base import Answer, Ask, Progress, Vector
from ownstep.methods.steps import check_step, resolve_step
from ownstep.plan import Devices


@dataclass(frozen=True, eq=False)
class DescentState:
    """An iterate, the one before it, and the constants the method was started with."""

    x: Vector
    previous: Vector
    k: int
    step: float
    momentum: float | None
    devices: Devices = field(repr=False)


class Descent:
    """What gradient descent and its accelerated relatives share: they ask for sum_i w_i grad f_i = grad f."""

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
class GD(Descent):
    """Gradient descent, x^{k+1} = x^k - alpha grad f(x^k).

    Parameters
    ----------
    step : alpha, as a number or by name: see :data:`STEPS`.
    """

    step: float | str = "mean"

    def tell(self, state: DescentState, answer: Answer) -> DescentState:
        """One gradient step."""
        return replace(state, x=state.x - state.step * answer.sum, k=state.k + 1)
