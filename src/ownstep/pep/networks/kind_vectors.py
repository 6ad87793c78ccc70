r"""Symbolic vectors of devices that come in kinds: what it takes does not depend on how many devices there are.

All devices of a kind are treated alike by the method and by every condition, so a worst case may be averaged over
their permutations (Colla and Hendrickx, 2024). Write a device's vector as its kind's mean plus a difference,
u_i = u_c + d_i. What is left is the Gram matrix of the means of all kinds and, for each kind with two members or more,
the matrix D_c = mean_i d_i d_i'. Any pair of positive semidefinite matrices occurs, whatever the number of members.

So a stack of one vector per device is stored as one row per kind over the *mean columns* and one row per kind over the
*difference columns*; a vector all devices share is one row over the mean columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ownstep.methods.gossip.mixing import Mixing
from ownstep.pep.networks.spectral import Spectral
from ownstep.pep.trace.symbolic import NotLinear, OnlyLinear
from ownstep.plan import Devices

Array = NDArray[np.float64]


STIFF = 0.02
"""Losses are nearly quadratics where 1 - mu / L is less."""


def _refuse(operation: str) -> NoReturn:
    raise NotLinear(f"{operation} is not linear")


@dataclass(frozen=True, eq=False)
class Kinds:
    """Devices by kind.

    Parameters
    ----------
    index : the kind of each device.
    counts : members of each kind.
    weight, mu, L : of a single member.
    twins : whether members may differ from their kind's mean.
    unit : what one unit of curvature stands for where the method counts, see :mod:`ownstep.pep.trace.units`. Gradients
        are told to the method so many times as large as they are here.
    smooth : False for losses that are only convex: L then says no more than how large things are.
    """

    index: NDArray[np.int64]
    counts: NDArray[np.int64]
    weight: Array
    mu: Array
    L: Array
    twins: NDArray[np.bool_]
    unit: float = 1.0
    smooth: bool = True

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def bend(self) -> Array:
        """How far from quadratics the losses are, 1 - mu / L: as large a part of a gradient is not known from mu."""
        return np.asarray(1 - self.mu / self.L)

    @property
    def stiff(self) -> NDArray[np.bool_]:
        """Kinds whose losses are nearly quadratics."""
        return np.asarray(self.bend < STIFF)

    @property
    def shares(self) -> Array:
        """Members of each kind over all devices."""
        return np.asarray(self.counts / self.counts.sum())

    @property
    def weights(self) -> Array:
        """Total weight of each kind."""
        return np.asarray(self.counts * self.weight)

    @classmethod
    def of(
        cls, devices: Devices, marks: NDArray[Any] | None = None, *, any_number: bool = False, unit: float = 1.0
    ) -> Kinds:
        """Devices with the same weight, mu, L (and mark) are of one kind; kinds in order of their first member."""
        rows = np.column_stack([devices.weights, devices.mu, devices.L])
        if marks is not None:
            rows = np.column_stack([rows, marks])
        found: dict[bytes, int] = {}
        index = np.array([found.setdefault(row.tobytes(), len(found)) for row in np.ascontiguousarray(rows + 0.0)])
        first = [int(np.flatnonzero(index == c)[0]) for c in range(len(found))]
        counts = np.bincount(index)
        twins = (counts > 1) | any_number
        return cls(index, counts, devices.weights[first], devices.mu[first], devices.L[first], twins, unit)

    def carried(self) -> Kinds:
        """The same kinds in the method's own units."""
        return replace(self, mu=self.unit * self.mu, L=self.unit * self.L, unit=1.0)

    def alone(self, device: int) -> Kinds:
        """The same kinds with one device as the last kind, where it has companions."""
        c = int(self.index[device])
        if self.counts[c] == 1:
            return self
        index, counts = self.index.copy(), np.append(self.counts, 1)
        index[device] = len(self)
        counts[c] -= 1
        more: Any = {name: np.append(getattr(self, name), getattr(self, name)[c]) for name in ("weight", "mu", "L")}
        return replace(self, index=index, counts=counts, twins=counts > 1, **more)

    def by_kind(self, numbers: Array) -> Array:
        """One number per device, as one per kind."""
        first = np.array([numbers[np.argmax(self.index == c)] for c in range(len(self))])
        if np.abs(numbers - first[self.index]).max(initial=0) > 1e-12 * np.abs(numbers).max(initial=0):
            raise NotLinear("treating devices of one kind differently is not followed here")
        return first


