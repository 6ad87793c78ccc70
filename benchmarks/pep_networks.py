"""Worst cases over networks: time beside a plain CVXPY program, cost by K and N, and agreement with that program.

    python benchmarks/pep_networks.py [--out FOLDER] [--part PART] [--longest K] [--first J] [--processes N]

Times are CPU seconds of one core, best of a few calls, of the whole enclosure (program, proof, instance and its run).
The plain program is that of the tests: every device apart, all pairs, one Gram matrix, compiled by CVXPY, N = 2. It is
solved by Clarabel, as ours is, to 1e-6; where that gives no answer, by SCS to 1e-6, and then only that attempt counts.
The parts devices, rates, published, cvxpy and rounds are measured one at a time, or together as time.
The part ``plain`` compares every method, kind of network and metric with the plain program, for two and three devices
that differ and up to four rounds; ``--first`` goes on with a record. Random networks are run in
``pep_networks_samples.py``.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import itertools
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.pep import plain_network

from ownstep import Never, OwnStep, pep
from ownstep.methods import (
    EXTRA,
    GD,
    NIDS,
    DecentralisedGD,
    GradientTracking,
    HeavyBall,
    Nesterov,
    TripleMomentum,
)
from ownstep.plan import Devices

L, MU, R0, RSTAR = 1.0, 0.1, 1.0, 0.5
NETWORK = pep.Spectral(-0.5, 0.5)
TIMED = {
    "dgd": DecentralisedGD(0.3),
    "dgd, atc": DecentralisedGD(0.3, order="atc"),
    "own steps, atc": DecentralisedGD("own", order="atc"),
    "extra": EXTRA(0.3),
    "nids": NIDS(0.3),
    "tracking": GradientTracking(0.1),
    "tracking, atc": GradientTracking(0.1, order="atc"),
}


def cpu(call, repeat: int = 1):
    """CPU seconds of the fastest of a few calls, and its result."""
    best, result = np.inf, None
    for _ in range(repeat):
        began = time.process_time()
        result = call()
        best = min(best, time.process_time() - began)
    return best, result


def ours(method, rounds: int, count: int = 2):
    return pep.worst_case(method, pep.repeated([L], MU, [count]), rounds, R0, RSTAR, network=NETWORK)


def plainly(*options) -> tuple[float, float | None, str]:
    """(CPU seconds, answer, solver) of the plain program, with the first solver that gives an answer."""
    seconds = 0.0
    for plain_network.SOLVER, plain_network.AVERAGES in (("CLARABEL", False), ("SCS", True)):
        began = time.process_time()
        try:
            value = plain_network.worst_case(*options)
        except plain_network.NoAnswer:
            seconds = time.process_time() - began
            continue
        return time.process_time() - began, value, plain_network.SOLVER
    return seconds, None, "none"


def against_cvxpy(only: str | None, rounds: int = 10) -> Iterator[dict]:
    plain_network.DIGITS = (1e-6,)  # one attempt, as a user would make it
    two = (np.full(2, L), np.full(2, MU), np.full(2, 0.5))
    for name, method in TIMED.items():
        if only not in (None, name):
            continue
        mine, bound = cpu(lambda m=method: ours(m, rounds), repeat=2)
        steps = [1 / L if method.step == "own" else method.step] * 2
        called, order = name.split(", ")[0].replace("own steps", "dgd"), getattr(method, "order", "")
        options = (called, order, *two, steps, rounds, R0, RSTAR, "value", NETWORK.lo, NETWORK.hi)
        theirs, value, solver = plainly(*options)
        print(f"K={rounds} {name:9s} ours {mine:6.2f} s [{bound.lower:.7g}, {bound.upper:.7g}]   CVXPY {theirs:7.1f} s "
              f"{value} ({solver})   {theirs / mine:5.1f} times faster (aim 10)", flush=True)  # fmt: skip
        yield {"method": name, "K": rounds, "ours_s": mine, "cvxpy_s": theirs, "ratio": theirs / mine,
               "upper": bound.upper, "lower": bound.lower, "cvxpy": value, "cvxpy_solver": solver}  # fmt: skip


def by_rounds(longest: int) -> list[dict]:
    rows = []
    for rounds in (k for k in (5, 10, 20) if k <= longest):
        for name, method in TIMED.items():
            seconds, bound = cpu(lambda m=method, k=rounds: ours(m, k))
            print(
                f"K={rounds} {name:9s} {seconds:6.2f} s, enclosed to {bound.gap:.1e}, {bound.solves} solves", flush=True
            )
            rows.append({"method": name, "K": rounds, "seconds": seconds, "gap": bound.gap, "upper": bound.upper})
    return rows


def by_devices() -> list[dict]:
    rows = []
    for count in (2, 10, 1000):
        seconds, bound = cpu(lambda n=count: ours(EXTRA(0.3), 10, n), repeat=2)
        print(f"N={count} EXTRA, K=10: {seconds:.2f} s, {bound.upper:.9g}", flush=True)
        rows.append({"N": count, "seconds": seconds, "upper": bound.upper})
    print(f"largest over smallest: {max(r['seconds'] for r in rows) / min(r['seconds'] for r in rows):.2f} (aim 2)")
    return rows


def rates() -> list[dict]:
    rows = []
    served = {
        "gd": GD(2 / (L + MU)),
        "heavy ball": HeavyBall(1.0, 0.3),
        "nesterov": Nesterov("mean"),
        "tmm": TripleMomentum("mean"),
    }
    served["own steps, first phase"] = OwnStep(Never())
    for name, method in {**served, **TIMED}.items():
        network = None if name in served else NETWORK
        seconds, found = cpu(lambda m=method, w=network: pep.rate(m, pep.repeated([L], MU, [2]), network=w), repeat=2)
        print(f"rate of {name:22s} {seconds:.2f} s, {found.rho:.7f} (aim 2 s)", flush=True)
        rows.append({"method": name, "seconds": seconds, "rho": found.rho})
    return rows


def published() -> list[dict]:
    """EXTRA as Colla and Hendrickx analyse it: 15 rounds, starts and gradients at x* bounded, step 0.78."""
    rows, start = [], pep.Start("ball", gradients=1.0)
    network = pep.Spectral(NETWORK.lo, NETWORK.hi, any_number=True)
    for step in (0.76, 0.78, 0.80):
        options = (EXTRA(step), pep.repeated([L], MU, [2]), 15, R0, np.inf, "distance_devices")
        bound = pep.worst_case(*options, network=network, start=start, effort=0.2)
        print(f"EXTRA, K=15, step {step}: [{bound.lower:.6f}, {bound.upper:.6f}]", flush=True)
        rows.append({"method": "extra", "K": 15, "step": step, "lower": bound.lower, "upper": bound.upper})
    return rows


MIXED = {
    "dgd-cta": DecentralisedGD,
    "dgd-atc": DecentralisedGD,
    "extra-": EXTRA,
    "nids-": NIDS,
    "tracking-cta": GradientTracking,
    "tracking-atc": GradientTracking,
}


def settings(seed: int) -> Iterator[dict]:
    """One random setting for every method, metric, and one W or a new one each round."""
    rng = np.random.default_rng(seed)
    for name, metric, each_round in itertools.product(MIXED, pep.NETWORK_METRICS, (False, True)):
        n, rounds = ((2, 4), (3, 3))[int(rng.integers(2))]
        them = Devices(*rng.dirichlet(np.full(n, 20.0), 1), rng.uniform(1, 2, n), rng.uniform(0.05, 0.3, n))
        lo, hi = np.sort(rng.uniform(-0.8, 0.8, 2)).round(2).tolist()
        step, rstar = round(float(rng.uniform(0.05, 0.3)), 3), round(float(rng.uniform(0.2, 1)), 2)
        points = ("same", "ball", "mean")[int(rng.integers(3))]
        yield {"method": name, "metric": metric, "each_round": each_round, "N": n, "K": rounds, "network": [lo, hi],
               "start": points, "step": step, "rstar": rstar, "devices": them}  # fmt: skip


def compared(one: dict) -> dict:
    """One setting with our enclosure, of the class's conditions alone, and the plain program's value."""
    plain_network.DIGITS = (1e-8, 1e-6)
    one = dict(one)
    name, order = one["method"].split("-")
    them, (lo, hi), n, metric = one.pop("devices"), one["network"], one["N"], one["metric"]
    method = MIXED[one["method"]](one["step"], **({"order": order} if order else {}))
    network, start = pep.Spectral(lo, hi, each_round=one["each_round"]), pep.Start(one["start"])
    common = (one["K"], R0, one["rstar"])
    mine = pep.worst_case(method, them, *common, metric, network=network, start=start, effort=0.0)
    judged = [f"{metric}{i}" for i in range(n)] if metric.endswith("_worst") else [metric]
    steps, constants = [one["step"]] * n, (them.L, them.mu, them.weights)
    found = [
        plainly(name, order, *constants, steps, *common, which, lo, hi, one["each_round"], one["start"])
        for which in judged
    ]
    values = [value for _, value, _ in found]
    value = None if None in values else max(values)
    off = None if value is None else (mine.upper - value) / value
    print(f"{one['method']:13s} {metric:17s} N={n} K={one['K']} [{lo}, {hi}] {one['start']:5s} {mine.upper:.7g}, "
          f"plain {value}, {off}", flush=True)  # fmt: skip
    return {**one, "upper": mine.upper, "lower": mine.lower, "plain": value, "relative": off,
            "solvers": sorted({solver for _, _, solver in found}), "plain_s": sum(s for s, _, _ in found)}  # fmt: skip


def plain_agreement(path: Path, processes: int, seed: int, first: int) -> None:
    """Every method, metric and kind of network: our upper end beside the plain program's value, random settings."""
    every = list(settings(seed))
    rows = json.loads(path.read_text())["rows"][:first] if first and path.exists() else []
    with multiprocessing.Pool(processes) as pool:
        for row in pool.imap(compared, every[first:], chunksize=1):
            rows.append(row)
            known = [r["relative"] for r in rows if r["relative"] is not None]
            told = {"seed": seed, "settings": len(every), "run": len(rows), "answered": len(known)}
            told |= {"lowest": min(known, default=None), "largest": max(known, default=None)}
            told |= {"ours_below": sum(x < -1e-6 for x in known), "rows": rows}
            path.write_text(json.dumps(told, indent=1))


