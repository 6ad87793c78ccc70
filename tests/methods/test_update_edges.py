"""The lines by which methods move, at the edges of their rules: what is just allowed, just not, zero, or at a limit."""

from __future__ import annotations

import dataclasses
import inspect
import math

import numpy as np
import pytest

from ownstep.methods import (
    EXTRA,
    METHODS,
    At,
    BarzilaiBorwein,
    FedExP,
    HeavyBall,
    Nesterov,
    Never,
    NormBelow,
    OwnCurvature,
    OwnStep,
    Shrunk,
    TripleMomentum,
    mixing_matrix,
)  # fmt: skip
from ownstep.methods.base import Answer
from ownstep.methods.gossip.mixing import Mixing
from ownstep.methods.own.own_adaptive import _own
from ownstep.methods.own.sketch_bank import Bank
from ownstep.methods.pooled.item import SETTLED, item_numbers
from ownstep.methods.pooled.newton import newton_step
from ownstep.methods.search.pairs import Pairs
from ownstep.plan import Devices
from ownstep.smoothness.sketch import Sketch
from ownstep.support.errors import InvalidInput

EPS = np.finfo(float).eps


def one_device(mu: float = 1.0, L: float = 1.0) -> Devices:
    return Devices(np.ones(1), np.array([L]), np.array([mu]), L_pooled=L)


def full(H) -> np.ndarray:
    return np.asarray(H, float)[np.triu_indices(len(H))]


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize(("pivot", "shift"), [(3e-12, 0.0), (0.4e-12, 1e-11), (0.0, 1e-11)])
def test_a_newton_step_along_a_direction_that_hardly_curves(pivot, shift, d):
    """Pivots of the scaled matrix above 1e-12 are believed; below, 1e-11 is added to all of the diagonal.

    The unit of a column is no reason: the last one is in thousandths, and its step a thousand times as long.
    """
    c = math.sqrt(1 - pivot)
    H, g = np.diag([4.0] * d), np.full(d, 0.5)
    H[-2:, -2:], g[-2:] = [[1.0, c], [c, 1.0]], [1.0, -1.0]
    unit = np.ones(d)
    unit[-1] = 2.0**-10
    step = newton_step(full(H * unit * unit[:, None]), g * unit)
    flat = -1 / (1 - c + shift)
    np.testing.assert_allclose(step * unit, [*[-0.125] * (d - 2), flat, -flat], rtol=2e-3)


def test_a_newton_step_of_an_indefinite_hessian_is_bounded():
    """Sizes of eigenvalues, and at least 1e-12 of the largest."""
    step = newton_step(full(np.diag([4.0, -1.0, 1e-14])), np.array([2.0, 3.0, 5.0]))
    np.testing.assert_allclose(step, [-0.5, -3.0, -5.0 / 4e-12], rtol=1e-9)
    step = newton_step(full(np.diag([0.25, -1.0, -0.5])), np.array([2.0, 3.0, 5.0]))
    np.testing.assert_allclose(step, [-8.0, -3.0, -10.0], rtol=1e-9)


def test_where_nothing_curves_there_is_no_newton_step():
    assert np.isnan(newton_step(np.zeros(6), np.ones(3))).all()
    state = METHODS["newton"]().start(np.zeros(3), one_device())
    told = METHODS["newton"]().tell(state, Answer(np.array([3.0, 0.0, 4.0]), 1.0, hessian=np.zeros(6)))
    np.testing.assert_allclose(told.x, [-0.6, 0.0, -0.8])  # length 1 along the negative gradient


@pytest.mark.parametrize("q", [0.03, 0.25, 0.8])
def test_item_tends_to_triple_momentum(q):
    """beta -> (1 - r)/(1 + r) and delta -> 1/r with r = sqrt(q); A_k stays finite for ever, at q A = 1e14."""
    A = 0.0
    for k in range(1500):
        beta, delta, A = item_numbers(q, A)
        assert delta > 0
        assert k == 0 or beta > 0
    r = math.sqrt(q)
    assert pytest.approx(SETTLED / q, rel=1e-15) == A
    np.testing.assert_allclose([beta, delta], [(1 - r) / (1 + r), 1 / r], rtol=1e-12)


