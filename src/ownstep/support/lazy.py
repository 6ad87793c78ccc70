"""Public names that are imported when first used, listed once, in the package's stub file.

``__init__.pyi`` beside a package's ``__init__.py`` is its one list of public names: type checkers and editors read
it as it is, and :func:`attach` reads from it which submodule holds which name (what ``lazy_loader.attach_stub``
does, with an error that names our extras). :func:`keep_old_names` lets a module that has moved be imported under
its old name.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from ownstep.support.errors import require_extra

EXTRAS = {
    "torch": "torch",
    "transformers": "torch",
    "safetensors": "torch",
    "flwr": "flower",
    "PEPit": "pepit",
    "pandas": "files",
}
"""Optional dependencies, and the extra that brings each."""


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` (PEP 562) of a package from the stub file beside ``file``.

    The stub holds ``from . import room`` for submodules and ``from .room import name`` for what is in them.
    """
    where = _listed(package, Path(file).with_suffix(".pyi"))

    def __getattr__(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, attribute = where[name]
        try:
            found = import_module(module)
        except ModuleNotFoundError as error:
            if error.name in EXTRAS:
                raise require_extra(error.name, EXTRAS[error.name]) from error
            raise
        return found if attribute is None else getattr(found, attribute)

    return __getattr__, lambda: sorted([*vars(sys.modules[package]), *where]), list(where)


class LazyModule:
    """A module that is imported when something of it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


def _listed(package: str, stub: Path) -> dict[str, tuple[str, str | None]]:
    """For every public name of a stub, its module and its name there; None where the name is a submodule."""
    found: dict[str, tuple[str, str | None]] = {}
    for node in ast.parse(stub.read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            for name in node.names:
                if node.module is None:
                    found[name.name] = f"{package}.{name.name}", None
                else:
                    found[name.name] = f"{package}.{node.module}", name.name
    return found


class _OldNames(MetaPathFinder, Loader):
    """Finds modules under the names they had before they moved; both names are then one module."""

    def __init__(self, moved: Mapping[str, str]) -> None:
        self.moved = moved

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in self.moved else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return import_module(self.moved[spec.name])

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to run: the module was loaded under its new name."""


def keep_old_names(moved: Mapping[str, str]) -> None:
    """Let every key be imported as the module its value names."""
    sys.meta_path.append(_OldNames(moved))
