"""Symbolic vectors: what they do, and what they refuse."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from ownstep import pep
from ownstep.methods import GD, At, DecentralisedGD, HeavyBall, Nesterov, NormBelow, OwnStep, Plateau
from ownstep.methods.base import Answer, norm
from ownstep.pep.trace.symbolic import LossValue, NotLinear, Stack, Trace, Vector, trace
from ownstep.pep.trace.symmetry import follows_weights, groups
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput

DEVICES = Devices.uniform([0.5, 3.0], 0.1)


def test_linear_operations() -> None:
    a, b = Vector([1.0, 0.0]), Vector([0.0, 2.0, 1.0])
    made = np.float64(2) * a - b / 4 + sum([a, a]) * 0.5 + (-b)
    np.testing.assert_allclose(made.coefficients, [3, -2.5, -1.25])


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        (lambda v: v @ v, "inner product"),
        (norm, "inner product"),
        (lambda v: v * v, "product of two vectors"),
        (lambda v: 1 / v, "dividing by a vector"),
        (lambda v: v / v, "dividing by a vector"),
        (lambda v: v**2, "power"),
        (abs, "absolute value"),
        (float, "float"),
        (bool, "bool"),
        (lambda v: v < v, "comparison"),
        (lambda v: v == v, "comparison"),
        (np.asarray, "array of numbers"),
        (lambda v: np.ones(3) * v, "shape"),
    ],
)
def test_everything_else_is_refused_by_name(operation, name: str) -> None:
    with pytest.raises(NotLinear, match=name):
        operation(Vector([1.0, 2.0]))


def test_loss_values_are_refused() -> None:
    for operation in (lambda v: v + 1, lambda v: 1 - v, lambda v: v < 1, float, lambda v: v == 0, lambda v: -v):
        with pytest.raises(NotLinear, match="loss value"):
            operation(LossValue())


@pytest.mark.parametrize("rounds", [0, 1, 20])
@pytest.mark.parametrize("switch", [NormBelow(0.1), Plateau()], ids=["NormBelow", "Plateau"])
def test_rules_that_are_not_linear_are_named(switch, rounds: int) -> None:
    with pytest.raises(InvalidInput, match=rf"{type(switch).__name__}.*only adds and scales.*At\(k\)"):
        pep.worst_case(OwnStep(switch), DEVICES, rounds, 1.0, 0.1)


def test_a_numpy_function_is_refused_too() -> None:
    class Clipped(GD):
        def tell(self, state, answer):
            return super().tell(state, Answer(sum=np.sqrt(answer.sum)))

    with pytest.raises(NotLinear, match="Clipped"):
        trace(Clipped(), DEVICES, 2)


@pytest.mark.parametrize("point", [3.0, None, {}, [], [1.0], "x"])
def test_a_point_that_is_no_vector_is_named(point) -> None:
    class Strange(GD):
        def point(self, state):
            return point

    with pytest.raises(NotLinear, match=f"handing back {type(point).__name__}"):
        trace(Strange(), DEVICES, 2)


def test_stacks() -> None:
    rows = np.arange(6.0).reshape(3, 2)
    stack, mixing = Stack(rows), np.full((3, 3), 1 / 3)
    np.testing.assert_allclose((mixing @ stack).coefficients, mixing @ rows)
    np.testing.assert_allclose((np.ones(3) @ stack).coefficients, rows.sum(0))
    np.testing.assert_allclose((np.array([[1.0], [2], [3]]) * stack).coefficients, rows * [[1], [2], [3]])
    np.testing.assert_allclose((2 * stack - stack + stack[0]).coefficients, rows + rows[0])
    np.testing.assert_allclose((Vector(rows[0]) - stack).coefficients, rows[0] - rows)
    np.testing.assert_allclose(stack.mean(axis=0).coefficients, rows.mean(0))
    np.testing.assert_allclose((np.ones((3, 1)) * Vector([1.0, 2.0])).coefficients, [[1, 2]] * 3)
    assert len(stack) == 3
    for operation in (lambda s: s @ s, lambda s: s * s, lambda s: s**2, lambda s: s * np.ones(2)):
        with pytest.raises(NotLinear):
            operation(stack)


@pytest.mark.parametrize(
    "method", [GD(), HeavyBall(), Nesterov(step="mean"), OwnStep(At(3))], ids=lambda m: type(m).__name__
)
def test_a_trace_is_the_method(method) -> None:
    """Atoms replaced by numbers give the iterates of a real run."""
    rng = np.random.default_rng(0)
    hessians = [np.diag(rng.uniform(0.2, L, 4)) for L in DEVICES.L]
    x0, rounds = rng.standard_normal(4), 6
    path = trace(method, DEVICES, rounds)
    state, atoms = method.start(x0, DEVICES), [x0]
    for k in range(rounds):
        ask = method.ask(state)
        np.testing.assert_allclose(path.asks[k][0, : len(atoms)] @ np.array(atoms), ask.x, atol=1e-12)
        total = sum(c * H @ ask.x for c, H in zip(ask.mix, hessians, strict=True))
        atoms.append(total)
        state = method.tell(state, Answer(sum=total))
        np.testing.assert_allclose(
            path.points[k + 1][0, : len(atoms)] @ np.array(atoms), method.point(state), atol=1e-12
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rounds": -1}, "rounds"),
        ({"rounds": 1.5}, "rounds"),
        ({"r0": 0.0}, "r0"),
        ({"r0": -1.0}, "r0"),
        ({"r0": math.inf}, "r0"),
        ({"rstar": -0.1}, "rstar"),
        ({"rstar": math.nan}, "rstar"),
        ({"metric": "loss"}, "metric"),
    ],
)
def test_bad_input_is_refused_before_any_solve(arguments: dict, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ownstep.pep.search.solve", lambda *_, **__: pytest.fail("it was solved"))
    with pytest.raises(InvalidInput, match=message):
        pep.worst_case(GD(), DEVICES, **({"rounds": 2, "r0": 1.0, "rstar": 0.0, "metric": "value"} | arguments))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 2], 3.0), "mu cannot exceed L"),
        (([1, 2], -0.1), "at least 0"),
        (([0, 2], 0.0), "positive"),
        (([1, 2], 0.1, [5]), "1 counts for 2 kinds"),
        (([1, 2], 0.1, [5, 0]), "at least 1"),
        (([1, 2], [0.1, 0.1, 0.1]), "3 values of mu"),
        (([1, 2], 0.1, [1, 1], [1.0]), "1 weights for 2"),
    ],
)
def test_bad_devices(arguments: tuple, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        pep.repeated(*arguments)


def test_a_failed_solve_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    from ownstep.support.errors import OwnstepError

    def fail(*_, **__):
        raise OwnstepError("it stopped without an answer (NumericalError)")

    monkeypatch.setattr("ownstep.pep.search.solve", fail)
    with pytest.raises(OwnstepError, match=r"solver failed.*NumericalError"):
        pep.worst_case(GD(), DEVICES, 2)


def test_which_devices_pool() -> None:
    """Those whose mix is the same multiple of their weight in every round, up to eleven digits; weighted means."""
    devices = Devices(
        np.array([0.125, 0.25, 0.5, 0.125]), np.array([1.0, 3.0, 2.0, 5.0]), np.array([0.5, 0.0, 1.0, 0.25])
    )
    path, ratios = trace(GD(), devices, 2), np.array([[0.75, 0.75, 0.75, 0.75], [6.0, 6.0, 6.0, 6.0]])

    def found(*changes: tuple[int, int, float], **options: bool) -> list[tuple[int, ...]]:
        other = ratios.copy()
        for k, i, change in changes:
            other[k, i] *= 1 + change
        mixed = replace(path, mixes=tuple(other * devices.weights))
        return [g.members for g in groups(mixed, devices, **{"local_optima": False} | options)]

    assert found() == found((0, 1, 3e-12), (1, 2, 3e-12)) == [(0, 1, 2, 3)]
    assert found((0, 1, 3e-11)) == [(0, 2, 3), (1,)]
    assert found((1, 3, 3e-11), (1, 0, 3e-11)) == [(0, 3), (1, 2)]
    assert found((1, 2, -2.0)) == [(0, 1, 3), (2,)]
    assert found(symmetry=False) == found(local_optima=True) == [(0,), (1,), (2,), (3,)]
    (pool,) = groups(replace(path, mixes=tuple(ratios * devices.weights)), devices, local_optima=False)
    assert (pool.mu, pool.L, pool.weight, pool.twins) == (0.59375, 2.5, 1.0, False)
    np.testing.assert_allclose(pool.mix, [0.75, 6.0])
    assert follows_weights(replace(path, mixes=tuple(ratios * devices.weights)), devices)
    off = ratios * (1 + 3e-11 * np.eye(4)[[1, 1]])
    assert not follows_weights(replace(path, mixes=tuple(off * devices.weights)), devices)
    assert not follows_weights(trace(DecentralisedGD(), devices, 1), devices)


def test_which_devices_are_twins() -> None:
    """Alike in mu, L, weight and every mix: any difference sets them apart."""
    same = [np.full(4, 0.25), np.full(4, 2.0), np.full(4, 0.5)]
    path = trace(OwnStep(At(1)), Devices(*same), 3)

    def twins(devices: Devices, path: Trace) -> list[tuple[tuple[int, ...], bool]]:
        return [(g.members, g.twins) for g in groups(path, devices, local_optima=True)]

    assert twins(Devices(*same), path) == [((0, 1, 2, 3), True)]
    for which in range(3):
        other = [a.copy() for a in same]
        other[which][1] *= 1.5
        other[0] /= other[0].sum()
        assert twins(Devices(*other), path) == [((0, 2, 3), True), ((1,), False)]
    for k in range(3):
        mixes = [m.copy() for m in path.mixes]
        mixes[k][:2] *= 1.5
        assert twins(Devices(*same), replace(path, mixes=tuple(mixes))) == [((0, 1), True), ((2, 3), True)]
    pair = groups(path, Devices(*same), local_optima=True)[0]
    assert (pair.mu, pair.L, pair.weight, pair.mu_own, pair.quadratic) == (0.5, 2.0, 1.0, 0.5, False)
    assert replace(pair, own=0.25).mu_own == 0.25
    assert replace(pair, mu=2 - 3e-12).quadratic is False
    assert replace(pair, mu=2 - 1e-12).quadratic is True
