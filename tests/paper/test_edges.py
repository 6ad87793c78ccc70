"""Every rule of a verdict just inside and just outside of its bounds: several runs, a missing one, a diverging one."""

from __future__ import annotations

import numpy as np
import pytest

from ownstep.paper import fig2_w8a as w8a
from ownstep.paper.appendix import absent_devices, mnist
from ownstep.paper.fig1_worst_cases import pep_curves, pep_devices, pep_heterogeneity, theorem
from ownstep.paper.machinery import contest, curves, mnist_problem, neural, trend
from ownstep.paper.machinery.bootstrap import interval
from ownstep.paper.ours import attribution, beyond, estimates

NO, PARTLY, YES = "does not hold here", "holds partly", "holds"
BOUND = neural.WORTHWHILE


def test_the_bound_is_five_percent():
    """Every test below is written for it."""
    assert BOUND == 1.05


# attribution: the low end of the interval decides, of experiments with a speed-up alone


def split(*runs):
    """An experiment: (whole speed-up, geometry's part) for each run; None is a run in which a method diverged."""
    rows = [{"seed": i, "factors": {} if r is None else {"all": r[0], "geometry": r[1]}} for i, r in enumerate(runs)]
    return {"runs": rows}


def attributed(**experiments):
    names = (attribution.POOLED, attribution.MATCHED, attribution.OURS, attribution.BEST)
    worst = {"rounds": 1, "switch": 1, "gain": 1.0, "best_scale": 1.5, "values": dict.fromkeys(names, 1.0)}
    return attribution.verdict({"experiments": experiments, "worst_case": worst})


@pytest.mark.parametrize(
    ("experiments", "word", "judged", "helped"),
    [
        ({"a": split((2.0, 1.051))}, YES, 1, 1),
        ({"a": split((2.0, 1.05))}, NO, 1, 0),  # the bound itself is not above it
        ({"a": split((1.051, 1.2))}, YES, 1, 1),
        ({"a": split((1.05, 1.2))}, NO, 0, 0),  # no speed-up: nothing to attribute
        ({"a": split((2.0, 1.04), (2.0, 3.0))}, NO, 1, 0),  # twice as fast in the mean, and not surely
        ({"a": split((2.0, 1.06), (2.0, 3.0))}, YES, 1, 1),
        ({"a": split((1.04, 1.5), (3.0, 1.5))}, NO, 0, 0),  # the speed-up itself is not sure
        ({"a": split((2.0, 1.2), None)}, YES, 1, 1),  # what is left is one run
        ({"a": split(None, None)}, NO, 0, 0),
        ({"a": split((2.0, 1.2)), "b": split((2.0, 1.0))}, PARTLY, 2, 1),
        ({"a": split((2.0, 1.2)), "b": split((1.0, 0.5))}, YES, 1, 1),  # b has none to explain
        ({"a": split((2.0, 0.9)), "b": split((1.0, 1.5))}, NO, 1, 0),
    ],
)
def test_attribution(experiments, word, judged, helped):
    found = attributed(**experiments)
    assert found["verdict"] == word
    assert f"{judged} in number" in found["rule"]
    assert f"above 1.05 in {helped}" in found["rule"]


def test_attribution_s_factors_and_what_uniform_weights_cost():
    rounds = [float(k) for k in range(101)]

    def line(rate):
        return rounds, [1 - rate * k for k in rounds]

    series = {
        attribution.POOLED: line(0.004), attribution.MATCHED: line(0.006), attribution.STRATIFIED_MATCHED: line(0.0072),
        attribution.OURS: line(0.009), attribution.UNIFORM: line(0.003),
    }  # fmt: skip
    (row,) = attribution._split([{"seed": 7, "gain": 2.0, "series": series}])["runs"]
    assert row["factors"] == pytest.approx(
        {"longer step": 1.5, "sampling": 1.2, "geometry": 1.25, "all": 2.25, "weights": 3.0}
    )
    assert (row["uniform_final"], row["samples_final"]) == pytest.approx((0.7, 0.1))
    assert "the final gap is 7 times as large (median), rounds to the level both reach 3.00" in attribution._weights(
        {"runs": [row]}
    )
    harm = {attribution.POOLED: 2.0, attribution.MATCHED: 3.0, attribution.OURS: 1.0, attribution.BEST: 0.9}
    about = {"rounds": 4, "switch": 2, "gain": 1.5, "values": harm}
    assert "here the longer step alone does harm" in attribution._worst(about)
    assert "GD at its best fixed step is better still" in attribution._worst(about)
    assert "does harm" not in attribution._worst(about | {"values": harm | {attribution.MATCHED: 2.0}})
    assert "better still" not in attribution._worst(about | {"values": harm | {attribution.BEST: 1.0}})


