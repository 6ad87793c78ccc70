"""The cluster engine's arithmetic, on threads: devices, weights and constants differ on every rank."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import os
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from ownstep import partition
from ownstep.engines import Bernoulli, Limits, TimeModel, cluster, saving
from ownstep.engines import checkpoint as ckpt
from ownstep.engines.cluster import ranks
from ownstep.engines.cluster import store as stores
from ownstep.engines.cluster.answering import SharedAnswering
from ownstep.engines.cluster.ranks import Ranks
from ownstep.engines.cluster.shared import Shared
from ownstep.engines.local import engine as local
from ownstep.engines.local.answering import Answering
from ownstep.methods import (
    DANE,
    EXTRA,
    GD,
    GIANT,
    METHODS,
    SHED,
    Ask,
    At,
    GradientTracking,
    Nesterov,
    OwnStep,
    Scaffold,
    SketchWork,
)
from ownstep.problems import BinaryLogistic, MultinomialLogistic, optimum
from ownstep.smoothness import Smoothness
from ownstep.support.errors import InvalidInput, OwnstepError

from ..conftest import make_least_squares, make_logistic
from .rank_threads import Table, ThreadRanks, on_ranks

BLOCKS = ([0, 1, 2], [3], [4, 5])
"""Six devices on three ranks, unequally."""


def shared(ranks, problem, weights=None) -> Shared:
    return Shared(problem.keep(BLOCKS[ranks.rank]), ranks, problem.weights if weights is None else weights)


@pytest.mark.parametrize("make", [make_least_squares, make_logistic])
def test_it_is_the_whole_problem_seen_from_every_rank(make):
    problem, rng = make(devices=6), np.random.default_rng(0)
    x, v, c = rng.standard_normal(problem.dim), rng.standard_normal(problem.dim), rng.standard_normal((6, 2))

    def look(ranks):
        seen = shared(ranks, problem)
        found = [seen.value(x), *seen.mix(x, c[:, 0]), *seen.mix(x, c), seen.hessian_product(x, v)]
        rows = seen.gradients(x)
        return [*found, rows.block, c[:, 0] @ rows], seen.mine, seen.describe(), seen.describe("trace"), seen.names

    for (value, losses, total, _, both, curved, rows, summed), mine, plan, trace, names in on_ranks(3, look):
        assert value == pytest.approx(problem.value(x), rel=1e-13)
        np.testing.assert_allclose(losses, problem.mix(x, problem.weights)[0], rtol=1e-13)
        np.testing.assert_allclose(total, problem.mix(x, c[:, 0])[1], atol=1e-13)
        np.testing.assert_allclose(both, problem.mix(x, c)[1], atol=1e-13)
        np.testing.assert_allclose(curved, problem.hessian_product(x, v), atol=1e-13)
        np.testing.assert_allclose(rows, problem.gradients(x)[mine], atol=1e-14)
        np.testing.assert_allclose(summed, total, atol=1e-13)
        expected = local.describe(problem).devices
        np.testing.assert_allclose(plan.devices.L, expected.L, rtol=1e-12)
        np.testing.assert_allclose(plan.devices.weights, problem.weights)
        assert plan.devices.L_pooled == pytest.approx(expected.L_pooled, rel=1e-12)
        assert trace.devices.L_pooled == pytest.approx(problem.weights @ trace.devices.L)
        assert names == problem.names


def test_a_rank_of_many_features_finds_the_pooled_constant_without_a_matrix(monkeypatch):
    from ownstep.smoothness import spectrum

    problem = make_least_squares(devices=6, features=9)
    monkeypatch.setattr(spectrum, "DENSE_LIMIT", 5)
    (found, *_) = on_ranks(3, lambda ranks: shared(ranks, problem).describe().devices.L_pooled)
    monkeypatch.undo()
    assert found == pytest.approx(local.describe(problem).devices.L_pooled, rel=1e-9)


def test_a_run_on_a_cluster_takes_what_a_run_takes():
    """Every option has its effect there too, and a word that no run knows is refused as by Python itself."""
    problem = make_least_squares(devices=6)
    devices, x0, points = local.describe(problem, "trace").devices, np.arange(4.0), []
    for options in (
        {"smoothness": "trace"}, {"devices": devices}, {"x0": x0}, {"participation": Bernoulli(0.5, seed=3)},
        {"target": 1.9}, {"gradient_tolerance": 0.5}, {"name": "mine"}, {"measure_gradient": True},
        {"limits": Limits(patience=1)}, {"observe": lambda k, x: points.append((k, *x))},
    ):  # fmt: skip
        there, *_ = on_ranks(3, lambda ranks, given=options: cluster.run(OwnStep(), shared(ranks, problem), 9, **given))
        here = local.run(OwnStep(), problem, 9, **options)
        for column in ("value", "gradient_norm"):
            np.testing.assert_allclose(getattr(there, column), getattr(here, column), rtol=1e-9, err_msg=str(options))
        assert (there.name, there.stopped) == (here.name, here.stopped)
    assert {k for k, *_ in points} == set(range(10))
    assert len(points) == 40  # by three ranks, and here
    with pytest.raises(TypeError, match="unexpected keyword argument 'tagret'"):
        on_ranks(3, lambda ranks: cluster.run(OwnStep(), shared(ranks, problem), 9, tagret=1.0))


@pytest.mark.parametrize(
    ("kinds", "weakest"), [(["exact", "upper bound", "exact"], "upper bound"), (["exact"] * 3, "exact")]
)
def test_constants_are_as_good_as_those_of_the_weakest_rank(kinds, weakest, monkeypatch):
    def measured(_, problem):
        return Smoothness(np.ones(len(problem.counts)), kinds[{3: 0, 1: 1, 2: 2}[len(problem.counts)]], "by hand")

    monkeypatch.setattr("ownstep.engines.cluster.shared.measure", measured)
    problem = make_least_squares(devices=6)
    for plan in on_ranks(3, lambda ranks: shared(ranks, problem).describe()):
        assert plan.smoothness.kind == weakest
        assert plan.devices.L_pooled == pytest.approx(local.describe(problem).devices.L_pooled, rel=1e-9)


def test_ranks_with_constants_of_their_own():
    """The smallest mu of all ranks is every f_i's; weights are the share of all samples; equal names are numbered."""

    def mine(ranks):
        rng = np.random.default_rng(ranks.rank)
        size, mu = ((9, 6), (5,), (14, 11))[ranks.rank], (0.3, 0.02, 0.1)[ranks.rank]
        rows, labels = rng.standard_normal((sum(size), 3)), np.arange(sum(size)) % 2
        owner = np.repeat(np.arange(len(size)), size)
        seen = Shared(BinaryLogistic(rows, labels, partition.given(owner), mu=mu), ranks)
        return seen, seen.describe().devices

    for seen, devices in on_ranks(3, mine):
        assert seen.strong_convexity == 0.02
        np.testing.assert_allclose(seen.weights, np.array([9, 6, 5, 14, 11]) / 45)
        assert seen.names == ("D1", "D2", "D3", "D4", "D5")
        assert devices.mu.tolist() == [0.02] * 5


