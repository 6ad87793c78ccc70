"""What every engine's ``run`` is given, checked before anything is evaluated."""

from __future__ import annotations

import inspect
import math
from pathlib import Path
from typing import Any

import numpy as np

from ownstep.engines.limits import Limits
from ownstep.engines.participation import FORMS, Participation
from ownstep.methods import METHODS, Method
from ownstep.plan import Devices
from ownstep.smoothness import Smoothness
from ownstep.support.checks import number, whole_number
from ownstep.support.errors import InvalidInput, unknown_name
from ownstep.support.vectors import to_numpy

NEEDED = ("weights", "dim", "mix", "x0")
"""What a problem has, so that anything else is told apart from one."""


def check_method(method: Any) -> None:
    """Is it a method, and not its name or its class?"""
    if isinstance(method, str):
        if method not in METHODS:
            raise unknown_name("method", method, METHODS)
        raise InvalidInput(f"method must be an object, got the name {method!r}: write {METHODS[method].__name__}()")
    if inspect.isclass(method):
        raise InvalidInput(f"method must be an object, got the class {method.__name__}: write {method.__name__}()")
    if not isinstance(method, Method):
        raise InvalidInput(f"method must have start, ask, tell, point and progress, got {type(method).__name__}")


def check_run(
    method: Any,
    problem: Any,
    rounds: Any,
    *,
    devices: Any = None,
    participation: Any = None,
    target: Any = None,
    gradient_tolerance: Any = None,
    seed: Any = 0,
    x0: Any = None,
    smoothness: Any = "exact",
    checkpoint: Any = None,
    observe: Any = None,
    limits: Any = None,
    **_: Any,
) -> None:
    """Refuse arguments of ``run`` that no run can use; each message quotes the value and says what is allowed."""
    check_method(method)
    whole_number("rounds", rounds, 0)
    whole_number("seed", seed, 0)
    lacks = [name for name in NEEDED if not hasattr(problem, name)]
    if lacks:
        raise InvalidInput(f"a problem has {', '.join(NEEDED)}; {type(problem).__name__} has no {lacks[0]}")
    if devices is not None:
        if not isinstance(devices, Devices):
            raise InvalidInput(f"devices must be an ownstep.Devices, got {type(devices).__name__}")
        if len(devices) != len(problem.weights):
            raise InvalidInput(f"{len(devices)} devices described, but the problem has {len(problem.weights)}")
    if participation is not None and not isinstance(participation, Participation):
        raise InvalidInput(
            f"participation must be a rule such as Bernoulli(0.5), got {participation!r}: "
            f"parse_participation makes one from {', '.join(FORMS)}"
        )
    for name, value, least in (("target", target, None), ("gradient_tolerance", gradient_tolerance, 0)):
        if value is not None and not (isinstance(value, float | np.floating) and math.isinf(value)):
            number(name, value, least)
    if x0 is not None and np.shape(x0) == (problem.dim,):
        start = to_numpy(x0)
        if start.dtype.kind not in "fiu":
            raise InvalidInput(f"x0 must be real numbers, got an array of {start.dtype}")
        if not np.isfinite(start).all():
            raise InvalidInput("x0 must be finite, got nan or inf in it")
    if not isinstance(smoothness, Smoothness | str):
        raise InvalidInput(
            f"smoothness must be the name of a way to measure it or an ownstep.Smoothness, got {smoothness!r}; "
            "constants that you know go into devices=Devices(weights, L)"
        )
    if not (checkpoint is None or isinstance(checkpoint, str | Path)):
        raise InvalidInput(f"checkpoint must be the path of a file, got {checkpoint!r}")
    if not (observe is None or callable(observe)):
        raise InvalidInput(f"observe must be a function of the round and the point, got {observe!r}")
    if not (limits is None or isinstance(limits, Limits)):
        raise InvalidInput(f"limits must be a Limits(bytes=..., seconds=...), got {limits!r}")
