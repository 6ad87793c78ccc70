"""Minutes, not only rounds: GD, L-BFGS, own curvature and Newton on four sites of a real federation, to one accuracy.

    python benchmarks/federation_minutes.py             # writes results/benchmarks/federation-minutes.json
    python benchmarks/federation_minutes.py --counted   # no federation: exchanges of the local engine, times
                                                        # the seconds per round in results/benchmarks/federation.json

A case that the file already has is not run again.

A SuperLink and four SuperNodes on this machine, TLS and node keys: w8a split by norm over four sites, and heart disease
with its four hospitals (columns scaled). A method's minutes are its history's: from sending an exchange's messages to
the next, without joining. GD needs thousands of rounds: a few are run, and the others are counted by the local engine,
whose iterates are the same, and take what those few took in the middle.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ownstep import History, load, logistic_regression, optimum, partition
from ownstep.engines import describe, run
from ownstep.engines.federation.app import init
from ownstep.engines.federation.loopback import Loopback
from ownstep.methods import METHODS, method_of, parse_switch
from ownstep.problems import LinearModel
from ownstep.support.errors import OwnstepError

GAP, SITES, FEW, MOST = 1e-6, 4, 6, 20_000
METHODS_RUN = ("lbfgs", "own_curvature", "newton", "gd:true")
CASES = {"heart disease, four hospitals": ("heart_disease", 1e-3), "w8a, mu = 1e-4, four sites by norm": ("w8a", 1e-4)}

SITE = """
import numpy as np
import scipy.sparse as sp
from ownstep.engines.federation.site import Site
from ownstep.problems import BinaryLogistic

def open_site(context):
    with np.load(context.node_config["data"], allow_pickle=False) as file:
        data = dict(file)
    rows = sp.csr_array((data["values"], data["columns"], data["starts"]), shape=tuple(data["shape"]))
    rows = rows if data["sparse"] else rows.toarray()
    problem = BinaryLogistic(rows, data["labels"], mu=float(data["mu"]), classes=data["classes"])
    return Site(context.node_config["name"], problem)
"""

SERVER = """
from flwr.serverapp import ServerApp
from ownstep.engines.federation import Terms, run
from ownstep.methods import METHODS, method_of, parse_switch

app = ServerApp()

@app.main()
def main(grid, context):
    config = context.run_config
    method = method_of(config["key"], METHODS, parse_switch)
    history = run(
        method, grid, int(config["rounds"]), Terms(sites=4, deadline=300.0), L_pooled=float(config["pooled"]),
        target=float(config["target"]),
    )
    history.save(config["out"])