@dataclass(eq=False)
class Frame:
    """The columns in use so far, and the unit each is measured in before anything is known."""

    kinds: Kinds
    units: list[float] = field(default_factory=list)
    difference_units: list[float] = field(default_factory=list)
    raw: bool = False

    def shared(self, unit: float) -> Shared:
        """A new vector that all devices share."""
        self.units.append(unit)
        return Shared(np.eye(len(self.units))[-1], self)

    def stack(self, unit: float | Array, free: NDArray[np.bool_] | None = None) -> Agents:
        """One new vector per device, its unit per kind or one for all; kinds with ``free`` False have none."""
        count = len(self.kinds)
        free = np.ones(count, bool) if free is None else free
        mean = np.zeros((count, len(self.units) + count))
        for c in range(count):
            mean[c, len(self.units) + c] = float(free[c])
        each = np.where(free, unit, 1.0)
        self.units += each.tolist()
        apart = each[free & self.kinds.twins]
        return Agents(mean, self._difference(float(apart.max(initial=0.0)) or 1.0, free), self)

    def balanced(self, unit: float, weights: Array, total: Array) -> Agents:
        """One new vector per device such that sum_c weights_c mean_c is the row ``total``."""
        if self.raw:
            return self.stack(unit)
        count, before = len(self.kinds), len(self.units)
        last = int(np.argmax(weights))
        mean = np.zeros((count, before + count - 1))
        others = [c for c in range(count) if c != last]
        for position, c in enumerate(others):
            mean[c, before + position] = 1.0
        mean[last, : len(total)] = total / weights[last]
        mean[last] -= weights[others] @ mean[others] / weights[last]
        self.units += [unit] * (count - 1)
        return Agents(mean, self._difference(unit, np.ones(count, bool)), self)

    def _difference(self, unit: float, free: NDArray[np.bool_]) -> Array:
        rows = np.zeros((len(self.kinds), len(self.difference_units) + 1))
        rows[:, -1] = free & self.kinds.twins
        self.difference_units.append(unit)
        return rows


class Shared(OnlyLinear):
    """A vector that all devices share."""

    def __init__(self, mean: Array, frame: Frame) -> None:
        self.mean_row, self.frame = mean, frame

    def __add__(self, other: object) -> Any:
        if isinstance(other, int) and other == 0:
            return self
        if isinstance(other, Shared):
            return Shared(_sum(self.mean_row, other.mean_row), self.frame)
        return other + self if isinstance(other, Agents) else NotImplemented

    __radd__ = __add__

    def __neg__(self) -> Shared:
        return Shared(-self.mean_row, self.frame)

    def __sub__(self, other: object) -> Any:
        return self + (-other) if isinstance(other, Shared | Agents) else NotImplemented

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, OnlyLinear):
            _refuse("the product of two vectors (*)")
        factor = np.asarray(other, dtype=float)
        if factor.ndim == 0:
            return Shared(float(factor) * self.mean_row, self.frame)
        return self.spread() * factor

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, OnlyLinear):
            _refuse("dividing by a vector (/)")
        return self * (1 / np.asarray(other, dtype=float))

    def __matmul__(self, _: object) -> NoReturn:
        _refuse("the inner product of vectors (@), and so their norm,")

    __rmatmul__ = __matmul__

    def spread(self) -> Agents:
        """The same vector on every device."""
        rows = np.tile(self.mean_row, (len(self.frame.kinds), 1))
        return Agents(rows, np.zeros((len(self.frame.kinds), 0)), self.frame)


