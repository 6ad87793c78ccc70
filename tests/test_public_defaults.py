"""What a call means that leaves an argument out: every default of a public name, in ``tests/public_defaults.txt``.

Scripts rely on them without naming them. Who changes one changes that file too, and says so in the changelog.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

ROOMS = (
    "data", "engines", "engines.cluster", "engines.federation", "glm", "history", "methods", "optim", "partition",
    "pep", "plan", "plots", "problems", "problems.network", "sklearn", "smoothness",
)  # fmt: skip
LISTED = Path(__file__).parent / "public_defaults.txt"


def defaults_of(name: str, thing: object) -> Iterator[str]:
    """One line, where there is a default that can be read."""
    try:
        parameters = inspect.signature(thing).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return
    plain = (type(None), bool, int, float, str, tuple)
    said = [f"{p.name}={p.default!r}" for p in parameters if isinstance(p.default, plain) and p.name[0] != "_"]
    if said:
        yield f"{name}({', '.join(said)})"


def found() -> Iterator[str]:
    for room in ROOMS:
        module = importlib.import_module(f"ownstep.{room}")
        for name in getattr(module, "__all__", vars(module)):
            thing = getattr(module, name)
            if not ours(name, thing, f"ownstep.{room}"):
                continue
            yield from defaults_of(f"{room}.{name}", thing)
            for key in vars(thing) if inspect.isclass(thing) else ():
                if ours(key, getattr(thing, key), "ownstep"):
                    yield from defaults_of(f"{room}.{name}.{key}", getattr(thing, key))


def ours(name: str, thing: object, room: str) -> bool:
    return name[0] != "_" and callable(thing) and str(getattr(thing, "__module__", "")).startswith(room)


def test_no_default_of_a_public_name_changes_unsaid():
    listed = LISTED.read_text().splitlines()
    here = list(found())
    assert len(listed) > 150
    assert here == listed
