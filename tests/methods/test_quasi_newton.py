"""L-BFGS, Newton and the line search under them: against SciPy, IRLS and the conditions they promise."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.optimize._dcsrch import DCSRCH

from ownstep import partition
from ownstep.engines import Bernoulli, describe, run
from ownstep.engines.local.answering import Answering, checked_triangle
from ownstep.methods import LBFGS, Ask, Newton
from ownstep.methods.pooled.newton import newton_step
from ownstep.methods.search.pairs import stacked
from ownstep.methods.search.wolfe import DECREASE, NARROW, SLOPE, Search
from ownstep.problems import BinaryLogistic, LeastSquares, MultinomialLogistic, optimum
from ownstep.support.errors import InvalidInput

from ..conftest import make_logistic

# The six functions of More and Thuente (1994), section 5.


def _hump(t, beta=2.0):
    return -t / (t**2 + beta), (t**2 - beta) / (t**2 + beta) ** 2


def _valley(t, beta=0.004):
    return (t + beta) ** 5 - 2 * (t + beta) ** 4, 5 * (t + beta) ** 4 - 8 * (t + beta) ** 3


def _kink(t, beta=0.01, bumps=39):
    if t <= 1 - beta:
        value, slope = 1 - t, -1.0
    elif t >= 1 + beta:
        value, slope = t - 1, 1.0
    else:
        value, slope = (t - 1) ** 2 / (2 * beta) + beta / 2, (t - 1) / beta
    more = 2 * (1 - beta) / (bumps * math.pi)
    angle = bumps * math.pi / 2
    return value + more * math.sin(angle * t), slope + more * angle * math.cos(angle * t)


def _yanai(a, b):
    def gamma(beta):
        return math.sqrt(1 + beta**2) - beta

    def phi(t):
        left, right = math.sqrt((1 - t) ** 2 + b**2), math.sqrt(t**2 + a**2)
        value = gamma(a) * left + gamma(b) * right
        return value, gamma(a) * (t - 1) / left + gamma(b) * t / right

    return phi


FUNCTIONS = [_hump, _valley, _kink, _yanai(0.001, 0.001), _yanai(0.01, 0.001), _yanai(0.001, 0.01)]


@pytest.mark.parametrize("phi", FUNCTIONS)
@pytest.mark.parametrize("first", [1e-3, 1e-1, 1e1, 1e3])
def test_a_search_ends_at_a_wolfe_point(phi, first):
    value, slope = phi(0.0)
    search = Search.begin(value, slope, first, 0.0)
    while not search.done:
        tried = search.step
        search = search.seen(*phi(tried))
    assert search.done == "found"
    assert phi(tried)[0] <= value + DECREASE * tried * slope
    narrow = search.bracketed and search.upper - search.lower <= NARROW * search.upper
    assert abs(phi(tried)[1]) <= SLOPE * abs(slope) or narrow


def _wavy(seed):
    """(phi and phi' of a curve with several minima and phi'(0) < 0, a first step that may be far too short or long)."""
    rng = np.random.default_rng(seed)
    heights, waves, shifts = rng.uniform(0, 1.5, 3), rng.uniform(0.1, 3, 3), rng.uniform(-2, 2, 3)
    bowl, scale = rng.uniform(0, 0.5), 10.0 ** rng.uniform(-2, 2)
    down = -math.copysign(scale, heights * waves @ np.cos(shifts) - 0.15)

    def phi(t):
        u = down * t
        value = heights @ np.sin(waves * u + shifts) + bowl * u**2 + 0.3 * np.logaddexp(0, -u)
        return float(value), float(
            down * (heights * waves @ np.cos(waves * u + shifts) + 2 * bowl * u - 0.3 / (1 + np.exp(u)))
        )

    return phi, 10.0 ** rng.uniform(-2.5, 2) / scale


def test_every_trial_is_that_of_minpack():
    """The same points, one after the other, as SciPy's translation of ``dcsrch``; in all cases of its ``dcstep``."""
    lengths = []
    hard = [(phi, first) for phi in FUNCTIONS for first in (1e-3, 1e-1, 1e1, 1e3)]
    for phi, first in [*map(_wavy, range(300)), *hard]:
        (value, slope), theirs, ours = phi(0.0), [], []
        peer = DCSRCH(lambda t: theirs.append(t) or phi(t)[0], lambda t: phi(t)[1], DECREASE, SLOPE, NARROW, 0.0, 1e10)  # noqa: B023
        peer(first, phi0=value, derphi0=slope, maxiter=20)
        search = Search.begin(value, slope, first, 0.0)
        while not search.done:
            ours.append(search.step)
            search = search.seen(*phi(search.step))
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
        lengths.append(len(ours))
    assert max(lengths) >= 7
    assert np.mean(lengths) > 2


