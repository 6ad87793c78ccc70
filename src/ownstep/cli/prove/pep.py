"""``ownstep pep``: the exact worst case of Algorithm 1 and of gradient descent."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from ownstep.cli.options import Json, Seed, numbers
from ownstep.cli.prove.any_method import Asked, refuse_with_method, show_method
from ownstep.cli.terminal import console, emit, show_table
from ownstep.methods import GD, At, Never, OwnStep
from ownstep.support.errors import InvalidInput
from ownstep.support.progress import Bar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ownstep.pep import Bound, Lipschitz
    from ownstep.plan import Devices


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="The exact worst case of a method, with its proof.")(pep)


def pep(
    L: Annotated[str | None, typer.Option("--L", help="Smoothness of each device, as 0.3333,3, or @file.")] = None,
    mu: Annotated[str, typer.Option(help="Strong convexity, one for all or one per device, or @file.")] = "0",
    weights: Annotated[
        str | None, typer.Option(help="Weight of each device, up to a factor, or @file; equal by default.")
    ] = None,
    count: Annotated[str | None, typer.Option(help="How many devices of each kind, as 500,500.")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds K.")] = 10,
    switch: Annotated[int | None, typer.Option(help="So many rounds are local; all of them by default.")] = None,
    momentum: Annotated[
        str | None, typer.Option(help="Accelerate both phases: nesterov or item; none by default.")
    ] = None,
    r0: Annotated[float, typer.Option(help="||x0 - x*|| is at most this.")] = 1.0,
    rstar: Annotated[float, typer.Option(help="||x_i* - x*|| is at most this; may be 0 or inf.")] = 0.0,
    metric: Annotated[
        str, typer.Option(help="value, distance or gradient; with a network also distance_devices, consensus, ...")
    ] = "value",
    curve: Annotated[bool, typer.Option("--curve", help="Every K up to --rounds, and a plot.")] = False,
    out: Annotated[Path, typer.Option(help="Where --curve draws.")] = Path("worst-case.svg"),
    method: Annotated[
        str | None, typer.Option(help="Another method than Algorithm 1, by name: extra, fedavg, nesterov, ...")
    ] = None,
    network: Annotated[
        str | None, typer.Option(help="All networks with these eigenvalues, as spectral:-0.5:0.5; for --method.")
    ] = None,
    step: Annotated[str | None, typer.Option(help="The step of --method, a number or a name.")] = None,
    order: Annotated[str | None, typer.Option(help="cta or atc, for methods without a server.")] = None,
    local_steps: Annotated[int | None, typer.Option(help="Local steps per round, for federated methods.")] = None,
    lipschitz: Annotated[
        str | None,
        typer.Option(help="In place of --L: convex losses, subgradients at most so long; for --method."),
    ] = None,
    certify: Annotated[
        Path | None, typer.Option(help="Prove the upper bound in exact arithmetic, and write the certificate here.")
    ] = None,
    effort: Annotated[float, typer.Option(help="Work that may go into narrowing the enclosure; 0: one solve.")] = 1.0,
    patience: Annotated[
        float | None, typer.Option(help="Seconds after which to end with what is proved; none by default.")
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """The largest error Algorithm 1 can make, over all functions of the devices' classes, beside gradient descent's.

    Example: ownstep pep --L 0.3333333333,3 --mu 0.1 --rounds 20 --switch 10 --r0 10 --rstar 1
    """
    from ownstep.pep import Lipschitz, worst_case
    from ownstep.pep import curve as worst_curve

    devices = read_losses(L, mu, weights, count, lipschitz, method)
    if method is not None or network is not None or isinstance(devices, Lipschitz):
        refuse_with_method({"switch": switch, "momentum": momentum, "curve": curve or None})
        asked = Asked(devices, rounds, r0, rstar, metric, effort, patience)
        options = {"step": step, "order": order, "local_steps": local_steps}
        show_method(asked, method, network, options, certify, as_json)
        return
    if switch is not None and not 0 <= switch <= rounds:
        raise InvalidInput(f"--switch is between 0 and --rounds {rounds}, got {switch}")
    own = read_method(switch, momentum)
    setting: dict[str, Any] = {
        "devices": len(devices),
        "rounds": rounds,
        "switch": switch,
        "momentum": momentum,
        "r0": r0,
        "rstar": _plain(rstar),
    }
    setting |= {"metric": metric, "gain": devices.gain}
    if curve and certify is not None:
        raise InvalidInput("--certify proves one worst case: leave out --curve")
    if not curve:
        with Bar("kinds of devices", 20) as bar:
            ours = worst_case(
                own, devices, rounds, r0, rstar, metric, effort=effort, patience=patience,
                progress=lambda kinds, width: bar.update(kinds, f"width {width:.1e}"),
            )  # fmt: skip
        gd = worst_case(GD(), devices, rounds, r0, rstar, metric, effort=effort, patience=patience)
        proved = None if certify is None else ours.certify(certify)
        if as_json:
            emit(setting | _pair(ours, gd) | ({} if proved is None else {"certified": proved.to_dict()}))
            return
        _show([(rounds, ours, gd)])
        console().print(ours.status, style="dim")
        if proved is not None:
            typer.echo(f"certified: {proved}\nwritten: {certify}")
        return
    with Bar("worst cases", 2 * (rounds + 1)) as bar:
        setup: Any = (devices, rounds, r0, rstar, metric)
        limits: Any = {"effort": effort, "patience": patience}
        ours_all = worst_curve(own, *setup, **limits, progress=lambda k, _: bar.update(k))
        gd_all = worst_curve(GD(), *setup, **limits, progress=lambda k, _: bar.update(rounds + 1 + k))
    from ownstep import plots

    written = plots.save(_draw(ours_all, gd_all, metric, momentum), out)
    if as_json:
        points = [{"rounds": k} | _pair(a, b) for k, (a, b) in enumerate(zip(ours_all, gd_all, strict=True))]
        emit(setting | {"curve": points, "figure": str(written)})
        return
    _show([(k, a, b) for k, (a, b) in enumerate(zip(ours_all, gd_all, strict=True))])
    typer.echo(f"written: {written}")


def read_losses(
    L: str | None, mu: str, weights: str | None, count: str | None, lipschitz: str | None, method: str | None
) -> Devices | Lipschitz:
    """The devices of ``--L``, or of ``--lipschitz``."""
    if lipschitz is None:
        if L is None:
            raise InvalidInput("which devices? Give --L, as 0.3333,3, or --lipschitz with --method")
        return read_devices(L, mu, weights, count)
    from ownstep.pep import lipschitz as bounded

    if L is not None or mu != "0":
        raise InvalidInput("--lipschitz is in place of --L and --mu: such losses have no smoothness")
    if method is None:
        raise InvalidInput("Algorithm 1 steps by smoothness constants: give --method and --step beside --lipschitz")
    counts = None if count is None else [int(n) for n in numbers("--count", count, int)]
    return bounded(
        numbers("--lipschitz", lipschitz), counts, None if weights is None else numbers("--weights", weights)
    )


def read_devices(L: str, mu: str, weights: str | None, count: str | None) -> Devices:
    """The devices of the command line: numbers by kind, separated by commas."""
    from ownstep.pep import repeated

    counts = None if count is None else [int(n) for n in numbers("--count", count, int)]
    shares = None if weights is None else numbers("--weights", weights)
    return repeated(numbers("--L", L), numbers("--mu", mu), counts, shares)


def read_method(switch: int | None, momentum: str | None) -> OwnStep:
    """Algorithm 1 as the command line gives it."""
    return OwnStep(Never() if switch is None else At(switch), momentum=momentum)


def _pair(ours: Bound, gd: Bound) -> dict[str, Any]:
    own: dict[str, Any] = {"lower": _plain(ours.lower), "upper": _plain(ours.upper), "gap": _plain(ours.gap)}
    own |= {"status": ours.status, "seconds": ours.seconds, "kinds": ours.kinds}
    return own | {"gd": {"lower": _plain(gd.lower), "upper": _plain(gd.upper)}, "ratio": _plain(_ratio(ours, gd))}


def _plain(number: float) -> float | None:
    """Json has no infinity: null, and the status says why."""
    return number if math.isfinite(number) else None


def _ratio(ours: Bound, gd: Bound) -> float:
    return ours.upper / gd.upper if gd.upper else float("nan")


def _show(rows: list[tuple[int, Bound, Bound]]) -> None:
    table = Table("rounds", "lower", "upper", "GD 1/L-bar", "ratio", box=None, header_style="bold")
    for column in table.columns:
        column.justify = "right"
    for k, ours, gd in rows:
        table.add_row(str(k), f"{ours.lower:.7g}", f"{ours.upper:.7g}", f"{gd.upper:.7g}", f"{_ratio(ours, gd):.4f}")
    show_table(table, console())


def _draw(ours: list[Bound], gd: list[Bound], metric: str, momentum: str | None) -> Figure:
    from ownstep import plots
    from ownstep.pep import METRICS

    drawn, axes = plots.new_figure(1, width=5.6, height=3.8)
    ax = axes[0, 0]
    for name, bounds in (("GD 1/L-bar", gd), ("Algorithm 1", ours)):
        label = f"own steps, {momentum}" if momentum and bounds is ours else name
        ax.plot([b.upper for b in bounds], label=label, color=plots.colour(name), lw=2.2)
    ax.set_yscale("log")
    plots.finish(ax, "Exact worst case", "rounds K", METRICS[metric].split(",")[0], "upper right")
    return drawn
