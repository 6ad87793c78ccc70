"""How curved each device's loss is; every result says what kind of number it is and how it was got."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ownstep.errors import unknown_name
from ownstep.smoothness.base import Kind, Smoothness

if TYPE_CHECKING:
    from ownstep.smoothness.spectrum import exact, trace

MEASURES = {"exact": "spectrum", "trace": "spectrum"}
"""Every way to measure, by name, and the module of this package that holds it."""


def measure(how: str, problem: Any) -> Smoothness:
    """Measure the smoothness constants of a problem by the named way."""
    if how not in MEASURES:
        raise unknown_name("smoothness", how, MEASURES)
    result: Smoothness = __getattr__(how)(problem)
    return result


def __getattr__(name: str) -> Any:
    # The result type is needed everywhere, the solvers behind a measurement only when one is made.
    if name in MEASURES:
        return getattr(import_module(f"ownstep.smoothness.{MEASURES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["MEASURES", "Kind", "Smoothness", "exact", "measure", "trace"]
