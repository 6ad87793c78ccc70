from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownstep.engines import Bernoulli, Bursts, Cohort, Outages, Stragglers, describe, parse_participation, run
from ownstep.engines.local.answering import Answering, checked_triangle, server_bytes, triangle
from ownstep.engines.local.secant import Memory
from ownstep.methods import GD, Ask, DecentralisedGD, LocalWork, OwnStep, SketchWork
from ownstep.problems import optimum
from ownstep.support.errors import InvalidInput

from ..conftest import make_least_squares, make_logistic

RULES = [
    Bernoulli(0.6, seed=1),
    Cohort(3, seed=1),
    Bursts(0.1, 0.3, seed=1),
    Stragglers([1.0, 2.0, 3.0, 4.0, 5.0], 3.0, seed=1),
    Outages(((1, 3, 9), (2, 5, None)), Bernoulli(0.8, seed=2)),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda r: type(r).__name__)
def test_a_round_is_the_same_whenever_it_is_asked_for(rule):
    forwards = [rule.present(k, 5) for k in range(60)]
    backwards = [rule.present(k, 5) for k in reversed(range(60))][::-1]
    np.testing.assert_array_equal(forwards, backwards)
    assert 0 < np.mean(forwards) < 1


@pytest.mark.parametrize("rule", RULES, ids=lambda r: type(r).__name__)
@pytest.mark.parametrize("missing", ["rescale", "drop", "last"])
def test_runs_with_absent_devices_resume_exactly(rule, missing, tmp_path):
    rule = type(rule)(**{**vars(rule), "missing": missing})
    problem, path = make_least_squares(devices=5), tmp_path / "run.npz"
    run(OwnStep(), problem, 17, participation=rule, checkpoint=path)
    resumed, whole = (run(OwnStep(), problem, 40, participation=rule, checkpoint=c) for c in (path, None))
    assert (resumed.x == whole.x).all()
    np.testing.assert_array_equal(resumed.took_part, whole.took_part)
    np.testing.assert_array_equal(whole.took_part, [rule.present(k, 5) for k in range(40)])


def test_a_cohort_has_its_size_and_everyone_is_drawn_alike():
    who = np.array([Cohort(3, seed=0).present(k, 8) for k in range(4000)])
    assert (who.sum(axis=1) == 3).all()
    np.testing.assert_allclose(who.mean(axis=0), 3 / 8, atol=0.03)


@given(fail=st.floats(0.02, 0.5), recover=st.floats(0.05, 0.5), seed=st.integers(0, 100))
def test_looking_back_gives_the_chain_that_walking_forwards_gives(fail, recover, seed):
    rule, here = Bursts(fail, recover, seed=seed), np.ones(4, bool)
    np.testing.assert_array_equal(rule.present(0, 4), here)
    for k in range(1, 40):
        draw = np.random.default_rng([seed, k]).random(4)
        here = np.where(here, draw >= fail, draw >= 1 - recover)
        np.testing.assert_array_equal(rule.present(k, 4), here)


def test_bursts_last_as_long_as_they_should():
    rule = Bursts(0.05, 0.2, seed=3)
    here = np.array([rule.present(k, 40) for k in range(1500)])
    assert 1 - here[100:].mean() == pytest.approx(0.05 / 0.25, abs=0.02)
    lengths = []
    for device in here.T:
        ends = np.flatnonzero(np.diff(np.concatenate([[1], device, [1]])))
        lengths += (ends[1::2] - ends[::2]).tolist()
    assert np.mean(lengths) == pytest.approx(5, rel=0.1)


def test_slow_devices_miss_the_deadline_as_often_as_the_exponential_says():
    rule = Stragglers([0.5, 1.0, 4.0], 2.0, seed=0)
    here = np.mean([rule.present(k, 3) for k in range(4000)], axis=0)
    np.testing.assert_allclose(here, 1 - np.exp(-2.0 / np.array([0.5, 1.0, 4.0])), atol=0.03)
    times = np.mean([rule.times(k, 3) for k in range(4000)], axis=0)
    np.testing.assert_allclose(times, [0.5, 1.0, 4.0], rtol=0.06)


