"""Divide and descend: every device takes its own step, then all take a common one.

>>> import ownstep
>>> data = ownstep.load("digits")
>>> rows, labels = data.table()
>>> split = ownstep.partition.by_norm(rows, devices=2)
>>> problem = ownstep.logistic_regression(rows, labels, split, mu=1e-3)
>>> history = ownstep.run(ownstep.OwnStep(), problem, rounds=50)
>>> history.rounds
50

Names are loaded when first used: importing the package is quick and brings in neither torch nor flwr.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ownstep.lazy import lazily

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ownstep import data, engines, methods, partition, pep, plan, plots, problems, smoothness
    from ownstep.data import load
    from ownstep.engines import (
        Bernoulli,
        Bursts,
        Cohort,
        Comparison,
        Outages,
        Stragglers,
        TimeModel,
        compare,
        price,
        run,
        tune,
    )
    from ownstep.errors import InvalidInput, OwnstepError
    from ownstep.history import History
    from ownstep.methods import (
        EXTRA,
        GD,
        ITEM,
        NIDS,
        OGM,
        AdGD,
        At,
        BarzilaiBorwein,
        DecentralisedGD,
        FedAdagrad,
        FedAdam,
        FedAvg,
        FedAvgM,
        FedProx,
        FedYogi,
        GradientTracking,
        HeavyBall,
        Mixing,
        Nesterov,
        NesterovRestart,
        Never,
        NormBelow,
        OwnStep,
        Plateau,
        Scaffold,
        Shrunk,
        mixing_matrix,
    )
    from ownstep.plan import Devices, Plan
    from ownstep.problems import BinaryLogistic, LeastSquares, MultinomialLogistic, logistic_regression, optimum
    from ownstep.smoothness import Smoothness, measure

_NAMES = {
    "data": ".data",
    "engines": ".engines",
    "methods": ".methods",
    "partition": ".partition",
    "pep": ".pep",
    "plan": ".plan",
    "plots": ".plots",
    "problems": ".problems",
    "smoothness": ".smoothness",
    "load": "data",
    "Bernoulli": "engines",
    "Comparison": "engines",
    "compare": "engines",
    "run": "engines",
    "InvalidInput": "errors",
    "OwnstepError": "errors",
    "History": "history",
    "At": "methods",
    "GD": "methods",
    "HeavyBall": "methods",
    "Nesterov": "methods",
    "Never": "methods",
    "NormBelow": "methods",
    "OwnStep": "methods",
    "Plateau": "methods",
    "EXTRA": "methods",
    "NIDS": "methods",
    "DecentralisedGD": "methods",
    "FedAdagrad": "methods",
    "FedAdam": "methods",
    "FedAvg": "methods",
    "FedAvgM": "methods",
    "FedProx": "methods",
    "FedYogi": "methods",
    "GradientTracking": "methods",
    "Mixing": "methods",
    "Scaffold": "methods",
    "mixing_matrix": "methods",
    "ITEM": "methods",
    "OGM": "methods",
    "AdGD": "methods",
    "BarzilaiBorwein": "methods",
    "NesterovRestart": "methods",
    "Shrunk": "methods",
    "Bursts": "engines",
    "Cohort": "engines",
    "Outages": "engines",
    "Stragglers": "engines",
    "TimeModel": "engines",
    "price": "engines",
    "tune": "engines",
    "Devices": "plan",
    "Plan": "plan",
    "BinaryLogistic": "problems",
    "LeastSquares": "problems",
    "MultinomialLogistic": "problems",
    "logistic_regression": "problems",
    "optimum": "problems",
    "Smoothness": "smoothness",
    "measure": "smoothness",
}


__getattr__ = lazily(__name__, _NAMES)


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMES])


__all__ = [
    "EXTRA",
    "GD",
    "ITEM",
    "NIDS",
    "OGM",
    "AdGD",
    "At",
    "BarzilaiBorwein",
    "Bernoulli",
    "BinaryLogistic",
    "Bursts",
    "Cohort",
    "Comparison",
    "DecentralisedGD",
    "Devices",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedProx",
    "FedYogi",
    "GradientTracking",
    "HeavyBall",
    "History",
    "InvalidInput",
    "LeastSquares",
    "Mixing",
    "MultinomialLogistic",
    "Nesterov",
    "NesterovRestart",
    "Never",
    "NormBelow",
    "Outages",
    "OwnStep",
    "OwnstepError",
    "Plan",
    "Plateau",
    "Scaffold",
    "Shrunk",
    "Smoothness",
    "Stragglers",
    "TimeModel",
    "compare",
    "data",
    "engines",
    "load",
    "logistic_regression",
    "measure",
    "methods",
    "mixing_matrix",
    "optimum",
    "partition",
    "pep",
    "plan",
    "plots",
    "price",
    "problems",
    "run",
    "smoothness",
    "tune",
]
