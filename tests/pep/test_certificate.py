"""Proofs: the multipliers add up, on any vectors, to the inequality they claim."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from ownstep import pep
from ownstep.methods import GD, At, Never, OwnStep
from ownstep.methods.base import Answer
from ownstep.pep import bound as bound_module
from ownstep.pep.conditions import assemble, cuts
from ownstep.pep.proof import certificate
from ownstep.pep.proof.certificate import Proof, between, repair, slacks
from ownstep.pep.search import Search
from ownstep.pep.solve.tries import Way
from ownstep.pep.trace.symbolic import trace
from ownstep.pep.trace.units import Setting
from ownstep.plan import Devices

DEVICES = Devices(np.array([0.3, 0.7]), np.array([0.4, 3.0]), np.array([0.1, 0.2]))


@pytest.mark.parametrize("metric", ["value", "distance", "gradient"])
@pytest.mark.parametrize("counts", [(1, 1), (2, 3)])
def test_the_identity_behind_the_bound(metric: str, counts: tuple[int, int]) -> None:
    """metric = radii + sum_r lambda_r condition_r - <S, G> for arbitrary symmetric matrices and values."""
    devices = pep.repeated([0.4, 3.0], 0.1, counts)
    search = Search(Setting(trace(OwnStep(At(2)), devices, 4), devices, 2.0, 0.5, metric))
    search.prepare()
    search.run(1e-5)
    proof, rows = search.best.proof, search.best.rows
    rng = np.random.default_rng(0)
    n = len(search.gram.columns)
    G = rng.standard_normal((n, n))
    G = G + G.T
    apart = [rng.standard_normal((len(s), len(s))) for s in search.gram.difference_scale if s is not None]
    apart = [block + block.T for block in apart]
    values = rng.standard_normal(len(search.gram.value_scale))
    target, radii = search.target, search.radii
    left = np.sum(target.matrix * G) + target.values @ values
    S = slacks(search.gram, rows, target, radii, proof.limits, proof.multipliers)
    right = proof.multipliers @ rows.residuals(G, apart, values)
    for factor, mean, others in zip(proof.limits, radii.mean, radii.differences, strict=True):
        right += factor * np.sum(mean * G)
        kept = [others[c] for c, s in enumerate(search.gram.difference_scale) if s is not None]
        right += factor * sum(np.sum(m * block) for m, block in zip(kept, apart, strict=True) if m is not None)
    right -= sum(np.sum(s * block) for s, block in zip(S, [G, *apart], strict=True))
    assert left == pytest.approx(right, abs=1e-8 * np.abs(G).max() * n * n)
    assert (proof.multipliers >= 0).all()
    assert (proof.limits >= 0).all()
    assert min(np.linalg.eigvalsh(s)[0] for s in S) > 0
    assert proof.bound == pytest.approx(proof.limits.sum() * target.size, rel=1e-14)


def test_what_a_certificate_says() -> None:
    proof = pep.worst_case(OwnStep(At(2)), DEVICES, 3, 2.0, 0.5).certificate()
    assert proof.bound == pytest.approx(sum(proof.radii.values()), rel=1e-12)
    assert proof.slack > 0
    assert all(factor > 0 for factor in proof.multipliers.values())
    assert any("device 1" in name for name in proof.multipliers)
    assert "value <=" in str(proof)


@pytest.mark.parametrize("seed", range(6))
def test_no_quadratic_does_worse(seed: int) -> None:
    """Random quadratics that meet the radii, run for real."""
    rng = np.random.default_rng(seed)
    method, rounds, d = [OwnStep(At(2)), OwnStep(Never()), GD()][seed % 3], 4, 5
    bound = pep.worst_case(method, DEVICES, rounds, 1.0, 0.4)
    for _ in range(60):
        hessians = []
        for mu, L in zip(DEVICES.mu, DEVICES.L, strict=True):
            basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
            hessians.append(basis @ np.diag(rng.choice([mu, L, rng.uniform(mu, L)], d)) @ basis.T)
        pull = rng.standard_normal(d)
        tilts = [pull / DEVICES.weights[0], -pull / DEVICES.weights[1]]
        reach = max(np.linalg.norm(np.linalg.solve(H, s)) for H, s in zip(hessians, tilts, strict=True))
        tilts = [0.4 / reach * s for s in tilts]
        x = rng.standard_normal(d)
        state = method.start(x / np.linalg.norm(x), DEVICES)
        for _ in range(rounds):
            ask = method.ask(state)
            sums = [c * (H @ ask.x + s) for c, H, s in zip(ask.mix, hessians, tilts, strict=True)]
            state = method.tell(state, Answer(sum=sum(sums)))
        x = method.point(state)
        assert sum(w * x @ H @ x / 2 for w, H in zip(DEVICES.weights, hessians, strict=True)) <= bound.upper


def test_leaving_conditions_out_only_raises_the_maximum() -> None:
    """Every relaxation is a valid upper bound; adding all conditions does not change the enclosed value."""
    devices = Devices.uniform([1 / 3, 3], 0.1)
    search = Search(Setting(trace(OwnStep(At(3)), devices, 6), devices, 1.0, 0.3, "value"))
    search.prepare()
    search.run(1e-5)
    core, every = (assemble.conditions(search.gram, p(search.gram)) for p in (cuts.core_pairs, cuts.all_pairs))
    best = search.best.proof.bound
    for rows in (core, every):
        search.best = None
        search._solve(rows)
        assert search.best.proof.bound >= search.worst.error
        assert search.best.proof.bound >= best * (1 - 1e-5)


def test_curves_agree_with_single_worst_cases() -> None:
    devices, seen = Devices.uniform([1 / 3, 3], 0.1), []
    bounds = pep.curve(OwnStep(At(2)), devices, 4, 10, 1, progress=lambda k, total: seen.append((k, total)))
    assert [b.rounds for b in bounds] == [0, 1, 2, 3, 4]
    assert seen == [(k, 4) for k in range(5)]
    for b in bounds:
        assert b.upper == pytest.approx(pep.worst_case(OwnStep(At(2)), devices, b.rounds, 10, 1).upper, rel=1e-5)


@pytest.mark.parametrize("total", [4, 6, 7, 16, 1000])
def test_the_number_of_devices_does_not_matter(total: int) -> None:
    devices = pep.repeated([1 / 3, 3], 0.1, [total // 2, total // 2])
    bound = pep.worst_case(OwnStep(At(5)), devices, 10, 10, 1)
    assert bound.gap <= 1e-5
    assert bound.upper == pytest.approx(0.896475, rel=2e-6)


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ((4,), "device 5"),
        ((0, 1, 2, 3, 4, 5, 6, 7), "devices 1-8"),
        ((0, 2), "devices 1, 3"),
        ((0, 2, 4, 5, 6, 7), "devices 1, 3, 5, 6, 7, 8"),
        ((0, 2, 4, 5, 6, 7, 9), "devices 1, 3, 5, 6, 7, 8, ..."),
    ],
)
def test_devices_are_named(members: tuple[int, ...], said: str) -> None:
    group = SimpleNamespace(members=members)
    assert certificate._who(SimpleNamespace(groups=[None, group]), 1) == said


def test_tracing_takes_of_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 130.0, 100.0, 130.0])
    monkeypatch.setattr(bound_module.time, "perf_counter", lambda: next(clock))
    assert bound_module._traced(GD(), DEVICES, 2, 45.0)[1] == 15.0
    assert bound_module._traced(GD(), DEVICES, 2, 20.0)[1] == 0.0
    monkeypatch.undo()
    assert bound_module._traced(GD(), DEVICES, 2, None)[1] is None


def test_a_proof_that_fails_by_a_little_is_mended() -> None:
    """A little of a sure proof makes it one: with a bound between the two and a slack above zero."""
    search = Search(Setting(trace(OwnStep(At(2)), DEVICES, 4), DEVICES, 2.0, 0.5, "value"))
    search.prepare()
    program = (
        search.gram,
        rows := assemble.conditions(search.gram, cuts.all_pairs(search.gram)),
        search.target,
        search.radii,
    )
    search.core = 0
    sure, near = (repair(*program, search._attempt(rows, Way(margin, False, True))) for margin in (1e-5, 1e-8))
    assert near.bound < sure.bound
    limits, multipliers = near.limits * (1 - 1e-6), near.multipliers * (1 - 1e-6)
    left = program[2].values - rows.values.T @ multipliers
    failing = repair(*program, SimpleNamespace(limits=limits, multipliers=multipliers))
    assert -1e-5 < failing.slack < 0 < sure.slack
    assert np.abs(left).max() > 0
    mended = between(*program, sure, failing)
    assert failing.bound < mended.bound < sure.bound
    assert mended.slack > 0
    for block in slacks(*program, mended.limits, mended.multipliers):
        assert np.linalg.eigvalsh(block)[0] > 0
    np.testing.assert_allclose(rows.values.T @ mended.multipliers, program[2].values, atol=1e-12)
    # nothing is taken from one that is no smaller, that fails by more than the other has, or that is no number
    assert between(*program, sure, Proof(sure.bound * 2, limits, multipliers, -1e-9, 0.0)) is sure
    assert between(*program, sure, Proof(failing.bound, limits, multipliers, -1.0, 0.0)) is sure
    assert between(*program, sure, Proof(failing.bound, limits, multipliers, float("nan"), 0.0)) is sure
