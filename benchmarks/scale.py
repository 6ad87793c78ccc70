"""The formulas of docs/scale.md against measured points.

    env -u OMP_NUM_THREADS -u OPENBLAS_NUM_THREADS python benchmarks/scale.py [--out FOLDER] [--million]

Each line: what is measured, what the formula says, the measurement, and their ratio. Constants of a formula are fitted
at one point and checked at another. ``--million`` adds a million devices of ten rows each (4 GB, two minutes).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ownstep import BinaryLogistic, OwnStep, partition, run
from ownstep.plan import Devices
from ownstep.support.threads import thread_count

FOUND: list[dict[str, Any]] = []


def note(what: str, formula: float, measured: float, unit: str) -> None:
    FOUND.append({"what": what, "formula": formula, "measured": measured, "unit": unit, "ratio": measured / formula})
    print(f"{what:<78} {formula:>12.4g} {measured:>12.4g} {unit:<6} {measured / formula:6.2f}", flush=True)


def median(call: Callable[[], object], repeats: int = 9) -> float:
    call()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return float(np.median(times))


def table(n: int, d: int, per_row: int) -> Any:
    rng = np.random.default_rng(0)
    columns = rng.integers(0, d, (n, per_row), dtype=np.int32)
    columns.sort(axis=1)
    starts = np.arange(0, n * per_row + 1, per_row, dtype=np.int32)
    return sp.csr_array((rng.random(n * per_row), columns.ravel(), starts), shape=(n, d))


def made(rows: Any, devices: int) -> BinaryLogistic:
    n = rows.shape[0]
    return BinaryLogistic(rows, np.arange(n) % 2, partition.given(np.arange(n) * devices // n), mu=1e-3)


def rounds(d: int = 2000, per_row: int = 10) -> None:
    """Seconds per round: alpha (non-zeros) + gamma N, with alpha from one size and gamma from one N."""
    small, large = table(200_000, d, per_row), table(800_000, d, per_row)
    x = np.full(d, 0.01)

    def seconds(problem: BinaryLogistic) -> float:
        return median(lambda: problem.mix(x, problem.weights))

    alpha = seconds(made(small, 1)) / small.nnz
    note("seconds per round, 800,000 rows, 1 device: alpha nnz", alpha * large.nnz, seconds(made(large, 1)), "s")
    gamma = max(0.0, seconds(made(small, 20_000)) - alpha * small.nnz) / 20_000
    expected = alpha * large.nnz + gamma * 80_000
    note("the same, 80,000 devices: alpha nnz + gamma N", expected, seconds(made(large, 80_000)), "s")


def wire(d: int = 50, devices: int = 40) -> None:
    """Bytes: (8 d + 8) N each way per round, in doubles."""
    problem = made(table(4_000, d, 5), devices)
    history = run(OwnStep(), problem, 10, devices=Devices(problem.weights, np.ones(devices)))
    for way in ("bytes_up", "bytes_down"):
        total = float(history.columns[way].sum())
        note(f"{way} of 10 rounds, N = {devices}, d = {d}: 10 N (8 d + 8)", 10.0 * devices * (8 * d + 8), total, "B")


def server(d: int = 10_000) -> None:
    """Seconds to add N vectors: beta N d; in a tree of fan-in b one node adds b of them, on log_b N levels."""
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((4_000, d))
    total = np.empty(d)

    def add(count: int) -> None:
        total[:] = 0
        for vector in vectors[:count]:
            np.add(total, vector, out=total)

    beta = median(lambda: add(400)) / (400 * d)
    note("seconds to add 4,000 vectors of 10,000: beta N d", beta * 4_000 * d, median(lambda: add(4_000)), "s")
    note("one node of a tree of fan-in 64: beta b d", beta * 64 * d, median(lambda: add(64)), "s")
    flat = vectors.sum(axis=0)
    tree = vectors.reshape(-1, 40, d).sum(axis=1).reshape(-1, 10, d).sum(axis=1).sum(axis=0)
    gap = float(np.abs(tree - flat).max() / np.abs(vectors).sum(axis=0).max())
    print(f"a tree's sum differs from the flat one by {gap:.1e} of the sum of sizes: rounding alone")


def sketches(d: int = 10_000, k: int = 10, b: int = 16) -> None:
    """Merging b sketches of rank k: the Gram matrix of d x (b k) numbers, 2 d (b k)^2 operations at a measured rate."""
    stacked = np.random.default_rng(0).standard_normal((d, b * k))
    half = stacked[:, : b * k // 2].copy()

    def merge(vectors: Any) -> float:
        return median(lambda: np.linalg.eigh(vectors.T @ vectors), 5)

    rate = 2 * d * half.shape[1] ** 2 / merge(half)
    what = f"merging {b} sketches of rank {k}, d = {d}: 2 d (b k)^2 operations"
    note(what, 2 * d * (b * k) ** 2 / rate, merge(stacked), "s")


def secure(d: int = 100_000) -> None:
    """Masks: a device draws one vector per neighbour and one of its own, (s + 1) d numbers; Flower's own generator."""
    try:
        from flwr.common.secure_aggregation.ndarrays_arithmetic import parameters_addition
        from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
    except ImportError:
        print("Flower is not installed: masks are not measured")
        return

    def masks(count: int) -> None:
        total = [np.zeros(d, np.int64)]
        for seed in range(count):
            total = parameters_addition(total, pseudo_rand_gen(seed.to_bytes(32, "little"), 2**24, [(d,)]))

    one = median(lambda: masks(4), 5) / (4 * d)
    what = "masks of a device with 20 neighbours, d = 100,000: delta (s + 1) d"
    note(what, one * 21 * d, median(lambda: masks(21), 5), "s")


MILLION = """
import json, resource, sys, time, numpy as np
sys.path.insert(0, {folder!r})
from scale import table, made, median
devices = int(sys.argv[1])
rows = table(10_000_000, 10_000, 10)
began = time.perf_counter()
problem = made(rows, devices)
built = time.perf_counter() - began
x = np.full(10_000, 0.01)
seconds = median(lambda: problem.mix(x, problem.weights), 5)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({{"devices": devices, "round": seconds, "peak": peak, "build": built}}))
"""


def million() -> None:
    """A million devices of ten rows each against one device with all 10,000,000 rows, each in a process of its own."""
    found = {}
    for devices in (1, 1_000_000):
        script = MILLION.format(folder=str(Path(__file__).parent))
        done = subprocess.run([sys.executable, "-c", script, str(devices)], capture_output=True, text=True, check=True)
        found[devices] = json.loads(done.stdout)
    one, many = found[1], found[1_000_000]
    note("round with 1,000,000 devices, against one device", one["round"], many["round"], "s")
    note("peak memory with 1,000,000 devices, against one device", one["peak"], many["peak"], "B")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--million", action="store_true")
    given = parser.parse_args()
    print(f"{'':<78} {'formula':>12} {'measured':>12} {'':<6} ratio   ({thread_count()} threads)")
    for part in (rounds, wire, server, sketches, secure):
        part()
    if given.million:
        million()
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        about = {"threads": thread_count(), "machine": platform.platform(), "numpy": np.__version__}
        about |= {"date": time.strftime("%Y-%m-%d"), "load": os.getloadavg()[0]}
        (given.out / "scale.json").write_text(json.dumps({"about": about, "points": FOUND}, indent=1) + "\n")


if __name__ == "__main__":
    main()
