"""Vectors without numbers: a method's own ``ask`` and ``tell`` run on them, and its coefficients are read off.

A :class:`Vector` is a row of coefficients over *atoms*: the start x^0 and everything the devices answered. Adding
and scaling act on the coefficients; anything else is refused with an error that names the operation, because a
worst case over all functions can only be written down exactly for a method that is linear in what it is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ownstep.methods.base import Answer, Method
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput, OwnstepError
from ownstep.support.memory import free_memory

Array = NDArray[np.float64]


class NotLinear(InvalidInput):
    """A method did something to a symbolic vector other than adding and scaling."""


def _refuse(operation: str) -> NoReturn:
    raise NotLinear(f"{operation} is not linear")


class OnlyLinear:
    """Refuses, by name, every operation that is not linear."""

    __array_ufunc__ = None  # so that NumPy numbers and matrices on the left defer to __rmul__ and __rmatmul__
    __hash__ = None  # type: ignore[assignment]

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        _refuse("turning a vector into an array of numbers")

    def __float__(self) -> NoReturn:
        _refuse("turning it into a number (float)")

    def __bool__(self) -> NoReturn:
        _refuse("testing whether it is true (bool)")

    def __abs__(self) -> NoReturn:
        _refuse("the absolute value (abs)")

    def __pow__(self, _: object) -> NoReturn:
        _refuse("a power (**)")

    def __eq__(self, _: object) -> NoReturn:
        _refuse("a comparison (==)")

    def __lt__(self, _: object) -> NoReturn:
        _refuse("a comparison (<)")

    __gt__ = __le__ = __ge__ = __lt__

    def __rtruediv__(self, _: object) -> NoReturn:
        _refuse("dividing by a vector (/)")


class LossValue(OnlyLinear):
    """Stands for the loss f(x) that an answer carries; nothing may be done with it."""

    def _refused(self, *_: object) -> NoReturn:
        _refuse("using the loss value of an answer")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __neg__ = _refused
    __eq__ = __lt__ = __gt__ = __le__ = __ge__ = __float__ = __bool__ = __abs__ = _refused


class Vector(OnlyLinear):
    """A linear combination of atoms."""

    def __init__(self, coefficients: ArrayLike) -> None:
        self.coefficients = np.asarray(coefficients, dtype=float)

    def __add__(self, other: object) -> Vector:
        if isinstance(other, int) and other == 0:
            return self  # so that sum(...) of vectors works
        if not isinstance(other, Vector):
            return NotImplemented
        return Vector(_sum(self.coefficients, other.coefficients))

    __radd__ = __add__

    def __neg__(self) -> Vector:
        return Vector(-self.coefficients)

    def __sub__(self, other: object) -> Vector:
        return self + (-other) if isinstance(other, Vector) else NotImplemented

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, OnlyLinear):
            _refuse("the product of two vectors (*)")
        factor = np.asarray(other, dtype=float)
        if factor.ndim == 0:
            return Vector(float(factor) * self.coefficients)
        if factor.ndim == 2 and factor.shape[1] == 1:  # a column of numbers makes one row of each
            return Stack(factor * self.coefficients)
        _refuse(f"a product with numbers of shape {factor.shape}")

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, OnlyLinear):
            _refuse("dividing by a vector (/)")
        return self * (1 / np.asarray(other, dtype=float))

    def __matmul__(self, _: object) -> NoReturn:
        _refuse("the inner product of vectors (@), and so their norm,")

    __rmatmul__ = __matmul__

    def __repr__(self) -> str:
        terms = [f"{a:+.4g} a{j}" for j, a in enumerate(self.coefficients) if a]
        return "Vector(" + (" ".join(terms) or "0") + ")"


class Stack(OnlyLinear):
    """One symbolic vector per device, as rows: what methods that keep a point per device work on."""

    def __init__(self, coefficients: Array) -> None:
        self.coefficients = coefficients

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and atoms seen so far."""
        rows, atoms = self.coefficients.shape
        return rows, atoms

    def __len__(self) -> int:
        return len(self.coefficients)

    def __getitem__(self, index: Any) -> Any:
        rows = self.coefficients[index]
        return Vector(rows) if rows.ndim == 1 else Stack(rows)

    def __add__(self, other: object) -> Stack:
        if not isinstance(other, Stack | Vector):
            return NotImplemented
        return Stack(_sum(self.coefficients, np.atleast_2d(other.coefficients)))

    __radd__ = __add__

    def __neg__(self) -> Stack:
        return Stack(-self.coefficients)

    def __sub__(self, other: object) -> Stack:
        return self + (-other) if isinstance(other, Stack | Vector) else NotImplemented

    def __rsub__(self, other: object) -> Stack:
        return (-self) + other

    def __mul__(self, other: Any) -> Stack:
        if isinstance(other, OnlyLinear):
            _refuse("the product of two vectors (*)")
        factor = np.asarray(other, dtype=float)
        if factor.ndim and factor.shape != (len(self), 1):
            _refuse(f"a product of {len(self)} rows with numbers of shape {factor.shape}")
        return Stack(factor * self.coefficients)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Stack:
        if isinstance(other, OnlyLinear):
            _refuse("dividing by a vector (/)")
        return self * (1 / np.asarray(other, dtype=float))

    def __matmul__(self, _: object) -> NoReturn:
        _refuse("the inner product of vectors (@), and so their norm,")

    def __rmatmul__(self, matrix: ArrayLike) -> Any:
        """W @ X: every row a combination of the rows; a row of numbers on the left gives one vector."""
        rows = np.asarray(matrix, dtype=float) @ self.coefficients
        return Vector(rows) if rows.ndim == 1 else Stack(rows)

    def mean(self, axis: int = 0) -> Vector:
        """The mean of the rows."""
        if axis != 0:
            _refuse(f"a mean over axis {axis}")
        return Vector(self.coefficients.mean(axis=0))

    def __repr__(self) -> str:
        return f"Stack({len(self)} rows over {self.coefficients.shape[1]} atoms)"


