r"""A worst function one can hold in hand: recovered from the Gram matrix, and the real method run on it.

Points, gradients and values come out of a factorisation of the Gram matrix. The functions built from them (see
:mod:`ownstep.pep.solve.interpolant`) belong to the class whatever rounding did to the numbers, x* = 0 minimises their
weighted sum by construction, and the instance is scaled to meet both radii. So the error that the *real* method
reaches on it is a lower bound on the worst case, whether or not the solver was accurate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.methods.base import Answer, Method
from ownstep.pep.conditions.gram import Gram
from ownstep.pep.solve.interpolant import Interpolant
from ownstep.pep.solve.sdp import Solution
from ownstep.pep.trace.symbolic import Trace
from ownstep.pep.trace.symmetry import Group
from ownstep.pep.trace.units import Setting, Units
from ownstep.plan import Devices

Array = NDArray[np.float64]

NEGLIGIBLE = 1e-13
"""Eigenvalues below this fraction of the largest carry no direction of the instance."""

TWINS_ALIKE = 1e-6
"""Trace of a difference block, in units of the instance's own sizes, below which it is taken for zero."""

FLAT = 1e-7
"""Without strong convexity a gradient this small, relative to L times the distance from x*, counts as zero."""


@dataclass(frozen=True, eq=False)
class LocalLoss:
    """f_i of some devices: an interpolant plus a linear term, in F(mu, L).

    Parameters
    ----------
    members : the devices whose loss this is.
    shape : the interpolant of the tilted loss.
    tilt : what is added to its gradient, so that sum_i w_i grad f_i(x*) = 0 at x* = 0.
    minimiser : the devices' own minimiser, None where none is asked for.
    """

    members: tuple[int, ...]
    shape: Interpolant
    tilt: Array
    minimiser: Array | None

    def __call__(self, x: Array) -> float:
        """f_i(x), with f_i(x*) = 0."""
        return self.both(x)[0]

    def gradient(self, x: Array) -> Array:
        """Grad f_i(x)."""
        return self.both(x)[1]

    def both(self, x: Array) -> tuple[float, Array]:
        """f_i(x) and grad f_i(x)."""
        value, gradient = self.shape.both(x)
        return value + float(self.tilt @ x), gradient + self.tilt


@dataclass(frozen=True, eq=False)
class Instance:
    """Functions, a start, and what the method does to them; x* is the origin.

    Parameters
    ----------
    x0 : the start, ||x0|| <= r0.
    losses : the distinct local losses, each with the devices that share it.
    error : the metric that the real method reaches on them.
    predicted : the metric according to the Gram matrix.
    points : the real method's x^0, ..., x^K.
    residual : largest norm of a device's gradient at its own minimiser, which should be zero.
    """

    x0: Array
    losses: tuple[LocalLoss, ...]
    error: float
    predicted: float
    points: Array
    residual: float
    metric: str

    @property
    def dimension(self) -> int:
        """Dimension of the space the worst function lives in."""
        return len(self.x0)

    def loss(self, device: int) -> LocalLoss:
        """f_i of one device."""
        return next(loss for loss in self.losses if device in loss.members)


@dataclass(frozen=True, eq=False)
class Candidate:
    """An instance in canonical units, and what the traced method makes of it.

    Parameters
    ----------
    x0, losses : the start, and the distinct local losses.
    error : the metric reached, in floating point.
    residual : largest norm of a device's gradient at its own minimiser, which should be zero.
    """

    x0: Array
    losses: tuple[LocalLoss, ...]
    error: float
    predicted: float
    residual: float


def recover(asked: Setting, gram: Gram, found: Solution, predicted: float, *, merge: bool = True) -> Candidate:
    """Build the instance behind a solution, scale it into both radii, and run the traced method on it.

    With ``merge``, twins whose differences are tiny share one function.
    """
    devices, r0, rstar = asked.devices, asked.r0, asked.rstar
    differences = [_unless_tiny(block) if merge else block for block in found.differences]
    mean, apart = _factor(found.gram), [_factor(block) for block in differences]
    values = found.values * gram.value_scale
    x0, losses = _build(devices, gram, values, mean, apart, 1.0)
    length = float(np.linalg.norm(x0))
    factor = r0 / length if length > 0 else 1.0
    residual = 0.0
    if gram.local_optima:
        reached = [_own_minimiser(loss) for loss in losses]
        residual = factor * max(slope for _, slope in reached)
        reach = max(distance for distance, _ in reached)
        factor = min(factor, rstar / reach) if reach > 0 else factor
    x0, losses = _build(devices, gram, values, mean, apart, factor)
    final = _run(asked.path, x0, losses)
    return Candidate(x0, losses, _error(final, devices, losses, asked.metric), predicted, residual)


