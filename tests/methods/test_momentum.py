"""Own steps with momentum: the methods they consist of, and their worst cases."""

from __future__ import annotations

import numpy as np
import pytest

from ownstep.engines import describe, run
from ownstep.methods import ITEM, Answer, At, MomentumOwnStep, Nesterov, Never, OwnStep, Shrunk, parse_switch
from ownstep.pep import worst_case
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput

from ..conftest import make_least_squares, make_logistic


@pytest.mark.parametrize(("momentum", "pooled"), [("nesterov", Nesterov("mean")), ("item", ITEM("mean"))])
def test_without_a_local_phase_it_is_the_pooled_method(momentum, pooled):
    problem = make_logistic()
    own = run(OwnStep(At(0), momentum=momentum), problem, 40)
    np.testing.assert_allclose(own.x, run(pooled, problem, 40).x, rtol=1e-10)
    assert isinstance(OwnStep(momentum=momentum), MomentumOwnStep)


@pytest.mark.parametrize("momentum", ["nesterov", "item"])
def test_its_local_phase_is_the_pooled_method_on_the_reweighted_loss(momentum):
    """With c = sum_i w_i / L_i, the loss sum_i w_i f_i / (c L_i) has smoothness at most 1/c and strong convexity mu."""
    problem = make_least_squares()
    devices = describe(problem).devices
    c = devices.mean_step
    other = problem.reweighted(devices.weights / devices.L)
    pooled = Nesterov(c) if momentum == "nesterov" else ITEM(c)
    own = run(OwnStep(Never(), momentum=momentum), problem, 30)
    np.testing.assert_allclose(own.x, run(pooled, other, 30).x, rtol=1e-9)


def test_at_the_switch_it_starts_from_rest():
    problem = make_logistic()
    first = run(OwnStep(Never(), momentum="item"), problem, 7)
    second = run(ITEM("mean"), problem, 20, x0=first.x)
    np.testing.assert_allclose(run(OwnStep(At(7), momentum="item"), problem, 27).x, second.x, rtol=1e-9)


def test_shrunk_switches_at_its_share():
    history = run(OwnStep(Shrunk(0.2)), make_least_squares(), 100)
    local = run(OwnStep(Never()), make_least_squares(), history.switched_at + 1)
    L = describe(make_least_squares()).devices
    sizes = []

    def observe(k, x):
        sizes.append(np.linalg.norm(make_least_squares().mix(x, L.weights / L.L)[1]))

    run(OwnStep(Never()), make_least_squares(), history.switched_at, observe=observe)
    below = [k + 1 for k, size in enumerate(sizes) if size <= 0.2 * sizes[0]]
    assert history.switched_at == below[0]
    assert "0.2 of the first" in history.switch_why
    assert local.rounds == history.switched_at + 1
    assert parse_switch("shrunk:0.2") == Shrunk(0.2)
    assert parse_switch("shrunk") == Shrunk()
    with pytest.raises(InvalidInput, match="a share between 0 and 1, got 1"):
        Shrunk(1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("momentum", "switch", "rstar", "known"),
    [("nesterov", 8, 0.1, 0.00079), ("nesterov", 3, 0.3, 0.00185), ("item", 5, 0.1, 1.5e-5)],
)
def test_worst_cases_beat_the_pooled_method_s(momentum, switch, rstar, known):
    """L = (1/3, 3), mu = 0.1, 20 rounds: Nesterov has 0.00475 and ITEM, optimal with grad f alone, 0.00003.

    Without effort only the first solve is made; it proves an upper bound all the same.
    """
    devices = Devices.uniform([1 / 3, 3], 0.1)
    own = worst_case(OwnStep(At(switch), momentum=momentum), devices, 20, 1.0, rstar, "distance", effort=0)
    pooled = {"nesterov": Nesterov("mean"), "item": ITEM("mean")}[momentum]
    assert own.upper <= known
    assert own.upper < 0.55 * worst_case(pooled, devices, 20, 1.0, rstar, "distance").lower


@pytest.mark.parametrize("momentum", ["nesterov", "item"])
@pytest.mark.parametrize("L", [[1.0, 1.0], [1.0, 2.0]])
def test_where_every_f_i_is_one_quadratic_a_common_round_is_the_end(momentum, L):
    """mu_i = L_i: both phases have condition number 1."""
    method = OwnStep(At(1), momentum=momentum)
    assert worst_case(method, Devices.uniform(L, L), 3, 1.0, 0.5, "distance").upper <= 1e-9
    with pytest.raises(InvalidInput, match="alpha mu < 1"):
        worst_case(ITEM("mean"), Devices.uniform(L, L), 3)


def test_it_says_what_goes_together():
    with pytest.raises(InvalidInput, match="unknown momentum of own steps 'nestrov'. Did you mean 'nesterov'"):
        OwnStep(momentum="nestrov")
    with pytest.raises(InvalidInput, match="momentum='item' needs the constants L_i"):
        OwnStep(smoothness="adaptive", momentum="item")


def test_where_every_loss_is_a_round_bowl_momentum_is_one_gradient_step():
    """mu_i = L_i, so q = 1: own steps land on sum_i w_i a_i at once, the bowls' weighted middle, and stay there."""
    w, L, a = np.array([0.5, 0.2, 0.3]), np.array([1.0, 4.0, 9.0]), np.array([[1.0, 0.0], [-2.0, 5.0], [3.0, 3.0]])
    method = OwnStep(Never(), momentum="item")
    state = method.start(np.array([7.0, -7.0]), Devices(w, L, L))
    for _ in range(3):
        ask = method.ask(state)
        state = method.tell(state, Answer((ask.mix * L) @ (ask.x - a), 0.0))
        np.testing.assert_allclose(method.point(state), w @ a, atol=1e-12)
