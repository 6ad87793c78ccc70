"""The best that fixed steps can do with grad f alone: OGM for convex f; ITEM, for strongly convex f, is in item.py.

Both are *optimal*: no method whose steps are fixed beforehand has a smaller worst case, over all f of the class, for
f(x^K) - f* (OGM) and for ||x^K - x*|| (ITEM). They are what an accelerated method with a server has to be held against.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from ownstep.methods.base import Answer, Ask, Progress, Vector
from ownstep.methods.steps import check_step, resolve_step
from ownstep.plan import Devices
from ownstep.support.checks import whole_number


@dataclass(frozen=True, eq=False)
class OptimalState:
    """State with the next point to evaluate, the other sequence, and the number theta_k or A_k of the momentum."""

    x: Vector
    other: Vector = field(repr=False)
    k: int
    number: float
    step: float
    devices: Devices = field(repr=False)


class Optimal:
    """What the two share: they ask for grad f, and take one step alpha."""

    step: float | str

    def __post_init__(self) -> None:
        check_step(self.step)

    def start(self, x0: Vector, devices: Devices) -> OptimalState:
        """Begin at x0, at rest."""
        return OptimalState(x0, x0, 0, 1.0, resolve_step(self.step, devices), devices)

    def progress(self, state: OptimalState) -> Progress:
        """One phase, one step."""
        return Progress("common", state.step)


@dataclass(frozen=True)
class OGM(Optimal):
    """The optimised gradient method of Kim and Fessler (2016), for smooth convex f.

        y^{k+1} = x^k - alpha grad f(x^k)
        x^{k+1} = y^{k+1} + (theta_k - 1)/theta_{k+1} (y^{k+1} - y^k) + theta_k/theta_{k+1} (y^{k+1} - x^k)

    with theta_0 = 1 and theta_{k+1} = (1 + sqrt(1 + 4 theta_k^2))/2, the 4 being an 8 in the last round. Then
    f(x^K) - f* <= ||x^0 - x*||^2 / (2 alpha theta_K^2), about half of what Nesterov's method guarantees.

    Parameters
    ----------
    step : alpha, 1/L by name or number; ``"true"`` by default.
    horizon : K, the round whose x^K has that guarantee; every K rounds the method starts afresh from there. None has
        no last round: y^k is its answer then, with ||x^0 - x*||^2 / (4 alpha theta_{k-1}^2) after every k.
    """

    step: float | str = "true"
    horizon: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.horizon is not None:
            whole_number("horizon", self.horizon, 1)

    def ask(self, state: OptimalState) -> Ask:
        """Grad f at x."""
        return Ask(state.x, state.devices.weights)

    def tell(self, state: OptimalState, answer: Answer) -> OptimalState:
        """One gradient step and two kinds of momentum."""
        k, theta, y = state.k + 1, state.number, state.x - state.step * answer.sum
        last = self.horizon is not None and k % self.horizon == 0
        coming = (1 + math.sqrt(1 + (8 if last else 4) * theta**2)) / 2
        x = y + (theta - 1) / coming * (y - state.other) + theta / coming * (y - state.x)
        return replace(state, x=x, other=y, k=k, number=1.0 if last else coming)

    def point(self, state: OptimalState) -> Vector:
        """x^k, or y^k without a horizon."""
        return state.other if self.horizon is None else state.x
