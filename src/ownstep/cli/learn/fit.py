"""``ownstep fit`` and ``ownstep predict``: a model over sites with a statistician's table, and its predictions."""

from __future__ import annotations

import csv
import io
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from ownstep.cli.choose import choose_engine
from ownstep.cli.options import Data, FileOptions, Format, Json, LogOptions, Seed, listed
from ownstep.cli.terminal import console, emit, show_table
from ownstep.data.files import read_features
from ownstep.engines.cluster import torchrun
from ownstep.glm import fit, fit_over, load_model, rehearse
from ownstep.glm.families import FAMILIES
from ownstep.glm.result import PENALISED
from ownstep.support.errors import InvalidInput, OwnstepError, unknown_name
from ownstep.support.files import write_atomically, write_json
from ownstep.support.logs import RoundLog

ENGINES = ("local", "cluster", "federation")
SMALLEST_P = 2e-16
"""Below it a p-value says nothing more, and is shown as R shows it."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("fit", short_help="Fit a model over sites, with standard errors.")(fit_)
    app.command(short_help="Predict new rows with a fitted model.")(predict)


def fit_(
    data: Data,
    *,
    file: FileOptions,
    family: Annotated[str, typer.Option(help=f"auto, or one of {', '.join(FAMILIES)}.")] = "auto",
    mu: Annotated[
        float, typer.Option(help="Penalty mu/2 ||x||^2 on the standardised coefficients; none by default.")
    ] = 0.0,
    holdout: Annotated[float, typer.Option(help="Share of every site's rows to measure on; none by default.")] = 0.0,
    allow: Annotated[
        str | None, typer.Option(help="Sites that take part although they are small, separated by commas; or all.")
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="local; cluster: one process per rank, the default under torchrun; or federation: a rehearsal on this "
            "machine, one Flower SuperNode per site with TLS and keys."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the model here: .json or .safetensors.")] = None,
    logs: LogOptions,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Fit a generalised linear model over sites: coefficients, standard errors, p-values, intervals.

    Each site sends sums only: of its columns once, then its loss, gradient and Hessian, a few times. The numbers are
    those of a fit on all rows in one place. Sites so small that people could be recognised are refused by name.

    Example: ownstep fit patients.csv --label ill --site hospital --holdout 0.3 --out model.json
    """
    if engine not in (None, *ENGINES):
        raise unknown_name("engine", engine, ENGINES)
    given = {"--label": file.label, "--site": file.site, "--missing": file.missing, "--allow": allow}
    example = shlex.join(["fit", data, *[word for flag, value in given.items() if value for word in (flag, value)]])
    engine = "federation" if engine == "federation" else choose_engine(engine, example)
    if out is not None and out.suffix not in (".json", ".safetensors"):
        raise InvalidInput(f"--out {out}: a model is written to a .json or .safetensors file")
    found = file.load(data)
    rows, labels = found.table()
    if engine == "federation":
        rehearsed = rehearse(
            found, family=family, mu=mu, holdout=holdout, allow=listed(allow), seed=seed, log_json=logs.log_json,
            metrics=logs.metrics,
        )  # fmt: skip
        told, model = rehearsed.told, rehearsed.model
    else:
        fitted = fit(
            rows, labels, found.sites, family=family, features=found.features, mu=mu, holdout=holdout,
            allow=listed(allow), engine=engine, label=found.label, levels=found.levels, seed=seed,
            log=logs.opened(),
        )  # fmt: skip
        told, model = fitted.to_dict(), fitted.model
    if not torchrun.first():
        return
    written = None if out is None else str(model.save(out))
    if as_json:
        emit({"data": data, "note": found.note, "model": written} | told)
        return
    show_fit(told, found.note)
    if written:
        typer.echo(f"model: {written}")


def fit_over_sites(grid: Any, terms: Any, config: Mapping[str, Any], out: Path, log: RoundLog) -> None:
    """The fit of a Flower app's coordinator: prints the table and writes ``fit.json`` and ``model.json``.

    ``fit.json`` says why, where there is no fit: the sites refuse, columns differ, or classes are separated.
    """
    options = {"family": str(config["family"]), "mu": float(config["mu"]), "holdout": float(config["holdout"])}
    try:
        fitted = fit_over(grid, terms, **options, seed=int(config["seed"]), log=log)  # type: ignore[arg-type]
    except OwnstepError as error:
        write_json(out / "fit.json", {"error": str(error), "invalid": isinstance(error, InvalidInput)})
        print(f"ownstep: {error}", flush=True)
        raise
    fitted.model.save(out / "model.json")
    write_json(out / "fit.json", fitted.to_dict() | {"path": fitted.path.tolist()})
    show_fit(fitted.to_dict())
    print(f"model: {out / 'model.json'}    table: {out / 'fit.json'}", flush=True)


