"""The decision table: from the numbers alone, losing cases included, and the page from the same source."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from ownstep.data import load
from ownstep.engines import baselines, beyond, describe, rivals
from ownstep.engines.recommend import candidates
from ownstep.paper.ours import which_method as which
from ownstep.partition import given
from ownstep.problems import logistic_regression

from ..conftest import needs

RESULTS = Path(__file__).parents[2] / "results"


def row(method, first, *reruns, search=0):
    levels = {f"{t:g}": first for t in which.LEVELS}
    again = {t: list(reruns) for t in levels}
    return {"method": method, "rounds": levels, "rounds_of_reruns": again, "search_rounds": search}


def case(tuned):
    as_set = [row(which.OURS, 60), row("L-BFGS", 9), row("GD tuned", 4, search=90), row("FedAvg", None), row("A", 30)]
    return {"gain": 2.0, "rounds": 100, "as set": [*as_set, row("B", 31)], "tuned": tuned}


def result(**changed):
    counts = {which.OURS: (20, 20, 20)} | {name: (40, 40, 40) for name in rivals()} | changed
    return {"cases": {"made up": case([row(m, *c, search=7) for m, c in counts.items()])}, "recorded": {}}


def test_the_table_names_who_is_not_beaten_and_who_never_arrives():
    """SCAFFOLD is twice as fast; FedDyn's reruns are so far apart that nobody beats it; FedAvg does not arrive."""
    (found,) = which.table(result(SCAFFOLD=(10, 10, 10), FedDyn=(30, 9, 31), FedAvg=(None, None, 50)))
    assert found["with"] == [["SCAFFOLD", 10.0], ["FedDyn", 30.0]]
    assert found["search"] == {"SCAFFOLD": 7, "FedDyn": 7}
    assert found["without"] == [["L-BFGS", 9.0], ["A", 30.0], ["B", 31.0]]  # GD tuned has been searched for
    assert (found["ours_without"], found["ours_with"]) == (60.0, 20.0)
    assert found["never_with"] == ["FedAvg"]
    assert found["slowest_without"] == [which.OURS, 60.0]  # who never arrives is not the slowest
    assert found["never_without"] == ["FedAvg"]
    text = which.markdown([found])
    assert text.count("\n") == 2
    assert text.splitlines()[2] == (
        "| made up | 2.00 | L-BFGS 9, A 30, B 31 | SCAFFOLD 10 (search: 7), FedDyn 30 (search: 7) | 60, 20 "
        f"| {' '.join(f'{n:g}' if isinstance(n, float) else n for n in found['slowest_with'])} | FedAvg |"
    )
    nobody = found | {"without": [], "with": [], "ours_with": None, "slowest_with": None, "never_with": []}
    assert which.markdown([nobody]).splitlines()[2] == (
        "| made up | 2.00 | nothing gets there | nothing gets there | 60, never | - | none |"
    )


@pytest.mark.parametrize(
    ("changed", "word", "won"),
    [
        ({}, "holds", 24),
        ({"SCAFFOLD": (10, 10, 10)}, "holds partly", 22),
        ({"SCAFFOLD": (26, 9, 26)}, "holds partly", 22),  # a difference below the noise floor is none
        ({name: (10, 10, 10) for name in rivals()}, "does not hold here", 0),
        ({name: (None, None, None) for name in rivals()}, "holds", 24),
    ],
)
def test_the_verdict_counts_differences_beyond_the_noise_floor(changed, word, won):
    found = which.verdict(result(**changed))
    assert found["verdict"] == word
    assert f"in {won} of 24 comparisons" in found["rule"]


def test_nothing_holds_where_nobody_arrives():
    nobody = {name: (None, None, None) for name in [which.OURS, *rivals()]}
    found = which.verdict(result(**nobody))
    assert found["verdict"] == "does not hold here"
    assert "in 0 of 0 comparisons" in found["rule"]


