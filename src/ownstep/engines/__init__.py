"""Who evaluates the gradients: the same ask/tell loop, in one process, or on many machines by ``cluster``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ownstep.engines.compare import TOLERANCES, Comparison, baselines, beyond, compare
from ownstep.engines.lbfgs import run_lbfgs
from ownstep.engines.local import describe, run
from ownstep.engines.participation import (
    MISSING,
    Bernoulli,
    Bursts,
    Cohort,
    Missing,
    Outages,
    Participation,
    Stragglers,
    parse_participation,
)
from ownstep.engines.timing import TimeModel, price
from ownstep.engines.tuning import Tuned, tune, tune_step
from ownstep.lazy import lazily

if TYPE_CHECKING:
    from ownstep.engines import cluster

__getattr__ = lazily(__name__, {"cluster": ".cluster"})

__all__ = [
    "MISSING",
    "TOLERANCES",
    "Bernoulli",
    "Bursts",
    "Cohort",
    "Comparison",
    "Missing",
    "Outages",
    "Participation",
    "Stragglers",
    "TimeModel",
    "Tuned",
    "baselines",
    "beyond",
    "cluster",
    "compare",
    "describe",
    "parse_participation",
    "price",
    "run",
    "run_lbfgs",
    "tune",
    "tune_step",
]
