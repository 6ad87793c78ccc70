from __future__ import annotations

from ownstep.paper.ours import beyond


def test_small_arms_make_a_verdict_and_a_figure(tmp_path):
    problem = beyond.synthetic()
    result = {
        "full": {"synthetic": beyond._full(problem, 40, 0)},
        "absent": {"synthetic": beyond._absent(problem, 30, 1)},
        "worst_case": beyond._worst_cases((0.1,), (1,), 3, False),
        "network": None,
    }
    said = beyond.verdict(result)
    rows = {row["method"]: list(row["rounds"].values()) for row in result["full"]["synthetic"]["rows"]}
    won = cells = 0
    for ours, theirs in beyond.ABLATIONS.items():
        for level, mine in enumerate(rows[ours]):
            there = [rows[name][level] for name in theirs if rows[name][level] is not None]
            cells += bool(there)
            won += bool(there) and mine is not None and min(there) / mine > 1.05
    assert 0 < won <= cells
    assert said["verdict"] == ("holds" if won == cells else "holds partly")
    assert f"in {won} of {cells} comparisons" in said["rule"]
    assert any("half absent: runs of 1 that reach 0.01" in line for line in said["findings"])
    beyond.figure(result).savefig(tmp_path / "figure.png")


def test_the_better_ablation_counts():
    rows = [("ours", [10, 20, None]), ("a", [30, None, 5]), ("b", [20, 10, 7])]
    arm = {"rows": [{"method": m, "rounds": dict(zip("xyz", r, strict=True))} for m, r in rows]}
    assert beyond.speed_ups(arm, "ours", ("a", "b")) == [2, 0.5, 0]  # ours never arrives
    assert beyond.speed_ups(arm, "ours", ("a",)) == [3, None, 0]
