"""Budgets as users have them, patience, and what may be called a difference."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("flwr")

from ownstep.engines import (
    Bernoulli,
    Cohort,
    Limits,
    Outages,
    TimeModel,
    compare,
    parse_budget,
    parse_wire,
    rivals,
    run,
)
from ownstep.engines.federation import coordinator as fed
from ownstep.engines.noise import floor, judge, reseeded
from ownstep.engines.tuning import tune_scale
from ownstep.methods import (
    GD,
    METHODS,
    NIDS,
    At,
    FedAvg,
    FedDyn,
    FedLin,
    FedNova,
    OwnStep,
    Scaffnew,
    key_of,
    method_of,
    methods_of,
    parse_switch,
)
from ownstep.support.errors import InvalidInput

from ..conftest import make_least_squares
from ..test_cli import call
from .federation_grid import DirectGrid, apps_of


def traffic(history):
    return int((history.columns["bytes_up"] + history.columns["bytes_down"]).sum())


@pytest.mark.parametrize("method", [GD("mean"), FedDyn(), NIDS()], ids=lambda m: type(m).__name__)
def test_a_budget_of_bytes_is_used_to_the_last_round_that_fits(method, small_logistic):
    """The same iterates as without it; one more round would have cost too much."""
    whole = run(method, small_logistic, 40)
    a_round = traffic(whole) // 40
    for budget, fits in ((10 * a_round, 10), (10 * a_round - 1, 9), (0.5 * a_round, 0)):
        cut = run(method, small_logistic, 40, limits=Limits(bytes=budget))
        assert cut.rounds == fits
        assert traffic(cut) == fits * a_round
        np.testing.assert_array_equal(cut.value, whole.value[: fits + 1])
        assert cut.stopped.startswith("out of budget: ")
        assert f"spent after {fits} rounds" in cut.stopped


@pytest.mark.parametrize("rule", [None, Bernoulli(0.6, seed=2)])
@pytest.mark.parametrize("method", [FedNova(), Scaffnew(p=0.3), FedAvg(local_steps=4)], ids=lambda m: type(m).__name__)
def test_a_budget_of_seconds_is_that_of_the_time_model(method, rule, small_logistic, tmp_path):
    if rule is not None and isinstance(method, Scaffnew):
        return
    wire = TimeModel(0.05, 1e4, 1e5, [0.01, 0.02, 0.5], deadline=0.4)
    seconds = wire.seconds(run(method, small_logistic, 30, participation=rule))
    for k in (7, 19):
        exact, short = Limits(seconds=float(seconds[k]) + 1e-9, wire=wire), Limits(seconds=seconds[k] - 1e-6, wire=wire)
        assert run(method, small_logistic, 30, participation=rule, limits=exact).rounds == k
        cut = run(method, small_logistic, 30, participation=rule, limits=short)
        assert (cut.rounds, "over this network" in cut.stopped) == (k - 1, True)
    path = tmp_path / "half.npz"  # a resumed run has spent what the first part of it spent
    run(method, small_logistic, 5, participation=rule, checkpoint=path)
    assert run(method, small_logistic, 30, participation=rule, checkpoint=path, limits=exact).rounds == 19


def test_random_local_steps_are_priced_round_by_round(small_logistic):
    history = run(Scaffnew(p=0.3, seed=1), small_logistic, 20)
    steps = np.array(history.settings["local_steps_by_round"])
    assert len(set(steps.tolist())) > 3
    model = TimeModel(latency=0.0, up=1e30, down=1e30, compute=2.0)
    np.testing.assert_allclose(np.diff(model.seconds(history)), 2.0 * steps)
    two = run(FedLin(local_steps=(4, 1, 6)), small_logistic, 6)  # a gradient, then local steps, as the slowest device
    own = TimeModel(latency=0.0, up=1e30, down=1e30, compute=[2.0, 1.0, 1.0])
    np.testing.assert_allclose(np.diff(own.seconds(two)), [2.0, 8.0] * 3)
    cut = run(FedLin(local_steps=(4, 1, 6)), small_logistic, 6, limits=Limits(seconds=19.0, wire=own))
    assert cut.rounds == 3


def test_patience_ends_a_run_that_no_longer_gains():
    problem = make_least_squares()
    history = run(FedAvg(local_steps=6), problem, 4000, limits=Limits(patience=25))
    assert history.stopped.startswith("no progress: the best f, ")
    assert 25 < history.rounds < 1000
    gained = history.value[0] - history.best_value
    assert history.value[:-25].min() - history.best_value <= 1e-9 * gained
    assert run(GD("true"), problem, 30, limits=Limits(patience=25)).stopped == "all 30 rounds done"


@pytest.mark.parametrize("patience", [1, 2, 3, 4])
def test_patience_is_counted_from_the_round_of_the_best(patience):
    values = [9.0, 5.0, 3.0, 3.5, 2.0, 2.5, 2.1, 2.0, 2.4, 2.3]
    best, stood, last = np.inf, 0, None
    for k, value in enumerate(values):  # what the words say: so many rounds in a row without a new best
        best, stood = (value, 0) if value < best else (best, stood + 1)
        if stood == patience:
            last = k
            break
    loop = fake_loop(values)
    ends = [loop.k for loop.k in range(len(values)) if Limits(patience=patience).exceeded(loop)]
    assert ends[0] == last == {1: 3, 2: 6, 3: 7, 4: 8}[patience]


def fake_loop(values):
    columns = {"value": values, "bytes_up": [3] * len(values), "bytes_down": [4] * len(values)}
    return SimpleNamespace(k=0, columns=columns, sums={"bytes": [0.0], "seconds": [0.0], "lowest": [np.inf]})


def test_what_was_spent_is_not_added_up_anew_in_every_round():
    """A budget of 50 MB can be 60,000 rounds of a small problem: each is read once, or the sums take minutes."""
    reads = 0

    class Column(list):
        def __getitem__(self, i):
            nonlocal reads
            reads += 1
            return super().__getitem__(i)

        def __iter__(self):
            return (self[i] for i in range(len(self)))

    loop = fake_loop([1.0 / (k + 1) for k in range(200)])
    loop.columns = {name: Column(column) for name, column in loop.columns.items()}
    limits = Limits(bytes=7 * 150, patience=20)
    ends = [loop.k for loop.k in range(200) if limits.exceeded(loop)]
    assert ends[0] == 150
    assert reads <= 4 * 200


def test_the_server_s_own_step_counts_as_seconds_too():
    """It is made after the round was looked at, and added to the round's seconds then."""
    loop = fake_loop([3.0, 2.0, 1.0])
    loop.columns["seconds"] = [1.0, 1.0, 1.0]
    assert Limits(seconds=6.5).exceeded(loop) == ""
    loop.columns["seconds"][0] += 5.0
    loop.k = 1
    assert Limits(seconds=6.5).exceeded(loop) == "out of budget: 6 of 6.5 s spent after 1 rounds"


