"""The exact worst case of a method: a semidefinite program built from the method's own ``ask`` and ``tell``."""

from ownstep.pep.bound import Bound, curve, worst_case
from ownstep.pep.certificate import Certificate
from ownstep.pep.certify import Certified
from ownstep.pep.classes import METRICS, interpolation_gaps, repeated
from ownstep.pep.instance import Instance, LocalLoss
from ownstep.pep.interpolant import Interpolant
from ownstep.pep.symbolic import NotLinear
from ownstep.pep.tune import Tuned, rivals, tune

__all__ = [
    "METRICS",
    "Bound",
    "Certificate",
    "Certified",
    "Instance",
    "Interpolant",
    "LocalLoss",
    "NotLinear",
    "Tuned",
    "curve",
    "interpolation_gaps",
    "repeated",
    "rivals",
    "tune",
    "worst_case",
]
