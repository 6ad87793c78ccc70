"""The exact worst case of a method, enclosed between an instance and a proof."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ownstep.methods.base import Method
from ownstep.methods.gossip.peers import Peers
from ownstep.pep.conditions.classes import Lipschitz, check, check_smooth
from ownstep.pep.few_kinds import Few, enclose, on_line
from ownstep.pep.proof.certificate import Certificate, Proof, certificate
from ownstep.pep.proof.certify import Certified, Evidence, called, certify
from ownstep.pep.search import Search
from ownstep.pep.solve.candidate import Candidate
from ownstep.pep.solve.instance import Instance, carried
from ownstep.pep.trace.scales import tilt_moves
from ownstep.pep.trace.symbolic import Trace, trace, works_locally
from ownstep.pep.trace.units import Setting, Units, canonical
from ownstep.plan import Devices
from ownstep.support.errors import InternalError, InvalidInput, OwnstepError

if TYPE_CHECKING:
    from ownstep.pep.networks.question import Start
    from ownstep.pep.networks.spectral import Spectral


@dataclass(frozen=True, eq=False)
class Bound:
    """A worst case, enclosed: no function of the class does worse than ``upper``, one does as badly as ``lower``.

    Parameters
    ----------
    lower : error of the real method on a recovered instance.
    upper : proved by the certificate.
    metric, rounds, r0, rstar : what was asked.
    status : how it went, in words.
    solves : solver calls.
    conditions : interpolation conditions used.
    size : rows of the largest matrix.
    seconds : time taken.
    kinds : how many kinds stand for the devices, where they are too many to be kept apart; None where they are.
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
    kinds: int | None = None
    hubs: tuple[int, ...] = field(default=(), repr=False)
    _evidence: Evidence | None = field(default=None, repr=False)
    _method: Method | None = field(default=None, repr=False)
    _worst: Candidate | None = field(default=None, repr=False)

    @property
    def gap(self) -> float:
        """Relative width of the enclosure."""
        if math.isinf(self.upper) or self.upper == 0:
            return 0.0
        return (self.upper - self.lower) / self.upper

    def instance(self) -> Instance:
        """A worst function: points, gradients, values, callables, and the real method's run on it."""
        if self._worst is None or self._method is None or self._evidence is None:
            raise OwnstepError(f"there is no single worst instance: {self.status}")
        asked = self._evidence.asked
        return carried(self._worst, self._method, asked.devices, self.rounds, self.metric, self._evidence.units)

    def certificate(self) -> Certificate:
        """The proof of ``upper``: multipliers by name."""
        if self._evidence is None:
            raise OwnstepError(f"there is nothing to certify: {self.status}")
        found = self._evidence
        return certificate(found.gram, found.rows, found.radii, found.proof, self.metric, found.size, found.units)

    def certify(self, path: str | Path | None = None) -> Certified:
        """The proof of ``upper`` in rational numbers, checked exactly; written as json to ``path`` when given one."""
        if self._evidence is None:
            raise OwnstepError(f"there is nothing to certify: {self.status}")
        if isinstance(self._method, Peers):
            return self._certify_apart(self._method, path)
        return certify(self._evidence, self.lower, path)

    def _certify_apart(self, method: Method, path: str | Path | None) -> Certified:
        """The same for a method without a server on a given matrix, whose devices all have points of their own."""
        from ownstep.pep.networks import network_bound, network_enclosure, network_proof
        from ownstep.pep.networks.question import canonical_question

        assert self._evidence is not None
        devices, radii = self._evidence.asked.devices, (self.rounds, self.r0, self.rstar)
        asked = network_bound.question(method, devices, *radii, self.metric, None, None, None, "rescale")
        asked = canonical_question(asked)
        return network_proof.certify_network(asked, network_enclosure.upper(asked), self.lower, path)

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
            "kinds",
        )
        return {name: getattr(self, name) for name in names}


