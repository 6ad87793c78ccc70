"""The last sketch of every device, as the server keeps them, and the metric they add up to.

    M = sum_i w_i (U_i (Lambda_i - rho_i I) U_i^T + rho_i I) + diag(penalty),    rho_i = tr(H_i - Lambda_i) / (d - k_i)

Device i curves in at most r_i directions: as many as it has rows, or columns that are not 0. **Where the devices
together have fewer than d**, sum_i r_i < d, each is taken to curve along directions of its own. What is left is then
spread over those that nobody sent, and nothing of it is in the others,

    M = sum_i w_i U_i Lambda_i U_i^T + rho (I - sum_i U_i U_i^T) + diag(penalty),
    rho = sum_i w_i tr(H_i - Lambda_i) / sum_i (r_i - k_i).

Spread over all d, it would be too small by d / sum_i r_i where f curves at all. Elsewhere :attr:`Bank.filled` puts up
to half of a device's rest where the others' vectors are (:mod:`~ownstep.methods.own.filling`).

Absent devices count with their last sketch, and devices that never sent one like the mean of the others. Beyond
:data:`MOST_NUMBERS` the vectors of all devices are compressed to the leading part of their weighted sum. What is lost
is spread evenly, and whoever sends a new sketch takes their share of the weight out of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ownstep.methods.base import Vector
from ownstep.methods.own.filling import MOST_FILLED, filled
from ownstep.methods.own.metric import Metric, compressed
from ownstep.methods.search.pairs import stacked
from ownstep.smoothness.sketch import Sketch, span_of
from ownstep.support.vectors import like, to_numpy

MOST_NUMBERS = 2**26
"""Numbers in the vectors of all sketches that the server keeps: half a gigabyte."""
FLAT = 1e-10
"""No direction is taken to curve less than this share of the largest eigenvalue."""
EVERYONE = -1
"""The owner of rows that stand for several devices."""


@dataclass(frozen=True, eq=False)
class Bank:
    """What the server knows of the devices' curvature.

    Parameters
    ----------
    vectors : (m, d) orthonormal rows per device, all devices' together; a placeholder while there are none.
    weights : w_i.
    left : tr(H_i - Lambda_i) of every device, nan for who has sent nothing yet.
    spans, ranks : r_i and k_i of every device, 0 for who has sent nothing yet.
    owner, values : whose each row is, and its lambda; for rows of several devices, which are not of unit length, 1.
    spread : curvature lost in compression, spread over all directions.
    penalty, free : the penalty's diagonal: ``penalty`` but in the last ``free`` coordinates.
    """

    vectors: Vector = field(repr=False)
    weights: tuple[float, ...] = field(repr=False)
    left: tuple[float, ...] = field(repr=False)
    spans: tuple[int, ...] = field(repr=False)
    ranks: tuple[int, ...] = field(repr=False)
    owner: tuple[int, ...] = field(default=(), repr=False)
    values: tuple[float, ...] = field(default=(), repr=False)
    spread: float = 0.0
    penalty: float = 0.0
    free: int = 0

    @classmethod
    def empty(cls, like: Vector, weights: Sequence[float]) -> Bank:
        """Nobody has sent anything."""
        nobody = (0,) * len(weights)
        return cls(0.0 * like, tuple(map(float, weights)), (float("nan"),) * len(weights), nobody, nobody)

    @property
    def known(self) -> bool:
        """Has anybody sent a sketch?"""
        return bool(np.isfinite(self.left).any())

    @property
    def rest(self) -> np.ndarray:
        """rho_i of every device, 0 for who has sent nothing yet."""
        left, d = np.nan_to_num(np.array(self.left)), self.vectors.shape[-1]
        if (others := self._others()) is not None:
            return np.full(len(left), float(self._share() @ left) / others if others > 0 else 0.0)
        others = d - np.array(self.ranks)
        return np.where(others > 0, left / np.maximum(others, 1), 0.0)

    def _others(self) -> float | None:
        """Directions of the devices that nobody sent, where each curves along directions of its own; else None."""
        known = np.isfinite(self.left)
        many = len(known) / max(1, known.sum())  # who has sent nothing counts as the mean of the others
        apart = many * sum(self.spans) < self.vectors.shape[-1]
        return float(many * (sum(self.spans) - sum(self.ranks))) if apart else None

    def renewed(self, sketches: Sequence[Sketch | None]) -> Bank:
        """With these sketches in the place of their devices' last ones; who sent none keeps theirs."""
        new = {i: s for i, s in enumerate(sketches) if s is not None}
        if not new:
            return self
        owner, values = np.array(self.owner, int), np.array(self.values)
        share = 1 - sum(self.weights[i] for i in new)  # of those who keep theirs
        kept = np.flatnonzero(~np.isin(owner, list(new)) & ((owner != EVERYONE) | (share > 1e-9)))
        values = np.where(owner == EVERYONE, max(0.0, share) * values, values)[kept]
        parts, owners, lambdas = ([self.vectors[kept]] if len(kept) else []), [owner[kept]], [values]
        for i, s in new.items():
            parts.append(s.vectors)
            owners.append(np.full(len(s.values), i))
            lambdas.append(s.values)
        first = next(iter(new.values()))
        made = Bank(
            stacked(parts), self.weights,
            tuple(new[i].left if i in new else left for i, left in enumerate(self.left)),
            tuple(span_of(new[i]) if i in new else span for i, span in enumerate(self.spans)),
            tuple(len(new[i].values) if i in new else rank for i, rank in enumerate(self.ranks)),
            tuple(np.concatenate(owners).tolist()), tuple(np.concatenate(lambdas).tolist()),
            max(0.0, share) * self.spread, first.penalty, first.free,
        )  # fmt: skip
        m, d = made.vectors.shape
        return made if m * d <= MOST_NUMBERS else made._compressed(max(1, MOST_NUMBERS // (2 * d)))

    @cached_property
    def metric(self) -> Metric:
        """M, every rest spread evenly, ready to be inverted."""
        return self._over(self._rows(), float(self._share() @ self.rest) + self.spread)

    @cached_property
    def filled(self) -> Metric:
        """M, where several devices fill what they do not know of each other."""
        if not self._several():
            return self.metric
        left = np.nan_to_num(np.array(self.left))
        return self._over(*filled(self.vectors, np.array(self.values), np.array(self.owner), self._share(), left))

    def _over(self, rows: Vector, rho: float) -> Metric:
        top = rho + (float((rows**2).sum(1).max()) if len(rows) else 0.0)
        low = max(rho, FLAT * top) or 1.0
        return Metric(rows, low + self.penalty, low, self.free)

    def _several(self) -> bool:
        """Have several devices sent vectors that are still their own, few enough to compare them all?"""
        apart = not self.owner or EVERYONE in self.owner or self._others() is not None
        alone = apart or len(set(self.owner)) < 2 or float(self._share().max()) > 1 - 1e-9
        return not alone and min(self.vectors.shape) <= MOST_FILLED

    def _share(self) -> np.ndarray:
        """The weights of those who have sent a sketch, summing to one."""
        w = np.where(np.isfinite(self.left), self.weights, 0.0)
        return np.asarray(w / w.sum())

    def _rows(self) -> Vector:
        """B: the vectors, each times the square root of what its direction has more than the rest."""
        if not self.owner:
            return self.vectors[None][:0]
        owner, values = np.array(self.owner, int), np.array(self.values)
        share, rest = self._share()[owner], self.rest[owner]
        lift = share * values - (rest if self._others() is not None else share * rest)
        lift = np.where(owner == EVERYONE, values, np.maximum(lift, 0.0))
        scale = np.sqrt(lift)
        return like(scale[:, None].astype(to_numpy(self.vectors[:1]).dtype), self.vectors) * self.vectors

    def _compressed(self, most: int) -> Bank:
        rows, lost = compressed(self._rows(), most)
        count = len(rows)
        spread = self.spread + lost / rows.shape[1]
        return replace(self, vectors=rows, owner=(EVERYONE,) * count, values=(1.0,) * count, spread=spread)
