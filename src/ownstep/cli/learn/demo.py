"""``ownstep demo``: the idea in a minute, on data that needs no network."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from ownstep import plots
from ownstep.cli.learn.hospitals import hospitals
from ownstep.cli.learn.race import RACES, choose_race
from ownstep.cli.options import Json, Seed, TableOptions
from ownstep.cli.terminal import console, emit, show_comparison, show_plan
from ownstep.engines import Comparison
from ownstep.engines.cluster import torchrun

CASES = {
    "breast cancer, split by norm": ("breast_cancer", "by_norm", 2),
    "digits, split by norm": ("digits", "by_norm", 2),
}
MU, ROUNDS, RANKS = 1e-2, 4000, 2


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="See the methods race on two small datasets.")(demo)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figure and the histories.")] = Path("ownstep-demo"),
    engine: Annotated[
        str, typer.Option(help=f"Who evaluates the gradients: {', '.join(RACES)}; or federation: four real hospitals.")
    ] = "local",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Split two small datasets on purpose and race Algorithm 1 against every baseline.

    --engine local runs in this process, and --engine cluster on two ranks of torch.distributed, with the same method
    objects and the same table. With --engine federation four real hospitals fit one model on Flower instead. A
    SuperLink and four SuperNodes run on this machine, with TLS and node keys. Other ways to a model are compared.

    Example: ownstep demo --out ownstep-demo
    """
    if engine == "federation":
        hospitals(out, seed, as_json)
        return
    began = time.monotonic()
    race = choose_race(engine)
    if engine == "cluster" and not torchrun.started():
        flags = ["--out", str(out), "--seed", str(seed), *(["--json"] if as_json else [])]
        torchrun.become(RANKS, ["demo", "--engine", engine, *flags])
    terminal = console()
    results: dict[str, Comparison] = {}
    for title, (name, rule, devices) in CASES.items():
        problem, split = TableOptions(partition=rule, devices=devices, seed=seed).build(name, MU)
        results[title] = comparison = race(problem, rounds=ROUNDS, seed=seed)
        if not torchrun.first():
            continue
        comparison.save(out / name)
        if not as_json:
            terminal.rule(f"[bold]{title}[/]", align="left", style="dim")
            show_plan(comparison.plan, split.counts.tolist(), terminal)
            terminal.print()
            show_comparison(comparison, terminal, costs=True)
            terminal.print(summary(comparison) + "\n")
    if not torchrun.first():
        return
    figure = plots.save(plots.demo(results), out / "demo.png")
    if as_json:
        data = {title: c.to_dict() | {"costs": c.costs(), "summary": summary(c)} for title, c in results.items()}
        emit({"engine": engine, "results": data, "figure": str(figure), "seconds": round(time.monotonic() - began, 2)})
    else:
        terminal.print(f"figure: {figure}    histories: {out}    ({time.monotonic() - began:.1f} s)")


def summary(comparison: Comparison) -> str:
    """One honest sentence: who was beaten at the middle tolerance, and who was not."""
    middle = len(comparison.tolerances) // 2
    at = f"{comparison.tolerances[middle]:g}"
    ours = comparison.rounds("Algorithm 1")[middle]
    if ours is None:
        return f"Algorithm 1 did not reach {at} in the rounds it was given."
    beaten, not_beaten = [], []
    for name in comparison.histories:
        theirs = comparison.rounds(name)[middle]
        if name == "Algorithm 1":
            continue
        if theirs is None or theirs > ours:
            beaten.append(name + (f" by {theirs / ours:.2f}x" if theirs is not None else ""))
        else:
            not_beaten.append(f"{name} ({theirs:,})")
    parts = [f"To {at}, Algorithm 1 needs {ours:,} rounds"]
    if beaten:
        parts.append("it beats " + ", ".join(beaten))
    if not_beaten:
        parts.append("it does not beat " + ", ".join(not_beaten))
    return "; ".join(parts) + "."
