"""Methods that measure curvature on their way: what they measure, what they guarantee, and where it helps."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ownstep import load, partition
from ownstep.engines import Bernoulli, describe, run
from ownstep.engines.local.answering import Answering
from ownstep.engines.local.secant import secants
from ownstep.methods import AdaptiveOwnStep, AdGD, Answer, Ask, BarzilaiBorwein, LocalWork, NesterovRestart, OwnStep
from ownstep.methods.pooled.safeguard import MEMORY, passes
from ownstep.paper.ours.beyond import synthetic
from ownstep.plan import Devices
from ownstep.problems import LeastSquares, optimum
from ownstep.support.errors import InvalidInput

from ..conftest import make_least_squares, make_logistic

ADAPTIVE = OwnStep(smoothness="adaptive")
EVERYONE = np.ones(3, bool)


def hessians(problem: LeastSquares) -> list[np.ndarray]:
    return [
        problem.rows(i).T @ problem.rows(i) / n + problem.mu * np.eye(problem.dim) for i, n in enumerate(problem.counts)
    ]


def test_devices_measure_the_curvature_along_their_way():
    """On a quadratic y = H_i s, so L_i is known in closed form; its mean is at least the pooled secant."""
    problem, rng = make_least_squares(), np.random.default_rng(0)
    answering = Answering(problem, None)
    x, z = rng.standard_normal((2, problem.dim))
    before = answering(Ask(x, problem.weights, curvature=True), EVERYONE).answer
    assert np.isnan(before.curvature).all()
    assert math.isnan(before.previous)
    after = answering(Ask(z, problem.weights, curvature=True), EVERYONE).answer
    s, H = z - x, hessians(problem)
    np.testing.assert_allclose(after.curvature, [(h @ s) @ (h @ s) / (s @ h @ s) for h in H])
    assert after.previous == pytest.approx(before.value)
    y = after.sum - before.sum
    assert y @ y / (s @ y) <= problem.weights @ after.curvature
    again = answering(Ask(z.copy(), problem.weights, curvature=True), EVERYONE).answer
    np.testing.assert_array_equal(again.curvature, after.curvature)


def test_an_absent_device_measures_from_where_it_was_last():
    problem, rng = make_least_squares(), np.random.default_rng(1)
    answering, H = Answering(problem, "rescale"), hessians(problem)
    points = rng.standard_normal((3, problem.dim))
    away = np.array([True, False, True])
    for x, present in zip(points, (EVERYONE, away, EVERYONE), strict=True):
        seen = answering(Ask(x, problem.weights, curvature=True), present).answer
        if present is away:
            assert np.isnan(seen.curvature).tolist() == [False, True, False]
            np.testing.assert_allclose(seen.previous, first_value(problem, points[0], away))
    last, long = points[2] - points[1], points[2] - points[0]
    expected = [(h @ s) @ (h @ s) / (s @ h @ s) for h, s in zip(H, (last, long, last), strict=True)]
    np.testing.assert_allclose(seen.curvature, expected)
    assert math.isnan(seen.previous)  # one of them was not asked about the last point


def first_value(problem, x, present):
    losses = problem.mix(x, problem.weights)[0]
    return problem.weights[present] @ losses[present] / problem.weights[present].sum()


def test_a_second_sum_comes_with_the_first():
    problem = make_logistic()
    c = np.array([0.3, -1.0, 2.0])
    x = np.arange(4.0)
    seen = Answering(problem, None)(Ask(x, problem.weights, also=c), EVERYONE)
    np.testing.assert_allclose(seen.answer.also, problem.mix(x, c)[1])
    np.testing.assert_allclose(seen.answer.sum, problem.mix(x, problem.weights)[1])
    assert seen.up.tolist() == [2 * 32 + 8] * 3
    with pytest.raises(InvalidInput, match="local steps have neither"):
        Answering(problem, None)(Ask(x, problem.weights, LocalWork(2, 0.1), curvature=True), EVERYONE)


def test_where_f_curves_downwards_the_ratio_of_norms_counts():
    s, y = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]]), np.array([[-2.0, 0.0], [2.0, 2.0], [1.0, 1.0]])
    np.testing.assert_allclose(secants(s, y), [2.0, 4.0, np.nan])


class Path:
    """The loop of an engine that keeps every state and answer."""

    def __init__(self, method, problem, rounds, x0=None):
        answering = Answering(problem, None)
        everyone = np.ones(len(problem.weights), bool)
        state = method.start(problem.x0() if x0 is None else x0, describe(problem).devices)
        self.states, self.answers = [state], []
        for _ in range(rounds):
            self.answers.append(answering(method.ask(state), everyone).answer)
            state = method.tell(state, self.answers[-1])
            self.states.append(state)


def hard_start(problem):
    return 30 * np.random.default_rng(4).standard_normal(problem.dim)


PROBLEMS = {
    "quadratic": lambda: make_least_squares(mu=1e-3),
    "logistic": lambda: make_logistic(),
    "synthetic": lambda: synthetic(1),
}


@pytest.mark.parametrize("make", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("method", [ADAPTIVE, BarzilaiBorwein(), BarzilaiBorwein("long")], ids=repr)
@pytest.mark.parametrize("far", [False, True])
def test_the_safeguard_keeps_its_promise(method, make, far):
    """Every kept point passes the test, recomputed from the values alone, and so GD's bound holds with its constant."""
    problem = make()
    path = Path(method, problem, 60, hard_start(problem) if far else None)
    L, best = describe(problem).devices.L_pooled, optimum(problem).value
    x, value, gradient = path.states[0].x, path.answers[0].value, path.answers[0].sum
    reference, count, kept, tries = value, 1.0, [gradient @ gradient], 0
    start = value
    for state, answer, after in zip(path.states[1:-1], path.answers[1:], path.states[2:], strict=True):
        assert after.largest < 2 * L * (1 + 1e-9)
        if after.base is not state.x:  # not kept: the next try is from the same point, and shorter
            tries += 1
            assert after.base is state.base
            continue
        step = min(state.step, 1 / after.largest) if after.largest else state.step
        rounding = 1e-12 * abs(value) + 1e-15
        assert answer.value <= reference - step * (gradient @ gradient) / 2 + rounding
        assert step >= 1 / (4 * L) * (1 - 1e-9) or len(kept) == 1
        reference = (MEMORY * count * reference + answer.value) / (MEMORY * count + 1)
        count, x, value, gradient = MEMORY * count + 1, state.x, answer.value, answer.sum
        kept.append(gradient @ gradient)
        assert value <= start
    assert sum(kept[1:-1]) <= 8 * L * (start - best) / (1 - MEMORY)
    assert tries <= len(kept) + 1 + math.log2(max(2.0, 4 * L / path.states[2].largest))
    assert x.shape == (problem.dim,)


