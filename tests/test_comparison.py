"""What a comparison's rows say: keys, exchanges, bytes, seconds."""

from __future__ import annotations

import statistics
import sys

import numpy as np
import pytest

from ownstep.engines import Bernoulli, Comparison, Limits, baselines, beyond, compare, describe, run
from ownstep.engines.compare import searched
from ownstep.history import COLUMNS, History
from ownstep.methods import GD, LBFGS, METHODS, At, FedAdam, FedAvg, Newton, OwnCurvature, OwnStep, Scaffold, key_of
from ownstep.plan import Devices, Plan

from .conftest import make_logistic


def test_keys_name_what_is_not_default():
    assert key_of(GD(), METHODS) == "gd:mean"
    assert key_of(GD("matched"), METHODS) == "gd:matched"
    assert key_of(LBFGS(), METHODS) == "lbfgs"
    assert key_of(LBFGS(3), METHODS) == "lbfgs:3"
    assert key_of(FedAvg(server_step=float("1")), METHODS) == "fedavg"  # the default, as another object
    assert key_of(OwnStep(smoothness="adaptive"), METHODS) == "own_step:adaptive"
    assert key_of(OwnStep(At(3), momentum="item"), METHODS) == "own_step:switch=At(rounds=3),momentum=item"


def test_rows_have_unique_keys_exchanges_and_bytes():
    problem = make_logistic()
    found = compare(problem, baselines() | beyond() | {"again": LBFGS(), "Newton": Newton()}, 200)
    rows = found.rows()
    keys = [row["key"] for row in rows]
    assert len(set(keys)) == len(keys)
    assert {"gd:matched", "gd:tuned", "lbfgs", "lbfgs#2", "newton", "own_step", "own_step:adaptive"} <= set(keys)
    for row in rows:
        history = found.histories[row["method"]]
        k = row["rounds"]["0.01"]
        assert row["exchanges"]["0.01"] == k
        assert row["seconds"]["0.01"] == pytest.approx(history.columns["seconds"][: k + 1].sum())
    by_key = {row["key"]: row for row in rows}
    each = 2 * (problem.dim * 8 + 8)
    assert by_key["lbfgs"]["bytes"]["0.01"] == by_key["lbfgs"]["rounds"]["0.01"] * each
    triangle = 8 * problem.dim * (problem.dim + 1) // 2
    assert by_key["newton"]["bytes"]["0.01"] == by_key["newton"]["rounds"]["0.01"] * (each + triangle)


def test_the_seed_of_a_search_decides_what_it_tries():
    """For a step that is tuned and for a method with settings of its own."""
    problem = make_logistic()
    devices = describe(problem).devices
    for method in (GD("tuned"), FedAdam()):
        tried = [searched(method, problem, 5, 9, devices, 0.0, seed)[2]["tuning"]["trials"] for seed in (0, 0, 1)]
        assert tried[0] == tried[1] != tried[2]


def test_a_search_leaves_alone_what_needs_no_constant_and_scales_the_rest():
    problem = make_logistic()
    devices = describe(problem).devices
    method, same, spent = searched(LBFGS(), problem, 5, 9, devices, 0.0, 0)
    assert (method, same, spent) == (LBFGS(), devices, {})
    method, scaled, spent = searched(OwnStep(), problem, 5, 9, devices, 0.0, 0)
    assert method == OwnStep()
    assert len(spent["tuning"]["trials"]) == 9
    np.testing.assert_allclose(scaled.L * spent["tuning"]["scale"], devices.L)
    assert spent["tuning"]["scale"] != 1


def test_faster_is_said_of_the_first_where_it_needs_fewer_rounds():
    problem = make_logistic()
    L = describe(problem).devices.L_pooled
    found = compare(problem, {"long": GD(1 / L), "short": GD(0.25 / L)}, 2000, tolerances=(1e-1, 1e-3))
    for tolerance in ("0.1", "0.001"):
        a, b = (row["rounds"][tolerance] for row in found.rows())
        assert a + 1 < b
        assert found.verdicts()["short"][tolerance] == {"ratio": b / a, "verdict": "faster", "floor": 1.0}
        assert found.verdicts("short")["long"][tolerance] == {"ratio": a / b, "verdict": "slower", "floor": 1.0}


def test_what_a_round_costs():
    """Three devices, a gradient and a loss up, a point and a number down; for SCAFFOLD two vectors down."""
    problem = make_logistic()
    found = compare(problem, {"GD": GD(), "SCAFFOLD": Scaffold()}, 7, full=True, optimum=0.0)
    d = problem.dim
    costs = found.costs()
    assert costs["GD"]["bytes_a_round"] == 3 * 2 * (8 * d + 8)
    assert costs["SCAFFOLD"]["bytes_a_round"] == 3 * (8 * d + 8) + 3 * (16 * d + 8)
    for name, history in found.histories.items():
        assert history.rounds == 7
        assert costs[name]["seconds_a_round"] == statistics.median(history.columns["seconds"])


def arriving(rounds):
    """A history that is half-way in so many rounds, of 200."""
    columns = {c: np.zeros(201) for c in COLUMNS} | {"value": np.where(np.arange(201) < rounds, 1.0, 0.4)}
    return History("h", columns, np.zeros(1), np.zeros(1), "done")


