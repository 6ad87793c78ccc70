"""Rates for every number of rounds: closed forms, published numbers, long runs, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ownstep import pep
from ownstep.methods import (
    EXTRA,
    GD,
    ITEM,
    NIDS,
    At,
    DecentralisedGD,
    FedAvg,
    GradientTracking,
    HeavyBall,
    Nesterov,
    Never,
    OwnStep,
    Scaffold,
    TripleMomentum,
)
from ownstep.pep.networks.dual import prove
from ownstep.pep.networks.kind_vectors import Averaging, Frame, Kinds
from ownstep.pep.networks.network_trace import Follower
from ownstep.pep.networks.program import Blocks, interpolate, mixings, triples
from ownstep.pep.networks.scaled import Program
from ownstep.pep.rates.lift import _relations, lift
from ownstep.pep.rates.lyapunov import Program as RateProgram
from ownstep.pep.rates.lyapunov import pose
from ownstep.pep.rates.slowest import Line, slowest
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput, OwnstepError

ONE = Devices(np.ones(1), np.ones(1), np.array([0.1]), L_pooled=1.0)
TWO = pep.repeated([1 / 3, 3], 0.1)


@pytest.mark.parametrize("L", [1.0, 1e4])
@pytest.mark.parametrize("mu", [0.1, 0.02])
def test_gradient_descent_and_triple_momentum(mu: float, L: float) -> None:
    """(kappa - 1)/(kappa + 1) at the step 2/(L + mu); 1 - 1/sqrt(kappa); neither depends on the unit of L."""
    devices = Devices(np.ones(1), np.array([L]), np.array([mu * L]), L_pooled=L)
    kappa = 1 / mu
    assert pep.rate(GD(2 / (L + mu * L)), devices).rho == pytest.approx((kappa - 1) / (kappa + 1), abs=2e-6)
    assert pep.rate(TripleMomentum("true"), devices).rho == pytest.approx(1 - 1 / math.sqrt(kappa), abs=2e-5)


def test_gradient_descent_on_any_step() -> None:
    """max(|1 - alpha mu|, |1 - alpha L|), the sharp rate of Taylor, Hendrickx and Glineur (2018)."""
    for step in (0.3, 1.0, 1.9):
        found = pep.rate(GD(step), ONE, memory=0)
        assert found.rho == pytest.approx(max(abs(1 - step * 0.1), abs(1 - step)), abs=2e-6)
        assert found.rho >= found.lower


def test_devices_pool_where_only_their_sum_is_asked_for() -> None:
    """Gradient descent on two devices is gradient descent on F(mean mu, mean L)."""
    pooled = Devices(np.ones(1), np.array([TWO.L_bar]), np.array([0.1]))
    assert pep.rate(GD(0.5), TWO).rho == pytest.approx(pep.rate(GD(0.5), pooled).rho, abs=2e-6)


def test_the_phases_of_algorithm_1() -> None:
    """Local: 1 - sum_i w_i mu_i / L_i, to a point of its own; common: 1 - mu / L_bar, to x*."""
    local, common = pep.rate(OwnStep(Never()), TWO), pep.rate(OwnStep(At(0)), TWO)
    assert local.rho == pytest.approx(1 - 0.1 * (3 + 1 / 3) / 2, abs=2e-6)
    assert common.rho == pytest.approx(1 - 0.1 / TWO.L_bar, abs=2e-6)
    assert common.exact
    assert not local.exact


def test_nesterov_beats_its_textbook_rate_and_is_not_below_its_quadratics() -> None:
    found = pep.rate(Nesterov("true"), ONE)
    assert found.lower <= found.rho <= math.sqrt(1 - math.sqrt(0.1))


def test_heavy_ball_has_no_certificate_where_it_cycles() -> None:
    """Tuned for quadratics, heavy ball cycles on a smooth strongly convex function for large kappa (Lessard 2016)."""
    mu = 0.02
    devices = Devices(np.ones(1), np.ones(1), np.array([mu]))
    step, momentum = 4 / (1 + math.sqrt(mu)) ** 2, ((1 - math.sqrt(mu)) / (1 + math.sqrt(mu))) ** 2
    with pytest.raises(OwnstepError, match="no quadratic certificate below rho = 1"):
        pep.rate(HeavyBall(step, momentum), devices)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (DecentralisedGD(0.3), 0.97),
        (EXTRA(0.3), 0.97),
        (NIDS(0.5), 0.95),
        (GradientTracking(0.1), 0.99),
        (GradientTracking(0.1, order="atc"), 0.99),
    ],
)
def test_methods_without_a_server(method, expected: float) -> None:
    """Their rate is that of gradient descent with the same step, 1 - alpha mu, where the network mixes fast enough."""
    found = pep.rate(method, ONE, network=pep.Spectral(-0.5, 0.5, any_number=True))
    assert found.rho == pytest.approx(expected, abs=2e-6)
    assert found.exact == (not isinstance(method, DecentralisedGD))


def test_on_a_slow_network_the_rate_is_the_networks() -> None:
    """Where disagreement dies out more slowly than the error, the rate is above 1 - alpha mu."""
    network = pep.Spectral(-0.2, 0.95, any_number=True)
    found = pep.rate(EXTRA(0.5), ONE, network=network)
    assert found.rho > 1 - 0.5 * 0.1 + 1e-3
    assert found.rho >= found.lower - 1e-9


def test_the_published_rate_of_diging() -> None:
    """PESTO's example: |lambda| <= 0.9, alpha = 0.44 (1 - 0.9)^2, L = 1, mu = 0.1: 0.9996 in distance."""
    step = 0.44 * (1 - 0.9) ** 2
    found = pep.rate(GradientTracking(step), Devices.uniform([1.0, 1.0], 0.1), network=pep.Spectral(-0.9, 0.9))
    assert round(found.rho, 4) == 0.9996
    assert round(found.rho**2, 4) == 0.9991


