"""What the papers of the federated rivals state about them, and absences as their algorithms treat them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ownstep import partition
from ownstep.engines import Bernoulli, Cohort, describe, run
from ownstep.engines.local.answering import Answering, local_work
from ownstep.methods import GD, DeltaSGD, FedAvg, FedDyn, FedExP, FedLin, FedNova, FedSPS, LocalWork, Scaffnew
from ownstep.methods.local_work import LocalSmoothness, PolyakStep, rule_from_text, rule_to_text
from ownstep.problems import LeastSquares, optimum
from ownstep.support.errors import InvalidInput

from ..conftest import make_least_squares, make_logistic
from ..contract.world import make_world

ROUNDS = 50


def shared_minimiser(devices: int = 3) -> LeastSquares:
    """Devices of different curvature that all fit one x: f_i(x*) = 0 on each."""
    rng = np.random.default_rng(3)
    owner = np.repeat(np.arange(devices), [9, 14, 7])
    rows = rng.standard_normal((len(owner), 4)) * np.array([0.6, 1.0, 1.5])[owner][:, None]
    return LeastSquares(rows, rows @ rng.standard_normal(4), partition.given(owner), mu=0.0)


def test_local_work_with_own_numbers_of_steps_and_own_steps(small_logistic):
    """Written out on one device after the other; d_i is in units of the device's own step."""
    rng = np.random.default_rng(0)
    x, shift = rng.standard_normal(small_logistic.dim), rng.standard_normal((3, small_logistic.dim))
    counts, steps = np.array([4, 1, 2]), np.array([0.3, 0.1, 0.7])
    work = LocalWork(counts, steps, 0.5, shift)
    expected = []
    for i in range(3):
        y = x
        for _ in range(counts[i]):
            y = y - steps[i] * (small_logistic.gradients(y)[i] + 0.5 * (y - x) + shift[i])
        expected.append((x - y) / steps[i])
    np.testing.assert_allclose(local_work(small_logistic, x, work), expected, atol=1e-13)
    alone = local_work(small_logistic.keep([2, 0]), x, work.keep([2, 0]))
    np.testing.assert_allclose(alone, [expected[2], expected[0]], atol=1e-13)


def test_one_local_step_is_what_the_papers_say(small_logistic):
    """Delta-SGD takes its first step eta_0, FedNova with tau_i = 1 is GD, Scaffnew with p = 1 is GD at gamma."""
    gd = {step: run(GD(step), small_logistic, 30).x for step in (0.2, "largest")}
    for method, step in (
        (DeltaSGD(local_steps=1), 0.2),
        (FedNova(local_steps=1), "largest"),
        (Scaffnew(p=1.0), "largest"),
        (FedSPS(0.2, local_steps=1, c=1e-9), 0.2),
        (FedExP(0.2, local_steps=1, epsilon=1e9), 0.2),
    ):
        np.testing.assert_allclose(run(method, small_logistic, 30).x, gd[step], atol=1e-13, err_msg=repr(method))
    np.testing.assert_allclose(run(FedLin(local_steps=1), small_logistic, 60).x, gd["largest"], atol=1e-13)


def test_equal_numbers_of_local_steps_make_fednova_fedavg(small_logistic):
    both = [run(m, small_logistic, 30).x for m in (FedNova(local_steps=(4, 4, 4)), FedAvg(local_steps=4))]
    np.testing.assert_allclose(*both, atol=1e-13)


def test_unequal_numbers_of_local_steps_bias_fedavg_and_not_fednova():
    """With short steps FedAvg's mean of moves is that of sum_i w_i tau_i f_i, FedNova ends at the minimiser of f."""
    problem, tau = make_least_squares(), np.array([1, 8, 3])
    best, skewed = optimum(problem).x, optimum(problem.reweighted(problem.weights * tau)).x
    nova = run(FedNova(2e-3, local_steps=tuple(tau.tolist())), problem, 1500, x0=skewed).x
    assert np.linalg.norm(nova - best) < 0.01 < 0.1 < np.linalg.norm(skewed - best)
    moves = local_work(problem, skewed, LocalWork(tau, 1e-4))
    assert np.linalg.norm(problem.weights @ moves) < 0.01 * np.linalg.norm(problem.weights @ (moves / tau[:, None]))