@pytest.mark.parametrize("method", [ADAPTIVE, BarzilaiBorwein(), AdGD()], ids=repr)
@pytest.mark.parametrize("offset", [0.0, 1e-14])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_start_where_f_is_zero_by_chance(method, offset, dtype):
    """|f(x^0)| sets the length of the first step, but f = 0 is no sign of being near to the solution."""
    H, x = np.diag([1.0, 0.1]).astype(dtype), np.array([1.0, 2.0], dtype)
    pull = np.array([3.0, -1.0], dtype)
    level = float(x @ H @ x) / 2 - float(pull @ x) - offset
    state, old = method.start(x, Devices.uniform([1.0, 1.0])), math.nan
    for _ in range(150):
        x = method.ask(state).x
        value, slope = float(x @ H @ x) / 2 - float(pull @ x) - level, H @ x - pull
        same = {"also": slope, "curvature": np.ones(2), "previous": old}
        state, old = method.tell(state, Answer(slope, value, **same)), value
    np.testing.assert_allclose(x, [3.0, -10.0], rtol=1e-6 if dtype is np.float64 else 1e-2)


def test_devices_that_take_turns_are_waited_for():
    """Until somebody answers twice nothing is measured: the careful first step is taken again, and M stays unknown."""
    problem = make_least_squares()
    answering, state = Answering(problem, "rescale"), ADAPTIVE.start(problem.x0(), describe(problem).devices)
    steps = []
    for k in range(6):
        present = np.arange(3) == k % 3
        state = ADAPTIVE.tell(state, answering(ADAPTIVE.ask(state), present).answer)
        steps.append(state.step)
        assert math.isfinite(state.largest)
    assert steps[0] == steps[1] == steps[2] > 0
    assert 0 < state.largest <= describe(problem).devices.L.max()


