"""The search for an enclosure: solve, check, add the conditions that were broken, until instance and proof meet."""

from __future__ import annotations

import math
import time

from ownstep.pep.conditions.assemble import Conditions, conditions
from ownstep.pep.conditions.cuts import SMALL, Pairs, all_pairs, core_pairs, hub_pairs, turning_points, worst_point
from ownstep.pep.conditions.gram import build
from ownstep.pep.proof.certificate import Proof, repair, slacks
from ownstep.pep.solve.exact import reached
from ownstep.pep.solve.parts import Candidate, recover
from ownstep.pep.solve.polish import polish
from ownstep.pep.solve.quadratic import worst_quadratic
from ownstep.pep.solve.sdp import LARGE, Solution, blocks, limits, objective, solve
from ownstep.pep.trace import symmetry as alike
from ownstep.pep.trace.units import Setting
from ownstep.support.errors import OwnstepError

TRIES = (
    (1e-9, False, True),
    (1e-9, True, True),
    (2e-9, True, False),
    (6e-9, False, True),
    (2e-8, True, True),
    (2e-8, True, False),
    (1e-7, False, True),
    (1e-7, True, False),
    (1e-6, False, True),
    (1e-6, True, False),
)
"""How the solver is called, the next one where an answer proves nothing: how far inside their sets solutions are asked
to be, whether the usual choice of its own scaling is turned round, and whether a banded slack is split."""

DENSE = 80
"""Columns up to which the slack may be left whole; beyond, that takes too long."""

EFFORT = 7e5
"""Conditions times columns, summed over the solves: beyond this no further solve is begun. Not seconds, so that a busy
machine gives the same digits."""

MOST_SOLVES = 6
"""Times to come back for more conditions at most; what is still missing then would take hundreds."""

LONG = 60
"""Rounds from which the core conditions alone are not tried: they are too weak there, and take seconds."""

STEPS = 10
"""Quadratic programs to polish an instance with, at most."""

LAST = -1
"""Stands for the last point among the hubs, as its number differs from one K to the next."""

FIRST = 1
"""The triple at x^0."""


NARROW = (1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5)
"""How far inside its class an instance is looked for, relative to L - mu."""


ENOUGH = 3e-6
"""Relative width at which twins that share a function need not be told apart."""


