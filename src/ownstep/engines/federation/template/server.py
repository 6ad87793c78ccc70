"""The coordinator: runs one ownstep method over the sites, and keeps its history."""

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from ownstep.cli.choose import choose_method, choose_missing
from ownstep.engines.federation import SecurePlus, Terms, run

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Everything that can be set stands in pyproject.toml under [tool.flwr.app.config]."""
    config = context.run_config
    name = str(config["method"])
    method = choose_method(name, {key: config[key] or None for key in ("switch", "step", "local_steps")})
    terms = Terms(
        sites=int(config["sites"]),
        deadline=float(config["deadline"]),
        joining=float(config["joining"]),
        missing=choose_missing(str(config["missing"])),
        secure=SecurePlus(clip=float(config["clip"])) if config["secure"] else None,
    )
    out = Path(str(config["out"])).expanduser()
    history = run(method, grid, int(config["rounds"]), terms, folder=out / "checkpoints", name=name)
    history.save(out / "history")
    print(f"f = {history.value[-1]:.10g} after {history.rounds} rounds; stopped: {history.stopped}")
    for a in history.settings["absences"]:
        print(f"{a['site']} (weight {a['weight']:.3g}) was missing in rounds {a['first']} to {a['last']}: {a['why']}")
    print(f"history: {out / 'history.npz'}")
