"""Which method? Algorithm 1 and the federated rivals on measured cases, as they are set and after the same search.

``ownstep paper which`` runs it. :func:`table` turns what was measured into a decision table, one row per case: the docs
page and any recommendation read that table and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ownstep import partition as partitions
from ownstep.data import load
from ownstep.engines import baselines, beyond, compare, rivals
from ownstep.engines.noise import floor, judge, middle
from ownstep.engines.recommend import candidates
from ownstep.methods import GD, Method, OwnStep
from ownstep.paper.machinery import fairness
from ownstep.paper.machinery.runner import Pieces
from ownstep.problems import LinearModel, logistic_regression

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLAIM = "After the same search, Algorithm 1 needs fewer rounds than the federated methods with local steps."

OURS = "Algorithm 1"
LEVELS = (1e-2, 1e-4)
ROUNDS, TRIALS, RERUNS = 150, 10, 3
MU = 1e-2
CASES: dict[str, tuple[str, str | None, int | None, int | None]] = {
    "heart disease, four hospitals": ("heart_disease", None, None, None),
    "w8a, 2 devices by norm": ("w8a", "by_norm", 2, 10_000),
    "digits, one class per device": ("digits", "by_label", None, None),
}
"""Dataset, partition (None: its sites), devices and rows."""
NETWORK = "MNIST network, two classes per device (recorded)"

SETTINGS = (
    ("this experiment", "not in the paper", "Algorithm 1, its extensions, what `ownstep plan` chooses from, and twelve "
     "federated methods", "to choose"),
    ("data", "", "heart disease by hospital (columns scaled to mean 0 and variance 1), w8a (10,000 rows) by norm, "
     "digits by label; quick: heart disease with small searches", "measured here"),
    ("network", "", "what the fedopt experiment recorded", "measured on a GPU before"),
    ("model", "", f"logistic regression, mu = {MU:g}", "its optimum is known"),
    ("local steps", "", "five, where a method has them", "the usual size"),
    ("search", "", f"{TRIALS} settings for every method, raced over {ROUNDS} rounds to a gap of {LEVELS[-1]:g}",
     "the same for all; its rounds are shown"),
    ("noise", "", f"{RERUNS} reruns with other seeds, searches included", "a difference below their spread is none"),
)  # fmt: skip


def run(
    quick: bool = False,
    seed: int = 0,
    progress: bool | None = None,
    pieces: Pieces | None = None,
    results: Path | None = None,
) -> dict[str, Any]:
    """Every case as set and tuned, as plain data; ``quick`` takes heart disease alone and searches little."""
    kept, out = pieces or Pieces(), {}
    for name in CASES:
        if not quick or CASES[name][0] == "heart_disease":
            out[name] = kept(name, _case, name, seed, quick, progress)
    recorded = {} if results is None else network(results)
    return {"cases": out, "recorded": recorded}


def problem(name: str, seed: int = 0) -> LinearModel:
    """The named case."""
    data, rule, devices, count = CASES[name]
    found = load(data)
    rows, labels = found.table()
    if rule is None:
        assert found.sites is not None
        split = partitions.given(found.sites)
        rows = (rows - rows.mean(axis=0)) / np.maximum(rows.std(axis=0), 1e-12)
    else:
        rows, labels = rows[:count], labels[:count]
        split = partitions.make(rule, rows, labels, devices, seed)
    return logistic_regression(rows, labels, split, mu=MU)


def _case(name: str, seed: int, quick: bool, progress: bool | None) -> dict[str, Any]:
    made, rounds = problem(name, seed), 40 if quick else ROUNDS
    options: dict[str, Any] = {"tolerances": LEVELS, "seed": seed, "progress": progress}
    as_set = compare(made, baselines() | beyond() | candidates() | rivals(), rounds, **options)
    ours: dict[str, Method] = {OURS: OwnStep(), "GD": GD("tuned")}
    tuned = compare(
        made, ours | rivals(), rounds, tune=2 if quick else TRIALS, reruns=1 if quick else RERUNS, **options
    )
    shown = tuned.plan.devices
    return {
        "devices": len(shown), "gain": shown.gain, "condition": float(shown.L_bar / max(made.strong_convexity, 1e-300)),
        "dim": made.dim, "rounds": rounds, "as set": _rows(as_set.rows()), "tuned": _rows(tuned.rows()),
    }  # fmt: skip


def _rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    kept = ("method", "key", "rounds", "rounds_of_reruns", "bytes", "search_rounds", "final_gap", "stopped")
    return [{name: row[name] for name in kept} for row in rows]


def network(results: Path) -> dict[str, Any]:
    """Rounds on the paper's network by method and level, one per draw, from the fedopt experiment's result."""
    try:
        arms = json.loads((results / "fedopt" / "result.json").read_text())["result"]["network"]["arms"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    out: dict[str, dict[str, list[int | None]]] = {}
    for arm in arms.values():
        for row in arm["rows"]:
            for level, count in row["rounds"].items():
                out.setdefault(row["method"], {}).setdefault(level, []).append(count)
    return out


def counts(row: Mapping[str, Any], level: float) -> list[int | None]:
    """Rounds to a level, of the run and of its reruns."""
    name = f"{level:g}"
    return [row["rounds"][name], *row["rounds_of_reruns"][name]]


def table(result: Mapping[str, Any], level: float = LEVELS[-1]) -> list[dict[str, Any]]:
    """One row per case: what to take without a search, what with one, where Algorithm 1 stands, and who loses.

    ``with`` are the methods that no other beats beyond the noise floor, ``without`` the three fastest that need no
    search (only Scaffnew's coins are drawn in them), fastest first, with their rounds; ``never`` do not get there.
    """
    out = []
    for name, case in result["cases"].items():
        row: dict[str, Any] = {"case": name, "gain": case["gain"], "level": level, "rounds": case["rounds"]}
        for kind, title in (("as set", "without"), ("tuned", "with")):
            searched = kind == "tuned"
            runs = {r["method"]: counts(r, level) for r in case[kind] if searched or not r["search_rounds"]}
            order = sorted((m for m in runs if np.isfinite(middle(runs[m]))), key=lambda m: middle(runs[m]))
            first = [m for m in order if not _beaten(runs[order[0]], runs[m])] if searched else order[:3]
            row[title] = [[m, middle(runs[m])] for m in first]
            row[f"ours_{title}"] = middle(runs[OURS]) if OURS in order else None
            row[f"never_{title}"] = [m for m in runs if m not in order]
            row[f"slowest_{title}"] = [order[-1], middle(runs[order[-1]])] if order else None
        search = {r["method"]: r["search_rounds"] for r in case["tuned"]}
        row["search"] = {m: search[m] for m, _ in row["with"]}
        out.append(row)
    return out


def _beaten(best: Sequence[int | None], other: Sequence[int | None]) -> bool:
    return judge(best, other, floor({"a": best, "b": other}))[1] == "faster"


def read(results: str | Path) -> list[dict[str, Any]]:
    """The decision table from a folder of results; empty where the experiment was not run."""
    try:
        return table(json.loads((Path(results) / "which" / "result.json").read_text())["result"])
    except (OSError, ValueError, KeyError):
        return []


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """The decision table for a page; losing cases included."""
    lines = [
        "| case | predicted gain | take this, without a search | and after one | Algorithm 1: without, with "
        "| slowest tuned | tuned and never there |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        plain = ", ".join(f"{m} {k:g}" for m, k in row["without"]) or "nothing gets there"
        tuned = ", ".join(f"{m} {k:g} (search: {row['search'][m]:,})" for m, k in row["with"]) or "nothing gets there"
        ours = ", ".join("never" if row[key] is None else f"{row[key]:g}" for key in ("ours_without", "ours_with"))
        slow = "-" if row["slowest_with"] is None else "{} {:g}".format(*row["slowest_with"])
        never = ", ".join(row["never_with"]) or "none"
        lines.append(f"| {row['case']} | {row['gain']:.2f} | {plain} | {tuned} | {ours} | {slow} | {never} |")
    return "\n".join(lines)


def recommended(results: str | Path) -> str:
    """What ``ownstep plan`` recommends on measured cases, and what was fastest there, as a table for a page.

    ``benchmarks/recommend.py`` writes it, with the candidates and the rehearsal that ``plan`` uses.
    """
    found = json.loads((Path(results) / "benchmarks" / "recommend.json").read_text())
    lines = [
        "| case | network | `plan` recommends | exchanges: expected, measured | seconds: expected, measured | fastest "
        "| ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        fastest = f"{row['fastest']}, {row['fastest_seconds']:.3g} s"
        lines.append(
            f"| {row['case']} | {row['wire']} | {row['recommended']} | {row['expected_exchanges']}, {row['exchanges']} "
            f"| {row['expected_seconds']:.3g}, {row['seconds']:.3g} "
            f"| {'the same' if row['fastest'] == row['recommended'] else fastest} | {row['ratio']:.2f} |"
        )
    return "\n".join([*lines, "", f"The recommended method is {found['says']}."])


def on_network(results: str | Path) -> str:
    """The rivals on the paper's network after the same search, fastest first, as a table for a page."""
    found = json.loads((Path(results) / "fedopt" / "gpu-rivals.json").read_text())
    shares = [f"{share:g}" for share in found["settings"]["shares"]]
    rows = []
    for row in found["rows"]:
        runs, again = row.get("runs", []), row.get("again", [])
        cells = [", ".join("never" if run[s] is None else str(run[s]) for run in runs) for s in shares]
        same = ", ".join("never" if run[shares[-1]] is None else str(run[shares[-1]]) for run in again)
        verdict = found["verdicts"].get(row["method"], {}).get(shares[-1], {})
        word = {"slower": "faster", "faster": "slower"}.get(word := str(verdict.get("algorithm 1 is", "-")), word)
        order = middle([run[shares[-1]] for run in runs])
        search = f"{row.get('search_rounds', 0):,}"
        rows.append((order, f"| {row['method']} | {' | '.join(cells)} | {same} | {search} | {word} |"))
    heads = [f"to {share} of the first loss" for share in shares]
    lines = [f"| method | {' | '.join(heads)} | the last again, same seed | search | than Algorithm 1 |"]
    lines.append("|" + "---|" * (len(shares) + 4))
    return "\n".join([*lines, *(text for _, text in sorted(rows))])


def verdict(result: Mapping[str, Any]) -> dict[str, Any]:
    """Computed: against how many tuned rivals, in which cases, is Algorithm 1 faster beyond the noise floor?"""
    words: dict[str, int] = {}
    findings = []
    for name, case in result["cases"].items():
        rows = {r["method"]: r for r in case["tuned"]}
        for level in LEVELS:
            ours, said = counts(rows[OURS], level), []
            for rival in rivals():
                theirs = counts(rows[rival], level)
                ratio, word = judge(ours, theirs, floor({"a": ours, "b": theirs}))
                words[word] = words.get(word, 0) + 1
                said.append(f"{rival} {word}" + ("" if ratio is None else f" ({ratio:.2f})"))
            findings.append(f"{name}, to {level:g}: against {', '.join(said)}")
    won = words.get("faster", 0) + words.get("only ours arrives", 0)
    lost = words.get("slower", 0) + words.get("only theirs arrives", 0)
    total, half = sum(words.values()) - words.get("neither arrives", 0), words.get("in half of the runs", 0)
    for method, levels in result.get("recorded", {}).items():
        if method == OURS or method.startswith("Fed") or method == "Nesterov":
            medians = {level: middle(v) for level, v in levels.items()}
            text = ", ".join(f"{m:g} to {t}" if np.isfinite(m) else f"never to {t}" for t, m in medians.items())
            findings.append(f"{NETWORK}: {method} {text}")
    return {
        "verdict": "holds" if won == total and total else "holds partly" if won else "does not hold here",
        "rule": f"faster beyond the noise floor, or alone in getting there, in {won} of {total} comparisons (case, "
        f"rival, level) where some method gets there; slower in {lost}, "
        f"no difference in {words.get('no difference', 0)}"
        + (f", one of the two arrives in half of its runs in {half}" if half else ""),
        "findings": findings,
    }


def fair(result: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict against fair rivals, one setting per case and level; tuned GD meets Algorithm 1 after its search."""
    cells: dict[str, list[list[float]]] = {}
    for case in result["cases"].values():
        for kind in ("as set", "tuned"):
            rows = {row["method"]: row["rounds"] for row in case[kind]}
            for rival, rounds in rows.items():
                pairs = [(rows[OURS][level], rounds[level]) for level in rounds]
                ratios = [fairness.speed_up(a, b, case["rounds"]) for a, b in pairs]
                name = "GD tuned" if (kind, rival) == ("tuned", "GD") else rival
                if (kind, name) != ("as set", "GD tuned"):
                    cells.setdefault(name, []).extend([ratio] for ratio in ratios if ratio is not None)
    return fairness.against(cells, "settings (case, gap)")


def charts(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For the report: rounds of the tuned methods to each level, one tick per case and one line per method."""
    cases, out = list(result["cases"]), []
    for level in LEVELS[::-1]:
        rounds: dict[str, list[int | None]] = {}
        for i, case in enumerate(result["cases"].values()):
            for row in case["tuned"]:
                rounds.setdefault(row["method"], [None] * len(cases))[i] = row["rounds"][f"{level:g}"]
        kept = {name: found for name, found in rounds.items() if any(v is not None for v in found)}
        lines = [{"name": name, "x": list(range(len(cases))), "y": found} for name, found in kept.items()]
        title = f"Rounds to a relative gap of {level:g}, all tuned (no dot: not reached)"
        out.append({"title": title, "x": "case", "y": "rounds", "log": True, "ticks": cases, "kind": "points",
                    "lines": lines, "pointer": "result.cases"})  # fmt: skip
    return out


def figure(result: Mapping[str, Any]) -> Figure:
    """Median rounds to the tightest level after the search, one panel per case, the spread of the reruns as a bar."""
    from ownstep import plots
    from ownstep.paper.machinery.pictures import listed

    cases = result["cases"]
    drawn, axes = plots.new_figure(len(cases), width=2.3 if len(cases) > 1 else plots.PAGE, height=3.3, share=True)
    every = {name: {r["method"]: counts(r, LEVELS[-1]) for r in case["tuned"]} for name, case in cases.items()}
    ours, best = [], []
    for rows, case in zip(every.values(), cases.values(), strict=True):
        mine, (count, rival) = middle(rows[OURS]), min((middle(k), m) for m, k in rows.items() if m != OURS)
        ours.append(f"{mine:g}" if np.isfinite(mine) else f"more than {case['rounds']}")
        best.append(f"{count:g} ({_known(rival)})")
    plots.headline(drawn, f"Tuned, Algorithm 1 needs {listed(ours)} rounds; the fastest rival needs {listed(best)}")
    longest = max(case["rounds"] for case in cases.values())
    methods = sorted(
        dict.fromkeys(m for rows in every.values() for m in rows),
        key=lambda m: np.mean([min(middle(rows.get(m, [None])), 3 * longest) for rows in every.values()]),
    )
    for ax, (name, case) in zip(axes[0], cases.items(), strict=True):
        for i, method in enumerate(methods):
            found = every[name].get(method, [])
            known, tint = [c for c in found if c is not None], _tint(method)
            if found and np.isfinite(middle(found)):
                ax.plot([min(known), max(known)], [i, i], color=tint, lw=3, alpha=0.4, label="_range")
                ax.plot(float(np.median(known)), i, "o", color=tint, ms=4.5, label="_median")
            elif found:
                ax.text(1.25 * case["rounds"], i, "never", color=tint, va="center", ha="right", fontsize=plots.TEXT)
        ax.set_yticks(range(len(methods)), [_known(m) for m in methods])
        ax.set(xscale="log", xlim=(5, 1.4 * case["rounds"]), ylim=(len(methods) - 0.4, -0.6))
        ax.tick_params(axis="y", length=0)
        plots.finish(ax, name, f"rounds to a gap of {plots.power(LEVELS[-1])}", "")
    return drawn


def _known(method: str) -> str:
    return "GD tuned" if method == "GD" else method


def _tint(method: str) -> str:
    from ownstep import plots

    return plots.colour(_known(method)) if method in (OURS, "GD") else "#777777"
