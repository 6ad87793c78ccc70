"""Large dense rows are used where they are: no copy when a problem is built, none in a round."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from ownstep import partition
from ownstep.problems import BinaryLogistic, LeastSquares
from ownstep.problems.linear import model, second_order, table
from ownstep.smoothness import exact, trace

from .test_linear import MODELS, problem


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("mapped", [True, False])
def test_building_and_a_round_need_little_beside_the_data(mapped, ordered, dtype, tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((50_000, 40)).astype(dtype)
    labels = rng.integers(0, 2, len(rows)).astype(np.int8)
    owner = np.arange(len(rows)) * 7 // len(rows) if ordered else rng.integers(0, 7, len(rows))
    split = partition.given(owner)
    if mapped:
        np.save(tmp_path / "rows.npy", rows)
        rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    tracemalloc.start()
    try:
        made = BinaryLogistic(rows, labels, split, dtype=dtype, threads=1)
        made.mix(made.x0(), made.weights)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert np.shares_memory(made.table.A, rows)
    assert made.dtype == dtype
    assert peak <= 0.3 * rows.nbytes if dtype == np.float64 else peak <= 0.5 * rows.nbytes


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_rows_that_stay_in_place_give_what_sorted_rows_give(kind, intercept, monkeypatch):
    made = problem(kind, devices=5, intercept=intercept)
    assert made._order is None
    monkeypatch.setattr(model, "ONE_BLOCK", 10)
    monkeypatch.setattr(table, "ONE_BLOCK", 10)
    monkeypatch.setattr(table, "BLOCK_BYTES", 200)
    place = problem(kind, devices=5, intercept=intercept)
    assert place._order is not None
    rng = np.random.default_rng(0)
    x, v, c = rng.standard_normal(made.dim), rng.standard_normal(made.dim), rng.standard_normal((5, 2))
    points = rng.standard_normal((5, made.dim))
    for call in (
        lambda p: p.mix(x, c[:, 0]),
        lambda p: p.mix(x, c),
        lambda p: p.each(x),
        lambda p: p.each(points),
        lambda p: [p.value(x), p.hessian_product(x, v), p.hessian(x, c[:, 0])],
        lambda p: p.keep([3, 1]).mix(x, np.array([0.3, 0.7])),
    ):
        for got, wanted in zip(call(place), call(made), strict=True):
            np.testing.assert_allclose(got, wanted, atol=1e-12)
    monkeypatch.setattr("ownstep.problems.linear.by_device.FEW", 0)
    np.testing.assert_allclose(place.each(points)[1], made.each(points)[1], atol=1e-12)
    if np.isfinite(made.curvature):
        np.testing.assert_allclose(trace(place).values, trace(made).values, rtol=1e-12)
        np.testing.assert_allclose(exact(place).pooled, exact(made).pooled, rtol=1e-12)
        monkeypatch.setattr("ownstep.smoothness.spectrum.FEW_DEVICES", 0)
        np.testing.assert_allclose(exact(place).values, exact(made).values, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory as Linux does")
def test_a_table_larger_than_the_memory_allowed(tmp_path):
    """384 MB of rows in a process that may hold 128 MB more than it has after its imports."""
    rows = np.lib.format.open_memmap(tmp_path / "rows.npy", "w+", np.float64, (480_000, 100))
    rng = np.random.default_rng(0)
    for start in range(0, len(rows), 40_000):
        rows[start : start + 40_000] = rng.standard_normal(100)
    del rows
    script = f"""
import resource, numpy as np
from ownstep import partition, run, OwnStep
from ownstep.problems import LeastSquares
made = LeastSquares(np.ones((300, 2)), np.ones(300), threads=1)
run(OwnStep(), made, 1)
held = int(next(l for l in open("/proc/self/status") if l.startswith("VmData")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (held + 2**27,) * 2)
rows = np.load({str(tmp_path / "rows.npy")!r}, mmap_mode="r")
assert rows.nbytes > 2.5 * 2**27
owner = np.arange(len(rows)) % 3
made = LeastSquares(rows, np.ones(len(rows)), partition.given(owner), threads=1)
history = run(OwnStep(), made, 3)
assert history.value[-1] < history.value[0]
try:
    np.array(rows)
except MemoryError:
    print("refused", history.rounds)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=100)
    assert done.stdout == "refused 3\n", done.stderr


@pytest.mark.parametrize("ones", [False, True])
def test_rows_that_lie_in_order_are_neither_copied_nor_looked_up(ones, monkeypatch):
    """Device after device, be they of one row each; where the order is another, a large table is looked up in place."""
    monkeypatch.setattr(model, "ONE_BLOCK", 10)
    rows = np.random.default_rng(0).standard_normal((12, 3))
    owner = np.arange(12) if ones else np.repeat([0, 1, 2], [3, 7, 2])
    made = LeastSquares(rows, np.arange(12.0), partition.given(owner))
    assert made._order is None
    assert np.shares_memory(made.table.A, rows)
    other = LeastSquares(rows, np.arange(12.0), partition.given(owner[::-1]))
    assert other._order is not None
    assert np.shares_memory(other.table.A, rows)
    monkeypatch.setattr(model, "ONE_BLOCK", 36)  # no more than so many numbers are put in order
    assert LeastSquares(rows, np.arange(12.0), partition.given(owner[::-1]))._order is None


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", ["binary", "multinomial", "squares"])
def test_second_derivatives_of_many_rows_in_blocks(kind, sparse, monkeypatch):
    """Blocks cover every row once; sums over them are those of the formula, weights of either sign."""
    monkeypatch.setattr(second_order, "BLOCK", 900)
    for n, width in ((256, 1), (257, 1), (600, 3), (600, 0), (901, 1), (1024, 2)):
        cut = list(second_order.blocks(np.zeros((n, 3)), width))
        size = max(256, 900 // max(1, width))
        assert [i for block in cut for i in range(*block.indices(n))] == list(range(n))
        assert [len(range(*block.indices(n))) for block in cut[:-1]] == [size] * (len(cut) - 1)
        assert len(cut) == -(-n // size)
    rng = np.random.default_rng(1)
    rows, owner = rng.standard_normal((700, 3)), np.repeat([0, 1], [270, 430])
    rows *= rng.random(rows.shape) < 0.6
    cls, classes = MODELS[kind]
    targets = rng.integers(0, classes, 700) if classes else rng.standard_normal(700)
    made = cls(sp.csr_array(rows) if sparse else rows, targets, partition.given(owner), mu=0.1)
    x, c = rng.standard_normal(made.dim), np.array([-0.7, 0.4])
    units = np.eye(made.dim)
    for weights in (c, np.abs(c)):
        columns = [sum(w * made.only(i).hessian_product(x, u) for i, w in enumerate(weights)) for u in units]
        np.testing.assert_allclose(made.hessian(x, weights), np.array(columns), atol=1e-12)
    for i in range(2):
        H = made.data_hessian(x, i)
        whole = np.array([made.only(i).hessian_product(x, u) for u in units]) - 0.1 * units
        np.testing.assert_allclose(H @ units, whole, atol=1e-12)
        V = rng.standard_normal((made.dim, 5))
        np.testing.assert_allclose(H @ V, whole @ V, atol=1e-12)
        assert (H @ V[:, :0]).shape == (made.dim, 0)
        assert H.trace == pytest.approx(np.trace(whole))
        assert (H.count, H.penalty, H.free) == (made.counts[i], 0.1, 0)
