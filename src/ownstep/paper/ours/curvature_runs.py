"""The runs of the own-curvature experiment: which methods on which draws, the most telling first, and one row for each.

A part is one stage on one draw of one dataset. The order of :func:`parts` sees to it that a run that is cut short has
compared what matters on every dataset before it fills in the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ownstep import partition as partitions
from ownstep.data import load
from ownstep.engines import WIRES, Limits, describe
from ownstep.engines import run as run_method
from ownstep.methods import (
    DANE,
    GD,
    GIANT,
    ITEM,
    LBFGS,
    SHED,
    BarzilaiBorwein,
    Method,
    Nesterov,
    Newton,
    OwnCurvature,
    OwnStep,
)
from ownstep.problems import LinearModel, logistic_regression, optimum
from ownstep.support.errors import OwnstepError

if TYPE_CHECKING:
    from ownstep.engines.local.loop import Loop

GAP, MOST, SLOW, RIVALS = 1e-6, 400, 2000, 100
"""The relative gap; exchanges at most: of quasi-Newton methods, of first-order ones, of GIANT, DANE and SHED."""
PATIENCE = 60.0
"""Seconds of processor time for a run of GIANT, DANE or SHED, whose devices solve problems of their own."""
DEFAULT = 10
SMALL = 1000
"""Newton and SHED, whose devices write out a Hessian, up to so many coordinates."""
DRAWS, FEWER_DRAWS = 5, 2
"""Draws of the rows, and of datasets in :data:`WIDE`, which take longest."""

DATA: tuple[tuple[str, float], ...] = (
    ("w8a", 1e-5), ("sst2_words", 1e-5), ("digits", 1e-3), ("heart_disease", 1e-3), ("w8a", 1e-4), ("w8a", 1e-3),
    ("mnist", 1e-3), ("heart_scaled", 1e-3), ("breast_cancer", 1e-3), ("digits", 1e-5),
)  # fmt: skip
WIDE = ("sst2_words", "mnist")
"""More than :data:`SMALL` coordinates."""

Job = tuple[str, int, str, int | None]
"""Split, devices, method, rank."""
Part = tuple[str, str, float, int]
"""Stage, dataset, mu, draw."""
Row = dict[str, Any]


def splits(name: str) -> tuple[str, ...]:
    """Who holds which rows."""
    return ("iid", "label", "by_norm", "dirichlet", *(("hospitals",) if name.startswith("heart") else ()))


def _one(name: str, draw: int) -> list[Job]:
    """One device: L-BFGS, Newton, and one sketch of its own or shared."""
    newton: list[Job] = [] if name in WIDE else [("one", 1, "newton", None)]
    own: list[Job] = [("one", 1, m, k) for k in (DEFAULT, 20) for m in ("own_curvature", "sum")]
    return [("one", 1, "lbfgs", None), *newton, *own]


def _many(devices: int, *ranks: int) -> Callable[[str, int], list[Job]]:
    def jobs(name: str, draw: int) -> list[Job]:
        kinds = [(s, 4 if s == "hospitals" else devices) for s in splits(name) if s != "hospitals" or devices == 10]
        return [(s, n, "own_curvature", k) for s, n in kinds for k in ranks]

    return jobs


def _attribution(name: str, draw: int) -> list[Job]:
    """The vectors of ten devices on one device, and in shared sums."""
    return [("one", 1, m, 10 * k) for k in (DEFAULT, 20) for m in ("own_curvature", "sum")]


def _rivals(name: str, draw: int) -> list[Job]:
    """One draw: methods of this family on ten devices, alike and not, and the first-order ones."""
    if draw:
        return []
    own: list[Job] = [(s, 10, m, None) for s in ("iid", "by_norm") for m in ("giant", "dane")]
    own += [] if name in WIDE else [(s, 10, "shed", k) for s in ("iid", "by_norm") for k in (5, 20)]
    slow = ("own_step", "gd:tuned", "nesterov", "item", "bb", "adaptive")
    return own + [("by_norm", 10, m, None) for m in slow]


def _other_ranks(name: str, draw: int) -> list[Job]:
    return [("one", 1, m, k) for k in (0, 1, 5, 50) for m in ("own_curvature", "sum")]


STAGES: dict[str, Callable[[str, int], list[Job]]] = {
    "one device": _one,
    "10 devices": _many(10, DEFAULT, 20),
    "50 devices": _many(50, DEFAULT, 20),
    "2 devices": _many(2, DEFAULT, 20),
    "attribution": _attribution,
    "10 devices, other ranks": _many(10, 0, 1, 5, 50),
    "rivals and first order": _rivals,
    "one device, other ranks": _other_ranks,
    "2 devices, other ranks": _many(2, 0, 1, 5, 50),
    "50 devices, other ranks": _many(50, 0, 1, 5, 50),
}


def parts(draws: int = DRAWS) -> list[Part]:
    """Every part, the most telling first: one and ten devices, the first dataset, ten devices on wide data, the rest.

    Rivals on other datasets take long, and come late.
    """
    every = [(s, n, mu, d) for s in STAGES for d in range(draws) for n, mu in DATA if n not in WIDE or d < FEWER_DRAWS]
    return sorted([(s, n, mu, d) for s, n, mu, d in every if STAGES[s](n, d)], key=_tier)


def _tier(part: Part) -> int:
    stage, name, mu, _ = part
    if stage == "one device" or (stage == "10 devices" and name not in WIDE):
        return 0
    if (name, mu) == DATA[0]:
        return 1
    if name in WIDE:
        return 2 if stage == "10 devices" else 5
    return 4 if stage == "rivals and first order" else 3


def key_of(part: Part) -> str:
    """The name under which a part is kept."""
    stage, name, mu, draw = part
    return f"{stage}: {name} {mu:g}, draw {draw}"


def make(stage: str, name: str, mu: float, draw: int, seed: int) -> list[Row]:
    """The rows of a part."""
    return rows_of(name, mu, seed + draw, STAGES[stage](name, draw))


@lru_cache(maxsize=60)
def drawn(name: str, seed: int) -> tuple[Any, NDArray[Any], NDArray[Any] | None]:
    """(Rows, labels, sites) of one draw: 90 % of the rows, or 3,000 images of MNIST."""
    data = load("heart_disease" if name == "heart_scaled" else name)
    rows, labels = data.table()
    rng = np.random.default_rng([seed, 90])
    if name == "mnist":
        kept = np.sort(rng.choice(len(labels), 3000, replace=False))
    else:
        kept = np.sort(rng.permutation(len(labels))[: int(0.9 * len(labels))])
    rows = rows[kept]
    if name == "heart_scaled":
        rows = (rows - rows.mean(axis=0)) / np.maximum(rows.std(axis=0), 1e-12)
    return rows, labels[kept], None if data.sites is None else data.sites[kept]


@lru_cache(maxsize=60)
def goal_of(name: str, mu: float, seed: int) -> float:
    """The value whose relative gap is :data:`GAP`."""
    rows, labels, _ = drawn(name, seed)
    pooled = logistic_regression(rows, labels, mu=mu)
    best, start = optimum(pooled).value, pooled.value(pooled.x0())
    return best + GAP * (start - best)


def rows_of(name: str, mu: float, seed: int, jobs: Sequence[Job]) -> list[Row]:
    """The runs on one draw of the rows; one that the method or the split refuses has the reason in ``refused``."""
    rows, labels, sites = drawn(name, seed)
    goal, made, out = goal_of(name, mu, seed), dict[tuple[str, int], LinearModel](), list[Row]()
    for split, devices, method, rank in jobs:
        row: Row = {
            "data": f"{name} {mu:g}", "split": split, "devices": devices, "method": method, "rank": rank, "seed": seed,
            "exchanges": None, "bytes": None, "seconds": {},
        }  # fmt: skip
        try:
            if (split, devices) not in made:
                who = None if split == "one" else split_of(split, rows, labels, devices, seed, sites)
                made[split, devices] = logistic_regression(rows, labels, who, mu=mu)
            out.append(row | _run(method, rank, made[split, devices], goal, seed))
        except OwnstepError as error:
            out.append(row | {"refused": str(error)})
    return out


def _own(rank: int | None) -> Method:
    return OwnCurvature(None if rank == DEFAULT else rank)  # the default one is reduced on devices of few rows


METHODS: dict[str, Callable[[int | None], Method]] = {
    "lbfgs": lambda k: LBFGS(), "newton": lambda k: Newton(), "own_curvature": _own,
    "sum": lambda k: OwnCurvature(k, sketch="sum"), "own_step": lambda k: OwnStep(),
    "gd:tuned": lambda k: GD("tuned"), "nesterov": lambda k: Nesterov(), "item": lambda k: ITEM(),
    "bb": lambda k: BarzilaiBorwein(), "adaptive": lambda k: OwnStep(smoothness="adaptive"),
    "giant": lambda k: GIANT(), "dane": lambda k: DANE(), "shed": lambda k: SHED(k or 5),
}  # fmt: skip


@dataclass(frozen=True)
class Patience(Limits):
    """Processor time that a run may take: the same however busy the machine is.

    Parameters
    ----------
    ends : on the clock of :func:`time.process_time`.
    """

    ends: float = np.inf

    def exceeded(self, loop: Loop) -> str:
        """Why the run ends."""
        late = time.process_time() > self.ends
        return f"out of processor time after {loop.k} exchanges" if late else super().exceeded(loop)


def _run(method: str, rank: int | None, problem: LinearModel, goal: float, seed: int) -> Row:
    chosen = METHODS[method](rank)
    rival = isinstance(chosen, GIANT | SHED)  # DANE is a GIANT
    most = RIVALS if rival else MOST if getattr(chosen, "searches", False) else SLOW
    needed = "adaptive" if getattr(chosen, "constant_free", False) else "exact"
    history = run_method(
        chosen, problem, most, target=goal, progress=False, search_target=goal, seed=seed,
        devices=describe(problem, needed).devices,
        limits=Patience(ends=time.process_time() + PATIENCE) if rival else None,
    )  # fmt: skip
    if history.value[-1] > goal:
        return {"stopped": history.stopped}
    seconds = {wire: float(f"{model.seconds(history)[-1]:.4g}") for wire, model in WIRES.items()}
    return {
        "exchanges": history.rounds, "bytes": round(history.bytes_per_device(history.rounds)), "seconds": seconds,
    }  # fmt: skip


def split_of(split: str, rows: Any, labels: NDArray[Any], devices: int, seed: int, sites: Any) -> partitions.Partition:
    """The named split; ``label`` sorts the rows by label and cuts them into equal parts."""
    if split == "hospitals":
        return partitions.given(sites)
    if split == "label":
        owner = np.empty(len(labels), int)
        for i, part in enumerate(np.array_split(np.argsort(labels, kind="stable"), devices)):
            owner[part] = i
        return partitions.given(owner)
    if split == "dirichlet":
        return partitions.dirichlet(labels, devices, 0.1, seed, min_samples=40)
    return partitions.make(split, rows, labels, devices, seed)
