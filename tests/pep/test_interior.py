"""The solver for many different devices: its matrix, its answers and its counts against other routes."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.linalg import eigh

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
from ownstep.support.errors import OwnstepError
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


def test_the_general_solver_s_matrix_and_ours_are_counted() -> None:
    """A triangle of 4 or 6 columns, 10 or 21 entries, squared, for each of one or three points; three tables of M."""
    assert [interior.general_work(k, 1, local) for k in (0, 2) for local in (False, True)] == [100, 441, 300, 1323]
    assert interior.general_work(0, 3, False) == 36**2
    assert interior.memory(10) == 3 * 100 * 8
    assert interior.suits(1000, interior.GROUPS, False)
    assert not interior.suits(1000, interior.GROUPS - 1, False)
    assert not interior.suits(1, interior.GROUPS, False)


def reach(matrix: np.ndarray, change: np.ndarray) -> float:
    """The largest t <= 1000 for which matrix + t change is positive semidefinite."""
    least = eigh(change, matrix, eigvals_only=True)[0]
    return 1 / max(-least, 1e-3)


def direction(path: interior._Path, aim: float, bend: list[np.ndarray], bend_z: np.ndarray) -> dict:
    """The linearised conditions as they are written, all unknowns at once, solved as one dense system.

    sum_r dy_r A_r - dS = C + S - sum_r y_r A_r          E dy = e - E y
    <A_r, dX> + (E' dnu)_r + dz_r = c_r - <A_r, X> - (E' nu)_r - z_r
    z dy + y dz = aim - y z - bend_z                      dX + sym(X dS S^-1) = aim S^-1 - X - bend
    """
    now, parts, E = path.state, path.parts, path.E.toarray()
    sizes = [len(S) for S in now.S]
    uppers = [np.triu_indices(n) for n in sizes]
    lengths = [len(now.y), len(now.nu), len(now.z), *(len(u[0]) for u in uppers), *(len(u[0]) for u in uppers)]
    cuts = np.cumsum(lengths)[:-1]

    def whole(numbers: np.ndarray, n: int, upper: tuple) -> np.ndarray:
        out = np.zeros((n, n))
        out[upper] = numbers
        return out + np.triu(out, 1).T

    def unpacked(flat: np.ndarray) -> tuple:
        dy, dnu, dz, *blocks = np.split(flat, cuts)
        half = len(sizes)
        dX = [whole(*one) for one in zip(blocks[:half], sizes, uppers, strict=True)]
        return dy, dnu, dz, dX, [whole(*one) for one in zip(blocks[half:], sizes, uppers, strict=True)]

    def left(flat: np.ndarray) -> np.ndarray:
        dy, dnu, dz, dX, dS = unpacked(flat)
        out = [
            E @ dy,
            sum(p.inner(d) for p, d in zip(parts, dX, strict=True)) + E.T @ dnu + dz,
            now.z * dy + now.y * dz,
        ]
        for p, X, S, d, s, u in zip(parts, now.X, now.S, dX, dS, uppers, strict=True):
            turned = X @ s @ np.linalg.inv(S)
            out += [(p.total(dy) - s)[u], (d + (turned + turned.T) / 2)[u]]
        return np.concatenate(out)

    inner = sum(p.inner(X) for p, X in zip(parts, now.X, strict=True))
    right = [path.e - E @ now.y, path.cost - inner - E.T @ now.nu - now.z, aim - now.y * now.z - bend_z]
    for p, X, S, c, u in zip(parts, now.X, now.S, bend, uppers, strict=True):
        right += [(p.constant + S - p.total(now.y))[u], (aim * np.linalg.inv(S) - X - c)[u]]
    matrix = np.column_stack([left(unit) for unit in np.eye(sum(lengths))])
    found = np.linalg.lstsq(matrix, np.concatenate(right), rcond=None)[0]
    return dict(zip(("y", "nu", "z", "X", "S"), unpacked(found), strict=True))


@pytest.mark.parametrize(("seed", "alike"), [(3, 1), (4, 2)])
def test_a_step_is_mehrotra_s_on_the_linearised_conditions(seed: int, alike: int) -> None:
    search = prepared(unequal(seed, 2, alike), 1, 0.4, "value")
    rows = conditions(search.gram, all_pairs(search.gram))
    parts = program(search.gram, rows, search.target, search.radii, 1e-9)
    path = interior._Path(parts, rows, search.target, len(search.radii.mean), 1e-9, None)
    for _ in range(4):
        now = path.state
        path.off()
        blocks = list(zip(now.X, now.S, strict=True))
        total = len(now.y) + sum(len(S) for S in now.S)
        mu = (now.y @ now.z + sum(np.trace(X @ S) for X, S in blocks)) / total
        aim, bend, bend_z = 0.0, [0 * S for S in now.S], 0 * now.y
        for corrected in (False, True):
            d = direction(path, aim, bend, bend_z)
            up = min(1 / max((-d["y"] / now.y).max(), 1e-3), *(reach(S, s) for S, s in zip(now.S, d["S"], strict=True)))
            down = min(
                1 / max((-d["z"] / now.z).max(), 1e-3), *(reach(X, x) for X, x in zip(now.X, d["X"], strict=True))
            )
            if corrected:
                part = 0.9 + 0.09 * min(1, up, down)  # further where the way is long
                up, down = min(1, part * up), min(1, part * down)
                continue
            up, down = min(1, up), min(1, down)
            then = (now.y + up * d["y"]) @ (now.z + down * d["z"])
            for (X, S), x, s in zip(blocks, d["X"], d["S"], strict=True):
                then += np.trace((X + down * x) @ (S + up * s))
            aim = mu * min((then / total / mu) ** 3, 1)
            turned = [x @ s @ np.linalg.inv(S) for (_, S), x, s in zip(blocks, d["X"], d["S"], strict=True)]
            bend, bend_z = [(t + t.T) / 2 for t in turned], d["y"] * d["z"]
        path.step()
        then = path.state
        for name, length in (("y", up), ("z", down), ("nu", down)):
            expected = getattr(now, name) + length * d[name]
            assert getattr(then, name) == pytest.approx(expected, rel=1e-5, abs=1e-7 * np.abs(expected).max())
        for name, length in (("S", up), ("X", down)):
            for was, change, found in zip(getattr(now, name), d[name], getattr(then, name), strict=True):
                assert found == pytest.approx(was + length * change, rel=1e-5, abs=1e-7 * np.abs(found).max())


@pytest.mark.parametrize("alike", [1, 2])
def test_where_it_begins_and_how_far_off_that_is(alike: int) -> None:
    search = prepared(unequal(5, 2, alike), 1, 0.4, "gradient")
    rows, heads = conditions(search.gram, all_pairs(search.gram)), len(search.radii.mean)
    parts = program(search.gram, rows, search.target, search.radii, 1e-9)
    first = positive(np.random.default_rng(0), len(parts[0].constant)) + np.eye(len(parts[0].constant))
    for given in (None, first):
        path = interior._Path(parts, rows, search.target, heads, 1e-9, given)
        X = [np.eye(len(p.constant)) for p in parts]
        S = [np.eye(len(p.constant)) for p in parts]
        if given is not None:
            X[0], S[0] = given, np.linalg.inv(given)
        count, size = heads + len(rows.pairs), np.zeros(heads + len(rows.pairs))
        for r in range(count):  # the size of A_r, weighed by where X begins
            for p, x in zip(parts, X, strict=True):
                A = p.total(np.eye(count)[r])
                size[r] += np.trace(A @ x @ A @ x)
        now = path.state
        assert now.y == pytest.approx(0.1 / np.sqrt(size), rel=1e-9)
        assert now.z == pytest.approx(np.sqrt(size), rel=1e-9)
        for name, expected in (("X", X), ("S", S)):
            for mine, theirs in zip(getattr(now, name), expected, strict=True):
                assert mine == pytest.approx(theirs, rel=1e-9, abs=1e-12)
        cost = np.concatenate([np.ones(heads), np.full(len(rows.pairs), -1e-9)])
        E = np.hstack([np.zeros((len(search.target.values), heads)), rows.values.toarray().T])
        off = [np.abs(search.target.values - E @ now.y).max()]
        off.append(np.abs(cost - sum(p.inner(x) for p, x in zip(parts, X, strict=True)) - now.z).max())
        off += [np.abs(p.total(now.y) - p.constant - s).max() for p, s in zip(parts, S, strict=True)]
        values = cost @ now.y, sum(np.sum(p.constant * x) for p, x in zip(parts, X, strict=True))
        off.append(abs(values[0] - values[1]))
        assert path.off() == pytest.approx(max(off) / max(1, abs(values[0])), rel=1e-9)


def test_it_ends_when_it_is_there_when_nothing_moves_and_when_time_is_up() -> None:
    search = prepared(unequal(6, 3), 2, 0.5, "value")
    problem = (search.gram, conditions(search.gram, all_pairs(search.gram)), search.target, search.radii)
    near, nearer = (interior.solve(*problem, margin=1e-9, tolerance=t) for t in (1e-4, 1e-7))
    assert (near.status, nearer.status) == ("Solved", "Solved")
    assert near.iterations < nearer.iterations <= 25
    never = interior.solve(*problem, margin=1e-9, tolerance=0.0)
    assert never.status == "InsufficientProgress"
    assert nearer.iterations < never.iterations < interior.MOST
    assert repair(*problem, never).bound == pytest.approx(
        repair(*problem, nearer).bound, rel=1e-6
    )  # the best, not the last
    with pytest.raises(OwnstepError, match="MaxTime"):
        interior.solve(*problem, margin=1e-9, seconds=0.0)


def test_its_time_is_counted_from_where_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that is far on and moves by one second a look: one look per iteration that is not the last, one at
    each end."""
    search = prepared(unequal(6, 3), 2, 0.5, "value")
    problem = (search.gram, conditions(search.gram, all_pairs(search.gram)), search.target, search.radii)

    def solved(seconds: float) -> sdp.Solution:
        monkeypatch.setattr(interior, "time", SimpleNamespace(perf_counter=count(1e6).__next__))
        return interior.solve(*problem, margin=1e-9, tolerance=1e-6, seconds=seconds)

    found = solved(1e5)
    assert found.status == "Solved"
    assert found.seconds == found.iterations
    assert solved(found.iterations - 1).seconds == found.seconds
    with pytest.raises(OwnstepError, match="MaxTime"):
        solved(found.iterations - 2)