def test_item_at_both_ends_of_q():
    assert item_numbers(1.0, 3.0) == item_numbers(2.0, 3.0) == (0.0, 1.0, 3.0)
    beta, delta, A = item_numbers(0.0, 8.0)  # A = 8: 2 (1 + 3) + 8
    np.testing.assert_allclose([beta, delta, A], [8 / 16, 4.0, 16.0])
    assert item_numbers(0.0, 1e16)[2] > 1e16  # where mu is 0 nothing settles


def test_triple_momentum_needs_mu_at_most_L():
    with pytest.raises(InvalidInput, match=r"needs mu/L <= 1, got 1.5"):
        TripleMomentum(1.5).start(np.ones(2), one_device(1.0))
    method = TripleMomentum(1.0)
    state = method.start(np.ones(2), one_device(1.0))
    state = method.tell(state, Answer(method.ask(state).x, 1.0))  # f = ||x||^2 / 2: one step is all
    np.testing.assert_array_equal(method.point(state), 0)
    flat = method.start(np.ones(2), one_device(0.0))
    assert flat.momentum is None


@pytest.mark.parametrize("name", ["giant", "dane"])
def test_devices_that_solve_nothing_are_named(name):
    method, g = METHODS[name](), np.ones(2)
    state = method.tell(method.start(np.zeros(2), one_device()), Answer(g, 1.0))
    with pytest.raises(InvalidInput, match="needs devices that solve problems of their own"):
        method.tell(state, Answer(g, 1.0))


def test_item_needs_mu_below_L():
    with pytest.raises(InvalidInput, match=r"ITEM needs alpha mu < 1, got alpha = 1 and mu = 1"):
        METHODS["item"](1.0).start(np.ones(2), one_device(1.0))
    assert METHODS["item"](1.5).start(np.ones(2), one_device(0.5)).number == 0.0


@pytest.mark.parametrize(
    ("kind", "far", "stalled"),
    [
        (np.float32, 0.75 * 2**23, False),
        (np.float32, 1.5 * 2**23, True),
        (np.float64, 1.5 * 2**23, False),
        (np.float64, 0.75 * 2**52, False),
        (np.float64, 1.5 * 2**52, True),
    ],
)
def test_a_step_below_the_last_bit_of_x_is_none(kind, far, stalled):
    """The first trial lies 1 away from x: 2^-23 of x in single precision, or 2^-52 in double, is no step."""
    method = METHODS["lbfgs"]()
    state = method.tell(method.start(np.array([far], kind), one_device()), Answer(np.ones(1, kind), 1.0))
    assert state.stalled is stalled
    assert state.x.dtype == kind


@pytest.mark.parametrize(("long", "steep"), [(1.0, 1.0), (8.0, 1e3), (1e-3, 0.25)])
def test_a_pair_has_to_curve_more_than_rounding(long, steep):
    """<s, y> > eps ||s|| ||y||, whatever the units of both."""
    none, s = Pairs.none(np.zeros(2)), long * np.array([1.0, 0.0])
    assert none.added(s, steep * np.array([2 * EPS, 1.0]), 3).count == 1
    assert none.added(s, steep * np.array([EPS / 2, 1.0]), 3) is none
    assert none.added(s, steep * np.array([-1.0, 1.0]), 3) is none
    assert none.added(s, 0 * s, 3) is none


def test_pairs_are_the_last_ones_oldest_first():
    pairs = Pairs.none(np.zeros(1))
    for j in range(1, 6):
        pairs = pairs.added(np.array([float(j)]), np.array([2.0 * j * j]), 3)
        assert pairs.count == min(j, 3)
        assert pairs.s.ravel().tolist() == [float(i) for i in range(max(1, j - 2), j + 1)]
        assert pairs.y.ravel().tolist() == [2.0 * i * i for i in range(max(1, j - 2), j + 1)]
        assert pairs.scale == pytest.approx(1 / (2 * j))
    assert METHODS["lbfgs"](1).memory == 1


@pytest.mark.parametrize("theta", [0.3, 1.0])
def test_a_lazier_matrix_listens_less(theta):
    W = mixing_matrix("path", 4)
    np.testing.assert_allclose(W.lazier(theta).matrix, (1 - theta) * np.eye(4) + theta * W.matrix, atol=1e-15)
    assert W.lazier(theta).name == "path"
    np.testing.assert_allclose(W.lazier(theta).eigenvalues, 1 - theta * (1 - W.eigenvalues), atol=1e-12)


