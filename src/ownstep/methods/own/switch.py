"""When to leave the local phase for the common one.

Every switch is a frozen rule; what it remembers between rounds is a :class:`Watch`, kept in the method's
state, so that a run can be stopped and resumed at any round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from ownstep.methods.base import Vector, norm
from ownstep.plan import Devices
from ownstep.support.checks import whole_number
from ownstep.support.errors import InvalidInput


@dataclass(frozen=True)
class Watch:
    """What a switch has seen so far, and when and why it fired.

    Parameters
    ----------
    fired : the number of rounds before the common phase; None during the local one.
    why : what made it fire.
    probing : the coming round is a common one, tried within the local phase.
    memory : whatever numbers the rule needs to remember.
    """

    fired: int | None = None
    why: str = ""
    probing: bool = False
    memory: tuple[float, ...] = ()


@runtime_checkable
class Switch(Protocol):
    """A rule that ends the local phase."""

    def begin(self) -> Watch:
        """The memory before the first round."""
        ...

    def observe(self, watch: Watch, k: int, move: Vector, value: float, devices: Devices) -> Watch:
        """The memory after local round k = 1, 2, ..., which moved by -``move`` from a point of loss ``value``."""
        ...


@dataclass(frozen=True)
class Never:
    """Stay in the local phase: the paper's "DGD" curve, which keeps a bias."""

    def begin(self) -> Watch:
        return Watch()

    def observe(self, watch: Watch, k: int, move: Vector, value: float, devices: Devices) -> Watch:
        return watch


@dataclass(frozen=True)
class At:
    """Exactly the first ``rounds`` rounds are local; needs no norm, so it can be analysed by PEP."""

    rounds: int

    def __post_init__(self) -> None:
        whole_number("At(rounds)", self.rounds, 0)

    def begin(self) -> Watch:
        return Watch(0, "no local rounds were asked for") if self.rounds == 0 else Watch()

    def observe(self, watch: Watch, k: int, move: Vector, value: float, devices: Devices) -> Watch:
        return replace(watch, fired=k, why=f"{k} local rounds done") if k >= self.rounds else watch


@dataclass(frozen=True)
class NormBelow:
    """The paper's test: switch once ||sum_i w_i g_i / L_i|| <= eps.

    The sum is the one the server receives anyway. Algorithm 1 prints it without the factor 1/N: for uniform
    weights its epsilon is N times this one.
    """

    eps: float

    def __post_init__(self) -> None:
        if not self.eps > 0:
            raise InvalidInput(f"NormBelow(eps) takes a positive threshold, got {self.eps!r}")

    def begin(self) -> Watch:
        return Watch()

    def observe(self, watch: Watch, k: int, move: Vector, value: float, devices: Devices) -> Watch:
        size = norm(move)
        return replace(watch, fired=k, why=f"step {size:.3g} <= {self.eps:g}") if size <= self.eps else watch


@dataclass(frozen=True)
class Shrunk:
    """Switch once the sum of own steps has fallen to a share of its first size.

    This is :class:`NormBelow` without a scale to choose.

    Parameters
    ----------
    share : between 0 and 1.
    """

    share: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise InvalidInput(f"Shrunk(share) takes a share between 0 and 1, got {self.share!r}")

    def begin(self) -> Watch:
        return Watch()

    def observe(self, watch: Watch, k: int, move: Vector, value: float, devices: Devices) -> Watch:
        size = norm(move)
        at_first = watch.memory[0] if watch.memory else size
        if k > 1 and size <= self.share * at_first:
            return replace(watch, fired=k, why=f"step {size:.3g}, {self.share:g} of the first")
        return replace(watch, memory=(at_first,))
