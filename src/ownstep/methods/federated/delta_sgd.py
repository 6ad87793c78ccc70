"""Delta-SGD: every device adapts its own step to the smoothness it meets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ownstep.methods.base import Vector
from ownstep.methods.federated.fedadam import HALF_POWERS
from ownstep.methods.federated.fedopt import FedOpt, ServerState
from ownstep.methods.local_work import LocalSmoothness, LocalWork
from ownstep.methods.steps import check_positive
from ownstep.plan import Devices
from ownstep.support.checks import number


@dataclass(frozen=True)
class DeltaSGD(FedOpt):
    """Delta-SGD (Kim, Toghani, Uribe and Kyrillidis 2024, Algorithm 1).

        device i    y_0 = x^t, step eta_0, theta_0, then K times  y_{k+1} = y_k - eta_k grad f_i(y_k)  with
                    eta_k = min( gamma ||y_k - y_{k-1}|| / (2 ||grad f_i(y_k) - grad f_i(y_{k-1})||),
                                 sqrt(1 + delta theta_{k-1}) eta_{k-1} ),     theta_k = eta_k / eta_{k-1}
        server      x^{t+1} = sum_i w_i y_K, over the devices that took part

    A device begins every round anew with eta_0. With K = 1 it is :class:`FedAvg` at eta_0. Its limit is biased like
    FedAvg's. No constant is needed, and only the sum of the devices' points: secure aggregation is enough.

    The authors' code differs from Algorithm 1: it multiplies even the first step of a round by
    sqrt(1 + delta theta_0), adds a small eps to every later step, takes delta = 0.02 unless told otherwise, and plain
    means of the devices' points. With batches it compares the gradients of two points on the same batch.

    Parameters
    ----------
    client_step : eta_0; 0.2 in the paper.
    server_step : on the mean move; 1 is the paper's average.
    local_steps : K.
    gamma, delta, theta : 2, 0.1 and theta_0 = 1 in all of the paper's experiments.
    """

    client_step: float = 0.2
    local_steps: int = 5
    gamma: float = 2.0
    delta: float = 0.1
    theta: float = 1.0
    constant_free: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        number("client_step", self.client_step, above=0)
        check_positive("gamma", self.gamma)
        number("delta", self.delta, least=0)
        number("theta", self.theta, least=0)

    def search_space(self, devices: Devices) -> dict[str, tuple[float, ...]]:
        """The first step eta_0, in half powers of ten; the paper tunes nothing."""
        return {"client_step": HALF_POWERS}

    def _local(self, state: ServerState) -> LocalWork:
        rule = LocalSmoothness(self.gamma, self.delta, self.theta)
        return LocalWork(self.local_steps, state.client_step, rule=rule)

    def _step(self, state: ServerState, delta: Vector) -> ServerState:
        return replace(state, x=state.x + self.server_step * delta)
