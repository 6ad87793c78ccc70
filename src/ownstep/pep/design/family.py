r"""Descent in the steps: worst cases of a family of schedules, and the best way down from one.

The worst case of a schedule theta is min over multipliers lambda of a bound, such that the slack S(lambda, theta) is
positive semidefinite; the best schedule minimises over both. S is linear in lambda and, for small changes, in theta. So
each iteration solves the semidefinite program in (lambda, d theta) with

    S(lambda, theta) + sum_j d theta_j dS/dtheta_j  >= 0,        |d theta_j| <= reach,

evaluates the worst case at theta + d theta, and keeps what is better; the reach grows and shrinks with how well the
prediction was met. Unlike a descent along the gradient -<dS/dtheta, G> this sees *all* worst instances at once. At a
best schedule several tie: the worst case has a kink there, and no gradient.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.methods.own.schedule import Schedule
from ownstep.pep.conditions.assemble import Conditions, conditions, pack
from ownstep.pep.conditions.cuts import SMALL, Index, Pairs, all_pairs, core_pairs, hub_pairs
from ownstep.pep.conditions.gram import Gram, build
from ownstep.pep.design.slopes import Coefficients, coefficients, jacobian, slack_slopes
from ownstep.pep.search import CHEAP, FIRST
from ownstep.pep.solve.sdp import Limits, Objective, Solution, limits, objective, solve
from ownstep.pep.trace.symbolic import trace
from ownstep.pep.trace.symmetry import Group
from ownstep.plan import Devices
from ownstep.support.errors import OwnstepError

Array = NDArray[np.float64]

MARGIN, ACCURACY = 1e-8, 1e-7
"""Of the solves on the way; the worst case of what comes out is proved as any other."""

FIRST_REACH, LAST_REACH, SMALLEST_REACH = 0.1, 1.0, 1e-6
"""How far each parameter may move at first, at most, and where it is no use any more; scales are of order one."""


@dataclass(frozen=True, eq=False)
class Point:
    """A schedule, its worst case, and everything that its derivative needs."""

    theta: Array
    value: float
    at: Coefficients
    gram: Gram
    rows: Conditions
    target: Objective
    radii: Limits
    found: Solution


class Design:
    """Worst cases of one family of schedules, as a function of its parameters."""

    def __init__(
        self,
        family: Callable[[Array], Schedule],
        devices: Devices,
        rounds: int,
        r0: float,
        rstar: float,
        metric: str,
        deadline: float = math.inf,
    ) -> None:
        self.family, self.devices, self.rounds = family, devices, rounds
        self.r0, self.rstar, self.metric = r0, rstar, metric
        self.members = kinds(devices)
        self.solves, self.work, self.deadline = 0, 0.0, deadline

    def coefficients(self, theta: Array) -> Coefficients:
        """What the symbolic run of the schedule reads off."""
        return coefficients(trace(self.family(theta), self.devices, self.rounds), self.members)

    def evaluate(self, theta: Array) -> Point:
        """The worst case; an upper bound to it where not all conditions are used."""
        path = trace(self.family(theta), self.devices, self.rounds)
        at, d, tilted = coefficients(path, self.members), self.devices, self.rstar > 0
        groups = [
            Group(
                tuple(m), float(d.mu[m[0]]), float(d.L[m[0]]), float(d.weights[m].sum()), at.mixes[:, c],
                tilted and len(m) > 1,
            )
            for c, m in enumerate(self.members)
        ]  # fmt: skip
        gram = build(path, groups, self.r0, self.rstar, evaluate_final=self.metric != "distance", local_optima=tilted)
        target, radii = objective(gram, self.metric, True), limits(gram, self.r0, self.rstar)
        rows = conditions(gram, _pairs(gram, self.rounds))
        found = self._solve(gram, rows, target, radii)
        return Point(theta, float(found.limits.sum()) * target.size, at, gram, rows, target, radii, found)

    def _solve(self, gram: Gram, rows: Conditions, target: Objective, radii: Limits, **moves: Any) -> Solution:
        """One solve, unscaled if that works: faster, and accurate enough to descend by."""
        for scaling in (False, True):
            left = self.deadline - time.monotonic()
            if left <= 0:
                raise OwnstepError("time is up (patience)")
            self.solves += 1
            self.work += len(rows.pairs) * len(gram.columns)
            way = {"margin": MARGIN, "tolerance": ACCURACY, "scaling": scaling, "seconds": left} | moves
            try:
                return solve(gram, rows, target, radii, **way)
            except OwnstepError:
                if scaling:
                    raise
        raise AssertionError

    def slack_slopes(self, point: Point) -> Array:
        """dS/dtheta_j at the point's multipliers, packed."""
        changes = jacobian(self.coefficients, point.theta)
        multipliers = np.maximum(point.found.multipliers, 0.0)
        return slack_slopes(point.at, changes, point.gram, point.rows, point.target, multipliers, self.metric)

    def gradient(self, point: Point) -> Array:
        """The derivative of the worst case by theta, -<dS/dtheta, G>; where worst instances tie, a subgradient."""
        return np.asarray(-point.target.size * self.slack_slopes(point) @ pack(point.found.gram))

    def propose(self, point: Point, reach: float) -> tuple[Array, float]:
        """The change of parameters that is best while S is linear in them, and the worst case it promises."""
        slopes = self.slack_slopes(point)
        far = np.full(len(slopes), reach)
        found = self._solve(point.gram, point.rows, point.target, point.radii, slopes=slopes, reach=far)
        return found.moves, float(found.limits.sum()) * point.target.size


def descend(design: Design, path: list[Point], steps: int, tolerance: float, tick: Callable[[float], bool]) -> str:
    """Go down from the last point of ``path``, appending every better one; returns why it ended.

    Parameters
    ----------
    steps : semidefinite programs to propose a move with, at most.
    tolerance : relative gain, promised or made, below which to stop.
    tick : told the best value before every step; False ends the descent.
    """
    reach = FIRST_REACH
    for _ in range(steps):
        here = path[-1]
        if not tick(here.value):
            return "time is up"
        try:
            move, promised = design.propose(here, reach)
            new = design.evaluate(here.theta + move)
        except OwnstepError:
            promised, gained = 0.0, -1.0
        else:
            gained = here.value - new.value
        hoped = here.value - promised
        if gained > 0:
            path.append(new)
        if hoped <= tolerance * here.value:
            return f"no move promises a gain of {tolerance:g}"
        met = gained / hoped
        reach *= 2 if met > 0.7 else 1 if met > 0.3 else 0.5 if met > 0 else 0.25
        reach = min(reach, LAST_REACH)
        if reach < SMALLEST_REACH:
            return "no move keeps its promise"
    return f"{steps} steps done"


def kinds(devices: Devices) -> list[list[int]]:
    """Devices with the same weight, mu and L, which a design treats alike."""
    found: dict[tuple[float, float, float], list[int]] = {}
    for i in range(len(devices)):
        found.setdefault((devices.weights[i], devices.mu[i], devices.L[i]), []).append(i)
    return list(found.values())


def _pairs(gram: Gram, rounds: int) -> Index:
    every = all_pairs(gram)
    if len(every) <= SMALL or len(every) * len(gram.columns) <= CHEAP:
        return every
    pairs = Pairs(core_pairs(gram))
    pairs.add(hub_pairs(gram, gram.final_value or rounds))
    pairs.add(hub_pairs(gram, FIRST))
    return pairs.array()