@pytest.mark.slow
def test_the_worst_case_is_taken_with_the_papers_switch_and_the_best_fixed_step():
    from ownstep import GD, At, OwnStep, pep

    found, devices = attribution._worst_case(12), pep.repeated([1 / 3, 3], mu=0.1)
    assert (found["switch"], attribution._worst_case(5)["switch"]) == (12, 2)
    ours = pep.worst_case(OwnStep(At(12)), devices, 12, r0=10, rstar=1).upper
    assert found["values"][attribution.OURS] == pytest.approx(ours, rel=1e-5)
    scales = found["best_scale"] * np.array([0.98, 1, 1.02])  # no step beside it is better
    beside = [pep.worst_case(GD(s / devices.L_bar), devices, 12, r0=10, rstar=1).upper for s in scales]
    assert found["values"][attribution.BEST] == pytest.approx(beside[1], rel=1e-5)
    assert beside[1] < min(beside[0], beside[2])


# contests


def arm(ours, theirs, last=100, tuned=None):
    """Rounds to three levels; the contest lasts ``last`` rounds."""
    rows = {contest.OURS: ours, "FedAdam": theirs}
    if tuned:
        rows |= {contest.OURS_TUNED: tuned[0], "FedAdam tuned": tuned[1]}
    return {
        "rows": [
            {"method": m, "rounds": dict(zip("abc", counts, strict=True)), "stopped": "", "accuracy": {"test": 0.9},
             "search": {"rounds_spent": 3} if "tuned" in m else None, "switched_at": None}
            for m, counts in rows.items()
        ],
        "series": {"x": {"round": [0, last]}},
        "group": "g",
    }  # fmt: skip


def test_pooled_rivals_of_a_contest_meet_algorithm_1_as_set_and_tuned_ones_the_tuned():
    def row(method, rounds, tuned=False):
        return {"method": method, "rounds": {"a": rounds}, "search": {"rounds_spent": 3} if tuned else None}

    rows = [row(contest.OURS, 20), row(contest.OURS_TUNED, 10, True), row("Nesterov", 30), row("GD tuned", 15, True)]
    found = contest.fair({"config": {}, "arms": {"g 0": {"group": "g", "rows": rows}}})
    assert {name: one["speed_up"] for name, one in found["rivals"].items()} == {"Nesterov": 1.5, "GD tuned": 1.5}
    assert found["verdict"] == "holds"
    assert found["missing"] == ["GD matched step", "L-BFGS"]


def test_the_price_told_is_ours_and_that_of_moving_the_data():
    rows = [
        {"name": contest.OURS, "seconds": 12.3456, "bytes": 2.5e6},
        {"name": "FedAdam", "seconds": 99.0, "bytes": 9e6},
        {"name": "data moved once", "seconds": 340.0, "bytes": 1e8},
        {"name": "data moved twice", "seconds": None, "bytes": 1e8},
    ]
    assert contest._priced({"rows": rows, "level": 0.01}) == (
        f"estimated to a gap of 0.01 over a home connection: {contest.OURS} 12.3 s, 2.5 MB; "
        "data moved once 340 s, 100 MB"
    )


