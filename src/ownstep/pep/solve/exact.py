r"""A lower end whose error is known: a candidate's numbers, taken at their word.

The start x^0, each part's slopes v at the points visited, its tilt s and its minimiser z are *data*: any numbers will
do, and these are. Where the method then goes follows from its coefficients, and is computed in integers, as multiples
of 2^-bits, with a bound on what was rounded off. By the interpolation theorem (Taylor, Hendrickx and Glineur, 2017) the
class holds a function with exactly these points and slopes if there are values phi with phi = 0 at x* and

    phi_p - phi_q >= <v_q, x_p - x_q> + ||v_p - v_q||^2 / (2 M)        for every pair p, q.

That is a system of differences: the largest such phi are shortest distances from x*, and there are none exactly when
some cycle is shorter than zero. Right sides are rounded up, distances are exact, and so is the comparison. So what
comes out is an error that the method reaches on some function of the class, whatever floating point did before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.pep.solve.candidate import Candidate, Part
from ownstep.pep.trace.units import Setting

Array = NDArray[np.float64]
Integers = NDArray[Any]
"""Python's integers of any length, in a NumPy array."""

BITS, BITS_PER_ROUND = 256, 6
"""Digits behind the point; errors may grow by a factor of 2^6 in a round before they show in the first 256 bits."""

MOST = 900
"""Doubles up to 2^100 can be multiplied by 2^900 without an overflow."""

PASSES = 10
"""Times all conditions are gone through, forwards and back; values that do not settle do not exist, as a rule."""


@dataclass(frozen=True, eq=False)
class Known:
    """A vector of integers (multiples of 2^-bits), and by how much each entry may be off."""

    at: Integers
    off: int

    def __add__(self, other: Known) -> Known:
        return Known(self.at + other.at, self.off + other.off)

    @property
    def largest(self) -> int:
        """The largest entry."""
        return max(map(abs, self.at), default=0)


def reached(asked: Setting, found: Candidate) -> float:
    """An error that the method reaches on some functions of the class, rounded down; 0 where the data prove nothing."""
    try:
        exact = _Replay(asked, found).error()
    except _Impossible:
        return 0.0
    near = float(exact)
    return max(near if Fraction(near) <= exact else math.nextafter(near, 0.0), 0.0)


class _Impossible(Exception):
    """No function of the class has these data."""