PARTS = {"devices": by_devices, "rates": rates, "published": published, "cvxpy": against_cvxpy, "rounds": by_rounds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--part", choices=("time", *PARTS, "plain"), default=None)
    parser.add_argument("--longest", type=int, default=20)
    parser.add_argument("--method", choices=TIMED, default=None, help="of --part cvxpy; all by default")
    parser.add_argument("--first", type=int, default=0, help="of --part plain: the settings before it are kept")
    parser.add_argument("--limit", type=float, default=None, help="of --part plain: seconds of one solve")
    parser.add_argument("--seed", type=int, default=21, help="of the settings of --part plain")
    parser.add_argument("--processes", type=int, default=1, help="of --part plain")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    if chosen.part in (None, "time", *PARTS):
        ours(EXTRA(0.3), 2)  # imports and caches
        path = chosen.out / "pep-networks.json"
        told: dict = json.loads(path.read_text()) if path.exists() else {}
        for name in PARTS if chosen.part in (None, "time") else (chosen.part,):
            told.setdefault("load", {})[name] = list(os.getloadavg())
            if name == "cvxpy":
                for row in against_cvxpy(chosen.method):  # each takes up to minutes
                    told[name] = [*(one for one in told.get(name, []) if one["method"] != row["method"]), row]
                    path.write_text(json.dumps(told, indent=1))
                continue
            told[name] = by_rounds(chosen.longest) if name == "rounds" else PARTS[name]()
            path.write_text(json.dumps(told, indent=1))
    if chosen.part in (None, "plain"):
        plain_network.LIMIT = chosen.limit
        path = chosen.out / "pep-networks-plain.json"
        plain_agreement(path, chosen.processes, chosen.seed, chosen.first)


if __name__ == "__main__":
    main()
