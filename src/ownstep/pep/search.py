"""The search for an enclosure: solve, check, add the conditions that were broken, until instance and proof meet."""

from __future__ import annotations

import math
import time

import numpy as np

from ownstep.pep.conditions.assemble import Conditions, conditions
from ownstep.pep.conditions.cuts import SMALL, Pairs, all_pairs, core_pairs, hub_pairs, turning_points, worst_point
from ownstep.pep.conditions.gram import build
from ownstep.pep.proof.certificate import Proof, repair, slacks
from ownstep.pep.solve.instance import Candidate, recover
from ownstep.pep.solve.polish import polish
from ownstep.pep.solve.quadratic import worst_quadratic
from ownstep.pep.solve.sdp import LARGE, Solution, blocks, limits, objective, solve
from ownstep.pep.trace import symmetry as alike
from ownstep.pep.trace.units import Setting
from ownstep.support.errors import OwnstepError

MARGINS = (1e-9, 2e-9, 6e-9, 2e-8, 1e-7)
"""How far inside their sets solutions are asked to be; the next one is tried where a proof came out short."""

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
        self.margin: int = 0
        self.status = ""

    def prepare(self) -> None:
        """Write the semidefinite program down."""
        r0, rstar, metric = self.asked.r0, self.asked.rstar, self.asked.metric
        evaluate, optima = metric != "distance", self.local_optima
        self.gram = build(self.path, self.groups, r0, rstar, evaluate_final=evaluate, local_optima=optima)
        self.target = objective(self.gram, metric, self.path.shared)
        self.radii = limits(self.gram, r0, rstar)

    def run(self, tolerance: float, patience: float, hubs: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Search until the enclosure is ``tolerance`` narrow; returns the hubs that were used."""
        last = self.gram.final_value or self.path.rounds
        promising = [last, FIRST, *turning_points(self.path)]
        chosen = [last if h == LAST else h for h in hubs] or [last] * (self.path.rounds > LONG)
        every = all_pairs(self.gram)
        pairs = Pairs(core_pairs(self.gram))
        self.core = len(pairs)
        for known in chosen:
            pairs.add(hub_pairs(self.gram, known))
        for attempt in range(MOST_SOLVES):
            began = time.perf_counter()
            try:
                found = self._solve(conditions(self.gram, pairs.array()))
            except OwnstepError:
                if self.best is None:
                    raise
                break  # a larger problem that fails takes nothing away from the bound already proved
            solving = time.perf_counter() - began
            if attempt == 0 and self.gap() > tolerance:
                self._replay(worst_quadratic(self.path, self.gram, self.target, self.asked.r0, self.asked.rstar))
            if chosen and not blocks(self.gram) and self.gap() > tolerance:
                self._polish(found, tolerance, patience)
            # more conditions make the next solve longer than this one
            if self.gap() <= tolerance or time.perf_counter() - self.began + 1.5 * solving > patience:
                break
            hub = next((h for h in promising if h not in chosen), worst_point(self.gram, found, chosen))
            new = [last, FIRST] if not chosen else [] if hub is None else [hub]
            self.margin *= bool(chosen)  # what the core conditions alone took says nothing about more of them
            before = len(pairs)
            for point in new:
                pairs.add(hub_pairs(self.gram, point))
            if len(every) <= SMALL or not new:
                pairs.add(every)
            if len(pairs) == before:
                break
            chosen += new
        return tuple(LAST if h == last else h for h in chosen)

    def _polish(self, found: Solution, tolerance: float, patience: float) -> None:
        """Improve the instance, step by step, until it meets the proof or time is up."""
        assert self.best is not None
        proof, rows = self.best
        slack = slacks(self.gram, rows, self.target, self.radii, proof.limits, proof.multipliers)[0]
        start = (self.gram, self.target, found, rows, proof, slack)
        for better in polish(*start, r0=self.asked.r0, rstar=self.asked.rstar, steps=STEPS):
            self._replay(better)
            if self.gap() <= tolerance or time.perf_counter() - self.began > patience:
                break

    def _solve(self, rows: Conditions) -> Solution:
        """One solve and its check; keeps the best proof and the worst instance."""
        failure = "it was not called"
        scaling = len(self.gram.columns) > LARGE or bool(blocks(self.gram))
        first = max(self.margin - 1, 0)
        tolerance = 1e-9 if len(rows.pairs) <= self.core else 1e-10
        for margin in range(first, len(MARGINS)):
            self.margin = margin
            self.solves += 1
            problem = (self.gram, rows, self.target, self.radii)
            try:
                found = solve(*problem, margin=MARGINS[margin], tolerance=tolerance, scaling=scaling or margin > first)
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
        """Recover the instance, run the method on it, keep it if it is the worst so far."""
        predicted = float(np.sum(self.target.matrix * found.gram) + self.target.values @ found.values)
        for merge in (True, False):
            instance = recover(self.asked, self.gram, found, predicted * self.target.size, merge=merge)
            if self.worst is None or instance.error > self.worst.error:
                self.worst = instance
            if not found.differences or instance.error >= (1 - 1e-6) * instance.predicted:
                break

    def gap(self) -> float:
        """Relative width of the enclosure so far."""
        assert self.best is not None
        if self.worst is None:
            return math.inf
        upper = self.best[0].bound
        return (upper - self.worst.error) / upper if upper > 0 else 0.0
