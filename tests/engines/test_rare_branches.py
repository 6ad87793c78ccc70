"""What engines do where hardly anybody gets: nobody arrives, nothing is known, a start that is the end, odd words."""

from __future__ import annotations

import signal
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from ownstep.engines import (
    Bernoulli,
    Bursts,
    Cohort,
    Comparison,
    Limits,
    Outages,
    Stragglers,
    TimeModel,
    compare,
    describe,
    recommend,
    rehearse,
    run,
)
from ownstep.engines.checkpoint import _digest
from ownstep.engines.limits import local_steps, parse_budget, parse_wire
from ownstep.engines.local.loop import _check_lengths, _close, digest
from ownstep.engines.noise import floor, judge, middle, reseeded
from ownstep.engines.recommend import MOST, Expected, Recommendation, _allowed, shown
from ownstep.engines.saving import ends_well
from ownstep.engines.timing import price
from ownstep.engines.tuning import replayed, scaled, tune
from ownstep.history import COLUMNS, History
from ownstep.methods import GD, LBFGS, METHODS, FedAvg, Newton, Scaffnew, Scaffold
from ownstep.partition import given
from ownstep.plan import Devices
from ownstep.problems import LeastSquares
from ownstep.support.errors import InvalidInput

ROWS = np.random.default_rng(0).standard_normal((30, 4)) * [1, 3, 0.3, 1]