def contested(*arms):
    found = contest.judge({str(i): a for i, a in enumerate(arms)}, ("FedAdam",))
    return found["verdict"], [n["value"] for n in found["numbers"]]


@pytest.mark.parametrize(
    ("arms", "word"),
    [
        ([arm((100, 100, 100), (105, 105, 105))], NO),
        ([arm((100, 100, 100), (105, 106, 105))], PARTLY),
        ([arm((100, 100, 100), (106, 106, 106))], YES),
        ([arm((100, 100, None), (106, 106, None))], YES),  # a level that nobody reaches is no cell
        ([arm((100, 100, None), (106, 106, 106), 200)], PARTLY),  # one that only they reach is lost
        ([arm((100, 100, 100), (106, None, None), 106)], YES),  # who never arrives counts with all the rounds
        ([arm((100, 100, 100), (105, None, None), 105)], NO),
        ([arm((20, 20, 20), (21, 21, 21)), arm((20, 20, 20), (90, 90, 90))], NO),  # of two, the smaller
        ([arm((20, 20, 20), (22, 22, 22)), arm((20, 20, 20), (90, 90, 90))], NO),  # theirs alone move by 4.1 times
        ([arm((20, 20, 20), (36, 36, 36)), arm((20, 20, 20), (60, 60, 60))], YES),  # by 1.7, and ours is 2.4 as fast
        ([arm((20, 20, 20), (36, 36, 36)), arm((50, 50, 50), (90, 90, 90))], NO),  # ours move by 2.5: the noise floor
        ([arm((20, 20, 20), (90, 90, 90)), arm((None, None, None), (90, 90, 90))], NO),  # ours diverged once
        ([arm((20, 20, 20), (90, 90, 90)), arm((None, None, None), (None, None, None))], YES),  # a run without either
        ([arm((20, 20, 20), (90, 90, 90), tuned=((10, 10, 10), (10, 10, 10)))], PARTLY),
        ([arm((20, 20, 20), (20, 20, 20), tuned=((10, 10, 10), (11, 11, 11)))], PARTLY),
        ([arm((20, 20, 20), (30, 30, 30), tuned=((10, 10, 10), (11, 11, 11)))], YES),
    ],
)
def test_contests(arms, word):
    assert contested(*arms)[0] == word


def test_a_difference_below_the_noise_floor_is_called_none():
    arms = {"0": arm((20, 20, 20), (30, 50, 30)), "1": arm((24, 24, 24), (45, 60, None))}
    said = contest.judge(arms, ("FedAdam",))
    assert "beyond the noise floor, in 3 of 3 settings" in said["rule"]  # floors 1.5, 1.2, 1.2; medians apart 1.7, 2.5
    arms["2"] = arm((40, 24, 24), (46, 60, None))  # ours move by 2 to the first level, and the medians by 45 / 24
    said = contest.judge(arms, ("FedAdam",))
    assert "beyond the noise floor, in 2 of 3 settings" in said["rule"]
    (sentence,) = [f for f in said["findings"] if "FedAdam over" in f]
    assert sentence.count("no difference") == sentence.count("(no difference: noise floor 2.00)") == 1


def test_a_rival_that_ran_with_some_seeds_is_judged_by_those():
    both = ((20, 20, 20), (30, 30, 30))
    arms = {str(i): arm(*both, tuned=both) for i in range(3)}
    for seed, rounds in (("0", 10), ("1", 40)):
        known = next(row for row in arms[seed]["rows"] if row["method"] == "FedAdam tuned")
        arms[seed]["rows"].append(known | {"method": "FedX tuned", "rounds": dict.fromkeys("abc", rounds)})
    (sentence,) = [f for f in contest.judge(arms, ("FedAdam",))["findings"] if "FedX" in f]
    assert sentence.endswith("in 2 of 3 seeds")
    assert "(found by a search of 6 rounds)" in sentence
    assert "1.25 " in sentence  # the mean of 10/20 and 40/20


