"""Checks that several rooms make; each raises with the offending value in the message."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ownstep.support.errors import InvalidInput

WEIGHT_TOLERANCE = 1e-9
"""How far the weights may sum from one before they are refused."""


def finite_row(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """One finite number a device, as an array."""
    row = np.atleast_1d(np.asarray(values, dtype=float))
    if row.ndim != 1 or not len(row):
        raise InvalidInput(f"{name} must be one number a device, got shape {row.shape}")
    if not np.isfinite(row).all():
        raise InvalidInput(f"{name} must be finite, got {row[~np.isfinite(row)][0]}")
    return row


def device_weights(values: ArrayLike, devices: int) -> NDArray[np.float64]:
    """Weights w_i: one a device, positive, summing to one."""
    weights = finite_row("weights", values)
    if len(weights) != devices:
        raise InvalidInput(f"{len(weights)} weights for {devices} devices")
    if not (weights > 0).all():
        raise InvalidInput(f"weights must be positive, got {weights.min():g}")
    if abs(weights.sum() - 1) > WEIGHT_TOLERANCE:
        raise InvalidInput(f"weights must sum to 1, they sum to {weights.sum():.12g}")
    return weights


def whole_number(name: str, value: object, least: int) -> int:
    """A whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InvalidInput(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)
