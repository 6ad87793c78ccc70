"""Own curvature against L-BFGS on 15 kinds of problems from random seeds, none of which a default was chosen on.

    python benchmarks/curvature_kinds.py 40 50 --processes 2       # seeds 40 to 49: 150 problems, about 1,800 runs
    python benchmarks/curvature_kinds.py 40 50 --moved 4           # each from five starts: how much is luck?

Few rows and many columns, the reverse, columns in units of their own, rare labels, categories, separable rows, next to
no penalty, rows that are there many times, few directions, heavy tails, several classes, uncentred columns, columns and
rows that are 0, rare words, clusters. Splits: one device, ten (iid, by norm, by label), up to fifty, devices of 1, 2,
4, 7, ... rows, and one device per row where there are few. Exchanges to a relative gap of 1e-6, 400 at most.

Long runs of quasi-Newton methods are chaotic: rounding decides how long they take. So ``--moved S`` also starts every
run S times elsewhere, moved by 1e-8 of the way to the minimiser in a random direction, the same for all methods. The
medians over all starts are then judged by the same rule. So are L-BFGS's moved starts against its own first one.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ownstep import LBFGS, OwnCurvature, logistic_regression, optimum, partition
from ownstep.engines import run
from ownstep.problems import LinearModel
from ownstep.support.errors import OwnstepError

GAP, MOST, MOVED = 1e-6, 400, 1e-8
KINDS = (
    "wide", "tall", "bad_scale", "unbalanced", "one_hot", "separable", "tiny_mu", "duplicates", "low_rank",
    "heavy_tail", "multiclass", "uncentred", "zero_columns", "binary_rare", "clusters",
)  # fmt: skip


def table(kind: str, rng: np.random.Generator, n: int, d: int) -> Any:
    """The rows of a kind."""
    if kind == "wide":
        n, d = int(rng.integers(60, 400)), int(rng.integers(1000, 6000))
        rows = sp.random_array((n, d), density=float(rng.uniform(0.003, 0.05)), rng=rng, format="csr")
        return sp.csr_array(rows.multiply(np.exp(rng.normal(0, 1, d))[None])) if rng.random() < 0.5 else rows
    if kind == "tall":
        return rng.standard_normal((int(rng.integers(5000, 20000)), int(rng.integers(2, 15))))
    if kind == "bad_scale":
        return rng.standard_normal((n, d)) * 10 ** rng.uniform(-3, 3, d)
    if kind == "unbalanced":
        return rng.standard_normal((n, 6)) @ rng.standard_normal((6, d)) + 0.3 * rng.standard_normal((n, d))
    if kind == "one_hot":
        sizes = rng.integers(2, 40, rng.integers(3, 12))
        rows, start = np.zeros((n, int(sizes.sum()))), 0
        for k in sizes.tolist():
            rows[np.arange(n), start + rng.choice(k, n, p=rng.dirichlet(np.full(k, 0.4)))] = 1
            start += k
        return sp.csr_array(rows)
    if kind == "tiny_mu":
        return rng.standard_normal((n, d)) * np.arange(1, d + 1) ** -rng.uniform(0, 2.0)
    if kind == "duplicates":
        few = max(5, n // 20)
        return rng.standard_normal((few, d))[rng.integers(0, few, n)]
    if kind == "low_rank":
        r = int(rng.integers(1, 6))
        return rng.standard_normal((n, r)) @ rng.standard_normal((r, d))
    if kind == "heavy_tail":
        return rng.standard_t(1.5, (n, d))
    if kind == "uncentred":
        return rng.standard_normal((n, d)) + rng.uniform(1, 50)
    if kind == "zero_columns":
        rows = rng.standard_normal((n, d)) * (rng.random(d) < 0.4)
        rows[rng.random(n) < 0.2] = 0
        return rows
    if kind == "binary_rare":
        d = int(rng.integers(200, 800))
        often = 0.5 * np.arange(1, d + 1) ** -rng.uniform(0.7, 1.5)
        return sp.csr_array((rng.random((n, d)) < often).astype(float))
    if kind == "clusters":
        k = int(rng.integers(3, 15))
        centres = rng.standard_normal((k, d)) * 10
        return centres[rng.integers(0, k, n)] + rng.standard_normal((n, d)) * rng.uniform(0.01, 2)
    return rng.standard_normal((n, d)) * (np.exp(rng.normal(0, 1, d)) if kind == "multiclass" else 1.0)


def made(kind: str, seed: int) -> tuple[Any, Any, float, bool]:
    """(Rows, labels, mu, with an intercept) from a seed."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    n, d = int(rng.integers(200, 2000)), int(rng.integers(5, 120))
    mu, noise = float(10 ** rng.uniform(-6, -2)), float(rng.uniform(0.05, 2))
    classes = int(rng.integers(3, 8)) if kind == "multiclass" else 2
    rows = table(kind, rng, n, d)
    if kind == "tiny_mu":
        mu, noise = float(10 ** rng.uniform(-10, -7)), 1.0
    noise = 0.0 if kind == "separable" else noise
    n, d = rows.shape
    size = np.sqrt((rows.multiply(rows) if sp.issparse(rows) else rows**2).sum(axis=1).mean())
    truth = rng.standard_normal((d, classes if classes > 2 else 1))
    if kind == "bad_scale":
        truth = truth / (np.abs(rows).mean(0) + 1e-12)[:, None]
    score = rows @ truth
    score = score / max(1e-12, score.std()) + noise * rng.logistic(size=score.shape)
    if classes > 2:
        labels = score.argmax(1)
    else:
        share = 1 - rng.uniform(0.005, 0.03) if kind == "unbalanced" else rng.choice([0.5, 0.8])
        labels = (score[:, 0] > np.quantile(score[:, 0], share)).astype(int)
    if len(np.unique(labels)) < 2:
        labels[0] = 1 - labels[0]
    if rng.random() < 0.4 and kind not in ("bad_scale", "uncentred", "heavy_tail"):
        rows = rows / size
    return rows, labels, mu, bool(rng.random() < 0.3)