def _sum(a: Array, b: Array) -> Array:
    """A + b, the shorter one meaning zeros for the atoms it has not seen."""
    width = max(a.shape[-1], b.shape[-1])
    return _padded(a, width) + _padded(b, width)


def _padded(a: Array, width: int) -> Array:
    if a.shape[-1] == width:
        return a
    out = np.zeros((*a.shape[:-1], width))
    out[..., : a.shape[-1]] = a
    return out


@dataclass(frozen=True, eq=False)
class Trace:
    """What a method does in its first ``rounds`` rounds, whatever the functions are.

    Atom 0 is x^0. A round that asks for one sum adds one atom, the sum; a round that asks for every gradient adds
    one per device.

    Parameters
    ----------
    asks : a round's points, one row over the atoms, or one row per device.
    mixes : a round's coefficients c_i, or None when it asked for every gradient.
    points : ``point(state)`` after 0, 1, ..., ``rounds`` rounds.
    """

    asks: tuple[Array, ...]
    mixes: tuple[Array | None, ...]
    points: tuple[Array, ...]

    @property
    def rounds(self) -> int:
        """Rounds traced."""
        return len(self.asks)

    @property
    def shared(self) -> bool:
        """Is there one point for all devices in every round?"""
        return all(mix is not None for mix in self.mixes) and all(len(point) == 1 for point in self.points)

    def until(self, rounds: int) -> Trace:
        """The first ``rounds`` rounds: what the method does later cannot matter to them."""
        atoms = 1 + sum(len(self.asks[k]) if self.mixes[k] is None else 1 for k in range(rounds))
        return Trace(
            tuple(a[:, :atoms] for a in self.asks[:rounds]),
            self.mixes[:rounds],
            tuple(p[:, :atoms] for p in self.points[: rounds + 1]),
        )


LOOK_AHEAD = 8
"""Rounds traced at least: a rule that is not linear is refused even if it would not act in the rounds asked about."""

UNIT = 1e-9
"""So far a sum of coefficients that make 1 may have been rounded away from it."""


def trace(method: Method, devices: Devices, rounds: int) -> Trace:
    """Run the method's own ``ask`` and ``tell`` on symbolic vectors.

    Raises
    ------
    NotLinear
        Naming the operation, and the method or switch that used it.
    InvalidInput
        For steps that are not finite, for a method that fails within ``rounds`` rounds, and for one whose
        points depend on where the origin is.
    """
    needed = 8.0 * rounds**2  # a point per round, and all that was told before it
    if needed > free_memory():
        raise OwnstepError(
            f"{rounds:,} rounds would need more than {needed / 1e9:,.0f} GB of memory, {free_memory() / 1e9:.0f} GB "
            "are free. Ask about fewer rounds, or for a rate, which holds for every number of them"
        )
    try:
        path = _trace(method, devices, rounds)
    except NotLinear as error:
        raise NotLinear(explain(method, str(error))) from None
    except TypeError as error:  # a NumPy function that the symbolic vectors do not take
        raise NotLinear(explain(method, f"what it does to vectors ({error}) is not linear")) from error
    return _anchored(path, method)


