"""``ownstep paper``: the paper's experiments by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ownstep.cli.common import Json, Seed, console, emit
from ownstep.paper import EXPERIMENTS, conduct, load_experiment


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(paper)


def paper(
    name: Annotated[str, typer.Argument(help="Experiment, or list.")],
    quick: Annotated[bool, typer.Option(help="A small version that takes seconds.")] = False,
    out: Annotated[Path, typer.Option(help="Folder above the experiment's own.")] = Path("results"),
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Rerun an experiment of the paper: data as json, the figure, and a computed verdict.

    Example: ownstep paper w8a --quick
    """
    if name == "list":
        claims = {n: load_experiment(n).CLAIM for n in EXPERIMENTS}
        if as_json:
            emit(claims)
            return
        table = Table("experiment", "claim", box=None, header_style="bold")
        for n, claim in claims.items():
            table.add_row(n, claim)
        console().print(table)
        return
    report = conduct(name, out, quick=quick, seed=seed)
    if as_json:
        emit(report)
        return
    typer.echo(f"claim:   {report['claim']}")
    typer.echo(f"verdict: {report['verdict']['verdict']} ({report['verdict']['rule']})")
    for line in report["verdict"]["findings"]:
        typer.echo(f"  - {line}")
    typer.echo(f"written: {', '.join(report['files'])}")