def test_a_contest_s_numbers_are_ratios_by_level():
    assert contested(arm((10, 20, None), (15, 50, 80), 90))[1] == pytest.approx([1.5, 2.5, 80 / 90])
    assert contested(arm((0, 20, 40), (5, None, 10), 90))[1] == pytest.approx([5, 4.5, 0.25])  # there from the start


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ((10, 20, 40), (15, 30, 30), "1.50 / 1.50 / 0.75"),
        ((10, None, None), (None, 20, None), "only we / only they / -"),
    ],
)
def test_of_one_run_it_is_said_who_alone_arrives(ours, theirs, said):
    found = contest.judge({"0": arm(ours, theirs) | {"group": "g"}}, ("FedAdam",))
    (sentence,) = [f for f in found["findings"] if "FedAdam over" in f]
    assert sentence == f"g: FedAdam over {contest.OURS} at a / b / c: {said} times the rounds; test accuracy 90.0%"


# trends


def trended(*arms, rounds=100):
    """Straight lines: (ratio of rounds, ...) one for each seed, None for a run in which Algorithm 1 diverges."""
    made = []
    for value, ratios in enumerate(arms):
        runs = []
        for seed, ratio in ratios.items() if isinstance(ratios, dict) else enumerate(ratios):
            rates = {contest.OURS: 0.004 * (ratio or 1), contest.POOLED: 0.004, trend.MATCHED: 0.004}
            series = {name: [1 - rate * k for k in range(101)] for name, rate in rates.items()}
            if ratio is None:
                series[contest.OURS][-1] = 7.0
            runs.append({"seed": seed, "gain": 1.0, "series": series})
        made.append({"value": float(value), "runs": runs})
    return trend.judge({"rounds": rounds, "arms": made}, "N", rising=True)["verdict"]


@pytest.mark.parametrize(
    ("arms", "word"),
    [
        (((1,), (1.051,)), YES),
        (((1,), (1.049,)), NO),
        (((1,), (1.001,), (1.06,)), YES),
        (((1,), (1,), (1.06,)), PARTLY),  # standing still is not rising
        (((1,), (0.999,), (1.06,)), PARTLY),
        (((1, 1), (1.049, 2.0)), NO),  # of two seeds, the smaller growth
        (((1, 1), (1.051, 2.0)), YES),
        (((1, 2), (1.2, 2.0)), NO),  # seed by seed: the second does not grow
        (((1, 1), {0: 1.2, 2: 1.2}), NO),  # not the same seeds
        (((1, 1), (1.2,)), NO),
        (((1, 1), (1.2, None)), NO),
        (((1, 1), (1.1, None), (1.3, 1.3)), NO),  # in the middle: it diverges nowhere, or the claim is not sure
    ],
)
def test_trends(arms, word):
    assert trended(*arms) == word


def test_a_trend_counts_rounds_of_the_whole_run_not_points_that_were_kept():
    series = {contest.OURS: [1, 0.5, 0.2], contest.POOLED: [1, 0.8, 0.5], trend.MATCHED: [1, 0.5, 0.2]}
    one = {"runs": [{"seed": 0, "gain": 1.0, "series": series}]}
    assert trend.speed_ups(one, 10) == [pytest.approx(2.0)]
    assert trend.speed_ups(one, 10, trend.MATCHED) == [1.0]
    assert trend.speed_ups(one, 1, "Nesterov") == []


# curves


def test_a_common_level_is_the_worst_of_the_best():
    series = {"a": ([0, 10, 20], [1.0, 0.4, 0.5]), "b": ([0, 10, 20], [1.0, 0.6, 0.2])}
    assert curves.to_common_level(series, ["a", "b"]) == pytest.approx({"a": 10, "b": 15})
    assert curves.to_common_level(series, ["b"]) == pytest.approx({"b": 20})
    at_once = {"a": ([0, 10], [1.0, 1.0]), "b": ([0, 10], [1.0, 0.2])}
    assert curves.to_common_level(at_once, ["a", "b"]) == {"a": 1.0, "b": 1.0}  # never less than a round


