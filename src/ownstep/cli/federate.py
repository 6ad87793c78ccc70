"""``ownstep federate``: a Flower app for owners whose data stays where it is."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from ownstep.cli.options import Json
from ownstep.cli.plain import App
from ownstep.cli.terminal import emit
from ownstep.engines.federation.app import init
from ownstep.engines.federation.join import join

federate = App(help="Run a method between owners of data, on Flower.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(federate, name="federate")


@federate.callback()
def _group() -> None:
    """Both commands are words of their own."""


@federate.command("join", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def join_(context: typer.Context) -> None:
    """Join a federation as a site: flower-supernode with all its options, started again while it is refused.

    After a crash the SuperLink counts a site as present for a minute and refuses it; this waits until it is let in.

    Example: ownstep federate join --superlink coordinator.example.org:8000 --root-certificates ca.crt
    --auth-supernode-private-key site-1 --node-config 'site-file="/srv/ownstep/site.py"'
    """
    raise typer.Exit(join(context.args))


@federate.command("init")
def init_(
    folder: Annotated[Path, typer.Argument(help="New or empty folder; its name becomes the app's.")],
    sites: Annotated[int, typer.Option(min=1, help="How many sites the coordinator waits for.")] = 3,
    publisher: Annotated[str, typer.Option(help="Account under which Flower files the app.")] = "ownstep",
    as_json: Json = False,
) -> None:
    """Write a complete Flower app: server, client, a site.py for the owner's data, settings and a guide.

    Example: ownstep federate init hospitals --sites 3
    """
    written = init(folder, sites, publisher)
    if as_json:
        emit({"folder": str(folder), "files": [str(path) for path in written]})
        return
    for path in written:
        typer.echo(path)
    start = f"flwr run . --stream --federation-config 'num-supernodes={sites}'"
    typer.echo(f"next: cd {quote(str(folder))} && . ./env.sh && {start}")


@federate.command()
def doctor(
    superlink: Annotated[str | None, typer.Option(help="The coordinator's address, HOST:PORT.")] = None,
    ca: Annotated[Path | None, typer.Option(help="The coordinator's ca.crt.")] = None,
    key: Annotated[Path | None, typer.Option(help="This site's private key.")] = None,
    site_file: Annotated[Path | None, typer.Option(help="The file with open_site, which reads the data.")] = None,
    as_json: Json = False,
) -> None:
    """Check a site before its first run: versions, key, certificates, reachability, clock, data.

    What is not given is not looked at. Ends with 1 if anything is not well.

    Example: ownstep federate doctor --superlink coordinator.org:443 --ca ca.crt --key site-1 --site-file site.py
    """
    from ownstep.cli.doctor import examine

    checks = examine(superlink, ca, key, site_file)
    if as_json:
        emit([vars(check) for check in checks])
    else:
        for check in checks:
            typer.echo(f"{'ok  ' if check.well else 'FAIL'} {check.name}: {check.told}")
    if not all(check.well for check in checks):
        raise typer.Exit(1)
