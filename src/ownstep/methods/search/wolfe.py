"""The line search of More and Thuente (1994), one trial at a time, as L-BFGS-B uses it.

A search along x + t p, with phi(t) = f(x + t p), ends at a t that satisfies the strong Wolfe conditions

    phi(t) <= phi(0) + 1e-3 t phi'(0),        |phi'(t)| <= 0.9 |phi'(0)|.

Near a minimum f cannot be told apart from its neighbours in floating point; a few units of rounding are forgiven, so
that slopes decide there. All state is in a frozen dataclass of numbers, so that a search survives a checkpoint.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

DECREASE, SLOPE, NARROW, MOST = 1e-3, 0.9, 0.1, 20
"""Of the two conditions; the relative width at which a bracket is narrow enough; trials in one search at most."""


@dataclass(frozen=True)
class End:
    """One end of the interval in which the search looks: t, phi(t) and phi'(t)."""

    t: float = 0.0
    value: float = math.nan
    slope: float = 0.0

    def tilted(self, by: float) -> End:
        """The same end for phi(t) - by t."""
        return End(self.t, self.value - self.t * by, self.slope - by)


@dataclass(frozen=True)
class Search:
    """Where a search stands; ``step`` is the t to try next.

    Parameters
    ----------
    start : t = 0.
    best, other : the end with the least value, and the other one.
    bracketed : is there a minimiser between them?
    lifted : has a t with enough decrease and a slope of at least 0 been seen (stage 2 of the paper)?
    width, width_before : of the bracket, now and one trial ago.
    lower, upper : the t allowed next.
    rounding : differences of f up to this mean nothing.
    done : "" while it goes on, then "found" or "failed".
    """

    step: float = 0.0
    start: End = End()
    best: End = End()
    other: End = End()
    bracketed: bool = False
    lifted: bool = False
    width: float = math.inf
    width_before: float = math.inf
    lower: float = 0.0
    upper: float = math.inf
    rounding: float = 0.0
    tries: int = 0
    done: str = ""

    @classmethod
    def begin(cls, value: float, slope: float, step: float, rounding: float) -> Search:
        """Search along a ray of slope phi'(0) < 0, first at t = step."""
        end = End(0.0, value, slope)
        return cls(step, end, end, end, upper=5 * step, rounding=rounding)

    def seen(self, value: float, slope: float) -> Search:
        """The search after phi(step) and phi'(step) are known."""
        tries = self.tries + 1
        if not (math.isfinite(value) and math.isfinite(slope)):  # too far for the arithmetic
            step = self.best.t + 0.1 * (self.step - self.best.t)
            return replace(self, tries=tries, step=step, done="failed" if tries >= MOST else "")
        trial, tilt = End(self.step, value, slope), DECREASE * self.start.slope
        enough = value <= self.start.value + self.step * tilt + self.rounding
        if enough and abs(slope) <= SLOPE * -self.start.slope:
            return replace(self, tries=tries, done="found")
        narrow = self.bracketed and (
            not self.lower < self.step < self.upper or self.upper - self.lower <= NARROW * self.upper
        )
        if narrow or tries >= MOST:
            return replace(self, tries=tries, done="found" if enough and self.step > 0 else "failed")
        self = replace(self, tries=tries, lifted=self.lifted or (enough and slope >= 0))
        if not self.lifted and value <= self.best.value and not enough:
            best, other, trial = self.best.tilted(tilt), self.other.tilted(tilt), trial.tilted(tilt)
            best, other, step, bracketed = _safeguarded(best, other, trial, self.bracketed, self.lower, self.upper)
            best, other = best.tilted(-tilt), other.tilted(-tilt)
        else:
            best, other, step, bracketed = _safeguarded(
                self.best, self.other, trial, self.bracketed, self.lower, self.upper
            )
        return self._narrowed(best, other, step, bracketed)

    def _narrowed(self, best: End, other: End, step: float, bracketed: bool) -> Search:
        width, before = self.width, self.width_before
        if not bracketed:
            lower, upper = step + 1.1 * (step - best.t), step + 4 * (step - best.t)
            return replace(self, step=step, best=best, other=other, lower=lower, upper=upper)
        if abs(other.t - best.t) >= 0.66 * before:
            step = best.t + 0.5 * (other.t - best.t)
        width, before = abs(other.t - best.t), width
        lower, upper = min(best.t, other.t), max(best.t, other.t)
        if not lower < step < upper or upper - lower <= NARROW * upper:
            step = best.t
        return replace(
            self, step=step, best=best, other=other, bracketed=True, lower=lower, upper=upper, width=width,
            width_before=before,
        )  # fmt: skip


