"""Worst cases of any linear method from the command line, over a class of networks too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ownstep.cli.choose import choose_method
from ownstep.cli.terminal import console, emit
from ownstep.methods import GD, METHODS, Method
from ownstep.support.errors import InvalidInput

if TYPE_CHECKING:
    from ownstep.pep import Lipschitz
    from ownstep.plan import Devices


ALSO_CALLED = {"dgd": "decentralised_gd", "tracking": "gradient_tracking", "diging": "gradient_tracking"}
"""Short names of methods without a server, as the literature has them."""


@dataclass(frozen=True, eq=False)
class Asked:
    """What a worst case is asked about, but for the method."""

    devices: Devices | Lipschitz
    rounds: int
    r0: float
    rstar: float
    metric: str
    effort: float = 1.0
    patience: float | None = None


def refuse_with_method(options: Mapping[str, Any]) -> None:
    """Options of Algorithm 1 say nothing about another method."""
    for name, value in options.items():
        if value is not None:
            raise InvalidInput(f"--{name} is for Algorithm 1: leave it out, or leave out --method and --network")


def named_method(name: str | None, options: Mapping[str, Any]) -> Method:
    """The method of the command line; ``--step`` is its step, whatever it calls it.

    Over a whole class of functions, the smoothness of f that some methods go by is L_bar = sum_i w_i L_i: it is
    reached. And nobody sees a loss, so own steps never switch unless ``--switch`` says when.
    """
    if name is None:
        raise InvalidInput("--network needs --method: decentralised_gd, gradient_tracking, extra or nids")
    name, given = ALSO_CALLED.get(name, name), dict(options)
    if name in METHODS and "client_step" in {field.name for field in fields(METHODS[name])}:
        given["client_step"] = given.pop("step", None)
    if name == "own_step" and given.get("switch") is None:
        given["switch"] = "never"
    made: Any = choose_method(name, given)
    return replace(made, step="mean") if getattr(made, "step", None) == "true" else made  # type: ignore[no-any-return]


def show_method(
    asked: Asked, name: str | None, network: str | None, options: Mapping[str, Any], certify: Path | None, as_json: bool
) -> None:
    """Compute the worst case, and print it beside gradient descent's where there is one."""
    from ownstep.pep import Lipschitz, worst_case
    from ownstep.pep.networks.spectral import parse_network

    method = named_method(name, options)
    spectral = None if network is None else parse_network(network)
    setting = (asked.rounds, asked.r0, asked.rstar, asked.metric)
    limits: Any = {"effort": asked.effort, "patience": asked.patience}
    found = worst_case(method, asked.devices, *setting, network=spectral, **limits)
    proved = None if certify is None else found.certify(certify)
    told: dict[str, Any] = {"method": name, "network": network, "devices": len(asked.devices)} | found.to_dict()
    told["rstar"] = asked.rstar if math.isfinite(asked.rstar) else None
    told |= {"gain": None if isinstance(asked.devices, Lipschitz) else asked.devices.gain}
    if not isinstance(asked.devices, Lipschitz) and asked.metric in ("value", "distance", "gradient"):
        gd = worst_case(GD(), asked.devices, *setting)
        told |= {"gd": {"lower": gd.lower, "upper": gd.upper}, "ratio": found.upper / gd.upper if gd.upper else None}
    if proved is not None:
        told |= {"certified": proved.to_dict()}
    if as_json:
        emit(told)
        return
    typer.echo(f"{name}: worst case in [{found.lower:.9g}, {found.upper:.9g}] after {asked.rounds} rounds")
    if "gd" in told:
        typer.echo(f"gradient descent at 1/L_bar on a server: {told['gd']['upper']:.9g}")
    console().print(found.status, style="dim")
    if proved is not None:
        typer.echo(f"certified: {proved}\nwritten: {certify}")