def test_a_device_dies_and_returns():
    rule = Outages(((0, 4, 7), (2, 9, None)))
    who = np.array([rule.present(k, 3) for k in range(14)])
    np.testing.assert_array_equal(np.flatnonzero(~who[:, 0]), [4, 5, 6])
    np.testing.assert_array_equal(np.flatnonzero(~who[:, 2]), range(9, 14))
    assert who[:, 1].all()


def test_what_is_minimised_when_a_device_stays_away():
    """Rescaled or dropped, the others' objective; with last known gradients, f with that gradient frozen."""
    problem = make_least_squares(devices=3)
    w, gone = problem.weights, Outages(((1, 0, None),))
    others = problem.reweighted(np.where(np.arange(3) == 1, 1e-300, w))
    for missing in ("rescale", "drop"):
        history = run(GD("mean"), problem, 800, participation=Outages(gone.spans, None, missing))
        np.testing.assert_allclose(history.x, optimum(others).x, atol=1e-7)
    history = run(GD("mean"), problem, 800, participation=Outages(((1, 1, None),), None, "last"))
    frozen = problem.gradients(problem.x0())[1]
    total = (w * [1, 0, 1]) @ problem.gradients(history.x) + w[1] * frozen
    np.testing.assert_allclose(total, 0, atol=1e-9)


def test_last_known_gradients_need_no_lucky_rounds_and_rescaling_keeps_a_noise():
    problem, best = make_least_squares(devices=4), None
    best = optimum(problem).x
    error = {
        missing: np.linalg.norm(run(GD("mean"), problem, 1500, participation=Bernoulli(0.6, missing)).x - best)
        for missing in ("rescale", "drop", "last")
    }
    assert error["last"] < 1e-9 < 1e-3 < min(error["rescale"], error["drop"])