def problem(n: int = 30, mu: float = 0.1) -> LeastSquares:
    return LeastSquares(ROWS[:n], ROWS[:n] @ [1.0, -1, 2, 0.5] + 1, given([0, 0, 1] * (n // 3)), mu=mu)


def history(value, **columns) -> History:
    made = {c: np.zeros(len(value)) for c in COLUMNS} | {"value": np.array(value, float)} | columns
    return History("h", made, np.zeros(1), np.zeros(1), "done", settings={"devices": 2})


# --- recommending -----------------------------------------------------------------------------------------------------


def row(name: str, exchanges: int | None, seconds: float | None = None) -> Expected:
    return Expected(name, name, exchanges, None if exchanges is None else 800.0, seconds, "sums")


def test_a_recommendation_names_what_arrived_and_nothing_else():
    def made(*rows, sampled=500):
        return Recommendation(rows, "home", 1e-6, 0.0, sampled, 2000, 3, 10)

    nobody = made(row("a", None), row("b", None))
    assert (nobody.best, nobody.runner_up) == (None, None)
    assert str(nobody) == (
        f"No candidate arrived within {MOST} exchanges (rehearsed on 500 of the 2,000 rows, "
        "to a relative gap of 1e-06, over the home network)."
    )
    assert (nobody.to_dict()["use"], nobody.to_dict()["runner_up"]) == (None, None)
    one = made(row("a", 7, 1.5), row("b", None), sampled=2000)
    assert (one.best.method, one.runner_up) == ("a", None)
    assert str(one) == (
        "Use a: about 7 exchanges, 800 bytes per device and 1.5 s (rehearsed on all rows, to a relative gap of 1e-06, "
        "over the home network)."
    )
    two = made(row("a", 7, 1.5), row("b", 9, 2.0))
    assert str(two).endswith(" Next: b, 9 exchanges and 2 s.")
    assert (two.to_dict()["use"], two.to_dict()["runner_up"]) == ("a", "b")


def test_what_cannot_be_rehearsed_is_said():
    done = LeastSquares(ROWS, np.zeros(30), mu=0.1)
    with pytest.raises(InvalidInput, match="the start is already optimal"):
        rehearse(done, [TimeModel()])
    assert recommend(problem(), "wan").best is not None


def test_who_needs_everyone_is_left_out_where_some_are_absent():
    found = rehearse(problem(), [TimeModel()], absent=0.3, tolerance=1e-2)
    kept = {name for name, why in found.notes.items() if why == "needs every device in every exchange"}
    from ownstep.engines import candidates

    assert kept == {n for n, m in candidates().items() if getattr(m, "needs_everyone", False)}
    assert rehearse(problem(), [TimeModel()], tolerance=1e-2).notes.keys().isdisjoint(kept)


def test_a_hessian_is_sent_up_to_so_many_coordinates():
    quick = run(GD(), problem(), 2)
    assert _allowed(Newton(), 1000, [TimeModel()], [])[1] == ""
    from ownstep.engines.recommend import MOST_COORDINATES

    wire = TimeModel(up=1e300, down=1e300, latency=1e-9, compute=1.0)
    assert _allowed(Newton(), MOST_COORDINATES, [wire], [quick]) == (MOST, "")
    assert "too large to send" in _allowed(Newton(), MOST_COORDINATES + 1, [wire], [quick])[1]


def test_what_a_server_sees_of_methods_that_send_two_vectors():
    for method in (Scaffold(), Scaffnew(p=0.5)):
        assert shown(method, [0.3, 0.7]) == "every device's own vector"
    assert shown(METHODS["own_step"](smoothness="adaptive"), [0.3, 0.7]) == "every device's own vector"
    assert shown(GD(), [0.3, 0.7]) == "sums over all devices, and every device's L"


# --- comparing and tuning ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs", "ratio", "word"),
    [
        ([0], [0], 1.0, "no difference"), ([0], [5], np.inf, "faster"), ([5], [0], 0.0, "slower"),
        ([0], [1], np.inf, "no difference"),
    ],
)  # fmt: skip
def test_a_start_that_is_near_enough_takes_no_rounds(ours, theirs, ratio, word):
    assert judge(ours, theirs, 1.0) == (ratio, word)


def test_noise_of_nothing_is_none():
    assert floor({"a": [], "b": [None, 3], "c": [4, 4]}) == 1.0
    assert floor({"a": [0, 3]}) == 3.0
    assert middle([None, 3, 4]) == 4
    assert reseeded(7, 1) == 7
    assert reseeded(GD, 1) is GD


def test_a_comparison_s_table_of_runs_without_rounds():
    columns = {"step": np.array([np.nan]), "bytes_up": np.array([5]), "bytes_down": np.array([7])}
    made = Comparison({"a": history([3.0], **columns), "b": history([3.0, 1.0])}, describe(problem()), 0.0)
    rows = made.rows()
    assert (rows[0]["step"], rows[1]["step"]) == (None, 0.0)
    assert [r["key"] for r in rows] == ["a", "b"]
    assert made.costs()["a"]["bytes_a_round"] == 12.0
    with pytest.raises(InvalidInput, match="unknown method of this comparison 'c'"):
        made.verdicts("c")
    with pytest.raises(InvalidInput, match="unknown method of this comparison 'c'"):
        made.rounds("c")
    assert "histories" not in made.to_dict()
    assert set(made.to_dict(series=True)["histories"]) == {"a", "b"}


def test_a_comparison_begins_where_it_is_told():
    x0 = np.array([5.0, -5.0, 5.0, 5.0])
    found = compare(problem(), {"gd": GD()}, 3, x0=x0)
    assert found.histories["gd"].value[0] == problem().value(x0)
    best = problem()
    with pytest.raises(InvalidInput, match="the start is already optimal"):
        compare(best, {"gd": GD()}, 3, x0=x0, optimum=best.value(x0))
    with pytest.raises(InvalidInput, match="at least one tolerance"):
        compare(best, {"gd": GD()}, 3, tolerances=())


def test_a_search_counts_runs_that_end_in_no_number_as_worst():
    values = {"GD(step=1.0)": [4.0, np.nan], "GD(step=2.0)": [4.0, 3.5], "GD(step=4.0)": [np.nan, np.nan]}
    found = tune(GD(), problem(), 1, grid={"step": (1.0, 2.0, 4.0)}, engine=replayed(values))
    assert found.method == GD(2.0)
    assert [best for _, _, best in sorted(found.trials)] == [4.0, 3.5, np.inf]
    for budget in (0, -1):
        with pytest.raises(InvalidInput, match="a budget of at least 1"):
            tune(GD(), problem(), 1, grid={"step": (1.0,)}, budget=budget)
    assert len(tune(GD(), problem(), 1, grid={"step": (1.0, 2.0)}, budget=1, engine=replayed(values)).trials) == 1


@pytest.mark.parametrize("pooled", [None, 6.0])
def test_scaled_devices_keep_all_else(pooled):
    devices = Devices(np.array([0.25, 0.75]), np.array([4.0, 8.0]), np.array([1.0, 3.0]), ("a", "b"), pooled)
    found = scaled(devices, 4.0)
    assert (found.L.tolist(), found.mu.tolist()) == ([1.0, 2.0], [1.0, 2.0])
    assert (found.weights.tolist(), found.names) == ([0.25, 0.75], ("a", "b"))
    assert found.L_pooled == (None if pooled is None else 1.5)


# --- limits, times, checkpoints ---------------------------------------------------------------------------------------


def test_units_of_budgets():
    sizes = {"": 1.0, "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
    for unit, size in sizes.items():
        assert parse_budget(f"bytes:3{unit}") == Limits(bytes=3 * size)
    assert parse_budget("seconds:3s") == parse_budget("seconds:3") == Limits(seconds=3.0)
    for text, why in (("seconds:3min", "unit 'min'; seconds have none"), ("bytes:x", "it needs a number")):
        with pytest.raises(InvalidInput, match=why):
            parse_budget(text)
    with pytest.raises(InvalidInput, match="a budget of seconds is positive"):
        parse_budget("seconds:0")
    with pytest.raises(InvalidInput, match=r"^latency"):
        parse_wire("-1:5")


@pytest.mark.parametrize(("method", "steps"), [(GD(), 1), (FedAvg(local_steps=3), 3), (FedAvg(local_steps=1), 1)])
def test_local_steps_of_a_round(method, steps):
    loop = SimpleNamespace(method=method, state=method.start(np.zeros(4), describe(problem()).devices), notes={})
    assert local_steps(loop, 0) == steps
    loop.notes = {"local_steps": [7, 8]}
    assert [local_steps(loop, k) for k in range(3)] == [7, 8, steps]


def test_methods_that_never_arrive_have_no_price():
    seen = {"bytes_up": np.array([10, 10, 10]), "bytes_down": np.array([1, 1, 1])}
    runs = {"far": history([5.0, 4.9, 4.8], **seen), "near": history([5.0, 1.0, 0.5], **seen)}
    found = price(runs, 0.0, 0.3, TimeModel(0.0, 100.0, 100.0, 0.0), [50, 50], "near", 0.5)
    assert [r["rounds"] for r in found] == [None, 1, 1]
    assert [r["bytes"] for r in found] == [None, 11, 100]
    assert found[0]["seconds"] is None
    never = price(runs, 0.0, 1e-9, TimeModel(0.0, 100.0, 100.0, 0.0), [50, 50], "near", 0.5)
    assert [r["seconds"] for r in never] == [None] * 3
    with pytest.raises(InvalidInput, match="one size of at least 0"):
        TimeModel().moving([[1.0, 2.0]])
    with pytest.raises(InvalidInput, match="one size of at least 0"):
        TimeModel().moving([-1.0])


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1.0] * 5 + [9.0] * 20, "diverged: all 24 rounds done"),
        ([1.0] * 5 + [2.0] * 20, "all 24 rounds done"),  # not more than twice its start
        ([0.0] * 5 + [9.0] * 20, "all 24 rounds done"),  # a start at zero has no scale
        ([1.0] * 19 + [9.0] * 6, "diverged: all 24 rounds done"),  # most of the last ten
        ([1.0] * 21 + [9.0] * 4, "all 24 rounds done"),
        ([1.0] * 190 + [9.0] * 11, "diverged: all 200 rounds done"),  # most of the last tenth
        ([1.0] * 192 + [9.0] * 9, "all 200 rounds done"),
        ([1.0] + [9.0] * 10, "diverged: all 10 rounds done"),
        ([1.0] + [9.0] * 9, "all 9 rounds done"),  # too few to judge
    ],
)
def test_a_run_that_ends_far_above_its_start_has_diverged(values, said):
    assert told(values, len(values) - 1).startswith(said)


