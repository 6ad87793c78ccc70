"""FedProx: averaging with local steps that are pulled back to where they started."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ownstep.methods.federated.fedavg import FedAvg
from ownstep.methods.federated.fedopt import ServerState
from ownstep.methods.local_work import LocalWork
from ownstep.plan import Devices
from ownstep.support.checks import number


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedProx (Li et al. 2020): local steps on f_i(y) + mu/2 ||y - x^t||^2 in place of f_i.

        y_i <- y_i - eta_l (grad f_i(y_i) + mu (y_i - x^t))         E times, then x^{t+1} = x^t + eta Delta_t

    The pull shortens the drift of :class:`FedAvg` but does not remove it. With E = 1 it has no effect.

    The paper samples devices by weight and takes plain means. The authors' code samples them evenly and weighs those
    that came by their numbers of samples, as here. Its slow devices take a random smaller number of epochs. On sparse
    gradients its optimizer writes over x^t, so that from the second local step on it pulls to another point.

    Parameters
    ----------
    client_step, server_step, local_steps : eta_l, eta and E, see :class:`~ownstep.methods.federated.fedopt.FedOpt`.
    prox : mu; the paper searches 0.001, 0.01, 0.1 and 1.
    """

    local_steps: int = 5
    prox: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        number("prox", self.prox, least=0)

    def search_space(self, devices: Devices) -> dict[str, tuple[float, ...]]:
        """Client steps, and the pulls of Li et al."""
        return super().search_space(devices) | {"prox": (0.001, 0.01, 0.1, 1.0)}

    def _local(self, state: ServerState) -> LocalWork | None:
        work = super()._local(state)
        return None if work is None else replace(work, prox=self.prox)