class Agents(OnlyLinear):
    """One vector per device, stored by kind."""

    def __init__(self, mean: Array, difference: Array, frame: Frame) -> None:
        self.mean_rows, self.difference, self.frame = mean, difference, frame

    @property
    def shape(self) -> tuple[int, int]:
        """Devices, and columns seen so far."""
        return len(self), self.mean_rows.shape[1]

    def __len__(self) -> int:
        return len(self.frame.kinds.index)

    def __add__(self, other: object) -> Any:
        if isinstance(other, int) and other == 0:
            return self
        if isinstance(other, Shared):
            return Agents(_sum(self.mean_rows, other.mean_row[None, :]), self.difference, self.frame)
        if not isinstance(other, Agents):
            return NotImplemented
        difference = _sum(self.difference, other.difference)
        return Agents(_sum(self.mean_rows, other.mean_rows), difference, self.frame)

    __radd__ = __add__

    def __neg__(self) -> Agents:
        return Agents(-self.mean_rows, -self.difference, self.frame)

    def __sub__(self, other: object) -> Any:
        return self + (-other) if isinstance(other, Shared | Agents) else NotImplemented

    def __rsub__(self, other: object) -> Any:
        return (-self) + other

    def __mul__(self, other: Any) -> Agents:
        if isinstance(other, OnlyLinear):
            _refuse("the product of two vectors (*)")
        factor = np.asarray(other, dtype=float)
        if factor.ndim == 0:
            column = np.full((len(self.frame.kinds), 1), float(factor))
        elif factor.shape == (len(self), 1):
            column = self.frame.kinds.by_kind(factor[:, 0])[:, None]
        else:
            _refuse(f"a product of {len(self)} rows with numbers of shape {factor.shape}")
        return Agents(column * self.mean_rows, column * self.difference, self.frame)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Agents:
        if isinstance(other, OnlyLinear):
            _refuse("dividing by a vector (/)")
        return self * (1 / np.asarray(other, dtype=float))

    def __matmul__(self, _: object) -> NoReturn:
        _refuse("the inner product of vectors (@), and so their norm,")

    def __rmatmul__(self, numbers: ArrayLike) -> Any:
        """One number per device on the left: the weighted sum of the devices' vectors, shared by all.

        A matrix on the left mixes the devices' vectors; each device is then a kind of its own.
        """
        row = np.asarray(numbers, dtype=float)
        if row.shape == (len(self), len(self)) and len(self.frame.kinds) == len(self):
            none = np.zeros((len(self), 0))
            return Agents(row @ self.mean_rows, none, self.frame)
        if row.shape != (len(self),):
            raise NotLinear("a given mixing matrix is followed with every device kept apart; leave out the network")
        return self.combined(self.frame.kinds.by_kind(row) * self.frame.kinds.counts)

    def combined(self, weights: Array) -> Shared:
        """sum_c weights_c (mean of kind c)."""
        return Shared(weights @ self.mean_rows, self.frame)

    def mean(self, axis: int = 0) -> Shared:
        """The mean over the devices."""
        if axis != 0:
            _refuse(f"a mean over axis {axis}")
        return self.combined(self.frame.kinds.shares)

    def member(self, kind: int) -> Shared:
        """The vector of a kind that has one member."""
        return Shared(self.mean_rows[kind], self.frame)

    def agree(self) -> bool:
        """Do all devices hold the same vector, whatever the columns stand for? Each column counts in its own unit."""
        unit = np.array(self.frame.units[: self.mean_rows.shape[1]])
        own = np.array(self.frame.difference_units[: self.difference.shape[1]])
        largest = (np.abs(self.mean_rows) * unit).max(initial=0)
        apart = (np.abs(self.mean_rows - self.mean().mean_row) * unit).max(initial=0)
        return bool(max(apart, (np.abs(self.difference) * own).max(initial=0)) <= 1e-13 * largest)


@dataclass(eq=False)
class Averaging:
    """Stands for the matrix W: every product with it is a new stack, known only by the conditions of its class.

    Parameters
    ----------
    factor : None for a class of networks; a number lambda stands for W = lambda I + (1 - lambda) 11'/N.
    steps : the products so far: (round, X, Y).
    """

    frame: Frame
    factor: float | None = None
    each_round: bool = False
    round: int = 0
    steps: list[tuple[int, Agents, Agents]] = field(default_factory=list)

    def __matmul__(self, x: Any) -> Agents:
        if not isinstance(x, Agents):
            _refuse("a product of the mixing matrix with anything but one vector per device")
        if x.agree():
            return x
        mean = x.mean()
        if self.factor is not None:
            out: Agents = mean + self.factor * (x - mean)
            return out
        y = self.frame.balanced(size(x), self.frame.kinds.shares, mean.mean_row)
        self.steps.append((self.round if self.each_round else 0, x, y))
        return y


def size(x: Agents | Shared) -> float:
    """About how large a vector is, from the units of its columns."""
    frame = x.frame
    if isinstance(x, Shared):
        return float(np.abs(x.mean_row) @ np.array(frame.units[: len(x.mean_row)]))
    rows = np.abs(x.mean_rows) @ np.array(frame.units[: x.mean_rows.shape[1]])
    apart = np.abs(x.difference) @ np.array(frame.difference_units[: x.difference.shape[1]])
    return float((rows + apart).max())


class AnyMixing(Mixing):
    """What a method sees of a class of networks: its size, its spectrum, and a matrix, abstract or of the class."""

    def __init__(self, network: Spectral, matrix: Averaging | Array, devices: int) -> None:
        for name, value in {"network": network, "matrix": matrix, "devices": devices, "name": "spectral"}.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return int(self.devices)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return repr(self.network)  # type: ignore[attr-defined]

    @property
    def eigenvalues(self) -> Array:
        """The ends of the interval, and 1."""
        return np.array([self.network.lo, self.network.hi, 1.0])  # type: ignore[attr-defined]

    @property
    def links(self) -> NDArray[np.int64]:
        """Not known."""
        return np.zeros((1, 1), np.int64)


def _sum(a: Array, b: Array) -> Array:
    """A + b, the narrower one meaning zeros for the columns it has not seen."""
    width = max(a.shape[-1], b.shape[-1])
    return padded(a, width) + padded(b, width)


def padded(a: Array, width: int) -> Array:
    """The same rows over ``width`` columns."""
    if a.shape[-1] == width:
        return a
    out = np.zeros((*a.shape[:-1], width))
    out[..., : a.shape[-1]] = a
    return out
