"""The smallest rate per round that a Lyapunov function certifies for every number of rounds."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ownstep.methods.base import Method
from ownstep.pep.conditions.classes import check_smooth
from ownstep.pep.networks.spectral import Spectral
from ownstep.pep.proof.certify import Certified
from ownstep.pep.rates.lift import Lifted, lift
from ownstep.pep.rates.lyapunov import Lyapunov, Program, Search, pose
from ownstep.pep.rates.rate_proof import certify_rate
from ownstep.pep.rates.slowest import slowest
from ownstep.pep.trace.units import measured
from ownstep.plan import Devices
from ownstep.support.checks import whole_number
from ownstep.support.errors import InvalidInput, OwnstepError, unknown_name

RATE_METRICS = {"distance": "||x^k - x*||, for methods without a server sqrt(1/N sum_i ||x_i^k - x*||^2)"}
MOST = 12
"""Devices up to which quadratics are tried one by one."""


@dataclass(frozen=True, eq=False)
class Rate:
    """A rate per round, in distance: ||x^k - x*|| <= C rho^k for all k, with C from the first round's V.

    Parameters
    ----------
    rho : certified for every instance of the class.
    lower : the method's own rate on the slowest quadratic found; no certificate can be below it.
    exact : the limit is x*; otherwise the method tends to a fixed point of its own near it, at the rate rho.
    memory : rounds that the Lyapunov function looks at.
    """

    rho: float
    lower: float
    metric: str
    exact: bool
    memory: int
    status: str
    solves: int
    seconds: float
    _lyapunov: Lyapunov = field(repr=False)
    _lifted: Lifted = field(repr=False)
    _search: Search = field(repr=False)
    _asked: tuple[Method, Devices, Spectral | None] = field(repr=False)

    @property
    def gap(self) -> float:
        """Relative width of the enclosure."""
        return (self.rho - self.lower) / self.rho if self.rho > 0 else 0.0

    def lyapunov(self) -> Lyapunov:
        """The Lyapunov function."""
        return self._lyapunov

    @property
    def lifted(self) -> Lifted:
        """The rounds from a free state that the Lyapunov function was found on."""
        return self._lifted

    def certify(self, path: str | Path | None = None) -> Certified:
        """The proof of ``rho`` in rational numbers, checked exactly; written as json to ``path`` when given one."""
        return certify_rate(*self._asked, self._lifted, self._search, self._lyapunov, self.lower, path)

    def to_dict(self) -> dict[str, Any]:
        """The numbers as plain data."""
        names = ("rho", "lower", "gap", "metric", "exact", "memory", "status", "solves", "seconds")
        return {"rate": self.rho} | {name: getattr(self, name) for name in names}


def rate(
    method: Method,
    devices: Devices,
    metric: str = "distance",
    *,
    network: Spectral | None = None,
    memory: int = 1,
    tolerance: float = 1e-6,
) -> Rate:
    """The smallest rho such that a quadratic Lyapunov function shrinks by rho^2 in every round.

        V_{k+1} <= rho^2 V_k   and   V_k >= ||x^k - x*||^2   for all f_i in F(mu_i, L_i) and all W of the class,

    so that the distance shrinks by rho per round, for every number of rounds. V is quadratic in the method's state and
    in the gradients of the next ``memory`` rounds, plus multiples of their values (Taylor, Van Scoy and Lessard 2018).
    The state is the method's own, so nothing has to be derived by hand.

    Parameters
    ----------
    method : any linear method with constant steps: GD, HeavyBall, Nesterov, TripleMomentum, OwnStep with Never() (its
        local phase) or At(0) (its common phase), EXTRA, NIDS, gradient tracking, ...
    devices : w_i, L_i and mu_i.
    network : the class of networks, for methods without a server.
    memory : 0, 1 or more rounds; more can only lower rho.
    tolerance : how close to the smallest rho to come.

    Raises
    ------
    OwnstepError
        No certificate below rho = 1 is found; as InvalidInput: the method is not linear, or changes its rule.
    """
    began = time.perf_counter()
    if metric not in RATE_METRICS:
        raise unknown_name("metric of a rate", metric, RATE_METRICS)
    memory = whole_number("memory", memory, 0)
    check_smooth(devices, "a rate")
    if not tolerance > 0:
        raise InvalidInput(f"tolerance must be positive, got {tolerance!r}")
    if network is not None and len(devices) < 2 and not network.any_number:
        raise InvalidInput(
            "a network needs two devices or more; Spectral(..., any_number=True) leaves their number open"
        )
    lifted = lift(method, devices, network, memory + 1)
    names = [name for name, v in lifted.rounds[0].state.items() if _used(v)]
    if not names:
        raise InvalidInput(f"{type(method).__name__} rests after one round on these losses: there is no rate to find")
    small = len(devices) <= MOST
    unit = lifted.frame.kinds.unit
    lower, exact = slowest(method, measured(devices, 1 / unit), names, network, unit) if small else (0.0, lifted.pooled)
    _check(lifted, exact, method)
    search = pose(lifted, memory, *((0.0, 0.0) if network is None else (network.lo, network.hi)))
    program = Program(search)
    found, solves = _bisect(program, lower, tolerance)
    if found is None:
        what = f"{type(method).__name__} with memory {memory}{_on_a_quadratic(lower)}"
        raise OwnstepError(f"no quadratic certificate below rho = 1 was found for {what}")
    words = _words(f"enclosed to {found.rho - lower:.1e}" if small else "certified", exact, found.slack)
    told = (metric, exact, memory, words, solves, time.perf_counter() - began)
    return Rate(found.rho, lower, *told, found.carried(search), lifted, search, (method, devices, network))


def _on_a_quadratic(lower: float) -> str:
    """What is known about the slowest quadratic, where one was tried."""
    if not lower:
        return ""
    if lower > 1 + 1e-9:
        return f"; on a quadratic it diverges, growing {lower:.9g} times per round: shorten the step"
    return f"; on a quadratic it shrinks by no more than {lower:.9g} per round"


def _words(width: str, exact: bool, slack: float) -> str:
    """How it went."""
    limit = "x*" if exact else "a fixed point of its own, x* only if devices agree"
    return f"{width}; the limit is {limit}; smallest eigenvalue {slack:.1e}"


def _used(v: Any) -> bool:
    rows = v.mean_row if hasattr(v, "mean_row") else v.mean_rows
    return bool(np.any(rows) or np.any(getattr(v, "difference", 0)))


def _check(lifted: Lifted, exact: bool, method: Method) -> None:
    """Away from x*, local steps rest at several points, and their conditions are no longer those around one."""
    several = any(len(r.evaluations) > 1 for r in lifted.rounds)
    if several and not exact:
        raise InvalidInput(
            f"{type(method).__name__} with these local steps does not end at x*: its rate is not covered here; "
            "use worst_case, or one local step"
        )


def _bisect(program: Program, lower: float, tolerance: float) -> tuple[Lyapunov | None, int]:
    """The smallest rho for which a Lyapunov function is found; the first tries stay close to the lower end."""
    best, solves = program.certify(1 - tolerance), 1
    if best is None:
        return None, solves
    low, step = lower, tolerance
    while low + step < best.rho:  # most often the quadratics are the worst: look just above them first
        solves += 1
        if (found := program.certify(low + step)) is not None:
            best = found
            break
        low, step = low + step, 8 * step
    while best.rho - low > tolerance:
        solves += 1
        middle = (low + best.rho) / 2
        if (found := program.certify(middle)) is None:
            low = middle
        else:
            best = found
    return best, solves
