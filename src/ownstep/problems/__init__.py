"""What is minimised: losses over the devices that hold the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ownstep.lazy import lazily
from ownstep.problems.base import Problem

if TYPE_CHECKING:
    from ownstep.problems.least_squares import LeastSquares
    from ownstep.problems.linear import LinearModel
    from ownstep.problems.logistic import BinaryLogistic, MultinomialLogistic, logistic_regression
    from ownstep.problems.reference import Optimum, optimum

__getattr__ = lazily(
    __name__,
    {
        "BinaryLogistic": "logistic",
        "LeastSquares": "least_squares",
        "LinearModel": "linear",
        "MultinomialLogistic": "logistic",
        "Optimum": "reference",
        "logistic_regression": "logistic",
        "optimum": "reference",
    },
)

__all__ = [
    "BinaryLogistic",
    "LeastSquares",
    "LinearModel",
    "MultinomialLogistic",
    "Optimum",
    "Problem",
    "logistic_regression",
    "optimum",
]
