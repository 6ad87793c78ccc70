"""What is asked of a worst case over networks or with local steps, in the caller's units or in canonical ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.engines.participation import Bernoulli, Cohort
from ownstep.methods.base import Method
from ownstep.methods.gossip.peers import Peers
from ownstep.pep.networks.spectral import Spectral
from ownstep.pep.trace.units import AS_GIVEN, Units, measured, units_of
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput, unknown_name

Array = NDArray[np.float64]

NETWORK_METRICS = {
    "value": "f(x) - f(x*) at the mean of the devices' points x_i^K, with f = sum_i w_i f_i",
    "distance": "||x - x*||^2 at the mean of the devices' points",
    "gradient": "||grad f(x)||^2 at the mean of the devices' points",
    "value_average": "f(x) - f(x*) at the mean over the devices and the iterates 0, ..., K",
    "distance_average": "||x - x*||^2 at the mean over the devices and the iterates 0, ..., K",
    "value_worst": "f(x_i^K) - f(x*) of the worst device i",
    "distance_worst": "||x_i^K - x*||^2 of the worst device i",
    "distance_devices": "1/N sum_i ||x_i^K - x*||^2",
    "consensus": "1/N sum_i ||x_i^K - mean||^2",
}

STARTS = {
    "same": "all devices start at one x^0, ||x^0 - x*|| <= r0",
    "ball": "device i starts at a point of its own, ||x_i^0 - x*|| <= r0",
    "mean": "device i starts at a point of its own, 1/N sum_i ||x_i^0 - x*||^2 <= r0^2",
}


@dataclass(frozen=True)
class Start:
    """What is known of the devices before the first round, beside r0 and rstar.

    Parameters
    ----------
    points : a name of :data:`STARTS`.
    gradients : a bound G on the gradients at x*, 1/N sum_i ||N w_i grad f_i(x*)||^2 <= G^2.
    trackers : a bound T on how the first gradients differ, 1/N sum_i ||N w_i grad f_i(x_i^0) - their mean||^2 <= T^2.
        Gradient tracking starts with these as its trackers.
    """

    points: str = "same"
    gradients: float | None = None
    trackers: float | None = None

    def __post_init__(self) -> None:
        if self.points not in STARTS:
            raise unknown_name("start", self.points, STARTS)
        for name in ("gradients", "trackers"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, Real) and 0 < float(value) < math.inf):
                raise InvalidInput(f"the bound on the {name} must be positive and finite, got {value!r}")


@dataclass(frozen=True, eq=False)
class Question:
    """Everything a worst case depends on; all but the method is in ``units`` of the caller's.

    The method keeps its own numbers, so it is told devices, and gradients, in the caller's unit of curvature. Lengths
    need no such care: a linear method scales with its start.

    Parameters
    ----------
    subgradients : bounds on the devices' subgradients; the losses are only convex then, and the devices' L say no more
        than how large things are.
    """

    method: Method
    devices: Devices
    rounds: int
    r0: float
    rstar: float
    metric: str
    network: Spectral | None = None
    start: Start = Start()
    schedule: NDArray[np.bool_] | None = None
    missing: str | None = None
    chance: Bernoulli | Cohort | None = None
    subgradients: Array | None = None
    units: Units = AS_GIVEN

    @property
    def told(self) -> Devices:
        """The devices as the method knows them."""
        return measured(self.devices, self.units.curvature)

    @property
    def tilted(self) -> bool:
        """May the devices' gradients at x* differ?"""
        return len(self.devices) > 1 or (self.network is not None and self.network.any_number)

    @property
    def length(self) -> float:
        """How large vectors are, before anything is known: the larger of the radii that bound them."""
        return max(self.r0, self.rstar if self.own else 0.0)

    @property
    def own(self) -> bool:
        """Do the devices' own minimisers matter?"""
        return 0 < self.rstar < math.inf


def canonical_question(asked: Question) -> Question:
    """The same question in canonical units; every number but the method's is moved by powers of two."""
    units = units_of(asked.devices.L, asked.r0, asked.rstar, asked.metric)
    return _moved(asked, 1 / units.curvature, 1 / units.length, units)


def callers_question(asked: Question) -> Question:
    """The same question in the caller's units, as it was asked."""
    return _moved(asked, asked.units.curvature, asked.units.length, AS_GIVEN)


def _moved(asked: Question, a: float, b: float, units: Units) -> Question:
    """Curvature a times and lengths b times as large."""
    start = asked.start
    bounds = {name: getattr(start, name) for name in ("gradients", "trackers")}
    fresh: Any = {name: None if bound is None else a * b * bound for name, bound in bounds.items()}
    moved = replace(asked, devices=measured(asked.devices, a), start=replace(start, **fresh), units=units)
    steep = None if asked.subgradients is None else a * b * asked.subgradients
    return replace(moved, r0=b * asked.r0, rstar=b * asked.rstar, subgradients=steep)


def marks_of(asked: Question) -> Array | None:
    """What tells devices with the same constants apart: when they take part, or their places in a given network."""
    if asked.network is None and isinstance(asked.method, Peers):
        return np.arange(len(asked.devices), dtype=float)[:, None]
    return None if asked.schedule is None else asked.schedule.T.astype(float)


def check_question(asked: Question) -> None:
    """Refuse what cannot be meant, before anything is solved."""
    if asked.metric not in NETWORK_METRICS:
        raise unknown_name("metric", asked.metric, NETWORK_METRICS)
    n, network = len(asked.devices), asked.network
    if network is not None and n < 2 and not network.any_number:
        raise InvalidInput(
            "a network needs two devices or more; Spectral(..., any_number=True) leaves their number open"
        )
    if asked.metric.endswith("_worst") and network is not None and network.any_number:
        raise InvalidInput("the worst device depends on how many there are: leave out any_number and give all devices")
    bounded = [asked.start.gradients, asked.start.trackers, asked.subgradients]
    if math.isinf(asked.rstar) and all(bound is None for bound in bounded):
        raise InvalidInput(
            "rstar=inf bounds nothing that keeps the devices' losses together: give a finite rstar, or "
            "start=Start(gradients=...) or Start(trackers=...)"
        )
    if (asked.schedule is not None or asked.chance is not None) and network is not None:
        raise InvalidInput("absent devices change the mixing matrix: a schedule is for methods with a server")
    if asked.subgradients is None:
        return
    if asked.metric == "gradient":
        raise InvalidInput("losses that are only convex have many subgradients at a point: ask for values or distances")
    if asked.chance is not None:
        raise InvalidInput("a mean over schedules is followed for smooth losses: give one schedule")
