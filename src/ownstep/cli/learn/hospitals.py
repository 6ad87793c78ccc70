"""``ownstep demo --engine federation``: four real hospitals fit one model, and what that is worth."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from ownstep.cli.learn.fit import show_fit
from ownstep.cli.terminal import console, emit, show_table
from ownstep.data import Dataset, load
from ownstep.glm import fit, rehearse
from ownstep.glm.hospitals import HOLDOUT, SETTLED, SHRUNK, Line, compare_hospitals, settled
from ownstep.support.errors import OwnstepError
from ownstep.support.files import write_json


def hospitals(out: Path, seed: int, as_json: bool) -> None:
    """The fit on a real federation of this machine, its table, and the comparison on held-out patients."""
    began = time.monotonic()
    data = _data()
    names = sorted(set(data.sites.tolist())) if data.sites is not None else []
    over = rehearse(data, holdout=HOLDOUT, allow=["all"], seed=seed)
    lines = compare_hospitals(data, over.told, over.model, seed)
    pooled = _pooled(data, seed)
    exchanges = settled(over.told, pooled)
    gap = max(abs(c["estimate"] - pooled[c["name"]]) for c in over.told["coefficients"])
    model = over.model.save(out / "model.json")
    found = {
        "fit": over.told, "comparison": [line.to_dict() for line in lines], "settled": exchanges, "difference": gap,
        "model": str(model), "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    write_json(out / "hospitals.json", found)
    if as_json:
        emit({"engine": "federation"} | found)
        return
    terminal = console()
    terminal.rule("[bold]One model over four hospitals, no row moved[/]", align="left", style="dim")
    show_fit(over.told, data.note)
    terminal.print(f"{over.told['seconds_per_exchange']:.1f} seconds per exchange on Flower\n")
    terminal.rule("[bold]Is it the model of all data in one place?[/]", align="left", style="dim")
    last = "never" if min(exchanges.values()) < 0 else max(exchanges.values())
    terminal.print(
        f"Largest difference to a coefficient of the pooled fit: {gap:.1e}. Exchanges of Newton's method after which a "
        f"coefficient is within {SETTLED:g} of the pooled one and stays there: "
        + ", ".join(f"{name} {'never' if count < 0 else count}" for name, count in exchanges.items())
        + f". All of them: {last}.\n"
    )
    terminal.rule("[bold]Does it help the hospitals?[/]", align="left", style="dim")
    show_table(_table(lines, names), terminal)
    terminal.print(
        f"Accuracy and AUC on the {HOLDOUT:.0%} of every hospital's patients that nobody was fitted on. Distance: the "
        "largest difference to the pooled coefficients, in standard errors. Penalised: by mu = "
        f"{SHRUNK:g}, where a hospital's own rows have no maximum of the likelihood. FedAvg, FedProx and SCAFFOLD take "
        "100 local steps per round, on the local engine: the same iterates.\n"
    )
    terminal.print(f"model: {model}    all numbers: {out / 'hospitals.json'}    ({found['seconds']} s)")


def _data() -> Dataset:
    try:
        return load("heart_disease")
    except OwnstepError as error:
        raise OwnstepError(
            "the demo needs the heart disease data of four hospitals: unpack "
            "https://archive.ics.uci.edu/static/public/45/heart+disease.zip into DIR/heart-disease and set "
            "OWNSTEP_DATA=DIR"
        ) from error


def _pooled(data: Dataset, seed: int) -> dict[str, float]:
    """The coefficients of the fit with all training rows in one place."""
    rows, labels = data.table()
    whole = fit(rows, labels, data.sites, features=data.features, holdout=HOLDOUT, allow=["all"], seed=seed)
    return {c.name: c.estimate for c in whole.coefficients}


def _table(lines: Sequence[Line], names: Sequence[str]) -> Table:
    every = [*names, "all"]
    table = Table("", *every, "exchanges", "bytes", "distance", box=None, header_style="bold")
    for column in table.columns[1:]:
        column.justify = "right"
    for line in lines:
        if line.why:
            table.add_row(line.title, line.why)
            continue
        cells = [
            f"{line.accuracy[n]:.3f}, {'-' if (auc := line.auc[n]) is None else format(auc, '.3f')}" for n in every
        ]
        took = [str(line.exchanges), f"{line.bytes:,}"] if line.exchanges else ["", ""]
        table.add_row(line.title, *cells, *took, f"{line.distance:.2g}")
    return table
