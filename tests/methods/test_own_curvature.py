"""Own curvature: sketches against eigenvalues, the metric against the matrix it stands for, and what may go wrong."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from ownstep import partition
from ownstep.engines import Bernoulli, describe, run
from ownstep.engines.local.answering import Answering
from ownstep.engines.local.sketching import Sketching
from ownstep.glm.families import FAMILIES
from ownstep.methods import LBFGS, Ask, OwnCurvature, Sketch, SketchWork
from ownstep.methods.own import sketch_bank as banks
from ownstep.methods.own.metric import Metric, compressed
from ownstep.methods.own.sketch_bank import Bank
from ownstep.problems import BinaryLogistic, LeastSquares, MultinomialLogistic, logistic_regression, optimum
from ownstep.smoothness import sketch as making
from ownstep.smoothness.sketch import _left_vectors, checked, nystrom, own_sketch, qr, rank_of, ritz, shared_matrix
from ownstep.support.errors import InvalidInput

from ..conftest import make_logistic


def decaying(seed=0, n=200, d=60, devices=3, mu=1e-3, sparse=False, intercept=False, classes=2, scale=3.0):
    """Unequal devices whose spectra decay, each along directions of its own."""
    rng = np.random.default_rng(seed)
    owner = np.sort(rng.choice(devices, n, p=np.arange(1, devices + 1) / (devices * (devices + 1) / 2)))
    owner[:devices] = np.arange(devices)
    owner.sort()
    turns = [np.linalg.qr(rng.standard_normal((d, d)))[0] for _ in range(devices)]
    rows = np.stack([turns[i] @ (scale * 0.8 ** np.arange(d) * rng.standard_normal(d)) for i in owner])
    scores = rows @ rng.standard_normal((d, classes)) + rng.standard_normal((n, classes))
    model = BinaryLogistic if classes == 2 else MultinomialLogistic
    rows = sp.csr_array(rows * (rng.random(rows.shape) < 0.5)) if sparse else rows
    return model(rows, scores.argmax(1), partition.given(owner), mu=mu, intercept=intercept)


@pytest.mark.parametrize(
    "problem",
    [decaying(), decaying(1, sparse=True, intercept=True), decaying(2, d=25, classes=3)],
    ids=["dense", "sparse, intercept", "three classes"],
)
def test_a_sketch_is_the_leading_eigenpairs(problem):
    x = 0.1 * np.random.default_rng(0).standard_normal(problem.dim)
    for i in range(3):
        H = problem.data_hessian(x, i)
        whole = H @ np.eye(problem.dim)
        values = np.linalg.eigvalsh(whole)[::-1]
        vectors, found = own_sketch(H, 8, 0)
        np.testing.assert_allclose(vectors @ vectors.T, np.eye(8), atol=1e-8)
        np.testing.assert_allclose(found[:4], values[:4], rtol=0.02)
        assert (found <= values[:8] * (1 + 1e-9)).all()
        for _ in range(3):  # warm starts come closer
            vectors, found = own_sketch(H, 8, 0, vectors)
        np.testing.assert_allclose(found[:6], values[:6], rtol=0.005)
        assert np.trace(whole) == pytest.approx(H.trace)


@pytest.mark.parametrize(
    ("n", "density"),
    [(120, 1.0), (120, 0.05), (20, 0.3), (120, 0.005)],
    ids=["dense", "few entries", "few rows", "columns that are 0"],
)
@pytest.mark.parametrize("signs", [False, True])
def test_from_few_rows_come_the_pairs_of_the_whole_hessian(n, density, signs, monkeypatch):
    """In the space of the rows, cold and warm, as in that of the coordinates; twice the same row among them."""
    monkeypatch.setattr(making, "MOST_NORMAL", 0 if signs else 2**18)
    rng = np.random.default_rng(n)
    rows = rng.standard_normal((n, 400)) * (rng.random((n, 400)) < density) * 0.95 ** np.arange(400)
    rows[1] = rows[0]
    problem = BinaryLogistic(sp.csr_array(rows) if density < 1 else rows, np.arange(n) % 2, mu=0.1)
    H = problem.data_hessian(0.1 * rng.standard_normal(400), 0)
    whole = H @ np.eye(400)
    root = H.root()
    narrow = density == 0.005
    assert root.shape[1] == (np.count_nonzero(rows.any(axis=0)) if narrow else 400)
    np.testing.assert_allclose(root.widen(root.back(root @ root.narrow(np.eye(400))).T), whole, atol=1e-12)
    vectors, values = own_sketch(H, 8, 3)
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(8), atol=1e-9)
    exact = np.linalg.eigvalsh(whole)[::-1][:8]
    np.testing.assert_allclose(values[:4], exact[:4], rtol=1e-9 if n == 20 else 0.06)
    assert (values <= exact * (1 + 1e-9)).all()
    again = own_sketch(H, 8, 3, vectors)
    assert (again[1] >= values - 1e-12).all()
    monkeypatch.setattr(H, "root", lambda: None)
    if not signs or density == 1.0:  # else the random block is drawn among the rows, and is another
        other, found = own_sketch(H, 8, 3)
        np.testing.assert_allclose(values, found, rtol=1e-6)
        np.testing.assert_allclose(abs(np.linalg.det(other @ vectors.T)), 1, rtol=1e-4)
    np.testing.assert_allclose(own_sketch(H, 8, 3, vectors)[1], again[1], rtol=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("start", ["cold", "warm"])
def test_rows_that_repeat_are_not_counted_twice(sparse, start):
    """15 rows four times each: the second block adds fewer directions than it has columns, and the rest is rounding."""
    rng = np.random.default_rng(4)
    rows = np.repeat(rng.standard_normal((15, 300)) * (rng.random((15, 300)) < 0.1), 4, axis=0)
    problem = BinaryLogistic(sp.csr_array(rows) if sparse else rows, np.arange(60) % 2, mu=0.1)
    x = 0.1 * rng.standard_normal(300)
    H = problem.data_hessian(x, 0)
    vectors, values = own_sketch(H, 8, 0)
    if start == "warm":
        for _ in range(60):
            vectors, values = own_sketch(H, 8, 0, vectors)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(H @ np.eye(300))[::-1][:8], rtol=1e-9)
    np.testing.assert_allclose(vectors @ (H @ vectors.T), np.diag(values), atol=1e-7)
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(8), atol=1e-12)


def test_what_a_block_adds_is_orthogonal_to_what_was_there():
    """Also where most of it lies along K, or adds fewer directions than it has columns."""
    rng = np.random.default_rng(0)
    K = np.linalg.qr(rng.standard_normal((50, 6)))[0]
    new = rng.standard_normal((50, 2))
    block = np.concatenate([K @ rng.standard_normal((6, 3)), new + 1e7 * K[:, :2]], axis=1)
    before = block.copy()
    basis = making._without(block, K)
    both = np.concatenate([K, basis], axis=1)
    np.testing.assert_allclose(both.T @ both, np.eye(11), atol=1e-11)
    np.testing.assert_allclose(both @ (both.T @ new), new, atol=1e-6)
    assert (block == before).all()


@pytest.mark.parametrize("empty", [np.zeros((6, 9)), sp.csr_array((6, 9))], ids=["dense", "sparse"])
def test_a_device_without_curvature_sends_no_vectors(empty):
    problem = BinaryLogistic(empty, np.arange(6) % 2, mu=0.1)
    vectors, values = own_sketch(problem.data_hessian(problem.x0(), 0), 3, 0)
    assert len(vectors) == len(values) == 0
    assert run(OwnCurvature(), problem, 3).value[-1] == pytest.approx(np.log(2))


def test_a_sketch_of_every_direction_is_exact():
    problem = decaying(d=10, n=90)
    H = problem.data_hessian(problem.x0(), 2)
    vectors, values = own_sketch(H, 10, 0)
    np.testing.assert_allclose(vectors.T @ np.diag(values) @ vectors, H @ np.eye(10), atol=1e-10)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_penalty_is_left_out_of_the_data_term_and_of_every_intercept(classes):
    problem = decaying(4, d=6, n=90, mu=0.3, intercept=True, classes=classes)
    x = 0.3 * np.random.default_rng(1).standard_normal(problem.dim)
    outputs = 1 if classes == 2 else 3
    for i in range(3):
        H = problem.data_hessian(x, i)
        assert (H.penalty, H.free) == (0.3, outputs)
        whole = H @ np.eye(problem.dim) + np.diag(np.r_[np.full(6 * outputs, 0.3), np.zeros(outputs)])
        np.testing.assert_allclose(problem.hessian(x, np.eye(3)[i]), whole, atol=1e-12)


def test_what_a_sketch_leaves_out_is_spread_over_the_other_directions():
    vectors = np.eye(5)[:2]
    assert Sketch(vectors, np.array([4.0, 3.0]), 13.0).rest == 6 / 3
    assert Sketch(vectors, np.array([4.0, 3.0]), np.nan).rest == 1.5  # the trace is not known
    assert Sketch(vectors, np.array([4.0, 3.0]), 6.9).rest == 0.0
    assert Sketch(vectors[:0], np.zeros(0), 13.0).rest == 13 / 5
    assert Sketch(np.eye(2), np.array([4.0, 3.0]), 9.0).rest == 0.0
    assert Sketch(vectors, np.array([4.0, 3.0]), 13.0, span=4).rest == 6 / 2  # flat in one direction of five
    assert Sketch(vectors, np.array([4.0, 3.0]), 7.1, span=2).rest == 0.0


@pytest.mark.parametrize(
    ("make", "classes", "sparse"),
    [
        (BinaryLogistic, 2, False), (BinaryLogistic, 2, True), (MultinomialLogistic, 4, False),
        (MultinomialLogistic, 2, True), (FAMILIES["softmax"].problem, 3, False), (FAMILIES["softmax"].problem, 4, True),
    ],
)  # fmt: skip
def test_the_span_is_the_rank_of_the_data_term(make, classes, sparse):
    """Of few rows, and of columns that are 0 on a device; with softmax one output less, whoever leaves it out."""
    rng = np.random.default_rng(classes)
    rows, labels = rng.standard_normal((40, 12)), np.arange(40) % classes
    rows[:, 3] = 0
    rows[7:, [1, 5, 6]] = 0
    owner = np.repeat([0, 1], [7, 33])
    problem = make(sp.csr_array(rows) if sparse else rows, labels, partition.given(owner), mu=0.1)
    x = 0.1 * rng.standard_normal(problem.dim)
    spans = [problem.data_hessian(x, i).span for i in range(2)]
    assert spans == [np.linalg.matrix_rank(problem.data_hessian(x, i) @ np.eye(problem.dim)) for i in range(2)]
    assert spans == [7 * (classes - 1), 8 * (classes - 1)]
    if problem.outputs == 1:  # of the rows alone, flat or not
        assert [problem.data_hessian(1e6 * x, i).span for i in range(2)] == spans


def wide(seed, n, d, zero=0.0):
    """Few rows and many columns, which L-BFGS finds easy: it never leaves the span of the rows."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d)) * (rng.random(d) >= zero) / 3
    return rows, (rows @ rng.standard_normal(d) + rng.logistic(size=n) > 0).astype(int)


