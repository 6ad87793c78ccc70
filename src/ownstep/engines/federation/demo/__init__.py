"""The demo's race on a real federation of this machine: a SuperLink and one SuperNode a device."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np

from ownstep.engines import Comparison, compare
from ownstep.engines.compare import slug
from ownstep.engines.federation.app import init
from ownstep.engines.federation.loopback import Loopback
from ownstep.history import History
from ownstep.problems import BinaryLogistic, LinearModel
from ownstep.support.errors import InvalidInput, OwnstepError

ROUNDS, TOLERANCES = 6, (0.9, 0.2, 0.15)
"""A round takes seconds on Flower, so the demo runs a few, and counts to gaps that are reached in them."""


def race(problem: LinearModel, *, rounds: int = ROUNDS, seed: int = 0) -> Comparison:
    """Every baseline over TLS with node keys, at most :data:`ROUNDS` rounds; checked against the local engine."""
    if not isinstance(problem, BinaryLogistic):
        raise InvalidInput(f"the federation's demo is for two classes, got a {type(problem).__name__}")
    few = min(rounds, ROUNDS)
    here = compare(problem, rounds=few, tolerances=TOLERANCES, full=True, seed=seed)
    with tempfile.TemporaryDirectory(prefix="ownstep-federation-") as folder:
        histories = _run(Path(folder), problem, here, few)
    worst = max(float(abs(histories[n].x - h.x).max()) for n, h in here.histories.items())
    _say(f"largest difference between these iterates and the local engine's: {worst:.2g}")
    return Comparison(histories, here.plan, here.optimum, TOLERANCES)


def _run(folder: Path, problem: BinaryLogistic, here: Comparison, rounds: int) -> dict[str, History]:
    names, app = problem.names, folder / "demo"
    init(app, sites=len(names))
    for file in ("server.py", "site.py"):
        text = (files(__package__) / "app" / file).read_text("utf-8")
        (app / "demo" / file).write_text(text, "utf-8")
    with (app / "pyproject.toml").open("a") as config:
        config.write("tuned = 0.0\npooled = 0.0\n")
    for i, name in enumerate(names):
        rows, labels = problem.samples(i)
        np.savez(folder / f"{name}.npz", rows=rows, labels=labels, mu=problem.mu)
    _say(f"starting a SuperLink and {len(names)} SuperNodes with TLS and node keys on this machine")
    with Loopback(folder) as net:
        net.register(*names)
        for name in names:
            net.start_site(name, f'name="{name}" data="{folder / name}.npz"')
        _say(f"{rounds} rounds of {len(here.histories)} methods; Flower takes seconds for each")
        tuned = here.histories["GD tuned"]
        out, pooled = folder / "out", here.plan.devices.L_pooled
        log = net.run(
            app, f'rounds={rounds} out="{out}" tuned={float(tuned.columns["step"][0])!r} pooled={pooled!r}', timeout=600
        )
        try:
            histories = {name: History.load(out / slug(name)) for name in here.histories}
        except OwnstepError as error:
            raise OwnstepError(f"the federation's run failed:\n{log[-3000:]}") from error
    settings = dict(histories["GD tuned"].settings) | {"tuning": tuned.settings["tuning"]}
    return histories | {"GD tuned": replace(histories["GD tuned"], settings=settings)}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
