r"""Steps by design: the schedule with the smallest exact worst case, as an ordinary method with its bound attached.

The descent is that of :mod:`ownstep.pep.design.family`. The problem is not convex: what is found is a local optimum,
the best of several starts, and all of them are reported.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from ownstep.methods import GD, ITEM, OGM, At, Method, Nesterov, OwnStep
from ownstep.methods.own.schedule import Schedule
from ownstep.pep.bound import Bound, check_effort, worst_case
from ownstep.pep.conditions.classes import check, check_smooth
from ownstep.pep.design.composed import composed_steps
from ownstep.pep.design.family import Design, Point, descend, kinds
from ownstep.pep.trace.symbolic import trace
from ownstep.pep.trace.units import Setting, canonical
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput, OwnstepError, unknown_name

Array = NDArray[np.float64]
Progress = Callable[[float, str], None]

WHAT = {
    "switch": "the switch between steps of 1/L_i and 1/L-bar",
    "scales": "a local scale for each kind of device, a common scale, and the switch between them",
    "schedule": "a scale for each round and kind of device",
    "momentum": "the same, and two kinds of momentum for each round",
}
"""What may be chosen; each contains the one before it."""

LAST_EFFORT = 4.0
"""Effort that goes into the final enclosure; designed steps need more conditions than others."""

SEARCH = 0.75  # the part of patience that the search may take; the rest is for the final enclosure

RIVAL_EFFORT = 0.2
"""The same while a rival's best switch is searched."""

WORK = 6e7
"""Conditions times columns, summed over the solves, after which no further move is begun. Not seconds, so that a busy
machine gives the same steps."""

COARSE = 1e-3
"""Relative gain at which the search over switches stops; the best is then refined."""


@dataclass(frozen=True, eq=False)
class Tuned:
    """A designed method, its bound, and how it was found.

    Parameters
    ----------
    method : a :class:`~ownstep.methods.Schedule`; runs on every engine.
    bound : its worst case, enclosed; ``bound.certify()`` proves it in rational numbers.
    what : see :data:`WHAT`.
    start : where the best descent began.
    starts : the value each start had, and the one it led to.
    history : the values of the best descent.
    stopped : why it ended.
    """

    method: Schedule
    bound: Bound
    what: str
    start: str
    starts: dict[str, tuple[float, float]]
    history: list[float] = field(repr=False)
    stopped: str
    solves: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        method = {"scales": self.method.scales, "momentum": self.method.momentum, "after": self.method.after}
        told: dict[str, Any] = {"what": self.what, "start": self.start, "starts": self.starts, "history": self.history}
        told |= {"stopped": self.stopped, "solves": self.solves, "seconds": self.seconds}
        return {"method": method, "bound": self.bound.to_dict()} | told


def tune(
    devices: Devices,
    rounds: int,
    r0: float = 1.0,
    rstar: float = 0.0,
    metric: str = "value",
    what: str = "schedule",
    *,
    steps: int = 40,
    tolerance: float = 1e-4,
    common: bool = False,
    effort: float = 1.0,
    patience: float | None = None,
    progress: Progress | None = None,
) -> Tuned:
    """Choose steps for these devices by minimising the exact worst case after ``rounds`` rounds.

    Parameters
    ----------
    devices, rounds, r0, rstar, metric : as for :func:`~ownstep.pep.worst_case`; ``rstar`` must be finite.
    what : ``"switch"``, ``"scales"``, ``"schedule"`` or ``"momentum"``: see :data:`WHAT`.
    steps : moves from each start, at most.
    tolerance : relative gain below which a descent ends.
    common : every device takes the same step, so that the method follows grad f alone: the fair rival of a design that
        weighs devices apart, for the same classes and radii.
    effort : how much work may go into the search, in units of :data:`WORK`; the same on a busy machine.
    patience : seconds to take, a quarter of them for the final bound; the search ends even within a solve. Only a first
        worst case and one bound are always waited for. None waits. An interrupt (Ctrl-C) ends the search in the same
        way: what was found until then is returned, with its bound.
    progress : called with the best value so far and what is being done.

    Raises
    ------
    InvalidInput
        For arguments out of range.
    OwnstepError
        When the solver fails at every start.
    """
    check_smooth(devices, "a design")
    check(rounds, r0, rstar, metric)
    if rounds < 1 or not np.isfinite(rstar):
        raise InvalidInput(f"a design needs at least one round and a finite rstar, got rounds={rounds}, rstar={rstar}")
    if what not in WHAT:
        raise unknown_name("what", what, WHAT)
    check_effort(effort, patience)
    limits = (steps, tolerance, effort, math.inf if patience is None else patience)
    asked = (int(rounds), float(r0), float(rstar), metric)
    if not common:
        return _Search(devices, *asked, limits, progress).run(what)
    # where all follow grad f the devices act as one function, of class F(sum_i w_i mu_i, L_bar)
    pooled = Devices.uniform([devices.L_bar], float(devices.weights @ devices.mu))
    found = _Search(pooled, *asked, limits, progress).run(what)
    rows = tuple(tuple((row[0] * devices.L / devices.L_bar).tolist()) for row in found.method.scales)
    method = Schedule(rows, found.method.momentum)
    left = None if patience is None else patience - found.seconds
    return replace(found, method=method, bound=enclosed(method, devices, asked, left))


