"""What federated methods share: the devices move on their own, the server makes a step of the mean move."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace

from ownstep.methods.base import Answer, Ask, Progress, Vector
from ownstep.methods.local_work import LocalWork
from ownstep.methods.steps import check_positive, check_step, octaves, resolve_step
from ownstep.plan import Devices
from ownstep.support.checks import whole_number


@dataclass(frozen=True, eq=False)
class ServerState:
    """The server's point, its momentum and second moment, and the devices' step eta_l."""

    x: Vector
    k: int
    client_step: float
    m: Vector = field(repr=False)
    v: Vector = field(repr=False)
    devices: Devices = field(repr=False)


@dataclass(frozen=True)
class FedOpt(ABC):
    """Algorithm 2 of Reddi et al. (2021), with full batches: what every method of the family shares.

        device i    E steps of length eta_l on f_i from x^t, which move it by Delta_i
        server      Delta_t = sum_i w_i Delta_i,  and x^{t+1} = x^t + eta (what the method makes of Delta_t)

    With E = 1, Delta_t = -eta_l grad f(x^t). With more steps the fixed point is no longer the minimiser of f, unless
    the devices agree: sum_i w_i Delta_i vanishes elsewhere.

    Parameters
    ----------
    client_step : eta_l, a number or a name of :data:`~ownstep.methods.pooled.gd.STEPS`.
    server_step : eta.
    local_steps : E (K in the paper) steps per round.
    """

    client_step: float | str = "largest"
    server_step: float = 1.0
    local_steps: int = 1

    def __post_init__(self) -> None:
        check_step(self.client_step)
        check_positive("server_step", self.server_step)
        self._check_local_steps()

    def _check_local_steps(self) -> None:
        whole_number("local_steps", self.local_steps, 1)

    def search_space(self, devices: Devices) -> dict[str, tuple[float, ...]]:
        """Client steps from 1/4 to 64 times 1/L_bar."""
        return {"client_step": octaves(devices)}

    def start(self, x0: Vector, devices: Devices) -> ServerState:
        """Begin at x0, at rest."""
        rest = 0.0 * x0
        return ServerState(x0, 0, resolve_step(self.client_step, devices), rest, self._second(rest), devices)

    def _second(self, rest: Vector) -> Vector:
        return rest

    def ask(self, state: ServerState) -> Ask:
        """The sum of the devices' moves over -eta_l; for E = 1 that is grad f at x."""
        return Ask(state.x, state.devices.weights, self._local(state))

    def _local(self, state: ServerState) -> LocalWork | None:
        return LocalWork(self.local_steps, state.client_step) if self.local_steps > 1 else None

    def tell(self, state: ServerState, answer: Answer) -> ServerState:
        """Delta_t = -eta_l sum, then the server's step."""
        return replace(self._step(state, -state.client_step * answer.sum), k=state.k + 1)

    @abstractmethod
    def _step(self, state: ServerState, delta: Vector) -> ServerState:
        """What the server makes of Delta_t."""

    def point(self, state: ServerState) -> Vector:
        """x^t."""
        return state.x

    def progress(self, state: ServerState) -> Progress:
        """One phase; how far a unit of gradient moves the point in one local step."""
        return Progress("common", self.server_step * state.client_step)
