"""FedExP: averaging, extrapolated by how much the devices disagree."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ownstep.methods.base import Answer, Vector, norm
from ownstep.methods.federated.fedopt import FedOpt, ServerState
from ownstep.methods.local_work import LocalWork
from ownstep.plan import Devices
from ownstep.support.checks import number


@dataclass(frozen=True)
class FedExP(FedOpt):
    """FedExP (Jhunjhunwala, Wang and Joshi 2023, Algorithm 1).

        device i    E steps of length eta_l on f_i from x^t, which move it by -Delta_i
        server      eta_g = max( 1, sum_i w_i ||Delta_i||^2 / (2 (||Delta||^2 + epsilon)) ),   Delta = sum_i w_i Delta_i
                    x^{t+1} = x^t - eta_g Delta

    The paper's 1/M is w_i here; over those who took part, divided by their weight. Where the devices do not share a
    minimiser, eta_g grows as Delta vanishes, up to sum_i w_i ||Delta_i||^2 / (2 epsilon). With a small
    epsilon the iterates then jump about and do not settle. Devices that are alike give eta_g = 1, FedAvg. Next to the
    sum of the moves only the sum of their squared norms is needed, so secure aggregation is enough.

    The authors' code differs. It multiplies epsilon by the number of devices that take part, shrinks it by 0.998^2 from
    round to round and eta_l by 0.998, and evaluates the mean of the last two iterates. Its weights are ours.

    Parameters
    ----------
    client_step, local_steps : eta_l and E (tau in the paper).
    server_step : a factor on eta_g, 1 in the paper.
    epsilon : 0.001 in most of the paper's experiments; it has the unit of x squared.
    """

    local_steps: int = 5
    epsilon: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        number("epsilon", self.epsilon, least=0)

    def search_space(self, devices: Devices) -> dict[str, tuple[float, ...]]:
        """Client steps, and epsilon in powers of ten."""
        return super().search_space(devices) | {"epsilon": (1e-4, 1e-3, 1e-2, 1e-1)}

    def _local(self, state: ServerState) -> LocalWork:
        return LocalWork(self.local_steps, state.client_step, norms=True)

    def tell(self, state: ServerState, answer: Answer) -> ServerState:
        """Take the extrapolated step; none where no device took part."""
        delta = -state.client_step * answer.sum
        spread, length = state.client_step**2 * answer.squares, norm(delta) ** 2 + self.epsilon
        eta_g = max(1.0, spread / (2 * length)) if length else 1.0
        return replace(self._step(state, eta_g * delta), k=state.k + 1)

    def _step(self, state: ServerState, delta: Vector) -> ServerState:
        return replace(state, x=state.x + self.server_step * delta)