def enclosed(method: Schedule, devices: Devices, asked: tuple[int, float, float, str], patience: float | None) -> Bound:
    """The bound of what was found: one solve, whatever time is left, and then what that time allows."""
    setting = (method, devices, *asked)
    if patience is None:
        return worst_case(*setting, effort=LAST_EFFORT)
    first = worst_case(*setting, effort=0.0)
    left = max(patience - first.seconds, 0.0)
    try:
        return min(first, worst_case(*setting, effort=LAST_EFFORT, patience=left), key=lambda bound: bound.upper)
    except OwnstepError:
        return first


class _Search:
    """The starts, one after the other; a family of schedules begins where the smaller one before it ended."""

    def __init__(
        self,
        devices: Devices,
        rounds: int,
        r0: float,
        rstar: float,
        metric: str,
        limits: tuple[int, float, float, float],
        progress: Progress | None,
    ) -> None:
        asked = Setting(trace(GD(), devices, rounds), devices, r0, rstar, metric)
        small, units = canonical(asked)  # scales are of 1/L_i, so a design is the same in all units
        self.asked, self.unit = (devices, rounds, r0, rstar, metric), units.metric(metric)
        self.devices, self.rounds = small.devices, rounds
        self.setting = (rounds, small.r0, small.rstar, metric)
        self.steps, self.tolerance, self.effort, patience = limits
        self.began, self.progress = time.monotonic(), progress
        self.patience, self.deadline = patience, self.began + SEARCH * patience
        self.kind = np.zeros(len(devices), dtype=int)
        self.count = len(kinds(devices))
        for c, members in enumerate(kinds(devices)):
            self.kind[members] = c
        self.common = devices.L[[members[0] for members in kinds(devices)]] / devices.L_bar
        self.starts: dict[str, tuple[float, float]] = {}
        self.best: tuple[Schedule, list[float], str, str] | None = None
        self.solves, self.work, self.over = 0, 0.0, False

    def run(self, what: str) -> Tuned:
        size = list(WHAT).index(what)
        try:
            for stage in (self._switch, self._scales, self._schedules, self._momentum)[: size + 1]:
                stage()
                if self.best is None:
                    break
        except KeyboardInterrupt:
            if self.best is None:
                raise
        if self.best is None:
            raise OwnstepError("the semidefinite solver failed at every start")
        method, history, start, stopped = self.best
        left = None if math.isinf(self.patience) else self.patience - (time.monotonic() - self.began)
        bound = enclosed(method, self.asked[0], self.asked[1:], left)
        seconds = time.monotonic() - self.began
        history = [self.unit * value for value in history]
        starts = {name: (self.unit * before, self.unit * after) for name, (before, after) in self.starts.items()}
        return Tuned(method, bound, what, start, starts, history, stopped, self.solves, seconds)

    def _switch(self) -> None:
        """Algorithm 1 as published, with every switch."""
        for switch in range(self.rounds + 1):
            self._descend(f"Algorithm 1, {switch} local rounds", self._two_phases(switch), np.ones(self.count + 1), 0)

    def _scales(self) -> None:
        """Descents from Algorithm 1's best switch and, as long as that helps, on to its neighbours; and from afar."""
        assert self.best is not None
        ends = [self.starts.get(f"Algorithm 1, {k} local rounds", (0.0, np.inf))[1] for k in range(self.rounds + 1)]
        waiting = [int(np.argmin(ends)), *(max(self.rounds * part // 4, 1) for part in (1, 3)), 0]
        theta = {switch: np.ones(self.count + 1) for switch in waiting}
        found: dict[int, float] = {}
        while waiting and not self.over:
            switch = waiting.pop(0)
            if switch in found:
                continue
            name = f"two phases, {switch} local rounds"
            end = self._descend(name, self._two_phases(switch), theta[switch], self.steps, COARSE)
            found[switch] = end.value if end else np.inf
            if end and end.value <= min(found.values()):
                for near in (switch - 1, switch + 1):
                    if 0 <= near <= self.rounds and near not in found:
                        theta[near] = end.theta
                        waiting.insert(0, near)

    def _schedules(self) -> None:
        """From the best two phases, Algorithm 1, the best-conditioned device alone, and composed steps."""
        assert self.best is not None
        self._descend("the best two phases", self._rows, self._flat(self.best[0]), self.steps)
        local = np.ones((self.rounds, self.count))
        local[-max(self.rounds // 3, 1) :] = 1.5 * self.common
        self._descend("own steps, then 1.5/L-bar", self._rows, local.ravel(), self.steps)
        self._descend("the best-conditioned device alone", self._rows, self._alone()[0], self.steps)
        composed = np.outer(composed_steps(self.rounds), self.common)
        self._descend("composed steps", self._rows, composed.ravel(), self.steps)

    def _alone(self) -> tuple[Array, Devices]:
        """Steps of 1/L on the best-conditioned kind of device and none on the others; and that device by itself."""
        leaders = [members[0] for members in kinds(self.devices)]
        best = int(np.argmax(self.devices.mu[leaders] / self.devices.L[leaders]))
        scales = np.zeros((self.rounds, self.count))
        scales[:, best] = 1 / float(self.devices.weights[self.kind == best].sum())
        one = leaders[best]
        return scales.ravel(), Devices.uniform([self.devices.L[one]], self.devices.mu[one])

    def _momentum(self) -> None:
        """From the best schedule, and from the optimal methods, on grad f and on the best-conditioned device alone."""
        assert self.best is not None
        still = np.zeros(2 * self.rounds)
        self._descend("the best schedule", self._both, np.concatenate([self._flat(self.best[0]), still]), self.steps)
        for name, method in _centralised(self.devices, self.rounds).items():
            schedule = as_schedule(method, self.devices, self.rounds)
            theta = np.concatenate([self._flat(schedule), np.ravel(schedule.momentum)])
            self._descend(name, self._both, theta, self.steps)
        scales, device = self._alone()
        for name, method in _centralised(device, self.rounds).items():
            momentum = np.ravel(as_schedule(method, device, self.rounds).momentum)
            self._descend(f"{name} on the best-conditioned device", self._both, np.append(scales, momentum), self.steps)

    def _descend(
        self, name: str, family: Callable[[Array], Schedule], theta: Array, steps: int, tolerance: float | None = None
    ) -> Point | None:
        """One start to its end; keeps it if it is the best. Without steps this is one worst case, and always done."""
        if self.over and steps:
            return None
        design = self._design(family)
        path: list[Point] = []

        def tick(value: float) -> bool:
            late = time.monotonic() > self.deadline
            self.over = late or self.work + design.work > self.effort * WORK
            if self.progress is not None:
                best = min(value, self.best[1][-1] if self.best else np.inf)
                self.progress(self.unit * best, f"from {name}: {self.unit * value:.6g}")
            return not self.over

        stopped = "interrupted"
        try:
            path.append(design.evaluate(theta))
            stopped = descend(design, path, steps, tolerance or self.tolerance, tick) if steps else "as published"
        except OwnstepError as error:
            stopped = str(error)
        finally:
            self.solves += design.solves
            self.work += design.work
            if path:
                self.starts[name] = (path[0].value, path[-1].value)
                values = [point.value for point in path]
                if self.best is None or values[-1] < self.best[1][-1]:
                    self.best = (family(path[-1].theta), values, name, stopped)
        return path[-1] if path else None

    def _design(self, family: Callable[[Array], Schedule]) -> Design:
        deadline = self.deadline if self.best is not None else math.inf  # something must be found
        return Design(family, self.devices, *self.setting, deadline=deadline)

    def _two_phases(self, switch: int) -> Callable[[Array], Schedule]:
        def family(theta: Array) -> Schedule:
            local, common = theta[:-1], theta[-1] * self.common
            return self._rows(np.concatenate([np.tile(local, switch), np.tile(common, self.rounds - switch)]))

        return family

    def _rows(self, theta: Array) -> Schedule:
        return Schedule(tuple(map(tuple, theta.reshape(self.rounds, self.count)[:, self.kind].tolist())))

    def _both(self, theta: Array) -> Schedule:
        cut = self.rounds * self.count
        momentum = tuple((float(beta), float(gamma)) for beta, gamma in theta[cut:].reshape(self.rounds, 2))
        return Schedule(self._rows(theta[:cut]).scales, momentum)

    def _flat(self, schedule: Schedule) -> Array:
        """One number per round and kind, from rows of one number per device."""
        leaders = [members[0] for members in kinds(self.devices)]
        return np.array([[row[i] for i in leaders] for row in schedule.scales]).ravel()


def as_schedule(method: Method, devices: Devices, rounds: int) -> Schedule:
    """A method that steps along grad f with two-term momentum (Nesterov, OGM, ITEM), written as a schedule.

    One that is not of that form is refused with :class:`InvalidInput`.
    """
    path = trace(method, devices, rounds)
    step, atoms = 1 / devices.L_bar, np.eye(rounds + 1)
    points = [row[0] for row in (*path.asks, path.points[-1])]
    y, pairs = points[0], []
    for k in range(rounds):
        mix = path.mixes[k]
        if mix is None or not np.allclose(mix, devices.weights, rtol=1e-12):
            raise InvalidInput(f"{method!r} is not a method that steps along grad f")
        new = points[k] - step * atoms[k + 1]
        basis, left = np.stack([new - y, new - points[k]]).T, points[k + 1] - new
        pair = np.linalg.lstsq(basis, left, rcond=None)[0]
        if np.abs(basis @ pair - left).max() > 1e-9 * np.abs(points[k + 1]).max():
            raise InvalidInput(f"{method!r} is not of the form of a schedule with momentum")
        pairs.append((float(pair[0]), float(pair[1])))
        y = new
    row = tuple((devices.L / devices.L_bar).tolist())
    return Schedule((row,) * rounds, tuple(pairs))


def _centralised(devices: Devices, rounds: int) -> dict[str, Method]:
    """The best fixed-step methods known that use grad f alone."""
    strongly = float(devices.weights @ devices.mu) > 0
    return {"OGM": OGM("mean", horizon=rounds)} | ({"ITEM": ITEM("mean")} if strongly else {})


def rivals(
    devices: Devices,
    rounds: int,
    r0: float = 1.0,
    rstar: float = 0.0,
    metric: str = "value",
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Bound]:
    """Worst cases, at the same K, of the methods that a design is compared with.

    GD, GD tuned, Nesterov, OGM, ITEM; Algorithm 1, and own steps with momentum, each at its best switch.
    """
    setting = (devices, rounds, r0, rstar, metric)
    fixed: dict[str, Method] = {"GD 1/L-bar": GD(), "Nesterov 1/L-bar": Nesterov("mean")}
    fixed |= _centralised(devices, rounds)
    total = len(fixed) + 2 * (rounds + 1) + 1
    found: dict[str, Bound] = {}

    def tick(done: int) -> None:
        if progress is not None:
            progress(done, total)

    for done, (name, method) in enumerate(fixed.items()):
        found[name] = worst_case(method, *setting)
        tick(done + 1)

    def by_step(scale: float) -> float:
        return worst_case(GD(float(scale) / devices.L_bar), *setting, tolerance=1e-4).upper

    scale = float(minimize_scalar(by_step, bounds=(0.5, 2.2), method="bounded", options={"xatol": 1e-3}).x)
    found[f"GD {scale:.3f}/L-bar, tuned"] = worst_case(GD(scale / devices.L_bar), *setting)
    momentum = "item" if float(devices.weights @ devices.mu) > 0 else "nesterov"
    done = len(fixed) + 1
    for name, kind in (("Algorithm 1", None), (f"own steps, {momentum}", momentum)):
        by_switch = []
        for switch in range(rounds + 1):
            method = OwnStep(At(switch), momentum=kind)
            by_switch.append(worst_case(method, *setting, tolerance=1e-4, effort=RIVAL_EFFORT).upper)
            done += 1
            tick(done)
        best = int(np.argmin(by_switch))
        found[f"{name}, best switch ({best})"] = worst_case(OwnStep(At(best), momentum=kind), *setting)
    return found
