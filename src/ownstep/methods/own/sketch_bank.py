"""The last sketch of every device, as the server keeps them, and the metric they add up to.

    M = sum_i w_i (U_i (Lambda_i - rho_i I) U_i^T + rho_i I) + diag(penalty)

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
from ownstep.methods.own.metric import Metric, compressed
from ownstep.methods.search.pairs import stacked
from ownstep.smoothness.sketch import Sketch
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
    owner, lift : whose each row is, and lambda - rho_i; for rows of several devices, which are not of unit length, 1.
    rest : rho_i of every device, nan for who has sent nothing yet.
    weights : w_i.
    spread : curvature lost in compression, spread over all directions.
    penalty, free : the penalty's diagonal: ``penalty`` but in the last ``free`` coordinates.
    """

    vectors: Vector = field(repr=False)
    weights: tuple[float, ...] = field(repr=False)
    rest: tuple[float, ...] = field(repr=False)
    owner: tuple[int, ...] = field(default=(), repr=False)
    lift: tuple[float, ...] = field(default=(), repr=False)
    spread: float = 0.0
    penalty: float = 0.0
    free: int = 0

    @classmethod
    def empty(cls, like: Vector, weights: Sequence[float]) -> Bank:
        """Nobody has sent anything."""
        return cls(0.0 * like, tuple(map(float, weights)), (float("nan"),) * len(weights))

    @property
    def known(self) -> bool:
        """Has anybody sent a sketch?"""
        return bool(np.isfinite(self.rest).any())

    def renewed(self, sketches: Sequence[Sketch | None]) -> Bank:
        """With these sketches in the place of their devices' last ones; who sent none keeps theirs."""
        new = {i: s for i, s in enumerate(sketches) if s is not None}
        if not new:
            return self
        rest, owner, lift = np.array(self.rest), np.array(self.owner, int), np.array(self.lift)
        share = 1 - sum(self.weights[i] for i in new)  # of those who keep theirs
        kept = np.flatnonzero(~np.isin(owner, list(new)) & ((owner != EVERYONE) | (share > 1e-9)))
        lift = np.where(owner == EVERYONE, max(0.0, share) * lift, lift)[kept]
        parts, owners, lifts = ([self.vectors[kept]] if len(kept) else []), [owner[kept]], [lift]
        for i, s in new.items():
            rest[i] = s.rest
            parts.append(s.vectors)
            owners.append(np.full(len(s.values), i))
            lifts.append(np.maximum(s.values - s.rest, 0.0))
        first = next(iter(new.values()))
        made = Bank(
            stacked(parts), self.weights, tuple(rest.tolist()), tuple(np.concatenate(owners).tolist()),
            tuple(np.concatenate(lifts).tolist()), max(0.0, share) * self.spread, first.penalty, first.free,
        )  # fmt: skip
        m, d = made.vectors.shape
        return made if m * d <= MOST_NUMBERS else made._compressed(max(1, MOST_NUMBERS // (2 * d)))

    @cached_property
    def metric(self) -> Metric:
        """M, ready to be inverted."""
        rho = float(self._share() @ np.nan_to_num(np.array(self.rest))) + self.spread
        rows = self._rows()
        top = rho + (float((rows**2).sum(1).max()) if len(rows) else 0.0)
        low = max(rho, FLAT * top) or 1.0
        return Metric(rows, low + self.penalty, low, self.free)

    def _share(self) -> np.ndarray:
        """The weights of those who have sent a sketch, summing to one."""
        w = np.where(np.isfinite(self.rest), self.weights, 0.0)
        return np.asarray(w / w.sum())

    def _rows(self) -> Vector:
        """B: the vectors, each times the square root of its weighted lift."""
        if not self.owner:
            return self.vectors[None][:0]
        owner, lift = np.array(self.owner, int), np.array(self.lift)
        scale = np.sqrt(np.where(owner == EVERYONE, lift, self._share()[owner] * lift))
        return like(scale[:, None].astype(to_numpy(self.vectors[:1]).dtype), self.vectors) * self.vectors

    def _compressed(self, most: int) -> Bank:
        rows, lost = compressed(self._rows(), most)
        count = len(rows)
        spread = self.spread + lost / rows.shape[1]
        return replace(self, vectors=rows, owner=(EVERYONE,) * count, lift=(1.0,) * count, spread=spread)
