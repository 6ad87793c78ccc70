"""The ball that a method with a constant step tends to: against a plain program, long runs and long worst cases."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from ownstep import pep
from ownstep.cli import app
from ownstep.methods import EXTRA, GD, DecentralisedGD, Never, OwnStep
from ownstep.support.errors import InvalidInput
from tests.pep.plain_network import Plain, add

ALIKE = pep.repeated([1.0], 0.2, [2])
UNLIKE = pep.repeated([1.0, 2.5], [0.1, 0.4], [2, 1], [1.0, 2.0])
TWO = pep.repeated([1 / 3, 3], 0.1)


def plain(devices, steps, network, rstar, order):
    """Fixed points written out: X = W X - A G, or X = W (X - A G), every device apart.

    W keeps means, so the mean of A G is zero. Put in as the last gradient, this leaves the program an interior.
    """
    p = Plain(devices.L, devices.mu, devices.weights, rstar, network.lo, network.hi)
    X = [p.space.new() for _ in range(p.N)]
    g = [p.space.new() for _ in range(p.N - 1)]
    g.append(add(*((-steps[i] * p.w[i] / (steps[-1] * p.w[-1]), one) for i, one in enumerate(g))))
    for i in range(p.N):
        p.triples[i].append((X[i], g[i], p.value()))
    G = [add((p.N * p.w[i], one)) for i, one in enumerate(g)]
    moved = [add((1, x), ((1 if order == "cta" else -1) * a, g)) for x, a, g in zip(X, steps, G, strict=True)]
    before, after = (X, moved) if order == "cta" else (moved, X)
    p.mixed[0] = [(before, after)]
    return math.sqrt(p.solve([], [(1 / p.N, x) for x in X], []))


@pytest.mark.parametrize(
    ("method", "devices"),
    [
        (DecentralisedGD(0.3), ALIKE),
        (DecentralisedGD(0.3, order="atc"), ALIKE),
        (DecentralisedGD("own", order="atc"), UNLIKE),
    ],
)
def test_against_a_plain_program(method, devices) -> None:
    network = pep.Spectral(-0.3, 0.6)
    found = pep.neighbourhood(method, devices, 0.7, network=network)
    steps = 1 / devices.L if method.step == "own" else [method.step] * len(devices)
    assert found.radius == pytest.approx(plain(devices, steps, network, 0.7, method.order), rel=1e-4)
    assert found.lower <= found.radius
    assert found.lower >= (0.999 if devices is ALIKE else 0.8) * found.radius


@pytest.mark.slow
def test_long_worst_cases_tend_to_it() -> None:
    """From a start near x*, eight rounds of a method that contracts by 0.25 have forgotten the start."""
    devices, network = pep.repeated([1.0], 0.75, [4]), pep.Spectral(-0.4, 0.4)
    method = DecentralisedGD(1.0, order="atc")
    ball = pep.neighbourhood(method, devices, 0.5, network=network)
    long = pep.worst_case(method, devices, 8, 1e-3, 0.5, "distance_devices", network=network)
    assert ball.rho == pytest.approx(0.25, abs=2e-6)
    assert math.sqrt(long.upper) == pytest.approx(ball.radius, rel=1e-3)


def test_own_steps_on_a_server() -> None:
    """The local phase of Algorithm 1: the real method, run on the instance found, stays where the bound says."""
    found = pep.neighbourhood(OwnStep(Never()), TWO, 1.0)
    assert found.lower == pytest.approx(found.radius, rel=1e-5)
    assert found.rho == pytest.approx(1 - 0.1 * (3 + 1 / 3) / 2, abs=2e-6)
    assert pep.neighbourhood(OwnStep(Never()), TWO, 2.0).radius == pytest.approx(2 * found.radius, rel=1e-5)


def test_where_the_limit_is_the_minimiser() -> None:
    assert pep.neighbourhood(GD(0.5), TWO, 1.0).radius == 0
    assert pep.neighbourhood(EXTRA(0.3), ALIKE, 1.0, network=pep.Spectral(-0.5, 0.5)).radius == 0
    assert pep.neighbourhood(OwnStep(Never()), TWO, 0.0).radius == 0


@pytest.mark.parametrize("rstar", [-1.0, np.inf, np.nan])
def test_bad_radii(rstar: float) -> None:
    with pytest.raises(InvalidInput, match="rstar must be a finite number"):
        pep.neighbourhood(OwnStep(Never()), TWO, rstar)


def test_the_command() -> None:
    asked = ["rate", "--L", "1,1", "--mu", "0.2", "--method", "decentralised_gd", "--network", "spectral:-0.5:0.5"]
    done = CliRunner().invoke(app, [*asked, "--step", "0.3", "--rstar", "1", "--json"])
    told = json.loads(done.stdout)
    assert told["radius"] == pytest.approx(0.4909, abs=1e-4)
    assert told["radius_lower"] <= told["radius"]