def _trace(method: Method, devices: Devices, rounds: int) -> Trace:
    n, atoms = len(devices), 1
    asks: list[Array] = []
    mixes: list[Array | None] = []
    state = method.start(Vector([1.0]), devices)
    points = [_rows(method.point(state))]
    for k in range(max(rounds, LOOK_AHEAD)):
        try:
            ask = method.ask(state)
            answer, mix, fresh = _answer(ask, n, atoms)
            state = method.tell(state, answer)
            point = _rows(method.point(state))
        except (NotLinear, TypeError):
            raise
        except Exception as error:
            if k >= rounds:
                break  # a method may end where its rounds do
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(f"{method!r} fails in round {k + 1}: {type(error).__name__}: {error}") from error
        if k < rounds:
            asks.append(_rows(ask.x))
            mixes.append(mix)
            points.append(point)
        atoms += fresh
    width = 1 + sum(n if mix is None else 1 for mix in mixes)
    return Trace(tuple(_padded(a, width) for a in asks), tuple(mixes), tuple(_padded(p, width) for p in points))


def _answer(ask: Any, n: int, atoms: int) -> tuple[Answer, Array | None, int]:
    """What the devices would say, over fresh atoms; the mix, None where every gradient is an atom; and how many."""
    if ask.local is not None:
        raise NotLinear(f"its {ask.local.longest} local steps between two rounds are not followed here")
    value: Any = LossValue()
    if ask.mix is not None and ask.also is None:
        return Answer(sum=Vector(np.eye(atoms + 1)[atoms]), value=value), _checked_mix(ask.mix, n), 1
    fresh = np.zeros((n, atoms + n))
    fresh[:, atoms:] = np.eye(n)
    gradients = Stack(fresh)
    if ask.mix is None:
        return Answer(value=value, gradients=gradients), None, n
    total, also = _checked_mix(ask.mix, n) @ gradients, _checked_mix(ask.also, n) @ gradients
    return Answer(sum=total, also=also, value=value), None, n


def _anchored(path: Trace, method: Method) -> Trace:
    """The trace with x^0 exactly once in every point, as a method that does not know the origin has it."""
    for name, rows in (("asks", path.asks), ("hands back", path.points)):
        for k, row in enumerate(rows):
            if not np.isfinite(row).all():
                raise InvalidInput(f"{method!r} has steps that are not finite: round {k} {name} {row!r}")
            if np.abs(row[:, 0] - 1).max() > UNIT:
                raise InvalidInput(
                    f"{method!r} has no worst case over all functions: what it {name} in round {k} holds x^0 "
                    f"{row[int(np.abs(row[:, 0] - 1).argmax()), 0]:g} times, so it depends on where the origin is. The "
                    "coefficients of x^0 must be 1: points are x^0 plus gradients"
                )
            row[:, 0] = 1.0
    return path


def works_locally(method: Method, devices: Devices) -> bool:
    """Does the method ask its devices for local steps? They keep vectors of their own then: see ``pep/networks``."""
    try:
        return method.ask(method.start(Vector([1.0]), devices)).local is not None
    except Exception:  # what is wrong with it is said by the trace
        return False


def _rows(x: Any) -> Array:
    if isinstance(x, Vector | Stack):
        return np.atleast_2d(x.coefficients)
    if isinstance(x, Sequence) and x and all(isinstance(row, Vector) for row in x):
        width = max(len(row.coefficients) for row in x)
        return np.stack([_padded(row.coefficients, width) for row in x])
    raise NotLinear(f"handing back {type(x).__name__} where a vector is expected is not linear")


def _checked_mix(mix: ArrayLike, devices: int) -> Array:
    row = np.asarray(mix, dtype=float)
    if row.shape != (devices,) or not np.isfinite(row).all():
        raise InvalidInput(f"an ask's mix must be {devices} finite numbers, got {row!r}")
    return row


def explain(method: Method, what: str) -> str:
    switch = getattr(method, "switch", None)
    who = f"{method!r}" if switch is None else f"{type(method).__name__} with the switch {switch!r}"
    cure = "" if switch is None else " Use At(k) or Never() as the switch."
    return (
        f"{who} has no exact worst case: {what}. A method can be analysed when it only adds and scales vectors.{cure}"
    )
