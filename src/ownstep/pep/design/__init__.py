"""Steps chosen by their worst case: ``tune`` searches, ``family`` and ``slopes`` give it the way down."""

from ownstep.pep.design.tune import Tuned, rivals, tune

__all__ = ["Tuned", "rivals", "tune"]
