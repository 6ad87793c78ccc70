"""Every method against the loop of its paper, iterate by iterate, on devices that differ in everything."""

from __future__ import annotations

import itertools
import re
from contextlib import contextmanager

import numpy as np
import pytest

from ownstep import engines
from ownstep.engines.local.answering import Answering
from ownstep.methods import (
    EXTRA,
    METHODS,
    NIDS,
    SHED,
    At,
    DecentralisedGD,
    DeltaSGD,
    FedAdam,
    FedAvg,
    FedDyn,
    FedExP,
    FedLin,
    FedNova,
    FedProx,
    FedSPS,
    GradientTracking,
    Never,
    NormBelow,
    OwnCurvature,
    OwnStep,
    Plateau,
    Scaffnew,
    Scaffold,
    Schedule,
)
from ownstep.methods.federated.fedopt import FedOpt
from ownstep.methods.gossip.peers import Peers
from ownstep.support.errors import InvalidInput

from .literal import LITERAL
from .test_methods import CASES
from .world import make_world, named

ROUNDS = 50
SOON = {"lbfgs": 14, "newton": 10, "own_curvature": 8, "giant": 16, "dane": 16, "shed": 7}
"""Rounds after which a fast method is done: what follows is rounding."""
MORE = {
    "own_step": [
        OwnStep(At(0)),
        OwnStep(At(1), momentum="nesterov"),
        OwnStep(Never(), "uniform"),
        OwnStep(Plateau(), "uniform"),
        OwnStep(NormBelow(0.05), "uniform", momentum="item"),
        OwnStep(Plateau(), momentum="nesterov"),
    ],
    "own_curvature": [OwnCurvature(4, 2), OwnCurvature(5, sketch="sum", seed=3)],
    "shed": [SHED(3)],
    "schedule": [Schedule(((1.1, 0.7, 1.3, 0.9), (0.8,), (1.5, 0.2, 0.4, 1.0)), ((0.3, 0.1), (0.2, 0.4), (0.5, 0.0)))],
    "decentralised_gd": [
        DecentralisedGD("mean", weights="uniform", order="atc"),
        DecentralisedGD("largest", "path", order="atc"),
    ],
    "gradient_tracking": [GradientTracking(0.03, "star", "lazy", "uniform")],
    "extra": [EXTRA("largest", "path", "lazy", "uniform")],
    "nids": [NIDS("mean", "star"), NIDS("own", "ring", "lazy", "uniform")],
    "fedavg": [
        FedAvg("matched", 0.7),
        FedAvg("true", 0.8),
        FedAvg(0.05, 0.9, 3),
        FedAvg("own", 0.9),
        FedAvg("own", 0.8, 3),
    ],
    "fedprox": [FedProx("own", 0.9, 3, 0.7)],
    "fedadam": [FedAdam(0.1, 0.05, 2, beta_1=0.5, beta_2=0.7, bias_correction="adam")],
    "scaffold": [Scaffold("mean", 0.6, 3)],
    "fednova": [FedNova(0.05, 0.8, (5, 1, 2, 4)), FedNova(local_steps=(3, 3, 3, 3))],
    "fedexp": [FedExP(epsilon=0.05), FedExP(0.02, 0.9, 3, 0.01)],
    "feddyn": [FedDyn(0.06, 3, 0.7)],
    "fedsps": [FedSPS(), FedSPS(0.4, 0.8, 3, 1.5, (0.1, 0.0, 0.05, 0.02))],
    "delta_sgd": [DeltaSGD(0.01, 0.7, 8, 1.0, 0.4, 0.3)],
    "fedlin": [FedLin("mean", (5, 1, 2, 4))],
    "scaffnew": [Scaffnew(0.07, 0.3, seed=11)],
}
"""Beside CASES: parameters at which a mistake shows that the defaults hide."""
PAIRS = [
    pytest.param(name, method, id=f"{name}-{i}")
    for name in METHODS
    for i, method in enumerate([*CASES.get(name, []), *MORE.get(name, [])])
]


def test_every_method_has_a_literal_loop():
    """Add yours to LITERAL in literal.py: about ten lines from its paper, without the library."""
    assert set(LITERAL) == set(METHODS)


