from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from ownstep import partition
from ownstep.engines import Bernoulli, baselines, compare, describe, run, tune_step, tuning
from ownstep.engines import checkpoint as ckpt
from ownstep.engines.local import engine as local
from ownstep.engines.participation import effective_mix
from ownstep.history import COLUMNS
from ownstep.methods import GD, At, Nesterov, Never, OwnStep
from ownstep.plan import Devices
from ownstep.problems import LeastSquares, optimum
from ownstep.support.errors import InvalidInput, OwnstepError

from ..conftest import make_least_squares, make_logistic

SAME = [c for c in COLUMNS if c != "seconds"]


def assert_same_history(first, second):
    for column in SAME:
        np.testing.assert_array_equal(first.columns[column], second.columns[column], err_msg=column)
    assert (first.x == second.x).all()
    assert (first.best_x == second.best_x).all()
    assert (first.stopped, first.switched_at, first.switch_why) == (
        second.stopped,
        second.switched_at,
        second.switch_why,
    )
    np.testing.assert_array_equal(first.took_part, second.took_part)


def test_what_is_recorded_is_what_happened(small_logistic):
    history = run(OwnStep(At(3)), small_logistic, 5, measure_gradient=True)
    x = small_logistic.x0()
    devices = describe(small_logistic).devices
    for k in range(6):
        gradient = small_logistic.weights @ small_logistic.gradients(x)
        assert history.value[k] == pytest.approx(small_logistic.value(x), rel=1e-13)
        assert history.gradient_norm[k] == pytest.approx(np.linalg.norm(gradient), rel=1e-9)
        alpha = 1 / devices.L if k < 3 else 1 / devices.L_bar
        x = x - (small_logistic.weights * alpha) @ small_logistic.gradients(x)
    vector = small_logistic.dim * 8
    assert history.columns["bytes_up"].tolist() == [3 * (vector + 8)] * 5 + [0]
    assert history.columns["bytes_down"].tolist() == [3 * (vector + 8)] * 5 + [0]
    assert history.columns["participants"].tolist() == [3] * 5 + [0]
    assert history.stopped == "all 5 rounds done"


def test_the_gradient_of_a_local_round_is_measured_only_when_asked_for(small_logistic):
    plain, measured = (run(OwnStep(At(3)), small_logistic, 5, measure_gradient=m) for m in (False, True))
    assert np.isnan(plain.gradient_norm[:3]).all()
    np.testing.assert_allclose(plain.gradient_norm[3:], measured.gradient_norm[3:], rtol=1e-9)
    np.testing.assert_allclose(plain.x, measured.x, atol=1e-14)


def test_nesterov_is_measured_where_it_stands_not_where_it_looks(small_logistic):
    history = run(Nesterov(), small_logistic, 12)
    assert history.value[-1] == pytest.approx(small_logistic.value(history.x), rel=1e-13)


def test_targets_and_tolerances_stop_the_run(small_logistic):
    best = optimum(small_logistic).value
    reached = run(GD("true"), small_logistic, 5000, target=best + 1e-6)
    assert reached.value[-1] <= best + 1e-6 < reached.value[-2]
    assert "reached the target" in reached.stopped
    flat = run(GD("true"), small_logistic, 5000, gradient_tolerance=1e-4)
    assert flat.gradient_norm[-1] <= 1e-4 < flat.gradient_norm[-2]


def test_divergence_stops_the_run_and_the_best_iterate_is_kept(least_squares):
    lying = Devices(least_squares.weights, describe(least_squares).devices.L / 50)
    history = run(OwnStep(At(500)), least_squares, 500, devices=lying)
    assert history.stopped.startswith("diverged")
    assert history.rounds < 500
    assert history.best_value == history.value.min()
    assert least_squares.value(history.best_x) == pytest.approx(history.best_value)


