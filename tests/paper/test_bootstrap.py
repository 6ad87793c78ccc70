from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from ownstep import InvalidInput
from ownstep.paper.appendix import against_fedopt as fedopt
from ownstep.paper.machinery import contest, neural, trend
from ownstep.paper.machinery.bootstrap import interval, number


def test_it_is_the_percentile_bootstrap_of_the_mean():
    data = np.random.default_rng(3).lognormal(size=8)
    ours = interval(data.tolist())
    theirs = stats.bootstrap(
        (data,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(5)
    ).confidence_interval
    assert ours.mean == pytest.approx(data.mean())
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), rel=0.02)


def test_two_runs_have_a_closed_form():
    # The means of two draws from {a, b} are a, (a + b)/2 and b with chances 1/4, 1/2 and 1/4.
    found = interval([1.0, 3.0])
    assert (found.mean, found.low, found.high, found.runs) == (2.0, 1.0, 3.0, 2)
    narrow = interval([1.0, 3.0], level=0.4)  # the middle 40 % is the middle value alone
    assert (narrow.low, narrow.high) == (2.0, 2.0)
    assert interval([5.0]).low == interval([5.0]).high == 5.0


def test_the_same_seed_gives_the_same_interval_and_others_nearly_so():
    data = [1.0, 1.53, 2.11, 4.07, 2.9]
    assert interval(data) == interval(data)
    assert interval(data, seed=1, times=20) != interval(data, seed=2, times=20)
    assert interval(data, seed=1).low == pytest.approx(interval(data).low, rel=0.05)
    for wrong in ([], [1.0, np.nan], [np.inf]):
        with pytest.raises(InvalidInput, match="at least one finite number"):
            interval(wrong)


def test_a_single_run_has_a_number_and_no_interval():
    assert number("x", [2.0]) == {
        "group": "", "what": "x", "value": 2.0, "low": None, "high": None, "runs": 1, "note": ""
    }  # fmt: skip


def run(ours, theirs, rounds=(0, 10, 20, 30)):
    series = {neural.OURS: ours, neural.POOLED: theirs}
    methods = {name: {"rounds": list(rounds), "loss": loss} for name, loss in series.items()}
    return {"devices": {"gain": 1.5}, "methods": methods}


def test_rounds_to_a_loss_lie_on_the_line_between_two_looks():
    series = {"rounds": [0, 10, 20], "loss": [3.0, None, 1.0]}
    assert neural.rounds_to(series, 2.0) == 10.0
    assert neural.rounds_to(series, 3.0) == 0.0
    assert neural.rounds_to(series, 0.9) is None
    one = run([4.0, 2.0, 1.0, 0.5], [4.0, 3.0, 2.0, 1.0])
    assert neural.at_loss(one, 2.0) == (20.0, 10.0)
    assert neural.at_loss(one, 0.75) == (30.0, 25.0)  # GD does not arrive and counts with all its rounds
    assert neural.at_loss(one, 0.1) is None
    assert neural.at_loss(one, 1.0, against=neural.MATCHED) is None


def test_a_network_s_claim_has_to_hold_at_every_stated_loss():
    fast, late = run([4.0, 2.0, 1.0, 0.5], [4.0, 3.0, 2.0, 1.0]), run([4.0, 3.5, 1.0, 0.5], [4.0, 3.0, 2.0, 1.0])
    always = neural.judge({"a": {"runs": [fast] * 3}}, (2.0, 1.0))
    assert always["verdict"] == "holds"
    assert [n["value"] for n in always["numbers"]] == [2.0, 1.5, 1.5]
    assert always["numbers"][0]["note"] == "10 [10, 10] rounds saved"
    partly = neural.judge({"a": {"runs": [late] * 3}}, (3.5, 1.0))
    assert partly["numbers"][0]["value"] < 1  # it starts slowly: the early loss is reached later
    assert partly["verdict"] == "holds partly"
    assert neural.judge({"a": {"runs": [fast]}}, (1.0,))["verdict"] == "not judged"


def contest_arm(ours, theirs, **more):
    rows = [
        {
            "method": name,
            "rounds": {"0.1": k},
            "search": None,
            "stopped": "",
            "accuracy": {"test": 0.9},
            "switched_at": None,
        }
        for name, k in ((contest.OURS, ours), ("FedAdam", theirs))
    ]
    return {"rows": rows, "group": "g", "series": {"x": {"round": [0, 100]}}, **more}


@pytest.mark.parametrize(
    ("counts", "word"),
    [
        ([(10, 20), (10, 30), (10, 25)], "holds"),
        ([(10, 20), (10, 30), (40, 10)], "does not hold here"),  # ahead on average, but not beyond the spread
        ([(10, None), (20, None), (10, 30)], "holds"),  # one that never arrives counts with the 100 rounds there were
        ([(None, None), (10, 30), (10, 20)], "holds"),
    ],
)
def test_a_contest_over_seeds_is_won_beyond_the_spread(counts, word):
    arms = {f"g, seed {i}": contest_arm(*pair) for i, pair in enumerate(counts)}
    judged = fedopt.verdict({"arms": arms})
    assert judged["verdict"] == word
    (found,) = judged["numbers"]
    ratios = [(b or 100) / (a or 100) for a, b in counts if a or b]
    assert found["value"] == pytest.approx(np.mean(ratios))
    assert found["runs"] == len(ratios)
    assert len(contest.firsts(arms)) == 1


def test_a_trend_gives_an_interval_for_every_value():
    def line(rate):
        return [1 - rate * k for k in range(101)]

    curves = [
        {contest.OURS: line(0.005 * r), contest.POOLED: line(0.005), trend.MATCHED: line(0.005)} for r in (1, 1.2)
    ]
    runs = [{"seed": seed, "gain": 1.0, "series": series} for seed, series in enumerate(curves)]
    judged = trend.verdict({"rounds": 100, "arms": [{"value": v, "runs": runs} for v in (1.0, 2.0)]}, "N", rising=True)
    assert [n["what"] for n in judged["numbers"]] == ["N = 1", "N = 2"] * 2
    assert (judged["numbers"][0]["low"], judged["numbers"][0]["high"]) == pytest.approx((1.0, 1.2))


def test_what_is_left_beside_another_baseline_is_computed():
    def arm(*others):
        made = [run([4.0, 2.0, 1.0, 0.5], [4.0, 3.0, 2.0, 1.0]) for _ in others]
        for one, loss in zip(made, others, strict=True):
            one["methods"][neural.MATCHED] = {"rounds": [0, 10, 20, 30], "loss": loss}
        return {"arm": {"runs": made}}

    slow, same = [4.0, 3.0, 2.0, 1.0], [4.0, 2.0, 1.0, 0.5]
    assert neural.beside(arm(same, same), neural.MATCHED).endswith(
        "1.00 [1.00, 1.00] (arm): none is left beyond the spread of the runs."
    )
    assert neural.beside(arm(slow, slow), neural.MATCHED).endswith("is 1.50 [1.50, 1.50] (arm).")
    assert neural.beside(arm(same), neural.MATCHED) == ""  # one run says nothing
    assert neural.beside(arm(same, same), neural.STRATIFIED) == ""
