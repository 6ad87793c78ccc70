"""``ownstep tune``: steps designed for given devices, by their exact worst case."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from ownstep.cli.options import Json, Seed
from ownstep.cli.prove.any_method import Asked
from ownstep.cli.prove.pep import read_devices
from ownstep.cli.prove.show_tuned import show_tuned, table, tell
from ownstep.cli.terminal import console, write_report
from ownstep.methods import Schedule
from ownstep.support.errors import InvalidInput
from ownstep.support.progress import Bar

if TYPE_CHECKING:
    from ownstep.pep import Bound, Tuned
    from ownstep.plan import Devices


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Choose steps by their exact worst case.")(tune)


def tune(
    L: Annotated[str, typer.Option("--L", help="Smoothness of each device, as 0.3333,3.")],
    mu: Annotated[str, typer.Option(help="Strong convexity, one for all or one per device.")] = "0",
    weights: Annotated[
        str | None, typer.Option(help="Weight of each device, up to a factor; equal by default.")
    ] = None,
    count: Annotated[str | None, typer.Option(help="How many devices of each kind, as 500,500.")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds K.")] = 10,
    r0: Annotated[float, typer.Option(help="||x0 - x*|| is at most this.")] = 1.0,
    rstar: Annotated[float, typer.Option(help="||x_i* - x*|| is at most this.")] = 0.0,
    metric: Annotated[
        str, typer.Option(help="value, distance or gradient; with a network also distance_devices, ...")
    ] = "value",
    what: Annotated[
        str | None,
        typer.Option(
            help="switch, scales (and the switch), schedule (every round; the default) or momentum (too). With a "
            "network: step, own (one per kind of device), mixing (a step and the weights; the default) or both."
        ),
    ] = None,
    network: Annotated[
        str | None, typer.Option(help="For all networks with these eigenvalues, as spectral:-0.5:0.5; with --method.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="With --network: decentralised_gd, gradient_tracking, extra or nids.")
    ] = None,
    order: Annotated[str | None, typer.Option(help="cta or atc, with --network.")] = None,
    common: Annotated[bool, typer.Option("--common", help="The same step on every device: grad f alone.")] = False,
    effort: Annotated[float, typer.Option(help="How much work may go into the search; seconds do not count.")] = 1.0,
    patience: Annotated[
        float | None, typer.Option(help="Seconds after which the best so far is taken; none by default.")
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(help="Worst cases of GD, GD tuned, Nesterov, OGM, ITEM, Algorithm 1, own steps with momentum."),
    ] = True,
    certify: Annotated[
        Path | None, typer.Option(help="Prove the bound in exact arithmetic, and write the certificate here.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the steps and how they were found here, as json.")] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Choose local and common steps, the switch, or a whole schedule by minimising the exact worst case.

    Ctrl-C ends the search early and keeps the best found. Nothing is random.

    Example: ownstep tune --L 0.3333333333,3 --mu 0.1 --rounds 20 --r0 10 --rstar 1 --json
    """
    from ownstep import pep

    devices = read_devices(L, mu, weights, count)
    setting = (rounds, r0, rstar, metric)
    for path in (certify, out):  # the search may take minutes, and what it found must have somewhere to go
        if path is not None and not path.absolute().parent.is_dir():
            raise InvalidInput(f"there is no folder {str(path.parent)!r} to write {path.name!r} to")
    if network is not None or method is not None:
        if common:
            raise InvalidInput("--common is for methods with a server: with --network, --what step is one step for all")
        asked = Asked(devices, rounds, r0, rstar, metric)
        show_tuned(asked, method, network, order, what or "mixing", (effort, patience), compare, certify, out, as_json)
        return
    began = time.monotonic()
    with Bar("designing", max(int(patience), 1) if patience is not None and math.isfinite(patience) else 1) as bar:
        found = pep.tune(
            devices,
            *setting,
            what or "schedule",
            common=common,
            effort=effort,
            patience=patience,
            progress=lambda best, doing: bar.update(int(time.monotonic() - began), f"best {best:.6g}, {doing}"),
        )
    report: dict[str, Any] = {"rounds": rounds, "r0": r0, "rstar": rstar, "metric": metric, "devices": len(devices)}
    report |= found.to_dict()
    if out is not None:
        write_report(report, out)
    proved = None if certify is None else found.bound.certify(certify)
    rivals = _rivals(devices, setting) if compare else {}
    tell(report, rivals, proved, lambda: _show(found, rivals), certify, out, as_json)


def read_schedule(path: Path) -> Schedule:
    """The method of a file that ``--out`` wrote."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))["method"]
        pairs = tuple((float(beta), float(gamma)) for beta, gamma in told["momentum"])
        return Schedule(tuple(tuple(map(float, row)) for row in told["scales"]), pairs, float(told["after"]))
    except OSError as error:
        raise InvalidInput(f"cannot read {str(path)!r}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{str(path)!r} holds no schedule ({type(error).__name__}: {error})") from error


def _rivals(devices: Devices, setting: tuple[int, float, float, str]) -> dict[str, Bound]:
    """The rivals; an interrupt leaves them out, and loses nothing of the design."""
    from ownstep import pep

    try:
        with Bar("its rivals", 2 * setting[0] + 7) as bar:
            return pep.rivals(devices, *setting, progress=lambda done, _: bar.update(done))
    except KeyboardInterrupt:
        typer.echo("ownstep: interrupted; the design is kept, and not compared", err=True)
        return {}


def _show(found: Tuned, rivals: dict[str, Bound]) -> None:
    terminal = console()
    steps = Table("round", "scale of 1/L_i, by device", "momentum", box=None, header_style="bold")
    for k, row in enumerate(found.method.scales):
        shown = ", ".join(f"{a:.4g}" for a in row[:8]) + (", ..." if len(row) > 8 else "")
        pair = found.method.momentum[k] if found.method.momentum else None
        steps.add_row(str(k), shown, "" if pair is None else f"{pair[0]:.4g}, {pair[1]:.4g}")
    terminal.print(steps)
    terminal.print(table("method", found, rivals))
    terminal.print(
        f"best of {len(found.starts)} starts: {found.start}; {found.stopped}; {found.solves} solves, "
        f"{found.seconds:.0f} s; the worst case is enclosed to a relative {found.bound.gap:.1e}",
        style="dim",
    )