def test_devices_that_are_alike_are_not_extrapolated():
    rng = np.random.default_rng(2)
    rows, targets = rng.standard_normal((12, 3)), rng.standard_normal(12)
    split = LeastSquares(np.tile(rows, (3, 1)), np.tile(targets, 3), partition.given(np.repeat([0, 1, 2], 12)))
    plain = run(FedAvg(local_steps=4), split, 30).x
    np.testing.assert_allclose(run(FedExP(local_steps=4, epsilon=0.0), split, 30).x, plain, atol=1e-13)


def test_extrapolation_helps_where_the_devices_share_a_minimiser_and_does_not_settle_where_they_do_not():
    """FedExP's own setting: a device fixes directions of its own. Elsewhere eta_g grows as the mean move vanishes."""
    rows = math.sqrt(2) * np.eye(6)
    problem = LeastSquares(rows, rows @ np.arange(1.0, 7.0), partition.given(np.repeat([0, 1, 2], 2)), mu=0.0)
    plain, ours = (run(m, problem, 60) for m in (FedAvg(0.5, local_steps=3), FedExP(0.5, local_steps=3, epsilon=0.0)))
    # three devices, orthogonal moves of Delta_i = (1 - 0.5^3)(x - x*): the mean closes a third, eta_g = 3/2 a half
    factor = 1 - 0.5**3
    np.testing.assert_allclose(plain.value[:20] / plain.value[0], (1 - factor / 3) ** (2 * np.arange(20)), rtol=1e-9)
    np.testing.assert_allclose(ours.value[:20] / ours.value[0], (1 - factor / 2) ** (2 * np.arange(20)), rtol=1e-9)
    apart = make_least_squares()
    values = run(FedExP(), apart, 400).value[-100:]
    assert np.ptp(values) > 1e-2 > 1e-9 > np.ptp(run(FedAvg(local_steps=5), apart, 400).value[-100:])


def test_polyak_steps_find_a_shared_minimiser_without_any_constant():
    problem = shared_minimiser()
    history = run(FedSPS(1e9, local_steps=2, c=1.0), problem, 600)
    assert history.value[-1] < 1e-12 * history.value[0]
    assert history.settings["local_steps"] == 2


def test_a_wrong_lower_bound_is_refused(small_logistic):
    with pytest.raises(InvalidInput, match="below its lower bound 9"):
        run(FedSPS(lower=9.0), small_logistic, 3)
    with pytest.raises(InvalidInput, match="lower has 2 bounds for 3 devices"):
        run(FedSPS(lower=(0.0, 0.0)), small_logistic, 3)


def test_feddyn_with_one_local_step_is_a_method_of_the_pooled_gradient():
    """x^+ = x - 2 eta grad f + (2 eta - 1/alpha) h, h a running mean of gradients: with eta alpha = 1, the last one."""
    world, eta = make_world(), 0.05
    problem, x, before = world.problem, world.x0, 0 * world.x0
    points = []
    run(FedDyn(eta, 1, 1 / eta), problem, 30, devices=world.devices, x0=x, observe=lambda k, p: points.append(p))
    for point in points:
        np.testing.assert_allclose(point, x, atol=1e-12)
        x, before = x - 2 * eta * world.g(x) + eta * before, world.g(x)


def test_feddyn_scaffnew_and_fedlin_have_no_drift():
    problem = make_least_squares(devices=4)
    best = optimum(problem).x
    for method in (FedDyn(local_steps=12), Scaffnew(p=0.2), FedLin(local_steps=(9, 1, 4, 2))):
        np.testing.assert_allclose(run(method, problem, 800).x, best, atol=1e-9, err_msg=repr(method))
    partial = run(FedDyn(local_steps=6), problem, 200, participation=Bernoulli(0.6, seed=1))
    np.testing.assert_allclose(partial.x, best, atol=1e-8)


def test_a_round_in_which_nobody_takes_part_changes_nothing():
    """FedDyn's server would otherwise take h/alpha off again."""

    class Sometimes:
        missing = "rescale"

        def present(self, k, devices):
            return np.full(devices, k % 2 == 0)

    problem = make_least_squares()
    for method in (FedDyn(), FedNova(), FedExP(), FedSPS(0.1), DeltaSGD()):
        every = run(method, problem, 10).x
        np.testing.assert_array_equal(run(method, problem, 20, participation=Sometimes()).x, every, repr(method))