def test_every_decision_is_that_of_minpack_whatever_is_seen():
    """Values and slopes drawn at random: the next t, and the end, of ``dcsrch``; trials are counted to 20."""
    ends, rng = Counter(), np.random.default_rng(4)
    for _ in range(400):
        slope, first = -(10.0 ** rng.uniform(-1, 1)), 10.0 ** rng.uniform(-2, 2)
        peer = DCSRCH(None, None, 1e-3, 0.9, 0.1, 0.0, 1e10)
        t, _, _, task = peer._iterate(first, 2.0, slope, b"START")
        search, low = Search.begin(2.0, slope, first, 0.0), 2.0
        for tries in range(1, 21):
            assert search.step == pytest.approx(t, rel=1e-9)
            kind = rng.integers(4)
            value = [low + rng.exponential(), low - rng.exponential(), low + 1e-4 * t * slope, 2.0 + 0.9 * t * slope][
                kind
            ]
            seen = slope * rng.choice([1.0, 1.0, -1.0]) * rng.uniform(0.85, 2.0)
            enough = value <= 2.0 + 1e-3 * t * slope
            search, low = search.seen(value, seen), min(low, value)
            tried, (t, _, _, task) = t, peer._iterate(t, value, seen, b"FG")
            assert search.tries == tries
            if task != b"FG" or tries == 20:
                assert search.done == ("found" if enough and tried > 0 else "failed")
                break
            assert not search.done
            if not 1e-9 < t < 1e9:
                break
        ends[task[:4], search.done] += 1
    assert min(ends[b"CONV", "found"], ends[b"WARN", "found"], ends[b"WARN", "failed"]) > 20


def test_a_trial_that_overflows_is_shortened():
    search = Search.begin(1.0, -1.0, 1.0, 0.0)
    for tries in range(1, 20):
        search = search.seen(math.inf, math.nan) if tries % 2 else search.seen(1.0, math.inf)
        assert search.step == pytest.approx(10.0**-tries)
        assert (search.tries, search.done) == (tries, "")
    assert search.seen(math.nan, 0.0).done == "failed"
    ahead = Search.begin(1.0, -1.0, 1.0, 0.0).seen(0.0, -1.0)  # falls as steeply as before: further on
    assert (ahead.best.t, ahead.step) == (1.0, 5.0)
    for seen in ((math.inf, 0.0), (0.0, math.nan)):
        assert ahead.seen(*seen).step == pytest.approx(1.4)


@pytest.mark.parametrize(
    ("value", "slope", "done"),
    [
        (2.0 - 2e-3, 0.0, "found"),
        (2.0 - 2e-3 + 1e-6, 0.0, ""),
        (2.0 - 2e-3 + 0.9e-6, 0.0, "found"),
        (1.0, 0.901 * 4, ""),
        (1.0, -0.899 * 4, "found"),
        (2.0 - 1.9e-3, 0.0, ""),
    ],
)
def test_what_a_search_forgives(value, slope, done):
    """phi(1/2) <= 2 - 1e-3 * 1/2 * 4 but for rounding of 1e-6 (here), and |phi'(1/2)| <= 0.9 * 4."""
    assert Search.begin(2.0, -4.0, 0.5, 0.95e-6).seen(value, slope).done == done
    edge = 2.0 + 0.5 * (1e-3 * -4.0)
    assert Search.begin(2.0, -4.0, 0.5, 0.0).seen(edge, -0.9 * 4.0).done == "found"


def test_every_evaluation_is_scipys():
    """On a loss that is not quadratic, with line searches of several trials."""
    problem, points, seen = make_logistic(devices=4, features=6, samples=80), [], []

    def evaluate(x):
        points.append(x.copy())
        losses, gradient = problem.mix(x, problem.weights)
        return float(problem.weights @ losses), gradient

    x0 = np.full(problem.dim, 3.0)
    minimize(evaluate, x0, jac=True, method="L-BFGS-B", options={"maxcor": 10, "ftol": 0.0, "gtol": 1e-7})
    run(LBFGS(), problem, len(points) - 1, x0=x0, observe=lambda k, x: seen.append(x))
    np.testing.assert_allclose(seen, points, atol=1e-8)
    assert len(points) > 12


