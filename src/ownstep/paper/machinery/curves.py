"""Recorded curves: rounds to a level that all the methods compared reach, and several runs on one grid of rounds."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def to_common_level(
    series: Mapping[str, tuple[Sequence[float], Sequence[Any]]], chain: Sequence[str]
) -> dict[str, float] | None:
    """Rounds every method needs to the worst of their best values, read between the recorded rounds; None if one fails.

    Crossings are interpolated along the running minimum, so noise cannot make a method arrive twice. A method fails
    that meets no number, or ends above its start.
    """
    curves = {}
    for name in chain:
        rounds, values = np.asarray(series[name][0], float), np.array(series[name][1], float)
        if diverged(values):
            return None
        curves[name] = rounds, np.minimum.accumulate(values)
    level = max(best[-1] for _, best in curves.values())
    return {name: max(1.0, _crossing(*curve, level)) for name, curve in curves.items()}


def diverged(values: Any) -> bool:
    """Does a curve hold no number somewhere, or end above its start?"""
    found = np.array(values, float)
    return bool(not np.isfinite(found).all() or found[-1] > found[0])


def on_one_grid(
    curves: Sequence[tuple[Sequence[float], Sequence[Any]]], after: float = np.nan
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The rounds of the longest curve, and every curve's values there, one row each; straight lines between its own.

    Where a curve has ended before, its row goes on with ``after`` if it diverged, and with nan if not.
    """
    longest = np.asarray(max(curves, key=lambda curve: curve[0][-1])[0], float)
    rows = []
    for rounds, values in curves:
        found = np.array(values, float)
        row = np.interp(longest, np.asarray(rounds, float), np.where(np.isfinite(found), found, after))
        row[longest > rounds[-1]] = after if diverged(found) else np.nan
        rows.append(row)
    return longest, np.array(rows)


def spread(rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Median, least and largest of the rows that have a number, column by column; nan where none has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of columns without a number
        return np.nanmedian(rows, 0), np.nanmin(rows, 0), np.nanmax(rows, 0)


def _crossing(rounds: NDArray[np.float64], best: NDArray[np.float64], level: float) -> float:
    at = int(np.argmax(best <= level))
    if at == 0:
        return float(rounds[0])
    above, below = best[at - 1], best[at]
    return float(rounds[at - 1] + (rounds[at] - rounds[at - 1]) * (above - level) / (above - below))
