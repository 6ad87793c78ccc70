"""The proof of a rate in rational numbers, for ``proof/check_rate``."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from ownstep.methods.base import Method
from ownstep.pep.networks.kind_vectors import Agents, Frame, Kinds, Shared
from ownstep.pep.networks.network_proof import (
    Writer,
    called_on,
    first_column,
    raw_kinds,
    write_certificate,
    written_devices,
)
from ownstep.pep.networks.spectral import Spectral
from ownstep.pep.proof.certify import Certified, rational
from ownstep.pep.proof.check_network import digest
from ownstep.pep.proof.check_rate import FORMAT, ROUND, check, describe
from ownstep.pep.rates.lift import Lifted, Runner, lift, natural, relations, vectors, with_fields
from ownstep.pep.rates.lyapunov import Lyapunov, Search
from ownstep.plan import Devices
from ownstep.support.errors import OwnstepError

CLOSE = 1e-9
"""How close, relative to it, a number is to the fraction it stands for."""

SHORT = 10_000
"""Relations have numbers that are fractions with denominators up to this: shares of devices and their ratios."""


def certify_rate(
    method: Method,
    devices: Devices,
    network: Spectral | None,
    lifted: Lifted,
    search: Search,
    found: Lyapunov,
    lower: float,
    path: str | Path | None = None,
) -> Certified:
    """Make the proof exact, have it checked, and write it to ``path`` when given one.

    Raises
    ------
    OwnstepError
        When the proof does not survive exact arithmetic.
    """
    memory = len(lifted.rounds) - 1
    names = _names(lifted)
    seen = len(lifted.rounds[0].evaluations)
    certificate = {
        "format": FORMAT,
        "statement": _statement(method, devices, network, lifted, names) | {"memory": memory},
        "rate": str(Fraction(found.rho)),
        "V": _written(search, found, names, seen),
        "multipliers": {name: _multipliers(search, found, side) for side, name in enumerate(("decrease", "positive"))},
    }
    try:
        rate = check(certificate)
    except ValueError as why:
        raise OwnstepError(f"the rate does not survive exact arithmetic: {why}") from None
    return Certified(lower, rate, certificate, write_certificate(certificate, path), describe(certificate))


def restate_rate(method: Method, devices: Devices, network: Spectral | None) -> dict[str, Any]:
    """The statement that a certificate of this rate makes, but for its memory; nothing is solved."""
    lifted = lift(method, devices, network, 1)
    return _statement(method, devices, network, lifted, _names(lifted))


def _names(lifted: Lifted) -> list[str]:
    """The vectors of the state that matter."""
    return [name for name in lifted.rounds[0].state if name in lifted.needed]


def _statement(
    method: Method, devices: Devices, network: Spectral | None, lifted: Lifted, names: list[str]
) -> dict[str, Any]:
    """One round of the method over atoms: the vectors of its state, then what the devices do."""
    kinds = lifted.frame.kinds.carried()
    raw, like = raw_kinds(kinds), lifted.settled[0]
    frame = Frame(raw, raw=True)
    runner = Runner(method, devices, frame, network, lifted.pooled)
    known = vectors(like)
    sizes = natural(known)
    fresh: dict[str, Any] = {}
    for name in names:
        fresh[name] = (frame.shared if isinstance(known[name], Shared) else frame.stack)(sizes[name])
    rest = {name: _nothing(known[name], frame) for name in known if name not in names}
    state = with_fields(like, fresh | rest, network, runner)
    asked, point = runner.method.ask(state).x, runner.method.point(state)
    after, _ = runner.round(state, 0)
    steps = [(first_column(e.v), "gradient", e.x, e.v) for e in runner.follower.evaluations]
    steps += [(first_column(y), "mix", x, y) for _, x, y in runner.averaging.steps]
    steps.sort(key=lambda step: step[0])
    write = _writer(len(kinds), [*fresh.values(), *(step[3] for step in steps)])
    measure = asked if isinstance(asked, Agents) else point
    following = vectors(after)
    ends = None if network is None else {"lo": str(rational(network.lo)), "hi": str(rational(network.hi))}
    does = {
        "state": _state(lifted, kinds, names),
        "steps": [{"do": do, "of": write(x)[0]} for _, do, x, _ in steps],
        "next": [write(following[name])[0] for name in names],
        "measure": write(measure)[0],
    }
    return {
        "devices": written_devices(kinds),
        "method": {"name": called_on(method, network), "digest": digest(does, *ROUND)},
        "any_number": network is not None and network.any_number,
        "network": ends,
        "each_round": network is not None and network.each_round,
        **does,
    }


def _nothing(like: Agents | Shared, frame: Frame) -> Agents | Shared:
    """A vector that does not matter, as zero."""
    if isinstance(like, Shared):
        return Shared(np.zeros(1), frame)
    return Agents(np.zeros((len(frame.kinds), 1)), np.zeros((len(frame.kinds), 1)), frame)


def _writer(kinds: int, atoms: list[Agents | Shared]) -> Writer:
    """Writes vectors over these atoms; none is tied to an origin, so nothing moves."""
    columns: dict[int, tuple[int, int]] = {}
    apart: dict[int, int] = {}
    for j, atom in enumerate(atoms):
        if isinstance(atom, Shared):
            columns[int(np.argmax(np.abs(atom.mean_row)))] = (j, 0)
            continue
        apart[int(np.argmax(np.abs(atom.difference[0])))] = j
        for c in range(kinds):
            columns[int(np.argmax(np.abs(atom.mean_rows[c])))] = (j, c)
    return Writer(kinds, columns, apart, [0.0] * len(atoms))


def _state(lifted: Lifted, kinds: Kinds, names: list[str]) -> list[dict[str, Any]]:
    """The vectors of a state, and the relations between them."""
    known = [vectors(state) for state in lifted.settled]
    means, apart = relations(known, set(names), kinds)
    twins = np.flatnonzero(kinds.twins).tolist()
    out: list[dict[str, Any]] = []
    for name in names:
        shared = isinstance(known[0][name], Shared)
        rows = [means[name, c] for c in range(1 if shared else len(kinds))]
        own = [] if shared else [apart[name, c] for c in twins]
        out.append(
            {
                "shared": shared,
                "means": [_row(row, names, by_kind=True) for row in rows],
                "apart": [_row(row, names, by_kind=False) for row in own],
            }
        )
    return out


def _row(row: dict[tuple[str, int], float] | None, names: list[str], *, by_kind: bool) -> list[list[Any]] | None:
    if row is None:
        return None
    short = {key: _short(number) for key, number in row.items()}
    return [[names.index(name), *([c] if by_kind else []), str(number)] for (name, c), number in short.items()]


def _short(number: float) -> Fraction:
    """The short fraction next to a number that is one up to rounding, otherwise the number itself."""
    own = Fraction(number)
    short = own.limit_denominator(SHORT)
    return short if abs(short - own) <= CLOSE * abs(own) else own


def _written(search: Search, found: Lyapunov, names: list[str], seen: int) -> dict[str, Any]:
    """V: its arguments and forms block by block, and its multiples of values."""
    blocks = []
    for labels, P in zip(search.labels, found.forms, strict=True):
        of = [
            [ahead, "state", names.index(what), c] if isinstance(what, str) else [ahead, "gradient", what, c]
            for ahead, what, c in labels
        ]
        triangle = [[str(Fraction(float(P[j, i]))) for i in range(j + 1)] for j in range(len(P))]
        blocks.append({"of": of, "P": triangle})
    every, now = search.conditions[0], search.values[0]
    place = {int(every.value[c, e]): (c, e - 1) for c, e in np.argwhere(every.value >= 0).tolist()}
    values = []
    for index, number in zip(now.tolist(), found.values, strict=True):
        c, e = place[index]
        values.append([e // seen, e % seen, c, str(Fraction(float(number)))])
    return {"mean": blocks[0], "apart": blocks[1:], "values": values}


def _multipliers(search: Search, found: Lyapunov, side: int) -> dict[str, Any]:
    """Multipliers for which the values cancel exactly: what is left goes onto the conditions with x*."""
    inter, (numbers, matrices, free) = search.conditions[side], found.multipliers[side]
    mine = {tuple(pair): Fraction(float(t)) for pair, t in zip(inter.pairs.tolist(), numbers, strict=True)}
    left = {key: Fraction(0) for key in map(tuple, np.argwhere(inter.value >= 0).tolist())}
    place = {int(inter.value[c, e]): (c, e) for c, e in left}
    square = Fraction(found.rho) ** 2
    for now, later, number in zip(*search.values, found.values, strict=True):
        p = Fraction(float(number))
        left[place[int(now)]] += p * square if side == 0 else p
        if side == 0:
            left[place[int(later)]] -= p
    for (c, p, q), t in mine.items():
        if q:
            left[c, q] += t
        if p:
            left[c, p] -= t
    for (c, e), rest in left.items():
        if rest:
            pair = (c, 0, e) if rest < 0 else (c, e, 0)
            mine[pair] = mine.get(pair, Fraction(0)) + abs(rest)
    loose = []
    for a, Z in zip(free, matrices, strict=True):
        rest_of = iter(a)
        loose.append([[str(Fraction(float(next(rest_of)))) for _ in range(j)] for j in range(len(Z))])
    return {
        "conditions": [[*pair, str(t)] for pair, t in sorted(mine.items()) if t],
        "Z": [[[str(Fraction(float(Z[j, i]))) for i in range(j + 1)] for j in range(len(Z))] for Z in matrices],
        "a": loose,
    }
