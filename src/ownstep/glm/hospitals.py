"""Four hospitals: what one model over all of them is worth, against every other way of getting one.

The same held-out patients judge all of them: the fit with all data in one place, each hospital alone, the fit over four
sites, and FedAvg, FedProx and SCAFFOLD with the settings that FLamby uses for this data: 15 rounds of 100 local steps
of length 1e-4 (FedProx 1e-3, its mu 0.01). FLamby's steps are on four patients at a time, ours on all patients of a
hospital, which only removes noise. The same three with steps of 1/L show what they can do. Columns are standardised
over all training rows for everybody but "alone".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.data import Dataset
from ownstep.glm import held_out
from ownstep.glm.fitting import fit
from ownstep.glm.prediction import Model
from ownstep.methods import FedAvg, FedProx, Method, Scaffold
from ownstep.partition import given
from ownstep.problems import BinaryLogistic
from ownstep.support.errors import InvalidInput

HOLDOUT, ROUNDS, STEPS = 0.34, 15, 100
SHRUNK = 0.01
"""Penalty where maximum likelihood does not exist."""
SETTLED = 1e-6
"""A coefficient is at the pooled one when it is so near; both in the units of its column."""


@dataclass(frozen=True, eq=False)
class Line:
    """One way to a model, measured on the same patients.

    Parameters
    ----------
    accuracy, auc : on held-out patients, by hospital and ``all``; AUC is None where they are all ill or all healthy.
    exchanges, bytes : what it took; 0 where nothing travelled.
    distance : largest difference to the pooled coefficients, in standard errors.
    why : where there is no model, why not.
    """

    title: str
    accuracy: Mapping[str, float]
    auc: Mapping[str, float | None]
    exchanges: int = 0
    bytes: int = 0
    distance: float = np.nan
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        out = {k: dict(v) if isinstance(v, Mapping) else v for k, v in vars(self).items()}
        return out | {"distance": None if np.isnan(self.distance) else self.distance}


def compare_hospitals(data: Dataset, told: Mapping[str, Any], model: Model, seed: int = 0) -> list[Line]:
    """Every way to a model.

    Parameters
    ----------
    data : the hospitals' rows with their ``sites``; here in one place, to be the judge.
    told, model : the fit over sites as plain data, with :data:`HOLDOUT` of every site's rows held out by ``seed``.
    """
    assert data.sites is not None
    rows, labels = data.table()
    names = sorted(set(data.sites.tolist()))
    tested = np.zeros(len(labels), bool)
    for name in names:
        at = np.flatnonzero(data.sites == name)
        tested[at] = held_out.chosen(name, len(at), HOLDOUT, seed)
    pooled = fit(rows[~tested], labels[~tested], features=data.features)
    judge = _Judge(data, tested, names, pooled.model, np.sqrt(np.diag(pooled.covariance)))
    lines = [judge("all data in one place", pooled.model)]
    for name in names:
        lines.append(_alone(judge, name))
    lines.append(judge("fit over the sites", model, int(told["exchanges"]), int(told["bytes"])))
    return [*lines, *_rivals(judge)]


def settled(told: Mapping[str, Any], pooled: Mapping[str, float]) -> dict[str, int]:
    """For every coefficient, how many of Newton's exchanges it takes to be at the pooled one, and to stay there."""
    path = np.array(told["path"])
    goal = np.array([pooled[c["name"]] for c in told["coefficients"]])
    near = np.abs(path - goal) <= SETTLED
    stays = np.logical_and.accumulate(near[::-1], axis=0)[::-1]
    return {c["name"]: int(np.argmax(stays[:, i])) if stays[-1, i] else -1 for i, c in enumerate(told["coefficients"])}


@dataclass(frozen=True, eq=False)
class _Judge:
    """Measures a model on everybody's held-out patients."""

    data: Dataset
    tested: NDArray[np.bool_]
    names: list[str]
    pooled: Model
    spread: NDArray[np.float64]

    def __call__(self, title: str, model: Model, exchanges: int = 0, travelled: int = 0) -> Line:
        rows, labels = self.data.table()
        held = {name: self.tested & (self.data.sites == name) for name in self.names} | {"all": self.tested}
        found = {name: held_out.measure(model, rows[at], labels[at]) for name, at in held.items()}
        best, mine = (np.append(m.intercepts, m.coefficients[:, 0]) for m in (self.pooled, model))
        return Line(
            title, {n: f["accuracy"] for n, f in found.items()}, {n: f["auc"] for n, f in found.items()}, exchanges,
            travelled, float(np.abs((mine - best) / self.spread).max()),
        )  # fmt: skip

    def training(self, name: str | None = None) -> tuple[Any, NDArray[Any], NDArray[Any]]:
        """(Rows, labels, sites) of the patients that are not held out, of one hospital or of all."""
        rows, labels = self.data.table()
        assert self.data.sites is not None
        mine = ~self.tested if name is None else ~self.tested & (self.data.sites == name)
        return rows[mine], labels[mine], self.data.sites[mine]


def _alone(judge: _Judge, name: str) -> Line:
    """A hospital's own model; with a penalty and without its constant columns where there is none otherwise."""
    rows, labels, _ = judge.training(name)
    features = judge.data.features
    if len(set(labels.tolist())) < 2:
        return Line(f"{name} alone", {}, {}, why="no model: all its training patients are ill")
    try:
        return judge(f"{name} alone", fit(rows, labels, features=features).model)
    except InvalidInput:
        keep = rows.std(axis=0) > 0
        part = fit(rows[:, keep], labels, mu=SHRUNK).model
    weights = np.zeros((len(features), 1))
    weights[keep] = part.coefficients
    return judge(f"{name} alone (penalised)", Model("logistic", features, weights, part.intercepts, part.classes))


def _rivals(judge: _Judge) -> list[Line]:
    """FedAvg, FedProx and SCAFFOLD, on the local engine: the iterates are those of a federation, in milliseconds."""
    from ownstep.engines import describe, run

    rows, labels, sites = judge.training()
    mean, deviation = rows.mean(axis=0), rows.std(axis=0)
    problem = BinaryLogistic((rows - mean) / deviation, labels, given(sites), mu=0.0, intercept=True)
    devices = describe(problem).devices
    lines = []
    for title, step, prox in (("FLamby's step", 1e-4, 1e-3), ("step 1/L", "largest", "largest")):
        methods: dict[str, Method] = {
            "FedAvg": FedAvg(step, local_steps=STEPS),
            "FedProx": FedProx(prox, local_steps=STEPS, prox=0.01),
            "SCAFFOLD": Scaffold(step, local_steps=STEPS),
        }
        for name, method in methods.items():
            history = run(method, problem, ROUNDS, devices=devices, progress=False)
            weights = history.x[:-1] / deviation
            b = np.array([history.x[-1] - history.x[:-1] @ (mean / deviation)])
            model = Model("logistic", judge.data.features, weights[:, None], b, ("0", "1"))
            travelled = int(history.columns["bytes_up"].sum() + history.columns["bytes_down"].sum())
            lines.append(judge(f"{name}, {title}", model, ROUNDS, travelled))
    return lines
