r"""How far from x* a method ends that does not end at x*: the radius of the ball it tends to.

Decentralised gradient descent, and own steps before the switch, tend to a fixed point of their own, at the rate that
:func:`~ownstep.pep.rate` proves. A fixed point is a state that one round leaves as it is. That is a linear equation
between the symbolic vectors of one round, so the farthest fixed point over all functions and networks of a class,

    max  1/N sum_i ||x_i - x*||^2    over  state = round(state),  f_i in F(mu_i, L_i),  ||x_i* - x*|| <= rstar,

is one small semidefinite program: that of a worst case, with the equation's columns eliminated.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ownstep.methods.base import Method
from ownstep.pep.conditions.classes import check_smooth
from ownstep.pep.networks.dual import prove
from ownstep.pep.networks.instances.lower_search import factors
from ownstep.pep.networks.instances.replay import recover, settle_on
from ownstep.pep.networks.kind_vectors import Agents, Frame, Shared, padded, size
from ownstep.pep.networks.network_enclosure import INSIDE, Upper
from ownstep.pep.networks.network_trace import Evaluation, Follower, Path, own_minimisers
from ownstep.pep.networks.program import Blocks, interpolate, mixings, triples, value_units
from ownstep.pep.networks.question import Question, Start
from ownstep.pep.networks.scaled import Program
from ownstep.pep.networks.spectral import Spectral
from ownstep.pep.rates.lift import Lifted, Runner, natural, relations, vectors, with_fields
from ownstep.pep.rates.rate import Rate, rate
from ownstep.pep.trace.units import measured, units_of
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput, OwnstepError

Array = NDArray[np.float64]

LONG = 40
"""Rounds that the real method runs from a fixed point that was found, to see that it stays."""


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """A method tends to within ``radius`` of x*, at the rate ``rho`` per round.

    Parameters
    ----------
    radius : no fixed point is farther from x*; sqrt(1/N sum_i ||x_i - x*||^2) for methods without a server.
    lower : where the real method stayed on functions and a network of the class.
    rho : the rate towards the fixed point.
    rstar : what was asked; the radius is proportional to it.
    """

    radius: float
    lower: float
    rho: float
    rstar: float
    status: str
    seconds: float
    _rate: Rate = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The numbers as plain data."""
        return {name: getattr(self, name) for name in ("radius", "lower", "rho", "rstar", "status", "seconds")}


def neighbourhood(
    method: Method, devices: Devices, rstar: float = 1.0, *, network: Spectral | None = None, memory: int = 1
) -> Neighbourhood:
    """The ball around x* that a method tends to, and its rate.

    Parameters
    ----------
    method, devices, network, memory : as for :func:`~ownstep.pep.rate`.
    rstar : R_*, the devices' own minimisers lie within it of x*.

    Raises
    ------
    InvalidInput
        For a method that is not linear, or changes its rule from round to round.
    OwnstepError
        When no rate below 1 is found, or the solver fails.

    Examples
    --------
    >>> from ownstep import DecentralisedGD, pep
    >>> two = pep.repeated([1.0], mu=0.2, counts=[2])
    >>> found = pep.neighbourhood(DecentralisedGD(0.3), two, rstar=1, network=pep.Spectral(-0.5, 0.5))
    >>> print(f"within {found.radius:.4f}, at the rate {found.rho:.4f}")
    within 0.4909, at the rate 0.9400
    """
    began = time.perf_counter()
    check_smooth(devices, "a neighbourhood")
    if not (math.isfinite(rstar) and rstar >= 0):
        raise InvalidInput(f"rstar must be a finite number >= 0, got {rstar!r}")
    found = rate(method, devices, network=network, memory=memory)
    if found.exact or rstar == 0:
        words = "the limit is x*" if found.exact else "all devices are at rest at x*"
        return Neighbourhood(0.0, 0.0, found.rho, rstar, words, time.perf_counter() - began, found)
    start = Start("ball") if network is not None else Start()
    units = units_of(devices.L, rstar, rstar, "distance")
    small, radius = measured(devices, 1 / units.curvature), rstar / units.length
    asked = Question(method, small, LONG, math.inf, radius, "distance_devices", network, start, units=units)
    ball = _farthest(asked, found.lifted, None)
    low = _reached(asked, found.lifted, ball.proof.bound)
    words = f"enclosed to a relative {1 - math.sqrt(low / ball.proof.bound):.1e}; solver: {ball.proof.status}"
    ends = [units.length * math.sqrt(square) for square in (ball.proof.bound, low)]
    return Neighbourhood(ends[0], ends[1], found.rho, rstar, words, time.perf_counter() - began, found)


def _reached(asked: Question, lifted: Lifted, bound: float) -> float:
    """The largest error at which the real method stays, of the matrices tried."""
    best = 0.0
    for factor in factors(asked):
        for margin in INSIDE:
            try:
                tried = _farthest(asked, lifted, factor, margin)
            except OwnstepError:
                continue
            best = max(best, settle_on(asked, recover(asked, tried, factor)))
            break
        if best >= (1 - 1e-5) * bound:
            break
    return min(best, bound)


