"""What ``ownstep tune`` shows of a design, and ``--network``: steps and mixing weights for every network of a class."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from ownstep.cli.prove.any_method import Asked, named_method
from ownstep.cli.terminal import console, emit, write_report
from ownstep.methods.gossip.peers import Peers
from ownstep.support.errors import InvalidInput
from ownstep.support.progress import Bar

if TYPE_CHECKING:
    from ownstep.pep import Bound, Certified, Spectral, Tuned, TunedNetwork


def show_tuned(
    asked: Asked,
    name: str | None,
    network: str | None,
    order: str | None,
    what: str,
    limits: tuple[float, float | None],
    compare: bool,
    certify: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Design, and print the steps beside the worst cases of the method's named steps."""
    from ownstep import pep
    from ownstep.pep.networks.spectral import parse_network

    if network is None:
        raise InvalidInput("tune designs steps for given devices: leave out --method, or give --network too")
    spectral, method = parse_network(network), named_method(name, {"order": order})
    if not isinstance(method, Peers):
        raise InvalidInput(f"{name} works without a network: leave out --network and --method")
    setting = (asked.rounds, asked.r0, asked.rstar, asked.metric)
    began, (effort, patience) = time.monotonic(), limits
    with Bar("designing", max(int(patience), 1) if patience else 1) as bar:
        found = pep.tune_network(
            method,
            asked.devices,
            *setting,
            what,
            network=spectral,
            effort=effort,
            patience=patience,
            progress=lambda best, doing: bar.update(int(time.monotonic() - began), f"best {best:.6g}, {doing}"),
        )
    proved = None if certify is None else found.bound.certify(certify)
    rivals = _named(method, asked, spectral) if compare else {}
    report: dict[str, Any] = {"method": name, "order": order, "network": network, "devices": len(asked.devices)}
    report |= {"rounds": asked.rounds, "r0": asked.r0, "rstar": asked.rstar, "metric": asked.metric}
    tell(report | found.to_dict(), rivals, proved, lambda: _show(found, rivals), certify, out, as_json)


def read_design(path: Path, network: Spectral) -> tuple[Peers, Spectral]:
    """The method of a file that ``--out`` wrote with ``--network``, and the class that its mixing weights make."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        method = named_method(told["method"], {"order": told["order"]})
        step, theta = told["step"], float(told["theta"])
        steps = tuple(map(float, step)) if isinstance(step, list) else float(step)
        return replace(method, step=steps), network.lazier(theta)  # type: ignore[type-var, return-value]
    except OSError as error:
        raise InvalidInput(f"cannot read {str(path)!r}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{str(path)!r} holds no design ({type(error).__name__}: {error})") from error


def tell(
    report: dict[str, Any],
    rivals: dict[str, Bound],
    proved: Certified | None,
    show: Callable[[], None],
    certify: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Write a design's report where asked for, and print it, as json or by ``show``."""
    report |= {"rivals": {name: {"lower": b.lower, "upper": b.upper} for name, b in rivals.items()}}
    report |= {} if proved is None else {"certified": proved.to_dict()}
    if out is not None:
        write_report(report, out)
    if as_json:
        emit(report)
        return
    show()
    if proved is not None:
        typer.echo(f"certified: {proved}\nwritten: {certify}")
    if out is not None:
        typer.echo(f"written: {out}")


def table(first: str, found: Tuned | TunedNetwork, rivals: dict[str, Bound]) -> Table:
    """The design's worst case, and how many times as large those of its rivals are."""
    rows = Table(first, "worst case", "over the design's", box=None, header_style="bold")
    rows.add_row(f"designed ({found.what})", f"{found.bound.upper:.7g}", "1")
    for name, bound in sorted(rivals.items(), key=lambda item: item[1].upper):
        rows.add_row(name, f"{bound.upper:.7g}", f"{bound.upper / found.bound.upper:.4g}")
    return rows


def _named(method: Peers, asked: Asked, network: Spectral) -> dict[str, Bound]:
    """Worst cases of the same method with each step it knows by name."""
    from ownstep.pep import worst_case

    setting = (asked.rounds, asked.r0, asked.rstar, asked.metric)
    return {
        f"step {step!r}": worst_case(replace(method, step=step), asked.devices, *setting, network=network)
        for step in method.steps_allowed
    }


def _show(found: TunedNetwork, rivals: dict[str, Bound]) -> None:
    steps = found.method.step if isinstance(found.method.step, tuple) else (found.method.step,)
    shown = ", ".join(f"{float(a):.5g}" for a in steps[:8]) + (", ..." if len(steps) > 8 else "")
    typer.echo(f"step: {shown}")
    if found.theta < 1:
        typer.echo(f"mixing: {1 - found.theta:.4g} I + {found.theta:.4g} W")
    console().print(table("steps", found, rivals))
    console().print(
        f"best of {len(found.starts)} descents; {found.stopped}; {found.evaluations} worst cases, "
        f"{found.seconds:.0f} s; enclosed to a relative {found.bound.gap:.1e}",
        style="dim",
    )
