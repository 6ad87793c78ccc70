r"""A few rounds of a method from a state that may be any it can reach.

The state's vectors are replaced by new symbolic ones. Two things are read off a run from the start first: linear
relations that every reachable state satisfies (the mean of gradient tracking's trackers is the mean gradient, the mean
of EXTRA's sums is zero), and which vectors of the state matter at all for what comes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.methods.base import Answer, Method
from ownstep.pep.networks.kind_vectors import Agents, Averaging, Frame, Kinds, Shared, padded, size
from ownstep.pep.networks.network_trace import Evaluation, Follower, answer, on_any_network
from ownstep.pep.networks.spectral import Spectral
from ownstep.pep.trace.symbolic import NotLinear, explain
from ownstep.pep.trace.units import curvature_of, measured, power
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput

Array = NDArray[np.float64]

SETTLE = 6
"""Rounds run from the start before the state is freed."""

SAME = 1e-9


@dataclass(frozen=True, eq=False)
class Round:
    """What is known of one round: the state before it, what was asked and seen, and the mixing steps."""

    state: dict[str, Agents | Shared]
    asked: Agents | Shared
    point: Shared
    evaluations: tuple[Evaluation, ...]
    gradients: Any
    steps: tuple[tuple[int, Agents, Agents], ...]


@dataclass(frozen=True, eq=False)
class Lifted:
    """A window of rounds from a free state.

    Parameters
    ----------
    rounds : the rounds, and after the last one its state alone.
    pooled : all devices were treated as the one function sum_i w_i f_i.
    settled : states from the start, of which the relations were read off.
    needed : the fields of the state that matter.
    """

    frame: Frame
    rounds: tuple[Round, ...]
    last: dict[str, Agents | Shared]
    pooled: bool
    settled: tuple[Any, ...]
    needed: frozenset[str]


class Runner:
    """Runs a method on symbols, round by round; ``devices`` as the method knows them, kinds in units of their own."""

    def __init__(self, method: Method, devices: Devices, frame: Frame, network: Spectral | None, pooled: bool) -> None:
        self.devices, self.pooled, self.frame = devices, pooled, frame
        self.averaging = Averaging(frame, None if network is None or network.lo < network.hi else network.hi)
        self.averaging.each_round = network is not None and network.each_round
        self.follower = Follower(frame, None, float(frame.kinds.L.max()))
        self.method = method
        if network is not None:
            self.method = on_any_network(method, network, self.averaging, len(devices))

    def round(self, state: Any, k: int) -> tuple[Any, Any]:
        """The next state, and what the devices answered."""
        self.averaging.round = k
        ask = self.method.ask(state)
        if self.pooled:
            if ask.mix is None or ask.local is not None or not proportional(ask.mix, self.devices):
                raise NotLinear("leaving the sum of all gradients is not followed here")
            slope = self.follower.gradient(ask.x, str(k)).member(0)
            told = Answer(float(np.sum(ask.mix)) * slope, _nobody())
            return self.method.tell(state, told), slope
        told = answer(ask, self.follower.gradient, self.devices.weights, name=str(k))
        seen = told.gradients if told.gradients is not None else told.sum
        return self.method.tell(state, told), seen


def _nobody() -> Any:
    from ownstep.pep.trace.symbolic import LossValue

    return LossValue()


def proportional(mix: Any, devices: Devices) -> bool:
    """Is the sum asked for a multiple of sum_i w_i g_i?"""
    ratio = np.asarray(mix, float) / devices.weights
    return bool(np.ptp(ratio) <= SAME * np.abs(ratio).max())


def lift(method: Method, devices: Devices, network: Spectral | None, rounds: int) -> Lifted:
    """``rounds`` rounds from a free state, curvature in canonical units.

    Raises
    ------
    NotLinear
        For a method that is not linear.
    InvalidInput
        For a method whose rule changes from round to round.
    """
    pooled = network is None and _pooled(method, devices)
    unit = curvature_of(devices.L)
    small, any_number = measured(devices, 1 / unit), network is not None and network.any_number
    kinds = _one_kind(small, unit) if pooled else Kinds.of(small, any_number=any_number, unit=unit)
    try:
        settled = [settle(method, devices, kinds, network, pooled, SETTLE + j) for j in range(3)]
        found = _window(method, devices, kinds, network, pooled, settled, rounds)
        again = _window(method, devices, kinds, network, pooled, settled[1:] + settled[:1], rounds)
    except NotLinear as error:
        raise NotLinear(explain(method, str(error))) from None
    except TypeError as error:
        raise NotLinear(explain(method, f"what it does to vectors ({error}) is not linear")) from error
    if not _alike(found, again):
        raise InvalidInput(
            f"{type(method).__name__} changes its rule from round to round: it has no rate of its own kind; "
            "take a method with constant steps and momentum"
        )
    return found


def _pooled(method: Method, devices: Devices) -> bool:
    from ownstep.pep.trace.symbolic import Vector

    try:
        ask = method.ask(method.start(Vector([1.0]), devices))
    except (NotLinear, TypeError):
        return False
    return ask.mix is not None and ask.local is None and proportional(ask.mix, devices)


def _one_kind(devices: Devices, unit: float) -> Kinds:
    w = devices.weights
    one = np.ones(1)
    mu, L = np.array([w @ devices.mu]), np.array([w @ devices.L])
    return Kinds(np.zeros(1, int), np.ones(1, int), one, mu, L, np.zeros(1, bool), unit)


def settle(method: Method, devices: Devices, kinds: Kinds, network: Spectral | None, pooled: bool, rounds: int) -> Any:
    """The state after some rounds from the start."""
    frame = Frame(kinds)
    runner = Runner(method, devices, frame, network, pooled)
    state = runner.method.start(frame.shared(1.0), devices)
    for k in range(rounds):
        state, _ = runner.round(state, k)
    return state


def vectors(state: Any) -> dict[str, Agents | Shared]:
    """The symbolic fields of a state."""
    found = {f.name: getattr(state, f.name) for f in fields(state)}
    return {name: value for name, value in found.items() if isinstance(value, Agents | Shared)}


def _window(
    method: Method,
    devices: Devices,
    kinds: Kinds,
    network: Spectral | None,
    pooled: bool,
    settled: list[Any],
    rounds: int,
) -> Lifted:
    frame = Frame(kinds)
    runner = Runner(method, devices, frame, network, pooled)
    known = [vectors(state) for state in settled]
    needed = needed_fields(method, devices, kinds, network, pooled, settled[0])
    free = _free(frame, known, needed)
    state, seen = with_fields(settled[0], free, network, runner), []
    for k in range(rounds):
        before, done = len(runner.follower.evaluations), len(runner.averaging.steps)
        asked, point, now = runner.method.ask(state).x, _as_shared(runner.method.point(state)), vectors(state)
        state, gradients = runner.round(state, k)
        evaluated = tuple(runner.follower.evaluations[before:])
        seen.append(Round(now, asked, point, evaluated, gradients, tuple(runner.averaging.steps[done:])))
    return Lifted(frame, tuple(seen), vectors(state), pooled, tuple(settled), frozenset(needed))


def with_fields(state: Any, free: dict[str, Any], network: Spectral | None, runner: Runner) -> Any:
    """The state with free vectors, and with the window's own mixing matrix."""
    if network is not None:
        free = free | {"mixing": runner.method.graph}  # type: ignore[attr-defined]
    return replace(state, **free)


