"""The pieces of a lower end: vectors out of Gram matrices, functions through triples, numbers known up to an error."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from ownstep import pep
from ownstep.methods import GD, At, OwnStep
from ownstep.methods.base import Ask
from ownstep.pep.solve.candidate import Part, _arrangement, _factor, _own_minimiser, _placed, _unless_alike, merges, run
from ownstep.pep.solve.exact import Known, _Impossible, _Replay
from ownstep.pep.solve.instance import LocalLoss, _answer
from ownstep.pep.solve.sdp import Solution
from ownstep.pep.trace.symbolic import trace
from ownstep.pep.trace.units import Setting
from ownstep.plan import Devices

DEVICES = Devices(np.array([0.3, 0.7]), np.array([0.4, 3.0]), np.array([0.1, 0.2]))


def envelope(corners: Any, heights: Any, M: float, y: Any) -> float:
    """min over the simplex of M/2 ||y - a C||^2 + a h, one equality-constrained problem for each set of corners."""
    best = math.inf
    for size in range(1, len(corners) + 1):
        for chosen in itertools.combinations(range(len(corners)), size):
            C, h = corners[list(chosen)], heights[list(chosen)]
            matrix = np.block([[M * C @ C.T, np.ones((size, 1))], [np.ones((1, size)), np.zeros((1, 1))]])
            a = np.linalg.lstsq(matrix, np.append(M * C @ y - h, 1.0), rcond=None)[0][:-1]
            if a.min() >= -1e-10 and abs(a.sum() - 1) < 1e-9:
                best = min(best, M / 2 * np.sum((y - a @ C) ** 2) + a @ h)
    return best


@pytest.mark.parametrize("seed", range(12))
def test_an_interpolant_is_the_envelope_of_its_triples(seed: int) -> None:
    """By trying every face; some corners on a line, on one another, or all of them."""
    rng = np.random.default_rng([9, seed])
    count, dim, mu, L = int(rng.integers(2, 6)), 1 + seed % 3, (0.0, 0.4)[seed % 2], 2.5
    x, g, f = rng.standard_normal((count, dim)), rng.standard_normal((count, dim)), 0.3 * rng.standard_normal(count)
    M = L - mu
    if seed % 4 == 1:  # corners x - v / M that coincide, with other heights
        g[1] = g[0] + L * (x[1] - x[0])
    if seed % 4 == 2:
        g = mu * x + M * (x - rng.standard_normal((count, 1)) * x[0])
    if seed % 4 == 3:
        g = mu * x + M * (x - x[0])
    made = pep.Interpolant(x, g, f, mu, L)
    v, phi = g - mu * x, f - mu / 2 * np.sum(x**2, axis=1)
    for y in rng.standard_normal((6, dim)):
        wanted = envelope(x - v / M, phi - np.sum(v**2, axis=1) / (2 * M), M, y) + mu / 2 * y @ y
        value, slope = made.both(y)
        assert value == made(y) == pytest.approx(wanted, rel=1e-9, abs=1e-12)
        np.testing.assert_array_equal(slope, made.gradient(y))
        ahead, behind = ([made(y + h * e) for e in np.eye(dim)] for h in (1e-6, -1e-6))
        np.testing.assert_allclose(slope, np.subtract(ahead, behind) / 2e-6, atol=1e-5)
    value, slope = made.both(np.zeros(dim))
    assert made.origin()[0] == value
    np.testing.assert_array_equal(made.origin()[1], slope)


def test_a_class_of_one_function() -> None:
    made = pep.Interpolant(np.ones((1, 2)), np.ones((1, 2)), np.ones(1), 1.5, 1.5)
    assert made.both(np.array([1.0, 2.0]))[0] == 3.75
    np.testing.assert_array_equal(made.gradient(np.array([1.0, 2.0])), [1.5, 3.0])


def test_factors_have_as_many_columns_as_the_matrix_has_directions() -> None:
    rng = np.random.default_rng(0)
    for rank in range(4):
        rows = rng.standard_normal((5, rank))
        found = _factor(rows @ rows.T - 1e-12 * np.eye(5) * (rank > 0))
        assert found.shape == (5, rank)
        np.testing.assert_allclose(found @ found.T, rows @ rows.T, atol=1e-9)
    assert _factor(-np.eye(3)).shape == (3, 0)
    assert _factor(np.zeros((0, 0))).shape == (0, 0)


def test_twins_are_tried_together_before_they_are_set_apart() -> None:
    """All alike, then those whose difference block has a trace of 1e-6 at most, then none; no choice is tried twice."""

    def choices(*traces: float) -> list[tuple[bool, ...]]:
        blocks = [np.eye(2) * trace / 2 for trace in traces]
        none = np.zeros(0)
        found = Solution(none, none, np.eye(1), blocks, none, "Solved", 1, 0.0)
        return [tuple(bool(_unless_alike(block, most).any()) for block in blocks) for most in merges(found)]

    assert choices() == [()]
    assert choices(0.0) == [(False,)]
    assert choices(4e-7) == [(False,), (True,)]
    assert choices(2e-6) == [(False,), (True,)]
    assert choices(4e-7, 2e-6) == [(False, False), (False, True), (True, True)]
    np.testing.assert_array_equal(_unless_alike(np.eye(2), 1.9), np.eye(2))
    np.testing.assert_array_equal(_unless_alike(np.eye(2), 2.0), np.zeros((2, 2)))


@pytest.mark.parametrize("count", range(2, 8))
def test_differences_of_twins_cancel_and_have_one_length(count: int) -> None:
    """u_i = u + d_i with sum_i d_i = 0 and mean <d_i, d_i'> what the block says; every device once."""
    members = tuple(range(3, 3 + count))
    rows = np.random.default_rng(count).standard_normal((4, 2))
    total, square, seen = np.zeros((4, 9)), np.zeros((4, 4)), []
    for part, corner in _arrangement(members):
        placed = _placed(rows, corner, 3, 9)
        assert not placed[:, :3].any()
        assert not placed[:, 7:].any()
        total, square = total + len(part) * placed, square + len(part) * placed @ placed.T
        seen += part
    assert sorted(seen) == list(members)
    np.testing.assert_allclose(total, 0, atol=1e-15 * count)
    np.testing.assert_allclose(square / count, rows @ rows.T, atol=1e-14)