def test_of_two_equally_good_iterates_the_first_is_kept():
    """A step of 2/L on a parabola goes to and fro between x and -x, with one value."""
    history = run(GD(2.0), LeastSquares(np.eye(1), np.zeros(1), mu=0.0), 3, x0=np.array([3.0]))
    assert history.value.tolist() == [4.5] * 4
    assert history.x.tolist() == [-3.0]
    assert (history.best_round, history.best_x.tolist()) == (0, [3.0])


def test_nan_stops_the_run_with_the_reason(least_squares):
    class Broken(type(least_squares)):
        def mix(self, x, c):
            losses, total = super().mix(x, c)
            self.calls = getattr(self, "calls", 0) + 1
            return (losses * np.nan, total) if self.calls > 4 else (losses, total)

    least_squares.__class__ = Broken
    history = run(GD("mean"), least_squares, 50)
    assert history.stopped == "f(x) is nan at round 4"
    assert np.isfinite(history.best_value)
    assert np.isfinite(history.best_x).all()


def test_partial_participation_repeats_itself_and_is_recorded(small_logistic):
    rule = Bernoulli(0.6, seed=4)
    first, second = (run(OwnStep(), small_logistic, 60, participation=rule) for _ in range(2))
    assert_same_history(first, second)
    assert first.took_part.shape == (60, 3)
    assert (first.took_part.sum(axis=1) == first.columns["participants"][:-1]).all()
    assert 0.4 < first.took_part.mean() < 0.8
    other = run(OwnStep(), small_logistic, 60, participation=Bernoulli(0.6, seed=5))
    assert (other.took_part != first.took_part).any()


def test_rescaling_and_dropping_the_missing_share():
    mix, weights, present = np.array([1.0, 2.0, 4.0]), np.array([0.2, 0.3, 0.5]), np.array([True, False, True])
    np.testing.assert_allclose(effective_mix(mix, weights, present, "drop"), [1, 0, 4])
    np.testing.assert_allclose(effective_mix(mix, weights, present, "rescale"), [1 / 0.7, 0, 4 / 0.7])
    nobody = np.zeros(3, bool)
    assert (effective_mix(mix, weights, nobody, "rescale") == 0).all()


def test_dropped_gradients_are_unbiased_up_to_p(small_logistic):
    """Averaged over many rounds, dropping gives p times the full sum."""
    mix = small_logistic.weights
    rule = Bernoulli(0.7, "drop", seed=0)
    mean = np.mean([effective_mix(mix, mix, rule.present(k, 3), "drop") for k in range(4000)], axis=0)
    np.testing.assert_allclose(mean, 0.7 * mix, rtol=0.05)


def test_with_nobody_there_the_iterate_stays(small_logistic):
    class Nobody:
        missing = "rescale"

        def present(self, k, devices):
            return np.zeros(devices, bool)

    history = run(OwnStep(), small_logistic, 5, participation=Nobody())
    assert (history.x == small_logistic.x0()).all()
    assert history.columns["bytes_up"].sum() == 0


CHILD = """
import sys, numpy as np
sys.path.insert(0, sys.argv[1])
from ownstep.engines import Bernoulli, local, saving
from ownstep.methods import OwnStep
from tests.conftest import make_logistic
saving.SECONDS, saving.SHARE = 0.01, 1.0
local.run(OwnStep(), make_logistic(samples=4000), 10**6, checkpoint=sys.argv[2], participation=Bernoulli(0.8))
"""


def test_killed_and_resumed_equals_an_unbroken_run(tmp_path):
    path, root = tmp_path / "run.npz", os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    child = subprocess.Popen([sys.executable, "-c", CHILD, root, str(path)], cwd=root)
    try:
        deadline = time.monotonic() + 60
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(random.Random(os.getpid()).uniform(0.05, 0.4))
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    with np.load(ckpt.there(path)[0]) as file:  # killed between two renames, only the one before is there
        done = len(file["column/value"])
    assert done > 0
    problem, rounds = make_logistic(samples=4000), done + 40
    resumed = run(OwnStep(), problem, rounds, checkpoint=path, participation=Bernoulli(0.8))
    unbroken = run(OwnStep(), problem, rounds, participation=Bernoulli(0.8))
    assert_same_history(resumed, unbroken)


