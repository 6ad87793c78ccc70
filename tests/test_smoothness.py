from __future__ import annotations

import re

import numpy as np
import pytest
import scipy.sparse as sp

from ownstep import partition
from ownstep.problems import BinaryLogistic, LeastSquares, MultinomialLogistic
from ownstep.smoothness import auto, every_device, exact, lanczos, measure, sparse_blocks, spectrum, trace
from ownstep.smoothness.lanczos import One, Stack, enclose, largest_eigenvalues, tops_of_stack
from ownstep.support.errors import InvalidInput, OwnstepError

from .conftest import make_logistic


def dense_bound(rows, curvature, penalty):
    return np.linalg.eigvalsh(curvature * rows.T @ rows / len(rows) + np.diag(penalty))[-1]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("samples", "features"), [(40, 6), (400, 200), (60, 300)])
def test_exact_is_the_largest_eigenvalue_whichever_way_it_is_computed(samples, features, sparse, intercept):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((samples, features)) * (rng.random((samples, features)) < 0.3)
    labels, owner = np.arange(samples) % 2, rng.permutation(np.arange(samples) % 2)
    made = BinaryLogistic(
        sp.csr_array(rows) if sparse else rows, labels, partition.given(owner), mu=0.2, intercept=intercept
    )
    full = np.hstack([rows, np.ones((samples, 1))]) if intercept else rows
    penalty = np.full(full.shape[1], 0.2)
    if intercept:
        penalty[-1] = 0
    found = exact(made)
    assert found.kind == "exact"
    for i in range(2):
        assert found.values[i] == pytest.approx(dense_bound(full[owner == i], 0.25, penalty), rel=1e-9)
    assert found.pooled == pytest.approx(dense_bound(full, 0.25, penalty), rel=1e-9)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("features", "large", "empty", "written"),
    [(5, 40, 16, False), (150, 3000, 16, False), (150, 3000, 0, False), (150, 3000, 0, True), (30, 10**9, 16, True)],
)
def test_many_devices_at_once(features, large, empty, written, sparse, intercept, monkeypatch):
    """Devices of 1 to 200 rows, alone and in batches, against each one's Hessian bound written out."""
    monkeypatch.setattr(spectrum, "FEW_DEVICES", 0)
    monkeypatch.setattr(every_device, "LARGE", large)
    monkeypatch.setattr(every_device, "BATCH", 4000)
    monkeypatch.setattr(every_device, "LEAST", 1)
    monkeypatch.setattr(every_device, "SIMILAR", 2)
    monkeypatch.setattr(sparse_blocks, "CACHED", 8 * features)
    monkeypatch.setattr(sparse_blocks, "EMPTY", empty)  # 0: columns are numbered anew
    monkeypatch.setattr(sparse_blocks, "_worth_writing", lambda *_: written)
    rng = np.random.default_rng(features)
    counts = np.r_[1, 1, 2, 200, rng.integers(1, 40, 60)]
    owner = np.repeat(np.arange(len(counts)), counts)
    rows = rng.standard_normal((len(owner), features)) * (rng.random((len(owner), features)) < 0.3)
    rows *= rng.uniform(0.1, 3, len(counts))[owner][:, None]
    rows[owner == 7] = 0
    made = LeastSquares(
        sp.csr_array(rows) if sparse else rows, np.zeros(len(rows)), partition.given(owner), 0.2, intercept, threads=2
    )
    full = np.hstack([rows, np.ones((len(rows), 1))]) if intercept else rows
    penalty = np.r_[np.full(features, 0.2), [0.0] * intercept]
    found = exact(made)
    expected = [dense_bound(full[owner == i], 1, penalty) for i in range(len(counts))]
    np.testing.assert_allclose(found.values, expected, rtol=1e-11)
    assert found.pooled == pytest.approx(dense_bound(full, 1, penalty), rel=1e-11)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("gram_limit", [0, 1024])
