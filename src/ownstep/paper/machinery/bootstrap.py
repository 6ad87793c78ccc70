"""How sure a mean over a few runs is: the percentile bootstrap, and numbers as verdicts carry them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ownstep.support.errors import InvalidInput

LEVEL = 0.95
TIMES = 10_000


@dataclass(frozen=True)
class Interval:
    """A mean over runs, and where the mean of other such runs would lie."""

    mean: float
    low: float
    high: float
    runs: int

    def __str__(self) -> str:
        return f"{self.mean:.2f} [{self.low:.2f}, {self.high:.2f}]"


def interval(values: Sequence[float], seed: int = 0, times: int = TIMES, level: float = LEVEL) -> Interval:
    """Mean and percentile bootstrap interval of independent runs.

    ``times`` samples as large as the data are drawn from it with replacement; the interval holds the middle ``level``
    of their means. With two or three runs it is no more than their range: it cannot say what another run would give.
    """
    data = np.asarray(values, float)
    if data.ndim != 1 or not len(data) or not np.isfinite(data).all():
        raise InvalidInput(f"a bootstrap needs at least one finite number, got {values!r}")
    drawn = np.random.default_rng(seed).choice(data, (times, len(data))).mean(axis=1)
    low, high = np.quantile(drawn, ((1 - level) / 2, (1 + level) / 2))
    return Interval(float(data.mean()), float(low), float(high), len(data))


def number(what: str, values: Sequence[float], group: str = "", note: str = "") -> dict[str, Any]:
    """One number of a verdict, as plain data: what it is, its mean and its interval (none for a single run).

    Numbers of one ``group`` stand together; ``what`` tells them apart.
    """
    found = interval(values)
    bounds = {"low": found.low, "high": found.high} if found.runs > 1 else {"low": None, "high": None}
    return {"group": group, "what": what, "value": found.mean, **bounds, "runs": found.runs, "note": note}
