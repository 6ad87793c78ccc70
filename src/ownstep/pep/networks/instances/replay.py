"""Real functions and a real mixing matrix behind a worst case, and the real method's run on them.

From the Gram blocks of the solver come vectors; each device's triples define a function of its class that one can
evaluate (``solve/interpolant``); the method then runs on these functions with W = lambda I + (1 - lambda) 11'/N, or on
a network of :mod:`~ownstep.pep.networks.instances.mirrored`. Its error is a lower end of the worst case that owes
nothing to the solver.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.pep.networks.expectation import mean_error
from ownstep.pep.networks.instances.exact_replay import Data, exact_error
from ownstep.pep.networks.instances.mirrored import Mirror
from ownstep.pep.networks.kind_vectors import Agents
from ownstep.pep.networks.network_enclosure import Upper
from ownstep.pep.networks.network_trace import answer, held, in_network, on_any_network
from ownstep.pep.networks.program import v_of_own
from ownstep.pep.networks.question import Question
from ownstep.pep.solve.interpolant import Interpolant, Pieces
from ownstep.pep.trace.units import Units, measured
from ownstep.plan import Devices

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NetworkInstance:
    """Losses, a start and a mixing matrix on which the method's error is ``error``; x* is the origin.

    Parameters
    ----------
    losses : the distinct losses; device i has ``losses[of[i]]``.
    tilts : grad f_i(x*) of each distinct loss, added to it as a linear term.
    x0 : the devices' starts, one row each.
    W : the mixing matrix, one per round, or None.
    scale : t; the instance proper is t^2 f_i(x / t) from t x^0, so that it meets every bound on the start.
    exact : the error is that of a run in exact numbers, see :mod:`ownstep.pep.networks.instances.exact_replay`.
    """

    error: float
    losses: tuple[Interpolant, ...] = field(repr=False)
    tilts: Array = field(repr=False)
    of: NDArray[np.int64] = field(repr=False)
    x0: Array = field(repr=False)
    W: Array | None = field(repr=False)
    devices: Devices = field(repr=False)
    scale: float = 1.0
    exact: bool = False
    data: Data | None = field(default=None, repr=False)

    def gradients(self, x: Array) -> Array:
        """Every device's gradient, at one point or at one row per device; devices that are alike are asked once."""
        points = np.broadcast_to(x, (len(self.of), self.x0.shape[1]))
        first = [int(np.argmax(self.of == j)) for j in range(len(self.losses))]
        rows = np.stack([loss.gradient(points[i]) for loss, i in zip(self.losses, first, strict=True)])
        return np.asarray((rows + self.tilts)[self.of])

    def value(self, x: Array) -> float:
        """f(x) - f(x*)."""
        at = np.array([loss(x) - loss(0 * x) for loss in self.losses]) + self.tilts @ x
        return float(self.devices.weights @ at[self.of])


def carried(found: NetworkInstance, units: Units, metric: str) -> NetworkInstance:
    """An instance in the caller's units."""
    a, b = units.curvature, units.length
    losses = tuple(type(h)(b * h.x, a * b * h.g, a * b**2 * h.f, a * h.mu, a * h.L) for h in found.losses)
    moved = replace(found, losses=losses, tilts=a * b * found.tilts, x0=b * found.x0, data=None)
    return replace(moved, error=units.metric(metric) * found.error, devices=measured(found.devices, a))


def replay(asked: Question, found: Upper, factor: float | None, mirror: Mirror | None = None) -> NetworkInstance:
    """Recover functions from the solver's Gram blocks, and run the method on them; in exact numbers where it can be."""
    instance = recover(asked, found, factor, mirror)
    assert instance.data is not None
    exact = exact_error(asked, instance, instance.data, found.marked)
    if exact is not None:
        return replace(instance, error=exact, exact=True)
    error = _run(asked, instance, found.marked) if asked.chance is None else mean_error(asked, instance)
    return replace(instance, error=error * instance.scale**2)


