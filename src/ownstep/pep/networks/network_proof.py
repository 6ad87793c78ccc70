"""The proof of a worst case over networks or with local steps in rational numbers, for ``proof/check_network``."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.methods.base import Method
from ownstep.pep.networks.expectation import apart, ends_of
from ownstep.pep.networks.kind_vectors import Agents, Frame, Kinds, Shared
from ownstep.pep.networks.network_enclosure import Upper
from ownstep.pep.networks.network_trace import Follower, follow
from ownstep.pep.networks.question import Question, callers_question, marks_of
from ownstep.pep.networks.spectral import Spectral
from ownstep.pep.proof import check_network, check_subgradients, check_worst
from ownstep.pep.proof.certify import LONGEST_NAME, Certified, called, rational
from ownstep.pep.proof.check_network import FORMAT, digest
from ownstep.pep.trace.units import Units
from ownstep.support.errors import OwnstepError
from ownstep.support.files import write_atomically

Array = NDArray[np.float64]

CLOSE = 1e-9
"""So far a sum of coefficients that make a whole number may have been rounded away from it."""

DUST = 1e-13
"""Coefficients this much smaller than their vector's largest are what is left of a cancellation."""


def certify_network(asked: Question, found: Upper, lower: float, path: str | Path | None = None) -> Certified:
    """Make the proof exact, in the caller's units, have it checked, and write it to ``path`` when given one.

    Raises
    ------
    OwnstepError
        When the exact slack is not positive semidefinite, or the metric has no certificate.
    """
    certificate = _of_parts(asked, found) if found.pieces else _whole(asked, found)
    checker: Any = checker_of(certificate["format"])
    try:
        bound = checker.check(certificate)
    except ValueError as why:
        raise OwnstepError(f"the bound does not survive exact arithmetic: {why}") from None
    return Certified(lower, bound, certificate, write_certificate(certificate, path), checker.describe(certificate))


def checker_of(form: str) -> Any:
    """The checker of a format of certificates over networks."""
    return {FORMAT: check_network, check_subgradients.FORMAT: check_subgradients}.get(form, check_worst)


def write_certificate(certificate: dict[str, Any], path: str | Path | None) -> Path | None:
    """Write a certificate as json, all of it or nothing; without a path there is nothing to do."""
    if path is None:
        return None
    target = Path(path)
    try:
        with write_atomically(target) as file:
            file.write((json.dumps(certificate, indent=1) + "\n").encode())
    except OSError as error:
        raise OwnstepError(f"cannot write the certificate to {str(target)!r}: {error}") from error
    return target


def restate_network(asked: Question) -> dict[str, Any]:
    """The statement that a certificate of this worst case makes, from the method itself; nothing is solved."""
    if asked.chance is not None:
        return _mean_statement(asked)
    any_number = asked.network is not None and asked.network.any_number
    return _statement(asked, Kinds.of(asked.devices, marks_of(asked), any_number=any_number))


def _whole(asked: Question, found: Upper) -> dict[str, Any]:
    """The certificate of one program, or of one for each kind; ``asked`` and ``found`` are in canonical units."""
    given = callers_question(asked)
    if asked.chance is not None:
        return _of_mean(given, found, asked.units)
    if asked.metric.endswith("_worst"):
        return _of_worst(given, found, asked.units)
    return _exact(given, found, asked.units, _statement(given, found.program.blocks.kinds.carried()))


def _of_parts(asked: Question, found: Upper) -> dict[str, Any]:
    """Of two devices: one statement, and multipliers for each part of the spectrum."""
    assert asked.network is not None
    parts, bounds = [], []
    for lo, hi, one in sorted(found.pieces, key=lambda piece: piece[0]):
        part = _whole(replace(asked, network=replace(asked.network, lo=lo, hi=hi)), one)
        parts.append({"lo": str(rational(lo)), "hi": str(rational(hi)), "multipliers": part["multipliers"]})
        bounds.append(part["bound"])
    statement = restate_network(callers_question(asked))
    return {
        "format": check_worst.TWO,
        "statement": statement,
        "bound": max(bounds, key=Fraction),
        "multipliers": parts,
    }


def _of_worst(asked: Question, found: Upper, units: Units) -> dict[str, Any]:
    """One statement, and multipliers for each kind, a device of which is judged."""
    statement = restate_network(asked)
    if statement["stack"] is None:
        raise OwnstepError(f"no device has a point of its own: certify the metric {asked.metric.partition('_')[0]!r}")
    parts = [_exact(asked, one, units, check_worst.split(statement, c)) for c, one in enumerate(found.each)]
    bound = max((part["bound"] for part in parts), key=Fraction)
    many = [part["multipliers"] for part in parts]
    return {"format": check_worst.FORMAT, "statement": statement, "bound": bound, "multipliers": many}