class Bend:
    """Two devices with f_i' = x/10^6 - 1 up to x = 10 and curvature 1 from there: nothing warns of it."""

    weights, names, dim, work, strong_convexity = np.array([0.5, 0.5]), ("a", "b"), 1, 1.0, 0.0

    def x0(self):
        return np.array([-1.0])

    def value(self, x):
        flat = min(float(x[0]), 10.0)
        return 5e-7 * flat**2 - flat + (1e-5 - 1) * (float(x[0]) - flat) + (float(x[0]) - flat) ** 2 / 2

    def gradients(self, x):
        return np.repeat([1e-6 * np.minimum(x, 10) - 1 + np.maximum(x - 10, 0)], 2, axis=0)

    def mix(self, x, c):
        return np.repeat(self.value(x), 2), self.gradients(x).T @ c


@pytest.mark.parametrize("method", [ADAPTIVE, BarzilaiBorwein(), AdGD()], ids=repr)
def test_a_try_that_fails_badly_is_not_the_end_of_a_run(method):
    """The first secant is 10^-6 times L: f rises by 10^11, the point is taken back, and the run goes on."""
    history = run(method, Bend(), 400, devices=Devices.uniform([1.0, 1.0]))
    assert max(history.value) > 1e10
    assert history.stopped == "all 400 rounds done"
    np.testing.assert_allclose(history.x, [11 - 1e-5], rtol=1e-9)


def test_a_function_without_any_smoothness_constant():
    """f = ||x||^4 / 4: its curvature grows with x, so steps that were right are soon too long, and are taken back."""
    method, x = BarzilaiBorwein(), np.array([0.01, -0.02, 3.0])
    state = method.start(x, Devices.uniform([1.0]))
    for _ in range(80):
        x = method.ask(state).x
        state = method.tell(state, Answer((x @ x) * x, (x @ x) ** 2 / 4))
    assert (state.base @ state.base) ** 2 / 4 < 1e-9


def test_the_test_itself():
    state = BarzilaiBorwein().start(np.zeros(1), Devices.uniform([1.0]))
    from dataclasses import replace

    state = replace(state, gradient=np.array([2.0]), largest=4.0, slack=0.1, value=1.0, step=1.0)
    assert passes(state, 0.1 - 0.5, 1.0)  # min(1, 1/4) * 4 / 2 = 0.5 is needed
    assert not passes(state, 0.1 - 0.49, 1.0)
    assert passes(state, 0.1 - 0.2, 0.1)
    assert not passes(state, math.nan, 1.0)


def test_adgd_is_the_authors_loop():
    """Malitsky and Mishchenko (2020), Algorithm 1, written out."""
    problem = make_logistic()
    history = run(AdGD(1), problem, 40)
    path = Path(AdGD(1), problem, 2)
    x, z = problem.x0(), path.states[1].x
    g, last, theta = problem.mix(x, problem.weights)[1], path.states[1].step, math.inf
    for _ in range(39):
        h = problem.mix(z, problem.weights)[1]
        step = min(math.sqrt(1 + theta) * last, np.linalg.norm(z - x) / (2 * np.linalg.norm(h - g)))
        theta, last = step / last, step
        x, g, z = z, h, z - step * h
    np.testing.assert_allclose(history.x, z, rtol=1e-9)


@pytest.mark.parametrize("version", [1, 2])
def test_where_nothing_curves_the_steps_of_adgd_grow_by_their_last_growth(version):
    """A constant gradient: L = 0, and each step is sqrt(1 + min(theta, 1)) of the last; theta is how that one grew."""
    method, slope = AdGD(version), np.array([1.0, -2.0])
    state = method.start(np.zeros(2), Devices.uniform([1.0, 1.0]))
    for _ in range(2):
        state = method.tell(state, Answer(slope, float(slope @ state.x)))
    last, theta = state.step, math.inf
    for _ in range(6):
        before = state.x
        state = method.tell(state, Answer(slope, float(slope @ state.x)))
        step = math.sqrt(1 + min(theta, 1.0)) * last
        theta, last = step / last, step
        np.testing.assert_allclose(before - state.x, step * slope, rtol=1e-12)
    assert theta > 1.3


