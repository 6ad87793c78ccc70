"""Worst functions in hand: they belong to the class, meet the radii, and the real method errs on them as predicted."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from ownstep import pep
from ownstep.methods import GD, METHODS, At, HeavyBall, Nesterov, Never, OwnStep
from ownstep.plan import Devices

from ..contract.literal import LITERAL
from ..contract.world import World

DEVICES = Devices(np.array([0.3, 0.7]), np.array([0.4, 3.0]), np.array([0.1, 0.2]))
CASES = [
    (OwnStep(At(2)), DEVICES, 4, "value"),
    (OwnStep(Never()), DEVICES, 3, "distance"),
    (OwnStep(At(1)), DEVICES, 3, "gradient"),
    (GD(), DEVICES, 4, "value"),
    (Nesterov(step="mean"), DEVICES, 4, "value"),
    (HeavyBall(), DEVICES, 4, "distance"),
    (OwnStep(At(2)), pep.repeated([0.4, 3.0], 0.1, [2, 3]), 4, "value"),
    (OwnStep(At(2)), pep.repeated([0.4, 3.0], 0.0, [1, 5]), 3, "value"),
    (OwnStep(At(2)), Devices(np.array([0.5, 0.5]), np.array([1.0, 3.0]), np.array([1.0, 0.2])), 3, "value"),
]


@pytest.fixture(
    params=range(len(CASES)), ids=lambda i: f"{type(CASES[i][0]).__name__}-{len(CASES[i][1])}-{CASES[i][3]}"
)
def solved(request):
    method, devices, rounds, metric = CASES[request.param]
    bound = pep.worst_case(method, devices, rounds, 2.0, 0.5, metric)
    assert bound.gap <= 1e-5
    return method, devices, rounds, metric, bound


def test_instance_is_admissible_and_worst(solved) -> None:
    _method, devices, _rounds, _metric, bound = solved
    found = bound.instance()
    origin = np.zeros(found.dimension)
    assert np.linalg.norm(found.x0) <= 2.0 * (1 + 1e-9)
    assert sorted(i for loss in found.losses for i in loss.members) == list(range(len(devices)))
    total = sum(devices.weights[i] * loss.gradient(origin) for loss in found.losses for i in loss.members)
    assert np.linalg.norm(total) <= 1e-9
    for loss in found.losses:
        if loss.minimiser is not None:
            assert np.linalg.norm(loss.minimiser) <= 0.5 * (1 + 1e-6)
            assert np.linalg.norm(loss.gradient(loss.minimiser)) <= 1e-4
    assert found.error == pytest.approx(bound.lower, rel=1e-5)
    assert found.error == pytest.approx(bound.upper, rel=1e-5)


@dataclass(frozen=True, eq=False)
class Found:
    """The functions of an instance, as the literal loops of the methods' papers look at them."""

    instance: Any
    devices: Devices

    def __getattr__(self, name):
        return {"w": self.devices.weights, "L": self.devices.L, "mu": self.devices.mu, "n": len(self.devices),
                "x0": self.instance.x0, "L_true": self.devices.L_pooled}[name]  # fmt: skip

    def gradient(self, i, x):
        return self.instance.loss(i).gradient(x)

    def loss(self, i, x):
        return self.instance.loss(i)(x)

    f, g = World.f, World.g


def test_the_paper_s_own_loop_errs_on_it_as_predicted(solved) -> None:
    """Points and error by another route: the method's literal loop, and the metric's definition."""
    method, devices, rounds, metric, bound = solved
    world, instance = Found(bound.instance(), devices), bound.instance()
    name = next(n for n, kind in METHODS.items() if type(method) is kind)
    points = [world.x0, *itertools.islice(LITERAL[name](method, world), rounds)]
    np.testing.assert_allclose(instance.points, points, atol=1e-11)
    end, origin = points[-1], 0 * world.x0
    error = {
        "value": world.f(end) - world.f(origin),
        "distance": float(end @ end),
        "gradient": float(world.g(end) @ world.g(end)),
    }[metric]
    assert instance.error == pytest.approx(error, rel=1e-9)
    assert bound.lower == pytest.approx(error, rel=1e-5)