def irls(rows, labels, weights, mu, steps):
    """Weighted least squares for the working response, by ``lstsq`` on stacked rows."""
    x, out, target = np.zeros(rows.shape[1]), [], (labels + 1) / 2
    for _ in range(steps):
        p = 1 / (1 + np.exp(-rows @ x))
        scale = np.sqrt(weights * p * (1 - p))
        response = rows @ x + (target - p) / (p * (1 - p))
        stacked = np.vstack([scale[:, None] * rows, math.sqrt(mu) * np.eye(rows.shape[1])])
        x = np.linalg.lstsq(stacked, np.concatenate([scale * response, np.zeros(rows.shape[1])]), rcond=None)[0]
        out.append(x)
    return out


def test_newton_is_irls():
    rng, seen = np.random.default_rng(4), []
    rows, owner = rng.standard_normal((90, 5)), np.repeat([0, 1, 2], [15, 30, 45])
    labels = np.where(rows @ rng.standard_normal(5) + rng.standard_normal(90) > 0, 1, -1)
    w = np.array([0.5, 0.2, 0.3])
    problem = BinaryLogistic(rows, labels, partition.given(owner), mu=0.02, weights=w)
    run(Newton(), problem, 6, observe=lambda k, x: seen.append(x))
    expected = irls(rows, labels, (w / [15, 30, 45])[owner], 0.02, 6)
    np.testing.assert_allclose(seen[1:], expected, atol=1e-10)


def test_newton_is_damped_where_a_whole_step_would_diverge():
    rows, labels = np.array([[1.0], [1.0], [-1.0]]), np.array([1, -1, -1])
    problem, x = BinaryLogistic(rows, labels, mu=1e-6), np.array([8.0])
    plain = x - np.linalg.solve(problem.hessian(x, problem.weights), problem.gradients(x)[0])
    assert problem.value(plain) > problem.value(x)
    history = run(Newton(), problem, 40, x0=x)
    assert history.value[-1] == pytest.approx(optimum(problem).value, rel=1e-12)


def test_a_newton_step_descends_whatever_the_signs():
    rng = np.random.default_rng(0)
    for _ in range(20):
        Q, _ = np.linalg.qr(rng.standard_normal((5, 5)))
        values, g = rng.standard_normal(5), rng.standard_normal(5)
        H = Q @ np.diag(values) @ Q.T
        expected = -Q @ np.diag(1 / abs(values)) @ Q.T @ g
        np.testing.assert_allclose(newton_step(H[np.triu_indices(5)], g), expected, rtol=1e-8)
    assert np.isfinite(newton_step(np.diag([1.0, 0.0])[np.triu_indices(2)], np.ones(2))).all()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("model", [BinaryLogistic, MultinomialLogistic, LeastSquares])
def test_the_hessian_is_the_derivative_of_the_gradient(model, sparse):
    rng = np.random.default_rng(1)
    rows, owner = rng.standard_normal((40, 4)) * (rng.random((40, 4)) < 0.7), np.repeat([0, 1, 2], [5, 12, 23])
    labels = rng.integers(0, 2 if model is BinaryLogistic else 3, 40)
    problem = model(sp.csr_array(rows) if sparse else rows, labels, partition.given(owner), mu=0.3, intercept=True)
    c, x = np.array([0.7, -0.4, 1.9]), rng.standard_normal(problem.dim)
    H, h = problem.hessian(x, c), 1e-5
    for e in np.eye(problem.dim):
        slope = (problem.mix(x + h * e, c)[1] - problem.mix(x - h * e, c)[1]) / (2 * h)
        np.testing.assert_allclose(H @ e, slope, atol=1e-8)
    V, total = rng.standard_normal((problem.dim, 3)), 0.0
    for i in range(3):
        one = problem.data_hessian(x, i)
        whole = problem.hessian(x, np.eye(3)[i]) - np.diag(np.repeat(problem.penalty, problem.outputs))
        np.testing.assert_allclose(one @ V, whole @ V, atol=1e-12)
        assert one.trace == pytest.approx(np.trace(whole))
        total = total + c[i] * (one @ V)
    assert np.abs(total).max() > 0


class Overflowing:
    """A problem whose loss is not finite beyond a radius."""

    def __init__(self, problem, radius):
        self.problem, self.radius = problem, radius

    def __getattr__(self, name):
        return getattr(self.problem, name)

    def mix(self, x, c):
        losses, total = self.problem.mix(x, c)
        return (losses, total) if np.linalg.norm(x) < self.radius else (losses * np.inf, total * np.nan)


