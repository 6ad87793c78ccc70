"""SHED: Newton steps on eigenvectors that the devices send a few at a time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from ownstep.methods.base import Answer, Ask, SketchWork, Vector
from ownstep.methods.own.sketch_bank import Bank
from ownstep.methods.search.pairs import stacked
from ownstep.methods.search.searched import Searched, SearchedState, begin
from ownstep.plan import Devices
from ownstep.smoothness.sketch import Sketch
from ownstep.support.checks import whole_number


@dataclass(frozen=True, eq=False)
class ShedState(SearchedState):
    """A search, the eigenpairs sent so far, and at which kept point the next renewal is, and how far the one after."""

    bank: Bank = field(kw_only=True, repr=False)
    sent: int = field(default=0, repr=False)
    renewal: int = field(default=2, repr=False)
    distances: tuple[int, int] = field(default=(1, 1), repr=False)


@dataclass(frozen=True)
class SHED(Searched[ShedState]):
    """x^{k+1} = x^k - t_k H^{-1} grad f(x^k), with H from the q leading eigenpairs that every device has sent so far:

        H = sum_i w_i ( sum_{j <= q} (lambda_ij - lambda_{i,q+1}) v_ij v_ij^T + lambda_{i,q+1} I ) + diag(penalty).

    Dal Fabbro, Dey, Rossi and Schenato (2022): with every exchange a device sends the next ``vectors`` eigenvectors of
    its Hessian at the last renewal, so that H comes closer to Newton's. At renewals q starts again at 0, with the
    Hessian at the present trial; they become rarer, here 1, 1, 2, 3, 5, 8, ... kept points apart. Devices need a full
    eigendecomposition and the server every device in every exchange.

    Parameters
    ----------
    vectors : eigenvectors a device sends with every exchange.
    """

    vectors: int = 5
    needs_everyone: ClassVar[bool] = True

    def __post_init__(self) -> None:
        whole_number("vectors", self.vectors, 1)

    def start(self, x0: Vector, devices: Devices) -> ShedState:
        """Nothing is known at x0."""
        return ShedState(**begin(x0, devices), bank=Bank.empty(x0, devices.weights.tolist()))

    def ask(self, state: ShedState) -> Ask:
        """Grad f at the trial, and the next eigenvectors."""
        return replace(super().ask(state), sketch=SketchWork(self.vectors, skip=state.sent))

    def tell(self, state: ShedState, answer: Answer) -> ShedState:
        """Add the eigenvectors to those sent since the renewal, then search."""
        if answer.sketches:
            whole = [self._joined(state, i, s) for i, s in enumerate(answer.sketches) if s is not None]
            state = replace(state, bank=state.bank.renewed(whole), sent=state.sent + self.vectors)
        return super().tell(state, answer)

    def _joined(self, state: ShedState, device: int, new: Sketch) -> Sketch:
        """All eigenpairs of a device, with the trace that makes the next eigenvalue the rest."""
        vectors, values = new.vectors, new.values
        mine = np.flatnonzero(np.array(state.bank.owner, int) == device)
        if state.sent and len(mine):
            vectors = stacked([state.bank.vectors[mine], vectors])
            values = np.concatenate([np.array(state.bank.values)[mine], values])
        trace = float(values.sum()) + (vectors.shape[1] - len(values)) * new.trace
        return replace(new, vectors=vectors, values=values, trace=trace)

    def _keep(self, state: ShedState, answer: Answer) -> ShedState:
        state = super()._keep(state, answer)
        if state.kept < state.renewal:
            return state
        near, far = state.distances
        return replace(state, sent=0, renewal=state.renewal + far, distances=(far, near + far))

    def _set_out(self, state: ShedState, gradient: Vector) -> ShedState:
        return self._along(state, gradient, -1.0 * state.bank.metric.inverse(gradient), 1.0)