def test_functions_belong_to_their_classes(solved) -> None:
    """Values and gradients at points of all kinds meet the interpolation conditions of F(mu_i, L_i)."""
    _, devices, _, _, bound = solved
    found, rng = bound.instance(), np.random.default_rng(1)
    at = np.vstack([rng.standard_normal((12, found.dimension)), found.points, np.zeros(found.dimension)])
    for loss in found.losses:
        mu, L = devices.mu[loss.members[0]], devices.L[loss.members[0]]
        both = [loss.both(x) for x in at]
        f, g = np.array([v for v, _ in both]), np.array([s for _, s in both])
        if mu < L:
            assert pep.interpolation_gaps(at, g, f, mu, L).min() >= -1e-9 * max(1, np.abs(f).max())
        for x in at[:2]:
            np.testing.assert_allclose(approx_fprime(x, loss, 1e-7), loss.gradient(x), atol=2e-5)


def test_interpolants_go_through_their_triples() -> None:
    rng = np.random.default_rng(2)
    mu, L = 0.3, 2.5
    hessian = np.diag(np.linspace(mu, L, 4))
    x = rng.standard_normal((9, 4))
    g, f = x @ hessian, np.einsum("ij,jk,ik->i", x, hessian, x) / 2
    made = pep.Interpolant(x, g, f, mu, L)
    for point, slope, value in zip(x, g, f, strict=True):
        assert made(point) == pytest.approx(value, abs=1e-12)
        np.testing.assert_allclose(made.gradient(point), slope, atol=1e-12)


def test_interpolants_are_in_the_class_even_for_impossible_triples() -> None:
    rng = np.random.default_rng(3)
    made = pep.Interpolant(rng.standard_normal((6, 3)), rng.standard_normal((6, 3)), rng.standard_normal(6), 0.2, 1.5)
    at = 2 * rng.standard_normal((30, 3))
    both = [made.both(x) for x in at]
    gaps = pep.interpolation_gaps(at, np.array([s for _, s in both]), np.array([v for v, _ in both]), 0.2, 1.5)
    assert gaps.min() >= -1e-11


def test_interpolation_condition_is_tight() -> None:
    """Quadratics of the extreme curvatures meet it with equality in the right pairs; a steeper one breaks it."""
    x, mu, L = np.array([[0.0], [1.0]]), 0.5, 2.0
    for q in (mu, L):
        np.testing.assert_allclose(pep.interpolation_gaps(x, q * x, q / 2 * x[:, 0] ** 2, mu, L), 0, atol=1e-15)
    assert pep.interpolation_gaps(x, 2.1 * x, 1.05 * x[:, 0] ** 2, mu, L).min() < 0
    assert pep.interpolation_gaps(x, 0.4 * x, 0.2 * x[:, 0] ** 2, mu, L).min() < 0


def test_the_worst_function_of_many_devices_is_small() -> None:
    bound = pep.worst_case(OwnStep(At(2)), pep.repeated([0.4, 3.0], 0.1, [500, 500]), 4, 10, 1)
    assert len(bound.instance().losses) <= 4
    assert bound.instance().loss(777).members[0] >= 500


@pytest.mark.parametrize("length", [1e-7, 1.0, 1e7])
def test_an_interpolant_does_not_depend_on_units(length):
    """W(s y) of triples with points s x, slopes s v and values s^2 phi is s^2 W(y)."""
    rng = np.random.default_rng(3)
    x, g, f = rng.standard_normal((6, 3)), rng.standard_normal((6, 3)), rng.standard_normal(6)
    plain, scaled = pep.Interpolant(x, g, f, 0.1, 2.0), pep.Interpolant(length * x, length * g, length**2 * f, 0.1, 2.0)
    for y in rng.standard_normal((20, 3)):
        value, slope = plain.both(y)
        there, turned = scaled.both(length * y)
        assert there == pytest.approx(length**2 * value, rel=1e-9)
        np.testing.assert_allclose(turned, length * slope, rtol=1e-8, atol=1e-10 * length)