def test_what_is_on_disk_gives_the_page_s_table():
    rows = which.read(RESULTS)
    assert [r["case"] for r in rows] == list(which.CASES)
    whole = json.loads((RESULTS / "which" / "result.json").read_text())
    assert which.verdict(whole["result"]) == whole["verdict"]
    assert {m for m in whole["result"]["recorded"] if m.startswith("Fed")} >= {"FedAdam", "FedAdam tuned"}
    assert which.read(RESULTS / "nowhere") == []
    for name in which.CASES:
        assert f"| {name} |" in which.markdown(rows)


def test_the_page_shows_what_plan_recommends_and_the_rivals_on_the_network():
    """From the recorded files; a method that diverged on a draw is called so, and the fastest stands first."""
    shown = which.recommended(RESULTS)
    recorded = json.loads((RESULTS / "benchmarks" / "recommend.json").read_text())
    assert shown.count("\n| ") == len(recorded["rows"])
    assert shown.endswith(f"The recommended method is {recorded['says']}.")
    near = sum(r["ratio"] <= recorded["near"] for r in recorded["rows"])
    assert f"in {near} of {len(recorded['rows'])}" in recorded["says"]
    lines = which.on_network(RESULTS).splitlines()
    assert lines[2].startswith("| FedSPS | 3, 3, 3 |")
    assert any("22, never, 23" in line and line.endswith("| faster |") for line in lines)
    assert lines[-1].startswith("| FedExP")
    assert lines[-1].endswith("| slower |")


def test_the_table_of_the_network_from_made_up_numbers(tmp_path):
    """Sorted by the median to the last share, in which never is last; what Algorithm 1 is, they are not."""
    rows = [
        {"method": "A", "runs": [{"0.5": 4, "0.1": 30}, {"0.5": 5, "0.1": None}, {"0.5": 6, "0.1": 40}],
         "again": [{"0.5": 4, "0.1": 31}], "search_rounds": 12345},
        {"method": "B", "runs": [{"0.5": 1, "0.1": 20}], "again": [{"0.5": 1, "0.1": None}]},
        {"method": "C", "runs": [{"0.5": 9, "0.1": None}], "search_rounds": 7},
    ]  # fmt: skip
    verdicts = {
        "A": {"0.1": {"algorithm 1 is": "faster"}, "0.5": {"algorithm 1 is": "slower"}},
        "B": {"0.1": {"algorithm 1 is": "slower"}},
    }
    (tmp_path / "fedopt").mkdir()
    made = {"settings": {"shares": [0.5, 0.1]}, "rows": rows, "verdicts": verdicts}
    (tmp_path / "fedopt" / "gpu-rivals.json").write_text(json.dumps(made))
    assert which.on_network(tmp_path).splitlines() == [
        "| method | to 0.5 of the first loss | to 0.1 of the first loss | the last again, same seed | search | than "
        "Algorithm 1 |",
        "|---|---|---|---|---|---|",
        "| B | 1 | 20 | never | 0 | faster |",
        "| A | 4, 5, 6 | 30, never, 40 | 31 | 12,345 | slower |",
        "| C | 9 | never |  | 7 | - |",
    ]


def test_the_cases_are_sites_with_scaled_columns_or_the_first_rows_split_by_a_rule(monkeypatch):
    rng = np.random.default_rng(0)
    rows, labels = rng.uniform(1, 5, (30, 3)), np.arange(30) % 3
    rows[:, 2] = 7.0  # a column that says nothing stays finite
    data = SimpleNamespace(table=lambda: (rows, labels), sites=np.repeat([0, 1, 2], [5, 10, 15]))
    monkeypatch.setattr(which, "load", lambda name: data)
    hospitals = which.problem("heart disease, four hospitals")
    assert hospitals.counts.tolist() == [5, 10, 15]
    scaled = np.vstack([hospitals.rows(i) for i in range(3)])
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(scaled.std(axis=0), [1, 1, 0], atol=1e-12)
    monkeypatch.setitem(which.CASES, "w8a, 2 devices by norm", ("w8a", "by_norm", 2, 20))
    by_norm = which.problem("w8a, 2 devices by norm")
    assert (by_norm.counts.sum(), len(by_norm.counts)) == (20, 2)
    some = np.vstack([by_norm.rows(i) for i in range(2)])
    np.testing.assert_allclose(np.sort(some, axis=0), np.sort(rows[:20], axis=0))
    assert which.problem("digits, one class per device").counts.tolist() == [10, 10, 10]
    assert by_norm.mu == which.MU


