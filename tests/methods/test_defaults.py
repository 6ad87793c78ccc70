"""What a user gets who says nothing: the settings of the papers, where those name one, and the public promise."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ownstep.methods import METHODS
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput

SERVER = {"client_step": "largest", "server_step": 1.0}
ADAPTIVE = {"client_step": 0.1, "server_step": 0.1, "local_steps": 1, "tau": 1e-3, "v0": None}  # Reddi et al. 2021
GOSSIP = {"step": "largest", "graph": "ring", "rule": "metropolis", "weights": "samples"}
DEFAULTS = {
    "own_step": {"weights": "samples", "smoothness": "given", "momentum": None},
    "own_curvature": {"rank": None, "memory": 10, "sketch": "own", "revealing": False, "seed": 0},
    "gd": {"step": "mean"},  # 1/L-bar, the paper's baseline
    "heavy_ball": {"step": "mean", "momentum": None},
    "nesterov": {"step": "true", "momentum": None},
    "nesterov_restart": {"step": "true"},
    "adgd": {"version": 2},
    "barzilai_borwein": {"secant": "short"},
    "ogm": {"step": "true", "horizon": None},
    "item": {"step": "true"},
    "triple_momentum": {"step": "true"},
    "lbfgs": {"memory": 10},
    "newton": {},
    "giant": {"prox": 0.0},
    "dane": {"prox": 0.0},
    "shed": {"vectors": 5},
    "schedule": {"scales": (), "momentum": (), "after": 1.0},
    "decentralised_gd": GOSSIP | {"order": "cta"},
    "gradient_tracking": GOSSIP | {"order": "cta"},
    "extra": GOSSIP,
    "nids": GOSSIP,
    "fedavg": SERVER | {"local_steps": 1},
    "fedavgm": SERVER | {"local_steps": 1, "momentum": 0.9},
    "fedadagrad": ADAPTIVE | {"beta_1": 0.0},
    "fedadam": ADAPTIVE | {"beta_1": 0.9, "beta_2": 0.99, "bias_correction": "none"},
    "fedyogi": ADAPTIVE | {"beta_1": 0.9, "beta_2": 0.99},
    "scaffold": {"client_step": None, "server_step": 1.0, "local_steps": 5},
    "fedprox": SERVER | {"local_steps": 5, "prox": 0.1},
    "fednova": SERVER | {"local_steps": 5},
    "fedexp": SERVER | {"local_steps": 5, "epsilon": 1e-3},  # Jhunjhunwala et al. 2023
    "feddyn": {"client_step": None, "local_steps": 5, "alpha": None},
    "fedsps": {"client_step": 1.0, "server_step": 1.0, "local_steps": 5, "c": 0.5, "lower": 0.0},
    "delta_sgd": {  # Kim et al. 2024
        "client_step": 0.2, "server_step": 1.0, "local_steps": 5, "gamma": 2.0, "delta": 0.1, "theta": 1.0,
    },
    "scaffnew": {"client_step": "largest", "p": None, "seed": 0},
    "fedlin": {"client_step": "largest", "local_steps": 5},
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_defaults(name):
    plain = {f.name: f.default for f in dataclasses.fields(METHODS[name]) if f.default is not dataclasses.MISSING}
    assert plain == DEFAULTS[name]


MEAN_L = 2.8  # of the devices below
STEPS = {"client_step": tuple(2.0**i / MEAN_L for i in range(-2, 7))}
TENTHS = tuple(10.0 ** (i / 2) for i in range(-6, 3))
SPACES = {
    "decentralised_gd": {"step": STEPS["client_step"]},
    "gradient_tracking": {"step": STEPS["client_step"]},
    "extra": {"step": STEPS["client_step"]},
    "nids": {"step": STEPS["client_step"]},
    "fedavg": STEPS,
    "fedavgm": STEPS | {"momentum": (0.0, 0.7, 0.9, 0.97, 0.99)},
    "fedadagrad": {"server_step": TENTHS, "client_step": TENTHS},
    "fedadam": {"server_step": TENTHS, "client_step": TENTHS},
    "fedyogi": {"server_step": TENTHS, "client_step": TENTHS},
    "scaffold": STEPS,
    "fedprox": STEPS | {"prox": (0.001, 0.01, 0.1, 1.0)},
    "fednova": STEPS,
    "fedexp": STEPS | {"epsilon": (1e-4, 1e-3, 1e-2, 1e-1)},
    "feddyn": STEPS | {"alpha": (0.0625, 0.25, 1.0, 4.0, 16.0)},
    "fedsps": {"client_step": TENTHS, "c": (0.25, 0.5, 1.0, 2.0)},
    "delta_sgd": {"client_step": TENTHS},
    "scaffnew": STEPS | {"p": (1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125)},
    "fedlin": STEPS,
}
"""What a fair search tries: steps around 1/L-bar in factors of 2, or around 1 in factors of the root of 10."""


@pytest.mark.parametrize("name", [n for n, kind in METHODS.items() if hasattr(kind, "search_space")])
def test_what_is_searched(name):
    devices = Devices(np.array([0.2, 0.3, 0.5]), np.array([1.0, 2.0, 4.0]), np.array([0.1, 0.1, 0.2]))
    space = METHODS[name]().search_space(devices)
    assert space.keys() == SPACES[name].keys()
    for field, values in space.items():
        np.testing.assert_allclose(values, SPACES[name][field], rtol=1e-12)


NOT_NUMBERS = {"weights", "smoothness", "sketch", "revealing", "switch", "secant", "graph", "rule", "order"}
NOT_NUMBERS |= {"bias_correction", "scales"}
FREE = {("nesterov", "momentum", -1.0), ("fedsps", "lower", -1.0)}
"""Numbers that may be below zero: a momentum that pulls back, a bound below the losses."""


def begun(kind, given, devices):
    """Some checks need the devices."""
    method = kind(**given)
    return method.ask(method.start(np.zeros(2), devices))


@pytest.mark.parametrize("name", METHODS)
def test_every_number_of_every_method_is_checked(name):
    """Inherited ones too: nothing that is no number, and nothing below zero, begins a run."""
    devices = Devices(np.array([0.25, 0.75]), np.array([1.0, 3.0]), np.array([0.5, 0.1]), L_pooled=2.0)
    for field in dataclasses.fields(METHODS[name]):
        if not field.init or field.name in NOT_NUMBERS:
            continue
        for bad in (np.nan, np.inf, -np.inf, -1.0):
            if (name, field.name, bad) not in FREE and (name, field.name) != ("schedule", "momentum"):
                with pytest.raises(InvalidInput):
                    begun(METHODS[name], {field.name: bad}, devices)