def splits(rows: Any, labels: Any, seed: int) -> dict[str, partition.Partition | None]:
    """Who holds which rows."""
    n, rng = len(labels), np.random.default_rng(seed)
    sorted_ = np.empty(n, int)
    for i, part in enumerate(np.array_split(np.argsort(labels, kind="stable"), 10)):
        sorted_[part] = i
    many = min(50, n // 3)
    out: dict[str, partition.Partition | None] = {
        "one": None, "10 iid": partition.make("iid", rows, labels, 10, 0), "10 norm": partition.by_norm(rows, 10),
        "10 label": partition.given(sorted_), f"{many} iid": partition.make("iid", rows, labels, many, 1),
    }  # fmt: skip
    order, owner, at, device, size = rng.permutation(n), np.empty(n, int), 0, 0, 1
    while at < n:
        owner[order[at : at + size]] = device
        at, device, size = at + size, device + 1, int(np.ceil(size * 1.6))
    out["growing"] = partition.given(owner)
    return out | ({"rows": partition.given(np.arange(n))} if n <= 400 else {})


def exchanges(method: Any, problem: LinearModel, goal: float, starts: list[Any]) -> list[float]:
    """How many from every start until f is at most ``goal``; infinite if not in :data:`MOST`."""
    found = list[float]()
    for x0 in starts:
        history = run(method, problem, MOST, x0=x0, target=goal, progress=False)
        found.append(history.rounds if history.value[-1] <= goal else np.inf)
    return found


def measured(job: tuple[int, str], moved: int) -> dict[str, Any]:
    """One problem: exchanges of L-BFGS, and of own curvature for every split, at the default rank and at 20."""
    seed, kind = job
    rows, labels, mu, intercept = made(kind, seed)
    pooled = logistic_regression(rows, labels, mu=mu, intercept=intercept)
    out: dict[str, Any] = {"kind": kind, "seed": seed, "shape": rows.shape, "mu": float(f"{mu:.2g}")}
    try:
        best, start = optimum(pooled), pooled.value(pooled.x0())
    except OwnstepError as error:
        return out | {"refused": str(error)}
    goal, rng = best.value + GAP * (start - best.value), np.random.default_rng(seed)
    ways = [d / np.linalg.norm(d) for d in rng.standard_normal((moved, pooled.dim))]
    starts = [pooled.x0(), *(pooled.x0() + MOVED * np.linalg.norm(best.x - pooled.x0()) * d for d in ways)]
    out |= {"intercept": intercept, "lbfgs": exchanges(LBFGS(), pooled, goal, starts)}
    for rank in (None, 20):
        found = dict[str, list[float]]()
        for name, who in splits(rows, labels, seed).items():
            problem = logistic_regression(rows, labels, who, mu=mu, intercept=intercept)
            with suppress(OwnstepError):  # a rank that a device of few rows refuses
                found[name] = exchanges(OwnCurvature(rank), problem, goal, starts)
        found["sum"] = exchanges(OwnCurvature(rank, sketch="sum"), pooled, goal, starts)
        out[f"rank {rank or 'default'}"] = found
    return out


def over(mine: float, theirs: float) -> bool:
    """More than 1.1 times as many, and more than one more."""
    return mine > max(1.1 * theirs, theirs + 1)


def said(every: list[dict[str, Any]], rank: str) -> str:
    """The shares of L-BFGS's exchanges from the first start, and what breaks the rule."""
    runs = [(p, name, v[0], p["lbfgs"][0]) for p in every if rank in p for name, v in p[rank].items()]
    worse = [f"{p['kind']} {p['seed']}, {n}: {v:g} for {b:g}" for p, n, v, b in runs if over(v, b)]
    shares = [v / b for _, _, v, b in runs if np.isfinite([v, b]).all()]
    alone = sum(np.isfinite(v) and not np.isfinite(b) for _, _, v, b in runs)
    neither = sum(not np.isfinite(v) and not np.isfinite(b) for _, _, v, b in runs)
    mean, middle = np.mean(shares), np.median(shares)
    return (
        f"{rank}: {len({(p['kind'], p['seed']) for p, *_ in runs})} problems, {len(runs)} runs, {mean:.2f} of L-BFGS's "
        f"exchanges in the mean, {middle:.2f} in the middle; only own curvature gets there in {alone}, neither in "
        f"{neither}; more than 1.1 times and one more in {len(worse)}: {'; '.join(worse)}"
    )


def said_of_starts(every: list[dict[str, Any]], rank: str) -> str:
    """The same rule for medians over the starts, and for single runs from the same start."""
    runs = [(p, name, v, p["lbfgs"]) for p in every if rank in p for name, v in p[rank].items()]
    middles = [(f"{p['kind']} {p['seed']}, {n}", float(np.median(v)), float(np.median(b))) for p, n, v, b in runs]
    worse = [f"{name}: {v:g} for {b:g}" for name, v, b in middles if over(v, b)]
    single = [over(a, c) for _, _, v, b in runs for a, c in zip(v, b, strict=True)]
    return (
        f"{rank}, medians of {len(runs[0][2])} starts: more than 1.1 times and one more in {len(worse)} of "
        f"{len(runs)}: {'; '.join(worse)}; single runs from the same start: {sum(single)} of {len(single)}"
    )


def luck(every: list[dict[str, Any]]) -> str:
    """How often L-BFGS from a moved start breaks the rule against L-BFGS from the first one."""
    theirs = [p["lbfgs"] for p in every if "lbfgs" in p]
    broken = [[over(v, b[0]) for v in b[1:]] for b in theirs]
    spread = np.array([max(b) / min(b) for b in theirs if np.isfinite(b).all()])
    return (
        f"L-BFGS from moved starts against L-BFGS from the first: more than 1.1 times and one more in "
        f"{sum(map(sum, broken))} of {sum(map(len, broken))} runs, on {sum(map(any, broken))} of {len(broken)} "
        f"problems; most over least of its own counts {np.median(spread):.2f} in the middle, {spread.max():.2f} at most"
    )


def judged(every: list[dict[str, Any]]) -> list[str]:
    """All that is said of the problems."""
    ranks = [rank for rank in ("rank default", "rank 20") if any(rank in p for p in every)]
    words = [said(every, rank) for rank in ranks]
    if any(len(p.get("lbfgs", ())) > 1 for p in every):
        words += [said_of_starts(every, rank) for rank in ranks] + [luck(every)]
    return words


def short(value: Any) -> Any:
    """Counts for a file: one number where all starts agree, None for more than :data:`MOST`."""
    if isinstance(value, dict):
        return {key: short(v) for key, v in value.items()}
    if isinstance(value, list):
        counts = [None if np.isinf(v) else v for v in value]
        return counts[0] if len(set(counts)) == 1 else counts
    return value


def main() -> None:
    """Every kind and seed, on several cores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--moved", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no problem after so many")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    jobs, every = list(product(range(given.first, given.last), KINDS)), list[dict[str, Any]]()
    for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[threads] = "1"
    began = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
        for one in pool.imap(partial(measured, moved=given.moved), jobs):
            print(json.dumps(one), flush=True)
            every.append(one)
            if time.monotonic() - began > 60 * given.minutes:
                break
    print("\n".join(words := judged(every)))
    if given.out:
        lines = ",\n".join(json.dumps(short(one)) for one in every)
        given.out.write_text(f'{{"says": {json.dumps(words)}, "moved": {given.moved}, "problems": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
