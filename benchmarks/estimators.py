"""The estimator against scikit-learn's LogisticRegression, reading against its peers, and the memory of a fit.

    python benchmarks/estimators.py [solvers] [large] [reading] [memory] [--out FILE]

``solvers``: digits, breast cancer and w8a, every solver to a gradient norm of 1e-8; ``large``: 1,000,000 x 100 dense.
A solver's own ``tol`` means something else for each: every peer is run at the loosest of 1e-4, 1e-5, ... whose gradient
is small enough, so that none does more than it has to. How far each then is from the minimum is measured against
newton-cholesky with a tolerance of 1e-14. ``reading``: LIBSVM and CSV. ``memory``: the largest resident
size of a process that fits 1,000,000 x 100, in multiples of the table's own.

Times are processor time with one thread, the best of several runs that take turns: on a machine with other work, the
clock on the wall would measure that work. Reading is timed by both clocks: pandas reads on all cores. Without arguments
everything but ``large`` is done.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import dump_svmlight_file, load_breast_cancer, load_digits, load_svmlight_file
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import ownstep
from ownstep.problems import logistic_regression
from ownstep.sklearn import OwnStepClassifier

GOAL = 1e-8
SAMPLES, FEATURES = 1_000_000, 100


def best_of(
    jobs: dict[str, Callable[[], Any]], repeats: int, clock: Callable[[], float] = time.process_time
) -> dict[str, float]:
    """Seconds of every job, which take turns: of the processor, unless another clock is given."""
    best = dict.fromkeys(jobs, np.inf)
    for _ in range(repeats):
        for name, job in jobs.items():
            began = clock()
            job()
            best[name] = min(best[name], clock() - began)
    return best


def gradient_norm(problem, model) -> float:
    table = np.column_stack([model.coef_, model.intercept_])
    return float(np.linalg.norm(problem.mix(table.T.ravel(), problem.weights)[1]))


def at_goal(solver: str, rows, labels, problem, powers):
    """The solver at the loosest tolerance that is tight enough, or None."""
    for power in powers:
        model = LogisticRegression(solver=solver, tol=10.0**-power, max_iter=10_000).fit(rows, labels)
        if gradient_norm(problem, model) <= GOAL:
            return model
    return None


def solvers(name: str, rows, labels, repeats: int, powers=range(4, 13)) -> dict[str, Any]:
    problem = logistic_regression(rows, labels, mu=1 / rows.shape[0], intercept=True)
    ours = OwnStepClassifier(tol=GOAL).fit(rows, labels)
    models = {s: at_goal(s, rows, labels, problem, powers) for s in ("lbfgs", "newton-cholesky")}
    jobs = {"ours": lambda: OwnStepClassifier(tol=GOAL).fit(rows, labels)}
    jobs |= {s: lambda m=m: m.fit(rows, labels) for s, m in models.items() if m is not None}
    times = best_of(jobs, repeats)
    better = min((s for s in times if s != "ours"), key=times.__getitem__)
    gap = float(abs(models[better].coef_ - ours.coef_).max())
    reached = gradient_norm(problem, ours)
    told = {"seconds": times, "gradient_norm": reached, "rounds": ours.n_iter_, "coefficients_differ": gap}
    told |= {"better": better, "ratio": times["ours"] / times[better]}
    exact = LogisticRegression(solver="newton-cholesky", tol=1e-14, max_iter=100).fit(rows, labels)
    told["gradient_norm_of_the_minimum"] = gradient_norm(problem, exact)
    told["off_the_minimum"] = {
        kind: float(abs(model.coef_ - exact.coef_).max()) for kind, model in {**models, "ours": ours}.items() if model
    }
    shown = ", ".join(f"{s} {t:.4f} s" for s, t in times.items())
    off = ", ".join(f"{kind} {far:.1e}" for kind, far in told["off_the_minimum"].items())
    print(
        f"{name}: {shown}; ratio to the better one ({better}) {told['ratio']:.2f}, coefficients differ by {gap:.1e}; "
        f"off the minimum: {off}",
        flush=True,
    )
    return told


def large():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((SAMPLES, FEATURES))
    labels = (rows @ rng.standard_normal(FEATURES) / 5 + rng.logistic(size=SAMPLES) > 0).astype(int)
    return rows, labels


def reading() -> dict[str, Any]:
    import pandas as pd

    out = {}
    with tempfile.TemporaryDirectory() as folder:
        svm, table = Path(folder) / "w8a.svm", Path(folder) / "table.csv"
        rows, labels = ownstep.load("w8a").table()
        dump_svmlight_file(rows, labels, str(svm), zero_based=False)
        rng = np.random.default_rng(0)
        frame = pd.DataFrame(rng.standard_normal((100_000, 30)), columns=[f"c{i}" for i in range(30)])
        frame.assign(label=rng.integers(0, 2, len(frame))).to_csv(table, index=False)
        kinds = {
            "LIBSVM (w8a)": (lambda: ownstep.load(str(svm)), lambda: load_svmlight_file(str(svm))),
            "CSV (100,000 x 31)": (lambda: ownstep.load(str(table)), lambda: pd.read_csv(table)),
            "CSV, against pandas and a matrix of rows": (
                lambda: ownstep.load(str(table)),
                lambda: np.ascontiguousarray(pd.read_csv(table).drop(columns="label").to_numpy()),
            ),
        }
        for name, (ours, theirs) in kinds.items():
            out[name] = {}
            for clock, measure in (("processor", time.process_time), ("wall", time.perf_counter)):
                times = best_of({"ours": ours, "peer": theirs}, 9, measure)
                out[name][clock] = {"seconds": times, "ratio": times["ours"] / times["peer"]}
                print(f"{name}, {clock}: ours {times['ours']:.3f} s, peer {times['peer']:.3f} s, ratio "
                      f"{out[name][clock]['ratio']:.2f}")  # fmt: skip
    return out


MEMORY = """
import resource, sys
sys.path.insert(0, {here!r})
import estimators
rows, labels = estimators.large()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
if {kind!r} == "fit":
    from ownstep.glm import fit
    fit(rows, labels)
