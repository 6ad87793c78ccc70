"""Four hospitals: the pooled fit, each hospital alone, the fit over sites, and FedAvg, FedProx and SCAFFOLD.

    python benchmarks/hospitals.py [SEED ...]

The comparison of ``ownstep demo --engine federation`` without its federation: the fit over sites runs in this process,
with the same numbers. With several seeds, which patients are held out changes and the means are printed.
"""

from __future__ import annotations

import sys

import numpy as np

import ownstep
from ownstep.glm import fit
from ownstep.glm.hospitals import HOLDOUT, compare_hospitals


def main(seeds: list[int]) -> None:
    data = ownstep.load("heart_disease")
    names = [*sorted(set(data.sites)), "all"]
    runs = []
    for seed in seeds:
        rows, labels = data.table()
        over = fit(rows, labels, data.sites, features=data.features, allow=["all"], holdout=HOLDOUT, seed=seed)
        runs.append(compare_hospitals(data, over.to_dict(), over.model, seed))
    print("| | " + " | ".join(names) + " | exchanges | bytes | distance |")
    print("|---" * (len(names) + 4) + "|")
    for every in zip(*runs, strict=True):
        made = [line for line in every if not line.why]
        title = every[0].title.removesuffix(" (penalised)")
        if not made:
            print(f"| {title}: {every[0].why} |" + " |" * (len(names) + 3))
            continue
        penalised = sum("penalised" in line.title for line in made)
        title += f" (penalised: separated{f', {penalised} of {len(made)} times' if len(made) > 1 else ''})" * (
            penalised > 0
        )
        cells = [f"{mean(line.accuracy[n] for line in made)}, {mean(line.auc[n] for line in made)}" for n in names]
        took = [str(made[0].exchanges), f"{made[0].bytes:,}"] if made[0].exchanges else ["", ""]
        print(f"| {title} | " + " | ".join([*cells, *took, f"{max(line.distance for line in made):.2g}"]) + " |")
    print("\naccuracy, AUC on held-out patients; distance to the pooled coefficients: largest, in standard errors")


def mean(values):
    known = [v for v in values if v is not None]
    return format(float(np.mean(known)), ".3f") if known else "-"


if __name__ == "__main__":
    main([int(a) for a in sys.argv[1:]] or [0])