def show_fit(told: Mapping[str, Any], note: str = "") -> None:
    """The table of a fit, and what it took, from its plain data."""
    out, effect = console(), FAMILIES[told["family"]].effect
    heads = ["coefficient", "estimate", "std. error", "z", "p", "95 % from", "to", *([effect] if effect else [])]
    table = Table(*heads, box=None, header_style="bold")
    for column in table.columns[1:]:
        column.justify = "right"
    for c in told["coefficients"]:
        cells = [f"{c['estimate']:.5g}", f"{c['standard_error']:.4g}", f"{c['z']:.3f}", _p(c["p"])]
        cells += [f"{c['low']:.4g}", f"{c['high']:.4g}", *([f"{c[effect.replace(' ', '_')]:.4g}"] if effect else [])]
        table.add_row(c["name"], *cells)
    show_table(table, out)
    against = f", reference class {told['classes'][0]}" if told["classes"] else ""
    out.print(
        f"{told['family']} model of {told['label']!r}{against}; {told['rows']:,} rows; "
        f"log-likelihood {told['log_likelihood']:.6f}, AIC {told['aic']:.4f}"
    )
    if told["mu"] > 0:
        out.print(f"penalised, mu = {told['mu']:g}: {PENALISED}")
    if told.get("normal"):
        out.print(told["normal"])
    if note:
        out.print(f"note: {note}")
    _show_held_out(told["held_out"], out)
    if len(told["sites"]) > 1:
        out.print("sites: " + ", ".join(f"{name} ({n:,} rows)" for name, n in told["sites"].items()))
        out.print(f"{told['exchanges']} exchanges, {told['bytes']:,} bytes in all. Every site tells:")
        for line in told["reveals"]:
            numbers = f"{line['numbers']:,} numbers: " if line["numbers"] else ""
            out.print(f"  {line['exchanges']} x {numbers}{line['what']}")


def _show_held_out(held_out: Mapping[str, Mapping[str, Any]], out: Any) -> None:
    if not held_out:
        return
    keys = [k for k in next(iter(held_out.values())) if k != "rows"]
    table = Table("held-out rows of", "rows", *[k.replace("_", " ") for k in keys], box=None, header_style="bold")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, found in held_out.items():
        table.add_row(name, f"{found['rows']:,}", *["-" if found[k] is None else f"{found[k]:.4f}" for k in keys])
    show_table(table, out)


def _p(p: float) -> str:
    if p < SMALLEST_P:
        return f"<{SMALLEST_P:.0e}"
    return f"{p:.4f}" if p >= 1e-4 else f"{p:.1e}"


def predict(
    data: Data,
    model: Annotated[Path, typer.Option(help="The file that ownstep fit --out wrote.")],
    format: Format = None,
    out: Annotated[Path | None, typer.Option(help="Write the predictions to this CSV file; else print them.")] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Predict new rows with a fitted model: a probability per class, or a number.

    Columns are found by name; columns that the model does not know are left alone. A file without names, such as
    LIBSVM, is for models that were fitted on one.

    Example: ownstep predict new.csv --model model.json --out predictions.csv
    """
    fitted = load_model(model)
    rows = read_features(data, fitted.features, fitted.levels, format)
    predicted = fitted.predict(rows)
    if fitted.classes:
        heads = ["predicted", *[f"p({c})" for c in fitted.classes]]
        lines = [[fitted.classes[int(p.argmax())], *p.tolist()] for p in predicted]
    else:
        heads, lines = ["predicted"], [[value] for value in predicted.tolist()]
    if as_json:
        emit({"label": fitted.label, "columns": heads, "predictions": lines})
        return
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([heads, *lines])
    if out is None:
        sys.stdout.write(text.getvalue())
        return
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(out) as file:
            file.write(text.getvalue().encode())
    except OSError as error:
        raise OwnstepError(f"cannot write {str(out)!r}: {error}") from error
    typer.echo(f"{len(lines):,} predictions: {out}")