def test_scaffnew_keeps_its_controls_balanced_and_draws_its_steps_from_seed_and_round():
    problem, counts = make_least_squares(), []
    method = Scaffnew(p=0.25, seed=7)
    state = method.start(problem.x0(), describe(problem).devices)
    for _ in range(400):
        ask = method.ask(state)
        assert ask.local.steps == method.ask(state).local.steps
        counts.append(ask.local.steps)
        state = method.tell(state, Answering(problem, None)(ask, np.ones(3, bool)).answer)
        assert abs(problem.weights @ state.controls).max() < 1e-12
    assert abs(np.mean(counts) - 4) < 4 * math.sqrt(0.75) / 0.25 / math.sqrt(400)
    best = optimum(problem).x
    np.testing.assert_allclose(state.controls, problem.gradients(best), atol=1e-8)
    with pytest.raises(InvalidInput, match="mu is 0 here: give it p"):
        run(Scaffnew(), shared_minimiser(), 2)


def test_exchanges_grow_with_the_root_of_the_condition_number():
    """The paper's theorem: with p = 1/sqrt(kappa) the rounds grow like sqrt(kappa), those of GD like kappa."""
    rounds, targets = {}, np.random.default_rng(1).standard_normal(18)
    for kappa in (16, 1600):
        rows = np.vstack([math.sqrt(6) * np.diag(np.sqrt(np.geomspace(1 / kappa, 1, 6)))] * 3)
        problem = LeastSquares(rows, targets, partition.given(np.repeat([0, 1, 2], 6)), mu=0.0)
        best, start = optimum(problem).value, problem.value(problem.x0())
        for method in (GD("largest"), Scaffnew(p=kappa**-0.5)):
            found = run(method, problem, 20_000, target=best + 1e-5 * (start - best))
            rounds[type(method), kappa] = found.rounds
    ratio = {kind: rounds[kind, 1600] / rounds[kind, 16] for kind in (GD, Scaffnew)}
    assert ratio[GD] > 60
    assert 4 < ratio[Scaffnew] < 25


def absent_loop(method, world, rule):
    """Who is absent does nothing and keeps what it has; the mean is over those who are there."""
    n, x = world.n, world.x0
    kept, h = [0 * x for _ in range(n)], 0 * x
    for k in range(ROUNDS):
        here = np.flatnonzero(rule.present(k, n))
        share = sum(world.w[i] for i in here)
        ends, tau = {}, dict(enumerate(getattr(method, "local_steps", 1) if isinstance(method, FedNova) else ()))
        for i in here:
            y, eta, theta, last = x, method.client_step, 1.0, None
            for _ in range(tau.get(i, method.local_steps)):
                g = world.gradient(i, y)
                if isinstance(method, FedDyn):
                    g = g - kept[i] + method.alpha * (y - x)
                elif isinstance(method, FedSPS):
                    eta = min(world.loss(i, y) / (method.c * (g @ g)), method.client_step)
                elif isinstance(method, DeltaSGD) and last is not None:
                    bound = method.gamma / 2 * np.linalg.norm(y - last[0]) / np.linalg.norm(g - last[1])
                    new = min(bound, math.sqrt(1 + method.delta * theta) * eta)
                    theta, eta = new / eta, new
                y, last = y - eta * g, (y, g)
            ends[i] = y
        if len(here) == 0:
            yield x
            continue
        mean = sum(world.w[i] * (ends[i] - x) for i in here) / share
        if isinstance(method, FedNova):
            tau_eff = sum(world.w[i] * tau[i] for i in here) / share
            x = x + tau_eff * sum(world.w[i] * (ends[i] - x) / tau[i] for i in here) / share
        elif isinstance(method, FedExP):
            squares = sum(world.w[i] * sum((ends[i] - x) ** 2) for i in here) / share
            x = x + max(1, squares / (2 * (mean @ mean + method.epsilon))) * mean
        elif isinstance(method, FedDyn):
            for i in here:
                kept[i] = kept[i] - method.alpha * (ends[i] - x)
            h = h - method.alpha * sum(world.w[i] * (ends[i] - x) for i in here)
            x = x + mean - h / method.alpha
        else:
            x = x + mean
        yield x


@pytest.mark.parametrize(
    "method",
    [
        DeltaSGD(0.03, local_steps=4),
        FedSPS(0.3, local_steps=3),
        FedExP(0.03, local_steps=4, epsilon=0.02),
        FedNova(0.03, local_steps=(5, 1, 2, 4)),
        FedDyn(0.05, 4, 2.0),
    ],
    ids=lambda m: type(m).__name__,
)
@pytest.mark.parametrize("rule", [Cohort(2, seed=4), Bernoulli(0.6, seed=9)], ids=["cohort", "coins"])
def test_absences_are_those_of_the_algorithms(method, rule):
    """Client sampling as the papers print it, with weights: written out, 50 rounds, 1e-12."""
    world, points = make_world(), []
    run(
        method, world.problem, ROUNDS, devices=world.devices, x0=world.x0, participation=rule,
        observe=lambda k, x: points.append(x),
    )  # fmt: skip
    for x, written in zip(points[1:], absent_loop(method, world, rule), strict=True):
        np.testing.assert_allclose(x, written, rtol=0, atol=1e-12 * max(1, abs(written).max()))


