"""What is minimised: losses over the devices that hold the data."""

from ownstep.problems.base import Problem
from ownstep.problems.least_squares import LeastSquares
from ownstep.problems.linear import LinearModel
from ownstep.problems.logistic import BinaryLogistic, MultinomialLogistic, logistic
from ownstep.problems.optimum import Optimum, optimum

__all__ = [
    "BinaryLogistic",
    "LeastSquares",
    "LinearModel",
    "MultinomialLogistic",
    "Optimum",
    "Problem",
    "logistic",
    "optimum",
]
