"""Own steps with momentum: an accelerated method in the local phase, and again in the common one."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ownstep.methods.base import Answer, Ask, Progress, Vector
from ownstep.methods.own.own_step import OwnStep, OwnStepState
from ownstep.methods.own.switch import Shrunk, Switch
from ownstep.methods.pooled.item import item_numbers
from ownstep.plan import Devices


@dataclass(frozen=True, eq=False)
class MomentumState(OwnStepState):
    """State of Algorithm 1, with the second sequence and the number that sets the momentum."""

    other: Vector = field(repr=False)
    number: float


@dataclass(frozen=True)
class MomentumOwnStep(OwnStep):
    """``OwnStep(momentum=...)``: the local phase accelerated on sum_i w_i f_i / L_i, the common one on f.

    With c_i = w_i / L_i in the local phase and w_i / L_bar in the common one, sum_i c_i f_i has smoothness at most 1
    and strong convexity q = sum_i c_i mu_i, the inverse condition number. On it runs, without momentum at first,

        "nesterov"   y = x^k + beta (x^k - x^{k-1}),   x^{k+1} = y - sum_i c_i grad f_i(y),
                     beta = (1 - sqrt(q)) / (1 + sqrt(q))
        "item"       the method ITEM with alpha = 1 and this q

    (beta = j/(j + 3) after j rounds where q = 0). An interrupted momentum is lost. So the default switch is
    :class:`Shrunk`, which tries no common rounds in between.
    """

    switch: Switch = field(default_factory=Shrunk)

    def start(self, x0: Vector, devices: Devices) -> MomentumState:
        """Begin at x0, without momentum, in the local phase."""
        return MomentumState(x0, 0, self.switch.begin(), devices.reweighted(self.weights), other=x0, number=0.0)

    def ask(self, state: MomentumState) -> Ask:  # type: ignore[override]
        """Ask for the sum with the phase's coefficients, at the extrapolated point."""
        return Ask(self._extrapolated(state), self._coefficients(state))

    def tell(self, state: MomentumState, answer: Answer) -> MomentumState:  # type: ignore[override]
        """Take one accelerated step. Where the phase changes, the momentum starts at zero."""
        y, q = self._extrapolated(state), self._q(state)
        if self.momentum == "nesterov":
            x, other, number = y - answer.sum, state.x, state.number + 1
        else:
            _, delta, number = item_numbers(q, state.number)
            x, other = (1 - q * delta) * state.x + (q * delta) * y - delta * answer.sum, y - answer.sum
        moved = replace(state, x=x, other=other, k=state.k + 1, number=number)
        if state.watch.fired is not None:
            return moved
        moved = replace(moved, watch=self.switch.observe(state.watch, moved.k, answer.sum, answer.value, state.devices))
        if moved.local == state.local:
            return moved
        rest = self.point(moved)
        return replace(moved, x=rest, other=rest, number=0.0)

    def point(self, state: MomentumState) -> Vector:  # type: ignore[override]
        """x^k; for ITEM without strong convexity its second sequence."""
        return state.other if self.momentum == "item" and self._q(state) == 0 else state.x

    def progress(self, state: MomentumState) -> Progress:  # type: ignore[override]
        """Phase, and the mean step sum_i c_i."""
        phase = "local" if state.local else "probe" if state.watch.probing else "common"
        return Progress(phase, float(self._coefficients(state).sum()))

    def _coefficients(self, state: MomentumState) -> NDArray[np.float64]:
        devices = state.devices
        return devices.weights / (devices.L if state.local else devices.L_bar)

    def _q(self, state: MomentumState) -> float:
        return float(self._coefficients(state) @ state.devices.mu)

    def _extrapolated(self, state: MomentumState) -> Vector:
        q = self._q(state)
        if self.momentum == "item":
            beta, _, _ = item_numbers(q, state.number)
            return (1 - beta) * state.x + beta * state.other
        root = math.sqrt(q)
        beta = (1 - root) / (1 + root) if q > 0 else state.number / (state.number + 3)
        return state.x + beta * (state.x - state.other)