def test_weights_that_only_some_ranks_know_are_asked_for():
    problem = make_least_squares(devices=6)
    with pytest.raises(InvalidInput, match="some rank's problem has weights of its own"):
        on_ranks(3, lambda ranks: Shared(problem.keep(BLOCKS[ranks.rank]), ranks))


@pytest.mark.parametrize("missing", [None, "rescale", "drop", "last"])
def test_measured_answers_are_those_of_one_process(missing):
    """Curvatures, both sums, and the mean loss where the devices were before, whoever is absent."""
    problem, rng = make_least_squares(devices=6), np.random.default_rng(1)
    asks = [Ask(x, c, also=d, curvature=True) for x, c, d in zip(*rng.standard_normal((3, 8, 6)), strict=True)]
    asks = [Ask(a.x[: problem.dim], a.mix, also=a.also, curvature=True) for a in asks]
    present = [np.ones(6, bool)] * 8 if missing is None else [rng.random(6) < 0.6 for _ in asks]
    present[-2:] = [np.array([True, False, True, True, False, True])] * 2  # twice the same: a mean loss is known

    def answers(ranks):
        answering = SharedAnswering(shared(ranks, problem), missing)
        return [answering(ask, who) for ask, who in zip(asks, present, strict=True)]

    alone = Answering(problem, missing)
    expected = [alone(ask, who) for ask, who in zip(asks, present, strict=True)]
    for seen in on_ranks(3, answers):
        for mine, theirs in zip(seen, expected, strict=True):
            np.testing.assert_allclose(mine.answer.sum, theirs.answer.sum, atol=1e-12)
            np.testing.assert_allclose(mine.answer.also, theirs.answer.also, atol=1e-12)
            np.testing.assert_allclose(mine.answer.curvature, theirs.answer.curvature, rtol=1e-12)
            np.testing.assert_allclose(mine.answer.value, theirs.answer.value, rtol=1e-13)
            np.testing.assert_allclose(mine.answer.previous, theirs.answer.previous, rtol=1e-13)
            np.testing.assert_allclose(mine.gradient_norm, theirs.gradient_norm, rtol=1e-13)
            np.testing.assert_allclose(mine.losses, theirs.losses, rtol=1e-13)
            assert (mine.up == theirs.up).all()
    assert np.isfinite(expected[-1].answer.previous)


