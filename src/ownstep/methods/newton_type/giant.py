"""GIANT: every device solves with its own Hessian, the server averages the directions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from ownstep.methods.base import Answer, Ask, SolveWork, Vector
from ownstep.methods.search.searched import Searched, SearchedState, begin
from ownstep.plan import Devices
from ownstep.support.checks import number
from ownstep.support.errors import InvalidInput


@dataclass(frozen=True, eq=False)
class SolvingState(SearchedState):
    """A search; ``solving`` while the direction is what the devices are asked for."""

    solving: bool = field(default=False, repr=False)


@dataclass(frozen=True)
class GIANT(Searched[SolvingState]):
    """x^{k+1} = x^k - t_k sum_i w_i (H_i + prox I)^{-1} grad f(x^k).

    Wang, Roosta, Xu and Mahoney (2018): the harmonic mean of the devices' Hessians in place of their mean, which is
    close when all devices hold samples of the same data. An iteration takes two exchanges: one for the direction, one
    for the trial t_k = 1 with its gradient, and one more for every further trial of the line search.

    The authors' code (for Spark) differs. A device takes a fixed number of conjugate gradient steps and does not solve.
    The line search is an exchange of its own, in which all devices evaluate f at one fixed list of t.

    Parameters
    ----------
    prox : added to every device's Hessian, at least 0.
    """

    prox: float = 0.0
    whole: ClassVar[bool] = False

    def __post_init__(self) -> None:
        number("prox", self.prox, least=0)

    def start(self, x0: Vector, devices: Devices) -> SolvingState:
        """Nothing is known at x0."""
        return SolvingState(**begin(x0, devices))

    def ask(self, state: SolvingState) -> Ask:
        """Grad f at the trial, or the direction at the base."""
        if not state.solving:
            return super().ask(state)
        return Ask(state.x, state.devices.weights, solve=SolveWork(state.gradient, self.prox, self.whole))

    def tell(self, state: SolvingState, answer: Answer) -> SolvingState:
        """Search along the direction once it is known."""
        if not state.solving:
            return super().tell(state, answer)
        if answer.present is not None and not answer.present.any():  # nobody came: ask again
            return replace(state, k=state.k + 1)
        if answer.solved is None:
            raise InvalidInput(
                f"{self!r} needs devices that solve problems of their own; LBFGS() needs gradients alone"
            )
        return self._along(replace(state, k=state.k + 1, solving=False), state.gradient, -1.0 * answer.solved, 1.0)

    def _set_out(self, state: SolvingState, gradient: Vector) -> SolvingState:
        if not float(gradient @ gradient) > 0:  # nothing to solve for
            return self._onward(replace(state, plain=True), gradient)
        return replace(state, x=state.base, gradient=gradient, solving=True)