def bowl(curvature: float, tilt: float, own: float, i: int = 0, length: float = 1.0) -> Part:
    """h = c/2 x^2 on device i, with its minimiser said to be at ``own``."""
    none = np.zeros((1, 1))
    shape = pep.Interpolant(none, none, np.zeros(1), curvature, curvature)
    return Part((i,), float(DEVICES.L[i] - DEVICES.mu[i]), shape, np.array([length * tilt]), np.array([length * own]))


@pytest.mark.parametrize("length", [1e-8, 1.0, 1e8])
def test_own_minimisers_are_found_in_any_units(length: float) -> None:
    """mu x + c x + s = 0: the recovered point is kept where f_i is flat and has a minimiser far away."""
    exact = -length * 0.05 / 0.25
    near = _own_minimiser(bowl(0.15, 0.05, -0.2 * (1 + 1e-4), length=length), DEVICES)
    assert near[0] == pytest.approx(exact, rel=1e-12, abs=0)
    for wrong in (-0.2 * (1 + 1e-2), 0.7):
        assert _own_minimiser(bowl(0.15, 0.05, wrong, length=length), DEVICES)[0] == pytest.approx(exact, rel=1e-9)
    convex = Devices(DEVICES.weights, DEVICES.L, np.zeros(2))
    far = _own_minimiser(bowl(1e-5, 4e-6, -0.2, length=length), convex)
    assert far[0] == -length * 0.2
    flat = Part((0,), 0.0, None, np.array([length * 0.05]), np.array([length]))
    assert _own_minimiser(flat, DEVICES)[0] == pytest.approx(-length * 0.5, rel=1e-12, abs=0)


def test_several_pieces_have_a_minimiser_too() -> None:
    """A function of pieces in two dimensions: the gradient is gone to the last digits."""
    rng = np.random.default_rng(4)
    x, v = rng.standard_normal((4, 2)), rng.standard_normal((4, 2))
    part = Part((1,), 2.8, pep.Interpolant(x, v, 0.2 * rng.standard_normal(4), 0.1, 2.7), np.array([0.3, -0.2]), None)

    def slope(z: Any) -> Any:
        return 0.2 * z + part.both(z)[1] + part.tilt

    z = np.zeros(2)
    for _ in range(4000):
        z = z - slope(z) / 3
    off = Part(*(getattr(part, n) for n in ("members", "curvature", "shape", "tilt")), z * (1 + 1e-5))
    found = _own_minimiser(off, DEVICES)
    assert np.linalg.norm(slope(found)) <= 1e-12
    np.testing.assert_allclose(found, z, rtol=1e-9)