def test_a_gossip_device_that_is_away_stays_where_it_is():
    problem, rule = make_least_squares(devices=4), Outages(((2, 0, None),), None, "drop")
    method = DecentralisedGD(graph="complete")
    state = method.start(problem.x0(), describe(problem).devices)
    for k in range(5):
        state = method.tell(state, Answering(problem, "drop")(method.ask(state), rule.present(k, 4)).answer)
    assert (state.x[2] == problem.x0()).all()
    assert (state.x[[0, 1, 3]] != 0).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bernoulli(0.0), r"in \(0, 1\], got 0.0"),
        (lambda: Bernoulli(1.0 + 1e-15), r"in \(0, 1\], got 1.0"),
        (lambda: Bernoulli(np.nan), "got nan"),
        (lambda: Bernoulli(0.5, "wait"), "got 'wait'"),
        (lambda: Cohort(0), "at least 1, got 0"),
        (lambda: Cohort(2, "wait"), "got 'wait'"),
        (lambda: Bursts(0.5, 0.0), r"recover is a probability in \(0, 1\], got 0.0"),
        (lambda: Bursts(1.5, 0.1), r"fail is a probability in \(0, 1\], got 1.5"),
        (lambda: Bursts(0.2, 0.1, "wait"), "got 'wait'"),
        (lambda: Stragglers([1.0, np.inf], 1.0), "typical times are positive"),
        (lambda: Stragglers([1.0, np.nan, 2.0], 1.0), "typical times are positive"),
        (lambda: Stragglers([1.0, 0.0], 1.0), "typical times are positive"),
        (lambda: Stragglers([[1.0, 2.0]], 1.0), "typical times are positive"),
        (lambda: Stragglers(1.0, np.nan), "a deadline is positive, got nan"),
        (lambda: Stragglers(1.0, 1.0, "wait"), "got 'wait'"),
        (lambda: Outages(((-1, 5, None),)), "an outage's device must be a whole number of at least 0, got -1"),
        (lambda: Outages(((0, -1, None),)), "the round in which a device dies .* got -1"),
        (lambda: Outages(((3, 0, None),)).present(0, 3), "device 3, but there are only 3"),
        (lambda: Cohort(4).present(0, 3), "cohort of 4 is more than the 3"),
        (lambda: Bursts(0.0, 0.5), r"fail is a probability in \(0, 1\], got 0.0"),
        (lambda: Bursts(0.7, 0.5), "fail [+] recover <= 1, got 0.7 [+] 0.5"),
        (lambda: Stragglers(-1.0, 1.0), "positive, one for all or one per device, got -1.0"),
        (lambda: Stragglers(1.0, 0.0), "a deadline is positive, got 0.0"),
        (lambda: Stragglers([1.0, 2.0], 1.0).present(0, 3), "2 typical times for 3 devices"),
        (lambda: Outages(((0, 5, 5),)), "round of return must be a whole number of at least 6, got 5"),
        (lambda: Outages(((7, 0, None),)).present(0, 3), "device 7, but there are only 3"),
        (lambda: Outages((), missing="wait"), "got 'wait'"),
        (
            lambda: run(DecentralisedGD(), make_least_squares(), 2, participation=Bernoulli(0.5, "last")),
            "missing='last' needs a server",
        ),
    ],
)
def test_bad_input_is_quoted(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


def test_what_is_just_allowed():
    """The ends of every range, and a draw that meets its bound: U < p has probability p where U is a multiple of 2^-53,
    and who is back at the deadline itself is in time."""
    assert Bernoulli(1.0).present(3, 50).all()
    assert Cohort(3).present(0, 3).all()
    assert Bursts(0.5, 0.5, seed=2).present(4, 3).shape == (3,)
    np.testing.assert_array_equal(Outages(((2, 0, 1),)).present(0, 3), [True, True, False])
    np.testing.assert_array_equal(Outages(((2, 0, 1),)).present(1, 3), [True, True, True])
    draws = np.random.default_rng([6, 3]).random(4)
    for bound in draws:
        np.testing.assert_array_equal(Bernoulli(float(bound), seed=6).present(3, 4), draws < bound)
    first = np.random.default_rng([6, 1]).random(4)
    low = float(np.sort(first)[1])
    np.testing.assert_array_equal(Bursts(low, 1e-9, seed=6).present(1, 4), first >= low)
    gone, returns = (float(np.random.default_rng([6, k]).random(1)[0]) for k in (1, 2))
    assert gone < returns  # away in round 1, and back in round 2 by a draw of exactly 1 - recover
    bursts = Bursts(float(np.nextafter(gone, 1)), 1 - returns, seed=6)
    assert [bool(bursts.present(k, 1)[0]) for k in (0, 1, 2)] == [True, False, True]
    slow = Stragglers([1.0, 2.0, 3.0], 1.0, seed=6)
    for time in slow.times(2, 3):
        at = dataclasses.replace(slow, deadline=float(time))
        np.testing.assert_array_equal(at.present(2, 3), slow.times(2, 3) <= time)


@pytest.mark.parametrize("text", ["0.3", "cohort:3", "bursts:0.2:0.4", "stragglers:1.5:2", "dies:2:5", "returns:1:3:9"])
def test_a_rule_on_the_command_line_is_the_rule_in_code(text):
    rules = {
        "0.3": Bernoulli(0.3, "drop", 7), "cohort:3": Cohort(3, "drop", 7),
        "bursts:0.2:0.4": Bursts(0.2, 0.4, "drop", 7),
        "stragglers:1.5:2": Stragglers(1.5, 2.0, "drop", 7), "dies:2:5": Outages(((2, 5, None),), missing="drop"),
        "returns:1:3:9": Outages(((1, 3, 9),), missing="drop"),
    }  # fmt: skip
    assert parse_participation(text, "drop", 7) == rules[text]
    assert parse_participation(text).missing == "rescale"
    assert getattr(parse_participation(text), "seed", 0) == 0
    assert parse_participation("1") is None
    for wrong in ("moon:3", "cohort:3:4", "cohort:x", "bursts:0.2", "dies:1", "returns:1:2"):
        with pytest.raises(InvalidInput, match=wrong):
            parse_participation(wrong)
    with pytest.raises(InvalidInput, match="at least 1, got 0"):
        parse_participation("cohort:0")


@pytest.mark.parametrize("rule", [Outages(((1, 1, 4), (0, 6, 9), (2, 0, 3))), Bernoulli(0.5, seed=4)])
def test_absent_devices_count_with_their_last_gradient_in_a_second_sum_too(rule):
    """One pass gives both sums of a method that asks for two; who never answered counts as zero."""
    problem, rng = make_least_squares(devices=3), np.random.default_rng(0)
    answering, last = Answering(problem, "last"), np.zeros((3, problem.dim))
    mix, also = np.array([0.5, 0.2, 0.9]), np.array([0.1, 0.7, 0.3])
    for k in range(12):
        present, x = rule.present(k, 3), rng.standard_normal(problem.dim)
        last[present] = problem.gradients(x)[present]
        answer = answering(Ask(x, mix, also=also), present).answer
        np.testing.assert_allclose(answer.sum, mix @ last, atol=1e-12)
        np.testing.assert_allclose(answer.also, also @ last, atol=1e-12)


@pytest.mark.parametrize("missing", ["rescale", "drop", "last"])
def test_losses_hessians_and_second_points_are_of_those_who_answer(missing):
    """The value is their mean; sums are divided by their weight unless the share of the absent is dropped."""
    problem, rng = make_logistic(devices=4), np.random.default_rng(3)
    here, w, mix = np.array([True, False, True, True]), problem.weights, np.array([0.5, 0.2, 0.9, 0.4])
    x, base = rng.standard_normal((2, problem.dim))
    answering = Answering(problem, missing)
    answering(Ask(base, mix), np.ones(4, bool))  # all have been seen once
    answer = answering(Ask(x, mix, base=base, hessian=True), here).answer
    share = 1.0 if missing == "drop" else w[here].sum()
    losses, at_base = (np.array([problem.only(i).value(point) for i in range(4)]) for point in (x, base))
    assert answer.value == pytest.approx(w[here] @ losses[here] / w[here].sum())
    assert answer.base_value == pytest.approx(w[here] @ at_base[here] / w[here].sum())
    hessians = [problem.hessian(x, np.eye(4)[i]) for i in range(4)]
    expected = sum(mix[i] / share * hessians[i] for i in np.flatnonzero(here))
    np.testing.assert_allclose(answer.hessian, expected[np.triu_indices(problem.dim)], atol=1e-13)
    if missing == "last":
        np.testing.assert_allclose(answer.base, mix @ problem.gradients(base), atol=1e-13)
    else:
        np.testing.assert_allclose(answer.base, (mix * here / share) @ problem.gradients(base), atol=1e-13)


@pytest.mark.parametrize(
    ("asked", "up", "down"),
    [
        ({}, 8 * 6 + 8, 8 * 6 + 8),
        ({"also": np.ones(3)}, 2 * 8 * 6 + 8, 8 * 6 + 16),
        ({"curvature": True}, 8 * 6 + 24, 8 * 6 + 8),
        ({"also": np.ones(3), "curvature": True}, 2 * 8 * 6 + 24, 8 * 6 + 16),
        ({"local": LocalWork(3, 0.1)}, 8 * 6 + 8, 8 * 6 + 8),
        ({"local": LocalWork(3, 0.1, norms=True)}, 8 * 6 + 16, 8 * 6 + 8),
        ({"local": LocalWork(3, 0.1, shift=np.zeros((3, 6)))}, 8 * 6 + 8, 2 * 8 * 6 + 8),
        ({"base": np.zeros(6)}, 2 * 8 * 6 + 16, 2 * 8 * 6 + 8),
        ({"hessian": True}, 8 * 6 + 8 + 8 * 21, 8 * 6 + 8),
    ],
)
def test_bytes_of_an_exchange(asked, up, down):
    """Six coordinates of eight bytes; a number with every vector, two more for a curvature; nothing of the absent."""
    found = server_bytes(Ask(np.zeros(6), np.ones(3), **asked), np.array([True, False, True]))
    assert [side.tolist() for side in found] == [[up, 0, up], [down, 0, down]]


@pytest.mark.parametrize("missing", [None, "rescale", "drop", "last"])
@pytest.mark.parametrize("measured", [True, False])
def test_the_sum_the_mean_loss_and_the_norm_of_one_question(missing, measured):
    """From every device's own gradient; the norm is of grad f, and known where that is what was asked for."""
    problem, rng = make_logistic(devices=4), np.random.default_rng(5)
    w, x = problem.weights, rng.standard_normal(problem.dim)
    here = np.array([True, False, True, True]) if missing else np.ones(4, bool)
    rows, share = problem.gradients(x), w[here].sum()
    losses = np.array([problem.only(i).value(x) for i in range(4)])
    for mix, common in ((0.7 * w, True), (-2 * w, True), (rng.standard_normal(4), False), (np.zeros(4), None)):
        answered = Answering(problem, missing, measured)(Ask(x, mix), here)
        factor = {"rescale": 1 / share}.get(missing, 1.0)
        np.testing.assert_allclose(answered.answer.sum, (factor * mix * here) @ rows, atol=1e-13)
        assert answered.answer.value == pytest.approx(w[here] @ losses[here] / share)
        assert answered.answer.gradients is None
        known = measured or missing == "last" or (common and missing is None)
        known = known and not (common is None and missing != "last")  # of no sum at all there is no factor
        assert answered.gradient_norm == pytest.approx(np.linalg.norm(w @ rows) if known else np.nan, nan_ok=True)
        assert (answered.answer.present is None) == (missing is None)
        np.testing.assert_allclose(answered.losses, losses, rtol=1e-12)
    nobody = Answering(problem, missing or "drop", measured)(Ask(x, w), np.zeros(4, bool))
    assert (nobody.answer.sum == 0).all()
    assert np.isnan(nobody.answer.value)


@pytest.mark.parametrize("missing", [None, "rescale", "drop", "last"])
def test_local_steps_are_those_of_the_formula(missing):
    """y_i <- y_i - eta_i (grad f_i(y_i) + prox (y_i - x) + shift_i), E_i times, written out device by device."""
    problem, rng = make_least_squares(devices=4), np.random.default_rng(6)
    x, mix, shift = rng.standard_normal(problem.dim), rng.standard_normal(4), rng.standard_normal((4, problem.dim))
    here, steps, eta = np.array([True, True, False, True]), np.array([3, 1, 4, 2]), np.array([0.01, 0.03, 0.02, 0.05])
    here = here if missing else np.ones(4, bool)
    for work in (
        LocalWork(steps, eta, prox=0.3, shift=shift, norms=True), LocalWork(3, 0.02), LocalWork(2, eta, prox=0.5),
        LocalWork(steps, 0.02, norms=True), LocalWork(1, 0.02, shift=shift),
    ):  # fmt: skip
        d, each = np.empty_like(shift), np.broadcast_to(work.step, 4)
        for i, many in enumerate(np.broadcast_to(work.steps, 4)):
            y = x.copy()
            for _ in range(many):
                own = 0 if work.shift is None else shift[i]
                y = y - each[i] * (problem.only(i).gradients(y)[0] + work.prox * (y - x) + own)
            d[i] = (x - y) / each[i]
        d[~here] = 0
        c = mix * here / (problem.weights[here].sum() if missing == "rescale" else 1)
        answer = Answering(problem, missing)(Ask(x, mix, local=work), here).answer
        np.testing.assert_allclose(answer.sum, c @ d, atol=1e-12)
        assert (answer.gradients is not None) == (work.shift is not None)
        if work.shift is not None:
            np.testing.assert_allclose(answer.gradients, d, atol=1e-12)
        expected = c @ (d**2).sum(axis=1) if work.norms else np.nan
        assert answer.squares == pytest.approx(expected, nan_ok=True)


def test_a_trial_that_is_too_far_away_is_asked_for_no_sketch():
    problem = make_logistic(devices=3)
    ask = Ask(np.full(problem.dim, np.nan), problem.weights, sketch=SketchWork(1, revealing="allow"))
    with np.errstate(all="ignore"):
        seen = Answering(problem, None)(ask, np.ones(3, bool))
    assert seen.answer.sketches == ()
    assert (seen.up == server_bytes(ask, np.ones(3, bool))[0]).all()
    near = Ask(problem.x0(), problem.weights, sketch=SketchWork(1, revealing="allow"))
    seen = Answering(problem, "drop")(near, np.array([True, False, True]))
    plain = server_bytes(near, np.array([True, False, True]))[0]
    assert (seen.up - plain).tolist() == [8 * problem.dim + 8 * 5, 0, 8 * problem.dim + 8 * 5]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"mix": None, "hessian": True}, "go with one sum of gradients at x"),
        ({"local": LocalWork(2, 0.1), "base": np.zeros(4)}, "go with one sum of gradients at x"),
        ({"local": LocalWork(2, 0.1), "curvature": True}, "local steps have neither"),
        ({"local": LocalWork(2, 0.1), "also": np.ones(3)}, "local steps have neither"),
    ],
)
def test_questions_that_no_device_can_answer(asked, message):
    problem = make_logistic()
    x = np.zeros((3, 4)) if asked.get("mix", 1) is None else np.zeros(4)
    with pytest.raises(InvalidInput, match=message):
        Answering(problem, None)(Ask(x, **{"mix": problem.weights} | asked), np.ones(3, bool))


