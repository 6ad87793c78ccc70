"""Worst cases where hardly anybody gets: none at all, no radius, odd operations on symbols, a solver that fails."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ownstep import pep
from ownstep.methods import GD, At, DecentralisedGD, Never, OwnStep, Schedule
from ownstep.methods.gossip.mixing import Mixing
from ownstep.pep.bound import Bound, check_effort
from ownstep.pep.conditions.classes import check, interpolation_gaps, repeated
from ownstep.pep.proof.certify import LONGEST_NAME, called, restate
from ownstep.pep.rates.rate import Rate, _on_a_quadratic
from ownstep.pep.solve import sdp
from ownstep.pep.solve.interpolant import _nearest
from ownstep.pep.trace.scales import scenarios
from ownstep.pep.trace.symbolic import NotLinear, Stack, Vector, trace
from ownstep.pep.trace.symmetry import Group, groups
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput, OwnstepError

TWO = Devices(np.array([0.25, 0.75]), np.array([1.0, 3.0]), np.array([0.5, 0.1]))


def test_where_there_is_no_bound_there_is_neither_gap_nor_proof() -> None:
    """Own steps without a radius around the local minimisers."""
    none = pep.worst_case(OwnStep(Never()), TWO, 2, rstar=math.inf)
    assert (none.lower, none.upper, none.gap) == (math.inf, math.inf, 0.0)
    for ask, why in ((none.instance, "no single worst instance: unbounded"), (none.certificate, "nothing to certify")):
        with pytest.raises(OwnstepError, match=why):
            ask()
    with pytest.raises(OwnstepError, match="nothing to certify: unbounded"):
        none.certify()
    zero = Bound(0.0, 0.0, "value", 1, 1.0, 0.0, "zero")
    assert zero.gap == 0.0
    assert Bound(1.0, 4.0, "value", 1, 1.0, 0.0, "").gap == 0.75


def test_a_method_without_a_server_on_one_matrix_is_certified_apart() -> None:
    ring = Mixing(np.array([[0.7, 0.3], [0.3, 0.7]]))
    bound = pep.worst_case(DecentralisedGD(0.2, ring), TWO, 1, 1.0, 0.5)
    proved = bound.certify()
    assert bound.lower <= proved.upper <= bound.upper * (1 + 1e-3)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: check_effort(math.nan, None), "effort must be a finite number of at least 0, got nan"),
        (lambda: check_effort(math.inf, None), "effort .* got inf"),
        (lambda: check_effort(-1.0, None), "effort .* got -1"),
        (lambda: check_effort(1.0, -0.1), "patience .* got -0.1"),
        (lambda: check_effort(1.0, math.nan), "patience .* got nan"),
        (lambda: pep.worst_case(GD(1.0), TWO, 1, effort=-1.0), "effort .* got -1"),
        (lambda: pep.worst_case(GD(1.0), TWO, 1, patience=-1.0), "patience .* got -1"),
        (lambda: pep.worst_case(GD(1.0), TWO, 1, metric="speed"), "unknown metric 'speed'"),
        (lambda: check(True, 1.0, 0.0, "value"), "rounds must be a whole number of at least 0, got True"),
        (lambda: check(1.5, 1.0, 0.0, "value"), "rounds .* got 1.5"),
        (lambda: check(math.inf, 1.0, 0.0, "value"), "rounds .* got inf"),
        (lambda: check(1, 0.0, 0.0, "value"), "r0, .* got 0.0"),
        (lambda: check(1, math.inf, 0.0, "value"), "r0, .* got inf"),
        (lambda: check(1, 1.0, -1.0, "value"), r"rstar, .* got -1"),
        (lambda: check(1, 1.0, math.nan, "value"), r"rstar, .* got nan"),
        (lambda: check(1, 1.0, 0.0, "speed"), "unknown metric 'speed'"),
        (lambda: repeated([1.0], counts=[True]), r"counts must be whole numbers of at least 1, got \[True\]"),
        (lambda: repeated([1.0], counts=[1.5]), "counts must be whole"),
        (lambda: repeated([1.0], counts=[0]), "counts must be whole"),
        (lambda: repeated([1.0, 2.0], counts=[1]), "1 counts for 2 kinds"),
        (lambda: repeated([1.0, 2.0], weights=[1.0, 0.0]), "weights must be positive and finite, got 0"),
        (lambda: repeated([1.0, 2.0], weights=[math.inf, 1.0]), "weights must be positive and finite, got inf"),
        (lambda: repeated([1.0, 2.0], weights=[1.0]), "1 weights for 2 kinds"),
        (lambda: repeated([1.0, 2.0], mu=[0.1, 0.1, 0.1]), "3 values of mu for 2 kinds"),
        (lambda: interpolation_gaps(np.ones((1, 1)), np.ones((1, 1)), np.ones(1), 1.0, 1.0), "mu < L, got mu=1"),
    ],
)
def test_what_is_refused(call: Any, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        call()


def test_what_is_just_allowed() -> None:
    check_effort(0.0, 0.0)
    check(0, 1e-100, math.inf, "gradient")
    made = repeated([1.0, 3.0], mu=0.1, counts=[2, 1], weights=[1.0, 2.0])
    assert (made.L.tolist(), made.mu.tolist(), made.weights.tolist()) == ([1, 1, 3], [0.1] * 3, [0.25, 0.25, 0.5])


def test_a_curve_tells_how_far_it_is() -> None:
    seen: list[tuple[int, int]] = []
    bounds = pep.curve(GD(1.0), Devices.uniform([1.0]), 2, progress=lambda k, rounds: seen.append((k, rounds)))
    assert seen == [(0, 2), (1, 2), (2, 2)]
    assert [b.upper for b in bounds] == pytest.approx([1 / 2, 1 / 6, 1 / 10], rel=1e-5)  # L r0^2 / (4K + 2)


# --- symbols ----------------------------------------------------------------------------------------------------------


def test_symbols_add_and_scale_and_do_nothing_else() -> None:
    v, w = Vector([1.0, 2.0]), Vector([3.0])
    assert (v + w).coefficients.tolist() == [4.0, 2.0]
    assert sum([v, w]).coefficients.tolist() == [4.0, 2.0]
    assert (v + 0) is v
    assert repr(Vector([0.0, 0.0])) == "Vector(0)"
    assert repr(v) == "Vector(+1 a0 +2 a1)"
    for other in (1, 0.0, "x", None):
        with pytest.raises(TypeError):
            v + other
        with pytest.raises(TypeError):
            v - other
    column = np.array([[1.0], [2.0], [3.0]])
    assert (v * column).coefficients.tolist() == [[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]
    for shape in ((2,), (1, 3), (3, 2), (1, 1, 1)):
        with pytest.raises(NotLinear, match="a product with numbers of shape"):
            v * np.ones(shape)
    stack = v * column
    assert stack[0].coefficients.tolist() == [1.0, 2.0]
    assert isinstance(stack[1:], Stack)
    assert len(stack[1:]) == 2
    assert (stack - v)[2].coefficients.tolist() == [2.0, 4.0]
    assert (v - stack)[2].coefficients.tolist() == [-2.0, -4.0]
    assert (np.array([1.0, 0.0, 1.0]) @ stack).coefficients.tolist() == [4.0, 8.0]
    assert stack.mean().coefficients.tolist() == [2.0, 4.0]
    for other in (1, "x", None):
        with pytest.raises(TypeError):
            stack + other
        with pytest.raises(TypeError):
            stack - other
    with pytest.raises(NotLinear, match="a mean over axis 1"):
        stack.mean(axis=1)
    for factor in (np.ones(3), np.ones((2, 1)), np.ones((3, 3))):
        with pytest.raises(NotLinear, match="a product of 3 rows with numbers"):
            stack * factor
    assert (stack * 2.0)[0].coefficients.tolist() == [2.0, 4.0]
    assert (stack / column)[2].coefficients.tolist() == [1.0, 2.0]
    for one in (v, stack):
        for other in (v, stack):
            for operation in ("__mul__", "__truediv__", "__matmul__"):
                with pytest.raises(NotLinear):
                    getattr(one, operation)(other)


@dataclasses.dataclass(frozen=True)
class Odd(GD):
    """Gradient descent whose steps are scaled, or whose point comes as a list."""

    factor: float = 1.0
    listed: bool = False

    def tell(self, state: Any, answer: Any) -> Any:
        with np.errstate(all="ignore"):
            return dataclasses.replace(state, x=state.x - self.factor * answer.sum, k=state.k + 1)

    def point(self, state: Any) -> Any:
        return [state.x] if self.listed else state.x


def test_steps_that_are_no_numbers_and_points_that_are_lists() -> None:
    with pytest.raises(InvalidInput, match="has steps that are not finite: round 1"):
        trace(Odd(1.0, math.inf), TWO, 2)
    one, other = trace(Odd(1.0, 0.5), TWO, 2), trace(Odd(1.0, 0.5, True), TWO, 2)
    for mine, theirs in zip(one.points, other.points, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert trace(DecentralisedGD(0.2), Devices.uniform(np.ones(3)), 2).until(1).rounds == 1
    part = trace(DecentralisedGD(0.2), Devices.uniform(np.ones(3)), 2).until(1)
    assert part.points[1].shape == (1, 4)  # x0 and the three gradients of the first round


# --- solving ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", ["x", "z"])
def test_a_solver_s_numbers_have_to_be_numbers(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = sdp.clarabel.DefaultSolver

    def solver(*arguments: Any) -> Any:
        def solve() -> Any:
            found = real(*arguments).solve()
            told = {"x": np.array(found.x), "z": np.array(found.z), "status": found.status}
            told[broken][0] = math.nan
            return SimpleNamespace(**told)

        return SimpleNamespace(solve=solve)

    monkeypatch.setattr(sdp.clarabel, "DefaultSolver", solver)
    with pytest.raises(OwnstepError, match=r"no finite numbers|no answer|solver"):
        pep.worst_case(GD(1.0), TWO, 1)


@pytest.mark.parametrize("seed", range(6))
def test_weights_of_an_envelope_minimise(seed: int) -> None:
    """Against every face of the simplex: min over a of <a, heights> + M/2 |sum a_j corner_j - y|^2."""
    rng = np.random.default_rng([9, seed])
    corners, heights, M = rng.normal(size=(4, 2)), rng.normal(size=4), float(rng.uniform(0.1, 5))
    y = 2 * rng.normal(size=2)
    support, shares = _nearest(corners, heights, M, y)
    assert shares.min() >= 0
    assert shares.sum() == pytest.approx(1)

    def cost(a: np.ndarray) -> float:
        return float(a @ heights + M / 2 * np.sum((a @ corners - y) ** 2))

    mine = np.zeros(4)
    mine[support] = shares
    grid = rng.dirichlet(np.full(4, 0.4), 4000)
    assert cost(mine) <= min(cost(a) for a in [*grid, *np.eye(4)]) + 1e-12


def test_scenarios_try_every_group_alone_and_all_but_one() -> None:
    groups = [
        Group((i,), mu, L, w, np.ones(1), True) for i, (mu, L, w) in enumerate(((0.0, 1.0, 0.2), (0.5, 3.0, 0.8)))
    ]
    for count in (1, 2):
        curvatures, _ = scenarios(groups[:count], 0.0)
        mu, L = (np.array([getattr(g, name) for g in groups[:count]]) for name in ("mu", "L"))
        shares = {tuple(np.round(column, 12)) for column in ((curvatures.T - mu) / (L - mu))}
        assert {(t,) * count for t in (0.0, 0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1.0)} <= shares
        assert ((0.0, 1.0) in shares) is (count == 2)
        assert ((1.0, 0.0) in shares) is (count == 2)


def test_alike_devices_are_grouped_without_rounding() -> None:
    """Their own constants, and not a mean of them; of others the mean by weights."""
    for count in range(2, 12):
        weights = np.arange(1.0, count + 1)
        devices = Devices(weights / weights.sum(), np.full(count, 0.1), np.full(count, 0.07))
        (group,) = groups(trace(GD(1.0), devices, 1), devices, local_optima=False)
        assert (group.L, group.mu) == (0.1, 0.07)
    mixed = Devices(np.array([0.25, 0.75]), np.array([0.1, 0.1]), np.array([0.0, 0.04]))
    (group,) = groups(trace(GD(1.0), mixed, 1), mixed, local_optima=False)
    assert (group.L, group.mu) == pytest.approx((0.1, 0.03))


# --- statements and rates ---------------------------------------------------------------------------------------------


def test_a_long_name_is_cut_to_the_method_s() -> None:
    short, long = Schedule(((1.0, 2.0),)), Schedule(((1.0, 2.0),) * LONGEST_NAME)
    assert called(short) == repr(short)
    assert called(long) == "Schedule"
    exact = GD(0.1)
    object.__setattr__(exact, "step", "x" * (LONGEST_NAME - len(repr(GD("true"))) + 4))
    assert len(repr(exact)) == LONGEST_NAME
    assert called(exact) == repr(exact)


def test_a_statement_needs_one_point_for_all_and_tilts_where_they_matter() -> None:
    with pytest.raises(OwnstepError):
        restate(DecentralisedGD(0.2), TWO, 1, 1.0, 1.0, "value")
    own = restate(OwnStep(At(1)), TWO, 1, 1.0, 1.0, "value")
    assert len(own["devices"]) == 2
    alone = restate(OwnStep(At(1)), Devices.uniform([2.0]), 1, 1.0, 1.0, "value")
    assert [d["count"] for d in alone["devices"]] == [1]


def test_a_rate_s_gap_and_what_is_known_of_a_quadratic() -> None:
    def gap(rho: float, lower: float) -> float:
        return Rate(rho, lower, "distance", "", 0, "", 0, 0.0, *[None] * 4).gap  # type: ignore[arg-type]

    assert (gap(0.0, 0.0), gap(0.8, 0.6)) == pytest.approx((0.0, 0.25))
    assert _on_a_quadratic(0.0) == ""
    assert _on_a_quadratic(0.5) == "; on a quadratic it shrinks by no more than 0.5 per round"
    assert _on_a_quadratic(1.0) == "; on a quadratic it shrinks by no more than 1 per round"
    assert "it diverges, growing 1.5 times per round" in _on_a_quadratic(1.5)
