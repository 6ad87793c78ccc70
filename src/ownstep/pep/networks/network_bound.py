"""The enclosure of a worst case over networks: a proof above, a run of the real method below."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ownstep.engines.participation import Bernoulli, Cohort
from ownstep.methods.base import Method
from ownstep.pep.bound import Bound
from ownstep.pep.conditions.classes import check
from ownstep.pep.networks.expectation import check_chance
from ownstep.pep.networks.network_enclosure import (
    INSIDE,
    NETWORK_METRICS,
    Question,
    Start,
    Upper,
    canonical_question,
    check_question,
    upper,
)
from ownstep.pep.networks.network_trace import check_schedule
from ownstep.pep.networks.replay import NetworkInstance, carried, replay
from ownstep.pep.networks.spectral import Spectral
from ownstep.pep.proof.certificate import Certificate
from ownstep.pep.proof.certify import Certified
from ownstep.plan import Devices
from ownstep.support.errors import InternalError, OwnstepError, unknown_name

ROUNDING = 1e-6
"""What rounding may make of the error of an instance that was run in doubles, relative to it."""


@dataclass(frozen=True, eq=False)
class NetworkBound(Bound):
    """A worst case over a class of networks: no W of the class and no functions do worse than ``upper``.

    Parameters
    ----------
    factor : lambda of the matrix W = lambda I + (1 - lambda) 11'/N on which ``lower`` was reached; None without one.
    """

    factor: float | None = None
    _found: Upper | None = field(default=None, repr=False)
    _asked: Question | None = field(default=None, repr=False)
    _example: NetworkInstance | None = field(default=None, repr=False)

    def example(self) -> NetworkInstance:
        """The functions, starts and mixing matrix on which the method's error is ``lower``."""
        if self._example is None:
            raise OwnstepError(f"there is no single worst instance: {self.status}")
        return self._example

    def certificate(self) -> Certificate:
        """The proof of ``upper``: multipliers by name."""
        assert self._found is not None
        assert self._asked is not None
        return _certificate(self._found, self.upper, self._asked)

    def certify(self, path: str | Path | None = None) -> Certified:
        """The proof of ``upper`` in rational numbers, checked exactly; written as json to ``path`` when given one."""
        from ownstep.pep.networks.network_proof import certify_network

        assert self._found is not None
        assert self._asked is not None
        return certify_network(self._asked, self._found, self.lower, path)


def question(
    method: Method,
    devices: Devices,
    rounds: int,
    r0: float,
    rstar: float,
    metric: str,
    network: Spectral | None,
    start: Start | None,
    schedule: Any,
    missing: str,
) -> Question:
    """A checked question."""
    if metric not in NETWORK_METRICS:
        raise unknown_name("metric", metric, NETWORK_METRICS)
    check(rounds, r0, rstar, "value")
    chance, table = None, None
    if isinstance(schedule, Bernoulli | Cohort):
        chance = check_chance(schedule, len(devices), int(rounds), metric)
    elif schedule is not None:
        table = check_schedule(schedule, int(rounds), len(devices), missing)
    asked = Question(
        method,
        devices,
        int(rounds),
        float(r0),
        float(rstar),
        metric,
        network,
        start or Start(),
        table,
        chance.missing if chance is not None else None if table is None else missing,
        chance,
    )
    check_question(asked)
    return asked


