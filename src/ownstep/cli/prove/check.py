"""``ownstep check``: is a certificate a proof, and of what?"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ownstep.cli.options import Json
from ownstep.cli.prove.any_method import named_method
from ownstep.cli.prove.pep import read_losses, read_method
from ownstep.cli.prove.show_tuned import read_design
from ownstep.cli.prove.tune import read_schedule
from ownstep.cli.terminal import emit
from ownstep.support.errors import InvalidInput, OwnstepError

if TYPE_CHECKING:
    from ownstep.methods import Method
    from ownstep.pep import Lipschitz, Spectral
    from ownstep.plan import Devices

MALFORMED = (ValueError, KeyError, IndexError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What the standalone checker raises: ValueError where it refuses, the others where a file is no certificate."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Check a proof in exact fractions.")(check)


@dataclass(frozen=True, eq=False)
class Meant:
    """The setting that a proof is compared with."""

    devices: Devices | Lipschitz
    method: Method
    network: Spectral | None
    rounds: int
    r0: float
    rstar: float
    metric: str


def check(
    certificate: Annotated[Path, typer.Argument(help="What --certify of ownstep pep, tune or rate wrote.")],
    L: Annotated[str | None, typer.Option("--L", help="Is it a proof for devices of this smoothness?")] = None,
    mu: Annotated[str | None, typer.Option(help="As for ownstep pep or rate, and with the same default.")] = None,
    weights: Annotated[str | None, typer.Option(help="As for ownstep pep.")] = None,
    count: Annotated[str | None, typer.Option(help="As for ownstep pep.")] = None,
    rounds: Annotated[int | None, typer.Option(help="As for ownstep pep; a rate is for every number of them.")] = None,
    switch: Annotated[str | None, typer.Option(help="A number as for ownstep pep, or never or at:0 for rate.")] = None,
    momentum: Annotated[str | None, typer.Option(help="As for ownstep pep, or for rate.")] = None,
    schedule: Annotated[
        Path | None, typer.Option(help="The method is that of this file, which --out of ownstep tune wrote.")
    ] = None,
    r0: Annotated[float | None, typer.Option(help="As for ownstep pep, and with the same default.")] = None,
    rstar: Annotated[float | None, typer.Option(help="As for ownstep pep, and with the same default.")] = None,
    metric: Annotated[str | None, typer.Option(help="As for ownstep pep, and with the same default.")] = None,
    method: Annotated[str | None, typer.Option(help="As for ownstep pep or rate: Algorithm 1 without it.")] = None,
    network: Annotated[str | None, typer.Option(help="As for ownstep pep or rate, with --method.")] = None,
    step: Annotated[str | None, typer.Option(help="As for ownstep pep or rate, with --method.")] = None,
    order: Annotated[str | None, typer.Option(help="As for ownstep pep or rate, with --method.")] = None,
    local_steps: Annotated[int | None, typer.Option(help="As for ownstep pep or rate, with --method.")] = None,
    lipschitz: Annotated[str | None, typer.Option(help="In place of --L, as for ownstep pep.")] = None,
    as_json: Json = False,
) -> None:
    """Check a certified worst case or rate in exact arithmetic, trusting neither the solver nor this library.

    With --L, or --lipschitz, and the other options of ownstep pep or rate it also compares: is the proof of the
    statement that these options make? The exit code is 1 if it is not.

    The checker is one file, src/ownstep/pep/proof/check.py, and runs on its own too: python check.py out.json. The same
    folder has check_network.py for networks, check_worst.py for worst devices and means, check_subgradients.py for
    losses that are only convex, and check_rate.py for rates.

    Example: ownstep check out.json --L 0.5,1.5 --mu 0.1 --rounds 4 --switch 2 --rstar 0.1
    """
    from ownstep.pep.proof.certify import rounded_up
    from ownstep.pep.proof.check_rate import FORMAT as RATE

    options: dict[str, Any] = {"step": step, "order": order, "local_steps": local_steps}
    options |= {"switch": switch, "momentum": momentum}
    radii = (1.0 if r0 is None else r0, 0.0 if rstar is None else rstar)
    compared = L is not None or lipschitz is not None
    other = (count, weights, mu, rounds, r0, rstar, metric, schedule, method, network, *options.values())
    if not compared and any(one is not None for one in other):
        raise InvalidInput("to compare the proof with a setting, give its devices by --L or --lipschitz")
    data, bound, words = _proved(certificate)
    apart = None
    if compared:
        usual = "0.1" if data["format"] == RATE and lipschitz is None else "0"
        devices = read_losses(L, mu or usual, weights, count, lipschitz, method)
        chosen = _method(method, network, schedule, options)
        apart = _compared(data, Meant(devices, *chosen, 10 if rounds is None else rounds, *radii, metric or "value"))
    if as_json:
        told: dict[str, Any] = {"proved": True, "bound": str(bound), "upper": rounded_up(bound), "statement": words}
        emit(told | ({} if apart is None else {"is_of_the_setting": not apart, "differences": apart}))
    else:
        same = "steps" if data["format"] == RATE else "steps, points, radii and metric"
        said = [f"the proof is of the setting given: same devices, {same}"] if apart == [] else []
        typer.echo("\n".join([f"proved: {words}", f"exactly: {bound}", *said]))
    if apart:
        raise OwnstepError(f"the proof is of something else: {'; '.join(apart)}")


def _method(
    name: str | None, network: str | None, schedule: Path | None, options: dict[str, Any]
) -> tuple[Method, Spectral | None]:
    """The method of the command line, and its class of networks."""
    from ownstep.pep.networks.spectral import parse_network

    spectral = None if network is None else parse_network(network)
    if schedule is not None:
        return (read_schedule(schedule), None) if spectral is None else read_design(schedule, spectral)
    if name is not None or spectral is not None:
        return named_method(name, options), spectral
    for flag in ("step", "order", "local_steps"):
        if options[flag] is not None:
            raise InvalidInput(f"--{flag.replace('_', '-')} is for --method: Algorithm 1 has none")
    switch = options["switch"]
    if switch is not None and not switch.isdigit():
        raise InvalidInput(f"--switch is a number of rounds for Algorithm 1, got {switch!r}")
    return read_method(None if switch is None else int(switch), options["momentum"]), None


def _compared(data: Any, meant: Meant) -> list[str]:
    """In what the statement differs from the one that the setting makes."""
    from ownstep.methods.gossip.peers import Peers
    from ownstep.pep import Lipschitz
    from ownstep.pep.networks.network_bound import question
    from ownstep.pep.networks.network_proof import restate_network
    from ownstep.pep.proof import check_network, check_rate, check_subgradients, check_worst
    from ownstep.pep.proof.certify import differences, restate
    from ownstep.pep.proof.compare_statements import differences_of
    from ownstep.pep.rates.rate_proof import restate_rate
    from ownstep.pep.trace.symbolic import works_locally

    statement, setting = data["statement"], (meant.rounds, meant.r0, meant.rstar, meant.metric)
    if data["format"] == check_worst.MEAN:
        return ["the proof is of a mean over schedules, and these options are of one run"]
    if data["format"] == check_rate.FORMAT:
        if isinstance(meant.devices, Lipschitz):
            return ["the proof is of a rate, which only smooth losses have"]
        return differences_of(statement, restate_rate(meant.method, meant.devices, meant.network))
    devices = meant.devices
    proved, steep = any("subgradients" in device for device in statement["devices"]), isinstance(devices, Lipschitz)
    if steep != proved:
        losses = ("smooth losses", "losses that are only convex, with bounded subgradients")
        return [f"the proof is for {losses[proved]}, and {losses[steep]} were asked"]
    apart = meant.network is not None or isinstance(meant.method, Peers)
    wide = apart or isinstance(devices, Lipschitz) or works_locally(meant.method, devices)
    if wide != (data["format"] in (check_network.FORMAT, check_subgradients.FORMAT, *check_worst.CHECKS)):
        kinds = ("over networks or with local steps", "with a server and no local steps")
        mine, asked = kinds if not wide else kinds[::-1]
        return [f"the proof is of a method {mine}, one {asked} was asked"]
    if wide or isinstance(devices, Lipschitz):
        asked_for = question(meant.method, devices, *setting, meant.network, None, None, "rescale")
        return differences_of(statement, restate_network(asked_for))
    return differences(statement, restate(meant.method, devices, *setting))


def _proved(certificate: Path) -> tuple[Any, Fraction, str]:
    """The certificate, the bound that the checker of its format accepts, and what it states."""
    from ownstep.pep.proof import check as check_server
    from ownstep.pep.proof import check_network, check_rate, check_subgradients, check_worst

    try:
        data = check_server.read(str(certificate))
        form = data.get("format") if isinstance(data, dict) else None
        others: dict[Any, Any] = {one.FORMAT: one for one in (check_network, check_rate, check_subgradients)}
        others |= dict.fromkeys(check_worst.CHECKS, check_worst)
        checker = others.get(form, check_server)
        return data, checker.check(data), checker.describe(data)
    except OSError as error:
        raise InvalidInput(f"cannot read {str(certificate)!r}: {error}") from error
    except MALFORMED as error:
        why = str(error) if type(error) is ValueError else f"it is no certificate ({type(error).__name__}: {error})"
        raise OwnstepError(f"refused: {why}") from error