def _run(path: Trace, x0: Array, losses: tuple[LocalLoss, ...]) -> Array:
    """The traced method on real vectors: its last point, or points where every device has one."""
    atoms = np.zeros((path.points[-1].shape[1], len(x0)))
    atoms[0], fresh = x0, 1
    for ask, mix in zip(path.asks, path.mixes, strict=True):
        x = ask @ atoms
        for loss in losses:
            members = list(loss.members)
            if mix is None:
                for i in members:
                    atoms[fresh + i] = loss.gradient(x[i if len(x) > 1 else 0])
            else:
                atoms[fresh] += mix[members].sum() * loss.gradient(x[0])
        fresh += 1 if mix is not None else sum(len(loss.members) for loss in losses)
    final = path.points[-1] @ atoms
    return np.asarray(final if len(final) > 1 else final[0])


def carried(found: Candidate, method: Method, devices: Devices, rounds: int, metric: str, units: Units) -> Instance:
    """A candidate in the caller's units, and the *real* method's run on it."""
    a, b = units.curvature, units.length
    losses = tuple(
        LocalLoss(
            loss.members,
            loss.shape.carried(a, b, float(devices.mu[loss.members[0]]), float(devices.L[loss.members[0]])),
            a * b * loss.tilt,
            None if loss.minimiser is None else b * loss.minimiser,
        )
        for loss in found.losses
    )
    x0 = b * found.x0
    error, points = replay(method, devices, x0, losses, rounds, metric)
    unit = units.metric(metric)
    return Instance(x0, losses, error, unit * found.predicted, points, a * b * found.residual, metric)


def replay(
    method: Method, devices: Devices, x0: Array, losses: tuple[LocalLoss, ...], rounds: int, metric: str
) -> tuple[float, Array]:
    """Run the real method on real vectors; returns its error and its points."""
    state = method.start(x0, devices)
    points = [np.array(method.point(state), dtype=float)]
    for _ in range(rounds):
        ask = method.ask(state)
        state = method.tell(state, _answer(ask, devices, losses))
        points.append(np.array(method.point(state), dtype=float))
    return _error(points[-1], devices, losses, metric), np.array(points)


def _answer(ask: Any, devices: Devices, losses: tuple[LocalLoss, ...]) -> Answer:
    rows = np.zeros((len(devices), np.asarray(ask.x).shape[-1]))
    value = 0.0
    for loss in losses:
        if ask.mix is None:
            for i in loss.members:
                at, rows[i] = loss.both(np.asarray(ask.x[i]))
                value += devices.weights[i] * at
            continue
        at, gradient = loss.both(ask.x)
        index = list(loss.members)
        rows[index] = gradient
        value += devices.weights[index].sum() * at
    if ask.mix is None:
        return Answer(value=value, gradients=rows)
    also = None if ask.also is None else np.asarray(ask.also) @ rows
    return Answer(sum=np.asarray(ask.mix) @ rows, also=also, value=value)


def _error(final: Array, devices: Devices, losses: tuple[LocalLoss, ...], metric: str) -> float:
    """The metric at x^K, or its average when every device has a point of its own."""
    total, gradient = 0.0, np.zeros(final.shape[-1])
    for loss in losses:
        for i in loss.members if final.ndim == 2 else loss.members[:1]:
            x = final[i] if final.ndim == 2 else final
            weight = float(devices.weights[i if final.ndim == 2 else list(loss.members)].sum())
            if metric == "distance":
                total += weight * float(x @ x)
                continue
            value, slope = loss.both(x)
            total += weight * (value - loss(0 * x))
            gradient += weight * slope
    return float(gradient @ gradient) if metric == "gradient" else total


def _unless_tiny(block: Array) -> Array:
    """A difference block without what the solver left of zero: twins that need not differ share one function."""
    return block if np.trace(block) > TWINS_ALIKE else np.zeros_like(block)


def _factor(matrix: Array) -> Array:
    """Rows whose inner products are the matrix, as far as it is positive."""
    values, vectors = np.linalg.eigh(matrix)
    kept = values > NEGLIGIBLE * max(values[-1], 0.0) if len(values) else np.zeros(0, bool)
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))


