"""What methods do where hardly anybody gets: nobody answers, nothing curves, a search that does not end, odd words."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from ownstep.engines import run
from ownstep.methods import (
    DANE,
    LBFGS,
    METHODS,
    NIDS,
    SHED,
    At,
    DecentralisedGD,
    FedLin,
    Newton,
    OwnCurvature,
    Schedule,
    Sketch,
    TripleMomentum,
    mixing_matrix,
    parse_switch,
)  # fmt: skip
from ownstep.methods.base import Answer
from ownstep.methods.gossip.mixing import Mixing
from ownstep.methods.local_work import LocalSmoothness, LocalWork, PolyakStep
from ownstep.methods.naming import key_of, method_of
from ownstep.methods.own.sketch_bank import Bank
from ownstep.methods.pooled.safeguard import passes
from ownstep.methods.search import searched
from ownstep.methods.search.wolfe import MOST, NARROW, End, Search, _cubic, _cubic_beyond
from ownstep.partition import given
from ownstep.plan import Devices
from ownstep.problems import LeastSquares
from ownstep.support.errors import InvalidInput

TWO = Devices(np.array([0.25, 0.75]), np.array([1.0, 3.0]), np.array([0.5, 0.1]), L_pooled=2.0)


@dataclasses.dataclass(frozen=True)
class Mine:
    """A method of somebody else's, with an argument that must be given and one that is made, not given."""

    rate: float
    words: list = dataclasses.field(default_factory=list)
    cache: int = dataclasses.field(default=3, init=False)


def test_names_of_methods_go_there_and_back():
    known = METHODS | {"mine": Mine}
    assert key_of(object(), known).startswith("<object object")
    assert key_of(Mine(0.5), known) == "mine:0.5"
    changed = Mine(0.5)
    object.__setattr__(changed, "cache", 4)
    assert key_of(changed, known) == "mine:0.5"
    assert method_of("mine:0.50", known, parse_switch) == Mine(0.5)
    for key, found in (
        ("gd:0.50", METHODS["gd"](0.5)), ("gd:1e-1", METHODS["gd"](0.1)), ("gd:mean", METHODS["gd"]()),
        ("lbfgs:10", LBFGS()), ("own_step:at:5", METHODS["own_step"](At(5))), ("gd", METHODS["gd"]()),
        ("own_curvature:revealing=True,rank=5", OwnCurvature(rank=5, revealing=True)),
        ("own_curvature:revealing=False", OwnCurvature()), ("nesterov:momentum=None", METHODS["nesterov"]()),
    ):  # fmt: skip
        assert method_of(key, METHODS, parse_switch) == found
    with pytest.raises(InvalidInput, match="no argument of gd takes 'sideways'"):
        method_of("gd:sideways", METHODS, parse_switch)
    with pytest.raises(InvalidInput, match="'own_curvature:rank=5,rank=7' says one argument twice"):
        method_of("own_curvature:rank=5,rank=7", METHODS, parse_switch)
    with pytest.raises(InvalidInput, match="no argument of own_curvature takes 'abc'"):
        method_of("own_curvature:abc", METHODS, parse_switch)
    for text in ("plateau:3", "never:2", "at", "norm:x", "sometimes"):
        with pytest.raises(InvalidInput):
            parse_switch(text)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: LocalWork(2, 0.1, prox=0.1, rule=PolyakStep()), "neither a pull nor a shift"),
        (lambda: LocalWork(2, 0.1, shift=np.zeros((1, 1)), rule=LocalSmoothness()), "neither a pull nor a shift"),
        (lambda: Schedule(((1.0, 2.0), (1.0, 2.0, 3.0))), r"got rows of \[2, 3\]"),
        (lambda: Schedule(((1.0,), (1.0,)), ((0.1, 0.1),)), "1 rows of momentum for 2 rounds"),
        (lambda: Schedule(after=0.0), "after positive"),
        (lambda: Schedule(((1.0, 2.0, 3.0),)).start(np.zeros(2), TWO), "for 3 devices, not for 2"),
        (lambda: OwnCurvature(sketch="mean"), "unknown sketch 'mean'"),
        (lambda: Mixing(np.ones(3)), r"got shape \(3,\)"),
        (lambda: Mixing(np.ones((0, 0))), r"got shape \(0, 0\)"),
        (lambda: Mixing(np.ones((2, 3)) / 3), r"got shape \(2, 3\)"),
        (lambda: Mixing(np.array([[np.nan, 0.5], [0.5, 0.5]])), "finite entries of at least 0, got nan"),
        (lambda: Mixing(np.array([[1.5, -0.5], [-0.5, 1.5]])), "entries of at least 0, got -0.5"),
        (lambda: DecentralisedGD((0.1, 0.2)).start(np.zeros(2), Devices.uniform(np.ones(3))), "2 steps for 3 devices"),
        (lambda: METHODS["gradient_tracking"]((0.1, 0.2)), "takes one step for all devices"),
        (lambda: FedLin(local_steps=()), "local_steps must be a whole number of at least 1, got 0"),
        (lambda: Newton()._keep(Newton().start(np.zeros(2), TWO), Answer(np.zeros(2))), "devices that send their Hess"),
        (lambda: METHODS["scaffnew"]().start(np.zeros(2), Devices.uniform(np.ones(2))), "mu is 0 here: give it p"),
    ],
)
def test_what_is_refused(make, why):
    with pytest.raises(InvalidInput, match=why):
        make()


