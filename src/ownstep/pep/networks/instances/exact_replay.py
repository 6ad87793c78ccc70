r"""A lower end over networks whose error is known: the method's own run, in exact numbers, on data taken at its word.

The start, every device's gradients in the order in which they are asked for, its gradient at x* and its minimiser are
*data*: any numbers will do, and the solver's are taken. The method's ``ask`` and ``tell`` then run on numbers of the
form n 2^-k, of any length, so that nothing is rounded. By the interpolation theorem (Taylor, Hendrickx and Glineur
2017) the classes hold functions with exactly these points and gradients if there are values phi, phi = 0 at x*, with

    phi_p - phi_q >= <v_q, x_p - x_q> + ||v_p - v_q||^2 / (2 (L - mu)),      v = gradient - mu x - gradient at x*.

That is a system of differences, and its largest solution are shortest distances. So what comes out is an error that the
method reaches on some functions of the classes and some W of the class, whatever floating point did before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ownstep.pep.networks.kind_vectors import STIFF
from ownstep.pep.networks.network_trace import answer, held, in_network, on_any_network
from ownstep.pep.proof.check import positive
from ownstep.pep.trace.units import measured

if TYPE_CHECKING:
    from ownstep.pep.networks.instances.replay import NetworkInstance
    from ownstep.pep.networks.question import Question

Array = NDArray[np.float64]
Numbers = NDArray[Any]
"""An array of :class:`Dyadic`."""

MOST_WORK = 400_000
"""Products of numbers in one round beyond which the run stays in floating point."""

INWARD = 1 - 2.0**-40
"""Data are pulled in by this much, so that rounding them leaves no bound on the start broken."""


class Dyadic:
    """The number n 2^-k; what it is multiplied with may be a float, which is such a number too."""

    __slots__ = ("k", "n")

    def __init__(self, n: int, k: int = 0) -> None:
        self.n, self.k = n, k

    @classmethod
    def of(cls, number: Any) -> Dyadic:
        """A float, or an integer, as it is."""
        if isinstance(number, int):
            return cls(number)
        n, d = float(number).as_integer_ratio()
        return cls(n, d.bit_length() - 1)

    def __add__(self, other: Any) -> Any:
        if isinstance(other, np.ndarray):
            return NotImplemented  # numpy goes through its entries
        b = other if isinstance(other, Dyadic) else Dyadic.of(other)
        if self.k >= b.k:
            return Dyadic(self.n + (b.n << (self.k - b.k)), self.k)
        return Dyadic((self.n << (b.k - self.k)) + b.n, b.k)

    __radd__ = __add__

    def __neg__(self) -> Dyadic:
        return Dyadic(-self.n, self.k)

    def __sub__(self, other: Any) -> Any:
        return self + (-other)

    def __rsub__(self, other: Any) -> Any:
        return (-self) + other

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, np.ndarray):
            return NotImplemented
        b = other if isinstance(other, Dyadic) else Dyadic.of(other)
        return Dyadic(self.n * b.n, self.k + b.k) if self.n and b.n else Dyadic(0)

    __rmul__ = __mul__

    def __float__(self) -> float:
        return float(self.fraction)

    @property
    def fraction(self) -> Fraction:
        """The same as a fraction."""
        return Fraction(self.n, 1 << self.k)


@dataclass(frozen=True, eq=False)
class Data:
    """What the solver found, by distinct loss: gradients s at x*, v in the order asked for, minimisers, and v at these.

    A gradient is v + mu x + s at the point x where it is taken, whatever rounding did to the point before.
    """

    tilts: Array
    v: Array
    own: Array | None
    v_own: Array | None


def dyadic(numbers: Any) -> Numbers:
    """Floats as exact numbers."""
    given = np.asarray(numbers)
    out = np.empty(given.shape, dtype=object)
    out.reshape(-1)[:] = [Dyadic.of(x) for x in given.reshape(-1).tolist()]
    return out


class Impossible(Exception):
    """No functions of the classes have these data."""


def exact_error(asked: Question, instance: NetworkInstance, data: Data, marked: int | None) -> float | None:
    """An error that the method reaches, rounded down; 0 where the data prove nothing, None where there is too much."""
    n, dim = len(instance.of), instance.x0.shape[1]
    if n * n * dim > MOST_WORK or asked.chance is not None:
        return None
    try:
        found = _Run(asked, instance, data, marked).error()
    except Impossible:
        return 0.0
    near = float(found)
    return max(near if Fraction(near) <= found else math.nextafter(near, 0.0), 0.0)


class _Run:
    """The method on the instance's data."""

    def __init__(self, asked: Question, instance: NetworkInstance, data: Data, marked: int | None) -> None:
        self.asked, self.instance, self.data, self.marked = asked, instance, data, marked
        self.devices, self.of = instance.devices, instance.of
        first = [int(np.argmax(self.of == j)) for j in range(len(instance.losses))]
        self.first, self.scale = first, instance.scale * INWARD
        self.mu = [Fraction(float(self.devices.mu[i])) for i in first]
        self.L = [Fraction(float(self.devices.L[i])) for i in first]
        self.seen: list[Numbers] = []
        self.v: list[Numbers] = []
        self.known: list[dict[Any, Numbers]] = [{} for _ in first]
        self.tilts = self._tilts()

    def _tilts(self) -> Numbers:
        """Gradients at x* that add up to nothing: those of the heaviest loss follow from the others."""
        rows = self.scale * self.data.tilts
        if not np.any(rows):
            return dyadic(rows)
        weights = [[Fraction(float(w)) for w in self.devices.weights[self.of == j]] for j in range(len(rows))]
        share = [sum(mine, Fraction(0)) for mine in weights]
        heavy = max(range(len(share)), key=lambda j: share[j])
        top = share[heavy].numerator  # the others are multiples of it, so that dividing by the share stays exact
        out = np.array([[Dyadic.of(x / top) * top for x in row.tolist()] for row in rows], dtype=object)
        total = sum((_over(share[j]) * out[j] for j in range(len(rows)) if j != heavy), 0 * out[0])
        out[heavy] = [_over(-x.fraction / share[heavy]) for x in total]
        return out

    def _gradient(self, x: Numbers, _: str) -> Numbers:
        """The next gradients of all devices."""
        self._look(x)
        return np.asarray(
            (self.asked.units.curvature * self._slopes(-1))[self.of]
        )  # a power of two: nothing is rounded

    def _slopes(self, k: int) -> Numbers:
        """The gradients of all losses that were asked for in the k-th place."""
        mu = np.array([_over(mu) for mu in self.mu], dtype=object)
        return np.asarray(self.v[k] + self.tilts + mu[:, None] * self.seen[k])

    def _look(self, x: Numbers) -> None:
        """The next v of all losses are the solver's, whatever the point; both are kept."""
        k = len(self.seen)
        points = np.broadcast_to(x, (len(self.of), self.instance.x0.shape[1]))
        self.seen.append(points[self.first])
        if k >= len(self.data.v):
            raise Impossible
        rows = dyadic(self.scale * self.data.v[k])
        for j, at in enumerate(self.seen[-1]):  # who is asked twice at one point answers the same
            if self.asked.subgradients is None:
                rows[j] = self.known[j].setdefault(tuple(map(_fraction, at)), rows[j])
        self.v.append(rows)

    def error(self) -> Fraction:
        """The metric reached."""
        asked, instance = self.asked, self.instance
        method: Any = asked.method
        matrices: list[Numbers] = []
        if asked.network is not None:
            assert instance.W is not None
            matrices = self._matrices(instance.W)
            method = on_any_network(method, asked.network, matrices[0], len(self.of))
        x0 = dyadic(self.scale * instance.x0)
        same = asked.start.points == "same"
        state = method.start(x0[0] if same else x0, measured(self.devices, asked.units.curvature))
        points, stack = [method.point(state)], held(method, state)
        for k in range(asked.rounds):
            here = None if asked.schedule is None else asked.schedule[k]
            told = answer(method.ask(state), self._gradient, self.devices.weights, here, asked.missing)
            if len(matrices) > 1:
                state = in_network(state, matrices[k])
            state = method.tell(state, told)
            points.append(method.point(state))
            stack = held(method, state)
        self._bounds(x0)
        return self._metric(points, stack)

    def _matrices(self, W: Array) -> list[Numbers]:
        """The mixing matrix, or one per round, of the class exactly."""
        if W.ndim == 3:
            return [self._of_the_class(one) for one in W]
        off = W[~np.eye(len(W), dtype=bool)]
        return [self._of_the_class(W) if np.ptp(off) > 0 else self._matrix()]

    def _of_the_class(self, W: Array) -> Numbers:
        """Symmetric, with rows that sum to one exactly; its eigenvalues are seen to be in [lo, hi]."""
        n, network = len(W), self.asked.network
        assert network is not None
        rows = [[Fraction((W[i, j] + W[j, i]) / 2) for j in range(n)] for i in range(n)]
        for i, row in enumerate(rows):
            row[i] = 1 - (sum(row, Fraction(0)) - row[i])
        lo, hi = Fraction(network.lo), Fraction(network.hi)
        above = {(i, j): rows[i][j] - (lo if i == j else 0) for i in range(n) for j in range(n)}
        below = {(i, j): (hi if i == j else 0) - rows[i][j] + 2 for i in range(n) for j in range(n)}  # + 2 11'
        if not (positive(above) and positive(below)):
            raise Impossible
        out = np.empty((n, n), dtype=object)
        for i, row in enumerate(rows):
            out[i] = [_over(x) for x in row]
        return out

    def _matrix(self) -> Numbers:
        """W = a I + (1 - a) 11'/N with rows that sum to one exactly, a in [lo, hi]."""
        n, network = len(self.of), self.asked.network
        assert network is not None
        assert self.instance.W is not None
        off = float(self.instance.W[0, 1]) if n > 1 else 0.0
        lo, hi = Fraction(network.lo), Fraction(network.hi)
        for _ in range(4):
            a = 1 - n * Fraction(off)
            if lo <= a <= hi:
                break
            off = math.nextafter(off, math.inf if a > hi else -math.inf)
        else:
            raise Impossible
        W = np.empty((n, n), dtype=object)
        W[:] = Dyadic.of(off)
        for i in range(n):
            W[i, i] = _over(1 - (n - 1) * Fraction(off))
        return W

    def _steep(self) -> bool:
        """Is a subgradient longer than allowed?"""
        asked = self.asked
        if asked.subgradients is None:
            return False
        ratio = Fraction(float(asked.subgradients[0])) / Fraction(float(asked.devices.L[0]))
        return any(
            _square(row) > (ratio * self.L[j]) ** 2
            for rows in (self.tilts, *(v + self.tilts for v in self.v))
            for j, row in enumerate(rows)
        )

    def _bounds(self, x0: Numbers) -> None:
        """Is the start within its bounds?"""
        asked, squares = self.asked, [_square(row) for row in x0]
        start = sum(squares, Fraction(0)) / len(squares) if asked.start.points == "mean" else max(squares)
        fits = start <= Fraction(asked.r0) ** 2
        share = [len(self.of) * Fraction(float(w)) for w in self.devices.weights]
        if asked.start.gradients is not None:
            rows = [f**2 * _square(self.tilts[j]) for f, j in zip(share, self.of, strict=True)]
            fits = fits and sum(rows, Fraction(0)) / len(rows) <= Fraction(asked.start.gradients) ** 2
        if asked.start.trackers is not None:
            slopes = self._slopes(0)
            first = [[f * x.fraction for x in slopes[j]] for f, j in zip(share, self.of, strict=True)]
            middle = [sum(column, Fraction(0)) / len(first) for column in zip(*first, strict=True)]
            off = [sum(((x - m) ** 2 for x, m in zip(row, middle, strict=True)), Fraction(0)) for row in first]
            fits = fits and sum(off, Fraction(0)) / len(off) <= Fraction(asked.start.trackers) ** 2
        if not fits:
            raise Impossible

    def _metric(self, points: list[Any], stack: Any) -> Fraction:
        """The error at the end, and whether functions with these data exist."""
        kind, _, where = self.asked.metric.partition("_")
        point = points[-1]
        rows = stack if np.ndim(stack) == 2 else np.broadcast_to(point, self.instance.x0.shape)
        if where == "average":
            point = np.array([x.fraction / len(points) for x in sum(points[1:], points[0])], dtype=object)
        if where == "worst" and np.ndim(stack) == 2:
            assert self.marked is not None
            point = rows[self.marked]
        if kind in ("value", "gradient"):
            self._look(point)
        if self._steep():
            raise Impossible
        last = [self._potential(j) for j in range(len(self.first))]
        if self.asked.metric == "distance_devices":
            return sum((_square(row) for row in rows), Fraction(0)) / len(rows)
        if kind == "consensus":
            total = sum((_square(row) for row in rows), Fraction(0)) / len(rows)
            return total - _square(rows.sum(axis=0)) / len(rows) ** 2
        if kind == "distance":
            return _square(point)
        weights = [Fraction(float(w)) for w in self.devices.weights]
        if kind == "gradient":
            slopes = self._slopes(-1)
            columns = zip(*([x.fraction for x in slopes[j]] for j in self.of), strict=True)
            return sum((sum(w * x for w, x in zip(weights, c, strict=True)) ** 2 for c in columns), Fraction(0))
        square = _square(point)
        return sum(
            (w * (last[j] + self.mu[j] / 2 * square) for w, j in zip(weights, self.of, strict=True)), Fraction(0)
        )

    def _potential(self, j: int) -> Fraction:
        """The largest value phi of the last point of loss j; all conditions hold then."""
        zero = [Fraction(0)] * self.instance.x0.shape[1]
        s = [x.fraction for x in self.tilts[j]]
        X, V = [zero], [zero]
        for points, v in zip(self.seen, self.v, strict=True):
            X.append([_fraction(a) for a in points[j]])
            V.append([a.fraction for a in v[j]])
        last = len(X) - 1
        if self.mu[j] == self.L[j]:
            far = self.data.own is not None and sum(b * b for b in s) > (Fraction(self.asked.rstar) * self.mu[j]) ** 2
            if far or any(any(row) for row in V):
                raise Impossible
            return Fraction(0)
        if self.data.own is not None:
            z, v_own = self._minimiser(j)
            if sum((a * a for a in z), Fraction(0)) > Fraction(self.asked.rstar) ** 2:
                raise Impossible
            X.append(z)
            V.append(v_own)
        return _largest(X, V, None if self.asked.subgradients is not None else self.L[j] - self.mu[j])[last]

    def _minimiser(self, j: int) -> tuple[list[Fraction], list[Fraction]]:
        """A loss's own minimiser z, and v there: v + mu z + s = 0, and what is small is taken as it is."""
        assert self.data.own is not None
        assert self.data.v_own is not None
        mu, s = self.mu[j], [x.fraction for x in self.tilts[j]]
        if mu > (1 - Fraction(STIFF)) * self.L[j]:
            v = [Fraction(float(a)) for a in self.scale * self.data.v_own[j]]
            return [-(a + b) / mu for a, b in zip(v, s, strict=True)], v
        z = [Fraction(float(a)) for a in self.scale * self.data.own[j]]
        return z, [-mu * a - b for a, b in zip(z, s, strict=True)]


