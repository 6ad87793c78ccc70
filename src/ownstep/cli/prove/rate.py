"""``ownstep rate``: how fast a method converges, certified for every number of rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ownstep.cli.options import Json
from ownstep.cli.prove.any_method import named_method
from ownstep.cli.prove.pep import read_devices
from ownstep.cli.terminal import console, emit


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="A certified rate for every number of rounds.")(rate)


def rate(
    L: Annotated[str, typer.Option("--L", help="Smoothness of each device, as 0.3333,3.")] = "1,1",
    mu: Annotated[str, typer.Option(help="Strong convexity, one for all or one per device.")] = "0.1",
    weights: Annotated[str | None, typer.Option(help="Weight of each device, up to a factor.")] = None,
    count: Annotated[str | None, typer.Option(help="How many devices of each kind, as 500,500.")] = None,
    method: Annotated[str, typer.Option(help="The method, by name.")] = "gd",
    network: Annotated[
        str | None, typer.Option(help="All networks with these eigenvalues, as spectral:-0.5:0.5.")
    ] = None,
    step: Annotated[str | None, typer.Option(help="Its step, a number or a name.")] = None,
    order: Annotated[str | None, typer.Option(help="cta or atc, for methods without a server.")] = None,
    momentum: Annotated[str | None, typer.Option(help="Its momentum.")] = None,
    switch: Annotated[str | None, typer.Option(help="never or at:0, the phases of own_step.")] = None,
    local_steps: Annotated[int | None, typer.Option(help="Local steps per round.")] = None,
    memory: Annotated[int, typer.Option(help="Rounds that the Lyapunov function uses; more can only help.")] = 1,
    rstar: Annotated[
        float | None, typer.Option(help="||x_i* - x*|| is at most this: how far from x* does the method end?")
    ] = None,
    certify: Annotated[
        Path | None, typer.Option(help="Prove the rate in exact arithmetic, and write the certificate here.")
    ] = None,
    as_json: Json = False,
) -> None:
    """The smallest rho such that the distance to x* shrinks by rho in every round, for all functions of the classes.

    Example: ownstep rate --method gradient_tracking --network spectral:-0.9:0.9 --step 0.0044 --json
    """
    from ownstep import pep
    from ownstep.pep.networks.spectral import parse_network

    devices = read_devices(L, mu, weights, count)
    options = {"step": step, "order": order, "momentum": momentum, "switch": switch, "local_steps": local_steps}
    chosen = named_method(method, options)
    spectral = None if network is None else parse_network(network)
    found = pep.rate(chosen, devices, network=spectral, memory=memory)
    ball = None if rstar is None else pep.neighbourhood(chosen, devices, rstar, network=spectral, memory=memory)
    proved = None if certify is None else found.certify(certify)
    if as_json:
        told = {"method": method, "network": network, "devices": len(devices)} | found.to_dict()
        told |= {} if ball is None else {"radius": ball.radius, "radius_lower": ball.lower, "rstar": rstar}
        emit(told | ({} if proved is None else {"certified": proved.to_dict()}))
        return
    typer.echo(f"{method}: the distance shrinks by {found.rho:.7g} per round (on a quadratic by {found.lower:.7g})")
    if ball is not None:
        typer.echo(f"it ends within {ball.radius:.7g} of x* (an instance: {ball.lower:.7g})")
    console().print(found.status, style="dim")
    if proved is not None:
        typer.echo(f"certified: {proved.statement}\nwritten: {certify}")
