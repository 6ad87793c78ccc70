"""Federated averaging, plain and with momentum on the server."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ownstep.methods.base import Vector
from ownstep.methods.federated.fedopt import FedOpt, ServerState
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput


@dataclass(frozen=True)
class FedAvg(FedOpt):
    """Federated averaging (McMahan et al. 2017), x^{t+1} = x^t + eta Delta_t; eta = 1 is the plain average.

    Parameters
    ----------
    client_step, server_step, local_steps : eta_l, eta and E, see :class:`~ownstep.methods.federated.fedopt.FedOpt`.
    """

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
