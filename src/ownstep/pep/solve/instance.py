r"""An explicit worst function, in the caller's units, and the run of the real method on it.

x* = 0 minimises the weighted sum of the losses by construction, each belongs to its class whatever rounding did, and
the instance meets both radii. The lower end of a worst case is not the error of this run, which is rounded, but
that of :mod:`ownstep.pep.solve.exact`; a test holds them against each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.methods.base import Answer, Method
from ownstep.pep.solve.candidate import Candidate, Part
from ownstep.pep.solve.interpolant import Interpolant
from ownstep.pep.trace.units import Units
from ownstep.plan import Devices

Array = NDArray[np.float64]


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
    points : the real method's x^0, ..., x^K.
    residual : largest norm of a device's gradient at its own minimiser, which should be zero.
    """

    x0: Array
    losses: tuple[LocalLoss, ...]
    error: float
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


def carried(found: Candidate, method: Method, devices: Devices, rounds: int, metric: str, units: Units) -> Instance:
    """A candidate in the caller's units, and the *real* method's run on it."""
    losses = tuple(loss for part in found.parts for loss in _losses(part, devices, units))
    x0 = units.length * found.x0
    error, points = replay(method, devices, x0, losses, rounds, metric)
    residual = max(
        (float(np.linalg.norm(loss.gradient(loss.minimiser))) for loss in losses if loss.minimiser is not None),
        default=0.0,
    )
    return Instance(x0, losses, error, points, residual, metric)


def _losses(part: Part, devices: Devices, units: Units) -> list[LocalLoss]:
    """A part's function, handed out to its devices: each gets its share of the curvature above mu."""
    a, b = units.curvature, units.length
    kinds: dict[tuple[float, float], list[int]] = {}
    for i in part.members:
        kinds.setdefault((float(devices.mu[i]), float(devices.L[i])), []).append(i)
    out = []
    for (mu, L), members in kinds.items():
        if part.shape is None:
            none = np.zeros((1, len(part.tilt)))
            shape, share = Interpolant(none, none, np.zeros(1), mu, mu), 1.0
        else:
            h, share = part.shape, (L - mu) / (a * part.curvature)
            x, low, high = b * h.x, mu + share * a * h.mu, mu + share * a * h.L
            g = share * a * b * h.g + mu * x
            f = share * a * b**2 * h.f + mu / 2 * np.einsum("ij,ij->i", x, x)
            shape = Interpolant(x, g, f, low, min(high, L))
        tilt = share * a * b * part.tilt - shape.gradient(np.zeros(len(part.tilt)))
        own = b * part.own if part.own is not None and part.members[0] in members else None
        out.append(LocalLoss(tuple(members), shape, tilt, own))
    return out


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
