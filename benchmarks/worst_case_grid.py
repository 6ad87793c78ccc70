"""The worst cases behind the report's explorer, computed once: `python benchmarks/worst_case_grid.py --out FILE`.

Two devices of equal weight, in units in which L_bar = 1 and R0 = 1: only the ratios L2/L1, mu/L_bar and R*/R0 matter.
The error is f(x^K) - f*. Every number is the upper end of an enclosure; the last K of every curve of Algorithm 1 and of
gradient descent is certified in rational numbers and checked. A grid that is interrupted goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from scipy.optimize import minimize_scalar

from ownstep import GD, ITEM, At, Nesterov, OwnStep, pep
from ownstep.plan import Devices
from ownstep.support.progress import Bar

AXES = {
    "ratio": [1.5, 3, 9, 25],
    "mu": [0.01, 0.06, 0.2],
    "rstar": [0, 0.03, 0.1, 0.3],
    "share": [0.25, 0.5, 0.75],
    "K": [1, 2, 4, 7, 10, 15, 20],
}

POOLED = {"GD 1/L-bar": GD("mean"), "Nesterov": Nesterov("mean"), "ITEM": ITEM("mean")}


def devices(ratio: float, mu: float) -> Devices:
    """Two devices whose constants have this ratio and the mean 1."""
    low = 2 / (1 + ratio)
    return pep.repeated([low, ratio * low], mu=min(mu, low))


Setting = tuple[float, float, float]


def worst(method: object, setting: Setting, rounds: int, certify: bool = False) -> tuple[float, bool]:
    """(upper end, certified?) of one worst case."""
    ratio, mu, rstar = setting
    bound = pep.worst_case(method, devices(ratio, mu), rounds, r0=1, rstar=rstar)
    if certify:
        try:
            return float(bound.certify().bound), True
        except Exception as error:  # a point without a certificate is drawn as such
            print(f"not certified: {method}, {setting}, K = {rounds}: {error}")
    return float(bound.upper), False


def best_step(setting: Setting, rounds: int) -> float:
    """The smallest worst case any constant step has after this many rounds."""
    ratio, mu, rstar = setting

    def value(step: float) -> float:
        found = pep.worst_case(GD(step=step), devices(ratio, mu), rounds, r0=1, rstar=rstar, tolerance=1e-3)
        return float(found.upper)

    found = minimize_scalar(value, bounds=(0.7, 2.0), method="bounded", options={"xatol": 5e-3})
    return float(found.fun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    kept = out.with_suffix(".part.json")
    done: dict[str, dict[str, dict[str, list[object]]]] = json.loads(kept.read_text()) if kept.exists() else {}
    settings = [(r, m, s) for r in AXES["ratio"] for m in AXES["mu"] for s in AXES["rstar"]]
    last, began = AXES["K"][-1], time.monotonic()
    with Bar("worst cases", len(settings), None) as bar:
        for count, setting in enumerate(settings):
            key = "|".join(f"{v:g}" for v in setting)
            if key not in done.get("Nesterov", {}):
                for name, method in POOLED.items():
                    found = [worst(method, setting, k, certify=k == last and name.startswith("GD")) for k in AXES["K"]]
                    done.setdefault(name, {})[key] = as_curve(found)
                steps = [(best_step(setting, k), False) for k in AXES["K"]]
                done.setdefault("GD best fixed step", {})[key] = as_curve(steps)
                for share in AXES["share"]:
                    found = [worst(OwnStep(At(round(share * k))), setting, k, certify=k == last) for k in AXES["K"]]
                    done.setdefault("Algorithm 1", {})[f"{key}|{share:g}"] = as_curve(found)
                kept.write_text(json.dumps(done))
            bar.update(count + 1, f"{time.monotonic() - began:.0f} s")
    out.write_text(json.dumps({"axes": AXES, "curves": done}, separators=(",", ":")))
    kept.unlink(missing_ok=True)


def as_curve(found: list[tuple[float, bool]]) -> dict[str, list[object]]:
    """Four digits, rounded up: an upper end stays one."""
    up = [float(f"{v:.3e}") if float(f"{v:.3e}") >= v else float(f"{v * 1.0005:.3e}") for v, _ in found]
    return {"upper": up, "certified": [yes for _, yes in found]}


if __name__ == "__main__":
    main()