def recover(asked: Question, found: Upper, factor: float | None, mirror: Mirror | None = None) -> NetworkInstance:
    """Functions, a start and a matrix behind the solver's Gram blocks; its error is not known yet."""
    blocks, devices = found.program.blocks, asked.devices
    kinds = blocks.kinds
    index, directions = kinds.index, _directions(kinds.counts, kinds.index)
    frames = [_vectors(gram, unit) for gram, unit in zip(found.proof.grams, blocks.units, strict=True)]
    if mirror is not None:
        count, frames[1], directions = len(mirror.turns), mirror.frame, mirror.turns
        index = np.zeros(count, np.int64)
        devices = Devices.uniform(np.full(count, float(kinds.L[0])), float(kinds.mu[0]))
    elif asked.network is not None and asked.network.any_number and (kinds.counts < 2).any():
        index, directions = np.tile(index, 2), np.repeat([[1.0, 0.0], [-1.0, 0.0]], len(index), axis=0)
        double = [np.tile(a, 2) for a in (devices.weights / 2, devices.L, devices.mu)]
        devices = Devices(double[0], double[1], double[2])
    space = _Space(found, frames, None if mirror is None else mirror.turns.shape[1])
    labels = np.column_stack([index, np.round(directions.reshape(len(index), -1), 9)]) + 0.0
    _, first, of = np.unique(labels, axis=0, return_index=True, return_inverse=True)
    path, losses, tilts, own = found.path, [], [], []
    at_own = None if path.own is None else v_of_own(path.own, path.tilt)
    for i in first:
        c, u = int(index[i]), directions[i]
        losses.append(space.loss(c, u))
        tilts.append(np.zeros(space.dim) if path.tilt is None else space.vector(path.tilt, c, u))
        own.append(None if path.own is None else space.vector(path.own, c, u))
    of = of.reshape(-1)
    share = np.bincount(of, weights=devices.weights)
    origin = np.zeros(space.dim)
    slopes = np.stack([loss.gradient(origin) for loss in losses]) + np.stack(tilts)
    straight = np.stack(tilts) - share @ slopes  # the same for all: x* = 0 is the minimiser, not only nearly
    x0 = np.stack([space.vector(path.start, int(index[i]), directions[i]) for i in range(len(of))])
    W = None if mirror is None else mirror.W
    if mirror is None and asked.network is not None and factor is not None:
        W = factor * np.eye(len(of)) + (1 - factor) / len(of)
    evaluated = path.follower.evaluations
    asked_for = [[space.vector(e.v, int(index[i]), directions[i]) for i in first] for e in evaluated]
    minimisers = None if path.own is None else np.array(own)
    v_own = None if at_own is None else np.stack([space.vector(at_own, int(index[i]), directions[i]) for i in first])
    data = Data(np.stack(tilts), np.reshape(asked_for, (len(evaluated), len(first), space.dim)), minimisers, v_own)
    instance = NetworkInstance(0.0, tuple(losses), straight, of, x0, W, devices, data=data)
    return replace(instance, scale=_scale(asked, instance, own))


def _scale(asked: Question, instance: NetworkInstance, own: list[Array | None]) -> float:
    """The largest t <= 1 for which the scaled instance meets every bound on the start."""
    limits = [1.0]
    squares = np.sum(instance.x0**2, axis=1)
    start = float(squares.mean() if asked.start.points == "mean" else squares.max())
    limits.append(asked.r0 / max(np.sqrt(start), 1e-300))
    for loss, tilt, z in zip(instance.losses, instance.tilts, own, strict=True):
        if z is not None:
            off = np.linalg.norm(loss.gradient(z) + tilt) / (loss.mu if loss.mu > 0 else np.inf)
            limits.append(asked.rstar / max(float(np.linalg.norm(z) + off), 1e-300))
    scale = (len(instance.of) * instance.devices.weights)[:, None]
    if asked.start.gradients is not None:
        slopes = scale * instance.gradients(np.zeros(instance.x0.shape[1]))
        limits.append(asked.start.gradients / max(np.sqrt(np.sum(slopes**2, axis=1).mean()), 1e-300))
    if asked.subgradients is not None and instance.data is not None:
        data, ratio = instance.data, float(asked.subgradients[0] / asked.devices.L[0])
        for j, loss in enumerate(instance.losses):
            longest = np.linalg.norm([data.tilts[j], *(data.tilts[j] + data.v[:, j])], axis=1).max()
            limits.append(ratio * loss.L / max(float(longest), 1e-300))
    if asked.start.trackers is not None:
        slopes = scale * instance.gradients(instance.x0)
        limits.append(asked.start.trackers / max(np.sqrt(np.sum((slopes - slopes.mean(0)) ** 2, 1).mean()), 1e-300))
    return float(min(limits))


