"""What the sites send before the first step: counts, sums and sums of squares; means and deviations follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import gammaln

from ownstep.glm.identifiability import ignoring
from ownstep.problems.linear.second_order import blocks
from ownstep.support.errors import InvalidInput

Array = NDArray[np.float64]
LARGE = 1e5
"""Mean from which columns occur whose differences are lost in sums of squares: those below 1e-7 of their size."""
NEARLY_FULL = 100.0
"""Mean over deviation from which a sparse column is centred too: then at most 1 in 10,000 of its entries is zero."""


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over rows, to be added up over sites.

    Parameters
    ----------
    rows : how many.
    values, squares : of every column.
    label, label_squares, log_factorials : of the label, where it is a number.
    classes : rows of each class, where it is not.
    """

    rows: float
    values: Array
    squares: Array
    label: float
    label_squares: float
    log_factorials: float
    classes: Array

    def flat(self) -> Array:
        """As one vector, the way it travels."""
        alone = [self.rows, self.label, self.label_squares, self.log_factorials]
        return np.concatenate([alone, self.classes, self.values, self.squares])

    @classmethod
    def from_flat(cls, vector: Array, classes: int) -> Sums:
        """The inverse of :meth:`flat`."""
        columns = (len(vector) - 4 - classes) // 2
        rest = vector[4 + classes :]
        return cls(
            float(vector[0]), rest[:columns], rest[columns:], float(vector[1]), float(vector[2]), float(vector[3]),
            vector[4 : 4 + classes],
        )  # fmt: skip

    def check(self, features: tuple[str, ...], label: str) -> None:
        """Refuse columns, and a label, whose squares are beyond the largest number; and no rows at all."""
        if not self.rows:
            raise InvalidInput("every row is held out, so none is left to fit on: give a smaller --holdout")
        large = np.flatnonzero(~np.isfinite(self.squares) | ~np.isfinite(self.values))
        if len(large):
            name = features[large[0]]
            if np.isnan(self.values[large[0]]):
                raise InvalidInput(
                    f"column {name!r} has missing values (nan) or infinite ones: complete them, or leave out their rows"
                )
            raise InvalidInput(
                f"column {name!r} has values so large that the sum of their squares overflows: write it in another "
                f"unit, or leave it out with {ignoring([name])}"
            )
        if not np.isfinite([self.label, self.label_squares]).all():
            raise InvalidInput(
                f"the label {label!r} has values so large that the sum of their squares overflows: write it in "
                "another unit"
            )

    @property
    def scale(self) -> Scale:
        """Mean and deviation of every column over all sites."""
        mean = self.values / self.rows
        variance = np.maximum(self.squares / self.rows - mean**2, 0)
        tiny = 1e-14 * self.squares / self.rows  # what rounding leaves of a constant column
        return Scale(mean, np.where(variance > tiny, np.sqrt(variance), 0.0))


@dataclass(frozen=True, eq=False)
class Scale:
    """Mean and standard deviation of every column; a deviation of 0 means that the column is constant."""

    mean: Array
    deviation: Array

    def check(self, features: tuple[str, ...]) -> None:
        """Refuse constant columns, as far as sums of squares tell: nobody could tell them from the intercept."""
        constant = np.flatnonzero(self.deviation == 0)
        if len(constant):
            name = features[constant[0]]
            others, them = (f" (and {len(constant) - 1} more)", "them") if len(constant) > 1 else ("", "it")
            raise InvalidInput(
                f"column {name!r}{others} is constant over all sites, so it cannot be told from the intercept; leave "
                f"{them} out with {ignoring([features[i] for i in constant])}{self._about(int(constant[0]))}"
            )

    def _about(self, column: int) -> str:
        """What else it may be, where its numbers are large."""
        mean = float(self.mean[column])
        return f", or subtract {mean:.0f} from it if its values do differ" if abs(mean) >= LARGE else ""

    def shift(self, sparse: bool) -> Array:
        """What is subtracted from each column: its mean; from a sparse one only where nearly no entry is zero."""
        return np.where(np.abs(self.mean) > NEARLY_FULL * self.deviation, self.mean, 0.0) if sparse else self.mean

    def apply(self, rows: Any, order: NDArray[np.intp]) -> Any:
        """The rows in this order, less :meth:`shift`, divided by the deviations, with a constant last."""
        n, d = len(order), rows.shape[1]
        if sp.issparse(rows):
            shift = self.shift(sparse=True)
            full, rows = np.flatnonzero(shift), sp.csr_array(rows)[order]
            if len(full):
                every = np.tile(shift[full], n), np.tile(full, n), len(full) * np.arange(n + 1)
                rows = rows - sp.csr_array(every, shape=rows.shape)
            return sp.csr_array(sp.hstack([rows @ sp.diags_array(1 / self.deviation), np.ones((n, 1))]))
        out = np.empty((n, d + 1))
        for block in blocks(out, d):
            part = order[block]
            np.subtract(rows[part], self.mean, out=out[block, :-1])
            out[block, :-1] /= self.deviation
        out[:, -1] = 1
        return out


@np.errstate(over="ignore", invalid="ignore")  # Sums.check names the column
def sums_of(rows: Any, labels: NDArray[Any], classes: NDArray[Any]) -> Sums:
    """The sums of one site's rows; infinite where they overflow, see :meth:`Sums.check`."""
    if sp.issparse(rows):
        rows = rows.astype(float, copy=False)
        values = np.asarray(rows.sum(axis=0), float).ravel()
        squares = np.asarray(rows.multiply(rows).sum(axis=0), float).ravel()
    else:
        values, squares = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
        for block in blocks(rows, rows.shape[1]):
            part = np.asarray(rows[block], float)  # squares of small integers overflow their own type
            values += part.sum(axis=0)
            squares += np.einsum("ij,ij->j", part, part)
    if len(classes):
        counts = np.array([(labels == c).sum() for c in classes], float)
        return Sums(len(labels), values, squares, 0.0, 0.0, 0.0, counts)
    y = labels.astype(float)
    factorials = float(gammaln(y + 1).sum()) if (y >= 0).all() else 0.0
    return Sums(len(y), values, squares, float(y.sum()), float(y @ y), factorials, np.zeros(0))