def _of_mean(asked: Question, found: Upper, units: Units) -> dict[str, Any]:
    """The tree of schedules, and multipliers between all the points in it."""
    statement = restate_network(asked)
    if len(statement["ends"]) != len(found.path.points):
        raise OwnstepError("this mean has no rational certificate: schedules end at one point by rounding alone")
    return _exact(asked, found, units, statement) | {"format": check_worst.MEAN}


def _exact(asked: Question, found: Upper, units: Units, statement: dict[str, Any]) -> dict[str, Any]:
    """The statement, and multipliers for which the values cancel exactly; ``found`` is in ``units``, all else not."""
    if sum(step["do"] == "mix" for step in statement["steps"]) != len(found.path.steps):
        raise OwnstepError("this method has no rational certificate: its averages are known in part")
    inter, m = found.program.interpolation, found.proof.multipliers.carried(units, asked.metric)
    order = [j for j, step in enumerate(statement["steps"]) if step["do"] == "gradient"]
    last = [name for name in ("K", "own") if name in inter.names]
    names: list[Any] = ["*", *order[: len(inter.names) - 1 - len(last)], *last]
    multipliers = {tuple(pair): Fraction(float(t)) for pair, t in zip(inter.pairs.tolist(), m.conditions, strict=True)}
    _cancel(statement, found, multipliers)
    heads = [Fraction(float(t)) for t in m.heads]
    squares = _squares(asked, found)
    starts = [t / square for t, square in zip(heads, squares, strict=False)]
    bound = sum((t * square for t, square in zip(starts, squares, strict=True)), Fraction(0))
    steep, bound = _steep(found, statement, names, heads[len(squares) :], bound)
    matrices = [[[str(Fraction(float(Z[j, i]))) for i in range(j + 1)] for j in range(len(Z))] for Z in m.matrices]
    free = []
    for a, Z in zip(m.free, m.matrices, strict=True):
        numbers = iter(a)
        free.append([[str(Fraction(float(next(numbers)))) for _ in range(j)] for j in range(len(Z))])
    return {
        "format": FORMAT if steep is None else check_subgradients.FORMAT,
        "statement": statement,
        "bound": str(bound),
        "multipliers": ({} if steep is None else {"subgradients": steep})
        | {
            "start": [str(t) for t in starts],
            "conditions": [[c, names[p], names[q], str(t)] for (c, p, q), t in sorted(multipliers.items()) if t],
            "Z": matrices,
            "a": free,
        },
    }


def _steep(
    found: Upper, statement: dict[str, Any], names: list[Any], heads: list[Fraction], bound: Fraction
) -> tuple[list[Any] | None, Fraction]:
    """The multipliers of the bounds on subgradients, and the bound with them; None for smooth losses."""
    kinds = found.program.blocks.kinds
    if kinds.smooth:
        return None, bound
    points = [name for name in names[1:] if name != "own"] + ([] if found.path.tilt is None else ["*"])
    limits = [Fraction(device["subgradients"]) ** 2 for device in statement["devices"]]
    places = [(name, c) for name in points for c in range(len(kinds))]
    told = [[c, name, str(t / limits[c])] for (name, c), t in zip(places, heads, strict=True) if t]
    return told, bound + sum(heads, Fraction(0))


def _squares(asked: Question, found: Upper) -> list[Fraction]:
    """The right sides of the bounds on the start, in the program's order."""
    kinds, start = len(found.program.blocks.kinds), asked.start
    out = [rational(asked.r0)] * (kinds if start.points == "ball" else 1)
    if found.path.own is not None:
        out += [rational(asked.rstar)] * kinds
    if start.gradients is not None and found.path.tilt is not None:
        out.append(rational(start.gradients))
    if start.trackers is not None:
        out.append(rational(start.trackers))
    return [number**2 for number in out]


def _cancel(statement: dict[str, Any], found: Upper, multipliers: dict[tuple[int, ...], Fraction]) -> None:
    """Put what is left of each value onto its condition with x*, which is triple 0: the values then cancel exactly."""
    inter = found.program.interpolation
    left: dict[tuple[int, int], Fraction] = {}
    for (c, p, q), t in multipliers.items():
        left[c, q] = left.get((c, q), Fraction(0)) - t
        left[c, p] = left.get((c, p), Fraction(0)) + t
    judged = [(Fraction(1), inter.names.index("K"))] if "K" in inter.names else []
    judged += [(Fraction(p), 1 + step) for p, step in statement.get("ends", ())]
    for share, at in judged if statement["metric"].startswith("value") else ():
        for c, kind in enumerate(statement["devices"]):
            if inter.value[c, at] >= 0:
                left[c, at] = left.get((c, at), Fraction(0)) + share * int(kind["count"]) * Fraction(kind["weight"])
    for (c, point), rest in left.items():
        if point != 0 and rest:
            pair = (c, 0, point) if rest > 0 else (c, point, 0)
            multipliers[pair] = multipliers.get(pair, Fraction(0)) + abs(rest)


