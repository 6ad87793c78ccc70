from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from ownstep.engines import Bernoulli, describe, run, tune, tune_step
from ownstep.engines.tuning import OCTAVES, SCALES, replayed, scaled, tune_scale
from ownstep.methods import GD, METHODS, FedAdam, FedAvg, FedAvgM, FedProx, OwnStep
from ownstep.plan import Devices
from ownstep.problems import optimum
from ownstep.support.errors import InvalidInput

from ..conftest import make_logistic

GRID = {"client_step": (0.1, 0.5, 2.0), "momentum": (0.0, 0.9)}


def test_the_whole_grid_is_tried_and_the_best_wins(small_logistic):
    tuned = tune(FedAvgM(), small_logistic, 40, grid=GRID)
    tried = {settings: value for settings, _, value in tuned.trials}
    assert len(tried) == 6
    final = {
        settings: run(FedAvgM(dict(settings)["client_step"], momentum=dict(settings)["momentum"]), small_logistic, 40)
        for settings in tried
    }
    assert tuned.settings == min(final, key=lambda s: final[s].value[-1])
    assert tuned.rounds_spent == sum(h.rounds for h in final.values()) == 240
    assert tuned.method == FedAvgM(dict(tuned.settings)["client_step"], momentum=dict(tuned.settings)["momentum"])
    assert tuned.to_dict()["rounds_spent"] == 240


def test_a_target_makes_it_a_race_in_which_losers_stop_early(small_logistic):
    best = optimum(small_logistic).value
    target = best + 1e-4 * (small_logistic.value(small_logistic.x0()) - best)
    tuned = tune(FedAvg(), small_logistic, 500, target=target)
    fewest = run(tuned.method, small_logistic, 500, target=target).rounds
    for settings, rounds, _ in tuned.trials:
        alone = run(FedAvg(dict(settings)["client_step"]), small_logistic, 500, target=target)
        assert alone.value[-1] > target or alone.rounds >= fewest
        assert rounds <= alone.rounds or alone.value[-1] > target
    assert tuned.rounds_spent < 500 * len(tuned.trials)


def test_a_budget_is_kept_and_the_seed_decides(small_logistic):
    first, same, other = (tune(FedAdam(), small_logistic, 15, budget=9, seed=s) for s in (0, 0, 1))
    assert first == same
    assert len(first.trials) == len({s for s, _, _ in first.trials}) == 9
    assert first.trials != other.trials
    wide = tune(FedAdam(), small_logistic, 15)
    assert len(wide.trials) == 81
    assert min(v for _, _, v in wide.trials) <= min(v for _, _, v in first.trials)


@pytest.mark.parametrize("name", [n for n, kind in METHODS.items() if hasattr(kind, "search_space")])
def test_every_search_space_holds_settings_the_method_takes_and_some_that_work(name):
    problem = make_logistic()
    method = METHODS[name]()
    space = method.search_space(describe(problem).devices)
    tuned = tune(method, problem, 12, budget=8)
    assert set(dict(tuned.settings)) == set(space)
    assert np.isfinite(run(tuned.method, problem, 12).value[-1])
    assert run(tuned.method, problem, 12).value[-1] < problem.value(problem.x0())


def test_the_second_half_of_a_budget_looks_beside_the_best_so_far(small_logistic):
    """Every point after the drawn ones is the nearest that is left, on the grid, to the best of those before."""
    L = describe(small_logistic).devices.L_bar
    grid = {"client_step": tuple(2.0**o / L for o in range(-6, 2)), "momentum": (0.0, 0.3, 0.6)}
    tuned = tune(FedAvgM(), small_logistic, 6, grid=grid, budget=11, seed=3)
    points = [
        (grid["client_step"].index(a), grid["momentum"].index(b)) for (_, a), (_, b) in (s for s, _, _ in tuned.trials)
    ]
    last = [
        run(FedAvgM(grid["client_step"][i], momentum=grid["momentum"][j]), small_logistic, 6).value[-1]
        for i, j in points
    ]  # fmt: skip
    every = [(i, j) for i in range(8) for j in range(3)]
    for n in range(6, 11):
        (i, j), before = points[int(np.argmin(last[:n]))], points[:n]
        apart = {p: (p[0] - i) ** 2 + (p[1] - j) ** 2 for p in every if p not in before}
        assert apart[points[n]] == min(apart.values())


@pytest.mark.parametrize("pooled", [None, 0.3])
def test_steps_are_searched_around_the_true_constant_where_it_is_known(pooled):
    """One candidate from each of seven octaves, from half of 1/L on."""
    problem = make_logistic()
    devices = Devices(problem.weights, np.array([1.0, 2.0, 7.0]), L_pooled=pooled)
    L = pooled or problem.weights @ [1.0, 2.0, 7.0]
    tuned = tune_step(problem, 1, devices=devices, coarse=7, fine=0, seed=4)
    octaves = sorted(np.log2(dict(s)["step"] * L) for s, _, _ in tuned.trials)
    assert np.floor(octaves).tolist() == [-1, 0, 1, 2, 3, 4, 5]


