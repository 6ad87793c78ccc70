"""Symbolic vectors: what they do, and what they refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ownstep import pep
from ownstep.methods import GD, At, HeavyBall, Nesterov, NormBelow, OwnStep, Plateau
from ownstep.methods.base import Answer, norm
from ownstep.pep.trace.symbolic import LossValue, NotLinear, Stack, Vector, trace
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
