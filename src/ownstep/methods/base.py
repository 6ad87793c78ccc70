"""The contract of every method: ask where to look, be told what was seen.

A method only ever adds and scales vectors. So the same object drives NumPy arrays, GPU tensors, machines of
a cluster, and the symbolic vectors of a performance-estimation problem. What a method must not do to stay
linear is anything else: norms, products, comparisons of vectors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ownstep.plan import Devices

Vector = Any
"""A NumPy array, a torch tensor or a symbolic vector: whatever can be added and scaled."""


@dataclass(frozen=True, eq=False)
class Ask:
    """What a method wants evaluated.

    Parameters
    ----------
    x : the point, or one row a device for methods that keep a point per device.
    mix : coefficients c_i of the one sum wanted, sum_i c_i grad f_i(x); None asks for every gradient.
    """

    x: Vector
    mix: NDArray[np.float64] | None


@dataclass(frozen=True, eq=False)
class Answer:
    """What came back.

    Parameters
    ----------
    sum : sum_i c_i grad f_i(x) for the mix c that was asked for.
    value : f(x) = sum_i w_i f_i(x) over the devices that answered; one more number in the same sum.
    gradients : one row a device, only when the ask had ``mix=None``.
    """

    sum: Vector = None
    value: float = math.nan
    gradients: Vector = None


@dataclass(frozen=True)
class Progress:
    """What a state tells the history: its phase, and the mean step of the coming round."""

    phase: str
    step: float


@runtime_checkable
class Method(Protocol):
    """Every method implements these five calls; states are small frozen dataclasses."""

    def start(self, x0: Vector, devices: Devices) -> Any:
        """The state before the first round."""
        ...

    def ask(self, state: Any) -> Ask:
        """Where to evaluate and which sum of gradients to send back."""
        ...

    def tell(self, state: Any, answer: Answer) -> Any:
        """The next state, given the answer to ``ask(state)``."""
        ...

    def point(self, state: Any) -> Vector:
        """The method's present answer x^k."""
        ...

    def progress(self, state: Any) -> Progress:
        """The phase and mean step of the coming round, for the history."""
        ...


def norm(v: Vector) -> float:
    """Euclidean norm of a flat vector; symbolic vectors refuse it, as it is not linear."""
    return math.sqrt(float(v @ v))
