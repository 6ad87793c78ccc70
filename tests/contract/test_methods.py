"""One suite that every registered method passes. A new method is listed in METHODS and, here, in CASES."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ownstep import partition
from ownstep.engines import checkpoint, describe, run
from ownstep.methods import GD, METHODS, Answer, At, HeavyBall, Method, Nesterov, Never, NormBelow, OwnStep
from ownstep.plan import Devices
from ownstep.problems import LeastSquares

from ..conftest import make_least_squares, make_logistic

CASES = {
    "own_step": [OwnStep(), OwnStep(At(5)), OwnStep(NormBelow(1e-2)), OwnStep(Never())],
    "gd": [GD("mean"), GD("true"), GD(0.1)],
    "heavy_ball": [HeavyBall(), HeavyBall("mean", 0.3)],
    "nesterov": [Nesterov(), Nesterov("mean"), Nesterov("mean", 0.5)],
}
EVERY = [pytest.param(method, id=f"{name}-{i}") for name, methods in CASES.items() for i, method in enumerate(methods)]
BIASED = (Never,)
"""Switches whose fixed point is known to be another one; see test_own_step."""


def closed_form(problem: LeastSquares) -> np.ndarray:
    """Solve (sum_i w_i H_i) x = sum_i w_i b_i with the matrices written out."""
    return solve(problem, problem.weights)


def solve(problem: LeastSquares, c: np.ndarray) -> np.ndarray:
    n = problem.features
    hessians = [problem.rows(i).T @ problem.rows(i) / problem.counts[i] + problem.mu * np.eye(n) for i in range(len(c))]
    zero = problem.gradients(np.zeros(n))
    return np.linalg.solve(np.einsum("i,ijk->jk", c, hessians), -c @ zero)


def test_every_registered_method_is_in_this_suite():
    assert set(CASES) == set(METHODS)
    for name, methods in CASES.items():
        for method in methods:
            assert isinstance(method, METHODS[name])
            assert isinstance(method, Method)


@pytest.mark.parametrize("method", EVERY)
def test_it_ends_at_the_minimiser(method):
    problem = make_least_squares()
    history = run(method, problem, 600)
    if isinstance(getattr(method, "switch", None), BIASED):
        L = describe(problem).devices.L
        np.testing.assert_allclose(history.x, solve(problem, problem.weights / L), atol=1e-9)
    else:
        np.testing.assert_allclose(history.x, closed_form(problem), atol=1e-9)


@pytest.mark.parametrize("method", EVERY)
def test_the_minimiser_is_a_fixed_point(method):
    if isinstance(getattr(method, "switch", None), At | Never | NormBelow) or isinstance(method, OwnStep):
        method = OwnStep(At(0))
    problem = make_least_squares()
    best = closed_form(problem)
    history = run(method, problem, 3, x0=best)
    np.testing.assert_allclose(history.x, best, atol=1e-12)


@pytest.mark.parametrize("method", EVERY)
def test_it_is_deterministic(method):
    first, second = (run(method, make_logistic(), 40) for _ in range(2))
    assert (first.x == second.x).all()
    assert (first.value == second.value).all()


@pytest.mark.parametrize("method", EVERY)
def test_permuting_the_devices_changes_nothing(method):
    rng = np.random.default_rng(1)
    rows, targets, owner = rng.standard_normal((30, 3)), rng.standard_normal(30), np.arange(30) % 4
    rows *= (1 + owner)[:, None]
    other = np.array([2, 0, 3, 1])
    runs = [run(method, LeastSquares(rows, targets, partition.given(o)), 30) for o in (owner, other[owner])]
    np.testing.assert_allclose(runs[0].x, runs[1].x, atol=1e-12)


@pytest.mark.parametrize("method", EVERY)
def test_one_device_is_the_pooled_problem(method):
    """With one device every method must do what it does on the pooled data; Algorithm 1 is then GD at 1/L."""
    problem = make_logistic(devices=1)
    history = run(method, problem, 30)
    if isinstance(method, OwnStep | GD) and getattr(method, "step", "mean") in ("mean", "true"):
        L, x = describe(problem).devices.L[0], problem.x0()
        for _ in range(30):
            x = x - problem.gradients(x)[0] / L
        np.testing.assert_allclose(history.x, x, atol=1e-12)
    assert history.value[-1] < history.value[0]


@pytest.mark.parametrize("method", EVERY)
def test_equal_devices_give_the_pooled_iterates(method):
    """Copies of one device, so all L_i are equal: splitting must change nothing."""
    rng = np.random.default_rng(2)
    rows, targets = rng.standard_normal((12, 3)), rng.standard_normal(12)
    split = LeastSquares(np.tile(rows, (3, 1)), np.tile(targets, 3), partition.given(np.repeat([0, 1, 2], 12)))
    pooled = LeastSquares(rows, targets)
    np.testing.assert_allclose(run(method, split, 25).x, run(method, pooled, 25).x, atol=1e-12)


@pytest.mark.parametrize("method", EVERY)
def test_its_state_survives_a_file(method, tmp_path):
    problem = make_logistic()
    devices = describe(problem).devices
    state = method.start(problem.x0(), devices)
    for _ in range(12):
        state = advance(method, problem, state)
    checkpoint.save(tmp_path / "state.npz", state, {}, {})
    again, _, _ = checkpoint.load(tmp_path / "state.npz", method.start(problem.x0(), devices))
    assert_same(state, again)
    for _ in range(12):
        state, again = advance(method, problem, state), advance(method, problem, again)
    assert_same(state, again)


@pytest.mark.parametrize("method", EVERY)
def test_it_keeps_single_precision(method):
    problem = make_logistic()
    devices = describe(problem).devices
    state = method.start(problem.x0().astype(np.float32), devices)
    for _ in range(3):
        ask = method.ask(state)
        assert ask.x.dtype == np.float32
        losses, total = problem.mix(ask.x, ask.mix)
        state = method.tell(state, Answer(total.astype(np.float32), float(problem.weights @ losses)))
    assert method.point(state).dtype == np.float32


@pytest.mark.parametrize("method", EVERY)
def test_states_are_frozen_and_print_briefly(method):
    state = method.start(np.zeros(2), Devices.uniform([1.0, 2.0], 0.1) if not needs_true(method) else pooled_devices())
    assert len(repr(state)) < 250
    with pytest.raises(dataclasses.FrozenInstanceError):
        state.k = 3


def needs_true(method) -> bool:
    return getattr(method, "step", None) == "true"


def pooled_devices() -> Devices:
    return Devices(np.array([0.5, 0.5]), np.array([1.0, 2.0]), L_pooled=1.2)


def advance(method, problem, state):
    ask = method.ask(state)
    losses, total = problem.mix(ask.x, ask.mix)
    return method.tell(state, Answer(total, float(problem.weights @ losses)))


def assert_same(first, second):
    assert type(first) is type(second)
    for field in dataclasses.fields(first):
        a, b = getattr(first, field.name), getattr(second, field.name)
        if isinstance(a, Devices):
            continue
        if dataclasses.is_dataclass(a):
            assert_same(a, b)
        elif isinstance(a, np.ndarray):
            assert (a == b).all()
        else:
            np.testing.assert_equal(a, b)
