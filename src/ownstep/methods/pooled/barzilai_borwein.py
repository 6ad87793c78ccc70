"""Barzilai and Borwein's step: gradient descent that measures the curvature of f on its way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ownstep.methods.base import Answer, Ask, Progress, Vector, norm
from ownstep.methods.pooled.safeguard import SecantState, begin, keep, passes, retreat, secant, seen, stay
from ownstep.plan import Devices
from ownstep.support.errors import unknown_name

SECANTS = {"short": "||y||^2 / <s, y>", "long": "<s, y> / ||s||^2", "mean": "||y|| / ||s||, their geometric mean"}


@dataclass(frozen=True)
class BarzilaiBorwein:
    """x^{k+1} = x^k - grad f(x^k) / L_k, with L_k measured between the last two points: no constant is needed.

        s = x^k - x^{k-1},      y = grad f(x^k) - grad f(x^{k-1}),      L_k one of :data:`SECANTS`

    Barzilai and Borwein (1988), made globally convergent as in :mod:`ownstep.methods.pooled.safeguard`. It is what
    adaptive own steps (``OwnStep(smoothness="adaptive")``) are when all data is pooled.

    Parameters
    ----------
    secant : a name of :data:`SECANTS`; L_k is kept below 2M in any case.
    """

    secant: str = "short"
    constant_free: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.secant not in SECANTS:
            raise unknown_name("secant", self.secant, SECANTS)

    def start(self, x0: Vector, devices: Devices) -> SecantState:
        """Nothing is known at x0."""
        return SecantState(**begin(x0, devices))

    def ask(self, state: SecantState) -> Ask:
        """Grad f at the point to be tried."""
        return Ask(state.x, state.devices.weights)

    def tell(self, state: SecantState, answer: Answer) -> SecantState:
        """Keep the point and step on from it, or go back and step less."""
        if (found := seen(state, answer)) is None:
            return stay(state, answer)
        s, y = found
        state = replace(state, largest=max(state.largest, norm(y) / norm(s)))
        change = answer.value - state.value
        if not passes(state, change, state.step):
            return retreat(state)
        return keep(state, change, answer.sum, min(self._curvature(s, y), 2 * state.largest))

    def _curvature(self, s: Vector, y: Vector) -> float:
        if self.secant == "short":
            return secant(s, y)
        return max(0.0, float(s @ y)) / float(s @ s) if self.secant == "long" else norm(y) / norm(s)

    def point(self, state: SecantState) -> Vector:
        """The point tried; one that is not kept has cost a round all the same."""
        return state.x

    def progress(self, state: SecantState) -> Progress:
        """One phase, and the step of the round before: the coming one's is not known before its gradient."""
        return Progress("common", state.step)