@pytest.mark.parametrize("shared_sums", [True, False])
def test_sketches_are_those_of_one_process(shared_sums):
    """Of all ranks' devices in their order, whole ranks absent; a shared one is a sum of weighted products."""
    problem, rng = make_logistic(devices=6, samples=120), np.random.default_rng(2)
    work = SketchWork(2, shared=shared_sums, seed=4, revealing="allow")
    asks = [Ask(x, problem.weights, sketch=work) for x in rng.standard_normal((3, problem.dim))]
    present = [np.ones(6, bool), np.array([True, True, False, False, True, True]), np.array([False] * 4 + [True] * 2)]

    def sketches(answering):
        return [answering(ask, who).answer.sketches for ask, who in zip(asks, present, strict=True)]

    expected = sketches(Answering(problem, "rescale"))
    for seen in on_ranks(3, lambda ranks: sketches(SharedAnswering(shared(ranks, problem), "rescale"))):
        for mine, theirs in zip(seen, expected, strict=True):
            assert [one is None for one in mine] == [one is None for one in theirs]
            for ours, other in ((a, b) for a, b in zip(mine, theirs, strict=True) if b is not None):
                np.testing.assert_allclose(ours.vectors, other.vectors, atol=1e-12)
                np.testing.assert_allclose(ours.values, other.values, rtol=1e-12)
                assert (ours.trace, ours.penalty) == pytest.approx((other.trace, other.penalty), rel=1e-12)
                assert ours.free == other.free
    assert len(expected[1]) == (1 if shared_sums else 6)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_makes_the_iterates_of_one_process(name):
    problem, method = make_least_squares(devices=6), METHODS[name]()
    expected = local.run(method, problem, 12)
    for seen in on_ranks(3, lambda ranks: cluster.run(method, shared(ranks, problem), 12)):
        assert seen.name == expected.name == repr(method)
        np.testing.assert_allclose(seen.x, expected.x, atol=1e-11)
        np.testing.assert_allclose(seen.value, expected.value, rtol=1e-11)
        assert (seen.phase == expected.phase).all()


@pytest.mark.parametrize("method", [GIANT(0.01), DANE(0.1), SHED(2)])
def test_devices_that_solve_or_send_eigenpairs_may_live_on_any_rank(method):
    """Five exchanges cover a direction, its trial and the next, with whole ranks absent where the method allows it."""
    problem = make_logistic(devices=6)
    rule = None if isinstance(method, SHED) else Bernoulli(0.5, "rescale", seed=1)
    expected = local.run(method, problem, 6, participation=rule)
    assert rule is None or not expected.took_part[:, 3].all()  # the only device of its rank
    for seen in on_ranks(3, lambda ranks: cluster.run(method, shared(ranks, problem), 6, participation=rule)):
        np.testing.assert_allclose(seen.x, expected.x, atol=1e-9)
        np.testing.assert_allclose(seen.value, expected.value, rtol=1e-10)
    assert expected.value[-1] < expected.value[0]


@pytest.mark.parametrize("method", [OwnStep(At(4)), EXTRA(), GradientTracking(order="atc"), Scaffold(), Nesterov()])
def test_a_run_goes_on_from_what_another_number_of_ranks_wrote(method, tmp_path):
    problem, path = make_least_squares(devices=6), tmp_path / "run.npz"
    rule = None if getattr(method, "needs_everyone", False) else Bernoulli(0.7, "drop", seed=2)
    local.run(method, problem, 5, participation=rule, checkpoint=path)
    on_ranks(3, lambda ranks: cluster.run(method, shared(ranks, problem), 9, participation=rule, checkpoint=path))
    resumed = local.run(method, problem, 14, participation=rule, checkpoint=path)
    whole = local.run(method, problem, 14, participation=rule)
    np.testing.assert_allclose(resumed.x, whole.x, atol=1e-12)
    np.testing.assert_allclose(resumed.value, whole.value, rtol=1e-12)
    np.testing.assert_array_equal(resumed.phase, whole.phase)


