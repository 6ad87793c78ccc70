"""Who runs the demo's race: the same comparison on every engine that has the data."""

from __future__ import annotations

from typing import Any, Protocol

from ownstep.engines import Comparison, compare
from ownstep.problems import LinearModel
from ownstep.support.errors import unknown_name


class Race(Protocol):
    """:func:`ownstep.engines.compare`, or an engine's own form of it."""

    def __call__(self, problem: LinearModel, *, rounds: int, seed: int) -> Comparison:
        """Every baseline on one problem."""
        ...


def local(problem: LinearModel, *, rounds: int, seed: int) -> Comparison:
    """All devices in this process."""
    return compare(problem, rounds=rounds, seed=seed)


def cluster(problem: LinearModel, *, rounds: int, seed: int) -> Comparison:
    """Every rank keeps its own devices' data; all return the same comparison."""
    from ownstep.engines import cluster as engine

    shared: Any = engine.deal(problem)
    return compare(shared, rounds=rounds, seed=seed, engine=engine.run)


RACES: dict[str, Race] = {"local": local, "cluster": cluster}
"""Every engine by name. A new one is one function with this signature and one line here."""


def choose_race(name: str) -> Race:
    """The named engine's race."""
    if name not in RACES:
        raise unknown_name("engine", name, [*RACES, "federation"])
    return RACES[name]
