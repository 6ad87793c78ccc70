"""``ownstep run`` and ``ownstep compare``: one method, or all of them, on a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ownstep import plots
from ownstep.cli.choose import (
    bring_to,
    checked_engine,
    choose_limits,
    choose_method,
    choose_methods,
    choose_participation,
)
from ownstep.cli.options import Data, Json, LogOptions, Measure, TableOptions
from ownstep.cli.terminal import console, emit, show_comparison, show_plan, uneven_scales
from ownstep.data import names
from ownstep.engines import Comparison, Limits, Participation, compare, describe
from ownstep.engines import tune as search
from ownstep.engines.cluster import torchrun
from ownstep.history import History
from ownstep.methods import METHODS
from ownstep.plan import Plan
from ownstep.problems import LinearModel, optimum
from ownstep.support.errors import InvalidInput, OwnstepError

ROUNDS_HELP, MU_HELP = "How many rounds at most.", "Weight of the L2 term mu/2 ||x||^2."
Methods = Annotated[
    str | None,
    typer.Option(
        help="Which methods, with commas: keys such as own_step, gd:tuned, fedavg:client_step=mean,local_steps=5, and "
        "the groups baselines, beyond and rivals; baselines,beyond by default. The others are compared with the first."
    ),
]
TuneAll = Annotated[
    int | None, typer.Option(help="Search so many settings of every method first, the same number for all.")
]
Reruns = Annotated[
    int, typer.Option(help="Run everything with so many other seeds too: smaller differences are called none.")
]
Out = Annotated[Path | None, typer.Option(help="Folder for histories and a figure.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("run", short_help="Run one method on split data.")(run_)
    app.command("compare", short_help="Compare methods fairly on split data.")(compare_)


@dataclass(frozen=True)
class RunOptions(TableOptions):
    """A problem, who takes part in its rounds, and what a run may spend."""

    missing: Annotated[
        str | None,
        typer.Option(
            help="For files: drop rows with missing values, or fill in the column's mean. For datasets by name: as "
            "--absent."
        ),
    ] = None
    participation: Annotated[
        str,
        typer.Option(
            help="Probability that a device takes part in a round, or cohort:SIZE, bursts:FAIL:RECOVER, "
            "stragglers:TYPICAL:DEADLINE, dies:DEVICE:ROUND, returns:DEVICE:ROUND:ROUND."
        ),
    ] = "1"
    absent: Annotated[
        str | None,
        typer.Option(help="Share of absent devices: rescale (the default), drop or last (known gradient)."),
    ] = None
    budget: Annotated[
        str | None, typer.Option(help="Stop when this is spent: bytes:50MB (all devices, both ways) or seconds:600.")
    ] = None
    wire: Annotated[
        str | None,
        typer.Option(
            help="Count the seconds of --budget over this network: home, wan, datacentre or LATENCY_S:BYTES_PER_S, "
            "with 10 ms for a gradient; without it, on this machine's clock."
        ),
    ] = None
    patience: Annotated[int | None, typer.Option(help="Stop after so many rounds without a better f.")] = None
    engine: Annotated[
        str | None, typer.Option(help="local, or cluster: one process per rank, the default under torchrun.")
    ] = None
    deadline: Annotated[
        float | None, typer.Option(help="For the cluster: seconds until a rank that does not answer is an error.")
    ] = None

    def present(self, data: str) -> Participation | None:
        """Who takes part, and what is done about the share of the others."""
        older = self.missing if self._means_absent(data) else None
        if older is not None and self.absent not in (None, older):
            raise InvalidInput(f"--absent {self.absent} and --missing {older}: give one of them")
        return choose_participation(self.participation, older or self.absent or "rescale", self.seed)

    def where(self, command: str) -> str:
        """The engine, checked; ``command`` is what torchrun would have to start."""
        return checked_engine(self.engine, self.deadline, f"{command} breast_cancer --devices 2 --rounds 500")

    def limits(self) -> Limits | None:
        """What may be spent."""
        return choose_limits(self.budget, self.wire, self.patience)

    def _rule(self, data: str) -> str | None:
        return None if self._means_absent(data) else self.missing

    def _means_absent(self, data: str) -> bool:
        """Datasets by name have no missing values: with them ``--missing`` keeps its older meaning, ``--absent``."""
        return self.missing is not None and (data in names() or self.missing in ("rescale", "last"))


def run_(
    data: Data,
    *,
    settings: RunOptions,
    method: Annotated[str, typer.Option(help=f"One of: {', '.join(METHODS)}.")] = "own_step",
    rounds: Annotated[int, typer.Option(help=ROUNDS_HELP)] = 1000,
    step: Annotated[
        str | None, typer.Option(help="For gd and the like: mean, true, matched, tuned or a number.")
    ] = None,
    switch: Annotated[
        str | None, typer.Option(help="For own_step: plateau, never, at:ROUND, norm:EPS or shrunk:SHARE.")
    ] = None,
    momentum: Annotated[
        str | None, typer.Option(help="For own_step: nesterov or item; for nesterov and heavy_ball: a number.")
    ] = None,
    secant: Annotated[str | None, typer.Option(help="For barzilai_borwein: short, long or mean.")] = None,
    horizon: Annotated[int | None, typer.Option(help="For ogm: the round it is optimal at.")] = None,
    rank: Annotated[
        int | None,
        typer.Option(help="For own_curvature: eigenpairs a device sends, at most half as many as it has rows."),
    ] = None,
    sketch: Annotated[
        str | None,
        typer.Option(help="For own_curvature: own (eigenpairs), or sum (of products with one shared matrix)."),
    ] = None,
    revealing: Annotated[
        bool,
        typer.Option("--revealing", help="For own_curvature: allow a rank that shows the span of a device's rows."),
    ] = False,
    memory: Annotated[int | None, typer.Option(help="For lbfgs and own_curvature: pairs kept.")] = None,
    weights: Annotated[
        str | None, typer.Option(help="For own_step and server-free methods: samples, or uniform as in the paper.")
    ] = None,
    graph: Annotated[
        str | None, typer.Option(help="For server-free methods: ring, complete, star, path or grid.")
    ] = None,
    order: Annotated[str | None, typer.Option(help="For decentralised_gd and gradient_tracking: cta or atc.")] = None,
    client_step: Annotated[
        str | None, typer.Option(help="For federated methods: a number, or a name as in --step.")
    ] = None,
    server_step: Annotated[float | None, typer.Option(help="For federated methods: the server's step.")] = None,
    local_steps: Annotated[
        int | None, typer.Option(help="For federated methods: steps a device takes per round.")
    ] = None,
    tune: Annotated[
        int | None, typer.Option(help="For server-free and federated methods: search so many settings first.")
    ] = None,
    mu: Annotated[float, typer.Option(help=MU_HELP)] = 1e-3,
    smoothness: Annotated[
        str, typer.Option(help="How L_i is measured: auto, exact or trace; adaptive: by the devices, on the way.")
    ] = "auto",
    checkpoint: Annotated[Path | None, typer.Option(help="File to resume from and to write every few seconds.")] = None,
    logs: LogOptions,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Run one method and say how far it got.

    Example: ownstep run breast_cancer --method own_step --partition by_norm --devices 2 --rounds 500

    On a cluster: torchrun --nproc-per-node 2 -m ownstep run breast_cancer --devices 2 --rounds 500
    """
    engine = settings.where("run")
    options = {
        "step": step, "switch": switch, "weights": weights, "graph": graph, "order": order, "client_step": client_step,
        "server_step": server_step, "local_steps": local_steps, "momentum": momentum, "secant": secant,
        "horizon": horizon, "rank": rank, "sketch": sketch, "revealing": revealing or None, "memory": memory,
        "smoothness": smoothness if smoothness == "adaptive" else None,
    }  # fmt: skip
    chosen: Any = choose_method(method, options)
    present, seed = settings.present(data), settings.seed
    problem, drive = bring_to(engine, settings.build(data, mu)[0], settings.deadline)
    made = describe(problem, "adaptive" if getattr(chosen, "constant_free", False) else smoothness)
    found = None
    if tune is not None:
        found = search(
            chosen, problem, rounds, budget=tune, devices=made.devices, participation=present, seed=seed, engine=drive
        )
        chosen = found.method
    history = drive(
        chosen, problem, rounds, devices=made.devices, participation=present, checkpoint=checkpoint, name=method,
        seed=seed, limits=settings.limits(), log=logs.opened(),
    )  # fmt: skip
    best = optimum(problem).value if mu > 0 else -np.inf  # without the L2 term there may be no minimum
    if torchrun.first():
        _tell(method, data, history, made, best, found, mu, out, as_json, rank)
    if history.stopped.startswith("interrupted"):
        raise KeyboardInterrupt
    if history.failed:
        raise OwnstepError(history.stopped)


