r"""A worst case that a sceptic must accept: the proof in rational numbers, and everything needed to check it.

The solver's multipliers are rounded to multiples of a power of two, what the values then fail to cancel is put onto
the conditions with x*, exactly, and :mod:`ownstep.pep.proof.check`, which shares no code with the rest of the library,
re-derives every inequality from the statement and decides in whole numbers whether the slack is positive
semidefinite. Nothing that floating point did on the way needs to be trusted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.methods.base import Method
from ownstep.pep.conditions.assemble import Conditions
from ownstep.pep.conditions.classes import check as check_setting
from ownstep.pep.conditions.gram import Gram
from ownstep.pep.proof.certificate import Proof
from ownstep.pep.proof.check import FORMAT, check, describe, read_method
from ownstep.pep.solve.sdp import Limits
from ownstep.pep.trace.symbolic import trace
from ownstep.pep.trace.symmetry import Group, follows_weights, groups
from ownstep.pep.trace.units import Setting, Units, canonical
from ownstep.plan import Devices
from ownstep.support.errors import OwnstepError
from ownstep.support.files import write_atomically

Array = NDArray[np.float64]

SHORT = 10_000
"""A double this close to a fraction of at most this denominator stands for it: 0.333... for 1/3."""

CLOSE = 1e-14
"""How close, relative to it."""

DIGITS = 2.0**-46
"""Multipliers are rounded to this, relative to what they weigh in the solver's units; it shows in no bound."""

LONGEST_NAME = 200

ONE_POINT = "only methods with one point for all devices are certified; this one keeps a point for each"

MANY = (
    "the upper end of these {n} devices is proved by way of {kinds} kinds (ownstep.pep.trace.kinds), a step that the "
    "checker does not take: there is no certificate. Ask about fewer different devices"
)


