"""The exact worst case of a method: a semidefinite program built from the method's own ``ask`` and ``tell``.

``trace/`` -> ``conditions/`` -> ``solve/`` -> ``proof/`` is the way a worst case goes; ``bound`` walks it,
``design/`` chooses steps by it. ``networks/`` does the same for devices that keep vectors of their own, ``rates/`` for
every number of rounds. May import from plan and methods.
"""

from ownstep.pep.bound import Bound, curve, worst_case
from ownstep.pep.conditions.classes import METRICS, Lipschitz, interpolation_gaps, lipschitz, repeated
from ownstep.pep.design.tune import Tuned, rivals, tune
from ownstep.pep.design.tune_networks import NETWORK_WHAT, TunedNetwork, tune_network
from ownstep.pep.networks.instances.replay import NetworkInstance
from ownstep.pep.networks.network_bound import NetworkBound
from ownstep.pep.networks.question import NETWORK_METRICS, STARTS, Start
from ownstep.pep.networks.spectral import Spectral
from ownstep.pep.proof.certificate import Certificate
from ownstep.pep.proof.certify import Certified
from ownstep.pep.rates.neighbourhood import Neighbourhood, neighbourhood
from ownstep.pep.rates.rate import Rate, rate
from ownstep.pep.solve.instance import Instance, LocalLoss
from ownstep.pep.solve.interpolant import Interpolant
from ownstep.pep.trace.symbolic import NotLinear

__all__ = [
    "METRICS",
    "NETWORK_METRICS",
    "NETWORK_WHAT",
    "STARTS",
    "Bound",
    "Certificate",
    "Certified",
    "Instance",
    "Interpolant",
    "Lipschitz",
    "LocalLoss",
    "Neighbourhood",
    "NetworkBound",
    "NetworkInstance",
    "NotLinear",
    "Rate",
    "Spectral",
    "Start",
    "Tuned",
    "TunedNetwork",
    "curve",
    "interpolation_gaps",
    "lipschitz",
    "neighbourhood",
    "rate",
    "repeated",
    "rivals",
    "tune",
    "tune_network",
    "worst_case",
]