def test_a_restart_is_nesterov_s_method_begun_again():
    problem = make_logistic()
    devices = describe(problem).devices
    history = run(NesterovRestart(), problem, 120, devices=devices)
    x = before = problem.x0()
    since = restarts = 0
    for _ in range(120):
        y = x + since / (since + 3) * (x - before)
        g = problem.mix(y, problem.weights)[1]
        x, before, since = y - g / devices.L_pooled, x, since + 1
        if g @ (x - before) > 0:
            before, since, restarts = x, 0, restarts + 1
    assert restarts > 0
    np.testing.assert_allclose(history.x, x, rtol=1e-10)


def test_no_constant_is_measured(monkeypatch):
    from ownstep.engines.local import engine as local

    monkeypatch.setattr(local, "measure", lambda *_: pytest.fail("the constants were measured"))
    for method in (ADAPTIVE, BarzilaiBorwein(), AdGD()):
        assert run(method, make_logistic(), 5).rounds == 5


def test_it_says_what_it_needs():
    assert isinstance(ADAPTIVE, AdaptiveOwnStep)
    with pytest.raises(InvalidInput, match=r"unknown smoothness of own steps 'adaptative'. Did you mean 'adaptive'"):
        OwnStep(smoothness="adaptative")
    state = ADAPTIVE.start(np.zeros(2), Devices.uniform([1.0, 2.0]))
    state = ADAPTIVE.tell(state, Answer(np.ones(2), 1.0))
    with pytest.raises(InvalidInput, match="an engine whose devices measure their curvature"):
        ADAPTIVE.tell(state, Answer(np.zeros(2), 1.0))
    with pytest.raises(InvalidInput, match="AdGD has version 1"):
        AdGD(3)
    with pytest.raises(InvalidInput, match="unknown secant 'shrt'"):
        BarzilaiBorwein("shrt")


def test_it_has_a_local_phase_where_devices_agree_and_differ_in_curvature():
    problem = synthetic()
    best = optimum(problem).value
    own, pooled = (run(m, problem, 150).rounds_to(1e-4, best) for m in (ADAPTIVE, BarzilaiBorwein()))
    assert own < pooled
    assert "local" in run(ADAPTIVE, problem, 20).phase


def test_it_survives_absences_which_the_pooled_secant_does_not():
    """The change of grad f between two rounds is mostly a change of participants; each device's own is not."""
    problem = synthetic()
    best, devices = optimum(problem).value, describe(problem).devices
    for seed in range(3):
        rule = Bernoulli(0.5, seed=seed)
        gaps = [
            run(m, problem, 60, devices=devices, participation=rule).gap(best) for m in (ADAPTIVE, BarzilaiBorwein())
        ]
        assert np.median(gaps[0][-10:]) < 0.1 * np.median(gaps[1][-10:])


def test_on_mini_batches_both_gradients_are_of_the_same_batch():
    torch = pytest.importorskip("torch")
    from ownstep.problems import Network, PerDevice

    from ..network.helpers import data

    x, y = data()
    model = torch.nn.Linear(4, 3).double()
    problem = Network(model, x, y, partition.iid(60, 3, 0), batch=PerDevice(5), seed=1)
    away = torch.as_tensor(np.random.default_rng(2).standard_normal(problem.dim))
    answering, points = Answering(problem, None), [problem.x0(), problem.x0() + 0.1 * away]
    for k, point in enumerate(points):
        problem.begin_round(k)
        seen = answering(Ask(point, problem.weights, curvature=True), EVERYONE).answer
    old, new = (problem.gradients(point).numpy() for point in points)  # still the second round's batch
    s, change = (points[1] - points[0]).numpy(), new - old
    np.testing.assert_allclose(seen.curvature, (change**2).sum(1) / (change @ s))
    assert math.isnan(seen.previous)


@pytest.mark.slow
def test_it_learns_from_mini_batches():
    torch = pytest.importorskip("torch")
    from ownstep.problems import Network, PerDevice

    rows, labels = load("digits").table()
    model, split = torch.nn.Linear(64, 10).double(), partition.by_label(labels, 5)
    inputs, targets = torch.as_tensor(np.asarray(rows, float)), labels.astype(np.int64)
    problem = Network(model, inputs, targets, split, batch=PerDevice(20), seed=1)
    history = run(ADAPTIVE, problem, 40, progress=False)
    assert problem.accuracy(torch.as_tensor(history.x)) > 0.85