@dataclass(frozen=True, eq=False)
class Certified:
    """A worst case between the error of a replayed instance and an exactly proved bound.

    Parameters
    ----------
    lower : error on an instance that was checked in exact arithmetic.
    bound : the rational upper bound that the checker accepted.
    certificate : plain data: ``statement``, ``bound`` and ``multipliers``; what ``path`` holds as json.
    statement : what is proved, in words.
    """

    lower: float
    bound: Fraction
    certificate: dict[str, Any] = field(repr=False)
    path: Path | None = None
    statement: str = ""

    @property
    def upper(self) -> float:
        """The bound as a double, rounded up."""
        return rounded_up(self.bound)

    @property
    def width(self) -> float:
        """Relative width of the enclosure [lower, upper]."""
        return (self.upper - self.lower) / self.upper if self.upper > 0 else 0.0

    def __str__(self) -> str:
        return f"{self.statement}; some f_i reach {self.lower:.12g} (relative width {self.width:.1e})"

    def to_dict(self) -> dict[str, Any]:
        """The enclosure as plain data, the exact bound as a text."""
        where = None if self.path is None else str(self.path)
        return {
            "lower": self.lower,
            "upper": self.upper,
            "width": self.width,
            "bound": str(self.bound),
            "certificate": where,
        }


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a floating-point proof consists of, as :func:`certify` takes it.

    Parameters
    ----------
    name : what the method is called.
    asked : the setting in the caller's units; everything else is in canonical ones.
    units : what these are.
    size : what the objective was divided by.
    nodes : where the proof is about a few kinds in place of many devices, their ratios, one row per round.
    """

    name: str
    asked: Setting
    units: Units
    gram: Gram
    rows: Conditions
    radii: Limits
    proof: Proof
    size: float
    nodes: Array | None = None


def certify(found: Evidence, lower: float, path: str | Path | None = None) -> Certified:
    """Make the proof exact, have it checked, and write it to ``path`` when given one.

    Raises
    ------
    OwnstepError
        When the exact slack is not positive semidefinite; the rounding then used up the solver's margin.
    """
    if not found.asked.path.shared:
        raise OwnstepError(ONE_POINT)
    if found.nodes is not None:
        raise OwnstepError(MANY.format(n=len(found.asked.devices), kinds=found.nodes.shape[1]))
    certificate = exact(found)
    try:
        bound = check(certificate)
    except ValueError as why:
        raise OwnstepError(f"the bound does not survive exact arithmetic: {why}") from None
    target = None if path is None else Path(path)
    if target is not None:
        try:
            with write_atomically(target) as file:
                file.write((json.dumps(certificate, indent=1) + "\n").encode())
        except OSError as error:
            raise OwnstepError(f"cannot write the certificate to {str(target)!r}: {error}") from error
    return Certified(lower, bound, certificate, target, describe(certificate))


def exact(found: Evidence) -> dict[str, Any]:
    """The statement, and multipliers for which the values cancel exactly."""
    gram, rows, asked = found.gram, found.rows, found.asked
    r0, rstar = rational(asked.r0), rational(asked.rstar) if gram.local_optima else Fraction(0)
    whole = Fraction(found.units.metric(asked.metric))  # powers of two: nothing is rounded from canonical units to ours
    scale = whole / Fraction(found.units.metric("value"))
    statement = state(found.name, asked, found.gram.groups)
    unit = DIGITS * found.size / max(1.0, float(rows.size.max(initial=1.0)))
    digits = max(math.ceil(-math.log2(unit)), 1)
    multipliers: dict[tuple[int, int, int], Fraction] = {}
    for pair, factor in zip(rows.pairs.tolist(), found.proof.multipliers * found.size / rows.size, strict=True):
        multipliers[tuple(pair)] = _dyadic(float(factor), digits) * scale
    _cancel(found, statement, multipliers)
    length = Fraction(found.units.length)
    heads = [Fraction(float(h)) * Fraction(found.size) for h in found.proof.limits]
    tau = _up(heads[0] / (r0 / length) ** 2, digits) * whole / length**2
    own = [_up(h / (rstar / length) ** 2, digits) * whole / length**2 for h in heads[1:]]
    bound = tau * r0**2 + (sum(own) * rstar**2 if own else 0)
    names = [[int(n) if n.isdigit() else n for n in t.names] for t in gram.triples]
    conditions = [[c, names[c][p], names[c][q], str(t)] for (c, p, q), t in sorted(multipliers.items()) if t]
    return {
        "format": FORMAT,
        "statement": statement,
        "bound": str(bound),
        "multipliers": {"start": str(tau), "own": [str(t) for t in own], "conditions": conditions},
    }


def state(name: str, asked: Setting, groups: Sequence[Group]) -> dict[str, Any]:
    """Devices by kind, and the method as what it asks for: rows over x^0 and the sums it was told.

    Parameters
    ----------
    name : what the method is called; the digest of its steps says what it is.
    asked : in the caller's units.
    groups : devices that take the same steps.
    """
    path, devices = asked.path, asked.devices
    kinds: list[tuple[int, Fraction, dict[str, Any]]] = []  # a member of each kind, its weight, and its entry
    for group in groups:
        alike: dict[tuple[float, float, float], list[int]] = {}
        for i in group.members:
            alike.setdefault((devices.weights[i], devices.mu[i], devices.L[i]), []).append(i)
        for (w, mu, L), members in alike.items():
            entry = {"count": len(members), "weight": "", "mu": _text(mu), "L": _text(L)}
            kinds.append((group.members[0], rational(w), entry))  # one step for the whole group, to the last digit
    whole = sum((entry["count"] * weight for _, weight, entry in kinds), Fraction(0))
    for _, weight, entry in kinds:
        entry["weight"] = str(weight / whole)  # doubles sum to one up to rounding, these exactly
    rounds = []
    for ask, mix in zip(path.asks, path.mixes, strict=True):
        assert mix is not None
        rounds.append({"ask": _row(ask[0]), "steps": [_text(mix[i] / devices.weights[i]) for i, _, _ in kinds]})
    final = _row(path.points[-1][0])
    return {
        "devices": [entry for _, _, entry in kinds],
        "method": {"name": name, "digest": read_method(rounds, final, len(kinds))[2]},
        "rounds": rounds,
        "final": final,
        "r0": _text(asked.r0),
        "rstar": "inf" if math.isinf(asked.rstar) else _text(asked.rstar),
        "metric": asked.metric,
    }


def restate(method: Method, devices: Devices, rounds: int, r0: float, rstar: float, metric: str) -> dict[str, Any]:
    """The statement that a certificate of this worst case makes, from the method itself; nothing is solved."""
    check_setting(rounds, r0, rstar, metric)
    asked = Setting(trace(method, devices, int(rounds)), devices, float(r0), float(rstar), metric)
    if not asked.path.shared:
        raise OwnstepError(ONE_POINT)
    small, _ = canonical(asked)
    tilted = rstar > 0 and len(devices) > 1 and not follows_weights(small.path, small.devices)
    return state(called(method), asked, groups(small.path, small.devices, local_optima=tilted))


def differences(proved: dict[str, Any], asked: dict[str, Any]) -> list[str]:
    """In what two statements differ, in words; equal devices may be listed together or apart, names do not matter."""
    found = []
    for name in ("metric", "r0", "rstar"):
        if proved[name] != asked[name]:
            found.append(f"{name} is {proved[name]} in the proof, {asked[name]} was asked")
    if len(proved["rounds"]) != len(asked["rounds"]):
        found.append(f"the proof has {len(proved['rounds'])} rounds, {len(asked['rounds'])} were asked")
    for keys in (("L",), ("mu",), ("weight",)):
        if (one := _listed(proved, *keys)) != (other := _listed(asked, *keys)):
            found.append(f"{keys[0]} by number of devices is {one} in the proof, {other} was asked")
    if not found and _listed(proved, "weight", "mu", "L", "steps") != _listed(asked, "weight", "mu", "L", "steps"):
        found.append("the method takes other steps")
    if not found and _points(proved) != _points(asked):
        found.append("the method looks at other points")
    return found


def _listed(statement: dict[str, Any], *keys: str) -> dict[str, int]:
    """How many devices have these entries."""
    found: dict[str, int] = {}
    for i, device in enumerate(statement["devices"]):
        told = device | {"steps": ", ".join(r["steps"][i] for r in statement["rounds"])}
        key = " ".join(told[key] for key in keys)
        found[key] = found.get(key, 0) + device["count"]
    return dict(sorted(found.items()))


def _points(statement: dict[str, Any]) -> list[list[str]]:
    return [*(r["ask"] for r in statement["rounds"]), statement["final"]]


def called(method: Method) -> str:
    """What to call a method: as Python shows it, if that is short."""
    shown = repr(method)
    return shown if len(shown) <= LONGEST_NAME else type(method).__name__


def _cancel(found: Evidence, statement: dict[str, Any], multipliers: dict[tuple[int, int, int], Fraction]) -> None:
    """Put what is left of each value onto its condition with x*, which is triple 0: the values then cancel exactly."""
    gram = found.gram
    weights = [Fraction(0)] * len(gram.groups)
    position = 0
    for c, group in enumerate(gram.groups):
        held = 0
        while held < len(group.members):
            entry = statement["devices"][position]
            weights[c] += entry["count"] * Fraction(entry["weight"])
            held += entry["count"]
            position += 1
    left: dict[tuple[int, int], Fraction] = {}
    for (c, p, q), factor in multipliers.items():
        left[c, q] = left.get((c, q), Fraction(0)) - factor
        left[c, p] = left.get((c, p), Fraction(0)) + factor
    if found.asked.metric == "value":
        assert gram.final_value is not None
        for c, group in enumerate(gram.groups):
            if not group.quadratic:
                at = (c, gram.final_value)
                left[at] = left.get(at, Fraction(0)) + weights[c]
    for (c, point), rest in left.items():
        if point != 0 and rest:
            pair = (c, 0, point) if rest > 0 else (c, point, 0)
            multipliers[pair] = multipliers.get(pair, Fraction(0)) + abs(rest)


def rounded_up(number: Fraction) -> float:
    """The smallest double that is not below it."""
    near = float(number)
    return near if Fraction(near) >= number else math.nextafter(near, math.inf)


def rational(number: float) -> Fraction:
    """A short fraction where the double is one up to rounding (0.1 is 1/10), otherwise the double itself.

    Units are no part of it: a short fraction times a power of ten or of two will do, as 20/3 10^-13 for 1 / 1.5e12.
    """
    own = Fraction(float(number))
    if own:
        for unit in (_power(10, own), Fraction(1), _power(2, own)):
            short = (own / unit).limit_denominator(SHORT) * unit
            if abs(short - own) <= CLOSE * abs(own):
                return short
    return own


def _power(base: int, number: Fraction) -> Fraction:
    """A power of the base, about as large as the number."""
    return Fraction(base) ** math.floor(math.log(abs(number), base))


def _text(number: float) -> str:
    return str(rational(number))


def _row(row: Array) -> list[str]:
    """A row of fractions, without the zeros at its end: x^0, which every point has once, and the sums told."""
    return ["1", *(_text(a) for a in np.trim_zeros(row[1:], "b"))]


def _dyadic(number: float, digits: int) -> Fraction:
    return Fraction(round(Fraction(number) * 2**digits), 2**digits)


def _up(number: Fraction, digits: int) -> Fraction:
    return Fraction(math.ceil(number * 2**digits), 2**digits)