def _statement(asked: Question, kinds: Kinds) -> dict[str, Any]:
    """Devices by kind, and the method as what its devices do, over atoms; all in the caller's units."""
    network, start, count, raw = asked.network, asked.start, len(kinds), raw_kinds(kinds)
    factor = network.hi if network is not None and network.lo == network.hi else None
    apart_at_first = start.points != "same"
    options: Any = {"network": network, "factor": factor, "apart": apart_at_first, "raw": True}
    options |= {"schedule": asked.schedule, "missing": asked.missing}
    path = follow(asked.method, asked.devices, raw, asked.rounds, **options)
    steps: list[tuple[int, str, Any, int, Agents]] = []
    for e in path.evaluations:
        steps.append((first_column(e.v), "gradient", e.x, 0, e.v))
    for group, x, y in path.steps:
        steps.append((first_column(y), "mix", x, group, y))
    write, written = _written(count, path.start if apart_at_first else None, steps)
    ends = {"lo": str(rational(network.lo)), "hi": str(rational(network.hi))} if network is not None else None
    held = path.stacks[-1]
    does = {
        "steps": written,
        "points": [write(point.spread())[0] for point in path.points],
        "stack": None if held is None else write(held)[0],
    }
    return {
        "devices": written_devices(kinds) if asked.subgradients is None else _steep_devices(kinds, asked.subgradients),
        "method": {"name": called_on(asked.method, network), "digest": digest(does)},
        "any_number": network is not None and network.any_number,
        "network": ends,
        "start": _written_start(asked),
        "metric": asked.metric,
        **does,
    }


def _written(
    count: int, start: Agents | None, steps: list[tuple[int, str, Any, int, Agents]]
) -> tuple[Writer, list[dict[str, Any]]]:
    """What the devices do, in order, and what writes vectors over the atoms that came of it; ``start`` if one each."""
    columns: dict[int, tuple[int, int]] = {}
    apart: dict[int, int] = {}
    steps.sort(key=lambda step: step[0])
    if start is None:
        columns[0] = (0, 0)
    atoms = [*([] if start is None else [start]), *(step[4] for step in steps)]
    for atom, stack in enumerate(atoms, start=int(start is None)):
        apart[int(np.argmax(np.abs(stack.difference[0])))] = atom
        for c in range(count):
            columns[int(np.argmax(np.abs(stack.mean_rows[c])))] = (atom, c)
    shifts = [1.0]
    write = Writer(count, columns, apart, shifts)
    written = []
    for _, do, x, group, _ in steps:
        of, move = write(x)
        written.append({"do": do, "of": of, "group": group})
        shifts.append(0.0 if do == "gradient" else move)
    return write, written


def _written_start(asked: Question) -> dict[str, Any]:
    """What is known of the start."""
    bounds = {name: getattr(asked.start, name) for name in ("gradients", "trackers")}
    return {
        "points": asked.start.points,
        "r0": str(rational(asked.r0)),
        "rstar": "inf" if math.isinf(asked.rstar) else str(rational(asked.rstar)),
        **{name: None if bound is None else str(rational(bound)) for name, bound in bounds.items()},
    }


def _mean_statement(asked: Question) -> dict[str, Any]:
    """The tree of all schedules as what the devices do; the last steps are the gradients at its ends."""
    kinds = apart(asked)
    frame = Frame(raw_kinds(kinds), raw=True)
    follower = Follower(frame, None, float(kinds.L.max()) * asked.r0)
    ends = ends_of(asked, follower, frame.shared(asked.r0))
    inner = len(follower.evaluations)
    for j, (_, point) in enumerate(ends):
        follower.gradient(point, f"K{j}")
    steps: list[Any] = [(first_column(e.v), "gradient", e.x, 0, e.v) for e in follower.evaluations]
    written = _written(len(kinds), None, steps)[1]
    does = {"steps": written, "ends": [[str(p), inner + j] for j, (p, _) in enumerate(ends)]}
    return {
        "devices": written_devices(kinds),
        "method": {"name": called_on(asked.method, None), "digest": digest(does, "steps", "ends")},
        "any_number": False,
        "network": None,
        "start": _written_start(asked),
        "metric": asked.metric,
        **does,
    }