def test_ranks_on_one_file_system_all_go_on_from_the_one_before(tmp_path, monkeypatch):
    """One of them finds the newest damaged and the one before it whole; nobody may move that away from the others."""
    path, problem, real, turn = tmp_path / "run.npz", make_logistic(devices=6), ckpt.about, itertools.count()
    for rounds in (4, 8):
        local.run(OwnStep(At(5)), problem, rounds, checkpoint=path)
    path.write_bytes(path.read_bytes()[:-200])

    def slowly(file, shown=None):
        try:
            return real(file, shown)
        except ckpt.Unreadable:
            time.sleep(0.1 * next(turn))
            raise

    monkeypatch.setattr(ckpt, "about", slowly)
    kept = on_ranks(3, lambda r: cluster.run(OwnStep(At(5)), shared(r, problem), 12, checkpoint=path))
    for history in kept:
        np.testing.assert_allclose(history.x, local.run(OwnStep(At(5)), problem, 12).x, rtol=1e-12)
    assert [int(real(file)["k"]) for file in ckpt.there(path)] == [12, 4]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_rank_without_room_to_unpack_a_checkpoint_says_so_and_ends_all(tmp_path, monkeypatch):
    path, problem = tmp_path / "run.npz", make_logistic(devices=6)
    local.run(GD(), problem, 4, checkpoint=path)
    real = Path.write_bytes
    full = itertools.count()

    def no_room(self, data):
        if next(full) == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, data)

    monkeypatch.setattr(Path, "write_bytes", no_room)
    with pytest.raises(OwnstepError, match=r"cannot unpack the checkpoint .*run\.npz' on this machine: .*No space"):
        on_ranks(3, lambda r: cluster.run(GD(), shared(r, problem), 6, checkpoint=path))
    monkeypatch.undo()
    assert on_ranks(3, lambda r: cluster.run(GD(), shared(r, problem), 6, checkpoint=path))[0].rounds == 6


def test_bytes_are_the_sums_and_the_rows_that_cross():
    problem = make_least_squares(devices=6)
    vector = 8 * problem.dim
    (own, *_) = on_ranks(3, lambda ranks: cluster.run(OwnStep(), shared(ranks, problem), 4, measure_gradient=True))
    assert own.columns["bytes_up"].tolist() == [3 * (vector + 8 * 6 + 16)] * 4 + [0]
    # a ring 0-1-2 | 3 | 4-5: of ten directed links between ranks, all carry a row of their own
    (ring, *_) = on_ranks(3, lambda ranks: cluster.run(EXTRA(), shared(ranks, problem), 4))
    crossings = {(i, BLOCK_OF[j]) for i in range(6) for j in ((i - 1) % 6, (i + 1) % 6) if BLOCK_OF[i] != BLOCK_OF[j]}
    assert ring.columns["bytes_up"].tolist() == [len(crossings) * vector] * 4 + [0]


BLOCK_OF = {i: rank for rank, block in enumerate(BLOCKS) for i in block}


def test_between_measurements_nothing_is_recorded_and_no_target_is_seen():
    problem = make_least_squares(devices=6)
    dense = local.run(EXTRA(), problem, 11)
    goal = (dense.value[5] + dense.value[6]) / 2  # first reached in round 6, first seen in round 8
    (seen, *_) = on_ranks(
        3, lambda ranks: cluster.run(EXTRA(), shared(ranks, problem), 11, target=goal, measure_every=4)
    )
    assert seen.rounds == 8
    assert np.isfinite(seen.value).tolist() == [k % 4 == 0 for k in range(9)]


def test_a_run_stops_as_everywhere_and_measures_where_it_has_to():
    """A tolerance on the gradient makes a local phase measured; a run without rounds looks once; the last round too."""
    problem = make_least_squares(devices=6)

    def go(rounds, **options):
        return on_ranks(3, lambda ranks: cluster.run(OwnStep(At(100)), shared(ranks, problem), rounds, **options))

    size = local.run(OwnStep(At(100)), problem, 30, measure_gradient=True).gradient_norm
    for seen in go(30, gradient_tolerance=float(size[4]) * 1.001):
        assert (seen.rounds, seen.name) == (4, repr(OwnStep(At(100))))
        np.testing.assert_allclose(seen.gradient_norm, size[:5], rtol=1e-9)
    for seen in go(3, name="mine"):
        assert (seen.rounds, seen.name, seen.stopped) == (3, "mine", "all 3 rounds done")
        assert np.isnan(seen.gradient_norm[:-1]).all()  # nobody asked for it
    assert {seen.rounds for seen in go(0)} == {0}
    ring = [local.run(EXTRA(), problem, k).value[-1] for k in (0, 7)]
    for seen in on_ranks(3, lambda ranks: cluster.run(EXTRA(), shared(ranks, problem), 7, measure_every=50)):
        assert np.isfinite(seen.value).tolist() == [True, *[False] * 6, True]
        np.testing.assert_allclose(seen.value[[0, -1]], ring, rtol=1e-10)


