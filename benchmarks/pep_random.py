"""Thousands of random worst cases against an independent route on another solver; what was found is recorded.

    python benchmarks/pep_random.py [--first 0] [--count 3000] [--processes 1] [--out FILE]

Every problem comes from its seed (tests/pep/problems.py): 1 to 4 classes, weights, metrics, K up to 5, units from
1e-12 to 1e12, every linear method of the library and users' own. The record is written as it goes, in the order of the
seeds. A run that was cut short goes on where it stopped when the same command is given again: the record may have been
begun on another machine. Runs from other first seeds stay in the record. It needs NumPy, SciPy, Clarabel and CVXOPT.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import math
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import numpy as np  # noqa: E402
from tests.pep import independent  # noqa: E402
from tests.pep.problems import Problem, problem  # noqa: E402

from ownstep import pep  # noqa: E402

SURE, NARROW = 1e-6, 1e-5

ROUNDED = 1e-12
"""What floating point may add to a radius or leave of a gradient, relative, where an instance is run."""


def look(seed: int) -> dict[str, Any]:
    """One problem: its two ends, the reference, and what is to be said about them."""
    asked = problem(seed)
    try:
        bound = pep.worst_case(*asked.arguments())
    except Exception as error:
        return {"seed": seed, "verdict": "failed", "why": f"{type(error).__name__}: {error}", "asked": str(asked)}
    truth = independent.worst_case(*asked.arguments())
    row: dict[str, Any] = {"seed": seed, "lower": bound.lower, "upper": bound.upper, "width": bound.gap}
    if not truth.unsure < SURE:
        return row | {"verdict": "no reference"}
    row |= {"reference": float(truth.value)}
    above, below = bound.lower > truth.value * (1 + SURE), bound.upper < truth.value * (1 - SURE)
    if above or below or bound.gap > NARROW:
        row |= {"asked": str(asked), "status": bound.status}
    if above or below:
        return row | {"verdict": "reference refuted" if above and not below and stands(asked, bound) else "WRONG"}
    withdrawn = bound.lower == 0 and bound.upper > 0
    return row | {"verdict": "withdrawn" if withdrawn else "wide" if bound.gap > NARROW else "ok"}


def stands(asked: Problem, bound: pep.Bound) -> bool:
    """Does the real method, run on the instance's functions in floating point, err by as much as the lower end says?

    A reference below that is itself wrong, whatever its solver says of its accuracy. The functions are of their classes
    by construction; looked at are the radii, the gradients at the devices' minimisers and their sum at x*.
    """
    found, d = bound.instance(), asked.devices
    scale = float(d.L.max()) * max(asked.r0, asked.rstar if math.isfinite(asked.rstar) else 0.0)
    inside = float(np.linalg.norm(found.x0)) <= asked.r0 * (1 + ROUNDED) and found.residual <= ROUNDED * scale
    total = np.zeros(found.dimension)
    for loss in found.losses:
        if loss.minimiser is not None:
            inside &= float(np.linalg.norm(loss.minimiser)) <= asked.rstar * (1 + ROUNDED)
        inside &= d.L[list(loss.members)].min() >= loss.shape.L and loss.shape.mu >= d.mu[list(loss.members)].max()
        total += d.weights[list(loss.members)].sum() * loss.gradient(np.zeros(found.dimension))
    inside &= float(np.linalg.norm(total)) <= ROUNDED * scale
    return bool(inside and found.error >= bound.lower * (1 - SURE / 10))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=3000, help="how many")
    parser.add_argument("--processes", type=int, default=1, help="how many seeds to try at a time")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/pep-random.json"))
    chosen = parser.parse_args()
    before = read(chosen.out).get(str(chosen.first), {})
    tally: dict[str, int] = before.get("tally", {})
    told: list[dict[str, Any]] = before.get("told", [])
    seeds = range(chosen.first + before.get("done", 0), chosen.first + chosen.count)
    with ExitStack() as stack:
        rows = map(look, seeds)
        if chosen.processes > 1:
            rows = stack.enter_context(get_context("spawn").Pool(chosen.processes)).imap(look, seeds)
        keep(rows, chosen, tally, told, before.get("widest_ok", 0.0))
    print(tally)


def read(path: Path) -> dict[str, Any]:
    """The runs of a record, by their first seed."""
    return json.loads(path.read_text())["runs"] if path.exists() else {}


def keep(rows: Iterable[dict[str, Any]], chosen: Any, tally: dict[str, int], told: list[Any], widest: float) -> None:
    """Add the rows, which come in the order of their seeds, to the record."""
    for row in rows:
        seed = row["seed"]
        tally[row["verdict"]] = tally.get(row["verdict"], 0) + 1
        if row["verdict"] == "ok":
            widest = max(widest, row["width"])
        elif row["verdict"] != "no reference":
            told.append(row)
            print(json.dumps(row), flush=True)
        record = {"first": chosen.first, "done": seed + 1 - chosen.first, "planned": chosen.count}
        record |= {"reference_sure_to": SURE, "narrow": NARROW, "tally": tally, "widest_ok": widest, "told": told}
        if seed % 20 == 19 or seed + 1 == chosen.first + chosen.count:
            chosen.out.parent.mkdir(parents=True, exist_ok=True)
            runs = read(chosen.out) | {str(chosen.first): record}
            chosen.out.write_text(json.dumps({"runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
