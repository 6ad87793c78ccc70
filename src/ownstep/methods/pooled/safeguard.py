"""What makes steps of measured length safe: the test of Zhang and Hager (2004), and what follows from failing it.

Let M be the largest ||y||/||s|| measured so far, M <= L, and C_k a running mean of the values: C_0 = f(x^0), Q_0 = 1,

    Q_{k+1} = eta Q_k + 1,      C_{k+1} = (eta Q_k C_k + f(x^{k+1})) / Q_{k+1},      eta = 0.85.

A point tried from x^k with a step t in mind is kept if

    f(x^{k+1}) <= C_k - min(t, 1/M) ||grad f(x^k)||^2 / 2.

Otherwise x^k - grad f(x^k)/M is tried; if t was no longer than 1/M, L > 1/t is proved, and M becomes 2/t first. By the
descent lemma a gradient step t <= 1/L is always kept. So M < 2L for ever; a kept round has one failed try besides those
that double M, log2(2L/M) of them in all from the first M on (and besides three own steps, after which t is tried before
1/M); and where t >= 1/(2M), C_k falls by (1 - eta) ||grad f(x^k)||^2 / (8L) at least in a kept round. All methods here
choose t so, once a curvature has been measured. Summed up, over all kept rounds but the first, whose t is a guess (and
those after it in which the gradient does not change at all and t doubles),

    sum_k ||grad f(x^k)||^2  <=  8 L (f(x^0) - f*) / (1 - eta)       and       f(x^k) <= C_k <= f(x^0):

gradient descent's own bound, 2L (f(x^0) - f*) for the step 1/L, up to a constant; convex or not, and whatever the point
that was tried, as long as it passed the test. Let f be mu-strongly convex, D_k = C_k - f*. If f(x^k) - f* >= D_{k-1}/2
then D_{k+1} <= D_{k-1} - (1 - eta) (mu/(8L)) D_{k-1}; if not, D_k <= D_{k-1} - (1 - eta) D_{k-1}/2: D_k falls linearly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ownstep.methods.base import Answer, Vector, norm
from ownstep.plan import Devices

MEMORY = 0.85
"""eta, the weight of the past in C_k; 0 would make every kept round a descent."""

FIRST = 0.01
"""Nothing is known at x^0: move by this share of |f| / ||grad f|| and of max(1, ||x^0||), whichever is less, but where
f is 0 by chance far enough to be seen."""


@dataclass(frozen=True, eq=False)
class SecantState:
    """The point tried, the one it was tried from, and what the test has seen: M, C_k - f(x^k) and Q_k."""

    x: Vector
    base: Vector = field(repr=False)
    gradient: Vector = field(repr=False)
    k: int
    step: float
    value: float
    devices: Devices = field(repr=False)
    largest: float = 0.0
    slack: float = 0.0
    count: float = 1.0

    @property
    def started(self) -> bool:
        """Has any gradient been seen?"""
        return not math.isnan(self.step)


State = TypeVar("State", bound=SecantState)


def begin(x0: Vector, devices: Devices) -> dict[str, Any]:
    """The fields of a state in which nothing is known yet."""
    return {"x": x0, "base": x0, "gradient": 0.0 * x0, "k": 0, "step": math.nan, "value": math.nan, "devices": devices}


def first(state: State, answer: Answer) -> State:
    """A first, careful step."""
    size, far = norm(answer.sum), max(1.0, norm(state.x))
    seen = 2.0 ** (-26 if state.x.itemsize > 4 else -10) * far
    step = FIRST * min(max(abs(answer.value) / size, seen), far) / size if size else 0.0
    return onward(replace(state, value=answer.value), answer.sum, step)


def unmoved(state: SecantState, s: Vector) -> bool:
    """Is s = x - x^k too short for a difference of gradients to mean anything in this precision?"""
    return norm(s) <= 2.0 ** (-40 if state.x.itemsize > 4 else -18) * norm(state.x)


def seen(state: SecantState, answer: Answer) -> tuple[Vector, Vector] | None:
    """(s, y) between x^k and the point tried; None where nothing can be measured, and :func:`stay` is what to do."""
    if math.isnan(answer.value) or not state.started:
        return None
    s = state.x - state.base
    return None if unmoved(state, s) else (s, answer.sum - state.gradient)


def stay(state: State, answer: Answer, **forgotten: Any) -> State:
    """Nothing was measured: ask again if nobody came, else a first step, or the last one again.

    ``forgotten`` are fields to set where somebody came.
    """
    if math.isnan(answer.value):
        return replace(state, k=state.k + 1)
    state = replace(state, **forgotten)
    if state.started and state.step > 0:
        return onward(replace(state, value=answer.value), answer.sum, state.step)
    return first(state, answer)


def passes(state: SecantState, change: float, step: float) -> bool:
    """Does f(x^{k+1}) - f(x^k) = ``change`` pass the test? To rounding, or no run could end."""
    needed = min(step, 1 / state.largest if state.largest else math.inf) * norm(state.gradient) ** 2 / 2
    rounding = 2.0 ** (-50 if state.x.itemsize > 4 else -20) * abs(state.value)
    return change <= state.slack - needed + rounding


def retreat(state: State) -> State:
    """Back to x^k and a shorter step from there."""
    largest = state.largest if state.step * state.largest > 1 else 2 / state.step
    x = state.base - (1 / largest) * state.gradient
    return replace(state, x=x, k=state.k + 1, step=1 / largest, largest=largest)


def keep(state: State, change: float, gradient: Vector, L: float) -> State:
    """Go on from the point tried, by grad f / L (and by twice the last step where L is 0: nothing curves)."""
    past = MEMORY * state.count
    slack = max(0.0, past / (past + 1) * (state.slack - change))
    state = replace(state, value=state.value + change, slack=slack, count=past + 1)
    return onward(state, gradient, 1 / L if L > 0 else 2 * state.step)


def onward(state: State, gradient: Vector, step: float) -> State:
    """X - t grad f."""
    x = state.x - step * gradient
    return replace(state, x=x, base=state.x, gradient=gradient, k=state.k + 1, step=step)


def secant(s: Vector, y: Vector) -> float:
    """||y||^2 / <s, y>: at most L for convex f; ||y||/||s|| where f curves downwards along s."""
    along = float(s @ y)
    return float(y @ y) / along if along > 0 else norm(y) / norm(s)