def _tell(
    method: str, data: str, history: History, made: Plan, best: float, found: Any, mu: float, out: Path | None,
    as_json: bool, rank: int | None,
) -> None:  # fmt: skip
    """Write what was asked for, and say how far the run got."""
    if out is not None:
        history.save(out / method)
    comparison = Comparison({method: history}, made, best)
    if out is not None and mu > 0:
        figure, axes = plots.new_figure(1, width=6)
        plots.convergence(axes[0, 0], comparison, f"{method} on {data}")
        plots.save(figure, out / f"{method}.png")
    if as_json:
        tuning = {} if found is None else {"tuning": found.to_dict()}
        gaps = {"optimum": best, "rows": comparison.rows()} if mu > 0 else {"optimum": None}
        emit(history.to_dict(series=False) | gaps | tuning)
    else:
        if mu > 0:
            show_comparison(comparison, console())
        if found is not None:
            settings = ", ".join(f"{name} {value:.4g}" for name, value in found.settings)
            typer.echo(f"{settings}: best of {len(found.trials)} settings, a search of {found.rounds_spent:,} rounds")
        if ranks := history.settings.get("sketch_ranks"):
            less = f", reduced from the {asked} asked for" if (asked := rank or 0) > ranks[0] else ""
            typer.echo(f"devices sent sketches of rank {' to '.join(map(str, sorted(set(ranks))))}{less}")
        known = f", f* = {best:.10g}" if mu > 0 else ""
        typer.echo(f"f = {history.value[-1]:.10g}{known}; stopped: {history.stopped}")


