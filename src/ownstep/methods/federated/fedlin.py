"""FedLin: local steps along the gradient of all data, corrected by what the device sees of its own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ownstep.methods.base import Answer, Ask, Progress, Vector, alike, ordered_sum
from ownstep.methods.local_work import LocalWork
from ownstep.methods.steps import check_counts, check_step, octaves, one_per_device, resolve_step
from ownstep.plan import Devices


@dataclass(frozen=True, eq=False)
class FedLinState:
    """The server's point, the devices' gradients there (from odd k on), and the step eta."""

    x: Vector
    k: int
    client_step: float
    gradients: Vector = field(repr=False)
    devices: Devices = field(repr=False)


@dataclass(frozen=True)
class FedLin:
    """FedLin (Mitra, Jaafar, Pappas and Hassani 2021), without its sparsification.

        exchange 1  g = sum_i w_i grad f_i(x)
        exchange 2  tau_i times  y_i <- y_i - (eta / tau_i) (grad f_i(y_i) - grad f_i(x) + g),  from y_i = x
                    x^+ = sum_i w_i y_i

    The minimiser of f is its fixed point for any tau_i, as the correction is that of the present point: nothing is
    remembered, where :class:`Scaffold` saves the first exchange by an old correction. A round here is one exchange, so
    that x moves in every second one. With tau_i = 1 it is GD at eta. The paper's 1/m is w_i. All devices take part. The
    first exchange is a local step from which the gradients come, so it runs wherever Scaffold runs. In the paper one
    vector travels each way in either exchange; here the server sends the corrections along, two vectors down.

    Parameters
    ----------
    client_step : eta; 1/max_i L_i by default, the scale of the paper's theorems without their constant.
    local_steps : tau_i, one number for all or one per device.
    """

    client_step: float | str = "largest"
    local_steps: int | tuple[int, ...] = 5
    needs_everyone: ClassVar[bool] = True
    varying_steps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_step(self.client_step)
        check_counts(self.local_steps)

    def search_space(self, devices: Devices) -> dict[str, tuple[float, ...]]:
        """Steps from 1/4 to 64 times 1/L_bar."""
        return {"client_step": octaves(devices)}

    def taus(self, devices: Devices) -> NDArray[np.int64]:
        """tau_i of every device."""
        if isinstance(self.local_steps, tuple):
            return one_per_device(self.local_steps, devices)
        return np.full(len(devices), self.local_steps, np.int64)

    def start(self, x0: Vector, devices: Devices) -> FedLinState:
        """Begin at x0, with no gradients known."""
        zero = alike(np.zeros((len(devices), 1)), x0) * x0
        return FedLinState(x0, 0, resolve_step(self.client_step, devices), zero, devices)

    def ask(self, state: FedLinState) -> Ask:
        """One local step, which is every gradient at x; then local steps along grad f_i(y) - grad f_i(x) + g."""
        tau, w = self.taus(state.devices), state.devices.weights
        if state.k % 2 == 0:
            return Ask(state.x, w, LocalWork(0 * tau + 1, state.client_step, shift=0.0 * state.gradients))
        shift = ordered_sum(w, state.gradients) - state.gradients
        return Ask(state.x, w / tau, LocalWork(tau, state.client_step / tau, shift=shift))

    def tell(self, state: FedLinState, answer: Answer) -> FedLinState:
        """Keep the gradients, or take the mean of the devices' points: x - y_i = (eta / tau_i) d_i."""
        if state.k % 2 == 0:
            return replace(state, gradients=answer.gradients, k=state.k + 1)
        return replace(state, x=state.x - state.client_step * answer.sum, k=state.k + 1)

    def point(self, state: FedLinState) -> Vector:
        """x^t."""
        return state.x

    def progress(self, state: FedLinState) -> Progress:
        """One phase, and the step eta."""
        return Progress("common", state.client_step)