@pytest.mark.parametrize(("n", "d", "zero"), [(90, 900, 0.0), (900, 90, 0.6)], ids=["few rows", "empty columns"])
def test_flat_directions_do_not_make_it_slower_than_lbfgs(n, d, zero):
    """The rest is spread over the directions in which f curves: else M is too small there by 10 and by 2.5."""
    for seed in range(3):
        rows, labels = wide(seed, n, d, zero)
        for split in (None, partition.make("iid", rows, labels, 4, seed)) if n < d else (None,):
            problem = BinaryLogistic(rows, labels, split, mu=1e-4)
            goal = optimum(problem).value
            goal += 1e-6 * (problem.value(problem.x0()) - goal)
            needed = [run(m, problem, 100, target=goal, progress=False).rounds for m in (LBFGS(), OwnCurvature())]
            assert needed[1] <= needed[0] + 1


def test_devices_of_one_row_each_send_no_vectors_and_it_is_lbfgs():
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((30, 8)) * 10.0 ** np.arange(-3, 5)
    problem = BinaryLogistic(rows, np.arange(30) % 2, partition.given(np.arange(30)), mu=1e-4)
    ours, theirs = (run(method, problem, 25, progress=False) for method in (OwnCurvature(), LBFGS()))
    np.testing.assert_array_equal(ours.value, theirs.value)


