"""What is minimised: losses over the devices that hold the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ownstep.lazy import lazily
from ownstep.problems.base import Problem

if TYPE_CHECKING:
    from ownstep.problems.batches import PerDevice, Pooled, Stratified
    from ownstep.problems.least_squares import LeastSquares
    from ownstep.problems.linear import LinearModel
    from ownstep.problems.logistic import BinaryLogistic, MultinomialLogistic, logistic_regression
    from ownstep.problems.network import Network
    from ownstep.problems.penalties import SquaredL2, TensorNorms
    from ownstep.problems.reference import Optimum, optimum
    from ownstep.problems.samples import Blocks

__getattr__ = lazily(
    __name__,
    {
        "BinaryLogistic": "logistic",
        "Blocks": "samples",
        "LeastSquares": "least_squares",
        "LinearModel": "linear",
        "MultinomialLogistic": "logistic",
        "Network": "network",
        "Optimum": "reference",
        "PerDevice": "batches",
        "Pooled": "batches",
        "SquaredL2": "penalties",
        "Stratified": "batches",
        "TensorNorms": "penalties",
        "logistic_regression": "logistic",
        "optimum": "reference",
    },
)

__all__ = [
    "BinaryLogistic",
    "Blocks",
    "LeastSquares",
    "LinearModel",
    "MultinomialLogistic",
    "Network",
    "Optimum",
    "PerDevice",
    "Pooled",
    "Problem",
    "SquaredL2",
    "Stratified",
    "TensorNorms",
    "logistic_regression",
    "optimum",
]
