"""What should I use? A rehearsal on a sample of the rows, priced over a network.

How many exchanges a method needs depends on the whole spectrum, on how far the minimiser is, on how many devices there
are and how they differ. No formula in d, N and a condition number knows all that, but a sample of the rows does. So
every candidate is run on a sample, to the same relative gap, with as many devices of the same weights, and the time
model says what its exchanges would take over the network. No constant here was fitted to a dataset.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ownstep.engines.limits import parse_wire
from ownstep.engines.local.answering import MOST_COORDINATES
from ownstep.engines.local.engine import describe, run
from ownstep.engines.participation import Bernoulli
from ownstep.engines.timing import TimeModel
from ownstep.history import History
from ownstep.methods import LBFGS, METHODS, BarzilaiBorwein, Method, Nesterov, Newton, OwnCurvature, OwnStep, key_of
from ownstep.methods.own.curvature import RANK
from ownstep.plan import Devices
from ownstep.support.checks import number
from ownstep.support.errors import InvalidInput, OwnstepError

if TYPE_CHECKING:
    from ownstep.problems.linear.model import LinearModel

SAMPLE, PER_DEVICE = 2000, 40
"""Rows in a rehearsal, and rows of a device where it has them: four times the default rank."""
MOST = 500
"""Exchanges of a rehearsal, at most."""
HOPELESS = 4.0
"""A first-order method is given up once it would take so many times the seconds of the best so far."""
DRAWS = 3
"""Of who is absent: the middle one counts."""
FEWEST = 3
"""Exchanges that Newton's method needs anywhere: where sending so many triangles takes longer, it is not rehearsed."""


def candidates() -> dict[str, Method]:
    """What :func:`recommend` chooses from: methods that need no search, run on every engine and reach the minimiser."""
    return {
        "L-BFGS": LBFGS(),
        "own curvature": OwnCurvature(),
        "own curvature, shared sums": OwnCurvature(sketch="sum"),
        "Newton": Newton(),
        "Barzilai-Borwein": BarzilaiBorwein(),
        "adaptive own steps": OwnStep(smoothness="adaptive"),
        "Nesterov": Nesterov(),
        "Algorithm 1": OwnStep(),
    }


@dataclass(frozen=True)
class Expected:
    """What a method is expected to cost. ``exchanges`` is None where the rehearsal did not reach the gap.

    Parameters
    ----------
    key : the method in one word, as ``ownstep run --method`` and ``compare --methods`` take it.
    bytes : what one device sends and receives.
    seconds : over the network asked about.
    shows : what the server sees of the devices.
    note : why there is no number.
    """

    method: str
    key: str
    exchanges: int | None
    bytes: float | None
    seconds: float | None
    shows: str
    note: str = ""


@dataclass(frozen=True)
class Recommendation:
    """Candidates with what they are expected to cost, the fastest first, and how that was found out."""

    rows: tuple[Expected, ...]
    wire: str
    tolerance: float
    absent: float
    sampled: int
    samples: int
    devices: int
    dim: int

    @property
    def best(self) -> Expected | None:
        """The method to use; None where no candidate reached the gap."""
        return self.rows[0] if self.rows[0].seconds is not None else None

    @property
    def runner_up(self) -> Expected | None:
        """The second fastest."""
        return self.rows[1] if self.rows[1].seconds is not None else None

    def __str__(self) -> str:
        on = "all" if self.sampled == self.samples else f"{self.sampled:,} of the {self.samples:,}"
        how = f"rehearsed on {on} rows, to a relative gap of {self.tolerance:g}, over the {self.wire} network"
        if self.best is None:
            return f"No candidate arrived within {MOST} exchanges ({how})."
        first = self.best
        text = f"Use {first.method}: about {first.exchanges} exchanges, {first.bytes:,.0f} bytes per device and "
        text += f"{first.seconds:.3g} s ({how})."
        if (second := self.runner_up) is not None:
            text += f" Next: {second.method}, {second.exchanges} exchanges and {second.seconds:.3g} s."
        return text

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        told = {n: getattr(self, n) for n in ("wire", "tolerance", "absent", "sampled", "samples", "devices", "dim")}
        best, second = self.best, self.runner_up
        return told | {
            "use": None if best is None else best.key, "runner_up": None if second is None else second.key,
            "expected": [dict(vars(row)) for row in self.rows], "says": str(self),
        }  # fmt: skip


def recommend(
    problem: LinearModel,
    wire: str | TimeModel = "wan",
    *,
    absent: float = 0.0,
    tolerance: float = 1e-6,
    sample: int = SAMPLE,
    seed: int = 0,
    named: str | None = None,
) -> Recommendation:
    """Which method reaches a relative gap in the fewest seconds over a network, by a rehearsal on a sample of the rows.

    Parameters
    ----------
    wire : ``home``, ``wan``, ``datacentre``, ``SECONDS:BYTES_PER_S``, or a time model.
    absent : the share of devices that miss an exchange, each independently; their weight is shared by the others.
    sample : rows of the rehearsal; every device keeps 40 of its own, where it has them.
    seed : of the sample and of who is absent.
    named : what to call the network.
    """
    model = parse_wire(wire) if isinstance(wire, str) else wire
    made = rehearse(problem, (model,), absent=absent, tolerance=tolerance, sample=sample, seed=seed)
    return made.over(model, named or (wire if isinstance(wire, str) else repr(wire)))