@pytest.mark.parametrize("quick", [True, False])
def test_a_case_is_raced_as_set_and_after_the_same_search(quick, monkeypatch):
    asked, problem = [], logistic_regression(np.eye(4), [0, 1, 0, 1], given([0, 0, 1, 1]), mu=0.5)

    def compare(made, methods, rounds, **options):
        asked.append((made, set(methods), rounds, options))
        told = {
            "method": "m",
            "key": "k",
            "rounds": {},
            "rounds_of_reruns": {},
            "bytes": {},
            "search_rounds": len(asked),
        }
        return SimpleNamespace(
            rows=lambda: [told | {"final_gap": 0.5, "stopped": "s", "seconds": 3}], plan=describe(made)
        )

    monkeypatch.setattr(which, "compare", compare)
    monkeypatch.setattr(which, "problem", lambda name, seed: problem)
    found = which.run(quick, seed=7, progress=False)
    names = ["heart disease, four hospitals"] if quick else list(which.CASES)
    assert list(found["cases"]) == names
    assert found["recorded"] == {}
    rounds = 40 if quick else 150
    for i, name in enumerate(names):
        (one, as_set, first, plain), (other, tuned, second, search) = asked[2 * i : 2 * i + 2]
        assert one is other is problem
        assert (first, second) == (rounds, rounds)
        assert as_set == {*baselines(), *beyond(), *candidates(), *rivals()}
        assert tuned == {which.OURS, "GD", *rivals()}
        same = {"tolerances": (1e-2, 1e-4), "seed": 7, "progress": False}
        assert plain == same
        assert search == same | {"tune": 2 if quick else 10, "reruns": 1 if quick else 3}
        case = found["cases"][name]
        assert (case["devices"], case["dim"], case["rounds"]) == (2, 4, rounds)
        assert (case["as set"][0]["search_rounds"], case["tuned"][0]["search_rounds"]) == (2 * i + 1, 2 * i + 2)
        assert "seconds" not in case["tuned"][0]
        L = describe(problem).devices
        assert (case["gain"], case["condition"]) == pytest.approx((L.gain, L.L_bar / 0.5))


def test_the_cases_are_split_as_they_say():
    digits = which.problem("digits, one class per device")
    assert len(digits.counts) == 10
    assert digits.mu == 1e-2
    rows, labels = load("digits").table()
    for i in range(10):
        assert digits.counts[i] == (labels == np.unique(labels)[i]).sum()
    assert digits.features == rows.shape[1]


@needs("heart_disease")
def test_hospitals_have_columns_of_one_size():
    made = which.problem("heart disease, four hospitals")
    rows, _ = load("heart_disease").table()
    table = np.concatenate([made.rows(i) for i in range(4)])
    np.testing.assert_allclose(table.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(table.std(axis=0), 1, rtol=1e-12)
    assert sorted(made.counts.tolist()) == sorted(
        np.unique(load("heart_disease").sites, return_counts=True)[1].tolist()
    )
    assert len(table) == len(rows)


@needs("w8a")
def test_w8a_is_its_first_rows_by_norm():
    made = which.problem("w8a, 2 devices by norm")
    assert made.counts.tolist() == [5000, 5000]
    rows, _ = load("w8a").table()
    sizes = np.sort(np.asarray(rows[:10_000].multiply(rows[:10_000]).sum(axis=1)).ravel())
    low, high = (np.asarray(made.rows(i).multiply(made.rows(i)).sum(axis=1)).ravel() for i in range(2))
    np.testing.assert_allclose(np.sort(low), sizes[:5000])
    np.testing.assert_allclose(np.sort(high), sizes[5000:])
