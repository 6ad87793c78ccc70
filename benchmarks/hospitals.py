"""Four hospitals: the pooled fit, each hospital alone, the fit over sites, and FedAvg, FedProx and SCAFFOLD.

    python benchmarks/hospitals.py

Every hospital keeps a third of its patients for measuring (the seed decides which). FLamby's settings for this data:
100 local steps per round, 15 rounds, step 1e-4 (FedProx 1e-3, mu 0.01). Its steps are on four patients at a time; ours
are on all patients of a hospital, which only removes noise. The same three with a step of 1/L show what they can do.
Columns are standardised over all training rows for everybody but "alone".
"""

from __future__ import annotations

import numpy as np

import ownstep
from ownstep.engines import describe
from ownstep.glm import Model, fit
from ownstep.glm.held_out import measure
from ownstep.methods import FedAvg, FedProx, Scaffold
from ownstep.problems import BinaryLogistic
from ownstep.support.errors import InvalidInput

HOLDOUT, ROUNDS, STEPS = 0.34, 15, 100


def main(seed: int = 0) -> None:
    data = ownstep.load("heart_disease")
    rows, labels, sites = data.rows, data.labels, data.sites
    names = sorted(set(sites))
    over = fit(rows, labels, sites, features=data.features, allow=["all"], holdout=HOLDOUT, seed=seed)
    tested = chosen(sites, names, seed)
    assert {n: int((~tested & (sites == n)).sum()) for n in names} == dict(over.sites)
    pooled = fit(rows[~tested], labels[~tested], features=data.features)
    table = {"all data in one place": (pooled.model, "", "")}
    for name in names:
        mine = ~tested & (sites == name)
        if len(set(labels[mine].tolist())) < 2:
            table[f"{name} alone: no model, all its training patients are ill"] = (None, "", "")
            continue
        try:
            alone = fit(rows[mine], labels[mine], features=data.features).model
            note = ""
        except InvalidInput:  # constant columns or separated classes: maximum likelihood does not exist
            keep = rows[mine].std(axis=0) > 0
            part = fit(rows[mine][:, keep], labels[mine], mu=0.01).model
            weights = np.zeros((rows.shape[1], 1))
            weights[keep] = part.coefficients
            alone, note = Model("logistic", data.features, weights, part.intercepts, ("0", "1")), " (penalised)"
        table[f"{name} alone{note}"] = (alone, "", "")
    table["fit over four sites"] = (over.model, over.exchanges - 1, over.bytes)
    table |= federated(rows[~tested], labels[~tested], sites[~tested], data.features)
    gap = np.abs(over.model.coefficients - pooled.model.coefficients).max()
    print(f"largest difference between a coefficient over sites and pooled: {gap:.1e}\n")
    heads = [*names, "all"]
    print("| | " + " | ".join(f"{h}" for h in heads) + " | exchanges | bytes | distance |")
    print("|---" * (len(heads) + 4) + "|")
    spread = np.sqrt(np.diag(over.covariance))
    best = np.append(pooled.model.intercepts, pooled.model.coefficients[:, 0])
    for title, (model, exchanges, bytes_) in table.items():
        if model is None:
            print(f"| {title} |" + " |" * (len(heads) + 3))
            continue
        told = [measure(model, rows[at], labels[at]) for at in [tested & (sites == n) for n in names] + [tested]]
        cells = [f"{t['accuracy']:.3f}, {'-' if t['auc'] is None else format(t['auc'], '.3f')}" for t in told]
        far = np.abs((np.append(model.intercepts, model.coefficients[:, 0]) - best) / spread).max()
        size = f"{bytes_:,}" if bytes_ else ""
        print(f"| {title} | " + " | ".join(cells) + f" | {exchanges} | {size} | {far:.2g} |")
    print("\naccuracy, AUC on held-out patients; distance to the pooled coefficients: largest, in standard errors")


def chosen(sites, names, seed):
    """The rows that fit holds out: the same draw."""
    tested, rng = np.zeros(len(sites), bool), np.random.default_rng(seed)
    for name in names:
        at = np.flatnonzero(sites == name)
        tested[rng.permutation(at)[: round(HOLDOUT * len(at))]] = True
    return tested


def federated(rows, labels, sites, features):
    mean, deviation = rows.mean(axis=0), rows.std(axis=0)
    split = ownstep.partition.given(sites)
    problem = BinaryLogistic((rows - mean) / deviation, labels, split, mu=0.0, intercept=True)
    devices = describe(problem).devices
    out = {}
    for title, step, prox in (("FLamby's step", 1e-4, 1e-3), ("step 1/L", "largest", "largest")):
        methods = {
            "FedAvg": FedAvg(step, local_steps=STEPS),
            "FedProx": FedProx(prox, local_steps=STEPS, prox=0.01),
            "SCAFFOLD": Scaffold(step, local_steps=STEPS),
        }
        for name, method in methods.items():
            history = ownstep.run(method, problem, ROUNDS, devices=devices, progress=False)
            weights, b = history.x[:-1] / deviation, history.x[-1] - history.x[:-1] @ (mean / deviation)
            model = Model("logistic", features, weights[:, None], np.array([b]), ("0", "1"))
            travelled = int(history.columns["bytes_up"].sum() + history.columns["bytes_down"].sum())
            out[f"{name}, {title}"] = (model, ROUNDS, travelled)
    return out


if __name__ == "__main__":
    main()