def test_nystrom_of_a_singular_matrix():
    rng = np.random.default_rng(0)
    low = rng.standard_normal((30, 3))
    K = low @ low.T
    omega = shared_matrix(1, 30, 8, low[:, 0])
    vectors, values = nystrom(omega, K @ omega)
    np.testing.assert_allclose((vectors.T * values) @ vectors, K, atol=1e-5)


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
def test_nystrom_has_no_units(unit):
    """The shift that makes it stable is a share of the matrix's size."""
    low = np.random.default_rng(0).standard_normal((30, 3))
    H, omega = low @ low.T, shared_matrix(1, 30, 8, low[:, 0])
    values = nystrom(omega, unit * (H @ omega))[1]
    np.testing.assert_allclose(values[:3] / unit, np.linalg.eigvalsh(H)[:-4:-1], rtol=1e-9)
    assert (values[3:] < 1e-9 * values[0]).all()


def random_metric(rng, d, m, free):
    rows = rng.standard_normal((m, d))
    M = rows.T @ rows + np.diag(np.r_[np.full(d - free, 0.7), np.full(free, 0.2)])
    return Metric(rows, 0.7, 0.2, free), M


@pytest.mark.parametrize(("m", "free"), [(0, 0), (3, 0), (3, 2), (9, 0), (20, 1)])
def test_the_metric_is_the_matrix_it_stands_for(m, free):
    rng = np.random.default_rng(m)
    metric, M = random_metric(rng, 9, m, free)
    v = rng.standard_normal(9)
    np.testing.assert_allclose(metric.product(v), M @ v, rtol=1e-10)
    np.testing.assert_allclose(metric.inverse(v), np.linalg.solve(M, v), rtol=1e-9)


@pytest.mark.parametrize("spans", [None, (4, 6, 5), (3, 4, 3)], ids=["all", "overlapping", "apart"])
def test_a_bank_adds_up_to_the_metric_of_the_formula(spans):
    """Curved in so many directions of 11 each: together in fewer than 11 only the last ones."""
    rng, d, ranks = np.random.default_rng(3), 11, (2, 3, 1)
    weights, sketches, left = [0.5, 0.2, 0.3], [], [0.5, 0.9, 0.4]
    for k, more, span in zip(ranks, left, spans or (None,) * 3, strict=True):
        U = np.linalg.qr(rng.standard_normal((d, k)))[0]
        values = np.sort(rng.uniform(1, 2, k))[::-1]
        sketches.append(Sketch(U.T, values, values.sum() + more, 0.04, 1, span))
    M, pooled = 0.04 * np.diag([1] * 10 + [0]), np.dot(weights, left) / (10 - 6)
    plain, limits = M, []
    known = [s.vectors.T @ np.diag(s.values) @ s.vectors for s in sketches]
    for i, (w, s, more) in enumerate(zip(weights, sketches, left, strict=True)):
        rest = np.eye(d) - s.vectors.T @ s.vectors
        others = sum(weights[j] * known[j] for j in range(3) if j != i)
        seen, foretold = np.trace(rest @ others @ rest), np.trace(s.vectors @ others @ s.vectors.T) / (1 - w)
        b = min(1, foretold / s.values.sum(), more / 2 / seen)
        limits.append((b * seen < more / 2 * (1 - 1e-9), b == 1))
        even = (more - b * seen) / (d - len(s.values)) * rest
        beyond = -pooled / w * (np.eye(d) - rest) if spans == (3, 4, 3) else b * rest @ others @ rest + even
        M, plain = M + w * (known[i] + beyond), plain + w * (known[i] + more / (d - len(s.values)) * rest)
    M = M + pooled * np.eye(d) if spans == (3, 4, 3) else M
    bank = Bank.empty(np.zeros(d), weights).renewed(sketches)
    if spans == (3, 4, 3):
        assert (np.array([0.5, 0.2, 0.3])[list(bank.owner)] * bank.values > pooled).all()
    np.testing.assert_allclose(bank.filled.product(np.eye(d)), M, atol=1e-12)
    assert any(half for half, _ in limits)
    if spans != (3, 4, 3):
        np.testing.assert_allclose(bank.metric.product(np.eye(d)), plain, atol=1e-12)  # without filling
    again = Bank.empty(np.zeros(d), weights).renewed([sketches[1], sketches[1], None])
    assert again.known
    again = again.renewed([sketches[0], None, None]).renewed([None, None, sketches[2]])  # the absent keep their last
    np.testing.assert_allclose(again.filled.product(np.eye(d)), M, atol=1e-12)
    if spans is None:  # the last one has never come
        pair = Bank.empty(np.zeros(d), [5 / 7, 2 / 7]).renewed(sketches[:2]).filled.product(np.eye(d))
        absent = Bank.empty(np.zeros(d), weights).renewed([*sketches[:2], None]).filled.product(np.eye(d))
        np.testing.assert_allclose(absent, pair, atol=1e-12)
    few = Bank.empty(np.zeros(d), weights).renewed([sketches[0], None, None])  # who never came counts as the others
    all_alike = Bank.empty(np.zeros(d), [1 / 3] * 3).renewed([sketches[0]] * 3)
    assert few.rest[0] == pytest.approx(all_alike.rest[0])
    alone = Bank.empty(np.zeros(d), [1.0]).renewed([dataclasses.replace(sketches[0], span=None)])
    if spans != (3, 4, 3):
        np.testing.assert_allclose(few.filled.product(np.eye(d)), alone.filled.product(np.eye(d)), atol=1e-12)


