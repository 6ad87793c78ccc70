r"""An instance in canonical units: recovered from a solution, and the traced method run on it in floating point.

Points, gradients and values come out of a factorisation of the Gram matrix. The functions built from them (see
:mod:`ownstep.pep.solve.interpolant`) belong to the class whatever rounding did to the numbers, and x* = 0 minimises
their weighted sum by construction. What the method sees on them is kept: :mod:`ownstep.pep.solve.exact` makes a proof
of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ownstep.pep.conditions.gram import Gram
from ownstep.pep.solve.interpolant import Interpolant
from ownstep.pep.solve.sdp import Solution
from ownstep.pep.trace.units import Setting
from ownstep.plan import Devices

Array = NDArray[np.float64]

NEGLIGIBLE = 1e-9
"""Eigenvalues below this fraction of the largest carry no direction of the instance."""

TWINS_ALIKE = 1e-6
"""Trace of a difference block, in units of the instance's own sizes, below which it is taken for zero."""

WELL_RECOVERED = 1e-3
"""A recovered minimiser is one where it is this close to one, or its gradient that small, both relative."""

INSIDE = 1 - 2.0**-48
"""Radii are kept by this factor, so that rounding does not leave them."""


@dataclass(frozen=True, eq=False)
class Part:
    """Devices that share one function h of F(0, M): f_i = mu_i/2 ||x||^2 + (L_i - mu_i)/M (h(x) + <s, x>).

    Parameters
    ----------
    members : the devices; the first is the one whose own minimiser is furthest away.
    curvature : M; zero where mu = L, and f_i = mu_i/2 ||x||^2 + <s, x>.
    shape : h up to a linear term, which :meth:`both` takes out: h has the triple zero at x* = 0.
    tilt : s.
    own : the first device's own minimiser, None where none is asked for.
    """

    members: tuple[int, ...]
    curvature: float
    shape: Interpolant | None
    tilt: Array
    own: Array | None

    def shares(self, devices: Devices) -> Array:
        """(L_i - mu_i)/M of its members, 1 where there is no h."""
        members = list(self.members)
        if not self.curvature:
            return np.ones(len(members))
        return np.asarray((devices.L[members] - devices.mu[members]) / self.curvature)

    def both(self, x: Array) -> tuple[float, Array]:
        """H and its gradient."""
        if self.shape is None:
            return 0.0, np.zeros(len(x))
        value, slope = self.shape.both(x)
        at, lean = self.shape.origin()
        return value - at - float(lean @ x), slope - lean


@dataclass(frozen=True, eq=False)
class Candidate:
    """An instance in canonical units, and what the traced method sees on it.

    Parameters
    ----------
    x0, parts : the start, and the functions.
    slopes : for each part grad h where gradients are taken, round by round, and at x^K unless the metric is distance.
    error : the metric reached, in floating point.
    """

    x0: Array
    parts: tuple[Part, ...]
    slopes: tuple[Array, ...]
    error: float


def recover(asked: Setting, gram: Gram, found: Solution, narrow: float, *, alike: float = TWINS_ALIKE) -> Candidate:
    """Build the instance behind a solution, scale it into both radii, and run the traced method on it.

    Parameters
    ----------
    narrow : h is taken from F(narrow M, (1 - narrow) M), a little inside its class.
    alike : twins whose difference block has a trace of at most this share one function.
    """
    differences = [_unless_alike(block, alike) for block in found.differences]
    mean, apart = _factor(found.gram), [_factor(block) for block in differences]
    values = found.values * gram.value_scale
    x0, parts = _build(gram, values, mean, apart, 1.0, narrow)
    length = float(np.linalg.norm(x0))
    factor = asked.r0 / length if length > 0 else 1.0
    if gram.local_optima:
        own = [_own_minimiser(part, asked.devices) for part in parts]
        reach = max(float(np.linalg.norm(z)) for z in own)
        factor = min(factor, asked.rstar / reach) if reach > 0 else factor
        factor *= INSIDE
        x0, parts = _build(gram, values, mean, apart, factor, narrow, [factor * z for z in own])
    else:
        x0, parts = _build(gram, values, mean, apart, factor * INSIDE, narrow)
    return run(asked, x0, parts)


def run(asked: Setting, x0: Array, parts: tuple[Part, ...]) -> Candidate:
    """The traced method on real vectors."""
    path, d = asked.path, asked.devices
    atoms = np.zeros((path.points[-1].shape[1], len(x0)))
    atoms[0], fresh = x0, 1
    slopes: list[list[Array]] = [[] for _ in parts]
    for ask, mix in zip(path.asks, path.mixes, strict=True):
        x = ask @ atoms
        for part, seen in zip(parts, slopes, strict=True):
            members, at = list(part.members), x[part.members[0] if len(x) > 1 else 0]
            seen.append(part.both(at)[1])
            share, slope = part.shares(d), seen[-1] + part.tilt
            if mix is None:
                atoms[[fresh + i for i in members]] = np.outer(d.mu[members], at) + np.outer(share, slope)
            else:
                c = mix[members]
                atoms[fresh] += (c @ d.mu[members]) * at + (c @ share) * slope
        fresh += 1 if mix is not None else len(d)
    error = _error(asked, parts, slopes, path.points[-1] @ atoms)
    return Candidate(x0, parts, tuple(np.array(rows).reshape(len(rows), len(x0)) for rows in slopes), error)