def _build(
    devices: Devices, gram: Gram, values: Array, mean: Array, apart: list[Array], factor: float
) -> tuple[Array, tuple[LocalLoss, ...]]:
    """The functions; ``factor`` scales all lengths, and values by its square."""
    spare = [2 * block.shape[1] for block in apart]  # room for twins to differ in: see _arrangement
    width = mean.shape[1] + sum(spare)
    start = np.pad(gram.start[0] @ mean, (0, sum(spare))) * factor
    losses: list[LocalLoss] = []
    position = 0
    for c, (group, triples) in enumerate(zip(gram.groups, gram.triples, strict=True)):
        phi = np.where(triples.value >= 0, values[triples.value] if len(values) else 0.0, 0.0) * factor**2
        x = np.pad(triples.x @ mean, ((0, 0), (0, sum(spare))))
        v = np.pad(triples.v @ mean, ((0, 0), (0, sum(spare))))
        s = np.pad(gram.tilts[c] @ mean, (0, sum(spare)))
        if triples.x_difference is None or triples.v_difference is None:
            losses += _share(devices, group, x * factor, v * factor, phi, s * factor, gram.local_optima)
            continue
        block, at = apart[position], mean.shape[1] + sum(spare[:position])
        position += 1
        scale = gram.difference_scale[c]
        tilt = _difference_tilt(len(triples.names), group.quadratic) * (1.0 if scale is None else scale)
        arranged = _arrangement(group.members) if block.shape[1] else [(group.members, (0.0, 0.0))]
        for members, corner in arranged:
            x_i = x + _placed(triples.x_difference @ block, corner, at, width)
            v_i = v + _placed(triples.v_difference @ block, corner, at, width)
            s_i = s + _placed(tilt[None] @ block, corner, at, width)[0]
            losses.append(_loss(members, x_i * factor, v_i * factor, phi, s_i * factor, group.mu, group.L, True))
    return start, tuple(losses)


def _difference_tilt(triples: int, quadratic: bool) -> Array:
    """The column that holds the difference of s: after the v of every round."""
    rounds = triples - 2
    return np.asarray(np.eye(1)[0] if quadratic else np.eye(rounds + 2)[rounds])


def _arrangement(members: tuple[int, ...]) -> list[tuple[tuple[int, ...], tuple[float, float]]]:
    """Differences that sum to zero and have one length: half plus, half minus; a triangle takes care of odd numbers."""
    out = []
    rest = members
    if len(members) % 2:
        corners = [(1.0, 0.0), (-0.5, math.sqrt(3) / 2), (-0.5, -math.sqrt(3) / 2)]
        out = [((i,), corner) for i, corner in zip(members[:3], corners, strict=True)]
        rest = members[3:]
    half = len(rest) // 2
    pairs = [(rest[:half], (1.0, 0.0)), (rest[half:], (-1.0, 0.0))]
    return out + [(part, corner) for part, corner in pairs if part]


def _placed(rows: Array, corner: tuple[float, float], at: int, width: int) -> Array:
    """The rows along both spare copies of their space, starting at column ``at``."""
    size = rows.shape[1]
    out = np.zeros((len(rows), width))
    out[:, at : at + size] = corner[0] * rows
    out[:, at + size : at + 2 * size] = corner[1] * rows
    return out


def _share(devices: Devices, group: Group, x: Array, v: Array, phi: Array, s: Array, own: bool) -> list[LocalLoss]:
    """A pooled function, handed out to its devices: each gets its share of the curvature above mu."""
    kinds: dict[tuple[float, float], list[int]] = {}
    for i in group.members:
        kinds.setdefault((float(devices.mu[i]), float(devices.L[i])), []).append(i)
    curvature = group.L - group.mu
    out = []
    for (mu, L), members in kinds.items():
        share = (L - mu) / curvature if not group.quadratic else 0.0
        out.append(_loss(tuple(members), x, share * v, share * phi, s, mu, L, own))
    return out


def _loss(
    members: tuple[int, ...], x: Array, v: Array, phi: Array, s: Array, mu: float, L: float, own: bool
) -> LocalLoss:
    shape = Interpolant(x, v + mu * x, phi + mu / 2 * np.einsum("ij,ij->i", x, x), mu, L)
    tilt = s - shape.gradient(np.zeros(x.shape[1]))
    return LocalLoss(members, shape, tilt, x[-1] if own else None)


def _own_minimiser(loss: LocalLoss) -> tuple[float, float]:
    """How far from x* the true minimiser of f_i is, and how large the gradient is where the search for it ended.

    Rounding leaves a small gradient at the recovered minimiser. Steps of Barzilai and Borwein, on a function that is
    quadratic piece by piece, remove it; strong convexity turns what is left into a distance.
    """
    x = loss.minimiser
    if x is None:
        return 0.0, 0.0
    slope = loss.gradient(x)
    exact = 1e-12 if loss.shape.mu > 0 else FLAT  # where f_i is flat, a step for a tiny gradient leads far away
    goal = exact * loss.shape.L * float(np.linalg.norm(x))
    step = 1 / loss.shape.L
    best = (float(np.linalg.norm(slope)), x)
    for _ in range(60):
        if best[0] <= goal:
            break
        moved = x - step * slope
        new = loss.gradient(moved)
        change, turn = moved - x, new - slope
        bend = float(change @ turn)
        step = float(change @ change) / bend if bend > 0 else 1 / loss.shape.L
        x, slope = moved, new
        best = min(best, (float(np.linalg.norm(slope)), x), key=lambda found: found[0])
    size, x = best
    return float(np.linalg.norm(x)) + (size / loss.shape.mu if loss.shape.mu > 0 else 0.0), size
