"""Rounds to a level that all the methods compared reach, read off recorded curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def to_common_level(
    series: Mapping[str, tuple[Sequence[float], Sequence[Any]]], chain: Sequence[str]
) -> dict[str, float] | None:
    """Rounds every method needs to the worst of their best values, read between the recorded rounds; None if one fails.

    Crossings are interpolated along the running minimum, so noise cannot make a method arrive twice.
    """
    curves = {}
    for name in chain:
        rounds, values = np.asarray(series[name][0], float), np.array(series[name][1], float)
        if not np.isfinite(values).all():
            return None
        curves[name] = rounds, np.minimum.accumulate(values)
    level = max(best[-1] for _, best in curves.values())
    return {name: max(1.0, _crossing(*curve, level)) for name, curve in curves.items()}


def _crossing(rounds: NDArray[np.float64], best: NDArray[np.float64], level: float) -> float:
    at = int(np.argmax(best <= level))
    if at == 0:
        return float(rounds[0])
    above, below = best[at - 1], best[at]
    return float(rounds[at - 1] + (rounds[at] - rounds[at - 1]) * (above - level) / (above - below))
