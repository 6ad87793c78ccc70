"""What methods with a line search share: one trial point is one ask, and so one exchange.

Such a method chooses a direction p at the last point kept, x, and searches along x + t p with
:mod:`ownstep.methods.search.wolfe`. Only sums travel: grad f and f at every trial.

**Absent devices.** Values and slopes of two points can only be compared over the same devices. So after the first
absence every trial is asked for together with x (``Ask.base``). A trial is kept when it is low enough for the set S of
devices that answered,

    f_S(x + t p) <= f_S(x) + 1e-3 t <grad f_S(x), p>,

and tried at a shorter t otherwise. Where p is no descent direction for S, a new direction is chosen from the gradient
of f_S at x. An exchange without any answer changes nothing.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, TypeVar

from ownstep.methods.base import Answer, Ask, Progress, Vector, norm
from ownstep.methods.search.wolfe import DECREASE, MOST, Search
from ownstep.plan import Devices


@dataclass(frozen=True, eq=False)
class SearchedState:
    """The trial x, the point it is tried from, grad f there, the direction, and the search.

    ``kept`` counts the points kept; ``length`` is how far the last of them lies from the one before; ``plain`` means
    that p is to be the plain negative gradient, as a search failed; ``stalled`` that rounding allows no further step;
    ``partial`` that somebody was absent at some time.
    """

    x: Vector
    k: int
    base: Vector = field(repr=False)
    gradient: Vector = field(repr=False)
    direction: Vector = field(repr=False)
    devices: Devices = field(repr=False)
    value: float = math.nan
    search: Search = field(default_factory=Search, repr=False)
    kept: int = 0
    length: float = field(default=1.0, repr=False)
    plain: bool = field(default=False, repr=False)
    stalled: bool = False
    partial: bool = field(default=False, repr=False)


State = TypeVar("State", bound=SearchedState)


class Searched(ABC, Generic[State]):
    """A method with a line search: subclasses say where to go and what to learn from a point that is kept."""

    constant_free: ClassVar[bool] = True
    searches: ClassVar[bool] = True
    """A trial whose f is not finite is refused and a shorter step is tried: an engine need not stop there."""

    @abstractmethod
    def _set_out(self, state: State, gradient: Vector) -> State:
        """Choose p at the base, where ``gradient`` was seen, and go :meth:`_along` it."""

    def _learn(self, state: State, answer: Answer, gradient: Vector) -> State:
        """What the trial in ``state.x``, about to be kept, teaches; ``gradient`` is that at the base."""
        return state

    def ask(self, state: State) -> Ask:
        """Ask for grad f at the trial, and at the base too after an absence."""
        return Ask(state.x, state.devices.weights, base=self._compared(state))

    def _compared(self, state: State) -> Vector:
        """The base, where the trial has to be compared with it over the same devices."""
        return state.base if state.partial and state.kept else None

    def tell(self, state: State, answer: Answer) -> State:
        """Keep the trial and choose the next direction, or try another t."""
        if answer.present is not None and not answer.present.any():  # nobody came: ask again
            return replace(state, k=state.k + 1)
        absent = answer.present is not None and not answer.present.all()
        state = replace(state, k=state.k + 1, partial=state.partial or absent)
        if not state.kept:
            return self._keep(state, answer) if math.isfinite(answer.value) else state
        if answer.base is not None:
            return self._partly(state, answer)
        if absent:
            return state  # once more, with the base
        if state.stalled:
            return state
        search = state.search.seen(answer.value, float(answer.sum @ state.direction))
        if search.done == "found":
            return self._keep(self._learn(state, answer, state.gradient), answer)
        if search.done == "failed":
            return self._failed(state)
        return self._tried(replace(state, search=search))

    def point(self, state: State) -> Vector:
        """The trial. A trial that is not kept costs an exchange too."""
        return state.x

    def progress(self, state: State) -> Progress:
        """One phase, and the t of the trial."""
        return Progress("common", state.search.step if state.kept else math.nan)

    def _keep(self, state: State, answer: Answer) -> State:
        """Go on from the trial."""
        state = replace(
            state, base=state.x, gradient=answer.sum, value=answer.value, kept=state.kept + 1, plain=False,
            length=norm(state.x - state.base) if state.kept else state.length,
        )  # fmt: skip
        return self._onward(state, answer.sum)

    def _onward(self, state: State, gradient: Vector) -> State:
        """A direction from the base, and the first trial along it."""
        if state.plain:
            return self._along(state, gradient, -1.0 * gradient, 0.0)
        return self._set_out(state, gradient)

    def _along(self, state: State, gradient: Vector, p: Vector, t: float) -> State:
        """The first trial along p, with t where it is not 0; along the negative gradient where p does not descend."""
        slope = float(p @ gradient)
        if not slope < 0 or not math.isfinite(slope):
            p = -1.0 * gradient
            slope, t = float(p @ gradient), 0.0
        if not slope < 0:
            return replace(state, x=state.base, stalled=True)
        step = t or state.length / norm(p)
        search = Search.begin(state.value, slope, step, rounding(state.x) * abs(state.value))
        return self._tried(replace(state, direction=p, search=search))

    def _tried(self, state: State) -> State:
        x = state.base + state.search.step * state.direction
        moved = state.search.step * norm(state.direction)
        if not moved > 2.0 ** (-52 if _double(x) else -23) * norm(state.base) and not state.partial:
            return self._failed(state)
        return replace(state, x=x)

    def _failed(self, state: State) -> State:
        """No point along the direction is lower: forget what was learned, or, where that was done, stay."""
        if state.plain:
            return replace(state, x=state.base, stalled=not state.partial)
        return self._onward(self._forget(replace(state, plain=True)), state.gradient)

    def _forget(self, state: State) -> State:
        """Drop what may have led to a direction without descent."""
        return state

    def _partly(self, state: State, answer: Answer) -> State:
        """Compare the trial with the base over those who answered."""
        gradient, value = answer.base, answer.base_value
        state = replace(state, value=value, gradient=gradient, stalled=False)
        slope, step = float(gradient @ state.direction), state.search.step
        if not slope < 0 or state.x is state.base:
            return self._onward(state, gradient)
        change, tries = answer.value - value, state.search.tries + 1
        if change <= DECREASE * step * slope + rounding(state.x) * abs(value):
            return self._keep(self._learn(state, answer, gradient), answer)
        if tries >= MOST:
            return self._failed(state)
        lowest = -slope * step**2 / (2 * (change - slope * step)) if math.isfinite(change) else 0.0
        shorter = min(max(lowest, 0.1 * step), 0.5 * step)
        return self._tried(replace(state, search=replace(state.search, step=shorter, tries=tries)))


def begin(x0: Vector, devices: Devices) -> dict[str, Any]:
    """The fields of a state in which nothing is known yet."""
    nothing = 0.0 * x0
    return {"x": x0, "k": 0, "base": x0, "gradient": nothing, "direction": nothing, "devices": devices}


def rounding(x: Vector) -> float:
    """Relative differences of f below this are rounding, in the precision of x."""
    return 2.0 ** (-50 if _double(x) else -20)


def _double(x: Vector) -> bool:
    return bool(x.dtype.itemsize > 4)