def test_the_published_one_step_contraction_of_diging() -> None:
    """The same with the published measure avg(||x_i - x*||^2 + (alpha/L) ||s_i - mean gradient||^2), as one program."""
    alpha = 0.44 * (1 - 0.9) ** 2
    kinds = Kinds.of(Devices.uniform([1.0, 1.0], 0.1))
    frame = Frame(kinds)
    W, follower = Averaging(frame), Follower(frame, None, 1.0)
    x = frame.stack(1.0)
    g = follower.gradient(x, "0")
    s = frame.balanced(1.0, kinds.shares, g.mean().mean_row)
    x_next = W @ x - alpha * s
    g_next = follower.gradient(x_next, "1")
    s_next = W @ s + g_next - g
    blocks = Blocks(frame)

    def measure(x, s, g):
        apart = s - g.mean()
        first, second = blocks.average(x, x, kinds.shares), blocks.average(apart, apart, kinds.shares)
        return [a + alpha * b for a, b in zip(first, second, strict=True)]

    names, found = triples(blocks, follower.evaluations, None, None)
    inter = interpolate(blocks, names, found)
    target = blocks.packed([measure(x_next, s_next, g_next)])[0]
    heads = blocks.packed([measure(x, s, g)])
    spectral = tuple(mixings(blocks, W.steps, -0.9, 0.9))
    nothing, ones = np.zeros(inter.count), np.ones(inter.count)
    program = Program(blocks, inter, spectral, heads, ("start",), target, nothing, ones)
    assert round(prove(program).bound, 4) == 0.9991


def test_scaffold_with_local_steps_is_exact_and_has_a_rate() -> None:
    """Two local steps of length eta on every device: (1 - eta mu)^2 per round, where eta is small."""
    found = pep.rate(Scaffold(0.1, local_steps=2), TWO)
    assert found.exact
    assert found.rho == pytest.approx((1 - 0.1 * 0.1) ** 2, abs=2e-6)