def test_large_dense_devices_and_their_sum_from_one_pass(gram_limit, intercept, monkeypatch):
    monkeypatch.setattr(spectrum, "FEW_DEVICES", 0)
    monkeypatch.setattr(every_device, "GRAM_LIMIT", gram_limit)
    rng = np.random.default_rng(5)
    owner = rng.permutation(np.repeat(np.arange(3), [1300, 1700, 2400]))
    rows = rng.standard_normal((len(owner), 150)) * rng.uniform(0.1, 3, 3)[owner][:, None]
    rows[owner == 1, 0] += 1.0
    weights = np.array([0.5, 0.2, 0.3])
    made = LeastSquares(rows, np.zeros(len(rows)), partition.given(owner), 0.2, intercept, weights, threads=2)
    full = np.hstack([rows, np.ones((len(rows), 1))]) if intercept else rows
    penalty = np.r_[np.full(150, 0.2), [0.0] * intercept]
    found = exact(made)
    np.testing.assert_allclose(found.values, [dense_bound(full[owner == i], 1, penalty) for i in range(3)], rtol=1e-10)
    scaled = full * np.sqrt(weights * len(full) / np.bincount(owner))[owner][:, None]
    assert found.pooled == pytest.approx(dense_bound(scaled, 1, penalty), rel=1e-10)


@pytest.mark.parametrize(("seed", "laguerre"), [(0, 60), (1, 60), (2, 60), (3, 1), (4, 2)])
def test_lanczos_on_clustered_and_tiny_blocks(seed, laguerre, monkeypatch):
    """Equal, nearly equal and zero eigenvalues, blocks of one; each value to its promised error, whoever is with it.

    With one step of Laguerre none of them settles, and LAPACK is called for each.
    """
    monkeypatch.setattr(lanczos, "LAGUERRE", laguerre)
    rng = np.random.default_rng(seed)
    sizes = np.r_[1, 1, 2, 3, rng.integers(1, 30, 40)]
    spectra = [np.sort(rng.random(s)) * 10.0 ** rng.integers(-8, 8) for s in sizes]
    spectra[5][:] = spectra[5][0]
    spectra[6] = np.ones(len(spectra[6])) + 1e-9 * rng.random(len(spectra[6]))
    blocks = np.zeros((len(sizes), sizes.max(), sizes.max()))
    for B, values in zip(blocks, spectra, strict=True):
        Q = np.linalg.qr(rng.standard_normal((len(values),) * 2))[0]
        B[: len(values), : len(values)] = Q * values @ Q.T
    top = np.array([v.max() for v in spectra])
    np.testing.assert_allclose(largest_eigenvalues(Stack(blocks, sizes), seed), top, rtol=1e-8)
    some, most = slice(3, 9), sizes[3:9].max()
    few = largest_eigenvalues(Stack(blocks[some, :most, :most], sizes[some]), seed)
    np.testing.assert_allclose(few, top[some], rtol=1e-8)


@pytest.mark.parametrize("size", [1, 2, 3, 6, 9])
def test_small_matrices_by_householder_against_lapack(size):
    """Zero matrices, zero rows, equal rows and scales 16 orders apart, in one stack."""
    rng = np.random.default_rng(size)
    A = rng.standard_normal((90, size, size + 2)) * 10.0 ** rng.integers(-8, 8, (90, 1, 1))
    A[:9], A[9:30, -1], A[30:60, 1:] = 0, 0, A[30:60, :1]
    G = A @ A.swapaxes(1, 2)
    np.testing.assert_allclose(tops_of_stack(G), np.linalg.eigvalsh(G)[:, -1], rtol=1e-13, atol=1e-300)


@pytest.mark.parametrize(("most", "groups"), [(1.26, [1, 2, 3, 3, 4, 5, 5, 5]), (10.0, [1] * 7 + [2]), (1.0, range(8))])
def test_devices_of_like_size_are_worked_on_together(most, groups, monkeypatch):
    monkeypatch.setattr(every_device, "SIMILAR", most)
    counts = np.array([1, 2, 4, 5, 6, 9, 10, 11])
    found = every_device._groups(counts[::-1])[::-1]
    assert np.unique(found, return_inverse=True)[1].tolist() == np.unique(groups, return_inverse=True)[1].tolist()