def test_what_a_cluster_refuses(tmp_path):
    problem, path = make_least_squares(devices=6), tmp_path / "c.npz"
    with pytest.raises(InvalidInput, match="a budget of 3 s on a cluster needs a wire"):
        on_ranks(2, lambda r: cluster.run(OwnStep(), halves(r, problem), 3, limits=Limits(seconds=3.0)))
    for limits in (Limits(bytes=1e9), Limits(seconds=1e9, wire=TimeModel())):
        on_ranks(2, lambda r, limits=limits: cluster.run(OwnStep(), halves(r, problem), 1, limits=limits))
    on_ranks(2, lambda r: cluster.run(OwnStep(), halves(r, problem), 4, checkpoint=path))
    with pytest.raises(InvalidInput, match="rounds=3, but the checkpoint .* already has 4"):
        on_ranks(2, lambda r: cluster.run(OwnStep(), halves(r, problem), 3, checkpoint=path))
    assert on_ranks(2, lambda r: cluster.run(OwnStep(), halves(r, problem), 4, checkpoint=path))[0].rounds == 4
    with pytest.raises(InvalidInput, match="measure_every must be a whole number of at least 1, got 0"):
        on_ranks(2, lambda r: cluster.run(OwnStep(), halves(r, problem), 3, measure_every=0))


@pytest.mark.parametrize("part", ["x", "k"])
def test_ranks_that_drift_apart_are_noticed_at_the_end(part):
    """In what they hold alike, numbers or words: the rank that rounds otherwise would go on with another x."""

    class Drifting(GD):
        def tell(self, state, answer):
            state = super().tell(state, answer)
            return dataclasses.replace(state, **{part: getattr(state, part) + self.off})

    def go(ranks, off):
        method = Drifting(0.01)
        object.__setattr__(method, "off", off * ranks.rank)
        return cluster.run(method, halves(ranks, make_least_squares(devices=6)), 2, name="gd")

    assert on_ranks(2, lambda ranks: go(ranks, 0))[1].rounds == 2
    with pytest.raises(OwnstepError, match=r"do not agree on the state after round 2: rank 1"):
        on_ranks(2, lambda ranks: go(ranks, 1e-15 if part == "x" else 1))


def test_what_a_rank_remembers_comes_back_as_it_was_kept():
    """Its own devices' part; gradients as tensors where the problem's are, the rest as the numbers that they are."""
    problem = make_least_squares(devices=6)
    d = problem.dim
    kept = {
        "gradients": np.arange(6.0 * d).reshape(6, d), "losses": np.arange(6.0), "known": np.arange(6) % 2 == 0,
        "fresh": np.arange(6) % 3 == 0, "curvature": np.arange(6.0) + 0.1,
    }  # fmt: skip

    def restored(ranks):
        memory = SharedAnswering(halves(ranks, problem), None).memory
        for points in (np.arange(float(d)), np.arange(6.0 * d).reshape(6, d)):
            arrays = {f"memory_{name}": part for name, part in kept.items()}
            arrays |= {"memory_points": points, "memory_previous": np.asarray(2.5), "other": np.ones(1)}
            memory.restore(arrays, torch.zeros(d, dtype=torch.float32))
            assert list(arrays) == ["other"]
            mine = slice(0, 4) if ranks.rank == 0 else slice(4, 6)
            for name, part in kept.items():
                found = getattr(memory, name)
                assert torch.is_tensor(found) is (name == "gradients")
                assert name == "gradients" or found.dtype == part.dtype
                np.testing.assert_array_equal(np.asarray(found), part[mine])
            np.testing.assert_array_equal(np.asarray(memory.points), points[mine] if points.ndim == 2 else points)
            assert memory.points.dtype == torch.float32
            assert (memory.previous, memory.previous_of_all) == (2.5, 2.5)
        memory.restore({}, torch.zeros(d))  # nothing was kept: nothing changes
        assert memory.previous == 2.5

    on_ranks(2, restored)


def halves(ranks, problem) -> Shared:
    return Shared(problem.keep([0, 1, 2, 3] if ranks.rank == 0 else [4, 5]), ranks, problem.weights)


def test_small_numbers_travel_with_a_float32_vector_to_48_bits():
    numbers = np.array([np.pi * 1e5, -1 / 3e4, 7.0])

    def add(ranks):
        mine = np.where(np.arange(3) == ranks.rank, numbers, 0)
        return ranks.add(np.full(2, 1.5 + ranks.rank, np.float32), mine)

    for total, small in on_ranks(3, add):
        assert total.dtype == np.float32
        np.testing.assert_array_equal(total, [7.5, 7.5])
        np.testing.assert_allclose(small, numbers, rtol=2**-46)


