"""The certified worst cases behind the explorer, computed once: `python benchmarks/worst_case_grid.py --out FILE`.

Two devices of equal weight, in units in which L_bar = 1 and R0 = 1: only the ratios L2/L1, mu/L_bar and R*/R0 matter.
The error is f(x^K) - f*. Every number is an upper end that a certificate in rational numbers proves. A point without
one within PATIENCE seconds is left out (null). A method that follows grad f alone sees one function of class
F(mu, L_bar): its curves depend on mu only. An interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import math
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

AXES: dict[str, list[float]] = {
    "ratio": [1.2, 2, 4, 9, 25],
    "mu": [0.01, 0.06],  # at most L1, also where L2 / L1 = 25
    "rstar": [0, 0.03, 0.1, 0.3, 0.5],
    "share": [0.25, 0.5, 1],
    "K": [1, 2, 3, 4, 6, 8, 10, 13, 16, 20],
}
PATIENCE = 40  # seconds of processor time for one point
SEARCH = 120  # seconds for the search of one design
POOLED = {"GD 1/L-bar": GD("mean"), "Nesterov": Nesterov("mean"), "ITEM": ITEM("mean")}
DESIGNS = [(9, 0.06, rstar, k) for k in (4, 10) for rstar in (0.03, 0.1)]

Point = float | None  # an upper end that is proved; None: no proof in time


def devices(ratio: float, mu: float) -> Devices:
    """Two devices whose constants have this ratio and the mean 1."""
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
    """(method, key, what computes its curve) in the order of the axes."""
    rounds = [int(k) for k in AXES["K"]]
    for mu in AXES["mu"]:
        alone = pep.repeated([1.0], mu=mu)
        for name, method in POOLED.items():
            yield name, f"{mu:g}", lambda m=method, d=alone: pooled(m, d, rounds)
        yield "GD best fixed step", f"{mu:g}", lambda mu=mu: [best_step(mu, k) for k in rounds]
    outwards = sorted(AXES["ratio"], key=lambda r: abs(math.log(r / 9)))  # from the paper's constants
    for mu, ratio, rstar, share in product(reversed(AXES["mu"]), outwards, AXES["rstar"], AXES["share"]):
        key = f"{ratio:g}|{mu:g}|{rstar:g}|{share:g}"
        yield "Algorithm 1", key, lambda r=ratio, m=mu, s=rstar, p=share: algorithm_1(r, m, s, p, rounds)
    for ratio, mu, rstar, k in DESIGNS:
        key = f"{ratio:g}|{mu:g}|{rstar:g}|{k}"
        yield "designed", key, lambda r=ratio, m=mu, s=rstar, k=k: [designed(r, m, s, k)]


def pooled(method: Method, alone: Devices, rounds: list[int]) -> list[Point]:
    """The curve of a method that sees one function."""
    return [point(partial(pep.worst_case, method, alone, k, r0=1)) for k in rounds]


def algorithm_1(ratio: float, mu: float, rstar: float, share: float, rounds: list[int]) -> list[Point]:
    """The curve of own steps in this share of the rounds (rounded, at least one) and common steps after them."""
    pair = devices(ratio, mu)
    methods = [OwnStep(At(max(1, round(share * k)))) for k in rounds]
    return [
        point(partial(pep.worst_case, method, pair, k, r0=1, rstar=rstar))
        for method, k in zip(methods, rounds, strict=True)
    ]


def designed(ratio: float, mu: float, rstar: float, rounds: int) -> Point:
    """Steps and momentum designed for exactly this point."""
    found = pep.tune(devices(ratio, mu), rounds, r0=1, rstar=rstar, what="momentum", patience=SEARCH)
    return point(lambda: found.bound)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--only", default="", help="only methods whose name begins so; nothing is written but the parts"
    )
    asked = parser.parse_args()
    kept = asked.out.with_suffix(".part.json")
    done: dict[str, dict[str, list[Point]]] = json.loads(kept.read_text()) if kept.exists() else {}
    todo = [(name, key, make) for name, key, make in work() if name.startswith(asked.only)]
    with Bar("worst cases", len(todo), None) as bar:
        for count, (name, key, make) in enumerate(todo):
            if key not in done.get(name, {}):
                done.setdefault(name, {})[key] = make()
                kept.write_text(json.dumps(done))
            bar.update(count + 1, f"{name} {key}")
    if not asked.only:
        wanted = {(name, key) for name, key, _ in todo}
        curves = {n: {k: points for k, points in of.items() if (n, k) in wanted} for n, of in done.items()}
        made = {"command": "python benchmarks/worst_case_grid.py --out FILE"} | provenance(seed=0)
        asked.out.write_text(json.dumps({"made": made, "axes": AXES, "curves": curves}, separators=(",", ":")))


if __name__ == "__main__":
    main()
