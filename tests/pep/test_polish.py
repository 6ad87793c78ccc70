"""Polishing: the instance meets every interpolation condition, errs more than before, and meets the proof."""

from __future__ import annotations

import numpy as np
import pytest

from ownstep import pep
from ownstep.methods import At, OwnStep
from ownstep.pep.conditions.assemble import conditions
from ownstep.pep.conditions.cuts import all_pairs, core_pairs
from ownstep.pep.conditions.gram import build
from ownstep.pep.proof.certificate import repair, slacks
from ownstep.pep.search import Search
from ownstep.pep.solve.polish import _Problem, polish
from ownstep.pep.solve.sdp import limits, objective, solve
from ownstep.pep.trace.symbolic import trace
from ownstep.pep.trace.units import Setting

DEVICES = pep.repeated((1 / 3, 3.0), 0.1)


@pytest.mark.parametrize(("r0", "rstar"), [(1.0, 0.05), (10.0, 1.0)])
def test_forty_rounds_are_enclosed(r0, rstar) -> None:
    bound = pep.worst_case(OwnStep(At(20)), DEVICES, 40, r0, rstar)
    assert 0 <= bound.gap <= 1e-5
    assert bound.upper == pytest.approx({1.0: 1.876389e-5, 10.0: 4.96613e-3}[r0], rel=1e-5)


def test_polishing_repairs_what_the_core_conditions_leave_broken(monkeypatch) -> None:
    monkeypatch.setattr("ownstep.pep.solve.polish.LITTLE", 0.0)
    rounds, r0, rstar = 12, 1.0, 0.3
    method = OwnStep(At(6))
    search = Search(Setting(trace(method, DEVICES, rounds), DEVICES, r0, rstar, "value"))
    search.gram = gram = build(search.path, search.groups, r0, rstar, evaluate_final=True, local_optima=True)
    search.target, search.radii = objective(gram, "value", True), limits(gram, r0, rstar)
    rows = conditions(gram, core_pairs(gram))
    found = solve(gram, rows, search.target, search.radii, margin=1e-8)
    proof = repair(gram, rows, search.target, search.radii, found)
    slack = slacks(gram, rows, search.target, search.radii, proof.limits, proof.multipliers)[0]
    problem = _Problem(gram, search.target, r0, rstar)
    errors, broken = [], []
    for better in polish(gram, search.target, found, rows, proof, slack, r0=r0, rstar=rstar, steps=60):
        search._replay(better)
        errors.append(search.lower)
        size, directions = np.linalg.eigh(better.gram)
        thin = directions[:, -4:] * np.sqrt(np.maximum(size[-4:], 0.0))
        broken.append(max(problem.left(thin, better.values).max(), problem.outside(thin).max()))
    assert broken[0] > 1e-6
    assert broken[-1] <= 1e-8
    assert errors[0] < errors[-1] <= proof.bound
    worst = search.worst
    seen = [worst.x0 * 0, worst.x0, *(np.random.default_rng(0).standard_normal((8, len(worst.x0))))]
    for part in worst.parts:
        values, slopes = zip(*(part.both(x) for x in seen), strict=True)
        gaps = pep.interpolation_gaps(np.array(seen), np.array(slopes), np.array(values), 0.0, part.curvature)
        assert gaps.min() >= -1e-9


def test_slopes_are_derivatives() -> None:
    method, rng = OwnStep(At(2)), np.random.default_rng(0)
    search = Search(Setting(trace(method, DEVICES, 3), DEVICES, 1.0, 0.5, "value"))
    gram = build(search.path, search.groups, 1.0, 0.5, evaluate_final=True, local_optima=True)
    problem = _Problem(gram, objective(gram, "value", True), 1.0, 0.5)
    n, free = len(gram.columns), len(gram.value_scale)
    thin, values = rng.standard_normal((n, 2)), rng.standard_normal(free)
    move, lift = rng.standard_normal((n, 2)), rng.standard_normal(free)
    chosen = problem.left(thin, values) > -1e8
    ahead, behind = (problem.left(thin + h * move, values + h * lift)[chosen] for h in (1e-3, -1e-3))
    predicted = problem.slopes(thin, chosen) @ np.concatenate([move.T.ravel(), lift])
    np.testing.assert_allclose((ahead - behind) / 2e-3, predicted, rtol=1e-8, atol=1e-8)  # exact: they are quadratic


@pytest.mark.parametrize("local_optima", [True, False])
def test_where_nothing_is_broken_and_the_proof_is_met_no_step_pays(local_optima: bool) -> None:
    """The optimum of the whole program meets the conditions of first order of every quadratic program around it."""
    path = trace(OwnStep(At(1)), DEVICES, 2)
    search = Search(Setting(path, DEVICES, 1.0, 0.5, "value"))
    gram = build(search.path, search.groups, 1.0, 0.5, evaluate_final=True, local_optima=local_optima)
    rows, target, radii = conditions(gram, all_pairs(gram)), objective(gram, "value", True), limits(gram, 1.0, 0.5)
    found = solve(gram, rows, target, radii, margin=1e-9)
    proof = repair(gram, rows, target, radii, found)
    slack = slacks(gram, rows, target, radii, proof.limits, proof.multipliers)[0]
    problem = _Problem(gram, target, 1.0, 0.5)
    size, directions = np.linalg.eigh(found.gram)
    thin = (directions * np.sqrt(np.maximum(size, 0.0)))[:, size > 1e-6 * size[-1]]
    left = problem.left(thin, found.values)
    assert abs(max(left.max(), problem.outside(thin).max())) < 1e-4
    penalty = 2 * float(np.sum(proof.multipliers / rows.size * problem.size[tuple(rows.pairs.T)]) + proof.limits.sum())
    step = problem.step(thin, found.values, left, left > -1e8, slack, 1.0, penalty)
    assert step is not None
    assert np.linalg.norm(step[0]) < 1e-2 * np.linalg.norm(thin)
    away = problem.step(1.2 * thin, found.values, left, left > -1e8, slack, 1.0, penalty)
    assert away is not None
    assert np.linalg.norm(away[0]) > 0.05 * np.linalg.norm(thin)


def test_the_merit_rewards_a_larger_error_and_charges_the_worst_condition() -> None:
    search = Search(Setting(trace(OwnStep(At(2)), DEVICES, 3), DEVICES, 1.0, 0.5, "value"))
    gram = build(search.path, search.groups, 1.0, 0.5, evaluate_final=True, local_optima=True)
    target = objective(gram, "value", True)
    problem, rng = _Problem(gram, target, 1.0, 0.5), np.random.default_rng(0)
    thin, values = rng.standard_normal((len(gram.columns), 2)), rng.standard_normal(len(gram.value_scale))
    left = problem.left(thin, values)
    error = np.trace(thin.T @ target.matrix @ thin) + target.values @ values
    worst = max(left.max(), np.sum((problem.heads @ thin) ** 2, axis=1).max() - 1)
    assert worst > 0
    assert problem.merit(thin, values, left, 5.0) == pytest.approx(5 * worst - error)