def _as_shared(x: Any) -> Shared:
    if isinstance(x, Agents):
        return x.mean()
    if not isinstance(x, Shared):
        raise NotLinear(f"handing back {type(x).__name__} where a vector is expected is not linear")
    return x


Key = tuple[str, int]
"""A field of the state, and a kind of device; 0 for a vector all devices share."""

Relations = dict[Key, dict[Key, float] | None]
"""For each vector None if it is free, else its numbers over the free ones before it."""


def relations(
    known: list[dict[str, Agents | Shared]], needed: set[str], kinds: Kinds
) -> tuple[dict[Key, Any], dict[Key, Any]]:
    """The linear relations that all ``known`` states satisfy: between means, and between a kind's differences."""
    names, count = [name for name in known[0] if name in needed], len(kinds)
    sizes, wide = natural(known[0]), _same_width(known)
    keys = [(name, c) for name in names for c in range(count if isinstance(known[0][name], Agents) else 1)]
    rows = [np.concatenate([_mean_row(state[name], c) for state in wide]) for name, c in keys]
    means = _related(keys, rows, sizes)
    apart: Relations = {}
    for c in np.flatnonzero(kinds.twins).tolist():
        mine = [(name, c) for name in names if isinstance(known[0][name], Agents)]
        rows = [np.concatenate([_apart_row(state[name], c) for state in wide]) for name, c in mine]
        apart |= _related(mine, rows, sizes)
    return means, apart


