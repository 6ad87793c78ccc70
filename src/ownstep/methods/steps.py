"""Steps by name, and the numbers behind the names."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ownstep.plan import Devices
from ownstep.support.checks import whole_number
from ownstep.support.errors import InvalidInput, unknown_name

STEPS = {
    "mean": "1/L_bar with L_bar = sum_i w_i L_i, the paper's centralised step",
    "true": "1/L with the smoothness L of f itself",
    "matched": "sum_i w_i/L_i, the mean step of Algorithm 1's local phase",
    "largest": "1 / max_i L_i, which suits every device on its own",
    "tuned": "found by a seeded search over constant steps, whose cost is reported",
}


def resolve_step(step: float | str, devices: Devices) -> float:
    """The number behind a named step (see :data:`STEPS`)."""
    if not isinstance(step, str):
        return float(step)
    if step == "mean":
        return 1 / devices.L_bar
    if step == "matched":
        return devices.mean_step
    if step == "largest":
        return 1 / float(devices.L.max())
    if step == "true":
        if devices.L_pooled is None:
            raise InvalidInput("step='true' needs L_pooled, the smoothness of f itself, which was not measured")
        return 1 / devices.L_pooled
    raise InvalidInput("step='tuned' must be searched for first: engines.tune_step(...), or run(...) which calls it")


def check_step(step: float | str) -> None:
    """A name of :data:`STEPS`, or a positive number."""
    if not isinstance(step, str):
        check_positive("a step", step)
    elif step not in STEPS:
        raise unknown_name("step", step, STEPS)


def octaves(devices: Devices) -> tuple[float, ...]:
    """Steps to search: from 1/4 to 64 times 1/L_bar, as 1/L is often far too careful."""
    return tuple(2.0**o / devices.L_bar for o in range(-2, 7))


def check_positive(name: str, value: float) -> None:
    """A positive, finite number."""
    if not (math.isfinite(value) and value > 0):
        raise InvalidInput(f"{name} must be positive and finite, got {value!r}")


def check_counts(local_steps: int | tuple[int, ...]) -> None:
    """A number of local steps, or one per device; each at least 1."""
    given = local_steps if isinstance(local_steps, tuple) else (local_steps,)
    for count in given or (0,):
        whole_number("local_steps", count, 1)


def one_per_device(local_steps: tuple[int, ...], devices: Devices) -> NDArray[np.int64]:
    """The numbers of local steps as an array, refused where they are of other devices."""
    if len(local_steps) != len(devices):
        raise InvalidInput(f"local_steps has {len(local_steps)} numbers for {len(devices)} devices")
    return np.array(local_steps, np.int64)
