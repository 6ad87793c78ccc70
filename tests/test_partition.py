from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from ownstep import partition
from ownstep.partition import Partition
from ownstep.support.errors import InvalidInput

RANDOM_RULES = ("dirichlet", "shards", "iid")


@st.composite
def labelled(draw):
    samples = draw(st.integers(20, 80))
    seed = draw(st.integers(0, 2**16))
    rng = np.random.default_rng(seed)
    return rng.standard_normal((samples, 3)), rng.integers(0, 3, samples), seed


@given(labelled(), st.sampled_from(sorted(partition.RULES)), st.integers(1, 3))
def test_every_rule_is_disjoint_covering_and_leaves_nobody_empty(data, rule, devices):
    rows, labels, seed = data
    made = partition.make(rule, rows, labels, devices, seed)
    held = np.concatenate([made.indices(i) for i in range(devices)])
    assert len(made) == devices
    assert sorted(held) == list(range(len(labels)))
    assert made.counts.min() >= 1
    assert made.counts.sum() == len(labels)


@given(labelled(), st.sampled_from(sorted(partition.RULES)))
def test_a_rule_is_a_function_of_its_arguments(data, rule):
    rows, labels, seed = data
    first, second = (partition.make(rule, rows, labels, 2, seed) for _ in range(2))
    assert (first.device_of == second.device_of).all()


@pytest.mark.parametrize("rule", RANDOM_RULES)
def test_another_seed_is_another_partition(rule):
    labels = np.arange(200) % 3
    first, other = (partition.make(rule, np.ones((200, 1)), labels, 4, seed) for seed in (0, 1))
    assert not (first.device_of == other.device_of).all()


def test_by_label_gives_whole_classes():
    labels = np.array(["b", "a", "c", "a", "b", "c"])
    assert partition.by_label(labels).names == ("a", "b", "c")
    assert partition.by_label(labels, 2).device_of.tolist() == [0, 0, 1, 0, 0, 1]
    paired = partition.by_label(labels, 2, order=["c", "b", "a"])
    assert paired.device_of.tolist() == [0, 1, 0, 1, 0, 0]
    assert paired.names == ("b+c", "a")


def test_by_norm_sorts_and_cuts_evenly():
    rows = np.diag([3.0, 1.0, 2.0, 5.0, 4.0])
    assert partition.by_norm(rows, 2).device_of.tolist() == [0, 0, 0, 1, 1]
    assert (partition.by_norm(sp.csr_array(rows), 2).device_of == partition.by_norm(rows, 2).device_of).all()


def test_by_eigenvalue_is_the_same_order_but_keeps_ties_together():
    norms = np.array([1.0, 2.0, 2.0, 2.0, 3.0])
    rows = np.column_stack([norms, np.zeros(5)])
    eigenvalues = [np.linalg.eigvalsh(np.outer(a, a))[-1] for a in rows]
    np.testing.assert_allclose(eigenvalues, partition.squared_norms(rows))
    assert partition.by_norm(rows, 2).device_of.tolist() == [0, 0, 0, 1, 1]
    assert partition.by_eigenvalue(rows, 2).device_of.tolist() == [0, 1, 1, 1, 1]
    with pytest.raises(InvalidInput, match="would leave device 0 of 2 empty"):
        partition.by_eigenvalue(np.ones((4, 2)), 2)


def test_shards_of_two_show_a_device_at_most_two_classes():
    labels = np.repeat(np.arange(10), 40)
    made = partition.shards(labels, 20, per_device=2, seed=3)
    assert max(len(np.unique(labels[made.indices(i)])) for i in range(20)) <= 2


def test_dirichlet_proportions_follow_alpha():
    labels = np.repeat(np.arange(5), 4000)
    shares = {a: partition.dirichlet(labels, 4, a, seed=1).counts / len(labels) for a in (0.05, 1000.0)}
    assert np.abs(shares[1000.0] - 0.25).max() < 0.02
    assert np.ptp(shares[0.05]) > 0.15


def test_dirichlet_shares_of_a_class_have_the_variance_of_alpha():
    """Of Dirichlet(a, ..., a) over n devices every share has mean 1/n and variance (n - 1) / (n^2 (n a + 1))."""
    classes, each, n, alpha = 600, 200, 5, 0.7
    labels = np.repeat(np.arange(classes), each)
    device_of = partition.dirichlet(labels, n, alpha, seed=3).device_of.reshape(classes, each)
    shares = np.stack([(device_of == i).mean(axis=1) for i in range(n)], axis=1)
    np.testing.assert_allclose(shares.mean(axis=0), 1 / n, atol=0.03)
    assert shares.var() == pytest.approx((n - 1) / (n**2 * (n * alpha + 1)), rel=0.05)


def test_dirichlet_fills_every_device_up_to_the_least_asked_for():
    labels = np.repeat(np.arange(4), 60)
    drawn = partition.dirichlet(labels, 6, 0.5, seed=7)
    assert not drawn.note
    assert drawn.counts.min() < 20
    filled = partition.dirichlet(labels, 6, 0.5, seed=7, min_samples=20)
    moved = np.maximum(20 - drawn.counts, 0).sum()
    assert filled.counts.min() == 20
    assert filled.note == f"{moved} samples moved so that every device holds at least 20"
    assert (filled.device_of != drawn.device_of).sum() == moved