@pytest.mark.parametrize(("call", "at"), [(0, 0), (1, 0), (2, 1), (8, 7)])
def test_ctrl_c_loses_nothing(small_logistic, tmp_path, call, at):
    """The second call is for the first checkpoint: what tells this data from other data."""
    calls = 0
    real = small_logistic.mix

    def interrupting(x, c):
        nonlocal calls
        calls += 1
        if calls == call + 1:
            raise KeyboardInterrupt
        return real(x, c)

    small_logistic.mix = interrupting
    path = tmp_path / "run.npz"
    stopped = run(OwnStep(), small_logistic, 20, checkpoint=path)
    assert stopped.stopped == f"interrupted after {at} rounds"
    assert stopped.rounds == at
    small_logistic.mix = real
    assert_same_history(run(OwnStep(), small_logistic, 20, checkpoint=path), run(OwnStep(), small_logistic, 20))


@pytest.mark.parametrize("where", ["observe", "tell"])
def test_ctrl_c_between_two_rounds_records_none_twice(small_logistic, tmp_path, where):
    """The round was evaluated and written down when the key is pressed, but the method has not moved yet."""

    class Pressed(OwnStep):
        def tell(self, state, answer):
            if where == "tell" and state.k == 4:
                raise KeyboardInterrupt
            return super().tell(state, answer)

    def observe(k, x):
        if where == "observe" and k == 4:
            raise KeyboardInterrupt

    rule, path = Bernoulli(0.7, seed=5), tmp_path / "run.npz"
    stopped = run(Pressed(), small_logistic, 20, participation=rule, observe=observe, checkpoint=path, name="a")
    assert (stopped.stopped, stopped.rounds) == ("interrupted after 4 rounds", 4)
    short = run(OwnStep(), small_logistic, 4, participation=rule)
    for column in ("value", "phase", "step", "participants", "bytes_up", "bytes_down"):
        np.testing.assert_array_equal(stopped.columns[column], short.columns[column], err_msg=column)
    np.testing.assert_array_equal(stopped.took_part, short.took_part)
    with np.load(path) as file:
        assert len(file["column/value"]) == len(file["column/seconds"]) == len(file["column/took_part"]) == 4


def test_a_finished_checkpoint_can_be_extended(small_logistic, tmp_path):
    path = tmp_path / "run.npz"
    run(OwnStep(), small_logistic, 10, checkpoint=path)
    longer = run(OwnStep(), small_logistic, 25, checkpoint=path)
    assert_same_history(longer, run(OwnStep(), small_logistic, 25))


