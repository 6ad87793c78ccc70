r"""Steps and mixing weights by design: those with the smallest worst case over a class of networks.

Chosen are a step for all devices or one for each kind of them, and theta of the lazier mixing (1 - theta) I + theta W.
If W has its eigenvalues in [lo, hi], the lazier matrix has them in [1 - theta (1 - lo), 1 - theta (1 - hi)]: the design
moves the class, and every bound of the moved class is one for the given W. Each candidate is judged by a proved bound.
The problem is not convex: what is found is the best of several descents without derivatives, all of which are reported.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from ownstep.methods.gossip.mixing import Mixing
from ownstep.methods.gossip.peers import Peers
from ownstep.pep.bound import Bound, check_effort, worst_case
from ownstep.pep.conditions.classes import Lipschitz, check_smooth
from ownstep.pep.networks.kind_vectors import Kinds
from ownstep.pep.networks.network_bound import question
from ownstep.pep.networks.network_enclosure import upper
from ownstep.pep.networks.question import Question, Start, canonical_question
from ownstep.pep.networks.spectral import Spectral
from ownstep.pep.trace.units import AS_GIVEN
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput, OwnstepError, unknown_name

Array = NDArray[np.float64]

NETWORK_WHAT = {
    "step": "one step for all devices",
    "own": "a step for each kind of device",
    "mixing": "one step for all devices, and theta of the mixing (1 - theta) I + theta W",
    "both": "a step for each kind of device, and theta",
}
"""What may be chosen for a class of networks."""

LENGTHS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1.0, 1.4, 1.8)
"""Common steps to begin with, in units of 1 / max_i N w_i L_i."""

SHORTEST, LONGEST, LEAST = 1e-3, 20.0, 0.05
"""Bounds of the steps in units of 1 / (N w_i L_i), and of theta."""

EVALUATIONS = 120
"""Worst cases that one descent may compute with ``effort=1``."""

CLOSE = 1e-3
"""Relative change of the steps at which a descent ends."""


@dataclass(frozen=True, eq=False)
class TunedNetwork:
    """A method designed for a class of networks, its bound, and how it was found.

    Parameters
    ----------
    method : with the designed steps; :meth:`on` puts it on a given network.
    theta : of the mixing (1 - theta) I + theta W; 1 leaves W as it is.
    network : the class that was asked about.
    bound : the worst case over that class, enclosed; ``bound.certify()`` proves it in rational numbers.
    what : see :data:`NETWORK_WHAT`.
    starts : the value each descent began with, and the one it led to.
    """

    method: Peers
    theta: float
    network: Spectral
    bound: Bound
    what: str
    starts: dict[str, tuple[float, float]] = field(repr=False)
    stopped: str
    evaluations: int
    seconds: float

    def on(self, mixing: Mixing) -> Peers:
        """The designed method on a network of the class; where W is not of the class the bound does not hold."""
        return replace(self.method, graph=mixing.lazier(self.theta))

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        step = list(self.method.step) if isinstance(self.method.step, tuple) else self.method.step
        told: dict[str, Any] = {"what": self.what, "step": step, "theta": self.theta, "starts": self.starts}
        told |= {"stopped": self.stopped, "evaluations": self.evaluations, "seconds": self.seconds}
        return told | {"bound": self.bound.to_dict()}


def tune_network(
    method: Peers,
    devices: Devices | Lipschitz,
    rounds: int,
    r0: float = 1.0,
    rstar: float = 0.0,
    metric: str = "value",
    what: str = "mixing",
    *,
    network: Spectral,
    start: Start | None = None,
    effort: float = 1.0,
    patience: float | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> TunedNetwork:
    """Choose steps and mixing weights by minimising the worst case over a class of networks.

    Parameters
    ----------
    method : DecentralisedGD, GradientTracking, EXTRA or NIDS; its own step is only the first one tried.
    devices, rounds, r0, rstar, metric, network, start : as for :func:`~ownstep.pep.worst_case`.
    what : ``"step"``, ``"own"``, ``"mixing"`` or ``"both"``: see :data:`NETWORK_WHAT`.
    effort : how many worst cases each descent may compute, in units of :data:`EVALUATIONS`.
    patience : seconds after which the search ends with the best so far; None waits. So does an interrupt (Ctrl-C).
    progress : called with the best value so far and what is being done.

    Raises
    ------
    InvalidInput
        For arguments out of range, or steps that the method does not have.
    OwnstepError
        When the solver fails at every start.

    Examples
    --------
    >>> from ownstep import DecentralisedGD, pep
    >>> devices = pep.repeated([0.5, 1.5], mu=0.1)
    >>> found = pep.tune_network(DecentralisedGD(), devices, 2, what="step", network=pep.Spectral(-0.5, 0.5))
    >>> bool(found.bound.upper < pep.worst_case(DecentralisedGD(), devices, 2, network=found.network).upper)
    True
    """
    check_smooth(devices, "a design")
    if not isinstance(method, Peers):
        raise InvalidInput(f"{type(method).__name__} works without a network: use tune")
    if what not in NETWORK_WHAT:
        raise unknown_name("what", what, NETWORK_WHAT)
    if what in ("own", "both") and "own" not in method.steps_allowed:
        raise InvalidInput(f"{type(method).__name__} takes one step for all devices: choose 'step' or 'mixing'")
    if rounds < 1:
        raise InvalidInput(f"a design needs at least one round, got rounds={rounds}")
    check_effort(effort, patience)
    asked = question(method, devices, rounds, r0, rstar, metric, network, start, None, "rescale")
    return _Search(asked, effort, patience, progress).run(what)


class _Ended(Exception):
    """The search is over: too many worst cases, or too late."""


class _Search:
    """The descents, one after the other; the best point is kept whatever ends them.

    Steps and values are in canonical units until they are told: nothing depends on the caller's.
    """

    def __init__(
        self,
        given: Question,
        effort: float,
        patience: float | None,
        progress: Callable[[float, str], None] | None,
    ) -> None:
        assert isinstance(given.method, Peers)
        assert given.network is not None
        small = canonical_question(given)
        self.unit, self.curvature = small.units.metric(given.metric), small.units.curvature
        self.given, self.asked = given, replace(small, units=AS_GIVEN)
        self.method, self.network, self.progress = given.method, given.network, progress
        self.kinds = Kinds.of(small.devices)
        curvature = self.kinds.L * self.kinds.weight * len(small.devices)
        self.own, self.common = 1 / curvature, 1 / float(curvature.max())
        self.began = time.monotonic()
        self.deadline = self.began + (math.inf if patience is None else patience)
        self.allowed = max(int(effort * EVALUATIONS), 1)
        self.starts: dict[str, tuple[float, float]] = {}
        self.best: tuple[float, Peers, float] = (math.inf, self.method, 1.0)
        self.evaluations, self.left, self.failure = 0, self.allowed, ""

    def run(self, what: str) -> TunedNetwork:
        """All descents, the final enclosure, and what there is to tell."""
        stopped = "every descent came to rest"
        try:
            self._descents(what)
        except _Ended:
            stopped = "out of patience"
        except KeyboardInterrupt:
            if math.isinf(self.best[0]):
                raise
            stopped = "interrupted"
        value, method, theta = self.best
        if math.isinf(value):
            why = stopped if time.monotonic() > self.deadline else self.failure
            raise OwnstepError(f"no worst case could be proved at any start: {why}")
        step = np.asarray(method.step, float) / self.curvature
        method = replace(method, step=tuple(step.tolist()) if step.ndim else float(step))
        given = self.given
        setting = (given.devices, given.rounds, given.r0, given.rstar, given.metric)
        bound = worst_case(method, *setting, network=self.network.lazier(theta), start=given.start)
        starts = {name: (self.unit * first, self.unit * last) for name, (first, last) in self.starts.items()}
        found = (starts, stopped, self.evaluations, time.monotonic() - self.began)
        return TunedNetwork(method, theta, self.network, bound, what, *found)

    def _descents(self, what: str) -> None:
        alike = np.full(len(self.kinds), self.common)
        lengths = [(self._try(t * alike, 1.0), t) for t in LENGTHS]
        if math.isinf(self.best[0]):
            return  # nothing was proved at any of them
        first = min(lengths)[1] * alike
        self._descend("the best of a few common steps", first, 1.0, own=False, lazy=False)
        best = self._steps()
        if what in ("own", "both"):
            self._descend("the best common step, devices apart", best, 1.0, own=True, lazy=False)
            scaled = [(self._try(t * self.own, 1.0), t) for t in (0.5, 0.75, 1.0, 1.25)]
            self._descend("own steps 1/L_i", min(scaled)[1] * self.own, 1.0, own=True, lazy=False)
        if what in ("mixing", "both"):
            own = what == "both"
            middle = min(1.0, 2 / (2 - self.network.lo - self.network.hi))  # as fast as averaging alone can be
            self._descend("the best steps, lazier", self._steps(), 0.9 * middle, own=own, lazy=True)
            self._descend("the best steps, half lazy", 1.5 * self._steps(), 0.5, own=own, lazy=True)

    def _steps(self) -> Array:
        """The best steps so far, one per kind."""
        step = self.best[1].step
        if isinstance(step, tuple):
            return np.array([step[int(np.argmax(self.kinds.index == c))] for c in range(len(self.kinds))])
        return np.full(len(self.kinds), float(step))

    def _try(self, steps: Array, theta: float) -> float:
        """A proved bound for these steps; infinite where none was found."""
        if time.monotonic() > self.deadline:
            raise _Ended
        self.evaluations += 1
        one = bool(np.ptp(steps) == 0)
        step = float(steps[0]) if one else tuple(steps[self.kinds.index].tolist())
        method = replace(self.method, step=step)
        asked = replace(self.asked, method=method, network=self.network.lazier(theta))
        try:
            value = upper(asked, deadline=self.deadline).proof.bound
        except OwnstepError as error:
            self.failure = str(error)
            return math.inf
        if value < self.best[0]:
            self.best = (value, method, theta)
        return value

    def _descend(self, name: str, steps: Array, theta: float, *, own: bool, lazy: bool) -> None:
        """Nelder and Mead's descent in the logarithms of the steps and in theta."""
        free = np.log(steps) if own else np.log(steps[:1])
        x0 = np.append(free, theta) if lazy else free
        low, high = np.log(SHORTEST * self.own), np.log(LONGEST * self.own)
        limits = list(zip(low, high, strict=True)) if own else [(float(low.min()), float(high.max()))]
        limits += [(LEAST, 1.0)] if lazy else []
        values: list[float] = []

        def value(x: Array) -> float:
            lengths = np.exp(x[: len(free)]) * np.ones(len(self.kinds))
            found = self._try(lengths, float(x[-1]) if lazy else 1.0)
            values.append(min(found, values[-1] if values else math.inf))
            if self.progress is not None:
                self.progress(self.unit * self.best[0], f"from {name}: {self.unit * found:.6g}")
            return math.log(found) if 0 < found < math.inf else (1e3 if found else -1e3)

        simplex = np.vstack([x0, *(x0 + 0.3 * row for row in np.diag(np.ones(len(x0))))])
        if lazy:
            simplex[-1, -1] = max(theta - 0.2, LEAST)
        options = {"xatol": CLOSE, "fatol": CLOSE / 10, "maxfev": self.allowed, "initial_simplex": simplex}
        try:
            minimize(value, x0, method="Nelder-Mead", bounds=limits, options=options)
        finally:
            if values:
                self.starts[name] = (values[0], values[-1])