def test_what_devices_answer_is_weighed() -> None:
    """Sums by the mix asked for, values by the devices' weights; a point per device where all gradients are."""
    devices = Devices(np.array([0.2, 0.5, 0.3]), np.array([1.0, 2.0, 2.0]), np.array([0.1, 0.3, 0.3]))
    none = np.zeros((1, 2))
    losses = (
        LocalLoss((0,), pep.Interpolant(none, none, np.zeros(1), 0.7, 0.7), np.array([0.1, 0.2]), None),
        LocalLoss((2, 1), pep.Interpolant(none, none, np.zeros(1), 1.1, 1.1), np.array([-0.3, 0.4]), None),
    )
    of = (0, 1, 1)

    def f(i: int, x: Any) -> float:
        return (0.7, 1.1)[of[i]] / 2 * x @ x + losses[of[i]].tilt @ x

    def g(i: int, x: Any) -> Any:
        return (0.7, 1.1)[of[i]] * x + losses[of[i]].tilt

    x, mix, also = np.array([0.5, -2.0]), np.array([0.3, -1.0, 2.0]), np.array([1.0, 0.5, 0.25])
    told = _answer(Ask(x, mix, also=also), devices, losses)
    assert told.value == pytest.approx(sum(w * f(i, x) for i, w in enumerate(devices.weights)))
    np.testing.assert_allclose(told.sum, sum(m * g(i, x) for i, m in enumerate(mix)))
    np.testing.assert_allclose(told.also, sum(m * g(i, x) for i, m in enumerate(also)))
    apart = np.random.default_rng(1).standard_normal((3, 2))
    told = _answer(Ask(apart, None), devices, losses)
    assert told.value == pytest.approx(sum(w * f(i, apart[i]) for i, w in enumerate(devices.weights)))
    np.testing.assert_allclose(told.gradients, [g(i, apart[i]) for i in range(3)])


@pytest.fixture(scope="module")
def replay() -> _Replay:
    asked = Setting(trace(OwnStep(At(1)), DEVICES, 2), DEVICES, 1.0, 0.5, "value")
    parts = (bowl(0.2, 0.01, -0.03), bowl(1.5, -0.01 * 3 / 7, 0.01 * 3 / 7 / 1.7, 1))
    return _Replay(asked, run(asked, np.array([0.75]), parts))


def whole(row: Any) -> Any:
    out = np.empty(len(row), dtype=object)
    out[:] = [int(a) for a in row]
    return out


@pytest.mark.parametrize("seed", range(8))
def test_numbers_known_up_to_an_error(replay: _Replay, seed: int) -> None:
    """Whatever the true numbers within the errors stated, the true results are within the errors stated."""
    rng = np.random.default_rng([2, seed])
    one, bits = replay.one, replay.bits
    off = [int(2 ** rng.uniform(1, bits)) for _ in range(2)]
    at = [whole(2.0 ** rng.uniform(0, 60, 1) * rng.choice([-1, 1], 1)) * one >> 40 for _ in range(2)]
    row = np.array([1.0, *rng.integers(-8, 8, 1) / 4])
    factor = int(2 ** rng.uniform(0, 20)) * one // 1000
    known = [Known(a, o) for a, o in zip(at, off, strict=True)]
    both, times, sums = known[0] + known[1], replay.times(factor, known[0]), replay.combined(row, known)
    assert known[0].largest == abs(at[0][0])
    for shift in itertools.product((-1, 0, 1), repeat=3):
        true = [a + s * o for a, s, o in zip(at, shift, off, strict=False)]
        assert abs(true[0] + true[1] - both.at)[0] <= both.off
        product = Fraction(int(true[0][0]) * (factor + shift[2]), one)
        assert abs(product - int(times.at[0])) <= times.off
        total = sum(Fraction(float(c)) * int(t[0]) for c, t in zip(row, true, strict=True))
        assert abs(total - int(sums.at[0])) <= sums.off
        assert replay._square(known[0]) <= int(true[0][0]) ** 2
        radius = Fraction(abs(int(at[0][0])) + off[0], one)
        assert replay._within(known[0], radius)
        assert not replay._within(known[0], radius - Fraction(1, one))
    assert times.off <= (abs(factor) * off[0] >> bits) + 4 + (abs(int(at[0][0])) + off[0] >> bits)