def test_every_trial_is_a_run_with_the_start_the_devices_and_the_absences_that_were_given(small_logistic):
    """Whatever is searched: the rounds and the lowest f of each trial are those of the same run made by hand."""
    problem, x0 = small_logistic, np.random.default_rng(3).standard_normal(small_logistic.dim)
    made = describe(problem).devices
    devices = Devices(made.weights, 1.5 * made.L, made.mu, made.names, 1.2 * made.L_pooled)
    options = {"x0": x0, "participation": Bernoulli(0.5, seed=1), "devices": devices}
    searches = [
        (tune(FedAvg(), problem, 7, **options), lambda s: (FedAvg(**s), devices)),
        (tune_step(problem, 7, coarse=3, fine=2, **options), lambda s: (GD(**s), devices)),
        (tune_scale(OwnStep(), problem, 7, **options)[0], lambda s: (OwnStep(), scaled(devices, s["scale"]))),
    ]
    for found, again in searches:
        for settings, rounds, best in found.trials:
            method, mine = again(dict(settings))
            history = run(method, problem, 7, **options | {"devices": mine})
            assert (rounds, best) == (history.rounds, history.best_value)
        assert found.rounds_spent == sum(rounds for _, rounds, _ in found.trials)
        assert again(dict(found.settings))[0] == found.method
    assert len({best for _, _, best in searches[1][0].trials}) == 5


def test_a_factor_on_all_steps_is_searched_from_the_middle_outwards(small_logistic):
    """Nine octaves from 1/4 to 64; fewer trials are the nearest to 4, one at the least."""
    devices, every = describe(small_logistic).devices, None
    for budget in (1, 4, 9):
        found, longer = tune_scale(OwnStep(), small_logistic, 6, devices=devices, budget=budget)
        tried = [dict(s)["scale"] for s, _, _ in found.trials]
        assert len(tried) == budget
        assert [abs(np.log2(s) - 2) for s in tried] == sorted(abs(np.log2(s) - 2) for s in tried)
        last = {s: run(OwnStep(), small_logistic, 6, devices=scaled(devices, dict(s)["scale"])).value[-1]
                for s, _, _ in found.trials}  # fmt: skip
        assert found.settings == min(last, key=last.get)
        np.testing.assert_array_equal(longer.L, devices.L / dict(found.settings)["scale"])
        every = tried
    assert sorted(every) == [2.0**o for o in range(-2, 7)]
    assert len(tune_scale(OwnStep(), small_logistic, 2, devices=devices, budget=0)[0].trials) == 1
    race = tune_scale(OwnStep(), small_logistic, 400, devices=devices, target=float(min(last.values())))[0]
    assert race.rounds_spent < 400 * 9


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: tune(GD(), p, 5), "no search space of its own"),
        (lambda p: tune(GD(), p, 5, grid={}), "a grid needs a value for every parameter"),
        (lambda p: tune(GD(), p, 5, grid={"step": ()}), "a grid needs a value"),
        (lambda p: tune(GD(), p, 5, grid={"step": (0.1,)}, budget=0), "at least 1, got 0"),
    ],
)
def test_bad_input_is_quoted(small_logistic, call, message):
    with pytest.raises(InvalidInput, match=message):
        call(small_logistic)


def test_longer_steps_keep_mu_below_the_scaled_constants():
    devices = Devices(np.array([0.4, 0.6]), np.array([1.0, 8.0]), np.array([0.5, 0.5]), L_pooled=6.0)
    longer = scaled(devices, 4.0)
    np.testing.assert_allclose(longer.L, [0.25, 2.0])
    np.testing.assert_allclose(longer.mu, [0.25, 0.5])
    assert longer.L_pooled == 1.5


def test_steps_are_tried_from_the_middle_of_the_range_outwards(small_logistic):
    """Each in a slice of its own: 14 slices of the octaves, the eighth first, then its neighbours."""
    tuned = tune_step(small_logistic, 3, coarse=14, fine=0)
    L = describe(small_logistic).devices.L_pooled
    octaves = [np.log2(dict(settings)["step"] * L) for settings, _, _ in tuned.trials]
    slices = [int((octave - OCTAVES[0]) / (OCTAVES[1] - OCTAVES[0]) * 14) for octave in octaves]
    assert slices[0] == 7
    assert sorted(slices) == list(range(14))
    assert [abs(s - 7) for s in slices] == sorted(abs(s - 7) for s in slices)


def test_a_factor_on_all_steps_goes_from_a_quarter_to_64_like_every_other_search():
    assert SCALES == (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64)


@pytest.mark.parametrize("share", [0.003, 1e-9])
def test_trials_that_ran_before_in_any_order_give_the_search_that_runs_them(small_logistic, share):
    method, devices = FedProx(), describe(small_logistic).devices
    start, best = small_logistic.value(small_logistic.x0()), optimum(small_logistic).value
    target = best + share * (start - best)
    options = {"devices": devices, "target": target}
    space = method.search_space(devices)
    trials = {}
    for point in reversed(list(product(*space.values()))):
        one = replace(method, **dict(zip(space, map(float, point), strict=True)))
        trials[repr(one)] = run(one, small_logistic, 25, **options).value.tolist()
    alone = tune(method, small_logistic, 25, budget=20, seed=3, **options)
    again = tune(method, small_logistic, 25, budget=20, seed=3, engine=replayed(trials), **options)
    assert again == alone
    reached = [rounds for _, rounds, value in alone.trials if value <= target]
    assert bool(reached) == (share == 0.003)
    assert len(set(reached)) > 1 or not reached  # one cut the others short
