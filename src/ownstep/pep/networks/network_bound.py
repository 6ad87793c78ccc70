"""The enclosure of a worst case over networks: a proof above, a run of the real method below."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ownstep.engines.participation import Bernoulli, Cohort
from ownstep.methods.base import Method
from ownstep.pep.bound import Bound
from ownstep.pep.conditions.classes import Lipschitz, check
from ownstep.pep.networks.expectation import check_chance
from ownstep.pep.networks.instances.lower_search import PARTS, Search, divisible, not_above
from ownstep.pep.networks.instances.replay import NetworkInstance, carried
from ownstep.pep.networks.kind_vectors import Kinds
from ownstep.pep.networks.network_enclosure import Upper, upper
from ownstep.pep.networks.network_trace import check_schedule, follow
from ownstep.pep.networks.question import (
    NETWORK_METRICS,
    Question,
    Start,
    canonical_question,
    check_question,
    marks_of,
)
from ownstep.pep.networks.spectral import Spectral
from ownstep.pep.proof.certificate import Certificate
from ownstep.pep.proof.certify import Certified
from ownstep.pep.trace.units import measured, power
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput, OwnstepError, unknown_name

NECESSARY = "the conditions on W are necessary ones, so the upper end may be above the true worst case"


@dataclass(frozen=True, eq=False)
class NetworkBound(Bound):
    """A worst case over a class of networks: no W of the class and no functions do worse than ``upper``.

    Parameters
    ----------
    factor : lambda of the matrix W = lambda I + (1 - lambda) 11'/N on which ``lower`` was reached; None where it was
        another, which :meth:`example` has.
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
    devices: Devices | Lipschitz,
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
    chance, table, steep = None, None, None
    if isinstance(devices, Lipschitz):
        length = power(max(float(r0), float(rstar) if math.isfinite(rstar) else 0.0))
        steep = devices.bounds
        devices = devices.at_length(length)
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
        steep,
    )
    check_question(asked)
    if steep is not None:
        check_steps(asked)
    return asked


def check_steps(asked: Question) -> None:
    """Refuse a method whose steps depend on the devices' L, where there is none: do other L move it elsewhere?"""
    network = asked.network
    kinds = Kinds.of(asked.devices, marks_of(asked), any_number=network is not None and network.any_number)
    went = []
    for factor in (1.0, 2.0):
        path = follow(
            asked.method,
            measured(asked.devices, factor),
            kinds,
            asked.rounds,
            network=network,
            apart=asked.start.points != "same",
            schedule=asked.schedule,
            missing=asked.missing,
            raw=True,
        )
        told = [*(x for x in path.stacks if x is not None), *(e.x for e in path.evaluations)]
        told += [x for _, x, _ in path.steps]
        stacks = [row for x in told for row in (x.mean_rows, x.difference)]
        went.append([*(x.mean_row for x in path.points), *stacks])
    if not all(np.array_equal(a, b) for a, b in zip(*went, strict=True)):
        raise InvalidInput(
            f"{asked.method!r} steps by smoothness constants, and these losses have none: give its step as a number"
        )


def enclose(
    asked: Question, tolerance: float = 1e-5, effort: float = 1.0, patience: float | None = None
) -> NetworkBound:
    """The worst case of a question, enclosed; ``effort`` counts the matrices to look for an instance with, 5 for 1.

    It is found in canonical units, and carried back.
    """
    began = time.perf_counter()
    deadline = math.inf if patience is None else time.monotonic() + patience
    given, asked = asked, canonical_question(asked)
    hasty = divisible(asked) and round(PARTS * effort) > 1  # what is not tight is divided
    search = Search(asked, upper(asked, deadline=deadline, hasty=hasty), tolerance, deadline)
    search.run(effort)
    found, best, bound = search.found, search.best, search.found.proof.bound
    lower = 0.0 if best is None else not_above(bound, best)
    gap = (bound - lower) / bound if bound > 0 else 0.0
    words = f"enclosed to a relative {gap:.1e}"
    if best is not None and best.exact:
        words += "; the instance is checked in exact arithmetic"
    if not lower and bound > 0:
        why = "no instance found survives exact arithmetic" if time.monotonic() < deadline else "time is up (patience)"
        words = f"the lower end is withdrawn: {why}; the upper end stands"
    if asked.network is not None and lower:
        words += f"; {search.where}" + (f"; {NECESSARY}" if gap > tolerance else "")
    if found.pieces:
        words += f"; two devices have one eigenvalue, and the spectrum was divided into {len(found.pieces)} parts"
    if asked.network is not None and asked.network.any_number:
        words += "; the same for every number of devices of which each kind has two or more"
    if asked.chance is not None:
        words += f"; the mean over all schedules of {asked.chance!r}"
    words += f"; solver: {found.proof.status}; the proof's slack is positive ({found.proof.slack:.1e} at least)"
    unit = asked.units.metric(asked.metric)
    return NetworkBound(
        lower=unit * lower,
        upper=unit * bound,
        metric=given.metric,
        rounds=given.rounds,
        r0=given.r0,
        rstar=given.rstar,
        status=words,
        solves=search.solves,
        conditions=len(found.program.interpolation.pairs),
        size=max(found.program.blocks.sizes),
        seconds=time.perf_counter() - began,
        factor=search.factor,
        _found=found,
        _asked=asked,
        _example=None if best is None else carried(best, asked.units, asked.metric),
    )


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