def natural(state: dict[str, Agents | Shared], whole: float = 1.0) -> dict[str, float]:
    """How large the vectors of a state are, as powers of two, over ``whole``; what vanishes counts as one."""
    return {name: power(size(vector) / whole or 1.0) for name, vector in state.items()}


def _related(keys: list[Key], rows: list[Array], sizes: dict[str, float]) -> Relations:
    """Relations between rows that are measured in the sizes of their vectors first."""
    found = _relations([row / sizes[name] for (name, _), row in zip(keys, rows, strict=True)])
    out: Relations = {}
    for key, row in zip(keys, found, strict=True):
        unit = sizes[key[0]]
        out[key] = None if row is None else {keys[p]: w * unit / sizes[keys[p][0]] for p, w in row.items()}
    return out


def _free(frame: Frame, known: list[dict[str, Agents | Shared]], needed: set[str]) -> dict[str, Any]:
    """New vectors for the fields, with the linear relations of all ``known`` states; zero where not needed."""
    related, related_apart = relations(known, needed, frame.kinds)
    columns = {key: frame.shared(size(known[0][key[0]])).mean_row for key, row in related.items() if row is None}
    means = {key: columns[key] if row is None else _combined(row, columns) for key, row in related.items()}
    stacks = [name for name in known[0] if name in needed and isinstance(known[0][name], Agents)]
    start = len(frame.difference_units)
    frame.difference_units += [size(known[0][name]) for name in stacks]
    unit = np.eye(start + len(stacks))
    own = {key: unit[start + stacks.index(key[0])] for key in related_apart}
    apart = {key: own[key] if row is None else _combined(row, own) for key, row in related_apart.items()}
    return {name: _assembled(frame, name, known[0][name], means, apart) for name in known[0]}


def _assembled(frame: Frame, name: str, like: Any, means: dict[Any, Array], apart: dict[Any, Array]) -> Any:
    width, gap = len(frame.units), len(frame.difference_units)
    if isinstance(like, Shared):
        return Shared(padded(means.get((name, 0), np.zeros(width)), width), frame)
    count = len(frame.kinds)
    mean = np.stack([padded(means.get((name, c), np.zeros(width)), width) for c in range(count)])
    rows = np.stack([padded(apart.get((name, c), np.zeros(gap)), gap) for c in range(count)])
    return Agents(mean, rows, frame)


def _same_width(known: list[dict[str, Agents | Shared]]) -> list[dict[str, Agents | Shared]]:
    """The same states with every row as wide as the widest of its state, and columns in their units."""
    out = []
    for state in known:
        frame = next(iter(state.values())).frame
        units, own = np.array(frame.units), np.array(frame.difference_units)
        width = max(_mean_rows(v).shape[1] for v in state.values())
        gap = max((v.difference.shape[1] for v in state.values() if isinstance(v, Agents)), default=0)
        fresh: dict[str, Agents | Shared] = {}
        for name, v in state.items():
            if isinstance(v, Shared):
                fresh[name] = Shared(padded(v.mean_row, width) * units[:width], v.frame)
            else:
                rows = padded(v.mean_rows, width) * units[:width]
                fresh[name] = Agents(rows, padded(v.difference, gap) * own[:gap], v.frame)
        out.append(fresh)
    return out


def _mean_rows(v: Agents | Shared) -> Array:
    return v.mean_row[None, :] if isinstance(v, Shared) else v.mean_rows


def _mean_row(v: Agents | Shared, c: int) -> Array:
    return np.asarray(_mean_rows(v)[c])


def _apart_row(v: Agents | Shared, c: int) -> Array:
    assert isinstance(v, Agents)
    return np.asarray(v.difference[c])