def test_what_is_just_allowed():
    assert Schedule(((1.0,), (1.0, 2.0)), ((0.1, 0.1), (0.0, 0.0))).start(np.zeros(2), TWO).k == 0
    allowed = [name for name in METHODS if "own" in getattr(METHODS[name], "steps_allowed", ())]
    for name in allowed:
        state = METHODS[name]((0.1, 0.2)).start(np.zeros(2), TWO)
        assert state.steps.tolist() == [0.1, 0.2]
        assert METHODS[name]((0.1, 0.2)).progress(state).phase == "local"  # every device its own, as with "own"
        assert METHODS[name](0.1).progress(METHODS[name](0.1).start(np.zeros(2), TWO)).phase == "common"
    assert allowed
    assert METHODS["scaffnew"](p=0.5).start(np.zeros(2), Devices.uniform(np.ones(2))).p == 0.5
    rule = PolyakStep(lower=(1.0, 2.0, 3.0))
    assert LocalWork(1, 0.1, rule=rule).keep([2, 0]).rule == PolyakStep(lower=(3.0, 1.0))
    assert LocalWork(1, 0.1).keep([1]).rule is None


def test_without_strong_convexity_triple_momentum_is_gradient_descent():
    method, g = TripleMomentum(0.5), np.array([1.0, -2.0])
    state = method.start(np.array([3.0, 4.0]), Devices.uniform(np.ones(2)))
    assert state.momentum is None
    for x in ([3.0, 4.0], [2.5, 5.0], [2.0, 6.0]):
        np.testing.assert_array_equal(method.ask(state).x, x)
        np.testing.assert_array_equal(method.point(state), x)
        state = method.tell(state, Answer(g))


def test_a_first_change_of_f_is_judged_by_the_step_alone():
    """Before a curvature was seen: f must fall by t |g|^2 / 2, or by |g|^2 / 2L where 1/L is shorter."""
    method = METHODS["barzilai_borwein"]()
    state = method.start(np.zeros(2), TWO)
    state = dataclasses.replace(state, gradient=np.array([3.0, 4.0]), value=0.0, slack=0.0, largest=0.0)
    assert passes(state, -0.4 * 25 / 2 - 1e-9, 0.4)
    assert not passes(state, -0.4 * 25 / 2 + 1e-9, 0.4)
    seen = dataclasses.replace(state, largest=5.0)
    assert passes(seen, -0.2 * 25 / 2 - 1e-9, 0.4)
    assert not passes(seen, -0.2 * 25 / 2 + 1e-9, 0.4)