@pytest.mark.parametrize("seed", range(30))
def test_values_hold_for_all_data_within_the_errors(replay: _Replay, seed: int) -> None:
    """Points and slopes off by as much as is said: the value is at most that of any of them, or there is none."""
    rng = np.random.default_rng([3, seed])
    one, M = replay.one, Fraction(replay.found.parts[1].curvature)
    e_x, e_v = (int(one * 10.0 ** rng.uniform(-6, 0)) * int(rng.random() < 0.8) for _ in range(2))
    x = int(one * rng.uniform(-1, 1)) if seed % 3 else 0
    v = int(x * rng.uniform(0.2, 0.9) * float(M))
    replay_of = _Replay(replay.asked, replay.found)
    replay_of.found = type(replay.found)(
        replay.found.x0,
        (replay.found.parts[0], Part((1,), float(M), None, np.zeros(1), None)),
        replay.found.slopes,
        0.0,
    )

    def value(x: int, v: int, e_x: int, e_v: int) -> int | None:
        replay_of.slopes = [[], [Known(whole([v]), e_v)]]
        try:
            return replay_of.potential(1, [Known(whole([x]), e_x)])
        except _Impossible:
            return None

    found = value(x, v, e_x, e_v)
    for a, b in itertools.product((-1, 1), repeat=2):
        there, slope = x + a * e_x, v + b * e_v
        largest = Fraction(slope * there) - Fraction(slope**2) / (2 * M)  # phi <= <v, x> - ||v||^2 / (2 M)
        possible = largest >= Fraction(slope**2) / (2 * M)  # and 0 >= -phi + ||v||^2 / (2 M)
        assert found is None or (possible and found <= largest)
        exact = value(there, slope, 0, 0)
        assert (exact is None) == (not largest - 2 >= Fraction(slope**2) / (2 * M)) or abs(slope) < 10
        assert exact is None or largest - 3 <= exact <= largest


def test_tilts_cancel_to_the_last_digit(replay: _Replay) -> None:
    """sum_c share_c s_c = 0, the heaviest part's within the error said; a device's share is w_i (L_i - mu_i) / M."""
    weights = [Fraction(float(w)) for w in DEVICES.weights]
    shares = [replay.weighed(DEVICES.weights, c) for c in range(2)]
    for c in range(2):
        exact = Fraction(float(DEVICES.L[c])) - Fraction(float(DEVICES.mu[c]))
        assert shares[c][0] == weights[c] * Fraction(float(DEVICES.mu[c]))
        assert shares[c][1] == weights[c] * exact / Fraction(replay.found.parts[c].curvature)
    heavy = int(shares[1][1] > shares[0][1])
    light = replay.tilts[1 - heavy]
    assert light.off == 0
    assert light.at[0] == Fraction(float(replay.found.parts[1 - heavy].tilt[0])) * replay.one
    true = -shares[1 - heavy][1] * int(light.at[0]) / shares[heavy][1]
    assert abs(true - int(replay.tilts[heavy].at[0])) <= replay.tilts[heavy].off <= 1


def test_what_is_finer_than_the_digits_is_not_taken_for_exact(replay: _Replay) -> None:
    fine = np.array([1.0, 2.0**-1000])
    assert replay.integers(fine).tolist() == [replay.one, 0]
    with pytest.raises(_Impossible):
        replay.exactly(fine)
    assert replay.exactly(np.array([0.1]))[0] == Fraction(0.1) * replay.one


def test_alike_devices_count_each() -> None:
    devices = pep.repeated([0.5, 2.0], [0.25, 0.5], [3, 2], [1.0, 2.0])
    asked = Setting(trace(GD(), devices, 1), devices, 1.0, 0.0, "value")
    none = np.zeros((1, 1))
    shape = pep.Interpolant(none, none, np.zeros(1), 0.5, 0.5)
    found = run(asked, np.array([0.5]), (Part((0, 1, 2, 3, 4), 0.75, shape, np.zeros(1), None),))
    bend, share = _Replay(asked, found).weighed(devices.weights, 0)
    w = [Fraction(float(a)) for a in devices.weights]
    assert bend == 3 * w[0] / 4 + 2 * w[4] / 2
    assert share == (3 * w[0] / 4 + 2 * w[4] * Fraction(3, 2)) / Fraction(3, 4)
