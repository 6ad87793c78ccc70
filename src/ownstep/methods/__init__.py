"""How the iterate moves: one file a family, every method written once as ask and tell."""

from __future__ import annotations

from ownstep.errors import InvalidInput, unknown_name
from ownstep.methods.adaptive import FedAdagrad, FedAdam
from ownstep.methods.adgd import AdGD
from ownstep.methods.barzilai import BarzilaiBorwein
from ownstep.methods.base import Answer, Ask, LocalWork, Method, Progress, Vector, alike, norm
from ownstep.methods.descent import GD
from ownstep.methods.extra import EXTRA, NIDS
from ownstep.methods.fedopt import FedAvg, FedAvgM
from ownstep.methods.fedprox import FedProx
from ownstep.methods.gossip import DecentralisedGD, GradientTracking
from ownstep.methods.graphs import GRAPHS, mixing_matrix
from ownstep.methods.item import ITEM
from ownstep.methods.mixing import Mixing
from ownstep.methods.momentum import HeavyBall, Nesterov
from ownstep.methods.optimal import OGM
from ownstep.methods.own_adaptive import AdaptiveOwnStep
from ownstep.methods.own_momentum import MomentumOwnStep
from ownstep.methods.own_step import OwnStep
from ownstep.methods.plateau import Plateau
from ownstep.methods.restart import NesterovRestart
from ownstep.methods.scaffold import Scaffold
from ownstep.methods.schedule import Schedule
from ownstep.methods.steps import STEPS
from ownstep.methods.switch import At, Never, NormBelow, Shrunk, Switch, Watch
from ownstep.methods.yogi import FedYogi

METHODS: dict[str, type] = {
    "own_step": OwnStep,
    "gd": GD,
    "heavy_ball": HeavyBall,
    "nesterov": Nesterov,
    "nesterov_restart": NesterovRestart,
    "adgd": AdGD,
    "barzilai_borwein": BarzilaiBorwein,
    "ogm": OGM,
    "item": ITEM,
    "schedule": Schedule,
    "decentralised_gd": DecentralisedGD,
    "gradient_tracking": GradientTracking,
    "extra": EXTRA,
    "nids": NIDS,
    "fedavg": FedAvg,
    "fedavgm": FedAvgM,
    "fedadagrad": FedAdagrad,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
    "scaffold": Scaffold,
    "fedprox": FedProx,
}
"""Every method by name. A new one is one file and one line here; the contract tests then run it."""


def parse_switch(text: str) -> Switch:
    """A switch from its command-line form: ``plateau``, ``never``, ``at:10``, ``norm:1e-3`` or ``shrunk:0.1``."""
    name, _, argument = text.partition(":")
    try:
        if name == "plateau" and not argument:
            return Plateau()
        if name == "never" and not argument:
            return Never()
        if name == "at":
            return At(int(argument))
        if name == "norm":
            return NormBelow(float(argument))
        if name == "shrunk":
            return Shrunk(float(argument)) if argument else Shrunk()
    except ValueError as error:
        raise InvalidInput(f"switch {text!r} cannot be read: {error}") from None
    raise unknown_name("switch", text, ["plateau", "never", "at:ROUND", "norm:EPS", "shrunk:SHARE"])


__all__ = [
    "EXTRA",
    "GD",
    "GRAPHS",
    "ITEM",
    "METHODS",
    "NIDS",
    "OGM",
    "STEPS",
    "AdGD",
    "AdaptiveOwnStep",
    "Answer",
    "Ask",
    "At",
    "BarzilaiBorwein",
    "DecentralisedGD",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedProx",
    "FedYogi",
    "GradientTracking",
    "HeavyBall",
    "LocalWork",
    "Method",
    "Mixing",
    "MomentumOwnStep",
    "Nesterov",
    "NesterovRestart",
    "Never",
    "NormBelow",
    "OwnStep",
    "Plateau",
    "Progress",
    "Scaffold",
    "Schedule",
    "Shrunk",
    "Switch",
    "Vector",
    "Watch",
    "alike",
    "mixing_matrix",
    "norm",
    "parse_switch",
]
