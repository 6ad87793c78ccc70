"""The command line. One module per command; bad usage exits with 2, a failure with 1, Ctrl-C with 130.

``learn/`` works on data, ``prove/`` on worst cases, ``show/`` on the paper; ``options`` and ``choose`` turn words into
objects for all of them, ``terminal`` shows what came out. May import from every folder; nothing imports from here.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

import ownstep
from ownstep.cli import federate
from ownstep.cli.learn import data, demo, fit, plan, run, train
from ownstep.cli.plain import App
from ownstep.cli.prove import check, pep, rate, tune
from ownstep.cli.show import paper, report
from ownstep.data.files import wording
from ownstep.engines.cluster import torchrun
from ownstep.support.errors import InternalError, InvalidInput, OwnstepError

app = App(
    name="ownstep",
    help="Fit models to data that is split over devices, compare methods fairly, and prove their worst cases.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (demo, data, plan, fit, run, train, federate, pep, rate, tune, check, paper, report):
    module.register(app)
INTERRUPTED = 130
"""Exit code after Ctrl-C; typer turns the interrupt into it."""


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ownstep {ownstep.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main(arguments: list[str] | None = None) -> None:
    """Entry point: runs a command and turns errors into one clear line and an exit code."""
    try:
        with wording.flags():
            app(args=arguments)
    except InvalidInput as error:
        _fail(error, 2)
    except (OwnstepError, InternalError) as error:
        _fail(error, 1)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            if torchrun.first():
                print(
                    "ownstep: interrupted; a run with --checkpoint or an experiment goes on when started again",
                    file=sys.stderr,
                )
            if torchrun.restarts():  # any other code is a failure to torchrun, and undoes the stop by starting again
                sys.exit(0)
        raise
    except BrokenPipeError:  # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _fail(error: Exception, code: int) -> None:
    rank = os.environ.get("RANK")
    print(f"ownstep{'' if rank is None else f' (rank {rank})'}: {error}", file=sys.stderr)
    sys.exit(code)
