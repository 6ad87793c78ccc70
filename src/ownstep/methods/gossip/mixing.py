"""Who talks to whom, and how much each listens: the mixing matrices W of server-free methods.

W is symmetric, non-negative and doubly stochastic: W 1 = 1, so that agreement is kept, and 1^T W = 1^T, so that the
mean of the devices' points is. Its second largest eigenvalue modulus says how fast they agree: 0 at once, 1 never.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.support.errors import InvalidInput

Array = NDArray[np.float64]
TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Mixing:
    """A checked mixing matrix.

    Parameters
    ----------
    matrix : W, one row per device; W_ij > 0 only where i and j talk to each other.
    name : the graph it belongs to, for tables.
    """

    matrix: Array = field(repr=False)
    name: str = "given"

    def __post_init__(self) -> None:
        W = np.array(self.matrix, float)
        if W.ndim != 2 or W.shape[0] != W.shape[1] or not len(W):
            raise InvalidInput(f"a mixing matrix has one row and one column per device, got shape {W.shape}")
        wrong = ~(np.isfinite(W) & (W >= 0))
        if wrong.any():
            raise InvalidInput(f"a mixing matrix has finite entries of at least 0, got {W[wrong][0]:g}")
        off = max(float(abs(W.sum(axis=axis) - 1).max()) for axis in (0, 1))
        if off > TOLERANCE:
            raise InvalidInput(f"a mixing matrix is doubly stochastic, but a row or column sum is off by {off:.3g}")
        if abs(W - W.T).max() > TOLERANCE:
            raise InvalidInput(
                f"a mixing matrix is symmetric, but W and its transpose differ by {abs(W - W.T).max():g}"
            )
        object.__setattr__(self, "matrix", W)
        if self.second_eigenvalue > 1 - TOLERANCE:
            raise InvalidInput(
                f"these devices never agree: |lambda_2| of the mixing matrix is {self.second_eigenvalue:.9g}. "
                "Its graph is not connected, or needs rule='lazy'"
            )

    def __len__(self) -> int:
        return len(self.matrix)

    def __repr__(self) -> str:
        digest = hashlib.sha256(np.ascontiguousarray(self.matrix).tobytes()).hexdigest()[:8]
        return f"Mixing({self.name!r}, {len(self)} devices, lambda_2={self.second_eigenvalue:.4g}, {digest})"

    def lazier(self, theta: float) -> Mixing:
        """(1 - theta) I + theta W, which listens less: 0 < theta <= 1."""
        if not 0 < theta <= 1:
            raise InvalidInput(f"theta of (1 - theta) I + theta W must be in (0, 1], got {theta!r}")
        return Mixing((1 - theta) * np.eye(len(self)) + theta * self.matrix, self.name)

    @property
    def eigenvalues(self) -> Array:
        """In ascending order; the last is 1."""
        return np.asarray(np.linalg.eigvalsh(self.matrix))

    @property
    def second_eigenvalue(self) -> float:
        """max(|lambda_2|, |lambda_N|), the factor by which disagreement shrinks in a round; 0 for one device."""
        return float(abs(self.eigenvalues[:-1]).max(initial=0.0))

    @property
    def links(self) -> NDArray[np.int64]:
        """1 where device i sends to device j, else 0."""
        return ((self.matrix > 0) & ~np.eye(len(self), dtype=bool)).astype(np.int64)


def among(W: Any, present: NDArray[np.bool_]) -> Array:
    """W when only some devices are there: a missing link's weight stays with both its ends, so sums stay one."""
    kept = np.asarray(W) * np.outer(present, present)
    np.fill_diagonal(kept, 0.0)
    out: Array = kept + np.diag(1 - kept.sum(axis=1))
    return out
