"""Names that are imported when first used, so that nobody pays for a room he does not enter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from ownstep.errors import require_extra

EXTRAS = {"torch": "torch", "transformers": "torch", "safetensors": "torch", "flwr": "flower", "PEPit": "pepit"}
"""Optional dependencies, and the extra that brings each."""


def lazily(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """A module-level ``__getattr__`` (PEP 562): ``names`` maps each public name to the submodule that has it.

    A name that maps to itself with a leading dot, such as ``{"data": ".data"}``, is the submodule.
    """

    def __getattr__(name: str) -> Any:
        where = names.get(name)
        if where is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            if where.startswith("."):
                return import_module(package + where)
            return getattr(import_module(f"{package}.{where}"), name)
        except ModuleNotFoundError as error:
            if error.name in EXTRAS:
                raise require_extra(error.name, EXTRAS[error.name]) from error
            raise

    return __getattr__
