"""The newer rivals of the paper's `fedopt` and `gossip` experiments on linear models, on many cores.

    OWNSTEP_DATA=.data python benchmarks/linear_rivals.py --out OUT --processes 16 --seconds 570
    python benchmarks/linear_rivals.py --merge OUT/searches.json          # into results/, judged again

A search of a method that never reaches the tightest gap cannot be cut short: 30 settings of 1,000 rounds with five
local steps are 150,000 passes over the data, a quarter of an hour on one core. Its trials do not depend on each other,
so each is a task of its own here. The search then replays them one after the other, by the rule of
`ownstep.engines.tune`, and finds what it finds alone. All that is done is in OUT/searches.json, which is written anew
after each task; a second call (on another machine: with --have FILE) does the rest. It needs MNIST, NumPy and SciPy.

With --device cuda (or cpu, with torch) all trials of a search run at once and share each pass over the data: see
side_by_side.py. A search then takes a minute or two in place of a quarter of an hour.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import astuple, dataclass, replace
from functools import cache, partial
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
LONG = {"Scaffnew": 9, "FedDyn": 4, "FedProx": 3, "FedSPS": 3, "FedExP": 2}
"""Methods with large search spaces, or many local steps; the longest search begins first."""
MINUTES = {"optimum": 1.5, "trial": 1.2, "fedopt": 7.0, "gossip": 4.0, "together": 2.5}
"""No task begins that would take longer than what is left: guesses, on the safe side."""


@dataclass(frozen=True)
class Task:
    """One thing to compute: f(x*) of an experiment and seed, a trial of a search, or a search with the run after it."""

    kind: str
    experiment: str
    seed: int
    method: str = ""
    point: tuple[tuple[str, float], ...] = ()

    @property
    def apart(self) -> bool:
        """Do its search's trials run as tasks of their own?"""
        return self.experiment == "fedopt" and self.method in APART

    @property
    def seconds(self) -> float:
        """How long it takes at most; a search whose trials are done is one run."""
        kind = "trial" if self.apart else self.experiment if self.kind == "search" else self.kind
        return 60 * MINUTES[kind]


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


class Done:
    """What the tasks gave, in one file that is written anew after each."""

    def __init__(self, file: Path, have: Sequence[Path] = ()) -> None:
        self.file, self.known = file, dict[Task, Any]()
        for path in (*have, file):
            for kept in json.loads(path.read_text())["tasks"] if path.exists() else []:
                kind, experiment, seed, method, point = kept["task"]
                self.known[Task(kind, experiment, seed, method, tuple((n, v) for n, v in point))] = kept["data"]

    def write(self, task: Task, found: Any) -> None:
        """Whole or not at all."""
        self.known[task] = json.loads(json.dumps(found))
        tasks = [{"task": astuple(t), "data": data} for t, data in self.known.items()]
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(self.file) as out:
            out.write(json.dumps({"provenance": provenance(0), "tasks": tasks}).encode())


def wanted(seeds: int, experiments: list[str], results: Path) -> list[Task]:
    """Searches, what has never been run first."""
    every = [Task("search", e, s, m) for e in experiments for s in range(seeds) for m in contest.NEWER]
    recorded = {e: json.loads((results / e / "result.json").read_text())["result"]["arms"] for e in experiments}

    def there(task: Task) -> bool:
        arms = [arm for arm in recorded[task.experiment].values() if arm["seed"] == task.seed]
        return all(any(r["method"] == f"{task.method} tuned" for r in arm["rows"]) for arm in arms)

    missing = [task for task in every if not there(task)]
    return sorted(missing, key=lambda t: (t.seed >= contest.NEWER_SEEDS, t.experiment == "fedopt", t.seed))


def together(task: Task, best: float, device: str) -> Any:
    """A whole search, its trials side by side, and the run after it."""
    from side_by_side import side_by_side

    rounds, levels, budget = MODULES[task.experiment].RACE
    setting = setting_of(task.experiment, task.seed, best)
    method: Any = contest.newer()[task.method]
    options: dict[str, Any] = {"devices": setting.plan.devices, "progress": False}
    goal = contest.goal_of(setting, levels)
    candidates = [replace(method, **dict(point)) for point in grid(task, best)]

    def trial(candidate: Any, problem: Any) -> list[float]:
        return list(map(float, run(candidate, problem, rounds, target=goal, **options).value))

    def last(problem: Any) -> Any:
        return contest.tuned(
            replace(setting, problem=problem), f"{task.method} tuned", method, rounds, levels, task.seed, budget,
            trial=replayed(dict(zip(map(repr, candidates), values, strict=True))), **options,
        )  # fmt: skip

    values = side_by_side(setting.problem, [partial(trial, candidate) for candidate in candidates], device)
    (found,) = side_by_side(setting.problem, [last], device)
    return found


