"""What a round on the cluster engine costs: against a bare all-reduce, on more ranks, and by a model on many more.

    python benchmarks/cluster.py [--ranks 1,2] [--out FILE] [--quick]

Starts the ranks itself, on the loopback device of this machine. Three parts:

overhead   seconds of a whole round of ``cluster.run`` (ask, pack, all-reduce, check, tell, history) over those of two
           peers, measured in turns in the same process: after every round of ours one of each, begun when all ranks
           have met. The problem's own gradient is a vector made beforehand, so that a round has no compute.
           bare: ``dist.all_reduce`` of the same bytes in memory that is kept, and nothing else;
           plain: what the shortest loop has to do as well: copy the gradient and the losses into that memory,
           all-reduce it, and subtract it from x in place.
scaling    strong scaling: rounds of the same logistic problem on 1, 2, ... ranks, against the local engine.
model      an all-reduce of B bytes on P ranks in a ring takes 2 (P-1) alpha + 2 (P-1)/P B beta seconds, and a round
           C/P + that + h, with C seconds of gradient on one rank. alpha and beta are fitted to the bare all-reduces.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from scipy.optimize import nnls

SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
ROUNDS = {100: 400, 1_000: 400, 10_000: 300, 100_000: 100, 1_000_000: 30}
PREDICTED = (8, 64, 1024)
ETHERNET = (25e-6, 8 / 10e9)
"""(alpha, beta) assumed, not measured, for 10 Gbit/s Ethernet between machines: 25 us a message, 0.8 ns a byte."""


class Ready:
    """A problem whose gradient is made beforehand: one device a rank, no compute."""

    names, work, strong_convexity = ("D",), 1.0, 0.0

    def __init__(self, dim: int) -> None:
        self.dim, self.weights, self.counts = dim, np.ones(1), np.array([1])
        self.loss, self.gradient = np.ones(1), np.full(dim, 1e-9)

    def x0(self):
        return np.zeros(self.dim)

    def mix(self, x, c):
        return self.loss, self.gradient


def overhead(dim: int, rounds: int) -> dict[str, float]:
    """Medians of a round and of a bare all-reduce of its bytes, in turns; quartiles say how noisy the machine was."""
    import torch
    import torch.distributed as dist

    from ownstep.engines import cluster
    from ownstep.methods import Never, OwnStep
    from ownstep.plan import Devices

    shared = cluster.share(Ready(dim))
    size = shared.ranks.size
    bare_buffer = torch.zeros(dim + size + 2, dtype=torch.float64)
    engine, bare, plain, last = [], [], [], [time.perf_counter()]
    message, gradient, losses = bare_buffer.numpy(), np.full(dim, 1e-9), np.zeros(size + 2)
    iterate = np.zeros(dim)

    def timed(seconds: list[float], act: Any) -> None:
        dist.barrier()  # all begin with all ranks there: none pays for the other's stragglers
        began = time.perf_counter()
        act()
        seconds.append(time.perf_counter() - began)

    def loop() -> None:
        message[:dim], message[dim:] = gradient, losses
        dist.all_reduce(bare_buffer)
        np.subtract(iterate, message[:dim], out=iterate)

    def observe(k: int, x: Any) -> None:
        engine.append(time.perf_counter() - last[0])
        timed(bare, lambda: dist.all_reduce(bare_buffer))
        timed(plain, loop)
        dist.barrier()
        last[0] = time.perf_counter()

    devices = Devices(shared.weights, np.arange(1.0, size + 1))
    cluster.run(OwnStep(Never()), shared, rounds, devices=devices, observe=observe, progress=False)
    ours, theirs, loops = np.array(engine[5:]), np.array(bare[5:]), np.array(plain[5:])
    return {
        "numbers": dim,
        "bytes": bare_buffer.nbytes,
        "round_s": float(np.median(ours)),
        "bare_s": float(np.median(theirs)),
        "plain_s": float(np.median(loops)),
        "ratio": float(np.median(ours) / np.median(theirs)),
        "ratio_to_plain": float(np.median(ours) / np.median(loops)),
        "ratio_lower_quartiles": float(np.quantile(ours, 0.25) / np.quantile(theirs, 0.25)),
        "bare_quartiles_s": [float(q) for q in np.quantile(theirs, [0.25, 0.75])],
    }


def problems() -> dict[str, Any]:
    """Problems of strong scaling: the paper's W8A where it is found, and dense rows that never fit a cache."""
    from ownstep import BinaryLogistic, load, partition
    from ownstep.support.errors import OwnstepError

    rng = np.random.default_rng(0)
    rows = rng.standard_normal((40_000, 400))
    labels = np.where(rows[:, 0] + rng.standard_normal(len(rows)) > 0, 1, -1)
    dense = BinaryLogistic(rows, labels, partition.iid(len(rows), 16), mu=1e-2)
    try:
        data = load("w8a")
    except OwnstepError:
        return {"dense 40,000 x 400": dense}
    w8a = BinaryLogistic(data.rows, data.labels, partition.iid(data.rows.shape[0], 16), mu=1e-3)
    return {"w8a": w8a, "dense 40,000 x 400": dense}