def _error(asked: Setting, parts: tuple[Part, ...], slopes: list[list[Array]], final: Array) -> float:
    """The metric at x^K, or its average when every device has a point of its own; notes the slopes there."""
    d, total, gradient = asked.devices, 0.0, np.zeros(final.shape[1])
    for part, seen in zip(parts, slopes, strict=True):
        members, x = list(part.members), final[part.members[0] if len(final) > 1 else 0]
        w = d.weights[members]
        share = float(w @ part.shares(d))
        if asked.metric == "distance":
            total += float(w.sum() * (x @ x))
            continue
        value, slope = part.both(x)
        seen.append(slope)
        total += float(w @ d.mu[members] / 2 * (x @ x) + share * (value + part.tilt @ x))
        gradient += (w @ d.mu[members]) * x + share * (slope + part.tilt)
    return float(gradient @ gradient) if asked.metric == "gradient" else total


def merges(found: Solution) -> list[float]:
    """Values of ``alike`` worth trying: all twins share their function, those do that seem to, and none does.

    A solver that ends in the middle of all solutions sets twins apart even where they need not be: fewer functions in
    fewer dimensions are then as bad, and are sooner checked.
    """
    choices, seen = [], []
    for alike in (math.inf, TWINS_ALIKE, 0.0):
        apart = [bool(np.trace(block) > alike) for block in found.differences]
        if apart not in seen:
            choices.append(alike)
            seen.append(apart)
    return choices


def _unless_alike(block: Array, alike: float) -> Array:
    """A difference block, or zero where its trace is no larger."""
    return block if np.trace(block) > alike else np.zeros_like(block)


def _factor(matrix: Array) -> Array:
    """Rows whose inner products are the matrix, as far as it is positive."""
    values, vectors = np.linalg.eigh(matrix)
    kept = values > NEGLIGIBLE * max(values[-1], 0.0) if len(values) else np.zeros(0, bool)
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))


def _build(
    gram: Gram,
    values: Array,
    mean: Array,
    apart: list[Array],
    factor: float,
    narrow: float,
    own: list[Array] | None = None,
) -> tuple[Array, tuple[Part, ...]]:
    """The functions; ``factor`` scales all lengths, and values by its square; ``own`` replaces the minimisers."""
    spare = [2 * block.shape[1] for block in apart]  # room for twins to differ in: see _arrangement
    width = mean.shape[1] + sum(spare)
    start = np.pad(gram.start[0] @ mean, (0, sum(spare))) * factor
    parts: list[Part] = []
    position = 0
    for c, (group, triples) in enumerate(zip(gram.groups, gram.triples, strict=True)):
        phi = np.where(triples.value >= 0, values[triples.value] if len(values) else 0.0, 0.0)
        x = np.pad(triples.x @ mean, ((0, 0), (0, sum(spare))))
        v = np.pad(triples.v @ mean, ((0, 0), (0, sum(spare))))
        s = np.pad(gram.tilts[c] @ mean, (0, sum(spare)))
        arranged: list[tuple[tuple[int, ...], tuple[float, float]]] = [(group.members, (0.0, 0.0))]
        x_d, v_d = triples.x_difference, triples.v_difference
        if x_d is not None and v_d is not None:
            block, at = apart[position], mean.shape[1] + sum(spare[:position])
            position += 1
            scale = gram.difference_scale[c]
            tilt = _difference_tilt(len(triples.names), group.quadratic) * (1.0 if scale is None else scale)
            arranged = _arrangement(group.members) if block.shape[1] else arranged
        M = 0.0 if group.quadratic else group.L - group.mu
        for members, corner in arranged:
            x_i, v_i, s_i = x, v, s
            if any(corner) and x_d is not None and v_d is not None:
                x_i = x + _placed(x_d @ block, corner, at, width)
                v_i = v + _placed(v_d @ block, corner, at, width)
                s_i = s + _placed(tilt[None] @ block, corner, at, width)[0]
            triple = (x_i * factor, v_i * factor, phi * factor**2)
            shape = Interpolant(*triple, narrow * M, (1 - narrow) * M) if M else None
            z = None if not gram.local_optima else own[len(parts)] if own else x_i[-1] * factor
            parts.append(Part(members, M, shape, s_i * factor, z))
    return start, tuple(parts)


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


def _own_minimiser(part: Part, devices: Devices) -> Array:
    """The true minimiser of f_i, near the recovered one, where rounding leaves a small gradient.

    Steps of Barzilai and Borwein, on a function that is quadratic piece by piece, remove it. Where f_i is flat they
    may lead far away; then the recovered point is the better one, unless it is none: the mean of twins' minimisers
    need not minimise the function that the twins are given to share.
    """
    assert part.own is not None
    i = part.members[0]
    mu, L = float(devices.mu[i]), float(devices.L[i])
    share = float(part.shares(devices)[0])

    def slope(x: Array) -> Array:
        return np.asarray(mu * x + share * (part.both(x)[1] + part.tilt))

    x = start = part.own if part.curvature else -part.tilt / mu
    here, step = slope(x), 1 / L
    best = (float(np.linalg.norm(here)), x)
    for _ in range(60):
        if best[0] <= 1e-13 * L * float(np.linalg.norm(x)):
            break
        moved = x - step * here
        new = slope(moved)
        change, turn = moved - x, new - here
        bend = float(change @ turn)
        step = float(change @ change) / bend if bend > 0 else 1 / L
        x, here = moved, new
        best = min(best, (float(np.linalg.norm(here)), x), key=lambda found: found[0])
    size = float(np.linalg.norm(start))
    near = float(np.linalg.norm(best[1] - start)) <= WELL_RECOVERED * size
    minimal = float(np.linalg.norm(slope(start))) <= WELL_RECOVERED * L * size
    return best[1] if near or not minimal else start