def compute_together(given: argparse.Namespace) -> None:
    """Searches whose trials share each pass, several at a time, the longest first."""
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    began, done = time.monotonic(), Done(given.out / "searches.json", given.have)
    searches = [t for t in wanted(given.seeds, given.experiments, given.results) if done.known.get(t) is None]
    searches.sort(key=lambda t: -LONG.get(t.method, 0) - 3 * (t.experiment == "fedopt"))
    print(f"{len(searches)} searches missing", flush=True)
    with ProcessPoolExecutor(given.processes, get_context("spawn")) as pool:
        optima = {Task("optimum", t.experiment, t.seed) for t in searches}
        for task, future in [(t, pool.submit(work, t, None, {})) for t in optima if t not in done.known]:
            done.write(task, future.result())
        busy: dict[Future[Any], Task] = {}
        while searches or busy:
            late = time.monotonic() - began + 60 * MINUTES["together"] > given.seconds
            while searches and len(busy) < given.processes and not late:
                task = searches.pop(0)
                best = done.known[Task("optimum", task.experiment, task.seed)]["best"]
                busy[pool.submit(together, task, best, given.device)] = task
            if not busy:
                break
            for future in wait(busy, return_when=FIRST_COMPLETED).done:
                task, wrong = busy.pop(future), future.exception()
                if wrong is None:
                    done.write(task, future.result())
                print(f"{time.monotonic() - began:6.0f} s  {task.experiment} {task.seed} {task.method}"
                      f"{'' if wrong is None else f' failed: {wrong!r}'}", flush=True)  # fmt: skip
    print(f"{len(searches)} searches not begun", flush=True)


def ready(searches: list[Task], done: Done) -> Iterator[tuple[Task, float | None, dict[str, list[float]]]]:
    """Tasks whose needs are met, in order: optima, trials, searches."""
    for search in searches:
        if done.known.get(search) is not None:
            continue
        first = Task("optimum", search.experiment, search.seed)
        known = done.known.get(first)
        if known is None:
            yield first, None, {}
            continue
        best, trials, left = known["best"], dict[str, list[float]](), False
        if search.apart:
            for point in known["grids"][search.method]:
                trial = replace(search, kind="trial", point=tuple((n, v) for n, v in point))
                ran = done.known.get(trial)
                if ran is None:
                    left = True
                    yield trial, best, {}
                else:
                    trials[ran["name"]] = ran["values"]
        if not left:
            yield search, best, trials


def compute(given: argparse.Namespace) -> None:
    """Keep all processes busy with what is ready until nothing is left, or too little time."""
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")  # a core per task
    began, done = time.monotonic(), Done(given.out / "searches.json", given.have)
    searches = wanted(given.seeds, given.experiments, given.results)
    print(f"{len(searches)} searches missing", flush=True)
    busy: dict[Future[Any], Task] = {}
    with ProcessPoolExecutor(given.processes, get_context("spawn")) as pool:
        while True:
            left = given.seconds - (time.monotonic() - began)
            running = set(busy.values())
            for task, best, trials in ready(searches, done):
                if len(busy) >= given.processes:
                    break
                if task not in running and min(task.seconds, given.longest) < left:
                    busy[pool.submit(work, task, best, trials)] = task
                    running.add(task)
            if not busy:
                break
            for future in wait(busy, return_when=FIRST_COMPLETED).done:
                task = busy.pop(future)
                done.write(task, future.result())
                print(f"{time.monotonic() - began:6.0f} s  {task.kind} {task.experiment} {task.seed} {task.method} "
                      f"{dict(task.point)}", flush=True)  # fmt: skip
    missing = [t for t in searches if done.known.get(t) is None]
    print(f"{len(searches) - len(missing)} searches done, {len(missing)} left", flush=True)


def merge(file: Path, results: Path) -> None:
    """Rows, series and prices of finished searches into the recorded experiments, which are then judged again."""
    finished = {task: data for task, data in Done(file).known.items() if task.kind == "search"}
    for experiment in sorted({task.experiment for task in finished}):
        path, added = results / experiment / "result.json", 0
        report = json.loads(path.read_text())
        for task, data in finished.items():
            name = data["row"]["method"]
            for arm in report["result"]["arms"].values():
                if task.experiment == experiment and arm["seed"] == task.seed and name not in arm["series"]:
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
    parser.add_argument("--have", type=Path, nargs="*", default=[], metavar="FILE")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin nothing that would end later")
    parser.add_argument("--longest", type=float, default=1e9, help="most seconds that any task is expected to take")
    parser.add_argument("--seeds", type=int, default=contest.NEWER_SEEDS)
    parser.add_argument("--experiments", nargs="*", default=list(MODULES))
    parser.add_argument("--device", help="of torch: all trials of a search share each pass over the data")
    parser.add_argument("--merge", type=Path, metavar="FILE")
    parser.add_argument("--results", type=Path, default=Path("results"))
    given = parser.parse_args()
    if given.merge is not None:
        merge(given.merge, given.results)
    elif given.device is not None:
        compute_together(given)
    else:
        compute(given)


if __name__ == "__main__":
    main()