def worst_case(
    method: Method,
    devices: Devices | Lipschitz,
    rounds: int,
    r0: float = 1.0,
    rstar: float = 0.0,
    metric: str = "value",
    *,
    tolerance: float = 1e-5,
    symmetry: bool = True,
    effort: float = 1.0,
    patience: float | None = None,
    network: Spectral | None = None,
    start: Start | None = None,
    schedule: Any = None,
    missing: str = "rescale",
    progress: Callable[[int, float], None] | None = None,
) -> Bound:
    """The largest error ``method`` can make in ``rounds`` rounds, over all functions of the devices' classes.

        max  metric(x^K)   over  f_i in F(mu_i, L_i),  ||x^0 - x*|| <= r0,  ||x_i* - x*|| <= rstar,

    where x* minimises f = sum_i w_i f_i, x_i* minimises f_i, and x^K is where ``ask`` and ``tell`` lead from x^0. The
    dimension is free, which makes the answer exact (Taylor, Hendrickx and Glineur, 2017).

    Parameters
    ----------
    method : any linear method of this library: OwnStep with At(k) or Never(), GD, Nesterov, HeavyBall, ...
    devices : w_i, L_i and mu_i; devices that are alike cost nothing. Many that all differ are enclosed by a few kinds:
        the ends then stay apart, and ``Bound.kinds`` says so. Convex losses are :func:`ownstep.pep.lipschitz`.
    rounds, r0, rstar : K, R_0 and R_*; ``rstar`` may be 0 (all devices agree on x*) or ``math.inf``.
    metric : ``"value"``, ``"distance"`` or ``"gradient"``: see :data:`ownstep.pep.METRICS`.
    tolerance : relative width of the enclosure to stop at.
    symmetry, effort : False keeps every device apart, for checking; work (not seconds) that may go into narrowing the
        enclosure, where 0 makes the first solve alone.
    patience : seconds after which to end with what is proved, even within a solve; None waits.
    network, start : a class of networks, :class:`ownstep.pep.Spectral`, for methods without a server: the worst case
        over all of them, with :data:`ownstep.pep.NETWORK_METRICS`. One given matrix is ``graph=Mixing(...)`` of the
        method. What else is known of the start is a :class:`ownstep.pep.Start`.
    schedule : who takes part, one row of booleans per round, one column per device; ``missing`` says what is done about
        the others, ``"rescale"`` or ``"drop"``. With ``Bernoulli(p)`` or ``Cohort(size)`` in its place the error is the
        mean over all schedules of that rule, for few devices and rounds.
    progress : called with the number of kinds and the width reached, where few kinds stand for many devices.

    Raises
    ------
    OwnstepError
        The solver fails, or nothing is proved in time; as InvalidInput, at once: bad arguments, a method not linear.
    """
    check_effort(effort, patience)
    apart = any(given is not None for given in (network, start, schedule))
    if isinstance(devices, Lipschitz) or apart or works_locally(method, devices):
        from ownstep.pep.networks import network_bound as wide

        asked = wide.question(method, devices, rounds, r0, rstar, metric, network, start, schedule, missing)
        return wide.enclose(asked, tolerance, effort, patience)
    check(rounds, r0, rstar, metric)
    path, patience = _traced(method, devices, int(rounds), patience)
    setting = Setting(path, devices, float(r0), float(rstar), metric)
    return _enclose(method, setting, tolerance, effort, patience, symmetry=symmetry, progress=progress)


def _traced(method: Method, devices: Devices, rounds: int, patience: float | None) -> tuple[Trace, float | None]:
    """The method's rounds, and how much patience is left after them."""
    began = time.perf_counter()
    path = trace(method, devices, rounds)
    return path, None if patience is None else max(patience - (time.perf_counter() - began), 0.0)


def curve(
    method: Method,
    devices: Devices,
    rounds: int,
    r0: float = 1.0,
    rstar: float = 0.0,
    metric: str = "value",
    *,
    tolerance: float = 1e-5,
    effort: float = 1.0,
    patience: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Bound]:
    """Worst cases after K = 0, 1, ..., ``rounds`` rounds.

    The method is traced once, and each K starts from the interpolation conditions the one before it needed; ``effort``
    and ``patience`` are those of each K.
    """
    check_smooth(devices, "a curve")
    check(rounds, r0, rstar, metric)
    check_effort(effort, patience)
    path = trace(method, devices, int(rounds))
    bounds: list[Bound] = []
    for k in range(int(rounds) + 1):
        asked = Setting(path.until(k), devices, float(r0), float(rstar), metric)
        bounds.append(_enclose(method, asked, tolerance, effort, patience, bounds[-1].hubs if bounds else ()))
        if progress is not None:
            progress(k, int(rounds))
    return bounds


