"""Passes in many blocks and on several threads against one block on one thread."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from ownstep.problems.linear import table
from ownstep.support.errors import InvalidInput

from .test_linear import MODELS, problem


@pytest.fixture
def many_blocks(monkeypatch):
    """Thirty rows become many blocks of different sizes."""
    for name, size in {"ONE_BLOCK": 10, "CACHE_ROWS": 4, "GATHER_ROWS": 7, "BLOCK_BYTES": 100, "LANES": 3}.items():
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
        made.hessian_products(x, rng.standard_normal((3, made.dim, 2))),
    ]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_blocks_change_rounding_alone_and_threads_not_even_that(kind, sparse, many_blocks, monkeypatch):
    cut = [outcome(problem(kind, sparse=sparse, intercept=True, threads=threads)) for threads in (1, 2, 5)]
    assert len(problem(kind, sparse=sparse)._table.blocks) > 3
    monkeypatch.undo()
    whole = problem(kind, sparse=sparse, intercept=True)
    assert len(whole._table.blocks) == 1
    for one, two, five, expected in zip(*cut, outcome(whole), strict=True):
        assert one.tobytes() == two.tobytes() == five.tobytes()
        np.testing.assert_allclose(one, expected, atol=1e-13)


def test_a_sparse_table_in_blocks_adds_in_the_order_of_one_block(monkeypatch):
    """Cut by rows and by features alone, every sum is the same as before; only GATHER_ROWS cuts sums."""
    expected = outcome(problem("binary", sparse=True))
    for name, size in {"ONE_BLOCK": 10, "CACHE_ROWS": 4, "LANES": 3}.items():
        monkeypatch.setattr(table, name, size)
    for got, wanted in zip(outcome(problem("binary", sparse=True, threads=2)), expected, strict=True):
        assert got.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_hessian_products_of_single_devices(kind, sparse):
    """Against differences of each device's gradient; the weighted mean of the devices' is the problem's own."""
    made = problem(kind, sparse=sparse, intercept=True)
    rng = np.random.default_rng(1)
    x, V, step = rng.standard_normal(made.dim), rng.standard_normal((3, made.dim, 2)), 1e-6
    products = made.hessian_products(x, V)
    for i in range(3):
        for j in range(2):
            change = made.gradients(x + step * V[i, :, j])[i] - made.gradients(x - step * V[i, :, j])[i]
            np.testing.assert_allclose(products[i, :, j], change / (2 * step), atol=1e-7)
        np.testing.assert_array_equal(made.hessian_products(x, V[i], device=i), products[i])
    same = made.hessian_products(x, np.repeat(V[:1], 3, axis=0))
    np.testing.assert_allclose(
        np.einsum("i,ijk->jk", made.weights, same)[:, 0], made.hessian_product(x, V[0, :, 0]), atol=1e-13
    )


def test_shapes_of_hessian_products_are_checked():
    made = problem("binary")
    with pytest.raises(InvalidInput, match=r"V must have shape \(3, 4, k\), got \(2, 4, 1\)"):
        made.hessian_products(made.x0(), np.zeros((2, 4, 1)))
    with pytest.raises(InvalidInput, match=r"V must have shape \(4, k\), got \(4,\)"):
        made.hessian_products(made.x0(), np.zeros(4), device=0)


def test_a_block_of_sparse_rows_shares_memory_with_the_table():
    made = problem("squares", sparse=True)
    assert sp.issparse(made.rows(1))
    assert np.shares_memory(made.rows(1).data, made._table.A.data)
