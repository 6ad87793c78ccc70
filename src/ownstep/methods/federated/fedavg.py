"""Federated averaging, plain and with momentum on the server."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ownstep.methods.base import Answer, Ask, Vector
from ownstep.methods.federated.fedopt import FedOpt, ServerState
from ownstep.methods.steps import check_positive
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput

OWN = "own"
"""A client step of 1/L_i on device i."""


@dataclass(frozen=True)
class FedAvg(FedOpt):
    """Federated averaging (McMahan et al. 2017), x^{t+1} = x^t + eta Delta_t; eta = 1 is the plain average.

    Parameters
    ----------
    client_step, server_step, local_steps : eta_l, eta and E, see :class:`~ownstep.methods.federated.fedopt.FedOpt`.
        ``client_step="own"`` is 1/L_i on device i. With one local step that is Algorithm 1's local phase.
    """

    def __post_init__(self) -> None:
        if self.client_step != OWN:
            super().__post_init__()
            return
        check_positive("server_step", self.server_step)
        self._check_local_steps()

    def start(self, x0: Vector, devices: Devices) -> ServerState:
        """Begin at x0, at rest; of own steps the mean is shown."""
        if self.client_step != OWN:
            return super().start(x0, devices)
        rest = 0.0 * x0
        return ServerState(x0, 0, devices.mean_step, rest, rest, devices)

    def ask(self, state: ServerState) -> Ask:
        """The sum of the devices' moves over -eta_l; with own steps their weighted sum itself."""
        if self.client_step != OWN:
            return super().ask(state)
        steps, work = 1 / state.devices.L, self._local(state)
        return Ask(state.x, state.devices.weights * steps, work and replace(work, step=steps))

    def tell(self, state: ServerState, answer: Answer) -> ServerState:
        """Delta_t from the sum, then the server's step."""
        if self.client_step != OWN:
            return super().tell(state, answer)
        return replace(self._step(state, -1.0 * answer.sum), k=state.k + 1)

    def _step(self, state: ServerState, delta: Vector) -> ServerState:
        return replace(state, x=state.x + self.server_step * delta)


@dataclass(frozen=True)
class FedAvgM(FedOpt):
    """Averaging with server momentum (Hsu, Qi and Brown 2019).

        m_t = beta m_{t-1} + Delta_t,       x^{t+1} = x^t + eta m_t

    Parameters
    ----------
    client_step, server_step, local_steps : eta_l, eta and E, see :class:`~ownstep.methods.federated.fedopt.FedOpt`.
    momentum : beta in [0, 1); 0.9 is the paper's usual choice.
    """

    momentum: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.momentum < 1:
            raise InvalidInput(f"momentum must be in [0, 1), got {self.momentum!r}")

    def search_space(self, devices: Devices) -> dict[str, tuple[float, ...]]:
        """Client steps, and the momenta of Hsu et al."""
        return super().search_space(devices) | {"momentum": (0.0, 0.7, 0.9, 0.97, 0.99)}

    def _step(self, state: ServerState, delta: Vector) -> ServerState:
        m = self.momentum * state.m + delta
        return replace(state, x=state.x + self.server_step * m, m=m)
