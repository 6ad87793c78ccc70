from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ownstep.engines import describe, run
from ownstep.methods import GD, Answer, At, Nesterov, Never, NormBelow, OwnStep, Plateau, parse_switch
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput

from ..conftest import make_least_squares, make_logistic
from ..contract.test_methods import closed_form, solve


@settings(max_examples=8)  # 1,400 rounds each
@given(st.integers(0, 200), st.integers(2, 5))
def test_the_local_phase_ends_at_the_reweighted_solution_and_the_common_one_at_the_true(seed, devices):
    problem = make_least_squares(devices, seed=seed, mu=0.3)
    L = describe(problem).devices.L
    biased = run(OwnStep(Never()), problem, 500).x
    np.testing.assert_allclose(biased, solve(problem, problem.weights / L), atol=1e-8)
    np.testing.assert_allclose(run(OwnStep(At(20)), problem, 900).x, closed_form(problem), atol=1e-8)


def test_the_bias_is_real():
    problem = make_least_squares()
    L = describe(problem).devices.L
    assert np.linalg.norm(solve(problem, problem.weights / L) - closed_form(problem)) > 0.01


def test_each_update_is_the_line_of_the_algorithm():
    problem = make_logistic(devices=3)
    devices = describe(problem).devices
    history = run(OwnStep(At(4)), problem, 9)
    x = problem.x0()
    for k in range(9):
        alpha = 1 / devices.L if k < 4 else np.full(3, 1 / devices.L_bar)
        x = x - sum(w * a * g for w, a, g in zip(problem.weights, alpha, problem.gradients(x), strict=True))
    np.testing.assert_allclose(history.x, x, atol=1e-13)
    assert history.phase.tolist() == ["local"] * 4 + ["common"] * 5 + ["end"]
    assert history.switched_at == 4
    assert history.columns["step"][0] == pytest.approx(devices.mean_step)
    assert history.columns["step"][5] == pytest.approx(1 / devices.L_bar)


@given(st.integers(0, 300), st.integers(2, 6))
def test_equal_constants_make_it_gradient_descent(seed, devices):
    problem = make_logistic(devices, seed=seed)
    alike = Devices(problem.weights, np.full(devices, 1.7))
    ours, theirs = (run(m, problem, 15, devices=alike) for m in (OwnStep(), GD("mean")))
    np.testing.assert_allclose(ours.x, theirs.x, atol=1e-12)


def test_uniform_weights_minimise_the_mean_over_devices():
    problem = make_least_squares()
    history = run(OwnStep(At(5), weights="uniform"), problem, 900)
    np.testing.assert_allclose(history.x, solve(problem, np.full(3, 1 / 3)), atol=1e-9)


def test_norm_below_fires_at_the_paper_s_test():
    problem = make_logistic()
    devices = describe(problem).devices
    history = run(OwnStep(NormBelow(0.05)), problem, 200)
    x, k = problem.x0(), 0
    while True:
        move = (problem.weights / devices.L) @ problem.gradients(x)
        x, k = x - move, k + 1
        if np.linalg.norm(move) <= 0.05:
            break
    assert history.switched_at == k
    assert "<= 0.05" in history.switch_why


def test_plateau_probes_with_common_rounds_and_then_stays():
    problem = make_least_squares(seed=3)
    history = run(OwnStep(Plateau()), problem, 400)
    at = history.switched_at
    assert at is not None
    assert set(history.phase[:at]) == {"local", "probe"}
    assert set(history.phase[at:-1]) == {"common"}
    L_bar = describe(problem).devices.L_bar
    np.testing.assert_allclose(history.columns["step"][:-1][history.phase[:-1] == "probe"], 1 / L_bar)