def test_one_rank_that_wants_to_stop_stops_all_after_the_same_round():
    problem = make_least_squares(devices=6)

    def stop(ranks):
        def watch(k, x):
            ranks._stop_wanted = ranks.rank == 1 and k >= 3

        return cluster.run(OwnStep(), shared(ranks, problem), 50, observe=watch)

    runs = on_ranks(3, stop)
    assert {r.rounds for r in runs} == {5}  # asked for after round 3 was evaluated, heard in the next
    assert runs[0].stopped == "interrupted after 5 rounds"
    assert len(runs[0].value) == 6
    np.testing.assert_allclose(runs[0].x, local.run(OwnStep(), problem, 5).x, atol=1e-13)


def test_who_differs_is_named():
    problem = make_least_squares(devices=6)
    for wrong, why in (
        (
            lambda r: cluster.run(OwnStep(), shared(r, problem), 5, x0=np.full(4, float(r.rank == 2))),
            "rank 2 .* in its data",
        ),
        (lambda r: cluster.run(OwnStep(), shared(r, problem), 5 + (r.rank == 1)), "rank 1 .* in its arguments"),
    ):
        with pytest.raises(InvalidInput, match=why):
            on_ranks(3, wrong)
    with pytest.raises(OwnstepError, match=r"do not agree on the weather: rank 1 \(a thread\), rank 2"):
        on_ranks(3, lambda ranks: ranks.agree("the weather", bytes([ranks.rank > 0])))
    with pytest.raises(OwnstepError, match="the number of features"):
        on_ranks(2, lambda ranks: Shared(make_logistic(2, features=3 + ranks.rank), ranks))


def test_a_softmax_model_is_shared_too():
    rng = np.random.default_rng(3)
    rows, labels = rng.standard_normal((40, 3)), rng.integers(0, 3, 40)
    problem = MultinomialLogistic(rows, labels, partition.given(np.sort(rng.integers(0, 6, 40))), mu=0.2)
    (seen, *_) = on_ranks(3, lambda ranks: cluster.run(OwnStep(), shared(ranks, problem), 600))
    np.testing.assert_allclose(seen.x, optimum(problem).x, atol=1e-6)


@pytest.mark.parametrize(
    ("said", "late"), [("Timed out waiting 9 ms", True), ("op timeout", True), ("Connection closed by peer", False)]
)
@pytest.mark.parametrize(("missing", "rank"), [([], 1), ([2], 1), ([2], 0)])
def test_what_a_broken_exchange_is_called(said, late, missing, rank):
    """Silence and a closed connection are told apart by what torch says; who is silent is given time to answer.

    The first rank may host the store, which the others ask: it waits a second longer, or they would find it gone.
    """
    waits = []

    def absent(keys, wait):
        waits.append(wait)
        return [keys[rank] for rank in missing]

    here = SimpleNamespace(
        round=7, deadline=8.0, size=3, rank=rank, _say=lambda *_: None, store=SimpleNamespace(absent=absent),
        who=lambda rank: f"rank {rank}",
    )  # fmt: skip
    text = str(Ranks._lost(here, RuntimeError(said)))
    assert waits == [(ranks.GRACE if late else 1.0) + (1.0 if rank == 0 else 0.0)]
    if not missing:
        assert text == f"round 7: a connection between the ranks broke: {said}"
    else:
        assert text == f"round 7: {'no answer from rank 2 within 8 s' if late else 'lost the connection to rank 2'}"


def test_a_cluster_saves_as_rarely_as_one_process(tmp_path, monkeypatch):
    """In the first round and at the end; in between when the pause is over, which no rank without a file asks for."""
    problem, saves, real = make_least_squares(devices=6), [], saving.Saver.save

    def counted(self, write):
        if self.path is not None:
            saves.append(1)
        real(self, write)

    monkeypatch.setattr(saving.Saver, "save", counted)
    on_ranks(3, lambda ranks: cluster.run(OwnStep(), shared(ranks, problem), 20, checkpoint=tmp_path / "run.npz"))
    first = len(saves)
    assert first == 2  # though the first one's own signature is a sum, which carries the wish for it again
    on_ranks(3, lambda ranks: cluster.run(OwnStep(), shared(ranks, problem), 20))
    assert len(saves) == first
    monkeypatch.setattr(saving, "pause", lambda seconds, size: 0.0)
    on_ranks(3, lambda ranks: cluster.run(OwnStep(), shared(ranks, problem), 30, checkpoint=tmp_path / "run.npz"))
    assert len(saves) > first + 5


class Words(dict):
    """A store that answers at once, in which every rank has said where it is."""

    def __init__(self, torch):
        super().__init__({"who/0": "a, process 1", "who/1": "b, process 2"})

    set, get = dict.__setitem__, dict.__getitem__

    def absent(self, keys, seconds):
        return []