def test_the_noise_of_a_third_method_does_not_blur_the_first_two():
    runs = {"ours": (10, 11), "theirs": (20, 20), "noisy": (10, 100)}
    first, again = ({name: arriving(counts[i]) for name, counts in runs.items()} for i in (0, 1))
    plan = Plan(Devices.uniform([1.0, 3.0]))
    found = Comparison(first, plan, 0.0, (0.5,), {name: (history,) for name, history in again.items()}).verdicts()
    assert found["theirs"]["0.5"] == {"ratio": 20 / 10.5, "verdict": "faster", "floor": 1.1}
    assert found["noisy"]["0.5"] == {"ratio": 55 / 10.5, "verdict": "no difference", "floor": 10.0}


def test_every_rerun_has_other_absences():
    problem, rule = make_logistic(), Bernoulli(0.5, seed=3)
    found = compare(problem, {"GD": GD()}, 9, participation=rule, reruns=2, full=True, optimum=0.0)
    for more, history in enumerate((found.histories["GD"], *found.reruns["GD"])):
        drawn = [Bernoulli(0.5, seed=3 + more).present(k, 3) for k in range(9)]
        np.testing.assert_array_equal(history.took_part, drawn)
    counts = [h.rounds_to(found.tolerances[0], 0.0) for h in (found.histories["GD"], *found.reruns["GD"])]
    (row,) = found.rows()
    key = f"{found.tolerances[0]:g}"
    assert (row["rounds"][key], row["rounds_of_reruns"][key]) == (counts[0], counts[1:])
    assert len(counts) == 3


@pytest.mark.parametrize(("full", "tune"), [(False, None), (True, 4)])
def test_every_run_and_search_is_given_what_the_comparison_was(full, tune, tmp_path, monkeypatch):
    """What differs between reruns: the seeds, and the file."""
    problem, asked, sought, x0 = make_logistic(), [], [], np.full(make_logistic().dim, 0.3)

    def search(method, problem, rounds, budget, devices, goal, seed, **options):
        sought.append((method, problem, rounds, budget, goal, seed, options["participation"], options["engine"]))
        np.testing.assert_array_equal(options["x0"], x0)
        return method, devices, {"tuning": len(sought)}

    monkeypatch.setattr(sys.modules[searched.__module__], "searched", search)

    def engine(method, problem, rounds, **options):
        asked.append(options | {"method": method, "problem": problem, "rounds": rounds})
        return run(method, problem, rounds, **options)

    limits, made = Limits(seconds=1e9), describe(problem, "trace")
    methods = {"GD": GD(), "By chance": OwnCurvature(2, seed=20)}
    best, start = 0.1, problem.value(x0)
    found = compare(
        problem, methods, 3, smoothness="trace", optimum=best, x0=x0, participation=Bernoulli(0.5, seed=5), full=full,
        tolerances=(0.1, 0.01), seed=11, checkpoint=tmp_path, progress=False, measure_gradient=True, engine=engine,
        tune=tune, reruns=2, limits=limits,
    )  # fmt: skip
    assert len(asked) == 6
    goal = best + 0.01 * (start - best)
    for at, given in enumerate(asked):
        name, more = list(methods)[at // 3], at % 3
        file = ("gd" if name == "GD" else "by-chance") + (f"--rerun-{more}" if more else "")
        np.testing.assert_array_equal(given.pop("devices").L, made.devices.L)
        np.testing.assert_array_equal(given.pop("x0"), x0)
        method, rule = GD() if name == "GD" else OwnCurvature(2, seed=20 + more), Bernoulli(0.5, seed=5 + more)
        if tune is not None:
            assert sought[at] == (method, problem, 3, tune, goal, 11 + more, rule, engine)
            history = found.histories[name] if not more else found.reruns[name][more - 1]
            assert history.settings["tuning"] == at + 1
        assert given == {
            "method": method, "problem": problem, "rounds": 3, "participation": rule,
            "target": None if full else goal, "search_target": goal, "name": name, "measure_gradient": True,
            "seed": 11 + more, "progress": False, "limits": limits, "checkpoint": tmp_path / f"{file}.ckpt.npz",
        }  # fmt: skip
    assert [len(runs) for runs in found.reruns.values()] == [2, 2]
    assert not list(tmp_path.iterdir())  # nothing is left to go on from


def test_seven_tenths_of_a_search_for_a_step_are_spread_over_the_octaves():
    """Ten trials: one from each of seven octaves, then three between the best and its neighbours."""
    problem = make_logistic()
    devices = describe(problem).devices
    trials = searched(GD("tuned"), problem, 3, 10, devices, 0.0, 2)[2]["tuning"]["trials"]
    octaves = [np.log2(trial["step"] * devices.L_pooled) for trial in trials]
    assert sorted(np.floor(octaves[:7])) == [-1, 0, 1, 2, 3, 4, 5]
    assert len(octaves) == 10
    for n in range(7, 10):
        before = sorted(octaves[:n])
        at = before.index(octaves[int(np.argmin([trial["best_value"] for trial in trials[:n]]))])
        assert before[max(at - 1, 0)] <= octaves[n] <= before[min(at + 1, n - 1)]


def test_three_tolerances_unless_told():
    problem = make_logistic()
    rows = compare(problem, {"GD": GD()}, rounds=2).rows()
    assert list(rows[0]["rounds"]) == ["0.01", "0.0001", "1e-06"]