"""


def problem_of(name: str, mu: float) -> LinearModel:
    """The named case on four sites."""
    data = load(name)
    rows, labels = data.table()
    if data.sites is not None:
        rows = (rows - rows.mean(axis=0)) / np.maximum(rows.std(axis=0), 1e-12)
        return logistic_regression(rows, labels, partition.given(data.sites), mu=mu)
    return logistic_regression(rows, labels, partition.by_norm(rows, devices=SITES), mu=mu)


def federated(problem: LinearModel, goal: float, pooled: float, rounds: dict[str, int]) -> dict[str, History]:
    """The methods one after the other in one federation."""
    names = [f"site-{i + 1}" for i in range(SITES)]
    with tempfile.TemporaryDirectory() as place:
        folder, found = Path(place), dict[str, History]()
        for i, name in enumerate(names):
            rows, labels = problem.samples(i)  # type: ignore[attr-defined]
            A = sp.csr_array(rows)
            np.savez(
                folder / f"{name}.npz", values=A.data, columns=A.indices, starts=A.indptr, shape=A.shape, mu=problem.mu,
                sparse=sp.issparse(rows), labels=labels, classes=(-1, 1),
            )  # fmt: skip
        (folder / "site.py").write_text(SITE)
        init(folder / "minutes", sites=SITES)
        (folder / "minutes" / "minutes" / "server.py").write_text(SERVER)
        with (folder / "minutes" / "pyproject.toml").open("a") as config:
            config.write('key = ""\npooled = 0.0\ntarget = 0.0\n')
        with Loopback(folder) as net:
            net.register(*names)
            for name in names:
                net.start_site(name, f'site-file="{folder}/site.py" name="{name}" data="{folder}/{name}.npz"')
            for key, most in rounds.items():
                out = folder / key.replace(":", "-")
                told = f'key="{key}" rounds={most} out="{out}" pooled={pooled!r} target={goal!r}'
                log = net.run(folder / "minutes", told, timeout=1800)
                try:
                    found[key] = History.load(out)
                except OwnstepError as error:
                    raise SystemExit(f"{key} failed:\n{log[-3000:]}") from error
    return found


def local(case: str) -> tuple[LinearModel, float, float, dict[str, History]]:
    """(Problem, goal, L of the pooled loss, every method's run here): the iterates are those of a federation."""
    problem = problem_of(*CASES[case])
    devices = describe(problem).devices
    best, start = optimum(problem).value, problem.value(problem.x0())
    goal, here = best + GAP * (start - best), dict[str, History]()
    for key in METHODS_RUN:
        method = method_of(key, METHODS, parse_switch)
        here[key] = run(method, problem, MOST, devices=devices, target=goal, progress=False)
    assert devices.L_pooled is not None
    return problem, goal, devices.L_pooled, here


def counted(case: str) -> dict[str, Any]:
    """One case without a federation: exchanges counted here, as long as the rounds of ``benchmarks/federation.py``."""
    known = json.loads(Path("results/benchmarks/federation.json").read_text())
    _, goal, _, here = local(case)
    each, rows = float(np.median(known["seconds"]["ours"])), []
    for key, history in here.items():
        rows.append({
            "method": key, "exchanges": history.rounds, "run": 0, "arrived_here": bool(history.value[-1] <= goal),
            "seconds_per_exchange": each, "minutes": each * history.rounds / 60, "extrapolated": True,
        })  # fmt: skip
    return {"case": case, "gap": GAP, "load": known["about"]["load"], "measured": False, "rows": rows}


def measure(case: str) -> dict[str, Any]:
    """One case: exchanges, seconds per exchange and minutes of every method."""
    problem, goal, pooled, here = local(case)
    rounds = {key: FEW if key.startswith("gd") else h.rounds + 5 for key, h in here.items()}
    there, rows = federated(problem, goal, pooled, rounds), []
    for key, history in there.items():
        each = history.columns["seconds"][: history.rounds]
        arrived, exchanges = bool(history.value[-1] <= goal), here[key].rounds
        same = min(history.rounds, exchanges)
        apart = float(np.abs(history.value[:same] - here[key].value[:same]).max())
        seconds = float(each.sum()) if arrived else float(np.median(each)) * exchanges
        rows.append({
            "method": key, "exchanges": history.rounds if arrived else exchanges, "run": history.rounds,
            "arrived_here": bool(here[key].value[-1] <= goal), "seconds_per_exchange": float(np.median(each)),
            "minutes": seconds / 60, "extrapolated": not arrived, "largest_difference_of_f": apart,
        })  # fmt: skip
    return {"case": case, "gap": GAP, "load": os.getloadavg()[0], "measured": True, "rows": rows}


def main(out: Path, only_counted: bool = False) -> None:
    """Both cases."""
    found = json.loads(out.read_text()) if out.exists() else []
    out.parent.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        if case not in [one["case"] for one in found]:
            found.append(counted(case) if only_counted else measure(case))
            out.write_text(json.dumps(found, indent=1) + "\n")
        one = next(one for one in found if one["case"] == case)
        print(f"{case}, to a relative gap of {GAP:g} (load of the machine: {one['load']:.1f})")
        for r in one["rows"]:
            how = f" ({r['run']} run, the rest counted)" if r["extrapolated"] else ""
            print(f"  {r['method']:<16}{r['exchanges']:>6} exchanges, {r['seconds_per_exchange']:.2f} s each, "
                  f"{r['minutes']:.1f} minutes{how}", flush=True)  # fmt: skip


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    main(Path(words[0] if words else "results/benchmarks/federation-minutes.json"), "--counted" in sys.argv)
