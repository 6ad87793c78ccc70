"""Run the parts of `ownstep paper curvature` side by side, one process per core, and keep them where it looks for them.

    python benchmarks/curvature_parts.py --processes 16 --out results
    ownstep paper curvature --out results            # takes up the parts, judges, draws
    python benchmarks/curvature_parts.py --rows FILE     # elsewhere: own curvature's runs alone, in one file
    python benchmarks/curvature_parts.py --join FILE     # here: they take the place of the recorded ones

Parts that are there are left alone, so it can be started again; parts of other code are not taken up. Each is printed
with its seconds of processor time. `--only TEXT` runs the parts whose name contains the text, `--list` names what is
missing, `--minutes M` begins no part after M minutes. `--rows` leaves out the stage of rivals and first-order methods,
whose runs do not change with own curvature.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

from ownstep.paper.machinery.runner import judge_again, pieces_of, provenance
from ownstep.paper.ours.curvature_runs import WIDE, Part, key_of, make, parts


def done(folder: Path, part: Part) -> tuple[Part, float]:
    """Make one part and keep it."""
    began = time.process_time()
    pieces_of("curvature", folder)(key_of(part), make, *part, 0)
    return part, time.process_time() - began


def made(part: Part) -> tuple[str, list[dict[str, Any]], float]:
    """(Name, rows, seconds of processor time) of a part that is not kept."""
    began = time.process_time()
    rows = make(*part, 0)
    return key_of(part), rows, time.process_time() - began


def collect(path: Path, processes: int, minutes: float) -> None:
    """Every part but the rivals', in one file that is written anew every half minute."""
    wanted = [part for part in parts() if not part[0].startswith("rivals")]
    wanted.sort(key=lambda part: (part[1] not in WIDE, "50" not in part[0], "ranks" not in part[0]))
    began, written, rows, seconds = time.monotonic(), 0.0, dict[str, Any](), 0.0

    def write() -> None:
        missing = [key_of(part) for part in wanted if key_of(part) not in rows]
        known = {"provenance": provenance(0), "core_seconds": seconds, "missing": missing}
        path.write_text(json.dumps(known | {"parts": rows}))

    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for key, these, took in pool.imap_unordered(made, wanted):
            rows[key], seconds, since = these, seconds + took, time.monotonic() - began
            print(f"{len(rows)} of {len(wanted)}, {since:.0f} s: {key}, {took:.1f} s", flush=True)
            if since - written > 30:
                write()
                written = since
            if since > 60 * minutes:
                break
    write()


def join(path: Path, out: Path) -> None:
    """Put the rows of a file in the place of the recorded runs of the same settings, and judge and draw anew."""
    came, file = json.loads(path.read_text()), out / "curvature" / "result.json"
    report = json.loads(file.read_text())

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row[name] for name in ("data", "split", "devices", "method", "rank", "seed"))

    new = {key(row): row for rows in came["parts"].values() for row in rows}
    old = {key(row) for row in report["result"]["rows"]}
    print(
        f"{len(new)} runs came, {len(new.keys() & old)} of them recorded before; {len(came['missing'])} parts missing"
    )
    report["result"]["rows"] = [new.get(key(row), row) for row in report["result"]["rows"]]
    report["provenance"]["parts"] = came["provenance"]
    report["result"]["older"] = came["missing"]
    file.write_text(json.dumps(report, indent=1))
    judge_again("curvature", out)


def main() -> None:
    """Run what is missing, the longest first."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--only", default="")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--join", type=Path)
    asked = parser.parse_args()
    for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[threads] = "1"  # of the processes below, which load NumPy anew: one part per core
    if asked.rows or asked.join:
        join(asked.join, asked.out) if asked.join else collect(asked.rows, asked.processes, asked.minutes)
        return
    kept = pieces_of("curvature", asked.out)
    missing = [part for part in parts() if key_of(part) not in kept and asked.only in key_of(part)]
    missing.sort(key=lambda part: (part[1] not in WIDE, "rivals" not in part[0], "50" not in part[0]))
    print(f"{len(missing)} parts to run", flush=True)
    if asked.list:
        print("\n".join(map(key_of, missing)))
        return
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
