"""The contract of every problem: f(x) = sum_i w_i f_i(x) over the devices that hold its data."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]


@runtime_checkable
class Problem(Protocol):
    """What is minimised. ``mix`` is one pass over the data whatever the number of devices."""

    @property
    def weights(self) -> NDArray[np.float64]:
        """w_i, positive and summing to one."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """One label per device."""
        ...

    @property
    def dim(self) -> int:
        """Length of x."""
        ...

    @property
    def work(self) -> float:
        """Multiplications in one product with the data, for the choice of BLAS threads."""
        ...

    @property
    def strong_convexity(self) -> float:
        """A mu >= 0 such that every f_i is mu-strongly convex."""
        ...

    def x0(self) -> Any:
        """The default starting point."""
        ...

    def value(self, x: Any) -> float:
        """f(x)."""
        ...

    def mix(self, x: Any, c: NDArray[np.float64]) -> tuple[NDArray[np.float64], Any]:
        """(f_i(x) for every device, sum_i c_i grad f_i(x)); a matrix c of m columns gives m sums as columns."""
        ...

    def gradients(self, x: Any) -> Any:
        """One row per device: grad f_i(x), or grad f_i(x_i) when x has one row per device."""
        ...