@pytest.mark.parametrize("theta", [0.0, -0.1, 1.01, math.nan])
def test_how_much_lazier_is_a_share(theta):
    with pytest.raises(InvalidInput, match=r"must be in \(0, 1\]"):
        mixing_matrix("path", 4).lazier(theta)


@pytest.mark.parametrize("turned", [False, True])
def test_rows_and_columns_both_sum_to_one(turned):
    """Row sums alone keep agreement, column sums alone the mean: each is looked at."""
    W = np.array([[0.6, 0.4, 0.0], [0.2, 0.6, 0.2], [0.0, 0.5, 0.5]])
    with pytest.raises(InvalidInput, match=r"doubly stochastic, but a row or column sum is off by 0\.5"):
        Mixing(W.T if turned else W)
    near = np.full((2, 2), 0.5)
    near[0, 0] += 1e-10
    assert len(Mixing(near)) == 2  # rounding is forgiven
    near[0, 0] += 1e-8
    with pytest.raises(InvalidInput, match="off by"):
        Mixing(near)


@pytest.mark.parametrize(("ratio", "wanted"), [(1.999, False), (2.001, True), (0.5001, False), (0.4999, True)])
def test_sketches_that_are_off_by_less_than_two_are_kept(ratio, wanted):
    """M is the identity, y = ratio s: <s, y> / <y, M^{-1} y> = 1 / ratio, and [1/2, 2] is right enough."""
    method, x0 = OwnCurvature(2), np.zeros(2)
    state = method.start(x0, one_device())
    bank = Bank.empty(x0, [1.0]).renewed([Sketch(np.eye(2), np.ones(2), 2.0)])
    pairs = Pairs.none(x0).added(np.array([1.0, 0.0]), np.array([ratio, 0.0]), 3)
    state = dataclasses.replace(state, bank=bank, pairs=pairs, wanted=False, sketched=1, k=50, kept=2)
    told = method._set_out(state, np.array([1.0, 2.0]))
    assert (told.wanted, told.search.step) == (wanted, 1.0)


def test_sketches_that_were_wanted_stay_wanted_until_they_come():
    """Also where the metric fits the last pair: nobody has answered yet."""
    method, x0 = OwnCurvature(2), np.zeros(2)
    bank = Bank.empty(x0, [1.0]).renewed([Sketch(np.eye(2), np.ones(2), 2.0)])
    pairs = Pairs.none(x0).added(np.array([1.0, 0.0]), np.array([1.0, 0.0]), 3)
    for wanted in (True, False):
        state = method.start(x0, one_device())
        state = dataclasses.replace(state, bank=bank, pairs=pairs, wanted=wanted, sketched=1, k=50, kept=2)
        assert method._set_out(state, np.array([1.0, 2.0])).wanted is wanted


def test_a_share_of_nothing_is_the_length_itself():
    """Where grad f vanishes, |own sum| / |grad f| has no denominator."""
    method, x0 = OwnStep(smoothness="adaptive"), np.zeros(2)
    state = dataclasses.replace(method.start(x0, one_device()), size=math.nan)
    told = _own(state, x0, Answer(np.zeros(2), 0.0, also=np.array([3.0, 4.0])))
    assert told.size == 5.0


@pytest.mark.parametrize(
    ("switch", "sizes", "fired"),
    [
        (At(2), [5.0, 5.0], 2),
        (NormBelow(0.5), [4.0, 0.75, 0.5], 3),  # exactly the threshold is enough
        (NormBelow(0.5), [0.25], 1),
        (Shrunk(0.25), [4.0, 1.5, 8.0, 1.0], 4),  # exactly the share of the first, not of the largest
        (Shrunk(0.25), [0.5, 0.25, 0.125], 3),
        (Shrunk(0.25), [0.0, 0.0], 2),  # one move has not shrunk, whatever it is
        (Never(), [0.0, 0.0], None),
    ],
)
def test_a_switch_fires_in_the_first_round_in_which_its_rule_holds(switch, sizes, fired):
    watch = switch.begin()
    for k, size in enumerate(sizes, start=1):
        assert watch.fired is None
        watch = switch.observe(watch, k, np.array([0.0, -size]), math.nan, one_device())
    assert watch.fired == fired
    assert bool(watch.why) is (fired is not None)


def test_fedexp_stays_where_no_device_moves():
    method, x0 = FedExP(epsilon=0.0), np.array([1.0, 2.0])
    state = method.start(x0, one_device())
    told = method.tell(state, Answer(np.zeros(2), 0.0, squares=0.0))
    assert (told.x == x0).all()


