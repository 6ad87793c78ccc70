"""Worst cases of devices that all differ: both ends, processor time and peak memory, 20 and 1,000 devices at K = 10.

    python benchmarks/pep_kinds.py [--processes 1] [--out FILE]

Four families of devices, three metrics, Algorithm 1 with its switch at 5. Each worst case runs in a process of its own,
so that its memory is its own. Goals: 20 devices in 30 s and 1 GB, 1,000 devices in 60 s, both ends proved. It needs
NumPy, SciPy and Clarabel.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "src")]

from ownstep import pep  # noqa: E402
from ownstep.methods import At, OwnStep  # noqa: E402
from ownstep.plan import Devices  # noqa: E402

ROUNDS, SWITCH = 10, 5
METRICS = ("value", "distance", "gradient")


@dataclass(frozen=True)
class Family:
    """Devices drawn from a seed: L_i log-uniform over [1, ``ratio``], weights log-uniform over [1, ``weights``]."""

    ratio: float
    mu: float
    weights: float
    rstar: float
    seed: int

    def devices(self, number: int) -> Devices:
        rng = np.random.default_rng(self.seed)
        L = np.exp(rng.uniform(0, np.log(self.ratio), number))
        w = np.exp(rng.uniform(0, np.log(self.weights), number))
        return Devices(w / w.sum(), L, np.full(number, self.mu))


FAMILIES = {
    "middling": Family(30.0, 0.1, 4.0, 0.3, 0),
    "alike": Family(3.0, 0.5, 100.0, 1.0, 1),
    "far apart": Family(1e4, 0.1, 4.0, 0.03, 2),
    "far apart, convex": Family(1e4, 0.0, 100.0, 0.3, 3),
}
"""The solver's constants were chosen on devices like the first ones; the others are fresh."""


def look(job: tuple[str, int, str]) -> dict[str, Any]:
    """One worst case and what it cost."""
    name, number, metric = job
    family = FAMILIES[name]
    began, used = time.perf_counter(), time.process_time()
    row: dict[str, Any] = {"family": name, "devices": number, "metric": metric}
    try:
        bound = pep.worst_case(OwnStep(At(SWITCH)), family.devices(number), ROUNDS, 1.0, family.rstar, metric)
        row |= {"kinds": bound.kinds, "lower": bound.lower, "upper": bound.upper, "width": bound.gap}
        row |= {"solves": bound.solves}
    except Exception as error:
        row |= {"failed": f"{type(error).__name__}: {error}"}
    row |= {"seconds": time.perf_counter() - began, "cpu_s": time.process_time() - used}
    return row | {"peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=1, help="how many worst cases at a time")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/pep-kinds.json"))
    chosen = parser.parse_args()
    jobs = [(name, number, metric) for name in FAMILIES for number in (20, 1000) for metric in METRICS]
    rows = []
    with ProcessPoolExecutor(chosen.processes, get_context("spawn"), max_tasks_per_child=1) as pool:
        for row in pool.map(look, jobs):
            print(json.dumps(row), flush=True)
            rows.append(row)
    families = {name: vars(family) for name, family in FAMILIES.items()}
    setting = f"OwnStep(At({SWITCH})), K={ROUNDS}, r0=1; {chosen.processes} at a time, so cpu_s is processor time"
    chosen.out.write_text(json.dumps({"setting": setting, "families": families, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
