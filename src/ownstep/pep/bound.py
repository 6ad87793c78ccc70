"""The exact worst case of a method, enclosed between an instance and a proof."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ownstep.methods.base import Method
from ownstep.pep.conditions.assemble import Conditions, conditions
from ownstep.pep.conditions.classes import check
from ownstep.pep.conditions.cuts import SMALL, Pairs, all_pairs, core_pairs, hub_pairs, turning_points, worst_point
from ownstep.pep.conditions.gram import build
from ownstep.pep.proof.certificate import Certificate, Proof, certificate, repair, slacks
from ownstep.pep.proof.certify import Certified, Evidence, certify
from ownstep.pep.solve.instance import Instance, recover
from ownstep.pep.solve.polish import polish
from ownstep.pep.solve.quadratic import worst_quadratic
from ownstep.pep.solve.sdp import LARGE, Solution, blocks, limits, objective, solve
from ownstep.pep.trace import symmetry as alike
from ownstep.pep.trace.scales import tilt_moves
from ownstep.pep.trace.symbolic import Trace, trace, works_locally
from ownstep.plan import Devices
from ownstep.support.errors import OwnstepError

if TYPE_CHECKING:
    from ownstep.pep.networks.enclose import Start
    from ownstep.pep.networks.spectral import Spectral

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


@dataclass(frozen=True, eq=False)
class Bound:
    """A worst case, enclosed: no function of the class does worse than ``upper``, one does as badly as ``lower``.

    Parameters
    ----------
    lower : error of the real method on a recovered instance.
    upper : proved by the certificate.
    metric, rounds, r0, rstar : what was asked.
    status : how it went, in words.
    solves, conditions, size, seconds : solver calls, interpolation conditions used, largest matrix, time taken.
    """

    lower: float
    upper: float
    metric: str
    rounds: int
    r0: float
    rstar: float
    status: str
    solves: int = 0
    conditions: int = 0
    size: int = 0
    seconds: float = 0.0
    _instance: Instance | None = field(default=None, repr=False)
    _certificate: Certificate | None = field(default=None, repr=False)
    hubs: tuple[int, ...] = field(default=(), repr=False)
    _evidence: Evidence | None = field(default=None, repr=False)

    @property
    def gap(self) -> float:
        """Relative width of the enclosure."""
        if math.isinf(self.upper) or self.upper == 0:
            return 0.0
        return (self.upper - self.lower) / self.upper

    def instance(self) -> Instance:
        """A worst function: points, gradients, values, callables, and the real method's run on it."""
        if self._instance is None:
            raise OwnstepError(f"there is no single worst instance: {self.status}")
        return self._instance

    def certificate(self) -> Certificate:
        """The proof of ``upper``: multipliers by name."""
        if self._certificate is None:
            raise OwnstepError(f"there is nothing to certify: {self.status}")
        return self._certificate

    def certify(self, path: str | Path | None = None) -> Certified:
        """The proof of ``upper`` in rational numbers, checked exactly; written as json to ``path`` when given one."""
        if self._evidence is None:
            raise OwnstepError(f"there is nothing to certify: {self.status}")
        return certify(self._evidence, self.lower, path)

    def to_dict(self) -> dict[str, Any]:
        """The numbers as plain data."""
        names = (
            "lower",
            "upper",
            "gap",
            "metric",
            "rounds",
            "r0",
            "rstar",
            "status",
            "solves",
            "conditions",
            "seconds",
        )
        return {name: getattr(self, name) for name in names}