def compare_(
    data: Data,
    *,
    settings: RunOptions,
    rounds: Annotated[int, typer.Option(help=ROUNDS_HELP)] = 5000,
    mu: Annotated[float, typer.Option(help=MU_HELP)] = 1e-2,
    smoothness: Measure = "auto",
    methods: Methods = None,
    tune: TuneAll = None,
    reruns: Reruns = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Race Algorithm 1 and its extensions against gradient descent in all its forms, on rounds and on wall-clock.

    GD at 1/L-bar, 1/L, the matched and the tuned step; Nesterov with and without restart; ITEM; Barzilai-Borwein; AdGD;
    and L-BFGS.

    Example: ownstep compare w8a --partition by_norm --devices 2 --out w8a-by-norm

    A fair race: ownstep compare breast_cancer --methods own_step,rivals --tune 20 --participation 0.7 --reruns 4

    On a cluster: torchrun --nproc-per-node 2 -m ownstep compare w8a --devices 10 --methods own_step,rivals
    """
    engine = settings.where("compare")
    present, seed = settings.present(data), settings.seed
    if mu == 0:
        raise InvalidInput("compare measures against the optimum, which --mu 0 may not have; give a positive --mu")
    problem, split = settings.build(data, mu)
    subject, drive = bring_to(engine, problem, settings.deadline)
    comparison = compare(
        subject, choose_methods(methods, present is None), rounds, smoothness=smoothness, participation=present,
        seed=seed, checkpoint=None if out is None else out / "checkpoints", tune=tune, reruns=reruns,
        limits=settings.limits(), engine=drive,
    )  # fmt: skip
    if not torchrun.first():
        return
    if out is not None:
        comparison.save(out)
        plots.save(plots.demo({f"{data}, {split.rule}": comparison}), out / "comparison.png")
    if as_json:
        emit({"data": data, "partition": split.rule, "mu": mu, "seed": seed} | comparison.to_dict())
        return
    show_plan(comparison.plan, split.counts.tolist(), console())
    _show_race(comparison, problem)


def _show_race(comparison: Comparison, problem: LinearModel) -> None:
    """The table; and advice where most methods never reach the last tolerance and the columns' units may be why."""
    typer.echo()
    show_comparison(comparison, console())
    last = [comparison.rounds(name)[-1] for name in comparison.histories]
    if 2 * sum(rounds is None for rounds in last) > len(last) and (advice := uneven_scales(problem)):
        typer.echo(advice)
