"""Own steps without any constant: every device measures its own curvature during the run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from ownstep.methods.base import Answer, Ask, Progress, Vector, norm
from ownstep.methods.own.own_step import OwnStep
from ownstep.methods.own.switch import Watch
from ownstep.methods.pooled.safeguard import SecantState, begin, keep, passes, retreat, secant, seen, stay
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput

FADE, TURN, CHANCES, WORTHWHILE = 0.5, 0.25, 3, 1.05
"""The share of a device's last curvature below which the next is not believed; the share of its first size, relative to
grad f, at which the own sum is used up; own steps that may fail; the predicted gain below which none are tried."""


@dataclass(frozen=True, eq=False)
class AdaptiveState(SecantState):
    """State with the devices' curvatures, the coefficients w_i / L_i, the sum s at x^k, and its first size."""

    own: Vector = field(kw_only=True, repr=False)
    curvature: tuple[float, ...] = field(default=(), repr=False)
    mix: tuple[float, ...] = field(default=(), repr=False)
    size: float = field(default=math.nan, repr=False)
    alpha: float = 0.0
    failed: int = field(default=0, repr=False)
    rise: float = field(default=0.0, repr=False)
    watch: Watch = field(default_factory=Watch, repr=False)


@dataclass(frozen=True)
class AdaptiveOwnStep(OwnStep):
    """``OwnStep(smoothness="adaptive")``: Algorithm 1 with the curvature L_i^k each device measures between two rounds.

        local phase    x^{k+1} = x^k - alpha_k s,                s = sum_i (w_i / L_i) grad f_i(x^k)
        common phase   x^{k+1} = x^k - grad f(x^k) / L^k,        L^k = min( secant of grad f, sum_i w_i L_i )

    L_i is the larger of L_i^k and half of what it was before, and is held fixed for a local phase. alpha_k >= 1 is the
    Barzilai-Borwein step of the sum s. Every local round brings both s and grad f. The local phase minimises
    sum_i w_i f_i / L_i and drives s to 0, but not grad f. It ends once s has shrunk to a quarter of its share of
    grad f, or after three own steps that failed.

    Every point passes the test of :mod:`ownstep.methods.pooled.safeguard`, or the method returns to the last one. So
    gradient descent's bound holds up to its constant. In full rounds of convex f_i L^k is the pooled secant, by
    Jensen's inequality. Otherwise that may be noise, and the devices' mean is used, in M too: for convex f_i it is at
    most L-bar, else unbounded. Where participants change, the test uses the devices that answered twice in a row, and
    proves nothing about f. With mini-batches there is no test, and the method ends in a noise ball.

    The ``switch`` of Algorithm 1 is not used, and of ``devices`` only the weights.
    """

    constant_free: ClassVar[bool] = True

    def start(self, x0: Vector, devices: Devices) -> AdaptiveState:  # type: ignore[override]
        """Begin at x0 without any measurement."""
        return AdaptiveState(**begin(x0, devices.reweighted(self.weights)), own=0.0 * x0)

    def ask(self, state: AdaptiveState) -> Ask:  # type: ignore[override]
        """Ask for grad f, every curvature, and in the local phase the sum s."""
        also = np.array(state.mix) if state.mix else None
        return Ask(state.x, state.devices.weights, also=also, curvature=True)

    def tell(self, state: AdaptiveState, answer: Answer) -> AdaptiveState:  # type: ignore[override]
        """Keep the point and take the next step, or go back and take a shorter one."""
        if (found := seen(state, answer)) is None:
            return stay(state, answer, rise=0.0, alpha=0.0)
        s, y = found
        L, mean = _curvatures(state, answer)
        pooled, again = secant(s, y), state.rise != 0  # tried again, from where the devices' last measurement was not
        trusted = answer.present is None and (again or pooled <= (1 + 1e-9) * mean)
        if not trusted and math.isinf(mean):  # nobody has answered twice yet
            return stay(state, answer, rise=0.0)
        largest = max(state.largest, norm(y) / norm(s) if trusted else mean)
        state = replace(state, curvature=tuple(L), largest=largest)
        change = state.rise + answer.value - answer.previous
        if not math.isnan(answer.previous) and not passes(state, change, state.step):
            return _back(replace(state, rise=change))
        L_common = min(pooled, 2 * largest) if trusted else mean
        kept = keep(replace(state, rise=0.0, alpha=0.0), 0.0 if math.isnan(change) else change, answer.sum, L_common)
        if kept.watch.fired is not None or np.isnan(L).any():
            return kept
        return _own(kept, s, answer) if state.mix else _begin(kept)

    def point(self, state: AdaptiveState) -> Vector:  # type: ignore[override]
        """The point tried. A point that is not kept costs a round too."""
        return state.x

    def progress(self, state: AdaptiveState) -> Progress:  # type: ignore[override]
        """Phase (``probe`` for common rounds before the switch), and the mean step that led to x."""
        phase = "local" if state.alpha else "probe" if state.watch.fired is None else "common"
        return Progress(phase, state.alpha * sum(state.mix) if state.alpha else state.step)


def _curvatures(state: AdaptiveState, answer: Answer) -> tuple[Any, float]:
    """(L_i, nan where nothing is known yet; their mean over those that are known)."""
    if answer.curvature is None:
        raise InvalidInput("adaptive own steps need an engine whose devices measure their curvature (Ask.curvature)")
    old = np.array(state.curvature or [math.nan] * len(state.devices))
    L = np.where(np.isnan(answer.curvature), old, np.fmax(answer.curvature, FADE * old))
    w = np.where(np.isnan(L), 0.0, state.devices.weights)
    return L, float(w @ np.nan_to_num(L) / w.sum()) if w.any() else math.inf


def _begin(state: AdaptiveState) -> AdaptiveState:
    """From now on the own sum is asked for, if it promises anything."""
    devices = replace(state.devices, L=np.array(state.curvature), mu=np.zeros(1))
    if devices.gain < WORTHWHILE:
        return replace(state, watch=Watch(state.k, f"the devices curve alike: a gain of {devices.gain:.3f}"))
    return replace(state, mix=tuple(devices.weights / devices.L), size=math.nan)


def _own(state: AdaptiveState, s: Vector, answer: Answer) -> AdaptiveState:
    """An own step, or the end of the local phase."""
    share = norm(answer.also) / (norm(answer.sum) or 1.0)
    if share < TURN * state.size:
        return replace(state, mix=(), watch=Watch(state.k, "the own sum has vanished beside grad f"))
    unknown = math.isnan(state.size) or answer.present is not None
    alpha = 1.0 if unknown else max(1.0, 1 / secant(s, answer.also - state.own))
    x = state.base - alpha * answer.also
    return replace(state, x=x, own=answer.also, alpha=alpha, size=share if math.isnan(state.size) else state.size)


def _back(state: AdaptiveState) -> AdaptiveState:
    """The point did not pass: a common step from the last one, and other coefficients for the next own ones."""
    if not state.alpha:
        return retreat(state)
    failed, x = state.failed + 1, state.base - state.step * state.gradient
    watch = state.watch if failed < CHANCES else Watch(state.k, f"{failed} own steps failed")
    return replace(state, x=x, k=state.k + 1, alpha=0.0, mix=(), failed=failed, watch=watch)