def told(values, rounds, method=None) -> str:
    """How a run ends whose losses are made up; its gradients are sound."""

    class Told(LeastSquares):
        k = 0

        def mix(self, x, c):
            losses, total = super().mix(x, c)
            told = np.full_like(losses, values[min(Told.k, len(values) - 1)])
            Told.k += 1
            return told, total

    made, devices = Told(ROWS, ROWS[:, 0], mu=0.1), Devices(np.ones(1), np.array([9.0]))
    return run(GD(1e-3) if method is None else method, made, rounds, devices=devices).stopped


@pytest.mark.parametrize("first", [0.0, 0.5, -0.5, 3.0, -3.0])
@pytest.mark.parametrize("share", [1 - 1e-6, 1.0, 1 + 1e-6])
def test_a_run_has_diverged_beyond_ten_thousand_times_its_start(first, share):
    """Counted from the start, and at least ten thousand; a method that comes back by itself is let go on."""
    values = [first, first + share * 1e4 * max(1.0, abs(first))]
    assert told(values, 5).startswith("diverged: f(x) rose from" if share > 1 else "all 5 rounds done")
    assert told(values, 5, LBFGS()).startswith("all 5 rounds done")


@pytest.mark.parametrize(
    ("values", "rounds", "method", "said"),
    [
        ([1.0, np.inf, 0.9], 5, LBFGS(), "all 5 rounds done"),  # a trial that was too far is taken back
        ([1.0, np.inf], 1, LBFGS(), "f(x) is inf at round 1"),  # the last one is not
        ([1.0, np.nan, 0.9], 5, LBFGS(), "all 5 rounds done"),
        ([np.inf, 1.0], 5, LBFGS(), "f(x) is inf at round 0"),  # there is nothing to go back to
        ([1.0, np.inf, 0.9], 5, GD(1e-3), "f(x) is inf at round 1"),
        ([1.0, np.nan, 0.9], 5, GD(1e-3), "f(x) is nan at round 1"),
    ],
)
def test_a_loss_that_is_no_number_ends_a_run_unless_a_search_can_go_back(values, rounds, method, said):
    assert told(values, rounds, method).startswith(said)