def test_a_hessian_s_triangle_is_whole_finite_and_not_too_large(monkeypatch):
    problem = make_logistic()
    for wrong, message in ((np.ones(9), "has 10 numbers, got shape"), (np.r_[np.ones(9), np.inf], "not finite")):
        with pytest.raises(InvalidInput, match=message):
            checked_triangle(wrong, 4)
    assert (checked_triangle(np.arange(10.0), 4) == np.arange(10)).all()
    monkeypatch.setattr("ownstep.engines.local.answering.MOST_COORDINATES", 4)
    assert triangle(problem, problem.x0(), problem.weights).shape == (10,)
    monkeypatch.setattr("ownstep.engines.local.answering.MOST_COORDINATES", 3)
    with pytest.raises(InvalidInput, match="of 4 coordinates is 10 numbers; .* at most 3"):
        triangle(problem, problem.x0(), problem.weights)
    with pytest.raises(InvalidInput, match="object has no Hessians to send"):
        triangle(object(), problem.x0(), problem.weights)


def test_without_a_server_a_vector_crosses_every_link_between_those_who_are_there():
    problem, links = make_least_squares(devices=3), np.array([[0, 1, 2], [1, 0, 0], [3, 0, 0]])
    x = np.random.default_rng(2).standard_normal((3, problem.dim))
    seen = Answering(problem, "drop")(Ask(x, None, links=links), np.array([True, False, True]))
    vector = 8 * problem.dim
    assert seen.up.tolist() == [2 * vector, 0, 3 * vector]
    assert seen.down.tolist() == [3 * vector, 0, 2 * vector]
    np.testing.assert_allclose(seen.answer.gradients[[0, 2]], problem.gradients(x)[[0, 2]])
    assert (seen.answer.gradients[1] == 0).all()
    assert Answering(problem, None)(Ask(x, None), np.ones(3, bool)).up.tolist() == [0, 0, 0]


