"""Which columns cannot be told apart, which separate the classes, and which only seem to."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog

from ownstep.glm import fit
from ownstep.support.errors import InvalidInput


def tells_apart(rows, labels) -> bool:
    """By a linear program: is there a plane with every class on its own side, or on the plane, and not all on it?"""
    signed = np.where(labels > 0, 1, -1)[:, None] * np.column_stack([rows, np.ones(len(rows))])
    best = linprog(-signed.sum(axis=0), A_ub=-signed, b_ub=np.zeros(len(signed)), bounds=(-1, 1))
    return bool(-best.fun > 1e-7)


def test_separation_is_found_where_a_linear_program_finds_it_and_nowhere_else():
    seen = set()
    for seed in range(80):
        rng = np.random.default_rng(seed)
        rows = rng.standard_normal((int(rng.integers(8, 60)), int(rng.integers(1, 4))))
        if seed % 2:
            rows[:, 0] = rng.random(len(rows)) < rng.choice([0.1, 0.3, 0.5])
        z = rows @ rng.standard_normal(rows.shape[1]) * rng.choice([0.5, 2, 6, 20])
        labels = (rng.random(len(rows)) < 1 / (1 + np.exp(-z))).astype(int)
        if len(set(labels)) < 2 or not rows.std(axis=0).all():
            continue
        expected = tells_apart(rows, labels)
        seen.add(expected)
        if not expected:
            assert len(fit(rows, labels).coefficients) == rows.shape[1] + 1
            continue
        with pytest.raises(InvalidInput, match="separates? the classes|together separate the classes"):
            fit(rows, labels)
    assert seen == {True, False}


def test_a_rare_group_is_found_beside_strong_effects():
    """Its own steps are small beside the way that strong effects go. In one table the maximum is out of reach."""
    seen, out_of_reach = set(), 0
    for seed in (*range(120), 969, 2117):  # in the last two a column first goes far the other way
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(30, 600)), int(rng.integers(1, 5))
        rows = rng.standard_normal((n, d)) * 10 ** rng.uniform(-2, 2, d)
        for _ in range(int(rng.integers(0, 3))):
            rare = np.zeros(n)
            rare[rng.choice(n, int(rng.integers(1, 6)), replace=False)] = 1
            rows = np.column_stack([rows, rare])
        effects = rng.standard_normal(rows.shape[1]) / rows.std(axis=0) * rng.choice([0.5, 2, 6, 15])
        z = rows @ effects + 2 * rng.normal()
        labels = (rng.random(n) < 1 / (1 + np.exp(-z))).astype(int)
        if len(set(labels)) < 2:
            continue
        expected = tells_apart((rows - rows.mean(axis=0)) / rows.std(axis=0), labels)
        seen.add(expected)
        try:
            fit(rows, labels)
            refused = ""
        except InvalidInput as error:
            refused = str(error)
        assert "separate" in refused or not (refused or expected)
        out_of_reach += bool(refused) and not expected
    assert seen == {True, False}
    assert out_of_reach <= 1


def test_a_rare_group_without_the_disease_is_named_however_many_rows_there_are():
    """Its gradient is below the tolerance while its curvature is a hundred-thousandth of that at the start."""
    rng = np.random.default_rng(0)
    rows = np.zeros((1_500_000, 2))
    rows[:2, 0], rows[:, 1] = 1, rng.standard_normal(len(rows))
    labels = (rng.random(len(rows)) < 1 / (1 + np.exp(-rows[:, 1]))).astype(int)
    labels[:2] = 0
    with pytest.raises(InvalidInput, match="^'rare' separates the classes"):
        fit(rows, labels, features=["rare", "age"])
    labels[0] = 1
    assert abs(fit(rows, labels, features=["rare", "age"]).coefficients[1].estimate) < 10


def test_counts_of_very_different_sizes_are_not_taken_for_separated():
    """A group with a mean of 0.5 beside one of a million; and one whose counts are all 0."""
    rng = np.random.default_rng(0)
    small = np.arange(400) < 200
    counts = np.where(small, rng.poisson(0.5, 400), rng.poisson(1e6, 400))
    found = fit(small[:, None] * 1.0, counts, family="poisson").coefficients
    logs = np.log([counts[~small].mean(), counts[small].mean()])  # two groups: their means are the fit
    np.testing.assert_allclose([c.estimate for c in found], [logs[0], logs[1] - logs[0]], rtol=1e-10)
    with pytest.raises(InvalidInput, match="^'small' separates rows whose counts are all 0"):
        fit(small[:, None] * 1.0, np.where(small, 0, counts), family="poisson", features=["small"])


@pytest.mark.parametrize("size", [1e3, 1e6])
def test_sparse_columns_far_from_zero_are_centred_as_dense_ones_are(size):
    rng = np.random.default_rng(0)
    rows = np.column_stack([size + rng.standard_normal(300), rng.random(300) < 0.1])
    labels = (rng.random(300) < 1 / (1 + np.exp(size - rows[:, 0]))).astype(int)
    dense, sparse = (fit(made, labels, np.arange(300) % 2, allow="all") for made in (rows, sp.csr_array(rows)))
    for key in ("estimate", "standard_error"):
        ours, theirs = ([getattr(c, key) for c in made.coefficients] for made in (sparse, dense))
        np.testing.assert_allclose(ours, theirs, rtol=1e-7)


def test_all_columns_to_leave_out_are_named_at_once():
    """As the command line takes them; a category is not given up for one of its levels."""
    rng = np.random.default_rng(0)
    rows, labels = rng.standard_normal((200, 3)), rng.integers(0, 2, 200)
    total, half = rows.sum(axis=1), 0.5 * rows[:, 1] + 3
    said = """'a, kg' .and 1 more. is constant .* leave them out with --ignore '"a, kg",b'$"""
    with pytest.raises(InvalidInput, match=said):
        fit(np.column_stack([rows, np.full((200, 2), 2.0)]), labels, features=["x", "y", "z", "a, kg", "b"])
    said = r"'sum' is a combination of 'x', 'y', 'z' .and 1 more of others., .*; leave them out with --ignore sum,half,"
    with pytest.raises(InvalidInput, match=said):
        fit(np.column_stack([rows, total, half]), labels, features=["x", "y", "z", "sum", "half"])
    with pytest.raises(InvalidInput, match="'z' is a combination of 'x', 'y', 'kind=b', .* one out with --ignore z,"):
        fit(np.column_stack([rows, total])[:, [0, 1, 3, 2]], labels, features=["x", "y", "kind=b", "z"])
    with pytest.raises(InvalidInput, match="'kind=b' is a combination of .*; leave one out with --ignore kind,"):
        fit(np.column_stack([rows, total, half]), labels, features=["x", "y", "z", "kind=b", "half"])


def test_a_column_that_seems_constant_beside_its_size_says_what_to_subtract():
    rng = np.random.default_rng(0)
    rows, labels = rng.standard_normal((100, 2)), rng.integers(0, 2, 100)
    with pytest.raises(InvalidInput, match=r"'time' is constant .* or subtract 1699999996 from it if its values do"):
        fit(rows * [50.0, 1] + [1.7e9, 0], labels, features=["time", "age"])
    with pytest.raises(InvalidInput, match=r"--ignore time$"):
        fit(rows * [0.0, 1] + [5, 0], labels, features=["time", "age"])
