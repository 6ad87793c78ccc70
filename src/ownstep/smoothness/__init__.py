"""How curved each device's loss is; every result says what kind of number it is and how it was got.

``spectrum`` measures linear models from their rows, ``hessian`` and ``sampled`` measure networks; the public names
stand in ``__init__.pyi``. May import from data, partition and problems.
"""

from typing import Any

from ownstep.smoothness.base import Smoothness
from ownstep.support.errors import unknown_name
from ownstep.support.lazy import attach

# The result type is needed everywhere, the solvers behind a measurement only when one is made.
__getattr__, __dir__, __all__ = attach(__name__, __file__)

MEASURES = ("auto", "exact", "trace", "differences", "power")
"""Every way to measure, by name."""


def measure(how: str, problem: Any) -> Smoothness:
    """Measure the smoothness constants of a problem by the named way."""
    if how not in MEASURES:
        raise unknown_name("smoothness", how, MEASURES)
    rows_are_tensors = hasattr(problem, "table") and hasattr(problem, "device")
    if rows_are_tensors and how in ("auto", "exact"):
        from ownstep.smoothness.spectrum_tensors import exact

        return exact(problem)
    result: Smoothness = __getattr__(how)(problem)
    return result


__all__ += ["MEASURES", "measure"]