class _Replay:
    """The method on the candidate's data, in integers."""

    def __init__(self, asked: Setting, found: Candidate) -> None:
        self.asked, self.found, self.d = asked, found, asked.devices
        self.bits = BITS + BITS_PER_ROUND * asked.path.rounds
        self.one = 1 << self.bits
        self._weighed: dict[tuple[bytes, int], tuple[Fraction, Fraction]] = {}
        self.x0 = Known(self.integers(found.x0), 0)
        self.tilts = self._tilts()
        self.slopes = [[Known(self.integers(row), 0) for row in rows] for rows in found.slopes]

    def integers(self, row: Array) -> Integers:
        """Doubles as multiples of 2^-bits; what is finer is cut off."""
        first = min(self.bits, MOST)
        out = np.empty(len(row), dtype=object)
        out[:] = [int(a) << (self.bits - first) for a in np.ldexp(row, first).tolist()]
        return out

    def exactly(self, row: Array) -> Integers:
        """The same for what is not ours to choose: nothing may be cut off."""
        if not all(a.is_integer() for a in np.ldexp(row, min(self.bits, MOST)).tolist()):
            raise _Impossible
        return self.integers(row)

    def times(self, factor: int, vector: Known) -> Known:
        """Factor (within one unit) times vector."""
        off = ((abs(factor) * vector.off + vector.largest + vector.off) >> self.bits) + 2
        return Known((factor * vector.at) >> self.bits, off)

    def combined(self, row: Array, vectors: list[Known]) -> Known:
        """Sum of row[j] times vectors[j]."""
        used = [j for j in np.flatnonzero(row) if j < len(vectors)]
        factors = self.exactly(row[used])
        total = np.zeros(len(self.x0.at), dtype=object)
        off = 0
        for factor, j in zip(factors, used, strict=True):
            total = total + factor * vectors[j].at
            off += abs(factor) * vectors[j].off + vectors[j].largest + vectors[j].off
        return Known(total >> self.bits, (off >> self.bits) + 2)

    def weighed(self, mix: Array, c: int) -> tuple[Fraction, Fraction]:
        """What the devices of part c add to a sum: factors of x, and of v and s. Devices that are alike count once."""
        key = (mix.tobytes(), c)
        if key not in self._weighed:
            part, d = self.found.parts[c], self.d
            members = list(part.members)
            rows = np.column_stack([mix[members], d.mu[members], d.L[members]])
            rows, counts = np.unique(rows, axis=0, return_counts=True)
            factor, mu, L = (self.exactly(column) for column in rows.T)
            factor, unit = factor * counts.astype(object), self.one**2
            share = Fraction(int(factor.sum()), self.one)
            if part.curvature:
                share = Fraction(int((factor * (L - mu)).sum()), unit) / Fraction(part.curvature)
            self._weighed[key] = Fraction(int((factor * mu).sum()), unit), share
        return self._weighed[key]

    def _tilts(self) -> list[Known]:
        """Tilts that cancel: the heaviest part's follows from the others."""
        parts = self.found.parts
        tilts = [Known(self.integers(part.tilt), 0) for part in parts]
        if not any(np.any(tilt.at) for tilt in tilts):
            return tilts
        shares = [self.weighed(self.d.weights, c)[1] for c in range(len(parts))]
        common = math.lcm(*(share.denominator for share in shares))
        weights = [int(share * common) for share in shares]
        heavy = max(range(len(weights)), key=weights.__getitem__)
        others = np.zeros(len(self.x0.at), dtype=object)
        for c, tilt in enumerate(tilts):
            others = others + (weights[c] * tilt.at if c != heavy else 0)
        tilts[heavy] = Known(-others // weights[heavy], 1)
        return tilts

    def run(self) -> tuple[list[list[Known]], list[Known]]:
        """Where each part's gradients are taken, round by round; and x^K, one entry or one per device."""
        path, atoms = self.asked.path, [self.x0]
        seen: list[list[Known]] = [[] for _ in self.found.parts]
        for k, (ask, mix) in enumerate(zip(path.asks, path.mixes, strict=True)):
            x = [self.combined(row, atoms) for row in ask]
            fresh: list[Known | None] = [None] * (1 if mix is not None else len(self.d))
            for c, part in enumerate(self.found.parts):
                at = x[part.members[0] if len(x) > 1 else 0]
                seen[c].append(at)
                if mix is not None:
                    told = self.told(mix, c, at, k)
                    fresh[0] = told if fresh[0] is None else fresh[0] + told
                    continue
                for i in part.members:
                    fresh[i] = self.told(np.eye(len(self.d))[i], c, at, k)
            atoms += [atom for atom in fresh if atom is not None]
        return seen, [self.combined(row, atoms) for row in path.points[-1]]

    def told(self, mix: Array, c: int, at: Known, k: int) -> Known:
        """What a part adds to the k-th sum: its gradients at ``at``, mixed."""
        a, b = (math.floor(factor * self.one) for factor in self.weighed(mix, c))
        return self.times(a, at) + self.times(b, self.slopes[c][k] + self.tilts[c])

    def error(self) -> Fraction:
        """The metric that is reached, or less."""
        if not self._within(self.x0, Fraction(self.asked.r0)):
            raise _Impossible
        seen, final = self.run()
        at = [final[part.members[0] if len(final) > 1 else 0] for part in self.found.parts]
        if self.asked.metric != "distance":
            for points, last in zip(seen, at, strict=True):
                points.append(last)
        values = [self.potential(c, points) for c, points in enumerate(seen)]
        unit = Fraction(self.one) ** 2
        if self.asked.metric == "distance" and len(final) == 1:
            return self._square(final[0]) / unit
        if self.asked.metric == "distance":
            pairs = zip(self.exactly(self.d.weights), final, strict=True)
            return sum((Fraction(int(w), self.one) * self._square(x) for w, x in pairs), Fraction()) / unit
        if self.asked.metric == "gradient":
            total = Known(np.zeros(len(self.x0.at), dtype=object), 0)
            for c in range(len(self.found.parts)):
                total = total + self.told(self.d.weights, c, at[c], -1)
            return self._square(total) / unit
        return sum((self._value(c, x, values[c], len(final) > 1) for c, x in enumerate(at)), Fraction()) / unit

    def _value(self, c: int, x: Known, phi: int, apart: bool) -> Fraction:
        """What a part adds to f(x^K); tilts cancel where all devices share the point."""
        bend, share = self.weighed(self.d.weights, c)
        total = bend / 2 * self._square(x) + share * phi
        if not apart:
            return total
        tilt = self.tilts[c]
        lean = int(tilt.at @ x.at) - len(x.at) * (tilt.largest * x.off + x.largest * tilt.off + tilt.off * x.off)
        return total + share * lean

    def potential(self, c: int, points: list[Known]) -> int:
        """Values phi for a part's triples, all conditions checked; that of the last point, times 4^bits."""
        part = self.found.parts[c]
        zero = Known(np.zeros(len(self.x0.at), dtype=object), 0)
        xs, vs = [zero, *points], [zero, *self.slopes[c]]
        if part.own is not None:
            own, slope = self._own(part, self.tilts[c])
            xs, vs = [*xs, own], [*vs, slope]
        if not part.curvature:
            return 0
        count, size = len(xs), len(zero.at)
        X, V = np.stack([x.at for x in xs]), np.stack([v.at for v in vs])
        e_x, e_v = max(x.off for x in xs), max(v.off for v in vs)
        x_max, v_max = max(x.largest for x in xs), max(v.largest for v in vs)
        down, square = X @ V.T, V @ V.T  # down[p, q] = <x_p, v_q>
        lengths = square.diagonal()
        apart = lengths[:, None] + lengths - 2 * square
        twice = 2 * Fraction(part.curvature)
        off = 2 * size * (v_max * e_x + x_max * e_v + e_x * e_v)
        turn_off = size * (8 * v_max * e_v + 4 * e_v**2)
        right = down - down.diagonal() + (apart + turn_off) * twice.denominator // twice.numerator + (off + 1)
        np.fill_diagonal(right, 0)
        phi = -right[0]
        for _ in range(PASSES):
            before = phi
            for p in [*range(count), *range(count - 2, -1, -1)]:
                phi = np.minimum(phi, phi[p] - right[p])
            if phi[0] < 0:
                break
            if (phi == before).all():
                return int(phi[count - 1 - int(part.own is not None)])
        raise _Impossible

    def _own(self, part: Part, tilt: Known) -> tuple[Known, Known]:
        """The first member's own minimiser, and the slope v that makes it one: mu z + (L - mu)/M (v + s) = 0.

        The others' are no further away, where mu_i / (L_i - mu_i) is no smaller.
        """
        i, radius = part.members[0], Fraction(self.asked.rstar)
        members = list(part.members)
        first = Fraction(float(self.d.mu[i])), Fraction(float(self.d.L[i]))
        for mu, L in {*zip(self.d.mu[members].tolist(), self.d.L[members].tolist(), strict=True)}:
            if Fraction(mu) * first[1] < first[0] * Fraction(L):  # mu_i / L_i decides, as mu_i / (L_i - mu_i) does
                raise _Impossible
        if not part.curvature:
            bend = Fraction(float(self.d.mu[i]))
            if not self._within(tilt, radius * bend):
                raise _Impossible
            return tilt, tilt
        z = Known(self.integers(np.asarray(part.own)), 0)
        if not self._within(z, radius):
            raise _Impossible
        share = (Fraction(float(self.d.L[i])) - Fraction(float(self.d.mu[i]))) / Fraction(part.curvature)
        pull = self.times(int(self.exactly(self.d.mu[[i]])[0]), z)
        slope = -pull.at * share.denominator // share.numerator - tilt.at
        return z, Known(slope, pull.off * share.denominator // share.numerator + tilt.off + 2)

    def _within(self, vector: Known, radius: Fraction) -> bool:
        most = int(sum((abs(a) + vector.off) ** 2 for a in vector.at))
        return most <= radius**2 * self.one**2

    def _square(self, vector: Known) -> Fraction:
        """At most its squared length."""
        return Fraction(int(sum(max(abs(a) - vector.off, 0) ** 2 for a in vector.at)))