def _farthest(asked: Question, lifted: Lifted, factor: float | None, inside: float | None = None) -> Upper:
    """The farthest fixed point over the class, or over one matrix; with ``inside`` one to look for functions at."""
    kinds, unit = lifted.frame.kinds, asked.rstar
    frame = Frame(kinds)
    network = asked.network
    tilt = frame.balanced(unit * float(kinds.L.max()), kinds.weights, np.zeros(0))
    own = own_minimisers(frame, unit, tilt)
    runner = Runner(asked.method, asked.told, frame, network, pooled=False)
    runner.averaging.factor = factor if factor is not None else runner.averaging.factor
    runner.follower = Follower(frame, tilt, unit * float(kinds.L.max()))
    known = vectors(lifted.settled[0])
    sizes = natural(known, size(lifted.rounds[0].asked))
    free: dict[str, Any] = {}
    for name, like in known.items():
        fresh: Any = (frame.shared if isinstance(like, Shared) else frame.stack)(unit * sizes[name])
        free[name] = fresh if name in lifted.needed else 0.0 * fresh
    state = with_fields(lifted.settled[0], free, network, runner)
    x = runner.method.ask(state).x
    after = vectors(runner.round(state, 0)[0])
    still = [(after[name] - free[name], unit * sizes[name]) for name in known if name in lifted.needed]
    moved = _Eliminated(frame, still, _tied(lifted, free, {name: unit * sizes[name] for name in known}))
    seen = [Evaluation(e.name, moved(e.x), moved(e.v)) for e in runner.follower.evaluations]
    place = moved(x if isinstance(x, Agents) else x.spread())
    stack, tilt, own = place, moved(tilt), moved(own)
    follower = Follower(moved.frame, tilt, unit * float(kinds.L.max()), seen)
    steps = [(group, moved(a), moved(b)) for group, a, b in runner.averaging.steps]
    blocks = Blocks(moved.frame)
    inter = interpolate(blocks, *triples(blocks, seen, own, tilt))
    heads = [[block / unit**2 for block in blocks.product(own, own, c)] for c in range(len(kinds))]
    names = tuple(f"kind {c}: ||x_i* - x*||^2 <= rstar^2" for c in range(len(kinds)))
    lo, hi = (0.0, 0.0) if network is None else (network.lo, network.hi)
    target = blocks.packed([blocks.average(stack, stack, kinds.shares)])[0]
    units = value_units(inter, kinds, float(kinds.L.max()) * unit**2)
    rows = (blocks.packed(heads), names, target, np.zeros(inter.count), units)
    program = Program(blocks, inter, tuple(mixings(blocks, steps, lo, hi)), *rows)
    path = Path(moved.frame, tuple(seen), tilt, stack, own, (), (stack,), tuple(steps), follower)
    return Upper(prove(program, inside=inside), program, path, None)


def _tied(lifted: Lifted, free: dict[str, Any], sizes: dict[str, float]) -> list[tuple[int, Array, Array]]:
    """The relations of a reachable state as (kind, row over the means, row over the differences) that vanish.

    Like all rows here they are divided by the size their vector usually has: what is left of one is then small or not.
    """
    means, apart = relations([vectors(s) for s in lifted.settled], set(lifted.needed), lifted.frame.kinds)
    out = []
    for found, part in ((means, 0), (apart, 1)):
        for (name, c), row in found.items():
            if row is not None:
                total = _row(free[name], c, part)
                for (other, k), number in row.items():
                    total = _plus(total, -number * _row(free[other], k, part))
                total = total / sizes[name]
                out.append((c, total if part == 0 else np.zeros(0), total if part == 1 else np.zeros(0)))
    return out


def _row(x: Agents | Shared, c: int, part: int) -> Array:
    if isinstance(x, Shared):
        return x.mean_row
    return np.asarray((x.mean_rows if part == 0 else x.difference)[c])


def _plus(a: Array, b: Array) -> Array:
    width = max(len(a), len(b))
    return padded(a, width) + padded(b, width)


class _Eliminated:
    """Vectors over fewer columns, for which given stacks and rows vanish."""

    def __init__(self, frame: Frame, still: list[tuple[Any, float]], tied: list[tuple[int, Array, Array]]) -> None:
        kinds = frame.kinds
        self.width, self.apart = len(frame.units), len(frame.difference_units)
        rows = [(x.mean_row[None, :] if isinstance(x, Shared) else x.mean_rows) / usual for x, usual in still]
        rows += [row[None, :] for _, row, _ in tied if len(row)]
        self.mean = _null(rows, np.array(frame.units))
        self.differences = []
        for c in range(len(kinds)):
            mine = [x.difference[c][None, :] / usual for x, usual in still if isinstance(x, Agents)]
            mine += [row[None, :] for k, _, row in tied if k == c and len(row)]
            self.differences.append(_null(mine, np.array(frame.difference_units)))
        widest = max(d.shape[1] for d in self.differences)
        self.frame = Frame(kinds, [1.0] * self.mean.shape[1], [1.0] * widest)

    def __call__(self, x: Agents) -> Agents:
        """The same vector over the columns that are left."""
        means = padded(x.mean_rows, self.width) @ self.mean
        old, widest = padded(x.difference, self.apart), len(self.frame.difference_units)
        rows = np.stack([padded(old[c] @ basis, widest) for c, basis in enumerate(self.differences)])
        return Agents(means, rows, self.frame)


def _null(rows: list[Array], units: Array) -> Array:
    """Columns that span the vectors on which all rows vanish, in the columns' units."""
    if not len(units):
        return np.zeros((0, 0))
    matrix = np.vstack([padded(row, len(units)) for row in rows]) * units if rows else np.zeros((1, len(units)))
    return np.asarray(units[:, None] * scipy.linalg.null_space(matrix, rcond=1e-11))