# --- sketches that nobody sends ---------------------------------------------------------------------------------------


def test_a_bank_to_which_nobody_sends_stays_as_it_is():
    bank = Bank.empty(np.zeros(3), [0.25, 0.75])
    assert bank.renewed([None, None]) is bank
    assert bank.renewed([]) is bank
    assert not bank.known
    sent = bank.renewed([Sketch(np.eye(3)[:1], np.array([5.0]), 7.0), None])
    assert sent.renewed([None, None]) is sent
    assert sent.known


def test_of_devices_that_do_not_curve_the_penalty_is_left():
    """A data term of zero: no vectors at all, and M is the penalty's."""
    flat = Bank.empty(np.zeros(3), [0.25, 0.75]).renewed([Sketch(np.zeros((0, 3)), np.zeros(0), 0.0, 0.5)] * 2)
    assert flat.metric.inverse(np.array([1.0, 2.0, 3.0])).shape == (3,)
    assert np.isfinite(flat.metric.inverse(np.ones(3))).all()
    problem = LeastSquares(np.zeros((6, 3)), np.arange(6.0), given([0, 0, 0, 1, 1, 1]), mu=0.5)
    x0 = np.array([1.0, -2.0, 3.0])
    for method in (SHED(), OwnCurvature(), LBFGS(), Newton(), DANE()):
        history = run(method, problem, 30, x0=x0)
        assert history.value[-1] == pytest.approx(problem.value(np.zeros(3)), abs=1e-5)


def test_a_round_without_anybody_teaches_shed_nothing_about_curvature():
    method = SHED()
    state = method.start(np.zeros(2), TWO)
    nobody = method.tell(state, Answer(np.zeros(2), present=np.zeros(2, bool), value=math.nan))
    assert (nobody.sent, nobody.bank) == (0, state.bank)


# --- searches that do not end -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_search_gives_up_after_twenty_values_that_are_no_numbers(value):
    search, steps = Search.begin(1.0, -1.0, 1.0, 0.0), []
    while not search.done:
        steps.append(search.step)
        search = search.seen(value, -1.0)
    assert (search.done, len(steps), search.tries) == ("failed", MOST, MOST)
    np.testing.assert_allclose(steps, 0.1 ** np.arange(MOST))


@pytest.mark.parametrize(("value", "done"), [(0.5, "found"), (2.0, "failed")])
def test_the_last_trial_of_a_search_is_kept_if_it_is_low_enough(value, done):
    before = dataclasses.replace(Search.begin(1.0, -1.0, 1.0, 0.0), tries=MOST - 2)
    last = before.seen(value, -1.0)  # too steep to be found in the usual way
    assert (last.done, last.tries) == ("", MOST - 1)
    assert dataclasses.replace(before, tries=MOST - 1).seen(value, -1.0).done == done


def test_a_narrow_bracket_ends_a_search():
    def at(step, lower, upper, value=0.9, slope=-2.0):
        bracket = {"bracketed": True, "lower": lower, "upper": upper, "width": upper - lower, "width_before": 9.0}
        ends = {"best": End(lower, 0.95, -1.0), "other": End(upper, 2.0, 1.0)}
        return dataclasses.replace(Search.begin(1.0, -1.0, step, 0.0), **bracket, **ends).seen(value, slope).done

    assert at(0.95, 0.9, 1.0) == "found"  # a tenth of its upper end wide
    assert at(0.95, 0.9 - 1e-9, 1.0) == ""
    assert at(0.95, 0.9, 1.0, value=1.5) == "failed"
    assert at(0.5, 0.6, 1.0, value=0.9) == "found"  # outside of the bracket
    assert at(0.0, 0.1, 1.0, value=1.0) == "failed"  # no step at all is no step
    assert NARROW == 0.1