def test_plateau_fires_when_common_rounds_are_better_by_more_than_the_spread():
    """Feed it losses by hand: local rounds lower f by `slow`, common ones by `fast`."""
    devices, switch = Devices.uniform([1.0, 4.0]), Plateau()

    def fired(slow: float, fast: float) -> bool:
        watch, value = switch.begin(), 100.0
        for k in range(1, 60):
            was_probe = watch.probing
            watch = switch.observe(watch, k, None, value, devices)
            value -= fast if was_probe else slow
            if watch.fired is not None:
                return True
        return False

    assert not fired(slow=0.01, fast=0.039)
    assert fired(slow=0.01, fast=0.041)
    assert fired(slow=-0.01, fast=0.001)
    assert not fired(slow=0.01, fast=-0.01)
    assert not fired(slow=-0.01, fast=-0.001)  # common rounds that raise f prove nothing


def test_plateau_ignores_rounds_in_which_nobody_answered():
    devices, switch = Devices.uniform([1.0, 4.0]), Plateau()
    for silent in range(1, 10):  # one round alone, others as they should be
        watch = switch.begin()
        for k in range(1, 10):
            watch = switch.observe(watch, k, None, np.nan if k == silent else 100.0 - k, devices)
        assert watch.fired is None
    watch = switch.begin()
    for k in range(1, 200):
        watch = switch.observe(watch, k, None, np.nan, devices)
    assert watch.fired is None


def test_nesterov_is_written_as_nesterov_did():
    problem = make_logistic()
    devices = describe(problem).devices
    L, mu = devices.L_pooled, problem.mu
    q = np.sqrt(mu / L)
    x = previous = problem.x0()
    for _ in range(20):
        y = x + (1 - q) / (1 + q) * (x - previous)
        previous, x = x, y - problem.weights @ problem.gradients(y) / L
    np.testing.assert_allclose(run(Nesterov(), problem, 20).x, x, atol=1e-13)


def test_nesterov_s_rate_on_a_strongly_convex_problem():
    """f(x^k) - f* <= (1 - sqrt(mu/L))^k (f(x^0) - f* + mu/2 ||x^0 - x*||^2)."""
    problem = make_least_squares(mu=0.01)
    best = closed_form(problem)
    history = run(Nesterov(), problem, 100)
    L = describe(problem).devices.L_pooled
    first = history.value[0] - problem.value(best) + 0.005 * best @ best
    bound = (1 - np.sqrt(0.01 / L)) ** np.arange(101) * first
    assert (history.value - problem.value(best) <= bound + 1e-12).all()


@pytest.mark.parametrize("step", ["mean", "true"])
def test_gradient_descent_keeps_its_guarantee(step):
    """f falls by at least ||grad f||^2 / (2 L) a round when the step is 1/L or shorter."""
    problem = make_logistic()
    history = run(GD(step), problem, 50)
    used = history.columns["step"][0]
    guaranteed = used / 2 * history.gradient_norm[:-1] ** 2
    assert (-np.diff(history.value) >= guaranteed - 1e-14).all()


def test_switches_by_name():
    assert parse_switch("plateau") == Plateau()
    assert parse_switch("at:7") == At(7)
    assert parse_switch("never") == Never()
    assert parse_switch("norm:1e-3") == NormBelow(1e-3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: At(-1), "at least 0, got -1"),
        (lambda: At(2.5), "whole number of at least 0, got 2.5"),
        (lambda: NormBelow(0), "positive threshold, got 0"),
        (lambda: GD("maen"), "Did you mean 'mean'"),
        (lambda: GD(-0.1), "positive and finite, got -0.1"),
        (lambda: GD(float("nan")), "positive and finite, got nan"),
        (lambda: parse_switch("at:soon"), "'at:soon' cannot be read"),
        (lambda: parse_switch("platau"), "Did you mean 'plateau'"),
        (lambda: GD("true").start(np.zeros(1), Devices.uniform([1.0])), "needs L_pooled"),
        (lambda: GD("tuned").start(np.zeros(1), Devices.uniform([1.0])), "must be searched for first"),
        (lambda: OwnStep(weights="even").start(np.zeros(1), Devices.uniform([1.0])), "got 'even'"),
    ],
)
def test_bad_input_is_quoted(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()


def test_answers_hold_one_sum_and_one_number():
    answer = Answer(np.ones(2), 0.5)
    assert answer.gradients is None
