"""Steps chosen by their worst case: ``tune`` searches, ``family`` and ``slopes`` give it the way down.

``tune_networks`` does the same over a class of networks. May import from pep.
"""

from ownstep.pep.design.tune import Tuned, rivals, tune

__all__ = ["Tuned", "rivals", "tune"]