@pytest.mark.parametrize(
    ("values", "wild"),
    [([1, 2, 1.0], False), ([1, 0.5, 1.001], True), ([1, None, 0.5], True), ([1, np.inf, 0.5], True)],
)
def test_who_ends_where_it_started_has_not_diverged(values, wild):
    assert curves.diverged(values) is wild
    assert (curves.to_common_level({"a": ([0, 1, 2], values)}, ["a"]) is None) is wild


def test_the_spread_of_curves_of_several_lengths():
    rounds, rows = curves.on_one_grid([([0, 4], [8, 4]), ([0, 2], [1, 0.5]), ([0, 2], [1, 9])], after=np.inf)
    np.testing.assert_array_equal(rounds, [0, 4])
    np.testing.assert_array_equal(rows, [[8, 4], [1, np.nan], [1, np.inf]])
    middle, low, high = curves.spread(np.array([[8, 4, np.nan], [1, np.nan, np.nan], [3, 6, np.nan]]))
    np.testing.assert_array_equal([middle, low, high], [[3, 5, np.nan], [1, 4, np.nan], [8, 6, np.nan]])


def test_an_interval_holds_the_middle_of_the_means():
    """Of many runs: the quantiles of a binomial mean, computed apart."""
    from scipy import stats

    data, n = [0.0] * 6 + [1.0] * 6, 12
    found = interval(data)
    low, high = (stats.binom.ppf(p, n, 0.5) / n for p in (0.025, 0.975))
    assert (found.low, found.high) == (low, high)
    wide = interval(data, level=0.5)
    assert (wide.low, wide.high) == tuple(stats.binom.ppf(p, n, 0.5) / n for p in (0.25, 0.75))


# networks


def network_run(ours, pooled, last=100):
    """Losses fall from 2 on straight lines; None diverges."""
    methods = {}
    for name, rate in ((neural.OURS, ours), (neural.POOLED, pooled)):
        loss = [2 - (rate or 0) * k for k in range(0, last + 1, 5)]
        loss[-1] = 99.0 if rate is None else loss[-1]
        methods[name] = {"rounds": list(range(0, last + 1, 5)), "loss": loss, "stopped": "", "step": 0.1}
    return {"devices": {"gain": 1.2, "mean_step": 0.1}, "methods": methods}


FAST, EVEN, WON, LOST = network_run(0.008, 0.004), network_run(0.004, 0.004), (0.0052, 0.004), (0.00416, 0.004)


@pytest.mark.parametrize(
    ("runs", "losses", "word"),
    [
        ([FAST, FAST], (1.9,), YES),
        ([FAST, EVEN], (1.9,), NO),
        ([FAST, network_run(*WON)], (1.9,), YES),
        ([FAST, network_run(*LOST)], (1.9,), NO),  # 1.04 in one of two runs
        ([FAST], (1.9,), "not judged"),
        ([FAST, network_run(None, 0.004)], (), NO),  # ours diverged: a ratio of 0
        ([FAST, network_run(0.008, None)], (), "not judged"),  # theirs did: the run says nothing
        ([network_run(None, None)] * 2, (1.9,), NO),
        ([FAST, FAST], (1.9, 0.1), YES),  # a loss that nobody reaches is no cell
        ([network_run(0.004, 0.008), network_run(0.004, 0.008)], (1.9,), NO),
    ],
)
def test_networks(runs, losses, word):
    assert neural.judge({"a": {"runs": runs}}, losses)["verdict"] == word


def test_a_network_holds_partly_where_some_losses_or_some_constants_do():
    late = network_run(0.008, 0.004)
    late["methods"][neural.OURS]["loss"][1:3] = [2.0, 1.96]  # it starts slowly
    assert neural.judge({"a": {"runs": [late, late]}}, (1.985,))["verdict"] == PARTLY
    both = {"a": {"runs": [FAST, FAST]}, "b": {"runs": [EVEN, EVEN]}}
    assert neural.judge(both)["verdict"] == PARTLY
    assert neural.judge(both | {"b": {"runs": [FAST, FAST]}})["verdict"] == YES


