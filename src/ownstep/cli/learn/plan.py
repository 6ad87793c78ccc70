"""``ownstep plan``: what should I use, and is a split worth it, before anything is run?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from ownstep.cli.options import DATA_HELP, Json, Measure, TableOptions, numbers
from ownstep.cli.terminal import console, emit, show_plan, show_table
from ownstep.engines import Recommendation, TimeModel, describe, parse_wire, recommend
from ownstep.plan import Plan
from ownstep.plan import plan as make_plan
from ownstep.problems import LinearModel
from ownstep.smoothness import Smoothness
from ownstep.support.errors import InvalidInput, OwnstepError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Which method should I use on my data?")(plan)


def plan(
    data: Annotated[str | None, typer.Argument(help=DATA_HELP)] = None,
    *,
    table: TableOptions,
    L: Annotated[
        str | None, typer.Option("--L", help="In place of data: the smoothness of each device, as 1,3.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="With --L: weight of each device, up to a factor; equal by default.")
    ] = None,
    mu: Annotated[str, typer.Option(help="Weight of the L2 term mu/2 ||x||^2; with --L one or several.")] = "0.001",
    smoothness: Measure = "auto",
    wire: Annotated[
        str, typer.Option(help="The network: home, wan, datacentre, or SECONDS:BYTES_PER_S for a message.")
    ] = "wan",
    absent: Annotated[float, typer.Option(help="Share of the devices that miss an exchange.")] = 0.0,
    as_json: Json = False,
) -> None:
    """Recommend a method, and say what own steps would bring: each device's smoothness, its step, the predicted gain.

    The methods are rehearsed on a sample of the rows. Their exchanges, bytes and seconds over --wire are what they
    took there; the last column says what a method shows the server.

    Example: ownstep plan w8a --partition by_norm --devices 10 --wire home
    A file of your own: ownstep plan patients.csv --label ill --site hospital
    From numbers alone: ownstep plan --L 1,3 --weights 2,1
    """
    if (data is None) == (L is None):
        raise InvalidInput("plan needs either data or --L, the smoothness of each device, such as --L 1,3")
    strong = numbers("--mu", mu)
    network = parse_wire(wire)
    if L is not None:
        _tell(_from_numbers(L, weights, strong), {"mu": strong}, [None] * len(numbers("--L", L)), "", None, as_json)
        return
    if weights is not None:
        raise InvalidInput(f"--weights {weights} goes with --L; the weights of data are its devices' shares of samples")
    if len(strong) != 1:
        raise InvalidInput(f"--mu {mu}: data takes one number; several go with --L")
    assert data is not None
    problem, split = table.build(data, strong[0])
    setting = {"data": data, "partition": split.rule, "note": split.note, "mu": strong[0], "seed": table.seed}
    setting["samples"] = split.counts.tolist()
    made = describe(problem, smoothness)
    advice = _advice(problem, network, wire, absent, table.seed)
    _tell(made, setting, split.counts.tolist(), split.note, advice, as_json)


def _advice(problem: LinearModel, network: TimeModel, wire: str, absent: float, seed: int) -> Recommendation | str:
    try:
        return recommend(problem, network, absent=absent, seed=seed, named=wire)
    except InvalidInput:
        raise
    except OwnstepError as error:  # such as mu = 0 on separable data: there is no minimiser to go to
        return f"No recommendation: {error}"


def _from_numbers(L: str, weights: str | None, mu: list[float]) -> Plan:
    """The plan of devices of which only the constants are known."""
    values = numbers("--L", L)
    shares = np.ones(len(values)) if weights is None else np.array(numbers("--weights", weights))
    if len(shares) != len(values):
        raise InvalidInput(f"--weights {weights}: {len(shares)} weights for the {len(values)} devices of --L {L}")
    if len(mu) not in (1, len(values)):
        raise InvalidInput(f"--mu needs one number or {len(values)}, one per device, got {len(mu)}")
    if not (shares > 0).all() or not np.isfinite(shares).all():
        raise InvalidInput(f"--weights {weights}: every weight must be positive and finite")
    constants = Smoothness(np.array(values), "given", "given on the command line")
    shares = shares / shares.max()  # the sum of large ones overflows
    return make_plan(shares / shares.sum(), constants, mu[0] if len(mu) == 1 else mu)


def _tell(
    made: Plan,
    setting: dict[str, Any],
    samples: Sequence[int | None],
    note: str,
    advice: Recommendation | str | None,
    as_json: bool,
) -> None:
    if as_json:
        told = advice.to_dict() if isinstance(advice, Recommendation) else advice and {"use": None, "says": advice}
        emit(setting | made.to_dict() | {"recommendation": told})
        return
    terminal = console()
    if isinstance(advice, Recommendation):
        _show(advice, terminal)
    elif advice:
        terminal.print(advice)
    terminal.print("\nOwn steps (Algorithm 1):" if advice else "Own steps (Algorithm 1):", style="bold")
    show_plan(made, samples, terminal)
    if note:
        terminal.print(f"note: {note}")


def _show(advice: Recommendation, out: Console) -> None:
    """The recommendation, and the table behind it."""
    out.print(str(advice), style="bold")
    table = Table(
        "method", "exchanges", "bytes per device", "seconds", "the server sees", box=None, header_style="bold"
    )
    for row in advice.rows:
        numbers = (
            ("", row.note, "") if row.seconds is None else (row.exchanges, f"{row.bytes:,.0f}", f"{row.seconds:.3g}")
        )
        table.add_row(row.method, *map(str, numbers), row.shows)
    show_table(table, out)
