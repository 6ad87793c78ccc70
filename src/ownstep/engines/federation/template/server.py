"""The coordinator: runs a method over the sites, or fits a model with standard errors, and keeps the result."""

from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from ownstep.cli.choose import choose_method, choose_missing, choose_participation
from ownstep.cli.learn.fit import fit_over_sites
from ownstep.engines.federation import SecurePlus, Terms, run
from ownstep.support.logs import RoundLog

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Everything that can be set stands in pyproject.toml under [tool.flwr.app.config]."""
    config: dict[str, Any] = dict(context.run_config)
    missing = choose_missing(str(config["missing"]))
    terms = Terms(
        sites=int(config["sites"]),
        deadline=float(config["deadline"]),
        joining=float(config["joining"]),
        missing=missing,
        participation=choose_participation(str(config["participation"]) or "1", missing, int(config["seed"])),
        secure=SecurePlus(clip=float(config["clip"])) if config["secure"] else None,
    )
    out = Path(str(config["out"])).expanduser()
    log = RoundLog(config["log_json"], config["metrics"])
    if config["task"] == "fit":
        fit_over_sites(grid, terms, config, out, log)
        return
    name = str(config["method"])
    own = ("switch", "step", "local_steps", "rank", "sketch")
    method = choose_method(name, {key: config[key] or None for key in own})
    history = run(method, grid, int(config["rounds"]), terms, folder=out / "checkpoints", name=name, log=log)
    history.save(out / "history")
    print(f"f = {history.value[-1]:.10g} after {history.rounds} rounds; stopped: {history.stopped}")
    for a in history.settings["absences"]:
        print(f"{a['site']} (weight {a['weight']:.3g}) was missing in rounds {a['first']} to {a['last']}: {a['why']}")
    print(f"history: {out / 'history.npz'}")