def scaling(rounds: int) -> dict[str, dict[str, float]]:
    """Median seconds of a round, by problem; in turns with the local engine on rank 0, while the others rest."""
    from ownstep.engines import cluster, describe, run
    from ownstep.methods import GD

    out = {}
    for name, whole in problems().items():
        shared = cluster.deal(whole)
        devices = describe(shared, "trace").devices
        ours: list[float] = []
        alone: list[float] = []
        for _ in range(4):
            history = cluster.run(GD(), shared, rounds, devices=devices, progress=False)
            ours += history.columns["seconds"][2:].tolist()
            if shared.ranks.rank == 0:
                alone += run(GD(), whole, rounds, devices=devices, progress=False).columns["seconds"][2:].tolist()
        mine, local = float(np.median(ours)), float(np.median(alone or [np.nan]))
        out[name] = {
            "round_s": mine, "local_s": local, "speedup": local / mine, "numbers": whole.dim, "devices": 16,
        }  # fmt: skip
    return out


def worker(out: Path, quick: bool) -> None:
    sizes = SIZES[:4] if quick else SIZES
    found = {"overhead": [overhead(d, ROUNDS[d] // (4 if quick else 1)) for d in sizes]}
    found["scaling"] = scaling(6 if quick else 20)  # type: ignore[assignment]
    if os.environ["RANK"] == "0":
        out.write_text(json.dumps(found))


def start(ranks: int, quick: bool) -> dict[str, Any]:
    """Start so many ranks of this file and wait for what they found."""
    from ownstep.engines.cluster import torchrun

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        command = torchrun.command(ranks, "benchmarks.cluster", ["--worker", str(out), *(["--quick"] if quick else [])])
        subprocess.run(command, env=torchrun.environment(), check=True, timeout=900, stdout=sys.stderr)
        return dict(json.loads(out.read_text()))


def fit(measured: list[tuple[int, float, float]]) -> tuple[float, float]:
    """(alpha, beta), at least 0, with the smallest relative errors over (ranks, bytes, seconds)."""
    rows = [[2 * (p - 1) / s, 2 * (p - 1) / p * b / s] for p, b, s in measured]
    alpha, beta = nnls(np.array(rows), np.ones(len(rows)))[0]
    return float(alpha), float(beta)


def ring(ranks: int, size: float, alpha: float, beta: float) -> float:
    """Seconds of an all-reduce of ``size`` bytes."""
    return 2 * (ranks - 1) * alpha + 2 * (ranks - 1) / ranks * size * beta


def predict(compute: float, size: float, h: float, alpha: float, beta: float) -> dict[str, Any]:
    """Speed-ups, the number of ranks beyond which a round gets slower again, and where efficiency falls to a half."""
    many = np.unique(np.geomspace(1, 65536, 400).astype(int))
    seconds = np.array([compute / p + ring(int(p), size, alpha, beta) + h for p in many])
    speedup = (compute + h) / seconds
    half = many[speedup >= many / 2]
    return {
        "speedup": {str(p): (compute + h) / (compute / p + ring(p, size, alpha, beta) + h) for p in PREDICTED},
        "round_s": {str(p): compute / p + ring(p, size, alpha, beta) + h for p in PREDICTED},
        "best_ranks": int(many[np.argmin(seconds)]),
        "best_speedup": float(speedup.max()),
        "half_efficient_up_to": int(half.max()),
    }


def model(found: dict[int, dict[str, Any]]) -> dict[str, Any]:
    several = {p: f for p, f in found.items() if p > 1}
    fitted_on = sorted(several)[:2] if len(several) > 2 else sorted(several)
    points = {p: [(p, o["bytes"], o["bare_s"]) for o in f["overhead"]] for p, f in several.items()}
    alpha, beta = fit([point for p in fitted_on for point in points[p]])
    checks = [
        {"ranks": p, "bytes": b, "measured_s": s, "model_s": ring(p, b, alpha, beta), "used_in_fit": p in fitted_on}
        for p in sorted(points)
        for p, b, s in points[p]
    ]
    first = several[fitted_on[0]]["overhead"]
    h = float(np.median([o["round_s"] - o["bare_s"] for o in first[:3]]))
    scaled = several[fitted_on[0]]["scaling"]
    cases = {name: (f["local_s"], 8 * (f["numbers"] + f["devices"] + 2)) for name, f in scaled.items()}
    cases["a network: 1 s of gradient, 1,000,000 float32"] = (1.0, 4e6)
    cases["a network: 60 s of gradient, 10,000,000 float32"] = (60.0, 4e7)
    out: dict[str, Any] = {"alpha_s": alpha, "beta_s_per_byte": beta, "h_s": h, "fitted_on_ranks": fitted_on}
    out["checks"] = checks
    out["this_machine"] = {n: predict(c, b, h, alpha, beta) for n, (c, b) in cases.items()}
    out["assumed_10_gbit_ethernet"] = {n: predict(c, b, h, *ETHERNET) for n, (c, b) in cases.items()}
    return out


def report(result: dict[str, Any]) -> None:
    for p, f in result["measured"].items():
        if int(p) > 1:
            print(f"\n{p} ranks: a round / a bare all-reduce of the same bytes")
            for o in f["overhead"]:
                low, high = o["bare_quartiles_s"]
                print(
                    f"  {o['numbers']:>9,} numbers   {1e3 * o['round_s']:8.3f} ms / {1e3 * o['bare_s']:8.3f} ms = "
                    f"{o['ratio']:.2f}   / a plain loop {o['ratio_to_plain']:.2f}   "
                    f"(lower quartiles {o['ratio_lower_quartiles']:.2f}; "
                    f"bare {1e3 * low:.3f} to {1e3 * high:.3f} ms)"
                )
    print("\nstrong scaling: local engine's round / cluster engine's")
    for p, found in result["measured"].items():
        for name, f in found["scaling"].items():
            times = f"{1e3 * f['local_s']:7.2f} ms / {1e3 * f['round_s']:7.2f} ms"
            print(f"  {p:>3} ranks   {name:<20} {times} = {f['speedup']:.2f}")
    m = result["model"]
    if m is None:
        return
    print(f"\nmodel: alpha {1e6 * m['alpha_s']:.1f} us, beta {1e9 * m['beta_s_per_byte']:.3f} ns a byte, ", end="")
    print(f"h {1e6 * m['h_s']:.0f} us; fitted on {m['fitted_on_ranks']} ranks")
    for check in m["checks"]:
        kind = "fitted" if check["used_in_fit"] else "predicted"
        print(
            f"  {check['ranks']:>3} ranks {check['bytes']:>10,} bytes   measured {1e3 * check['measured_s']:8.3f} ms   "
            f"{kind} {1e3 * check['model_s']:8.3f} ms"
        )
    for where in ("this_machine", "assumed_10_gbit_ethernet"):
        print(f"\npredicted speed-up over one rank, {where.replace('_', ' ')}")
        for name, case in m[where].items():
            ups = "   ".join(f"{p}: {s:.3g}" for p, s in case["speedup"].items())
            print(
                f"  {name:<48} {ups}   best {case['best_speedup']:.3g} with {case['best_ranks']}, "
                f"half efficient up to {case['half_efficient_up_to']}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="1,2", help="how many ranks to start, one after the other")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/cluster.json"))
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and no vector of a million")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.worker is not None:
        worker(chosen.worker, chosen.quick)
        return
    import torch

    counts = [int(p) for p in chosen.ranks.split(",")]
    found = {p: start(p, chosen.quick) for p in counts}
    result = {
        "machine": {
            "system": f"{platform.system()} {platform.machine()}", "cores": os.cpu_count(), "torch": torch.__version__,
            "load_average": os.getloadavg()[0],
        },
        "measured": {str(p): f for p, f in found.items()},
        "model": model(found) if max(counts) > 1 else None,
    }  # fmt: skip
    report(result)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
