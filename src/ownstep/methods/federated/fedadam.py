"""FedAdagrad and FedAdam: servers that scale every coordinate by what they have seen of it (FedYogi is in yogi.py).

    m_t     = beta_1 m_{t-1} + (1 - beta_1) Delta_t
    x^{t+1} = x^t + eta m_t / (sqrt(v_t) + tau),                 v_{-1} = tau^2

The squares make them nonlinear: no exact worst case by PEP. Reddi et al. (2021) keep beta_1 = 0.9 (0 for
FedAdagrad), beta_2 = 0.99 and tau = 0.001 throughout, and tune both steps: :func:`ownstep.engines.tune` searches their
grid. Untuned, both are 0.1, Flower's default.
The authors' code takes Keras's Adam: ``FedAdam(bias_correction="adam", v0=0)``. Its Yogi has that correction too.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

from ownstep.methods.base import Vector
from ownstep.methods.federated.fedopt import FedOpt, ServerState
from ownstep.methods.steps import check_positive
from ownstep.plan import Devices
from ownstep.support.checks import number
from ownstep.support.errors import InvalidInput, unknown_name

HALF_POWERS = tuple(10 ** (e / 2) for e in range(-6, 3))
CORRECTIONS = {
    "none": "Algorithm 2 as printed",
    "adam": "eta sqrt(1 - beta_2^t) / (1 - beta_1^t) in round t = 1, 2, ... (Kingma and Ba 2015)",
    "flower": "the same with t + 1 for t, as Flower's FedAdam has it",
}


@dataclass(frozen=True)
class Adaptive(FedOpt):
    """What they share; ``v0`` is v_{-1}, tau^2 by default (Flower starts from 0)."""

    client_step: float | str = 0.1
    server_step: float = 0.1
    beta_1: float = 0.9
    tau: float = 1e-3
    v0: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("beta_1", "beta_2"):
            if not 0 <= getattr(self, name, 0.0) < 1:
                raise InvalidInput(f"{name} must be in [0, 1), got {getattr(self, name)!r}")
        check_positive("tau", self.tau)
        if self.v0 is not None:
            number("v0", self.v0, least=0)

    def search_space(self, devices: Devices) -> dict[str, tuple[float, ...]]:
        """Half powers of ten for both steps, as in Reddi et al."""
        return {"server_step": HALF_POWERS, "client_step": HALF_POWERS}

    def _second(self, rest: Vector) -> Vector:
        return rest**2 + (self.tau**2 if self.v0 is None else self.v0)

    def _step(self, state: ServerState, delta: Vector) -> ServerState:
        m, v = self.beta_1 * state.m + (1 - self.beta_1) * delta, self._moment(state.v, delta**2)
        eta = self.server_step * self._correction(state.k + 1)
        return replace(state, x=state.x + eta * m / (v**0.5 + self.tau), m=m, v=v)

    @abstractmethod
    def _moment(self, v: Vector, square: Vector) -> Vector:
        """v_t, from v_{t-1} and Delta_t^2."""

    def _correction(self, t: int) -> float:
        return 1.0


@dataclass(frozen=True)
class FedAdagrad(Adaptive):
    """FedAdagrad: v_t = v_{t-1} + Delta_t^2."""

    beta_1: float = 0.0

    def _moment(self, v: Vector, square: Vector) -> Vector:
        return v + square


@dataclass(frozen=True)
class FedAdam(Adaptive):
    """FedAdam: v_t = beta_2 v_{t-1} + (1 - beta_2) Delta_t^2; ``bias_correction`` is one of :data:`CORRECTIONS`."""

    beta_2: float = 0.99
    bias_correction: str = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bias_correction not in CORRECTIONS:
            raise unknown_name("bias correction", self.bias_correction, CORRECTIONS)

    def _moment(self, v: Vector, square: Vector) -> Vector:
        return self.beta_2 * v + (1 - self.beta_2) * square

    def _correction(self, t: int) -> float:
        t += self.bias_correction == "flower"
        return 1.0 if self.bias_correction == "none" else (1 - self.beta_2**t) ** 0.5 / (1 - self.beta_1**t)