def test_a_history_says_who_may_be_absent(least_squares):
    assert run(GD(), least_squares, 2, participation=Bernoulli(0.7)).settings["participation"] == repr(Bernoulli(0.7))
    assert run(GD(), least_squares, 2).settings["participation"] is None


def test_what_devices_remember_is_restored_as_what_it_was():
    """Points and gradients as tensors in the precision of x; losses and curvatures as arrays of doubles."""
    torch = pytest.importorskip("torch")
    memory, x = Memory(make_least_squares(), True), torch.zeros(2)
    kept = {
        "points": np.ones((3, 2)), "gradients": np.ones((3, 2)), "losses": np.array([0.1, 0.2, 0.3]),
        "known": np.ones(3, bool), "fresh": np.ones(3, bool), "curvature": np.array([0.7, 1.1, 2.0]),
        "previous": np.array(0.1),
    }  # fmt: skip
    memory.restore({f"memory_{name}": array for name, array in kept.items()}, x)
    assert memory.points.dtype == memory.gradients.dtype == torch.float32
    assert isinstance(memory.losses, np.ndarray)
    assert memory.losses.tolist() == [0.1, 0.2, 0.3]
    assert memory.curvature.tolist() == [0.7, 1.1, 2.0]
    assert memory.previous == 0.1