@pytest.mark.parametrize("d", [20, 5], ids=["fewer vectors", "more vectors than coordinates"])
def test_devices_fill_each_other_as_far_as_they_foretell_each_other(d):
    """The trace stays, whatever is filled in; devices that curve along directions of their own fill in nothing."""
    rng = np.random.default_rng(d)
    bases = [np.linalg.qr(rng.standard_normal((d, d)))[0] for _ in range(4)]
    sketches = [Sketch(U[:, :3].T, np.array([3.0, 2.0, 1.0]), 7.0, span=d) for U in bases]
    bank = Bank.empty(np.zeros(d), [0.4, 0.3, 0.2, 0.1]).renewed(sketches)
    M, even = (metric.product(np.eye(d)) for metric in (bank.filled, bank.metric))
    assert np.linalg.norm(M - even) > 1e-3 * np.linalg.norm(even)
    assert np.trace(M) == pytest.approx(np.trace(even)) == pytest.approx(7.0)
    apart = [Sketch(np.eye(d)[at], np.array([3.0, 2.0]), 5.5, span=d) for at in ([0, 1], [2, 3])]
    bank = Bank.empty(np.zeros(d), [0.7, 0.3]).renewed(apart)
    np.testing.assert_allclose(bank.filled.product(np.eye(d)), bank.metric.product(np.eye(d)), atol=1e-12)


@pytest.mark.parametrize("d", [20, 5])
@pytest.mark.parametrize("unit", [1e-12, 1e12])
def test_what_is_filled_in_has_no_units(d, unit):
    """Curvature in other units is the same metric in those; of its trace nothing is lost, all vectors but one sent."""
    rng, k = np.random.default_rng(d), min(d - 1, 6)
    bases = [np.linalg.qr(rng.standard_normal((d, d)))[0][:, :k].T for _ in range(4)]
    values = np.array([1.5, 1.4, 1.3, 1.2, 1.1, 1.0])[:k]
    whole = values.sum() + 0.9 * (d - k)
    plain, scaled = (
        Bank.empty(np.zeros(d), [0.4, 0.3, 0.2, 0.1]).renewed(
            [Sketch(U, by * values, by * whole, span=d) for U in bases]
        )
        for by in (1.0, unit)
    )
    M = plain.filled.product(np.eye(d))
    assert np.trace(M) == pytest.approx(whole)
    np.testing.assert_allclose(scaled.filled.product(np.eye(d)) / unit, M, rtol=1e-9, atol=1e-12)
    assert d == 5 or np.linalg.norm(M - plain.metric.product(np.eye(d))) > 1e-3  # in one direction nothing moves


def test_no_more_is_filled_in_than_the_others_sent():
    """A sends e1, where B curves five times as much; B sends e1 and e2. A curves along e2 as B does, once."""
    E = np.eye(6)
    sketches = [Sketch(E[:1], np.array([1.0]), 4.0, span=6), Sketch(E[:2], np.array([5.0, 1.0]), 8.0, span=6)]
    bank = Bank.empty(np.zeros(6), [0.5, 0.5]).renewed(sketches)
    # H_A = diag(1, 1/2 + 1/2, 1/2, ...): half of B's 1, and (3 - 1/2) / 5 everywhere but along e1
    np.testing.assert_allclose(bank.filled.product(E), np.diag([3.0, 1.0, 0.5, 0.5, 0.5, 0.5]), atol=1e-12)


