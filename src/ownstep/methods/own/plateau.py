"""The default switch: it needs no tuning, no extra gradient and no second sum."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ownstep.methods.base import Vector
from ownstep.methods.own.switch import Watch
from ownstep.plan import Devices

LOCAL_SHARE, PROBE_SHARE = 4, 8
"""A local stretch lasts a quarter of the rounds so far, the probe after it an eighth."""


@dataclass(frozen=True)
class Plateau:
    """Switch once common rounds, tried for a moment, lower f much faster than local ones do.

    After every stretch of local rounds come a few common ones, a *probe*. They are steps like any other, so
    they cost nothing extra. The second half of each measures how much a round lowers f:

        switch when    (decrease of a common round)  >  (L_max / L_min) (decrease of a local round),

    and the common rounds did lower f.

    Why this factor: the local phase minimises the reweighted loss sum_i w_i f_i / L_i. Let P be its Hessian and H that
    of f, so that H <= L_max P. While the devices' disagreement does not matter yet, a local round lowers f by
    <grad f, P H^-1 grad f> >= ||grad f||^2 / L_max (for commuting H and P). A common round lowers it by at most
    ||grad f||^2 / L_bar, so it is at most L_max / L_bar times as good. A larger ratio proves that the common rounds are
    repairing the local phase's bias. Some of that can wait, as it can be repaired at any time. A local round may be
    worth up to L_bar / L_min common ones, and the product is L_max / L_min. The rule sees only f, the one number the
    server receives with every sum.

    Where devices are absent, f is the mean over those that take part. It jumps with them, and the rule may switch after
    a few rounds. On a loss that is not convex own steps may raise f for a while, and it switches then. That costs the
    local phase, not convergence. :class:`~ownstep.methods.At` does not use f.
    """

    def begin(self) -> Watch:
        """Begin with a stretch of six local rounds."""
        return Watch(memory=(0, 6, math.nan, math.nan))

    def observe(self, watch: Watch, k: int, move: Vector, value: float, devices: Devices) -> Watch:
        """Record round k. At the end of a stretch change to the other kind of round, or switch."""
        start, length, mark, local_rate = watch.memory
        at = k - 1 - start
        if at < length - 1:
            return replace(watch, memory=(start, length, value if at == length // 2 else mark, local_rate))
        rate = (mark - value) / (length - 1 - length // 2)
        if not watch.probing:
            probe = max(3, k // PROBE_SHARE)
            return replace(watch, probing=True, memory=(k, probe, math.nan, rate))
        spread = float(devices.L.max() / devices.L.min())
        if rate > 0 and rate > spread * local_rate:
            why = f"a common round lowers f by {rate:.3g}, a local one by {local_rate:.3g}"
            return Watch(fired=k, why=why)
        return replace(watch, probing=False, memory=(k, max(6, k // LOCAL_SHARE), math.nan, math.nan))