@pytest.mark.parametrize(("jumps", "word"), [(3.0, "agree"), (3.01, "jumps of the max-pool's gradient")])
def test_gradient_differences_that_measure_jumps(jumps, word):
    known = [{"differences": {"L": [1.0, jumps]}, "products": {"L": [0.2, 1.0]}}]
    found = mnist.verdict({"arms": {"a": {"runs": [FAST, FAST], "class_smoothness": known}}})
    assert word in found["findings"][-1]


# W8A, and what goes beyond the paper: cells by level, one run each


def table(**rounds):
    rows = [{"method": m.replace("_", " "), "rounds": dict(zip("abc", r, strict=True))} for m, r in rounds.items()]
    why = {"start": 1.0, "local_phase_limit": 1.0, "local_phase_gap": 0.1}
    return {"rows": rows, "plan": {"gain": 2.0}, "why": why}


@pytest.mark.parametrize(
    ("ours", "theirs", "word", "won"),
    [
        ((20, 20, 20), (21, 21, 21), NO, 0),
        ((20, 20, 20), (22, 21, 21), PARTLY, 2),
        ((20, 20, 20), (22, 22, 22), YES, 6),
        ((20, 20, None), (22, 22, None), YES, 4),
        ((20, 20, None), (22, 22, 22), PARTLY, 4),
        ((20, 20, 20), (22, 22, None), YES, 4),
    ],
)
def test_w8a(ours, theirs, word, won):
    arm = table(**{"Algorithm_1": ours, "GD_1/L-bar": theirs, "GD_matched_step": theirs, "Nesterov": theirs})
    found = w8a.verdict({"subset": {"x": arm}, "all": {"x": arm}})
    assert found["verdict"] == word
    assert f" in {won} of " in found["rule"]
    assert [n["value"] for n in found["numbers"]] == [
        pytest.approx(b / a) for a, b in zip(ours * 2, theirs * 2, strict=True) if a and b
    ]


@pytest.mark.parametrize(("count", "word"), [(21, NO), (22, PARTLY)])
def test_what_goes_beyond(count, word):
    names = {name for pair in beyond.ABLATIONS.items() for name in (pair[0], *pair[1])}
    rows = {name: (20, 20, None) for name in names} | {"Barzilai-Borwein": (count, 20, None)}
    arm = {"rows": [{"method": m, "rounds": dict(zip("abc", r, strict=True))} for m, r in rows.items()]}
    absent = {"x": {"GD 1/L": {"rounds": {"0.1": [3, 4, 5], "0.01": [7, None, 9]}}}}
    found = beyond.verdict({"full": {"x": arm}, "absent": absent, "worst_case": {}})
    assert found["verdict"] == word
    assert f"in {int(count > 21)} of {2 * len(beyond.ABLATIONS)} comparisons" in found["rule"]
    assert "x, half absent: runs of 3 that reach 0.01: GD 1/L 2" in found["findings"]


# absent devices: within SLACK/p in every run


def absences(*runs, p=0.5):
    """(rounds with everyone, rounds with absences) for each seed."""
    arms = []
    for seed, (whole, some) in enumerate(runs):
        for name, share, k in (("p = 1, rescale", 1.0, whole), (f"p = {p:g}, rescale", p, some)):
            here = {"rounds": {"0.1": k}, "final_gap": 0.1, "share_present": share, "accuracy": {"test": 0.9}}
            arms.append({"name": name, "p": share, "seed": seed, "methods": {contest.OURS: here}})
        worse = here | {"rounds": {"0.1": 10**6}}
        arms.append({"name": f"p = {p:g}, drop", "p": p, "seed": seed, "methods": {contest.OURS: worse}})
    return absent_devices.judge({"arms": arms})


