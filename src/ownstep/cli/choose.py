"""From words on the command line to a method and to who takes part."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from ownstep.engines import (
    MISSING,
    Limits,
    Missing,
    Participation,
    baselines,
    beyond,
    parse_budget,
    parse_participation,
    parse_wire,
    rivals,
    run,
)
from ownstep.engines.cluster import torchrun
from ownstep.history import History
from ownstep.methods import METHODS, Method, Schedule, methods_of, parse_switch
from ownstep.problems import LinearModel
from ownstep.support.checks import number
from ownstep.support.errors import InvalidInput, unknown_name

EXAMPLE = "run breast_cancer --devices 2 --rounds 500"
"""The command in :data:`ownstep.engines.cluster.torchrun.HOW`."""
NUMBER_OR_NAME = {"step", "client_step", "momentum"}


def choose_method(name: str, options: Mapping[str, Any]) -> Method:
    """The named method with the options that were given; for one it does not take, an error says who does."""
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    given = {key: value for key, value in options.items() if value is not None}
    for key, value in given.items():
        owners = [n for n, kind in METHODS.items() if key in {f.name for f in fields(kind)}]
        if name not in owners:
            flag = "--" + key.replace("_", "-")
            raise InvalidInput(f"{flag} {value} does not apply to {name}: it applies to {', '.join(owners)} only")
        if key in NUMBER_OR_NAME:
            given[key] = _number(value)
    if "switch" in given:
        given["switch"] = parse_switch(given["switch"])
    if METHODS[name] is Schedule:
        raise InvalidInput(
            "schedule takes its steps as an object: in Python, run(Schedule(scales=...), problem, rounds)"
        )
    method: Method = METHODS[name](**given)
    return method


GROUPS = {"baselines": baselines, "beyond": beyond, "rivals": rivals}
"""Methods that are raced together, by the name that --methods knows them under."""


def choose_methods(text: str | None, everyone: bool = True) -> dict[str, Method]:
    """The methods of a race, by label: keys and names of :data:`GROUPS` with commas; without any, the usual ones.

    Of a group, methods that need every device in every round are left out where somebody may be absent.
    """
    if text is None:
        return baselines() | beyond()
    chosen: dict[str, Method] = {}
    single: list[str] = []
    for piece in text.split(","):
        if piece.strip() in GROUPS:
            group = GROUPS[piece.strip()]()
            chosen |= {n: m for n, m in group.items() if everyone or not getattr(m, "needs_everyone", False)}
        else:
            single.append(piece)
    if single:
        chosen = methods_of(",".join(single), METHODS, parse_switch) | chosen
    return chosen


def choose_limits(budget: str | None, wire: str | None, patience: int | None) -> Limits | None:
    """What a run may spend, None for no limit."""
    network = None if wire is None else parse_wire(wire)
    if budget is not None:
        return parse_budget(budget, network, patience)
    if network is not None:
        raise InvalidInput(f"--wire {wire} turns rounds into seconds: give --budget seconds:600 with it")
    return None if patience is None else Limits(patience=patience)


def choose_participation(text: str, missing: str, seed: int) -> Participation | None:
    """Who takes part, None for everyone always."""
    return parse_participation(text, choose_missing(missing), seed)


def choose_missing(name: str) -> Missing:
    """The rule of that name for the share of those who are missing."""
    for rule in MISSING:
        if name == rule:
            return rule
    raise unknown_name("rule for missing shares", name, MISSING)


def choose_engine(name: str | None, example: str = EXAMPLE) -> str:
    """``local`` or ``cluster``; by default whichever this process was started for.

    ``example`` is the command, without ``ownstep``, that torchrun would have to start.
    """
    if name == "federation":
        raise InvalidInput(
            "the sites of a federation hold the data, so it is not run from here: ownstep federate init DIR writes an "
            "app that flwr run starts; ownstep demo --engine federation shows one"
        )
    if name not in (None, "local", "cluster"):
        raise unknown_name("engine", name, ["local", "cluster"])
    if name == "cluster" and not torchrun.started():
        raise InvalidInput(torchrun.HOW.replace(EXAMPLE, example))
    if name == "local" and torchrun.started():
        raise InvalidInput(
            f"--engine local under torchrun: all {os.environ['WORLD_SIZE']} ranks would do the same; start one without"
        )
    return name or ("cluster" if torchrun.started() else "local")


def checked_engine(name: str | None, deadline: float | None, example: str = EXAMPLE) -> str:
    """:func:`choose_engine`, once ``--deadline`` is known to apply to it."""
    engine = choose_engine(name, example)
    if deadline is not None:
        number("--deadline", deadline, above=0)
        if engine != "cluster":
            raise InvalidInput(f"--deadline {deadline:g} is for --engine cluster: no other engine waits for devices")
    return engine


def bring_to(engine: str, problem: LinearModel, deadline: float | None) -> tuple[Any, Callable[..., History]]:
    """(the problem, and who runs it); on a cluster what all ranks share, of which this one keeps its devices' data."""
    if engine == "local":
        return problem, run
    from ownstep.engines import cluster

    return cluster.deal(problem, deadline=deadline), cluster.run


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
