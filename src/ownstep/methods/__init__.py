"""How the iterate moves: one folder per family, one file per method, each written once as ask and tell.

``base`` is the contract, ``own/own_step`` Algorithm 1; ``local_work`` is what devices do between two rounds. May import
from every folder up to plan.
"""

from __future__ import annotations

from ownstep.methods.base import Answer, Ask, Method, Progress, SketchWork, Vector, alike, norm
from ownstep.methods.federated.delta_sgd import DeltaSGD
from ownstep.methods.federated.fedadam import FedAdagrad, FedAdam
from ownstep.methods.federated.fedavg import FedAvg, FedAvgM
from ownstep.methods.federated.feddyn import FedDyn
from ownstep.methods.federated.fedexp import FedExP
from ownstep.methods.federated.fedlin import FedLin
from ownstep.methods.federated.fednova import FedNova
from ownstep.methods.federated.fedprox import FedProx
from ownstep.methods.federated.fedsps import FedSPS
from ownstep.methods.federated.fedyogi import FedYogi
from ownstep.methods.federated.scaffnew import Scaffnew
from ownstep.methods.federated.scaffold import Scaffold
from ownstep.methods.gossip.dgd import DecentralisedGD, GradientTracking
from ownstep.methods.gossip.extra import EXTRA, NIDS
from ownstep.methods.gossip.graphs import GRAPHS, mixing_matrix
from ownstep.methods.gossip.mixing import Mixing
from ownstep.methods.local_work import LocalWork
from ownstep.methods.naming import key_of, method_of, methods_of
from ownstep.methods.newton_type.dane import DANE
from ownstep.methods.newton_type.giant import GIANT
from ownstep.methods.newton_type.shed import SHED
from ownstep.methods.own.curvature import OwnCurvature
from ownstep.methods.own.own_adaptive import AdaptiveOwnStep
from ownstep.methods.own.own_momentum import MomentumOwnStep
from ownstep.methods.own.own_step import OwnStep
from ownstep.methods.own.plateau import Plateau
from ownstep.methods.own.schedule import Schedule
from ownstep.methods.own.switch import At, Never, NormBelow, Shrunk, Switch, Watch
from ownstep.methods.pooled.adgd import AdGD
from ownstep.methods.pooled.barzilai_borwein import BarzilaiBorwein
from ownstep.methods.pooled.gd import GD
from ownstep.methods.pooled.item import ITEM
from ownstep.methods.pooled.lbfgs import LBFGS
from ownstep.methods.pooled.momentum import HeavyBall, Nesterov
from ownstep.methods.pooled.newton import Newton
from ownstep.methods.pooled.ogm import OGM
from ownstep.methods.pooled.restart import NesterovRestart
from ownstep.methods.pooled.triple_momentum import TripleMomentum
from ownstep.methods.steps import STEPS
from ownstep.smoothness.sketch import Sketch
from ownstep.support.errors import InvalidInput, unknown_name

METHODS: dict[str, type] = {
    "own_step": OwnStep,
    "own_curvature": OwnCurvature,
    "gd": GD,
    "heavy_ball": HeavyBall,
    "nesterov": Nesterov,
    "nesterov_restart": NesterovRestart,
    "adgd": AdGD,
    "barzilai_borwein": BarzilaiBorwein,
    "ogm": OGM,
    "item": ITEM,
    "triple_momentum": TripleMomentum,
    "lbfgs": LBFGS,
    "newton": Newton,
    "giant": GIANT,
    "dane": DANE,
    "shed": SHED,
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
    "fednova": FedNova,
    "fedexp": FedExP,
    "feddyn": FedDyn,
    "fedsps": FedSPS,
    "delta_sgd": DeltaSGD,
    "scaffnew": Scaffnew,
    "fedlin": FedLin,
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
    "DANE",
    "EXTRA",
    "GD",
    "GIANT",
    "GRAPHS",
    "ITEM",
    "LBFGS",
    "METHODS",
    "NIDS",
    "OGM",
    "SHED",
    "STEPS",
    "AdGD",
    "AdaptiveOwnStep",
    "Answer",
    "Ask",
    "At",
    "BarzilaiBorwein",
    "DecentralisedGD",
    "DeltaSGD",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedDyn",
    "FedExP",
    "FedLin",
    "FedNova",
    "FedProx",
    "FedSPS",
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
    "Newton",
    "NormBelow",
    "OwnCurvature",
    "OwnStep",
    "Plateau",
    "Progress",
    "Scaffnew",
    "Scaffold",
    "Schedule",
    "Shrunk",
    "Sketch",
    "SketchWork",
    "Switch",
    "TripleMomentum",
    "Vector",
    "Watch",
    "alike",
    "key_of",
    "method_of",
    "methods_of",
    "mixing_matrix",
    "norm",
    "parse_switch",
]