def test_a_run_that_still_falls_a_little_is_not_said_to_stand():
    """f falls by 1e-12 a round: less than 1e-9 of what was gained, and not nothing."""
    loop = fake_loop([2.0, 1.0, *(1.0 - 1e-12 * j for j in range(1, 9))])
    loop.k = 9
    said = Limits(patience=5).exceeded(loop)
    assert said.endswith("has fallen by 5e-12 in 5 rounds, less than 1e-09 of what was gained")
    assert Limits(patience=3).exceeded(fake_loop([2.0, 1.0])) == ""
    still = fake_loop([2.0, 1.0, 1.0, 1.0])
    still.k = 3
    assert Limits(patience=2).exceeded(still) == "no progress: the best f, 1, has stood for 2 rounds"


def test_a_federation_keeps_to_its_budget(small_logistic):
    limits = parse_budget("seconds:3", parse_wire("0.1:1e5"))
    local = run(FedAvg(local_steps=4), small_logistic, 50, limits=limits)
    ours = fed.run(FedAvg(local_steps=4), DirectGrid(apps_of(small_logistic)), 50, fed.Terms(3), limits=limits)
    assert ours.rounds == local.rounds == int(3 / (0.2 + 4 * 0.01 + 2 * 8 * (small_logistic.dim + 1) / 1e5))
    np.testing.assert_allclose(ours.x, local.x, atol=1e-12)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("bytes:50MB", Limits(bytes=50e6)),
        ("bytes:1.5GB", Limits(bytes=1.5e9)),
        ("bytes:1e3", Limits(bytes=1000)),
        ("seconds:600", Limits(seconds=600)),
    ],
)
def test_budgets_are_read(text, found):
    assert parse_budget(text) == found
    assert parse_budget(text, patience=7) == dataclasses.replace(found, patience=7)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: parse_budget("bytes:50QB"), "unit 'QB'"),
        (lambda: parse_budget("bytes"), "'bytes' cannot be read: write what is limited and a number"),
        (lambda: parse_budget("50MB"), "'50MB' cannot be read: write what is limited and a number"),
        (lambda: parse_budget("bytes:"), "'bytes:' cannot be read: it needs a number"),
        (lambda: parse_budget("bytes:-3MB"), "a budget of bytes is positive and finite, got -3000000.0"),
        (lambda: parse_budget("bytes:0"), "a budget of bytes is positive and finite, got 0.0"),
        (lambda: parse_budget("rounds:5"), "unknown budget 'rounds'"),
        (lambda: parse_wire("moon"), "unknown wire 'moon'"),
        (lambda: parse_wire("0.1:slow"), "wire '0.1:slow' cannot be read"),
        (lambda: Limits(bytes=5, wire=TimeModel()), "give a budget of seconds with it"),
        (lambda: Limits(patience=0), "patience must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_limits_are_quoted(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


def test_differences_below_the_noise_floor_are_called_none():
    assert floor({"a": [10, 13, 11], "b": [40, 40, 40], "never": [None, 3, 4]}) == 1.3
    assert floor({}) == floor({"a": [7]}) == 1.0
    assert judge([10, 13, 11], [12, 14, 13], 1.3) == (13 / 11, "no difference")
    assert judge([10, 13, 11], [22, 20, 21], 1.3) == (21 / 11, "faster")
    assert judge([22, 20, 21], [10, 13, 11], 1.3)[1] == "slower"
    assert judge([5], [6], 1.0)[1] == "no difference"
    assert judge([None, None, 9], [4, 4, 4], 1.0) == (None, "only theirs arrives")
    assert judge([4], [None], 1.0)[1] == "only ours arrives"
    assert judge([4, 4], [None, 3], 1.0) == (None, "in half of the runs")
    assert judge([None, 5, None, 4], [4, 4, 4, 4], 1.0) == (None, "in half of the runs")
    assert judge([4, 4], [None, None], 1.0) == (None, "only ours arrives")
    assert judge([None], [None], 1.0)[1] == "neither arrives"


@pytest.mark.parametrize(("ours", "theirs", "word"), [(8, 10, "faster"), (10, 8, "slower")])
def test_a_difference_has_to_exceed_the_noise_floor(ours, theirs, word):
    assert judge([ours], [theirs], 1.25) == (theirs / ours, "no difference")
    assert judge([ours], [theirs], 1.2499) == (theirs / ours, word)
    assert judge([100 * ours], [100 * theirs], 1.0)[1] == word
    assert judge([ours], [ours + 1], 1.0)[1] == "no difference"  # a round is none either


def test_reruns_have_other_seeds_and_nothing_else():
    assert reseeded(Bernoulli(0.5, "drop", 3), 2) == Bernoulli(0.5, "drop", 5)
    assert reseeded(Outages(((0, 1, 2),), Bernoulli(0.5, seed=1)), 1).otherwise.seed == 2
    assert reseeded(Scaffnew(seed=4), 1) == Scaffnew(seed=5)
    assert reseeded(Scaffnew(seed=4), 0) == Scaffnew(seed=4)
    for kept in (None, GD, "gd", 3, *(kind() for kind in METHODS.values() if not hasattr(kind(), "seed"))):
        assert reseeded(kept, 3) is kept
    both = Outages(((0, 1, 2),), Outages(((1, 1, None),), Cohort(2, seed=7), "drop"))
    assert reseeded(both, 2) == Outages(((0, 1, 2),), Outages(((1, 1, None),), Cohort(2, seed=9), "drop"))


def test_a_fair_race_gives_everyone_the_same_search_and_measures_its_noise(small_logistic):
    methods = {"ours": OwnStep(At(9)), "GD": GD("tuned"), "FedAvg": FedAvg(local_steps=2), "Scaffnew": Scaffnew()}
    race = compare(
        small_logistic, methods, 60, tune=6, reruns=2, participation=None, tolerances=(1e-1, 1e-2), seed=5
    )  # fmt: skip
    for name, history in race.histories.items():
        assert len(history.settings["tuning"]["trials"]) == 6, name
        assert race.rows()[list(methods).index(name)]["search_rounds"] > 0
    assert len(race.reruns["FedAvg"]) == 2
    assert {h.settings["tuning"]["rounds_spent"] for h in (race.histories["GD"], *race.reruns["GD"])} != {0}
    for cells in race.verdicts().values():
        assert all(cell["floor"] >= 1 for cell in cells.values())
    assert race.reruns["Scaffnew"][0].settings["method"].endswith("seed=1)")
    json.dumps(race.to_dict())


def test_scaled_constants_are_longer_steps(small_logistic):
    from ownstep.engines import describe

    devices = describe(small_logistic).devices
    found, longer = tune_scale(OwnStep(At(9)), small_logistic, 30, devices=devices)
    assert len(found.trials) == 9
    scale = dict(found.settings)["scale"]
    np.testing.assert_allclose(longer.L, devices.L / scale)
    assert run(OwnStep(At(9)), small_logistic, 30, devices=longer).value[-1] == min(v for _, _, v in found.trials)


def test_keys_name_every_configured_method_and_are_read_back():
    listed = [
        GD("matched"), GD(0.25), FedAvg("mean", local_steps=4), FedAvg(local_steps=4), OwnStep(smoothness="adaptive"),
        OwnStep(momentum="item"), Scaffnew(p=0.5), FedNova(), *rivals().values(),
    ]  # fmt: skip
    for method in listed:
        assert method_of(key_of(method, METHODS), METHODS, parse_switch) == method
    assert list(methods_of(" gd:tuned ,, lbfgs,", METHODS, parse_switch)) == ["gd:tuned", "lbfgs"]
    both = methods_of("own_step:switch=at:5,gd:tuned,fedavg:client_step=mean,local_steps=4", METHODS, parse_switch)
    assert list(both.values()) == [OwnStep(At(5)), GD("tuned"), FedAvg("mean", local_steps=4)]
    for text, message in (
        ("gdd", "unknown method 'gdd'"),
        ("fedavg:E=3", "unknown argument of fedavg 'E'"),
        ("gd:long", "'gd:long' is no method"),
        (",", "name at least one method"),
    ):
        with pytest.raises(InvalidInput, match=message):
            methods_of(text, METHODS, parse_switch)


def test_the_commands_take_methods_budgets_and_wires(capsys):
    common = ["breast_cancer", "--rows", "120", "--rounds", "40", "--json"]
    code, out, _ = call(
        capsys, "compare", *common, "--methods", "own_step,fedavg:local_steps=3,delta_sgd", "--budget", "bytes:5kB"
    )
    rows = json.loads(out)["rows"]
    assert code == 0
    assert [row["key"] for row in rows] == ["own_step", "fedavg:local_steps=3", "delta_sgd"]
    assert all(row["stopped"].startswith("out of budget") for row in rows)
    code, out, _ = call(capsys, "run", *common, "--method", "scaffnew", "--budget", "seconds:4", "--wire", "home")
    assert code == 0
    assert "of 4 s over this network spent" in json.loads(out)["stopped"]
    code, _, err = call(capsys, "run", *common, "--wire", "home")
    assert code != 0
    assert "give --budget seconds:600 with it" in err


@pytest.mark.parametrize(
    ("name", "latency", "up", "down"),
    [("home", 0.05, 1e6, 1e7), ("wan", 0.03, 1e7, 1e7), ("datacentre", 1e-4, 1e9, 1e9)],
)
def test_networks_by_name(name, latency, up, down):
    """Home lines send ten times slower than they receive; 10 ms for a gradient everywhere."""
    assert parse_wire(name) == TimeModel(latency=latency, up=up, down=down, compute=0.01)