def _safeguarded(
    best: End, other: End, trial: End, bracketed: bool, lower: float, upper: float
) -> tuple[End, End, float, bool]:
    """(best, other, next step, bracketed): the four cases of More and Thuente, section 4 (``dcstep`` of MINPACK-2)."""
    t, sign = trial.t, math.copysign(1.0, best.slope) * trial.slope
    far = t - best.t
    if trial.value > best.value:  # a minimum is bracketed
        cubic, secant = _cubic(best, trial), _quadratic(best, trial)
        step = cubic if abs(cubic - best.t) <= abs(secant - best.t) else cubic + (secant - cubic) / 2
        return best, trial, step, True
    if sign < 0:  # bracketed too, and the trial is the better end
        cubic, secant = _cubic(trial, best), _secant(best, trial)
        return trial, best, cubic if abs(cubic - t) > abs(secant - t) else secant, True
    if abs(trial.slope) < abs(best.slope):  # the slope flattens: extrapolate with care
        cubic, secant = _cubic_beyond(best, trial, lower, upper), _secant(best, trial)
        if bracketed:
            step = cubic if abs(cubic - t) < abs(secant - t) else secant
            limit = t + 0.66 * (other.t - t)
            step = min(limit, step) if far > 0 else max(limit, step)
        else:
            step = cubic if abs(cubic - t) > abs(secant - t) else secant
            step = max(lower, min(upper, step))
        return trial, other, step, bracketed
    if bracketed:
        return trial, other, _cubic(trial, other), True
    return trial, other, upper, False  # without a bracket the trials only go up


def _terms(a: End, b: End) -> tuple[float, float, float]:
    theta = 3 * (a.value - b.value) / (b.t - a.t) + a.slope + b.slope
    scale = max(abs(theta), abs(a.slope), abs(b.slope)) or 1.0
    under = (theta / scale) ** 2 - (a.slope / scale) * (b.slope / scale)
    return theta, scale, under


def _cubic(a: End, b: End) -> float:
    """The minimiser of the cubic through both ends, seen from a."""
    theta, scale, under = _terms(a, b)
    gamma = math.copysign(scale * math.sqrt(max(0.0, under)), b.t - a.t)
    below = 2 * gamma - a.slope + b.slope
    return a.t + (gamma - a.slope + theta) / below * (b.t - a.t) if below else (a.t + b.t) / 2


def _cubic_beyond(best: End, trial: End, lower: float, upper: float) -> float:
    """The minimiser of the cubic beyond the trial, or the end of what is allowed where it has none."""
    theta, scale, under = _terms(best, trial)
    gamma = -math.copysign(scale * math.sqrt(max(0.0, under)), trial.t - best.t)
    below = gamma + (best.slope - trial.slope) + gamma
    ratio = (gamma - trial.slope + theta) / below if below else 0.0
    if ratio < 0 and gamma != 0:
        return trial.t + ratio * (best.t - trial.t)
    return upper if trial.t > best.t else lower


def _quadratic(a: End, b: End) -> float:
    """The minimiser of the parabola through both values and a's slope."""
    return a.t + a.slope / ((a.value - b.value) / (b.t - a.t) + a.slope) / 2 * (b.t - a.t)


def _secant(a: End, b: End) -> float:
    """The zero of the line through both slopes."""
    return b.t + b.slope / (b.slope - a.slope) * (a.t - b.t)
