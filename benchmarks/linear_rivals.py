"""The newer rivals of the paper's `fedopt` and `gossip` experiments on linear models, on many cores.

    OWNSTEP_DATA=.data python benchmarks/linear_rivals.py --out OUT --processes 16 --seconds 570
    python benchmarks/linear_rivals.py --merge OUT          # into results/, judged again

A search of a method that never reaches the tightest gap cannot be cut short: 30 settings of 1,000 rounds with five
local steps are 150,000 passes over the data, a quarter of an hour on one core. Its trials do not depend on each other,
so each is a task of its own here. The search then replays them one after the other, by the rule of
`ownstep.engines.tune`, and finds what it finds alone. What is done is kept in OUT (and in --have); a second call does
the rest. It needs MNIST, NumPy and SciPy.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import numpy as np

from ownstep.engines import run
from ownstep.engines.tuning import replayed
from ownstep.paper.appendix import against_fedopt, against_gossip
from ownstep.paper.machinery import contest, mnist_problem
from ownstep.paper.machinery.runner import judge_again, provenance
from ownstep.support.files import write_atomically

MODULES: dict[str, Any] = {"fedopt": against_fedopt, "gossip": against_gossip}
APART = ("FedProx", "FedSPS", "Delta-SGD", "FedAvg", "FedNova")
"""Methods that never reach the tightest gap of `fedopt`: each trial is a task."""
MINUTES = {"optimum": 1.5, "trial": 1.2, "fedopt": 7.0, "gossip": 4.0}
"""No task begins that would take longer than what is left: guesses, on the safe side."""


@dataclass(frozen=True)
class Task:
    """One thing to compute, and the file it goes to."""

    kind: str
    experiment: str
    seed: int
    method: str = ""
    point: tuple[tuple[str, float], ...] = ()

    @property
    def file(self) -> str:
        """Its name says what it is, its digest which settings."""
        text = json.dumps([self.kind, self.experiment, self.seed, self.method, self.point])
        digest = hashlib.sha256(text.encode()).hexdigest()[:10]
        return f"{self.kind}-{self.experiment}-{self.seed}-{self.method or 'all'}-{digest}.json"

    @property
    def seconds(self) -> float:
        """How long it takes at most."""
        return 60 * MINUTES[self.experiment if self.kind == "search" else self.kind]


@cache
def setting_of(experiment: str, seed: int, best: float | None) -> mnist_problem.Setting:
    """The problem of one experiment and seed."""
    return mnist_problem.logistic(False, seed, MODULES[experiment].split(seed), best)


def grid(task: Task, best: float | None = None) -> list[tuple[tuple[str, float], ...]]:
    """Every setting of a method's own search space."""
    space: Any = contest.newer()[task.method]
    values = space.search_space(setting_of(task.experiment, task.seed, best).plan.devices)
    return [tuple(zip(values, map(float, point), strict=True)) for point in product(*values.values())]


def work(task: Task, best: float | None, trials: dict[str, list[float]]) -> Any:
    """Compute a task: f(x*) and the grids, the losses of a trial, or a whole search with the run after it."""
    rounds, levels, budget = MODULES[task.experiment].RACE
    setting = setting_of(task.experiment, task.seed, best)
    if task.kind == "optimum":
        return {"best": setting.optimum, "grids": {m: grid(replace(task, method=m)) for m in APART}}
    method: Any = contest.newer()[task.method]
    options: dict[str, Any] = {"devices": setting.plan.devices, "progress": False}
    if task.kind == "trial":
        goal = contest.goal_of(setting, levels)
        history = run(replace(method, **dict(task.point)), setting.problem, rounds, target=goal, **options)
        return {"name": repr(replace(method, **dict(task.point))), "values": np.asarray(history.value).tolist()}
    return contest.tuned(
        setting, f"{task.method} tuned", method, rounds, levels, task.seed, budget,
        trial=replayed(trials) if trials else run, **options,
    )  # fmt: skip


class Folder:
    """What is done: in the folder that is written, or in others."""

    def __init__(self, out: Path, have: list[Path]) -> None:
        self.out, self.all, self.known = out, [out, *have], dict[Task, Any]()
        out.mkdir(parents=True, exist_ok=True)

    def read(self, task: Task) -> Any:
        """What a task gave, or None."""
        for folder in self.all:
            if task not in self.known and (folder / task.file).exists():
                self.known[task] = json.loads((folder / task.file).read_text())["data"]
        return self.known.get(task)

    def write(self, task: Task, found: Any) -> None:
        """Whole or not at all."""
        self.known[task] = json.loads(json.dumps(found))
        with write_atomically(self.out / task.file) as file:
            file.write(json.dumps({"task": [task.experiment, task.seed, task.method], "data": found}).encode())