def worst_case(
    method: Method,
    devices: Devices,
    rounds: int,
    r0: float = 1.0,
    rstar: float = 0.0,
    metric: str = "value",
    *,
    tolerance: float = 1e-5,
    symmetry: bool = True,
    patience: float = 15.0,
    network: Spectral | None = None,
    start: Start | None = None,
    schedule: Any = None,
    missing: str = "rescale",
) -> Bound:
    """The largest error ``method`` can make in ``rounds`` rounds, over all functions of the devices' classes.

        max  metric(x^K)   over  f_i in F(mu_i, L_i),  ||x^0 - x*|| <= r0,  ||x_i* - x*|| <= rstar,

    where x* minimises f = sum_i w_i f_i, x_i* minimises f_i, and x^K is what the method's own ``ask`` and ``tell`` make
    of x^0. The dimension is free, which makes the answer exact (Taylor, Hendrickx and Glineur, 2017).

    Parameters
    ----------
    method : any linear method of this library: OwnStep with At(k) or Never(), GD, Nesterov, HeavyBall, ...
    devices : w_i, L_i and mu_i; devices that are alike cost nothing.
    rounds : K.
    r0, rstar : R_0 and R_*; ``rstar`` may be 0 (all devices agree on x*) or ``math.inf``.
    metric : ``"value"``, ``"distance"`` or ``"gradient"``: see :data:`ownstep.pep.METRICS`.
    tolerance : relative width of the enclosure to stop at.
    symmetry : False keeps every device apart, for checking.
    patience : seconds after which no further solve is begun to narrow the enclosure.
    network : a class of networks, :class:`ownstep.pep.Spectral`, for methods without a server: the worst case is taken
        over all of them, and more metrics are there, :data:`ownstep.pep.NETWORK_METRICS`. One given matrix is the
        method's own ``graph=Mixing(...)``.
    start : what else is known of the start, :class:`ownstep.pep.Start`.
    schedule : who takes part, one row of booleans per round, one column per device; ``missing`` says what is done about
        the others, ``"rescale"`` or ``"drop"``.

    Raises
    ------
    InvalidInput : for arguments out of range, or a method that is not linear; before anything is solved.
    OwnstepError : when the solver fails.
    """
    if network is not None or start is not None or schedule is not None or works_locally(method, devices):
        from ownstep.pep.networks.network_bound import enclose, question

        asked = question(method, devices, rounds, r0, rstar, metric, network, start, schedule, missing)
        return enclose(asked, tolerance)
    check(rounds, r0, rstar, metric)
    path = trace(method, devices, int(rounds))
    return _Search(method, devices, path, float(r0), float(rstar), metric, symmetry).run(tolerance, patience)


def curve(
    method: Method,
    devices: Devices,
    rounds: int,
    r0: float = 1.0,
    rstar: float = 0.0,
    metric: str = "value",
    *,
    tolerance: float = 1e-5,
    patience: float = 15.0,
    progress: Callable[[int, int], None] | None = None,
) -> list[Bound]:
    """Worst cases after K = 0, 1, ..., ``rounds`` rounds.

    The method is traced once, and each K starts from the interpolation conditions the one before it needed.
    """
    check(rounds, r0, rstar, metric)
    path = trace(method, devices, int(rounds))
    bounds: list[Bound] = []
    for k in range(int(rounds) + 1):
        search = _Search(method, devices, path.until(k), float(r0), float(rstar), metric, True)
        bounds.append(search.run(tolerance, patience, bounds[-1].hubs if bounds else ()))
        if progress is not None:
            progress(k, int(rounds))
    return bounds