elif {kind!r} == "estimator":
    estimators.OwnStepClassifier(tol=1e-8).fit(rows, labels)
else:
    estimators.LogisticRegression(solver="newton-cholesky").fit(rows, labels)
print(rows.nbytes, before * 1024, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def memory() -> dict[str, Any]:
    out = {}
    for kind in ("fit", "estimator", "newton-cholesky"):
        code = MEMORY.format(here=str(Path(__file__).parent), kind=kind)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        size, before, peak = map(int, done.stdout.split())
        out[kind] = {"table": size, "before": before, "peak": peak, "ratio": peak / size}
        print(f"memory of {kind}: {peak / 2**30:.2f} GiB, {peak / size:.2f} times the table", flush=True)
    return out


def main(arguments: list[str]) -> None:
    warnings.simplefilter("ignore")
    threadpool_limits(1)
    out = Path(arguments[arguments.index("--out") + 1]) if "--out" in arguments else None
    wanted = [a for a in arguments if a in ("solvers", "large", "reading", "memory")]
    wanted = wanted or ["solvers", "reading", "memory"]
    found: dict[str, Any] = json.loads(out.read_text()) if out is not None and out.exists() else {}
    if "solvers" in wanted:
        tables = {"breast cancer": load_breast_cancer, "digits": load_digits}
        for name, load in tables.items():
            rows, labels = load(return_X_y=True)
            found[name] = solvers(name, StandardScaler().fit_transform(rows), labels, 15)
        found["w8a"] = solvers("w8a", *ownstep.load("w8a").table(), 5)
    if "large" in wanted:
        found["1,000,000 x 100"] = solvers("1,000,000 x 100", *large(), 1, (8, 10))
    if "reading" in wanted:
        found |= {"reading": reading()}
    if "memory" in wanted:
        found |= {"memory": memory()}
    found["machine"] = {"processor": platform.processor() or platform.machine(), "python": platform.python_version()}
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
