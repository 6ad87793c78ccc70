"""Algorithm 1: own steps, then a common one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.methods.base import Answer, Ask, Progress, Vector
from ownstep.methods.own.own_step_forms import check, form
from ownstep.methods.own.plateau import Plateau
from ownstep.methods.own.switch import Switch, Watch
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput


@dataclass(frozen=True, eq=False)
class OwnStepState:
    """State of Algorithm 1: the iterate, the round, and what the switch has seen."""

    x: Vector
    k: int
    watch: Watch
    devices: Devices = field(repr=False)

    @property
    def local(self) -> bool:
        """Whether the next round takes own steps."""
        return self.watch.fired is None and not self.watch.probing


@dataclass(frozen=True)
class OwnStep:
    """Algorithm 1: own steps 1/L_i until progress stalls, then the common step 1/L_bar.

        local phase    x^{k+1} = x^k - sum_i w_i grad f_i(x^k) / L_i
        common phase   x^{k+1} = x^k - sum_i w_i grad f_i(x^k) / L_bar,     L_bar = sum_i w_i L_i

    The server asks for one sum and subtracts it. It never sees a single device's gradient.

    Parameters
    ----------
    switch : when to leave the local phase (epsilon in Algorithm 1). :class:`Plateau` needs no tuning.
    weights : ``"samples"`` takes the devices' shares w_i of the objective; ``"uniform"`` takes 1/N, the
        paper's literal line, which minimises another function when devices differ in size.
    smoothness : ``"given"`` takes the devices' constants L_i. With ``"adaptive"`` every device measures its curvature
        during the run, see :class:`~ownstep.methods.own.own_adaptive.AdaptiveOwnStep`.
    momentum : ``"nesterov"`` or ``"item"`` accelerates both phases, see
        :class:`~ownstep.methods.own.own_momentum.MomentumOwnStep`.
    """

    switch: Switch = field(default_factory=Plateau)
    weights: str = "samples"
    smoothness: str = field(default="given", kw_only=True)
    momentum: str | None = field(default=None, kw_only=True)

    def __new__(cls, *_: Any, smoothness: str = "given", momentum: str | None = None, **__: Any) -> OwnStep:
        """The class that does what was asked for, as ``pathlib.Path(...)`` is a ``PosixPath`` where that is so."""
        return super().__new__((form(smoothness, momentum) or cls) if cls is OwnStep else cls)

    def __post_init__(self) -> None:
        check(self.smoothness, self.momentum)
        if not isinstance(self.switch, Switch):
            raise InvalidInput(f"switch must be a rule such as Plateau() or At(50), got {self.switch!r}")

    def start(self, x0: Vector, devices: Devices) -> OwnStepState:
        """Begin at x0, in the local phase."""
        return OwnStepState(x0, 0, self.switch.begin(), devices.reweighted(self.weights))

    def ask(self, state: OwnStepState) -> Ask:
        """Ask for sum_i w_i alpha_i grad f_i(x), with alpha_i = 1/L_i in the local phase, else 1/L_bar."""
        return Ask(state.x, self._mix(state))

    def tell(self, state: OwnStepState, answer: Answer) -> OwnStepState:
        """Subtract the sum from x, and show the round to the switch."""
        x, k = state.x - answer.sum, state.k + 1
        if state.watch.fired is not None:
            return replace(state, x=x, k=k)
        watch = self.switch.observe(state.watch, k, answer.sum, answer.value, state.devices)
        return replace(state, x=x, k=k, watch=watch)

    def point(self, state: OwnStepState) -> Vector:
        """x^k."""
        return state.x

    def progress(self, state: OwnStepState) -> Progress:
        """Phase, and the mean step sum_i w_i alpha_i."""
        phase = "local" if state.local else "probe" if state.watch.probing else "common"
        return Progress(phase, float(self._mix(state).sum()))

    def _mix(self, state: OwnStepState) -> NDArray[np.float64]:
        devices = state.devices
        return devices.weights / (devices.L if state.local else devices.L_bar)
