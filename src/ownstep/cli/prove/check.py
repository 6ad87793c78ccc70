"""``ownstep check``: is a certificate a proof?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ownstep.cli.common import Json, emit
from ownstep.support.errors import OwnstepError

MALFORMED = (ValueError, KeyError, IndexError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What the standalone checker raises: ValueError where it refuses, the others where a file is no certificate."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(check)


def check(
    certificate: Annotated[Path, typer.Argument(help="What --certify of ownstep pep wrote.")],
    as_json: Json = False,
) -> None:
    """Check a certified worst case in exact arithmetic, trusting neither the solver nor this library.

    The checker is one file, src/ownstep/pep/proof/check.py, and runs on its own too: python check.py out.json

    Example: ownstep check out.json
    """
    from ownstep.pep.proof.certify import describe, rounded_up
    from ownstep.pep.proof.check import check as prove

    try:
        data = json.loads(certificate.read_text(encoding="utf-8"), object_pairs_hook=_once)
        bound, words = prove(data), describe(data)
    except OSError as error:
        raise OwnstepError(f"cannot read {str(certificate)!r}: {error}") from error
    except MALFORMED as error:
        why = str(error) if type(error) is ValueError else f"it is no certificate ({type(error).__name__}: {error})"
        raise OwnstepError(f"refused: {why}") from error
    if as_json:
        emit({"proved": True, "bound": str(bound), "upper": rounded_up(bound), "statement": words})
        return
    typer.echo(f"proved: {words}")
    typer.echo(f"exactly: {bound}")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """What is said twice can be read in two ways."""
    if len(told := dict(pairs)) < len(pairs):
        raise ValueError(f"a name stands twice among {[name for name, _ in pairs]}")
    return told