def wanted(seeds: int, experiments: list[str]) -> list[Task]:
    """Searches, what has never been run first."""
    every = [Task("search", e, s, m) for e in experiments for s in range(seeds) for m in contest.NEWER]
    recorded = {e: json.loads(Path(f"results/{e}/result.json").read_text())["result"]["arms"] for e in experiments}

    def there(task: Task) -> bool:
        arms = [arm for arm in recorded[task.experiment].values() if arm["seed"] == task.seed]
        return all(any(r["method"] == f"{task.method} tuned" for r in arm["rows"]) for arm in arms)

    missing = [task for task in every if not there(task)]
    return sorted(missing, key=lambda t: (t.seed >= 2, t.experiment == "fedopt", t.seed))


def ready(searches: list[Task], folder: Folder) -> Iterator[tuple[Task, float | None, dict[str, list[float]]]]:
    """Tasks whose needs are met, in order: optima, trials, searches."""
    for search in searches:
        if folder.read(search) is not None:
            continue
        first = Task("optimum", search.experiment, search.seed)
        known = folder.read(first)
        if known is None:
            yield first, None, {}
            continue
        best, trials, left = known["best"], dict[str, list[float]](), False
        if search.experiment == "fedopt" and search.method in APART:
            for point in known["grids"][search.method]:
                trial = replace(search, kind="trial", point=tuple((n, v) for n, v in point))
                done = folder.read(trial)
                if done is None:
                    left = True
                    yield trial, best, {}
                else:
                    trials[done["name"]] = done["values"]
        if not left:
            yield search, best, trials


def compute(given: argparse.Namespace) -> None:
    """Keep all processes busy with what is ready until nothing is left, or too little time."""
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")  # a core per task
    began, folder = time.monotonic(), Folder(given.out, given.have)
    searches = wanted(given.seeds, given.experiments)
    print(f"{len(searches)} searches missing", flush=True)
    busy: dict[Future[Any], Task] = {}
    with ProcessPoolExecutor(given.processes, get_context("spawn")) as pool:
        while True:
            left = given.seconds - (time.monotonic() - began)
            running = set(busy.values())
            for task, best, trials in ready(searches, folder):
                if len(busy) >= given.processes:
                    break
                if task not in running and min(task.seconds, given.longest) < left:
                    busy[pool.submit(work, task, best, trials)] = task
                    running.add(task)
            if not busy:
                break
            for future in wait(busy, return_when=FIRST_COMPLETED).done:
                task = busy.pop(future)
                folder.write(task, future.result())
                print(f"{time.monotonic() - began:6.0f} s  {task.kind} {task.experiment} {task.seed} {task.method} "
                      f"{dict(task.point)}", flush=True)  # fmt: skip
    missing = [t for t in searches if folder.read(t) is None]
    (given.out / "provenance.json").write_text(json.dumps(provenance(0)))
    print(f"{len(searches) - len(missing)} searches done, {len(missing)} left", flush=True)


def merge(folder: Path, results: Path) -> None:
    """Rows, series and prices of finished searches into the recorded experiments, which are then judged again."""
    for experiment in MODULES:
        path, added = results / experiment / "result.json", 0
        report = json.loads(path.read_text())
        for file in sorted(folder.glob(f"search-{experiment}-*.json")):
            kept = json.loads(file.read_text())
            (_, seed, _), data = kept["task"], kept["data"]
            name = data["row"]["method"]
            for arm in report["result"]["arms"].values():
                if arm["seed"] == seed and name not in arm["series"]:
                    arm["rows"].append(data["row"])
                    arm["series"][name] = data["series"]
                    arm["price"]["rows"].insert(-1, data["price"])
                    added += 1
        with write_atomically(path) as out:
            out.write(json.dumps(report, indent=1).encode())
        judge_again(experiment, results)
        print(f"{experiment}: {added} rows added")


def main() -> None:
    """Compute, or merge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gpu-data/linear-rivals"))
    parser.add_argument("--have", type=Path, nargs="*", default=[])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin nothing that would end later")
    parser.add_argument("--longest", type=float, default=1e9, help="most seconds that any task is expected to take")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--experiments", nargs="*", default=list(MODULES))
    parser.add_argument("--merge", type=Path)
    given = parser.parse_args()
    if given.merge is not None:
        merge(given.merge, Path("results"))
    else:
        compute(given)


if __name__ == "__main__":
    main()
