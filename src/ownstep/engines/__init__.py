"""Who evaluates: the same ask and tell loop on every engine, and what is built on it.

``local/`` runs all devices in this process, ``cluster/`` on torch.distributed, ``federation/`` on Flower;
``compare``, ``tuning``, ``participation``, ``timing`` and ``checkpoint`` serve all three. May import from every
folder up to history.
"""

from __future__ import annotations

from ownstep.engines import cluster
from ownstep.engines.compare import TOLERANCES, Comparison, baselines, beyond, compare, rivals
from ownstep.engines.limits import WIRES, Limits, parse_budget, parse_wire
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
from ownstep.engines.recommend import Recommendation, candidates, recommend, rehearse, shows
from ownstep.engines.timing import TimeModel, price
from ownstep.engines.tuning import Tuned, tune, tune_step

__all__ = [
    "MISSING",
    "TOLERANCES",
    "WIRES",
    "Bernoulli",
    "Bursts",
    "Cohort",
    "Comparison",
    "Limits",
    "Missing",
    "Outages",
    "Participation",
    "Recommendation",
    "Stragglers",
    "TimeModel",
    "Tuned",
    "baselines",
    "beyond",
    "candidates",
    "cluster",
    "compare",
    "describe",
    "parse_budget",
    "parse_participation",
    "parse_wire",
    "price",
    "recommend",
    "rehearse",
    "rivals",
    "run",
    "shows",
    "tune",
    "tune_step",
]
