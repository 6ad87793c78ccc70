"""FedNova: averaging of moves per local step, for devices that take different numbers of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ownstep.methods.base import Answer, Ask, Vector
from ownstep.methods.federated.fedopt import FedOpt, ServerState
from ownstep.methods.local_work import LocalWork
from ownstep.methods.steps import check_counts, one_per_device
from ownstep.plan import Devices


@dataclass(frozen=True)
class FedNova(FedOpt):
    """FedNova (Wang, Liu, Liang, Joshi and Poor 2020) with gradient descent on the devices: a_i = (1, ..., 1).

        device i    tau_i steps of length eta_l on f_i from x^t;   d_i = (x^t - y_i) / (eta_l tau_i)
        server      x^{t+1} = x^t - eta tau_eff eta_l sum_i w_i d_i,     tau_eff = sum_i w_i tau_i

    :class:`FedAvg` with unequal tau_i minimises sum_i w_i tau_i f_i, as eta_l goes to 0; FedNova minimises f. What
    remains is the drift of FedAvg with equal steps. With equal tau_i it *is* FedAvg. Over those who took part, both
    sums are divided by their weight. The authors' code does the same without momentum and pull, for which it has other
    a_i; with a pull it divides by ||a_i||_1 but takes the mean number of steps for tau_eff.

    Parameters
    ----------
    client_step, server_step : eta_l and eta.
    local_steps : tau_i, one per device; or one number E, and device i takes E N w_i steps, rounded (a half upwards), at
        least one: what E epochs of batches of one size come to, and the reason why the tau_i differ in the paper.
    """

    local_steps: int | tuple[int, ...] = 5  # type: ignore[assignment]

    def _check_local_steps(self) -> None:
        check_counts(self.local_steps)

    def taus(self, devices: Devices) -> NDArray[np.int64]:
        """tau_i of every device."""
        if isinstance(self.local_steps, tuple):
            return one_per_device(self.local_steps, devices)
        share = len(devices) * devices.weights
        return np.maximum(1, np.floor(self.local_steps * share + 0.5 + 1e-9)).astype(np.int64)

    def ask(self, state: ServerState) -> Ask:
        """The sum of w_i d_i."""
        tau = self.taus(state.devices)
        work = LocalWork(tau, state.client_step) if tau.max() > 1 else None
        return Ask(state.x, state.devices.weights / tau, work)

    def tell(self, state: ServerState, answer: Answer) -> ServerState:
        """Take a step as long as the mean number of local steps of the devices that took part."""
        w = state.devices.weights * (1.0 if answer.present is None else answer.present)
        effective = float(w @ self.taus(state.devices)) / (float(w.sum()) or 1.0)
        return replace(self._step(state, -effective * state.client_step * answer.sum), k=state.k + 1)

    def _step(self, state: ServerState, delta: Vector) -> ServerState:
        return replace(state, x=state.x + self.server_step * delta)
