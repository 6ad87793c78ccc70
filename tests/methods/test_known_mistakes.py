"""Mistakes that public implementations of federated methods have, each made here on purpose.

A test shows two things: that the mistake gives other iterates (so that it would be seen), and what it costs, where that
is known. The right iterates are those of the library; the loops below are theirs but for one line.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from ownstep import partition
from ownstep.engines import Bernoulli, describe, run
from ownstep.methods import Answer, DeltaSGD, FedAdam, FedAvg, FedDyn, FedExP, FedNova, FedProx, Scaffnew, Scaffold
from ownstep.plan import Devices
from ownstep.problems import LeastSquares, optimum

from ..contract.world import make_world

FAR = 1e-4
"""By how much a mistake has to change the last iterate to be called one."""


def scaffold_loop(world, eta, steps, rounds, rule=None, mistake=""):
    """SCAFFOLD with option II, or with one line changed."""
    x, n = world.x0, world.n
    c_i = [0 * x for _ in range(n)]
    c = 0 * x
    for k in range(rounds):
        here = list(range(n)) if rule is None else np.flatnonzero(rule.present(k, n)).tolist()
        if not here:
            continue
        share = sum(world.w[i] for i in here)
        fresh, moves = dict(enumerate(c_i)), {}
        for i in here:
            y = x
            for _ in range(steps):
                if mistake == "c scaled in the steps alone":
                    y = y - eta * (world.gradient(i, y) - c_i[i] + c / (n * world.w[i]))
                else:
                    y = y - eta * (world.gradient(i, y) - c_i[i] + c)
            moves[i] = y - x
            fresh[i] = c_i[i] - c + (x - y) / (steps * eta)  # option II
            if mistake == "options mixed":
                fresh[i] = world.gradient(i, x) - c  # the gradient of option I, corrected by c as in option II
            if mistake == "no division by the number of steps":
                fresh[i] = c_i[i] - c + (x - y) / eta
        if mistake == "absent devices forget":
            fresh = {i: fresh[i] if i in here else 0 * x for i in range(n)}
        if mistake == "mean over those present":
            c = c + sum(world.w[i] * (fresh[i] - c_i[i]) for i in here) / share
            c_i = [fresh[i] for i in range(n)]
        else:
            c_i = [fresh[i] for i in range(n)]
            c = sum(world.w[i] * c_i[i] for i in range(n))
        weights = {i: world.w[i] / share for i in here}
        if mistake == "plain mean":
            weights = {i: 1 / len(here) for i in here}
        x = x + sum(weights[i] * moves[i] for i in here)
    return x


def ours(method, world, rounds, rule=None):
    return run(method, world.problem, rounds, devices=world.devices, x0=world.x0, participation=rule).x


def distance(a, b):
    return float(np.linalg.norm(a - b))


@pytest.mark.parametrize(
    "mistake", ["options mixed", "no division by the number of steps", "c scaled in the steps alone", "plain mean"]
)
def test_scaffold_with_a_wrong_line_is_another_method(mistake):
    """Option I takes c_i^+ = grad f_i(x), option II c_i - c + (x - y_i)/(E eta); one half of each is neither."""
    world, eta, steps, rounds = make_world(), 0.02, 4, 12
    right = scaffold_loop(world, eta, steps, rounds)
    np.testing.assert_allclose(ours(Scaffold(eta, local_steps=steps), world, rounds), right, atol=1e-12)
    assert distance(scaffold_loop(world, eta, steps, rounds, mistake=mistake), right) > FAR


@pytest.mark.parametrize("mistake", ["absent devices forget", "mean over those present"])
def test_the_control_variate_of_an_absent_device_stays_and_counts(mistake):
    """c is the mean over all devices, those who are away included; otherwise SCAFFOLD does not end at the minimiser."""
    world, rule = make_world(), Bernoulli(0.5, seed=6)
    best = optimum(world.problem).x
    right = scaffold_loop(world, 0.05, 3, 400, rule)
    np.testing.assert_allclose(ours(Scaffold(0.05, local_steps=3), world, 400, rule), right, atol=1e-10)
    wrong = scaffold_loop(world, 0.05, 3, 400, rule, mistake)
    assert not distance(wrong, best) < 100 * distance(right, best)


def test_plain_means_minimise_another_function():
    """Averaging models without their weights ends at the minimiser of the plain mean of the f_i."""
    world = make_world()
    problem = world.problem
    equal = problem.reweighted(np.ones(4))
    weighted, plain = optimum(problem).x, optimum(equal).x
    assert distance(weighted, plain) > 0.05
    np.testing.assert_allclose(ours(FedAvg("largest"), world, 3000), weighted, atol=1e-6)
    devices = Devices(np.full(4, 0.25), world.L)
    uniform = run(FedAvg("largest"), equal, 3000, devices=devices, x0=world.x0).x
    np.testing.assert_allclose(uniform, plain, atol=1e-6)


def test_weights_count_once():
    """Some code multiplies by n_i / n on the device and again on the server: sum_i w_i^2 move_i is half a step here."""
    world = make_world()
    right = ours(FedAvg(0.05), world, 1)
    moves = [-0.05 * world.gradient(i, world.x0) for i in range(4)]
    np.testing.assert_allclose(right, world.x0 + sum(w * m for w, m in zip(world.w, moves, strict=True)), atol=1e-14)
    assert distance(right, world.x0 + sum(w**2 * m for w, m in zip(world.w, moves, strict=True))) > FAR


def test_the_weights_of_those_present_sum_to_one():
    """Client sampling: dividing by everybody's weight shortens the step by the share that is away."""
    world, rule = make_world(), Bernoulli(0.5, seed=6)
    here = rule.present(0, 4)
    assert 0 < here.sum() < 4
    share = world.w[here].sum()
    move = ours(FedAvg(0.05), world, 1, rule) - world.x0
    full = -0.05 * sum(world.w[i] * world.gradient(i, world.x0) for i in np.flatnonzero(here))
    np.testing.assert_allclose(move, full / share, atol=1e-14)
    assert distance(move, full) > FAR


