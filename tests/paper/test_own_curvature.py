from __future__ import annotations

import numpy as np
import pytest

from ownstep.paper.machinery.runner import Pieces
from ownstep.paper.ours import curvature_findings, curvature_runs, own_curvature


def rows(found):
    """(data, split, devices, method, rank, seed, exchanges) as rows of a result."""
    names = ("data", "split", "devices", "method", "rank", "seed", "exchanges")
    more = {"bytes": 1.0, "seconds": {"home": 1.0, "wan": 1.0, "datacentre": 1.0}}
    return {"rows": [dict(zip(names, r, strict=True)) | more for r in found], "quick": False}


def made(own, fifty, default=50):
    main = own_curvature.MAIN
    out = []
    for seed in (0, 1):
        out += [(main, "one", 1, "lbfgs", None, seed, 60), (main, "one", 1, "own_curvature", 20, seed, 40)]
        for split in ("iid", "label"):
            out += [(main, split, n, "own_curvature", 20, seed, e) for n, e in ((2, 35), (10, own), (50, fifty))]
            out += [(main, split, 10, "own_curvature", 10, seed, default)]
    return rows(out)


@pytest.mark.parametrize(
    ("own", "fifty", "default", "word"),
    [
        (30, 25, 66, "holds"),
        (31, 25, 66, "holds partly"),  # more than half of L-BFGS's
        (30, 33, 60, "holds partly"),  # 50 devices against one: 0.83
        (30, 25, 67, "holds partly"),  # the default rank more than 1.1 of L-BFGS's
        (None, 33, 67, "does not hold here"),
    ],
)
def test_the_rules_decide(own, fifty, default, word):
    assert own_curvature.verdict(made(own, fifty, default))["verdict"] == word


@pytest.mark.slow
def test_a_small_run_makes_a_verdict_and_a_figure(tmp_path):
    jobs = [("one", 1, "lbfgs", None), ("one", 1, "newton", None), ("one", 1, "own_curvature", 10)]
    jobs += [(s, 3, "own_curvature", 10) for s in ("iid", "label", "by_norm", "dirichlet")]
    result = {"rows": curvature_runs.rows_of("breast_cancer", 1e-2, 0, jobs), "quick": True}
    assert all(r["exchanges"] for r in result["rows"])
    assert len({r["bytes"] for r in result["rows"]}) > 3
    said = own_curvature.verdict(result)
    assert said["verdict"] == "holds"
    assert {n["what"] for n in said["numbers"]} >= {"3 label", "1 one"}
    own_curvature.figure(result).savefig(tmp_path / "figure.png")
    assert np.isfinite([r["seconds"]["home"] for r in result["rows"]]).all()