def _relations(rows: list[Array]) -> list[dict[int, float] | None]:
    """For each row None if it is independent of those before it, else its coefficients over the independent ones."""
    out: list[dict[int, float] | None] = []
    pivots: list[int] = []
    for j, row in enumerate(rows):
        norm = float(np.linalg.norm(row))
        if norm == 0:
            out.append({})
            continue
        if pivots:
            basis = np.stack([rows[p] for p in pivots])
            weights = np.linalg.lstsq(basis.T, row, rcond=None)[0]
            if np.linalg.norm(row - weights @ basis) <= SAME * norm:
                out.append({p: round(float(w), 10) for p, w in zip(pivots, weights, strict=True) if abs(w) > SAME})
                continue
        pivots.append(j)
        out.append(None)
    return out


def _combined(relation: dict[Key, float], columns: dict[Key, Array]) -> Array:
    width = max((len(row) for row in columns.values()), default=0)
    return np.asarray(sum((w * padded(columns[p], width) for p, w in relation.items()), np.zeros(width)))


def needed_fields(
    method: Method, devices: Devices, kinds: Kinds, network: Spectral | None, pooled: bool, state: Any
) -> set[str]:
    """The fields that what is asked later, or answered, can depend on."""
    known = vectors(state)
    sizes, far = natural(known), size(method.ask(state).x)
    reach: dict[str, set[str]] = {}
    seeds: set[str] = set()
    for name in known:  # switch on one field at a time, and see where it shows after a round
        frame = Frame(kinds)
        runner = Runner(method, devices, frame, network, pooled)
        free = {other: _probe(frame, known[other], sizes[other], other == name) for other in known}
        now = with_fields(state, free, network, runner)
        if _shows(runner.method.ask(now).x, far) or _shows(runner.method.point(now), far):
            seeds.add(name)
        before = len(frame.units), len(frame.difference_units)
        after, _ = runner.round(now, 0)
        if any(_shows(e.x, far, before) for e in runner.follower.evaluations):
            seeds.add(name)
        mixed = [y for _, x, y in runner.averaging.steps if _shows(x, size(x), before)]
        for other, value in vectors(after).items():
            if _shows(value, sizes[other], before) or any(_overlap(value, sizes[other], y) for y in mixed):
                reach.setdefault(other, set()).add(name)
    needed = set(seeds)
    while True:
        more = set().union(*(reach.get(name, set()) for name in needed)) - needed
        if not more:
            return needed
        needed |= more


def _probe(frame: Frame, like: Agents | Shared, unit: float, on: bool) -> Agents | Shared:
    fresh: Any = frame.shared(unit) if isinstance(like, Shared) else frame.stack(unit)
    probe: Agents | Shared = (1.0 if on else 0.0) * fresh
    return probe


def _in_units(x: Any) -> tuple[Array, Array]:
    """How much of each column there is in a vector: of the means, and of the differences."""
    rows, apart = _mean_rows(x), x.difference if isinstance(x, Agents) else np.zeros((1, 0))
    units, own = np.array(x.frame.units[: rows.shape[1]]), np.array(x.frame.difference_units[: apart.shape[1]])
    return np.abs(rows) * units, np.abs(apart) * own


def _shows(x: Any, usual: float, width: tuple[int, int] | None = None) -> bool:
    """Is a vector that is usually so large more than what rounding leaves of zero?"""
    rows, apart = _in_units(x)
    if width is not None:
        rows, apart = rows[:, : width[0]], apart[:, : width[1]]
    return bool(max(rows.max(initial=0), apart.max(initial=0)) > SAME * usual)


def _overlap(x: Any, usual: float, y: Agents) -> bool:
    """Does x, usually so large, use a column that is y's own?"""
    for mine, other in zip(_in_units(x), _in_units(y), strict=True):
        width = min(mine.shape[1], other.shape[1])
        both = (mine[:, :width].max(0) > SAME * usual) & (other[:, :width].max(0) > SAME * size(y))
        if both.any():
            return True
    return False


def _alike(one: Lifted, two: Lifted) -> bool:
    """Are the two windows the same map?"""
    sizes, far = natural(vectors(one.settled[0])), size(one.rounds[0].asked)
    for a, b in zip(one.rounds, two.rounds, strict=True):
        triples = [(a.asked, b.asked, far), (a.point, b.point, far)]
        triples += [(a.state[n], b.state[n], sizes[n]) for n in a.state]
        for x, y, usual in triples:
            p, q = _mean_rows(x), _mean_rows(y)
            units = np.array(x.frame.units[: p.shape[1]])
            if p.shape != q.shape or (np.abs(p - q) * units).max(initial=0) > SAME * max(usual, size(x)):
                return False
    return True