@pytest.mark.parametrize(("kind", "exponent"), [("adam", 0), ("flower", 1)])
def test_adam_s_bias_correction_counts_rounds_from_one(kind, exponent):
    """The first step has sqrt(1 - b2) / (1 - b1), with b2^1 and b1^1; Flower's squares them at once."""
    method = FedAdam(1.0, 0.1, tau=1e-12, v0=0.0, bias_correction=kind)
    state = method.start(np.zeros(1), Devices.uniform([1.0, 1.0]))
    first = method.point(method.tell(state, Answer(sum=np.array([-3.0]))))[0]
    t = 1 + exponent
    factor = math.sqrt(1 - 0.99**t) / (1 - 0.9**t) * 0.1 / math.sqrt(0.01)
    assert first == pytest.approx(0.1 * factor, rel=1e-9)
    assert (abs(first - 0.1) < 1e-9) == (kind == "adam")  # Adam's first step is eta itself


def test_adam_s_second_moment_is_of_the_mean_move_not_the_mean_of_squares():
    """v_t takes (sum_i w_i Delta_i)^2; sum_i w_i Delta_i^2 is larger wherever devices differ."""
    world = make_world()
    method = FedAdam(0.05, 0.1)
    right = ours(method, world, 1)
    moves = np.array([-0.05 * world.gradient(i, world.x0) for i in range(4)])
    mean, squares = world.w @ moves, world.w @ moves**2
    m = 0.1 * mean
    np.testing.assert_allclose(right, world.x0 + 0.1 * m / (np.sqrt(0.99e-6 + 0.01 * mean**2) + 1e-3), atol=1e-13)
    assert distance(right, world.x0 + 0.1 * m / (np.sqrt(0.99e-6 + 0.01 * squares) + 1e-3)) > FAR


