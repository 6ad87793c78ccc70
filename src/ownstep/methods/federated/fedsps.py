"""FedSPS: Polyak's step on every device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ownstep.methods.base import Vector
from ownstep.methods.federated.fedadam import HALF_POWERS
from ownstep.methods.federated.fedopt import FedOpt, ServerState
from ownstep.methods.local_work import LocalWork, PolyakStep
from ownstep.methods.steps import check_positive
from ownstep.plan import Devices
from ownstep.support.checks import number
from ownstep.support.errors import InvalidInput


@dataclass(frozen=True)
class FedSPS(FedOpt):
    """FedSPS (Mukherjee, Loizou and Stich 2024, "Locally adaptive federated learning").

        device i    tau times  y <- y - gamma_i grad f_i(y)
                    with gamma_i = min( (f_i(y) - l_i) / (c ||grad f_i(y)||^2), gamma_b )
        server      x^{t+1} = sum_i w_i y_i, over the devices that took part

    l_i is any lower bound of f_i; 0 serves every loss that cannot be negative. It converges where all devices share a
    minimiser and l_i = min f_i, elsewhere to a neighbourhood of it. Only the sum of the devices' points is needed.
    We found no code of its authors. The SPS optimiser that it builds on adds 1e-8 to c ||grad f_i||^2.

    Parameters
    ----------
    client_step : gamma_b, the longest step; 1 in the paper.
    server_step : on the mean move; 1 is the paper's average.
    local_steps : tau.
    c : 0.5 in the paper's experiments; its theory asks for more.
    lower : l_i, one for all devices or one per device.
    """

    client_step: float = 1.0
    local_steps: int = 5
    c: float = 0.5
    lower: float | tuple[float, ...] = 0.0
    constant_free: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        number("client_step", self.client_step, above=0)
        check_positive("c", self.c)
        if not np.isfinite(self.lower).all():
            raise InvalidInput(f"lower must be finite, got {self.lower!r}")

    def start(self, x0: Vector, devices: Devices) -> ServerState:
        """Begin at x0."""
        if isinstance(self.lower, tuple) and len(self.lower) != len(devices):
            raise InvalidInput(f"lower has {len(self.lower)} bounds for {len(devices)} devices")
        return super().start(x0, devices)

    def search_space(self, devices: Devices) -> dict[str, tuple[float, ...]]:
        """The cap gamma_b in half powers of ten, and c."""
        return {"client_step": HALF_POWERS, "c": (0.25, 0.5, 1.0, 2.0)}

    def _local(self, state: ServerState) -> LocalWork:
        return LocalWork(self.local_steps, state.client_step, rule=PolyakStep(self.c, self.lower))

    def _step(self, state: ServerState, delta: Vector) -> ServerState:
        return replace(state, x=state.x + self.server_step * delta)
