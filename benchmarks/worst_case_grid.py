"""The certified worst cases behind the explorer, computed once: `python benchmarks/worst_case_grid.py --out FILE`.

Two devices of equal weight, in units in which L_bar = 1 and R0 = 1: only the ratios L2/L1, mu/L_bar and R*/R0 matter.
L1 and L2 stand on one geometric grid, so their ratios do too. Equal devices need no curve: Algorithm 1 is GD there.
The error is f(x^K) - f*. Every number is an upper end that a certificate in rational numbers proves. A point without
one within PATIENCE seconds is left out (null), and so is a design that is no better than the best constant step. A
method that follows grad f alone sees one function of class F(mu, L_bar): its curves depend on mu only. An interrupted
run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import signal
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from scipy.optimize import minimize_scalar

from ownstep import GD, ITEM, At, Nesterov, OwnStep, pep
from ownstep.methods import Method
from ownstep.paper.machinery.runner import provenance
from ownstep.plan import Devices
from ownstep.support.errors import OwnstepError
from ownstep.support.progress import Bar

FACTOR = math.sqrt(3)  # between two neighbours of the grid of L
AXES: dict[str, list[float]] = {
    "L": [round(FACTOR**power, 3) for power in range(-3, 4)],  # the paper's 1/3 and 3 are two of them
    "mu": [0.01, 0.03, 0.06],  # in units of L_bar; at most L1, also where L2 / L1 = 27
    "rstar": [0, 0.03, 0.1, 0.3],
    "share": [0.25, 0.5, 0.75, 1],
    "K": [1, 2, 3, 4, 6, 8, 10, 13, 16, 20],
}
APART = range(1, len(AXES["L"]))  # L2 / L1 = FACTOR ** apart
PATIENCE = 40  # seconds of processor time for one point
SEARCH = 60  # seconds for the search of one design
POOLED = {"GD 1/L-bar": GD("mean"), "Nesterov": Nesterov("mean"), "ITEM": ITEM("mean")}
DESIGNS = list(product([4], [0.01, 0.06], [0.03, 0.1, 0.3], [4, 10]))  # (apart, mu, rstar, K)

Point = float | None  # an upper end that is proved; None: no proof in time


def devices(apart: int, mu: float) -> Devices:
    """Two devices whose constants are so many points of the grid apart and have the mean 1."""
    ratio = FACTOR**apart
    low = 2 / (1 + ratio)
    return pep.repeated([low, ratio * low], mu=mu)


def point(make: Callable[[], pep.Bound]) -> Point:
    """Four digits of the proved number, rounded up: it stays an upper end."""
    signal.signal(signal.SIGPROF, too_long)
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    try:
        value = float(make().certify().bound)
    except (ArithmeticError, OwnstepError, TimeoutError) as error:
        print(f"not certified: {error}")
        return None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return float(f"{math.ceil(value / unit) * unit:.3e}")


def too_long(*_: Any) -> None:
    """Called by the timer, in the middle of a point."""
    raise TimeoutError(f"more than {PATIENCE} seconds")


def best_step(mu: float, rounds: int) -> Point:
    """The smallest worst case that a constant step has after this many rounds."""

    def bound(step: float) -> pep.Bound:
        return pep.worst_case(GD(step=step), pep.repeated([1.0], mu=mu), rounds, r0=1)

    found = minimize_scalar(
        lambda s: float(bound(s).upper), bounds=(0.7, 2.0), method="bounded", options={"xatol": 2e-3}
    )
    return point(lambda: bound(float(found.x)))


def work() -> Iterator[tuple[str, str, Callable[[], list[Point]]]]:
    """(method, key, what computes its curve), from the paper's constants outwards."""
    rounds = [int(k) for k in AXES["K"]]
    for apart, mu, rstar, k in DESIGNS:  # first: these take longest
        yield "designed", f"{apart}|{mu:g}|{rstar:g}|{k}", partial(designed, apart, mu, rstar, k)
    for mu in AXES["mu"]:
        for name, method in POOLED.items():
            yield name, f"{mu:g}", partial(pooled, method, pep.repeated([1.0], mu=mu), rounds)
        yield "GD best fixed step", f"{mu:g}", partial(best_steps, mu, rounds)
    outwards = sorted(APART, key=lambda apart: abs(apart - 4))
    for mu, apart, rstar, share in product(reversed(AXES["mu"]), outwards, AXES["rstar"], AXES["share"]):
        key = f"{apart}|{mu:g}|{rstar:g}|{share:g}"
        yield "Algorithm 1", key, partial(algorithm_1, apart, mu, rstar, share, rounds)


def pooled(method: Method, alone: Devices, rounds: list[int]) -> list[Point]:
    """The curve of a method that sees one function."""
    return [point(partial(pep.worst_case, method, alone, k, r0=1)) for k in rounds]


def best_steps(mu: float, rounds: list[int]) -> list[Point]:
    """The curve of the best constant step, chosen anew for every number of rounds."""
    return [best_step(mu, k) for k in rounds]


def algorithm_1(apart: int, mu: float, rstar: float, share: float, rounds: list[int]) -> list[Point]:
    """The curve of own steps in this share of the rounds (rounded, at least one) and common steps after them."""
    pair = devices(apart, mu)
    methods = [OwnStep(At(max(1, round(share * k)))) for k in rounds]
    return [
        point(partial(pep.worst_case, method, pair, k, r0=1, rstar=rstar))
        for method, k in zip(methods, rounds, strict=True)
    ]


def designed(apart: int, mu: float, rstar: float, rounds: int) -> list[Point]:
    """Steps and momentum designed for exactly this point."""
    found = pep.tune(devices(apart, mu), rounds, r0=1, rstar=rstar, what="momentum", patience=SEARCH)
    return [point(lambda: found.bound)]


def finished(curves: dict[str, dict[str, list[Point]]]) -> None:
    """Leave out designs that are no better than the best constant step: their search ran out of time."""
    for key, curve in curves["designed"].items():
        _, mu, _, rounds = key.split("|")
        best = curves["GD best fixed step"][mu][AXES["K"].index(int(rounds))]
        if curve[0] and best and curve[0] >= best:
            curve[0] = None


def computed(task: tuple[str, str, Callable[[], list[Point]]]) -> tuple[str, str, list[Point]]:
    """One curve, in a process of its own."""
    name, key, make = task
    return name, key, make()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--only", default="", help="only methods whose name begins so; nothing is written but the parts"
    )
    asked = parser.parse_args()
    kept = asked.out.with_suffix(".part.json")
    done: dict[str, dict[str, list[Point]]] = json.loads(kept.read_text()) if kept.exists() else {}
    every = [task for task in work() if task[0].startswith(asked.only)]
    todo = [(name, key, make) for name, key, make in every if key not in done.get(name, {})]
    with multiprocessing.Pool(asked.processes) as pool, Bar("worst cases", len(todo), None) as bar:
        for count, (name, key, points) in enumerate(pool.imap_unordered(computed, todo)):
            done.setdefault(name, {})[key] = points
            kept.write_text(json.dumps(done))
            bar.update(count + 1, f"{name} {key}")
    if not asked.only:
        curves = {name: {k: done[name][k] for n, k, _ in every if n == name} for name, _, _ in every}
        finished(curves)
        made = {"command": "python benchmarks/worst_case_grid.py --out FILE"} | provenance(seed=0)
        asked.out.write_text(json.dumps({"made": made, "axes": AXES, "curves": curves}, separators=(",", ":")))


if __name__ == "__main__":
    main()