def rehearse(
    problem: LinearModel,
    wires: Sequence[TimeModel],
    *,
    absent: float = 0.0,
    tolerance: float = 1e-6,
    sample: int = SAMPLE,
    seed: int = 0,
) -> Rehearsal:
    """The candidates on a sample of the rows, but for those that would lose over each of these networks.

    :meth:`Rehearsal.over` prices them.
    """
    if not number("absent", absent, 0) <= 0.9:
        raise InvalidInput(f"absent is the share of devices that miss an exchange, at most 0.9, got {absent!r}")
    if not number("tolerance", tolerance, above=0) < 1:
        raise InvalidInput(f"tolerance must be below 1, the relative gap at the start, got {tolerance!r}")
    if not hasattr(problem, "sample"):
        raise InvalidInput(f"a rehearsal needs rows to sample, which {type(problem).__name__} has not")
    from ownstep.problems.reference import optimum

    small = problem.sample(sample, PER_DEVICE, seed)
    whole = small.starts[-1] == problem.starts[-1]
    best, start = optimum(small).value, small.value(small.x0())
    if not start > best:
        raise InvalidInput(f"the start is already optimal: f(x0) = {start!r}, f* = {best!r}")
    devices, rank = describe(small).devices, min(RANK, problem.dim)
    out = Rehearsal(problem, small, tolerance, absent, {}, {})
    for name, method in candidates().items():
        if not whole and isinstance(method, OwnCurvature) and method.sketch == "own":
            method = OwnCurvature(rank, revealing=True)  # a device has fewer rows here than it will have
        if absent and getattr(method, "needs_everyone", False):
            out.notes[name] = "needs every device in every exchange"
            continue
        most, why = _allowed(method, problem.dim, wires, [*out.histories.values()])
        if why:
            out.notes[name] = why
            continue
        goal = best + tolerance * (start - best)
        try:
            histories = [
                run(
                    method, small, most, devices=devices, target=goal, progress=False,
                    participation=Bernoulli(1 - absent, seed=seed + more) if absent else None,
                ) for more in range(DRAWS if absent else 1)
            ]  # fmt: skip
        except OwnstepError as refusal:  # the others can still be recommended
            out.notes[name] = str(refusal)
            continue
        histories.sort(key=lambda h: (not h.value[-1] <= goal, h.rounds))
        middle = histories[len(histories) // 2]
        if middle.value[-1] <= goal:
            out.histories[name] = middle
        else:
            slow = most < MOST and not middle.failed
            out.notes[name] = "far slower" if slow else f"not in {middle.rounds} exchanges"
    return out


def _allowed(method: Method, dim: int, wires: Sequence[TimeModel], known: Sequence[History]) -> tuple[int, str]:
    """(Exchanges it may use, why it need not be run): it would lose to what is known over each of the networks."""
    if not known:
        return MOST, ""
    times = [min(float(wire.seconds(history)[-1]) for history in known) for wire in wires]
    if isinstance(method, Newton):
        if dim > MOST_COORDINATES:
            return 0, f"a Hessian of {dim:,} coordinates is too large to send"
        sent = [FEWEST * (2 * _number(w.latency) + 4.0 * dim * (dim + 1) / _number(w.up)) for w in wires]
        lost = all(mine > theirs for mine, theirs in zip(sent, times, strict=True))
        return (0, f"{FEWEST} Hessians alone take longer to send") if lost else (MOST, "")
    if getattr(method, "searches", False):
        return MOST, ""
    each = [2 * _number(w.latency) + _number(w.compute) for w in wires]
    enough = [math.ceil(HOPELESS * t / e) if e else MOST for t, e in zip(times, each, strict=True)]
    return min(MOST, max(enough)), ""


def _number(value: Any) -> float:
    return float(np.max(value))


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """Histories of the candidates that reached the gap on the sample, and why the others did not."""

    problem: LinearModel
    small: LinearModel
    tolerance: float
    absent: float
    histories: dict[str, History]
    notes: dict[str, str]

    def over(self, model: TimeModel, named: str) -> Recommendation:
        """What the candidates are expected to take over a network, the fastest first."""
        rows = []
        for name, method in candidates().items():
            key, shows = key_of(method, METHODS), shown(method, self.problem.weights)
            if (history := self.histories.get(name)) is None:
                rows.append(Expected(name, key, None, None, None, shows, self.notes[name]))
                continue
            sent = float(round(history.bytes_per_device(history.rounds)))
            rows.append(Expected(name, key, history.rounds, sent, float(model.seconds(history)[-1]), shows))
        rows.sort(key=lambda row: math.inf if row.seconds is None else row.seconds)
        return Recommendation(
            tuple(rows), named, self.tolerance, self.absent, int(self.small.starts[-1]),
            int(self.problem.starts[-1]), len(self.problem.counts), self.problem.dim,
        )  # fmt: skip


def shown(method: Method, weights: Any) -> str:
    """What the server sees of the devices, from the method's first question."""
    ones = Devices(np.asarray(weights, float), np.ones(len(weights)), np.full(len(weights), 0.5), L_pooled=1.0)
    ask = method.ask(method.start(np.zeros(2), ones))
    if ask.mix is None:
        return "there is no server; neighbours see each other's points"
    if ask.sketch is not None and not ask.sketch.shared:
        return "sums over all devices, and eigenvectors of every device"
    if ask.curvature or ask.also is not None or (ask.local is not None and ask.local.shift is not None):
        return "every device's own vector"
    parts = ["sums over all devices"]
    parts += ["Hessians included"] if ask.hessian else []
    parts += ["products of Hessians included"] if ask.sketch is not None else []
    parts += ["and of their own solutions"] if hasattr(method, "whole") else []
    if not getattr(method, "constant_free", False):
        parts.append("and every device's L")
    return ", ".join(parts)


def shows(methods: Mapping[str, Method] | None = None) -> dict[str, str]:
    """What each method shows the server, by name; of the candidates unless others are given."""
    return {name: shown(m, [0.5, 0.5]) for name, m in (candidates() if methods is None else methods).items()}
