"""How often is what ``ownstep plan`` recommends nearly the fastest? Recommended on a sample, measured on all rows.

    python benchmarks/recommend.py            # minutes; writes results/benchmarks/recommend.json after every case
    python benchmarks/recommend.py --tables FILE_OR_FOLDER [...] [--no-header] [--out FILE]

``--tables`` takes files as ``curvature_tables.py`` does: each as it is and with scaled columns, with two penalties, on
ten devices at random.

Every candidate is run on all rows to a relative gap of 1e-6 and priced over three networks by the time model. The
recommendation has seen a sample: 2,000 rows, or half of them where there are fewer than 4,000, so that nothing is
judged on the run it was made from. "Measured" is exchanges, bytes and work that were counted, and seconds that the
model makes of them.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from curvature_tables import files_in, forms

from ownstep import load, logistic_regression, optimum, partition
from ownstep.engines import WIRES, candidates, describe, rehearse, run
from ownstep.engines.recommend import MOST, SAMPLE
from ownstep.history import History
from ownstep.problems import LinearModel
from ownstep.support.errors import OwnstepError

GAP, NEAR = 1e-6, 1.3
CASES: dict[str, tuple[str, float, str, int | None]] = {
    "w8a, mu = 1e-3, 10 by norm": ("w8a", 1e-3, "by_norm", 10),
    "w8a, mu = 1e-4, 10 by norm": ("w8a", 1e-4, "by_norm", 10),
    "w8a, mu = 1e-5, 10 by norm": ("w8a", 1e-5, "by_norm", 10),
    "w8a, mu = 1e-5, 50 iid": ("w8a", 1e-5, "iid", 50),
    "SST-2 words, mu = 1e-5, 10 iid": ("sst2_words", 1e-5, "iid", 10),
    "MNIST softmax, 3,000 images, mu = 1e-3, one digit each": ("mnist", 1e-3, "by_label", None),
    "digits, mu = 1e-3, one digit each": ("digits", 1e-3, "by_label", None),
    "breast cancer, mu = 1e-3, 10 by norm": ("breast_cancer", 1e-3, "by_norm", 10),
    "heart disease, mu = 1e-3, four hospitals": ("heart_disease", 1e-3, "site", None),
}
IMAGES = 3000
LARGEST = 300_000
"""Numbers in a table of ``--tables``, at most: every candidate runs on all of it."""
SHORT = ("case", "wire", "samples", "dim", "recommended", "exchanges", "fastest", "ratio")
"""What the file keeps of a table."""


def problem_of(name: str, mu: float, rule: str, devices: int | None) -> LinearModel:
    """The named case."""
    data = load(name)
    rows, labels = data.table()
    if name == "mnist":
        rows, labels = rows[:IMAGES], labels[:IMAGES]
    split = partition.given(data.sites) if rule == "site" else partition.make(rule, rows, labels, devices, 0)
    return logistic_regression(rows, labels, split, mu=mu)


def measured(problem: LinearModel) -> dict[str, History]:
    """Every candidate on all rows; those that arrive."""
    best, start = optimum(problem).value, problem.value(problem.x0())
    goal, devices, out = best + GAP * (start - best), describe(problem).devices, dict[str, History]()
    for name, method in candidates().items():
        try:
            history = run(method, problem, MOST, devices=devices, target=goal, progress=False)
        except OwnstepError:
            continue  # such as Newton's triangle of 13,774 coordinates
        if history.value[-1] <= goal:
            out[name] = history
    return out


def rows_of(case: str, problem: LinearModel) -> list[dict[str, Any]]:
    """One row per network."""
    count = int(problem.starts[-1])
    began = time.process_time()
    found = rehearse(problem, list(WIRES.values()), sample=min(SAMPLE, count // 2))
    took, runs, out = time.process_time() - began, measured(problem), []
    for wire, model in WIRES.items():
        advice, seconds = found.over(model, wire), {n: float(model.seconds(h)[-1]) for n, h in runs.items()}
        first, fastest = advice.rows[0], min(seconds, key=lambda name: seconds[name])
        out.append({
            "case": case, "wire": wire, "sampled": advice.sampled, "samples": count, "dim": problem.dim,
            "devices": len(problem.weights), "recommended": first.method, "runner_up": advice.rows[1].method,
            "expected_exchanges": first.exchanges, "exchanges": runs[first.method].rounds,
            "expected_seconds": first.seconds, "seconds": seconds[first.method], "fastest": fastest,
            "fastest_seconds": seconds[fastest], "ratio": seconds[first.method] / seconds[fastest],
            "measured": {n: {"exchanges": runs[n].rounds, "seconds": s} for n, s in seconds.items()},
            "rehearsal_cpu_seconds": took,
        })  # fmt: skip
    return out


def main(out: Path) -> None:
    """All cases; those that the file has already are kept."""
    kept = json.loads(out.read_text())["rows"] if out.exists() else []
    rows: list[dict[str, Any]] = []
    for case in CASES:
        rows += [r for r in kept if r["case"] == case] or rows_of(case, problem_of(*CASES[case]))
        for r in rows[-len(WIRES) :]:
            mine = f"{r['recommended']} {r['expected_exchanges']} exchanges, {r['expected_seconds']:.3g} s"
            took = (
                f"measured {r['exchanges']}, {r['seconds']:.3g} s; fastest {r['fastest']} {r['fastest_seconds']:.3g} s"
            )
            print(f"{r['case']}, {r['wire']}: {mine}; {took}; ratio {r['ratio']:.2f}", flush=True)
        keep(rows, out)
    print(keep(rows, out))


def keep(rows: list[dict[str, Any]], out: Path) -> str:
    """Write what is known, and say how often the recommendation was near the fastest."""
    ratios = np.array([r["ratio"] for r in rows])
    near = int((ratios <= NEAR).sum())
    text = f"within {NEAR} times the fastest measured in {near} of {len(ratios)}; worst {ratios.max():.2f}"
    out.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(map(json.dumps, rows))
    head = json.dumps({"says": text, "near": NEAR, "gap": GAP})
    out.write_text(f'{head[:-1]}, "rows": [\n{lines}\n]}}\n')
    return text


def of_tables(paths: list[Path], header: bool, out: Path) -> None:
    """The same for files."""
    rows: list[dict[str, Any]] = []
    for path in files_in(paths):
        try:
            for form, A, labels, mu in forms(path, header, LARGEST):
                split = partition.make("iid", A, labels, 10, 0)
                found = rows_of(f"{path.stem}, {form}, mu = {mu:g}", logistic_regression(A, labels, split, mu=mu))
                rows += [{key: row[key] for key in SHORT} | {"ratio": round(row["ratio"], 4)} for row in found]
                told = (f"{row['wire']}: {row['recommended']} {row['ratio']:.2f}" for row in found)
                print(found[0]["case"], *told, sep=", ", flush=True)
        except OwnstepError as error:
            print(f"{path.stem}: {error}", flush=True)
    print(keep(rows, out))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", type=Path)
    parser.add_argument("--no-header", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    folder = Path("results/benchmarks")
    if given.tables:
        of_tables(given.tables, not given.no_header, given.out or folder / "recommend-tables.json")
    else:
        main(given.out or folder / "recommend.json")