def test_rules_survive_a_message_to_the_last_digit():
    for rule in (LocalSmoothness(1.1, 0.1 + 0.2, 1 / 3), PolyakStep(0.7, 1e-300), None):
        assert rule_from_text(rule_to_text(rule)) == rule
    assert rule_from_text(rule_to_text(PolyakStep(0.7, (0.25, 0.5)).keep([1]))) == PolyakStep(0.7, 0.5)
    with pytest.raises(InvalidInput, match="unknown rule for local steps 'newton'"):
        rule_from_text("newton:1.0")
    with pytest.raises(InvalidInput, match="neither a pull nor a shift"):
        LocalWork(2, 0.1, prox=1.0, rule=PolyakStep())


def test_bytes_are_those_that_travel(small_logistic):
    """One vector and the loss; FedExP one number more; control variates are one more vector down."""
    vector = 8 * small_logistic.dim
    for method, up, down in (
        (DeltaSGD(), vector + 8, vector + 8),
        (FedSPS(), vector + 8, vector + 8),
        (FedNova(), vector + 8, vector + 8),
        (FedExP(), vector + 16, vector + 8),
        (FedDyn(), vector + 8, 2 * vector + 8),
        (FedLin(), vector + 8, 2 * vector + 8),
        (Scaffnew(p=0.5), vector + 8, 2 * vector + 8),
    ):
        columns = run(method, small_logistic, 2).columns
        assert columns["bytes_up"].tolist() == [3 * up] * 2 + [0], repr(method)
        assert columns["bytes_down"].tolist() == [3 * down] * 2 + [0], repr(method)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DeltaSGD(gamma=0.0), "gamma must be positive and finite, got 0.0"),
        (lambda: DeltaSGD(delta=-1.0), "delta must be a finite number >= 0, got -1.0"),
        (lambda: FedSPS(c=-1.0), "c must be positive and finite, got -1.0"),
        (lambda: FedSPS(lower=math.inf), "lower must be finite, got inf"),
        (lambda: FedExP(epsilon=-1.0), "epsilon must be a finite number >= 0, got -1.0"),
        (lambda: FedNova(local_steps=()), "local_steps must be a whole number of at least 1, got 0"),
        (lambda: FedNova(local_steps=(2, 0)), "local_steps must be a whole number of at least 1, got 0"),
        (lambda: run(FedNova(local_steps=(2, 3)), make_logistic(), 1), "local_steps has 2 numbers for 3 devices"),
        (lambda: FedDyn(alpha=0.0), "alpha must be positive and finite, got 0.0"),
        (lambda: Scaffnew(p=1.5), r"p is a probability in \(0, 1\], got 1.5"),
        (lambda: run(Scaffnew(p=0.5), make_logistic(), 1, participation=Bernoulli(0.5)), "needs every device"),
    ],
)
def test_bad_input_is_quoted(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


def test_the_work_of_some_devices_is_theirs_in_their_order():
    """What is one number for all stays it; what every device has of its own is chosen."""
    whole = LocalWork(np.array([3, 1, 4]), np.array([0.1, 0.5, 0.9]), shift=np.arange(6.0).reshape(3, 2))
    some = whole.keep([2, 0])
    assert (some.steps.tolist(), some.step.tolist(), some.shift.tolist()) == ([4, 3], [0.9, 0.1], [[4, 5], [0, 1]])
    alike = LocalWork(7, 0.25, prox=0.5).keep([1])
    assert (alike.steps, alike.step, alike.shift, alike.prox) == (7, 0.25, None, 0.5)


def test_polyak_s_step_names_the_loss_that_is_farthest_below_its_bound():
    choose = PolyakStep(lower=(1.0, 5.0, 2.0)).begin(np.ones(3))
    with pytest.raises(InvalidInput, match="a loss of 2.5 is below its lower bound 5"):
        choose(np.array([0.5, 2.5, 2.25]), np.zeros((3, 2)), np.ones((3, 2)))
