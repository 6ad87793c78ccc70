"""The solver for many different devices: its matrix, its answers and its counts against other routes."""

from __future__ import annotations

import numpy as np
import pytest

from ownstep import pep
from ownstep.methods import At, Never, OwnStep
from ownstep.pep.conditions.assemble import conditions, unpack
from ownstep.pep.conditions.cuts import all_pairs, core_pairs
from ownstep.pep.proof.certificate import repair
from ownstep.pep.search import Search
from ownstep.pep.solve import interior, sdp
from ownstep.pep.solve.slack import program
from ownstep.pep.trace.symbolic import trace
from ownstep.pep.trace.units import Setting, canonical
from ownstep.plan import Devices
from tests.pep import independent


def unequal(seed: int, number: int, alike: int = 1) -> Devices:
    """Devices that differ in everything, each ``alike`` times."""
    rng = np.random.default_rng([170, seed])
    L, share = np.exp(rng.uniform(0, 3, number)), rng.uniform(0, 0.4, number)
    weights = rng.uniform(0.3, 2, number)
    return pep.repeated(L, L * share, [alike] * number, weights)


def prepared(devices: Devices, rounds: int, rstar: float, metric: str) -> Search:
    asked = Setting(trace(OwnStep(At(1)), devices, rounds), devices, 1.0, rstar, metric)
    search = Search(canonical(asked)[0])
    search.prepare()
    return search


def positive(rng: np.random.Generator, size: int) -> np.ndarray:
    root = rng.normal(size=(size, size))
    return root @ root.T


@pytest.mark.parametrize("alike", [1, 2])
def test_the_matrix_of_a_step_is_what_its_definition_says(alike: int) -> None:
    """M_rs = <A_r, X A_s T>, written out with the conditions' whole matrices, radii and twins included."""
    search = prepared(unequal(3, 3, alike), 2, 0.4, "value")
    rows = conditions(search.gram, all_pairs(search.gram))
    parts = program(search.gram, rows, search.target, search.radii, 1e-9)
    assert len(parts) == (1 if alike == 1 else 4)
    rng = np.random.default_rng(5)
    heads, count = len(search.radii.mean), len(rows.pairs)
    made, expected = np.zeros((heads + count, heads + count)), np.zeros((heads + count, heads + count))
    squares, of_squares = np.zeros(heads + count), np.zeros(heads + count)
    for number, part in enumerate(parts):
        size = len(part.constant)
        X, T = positive(rng, size), positive(rng, size)
        part.add_products(X, T, made)
        squares[part.rows] += part.sizes(X)
        packed = rows.mean if number == 0 else rows.differences[number - 1]
        of_radii = search.radii.mean if number == 0 else [d[number - 1] for d in search.radii.differences]
        whole = [np.zeros((size, size)) if m is None else m for m in of_radii]
        whole += [unpack(row, size) for row in packed.toarray()]
        turned = np.array([X @ A @ T for A in whole])
        expected += np.einsum("rij,sji->rs", np.array(whole), turned)
        of_squares += [np.sum(A * (X @ A @ X)) for A in whole]
    lower = np.tril_indices(heads + count)
    assert made[lower] == pytest.approx(expected[lower], rel=1e-9, abs=1e-9 * np.abs(expected).max())
    assert squares == pytest.approx(of_squares, rel=1e-9, abs=1e-9 * np.abs(of_squares).max())


@pytest.mark.parametrize(("seed", "alike", "metric"), [(0, 1, "value"), (1, 2, "distance"), (2, 1, "gradient")])
def test_both_solvers_prove_the_same(seed: int, alike: int, metric: str) -> None:
    search = prepared(unequal(seed, 3, alike), 3, 0.5, metric)
    problem = (search.gram, conditions(search.gram, all_pairs(search.gram)), search.target, search.radii)
    ours = repair(*problem, interior.solve(*problem, margin=1e-9, tolerance=1e-7))
    theirs = repair(*problem, sdp.solve(*problem, margin=1e-9))
    assert ours.slack > 0
    assert ours.bound == pytest.approx(theirs.bound, rel=1e-6)


@pytest.mark.parametrize(("seed", "rstar", "metric"), [(0, 0.5, "value"), (1, 0.0, "gradient"), (2, 2.0, "distance")])
def test_different_devices_against_all_pairs_on_another_solver(
    seed: int, rstar: float, metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole search that many devices take, on a few: both ends are ends, they meet, and a certificate follows."""
    monkeypatch.setattr(interior, "GROUPS", 2)
    monkeypatch.setattr(interior, "GENERAL", 0.0)
    devices, rounds = unequal(seed + 10, 4), 3
    asked = (OwnStep(At(2)), devices, rounds, 1.0, rstar, metric)
    bound, truth = pep.worst_case(*asked), independent.worst_case(*asked)
    assert truth.unsure < 1e-6
    assert bound.lower <= truth.value * (1 + 1e-6)
    assert bound.upper >= truth.value * (1 - 1e-6)
    assert bound.gap < 1e-4
    proved = bound.certify()
    assert proved.upper == pytest.approx(bound.upper, rel=1e-9)
    assert proved.lower <= proved.upper


def test_eight_different_devices_over_six_rounds_are_exact() -> None:
    """Too many for the general solver: kept apart, and enclosed to a part of a thousandth."""
    devices = unequal(7, 8)
    bound = pep.worst_case(OwnStep(At(3)), devices, 6, 1.0, 0.3)
    assert bound.kinds is None
    assert bound.gap < 1e-3


@pytest.mark.parametrize(("rounds", "number", "rstar", "metric"), [(2, 3, 0.5, "value"), (4, 2, 0.0, "gradient")])
def test_conditions_are_counted_before_there_are_any(rounds: int, number: int, rstar: float, metric: str) -> None:
    devices = unequal(4, number)
    setting = Setting(trace(OwnStep(Never()), devices, rounds), devices, 1.0, rstar, metric)
    search = Search(setting)
    search.prepare()
    assert len(core_pairs(search.gram)) == interior.core(rounds, number, search.local_optima)
