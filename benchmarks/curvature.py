"""Exchanges that own curvature saves: every method to a relative gap of 1e-6, SciPy's L-BFGS-B in the same run.

    python benchmarks/curvature.py            # w8a, digits, breast cancer; a few minutes
    python benchmarks/curvature.py sst2       # SST-2 as tf-idf words, 67,349 x 13,774
    python benchmarks/curvature.py bytes      # w8a: bytes per device over the rank
    python benchmarks/curvature.py seconds    # a sketch of rank 20 in gradients
    python benchmarks/curvature.py sparse     # the default rank on three sparse LIBSVM files made from a seed

"label" means: rows sorted by label and cut into N equal parts.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.datasets import dump_svmlight_file
from threadpoolctl import threadpool_limits

from ownstep import LBFGS, Newton, OwnCurvature, load, logistic_regression, optimum, partition
from ownstep.engines import run
from ownstep.problems import LinearModel
from ownstep.smoothness.sketch import Sketch, own_sketch

GAP, MOST = 1e-6, 400


class _Arrived(Exception):
    """The goal was reached."""


def scipy_evaluations(problem: LinearModel, goal: float) -> int:
    """How many times L-BFGS-B evaluates f before the first value at most ``goal``."""
    count = 0

    def evaluate(x: Any) -> tuple[float, Any]:
        nonlocal count
        losses, gradient = problem.mix(x, problem.weights)
        if problem.weights @ losses <= goal:
            raise _Arrived
        count += 1
        return float(problem.weights @ losses), gradient

    try:
        options = {"maxcor": 10, "ftol": 0.0, "gtol": 0.0, "maxiter": MOST, "maxfun": MOST}
        minimize(evaluate, problem.x0(), jac=True, method="L-BFGS-B", options=options)
    except _Arrived:
        pass
    return count


def by_sorted_label(labels: Any, devices: int) -> partition.Partition:
    """Rows sorted by label and cut into equal parts."""
    owner = np.empty(len(labels), int)
    for i, rows in enumerate(np.array_split(np.argsort(labels, kind="stable"), devices)):
        owner[rows] = i
    return partition.given(owner)


def splits(rows: Any, labels: Any, devices: int) -> dict[str, partition.Partition]:
    """The splits of the table."""
    return {
        f"{devices} iid": partition.make("iid", rows, labels, devices, 0),
        f"{devices} norm": partition.by_norm(rows, devices),
        f"{devices} label": by_sorted_label(labels, devices),
    }


def table(name: str, rows: Any, labels: Any, mu: float, ranks: tuple[int | None, ...], counts: tuple[int, ...]) -> None:
    """One dataset and mu: exchanges of every method and split."""
    pooled = logistic_regression(rows, labels, mu=mu)
    best, start = optimum(pooled).value, pooled.value(pooled.x0())
    goal = best + GAP * (start - best)

    def exchanges(method: Any, problem: LinearModel = pooled) -> int:
        history = run(method, problem, MOST, target=goal, progress=False)
        return history.rounds if history.value[-1] <= goal else -1

    base, theirs = exchanges(LBFGS()), scipy_evaluations(pooled, goal)
    newton = exchanges(Newton()) if pooled.dim <= 1000 else None
    print(f"{name}, mu = {mu:g}, d = {pooled.dim}: SciPy {theirs}, LBFGS {base}, Newton {newton}", flush=True)
    for rank in ranks:
        one, sums = exchanges(OwnCurvature(rank)), exchanges(OwnCurvature(rank, sketch="sum"))
        print(f"  rank {rank or 'default'}: sum {sums} ({sums / base:.2f}), 1 device {one} ({one / base:.2f})", end="")
        for devices in counts:
            for split, who in splits(rows, labels, devices).items():
                found = exchanges(OwnCurvature(rank), logistic_regression(rows, labels, who, mu=mu))
                print(f", {split} {found} ({found / base:.2f})", end="", flush=True)
        print()


def over_ranks() -> None:
    """Bytes per device to the gap, against L-BFGS's, for every rank."""
    rows, labels = load("w8a").table()
    for split, who in splits(rows, labels, 10).items():
        problem = logistic_regression(rows, labels, who, mu=1e-5)
        best, start = optimum(problem).value, problem.value(problem.x0())
        goal = best + GAP * (start - best)
        base = run(LBFGS(), problem, MOST, target=goal, progress=False)
        sent = base.bytes_per_device(base.rounds)
        print(f"w8a, mu = 1e-05, {split}: L-BFGS {base.rounds} exchanges, {sent / 1e3:.0f} kB per device")
        for rank in (0, 1, 2, 5, 10, 20, 50):
            history = run(OwnCurvature(rank), problem, MOST, target=goal, progress=False)
            mine = history.bytes_per_device(history.rounds)
            ratios = f"{history.rounds / base.rounds:.2f}, {mine / sent:.2f}"
            print(f"  rank {rank}: {history.rounds} exchanges, {mine / 1e3:.0f} kB per device; ratios {ratios}")


