"""The search for an enclosure: solve, check, add the conditions that were broken, until instance and proof meet."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from ownstep.pep.conditions.assemble import Conditions, conditions
from ownstep.pep.conditions.cuts import (
    SMALL,
    Pairs,
    all_pairs,
    core_pairs,
    hub_pairs,
    most_broken,
    turning_points,
    worst_point,
)
from ownstep.pep.conditions.gram import Gram, build
from ownstep.pep.proof.certificate import Proof, between, repair, slacks
from ownstep.pep.solve import interior
from ownstep.pep.solve.candidate import Candidate, merges, recover
from ownstep.pep.solve.exact import reached
from ownstep.pep.solve.polish import polish
from ownstep.pep.solve.quadratic import worst_quadratic
from ownstep.pep.solve.sdp import LARGE, Limits, Objective, Solution, blocks, limits, objective, solve
from ownstep.pep.solve.tries import DENSE, INSIST, WIDE, Way, ways
from ownstep.pep.trace import symmetry as alike
from ownstep.pep.trace.scales import beyond_doubles
from ownstep.pep.trace.symmetry import Group
from ownstep.pep.trace.units import Setting
from ownstep.support.errors import OwnstepError
from ownstep.support.memory import free_memory

FEW, MOST_OF_ALL = 4, 1.5
"""With more groups than that and than rounds, and many columns, a program takes seconds to solve: all conditions are
taken at once, if they are so many times those to begin with at most."""

EFFORT = 7e5
"""Conditions times columns, summed over the solves: beyond this no further solve is begun. Not seconds, so that a busy
machine gives the same digits."""

MOST_SOLVES = 6
"""Times to come back for more conditions at most; what is still missing then would take hundreds."""

LONG = 60
"""Rounds from which the core conditions alone are not tried: they are too weak there, and take seconds."""

CHEAP = 3e4
"""Conditions times columns up to which all conditions are taken once the first hubs were not enough."""

STEPS = 10
"""Quadratic programs to polish an instance with, at most."""

NEAR = 1.5
"""An instance that close to the proof, in tolerances, is not polished further once a step made it no better."""

MANY_EFFORT = 6e9
"""For many groups: the cube of how many conditions there are, summed over the solves."""

COARSE, FINE, IDLE = 1e-4, 1e-7, 1e-6
"""There: accuracy of the first solve, which says what conditions matter, and of the others; and the part of the largest
multiplier below which a condition idles."""

TIME_IS_UP = "time is up (patience), and nothing is proved yet"

LAST = -1  # stands for the last point among the hubs, as its number differs from one K to the next
FIRST = 1  # the triple at x^0

NARROW = (1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5)
"""How far inside its class an instance is looked for, relative to L - mu."""

ENOUGH = 3e-6
"""Relative width at which twins that share a function need not be told apart."""


@dataclass(frozen=True, eq=False)
class Proved:
    """A proof, and the program it is about."""

    proof: Proof
    rows: Conditions
    gram: Gram
    target: Objective
    radii: Limits


class Search:
    """One worst case in canonical units; what it found stays in its attributes.

    Parameters
    ----------
    asked : the setting, in canonical units.
    symmetry : False keeps every device apart, for checking.
    groups : the devices in groups, where the caller knows better (see :mod:`ownstep.pep.trace.kinds`).
    """

    def __init__(self, asked: Setting, symmetry: bool = True, groups: list[Group] | None = None) -> None:
        self.began = time.perf_counter()
        self.asked, self.path, self.devices = asked, asked.path, asked.devices
        apart = asked.rstar > 0 and len(self.devices) > 1  # one device: its minimiser is x*
        self.local_optima = apart and not alike.follows_weights(self.path, self.devices)
        self.groups = groups or alike.groups(self.path, self.devices, local_optima=self.local_optima, symmetry=symmetry)
        self.solves = 0
        self.best: Proved | None = None
        self.worst: Candidate | None = None
        self.lower = 0.0
        self.narrow = min(self.path.rounds // LONG, 2)  # over many rounds what is finer is refuted, and takes seconds
        self.tries, self.plain = 0, False
        self.status = ""
        self.deadline = math.inf

    def prepare(self, patience: float | None = None) -> None:
        """Write the semidefinite program down, in so many seconds from the beginning at most."""
        self.deadline = math.inf if patience is None else self.began + patience
        size = (self.path.rounds, len(self.groups), self.local_optima)
        self.many = interior.suits(*size)
        self.check_memory()
        self.gram, self.target, self.radii = self._program()
        if self.many:
            self.first = interior.start(self.gram, self._program(sparse=False)[0])

    def check_memory(self) -> None:
        """Refuse what would not fit, before it is begun.

        The blocks of the slack hold the columns of all groups of one round and the next; the general solver keeps the
        square of such a block's triangle, for every round. The solver for many groups keeps the square of how many
        conditions there are, which then grow by a half.

        Raises
        ------
        OwnstepError
            Saying how much would be needed, and what to do.
        """
        size = (self.path.rounds, len(self.groups), self.local_optima)
        needed = interior.memory(int(1.5 * interior.core(*size))) if self.many else 8.0 * interior.general_work(*size)
        free = free_memory()
        if needed > free:
            raise OwnstepError(
                f"{len(self.groups)} kinds of devices at K={self.path.rounds} would need about {needed / 1e9:.1f} GB "
                f"of memory, {free / 1e9:.1f} GB are free. Treat devices that are nearly alike as one kind, "
                "with the same mu, L and weight, or ask about fewer rounds"
            )

    def _program(self, sparse: bool = True) -> tuple[Gram, Objective, Limits]:
        r0, rstar, metric = self.asked.r0, self.asked.rstar, self.asked.metric
        evaluate, optima = metric != "distance", self.local_optima
        kind: Any = {"evaluate_final": evaluate, "local_optima": optima, "sparse": sparse}
        gram = build(self.path, self.groups, r0, rstar, **kind, in_time=self._in_time)
        return gram, objective(gram, metric, self.path.shared), limits(gram, r0, rstar)

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
        if self.many:
            return self._run_many(tolerance, effort)
        last = self.gram.final_value or self.path.rounds
        promising = [last, FIRST, *turning_points(self.path)]
        chosen = [last if h == LAST else h for h in hubs] or [last] * (self.path.rounds > LONG)
        every = all_pairs(self.gram)
        pairs = Pairs(core_pairs(self.gram))
        if self._wide() and len(every) <= MOST_OF_ALL * len(pairs):
            pairs.add(every)
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
            if len(every) <= SMALL or not new or (attempt > 0 and len(every) * len(self.gram.columns) <= CHEAP):
                pairs.add(every)
            if len(pairs) == before:
                self._insist(tolerance)
                break
            if work + len(pairs) * len(self.gram.columns) > effort * EFFORT:
                break
            chosen += new
        return tuple(LAST if h == last else h for h in chosen)

    def _run_many(self, tolerance: float, effort: float) -> tuple[int, ...]:
        """The same for many groups: those conditions are added that are broken most, and those that idle left out.

        Conditions with x* stay, as a proof is repaired with them, and so do those with the own minimisers: an instance
        that breaks one of them has its minimisers elsewhere.
        """
        last = len(self.gram.triples[0].names) - 1
        pairs, work = core_pairs(self.gram), 0.0
        for attempt in range(MOST_SOLVES):
            work += float(len(pairs)) ** 3
            self.accuracy = COARSE if attempt == 0 and effort > 0 else FINE
            try:
                found = self._solve(conditions(self.gram, pairs))
            except OwnstepError:
                if self.best is None:
                    raise
                break
            if attempt == 0 and self.gap() > tolerance:
                self._replay(worst_quadratic(self.path, self.gram, self.target, self.asked.r0, self.asked.rstar))
            kept = np.isin(pairs[:, 1:], [0, last] if self.local_optima else [0]).any(axis=1)
            kept |= found.multipliers > IDLE * found.multipliers.max(initial=0.0)
            more = Pairs(pairs[kept])
            if not more.add(most_broken(self.gram, found)) and attempt > 0:
                break
            pairs = more.array()
            if self.gap() <= tolerance or self._late() or work + float(len(pairs)) ** 3 > effort * MANY_EFFORT:
                break
        return ()

    def _in_time(self) -> None:
        if self._late() and self.best is None:
            raise OwnstepError(TIME_IS_UP)

    def _wide(self) -> bool:
        """Are there few rounds, but many groups?"""
        return len(self.gram.columns) > WIDE and len(self.groups) > max(FEW, self.path.rounds)

    def _late(self) -> bool:
        return time.perf_counter() > self.deadline

    def _polish(self, found: Solution, tolerance: float) -> None:
        """Improve the instance, step by step, until it meets the proof, gets no better or time is up.

        The exact replay of many rounds takes seconds: it is left for instances that meet the proof, and for the best.
        One whose error in doubles is beyond the proof is refuted already.
        """
        assert self.best is not None
        proof, rows = self.best.proof, self.best.rows
        slack = slacks(self.gram, rows, self.target, self.radii, proof.limits, proof.multipliers)[0]
        start = (self.gram, self.target, found, rows, proof, slack)
        most, waiting, stalled = 0.0, None, 0
        for better in polish(*start, r0=self.asked.r0, rstar=self.asked.rstar, steps=STEPS):
            error = recover(self.asked, self.gram, better, NARROW[self.narrow]).error
            near = (proof.bound - error) / proof.bound
            if near >= 0 and error > most:
                most, waiting, stalled = error, better, 0
            else:
                stalled += most > 0
            if 0 <= near <= tolerance:
                self._replay(better)
                waiting = None
            enough = stalled > 1 or (stalled and most >= (1 - NEAR * tolerance) * proof.bound)
            if enough or self.gap() <= tolerance or self._late():
                break
        if waiting is not None:
            self._replay(waiting)

    def _solve(self, rows: Conditions) -> Solution:
        """One solve and its check; keeps the best proof and the worst instance.

        A small problem whose columns let no answer prove anything is written in the plain ones.
        """
        try:
            found = self._proved(rows)
        except OwnstepError:
            small = len(self.gram.columns) <= DENSE and not self.many
            if self.plain or not small or self.best is not None or self._late():
                raise
            self.plain, self.tries = True, 0
            self.gram, self.target, self.radii = self._program(sparse=False)
            found = self._proved(conditions(self.gram, rows.pairs))
        if self.path.rounds <= LONG or blocks(self.gram):
            self._replay(found)  # otherwise polishing begins with its few directions that matter
        self.status = found.status
        return found

    def _proved(self, rows: Conditions) -> Solution:
        """Call the solver in one way after the other, until an answer proves something."""
        failure, order = "it was not called", ways(self._wide())
        near: list[Proof] = []
        for number in range(max(self.tries - 1, 0), len(order)):
            self.tries = number
            try:
                found = self._attempt(rows, order[number])
            except OwnstepError as error:
                failure = str(error)
                continue
            if found is None:
                continue
            proof = repair(self.gram, rows, self.target, self.radii, found)
            if proof.slack > 0:
                self._keep(proof, near, rows)
                return found
            near.append(proof)
            failure = f"its answer ({found.status}) proves nothing, the slack has an eigenvalue of {proof.slack:.2g}"
        rstar = self.asked.rstar if self.local_optima else 0.0
        why = beyond_doubles(self.path, self.groups, self.asked.r0, rstar)
        raise OwnstepError(TIME_IS_UP if self._late() else f"the semidefinite solver failed: {failure}{why}")

    def _attempt(self, rows: Conditions, way: Way) -> Solution | None:
        """One call of the solver; None where the problem is too large for this way of calling it."""
        size, (margin, other, chordal) = len(self.gram.columns), way
        if (self.many and (other or not chordal)) or (not chordal and size > DENSE) or (other and size > LARGE):
            return None
        left = self.deadline - time.perf_counter()
        if left <= 0:
            raise OwnstepError(TIME_IS_UP)
        self.solves += 1
        scaling = (size > LARGE or bool(blocks(self.gram))) != other
        problem = (self.gram, rows, self.target, self.radii)
        if self.many:
            goal = self.accuracy
            return interior.solve(*problem, margin=margin, tolerance=goal, seconds=left, first=self.first)
        tolerance = 1e-9 if len(rows.pairs) <= self.core else 1e-10
        return solve(*problem, margin=margin, tolerance=tolerance, scaling=scaling, chordal=chordal, seconds=left)

    def _insist(self, tolerance: float) -> None:
        """All conditions are in and the ends still do not meet, as the solver did not get far: ask it in other words.

        For a small problem the basis need not be sparse, and there are other ways of calling the solver.
        """
        if len(self.gram.columns) > DENSE:
            return
        for program in (self._program(sparse=False), (self.gram, self.target, self.radii)):
            self.gram, self.target, self.radii = program
            rows = conditions(self.gram, all_pairs(self.gram))
            sure: Proof | None = None
            near: list[Proof] = []
            for way in INSIST:
                if self.gap() <= tolerance or self._late():
                    return
                try:
                    found = self._attempt(rows, way)
                except OwnstepError:
                    continue
                if found is None:
                    continue
                proof = repair(self.gram, rows, self.target, self.radii, found)
                if not proof.slack > 0:
                    near.append(proof)
                elif sure is None or proof.bound < sure.bound:
                    sure = proof
                if sure is not None:
                    sure = self._keep(sure, near, rows)
                self._replay(found)

    def _keep(self, proof: Proof, near: list[Proof], rows: Conditions) -> Proof:
        """Sharpen a proof by those that fail by a little, and keep it if it is the best so far."""
        for other in near:
            proof = between(self.gram, rows, self.target, self.radii, proof, other)
        if self.best is None or proof.bound < self.best.proof.bound:
            self.best = Proved(proof, rows, self.gram, self.target, self.radii)
        return proof

    def _replay(self, found: Solution) -> None:
        """Recover the instance, run the method on it, keep it if it is the worst so far.

        Functions a little inside their class give room for rounding: first very little, then more where that is not
        enough for the exact check.
        """
        for largest in merges(found):
            for narrow in range(self.narrow, len(NARROW)):
                candidate = recover(self.asked, self.gram, found, NARROW[narrow], alike=largest)
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
        upper = self.best.proof.bound
        return (upper - self.lower) / upper if upper > 0 else 0.0