@pytest.mark.parametrize(
    ("runs", "word"),
    [
        ([(100, 220)], YES),  # the bound itself is within it
        ([(100, 221)], NO),
        ([(100, 200), (100, 220)], YES),
        ([(100, 150), (100, 221)], NO),  # every run counts, not their mean
        ([(100, 150), (100, None)], NO),
        ([(100, 150), (None, None)], YES),  # a level that is not reached with everyone there says nothing
    ],
)
def test_absent_devices(runs, word):
    assert absent_devices.SLACK == 1.1
    assert absences(*runs)["verdict"] == word


# worst cases


def curve(upper, lower=None):
    return {"upper": upper, "lower": upper if lower is None else lower, "gap": 1e-7}


@pytest.mark.parametrize(
    ("ours", "gd", "early", "late", "word"),
    [
        ((0.99, 0.98), (1.2, 1.0), 1.0, 0.951, YES),
        ((0.99, 0.98), (1.2, 1.0), 1.0, 0.949, PARTLY),  # without a switch it still falls
        ((0.99, 1.0), (1.2, 1.0), 1.0, 0.96, PARTLY),  # equal is not below
        ((1.01, 1.0), (1.2, 1.0), 1.0, 0.96, NO),
        ((0.999, 0.98), (1.2, 0.9985), 1.0, 0.96, PARTLY),  # enclosures that overlap decide nothing
    ],
)
def test_worst_case_curves(ours, gd, early, late, word):
    """``gd`` is its upper and lower bound: ours has to be below the lower one."""
    names = [pep_curves.GD_MEAN, pep_curves.GD_SHORT, pep_curves.GD_BEST, pep_curves.NESTEROV, pep_curves.DGD]
    drawn = {name: [curve(10.0), curve(*gd)] for name in names}
    drawn |= {f"Algorithm 1, switch {i}": [curve(10.0), curve(u)] for i, u in enumerate(ours)}
    later = [curve(early) | {"rounds": 30}, curve(late) | {"rounds": 40}]
    found = pep_curves.verdict({"rounds": 1, "curves": drawn, "without_switch_later": later})
    assert found["verdict"] == word


def test_spans_of_rounds():
    assert pep_curves._spans([1, 2, 3, 7, 9, 10]) == "1-3, 7, 9-10"


@pytest.mark.parametrize(("spread", "word"), [(0.99e-4, YES), (1.01e-4, PARTLY), (0.0499, PARTLY), (0.0501, NO)])
def test_the_number_of_devices_does_not_matter(spread, word):
    rows = [{"devices": n, "ratio": 0.5 * (1 + s), "ours": curve(1), "gd": curve(2)}
            for n, s in ((2, spread / 2), (4, spread), (8, 0.0))]  # fmt: skip
    assert pep_devices.verdict({"rows": rows})["verdict"] == word


@pytest.mark.parametrize(
    ("value", "distance", "word"),
    [
        ((0.5, 0.6, 0.999), (0.5, 0.6, 0.7), YES),
        ((0.5, 0.6, 1.0), (0.5, 0.6, 0.7), PARTLY),
        ((0.5, 0.6, 0.6), (0.5, 0.6, 0.7), PARTLY),  # it has to rise
        ((0.5, 0.6, 0.7), (0.5, 0.7, 0.6), PARTLY),
        ((1.0, 1.1, 1.2), (1.0, 1.1, 1.2), NO),
    ],
)
def test_heterogeneity(value, distance, word):
    pairs = [
        {"metric": m, "ratio": {"5": r, "10": 9.0}} for m, rs in (("value", value), ("distance", distance)) for r in rs
    ]
    assert pep_heterogeneity.verdict({"rounds": 10, "pairs": pairs, "map": []})["verdict"] == word


def test_where_the_ratio_is_below_one_in_words():
    cells = [
        {"rounds": 4, "share": s, "local": int(4 * s), "radius": r, "ratio": hi, "lowest_ratio": lo}
        for s in pep_heterogeneity.SHARES
        for r, hi, lo in ((0.1, 0.9, 0.8), (1.0, 1.0, 0.99), (2.0, 1.2, 1.0))
    ]
    said = pep_heterogeneity._where(cells)
    assert said[0] == "1 of 4 rounds local: below one at R*/R0 = 0.1; not at 2"
    assert said[-1].startswith("all 4 rounds local:")


