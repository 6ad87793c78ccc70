"""Passes in many blocks and on several threads against one block on one thread."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from ownstep import partition
from ownstep.problems import BinaryLogistic, LeastSquares, MultinomialLogistic
from ownstep.problems.linear import by_device, model, table
from ownstep.smoothness import exact

from .test_linear import MODELS, problem


@pytest.fixture(params=["scatter", "gather"])
def many_blocks(request, monkeypatch):
    """Thirty rows become many blocks of different sizes, whose sparse transposed products scatter or gather."""
    monkeypatch.setattr(table, "SCATTER", 100 if request.param == "scatter" else 0)
    for name, size in {
        "ONE_BLOCK": 10,
        "BLOCK_ENTRIES": 12,
        "ENTRIES_PER_FEATURE": 1,
        "BLOCK_BYTES": 100,
        "LANES": 3,
    }.items():
        monkeypatch.setattr(table, name, size)


def outcome(made):
    rng = np.random.default_rng(3)
    x, v = rng.standard_normal((2, made.dim))
    c = rng.standard_normal((3, 2))
    return [
        *made.mix(x, c[:, 0]),
        *made.mix(x, c),
        made.hessian_product(x, v),
        np.array(made.value(x)),
        *made.each(x),
    ]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_blocks_change_rounding_alone_and_threads_not_even_that(kind, sparse, many_blocks, monkeypatch):
    cut = [outcome(problem(kind, sparse=sparse, intercept=True, threads=threads)) for threads in (1, 2, 5)]
    assert len(problem(kind, sparse=sparse).table.blocks) > 3
    monkeypatch.undo()
    whole = problem(kind, sparse=sparse, intercept=True)
    assert len(whole.table.blocks) == 1
    for one, two, five, expected in zip(*cut, outcome(whole), strict=True):
        assert one.tobytes() == two.tobytes() == five.tobytes()
        np.testing.assert_allclose(one, expected, atol=1e-13)


def test_a_small_sparse_table_adds_row_after_row():
    """The order in which recorded runs were added up, to the last bit."""
    made = problem("squares", sparse=True)
    A, x = made.table.A, np.random.default_rng(3).standard_normal(made.dim)
    total = np.zeros(made.dim)
    for start, stop, factor in zip(A.indptr, A.indptr[1:], np.sin(A @ x), strict=False):
        total[A.indices[start:stop]] += A.data[start:stop] * factor
    assert made.table.transposed(lambda z, block: np.sin(z), x).tobytes() == total.tobytes()


def test_a_block_of_sparse_rows_shares_memory_with_the_table():
    made = problem("squares", sparse=True)
    assert sp.issparse(made.rows(1))
    assert np.shares_memory(made.rows(1).data, made.table.A.data)


@pytest.mark.parametrize("common", [True, False])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_gradients_of_many_devices_in_batches(kind, sparse, common, monkeypatch):
    made = problem(kind, devices=7, sparse=sparse, intercept=True, threads=2)
    x = np.random.default_rng(0).standard_normal(made.dim if common else (7, made.dim))
    losses, gradients = made.each(x)
    monkeypatch.setattr(by_device, "FEW", 0)
    monkeypatch.setattr(by_device, "BATCH", 40)
    batched = made.each(x)
    np.testing.assert_allclose(batched[0], losses, rtol=1e-13)
    np.testing.assert_allclose(batched[1], gradients, atol=1e-14)


def test_rows_of_many_tiny_devices_lie_by_length_and_still_belong_to_their_device():
    """Sparse rows of unequal lengths on 150 devices of 1 to 9 rows, against the same rows written out dense."""
    rng = np.random.default_rng(7)
    owner = rng.permutation(np.repeat(np.arange(150), rng.integers(1, 10, 150)))
    rows = rng.standard_normal((len(owner), 140)) * (rng.random((len(owner), 140)) < rng.random((len(owner), 1)))
    labels, split = np.where(rng.random(len(owner)) < 0.4, "a", "b"), partition.given(owner)
    tiny, dense = (BinaryLogistic(A, labels, split, mu=0.1) for A in (sp.csr_array(rows), rows))
    assert (np.diff(np.diff(tiny.table.A.indptr)) >= 0).all()
    x, own, c = rng.standard_normal(140), rng.standard_normal((150, 140)), rng.standard_normal(150)
    some = [140, 3, 77]
    for found, expected in [
        (tiny.mix(x, c), dense.mix(x, c)),
        (tiny.each(x), dense.each(x)),
        (tiny.each(own), dense.each(own)),
        (tiny.keep(some).mix(x, c[:3]), dense.keep(some).mix(x, c[:3])),
        ((exact(tiny).values, exact(tiny).pooled), (exact(dense).values, exact(dense).pooled)),
        ((tiny.hessian_product(x, own[0]), tiny.value(x)), (dense.hessian_product(x, own[0]), dense.value(x))),
    ]:
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    sign = np.where(labels[owner == 77] == "b", 1, -1)
    stored, told = tiny.samples(77)
    assert sorted(map(tuple, np.c_[stored.toarray(), told])) == sorted(map(tuple, np.c_[rows[owner == 77], sign]))


@pytest.mark.parametrize("kind", [BinaryLogistic, MultinomialLogistic, LeastSquares])
def test_a_constant_that_is_not_stored_is_a_column_of_ones(kind, monkeypatch):
    rng = np.random.default_rng(18)
    rows, owner = rng.standard_normal((90, 4)) + 1, np.sort(rng.integers(3, size=90))
    targets = rng.standard_normal(90) if kind is LeastSquares else np.arange(90) % (2 if kind is BinaryLogistic else 3)
    split = partition.given(rng.permutation(owner))
    stored = kind(np.column_stack([rows, np.ones(90)]), targets, split, mu=0.1, intercept="last")
    monkeypatch.setattr(model, "ONE_BLOCK", 10)
    monkeypatch.setattr(table, "ONE_BLOCK", 10)
    monkeypatch.setattr(table, "BLOCK_BYTES", 500)
    made = kind(rows, targets, split, mu=0.1, intercept=True)
    assert isinstance(made.table, table.ConstantTable)
    assert len(made.table.blocks) > 3
    assert (made.dim, made.features) == (stored.dim, stored.features)
    x, v, c = rng.standard_normal(made.dim), rng.standard_normal(made.dim), rng.random(3)
    for ours, theirs in zip(made.mix(x, c), stored.mix(x, c), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    np.testing.assert_allclose(made.value(x), stored.value(x), rtol=1e-12)
    np.testing.assert_allclose(made.hessian_product(x, v), stored.hessian_product(x, v), rtol=1e-11)
    assert made.table._whole is None
    np.testing.assert_allclose(made.gradients(x), stored.gradients(x), rtol=1e-11)
    np.testing.assert_allclose(made.keep([2, 0]).value(x), stored.keep([2, 0]).value(x), rtol=1e-12)
    np.testing.assert_allclose(made.sample(40).gradients(x), stored.sample(40).gradients(x), rtol=1e-10)