class _Search:
    """Solve, check, add the conditions that were broken, until instance and proof meet."""

    def __init__(
        self,
        method: Method,
        devices: Devices,
        path: Trace,
        r0: float,
        rstar: float,
        metric: str,
        symmetry: bool,
    ) -> None:
        self.began = time.perf_counter()
        self.method, self.devices, self.path = method, devices, path
        self.r0, self.rstar, self.metric = r0, rstar, metric
        self.local_optima = rstar > 0 and not alike.follows_weights(path, devices)
        self.groups = alike.groups(path, devices, local_optima=self.local_optima, symmetry=symmetry)
        self.solves = 0
        self.best: tuple[Proof, Conditions] | None = None
        self.worst: Instance | None = None
        self.margin: int = 0

    def run(self, tolerance: float, patience: float, hubs: tuple[int, ...] = ()) -> Bound:
        if self.local_optima and math.isinf(self.rstar):
            return self._without_radius()
        self.gram = build(
            self.path,
            self.groups,
            self.r0,
            self.rstar,
            evaluate_final=self.metric != "distance",
            local_optima=self.local_optima,
        )
        self.target = objective(self.gram, self.metric, self.path.shared)
        self.radii = limits(self.gram, self.r0, self.rstar)
        if self.target.size == 0:
            return self._always_zero()
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
            if attempt == 0 and self._gap() > tolerance:
                self._replay(worst_quadratic(self.path, self.gram, self.target, self.r0, self.rstar))
            if chosen and not blocks(self.gram) and self._gap() > tolerance:
                self._polish(found, tolerance, patience)
            # more conditions make the next solve longer than this one
            if self._gap() <= tolerance or time.perf_counter() - self.began + 1.5 * solving > patience:
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
        return self._bound(tolerance, tuple(LAST if h == last else h for h in chosen))

    def _polish(self, found: Solution, tolerance: float, patience: float) -> None:
        """Improve the instance, step by step, until it meets the proof or time is up."""
        assert self.best is not None
        proof, rows = self.best
        slack = slacks(self.gram, rows, self.target, self.radii, proof.limits, proof.multipliers)[0]
        start = (self.gram, self.target, found, rows, proof, slack)
        for better in polish(*start, r0=self.r0, rstar=self.rstar, steps=STEPS):
            self._replay(better)
            if self._gap() <= tolerance or time.perf_counter() - self.began > patience:
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
            instance = recover(
                self.method,
                self.devices,
                self.gram,
                found,
                predicted * self.target.size,
                rounds=self.path.rounds,
                r0=self.r0,
                rstar=self.rstar,
                metric=self.metric,
                merge=merge,
            )
            if self.worst is None or instance.error > self.worst.error:
                self.worst = instance
            if not found.differences or instance.error >= (1 - 1e-6) * instance.predicted:
                break

    def _gap(self) -> float:
        assert self.best is not None
        if self.worst is None:
            return math.inf
        upper = self.best[0].bound
        return (upper - self.worst.error) / upper if upper > 0 else 0.0

    def _bound(self, tolerance: float, hubs: tuple[int, ...]) -> Bound:
        assert self.best is not None
        assert self.worst is not None
        proof, rows = self.best
        gap = self._gap()
        if not (np.isfinite(self.worst.error) and np.isfinite(proof.bound)):
            raise OwnstepError(
                f"no worst case in floating point: it lies between {self.worst.error:g} and {proof.bound:g}; are the "
                "constants or radii too far apart?"
            )
        words = f"enclosed to a relative {gap:.1e}"
        if gap > tolerance:
            words += f", short of the {tolerance:g} asked for"
        status = (
            f"{words}; solver: {self.status}; the proof's slack is positive ({proof.slack:.1e} at least), values "
            f"cancel after a repair of {proof.repaired:.1e}; the instance meets both radii, gradients at local "
            f"minimisers below {self.worst.residual:.1e}"
        )
        size = self.target.size
        asked = (self.metric, self.r0, self.rstar)
        evidence = Evidence(self.path, self.devices, self.gram, rows, proof, size, *asked)
        return Bound(
            lower=self.worst.error,
            upper=proof.bound,
            metric=self.metric,
            rounds=self.path.rounds,
            r0=self.r0,
            rstar=self.rstar,
            status=status,
            solves=self.solves,
            conditions=len(rows.pairs),
            size=len(self.gram.columns),
            seconds=time.perf_counter() - self.began,
            _instance=self.worst,
            _certificate=certificate(self.gram, rows, self.radii, proof, self.metric, size),
            hubs=hubs,
            _evidence=evidence,
        )

    def _always_zero(self) -> Bound:
        why = "zero: the method reaches x* whatever the functions are"
        return Bound(0.0, 0.0, self.metric, self.path.rounds, self.r0, self.rstar, why)

    def _without_radius(self) -> Bound:
        """No radius around the local minimisers: the tilts s_i may be as large as they like, and so may the error."""
        if not tilt_moves(self.path, self.groups):
            raise OwnstepError("no bound is known for rstar=inf where the devices' tilts matter but do not move x^K")
        why = "unbounded: without a radius around the local minimisers the tilts, and with them the error, grow at will"
        return Bound(math.inf, math.inf, self.metric, self.path.rounds, self.r0, self.rstar, why)