def test_fednova_divides_by_the_devices_own_number_of_steps():
    """Dividing by the mean number of steps is FedAvg, whose fixed point favours whoever takes more steps."""
    world, tau, eta = make_world(), (6, 1, 2, 3), 0.01
    right = ours(FedNova(eta, local_steps=tau), world, 1)
    ends = []
    for i in range(4):
        y = world.x0
        for _ in range(tau[i]):
            y = y - eta * world.gradient(i, y)
        ends.append(y - world.x0)
    effective = sum(w * t for w, t in zip(world.w, tau, strict=True))
    expected = sum(w * e / t for w, e, t in zip(world.w, ends, tau, strict=True)) * effective
    np.testing.assert_allclose(right - world.x0, expected, atol=1e-13)
    assert distance(expected, sum(w * e for w, e in zip(world.w, ends, strict=True))) > FAR


@pytest.mark.parametrize("mistake", ["", "pulled to the last move", "pulled to the last point"])
def test_fedprox_pulls_to_where_the_round_began(mistake):
    """Its authors' optimizer keeps its last move in the place of x^t where gradients are sparse."""
    world, eta, mu, steps = make_world(), 0.05, 2.0, 4
    x = world.x0
    for _ in range(30):
        ends = []
        for i in range(world.n):
            y, centre = x, x
            for _ in range(steps):
                move = world.gradient(i, y) + mu * (y - centre)
                centre = {"": x, "pulled to the last move": move, "pulled to the last point": y}[mistake]
                y = y - eta * move
            ends.append(y)
        x = sum(world.w[i] * ends[i] for i in range(world.n))
    ours = run(FedProx(eta, 1.0, steps, mu), world.problem, 30, devices=world.devices, x0=world.x0).x
    apart = abs(ours - x).max()
    assert apart > FAR if mistake else apart < 1e-12


def test_fedexp_s_epsilon_is_not_multiplied_by_the_number_of_devices():
    """As its authors' code has it; and the factor 1/2 belongs to the spread, not to epsilon."""
    world, eta, epsilon = make_world(), 0.05, 0.02
    x = world.x0
    deltas = []
    for i in range(4):
        y = x
        for _ in range(3):
            y = y - eta * world.gradient(i, y)
        deltas.append(x - y)
    mean = sum(w * d for w, d in zip(world.w, deltas, strict=True))
    spread = sum(w * (d @ d) for w, d in zip(world.w, deltas, strict=True))
    steps = {e: max(1.0, spread / (2 * (mean @ mean + e))) for e in (epsilon, 4 * epsilon)}
    right = ours(FedExP(eta, local_steps=3, epsilon=epsilon), world, 1)
    np.testing.assert_allclose(right, x - steps[epsilon] * mean, atol=1e-13)
    assert steps[epsilon] > 1
    assert distance(right, x - steps[4 * epsilon] * mean) > FAR


def test_feddyn_s_h_counts_those_who_are_absent():
    """h is divided by all m devices, the mean of models by those present; the other way round it is biased."""
    world, rule = make_world(), Bernoulli(0.5, seed=2)
    best = optimum(world.problem).x
    eta, alpha, steps = 0.05, 4.0, 4

    def loop(rounds, absent_count):
        x, h, g = world.x0, 0 * world.x0, [0 * world.x0] * 4
        for k in range(rounds):
            here = np.flatnonzero(rule.present(k, 4))
            if not len(here):
                continue
            ends, share = {}, sum(world.w[i] for i in here)
            for i in here:
                y = x
                for _ in range(steps):
                    y = y - eta * (world.gradient(i, y) - g[i] + alpha * (y - x))
                ends[i] = y
                g[i] = g[i] - alpha * (y - x)
            moved = sum(world.w[i] * (ends[i] - x) for i in here)
            h = h - alpha * (moved if absent_count else moved / share)
            x = sum(world.w[i] * ends[i] for i in here) / share - h / alpha
        return x

    right = ours(FedDyn(eta, steps, alpha), world, 600, rule)
    np.testing.assert_allclose(right, loop(600, True), atol=1e-10)
    assert distance(right, best) < 1e-6
    assert not distance(loop(600, False), best) < FAR