def test_lanczos_is_not_stopped_where_an_eigenvalue_may_still_be_missing(monkeypatch):
    """A start with little of the largest eigenvalue's direction finds the second first: the bound on r sees to that."""
    spectra = np.random.default_rng(0).random((1000, 40))
    blocks = Stack(np.eye(40) * spectra[:, None], np.full(1000, 40))
    np.testing.assert_allclose(largest_eigenvalues(blocks), spectra.max(axis=1), rtol=1e-8)
    monkeypatch.setattr(lanczos, "ERROR", 1e-6)
    off = 1 - largest_eigenvalues(blocks) / spectra.max(axis=1)
    assert (off > 1e-4).sum() > 3


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("large", [300, 10**9])
def test_constants_of_small_dense_devices_come_with_that_of_f(large, intercept, monkeypatch):
    """Devices of 8 to 90 rows of seven features or eight, in stacks and alone, in any order, with own weights."""
    monkeypatch.setattr(spectrum, "FEW_DEVICES", 0)
    monkeypatch.setattr(every_device, "LARGE", large)
    monkeypatch.setattr(every_device, "BATCH", 900)
    monkeypatch.setattr(every_device, "LEAST", 1)
    monkeypatch.setattr(every_device, "TINY", 1)
    monkeypatch.setattr(every_device, "pooled_top", None)  # nobody asks for it
    rng = np.random.default_rng(large % 7)
    counts = np.r_[90, 8, 8, rng.integers(8, 40, 30)]
    owner = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    rows = rng.standard_normal((len(owner), 7)) * rng.uniform(0.1, 3, len(counts))[owner][:, None]
    weights = rng.dirichlet(np.ones(len(counts)))
    made = LeastSquares(rows, np.zeros(len(rows)), partition.given(owner), 0.2, intercept, weights)
    full = np.hstack([rows, np.ones((len(rows), 1))]) if intercept else rows
    penalty = np.r_[np.full(7, 0.2), [0.0] * intercept]
    found = exact(made)
    for i in range(len(counts)):
        assert found.values[i] == pytest.approx(dense_bound(full[owner == i], 1, penalty), rel=1e-9)
    pooled = dense_bound(full * np.sqrt(weights * len(full) / counts)[owner][:, None], 1, penalty)
    assert found.pooled == pytest.approx(pooled, rel=1e-9)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("large", [1000, 10**9])
