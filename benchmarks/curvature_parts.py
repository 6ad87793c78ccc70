"""Run the parts of `ownstep paper curvature` side by side, one process per core, and keep them where it looks for them.

    python benchmarks/curvature_parts.py --processes 16 --out results
    ownstep paper curvature --out results            # takes up the parts, judges, draws

Parts that are there are left alone, so it can be started again; parts of other code are not taken up. Each is printed
with its seconds of processor time. `--only TEXT` runs the parts whose name contains the text, `--list` names what is
missing, `--minutes M` begins no part after M minutes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from functools import partial
from pathlib import Path

from ownstep.paper.machinery.runner import pieces_of
from ownstep.paper.ours.curvature_runs import WIDE, Part, key_of, make, parts


def done(folder: Path, part: Part) -> tuple[Part, float]:
    """Make one part and keep it."""
    began = time.process_time()
    pieces_of("curvature", folder)(key_of(part), make, *part, 0)
    return part, time.process_time() - began


def main() -> None:
    """Run what is missing, the longest first."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--only", default="")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args()
    kept = pieces_of("curvature", asked.out)
    missing = [part for part in parts() if key_of(part) not in kept and asked.only in key_of(part)]
    missing.sort(key=lambda part: (part[1] not in WIDE, "rivals" not in part[0], "50" not in part[0]))
    print(f"{len(missing)} parts to run", flush=True)
    if asked.list:
        print("\n".join(map(key_of, missing)))
        return
    for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[threads] = "1"  # of the processes below, which load NumPy anew: one part per core
    began, seconds = time.monotonic(), dict[str, float]()
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        for i, (part, took) in enumerate(pool.imap_unordered(partial(done, asked.out), missing), 1):
            data = f"{part[1]} {part[2]:g}"
            seconds[data] = seconds.get(data, 0.0) + took
            print(f"{i} of {len(missing)}, {time.monotonic() - began:.0f} s: {key_of(part)}, {took:.1f} s", flush=True)
            if time.monotonic() - began > 60 * asked.minutes:
                break  # the pool ends with what it was doing; finished parts are kept
    print(f"{sum(seconds.values()) / 60:.1f} core minutes:", {k: round(v) for k, v in seconds.items()})


if __name__ == "__main__":
    main()
