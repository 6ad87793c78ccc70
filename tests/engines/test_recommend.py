"""The rehearsal: a sample that is the problem in small, costs by the time model, and what a method shows."""

from __future__ import annotations

import json
import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from ownstep import partition
from ownstep.cli import app
from ownstep.engines import Bernoulli, TimeModel, candidates, recommend, rehearse, run, shows
from ownstep.engines.federation.asking import needs_rows
from ownstep.engines.federation.hessians import own_rank
from ownstep.engines.recommend import _allowed
from ownstep.engines.timing import extra_work
from ownstep.methods import LBFGS, METHODS, Ask, BarzilaiBorwein, Newton, OwnCurvature, Schedule, SketchWork
from ownstep.methods.base import SolveWork
from ownstep.plan import Devices
from ownstep.problems import logistic_regression, optimum
from ownstep.support.errors import InvalidInput

from ..conftest import make_least_squares, make_logistic

recommending = sys.modules[_allowed.__module__]  # the function of that name hides it in the package

FAST, SLOW_LINE, COMPUTE = TimeModel(1.0, 1e9, 1e9, 0.0), TimeModel(0.0, 1e3, 1e3, 0.0), TimeModel(0.0, 1e12, 1e12, 1.0)


def made(n=900, d=40, devices=5, mu=1e-4, sparse=False):
    """Columns of very different size, and devices of 1 to 5 shares of the rows that differ in scale."""
    rng = np.random.default_rng(5)
    owner = np.repeat(np.arange(devices), n // (devices * (devices + 1) // 2) * np.arange(1, devices + 1))
    owner = rng.permutation(np.concatenate([owner, np.full(n - len(owner), devices - 1)]))
    rows = rng.standard_normal((n, d)) * np.geomspace(3, 0.03, d) * (1 + owner[:, None])
    labels = rng.random(n) < 1 / (1 + np.exp(-rows @ rng.standard_normal(d) / 2))
    if sparse:
        import scipy.sparse as sp

        rows = sp.csr_array(np.where(rng.random(rows.shape) < 0.3, rows, 0.0))
    return logistic_regression(rows, labels, partition.given(owner, [f"site {i}" for i in range(devices)]), mu=mu)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_sample_has_every_device_s_own_rows_and_the_weights_of_the_whole(sparse):
    problem = made(sparse=sparse)
    small = problem.sample(300, per_device=30, seed=3)
    assert small.counts.tolist() == [30, 40, 60, 80, 100]
    np.testing.assert_array_equal(small.weights, problem.weights)
    assert small.names == problem.names
    for i in range(5):
        whole, some = (np.asarray(p.rows(i).todense() if sparse else p.rows(i)) for p in (problem, small))
        found = (some[:, None, :] == whole[None, :, :]).all(axis=2)
        assert (found.sum(axis=1) == 1).all()  # each is one of the device's own
        assert found.any(axis=0).sum() == len(some)  # and none comes twice
    losses, x = small.mix(np.full(problem.dim, 0.1), small.weights)[0], np.full(problem.dim, 0.1)
    np.testing.assert_allclose(losses, [small.only(i).value(x) for i in range(5)], rtol=1e-12)
    assert problem.sample(900) is problem
    again = problem.sample(300, per_device=30, seed=4)
    assert not np.allclose(again.mix(x, again.weights)[0], losses)


def test_a_share_of_a_row_is_a_row():
    """307 of 900 rows: 20.47, 40.93, 61.4, 81.87 and 102.33 of the devices'."""
    problem = made()
    assert problem.counts.tolist() == [60, 120, 180, 240, 300]
    assert problem.sample(307).counts.tolist() == [21, 41, 62, 82, 103]


def test_a_rehearsal_is_of_the_sample_that_the_seed_draws():
    problem = made(d=6, mu=1e-1)
    small = rehearse(problem, [FAST], sample=300, tolerance=1e-2, seed=7).small
    assert small.counts.tolist() == [40, 40, 60, 80, 100]  # a third, and forty where a device has them
    x = np.linspace(-1, 1, 6)
    assert small.value(x) == problem.sample(300, 40, 7).value(x) != problem.sample(300, 40, 0).value(x)


def test_with_all_rows_the_expected_costs_are_those_of_the_runs():
    problem, wire = made(), TimeModel(0.02, 1e6, 1e7, 0.003)
    found = recommend(problem, wire)
    best, start = optimum(problem).value, problem.value(problem.x0())
    for row in found.rows[:3]:
        history = run(candidates()[row.method], problem, 500, target=best + 1e-6 * (start - best))
        assert (row.exchanges, row.bytes) == (history.rounds, round(history.bytes_per_device(history.rounds)))
        assert row.seconds == pytest.approx(wire.seconds(history)[-1])
    known = [row.seconds for row in found.rows if row.seconds is not None]
    assert known == sorted(known)
    assert (found.sampled, found.samples, found.devices, found.dim) == (900, 900, 5, 40)
    assert found.to_dict()["use"] == found.rows[0].key
    assert found.to_dict()["runner_up"] == found.rows[1].key


def test_the_network_decides():
    """Where only waiting costs, the fewest exchanges win; where bytes do, who sends least; where work does, who works
    least."""
    found = rehearse(made(n=600, mu=1e-2), [FAST, SLOW_LINE, COMPUTE])
    histories = found.histories
    assert len(histories) > 3
    work = {n: h.rounds + sum(w for _, w in h.settings.get("extra_work", [])) for n, h in histories.items()}
    sent = {n: h.bytes_per_device(h.rounds) for n, h in histories.items()}
    for wire, cost in ((FAST, {n: h.rounds for n, h in histories.items()}), (SLOW_LINE, sent), (COMPUTE, work)):
        assert found.over(wire, "").rows[0].method == min(cost, key=cost.get)
    assert (
        "Newton" not in rehearse(made(n=300, d=120, mu=1.0), [SLOW_LINE]).histories
    )  # three triangles alone take longer


def test_the_sample_finds_nearly_the_fastest():
    problem = made(n=4000, d=40)
    best, start = optimum(problem).value, problem.value(problem.x0())
    goal, wire = best + 1e-6 * (start - best), TimeModel(0.03, 1e7, 1e7, 0.01)
    chosen = recommend(problem, wire, sample=1000)
    assert chosen.sampled < 1200
    took = {}
    for name in ("L-BFGS", "own curvature", "own curvature, shared sums", "Newton"):
        took[name] = wire.seconds(run(candidates()[name], problem, 500, target=goal))[-1]
    assert took[chosen.rows[0].method] <= 1.3 * min(took.values())


@pytest.mark.slow
def test_the_absent_make_it_longer_and_are_drawn_from_the_seed():
    problem = made(n=600, d=10, mu=1e-2)
    everyone, some = (rehearse(problem, [FAST], absent=a) for a in (0.0, 0.2))
    assert everyone.histories["L-BFGS"].took_part is None
    assert 0.6 < some.histories["L-BFGS"].took_part.mean() < 0.95
    assert some.histories["L-BFGS"].rounds > everyone.histories["L-BFGS"].rounds
    again = rehearse(problem, [FAST], absent=0.2)
    assert again.histories["L-BFGS"].rounds == some.histories["L-BFGS"].rounds


def test_of_three_draws_of_who_is_absent_the_middle_one_counts(monkeypatch):
    drawn = {}

    def watched(method, *arguments, participation, **options):
        assert options["progress"] is False  # a rehearsal is quiet
        history = run(method, *arguments, participation=participation, **options)
        drawn.setdefault(repr(method), []).append((participation, history.rounds, history.value[-1]))
        return history

    monkeypatch.setattr(recommending, "run", watched)
    found = rehearse(made(n=300, d=6, mu=1e-1), [FAST], absent=0.3, tolerance=1e-4, seed=5)
    for draws in drawn.values():
        assert [rule for rule, *_ in draws] == [Bernoulli(0.7, seed=5), Bernoulli(0.7, seed=6), Bernoulli(0.7, seed=7)]
    spread = 0
    for name, history in found.histories.items():
        rounds = [k for _, k, _ in drawn[repr(candidates()[name])]]
        assert history.rounds == sorted(rounds)[1]
        spread += len(set(rounds)) == 3
    assert spread > 2


@pytest.mark.parametrize("sample", [300, 900])
def test_every_candidate_is_run_on_the_sample_to_its_gap(sample, monkeypatch):
    """With the sample's own optimum; own sketches as large as on all rows, of which a device has fewer here."""
    ran = []

    def watched(method, problem, most, **options):
        ran.append((method, problem, most, options))
        return run(method, problem, most, **options)

    monkeypatch.setattr(recommending, "run", watched)
    problem = made(d=12, mu=1e-1)
    found = rehearse(problem, [FAST], sample=sample, tolerance=1e-3, seed=7)
    small, given = found.small, {name: method for name, method in candidates().items() if name not in found.notes}
    given["own curvature"] = OwnCurvature(10, revealing=True) if sample < 900 else OwnCurvature()
    known = {name: m for name, m in zip([*candidates()], [m for m, *_ in ran], strict=True)}
    assert {name: known[name] for name in given} == given
    best, start = optimum(small).value, small.value(small.x0())
    for _, on, most, options in ran:
        assert on is small
        assert 0 < most <= 500
        np.testing.assert_array_equal(options.pop("devices").weights, problem.weights)
        assert options.pop("target") == pytest.approx(best + 1e-3 * (start - best), rel=1e-12)
        assert options == {"participation": None, "progress": False}


@pytest.mark.parametrize(
    ("draws", "kept"),
    [
        ([(9, 0.0), (3, 1.0), (5, 0.0)], 9),  # who ends early without arriving comes last
        ([(9, 0.0), (3, 1.0), (2, 1.0)], None),
        ([(4, -1.0), (6, 0.0), (8, -2.0)], 6),
    ],
)
def test_arriving_is_to_be_exactly_there_or_below(draws, kept, monkeypatch):
    drawn = [*draws] * len(candidates())

    def told(method, problem, most, target, **options):
        rounds, above = drawn.pop(0)
        return SimpleNamespace(rounds=rounds, value=np.array([1e3, 1e3, target + above]), failed=False)

    monkeypatch.setattr(recommending, "run", told)
    monkeypatch.setattr(recommending, "_allowed", lambda *_: (500, ""))
    found = rehearse(made(n=300, d=6, mu=1e-1), [FAST], absent=0.1)
    assert {history.rounds for history in found.histories.values()} == ({kept} if kept else set())
    assert set(found.notes.values()) >= (set() if kept else {"not in 2 exchanges"})


def taken(wire, K, d):
    """Seconds of K rounds of L-BFGS: the device that waits longest decides."""
    sent = (8 * d + 8) * (1 / np.asarray(wire.up) + 1 / np.asarray(wire.down))
    return K * (2 * np.asarray(wire.latency) + sent + np.asarray(wire.compute)).max()


@pytest.mark.parametrize(
    ("factors", "lost"), [([0.99], True), ([1.01], False), ([0.99, 1.01], False), ([0.9, 0.99], True)]
)
def test_newton_is_left_out_where_three_triangles_take_longer_than_the_best_so_far(factors, lost):
    problem, d = made(n=300, d=30, mu=1.0), 30
    known = run(LBFGS(), problem, 4)
    triangles = 3 * (2 * 0.4 + 8 * d * (d + 1) / 2 / 1e3)
    wires = []
    for factor in factors:
        compute = factor * triangles / 4 - 2 * 0.4 - 2 * (8 * d + 8) / 1e3
        wires.append(TimeModel((0.1, 0.4, 0.2, 0.1, 0.1), 1e3, 1e3, compute))
        assert (
            wires[-1].seconds(known)[-1] == pytest.approx(taken(wires[-1], 4, d)) == pytest.approx(factor * triangles)
        )
    most, why = _allowed(Newton(), d, wires, [known, run(LBFGS(), problem, 8)])
    assert (most, bool(why)) == ((0, True) if lost else (500, False))
    assert _allowed(Newton(), d, wires, []) == (500, "")
    assert _allowed(Newton(), 4001, wires, [known]) == (0, "a Hessian of 4,001 coordinates is too large to send")


def test_a_first_order_method_is_given_four_times_the_seconds_of_the_best_so_far():
    problem, d = made(n=300, d=30, mu=1.0), 30
    known = [run(LBFGS(), problem, 9), run(LBFGS(), problem, 6)]
    near = TimeModel(0.1, 1e9, 1e9, (0.3, 0.1, 0.2, 0.5, 0.1))
    far = TimeModel((0.1, 0.7, 0.2, 0.1, 0.1), 1e2, 1e9, 0.01)
    few = math.ceil(4 * taken(near, 6, d) / (0.2 + 0.5))
    many = math.ceil(4 * taken(far, 6, d) / (1.4 + 0.01))
    assert few < many < 500
    assert _allowed(BarzilaiBorwein(), d, [near], known) == (few, "")
    assert _allowed(BarzilaiBorwein(), d, [far], known) == (many, "")
    assert _allowed(BarzilaiBorwein(), d, [near, far], known) == (many, "")
    assert _allowed(LBFGS(), d, [near, far], known) == (500, "")


def test_a_method_that_would_lose_is_not_run_and_the_reason_is_noted(monkeypatch):
    problem, wire = made(n=300, d=30, mu=1.0), TimeModel(0.1, 1e9, 1e9, 0.01)
    monkeypatch.setattr(recommending, "_allowed", lambda m, *_: (500, "too slow" if m == Newton() else ""))
    found = rehearse(problem, [wire])
    assert found.notes["Newton"] == "too slow"
    assert "Newton" not in found.histories
    assert "L-BFGS" in found.histories


def test_unless_told_otherwise_the_candidates_are_shown():
    assert shows() == shows(candidates())
    assert shows()["L-BFGS"] == "sums over all devices"
    assert shows()["own curvature, shared sums"] == "sums over all devices, products of Hessians included"


def test_what_cannot_be():
    problem = make_logistic()
    with pytest.raises(InvalidInput, match=r"at most 0.9, got 0.95"):
        recommend(problem, absent=0.95)
    with pytest.raises(InvalidInput, match="tolerance must be below 1"):
        recommend(problem, tolerance=1.0)
    with pytest.raises(InvalidInput, match="wire"):
        recommend(problem, "moon")
    with pytest.raises(InvalidInput, match="rows to sample"):
        recommend(object())


def test_what_is_shown_is_what_secure_aggregation_cannot_hide():
    devices = Devices(np.full(3, 1 / 3), np.ones(3), np.full(3, 0.5), L_pooled=1.0)
    methods = {name: kind() for name, kind in METHODS.items() if kind is not Schedule}
    told = shows(methods)
    for name, method in methods.items():
        if name in ("decentralised_gd", "gradient_tracking", "extra", "nids"):
            assert "no server" in told[name]
            continue
        ask = method.ask(method.start(np.zeros(4), devices))
        alone = needs_rows(ask) or own_rank(ask) > 0
        assert alone == ("every device's own vector" in told[name] or "eigenvectors of every device" in told[name])
    assert told["lbfgs"] == "sums over all devices"
    assert "every device's L" in told["gd"]
    assert "Hessians" in told["newton"]
    assert "solutions" in told["giant"]


@pytest.mark.parametrize(
    ("ask", "warm", "work"),
    [
        ({}, False, 0),
        ({"base": 1}, False, 1),
        ({"hessian": True}, False, 5),
        ({"sketch": SketchWork(10)}, False, 28),  # two blocks of 14
        ({"sketch": SketchWork(10)}, True, 10),
        ({"sketch": SketchWork(40)}, False, 50),  # never more products than coordinates
        ({"sketch": SketchWork(10, shared=True)}, True, 10),
        ({"sketch": SketchWork(0)}, False, 0),
        ({"sketch": SketchWork(5, skip=0)}, False, 5),
        ({"sketch": SketchWork(5, skip=5)}, False, 0),
        ({"solve": SolveWork(1)}, False, 5),
        ({"solve": SolveWork(1, whole=True)}, False, 30),
    ],
)
def test_a_device_s_work_in_gradients(ask, warm, work):
    assert extra_work(Ask(np.zeros(50), np.ones(1), **ask), 50, warm) == pytest.approx(work)


def test_the_work_is_in_the_seconds():
    problem, model = make_least_squares(devices=3), TimeModel(0.0, np.inf, np.inf, 1.0)
    d = problem.dim
    history = run(Newton(), problem, 2)
    np.testing.assert_allclose(np.diff(model.seconds(history)), 1 + 0.1 * d)
    sketched = run(OwnCurvature(1, revealing=True), problem, 4)
    took = np.diff(model.seconds(sketched))
    assert took[0] == pytest.approx(1 + min(d, 10))
    assert set(np.round(took[1:] - 1).astype(int)) <= {0, 1}
    np.testing.assert_allclose(np.diff(model.seconds(run(LBFGS(), problem, 4))), 1.0)


def test_the_command_recommends():
    ran = CliRunner().invoke(app, ["plan", "breast_cancer", "--devices", "4", "--wire", "0.5:1e6", "--json"])
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.output)["recommendation"]
    assert told["use"] == told["expected"][0]["key"] == "newton"
    assert told["wire"] == "0.5:1e6"
    assert told["expected"][0]["shows"] == "sums over all devices, Hessians included"
    shown = CliRunner().invoke(app, ["plan", "breast_cancer", "--devices", "4"]).output
    assert "Use Newton" in shown
    assert json.loads(CliRunner().invoke(app, ["plan", "--L", "1,3", "--json"]).output)["recommendation"] is None