def test_what_has_no_rate() -> None:
    with pytest.raises(InvalidInput, match="changes its rule"):
        pep.rate(ITEM("mean"), ONE)
    with pytest.raises(InvalidInput, match="does not end at x"):
        pep.rate(FedAvg(0.1, local_steps=2), TWO)
    with pytest.raises(OwnstepError, match="no quadratic certificate"):
        pep.rate(GD(1.0), Devices.uniform([1.0], 0.0))
    with pytest.raises(OwnstepError, match="no quadratic certificate"):
        pep.rate(GD(2.5), ONE)
    with pytest.raises(InvalidInput, match="metric"):
        pep.rate(GD(1.0), ONE, "value")
    with pytest.raises(InvalidInput, match="two devices"):
        pep.rate(EXTRA(0.3), ONE, network=pep.Spectral(0, 0.5))
    for tolerance in (0.0, -1e-6, math.nan):
        with pytest.raises(InvalidInput, match="tolerance must be positive"):
            pep.rate(GD(1.0), ONE, tolerance=tolerance)
    with pytest.raises(InvalidInput, match="memory"):
        pep.rate(GD(1.0), ONE, memory=-1)


@pytest.mark.parametrize("network", [None, pep.Spectral(-0.4, 0.2)])
def test_quadratics_that_are_tried_belong_to_their_classes(network, monkeypatch) -> None:
    """All the same share of the way from mu_i to L_i, one kind against the others, every other device; 5 networks."""
    devices = pep.repeated([1.0, 2.0, 4.0], [0.1, 0.2, 1.0], [2, 1, 2])
    tried, factors = [], []

    def radius(self, q) -> float:
        tried.append((q - self.devices.mu) / (self.devices.L - self.devices.mu))
        return float(len(tried))

    class Noted(Line):
        def __init__(self, *arguments) -> None:
            factors.append(arguments[4])
            super().__init__(*arguments)

    monkeypatch.setattr("ownstep.pep.rates.slowest.Line", Noted)
    monkeypatch.setattr(Line, "radius", radius)
    monkeypatch.setattr(Line, "exact", lambda self: len(tried) < 20)
    method = DecentralisedGD(0.1) if network else GD(0.1)
    largest, exact = slowest(method, devices, ["x"], network)
    assert largest == len(tried)
    assert exact is (network is None)
    assert factors == pytest.approx([-0.4, -0.25, -0.1, 0.05, 0.2] if network else [0.0])
    kinds, wanted = np.array([0, 0, 1, 2, 2]), [np.full(5, t) for t in np.linspace(0, 1, 9)]
    wanted += [np.where(kinds == c, t, 1 - t) for c in range(3) for t in (0.0, 1.0)] + [np.array([0, 1, 0, 1, 0])]
    assert len(tried) == len(wanted) * (5 if network else 1)
    for share in wanted:
        assert any(np.allclose(share, one) for one in tried)


def test_which_rows_follow_from_those_before_them() -> None:
    """None for a row of its own, else its coefficients; rows of zeros follow from nothing, and small ones count."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 4))
    rows = [0 * a, a, 2 * a, 1e-6 * b, a - 3 * b, 0 * b, a + 1e-3 * rng.standard_normal(4)]
    found = _relations(rows)
    assert found[0] == found[5] == {}
    assert found[1] is found[3] is found[6] is None
    assert found[2] == {1: 2.0}
    assert found[4] == pytest.approx({1: 1.0, 3: -3e6})


@pytest.mark.parametrize("memory", [1, 2])
def test_multipliers_in_the_conditions_own_units(memory: int) -> None:
    """Scaled columns times variables are conditions times multipliers: matrices Z and numbers a, one W per round."""
    network = pep.Spectral(-0.3, 0.4, each_round=True)
    lifted = lift(GradientTracking(0.1), pep.repeated([1.0, 2.0], 0.2), network, memory + 1)
    program = RateProgram(pose(lifted, memory, network.lo, network.hi))
    rng = np.random.default_rng(memory)
    for side, inter, mixed in zip(program.sides, program.search.conditions, program.search.mixed, strict=True):
        x = rng.standard_normal(side.variables)
        lam, Z, a = side.named(x)
        total = inter.rows.blocks.T @ lam
        assert [m.steps for m in mixed] == [len(z) for z in Z]
        for m, z, free in zip(mixed, Z, a, strict=True):
            c, r = np.tril_indices(m.steps)
            total = total + (np.where(c == r, 1, 2) * z[c, r]) @ m.bounded + free @ m.symmetric
        np.testing.assert_allclose(side.matrix @ x, total * program.scale, atol=1e-9)
        np.testing.assert_allclose(side.values.T @ x[: side.count], inter.rows.values.T @ lam * program.value_unit)
