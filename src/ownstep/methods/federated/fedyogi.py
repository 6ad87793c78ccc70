"""FedYogi: the second moment of an adaptive server, changed by additions of bounded size."""

from __future__ import annotations

from dataclasses import dataclass

from ownstep.methods.base import Vector
from ownstep.methods.federated.fedadam import Adaptive


@dataclass(frozen=True)
class FedYogi(Adaptive):
    """FedYogi: v_t = v_{t-1} - (1 - beta_2) Delta_t^2 sign(v_{t-1} - Delta_t^2)."""

    beta_2: float = 0.99

    def _moment(self, v: Vector, square: Vector) -> Vector:
        # Products with the tests in place of sign(): arrays and tensors both have them, in their own precision.
        return v - (1 - self.beta_2) * ((v > square) * square - (v < square) * square)