def test_a_search_knows_when_it_has_been_low_enough_on_a_rising_slope():
    """Stage 2 of the paper begins at the first trial with enough decrease and a slope of at least 0, and stays."""
    begun = Search.begin(1.0, -1.0, 1.0, 0.0)
    up, down = begun.seen(0.5, 2.0), begun.seen(0.5, -2.0)
    assert (up.done, up.lifted, down.done, down.lifted) == ("", True, "", False)
    assert not begun.seen(1.5, 2.0).lifted  # not low enough
    assert up.seen(0.9, -2.0).lifted
    assert not down.seen(0.4, -2.0).lifted


def test_a_line_has_no_minimiser():
    """Equal slopes and the values of a line: the middle between, or the end of what is allowed beyond."""
    a, b = End(0.0, 1.0, -1.0), End(2.0, -1.0, -1.0)
    assert _cubic(a, b) == 1.0
    assert (_cubic_beyond(a, b, 0.5, 7.0), _cubic_beyond(b, a, 0.5, 7.0)) == (7.0, 0.5)
    assert _cubic(End(0.0, 1.0, 0.0), End(2.0, 1.0, 0.0)) == 1.0  # nothing rises or falls
    assert _cubic(End(0.0, 0.0, -1.0), End(1.0, 0.0, 1.0)) == pytest.approx(0.5)


def kept(method):
    """A state that has seen f = 5 with gradient (2, 0) at (1, 0)."""
    return method.tell(method.start(np.array([1.0, 0.0]), TWO), Answer(np.array([2.0, 0.0]), value=5.0))


def test_a_direction_that_is_not_finite_gives_way_to_the_gradient():
    method = LBFGS()
    state = kept(method)
    for p in ([-math.inf, 0.0], [math.nan, 0.0], [1.0, 0.0], [0.0, 3.0]):
        found = method._along(state, state.gradient, np.array(p), 1.0)
        np.testing.assert_array_equal(found.direction, [-2.0, 0.0])
    fine = method._along(state, state.gradient, np.array([-1.0, 3.0]), 0.5)
    np.testing.assert_array_equal(fine.direction, [-1.0, 3.0])
    np.testing.assert_array_equal(fine.x, [0.5, 1.5])


def test_a_partial_first_answer_without_a_value_asks_for_no_base():
    method = LBFGS()
    state = method.tell(
        method.start(np.array([1.0, 0.0]), TWO),
        Answer(np.array([2.0, 0.0]), value=math.nan, present=np.array([True, False])),
    )
    assert state.partial
    assert method.ask(state).base is None
    assert method.ask(dataclasses.replace(kept(method), partial=True)).base is not None


def test_a_partial_comparison_takes_shorter_steps_and_then_the_gradient():
    """At most twenty, each a tenth to a half of the one before, as far as a parabola says; a tenth of no number."""
    method = LBFGS()
    state = dataclasses.replace(kept(method), partial=True)
    first = state.search.step
    for change, share in ((math.inf, 0.1), (math.nan, 0.1), (1e9, 0.1), (1e-9, 0.5)):
        answer = Answer(np.zeros(2), value=5.0 + change, base=np.array([2.0, 0.0]), base_value=5.0)
        tried = method.tell(state, answer)
        assert tried.search.step == pytest.approx(share * first)
        assert tried.search.tries == state.search.tries + 1
    refused = Answer(np.zeros(2), value=9.0, base=np.array([2.0, 0.0]), base_value=5.0)
    count = 0
    while not state.plain:
        state, count = method.tell(state, refused), count + 1
    assert count == searched.MOST
    np.testing.assert_array_equal(state.direction, [-2.0, 0.0])


def test_nids_of_one_device_is_gradient_descent():
    one = Devices(np.ones(1), np.array([2.0]))
    method, x = NIDS(0.25), np.array([3.0, -1.0])
    state = method.start(x, one)
    assert mixing_matrix("ring", 1).matrix.tolist() == [[1.0]]
    for _ in range(4):
        np.testing.assert_allclose(method.point(state), x, atol=1e-15)
        gradient = 2 * method.point(state)
        state, x = method.tell(state, Answer(None, gradients=gradient[None])), x - 0.25 * gradient
