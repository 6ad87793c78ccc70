"""SCAFFOLD: control variates take the drift out of local steps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ownstep.methods.base import Answer, Ask, Progress, Vector, alike, ordered_sum
from ownstep.methods.local_work import LocalWork
from ownstep.methods.steps import check_positive, check_step, octaves, resolve_step
from ownstep.plan import Devices
from ownstep.support.checks import whole_number


@dataclass(frozen=True, eq=False)
class ScaffoldState:
    """The server's point, every device's control variate c_i, and the devices' step eta_l."""

    x: Vector
    k: int
    client_step: float
    controls: Vector = field(repr=False)
    devices: Devices = field(repr=False)


@dataclass(frozen=True)
class Scaffold:
    """SCAFFOLD (Karimireddy et al. 2020, Algorithm 1 with option II), with c = sum_i w_i c_i.

        device i    E times  y_i <- y_i - eta_l (grad f_i(y_i) - c_i + c),  from y_i = x
                    c_i^+ = c_i - c + (x - y_i) / (E eta_l)
        server      x^+ = x + eta_g sum_i w_i (y_i - x)

    The minimiser of f is its fixed point for any E, where c_i = grad f_i(x*). A device that is absent keeps its c_i.
    Two vectors travel each way in the paper, where each c_i stays on its device. Here the server keeps it and sends it
    along, and c_i^+ follows from the move: two travel down and one up. With E = 1 and everyone there it is GD.
    Public code often differs: FedDyn's repository divides c by N w_i in the local steps, and not where c_i is updated.

    Parameters
    ----------
    client_step : eta_l. By default 1/(E max_i L_i), the scale of the paper's Theorem III without its constant.
    server_step : eta_g, 1 in the paper's experiments.
    local_steps : E (K in the paper).
    """

    client_step: float | str | None = None
    server_step: float = 1.0
    local_steps: int = 5

    def __post_init__(self) -> None:
        if self.client_step is not None:
            check_step(self.client_step)
        check_positive("server_step", self.server_step)
        whole_number("local_steps", self.local_steps, 1)

    def search_space(self, devices: Devices) -> dict[str, tuple[float, ...]]:
        """Client steps from 1/4 to 64 times 1/L_bar."""
        return {"client_step": octaves(devices)}

    def start(self, x0: Vector, devices: Devices) -> ScaffoldState:
        """Begin at x0 with all control variates zero."""
        if self.client_step is None:
            step = resolve_step("largest", devices) / self.local_steps
        else:
            step = resolve_step(self.client_step, devices)
        return ScaffoldState(x0, 0, step, alike(np.zeros((len(devices), 1)), x0) * x0, devices)

    def ask(self, state: ScaffoldState) -> Ask:
        """Local steps along grad f_i - c_i + c."""
        shift = self._mean(state) - state.controls
        work = LocalWork(self.local_steps, state.client_step, shift=shift)
        return Ask(state.x, state.devices.weights, work)

    def tell(self, state: ScaffoldState, answer: Answer) -> ScaffoldState:
        """Take the server's step, and update c_i for the devices that took part."""
        here = np.ones(len(state.devices)) if answer.present is None else answer.present
        fresh = (1 / self.local_steps) * answer.gradients - self._mean(state)
        controls = state.controls + alike(here[:, None].astype(float), state.x) * fresh
        x = state.x - self.server_step * state.client_step * answer.sum
        return replace(state, x=x, controls=controls, k=state.k + 1)

    def _mean(self, state: ScaffoldState) -> Vector:
        return ordered_sum(state.devices.weights, state.controls)

    def point(self, state: ScaffoldState) -> Vector:
        """x^t."""
        return state.x

    def progress(self, state: ScaffoldState) -> Progress:
        """One phase; how far a unit of gradient moves the point in one local step."""
        return Progress("common", self.server_step * state.client_step)