def test_a_trial_without_a_finite_loss_is_no_end():
    problem = make_logistic()
    best = optimum(problem)
    bounded = Overflowing(problem, 1.05 * np.linalg.norm(best.x))
    for method in (LBFGS(), Newton()):
        history = run(method, bounded, 60, x0=0.9 * best.x, devices=describe(problem).devices)
        assert history.best_value == pytest.approx(best.value, rel=1e-10)
        assert history.stopped == "all 60 rounds done"


class Shifted:
    """Devices whose losses lie far apart: comparing two points over different devices says nothing."""

    def __init__(self, problem):
        self.problem, self.shift = problem, 1e3 * np.arange(len(problem.weights))

    def __getattr__(self, name):
        return getattr(self.problem, name)

    def mix(self, x, c):
        losses, total = self.problem.mix(x, c)
        return losses + self.shift, total

    def each(self, x):
        losses, rows = self.problem.each(x)
        return losses + self.shift, rows


@pytest.mark.parametrize("missing", ["rescale", "drop", "last"])
@pytest.mark.parametrize("method", [LBFGS(), Newton()])
def test_absent_devices_are_compared_with_themselves(method, missing):
    """Constants added to the losses, a different one per device, change no iterate, and f still falls."""
    problem, runs = make_logistic(devices=5), []
    for one in (problem, Shifted(problem)):
        points = []
        rule = Bernoulli(0.5, missing, seed=2)
        run(method, one, 60, participation=rule, observe=lambda k, x, seen=points: seen.append(x.copy()))
        runs.append(np.array(points))
    np.testing.assert_allclose(runs[0][:40], runs[1][:40], atol=1e-6)
    best, start = optimum(problem).value, problem.value(problem.x0())
    tail = np.median([problem.value(x) for x in runs[0][-20:]])
    assert tail - best < 0.25 * (start - best)


def test_rounds_in_which_nobody_answers_change_nothing():
    class Sometimes:
        missing = "rescale"

        def present(self, k, devices):
            return np.full(devices, k % 3 == 0)

    problem, points = make_logistic(), []
    for method in (LBFGS(), Newton()):
        points = []
        run(method, problem, 30, participation=Sometimes(), observe=lambda k, x, seen=points: seen.append(x))
        whole = []
        run(method, problem, 10, observe=lambda k, x, seen=whole: seen.append(x))
        np.testing.assert_array_equal(points[::3], whole)


def test_bytes_of_a_second_point_and_a_hessian():
    problem = make_logistic(features=4)
    x, w, everyone = problem.x0(), problem.weights, np.ones(3, bool)

    def up_and_down(**more):
        seen = Answering(problem, None)(Ask(x, w, **more), everyone)
        return seen.up[0], seen.down[0]

    assert up_and_down() == (4 * 8 + 8, 4 * 8 + 8)
    assert up_and_down(base=x) == (2 * (4 * 8 + 8), 2 * 4 * 8 + 8)
    assert up_and_down(hessian=True) == (4 * 8 + 8 + 10 * 8, 4 * 8 + 8)


def test_what_is_not_a_hessian_is_refused():
    problem = make_logistic()
    with pytest.raises(InvalidInput, match="10 numbers, got shape"):
        checked_triangle(np.zeros(9), 4)
    with pytest.raises(InvalidInput, match="not finite"):
        checked_triangle(np.full(10, np.nan), 4)

    class NoHessian:
        weights, dim = problem.weights, 4

        def mix(self, x, c):
            return problem.mix(x, c)

    with pytest.raises(InvalidInput, match=r"NoHessian has no Hessians.*LBFGS\(\)"):
        Answering(NoHessian(), None)(Ask(problem.x0(), problem.weights, hessian=True), np.ones(3, bool))
    wide = LeastSquares(np.eye(2, 5000), np.zeros(2))
    with pytest.raises(InvalidInput, match="5000 coordinates"):
        run(Newton(), wide, 1)


@pytest.mark.parametrize("method", [LBFGS(), Newton()])
def test_without_a_penalty_nothing_breaks(method):
    """Separable classes and mu = 0: no minimiser, but f falls; with an intercept that is not penalised too."""
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((30, 3))
    labels = np.where(rows[:, 0] > 0, 1, -1)
    for intercept in (False, True):
        history = run(method, BinaryLogistic(rows, labels, mu=0.0, intercept=intercept), 40)
        assert np.isfinite(history.value).all()
        assert history.value[-1] < 1e-3


def test_rows_of_one_part_and_of_several():
    rows = np.arange(6.0).reshape(3, 2)
    assert stacked([rows]) is rows
    np.testing.assert_array_equal(stacked([rows[:1], rows[1:2], rows[2:]]), rows)