@pytest.mark.parametrize(
    ("ratios", "word", "proved", "refuted"),
    [
        ([(0.8, 0.999), (0.7, 0.9)], YES, 2, 0),
        ([(0.8, 1.0), (0.7, 0.9)], PARTLY, 1, 0),  # undecided
        ([(1.001, 1.2), (0.7, 0.9)], PARTLY, 1, 1),
        ([(1.0, 1.2), (0.9, 1.1)], NO, 0, 0),
    ],
)
def test_the_theorem(ratios, word, proved, refuted):
    enclosure = {"lower": 1.0, "upper": 1.0, "width": 1e-9}
    rows = [{"L": [0.5, 1.5], "metric": "value", "ratio": r, "ours": enclosure, "gd": enclosure} for r in ratios]
    found = theorem.verdict({"table": rows, "ends": []})
    assert found["verdict"] == word
    assert f"lower bound in {proved} of 2" in found["rule"]
    assert f"in {refuted} the reverse" in found["rule"]
    words = ["true" if hi < 1 else "false" if lo > 1 else "undecided" for lo, hi in ratios]
    assert [f": {w};" in text for w, text in zip(words, found["findings"], strict=False)] == [True, True]


# estimates


def estimated(growth, largest, exact=1.0, rows=2):
    def row(precision, epsilon, L):
        return {"precision": precision, "own": epsilon is not None, "epsilon": epsilon, "scale": 1.0, "L": [0.5, L],
                "draws": 10, "growth_over_last_half": [0.0, growth]}  # fmt: skip

    own = [row("float64", 1e-3, largest), row("float32", 1e-3, largest)][:rows]
    return {"scale": 1.0, "epsilon": 1e-3, "rows": [*own, row("float64", None, exact)]}


@pytest.mark.parametrize(
    ("networks", "word"),
    [
        ([estimated(0.05, 2.0)], YES),  # both bounds are within
        ([estimated(0.051, 2.0)], PARTLY),
        ([estimated(0.05, 2.01)], PARTLY),
        ([estimated(0.05, 0.5, exact=1.01)], PARTLY),
        ([estimated(0.05, 1.0, exact=2.0)], YES),
        ([estimated(0.051, 2.01)], NO),
        ([estimated(0.0, 1.0), estimated(0.2, 9.0)], PARTLY),
        ([estimated(0.0, 1.0), estimated(0.0, 1.0, rows=1)], YES),  # not enough was measured of the second
        ([estimated(0.0, 1.0, rows=1)], "not judged"),
    ],
)
def test_estimates(networks, word):
    found = estimates.verdict({"networks": {str(i): n for i, n in enumerate(networks)}, "outcomes": {}})
    assert found["verdict"] == word


def test_the_first_model_decides_and_the_other_stands_beside_it(monkeypatch):
    def judge(word):
        return {"verdict": word, "rule": word, "findings": [word], "numbers": [{"group": "g"}]}

    monkeypatch.setattr(mnist_problem, "parts", lambda result: {"network": YES, "linear": NO})
    found = mnist_problem.judged({}, judge)
    assert found["verdict"] == YES
    assert [n["group"] for n in found["numbers"]] == ["network: g", "linear: g"]
    monkeypatch.setattr(mnist_problem, "parts", lambda result: {"linear": NO})
    assert mnist_problem.judged({}, judge) == judge(NO)


def test_repeated_runs_count_their_seeds_from_the_first():
    arms = contest.repeated(["a", "b"], lambda name, seed, pieces: {"made": [name, seed]}, 3, 2, None)
    assert {label: (arm["made"], arm["group"], arm["seed"]) for label, arm in arms.items()} == {
        f"{name}, seed {seed}": ([name, seed], name, seed) for name in "ab" for seed in (3, 4)
    }