def test_a_checkpoint_of_another_run_is_left_alone(small_logistic, tmp_path):
    path = tmp_path / "run.npz"
    run(OwnStep(), small_logistic, 5, checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(OwnstepError, match="another run .its method differs"):
        run(OwnStep(At(3)), small_logistic, 5, checkpoint=path)
    with pytest.raises(OwnstepError, match="another run .its method differs"):  # whose state has other fields
        run(GD("mean"), small_logistic, 5, checkpoint=path)
    with pytest.raises(OwnstepError, match="its data differs"):
        run(OwnStep(), small_logistic, 5, checkpoint=path, x0=np.ones(small_logistic.dim))
    assert path.read_bytes() == before
    ckpt.previous(path).unlink()
    for damaged in (before[: len(before) // 2], b"garbage", b""):
        path.write_bytes(damaged)
        with pytest.raises(OwnstepError, match="not a readable checkpoint") as refused:
            run(OwnStep(), small_logistic, 5, checkpoint=path)
        assert "pickle" not in str(refused.value)  # NumPy's advice to load it unsafely is not ours


def test_a_checkpoint_of_other_targets_or_of_more_rounds_is_refused(tmp_path):
    """Neither the weights nor the smoothness of least squares know the targets."""
    rng = np.random.default_rng(0)
    rows, targets = rng.standard_normal((20, 3)), rng.standard_normal(20)
    first, second = (LeastSquares(rows, t, partition.given(np.arange(20) % 2)) for t in (targets, -targets))
    path = tmp_path / "run.npz"
    run(OwnStep(), first, 8, checkpoint=path)
    with pytest.raises(OwnstepError, match="its problem differs"):
        run(OwnStep(), second, 8, checkpoint=path)
    with pytest.raises(InvalidInput, match="rounds=5, but the checkpoint .* already has 8"):
        run(OwnStep(), first, 5, checkpoint=path)


def test_a_gradient_tolerance_also_stops_the_local_phase(small_logistic):
    history = run(OwnStep(Never()), small_logistic, 3000, gradient_tolerance=0.1)
    assert history.rounds < 3000
    assert history.gradient_norm[-1] <= 0.1


def test_the_step_is_tuned_under_the_participation_it_is_raced_under(small_logistic, monkeypatch):
    seen = []
    real = tuning.tune_step
    monkeypatch.setattr(tuning, "tune_step", lambda *a, **k: seen.append(k["participation"]) or real(*a, **k))
    rule = Bernoulli(0.5, seed=1)
    compare(small_logistic, {"tuned": GD("tuned")}, 60, participation=rule)
    assert seen == [rule]


def test_an_unwritable_checkpoint_is_an_error_that_names_it(small_logistic, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(OwnstepError, match="cannot write the checkpoint"):
        run(OwnStep(), small_logistic, 2, checkpoint=blocked / "run.npz")


def test_tuning_finds_the_best_step_of_a_quadratic():
    """On a quadratic the best constant step is 2/(L + mu), in the limit of many rounds."""
    problem = make_least_squares(devices=1, mu=0.2)
    hessian = problem.rows(0).T @ problem.rows(0) / problem.counts[0] + 0.2 * np.eye(problem.dim)
    low, high = np.linalg.eigvalsh(hessian)[[0, -1]]
    best = optimum(problem).value
    target = best + 1e-10 * (problem.value(problem.x0()) - best)
    tuned = tune_step(problem, 2000, target=target, coarse=30, fine=30)
    ideal = run(GD(float(2 / (low + high))), problem, 2000, target=target).rounds
    assert run(tuned.method, problem, 2000, target=target).rounds <= 1.1 * ideal + 1
    assert tuned.rounds_spent == sum(rounds for _, rounds, _ in tuned.trials)
    again = tune_step(problem, 2000, target=target, coarse=30, fine=30)
    assert again == tuned


def test_comparison_counts_rounds_to_the_newton_optimum(small_logistic):
    comparison = compare(small_logistic, rounds=2000)
    assert set(comparison.histories) == set(baselines())
    best = optimum(small_logistic).value
    for name, history in comparison.histories.items():
        gaps = (history.value - best) / (history.value[0] - best)
        for tolerance, rounds in zip(comparison.tolerances, comparison.rounds(name), strict=True):
            assert rounds is None or (gaps[rounds] <= tolerance and (gaps[:rounds] > tolerance).all())
    rows = {row["method"]: row for row in comparison.rows()}
    assert rows["GD tuned"]["search_rounds"] > 0
    assert rows["GD tuned"]["rounds"]["1e-06"] <= rows["GD 1/L"]["rounds"]["1e-06"]


def test_an_interrupted_comparison_goes_on(small_logistic, tmp_path, monkeypatch):
    chosen = {"a": OwnStep(), "b": GD("mean")}
    whole = compare(small_logistic, chosen, 60, checkpoint=tmp_path / "whole")
    real, calls = local.Loop.advance, 0

    def interrupting(self):
        nonlocal calls
        calls += 1
        if calls == 9:
            raise KeyboardInterrupt
        real(self)

    with monkeypatch.context() as patched:
        patched.setattr(local.Loop, "advance", interrupting)
        with pytest.raises(KeyboardInterrupt):
            compare(small_logistic, chosen, 60, checkpoint=tmp_path / "broken")
    resumed = compare(small_logistic, chosen, 60, checkpoint=tmp_path / "broken")
    for name in chosen:
        assert_same_history(resumed.histories[name], whole.histories[name])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: run(GD(), p, -1), "rounds must be a whole number of at least 0, got -1"),
        (lambda p: run(GD(), p, 5, seed=-1), "seed must be a whole number of at least 0, got -1"),
        (lambda p: run(GD, p, 5), r"got the class GD: write GD\(\)"),
        (lambda p: run(GD(), object(), 5), "object has no weights"),
        (lambda p: run(GD(), p, 5, devices=[1.0]), "must be an ownstep.Devices, got list"),
        (lambda p: run(GD(), p, 5, participation=0.5), "got 0.5: parse_participation makes one"),
        (lambda p: run(GD(), p, 5, target="low"), "target must be a finite number, got 'low'"),
        (lambda p: run(GD(), p, 5, gradient_tolerance=np.nan), "gradient_tolerance .* got nan"),
        (lambda p: run(GD(), p, 5, x0=np.array([0, 0, np.inf, 0])), "x0 must be finite"),
        (lambda p: run(GD(), p, 5, x0=np.zeros(2)), r"x0 must have shape \(4,\), got \(2,\)"),
        (lambda p: run(GD(), p, 5, smoothness="hessian"), "unknown smoothness 'hessian'"),
        (
            lambda p: run(GD(), p, 5, smoothness=[1.0, 2.0]),
            r"got \[1.0, 2.0\]; constants .* go into devices=",
        ),
        (lambda p: run(GD(), p, 5, gradient_tolerance=-1), "gradient_tolerance must be a finite number >= 0, got -1"),
        (lambda p: run(GD(), p, 5, x0=np.zeros(4) * 1j), "x0 must be real numbers, got an array of complex128"),
        (lambda p: run(GD(), p, 5, checkpoint=5), "checkpoint must be the path of a file, got 5"),
        (lambda p: run(GD(), p, 5, observe=5), "observe must be a function of the round and the point, got 5"),
        (lambda p: run(GD(), p, 5, limits=5), r"limits must be a Limits\(bytes=..., seconds=...\), got 5"),
        (lambda p: Bernoulli(0.0), r"in \(0, 1\], got 0.0"),
        (lambda p: Bernoulli(0.5, "forget"), "'rescale', 'drop', 'last', got 'forget'"),
        (lambda p: compare(p, {}), "at least one method"),
        (lambda p: compare(p, {"a/b": GD(), "a b": OwnStep()}), "would both be kept as 'a-b'"),
        (lambda p: compare(p, optimum=10.0), "already optimal"),
    ],
)
def test_bad_input_is_quoted(small_logistic, call, message):
    with pytest.raises(InvalidInput, match=message):
        call(small_logistic)


def test_a_history_is_called_what_it_was_told_or_by_its_method(small_logistic):
    assert local.run(GD(0.1), small_logistic, 1, name="mine").name == "mine"
    assert local.run(GD(0.1), small_logistic, 1).name == repr(GD(0.1))


def test_a_start_may_be_a_list_of_whole_numbers(small_logistic):
    """Whatever is given is a vector of floats from then on, so checkpoints and other engines can use it."""
    given = [1, 0, -2, 3][: small_logistic.dim]
    ours = run(GD(), small_logistic, 3, x0=given)
    np.testing.assert_array_equal(ours.x, run(GD(), small_logistic, 3, x0=np.array(given, float)).x)
