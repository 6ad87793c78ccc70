"""The default switch: it needs no tuning, no extra gradient and no second sum."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ownstep.methods.base import Vector
from ownstep.methods.switch import Watch
from ownstep.plan import Devices

FIRST_BLOCK = 5
GROWTH = 0.25
"""Blocks last a quarter of the rounds so far, so the switch is at most a quarter late."""


@dataclass(frozen=True)
class Plateau:
    r"""Switch once f falls by less, or by more, than the local moves can explain.

    Let d^k = sum_i w_i grad f_i(x^k) / L_i be the local move. If the devices shared one minimiser, then near
    it grad f = H e and d = P e with L_min P <= H <= L_max P, and a slow round lowers f by

        <grad f, d>   between   L_min ||d||^2   and   L_max ||d||^2        (for commuting H, P).

    Leaving that band means that the local phase is drawn to its own biased solution: below it, f no longer
    falls although the iterate still moves; above it, the iterate hardly moves although f could still fall.
    The rule sums both sides over a block of rounds and fires when

        f(x^s) - f(x^e)  <  (L_min / gain) sum ||d||^2     or     >  (L_max^2 / L_min) sum ||d||^2.

    The lower edge is relaxed by the gain, because each local round given up too early forfeits it; the upper
    one by L_max/L_min, because past it the ratio grows geometrically and lateness costs little. Both f and d
    are what the server receives anyway.
    """

    def begin(self) -> Watch:
        """No block is open before the first round."""
        return Watch()

    def observe(self, watch: Watch, k: int, move: Vector, value: float, devices: Devices) -> Watch:
        """Account for the k-th local round; at the end of a block, judge it."""
        if math.isnan(value):  # nobody answered this round
            return watch
        if not watch.memory:
            return replace(watch, memory=(k, value, float(move @ move)))
        first, at_first, moved = watch.memory
        if k < first + max(FIRST_BLOCK, int(first * GROWTH)):
            return replace(watch, memory=(first, at_first, moved + float(move @ move)))
        decrease = at_first - value
        low = devices.L.min() / devices.gain * moved
        high = devices.L.max() ** 2 / devices.L.min() * moved
        if low <= decrease <= high:
            return replace(watch, memory=(k, value, float(move @ move)))
        side, edge = ("less than the", low) if decrease < low else ("more than the", high)
        why = f"over rounds {int(first)} to {k} the loss fell by {decrease:.3g}, {side} {edge:.3g} of unbiased progress"
        return Watch(fired=k, why=why)