def check_effort(effort: float, patience: float | None) -> None:
    """Refuse values that make no sense."""
    if not (math.isfinite(effort) and effort >= 0):
        raise InvalidInput(f"effort must be a finite number of at least 0, got {effort!r}")
    if patience is not None and not patience >= 0:
        raise InvalidInput(f"patience must be a number of seconds of at least 0, or None, got {patience!r}")


def _enclose(
    method: Method,
    asked: Setting,
    tolerance: float,
    effort: float,
    patience: float | None,
    hubs: tuple[int, ...] = (),
    *,
    symmetry: bool = True,
    progress: Callable[[int, float], None] | None = None,
) -> Bound:
    """One worst case: in canonical units, and carried back."""
    setting, units = canonical(asked)
    search = Search(setting, symmetry)
    plain = (asked.metric, asked.path.rounds, asked.r0, asked.rstar)
    if search.local_optima and math.isinf(asked.rstar):
        return Bound(math.inf, math.inf, *plain, _without_radius(search))
    on = on_line(search, effort) if symmetry else None
    if on is not None:
        return _few(method, asked, units, search, enclose(search, on, tolerance, effort, patience, progress=progress))
    search.prepare(patience)
    if search.target.size == 0:
        return Bound(0.0, 0.0, *plain, "zero: the method reaches x* whatever the functions are")
    hubs = search.run(tolerance, effort, patience, hubs)
    assert search.best is not None
    best, proof = search.best, search.best.proof
    unit = units.metric(asked.metric)
    lower, upper = unit * search.lower, unit * proof.bound
    if not math.isfinite(upper):
        raise OwnstepError(f"no worst case in floating point: the bound is {upper:g}; are constants too far apart?")
    if lower > upper:
        raise InternalError(f"an instance errs by {lower!r} and a proof says at most {upper!r}")
    return Bound(
        lower,
        upper,
        *plain,
        status=_words(search, proof, tolerance),
        solves=search.solves,
        conditions=len(best.rows.pairs),
        size=len(best.gram.columns),
        seconds=time.perf_counter() - search.began,
        hubs=hubs,
        _evidence=Evidence(called(method), asked, units, best.gram, best.rows, best.radii, proof, best.target.size),
        _method=method,
        _worst=search.worst,
    )


def _few(method: Method, asked: Setting, units: Units, search: Search, found: Few) -> Bound:
    """A worst case by way of a few kinds, carried back."""
    best, unit = found.upper, units.metric(asked.metric)
    proof = best.proof
    instance = "the lower end is an instance of these devices, checked in exact arithmetic"
    status = (
        f"{len(asked.devices)} different devices in {found.kinds} kinds: enclosed to a relative {found.gap:.1e}; the "
        f"upper end holds for all devices between the kinds (the proof's slack is positive, {proof.slack:.1e} at "
        f"least), {instance if found.worst is not None else 'the lower end is withdrawn'}. More effort narrows it"
    )
    evidence = (called(method), asked, units, best.gram, best.rows, best.radii, proof, best.target.size)
    return Bound(
        unit * found.lower,
        unit * proof.bound,
        asked.metric,
        asked.path.rounds,
        asked.r0,
        asked.rstar,
        status,
        solves=found.solves,
        conditions=len(best.rows.pairs),
        size=len(best.gram.columns),
        seconds=time.perf_counter() - search.began,
        kinds=found.kinds,
        _evidence=Evidence(*evidence, nodes=found.nodes),
        _method=method,
        _worst=found.worst,
    )


def _words(search: Search, proof: Proof, tolerance: float) -> str:
    """How it went."""
    gap = search.gap()
    words = f"enclosed to a relative {gap:.1e}"
    if gap > tolerance:
        words += f", short of the {tolerance:g} asked for"
    if search.worst is None:
        words = "the lower end is withdrawn: no instance found survives exact arithmetic; the upper end stands"
    return (
        f"{words}; solver: {search.status}; the proof's slack is positive ({proof.slack:.1e} at least), values "
        f"cancel after a repair of {proof.repaired:.1e}; the instance is checked in exact arithmetic"
    )


def _without_radius(search: Search) -> str:
    """No radius around the local minimisers: the tilts s_i may be as large as they like, and so may the error."""
    if not tilt_moves(search.path, search.groups):
        raise OwnstepError("no bound is known for rstar=inf where the devices' tilts matter but do not move x^K")
    return "unbounded: without a radius around the local minimisers the tilts, and with them the error, grow at will"