def test_trends_are_counted_draw_by_draw():
    main, out = own_curvature.MAIN, []
    for seed, (one, two, ten, fifty) in enumerate([(40, 30, 20, 10), (40, 40, 41, 30)]):
        out += [(main, "one", 1, "lbfgs", None, seed, 60), (main, "one", 1, "own_curvature", 10, seed, one)]
        out += [(main, "iid", n, "own_curvature", 10, seed, e) for n, e in ((2, two), (10, ten), (50, fifty))]
        out += [(main, "label", 10, "own_curvature", 10, seed, ten // 2)]
    said, numbers = curvature_findings.trends(rows(out))
    assert "iid (1: 40.0, 2: 35.0, 10: 30.5, 50: 20.0) fewer 4, same 1, more 1" in said[0]
    by = {(n["group"].split(": ")[1], n["what"]): n for n in numbers}
    most = by["exchanges of the most devices over one device", "iid, 50 / 1"]
    assert (most["value"], most["low"], most["high"]) == (0.5, 0.25, 0.75)
    assert by["exchanges by label over iid", "10 devices"]["value"] == pytest.approx((0.5 + 20 / 41) / 2)
    assert said[1].endswith("exchanges of unlike devices over iid ones: 10 by label (0.49) fewer 2, same 0, more 0")


def test_unlike_devices_may_need_as_many_exchanges():
    main, out = own_curvature.MAIN, []
    for seed, apart in enumerate((20, 30, 10, 30)):
        out += [(main, "iid", 10, "own_curvature", 10, seed, 20), (main, "label", 10, "own_curvature", 10, seed, apart)]
    (said,), _ = curvature_findings.trends(rows(out))
    assert said.endswith("10 by label (1.12) fewer 1, same 1, more 2")


def test_draws_in_which_either_does_not_arrive_are_not_compared():
    main, out = own_curvature.MAIN, []
    for seed, (one, fifty) in enumerate([(40, 10), (None, 10), (40, None), (None, None)]):
        out += [(main, "one", 1, "own_curvature", 10, seed, one), (main, "iid", 50, "own_curvature", 10, seed, fifty)]
    out += [(main, "one", 1, "own_curvature", 10, 7, 40), (main, "iid", 50, "own_curvature", 10, 8, 10)]  # apart
    _, (number,) = curvature_findings.trends(rows(out))
    assert (number["value"], number["runs"]) == (0.25, 1)


def test_seconds_are_of_methods_that_always_arrive_and_rivals_of_the_first_draw():
    main, out = own_curvature.MAIN, []
    for seed, more in ((5, 100), (3, 0)):
        out += [(main, "one", 1, name, None, seed, 60 + more) for name in ("lbfgs", "newton")]
        out += [
            (main, "by_norm", 10, "own_curvature", 10, seed, 30 + more),
            (main, "by_norm", 10, "giant", None, seed, 44 + more),
        ]
        out += [(main, "by_norm", 10, "dane", None, seed, None)]
    found = rows(out)
    for row in found["rows"]:
        took = {"lbfgs": 4.0, "own_curvature": 2.0}.get(row["method"], 1.0) + (row["seed"] == 5)
        row["seconds"] = {"home": took, "wan": took, "datacentre": took}
    next(r for r in found["rows"] if (r["method"], r["seed"]) == ("newton", 5))["seconds"] = None
    (said,) = curvature_findings.seconds(found)
    assert "home own curvature 2.5, L-BFGS 4.5;" in said
    (said,) = curvature_findings.slow(found)
    assert said.endswith("first draw, exchanges: lbfgs 60, own_curvature 10 30, giant 44, dane not in time")


def test_the_fewest_bytes_decide_and_what_was_not_run_is_said():
    main = own_curvature.MAIN
    found = rows(
        [(main, "one", 1, "lbfgs", None, 0, 60)]
        + [(main, "by_norm", 10, "own_curvature", k, 0, 30) for k in (0, 1, 5, 10)]
    )
    for row, size in zip(found["rows"], (100.0, 120.0, 99.0, 130.0, 140.0), strict=True):
        row["bytes"] = size
    found["not_run"] = ["2 devices: w8a 0.001, draw 3"]
    found["rows"].append(found["rows"][-1] | {"rank": 50, "exchanges": None, "refused": "too few rows"})
    said = own_curvature.verdict(found)
    assert "yes: w8a at 1e-5, some rank needs no more bytes than L-BFGS (fewest 0.99)" in said["findings"]
    assert "1 parts of the experiment have not been run" in said["rule"]
    assert any("fewest at rank 1, 0.99 of L-BFGS's" in line for line in said["findings"])
    assert any("NOT RUN, 1 parts: 2 devices (1): w8a 0.001, draw 3" in line for line in said["findings"])
    assert any("refused in 1 runs" in line for line in said["findings"])
    for row in found["rows"][1:3]:
        row["bytes"] = 101.0
    assert "NO: w8a at 1e-5, some rank" in " ".join(own_curvature.verdict(found)["findings"])


def test_the_order_of_the_parts_is_the_most_telling_first_and_a_cap_lists_the_rest(monkeypatch, tmp_path):
    parts = curvature_runs.parts(draws=2)
    assert parts[0] == ("one device", "w8a", 1e-5, 0)
    stages = [stage for stage, *_ in parts]
    wide = len(curvature_runs.WIDE)
    few = 2 * (2 * len(curvature_runs.DATA) - wide)
    assert set(stages[:few]) == {"one device", "10 devices"}
    main = [part for part in parts[few:] if part[1:3] == ("w8a", 1e-5)]
    assert parts[few : few + len(main)] == main
    after = parts[few + len(main) :][: 2 * wide]
    assert {part[:2] for part in after} == {("10 devices", name) for name in curvature_runs.WIDE}
    assert {name for _, name, *_ in parts[-10:]} == {"sst2_words", "mnist"}
    assert {d for _, name, _, d in curvature_runs.parts() if name == "mnist"} == {0, 1}  # of five
    assert {d for _, name, _, d in curvature_runs.parts() if name == "w8a"} == {0, 1, 2, 3, 4}
    assert sorted(parts) == sorted(set(parts))
    rivals = "rivals and first order"
    others = [stage for stage, name, mu, _ in parts if name not in curvature_runs.WIDE and (name, mu) != ("w8a", 1e-5)]
    assert set(others[others.index(rivals) :]) == {rivals}
    assert sum(s == rivals for s in stages) == len(curvature_runs.DATA)  # one draw alone
    made = []  # each takes 40 seconds
    monkeypatch.setattr(own_curvature, "parts", lambda draws: parts[:5])
    monkeypatch.setattr(own_curvature, "make", lambda *a: made.append(a) or [])
    monkeypatch.setattr(own_curvature.time, "monotonic", lambda: 40.0 * len(made))
    result = own_curvature.run(minutes=1, progress=False)
    assert len(made) == 2
    assert result["not_run"] == [f"one device: {n} {mu:g}, draw {d}" for _, n, mu, d in parts[2:5]]
    kept = Pieces(tmp_path)
    own_curvature.run(minutes=1, progress=False, pieces=kept)  # the clock starts anew: two more parts
    made.clear()
    assert len(own_curvature.run(minutes=1, progress=False, pieces=kept)["not_run"]) == 1  # kept ones take no time


def test_every_split_and_method_is_there():
    jobs = curvature_runs.STAGES["10 devices"]("heart_disease", 0)
    assert {(s, n) for s, n, *_ in jobs} == {(s, 10) for s in ("iid", "label", "by_norm", "dirichlet")} | {
        ("hospitals", 4)
    }
    slow = {m for _, _, m, _ in curvature_runs.STAGES["rivals and first order"]("w8a", 0)}
    assert slow >= {"own_step", "gd:tuned", "nesterov", "item", "bb", "adaptive", "giant", "dane", "shed"}
    assert slow <= set(curvature_runs.METHODS)


def test_a_rival_out_of_processor_time_is_not_there(monkeypatch):
    monkeypatch.setattr(curvature_runs, "PATIENCE", 0.0)
    (row,) = curvature_runs.rows_of("breast_cancer", 1e-2, 0, [("iid", 3, "giant", None)])
    assert row["exchanges"] is None
    assert "out of processor time after 0 exchanges" in row["stopped"]


def test_the_number_of_the_claim_is_own_curvature_s_and_no_rival_s():
    result = made(21, 18, default=50)
    result["rows"] += rows([(own_curvature.MAIN, "label", 10, "sum", 10, seed, 90) for seed in (0, 1)])["rows"]
    assert curvature_findings.measured(result).startswith("50 exchanges where L-BFGS needs 60 (ten devices by label, ")