def numbers(kind: type) -> list[str]:
    """The arguments of a method that may be numbers."""
    return [f.name for f in dataclasses.fields(kind) if f.init and any(w in str(f.type) for w in ("int", "float"))]


MAY_BE_NEGATIVE = [("heavy_ball", "momentum"), ("nesterov", "momentum"), ("fedsps", "lower")]
ELSEWHERE = [("schedule", "scales"), ("schedule", "momentum")]
BAD = [
    pytest.param(name, field, value, id=f"{name}-{field}-{value}")
    for name, kind in METHODS.items()
    for field in numbers(kind)
    for value in ("nan", "inf", "-1.0")
    if not (value == "-1.0" and (name, field) in MAY_BE_NEGATIVE) and (name, field) not in ELSEWHERE
]


@pytest.mark.parametrize(("name", "field", "value"), BAD)
def test_an_argument_that_is_no_such_number_is_refused_by_its_name(name, field, value):
    with pytest.raises(InvalidInput) as error:
        METHODS[name](**{field: float(value)})
    shown = str(error.value)
    assert any(word in shown for word in (field, field.replace("_", " "), "step", "AdGD has version")), shown
    assert value.removesuffix(".0") in shown, shown


ZERO = [
    pytest.param(name, field, id=f"{name}-{field}")
    for name, kind in METHODS.items()
    for field in numbers(kind)
    if field in ("step", "client_step", "server_step", "local_steps", "tau", "c", "gamma", "alpha", "p", "memory",
                 "vectors", "horizon", "version", "after")
]  # fmt: skip


@pytest.mark.parametrize(("name", "field"), ZERO)
def test_what_has_to_be_positive_is_not_zero(name, field):
    with pytest.raises(InvalidInput):
        METHODS[name](**{field: 0})


@pytest.mark.parametrize("name", ["fedsps", "delta_sgd"])
def test_steps_that_devices_choose_begin_with_a_number(name):
    """1/L by name would need a constant, and these methods have none."""
    with pytest.raises(InvalidInput, match="client_step must be a finite number > 0, got 'largest'"):
        METHODS[name](client_step="largest")


NEW = [(name, kind) for name, kind in METHODS.items() if "step" in inspect.signature(kind).parameters]


@pytest.mark.parametrize(("name", "kind"), NEW)
def test_an_unknown_word_for_a_step_is_refused(name, kind):
    with pytest.raises(InvalidInput, match="unknown step.* 'longest'"):
        kind(step="longest")


def test_momentum_ends_where_a_step_is_longer_than_one_over_mu():
    """sqrt(step mu) is taken as at most 1, where both formulas give no momentum at all."""
    for method in (HeavyBall(step=1.5), Nesterov(step=1.5)):
        state = method.start(np.ones(2), one_device(mu=1.0, L=2.0))
        moved = method.tell(state, Answer(np.array([0.25, 0.5]), 1.0))
        again = method.tell(moved, Answer(np.zeros(2), 1.0))
        assert (again.x == moved.x).all(), method


@pytest.mark.parametrize("devices", [2, 5])
def test_a_method_without_a_server_takes_a_network_of_any_size(devices):
    some = Devices(np.full(devices, 1 / devices), np.ones(devices))
    assert len(EXTRA(graph=mixing_matrix("ring", devices)).start(np.zeros(2), some).x) == devices


def test_own_steps_take_a_rule_by_position_and_their_form_by_name():
    with pytest.raises(InvalidInput, match="switch must be a rule such as Plateau.*got 50"):
        OwnStep(50)
    with pytest.raises(TypeError):
        OwnStep(None, "samples", "given")


@pytest.mark.parametrize(("dtype", "seen"), [(float, 2.0**-26), (np.float32, 2.0**-10)])
def test_a_first_step_can_be_seen_where_f_is_zero(dtype, seen):
    """A hundredth of what the precision of x tells apart from x, not of |f| / ||g||, which is nothing."""
    method, x0, g = BarzilaiBorwein(), np.array([3.0, 4.0], dtype), np.array([0.0, 2.0], dtype)
    told = method.tell(method.start(x0, one_device()), Answer(g, 0.0))
    assert told.step == pytest.approx(0.01 * seen * 5 / 2)