def enclose(
    asked: Question, tolerance: float = 1e-5, effort: float = 1.0, patience: float | None = None
) -> NetworkBound:
    """The worst case of a question, enclosed; ``effort`` counts the matrices to look for an instance with, 5 for 1.

    It is found in canonical units, and carried back.
    """
    began = time.perf_counter()
    deadline = math.inf if patience is None else time.monotonic() + patience
    given, asked = asked, canonical_question(asked)
    found = upper(asked, deadline=deadline)
    best: NetworkInstance | None = None
    where: float | None = None
    solves = found.proof.solves
    for factor in factors(asked, found.given)[: max(1, round(5 * effort))]:
        instance, tries = _instance(asked, factor, deadline, found)
        solves += tries
        if instance is None:
            continue
        if best is None or instance.error > best.error:
            best, where = instance, factor
        if best.error >= (1 - tolerance) * found.proof.bound:
            break
    bound = found.proof.bound
    lower = 0.0 if best is None else _not_above(bound, best)
    gap = (bound - lower) / bound if bound > 0 else 0.0
    words = f"enclosed to a relative {gap:.1e}"
    if best is not None and best.exact:
        words += "; the instance is checked in exact arithmetic"
    if not lower and bound > 0:
        why = "no instance found survives exact arithmetic" if time.monotonic() < deadline else "time is up (patience)"
        words = f"the lower end is withdrawn: {why}; the upper end stands"
    unit = asked.units.metric(asked.metric)
    if asked.network is not None and where is not None and lower:
        words += f"; the lower end is reached with W = a I + (1 - a) 11'/N, a = {where:g}"
        if gap > tolerance:
            words += "; the conditions on W are necessary ones, so the upper end may be above the true worst case"
        if asked.network.any_number:
            words += "; the same for every number of devices of which each kind has two or more"
    if asked.chance is not None:
        words += f"; the mean over all schedules of {asked.chance!r}"
    words += f"; solver: {found.proof.status}; the proof's slack is positive ({found.proof.slack:.1e} at least)"
    return NetworkBound(
        lower=unit * lower,
        upper=unit * bound,
        metric=given.metric,
        rounds=given.rounds,
        r0=given.r0,
        rstar=given.rstar,
        status=words,
        solves=solves,
        conditions=len(found.program.interpolation.pairs),
        size=max(found.program.blocks.sizes),
        seconds=time.perf_counter() - began,
        factor=where,
        _found=found,
        _asked=asked,
        _example=None if best is None else carried(best, asked.units, asked.metric),
    )


def _not_above(bound: float, worst: NetworkInstance) -> float:
    """The error of an instance; one run in doubles is known up to rounding, and may be that much above a proof."""
    if worst.error > bound * (1.0 if worst.exact else 1 + ROUNDING):
        raise InternalError(f"an instance errs by {worst.error!r} and a proof says at most {bound!r}")
    return min(worst.error, bound)


def _instance(
    asked: Question, factor: float | None, deadline: float, found: Upper
) -> tuple[NetworkInstance | None, int]:
    """An instance on one matrix, and the solves it took; the next margin is tried where exact numbers refute one."""
    solves, tried, first = 0, [], None
    for margin in INSIDE:
        known = found.given.get(factor) if factor is not None and margin == INSIDE[0] else None
        try:
            tried.append(known or upper(asked, factor, inside=margin, deadline=deadline))
        except OwnstepError:
            continue
        solves += tried[-1].proof.solves
        instance = replay(asked, tried[-1], factor)
        first = first or instance
        if instance.error > 0 or not instance.exact:
            return instance, solves
    if not tried and factor is None:
        first = replay(asked, found, factor)
    return first, solves


def factors(asked: Question, given: Mapping[float, Upper] = MappingProxyType({})) -> list[float | None]:
    """Matrices to look for a worst instance with: the ends of the spectrum first, then between.

    ``given`` has worst cases of single matrices, and of the ends the worse one comes first.
    """
    network = asked.network
    if network is None:
        return [None]
    if network.lo == network.hi:
        return [network.hi]
    bounds = [given[end].proof.bound if end in given else 0.0 for end in (network.lo, network.hi)]
    first = [network.lo, network.hi] if bounds[0] > bounds[1] else [network.hi, network.lo]
    return [*first, *np.linspace(network.lo, network.hi, 5)[1:-1].tolist()]


def _certificate(found: Upper, bound: float, asked: Question) -> Certificate:
    program, proof = found.program, found.proof
    inter, m = program.interpolation, proof.multipliers.carried(asked.units, asked.metric)
    named: dict[str, float] = {}
    for (c, p, q), factor in zip(inter.pairs, m.conditions, strict=True):
        if factor > 0:
            named[f"kind {c}: f({inter.names[p]}) >= f({inter.names[q]}) + ..."] = float(factor)
    for g, Z in enumerate(m.matrices):
        named |= {f"W {g}: spectral condition {k}, {k}": float(Z[k, k]) for k in range(len(Z))}
    radii: dict[str, Any] = dict(zip(program.head_names, map(float, m.heads), strict=True))
    statement = f"{NETWORK_METRICS[asked.metric].split(',')[0]} <= {bound:.9g}"
    return Certificate(bound, radii, named, proof.slack, 0.0, statement)
