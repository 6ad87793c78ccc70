"""Scaffnew: local steps that skip the exchange at random, and control variates that make that exact."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from ownstep.methods.base import Answer, Ask, Progress, Vector, alike
from ownstep.methods.local_work import LocalWork
from ownstep.methods.steps import check_step, octaves, resolve_step
from ownstep.plan import Devices
from ownstep.support.checks import whole_number
from ownstep.support.errors import InvalidInput


@dataclass(frozen=True, eq=False)
class ScaffnewState:
    """The common point after an exchange, the control variates h_i, the step gamma and the probability p."""

    x: Vector
    k: int
    client_step: float
    p: float
    controls: Vector = field(repr=False)
    devices: Devices = field(repr=False)


@dataclass(frozen=True)
class Scaffnew:
    """Scaffnew (Mishchenko, Malinovsky, Stich and Richtarik 2022, Algorithm 2), which is ProxSkip for consensus.

        every device    x_i <- x_i - gamma (grad f_i(x_i) - h_i),   then with probability p, one coin for all,
        exchange        x^+ = sum_i w_i x_i,    h_i^+ = h_i + (p / gamma) (x^+ - x_i),    x_i = x^+

    A round here is the exchange with the local steps before it. Their number is drawn from the geometric law of mean
    1/p, the same for all devices, from (seed, k). sum_i w_i h_i stays 0, and the minimiser of f is the fixed point,
    where h_i = grad f_i(x*). With p = 1 it is gradient descent. The paper's 1/n is w_i: ProxSkip in the norm that has
    these weights. It has no partial participation. In the paper each h_i stays on its device, and one vector travels
    each way. Here the server keeps it and sends it along: two travel down.

    The code of two of its authors for a later paper (VR-ProxSkip) does the same with plain means: one geometric number
    of steps for all workers. It draws them from one stream; here each comes from (seed, k), so that a run can resume.

    Parameters
    ----------
    client_step : gamma; 1/max_i L_i, the paper's.
    p : probability of an exchange; 1/sqrt(kappa) = sqrt(min_i mu_i / max_i L_i) by default, the paper's, for mu > 0.
    seed : of the coins.
    """

    client_step: float | str = "largest"
    p: float | None = None
    seed: int = 0
    needs_everyone: ClassVar[bool] = True
    varying_steps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_step(self.client_step)
        if self.p is not None and not 0 < self.p <= 1:
            raise InvalidInput(f"p is a probability in (0, 1], got {self.p!r}")
        whole_number("seed", self.seed, 0)

    def search_space(self, devices: Devices) -> dict[str, tuple[float, ...]]:
        """Client steps, and p from 1 down to 1/32."""
        return {"client_step": octaves(devices), "p": tuple(2.0**-e for e in range(6))}

    def start(self, x0: Vector, devices: Devices) -> ScaffnewState:
        """Begin at x0 with all control variates zero."""
        mu, p = float(devices.mu.min()), self.p
        if p is None and mu == 0:
            raise InvalidInput("Scaffnew() takes p = sqrt(mu / L), and mu is 0 here: give it p")
        if p is None:
            p = math.sqrt(mu / float(devices.L.max()))
        zero = alike(np.zeros((len(devices), 1)), x0) * x0
        return ScaffnewState(x0, 0, resolve_step(self.client_step, devices), p, zero, devices)

    def ask(self, state: ScaffnewState) -> Ask:
        """Local steps along grad f_i - h_i until the coin calls for an exchange."""
        steps = int(np.random.default_rng([self.seed, state.k]).geometric(state.p))
        work = LocalWork(steps, state.client_step, shift=-1.0 * state.controls)
        return Ask(state.x, state.devices.weights, work)

    def tell(self, state: ScaffnewState, answer: Answer) -> ScaffnewState:
        """The mean point, and h_i^+; x^+ - x_i = gamma (d_i - sum_j w_j d_j)."""
        controls = state.controls + state.p * (answer.gradients - answer.sum)
        return replace(state, x=state.x - state.client_step * answer.sum, controls=controls, k=state.k + 1)

    def point(self, state: ScaffnewState) -> Vector:
        """The common point after the last exchange."""
        return state.x

    def progress(self, state: ScaffnewState) -> Progress:
        """One phase, and the devices' step."""
        return Progress("common", state.client_step)
