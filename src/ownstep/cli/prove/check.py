"""``ownstep check``: is a certificate a proof?"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer

from ownstep.cli.common import Json, emit
from ownstep.cli.prove.pep import read_devices, read_method
from ownstep.cli.prove.tune import read_schedule
from ownstep.support.errors import InvalidInput, OwnstepError

MALFORMED = (ValueError, KeyError, IndexError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What the standalone checker raises: ValueError where it refuses, the others where a file is no certificate."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(check)


def check(
    certificate: Annotated[Path, typer.Argument(help="What --certify of ownstep pep, tune or rate wrote.")],
    L: Annotated[str | None, typer.Option("--L", help="Is it a proof for devices of this smoothness?")] = None,
    mu: Annotated[str, typer.Option(help="As for ownstep pep.")] = "0",
    weights: Annotated[str | None, typer.Option(help="As for ownstep pep.")] = None,
    count: Annotated[str | None, typer.Option(help="As for ownstep pep.")] = None,
    rounds: Annotated[int, typer.Option(help="As for ownstep pep.")] = 10,
    switch: Annotated[int | None, typer.Option(help="As for ownstep pep.")] = None,
    momentum: Annotated[str | None, typer.Option(help="As for ownstep pep.")] = None,
    schedule: Annotated[
        Path | None, typer.Option(help="The method is that of this file, which --out of ownstep tune wrote.")
    ] = None,
    r0: Annotated[float, typer.Option(help="As for ownstep pep.")] = 1.0,
    rstar: Annotated[float, typer.Option(help="As for ownstep pep.")] = 0.0,
    metric: Annotated[str, typer.Option(help="As for ownstep pep.")] = "value",
    as_json: Json = False,
) -> None:
    """Check a certified worst case in exact arithmetic, trusting neither the solver nor this library.

    With --L, and the other options of ownstep pep, it also writes down what those options state, from the method
    itself, and says whether the proof is of that: exit code 1 if not.

    The checker is one file, src/ownstep/pep/proof/check.py, and runs on its own too: python check.py out.json. Beside
    it are check_network.py for networks and local steps, and check_rate.py for rates.

    Example: ownstep check out.json --L 0.5,1.5 --mu 0.1 --rounds 4 --switch 2 --rstar 0.1
    """
    from ownstep.pep.proof.certify import differences, restate, rounded_up
    from ownstep.pep.proof.check import FORMAT

    meant = None
    if L is not None:
        devices = read_devices(L, mu, weights, count)
        method = read_method(switch, momentum) if schedule is None else read_schedule(schedule)
        meant = restate(method, devices, rounds, r0, rstar, metric)
    elif schedule is not None or (count, weights, switch, momentum) != (None,) * 4:
        raise InvalidInput("to compare the proof with a setting, give its devices by --L")
    data, bound, words = _proved(certificate)
    if meant is not None and data["format"] != FORMAT:
        raise OwnstepError(
            "the proof is over networks, with local steps or of a rate: read its statement, leave out --L"
        )
    apart = None if meant is None else differences(data["statement"], meant)
    if as_json:
        told: dict[str, Any] = {"proved": True, "bound": str(bound), "upper": rounded_up(bound), "statement": words}
        emit(told | ({} if apart is None else {"is_of_the_setting": not apart, "differences": apart}))
    else:
        typer.echo(f"proved: {words}")
        typer.echo(f"exactly: {bound}")
        if apart == []:
            typer.echo("the proof is of the setting given: same devices, steps, points, radii and metric")
    if apart:
        raise OwnstepError(f"the proof is of something else: {'; '.join(apart)}")


def _proved(certificate: Path) -> tuple[Any, Fraction, str]:
    """The certificate, the bound that the checker of its format accepts, and what it states."""
    from ownstep.pep.networks.network_proof import describe_network
    from ownstep.pep.proof import check_network, check_rate
    from ownstep.pep.proof.check import check as prove
    from ownstep.pep.proof.check import describe, read
    from ownstep.pep.rates.rate_proof import describe_rate

    try:
        data = read(str(certificate))
        form = data.get("format") if isinstance(data, dict) else None
        if form == check_network.FORMAT:
            return data, check_network.check(data), describe_network(data)
        if form == check_rate.FORMAT:
            return data, check_rate.check(data), describe_rate(data)
        return data, prove(data), describe(data)
    except OSError as error:
        raise OwnstepError(f"cannot read {str(certificate)!r}: {error}") from error
    except MALFORMED as error:
        why = str(error) if type(error) is ValueError else f"it is no certificate ({type(error).__name__}: {error})"
        raise OwnstepError(f"refused: {why}") from error
