"""``ownstep plan``: is a split worth it, before anything is run?"""

from __future__ import annotations

import typer

from ownstep.cli.common import (
    Alpha,
    Count,
    Data,
    Json,
    Measure,
    Mu,
    Rows,
    Seed,
    Split,
    build,
    console,
    emit,
    show_plan,
)
from ownstep.engines import describe


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(plan)


def plan(
    data: Data,
    partition: Split = "by_norm",
    devices: Count = None,
    mu: Mu = 1e-3,
    smoothness: Measure = "exact",
    alpha: Alpha = 0.1,
    rows: Rows = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Measure each device's smoothness and print its step, the predicted gain and a verdict.

    Example: ownstep plan w8a --partition by_norm --devices 2 --json
    """
    problem, split = build(data, partition, devices, mu, seed, alpha, rows)
    made = describe(problem, smoothness)
    if as_json:
        setting = {"data": data, "partition": split.rule, "note": split.note, "mu": mu, "seed": seed}
        emit(setting | {"samples": split.counts.tolist()} | made.to_dict())
        return
    terminal = console()
    show_plan(made, split.counts.tolist(), terminal)
    if split.note:
        terminal.print(f"note: {split.note}")
