"""The paper's experiments, one module each, on top of the public API only.

Every module has ``CLAIM`` (one sentence), ``SETTINGS`` (what, the paper's value, ours, why), ``run(quick, seed,
progress) -> plain data``, ``figure(result)`` and ``verdict(result)``: running, drawing and judging are separate.

What a module may have besides: ``run`` may take ``seeds`` (how many), ``device`` and ``pieces`` (parts that are kept
when a run is interrupted). For the report: ``SAYS`` (what the paper reports), ``WHY`` (why ours differs), ``NOTICE``
(what a reader must know first), each a sentence or a function of the result; ``charts(result)`` and ``PART``. A verdict
is a mapping of ``verdict`` (*holds*, *holds partly* or *does not hold here*), ``rule``, ``findings`` and, where there
are several runs, ``numbers`` with their bootstrap intervals (:func:`ownstep.paper.bootstrap.number`).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ownstep.errors import unknown_name
from ownstep.lazy import lazily

EXPERIMENTS = {
    "pep-curves": "pep_curves",
    "pep-heterogeneity": "pep_heterogeneity",
    "pep-devices": "pep_devices",
    "theorem": "theorem",
    "w8a": "w8a",
    "cifar10": "cifar10",
    "sst2": "sst2",
    "mnist": "mnist",
    "dirichlet": "dirichlet",
    "devices": "devices",
    "gossip": "gossip",
    "fedopt": "fedopt",
    "participation": "participation",
    "estimates": "estimates",
    "attribution": "attribution",
    "beyond": "beyond",
}
"""Name on the command line, and module in this package; in the paper's order."""


def load_experiment(name: str) -> Any:
    """The module of a named experiment."""
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, EXPERIMENTS)
    return import_module(f"ownstep.paper.{EXPERIMENTS[name]}")


__getattr__ = lazily(
    "ownstep.paper",
    {name: "conducting" for name in ("Pieces", "conduct", "conduct_all", "judge_again", "on_disk", "provenance")},
)
