"""Who evaluates the gradients: the same ask/tell loop, here in one process."""

from ownstep.engines.compare import TOLERANCES, Comparison, baselines, compare
from ownstep.engines.local import describe, run
from ownstep.engines.participation import Bernoulli, Participation
from ownstep.engines.tuning import Tuned, tune_step

__all__ = [
    "TOLERANCES",
    "Bernoulli",
    "Comparison",
    "Participation",
    "Tuned",
    "baselines",
    "compare",
    "describe",
    "run",
    "tune_step",
]
