"""Worst cases of many different devices: enclosed between two small programs, with more kinds until effort ends.

Neither end needs the N devices apart: see :mod:`ownstep.pep.trace.kinds` for what the two programs are and why their
ends are ends for the N devices. Here they are solved, for more and more kinds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ownstep.pep.conditions.assemble import Conditions
from ownstep.pep.conditions.cuts import broken
from ownstep.pep.search import MANY_EFFORT, Proved, Search
from ownstep.pep.solve import interior
from ownstep.pep.solve.candidate import Candidate
from ownstep.pep.solve.sdp import Solution
from ownstep.pep.trace.kinds import Line, above, below, line, places
from ownstep.pep.trace.units import Setting
from ownstep.support.errors import InternalError, OwnstepError

Array = NDArray[np.float64]

EXACT = 1.0
"""Part of the effort up to which every device is kept apart: see :func:`work`."""

EFFORT = 1.8
"""Work on all kinds together, for an effort of one."""

GENERAL_EFFORT = 1e6
"""Work on one program that the general solver may have (:func:`~ownstep.pep.solve.interior.general_work`)."""

LADDER = (2, 3, 5, 8, 11, 15, 20)
"""How many kinds to try, one after the other."""

PART = 0.02
"""Each program is solved to this part of the width that was there before it."""


class Above(Search):
    """A search for a proof alone: the instances of its program are none of the devices asked about."""

    excess = gain = math.inf

    def _solve(self, rows: Conditions) -> Solution:
        before = math.inf if self.best is None else self.best.proof.bound
        found = super()._solve(rows)
        assert self.best is not None
        self.excess = max(float(part.max(initial=0.0)) for part in broken(self.gram, found))
        self.gain = before / self.best.proof.bound - 1
        return found

    def _replay(self, found: Solution) -> None:
        """Leave instances alone."""

    def _polish(self, found: Solution, tolerance: float) -> None:
        """Leave instances alone."""

    def _insist(self, tolerance: float) -> None:
        """Any proof will do."""

    def gap(self) -> float:
        """By how much conditions are broken that were left out, or what the last ones were worth, if that is less."""
        return min(self.excess, self.gain)


@dataclass(frozen=True, eq=False)
class Few:
    """What a few kinds say about many devices, in canonical units.

    Parameters
    ----------
    lower, worst : the largest error of an instance of the devices, and that instance.
    upper : the smallest bound, with its proof.
    nodes : the ratios of the kinds that it is about, one row per round.
    kinds : how many there were at most.
    solves : calls of the solver.
    """

    lower: float
    worst: Candidate | None
    upper: Proved
    nodes: Array
    kinds: int
    solves: int

    @property
    def gap(self) -> float:
        """Relative width."""
        return (self.upper.proof.bound - self.lower) / self.upper.proof.bound


def work(rounds: int, groups: int, local_optima: bool) -> float:
    """How much work one program is, as a part of an effort of one; programs of many groups are solved twice."""
    size = (rounds, groups, local_optima)
    if interior.suits(*size):
        return 2.5 * float(interior.core(*size)) ** 3 / MANY_EFFORT
    return interior.general_work(*size) / GENERAL_EFFORT


def columns(rounds: int, groups: int, local_optima: bool) -> int:
    """How many columns the whole program has: x^0, a gradient for each device and point, tilts and minimisers."""
    return 1 + (rounds + 1) * groups + (2 * groups - 1 if local_optima else 0)


def on_line(search: Search, effort: float) -> Line | None:
    """The line of the devices' ratios, where there are too many devices to keep them apart and a line exists."""
    size = (search.path.rounds, len(search.groups), search.local_optima)
    if len(search.groups) < interior.GROUPS or work(*size) <= EXACT * max(effort, 1.0):
        return None  # a few devices are a few kinds already, however many rounds there are
    if not (search.devices.mu < search.devices.L).all():
        return None  # quadratics share no function with others
    return line(search.path, search.devices)


def enclose(
    search: Search,
    on: Line,
    tolerance: float,
    effort: float = 1.0,
    patience: float | None = None,
    most: int = LADDER[-1],
    progress: Callable[[int, float], None] | None = None,
) -> Few:
    """Both ends for more and more kinds, until they are ``tolerance`` apart or effort is spent.

    Parameters
    ----------
    search : one that was not run; what it asks is asked here.
    most : no more kinds than this.
    progress : called with the number of kinds and the width after each of them.
    """
    began, asked, spent = time.perf_counter(), search.asked, 0.0
    best: Few | None = None
    for kinds in LADDER:
        spent += 2 * work(asked.path.rounds, kinds, search.local_optima)
        late = patience is not None and time.perf_counter() - began > patience
        if best is not None and (kinds > most or spent > effort * EFFORT or best.gap <= tolerance or late):
            break
        left = None if patience is None else max(patience - (time.perf_counter() - began), 0.0)
        try:
            best = _rung(asked, on, kinds, search.local_optima, tolerance, left, best)
        except OwnstepError:
            if best is None:
                raise
            break  # what was proved with fewer kinds stands
        if progress is not None:
            progress(kinds, best.gap)
    assert best is not None
    return best


def _rung(
    asked: Setting, on: Line, kinds: int, local_optima: bool, tolerance: float, patience: float | None, best: Few | None
) -> Few:
    """Both ends for so many kinds; the better ones are kept."""
    began = time.perf_counter()
    accuracy = max(tolerance, PART * (1.0 if best is None else best.gap))
    nodes, label = places(on.t, asked.devices.weights, kinds)
    setting, groups = above(asked, on, nodes, local_optima=local_optima)
    upper = Above(setting, groups=groups)
    upper.prepare(patience)
    upper.run(accuracy, patience=patience)
    left = None if patience is None else max(patience - (time.perf_counter() - began), 0.0)
    lower = Search(asked, groups=below(asked, label, local_optima=local_optima))
    lower.prepare(left)
    lower.run(accuracy, patience=left)
    assert upper.best is not None
    solves = upper.solves + lower.solves
    proved, ratios, error, worst = upper.best, on.at(nodes), lower.lower, lower.worst
    if best is not None:
        solves += best.solves
        if best.upper.proof.bound < proved.proof.bound:
            proved, ratios = best.upper, best.nodes
        if best.lower > error:
            error, worst = best.lower, best.worst
    if error > proved.proof.bound:
        raise InternalError(f"an instance errs by {error!r} and a proof says at most {proved.proof.bound!r}")
    return Few(error, worst, proved, ratios, kinds, solves)
