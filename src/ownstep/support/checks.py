"""Checks that several folders make; each raises with the offending value in the message."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ownstep.support.errors import InvalidInput

WEIGHT_TOLERANCE = 1e-9
"""How far the weights may sum from one before they are refused."""


def finite_row(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """One finite number per device, as an array."""
    try:
        row = np.atleast_1d(np.asarray(values, dtype=float))
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} must be one number per device, got {values!r}") from None
    if row.ndim != 1 or not len(row):
        raise InvalidInput(f"{name} must be one number per device, got shape {row.shape}")
    if not np.isfinite(row).all():
        raise InvalidInput(f"{name} must be finite, got {row[~np.isfinite(row)][0]}")
    return row


def device_weights(values: ArrayLike, devices: int) -> NDArray[np.float64]:
    """Weights w_i: one per device, positive, summing to one."""
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


def truth(name: str, value: object) -> bool:
    """True or False; a word such as ``"no"`` would count as true."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidInput(f"{name} must be True or False, got {value!r}")
    return bool(value)


def number(name: str, value: object, least: float | None = None, *, above: float | None = None) -> float:
    """A finite real number, at least ``least`` or larger than ``above`` where one is given."""
    allowed = f" >= {least:g}" if least is not None else f" > {above:g}" if above is not None else ""
    good = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    real = float(value) if good else math.nan  # type: ignore[arg-type]
    if not math.isfinite(real) or (least is not None and real < least) or (above is not None and real <= above):
        raise InvalidInput(f"{name} must be a finite number{allowed}, got {value!r}")
    return real


def generator(seed: object) -> np.random.Generator:
    """The one source of random numbers of a seed."""
    return np.random.default_rng(whole_number("seed", seed, 0))
