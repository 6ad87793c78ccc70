"""``ownstep report``: one web page of everything on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ownstep.cli.options import Json
from ownstep.cli.terminal import emit


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Write one web page of all results.")(report)


def report(
    results: Annotated[Path, typer.Option(help="Folder with the experiments' results.")] = Path("results"),
    out: Annotated[Path, typer.Option(help="The html file to write.")] = Path("report/index.html"),
    quick: Annotated[bool, typer.Option(help="Show the quick versions of the experiments.")] = False,
    as_json: Json = False,
) -> None:
    """Write one self-contained web page: each claim with what was measured. Nothing is run again.

    Example: ownstep report --out report/index.html
    """
    from ownstep.report import write

    found = write(results, out, quick)
    if as_json:
        verdicts = {r.name: r.word for r in found.records}
        emit({"file": str(out), "bytes": out.stat().st_size, "counts": found.counts, "verdicts": verdicts})
        return
    typer.echo(", ".join(f"{n} {word}" for word, n in found.counts.items()))
    for record in found.records:
        if record.problem:
            typer.echo(f"  - {record.problem}")
    typer.echo(f"written: {out} ({out.stat().st_size / 1e6:.1f} MB); open it in a browser")
