"""FedDyn: a linear term on every device that makes its minimiser agree with that of all data."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ownstep.methods.base import Answer, Ask, Progress, Vector, alike, ordered_sum
from ownstep.methods.local_work import LocalWork
from ownstep.methods.steps import check_positive, check_step, octaves, resolve_step
from ownstep.plan import Devices
from ownstep.support.checks import whole_number


@dataclass(frozen=True, eq=False)
class FedDynState:
    """The server's point, every device's linear term g_i, alpha and the devices' step eta."""

    x: Vector
    k: int
    client_step: float
    alpha: float
    terms: Vector = field(repr=False)
    devices: Devices = field(repr=False)


@dataclass(frozen=True)
class FedDyn:
    """FedDyn (Acar et al. 2021, Algorithm 1), its local minimisation replaced by E gradient steps.

        device i    E times  y_i <- y_i - eta (grad f_i(y_i) - g_i + alpha (y_i - x)),  from y_i = x
                    g_i^+ = g_i - alpha (y_i - x)
        server      h^+ = h - alpha sum_{i present} w_i (y_i - x)         ( = sum_i w_i g_i^+ )
                    x^+ = mean of the y_i that are present - h^+ / alpha

    The minimiser of f is its fixed point for any E, where g_i = grad f_i(x*). An absent device keeps its g_i, and h
    counts it: the mean is divided by the weight that took part, h is not. With E = 1 and everyone there,
    x^+ = x - 2 eta grad f(x) + (2 eta - 1/alpha) h: the devices' differences cancel. In the paper each g_i stays on its
    device, and one vector travels each way. Here the server keeps it and sends it along: two travel down.

    The paper's 1/m is w_i here. The authors' code keeps plain means instead and divides alpha by N w_i on device i.
    Their g_i is stored as -g_i / alpha.

    Parameters
    ----------
    client_step : eta; 1/(max_i L_i + alpha) by default, the step for what a device minimises.
    local_steps : E.
    alpha : max_i L_i by default, the scale of the paper's convex theorem without its constant. The paper's experiments
        use 0.001 to 0.1.
    """

    client_step: float | str | None = None
    local_steps: int = 5
    alpha: float | None = None

    def __post_init__(self) -> None:
        if self.client_step is not None:
            check_step(self.client_step)
        if self.alpha is not None:
            check_positive("alpha", self.alpha)
        whole_number("local_steps", self.local_steps, 1)

    def search_space(self, devices: Devices) -> dict[str, tuple[float, ...]]:
        """Client steps, and alpha from 1/64 to 4 times max_i L_i."""
        alphas = tuple(2.0**e * float(devices.L.max()) for e in range(-6, 3, 2))
        return {"client_step": octaves(devices), "alpha": alphas}

    def start(self, x0: Vector, devices: Devices) -> FedDynState:
        """Begin at x0 with all linear terms zero."""
        largest = 1 / resolve_step("largest", devices)
        alpha = largest if self.alpha is None else self.alpha
        step = 1 / (largest + alpha) if self.client_step is None else resolve_step(self.client_step, devices)
        return FedDynState(x0, 0, step, alpha, alike(np.zeros((len(devices), 1)), x0) * x0, devices)

    def ask(self, state: FedDynState) -> Ask:
        """Local steps on f_i(y) - <g_i, y> + alpha/2 ||y - x||^2."""
        work = LocalWork(self.local_steps, state.client_step, state.alpha, shift=-1.0 * state.terms)
        return Ask(state.x, state.devices.weights, work)

    def tell(self, state: FedDynState, answer: Answer) -> FedDynState:
        """The devices' terms, then the server's step; x - y_i = eta d_i."""
        here = np.ones(len(state.devices)) if answer.present is None else answer.present
        if not here.any():
            return replace(state, k=state.k + 1)
        moved = alike(here[:, None].astype(float), state.x) * answer.gradients
        terms = state.terms + state.alpha * state.client_step * moved
        h = ordered_sum(state.devices.weights, terms)
        x = state.x - state.client_step * answer.sum - (1 / state.alpha) * h
        return replace(state, x=x, terms=terms, k=state.k + 1)

    def point(self, state: FedDynState) -> Vector:
        """x^t."""
        return state.x

    def progress(self, state: FedDynState) -> Progress:
        """One phase, and the devices' step."""
        return Progress("common", state.client_step)
