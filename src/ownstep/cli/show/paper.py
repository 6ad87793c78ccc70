"""``ownstep paper``: the paper's experiments by name, or all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from ownstep.cli.options import Json, Seed
from ownstep.cli.terminal import console, emit
from ownstep.paper import EXPERIMENTS, conduct, conduct_all, judge_again, load_experiment, on_disk
from ownstep.support.errors import OwnstepError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Rerun an experiment of the paper.")(paper)


def paper(
    name: Annotated[str, typer.Argument(help="Experiment, list, or all.")],
    quick: Annotated[bool, typer.Option(help="A small version that takes seconds.")] = False,
    out: Annotated[Path, typer.Option(help="Folder above the experiment's own.")] = Path("results"),
    seed: Seed = 0,
    seeds: Annotated[int | None, typer.Option(help="How many seeds, where an experiment takes several.")] = None,
    device: Annotated[str | None, typer.Option(help="Where networks are trained, such as cuda.")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Begin no part after so many minutes; what is missing is listed (curvature).")
    ] = None,
    again: Annotated[bool, typer.Option(help="With all: run also what is already there.")] = False,
    judge: Annotated[bool, typer.Option(help="Only judge and draw what is on disk anew.")] = False,
    as_json: Json = False,
) -> None:
    """Rerun an experiment of the paper: data as json, the figure, and a computed verdict.

    An interrupted run goes on where it stopped when started again; 'all' runs every experiment that has no result yet.

    Example: ownstep paper w8a --quick
    """
    if name == "list":
        _list(out, quick, seed, as_json)
    elif name == "all":
        _all(out, quick, seed, seeds, device, again, judge, as_json)
    else:
        if judge:
            report = judge_again(name, out, quick)
        else:
            report = conduct(name, out, quick, seed, None, seeds, device, minutes)
        _show(report, as_json)


def _list(out: Path, quick: bool, seed: int, as_json: bool) -> None:
    claims = {n: load_experiment(n).CLAIM for n in EXPERIMENTS}
    if as_json:
        emit(claims)
        return
    table = Table("experiment", "claim", f"in {out}", box=None, header_style="bold")
    for n, claim in claims.items():
        found = on_disk(n, out, quick, seed)
        table.add_row(n, claim, found["verdict"]["verdict"] if found else "")
    console().print(table)


def _all(
    out: Path, quick: bool, seed: int, seeds: int | None, device: str | None, again: bool, judge: bool, as_json: bool
) -> None:
    reports: dict[str, dict[str, Any]] = {}
    if judge:
        done: Iterator[tuple[str, str, dict[str, Any]]] = (
            (n, "done", judge_again(n, out, quick)) for n in EXPERIMENTS if on_disk(n, out, quick, seed)
        )
    else:
        done = conduct_all(out, quick, seed, again, _starting, **{"seeds": seeds, "device": device})
    for name, state, report in done:
        reports[name] = report | {"state": state}
        if not as_json:
            typer.echo(_line(name, state, report))
    failed = [n for n, r in reports.items() if r["state"] == "failed"]
    counts = Counter(r["verdict"]["verdict"] for n, r in reports.items() if n not in failed)
    if as_json:
        kept = ("state", "error", "claim", "verdict")
        emit({"counts": counts, "experiments": {n: {k: r[k] for k in kept if k in r} for n, r in reports.items()}})
    else:
        typer.echo(
            ", ".join(f"{n} {word}" for word, n in counts.items()) + (f", {len(failed)} failed" if failed else "")
        )
    if failed:
        raise OwnstepError(f"{len(failed)} of {len(reports)} failed: {', '.join(failed)}; start again to try them anew")


def _starting(name: str) -> None:
    typer.echo(f"{name} ...", err=True)


def _line(name: str, state: str, report: dict[str, Any]) -> str:
    if state == "failed":
        return f"{name:18} failed: {report['error']}"
    note = ""
    if state == "there":
        note = f" (already there, commit {report['provenance'].get('commit')}; --again runs it anew)"
    elif report.get("parts_found"):
        note = f" (went on after {report['parts_found']} finished parts)"
    return f"{name:18} {report['verdict']['verdict']}{note}"


def _show(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit(report)
        return
    typer.echo(f"claim:   {report['claim']}")
    typer.echo(f"verdict: {report['verdict']['verdict']} ({report['verdict']['rule']})")
    for line in report["verdict"]["findings"]:
        typer.echo(f"  - {line}")
    if report["parts_found"]:
        typer.echo(f"went on after {report['parts_found']} parts of an earlier run")
    typer.echo(f"written: {', '.join(report['files'])}")
