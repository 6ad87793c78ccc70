"""Linear models: a pointwise loss of z_j = a_j^T x over rows a_j, and an L2 term.

``model`` has what they share, ``logistic`` and ``least_squares`` their losses. May import from data and partition.
"""

from ownstep.problems.linear.least_squares import LeastSquares
from ownstep.problems.linear.logistic import BinaryLogistic, MultinomialLogistic, logistic_regression
from ownstep.problems.linear.model import LinearModel

__all__ = ["BinaryLogistic", "LeastSquares", "LinearModel", "MultinomialLogistic", "logistic_regression"]
