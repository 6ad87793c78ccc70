"""Does a round use every core, and does it stay one pass for many devices?

    env -u OMP_NUM_THREADS -u OPENBLAS_NUM_THREADS python benchmarks/cores.py [--out FOLDER] [--only NAME]

Peers, measured in the same run and interleaved, ratios of medians, below 1 means we are faster:
SciPy, the two products on the whole matrix and the pointwise loss between them on one thread, as ``mix`` did it before;
scikit-learn's ``LinearModelLoss.loss_gradient`` on the same matrix with as many threads.

What ``describe`` costs is compared with rounds before and after it, in seconds and in processor time of all threads,
which says more on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import scipy.sparse as sp
import sklearn
from sklearn._loss import HalfBinomialLoss
from sklearn.linear_model._linear_loss import LinearModelLoss

from ownstep import BinaryLogistic, load, partition
from ownstep.engines import describe
from ownstep.support.threads import thread_count

UNCOUNTED, COUNTED = 0.05, 5
"""Seconds of calls at the start of a turn, and how many are then measured: in a run, too, round follows round."""


def interleaved(repeats: int, *calls: Callable[[], object]) -> list[float]:
    """Median seconds of each call, measured in turns so that noise hits all alike.

    A pause before each turn: the threads of OpenMP and OpenBLAS wait for more work in a busy loop, at the next one's
    cost. After a pause the system may put both threads on one core, and need 20 ms to notice: this is not counted.
    """
    for call in calls:
        call()
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(repeats):
        for mine, call in zip(times, calls, strict=True):
            time.sleep(0.1)
            warm = time.perf_counter() + UNCOUNTED
            while time.perf_counter() < warm:
                call()
            for _ in range(COUNTED):
                began = time.perf_counter()
                call()
                mine.append(time.perf_counter() - began)
    return [float(np.median(t)) for t in times]


def sparse(n: int, d: int, per_row: int, signed: bool = True) -> Any:
    rng = np.random.default_rng(0)
    columns = rng.integers(0, d, (n, per_row), dtype=np.int32)
    columns.sort(axis=1)
    numbers = rng.standard_normal(n * per_row) if signed else rng.random(n * per_row)
    starts = np.arange(0, n * per_row + 1, per_row, dtype=np.int32)
    return sp.csr_array((numbers, columns.ravel(), starts), shape=(n, d))


def w8a() -> Any:
    rows = load("w8a").rows.tocsr()
    rows.indices, rows.indptr = rows.indices.astype(np.int32), rows.indptr.astype(np.int32)
    return rows


def before(rows: Any, sign: Any, c: float) -> Callable[[Any], object]:
    """A round as it was: whole products, one after the other."""
    if sp.issparse(rows):
        signed = sp.csr_array(sp.diags_array(sign) @ rows)
        transposed = sp.csr_array(signed.T)
    else:
        signed = rows * sign[:, None]
        transposed = signed.T

    def mix(x: Any) -> object:
        z = signed @ x
        e = np.abs(z)
        np.exp(np.negative(e, out=e), out=e)
        loss = np.log1p(e)
        loss -= np.minimum(z, 0)
        slope = np.where(z >= 0, e, 1)
        e += 1
        slope /= np.negative(e, out=e)
        return np.add.reduceat(loss, [0]), transposed @ (slope * c)

    return mix


DEVICES = (1, 10, 100, 1_000, 3_000, 10_000, 30_000)

TABLES: dict[str, Callable[[], Any]] = {
    "w8a": w8a,
    "sparse 400k x 5k, 20 per row": lambda: sparse(400_000, 5_000, 20),
    "sparse 2M x 10k, 10 per row": lambda: sparse(2_000_000, 10_000, 10),
    "sparse 2M x 10k, 10 per row, none negative": lambda: sparse(2_000_000, 10_000, 10, signed=False),
    "dense 1M x 100": lambda: np.random.default_rng(0).standard_normal((1_000_000, 100)),
    "dense 200k x 784": lambda: np.random.default_rng(0).standard_normal((200_000, 784)),
}


def rounds(name: str, rows: Any, repeats: int) -> dict[str, float]:
    n, d = rows.shape
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, n)
    sign, target = np.where(labels == 1, 1.0, -1.0), labels.astype(float)
    x = 0.1 * rng.standard_normal(d)
    one = BinaryLogistic(rows, labels, mu=1e-3)
    many = BinaryLogistic(rows, labels, partition.given(np.arange(n) * 10_000 // n), mu=1e-3)
    old = before(rows, sign, 1 / n)
    theirs, threads = LinearModelLoss(base_loss=HalfBinomialLoss(), fit_intercept=False), thread_count()
    new, split, scipys, peers = interleaved(
        repeats,
        lambda: one.mix(x, one.weights),
        lambda: many.mix(x, many.weights),
        lambda: old(x),
        lambda: theirs.loss_gradient(x, rows, target, l2_reg_strength=1e-3, n_threads=threads),
    )
    found = {
        "seconds per round": new,
        "round / the round before": new / scipys,
        "round / scikit-learn's loss_gradient": new / peers,
        "10,000 devices / 1 device": split / new,
    }
    print(name, *(f"  {what:<60} {value:.3g}" for what, value in found.items()), sep="\n", flush=True)
    return found


def constants(name: str, rows: Any, repeats: int) -> dict[str, float]:
    """What ``describe`` costs for one device and for many."""
    n, d = rows.shape
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, n)
    x, one, found = 0.1 * rng.standard_normal(d), BinaryLogistic(rows, labels, mu=1e-3), {}
    for count in DEVICES:
        problem = BinaryLogistic(rows, labels, partition.given(np.arange(n) * count // n), mu=1e-3)
        in_seconds, in_processor_time = describing(problem, one, x, repeats)
        found[f"describe {count:,} devices, in rounds"] = in_seconds
        found[f"describe {count:,} devices, in rounds of processor time"] = in_processor_time
        print(
            f"{name}: {count:,} devices: {in_seconds:.3g} rounds, of processor time {in_processor_time:.3g}", flush=True
        )
    return found


def describing(problem: BinaryLogistic, one: BinaryLogistic, x: Any, repeats: int) -> tuple[float, float]:
    """(seconds, processor seconds) of ``describe`` over those of a round of one device around it, the best of each."""
    clocks = (time.perf_counter, time.process_time)

    def timed(call: Callable[[], object]) -> list[float]:
        began = [clock() for clock in clocks]
        call()
        return [clock() - start for clock, start in zip(clocks, began, strict=True)]

    rounds_of, whole = [], []
    began = time.process_time()
    while time.process_time() < began + (1 if len(whole) > 2 else 2):
        rounds_of += [timed(lambda: one.mix(x, one.weights)) for _ in range(repeats)]
        whole.append(timed(lambda: describe(problem)))
    seconds, processor = np.min(whole, axis=0) / np.min(rounds_of, axis=0)
    return float(seconds), float(processor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", choices=sorted(TABLES))
    parser.add_argument("--part", choices=["rounds", "constants"], help="both by default, each with a file of its own")
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--note", default="", help="how the machine was, for the file")
    given = parser.parse_args()
    print(f"{thread_count()} threads")
    for part, measure, file in (("rounds", rounds, "cores.json"), ("constants", constants, "cores-constants.json")):
        if given.part in (None, part):
            chosen = {name: make for name, make in TABLES.items() if given.only in (None, name)}
            _save(given, file, {name: measure(name, make(), given.repeats) for name, make in chosen.items()})


def _save(given: argparse.Namespace, file: str, found: dict[str, dict[str, float]]) -> None:
    if given.out:
        about = {
            "threads": thread_count(),
            "machine": platform.platform(),
            "processor": _processor(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "scikit-learn": sklearn.__version__,
            "date": time.strftime("%Y-%m-%d"),
            "load": os.getloadavg()[0],
            "note": given.note,
            "command": "env -u OMP_NUM_THREADS -u OPENBLAS_NUM_THREADS python benchmarks/cores.py",
        }
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / file).write_text(json.dumps({"about": about, "tables": found}, indent=1) + "\n")


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    return f"{len(names)} x {names[0].split(':')[1].strip()}" if names else platform.processor()


if __name__ == "__main__":
    main()