def shapes() -> Iterator[tuple[str, LinearModel]]:
    """One device of every shape: the middle one of so many by norm."""
    rng = np.random.default_rng(0)
    for name, counts in {"w8a": (1, 10, 50), "mnist": (1, 10), "digits": (1, 10), "sst2_words": (1, 10, 50)}.items():
        rows, labels = load(name).table()
        rows, labels = (rows[:10_000], labels[:10_000]) if name == "mnist" else (rows, labels)
        for devices in counts:
            who = partition.by_norm(rows, devices)
            yield name, logistic_regression(rows, labels, who, mu=1e-3).only(devices // 2)
    for name, n, d in (("dense", 20_000, 200), ("dense", 1_000, 100), ("dense", 300, 5_000), ("dense", 45, 100)):
        yield name, logistic_regression(rng.standard_normal((n, d)), np.arange(n) % 2, mu=1e-3)
    for n, d, density in ((300, 50_000, 1e-3), (45, 13_774, 7e-4)):
        rows = sp.random_array((n, d), density=density, rng=rng, format="csr")
        yield "sparse", logistic_regression(rows, np.arange(n) % 2, mu=1e-3)


def sketch_of(problem: LinearModel, x: Any, start: Any = None) -> Sketch:
    """All that a device computes for a sketch of rank 20: eigenpairs, trace and span."""
    H = problem.data_hessian(x, 0)
    return Sketch(*own_sketch(H, 20, 0, start), H.trace, H.penalty, H.free, H.span)


def seconds() -> None:
    """A sketch of rank 20, cold and warm, in times of a gradient of the same device; CPU time of one thread.

    The three are timed in turns, and the least time of each counts: others who use the machine only make it longer.
    """
    for name, problem in shapes():
        x = 0.1 * np.random.default_rng(0).standard_normal(problem.dim)
        known = sketch_of(problem, x).vectors
        calls = {
            "gradient": lambda p=problem, x=x: p.mix(x, p.weights),
            "cold": lambda p=problem, x=x: sketch_of(p, x),
            "warm": lambda p=problem, x=x, u=known: sketch_of(p, x, u),
        }
        least = dict.fromkeys(calls, np.inf)
        for _ in range(12):
            for what, call in calls.items():
                for _ in range(4 if what == "gradient" else 1):
                    began = time.process_time()
                    call()
                    least[what] = min(least[what], time.process_time() - began)
        gradient = least["gradient"]
        size = f"{problem.counts[0]} rows, d = {problem.dim}, gradient {1e3 * gradient:.2f} ms"
        cost = f"{least['cold'] / gradient:.1f} gradients, {least['warm'] / gradient:.1f} warm"
        print(f"{name}, {size}: a sketch of rank 20 takes {cost}", flush=True)


def sparse_file(kind: str, seed: int, folder: Path) -> Path:
    """A LIBSVM file of a kind that is met in the wild, from a seed: nothing of the method was chosen on it."""
    rng = np.random.default_rng([seed, len(kind)])
    if kind == "one-hot":  # categories of unequal sizes, one of each per row, as in surveys
        n, sizes = 3000, rng.integers(2, 20, 14)
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        chances = [rng.dirichlet(np.full(size, 0.5)) for size in sizes]
        at = np.stack([s + rng.choice(len(p), n, p=p) for s, p in zip(starts, chances, strict=True)], axis=1)
        rows = np.zeros((n, int(sizes.sum())))
        rows[np.arange(n)[:, None], at] = 1.0
    elif kind == "words":  # rare and frequent words, rows of length one
        n, d = 2000, 1500
        often = 1 / np.arange(1, d + 1) ** 1.1
        rows = (
            rng.poisson(12 * often / often.sum() * rng.gamma(2.0, 1.0, (n, 1)), (n, d)) * np.log(1 + 1 / often) ** 0.5
        )
        rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    else:  # measurements in units of their own, half of them missing
        n, d = 3000, 40
        rows = rng.standard_normal((n, 8)) @ rng.standard_normal((8, d)) + rng.standard_normal((n, d))
        rows = rows * np.exp(rng.normal(0, 1.5, d)) * (rng.random((n, d)) < 0.5)
    score = rows @ rng.standard_normal(rows.shape[1]) / np.sqrt((rows**2).sum(axis=1).mean())
    labels = np.where(score + 0.5 * rng.logistic(size=len(rows)) > np.quantile(score, 0.8), 1, -1)
    path = folder / f"{kind}-{seed}.libsvm"
    dump_svmlight_file(sp.csr_array(rows), labels, str(path), zero_based=False)
    return path


def sparse() -> None:
    """The default rank against L-BFGS on files that the defaults were not chosen on, draw by draw."""
    worse, count, shares = 0, 0, list[float]()
    with tempfile.TemporaryDirectory() as folder:
        for kind, seed in product(("one-hot", "words", "measurements"), range(3)):
            rows, labels = load(str(sparse_file(kind, seed, Path(folder)))).table()
            for mu in (1e-3, 1e-5):
                pooled = logistic_regression(rows, labels, mu=mu)
                best, start = optimum(pooled).value, pooled.value(pooled.x0())
                goal = best + GAP * (start - best)
                base = run(LBFGS(), pooled, MOST, target=goal, progress=False).rounds
                every: dict[str, Any] = {"1": None} | splits(rows, labels, 10) | splits(rows, labels, 50)
                found = {}
                for split, who in every.items():
                    problem = logistic_regression(rows, labels, who, mu=mu)
                    found[split] = run(OwnCurvature(), problem, MOST, target=goal, progress=False).rounds
                over = [k for k in found.values() if k > max(1.1 * base, base + 1)]
                worse, count, shares = (
                    worse + len(over),
                    count + len(found),
                    shares + [k / base for k in found.values()],
                )
                told = ", ".join(f"{split} {k}" for split, k in found.items())
                print(f"{kind}, seed {seed}, {rows.shape}, mu = {mu:g}: L-BFGS {base}; default rank {told}", flush=True)
    print(
        f"more than 1.1 times L-BFGS's exchanges and one more in {worse} of {count} runs; of L-BFGS's exchanges "
        f"{np.mean(shares):.2f} in the mean, {max(shares):.2f} at worst"
    )


def main(what: str) -> None:
    """The parts by name."""
    if what == "bytes":
        over_ranks()
    elif what == "seconds":
        with threadpool_limits(1):  # processor time would count every thread
            seconds()
    elif what == "sparse":
        sparse()
    elif what == "sst2":
        rows, labels = load("sst2_words").table()
        table("SST-2 words", rows, labels, 1e-5, (None, 20, 30), (10,))
    else:
        for name, mus in {"w8a": (1e-3, 1e-4, 1e-5), "digits": (1e-3, 1e-5), "breast_cancer": (1e-3, 1e-5)}.items():
            rows, labels = load(name).table()
            for mu in mus:
                counts = (2, 10, 50) if name == "w8a" else (2, 10)
                table(name, rows, labels, mu, (None, 20) if name == "w8a" else (None,), counts)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "table")