def test_what_devices_of_the_same_kind_fill_in_is_nearer_and_has_a_limit(monkeypatch):
    """Rows of one distribution on three devices: with what the others sent M is nearer to the Hessian."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((900, 20)) * np.arange(1, 21) ** -0.5
    problem = logistic_regression(rows, np.arange(900) % 2, partition.make("iid", rows, np.arange(900) % 2, 3, 0))
    ask = Ask(problem.x0(), problem.weights, sketch=SketchWork(4))
    answer = Answering(problem, None)(ask, np.ones(3, bool)).answer
    bank = Bank.empty(problem.x0(), problem.weights).renewed(answer.sketches)
    monkeypatch.setattr(banks, "MOST_FILLED", 11)
    np.testing.assert_array_equal(bank.filled.product(np.eye(20)), bank.metric.product(np.eye(20)))
    even = bank.metric.product(np.eye(20))
    monkeypatch.setattr(banks, "MOST_FILLED", 12)
    filled = dataclasses.replace(bank).filled.product(np.eye(20))
    H = sum(w * (problem.data_hessian(problem.x0(), i) @ np.eye(20)) for i, w in enumerate(problem.weights))
    assert np.linalg.norm(filled - H) < 0.95 * np.linalg.norm(even - H)
    assert np.trace(filled) == pytest.approx(np.trace(even)) == pytest.approx(np.trace(H) + 20 * problem.mu)


def test_beyond_the_limit_a_bank_is_compressed(monkeypatch):
    """The leading part stays, the trace too; who renews their sketch takes their share out."""
    problem = decaying(devices=6, n=600, d=20)
    everyone = np.ones(6, bool)
    ask = Ask(problem.x0(), problem.weights, sketch=SketchWork(8))
    sketches = Answering(problem, None)(ask, everyone).answer.sketches
    exact = Bank.empty(problem.x0(), problem.weights).renewed(sketches).metric.product(np.eye(20))
    monkeypatch.setattr(banks, "MOST_NUMBERS", 2 * 20 * 15)
    small = Bank.empty(problem.x0(), problem.weights).renewed(sketches)
    assert small.vectors.shape == (15, 20)
    near = small.metric.product(np.eye(20))
    assert np.trace(near) == pytest.approx(np.trace(exact))
    assert np.linalg.norm(near - exact) < 0.1 * np.linalg.norm(exact)
    again = small.renewed([sketches[0], *[None] * 5])
    assert np.trace(again.metric.product(np.eye(20))) == pytest.approx(np.trace(exact), rel=0.2)
    rows, lost = compressed(np.diag([3.0, 2.0, 1.0, 0.5]), 2)
    np.testing.assert_allclose(rows.T @ rows, np.diag([9, 4, 0, 0]), atol=1e-12)
    assert lost == pytest.approx(1.25)


def gap_and_exchanges(method, problem, best, rounds=500, **more):
    goal = best + 1e-6 * (problem.value(problem.x0()) - best)
    history = run(method, problem, rounds, target=goal, **more)
    assert history.value[-1] <= goal
    return history.rounds


def test_devices_that_differ_need_fewer_exchanges_than_one():
    """Eight devices with their own leading directions, rank 5: the best pooled baseline and one device need more."""
    split = decaying(4, n=800, d=80, devices=8, mu=1e-5)
    pooled = split.reweighted(split.weights)
    best = optimum(pooled).value
    rows, labels = (np.concatenate(part) for part in zip(*(split.samples(i) for i in range(8)), strict=True))
    one = BinaryLogistic(rows, labels, mu=1e-5)
    assert one.value(one.x0() + 0.1) == pytest.approx(split.value(split.x0() + 0.1))
    theirs = gap_and_exchanges(LBFGS(), one, best)
    alone, ours = (gap_and_exchanges(OwnCurvature(5), p, best) for p in (one, split))
    sums = gap_and_exchanges(OwnCurvature(5, sketch="sum"), split, best)
    assert ours < 0.7 * theirs
    assert ours < alone <= theirs
    assert sums < theirs


def test_sketches_stay_within_their_budget():
    """At most log_2(T + 1) of them in T exchanges; bytes show when one was sent."""
    problem = decaying(5, n=400, d=40, mu=1e-6)
    history = run(OwnCurvature(3), problem, 60)
    sent = np.flatnonzero(history.columns["bytes_up"] > 3 * 40 * 8 * 2)
    assert sent[0] == 0
    assert 2 <= len(sent) <= np.log2(60 + 1)
    for before, after in itertools.pairwise(sent):
        assert after >= 2 * (before + 1)
    extra = history.columns["bytes_up"][0] - history.columns["bytes_up"][1]
    assert extra == 3 * (3 * 40 * 8 + 8 * (3 + 4))
    assert history.settings["sketch_ranks"] == [3, 3]


def test_absent_devices_and_rounds_without_anybody():
    problem = decaying(6, n=300, d=30, mu=1e-2)
    best, start = optimum(problem).value, problem.value(problem.x0())
    for missing in ("rescale", "drop", "last"):
        for sketch in ("own", "sum"):
            history = run(OwnCurvature(4, sketch=sketch), problem, 80, participation=Bernoulli(0.6, missing, seed=1))
            assert np.median(history.value[-20:]) - best < 0.2 * (start - best)

    class First:
        missing = "rescale"

        def present(self, k, devices):
            return np.full(devices, k not in (0, 3, 4))

    late = run(OwnCurvature(4), problem, 43, participation=First())
    whole = run(OwnCurvature(4), problem, 40)
    np.testing.assert_allclose(late.x, whole.x, atol=1e-9)


def test_without_penalty_and_with_a_free_intercept_nothing_breaks():
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((60, 3))
    labels = np.where(rows[:, 0] > 0, 1, -1)
    for intercept in (False, True):
        for rank in (None, 0, 2):
            problem = BinaryLogistic(rows, labels, partition.by_norm(rows, 3), mu=0.0, intercept=intercept)
            history = run(OwnCurvature(rank), problem, 40)
            assert np.isfinite(history.value).all()
            assert history.value[-1] < 1e-3
    flat = LeastSquares(np.zeros((8, 2)), np.arange(8.0), mu=0.0)
    assert run(OwnCurvature(), flat, 5).value[-1] == flat.value(np.zeros(2))


def test_a_rank_that_would_show_the_rows_is_refused_unless_named():
    problem = decaying(7, n=40, d=60)
    with pytest.raises(
        InvalidInput, match=r"rank 20 would show the span of the \d+ rows of device 'D1'.*revealing=True"
    ):
        run(OwnCurvature(20), problem, 3)
    assert run(OwnCurvature(20, revealing=True), problem, 3).settings["sketch_ranks"][1] <= 20
    default = run(OwnCurvature(), problem, 3).settings["sketch_ranks"]
    assert default[0] == min(10, problem.counts.min() // 2)
    tall = run(OwnCurvature(50, revealing=True), make_logistic(features=4), 3)
    assert tall.settings["sketch_ranks"] == [4, 4]


def test_half_of_a_device_s_rows_is_the_most_it_sends():
    for rows, most in ((10, 5), (11, 5), (12, 6)):
        assert rank_of(most, 60, rows, "refuse", "a") == most
        with pytest.raises(
            InvalidInput, match=f"the {rows} rows of device 'a', which sends at most {most};.* --revealing$"
        ):
            rank_of(most + 1, 60, rows, "refuse", "a")
        assert rank_of(most + 1, 60, rows, "reduce", "a") == most
        assert rank_of(50, 60, rows, "allow", "a") == rows
    assert rank_of(8, 5, 10, "refuse", "a") == 5  # a vector has five coordinates
    assert rank_of(3, 60, 100, "reduce", "a") == rank_of(3, 60, 100, "allow", "a") == 3


@pytest.mark.parametrize(("off", "accepted"), [(0.9e-3, True), (1.1e-3, False), (-0.9e-3, True), (-1.1e-3, False)])
def test_vectors_of_a_sketch_are_orthonormal_to_a_thousandth(off, accepted):
    longer, tilted = np.eye(2, 5), np.eye(2, 5)
    longer[0] *= np.sqrt(1 + off)
    tilted[0, 1] = off
    for vectors in (longer, tilted):
        sketch = Sketch(vectors, np.array([2.0, 1.0]), 4.0)
        if accepted:
            assert checked(sketch, 5, 2, "here") is sketch
        else:
            with pytest.raises(InvalidInput, match="not orthonormal"):
                checked(sketch, 5, 2, "here")


def test_what_is_not_a_sketch_is_refused_by_name():
    good = Sketch(np.eye(2, 5), np.array([2.0, 1.0]), 4.0)
    unknown = dataclasses.replace(good, trace=np.nan)
    assert checked(good, 5, 2, "here") is good
    assert checked(unknown, 5, 2, "here") is unknown
    bad = {
        "at most 1 vectors": (good, 1),
        "entries that are not finite": (dataclasses.replace(good, vectors=np.full((2, 5), np.nan)), 2),
        "are not finite": (dataclasses.replace(good, values=np.array([np.inf, 1.0])), 2),
        "not finite": (dataclasses.replace(good, penalty=np.nan), 2),
        "finite": (dataclasses.replace(good, free=np.inf), 2),
        "that are not finite": (dataclasses.replace(good, trace=np.inf), 2),
        "entries that are not": (dataclasses.replace(good, trace=-np.inf), 2),
        "at most 2 vectors of length 5": (dataclasses.replace(good, values=np.ones(3)), 2),
        "got \\(5,\\)": (dataclasses.replace(good, vectors=np.ones(5)), 2),
        "not orthonormal": (dataclasses.replace(good, vectors=2 * np.eye(2, 5)), 2),
        "values are negative": (dataclasses.replace(good, values=np.array([1.0, -1.0])), 2),
        "got \\(2, 6\\)": (dataclasses.replace(good, vectors=np.eye(2, 6)), 2),
    }
    for words, (sketch, rank) in bad.items():
        with pytest.raises(InvalidInput, match=f"hospital 3.*{words}"):
            checked(sketch, 5, rank, "hospital 3")


def test_a_problem_without_products_names_a_method_that_needs_none():
    problem = make_logistic()

    class Bare:
        weights, dim, names, work, strong_convexity = problem.weights, 4, problem.names, 1.0, 0.0
        x0, mix, value, gradients = problem.x0, problem.mix, problem.value, problem.gradients

    with pytest.raises(InvalidInput, match=r"Bare has no Hessian products.*LBFGS\(\)"):
        run(OwnCurvature(), Bare(), 3)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("few_rows", [False, True])
def test_products_that_are_not_finite_are_an_error_that_names_the_device(monkeypatch, few_rows, bad):
    """f and its gradient may be finite where the Hessian is not: such a device was taken to be flat."""
    problem = decaying(3, n=20, d=60) if few_rows else decaying(3)
    found = type(problem).data_hessian

    def spoilt(self, x, i):
        H = found(self, x, i)
        H.curved = H.curved * (bad if i == 1 else 1.0)
        return H

    monkeypatch.setattr(type(problem), "data_hessian", spoilt)
    with pytest.raises(InvalidInput, match=r"products of device 'D2' are not finite; LBFGS\(\)"):
        run(OwnCurvature(), problem, 3)
    with pytest.raises(InvalidInput, match="devices' Hessian products are not finite"):
        run(OwnCurvature(sketch="sum"), problem, 3)


def test_a_word_does_not_allow_a_revealing_rank():
    """Any word counts as true in Python, and ``no`` would have allowed it."""
    for word in ("no", "False", 1, None):
        with pytest.raises(InvalidInput, match="revealing must be True or False"):
            OwnCurvature(revealing=word)
    assert OwnCurvature(revealing=np.True_) == OwnCurvature(revealing=True)


def test_a_thousand_devices():
    rng = np.random.default_rng(8)
    rows = rng.standard_normal((6000, 12)) * np.geomspace(1, 0.05, 12)
    labels = np.where(rows @ rng.standard_normal(12) + 0.3 * rng.standard_normal(6000) > 0, 1, -1)
    problem = BinaryLogistic(rows, labels, partition.make("iid", rows, labels, 1000, 0), mu=1e-4)
    best = optimum(problem).value
    assert gap_and_exchanges(OwnCurvature(), problem, best) <= gap_and_exchanges(LBFGS(), problem, best)


def stale_by_the_formula(state, M):
    """<s, y> / <y, M^-1 y> outside [1/2, 2], and <s, y>^2 < <s, M s> <y, M^-1 y> / 2."""
    s, y = state.pairs.s[-1], state.pairs.y[-1]
    turned, curved = y @ np.linalg.solve(M, y), s @ y
    return not 0.5 <= curved / turned <= 2, curved * curved < (s @ M @ s) * turned / 2


def test_new_sketches_are_asked_for_exactly_when_the_rule_says():
    seen = set()
    for seed, scale, rank in itertools.product(range(2), (0.3, 18.0), (1, 2)):
        problem = decaying(seed, n=120, d=12, mu=1e-4, scale=scale)
        method, everyone = OwnCurvature(rank), np.ones(3, bool)
        answering = Answering(problem, None)
        state = method.start(problem.x0(), describe(problem).devices)
        for _ in range(40):
            before, answer = state, answering(method.ask(state), everyone).answer
            state = method.tell(state, answer)
            asked = before.wanted and any(s is not None for s in answer.sketches)
            assert state.sketched == (before.k + 1 if asked else before.sketched)
            wanted, kept = before.wanted and not asked, state.kept > before.kept
            if state.pairs.count and kept and not state.plain:
                off = stale_by_the_formula(state, state.bank.filled.product(np.eye(12)))
                due = state.k >= 2 * state.sketched
                seen.add((*off, due))
                wanted = wanted or (any(off) and due)
            if kept and not state.plain:
                assert state.wanted == wanted
    assert {(True, False, True), (False, True, True), (False, False, True), (True, False, False)} <= seen


def test_a_sketch_nobody_asked_for_changes_nothing():
    problem = decaying(d=12, n=90)
    everyone, method = np.ones(3, bool), OwnCurvature(2)
    answering = Answering(problem, None)
    state = method.start(problem.x0(), describe(problem).devices)
    for _ in range(3):
        answer = answering(method.ask(state), everyone).answer
        state = method.tell(state, answer)
    assert not state.wanted
    answer = answering(method.ask(state), everyone).answer
    extra = answering(Ask(state.x + 1, problem.weights, sketch=SketchWork(2)), everyone).answer.sketches
    assert any(s is not None for s in extra)
    told = method.tell(state, dataclasses.replace(answer, sketches=extra))
    np.testing.assert_array_equal(told.x, method.tell(state, answer).x)
    assert told.sketched == state.sketched


def test_before_anybody_has_sent_a_sketch_the_first_trial_is_one_long():
    """As L-BFGS begins: along the negative gradient, at a distance of 1."""
    problem, method = decaying(d=12, n=90), OwnCurvature(2)
    state = method.start(problem.x0(), describe(problem).devices)
    answer = Answering(problem, None)(Ask(problem.x0(), problem.weights), np.ones(3, bool)).answer
    told = method.tell(state, answer)
    np.testing.assert_allclose(told.x, -answer.sum / np.linalg.norm(answer.sum), rtol=1e-12)
    assert told.wanted


@pytest.mark.parametrize("sketch", ["own", "sum"])
def test_without_vectors_it_is_lbfgs(sketch):
    """A trace alone says nothing of how many directions share it."""
    rng = np.random.default_rng(3)
    rows, labels = rng.standard_normal((30, 4)), np.arange(30) % 3
    problem = MultinomialLogistic(rows, labels, partition.given(np.arange(30) % 2), mu=0.1)
    method = OwnCurvature(0, sketch=sketch)
    ours, theirs = (run(m, problem, 25, progress=False) for m in (method, LBFGS()))
    np.testing.assert_array_equal(ours.value, theirs.value)
    np.testing.assert_allclose(ours.value[-1], optimum(problem).value, rtol=1e-9)


@pytest.mark.parametrize("rank", [2, 3])
def test_a_device_sketches_the_point_it_is_asked_about(rank):
    """Another point gives another search, begun where the last ended; the same point, what was sent before."""
    problem, rng = make_logistic(devices=3, features=6, samples=90), np.random.default_rng(1)
    points, work = 3 * rng.standard_normal((3, problem.dim)), SketchWork(rank, revealing="allow", seed=2)
    everyone, some = np.ones(3, bool), np.array([True, False, True])
    sketching, sent = Sketching(problem), []
    for x, here in ((points[0], everyone), (points[1], some), (points[1].copy(), everyone), (points[2], everyone)):
        made = sketching.own(x, work, here)
        assert [one is not None for one in made] == here.tolist()
        for i in np.flatnonzero(here):
            H = problem.hessian(x, np.eye(3)[i]) - problem.mu * np.eye(problem.dim)
            assert made[i].trace == pytest.approx(np.trace(H))
            if not sent or (made[i] is not sent[-1][i] and i != 1):
                before = sent[-1][i].vectors if sent else None
                vectors, values = own_sketch(problem.data_hessian(x, int(i)), rank, 2, before)
                np.testing.assert_array_equal(made[i].values, values)
                np.testing.assert_array_equal(made[i].vectors, vectors)
            np.testing.assert_allclose(made[i].vectors @ made[i].vectors.T, np.eye(rank), atol=1e-10)
            assert (made[i].penalty, made[i].free) == (problem.mu, 0)
        sent.append(made)
    assert sent[2][0] is sent[1][0]
    assert sent[2][2] is sent[1][2]
    assert sketching.ranks == [rank] * 3
    again = Sketching(problem)
    again.restore(sketching.arrays(), points[0])
    for mine, theirs in zip(again.own(points[2], work, everyone), sent[3], strict=True):
        np.testing.assert_array_equal(mine.vectors, theirs.vectors)
        np.testing.assert_array_equal(mine.values, theirs.values)
        assert (mine.trace, mine.penalty, mine.free) == (theirs.trace, theirs.penalty, theirs.free)


def test_eigenpairs_follow_each_other_until_there_are_none():
    """By falling size, at the point of the first block however far x has moved; the next value is the bound."""
    problem, rng = make_logistic(devices=2, features=5), np.random.default_rng(4)
    x, later = rng.standard_normal((2, problem.dim))
    sketching, blocks = Sketching(problem), []
    for skip, at in ((0, x), (2, later), (4, later)):
        blocks.append(sketching.own(at, SketchWork(2, skip=skip), np.ones(2, bool)))
    for i in range(2):
        H = problem.hessian(x, np.eye(2)[i]) - problem.mu * np.eye(5)
        values = np.sort(np.linalg.eigvalsh(H))[::-1]
        np.testing.assert_allclose(np.concatenate([made[i].values for made in blocks]), values, rtol=1e-10)
        assert [made[i].trace for made in blocks] == pytest.approx([values[2], values[4], 0.0], abs=1e-12)
        for made in blocks:
            np.testing.assert_allclose(made[i].vectors @ H, made[i].values[:, None] * made[i].vectors, atol=1e-10)
    anew = sketching.own(later, SketchWork(2, skip=0), np.ones(2, bool))[0]
    top = np.linalg.eigvalsh(problem.hessian(later, np.eye(2)[0]))[-1] - problem.mu
    assert anew.values[0] == pytest.approx(top)
    restarted = Sketching(problem)
    restarted.restore(sketching.arrays(), x)
    np.testing.assert_array_equal(restarted.own(x, SketchWork(2, skip=2), np.ones(2, bool))[0].values,
                                  sketching.own(x, SketchWork(2, skip=2), np.ones(2, bool))[0].values)  # fmt: skip
    assert Sketching(problem).arrays() == {}


def test_large_sketches_are_not_kept(monkeypatch):
    problem, work = make_logistic(devices=3, features=4), SketchWork(2, revealing="allow")
    for most, kept in ((3 * 2 * 4, 3), (3 * 2 * 4 - 1, 0)):
        monkeypatch.setattr("ownstep.engines.local.sketching.MOST_KEPT", most)
        sketching = Sketching(problem)
        sketching.own(problem.x0(), work, np.ones(3, bool))
        assert len(sketching.last) == kept
    monkeypatch.setattr("ownstep.engines.local.sketching.MOST_DECOMPOSED", 3)
    with pytest.raises(InvalidInput, match="at most 3 coordinates, here are 4"):
        sketching.own(problem.x0(), SketchWork(2, skip=0), np.ones(3, bool))


@pytest.mark.parametrize("spread", [1.0, 50.0, 1e5, 1e9])
@pytest.mark.parametrize("kind", ["float64", "float32", "torch"])
def test_columns_become_orthonormal_and_span_the_same(kind, spread):
    """Columns from 1 down to 1/spread in length, none parallel to another; by Cholesky or by Householder."""
    rng = np.random.default_rng(2)
    matrix = np.linalg.qr(rng.standard_normal((9, 4)))[0] @ np.diag(np.geomspace(1, 1 / spread, 4))
    matrix = matrix @ np.linalg.qr(rng.standard_normal((4, 4)))[0]
    given = matrix.astype(np.float32) if kind == "float32" else matrix
    if kind == "torch":
        given = pytest.importorskip("torch").as_tensor(matrix)
    Q = np.asarray(qr(given))
    small = 1e-6 if kind == "float32" else 1e-13
    np.testing.assert_allclose(Q.T @ Q, np.eye(4), atol=4 * small)
    np.testing.assert_allclose(Q @ (Q.T @ np.asarray(given)), given, atol=4 * small)
    assert qr(given[:, :0]).shape == (9, 0)
    if kind != "float32":
        vectors, squares = _left_vectors(given)
        sizes = np.linalg.svd(matrix)[1]
        np.testing.assert_allclose(np.asarray(vectors) @ np.asarray(vectors).T, np.eye(4), atol=1e-5)
        np.testing.assert_allclose(np.sqrt(squares), sizes, rtol=1e-5)
        half = np.asarray(vectors) @ matrix
        np.testing.assert_allclose(half @ half.T, np.diag(squares), atol=1e-10)


def test_where_a_loss_curves_downwards_too_the_sizes_are_sent():
    rng = np.random.default_rng(3)
    basis = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    H = basis @ np.diag([3.0, -5.0, 1.0, -0.5, 0.2, 4.0]) @ basis.T
    K = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    vectors, values = ritz(K, H @ K)
    np.testing.assert_allclose(values, [5, 4, 3, 1, 0.5, 0.2])
    np.testing.assert_allclose(np.abs((vectors @ H * vectors).sum(axis=1)), values)
    np.testing.assert_allclose(vectors @ H @ H, (values**2)[:, None] * vectors, atol=1e-12)


@pytest.mark.parametrize(
    ("rank", "dim", "rows", "revealing", "sent"),
    [
        (3, 9, 6, "refuse", 3), (4, 9, 6, "refuse", None), (9, 3, 6, "refuse", 3), (4, 9, 8, "refuse", 4),
        (4, 9, 6, "halve", 3), (4, 9, 7, "halve", 3), (4, 9, 1, "halve", 0), (4, 9, 6, "allow", 4),
        (9, 9, 6, "allow", 6), (9, 5, 6, "allow", 5), (1, 9, 1, "refuse", None), (0, 9, 1, "refuse", 0),
    ],
)  # fmt: skip
def test_how_many_eigenpairs_a_device_sends(rank, dim, rows, revealing, sent):
    if sent is None:
        with pytest.raises(InvalidInput, match=f"of rank {rank} would show the span of the {rows} rows of device 'a'"):
            rank_of(rank, dim, rows, revealing, "a")
    else:
        assert rank_of(rank, dim, rows, revealing, "a") == sent


def test_what_is_left_of_the_curvature():
    """The mean of what the trace has beside the values; half the smallest value where nobody knows it; at least 0."""
    two = np.eye(2, 5)
    for values, trace, rest in (
        ([4.0, 2.0], 9.0, 1.0), ([4.0, 2.0], np.nan, 1.0), ([4.0, 1.0], np.nan, 0.5), ([4.0, 2.0], 5.0, 0.0),
    ):  # fmt: skip
        assert Sketch(two, np.array(values), trace).rest == pytest.approx(rest)
    assert Sketch(np.eye(5), np.ones(5), 7.0).rest == 0.0
    assert Sketch(np.zeros((0, 5)), np.zeros(0), 7.0).rest == pytest.approx(1.4)
    assert Sketch(np.zeros((0, 5)), np.zeros(0), -1.0).rest == 0.0