class Search:
    """One worst case in canonical units; what it found stays in its attributes.

    Parameters
    ----------
    asked : the setting, in canonical units.
    symmetry : False keeps every device apart, for checking.
    """

    def __init__(self, asked: Setting, symmetry: bool = True) -> None:
        self.began = time.perf_counter()
        self.asked, self.path, self.devices = asked, asked.path, asked.devices
        self.local_optima = asked.rstar > 0 and not alike.follows_weights(self.path, self.devices)
        self.groups = alike.groups(self.path, self.devices, local_optima=self.local_optima, symmetry=symmetry)
        self.solves = 0
        self.best: tuple[Proof, Conditions] | None = None
        self.worst: Candidate | None = None
        self.lower = 0.0
        self.narrow = 0
        self.tries = 0
        self.status = ""
        self.deadline = math.inf

    def prepare(self) -> None:
        """Write the semidefinite program down."""
        r0, rstar, metric = self.asked.r0, self.asked.rstar, self.asked.metric
        evaluate, optima = metric != "distance", self.local_optima
        self.gram = build(self.path, self.groups, r0, rstar, evaluate_final=evaluate, local_optima=optima)
        self.target = objective(self.gram, metric, self.path.shared)
        self.radii = limits(self.gram, r0, rstar)

    def run(
        self, tolerance: float, effort: float = 1.0, patience: float | None = None, hubs: tuple[int, ...] = ()
    ) -> tuple[int, ...]:
        """Search until the enclosure is ``tolerance`` narrow; returns the hubs that were used.

        Parameters
        ----------
        effort : how much work to do at most, in units of :data:`EFFORT`; the first solve is always made.
        patience : seconds after which to end with what there is, even within a solve.
        """
        self.deadline = math.inf if patience is None else self.began + patience
        last = self.gram.final_value or self.path.rounds
        promising = [last, FIRST, *turning_points(self.path)]
        chosen = [last if h == LAST else h for h in hubs] or [last] * (self.path.rounds > LONG)
        every = all_pairs(self.gram)
        pairs = Pairs(core_pairs(self.gram))
        self.core = len(pairs)
        for known in chosen:
            pairs.add(hub_pairs(self.gram, known))
        work = 0.0
        for attempt in range(MOST_SOLVES):
            work += len(pairs) * len(self.gram.columns)
            try:
                found = self._solve(conditions(self.gram, pairs.array()))
            except OwnstepError:
                if self.best is None:
                    raise
                break  # a larger problem that fails takes nothing away from the bound already proved
            if attempt == 0 and self.gap() > tolerance:
                self._replay(worst_quadratic(self.path, self.gram, self.target, self.asked.r0, self.asked.rstar))
            if chosen and not blocks(self.gram) and self.gap() > tolerance:
                self._polish(found, tolerance)
            if self.gap() <= tolerance or self._late():
                break
            hub = next((h for h in promising if h not in chosen), worst_point(self.gram, found, chosen))
            new = [last, FIRST] if not chosen else [] if hub is None else [hub]
            self.tries *= bool(chosen)  # what the core conditions alone took says nothing about more of them
            before = len(pairs)
            for point in new:
                pairs.add(hub_pairs(self.gram, point))
            if len(every) <= SMALL or not new:
                pairs.add(every)
            if len(pairs) == before or work + len(pairs) * len(self.gram.columns) > effort * EFFORT:
                break
            chosen += new
        return tuple(LAST if h == last else h for h in chosen)

    def _late(self) -> bool:
        return time.perf_counter() > self.deadline

    def _polish(self, found: Solution, tolerance: float) -> None:
        """Improve the instance, step by step, until it meets the proof or time is up."""
        assert self.best is not None
        proof, rows = self.best
        slack = slacks(self.gram, rows, self.target, self.radii, proof.limits, proof.multipliers)[0]
        start = (self.gram, self.target, found, rows, proof, slack)
        for better in polish(*start, r0=self.asked.r0, rstar=self.asked.rstar, steps=STEPS):
            self._replay(better)
            if self.gap() <= tolerance or self._late():
                break

    def _solve(self, rows: Conditions) -> Solution:
        """One solve and its check; keeps the best proof and the worst instance."""
        failure = "it was not called"
        large = len(self.gram.columns) > LARGE or bool(blocks(self.gram))
        first = max(self.tries - 1, 0)
        tolerance = 1e-9 if len(rows.pairs) <= self.core else 1e-10
        for self.tries in range(first, len(TRIES)):
            margin, other, chordal = TRIES[self.tries]
            if (not chordal and len(self.gram.columns) > DENSE) or (other and len(self.gram.columns) > LARGE):
                continue
            left = self.deadline - time.perf_counter()
            if left <= 0:
                raise OwnstepError("time is up (patience), and nothing is proved yet")
            self.solves += 1
            problem = (self.gram, rows, self.target, self.radii)
            try:
                found = solve(
                    *problem,
                    margin=margin,
                    tolerance=tolerance,
                    scaling=large != other,
                    chordal=chordal,
                    seconds=left,
                )
            except OwnstepError as error:
                failure = str(error)
                continue
            proof = repair(self.gram, rows, self.target, self.radii, found)
            if proof.slack > 0:
                break
            failure = f"its answer ({found.status}) proves nothing, the slack has an eigenvalue of {proof.slack:.2g}"
        else:
            raise OwnstepError(f"the semidefinite solver failed: {failure}")
        if self.best is None or proof.bound < self.best[0].bound:
            self.best = (proof, rows)
        if self.path.rounds <= LONG or blocks(self.gram):
            self._replay(found)  # otherwise polishing begins with its few directions that matter
        self.status = found.status
        return found

    def _replay(self, found: Solution) -> None:
        """Recover the instance, run the method on it, keep it if it is the worst so far.

        Functions a little inside their class give room for rounding: first very little, then more where that is not
        enough for the exact check.
        """
        for merge in (True, False) if found.differences else (True,):
            for narrow in range(self.narrow, len(NARROW)):
                candidate = recover(self.asked, self.gram, found, NARROW[narrow], merge=merge)
                if candidate.error <= self.lower:
                    break
                lower = reached(self.asked, candidate)
                if lower > self.lower:
                    self.worst, self.lower = candidate, lower
                if lower > 0:
                    break
            if self.best is not None and self.gap() <= ENOUGH:
                break

    def gap(self) -> float:
        """Relative width of the enclosure so far."""
        assert self.best is not None
        upper = self.best[0].bound
        return (upper - self.lower) / upper if upper > 0 else 0.0
