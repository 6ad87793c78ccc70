"""What devices do between two rounds: how many steps, how long, and by which rule.

The rules see one device at a time, though they are written for many rows at once: nothing of one device's loss enters
another's step. They take norms, so methods that use them have no exact worst case by PEP.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from ownstep.support.errors import InvalidInput, unknown_name
from ownstep.support.vectors import to_numpy

Array = NDArray[np.float64]
Choose = Callable[[Array, Any, Any], Array]
"""(f_i(y_i), y_i and grad f_i(y_i) as rows) -> the devices' steps from there."""


class LocalRule(Protocol):
    """How a device chooses each of its local steps."""

    name: ClassVar[str]

    def begin(self, step: Array) -> Choose:
        """What chooses the steps of one round, given every device's ``step``; it may remember."""
        ...

    def keep(self, devices: Sequence[int] | NDArray[np.intp]) -> LocalRule:
        """The rule of some devices alone."""
        ...


@dataclass(frozen=True)
class LocalSmoothness:
    """Steps from the smoothness a device meets on its way, as in Delta-SGD (Kim et al. 2024, Algorithm 1).

        eta_0 = step,   theta_0 = theta,   and for k = 1, 2, ...
        eta_k = min( gamma ||y_k - y_{k-1}|| / (2 ||grad f_i(y_k) - grad f_i(y_{k-1})||),
                     sqrt(1 + delta theta_{k-1}) eta_{k-1} ),        theta_k = eta_k / eta_{k-1}

    Where neither the point nor the gradient changed there is no first bound.
    """

    gamma: float = 2.0
    delta: float = 0.1
    theta: float = 1.0
    name: ClassVar[str] = "smoothness"

    def begin(self, step: Array) -> Choose:
        """Begin with the given step. Each later step uses the last point."""
        eta, theta = step, np.full(len(step), self.theta)
        before: tuple[Any, Any] | None = None

        def choose(losses: Array, y: Any, gradients: Any) -> Array:
            nonlocal eta, theta, before
            if before is not None:
                moved, change = lengths(y - before[0]), lengths(gradients - before[1])
                with np.errstate(divide="ignore", invalid="ignore"):
                    bound = self.gamma * moved / (2 * change)
                new = np.fmin(bound, np.sqrt(1 + self.delta * theta) * eta)
                eta, theta = new, new / eta
            before = y, gradients
            return eta

        return choose

    def keep(self, devices: Sequence[int] | NDArray[np.intp]) -> LocalSmoothness:
        """The same rule: it is equal on all devices."""
        return self


@dataclass(frozen=True)
class PolyakStep:
    """Polyak's step with a cap, as in FedSPS (Mukherjee, Loizou and Stich 2024).

        eta = min( (f_i(y) - l_i) / (c ||grad f_i(y)||^2),  step ),        l_i at most f_i everywhere

    At a stationary point it is the cap.
    """

    c: float = 0.5
    lower: float | tuple[float, ...] = 0.0
    name: ClassVar[str] = "polyak"

    def begin(self, step: Array) -> Choose:
        """Nothing is remembered."""

        def choose(losses: Array, y: Any, gradients: Any) -> Array:
            above = losses - np.asarray(self.lower)
            if (above < 0).any():
                i = int(above.argmin())
                raise InvalidInput(
                    f"a loss of {losses[i]:.6g} is below its lower bound {losses[i] - above[i]:.6g}: Polyak's step "
                    "needs a bound that holds everywhere"
                )
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.asarray(np.fmin(above / (self.c * lengths(gradients) ** 2), step))

        return choose

    def keep(self, devices: Sequence[int] | NDArray[np.intp]) -> PolyakStep:
        """With the lower bounds of some devices."""
        if not isinstance(self.lower, tuple):
            return self
        return replace(self, lower=tuple(self.lower[i] for i in devices))


RULES: dict[str, type[LocalSmoothness] | type[PolyakStep]] = {r.name: r for r in (LocalSmoothness, PolyakStep)}


def rule_to_text(rule: LocalRule | None) -> str:
    """A rule of one device as words for a message, every digit kept: ``polyak:0.5:0.0``."""
    if rule is None:
        return ""
    numbers = [n[0] if isinstance(n, tuple) else n for n in astuple(rule)]  # type: ignore[call-overload]
    return ":".join([rule.name, *(repr(float(n)) for n in numbers)])


def rule_from_text(text: str) -> LocalRule | None:
    """The inverse of :func:`rule_to_text`."""
    if not text:
        return None
    name, *numbers = text.split(":")
    if name not in RULES:
        raise unknown_name("rule for local steps", name, RULES)
    return RULES[name](*map(float, numbers))


@dataclass(frozen=True, eq=False)
class LocalWork:
    """Several steps on every device between two rounds.

        y_i = x,  then E_i times    y_i <- y_i - eta (grad f_i(y_i) + prox (y_i - x) + shift_i),
        answered with               d_i = (x - y_i) / eta_i       in place of grad f_i(x),

    where eta is eta_i, or what a rule makes of it from one local step to the next. With E = 1 and neither shift nor
    rule, d_i *is* grad f_i(x): a method asks for no local work then, and its round stays one pass over the data.

    Parameters
    ----------
    steps : E_i at least 1, one number for all or one per device.
    step : eta_i > 0, one number for all or one per device.
    prox : pull towards x, the mu of FedProx.
    shift : one row per device, added to its gradients (the control variates of SCAFFOLD), or None. With it the answer
        has every d_i as well as their sum, and two vectors travel down in place of one.
    rule : how a device changes its step. It uses f_i alone, so it works with neither prox nor shift.
    norms : answer with sum_i c_i ||d_i||^2 too, one number more.
    """

    steps: int | NDArray[np.int64]
    step: float | Array
    prox: float = 0.0
    shift: Any = None
    rule: LocalRule | None = None
    norms: bool = False

    def __post_init__(self) -> None:
        if self.rule is not None and (self.prox or self.shift is not None):
            raise InvalidInput(f"{self.rule!r} measures f_i itself: it goes with neither a pull nor a shift")

    @property
    def longest(self) -> int:
        """max_i E_i."""
        return int(np.max(self.steps))

    def keep(self, devices: Sequence[int] | NDArray[np.intp]) -> LocalWork:
        """The work of some devices alone, in their order."""
        chosen = np.asarray(devices, np.intp)

        def some(value: Any) -> Any:
            return value if value is None or np.ndim(value) == 0 else value[chosen]

        rule = None if self.rule is None else self.rule.keep(chosen)
        return replace(self, steps=some(self.steps), step=some(self.step), shift=some(self.shift), rule=rule)


def lengths(rows: Any) -> Array:
    """The norm of every row, in double precision."""
    squares = (rows * rows).sum(-1)
    return np.asarray(np.sqrt(np.atleast_1d(to_numpy(squares).astype(float))))