def test_the_devices_differ_in_everything():
    world = make_world()
    for numbers in (world.w, world.L, world.mu, world.w * world.L, [len(b) for b in world.b]):
        assert len(np.unique(np.round(numbers, 6))) == world.n
    assert not np.allclose(world.w, world.problem.counts / world.problem.counts.sum(), atol=0.03)


WORLDS = {"unequal": {}, "mu is 0": {"flat": True}, "one device": {"devices": 1, "ridge": 0.5}}


@contextmanager
def for_four_devices(world):
    """Some settings are one number per device, for the four devices of the worlds that have four."""
    try:
        yield
    except InvalidInput as error:
        if world.n == 4 or not re.search("for 1 devices|not for 1", str(error)):
            raise
        pytest.skip("its settings are for four devices")


@pytest.mark.parametrize("options", WORLDS.values(), ids=WORLDS)
@pytest.mark.parametrize(("name", "method"), PAIRS)
def test_it_is_the_loop_of_its_paper(name, method, options):
    world, points = make_world(**options), []
    rounds = min(SOON.get(name, ROUNDS), 30 if world.n == 1 else ROUNDS)
    with for_four_devices(world):
        history = engines.run(
            method, world.problem, rounds, devices=world.devices, x0=world.x0, observe=lambda k, x: points.append(x)
        )
    assert history.rounds == rounds
    expected = [world.x0, *itertools.islice(LITERAL[name](method, world), rounds)]
    for k, (x, written) in enumerate(zip(points, expected, strict=True)):
        np.testing.assert_allclose(x, written, rtol=0, atol=1e-12 * max(1, abs(written).max()), err_msg=f"x^{k}")
    np.testing.assert_allclose(history.value, [world.f(x) for x in expected], rtol=1e-11)


@pytest.mark.parametrize(("name", "method"), PAIRS)
def test_it_counts_its_rounds_and_reports_its_mean_step(name, method):
    """The step is sum_i c_i of what is asked for, times the method's own common step where it has one."""
    world = make_world()
    answering, state = Answering(world.problem, None), method.start(world.x0, world.devices)
    for k in range(12):
        assert state.k == k
        ask, said = method.ask(state), method.progress(state)
        if isinstance(method, Peers):
            alpha = np.broadcast_to(method.step, 4) if not isinstance(method.step, str) else state.steps
            assert said.step == pytest.approx(
                sum((world.w if method.weights == "samples" else np.full(4, 0.25)) * alpha)
            )
        elif isinstance(method, FedOpt | Scaffold):
            assert said.step == pytest.approx(method.server_step * state.client_step)
        elif isinstance(method, OwnStep | Schedule) and not getattr(method, "constant_free", False):
            assert said.step == pytest.approx(sum(ask.mix))
            assert said.phase in ("local", "probe", "common")
        elif hasattr(method, "step"):
            assert said.step == pytest.approx(named(method.step, world))
            assert said.phase == "common"
        state = method.tell(state, answering(ask, np.ones(4, bool)).answer)


@pytest.mark.parametrize(("name", "method"), PAIRS)
def test_rounds_are_counted_whoever_comes(name, method):
    """And where nobody comes, what the server's rule makes of no news is a finite point."""
    if getattr(method, "needs_everyone", False):
        pytest.skip("it needs every device in every round")
    world, rng = make_world(), np.random.default_rng(5)
    answering, state = Answering(world.problem, "drop" if isinstance(method, Peers) else "rescale"), None
    state = method.start(world.x0, world.devices)
    for k in range(24):
        assert state.k == k
        here = np.full(4, k % 6 != 5) if k % 3 == 2 else rng.random(4) < 0.7
        state = method.tell(state, answering(method.ask(state), here).answer)
        assert np.isfinite(method.point(state)).all()


@pytest.mark.parametrize(("name", "method"), PAIRS)
def test_single_precision_follows_the_same_loop(name, method):
    world, points = make_world(), []
    rounds = {"newton": 1}.get(name, 6)
    engines.run(
        method, world.single, rounds, devices=world.devices, x0=world.x0.astype(np.float32),
        observe=lambda k, x: points.append(x),
    )  # fmt: skip
    expected = [world.x0, *itertools.islice(LITERAL[name](method, world), rounds)]
    for x, written in zip(points, expected, strict=True):
        assert x.dtype == np.float32
        np.testing.assert_allclose(x, written, rtol=0, atol=2e-4 * max(1, abs(written).max()))