class _Space:
    """Coordinates for the vectors behind the Gram blocks: the means, then the differences of each kind.

    Parameters
    ----------
    turned : coordinates of a device's differences; two copies of the frame by default.
    """

    def __init__(self, found: Upper, frames: list[Array], turned: int | None = None) -> None:
        self.found, self.frames = found, frames
        self.twins = found.program.blocks.twins
        sizes = [2 * len(f) if turned is None else turned for f in frames[1:]]
        ends = np.cumsum([len(frames[0]), *sizes])
        self.starts, self.dim = ends[:-1], int(ends[-1])

    def vector(self, x: Agents, c: int, u: Array) -> Array:
        """The vector of the member of kind c whose differences point in direction u, or are turned by u."""
        mean, apart = self.found.program.blocks.rows(x)
        out = np.zeros(self.dim)
        out[: self.frames[0].shape[0]] = self.frames[0] @ mean[c]
        if c in self.twins:
            b = self.twins.index(c)
            part = self.frames[1 + b] @ apart[c]
            placed = np.outer(u, part).ravel() if u.ndim == 1 else u @ part
            out[self.starts[b] : self.starts[b] + len(placed)] = placed
        return out

    def loss(self, c: int, u: Array) -> Interpolant:
        """The tilted loss h of that member."""
        kinds, program, path = self.found.program.blocks.kinds, self.found.program, self.found.path
        mu, L = float(kinds.mu[c]), float(kinds.L[c])
        found = [(e.x, e.v) for e in path.follower.evaluations]
        points, slopes = [np.zeros(self.dim)], [np.zeros(self.dim)]
        for x, slope in found:
            points.append(self.vector(x, c, u))
            slopes.append(self.vector(slope, c, u))
        if path.own is not None:
            points.append(self.vector(path.own, c, u))
            slopes.append(self.vector(v_of_own(path.own, path.tilt), c, u))
        at, v = np.stack(points), np.stack(slopes)
        value = program.interpolation.value[c]
        phi = np.append(self.found.proof.values, 0.0)[value]  # those at -1 are zero
        made = Interpolant if kinds.smooth else Pieces
        return made(at, v + mu * at, phi + mu / 2 * np.sum(at**2, axis=1), mu, L)


def _run(asked: Question, instance: NetworkInstance, marked: int | None) -> float:
    """The metric after the real method's run."""
    method: Any = asked.method
    devices, unit = instance.devices, asked.units.curvature
    if asked.network is not None:
        assert instance.W is not None
        first = instance.W if instance.W.ndim == 2 else instance.W[0]
        method = on_any_network(method, asked.network, first, len(devices))
    same = asked.start.points == "same"
    state = method.start(instance.x0[0] if same else instance.x0, measured(devices, unit))
    points, stack = [np.asarray(method.point(state))], held(method, state)
    for k in range(asked.rounds):
        here = None if asked.schedule is None else asked.schedule[k]
        told = answer(
            method.ask(state), lambda x, _: unit * instance.gradients(x), devices.weights, here, asked.missing
        )
        if instance.W is not None and instance.W.ndim == 3:
            state = in_network(state, instance.W[k])
        state = method.tell(state, told)
        points.append(np.asarray(method.point(state)))
        stack = held(method, state)
    rows = np.broadcast_to(stack if np.ndim(stack) == 2 else points[-1], instance.x0.shape)
    kind, _, where = asked.metric.partition("_")
    point = points[-1]
    if where == "average":
        point = np.mean(points, axis=0)
    elif where == "worst" and np.ndim(stack) == 2:
        assert marked is not None
        point = rows[marked]
    if asked.metric == "distance_devices":
        return float(np.sum(rows**2, axis=1).mean())
    if kind == "consensus":
        return float(np.sum((rows - rows.mean(axis=0)) ** 2, axis=1).mean())
    if kind == "distance":
        return float(point @ point)
    if kind == "gradient":
        slope = devices.weights @ instance.gradients(point)
        return float(slope @ slope)
    return instance.value(point)


def settle_on(asked: Question, instance: NetworkInstance) -> float:
    """The squared error of the real method after its rounds on a recovered instance, as the bounds ask for it."""
    return _run(asked, instance, None) * instance.scale**2


def _vectors(gram: Array, unit: Array) -> Array:
    """Columns whose Gram matrix this is, as few rows as it takes; each counts in its own unit."""
    values, vectors = np.linalg.eigh(gram / np.outer(unit, unit))
    kept = values > 1e-14 * max(values[-1] if len(values) else 0.0, 0.0)
    return np.asarray(np.sqrt(values[kept])[:, None] * vectors[:, kept].T * unit)


def _directions(counts: NDArray[np.int64], index: NDArray[np.int64]) -> Array:
    """A unit vector of the plane for each device, those of a kind of two or more adding up to zero."""
    out = np.zeros((len(index), 2))
    for c, count in enumerate(counts):
        members = np.flatnonzero(index == c)
        if count == 1:
            continue
        turns = [0.0, 1 / 3, 2 / 3] if count % 2 else []
        turns += [0.0, 0.5] * ((count - len(turns)) // 2)
        angle = 2 * np.pi * np.array(turns)
        out[members] = np.column_stack([np.cos(angle), np.sin(angle)])
    return out
