"""The demo's coordinator: Algorithm 1 and every baseline side by side."""

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from ownstep.engines.compare import baselines, slug
from ownstep.engines.federation.coordinator import Terms, race
from ownstep.methods import GD

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """All methods share each round's message; the tuned step and the pooled L come from whoever has all the data."""
    config = context.run_config
    methods = baselines() | {"GD tuned": GD(float(config["tuned"]))}
    terms = Terms(sites=int(config["sites"]))
    histories = race(methods, grid, int(config["rounds"]), terms, L_pooled=float(config["pooled"]))
    for name, history in histories.items():
        history.save(Path(str(config["out"])) / slug(name))