def called_on(method: Method, network: Spectral | None) -> str:
    """What to call a method; over a class of networks its graph is none of them, and is left out."""
    if network is None:
        return called(method)
    kept = [part.name for part in fields(method) if part.name not in ("graph", "rule")]  # type: ignore[arg-type]
    shown = f"{type(method).__name__}({', '.join(f'{name}={getattr(method, name)!r}' for name in kept)})"
    return shown if len(shown) <= LONGEST_NAME else type(method).__name__


def written_devices(kinds: Kinds) -> list[dict[str, Any]]:
    """The devices of a statement, their weights summing to one exactly."""
    devices: list[dict[str, Any]] = []
    for c in range(len(kinds)):
        numbers = {"weight": kinds.weight[c], "mu": kinds.mu[c], "L": kinds.L[c]}
        texts = {name: str(rational(float(value))) for name, value in numbers.items()}
        devices.append({"count": int(kinds.counts[c])} | texts)
    others = sum((d["count"] * Fraction(d["weight"]) for d in devices[1:]), Fraction(0))
    devices[0]["weight"] = str((1 - others) / devices[0]["count"])
    return devices


def _steep_devices(kinds: Kinds, bounds: Array) -> list[dict[str, Any]]:
    """The same for losses that are only convex."""
    first = [int(np.argmax(kinds.index == c)) for c in range(len(kinds))]
    return [
        {"count": d["count"], "weight": d["weight"], "subgradients": str(rational(float(bounds[i])))}
        for d, i in zip(written_devices(kinds), first, strict=True)
    ]


def raw_kinds(kinds: Kinds) -> Kinds:
    """The same devices with gradients of which only the size is known, every kind with members that may differ."""
    count = len(kinds)
    return Kinds(kinds.index, kinds.counts, kinds.weight, np.zeros(count), kinds.L, np.ones(count, bool))


def first_column(x: Agents) -> int:
    """The column that a new stack of vectors brought with it."""
    return int(np.argmax(np.abs(x.mean_rows[0])))


class Writer:
    """Writes vectors of the devices as numbers times own atoms and times means of kinds.

    Parameters
    ----------
    columns, apart : (atom, kind) of each mean column, and the atom of each difference column.
    shifts : by how much each atom moves when everything is moved by one; grows with the atoms.
    """

    def __init__(
        self, kinds: int, columns: dict[int, tuple[int, int]], apart: dict[int, int], shifts: list[float]
    ) -> None:
        self.kinds, self.columns, self.apart, self.shifts = kinds, columns, apart, shifts
        self.place = {key: column for column, key in columns.items()}

    def __call__(self, x: Agents | Shared) -> tuple[list[dict[str, Any]], float]:
        """The vector, and by how much it moves: a whole number, made exact where rounding left it next to one."""
        stack = x.spread() if isinstance(x, Shared) else x
        means, differences = stack.mean_rows, stack.difference
        units = np.array(stack.frame.units[: means.shape[1]])
        own_units = np.array(stack.frame.difference_units[: differences.shape[1]])
        sizes = [np.abs(means) * units, np.abs(differences) * own_units]
        least = DUST * max(float(size.max(initial=0)) for size in sizes)
        out, moves = [], []
        for c in range(self.kinds):
            rest = {column: float(v) for column, v in enumerate(means[c]) if v}
            own: dict[int, Fraction] = {}
            for j in np.flatnonzero(differences[c]).tolist():
                value, atom = float(differences[c, j]), self.apart[j]
                column = self.place[atom, c]
                rest[column] = rest.get(column, 0.0) - value
                if sizes[1][c, j] > least:
                    own[atom] = rational(value)
            kept = [(at, v) for at, v in sorted(rest.items()) if abs(v) * stack.frame.units[at] > least]
            shared = {self.columns[at]: rational(v) for at, v in kept}
            moves.append(self._settle(own, shared))
            out.append(
                {
                    "own": [[atom, str(t)] for atom, t in sorted(own.items())],
                    "means": [[k, atom, str(t)] for (atom, k), t in sorted(shared.items())],
                }
            )
        return out, moves[0]

    def _settle(self, own: dict[int, Fraction], shared: dict[tuple[int, int], Fraction]) -> float:
        """Make the sum of what moves a whole number, where it is one up to rounding."""
        total = sum((t * round(self.shifts[a]) for a, t in own.items()), Fraction(0))
        total += sum((t * round(self.shifts[a]) for (a, _), t in shared.items()), Fraction(0))
        whole = round(total)
        if total != whole and abs(float(total - whole)) < CLOSE:
            table: dict[Any, Fraction] = own if any(self.shifts[a] for a in own) else shared
            moving = [key for key in table if self.shifts[key if table is own else key[0]]]
            table[moving[0]] += (whole - total) / round(self.shifts[moving[0] if table is own else moving[0][0]])
        return float(whole)