def test_a_checkpoint_has_one_entry_per_round():
    good = {c: np.zeros(3) for c in COLUMNS} | {"took_part": np.zeros((3, 2))}
    _check_lengths(3, good)
    _check_lengths(3, good | {"took_part": np.zeros((0, 2))})
    for k, arrays, why in (
        (-1, good, "of round -1"), (3.0, good, "of round 3.0"),
        (3, good | {"took_part": np.zeros((2, 2))}, "of round 3"),
        (3, good | {"value": np.zeros(4)}, r"its value has shape \(4,\)"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=why):
            _check_lengths(k, arrays)
    _check_lengths(0, {c: np.zeros(0) for c in COLUMNS} | {"took_part": np.zeros((0, 2))})
    assert _close([1.0, 2.0], [1.0, 2.0 + 1e-5])
    assert not _close([1.0, 2.0], [1.0, 2.1])
    assert not _close([1.0], [1.0, 1.0])
    assert digest(np.arange(3.0), np.ones(2)) == digest(np.arange(3.0), np.ones(2)) != digest(np.arange(3.0))


def test_a_log_and_a_checkpoint_leave_nothing_out(tmp_path):
    from ownstep.support.logs import RoundLog

    seen = []

    class Listening(RoundLog):
        def round(self, run, k, row, absent, sites):
            seen.append((run, k, dict(absent), sites))

    run(GD(0.01), problem(), 3, participation=Outages(((1, 1, 2),)), name="mine", log=Listening())
    assert seen == [("mine", 0, {}, 2), ("mine", 1, {"D2": ""}, 2), ("mine", 2, {}, 2), ("mine", 3, {}, 2)]
    first = run(GD(0.01), problem(), 3, checkpoint=tmp_path / "c.npz")
    with pytest.raises(InvalidInput, match="already has 3"):
        run(GD(0.01), problem(), 2, checkpoint=tmp_path / "c.npz")
    np.testing.assert_array_equal(run(GD(0.01), problem(), 3, checkpoint=tmp_path / "c.npz").x, first.x)


def test_signals_of_others_are_left_alone():
    before = signal.getsignal(signal.SIGTERM)

    def inside(active: bool):
        with ends_well(active) as ending, ending.interruptible():
            return signal.getsignal(signal.SIGTERM)

    assert inside(False) is before
    assert inside(True) is not before
    assert signal.getsignal(signal.SIGTERM) is before
    elsewhere = []
    thread = threading.Thread(target=lambda: elsewhere.append(inside(True)))
    thread.start()
    thread.join()
    assert elsewhere == [before]  # only the main thread may change them
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        assert inside(True) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    "make",
    [
        lambda missing: Bernoulli(0.5, missing), lambda missing: Cohort(2, missing),
        lambda missing: Bursts(0.2, 0.5, missing), lambda missing: Stragglers(1.0, 2.0, missing),
        lambda missing: Outages(((0, 1, None),), missing=missing),
    ],
)  # fmt: skip
def test_every_rule_of_participation_knows_what_to_do_with_the_missing(make):
    for known in ("rescale", "drop", "last"):
        assert make(known).missing == known
    with pytest.raises(InvalidInput, match="missing must be .*, got 'sometimes'"):
        make("sometimes")


def test_a_digest_is_of_every_tensor_name_and_shape():
    """What a checkpoint's safetensors file is known by."""
    one = {"a": np.arange(4.0), "b": np.ones(2)}
    others = [
        {"a": np.arange(4.0), "b": np.zeros(2)}, {"a": np.arange(4.0), "c": np.ones(2)}, {"a": np.arange(4.0)},
        {"a": np.arange(4.0).reshape(2, 2), "b": np.ones(2)}, {"a": np.arange(4.0), "b": np.ones(2, np.float32)},
    ]  # fmt: skip
    assert len({digest(*tensors.values()) for tensors in [one, others[0], others[2]]}) == 3
    found = {_digest("header", tensors) for tensors in [one, *others]} | {_digest("other", one)}
    assert len(found) == 7
    assert _digest("header", dict(reversed(one.items()))) in found  # in whatever order they lie
