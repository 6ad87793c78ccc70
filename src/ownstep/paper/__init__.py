"""The paper's experiments, one module each, on top of the public API only; what they share is in ``machinery/``.

``fig1_worst_cases/``, ``fig2_w8a``, ``fig4_cifar10``, ``fig5_sst2`` and ``appendix/`` are the paper's, ``ours/`` goes
beyond it. May import from every folder up to pep.

Every module has ``CLAIM`` (one sentence), ``SETTINGS`` (what, the paper's value, ours, why), ``run(quick, seed,
progress) -> plain data``, ``figure(result)`` and ``verdict(result)``: running, drawing and judging are separate.

What a module may have besides: ``run`` may take ``seeds`` (how many), ``device`` and ``pieces`` (parts that are kept
when a run is interrupted). For the report: ``SAYS`` (what the paper reports), ``WHY`` (why ours differs), ``NOTICE``
(what a reader must know first), each a sentence or a function of the result; ``charts(result)`` and ``PART``. A verdict
is a mapping of ``verdict`` (*holds*, *holds partly* or *does not hold here*), ``rule``, ``findings`` and, where there
are several runs, ``numbers`` with their bootstrap intervals (:func:`ownstep.paper.machinery.bootstrap.number`).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ownstep.support.errors import unknown_name
from ownstep.support.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)

EXPERIMENTS = {
    "pep-curves": "fig1_worst_cases.pep_curves",
    "pep-heterogeneity": "fig1_worst_cases.pep_heterogeneity",
    "pep-devices": "fig1_worst_cases.pep_devices",
    "theorem": "fig1_worst_cases.theorem",
    "w8a": "fig2_w8a",
    "cifar10": "fig4_cifar10",
    "sst2": "fig5_sst2",
    "mnist": "appendix.mnist",
    "dirichlet": "appendix.dirichlet",
    "devices": "appendix.number_of_devices",
    "gossip": "appendix.against_gossip",
    "fedopt": "appendix.against_fedopt",
    "participation": "appendix.absent_devices",
    "estimates": "ours.estimates",
    "attribution": "ours.attribution",
    "beyond": "ours.beyond",
    "which": "ours.which_method",
    "curvature": "ours.own_curvature",
    "gossip-worst-case": "ours.gossip_worst_case",
}
"""Name on the command line, and module in this package; in the paper's order."""


def load_experiment(name: str) -> Any:
    """The module of a named experiment."""
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, EXPERIMENTS)
    return import_module(f"ownstep.paper.{EXPERIMENTS[name]}")


__all__ += ["EXPERIMENTS", "load_experiment"]
