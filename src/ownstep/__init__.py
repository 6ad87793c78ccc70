"""Optimise over data that is split: every device takes its own step, then all take a common one.

>>> import ownstep
>>> data = ownstep.load("digits")
>>> rows, labels = data.table()
>>> split = ownstep.partition.by_norm(rows, devices=2)
>>> problem = ownstep.logistic_regression(rows, labels, split, mu=1e-3)
>>> history = ownstep.run(ownstep.OwnStep(), problem, rounds=50)
>>> history.rounds
50

The public names stand in ``__init__.pyi``. Each is loaded when first used: importing the package is quick and brings in
neither torch nor flwr.
"""

from ownstep.support.lazy import attach, keep_old_names

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = attach(__name__, __file__)

keep_old_names(
    {
        "ownstep.errors": "ownstep.support.errors",
        "ownstep.engines.federation_site": "ownstep.engines.federation.site",
        "ownstep.engines.federation_secure": "ownstep.engines.federation.secure",
        "ownstep.engines.stacked": "ownstep.engines.local.stacked",
        "ownstep.federate": "ownstep.engines.federation.app",
        "ownstep.federate.certificates": "ownstep.engines.federation.loopback.keys",
        "ownstep.federate.loopback": "ownstep.engines.federation.loopback",
        "ownstep.problems.batches": "ownstep.problems.network.batches",
        "ownstep.problems.encoder": "ownstep.problems.network.encoder",
        "ownstep.problems.models": "ownstep.problems.network.models",
        "ownstep.problems.stack": "ownstep.problems.network.stack",
        "ownstep.problems.text": "ownstep.problems.network.text",
        "ownstep.pep.check": "ownstep.pep.proof.check",
    }
)