def test_feddyn_s_authors_weigh_by_alpha_and_end_at_the_same_point():
    """Plain means and alpha / (N w_i) on device i: other iterates, and no mistake, as sum_i g_i / alpha_i = 0."""
    world, rule = make_world(), Bernoulli(0.6, seed=3)
    best, eta, alpha, steps = optimum(world.problem).x, 0.05, 2.0, 4
    x, kept = world.x0, np.zeros((4, len(world.x0)))
    for k in range(300):
        here = np.flatnonzero(rule.present(k, 4))
        ends = []
        for i in here:
            y, own = x, alpha / (4 * world.w[i])
            for _ in range(steps):
                y = y - eta * (world.gradient(i, y) + own * (y - x + kept[i]))
            kept[i] += y - x
            ends.append(y)
        x = np.mean(ends, axis=0) + kept.mean(axis=0) if ends else x
        if k == 0:
            assert distance(x, ours(FedDyn(eta, steps, alpha), world, 1, rule)) > FAR
    assert distance(x, best) < FAR
    assert distance(ours(FedDyn(eta, steps, alpha), world, 300, rule), best) < FAR


def test_delta_sgd_s_first_step_of_a_round_is_eta_0():
    """Its authors' code multiplies it by sqrt(1 + delta theta_0) at once."""
    world = make_world()
    right = ours(DeltaSGD(0.02, local_steps=1), world, 1)
    np.testing.assert_allclose(right, world.x0 - 0.02 * world.g(world.x0), atol=1e-14)
    assert distance(right, world.x0 - 0.02 * math.sqrt(1.1) * world.g(world.x0)) > FAR


def test_delta_sgd_compares_two_gradients_of_one_device():
    """Not of the mean: on devices that differ, steps from the pooled curvature are others."""
    rng = np.random.default_rng(0)
    owner = np.repeat([0, 1], 10)
    rows = rng.standard_normal((20, 3)) * np.where(owner == 0, 0.2, 3.0)[:, None]
    problem = LeastSquares(rows, rng.standard_normal(20), partition.given(owner), mu=0.0)
    pooled = LeastSquares(rows, problem._y, mu=0.0)
    method = DeltaSGD(0.05, local_steps=6)
    assert distance(run(method, problem, 1).x, run(method, pooled, 1).x) > FAR


def test_scaffnew_s_coin_is_one_for_all_and_its_controls_move_by_p_over_gamma():
    """Without the p the controls overshoot by 1/p; the sum of the controls stays zero only with one coin for all."""
    world, p = make_world(), 0.25
    method = Scaffnew(0.05, p, seed=3)
    state = method.start(world.x0, world.devices)
    ask = method.ask(state)
    assert np.ndim(ask.local.steps) == 0
    ends = []
    for i in range(4):
        y = world.x0
        for _ in range(ask.local.steps):
            y = y - 0.05 * world.gradient(i, y)
        ends.append(y)
    mean = sum(w * y for w, y in zip(world.w, ends, strict=True))
    moves = np.array([(world.x0 - y) / 0.05 for y in ends])
    told = method.tell(state, Answer(world.w @ moves, gradients=moves))
    np.testing.assert_allclose(told.x, mean, atol=1e-13)
    np.testing.assert_allclose(told.controls, [p / 0.05 * (mean - y) for y in ends], atol=1e-12)


def test_largest_constants_are_known_where_steps_depend_on_them():
    """The default local step follows the most curved device; the mean constant would make it diverge."""
    world = make_world()
    assert describe(world.problem).devices.L.max() == pytest.approx(world.L.max())
    assert ours(FedAvg("largest", local_steps=5), world, 40).max() < 1e2
    assert run(
        FedAvg("mean", local_steps=5), world.problem, 200, devices=world.devices, x0=world.x0
    ).failed  # 2 L_bar < L_max here