def test_dirichlet_with_many_devices_draws_once_and_says_what_it_repaired(monkeypatch):
    """One draw a class and at most one move an empty device: bounded work, so it cannot loop."""
    labels, draws = np.repeat(np.arange(10), 500), []
    real = np.random.default_rng

    class Counting:
        def __init__(self, seed):
            self.rng = real(seed)

        def dirichlet(self, alphas):
            draws.append(len(alphas))
            return self.rng.dirichlet(alphas)

        def __getattr__(self, name):
            return getattr(self.rng, name)

    with monkeypatch.context() as patched:
        patched.setattr(np.random, "default_rng", Counting)
        made = partition.dirichlet(labels, 100, 0.1, seed=0)
    assert draws == [100] * 10
    assert not made.note or int(made.note.split()[0]) < 100
    assert len(made) == 100
    assert made.counts.min() >= 1
    scarce = partition.dirichlet(np.repeat(np.arange(2), 60), 100, 0.01, seed=0)
    assert "samples moved so that every device holds at least 1" in scarce.note


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: partition.iid(3, 4), "devices=4 is more than the 3 samples"),
        (lambda: partition.iid(3, 0), "at least 1, got 0"),
        (lambda: partition.by_label([0, 1, 0], 3), "at most 2 devices.*devices=3"),
        (lambda: partition.by_label([0, 1], 2, order=[0, 2]), r"order must list every class once, got \[0, 2\]"),
        (lambda: partition.dirichlet([0, 1, 0, 1], 2, alpha=-1), "alpha must be a finite number > 0, got -1"),
        (lambda: partition.dirichlet([0, 1], 2, min_samples=2), "2 devices with 2 samples each"),
        (lambda: partition.shards([0, 1, 0, 1], 2, per_device=0), "per_device must be .* at least 1, got 0"),
        (lambda: partition.given([0, 2]), "device 1 of 3 holds no sample"),
        (lambda: partition.given([0, -1]), "start at 0, got -1"),
        (lambda: partition.given([0.5, 1.0]), "whole numbers, got dtype float64"),
        (lambda: partition.given([]), "one device index per sample"),
        (lambda: partition.make("by_nrom", np.eye(2), [0, 1]), "Did you mean 'by_norm'"),
        (lambda: Partition(np.array([0, 1]), names=("a",)), "1 names for 2 devices"),
    ],
)
def test_bad_input_is_quoted(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()


def test_a_groupby_is_its_groups_and_what_it_leaves_out_is_refused():
    frame = pd.DataFrame({"town": ["b", "a", "b", "a"], "ward": [1, 1, 2, 1]}, index=list("wxyz"))
    made = partition.given(frame.groupby("town"))
    assert (made.names, made.device_of.tolist()) == (("a", "b"), [1, 0, 1, 0])
    assert len(partition.given(frame.groupby(["town", "ward"]))) == 3
    assert partition.given(pd.MultiIndex.from_frame(frame)).counts.tolist() == [2, 1, 1]
    with pytest.raises(InvalidInput, match="sample 1 is on none"):
        partition.given(frame.assign(town=["b", None, "b", "a"]).groupby("town"))


@pytest.mark.parametrize(
    "column",
    [
        ["Basel", "Zurich", "Basel", "Aarau"],
        pd.Series(["Basel", "Zurich", "Basel", "Aarau"], index=[7, 3, 5, 1]),
        pd.Series(["Basel", "Zurich", "Basel", "Aarau"], dtype="category"),
        np.array(["Basel", "Zurich", "Basel", "Aarau"], object),
        {"Aarau": [3], "Basel": [0, 2], "Zurich": np.array([1])},
    ],
    ids=["list", "series", "category", "objects", "dictionary"],
)
def test_a_column_says_who_holds_a_sample(column):
    made = partition.given(column)
    assert made.names == ("Aarau", "Basel", "Zurich")
    assert made.device_of.tolist() == [1, 2, 1, 0]


def test_numbers_of_hospitals_and_lists_of_samples():
    assert partition.given([205, 101, 205]).names == ("101", "205")
    assert partition.given([1, 2, 1]).device_of.tolist() == [0, 1, 0]
    assert partition.given([1.0, 0.0]).device_of.tolist() == [1, 0]
    for groups in ("groups", "indices"):
        grouped = partition.given(getattr(pd.DataFrame({"at": ["b", "a", "b"]}).groupby("at"), groups))
        assert (grouped.names, grouped.device_of.tolist()) == (("a", "b"), [1, 0, 1])
    lists = partition.given([[0, 3], [2, 1]], names=["a", "b"])
    assert (lists.device_of.tolist(), lists.names) == ([0, 1, 1, 0], ("a", "b"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["a", None, "b"], "sample 1 has no device: None"),
        (pd.Series(["a", np.nan]), "sample 1 has no device"),
        ([[0, 1], [1, 2]], "sample 1 is on two devices"),
        ([[0, 1], [3]], "sample 2 is on none"),
        ([[0, 1], []], "device 1 of 2 needs a list of sample indices"),
        ([[0, 1], ["x"]], "device 1 of 2 needs a list of sample indices"),
    ],
)
def test_columns_and_lists_that_leave_samples_out_are_refused(wrong, message):
    with pytest.raises(InvalidInput, match=message):
        partition.given(wrong)


def test_squared_norms_are_those_of_the_rows_however_they_are_stored():
    rows = np.array([[3.0, 0, 4], [0, 0, 0], [1, -2, 2]])
    for table in (rows, sp.csr_array(rows), sp.csc_matrix(rows)):
        assert partition.squared_norms(table).tolist() == [25, 0, 9]
