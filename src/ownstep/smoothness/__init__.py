"""How curved each device's loss is; every result says what kind of number it is and how it was got."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ownstep.errors import unknown_name
from ownstep.lazy import lazily
from ownstep.smoothness.base import Kind, Smoothness

if TYPE_CHECKING:
    from ownstep.smoothness.sampled import Region, Sampled, differences
    from ownstep.smoothness.hessian import Curvature, Snapshots, along, power
    from ownstep.smoothness.spectrum import exact, trace

MEASURES = {"exact": "spectrum", "trace": "spectrum", "differences": "sampled", "power": "hessian"}
"""Every way to measure, by name, and the module of this package that holds it."""


def measure(how: str, problem: Any) -> Smoothness:
    """Measure the smoothness constants of a problem by the named way."""
    if how not in MEASURES:
        raise unknown_name("smoothness", how, MEASURES)
    result: Smoothness = __getattr__(how)(problem)
    return result


_MORE = {
    "Region": "sampled",
    "Sampled": "sampled",
    "Curvature": "hessian",
    "Snapshots": "hessian",
    "along": "hessian",
}

# The result type is needed everywhere, the solvers behind a measurement only when one is made.
__getattr__ = lazily(__name__, MEASURES | _MORE)

__all__ = [
    "MEASURES",
    "Curvature",
    "Kind",
    "Region",
    "Sampled",
    "Smoothness",
    "Snapshots",
    "along",
    "differences",
    "exact",
    "measure",
    "power",
    "trace",
]
