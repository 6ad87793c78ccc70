"""``ownstep run`` and ``ownstep compare``: one method, or all of them, on a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ownstep import plots
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
    show_comparison,
    show_plan,
)  # fmt: skip
from ownstep.engines import Bernoulli, Comparison, compare, describe, run
from ownstep.engines.participation import Missing
from ownstep.errors import InvalidInput, unknown_name
from ownstep.methods import METHODS, parse_switch
from ownstep.problems import optimum

Rounds = Annotated[int, typer.Option(help="How many rounds at most.")]
Participation = Annotated[float, typer.Option(help="Probability that a device takes part in a round.")]
OnMissing = Annotated[str, typer.Option(help="Share of absent devices: rescale or drop.")]
Out = Annotated[Path | None, typer.Option(help="Folder for histories and a figure.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("run")(run_)
    app.command("compare")(compare_)


def _participation(p: float, missing: str, seed: int) -> Bernoulli | None:
    kept: Missing = "drop" if missing == "drop" else "rescale"
    if missing != kept:
        raise unknown_name("rule for missing shares", missing, ["rescale", "drop"])
    return None if p == 1 else Bernoulli(p, kept, seed)


def _method(name: str, step: str | None, switch: str | None, weights: str) -> Any:
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    if name == "own_step":
        if step is not None:
            raise InvalidInput(f"own_step takes its steps from the devices, --step {step} does not apply")
        return METHODS[name](switch=parse_switch(switch or "plateau"), weights=weights)
    if switch is not None:
        raise InvalidInput(f"--switch {switch} applies to own_step only, not to {name}")
    if step is None:
        return METHODS[name]()
    try:
        return METHODS[name](step=float(step))
    except ValueError as error:
        if isinstance(error, InvalidInput):
            raise
        return METHODS[name](step=step)


def run_(
    data: Data,
    method: Annotated[str, typer.Option(help=f"One of: {', '.join(METHODS)}.")] = "own_step",
    partition: Split = "by_norm",
    devices: Count = None,
    rounds: Rounds = 1000,
    step: Annotated[
        str | None, typer.Option(help="For gd and the like: mean, true, matched, tuned or a number.")
    ] = None,
    switch: Annotated[str | None, typer.Option(help="For own_step: plateau, never, at:ROUND or norm:EPS.")] = None,
    weights: Annotated[str, typer.Option(help="For own_step: samples, or uniform as the paper prints it.")] = "samples",
    mu: Mu = 1e-3,
    smoothness: Measure = "exact",
    alpha: Alpha = 0.1,
    rows: Rows = None,
    participation: Participation = 1.0,
    missing: OnMissing = "rescale",
    checkpoint: Annotated[Path | None, typer.Option(help="File to resume from and to write every few seconds.")] = None,
    out: Out = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Run one method and say how far it got.

    Example: ownstep run breast_cancer --method own_step --partition by_norm --devices 2 --rounds 500
    """
    chosen = _method(method, step, switch, weights)
    present = _participation(participation, missing, seed)
    problem, _ = build(data, partition, devices, mu, seed, alpha, rows)
    made = describe(problem, smoothness)
    history = run(
        chosen, problem, rounds, devices=made.devices, participation=present, checkpoint=checkpoint, name=method,
        seed=seed,
    )  # fmt: skip
    best = optimum(problem).value
    comparison = Comparison({method: history}, made, best)
    if out is not None:
        history.save(out / method)
        figure, axes = plots.new_figure(1, width=6)
        plots.convergence(axes[0, 0], comparison, f"{method} on {data}")
        plots.save(figure, out / f"{method}.png")
    if as_json:
        emit(history.to_dict(series=False) | {"optimum": best, "rows": comparison.rows()})
    else:
        show_comparison(comparison, console())
        typer.echo(f"f = {history.value[-1]:.10g}, f* = {best:.10g}; stopped: {history.stopped}")
    if history.stopped.startswith("interrupted"):
        raise KeyboardInterrupt


def compare_(
    data: Data,
    partition: Split = "by_norm",
    devices: Count = None,
    rounds: Rounds = 5000,
    mu: Mu = 1e-3,
    smoothness: Measure = "exact",
    alpha: Alpha = 0.1,
    rows: Rows = None,
    participation: Participation = 1.0,
    missing: OnMissing = "rescale",
    out: Out = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Race Algorithm 1 against GD at 1/L-bar, 1/L, the matched and the tuned step, and Nesterov.

    Example: ownstep compare w8a --partition by_norm --devices 2 --out w8a-by-norm
    """
    present = _participation(participation, missing, seed)
    problem, split = build(data, partition, devices, mu, seed, alpha, rows)
    comparison = compare(
        problem, rounds=rounds, smoothness=smoothness, participation=present, seed=seed,
        checkpoint=None if out is None else out / "checkpoints",
    )  # fmt: skip
    title = f"{data}, {split.rule}"
    if out is not None:
        comparison.save(out)
        plots.save(plots.demo({title: comparison}), out / "comparison.png")
    if as_json:
        emit({"data": data, "partition": split.rule, "mu": mu, "seed": seed} | comparison.to_dict())
        return
    terminal = console()
    show_plan(comparison.plan, split.counts.tolist(), terminal)
    terminal.print()
    show_comparison(comparison, terminal)
