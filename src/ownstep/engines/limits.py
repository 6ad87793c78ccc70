"""Reasons to end a run before its last round: a budget of bytes or seconds, or no progress."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ownstep.engines.timing import TimeModel, extra_work
from ownstep.support.checks import whole_number
from ownstep.support.errors import InvalidInput, unknown_name

if TYPE_CHECKING:
    from ownstep.engines.local.loop import Loop

UNITS = {"": 1.0, "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
GRADIENT_SECONDS = 0.01
WIRES = {
    "home": TimeModel(latency=0.05, up=1e6, down=1e7, compute=GRADIENT_SECONDS),
    "wan": TimeModel(latency=0.03, up=1e7, down=1e7, compute=GRADIENT_SECONDS),
    "datacentre": TimeModel(latency=1e-4, up=1e9, down=1e9, compute=GRADIENT_SECONDS),
}
"""Networks by name: home connections, sites on leased lines, machines of one cluster; 10 ms for a gradient on each."""
PROGRESS = 1e-9
"""A best f that falls by less than this share of what was gained so far is no progress."""


@dataclass(frozen=True)
class Limits:
    """What a run may spend. The last round that fits is the last one run: nothing is overspent.

    Parameters
    ----------
    bytes : sent and received by all devices together.
    seconds : of the clock; with ``wire``, those that the model says the run takes over that network.
    wire : a :class:`~ownstep.engines.timing.TimeModel`, or None.
    patience : stop once so many rounds in a row have not improved on the best f by :data:`PROGRESS` of what was gained.
    """

    bytes: float | None = None
    seconds: float | None = None
    wire: TimeModel | None = None
    patience: int | None = None

    def __post_init__(self) -> None:
        for name in ("bytes", "seconds"):
            value = getattr(self, name)
            if value is not None and not 0 < value < np.inf:
                raise InvalidInput(f"a budget of {name} is positive and finite, got {value!r}")
        if self.patience is not None:
            whole_number("patience", self.patience, 1)
        if self.wire is not None and self.seconds is None:
            raise InvalidInput("a wire turns rounds into seconds: give a budget of seconds with it")

    def exceeded(self, loop: Loop) -> str:
        """Why the run ends at x^k, whose round has been evaluated and not yet made; empty where it continues."""
        k, sums = loop.k, loop.sums
        self._count(loop)
        if self.bytes is not None and sums["bytes"][-1] > self.bytes:
            return f"out of budget: {amount(sums['bytes'][k])} of {amount(self.bytes)} spent after {k} rounds"
        if self.seconds is not None and sums["seconds"][-1] > self.seconds:
            on = "" if self.wire is None else " over this network"
            return f"out of budget: {sums['seconds'][k]:.4g} of {self.seconds:g} s{on} spent after {k} rounds"
        if self.patience is not None and k >= self.patience:
            before, best = sums["lowest"][k - self.patience + 1], sums["lowest"][-1]
            if before - best <= PROGRESS * max(loop.columns["value"][0] - best, 0.0):
                return f"no progress: the best f, {before:.10g}, {_stood(before - best, self.patience)}"
        return ""

    def _count(self, loop: Loop) -> None:
        """Add what the rounds up to k spent, and the lowest f; a resumed run finds earlier rounds in its columns."""
        sums, columns = loop.sums, loop.columns
        while len(sums["bytes"]) <= loop.k + 1:
            j = len(sums["bytes"]) - 1
            sums["bytes"].append(sums["bytes"][-1] + columns["bytes_up"][j] + columns["bytes_down"][j])
            if j and self.seconds is not None and self.wire is None:  # since then the server made its step
                sums["seconds"][-1] = sums["seconds"][-2] + columns["seconds"][j - 1]
            sums["seconds"].append(sums["seconds"][-1] + (0.0 if self.seconds is None else self._clock(loop, j)))
            sums["lowest"].append(float(np.fmin(sums["lowest"][-1], columns["value"][j])))

    def _clock(self, loop: Loop, j: int) -> float:
        """The seconds of round j, at most the present one."""
        if self.wire is None:
            return float(loop.columns["seconds"][j])
        here = loop.present if j == loop.k or not loop.partial else loop.took_part[j]
        up, down = loop.columns["bytes_up"][j], loop.columns["bytes_down"][j]
        extra = work_of_round(loop) if j == loop.k else dict(map(tuple, loop.notes.get("extra_work", []))).get(j, 0)
        steps = np.asarray(local_steps(loop, j), float) + extra
        return float(self.wire.rounds([up], [down], here[None], steps, vectors_sent(loop))[0])


def _stood(fell: float, patience: int) -> str:
    """What became of the best f, in words."""
    if fell == 0:
        return f"has stood for {patience} rounds"
    return f"has fallen by {fell:.2g} in {patience} rounds, less than {PROGRESS:g} of what was gained"


def local_steps(loop: Loop, k: int) -> Any:
    """Local steps in a round up to the present one: a number, or one per device."""
    drawn = loop.notes.get("local_steps", [])
    local = loop.method.ask(loop.state).local
    return drawn[k] if k < len(drawn) else 1 if local is None else np.asarray(local.steps).tolist()


def work_of_round(loop: Loop) -> float:
    """What a device does in the present round beyond gradients, in gradients; see :func:`extra_work`."""
    if not getattr(loop.method, "searches", False):  # only methods with a line search ask for more
        return 0.0
    return extra_work(loop.method.ask(loop.state), loop.problem.dim, bool(getattr(loop.state, "sketched", 0)))


def vectors_sent(loop: Loop) -> list[int] | None:
    """Vectors that each device sends in a round, for methods without a server."""
    links = loop.method.ask(loop.state).links
    return None if links is None else [int(n) for n in links.sum(axis=1)]


def amount(count: float) -> str:
    """Bytes as people say them."""
    unit = next((u for u in ("TB", "GB", "MB", "kB") if count >= UNITS[u]), "B")
    return f"{count / UNITS[unit]:.4g} {unit}"


def parse_budget(text: str, wire: TimeModel | None = None, patience: int | None = None) -> Limits:
    """Limits from their command-line form: ``bytes:50MB`` or ``seconds:600``."""
    kind, colon, value = text.partition(":")
    found = re.fullmatch(r"(-?[0-9.]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)", value)
    if not colon:
        raise InvalidInput(f"budget {text!r} cannot be read: write what is limited and a number, as in bytes:50MB")
    try:
        if found is None:
            raise ValueError("it needs a number after the colon")
        size, unit = float(found[1]), found[2]
        if kind == "bytes":
            if unit not in UNITS:
                raise ValueError(f"unit {unit!r}; known: {', '.join(u for u in UNITS if u)}")
            return Limits(bytes=size * UNITS[unit], wire=wire, patience=patience)
        if kind == "seconds":
            if unit not in ("", "s"):
                raise ValueError(f"unit {unit!r}; seconds have none")
            return Limits(seconds=size, wire=wire, patience=patience)
    except ValueError as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"budget {text!r} cannot be read: {error}") from None
    raise unknown_name("budget", kind, ["bytes:50MB", "seconds:600"])


def parse_wire(text: str) -> TimeModel:
    """A network from its command-line form: ``home``, ``wan``, ``datacentre`` or ``LATENCY_S:BYTES_PER_S``."""
    if text in WIRES:
        return WIRES[text]
    latency, colon, speed = text.partition(":")
    try:
        if colon:
            return TimeModel(float(latency), float(speed), float(speed), GRADIENT_SECONDS)
    except ValueError as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"wire {text!r} cannot be read: {error}") from None
    raise unknown_name("wire", text, [*WIRES, "LATENCY_S:BYTES_PER_S"])