@pytest.fixture
def a_group(monkeypatch):
    """As rank 1 of a group of two that somebody else has made; what is asked of torch is written down."""
    asked = SimpleNamespace(groups=[], devices=[])
    monkeypatch.delenv(ranks.BACKEND, raising=False)
    monkeypatch.delenv("TORCH_NCCL_BLOCKING_WAIT", raising=False)
    for name, does in {
        "is_initialized": lambda: True, "get_rank": lambda: 1, "get_world_size": lambda: 2,
        "new_group": lambda **options: asked.groups.append(options) or "ours", "PrefixStore": lambda *_: None,
    }.items():  # fmt: skip
        monkeypatch.setattr(ranks.dist, name, does)
    monkeypatch.setattr(ranks.dist.distributed_c10d, "_get_default_store", lambda: None)
    monkeypatch.setattr(ranks, "Store", Words)
    monkeypatch.setattr(ranks.torch.cuda, "set_device", asked.devices.append)
    return asked


@pytest.mark.parametrize(
    ("device", "word", "backend", "gathers"),
    [
        ("cpu", None, "gloo", "cpu"), ("cpu", "gloo", "gloo", "cpu"), ("cuda:1", None, "nccl", "cuda"),
        ("cuda:1", "gloo", "gloo", "cpu"), ("cuda:1", "nccl", "nccl", "cuda"), ("cpu", "nccl", None, None),
        ("cpu", "mpi", None, None), ("cuda:1", "mpi", None, None),
    ],
)  # fmt: skip
def test_gpus_talk_by_nccl_unless_told_otherwise(a_group, monkeypatch, device, word, backend, gathers):
    """The group is ours, with our deadline; NCCL is told to raise where a deadline passes."""
    if word is not None:
        monkeypatch.setenv(ranks.BACKEND, word)
    if backend is None:
        with pytest.raises(InvalidInput, match=f"gloo, or nccl where the vectors live on a GPU; got '{word}'"):
            Ranks(7.0, device)
        return
    made = Ranks(7.0, device)
    assert a_group.groups == [{"backend": backend, "timeout": timedelta(seconds=7)}]
    assert a_group.devices == ([torch.device("cuda:1")] if device != "cpu" else [])
    assert (made.backend, made.gathering.type, made.group) == (backend, gathers, "ours")
    assert os.environ.get("TORCH_NCCL_BLOCKING_WAIT") == ("1" if backend == "nccl" else None)
    assert (made.rank, made.size, made.who(0)) == (1, 2, "rank 0 (a, process 1)")
    assert made.names[1].endswith(f"process {os.getpid()}")
    for wrong in (0.0, -1.0, np.nan):
        with pytest.raises(InvalidInput, match="deadline must be a positive number"):
            Ranks(wrong)


@pytest.mark.parametrize("gpu", [True, False])
def test_a_sum_on_a_gpu_is_waited_for(a_group, monkeypatch, gpu):
    done, made = [], Ranks()
    stream = SimpleNamespace(synchronize=lambda: done.append("synchronised"))
    monkeypatch.setattr(ranks.torch.cuda, "current_stream", lambda: stream)
    work = SimpleNamespace(wait=lambda: done.append("waited"))
    made.group = SimpleNamespace(allreduce=lambda buffers: done.append(buffers[0].nbytes) or work)
    made.reduce(SimpleNamespace(nbytes=24, is_cuda=gpu))
    assert done == [24, "waited", *(["synchronised"] if gpu else [])]
    assert made.bytes == 24


class Board(dict):
    """A store that all threads of a test share; ``absent`` waits as long as it is told to."""

    set, get = dict.__setitem__, dict.__getitem__

    def has(self, key):
        return key in self

    def forget(self, key):
        self.pop(key, None)

    def absent(self, keys, seconds):
        end = time.monotonic() + seconds
        while not all(key in self for key in keys) and time.monotonic() < end:
            time.sleep(0.005)
        return [key for key in keys if key not in self]


def test_ranks_that_start_again_share_a_name_that_no_earlier_start_had(monkeypatch):
    """Whatever those who died left in the store: their words and the answers to them."""
    board, names = Board({"hello/1": "old", "hello/2": "older", "welcome/old": "before", "welcome/older": "before"}), {}
    starting = [
        threading.Thread(target=lambda r=r: names.setdefault(r, ranks._common_name(board, r, 3))) for r in (2, 1, 0)
    ]
    for thread in starting:
        thread.start()
        time.sleep(0.02)
    for thread in starting:
        thread.join(20)
    assert len(names) == 3
    assert len(set(names.values())) == 1
    assert names[0] != "before"
    assert ranks._common_name(Board(), 0, 1) != names[0]
    monkeypatch.setattr(ranks, "MEETING", 0.1)
    with pytest.raises(OwnstepError, match=r"rank 1, rank 2 did not start within 0.1 s"):
        ranks._common_name(Board(), 0, 3)
    with pytest.raises(OwnstepError, match=r"rank 0 did not answer within 0.1 s"):
        ranks._common_name(Board(), 1, 3)


