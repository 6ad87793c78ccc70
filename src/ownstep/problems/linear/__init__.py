"""Linear models: a pointwise loss of z_j = a_j^T x over rows a_j, and an L2 term.

``model`` has what they share, ``logistic``, ``least_squares`` and ``poisson`` their losses. May import from data and
partition.
"""

from ownstep.problems.linear.least_squares import LeastSquares
from ownstep.problems.linear.logistic import (
    BinaryLogistic,
    MultinomialLogistic,
    ReferenceLogistic,
    logistic_regression,
)
from ownstep.problems.linear.model import LinearModel
from ownstep.problems.linear.poisson import Poisson

__all__ = [
    "BinaryLogistic",
    "LeastSquares",
    "LinearModel",
    "MultinomialLogistic",
    "Poisson",
    "ReferenceLogistic",
    "logistic_regression",
]
