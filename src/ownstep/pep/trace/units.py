r"""Canonical units: the largest L_i and the larger radius near one, whatever units the caller measures in.

With x = b x', f = a b^2 f' (so L = a L' and gradients are a b times their own) the same method has steps a times as
long, and its worst case is a b^2, b^2 or a^2 b^2 times as large for values, distances and gradients. Both a and b are
powers of two: nothing is rounded on the way there or back.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ownstep.pep.trace.symbolic import Trace
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput

Array = NDArray[np.float64]

SPAN = 1e12
"""Constants, or radii, further apart than this are refused: doubles do not hold such a problem."""


@dataclass(frozen=True)
class Units:
    """What one unit of curvature and of length stands for; both are powers of two."""

    curvature: float
    length: float

    def metric(self, name: str) -> float:
        """What one unit of a metric stands for; its name may go on after what is measured, as in ``value_worst``."""
        power = {"value": 1, "distance": 0, "gradient": 2, "consensus": 0}[name.partition("_")[0]]
        return self.curvature**power * self.length**2


AS_GIVEN = Units(1.0, 1.0)
"""The caller's own."""


@dataclass(frozen=True, eq=False)
class Setting:
    """What a worst case is asked of: a traced method, its devices, the radii and the metric."""

    path: Trace
    devices: Devices
    r0: float
    rstar: float
    metric: str


def canonical(asked: Setting) -> tuple[Setting, Units]:
    """The same setting in canonical units, and these; refuses what :func:`units_of` does."""
    d = asked.devices
    units = units_of(d.L, asked.r0, asked.rstar, asked.metric)
    path = _carried(asked.path, len(d), units.curvature)
    small = measured(d, 1 / units.curvature)
    return Setting(path, small, asked.r0 / units.length, asked.rstar / units.length, asked.metric), units


def units_of(L: Array, r0: float, rstar: float, metric: str) -> Units:
    """Units in which the largest L_i and the larger radius are near one.

    Raises
    ------
    InvalidInput
        Where the constants or the radii are too far apart, or the error would leave the range of doubles.
    """
    curvature = curvature_of(L)
    far = rstar if math.isfinite(rstar) and rstar > 0 else r0
    if max(far, r0) > SPAN * min(far, r0):
        raise InvalidInput(f"r0 and rstar may be up to a factor of {SPAN:g} apart, got {r0:g} and {far:g}")
    try:
        units = Units(curvature, power(max(far, r0)))
        sizes = [units.metric(metric), units.metric("value")]
    except OverflowError:
        sizes = [math.inf]
    if not all(sys.float_info.min * SPAN**4 < size < sys.float_info.max / SPAN**4 for size in sizes):
        raise InvalidInput(
            f"errors of functions with L={L.max():g} at a radius of {max(far, r0):g} leave the range of doubles; "
            "choose other units"
        )
    return units


def curvature_of(L: Array) -> float:
    """The unit of curvature alone; refuses L_i that are too far apart."""
    if L.max() > SPAN * L.min():
        raise InvalidInput(
            f"the L_i may be up to a factor of {SPAN:g} apart, got {L.min():g} and {L.max():g}; leave out devices "
            "that are so flat or so curved, or bound them by a smaller class"
        )
    return power(float(L.max()))


def measured(devices: Devices, factor: float) -> Devices:
    """The same devices where curvature is ``factor`` times as large, a power of two."""
    pooled = None if devices.L_pooled is None else devices.L_pooled * factor
    return Devices(devices.weights, devices.L * factor, devices.mu * factor, devices.names, pooled)


def _carried(path: Trace, devices: int, curvature: float) -> Trace:
    """The trace where gradients are ``curvature`` times smaller, every mix near one and what it is told in proportion.

    Only the product of a mix and of the coefficient of its sum matters; powers of two move between them.
    """
    factors = [np.ones(1)]
    mixes: list[Array | None] = []
    for mix in path.mixes:
        if mix is None:
            mixes.append(None)
            factors.append(np.full(devices, curvature))
            continue
        largest = float(np.abs(mix).max())
        unit = power(largest) if largest > 0 else 1.0
        mixes.append(mix / unit)
        factors.append(np.array([curvature * unit]))
    scale = np.concatenate(factors)
    return Trace(tuple(a * scale for a in path.asks), tuple(mixes), tuple(p * scale for p in path.points))


def power(number: float) -> float:
    """The power of two next to a positive number."""
    return math.ldexp(1.0, round(math.log2(number)))
