"""Smoothness constants that say what kind of number they are, and how they were measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ownstep.support.errors import InvalidInput

Kind = Literal["exact", "upper bound", "estimate", "given", "unknown"]

STRENGTH: tuple[Kind, ...] = ("unknown", "estimate", "upper bound", "exact")
"""What measurements can be, the weakest first."""


@dataclass(frozen=True, eq=False)
class Smoothness:
    """The smoothness constants of a problem's devices and of their pooled loss.

    Parameters
    ----------
    values : L_i, one per device.
    kind : ``exact`` (the supremum of the Hessian's norm), ``upper bound``, or ``estimate`` (sampled: a
        lower bound, so 1/L_i may be too long), or ``given`` by the user; ``unknown`` for placeholders that no method
        may rely on.
    how : one sentence on how the numbers were computed.
    pooled : the smoothness of f = sum_i w_i f_i itself, of the same kind; None when not measured.
    """

    values: NDArray[np.float64]
    kind: Kind
    how: str
    pooled: float | None = None

    def __post_init__(self) -> None:
        values = np.atleast_1d(np.asarray(self.values, float))
        if not (np.isfinite(values).all() and (values > 0).all()):
            bad = values[~(np.isfinite(values) & (values > 0))][0]
            raise InvalidInput(f"a smoothness constant must be positive and finite, got {bad:g}")
        object.__setattr__(self, "values", values)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for reports."""
        return {"L": self.values.tolist(), "pooled": self.pooled, "kind": self.kind, "how": self.how}
