"""Nesterov's method that starts its momentum afresh whenever it points uphill."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ownstep.methods.base import Answer, Ask, Vector
from ownstep.methods.pooled.gd import Descent, DescentState
from ownstep.plan import Devices


@dataclass(frozen=True, eq=False)
class RestartState(DescentState):
    """State of Nesterov's method, with the number of rounds since the last restart."""

    since: int = field(default=0, kw_only=True)


@dataclass(frozen=True)
class NesterovRestart(Descent):
    """Nesterov's method with adaptive restart (O'Donoghue and Candes, 2015): mu need not be known.

        y^k     = x^k + j/(j + 3) (x^k - x^{k-1})           j rounds since the last restart
        x^{k+1} = y^k - alpha grad f(y^k),                  restart if <grad f(y^k), x^{k+1} - x^k> > 0

    Parameters
    ----------
    step : alpha, 1/L by name or number; ``"true"`` by default.
    """

    step: float | str = "true"

    def start(self, x0: Vector, devices: Devices) -> RestartState:
        """Begin at x0, at rest."""
        return RestartState(**vars(super().start(x0, devices)))

    def ask(self, state: Any) -> Ask:
        """Grad f at the extrapolated point y."""
        return Ask(self._extrapolated(state), state.devices.weights)

    def tell(self, state: Any, answer: Answer) -> RestartState:
        """One gradient step from y; the momentum is dropped where it led uphill."""
        x = self._extrapolated(state) - state.step * answer.sum
        uphill = float(answer.sum @ (x - state.x)) > 0
        moved: RestartState = replace(
            state, x=x, previous=state.x, k=state.k + 1, since=0 if uphill else state.since + 1
        )
        return moved

    def _extrapolated(self, state: Any) -> Vector:
        return state.x + state.since / (state.since + 3) * (state.x - state.previous)