def test_an_error_on_one_rank_ends_all_and_says_where_it_happened():
    def act(here):
        def work():
            if here.rank == 1:
                raise OwnstepError("the disk is full")

        try:
            here.together(work)
        except OwnstepError as error:
            return str(error)
        return None

    said = on_ranks(3, act)
    assert said == ["rank 1 (a thread): the disk is full", "the disk is full", "rank 1 (a thread): the disk is full"]
    assert on_ranks(2, lambda here: here.together(lambda: None)) == [None, None]


def test_the_first_signal_asks_to_stop_and_the_second_insists():
    def hear(here):
        with here.listening():
            assert not here._stop_wanted
            signal.raise_signal(signal.SIGTERM)
            assert here._stop_wanted
            signal.raise_signal(signal.SIGTERM)  # as often as one likes
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    hear(ThreadRanks(Table(1), 0))
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == before
    here = ThreadRanks(Table(1), 0)
    with here.listening():
        signal.raise_signal(signal.SIGINT)
    assert here._stop_wanted
    on_ranks(2, lambda here: here.listening().__enter__())  # where nothing can be heard nothing is changed
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_large_sum_is_not_overwritten_while_somebody_holds_it():
    """A small one is a copy; of the large ones, memory is used again once nobody looks at it, four at the most."""
    here = ThreadRanks(Table(1), 0)
    for n in (5, ranks.KEPT - 4):
        held, numbers = here.add(np.arange(float(n)), np.array([7.0, 8.0]))
        here.add(np.zeros(n), np.zeros(2))
        assert held.tolist() == list(range(n))
        assert numbers.tolist() == [7.0, 8.0]
    held = [here.add(np.full(ranks.KEPT + 1, float(i)), np.zeros(0))[0] for i in range(6)]
    assert [h[0] for h in held] == [h[-1] for h in held] == [0, 1, 2, 3, 4, 5]
    (lent,) = here._lent.values()
    assert len(lent) == ranks.MOST_LENT == 4
    kept = {pair[1].ctypes.data for pair in lent}
    del held
    again, _ = here.add(np.zeros(ranks.KEPT + 1), np.zeros(0))
    assert again.ctypes.data in kept
    assert set(here._kept) == {5 + 2 + 2, ranks.KEPT}


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_words_of_control_ride_along(kind):
    """One rank's wish is everybody's; what is summed beside it is not changed."""

    def add(here):
        here._stop_wanted, here.save_at = here.rank == 2, 0.0 if here.rank == 0 else np.inf
        seen = here.add(np.ones(3, kind), np.array([1.0, 2.0]) * (here.rank == 1))
        first = here.stop_agreed, here.save_agreed
        return *seen, first

    for total, numbers, agreed in on_ranks(3, add):
        assert (total.dtype, total.tolist(), numbers.tolist()) == (kind, [3, 3, 3], [1, 2])
        assert agreed == (True, True)

    def nobody(here):
        here.add(np.ones(3, kind), np.zeros(1))
        return here.stop_agreed, here.save_agreed

    assert on_ranks(2, nobody) == [(False, False)] * 2


def test_a_store_that_is_silent_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(stores, "ANSWER", 0.05)
    slow = SimpleNamespace(
        set=lambda *_: time.sleep(0.3), check=lambda keys: keys == ["there"], get=lambda key: b"said"
    )
    store = stores.Store(slow)
    with pytest.raises(stores.StoreSilent, match="does not answer within 0.05 s"):
        store.set("a", "b")
    assert store.get("there") == "said"
    assert (store.has("there"), store.has("gone")) == (True, False)

    def wait(keys, limit):
        assert limit == timedelta(seconds=0.1)
        raise RuntimeError("timed out")

    slow.wait = wait
    assert store.absent(["there", "gone"], 0.1) == ["gone"]
    slow.wait = lambda keys, limit: None
    assert store.absent(["there", "gone"], 0.1) == []
    slow.wait = lambda keys, limit: time.sleep(0.4)
    with pytest.raises(stores.StoreSilent):
        store.absent(["there"], 0.1)
    slow.delete_key = lambda key: forgotten.append(key)
    forgotten = []
    store.forget("a")
    assert forgotten == ["a"]