def _fraction(x: Dyadic | Fraction) -> Fraction:
    return x.fraction if isinstance(x, Dyadic) else x


def _over(number: Fraction) -> Dyadic:
    """A fraction whose denominator is a power of two."""
    return Dyadic(number.numerator, number.denominator.bit_length() - 1)


def _square(row: Any) -> Fraction:
    if isinstance(row[0], Fraction):
        return sum((x * x for x in row), Fraction(0))
    return sum((x * x for x in row), Dyadic(0)).fraction


def _largest(X: list[list[Fraction]], V: list[list[Fraction]], span: Fraction | None) -> list[Fraction]:
    """Values phi with phi_0 = 0, the largest that meet all conditions; shortest distances from triple 0.

    Without a ``span`` L - mu the functions are only convex.
    """
    common = math.lcm(*(x.denominator for row in (*X, *V) for x in row))
    A = np.array([[int(x * common) for x in row] for row in X], dtype=object)
    B = np.array([[int(x * common) for x in row] for row in V], dtype=object)
    down, square = A @ B.T, B @ B.T
    lengths = square.diagonal()
    turn = lengths[:, None] + lengths - 2 * square
    twice = Fraction(1) if span is None else 2 * span
    right = (down - down.diagonal()) * twice.numerator  # <v_q, x_p - x_q>, times common^2 and the numerator
    if span is not None:
        right = right + turn * twice.denominator  # ||v_p - v_q||^2 / (2 span)
    np.fill_diagonal(right, 0)
    phi = -right[0]  # phi_0 - phi_q >= right[0, q]
    for _ in range(len(X)):
        before = phi
        for p in range(len(X)):
            phi = np.minimum(phi, phi[p] - right[p])
        if phi[0] < 0:
            raise Impossible
        if (phi == before).all():
            unit = Fraction(1, common**2 * twice.numerator)
            return [x * unit for x in phi.tolist()]
    raise Impossible