def test_a_large_table_has_upper_bounds_where_its_eigenvalues_have_not_settled(large, sparse, intercept, monkeypatch):
    """Devices of 1 to 400 rows, against LAPACK: never too low, and above it by no more than is told."""
    monkeypatch.setattr(spectrum, "SMALL", 0)
    monkeypatch.setattr(every_device, "LARGE", large)
    rng = np.random.default_rng(large)
    counts = np.r_[1, 2, 400, 300, rng.integers(1, 60, 30)]
    owner = np.repeat(np.arange(len(counts)), counts)
    rows = rng.standard_normal((len(owner), 150)) * (rng.random((len(owner), 150)) < 0.3)
    rows *= rng.uniform(0.1, 3, len(counts))[owner][:, None]
    weights = rng.dirichlet(np.ones(len(counts)))
    made = LeastSquares(
        sp.csr_array(rows) if sparse else rows, np.zeros(len(rows)), partition.given(owner), 0.2, intercept, weights
    )
    full = np.hstack([rows, np.ones((len(rows), 1))]) if intercept else rows
    penalty = np.r_[np.full(150, 0.2), [0.0] * intercept]
    true = np.array([dense_bound(full[owner == i], 1, penalty) for i in range(len(counts))])
    pooled = dense_bound(full * np.sqrt(weights * len(full) / counts)[owner][:, None], 1, penalty)

    for products in (10, 16, 2000):
        monkeypatch.setattr(every_device, "EACH", products - products // 3)
        monkeypatch.setattr(every_device, "POOLED", products // 3)
        found = auto(made)
        over = np.append(found.values, found.pooled) / np.append(true, pooled) - 1
        assert over.min() > -1e-9
        if products == 2000 or (not sparse and found.kind == "exact"):  # of dense devices LAPACK takes the small ones
            assert (found.kind, found.how) == ("exact", spectrum.HOW)
            assert over.max() < 1e-9
        else:
            assert (found.kind, found.how[-46:]) == ("upper bound", "early; each holds with a probability of 99.9 %")
            told = float(re.search(r"at most (\S+) % above it", found.how)[1]) / 100
            assert 1e-3 < over.max() < 1.01 * told  # three digits are told
    monkeypatch.setattr(spectrum, "SMALL", made.table.size)
    assert auto(made).kind == "exact"


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("high", [0, 220, 1024])
def test_a_large_dense_table_of_many_features_is_known_by_products_alone(high, intercept, monkeypatch):
    """No Gram matrix is formed, with fewer rows than features or more, for one device at a time or for many at once."""
    monkeypatch.setattr(spectrum, "SMALL", 0)
    monkeypatch.setattr(every_device, "GRAM_LIMITED", 60)
    monkeypatch.setattr(every_device, "HIGH", high)
    monkeypatch.setattr(every_device, "GROUPS", 3)
    monkeypatch.setattr(every_device, "gram", None)  # nobody asks for it
    rng = np.random.default_rng(high + 1)
    counts = np.r_[129, 140, 700, rng.integers(129, 300, 12)]
    owner = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    rows = rng.standard_normal((len(owner), 150)) * rng.uniform(0.1, 3, len(counts))[owner][:, None]
    rows *= 1.2 ** -np.arange(150.0)
    weights = rng.dirichlet(np.ones(len(counts)))
    made = LeastSquares(rows, np.zeros(len(rows)), partition.given(owner), 0.2, intercept, weights, threads=2)
    full = np.hstack([rows, np.ones((len(rows), 1))]) if intercept else rows
    penalty = np.r_[np.full(150, 0.2), [0.0] * intercept]
    true = np.array([dense_bound(full[owner == i], 1, penalty) for i in range(len(counts))])
    pooled = dense_bound(full * np.sqrt(weights * len(full) / counts)[owner][:, None], 1, penalty)
    for products in (10, 400):
        monkeypatch.setattr(every_device, "EACH", products - products // 3)
        monkeypatch.setattr(every_device, "POOLED", products // 3)
        found = auto(made)
        over = np.append(found.values, found.pooled) / np.append(true, pooled) - 1
        assert over.min() > -1e-9
        assert (found.kind == "exact") is (products == 400)
        assert over.max() < (1e-9 if products == 400 else 0.5)


def test_dense_devices_of_equal_size_are_read_where_they_lie_and_sparse_ones_in_parts(monkeypatch):
    monkeypatch.setattr(spectrum, "FEW_DEVICES", 0)
    monkeypatch.setattr(every_device, "LEAST", 1)
    monkeypatch.setattr(sparse_blocks, "CACHED", 900)
    rng = np.random.default_rng(3)
    owner, scale = np.repeat(np.arange(40), 20), rng.uniform(0.1, 3, 40)
    rows = rng.standard_normal((800, 140)) * scale[owner][:, None] * (rng.random((800, 140)) < 0.3)
    true = [dense_bound(rows[owner == i], 1, np.full(140, 0.2)) for i in range(40)]
    for table in (rows, sp.csr_array(rows)):
        found = exact(LeastSquares(table, np.zeros(800), partition.given(owner), 0.2))
        np.testing.assert_allclose(found.values, true, rtol=1e-9)


def limited(products: int) -> every_device.Search:
    search = every_device.Search(0, limited=True)
    search.products = products
    return search


@pytest.mark.parametrize(
    ("more", "wider", "known"), [(0, 1, True), (1, 1, False), (1, 0, True), (0, 9, True), (9, 0, True)]
)
def test_of_few_or_tiny_matrices_a_limited_search_knows_the_eigenvalues(more, wider, known):
    count, size = lanczos.FEW + more, every_device.TINY + wider
    A = np.random.default_rng(2).standard_normal((count, size, size))
    G, search = A @ A.swapaxes(1, 2), limited(4)
    found, true = every_device._stack_tops(G, np.full(count, size), search), np.linalg.eigvalsh(G)[:, -1]
    assert (search.gaps == []) is known
    over = found / true - 1
    assert over.min() > -1e-12
    assert bool(over.max() < 1e-12) is known


@pytest.mark.parametrize(
    ("n", "limit", "sparse", "known"),
    [
        (90, 60, False, True),
        (90, 59, False, False),
        (60, 60, False, True),
        (59, 60, False, False),
        (90, 60, True, False),
    ],
)
def test_dense_rows_of_few_features_have_their_gram_matrix_formed(n, limit, sparse, known, monkeypatch):
    """More rows than features, and as many features as the limit says: exact whatever a search may take."""
    monkeypatch.setattr(every_device, "GRAM_LIMITED", limit)
    rng = np.random.default_rng(n)
    owner, weights = np.arange(n) % 3, np.array([0.5, 0.2, 0.3])
    rows = rng.standard_normal((n, 60)) * rng.uniform(0.1, 3, 3)[owner][:, None]
    made = LeastSquares(
        sp.csr_array(rows) if sparse else rows, np.zeros(n), partition.given(owner), 0.2, weights=weights
    )
    true = dense_bound(rows * np.sqrt(weights * n / np.bincount(owner))[owner][:, None], 1, np.full(60, 0.2))
    search = limited(4)
    found = every_device.pooled_top(made, search)
    assert (search.gaps == []) is known
    assert bool(abs(found / true - 1) < 1e-12) is known
    assert found > (1 - 1e-12) * true


@pytest.mark.parametrize(("most", "known"), [(every_device.FEW_ROWS, True), (every_device.FEW_ROWS + 1, False)])
def test_sparse_devices_of_few_rows_have_their_gram_matrices_formed(most, known):
    rng = np.random.default_rng(most)
    counts = np.r_[most, rng.integers(1, most + 1, 40)]
    owner = np.repeat(np.arange(41), counts)
    rows = rng.standard_normal((len(owner), 90)) * (rng.random((len(owner), 90)) < 0.2)
    made, search = LeastSquares(sp.csr_array(rows), np.zeros(len(rows)), partition.given(owner), 0.2), limited(2)
    over = every_device._sparse_batch(made, np.arange(41), search) / np.array(
        [dense_bound(rows[owner == i], 1, np.full(90, 0.2)) for i in range(41)]
    )
    assert (search.gaps == []) is known
    assert bool(over.max() < 1 + 1e-9) is known
    assert over.min() > 1 - 1e-9


def test_the_bound_of_f_is_at_most_the_mean_of_the_devices(monkeypatch):
    """By Jensen's inequality, which a limited search uses: an exact one needs it not."""
    monkeypatch.setattr(every_device, "pooled_top", lambda *_: 1e9)
    rng = np.random.default_rng(4)
    owner, weights = np.repeat([0, 1, 2], [5, 9, 40]), np.array([0.7, 0.1, 0.2])
    rows = rng.standard_normal((54, 80)) * np.array([1.0, 3.0, 0.2])[owner][:, None]
    made = LeastSquares(rows, np.zeros(54), partition.given(owner), 0.2, weights=weights)
    values = [dense_bound(rows[owner == i], 1, np.full(80, 0.2)) for i in range(3)]
    assert every_device.tops(made, limited(2000))[1] == pytest.approx(weights @ values, rel=1e-9)
    assert every_device.tops(made, every_device.Search())[1] == 1e9


@pytest.mark.parametrize(("few", "small", "known"), [(0, 0, True), (-1, 0, False), (0, -1, False)])
def test_small_tables_on_few_devices_are_measured_exactly(few, small, known, monkeypatch):
    """At both limits, and just beyond each: sparse rows, whose eigenvalues two products do not settle."""
    monkeypatch.setattr(every_device, "EACH", 2)
    monkeypatch.setattr(every_device, "POOLED", 1)
    rng = np.random.default_rng(6)
    rows = sp.csr_array(rng.standard_normal((80, 200)) * (rng.random((80, 200)) < 0.2))
    made = MultinomialLogistic(rows, np.arange(80) % 3, partition.given(np.arange(80) % 4), 0.1)
    monkeypatch.setattr(spectrum, "SMALL", 3 * made.table.size + small)
    monkeypatch.setattr(spectrum, "FEW_DEVICES", 4 + few)
    assert ("upper bounds" not in auto(made).how) is known
    assert "upper bounds" not in exact(made).how


@pytest.mark.parametrize("seed", range(4))
def test_whoever_skips_a_look_misses_no_eigenvalue_that_is_known(seed):
    """Random T of every length, with couplings from tiny to as large as the diagonal; each judged alone."""
    rng = np.random.default_rng(seed)
    known, skipped = 0, 0
    for m in rng.integers(1, 16, 400):
        beta = 10.0 ** rng.uniform(-rng.uniform(0, 6), 0, m)
        alpha = rng.uniform(0, 2, m) + beta + np.r_[0, beta[:-1]]  # diagonally dominant, so positive semidefinite
        T = [(np.array([a]), np.array([b])) for a, b in zip(alpha, beta, strict=True)]
        found = lanczos._tops(alpha[:, None], beta[:, None])[1].all()
        worth = lanczos._worth_a_look(T)
        assert worth or not found
        known, skipped = known + found, skipped + (not worth)
    assert min(known, skipped) > 40  # both happen


def test_a_third_of_the_eigenvalues_that_may_be_known_is_worth_a_look():
    """Two of seven are too few, three of nine are enough; a T that has ended (beta = 0) is known."""
    T = [(np.ones(9), np.r_[np.zeros(3), np.ones(6)])]
    assert lanczos._worth_a_look(T)
    assert not lanczos._worth_a_look([(a[1:8], b[1:8]) for a, b in T])


def test_an_upper_bound_is_where_the_lanczos_polynomials_have_grown_enough(monkeypatch):
    """They are orthonormal for H and v: by a QR factorisation of v, H v, ..., H^m v."""
    monkeypatch.setattr(lanczos, "UNLUCKY", 0.02)
    monkeypatch.setattr(lanczos, "HALVINGS", 30)
    spectra = np.random.default_rng(1).random((20, 30)) * np.geomspace(1e-12, 1e12, 20)[:, None]
    found = enclose(Stack(np.eye(30) * spectra[:, None], np.full(20, 30)), 5, seed=3)
    v = np.random.default_rng(3).standard_normal(30)
    v /= np.linalg.norm(v)
    for lower, upper, eigenvalues in zip(found.lower, found.upper, spectra, strict=True):
        unit = eigenvalues.max()
        powers = (eigenvalues[:, None] / unit) ** np.arange(6) * v[:, None]
        p = [np.polynomial.Polynomial(column) for column in np.linalg.inv(np.linalg.qr(powers)[1]).T]
        assert p[5].roots().real.max() * unit == pytest.approx(lower, rel=1e-9)
        grown = sum(one**2 for one in p) - 1 / (0.02 * np.sqrt(np.pi / 60)) ** 2
        roots = grown.roots()
        assert roots[abs(roots.imag) < 1e-9].real.max() * unit == pytest.approx(upper, rel=1e-7)


def test_an_upper_bound_fails_as_rarely_as_promised(monkeypatch):
    """One eigenvalue apart from the others, the worst case, and a promise weak enough to see it broken."""
    spectrum_ = np.append(np.linspace(0, 1, 199), 1.5)
    for unlucky in (0.1, 0.3):
        monkeypatch.setattr(lanczos, "UNLUCKY", unlucky)
        matrix = One(lambda v: spectrum_ * v, 200)
        missed = sum(enclose(matrix, 4, seed).upper[0] < 1.5 for seed in range(400))
        assert 0.3 * unlucky < missed / 400 < unlucky + 0.06  # three standard errors


def test_lanczos_gives_up_aloud(monkeypatch):
    monkeypatch.setattr(lanczos, "MOST", 5)
    with pytest.raises(OwnstepError, match="did not converge on the Hessian bound in 5 products"):
        largest_eigenvalues(One(lambda v: np.linspace(1, 2, 100) * v, 100))


def test_an_error_bar_after_twenty_products_is_no_upper_bound():
    """Why Lanczos is not stopped early: on a spectrum without gaps its bar of 1 % misses the largest eigenvalue."""
    spectrum_ = 1 - ((np.arange(300) + 0.5) / 300) ** (2 / 3)
    missed = 0
    for seed in range(10):
        v = np.random.default_rng(seed).standard_normal(300)
        basis, T = [v / np.linalg.norm(v)], np.zeros((21, 21))
        for m in range(20):
            w = spectrum_ * basis[-1]
            T[m, m] = w @ basis[-1]
            w -= np.array(basis).T @ (np.array(basis) @ w)
            T[m, m + 1] = T[m + 1, m] = np.linalg.norm(w)
            basis.append(w / T[m, m + 1])
        theta, s = np.linalg.eigh(T[:20, :20])
        bar = T[20, 19] * abs(s[-1, -1])
        missed += bar <= 0.01 * theta[-1] and theta[-1] + bar < spectrum_[0]
    assert missed >= 1, missed


def test_binary_logistic_reaches_its_constant_at_the_origin():
    made = make_logistic(devices=1)
    columns = [made.hessian_product(made.x0(), e) for e in np.eye(made.dim)]
    assert np.linalg.eigvalsh(np.array(columns))[-1] == pytest.approx(exact(made).values[0], rel=1e-12)


def test_softmax_constant_is_a_bound_that_can_be_approached_but_is_not_exact():
    rows = np.abs(np.random.default_rng(0).standard_normal((30, 3)))
    made = MultinomialLogistic(rows, np.arange(30) % 3, mu=0.0)
    bound = exact(made)
    assert bound.kind == "upper bound"
    x = np.zeros((3, 3))
    x[:, 2] = -50  # the third class vanishes, the other two tie: p = (1/2, 1/2, 0) at every row
    columns = [made.hessian_product(x.ravel(), e) for e in np.eye(9)]
    assert np.linalg.eigvalsh(np.array(columns))[-1] <= bound.values[0] * (1 + 1e-12)
    assert np.linalg.eigvalsh(np.array(columns))[-1] == pytest.approx(bound.values[0], rel=1e-6)


def test_pooled_is_at_most_the_mean_and_trace_bounds_exact():
    made = make_logistic(devices=4)
    found, bound = exact(made), trace(made)
    assert found.pooled <= made.weights @ found.values + 1e-12
    assert (bound.values >= found.values).all()
    assert bound.kind == "upper bound"
    rows = np.concatenate([made.rows(i) for i in range(4)])
    assert bound.pooled == pytest.approx((rows**2).sum(axis=1).mean() / 4 + made.mu)


def test_least_squares_by_hand():
    made = LeastSquares(np.diag([1.0, 2.0, 3.0]), np.zeros(3), partition.given([0, 1, 1]), mu=0.5)
    np.testing.assert_allclose(exact(made).values, [1.5, 9 / 2 + 0.5])
    assert exact(made).pooled == pytest.approx(9 / 3 + 0.5)


def test_unknown_measures_and_problems():
    with pytest.raises(InvalidInput, match="unknown smoothness 'exat'. Did you mean 'exact'"):
        measure("exat", make_logistic())
    with pytest.raises(InvalidInput, match="needs a linear model, got object"):
        measure("exact", object())
    zero = LeastSquares(np.array([[0.0], [1.0]]), np.zeros(2), partition.given([0, 1]), mu=0.0)
    with pytest.raises(InvalidInput, match="positive and finite, got 0"):
        exact(zero)
