"""Steps listed by round and device: what a design returns, and what a paper's table holds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ownstep.methods.base import Answer, Ask, Progress, Vector
from ownstep.plan import Devices
from ownstep.support.checks import finite_row
from ownstep.support.errors import InvalidInput


@dataclass(frozen=True, eq=False)
class ScheduleState:
    """State of a schedule: the next point to evaluate, the last point without momentum, and the round."""

    x: Vector
    y: Vector = field(repr=False)
    k: int
    devices: Devices = field(repr=False)


@dataclass(frozen=True)
class Schedule:
    """Own steps by round, with or without momentum, then gradient descent.

        y^{k+1} = x^k - sum_i w_i alpha_{k,i} grad f_i(x^k),     alpha_{k,i} = scales[k][i] / L_i
        x^{k+1} = y^{k+1} + beta_k (y^{k+1} - y^k) + gamma_k (y^{k+1} - x^k)

    for as many rounds as ``scales`` has rows. After that alpha = ``after`` / L_bar on every device, without momentum.
    Algorithm 1, gradient descent, Nesterov's method, OGM and ITEM are all of this form.

    Parameters
    ----------
    scales : one row per round, with one number per device, or a single number for all of them.
    momentum : one row (beta_k, gamma_k) per round; none by default.
    after : the scale of the common step once the rows are used up.
    """

    scales: tuple[tuple[float, ...], ...] = ()
    momentum: tuple[tuple[float, float], ...] = ()
    after: float = 1.0

    def __post_init__(self) -> None:
        scales = tuple(tuple(map(float, finite_row(f"scales[{k}]", row))) for k, row in enumerate(self.scales))
        widths = {len(row) for row in scales} - {1}
        if len(widths) > 1:
            raise InvalidInput(f"rows of scales must have one number, or one per device; got rows of {sorted(widths)}")
        pairs = tuple((float(beta), float(gamma)) for beta, gamma in self.momentum)
        if pairs and len(pairs) != len(scales):
            raise InvalidInput(f"{len(pairs)} rows of momentum for {len(scales)} rounds: one for each, or none")
        if not np.isfinite([*np.ravel(pairs), self.after]).all() or self.after <= 0:
            raise InvalidInput(f"momentum must be finite and after positive, got {self.momentum!r} and {self.after!r}")
        object.__setattr__(self, "scales", scales)
        object.__setattr__(self, "momentum", pairs)

    def start(self, x0: Vector, devices: Devices) -> ScheduleState:
        """Begin at x0, without momentum."""
        width = max(map(len, self.scales), default=1)
        if width not in (1, len(devices)):
            raise InvalidInput(f"this schedule is for {width} devices, not for {len(devices)}")
        return ScheduleState(x0, x0, 0, devices)

    def ask(self, state: ScheduleState) -> Ask:
        """Ask for sum_i w_i alpha_{k,i} grad f_i(x)."""
        return Ask(state.x, self._mix(state))

    def tell(self, state: ScheduleState, answer: Answer) -> ScheduleState:
        """Take one step with two kinds of momentum."""
        x = y = state.x - answer.sum
        beta, gamma = self.momentum[state.k] if state.k < len(self.momentum) else (0.0, 0.0)
        if beta or gamma:
            x = y + beta * (y - state.y) + gamma * (y - state.x)
        return replace(state, x=x, y=y, k=state.k + 1)

    def point(self, state: ScheduleState) -> Vector:
        """x^k."""
        return state.x

    def progress(self, state: ScheduleState) -> Progress:
        """The place in the schedule, and the mean step sum_i w_i alpha_{k,i}."""
        return Progress("local" if state.k < len(self.scales) else "common", float(self._mix(state).sum()))

    def _mix(self, state: ScheduleState) -> NDArray[np.float64]:
        devices = state.devices
        if state.k >= len(self.scales):
            return np.asarray(devices.weights * self.after / devices.L_bar)
        return np.asarray(devices.weights * np.asarray(self.scales[state.k]) / devices.L)
