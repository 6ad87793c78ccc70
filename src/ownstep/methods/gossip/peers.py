"""What methods without a server share: a point on every device, a graph between them, and their steps.

All keep a stack X with one row per device, mixed by a doubly stochastic W. To minimise f = sum_i w_i f_i and not the
plain mean of the f_i, device i works on its *share* N w_i f_i. The mean over devices of the shares is f, so the mean of
the rows, which W preserves, moves by grad f; it is the point a method is judged at. With equal weights the shares are
the f_i themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ownstep.methods.base import Answer, Ask, Progress, Vector, alike
from ownstep.methods.gossip.graphs import mixing_matrix
from ownstep.methods.gossip.mixing import Mixing, among
from ownstep.methods.steps import check_positive, octaves
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput, unknown_name

STEPS = {
    "largest": "1 / max_i N w_i L_i, times what keeps the method stable on its graph",
    "mean": "1/L_bar with L_bar = sum_i w_i L_i, the paper's choice; too long if one share is much more curved",
    "own": "one per device",
}


@dataclass(frozen=True, eq=False)
class PeersState:
    """One point per device, what else each remembers, and the constants the method was started with."""

    x: Vector
    k: int
    memory: Vector = field(repr=False)
    gradient: Vector = field(repr=False)
    steps: NDArray[np.float64]
    mixing: Mixing
    devices: Devices = field(repr=False)


@dataclass(frozen=True)
class Peers(ABC):
    """Base of the methods without a server.

    Parameters
    ----------
    step : a number, a name of :data:`STEPS`, or one number per device for methods that allow ``"own"``.
    graph : a name of :data:`~ownstep.methods.gossip.graphs.GRAPHS`, or a given :class:`Mixing`.
    rule : how its links are weighed, ``"metropolis"`` or ``"lazy"``.
    weights : ``"samples"`` or ``"uniform"``, as for Algorithm 1.
    """

    step: float | str | tuple[float, ...] = "largest"
    graph: str | Mixing = "ring"
    rule: str = "metropolis"
    weights: str = "samples"
    steps_allowed: ClassVar[tuple[str, ...]] = ("largest", "mean")
    vectors: ClassVar[int] = 1
    """How many vectors travel along a link in a round."""
    needs_everyone: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if isinstance(self.step, tuple):
            if "own" not in self.steps_allowed:
                raise InvalidInput(f"{type(self).__name__} takes one step for all devices, got {self.step!r}")
            for one in self.step:
                check_positive("a step", one)
        elif not isinstance(self.step, str):
            check_positive("a step", self.step)
        elif self.step not in self.steps_allowed:
            raise unknown_name(f"step of {type(self).__name__}", self.step, self.steps_allowed)
        mixing_matrix(self.graph, len(self.graph) if isinstance(self.graph, Mixing) else 3, self.rule)

    def search_space(self, devices: Devices) -> dict[str, tuple[float, ...]]:
        """Common steps from 1/4 to 64 times 1/L_bar."""
        return {"step": octaves(devices)}

    def start(self, x0: Vector, devices: Devices) -> PeersState:
        """Everyone at x0, at rest."""
        devices = devices.reweighted(self.weights)
        mixer = mixing_matrix(self.graph, len(devices), self.rule)
        x = alike(np.ones((len(devices), 1)), x0) * x0
        return PeersState(x, 0, self._at_rest(x), 0.0 * x, self._steps(devices, mixer), mixer, devices)

    def _at_rest(self, x: Vector) -> Vector:
        return 0.0 * x

    def _cut(self, mixer: Mixing) -> float:
        """What the step ``"largest"`` is multiplied by so that the method is stable on this graph."""
        return 1.0

    def _steps(self, devices: Devices, mixer: Mixing) -> NDArray[np.float64]:
        share = len(devices) * devices.weights
        if isinstance(self.step, tuple) and len(self.step) != len(devices):
            raise InvalidInput(f"there are {len(self.step)} steps for {len(devices)} devices")
        named = {
            "largest": self._cut(mixer) / (share * devices.L).max(),
            "mean": 1 / devices.L_bar,
            "own": 1 / devices.L,
        }
        return np.broadcast_to(named[self.step] if isinstance(self.step, str) else self.step, share.shape).copy()

    def ask(self, state: PeersState) -> Ask:
        """Every device's gradient at its own point."""
        return Ask(state.x, None, links=self.vectors * state.mixing.links)

    def tell(self, state: PeersState, answer: Answer) -> PeersState:
        """One round: W of the links that worked, the steps and shares of the devices that were there."""
        W, steps = state.mixing.matrix, state.steps
        seen = column(len(state.devices) * state.devices.weights, state.x) * answer.gradients
        if answer.present is not None:
            W, steps = among(W, answer.present), answer.present * steps
            seen = seen + column(1.0 - answer.present, state.x) * state.gradient
        x, memory = self._move(state, alike(W, state.x), column(steps, state.x), seen)
        return replace(state, x=x, memory=memory, gradient=seen, k=state.k + 1)

    @abstractmethod
    def _move(self, state: PeersState, W: Any, steps: Any, gradient: Vector) -> tuple[Vector, Vector]:
        """(X^{k+1}, what is remembered), from the stack of gradients of the shares."""

    def point(self, state: PeersState) -> Vector:
        """The mean of the devices' points."""
        n = len(state.devices)
        return alike(np.full(n, 1 / n), state.x) @ state.x

    def progress(self, state: PeersState) -> Progress:
        """One phase, and the mean step."""
        own = self.step == "own" or isinstance(self.step, tuple)
        return Progress("local" if own else "common", float(state.devices.weights @ state.steps))


def column(numbers: NDArray[Any], x: Vector) -> Any:
    """One factor a row."""
    return alike(numbers[:, None], x)
