"""A short name for every configured method, and back: ``gd:matched``, ``lbfgs``, ``own_step:adaptive``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any

from ownstep.support.errors import InvalidInput, unknown_name

ALWAYS = {"gd": ("step",)}
"""Arguments that a key names even at their default."""
NAMED = ("weights",)
"""Arguments whose name a key always says, as they take any word until the devices are known."""


def key_of(method: Any, methods: dict[str, type]) -> str:
    """The method's name in METHODS, and after a colon every argument that is not its default.

    ``GD("matched")`` is ``gd:matched``; two arguments and more are written with their names,
    ``fedavg:client_step=mean,local_steps=4``, and so is a single number that is not the first argument.
    """
    names = [name for name, kind in methods.items() if type(method) is kind]
    name = names[0] if names else next((n for n, kind in methods.items() if isinstance(method, kind)), "")
    if not name:
        return repr(method)
    told = {}
    for f in fields(method):
        value = getattr(method, f.name)
        default = (
            f.default if f.default is not MISSING else f.default_factory() if callable(f.default_factory) else None
        )
        if f.init and (f.name in ALWAYS.get(name, ()) or not _same(value, default)):
            told[f.name] = value
    if not told:
        return name
    if len(told) == 1:
        ((field, value),) = told.items()
        if field not in NAMED and (isinstance(value, str) or field == fields(method)[0].name):
            return f"{name}:{_plain(value)}"
    return name + ":" + ",".join(f"{k}={_plain(v)}" for k, v in told.items())


def _same(value: Any, default: Any) -> bool:
    return value is default or repr(value) == repr(default)


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def method_of(key: str, methods: dict[str, type], switch: Callable[[str], Any]) -> Any:
    """The inverse of :func:`key_of`, with a switch in its command-line form: ``own_step:switch=at:5``."""
    name, _, told = key.partition(":")
    if name not in methods:
        raise unknown_name("method", name, methods)
    kind = methods[name]
    known = [f.name for f in fields(kind) if f.init]
    if not told:
        return kind()
    if "=" in told:
        said = [piece.split("=", 1) for piece in told.split(",") if "=" in piece]
        pairs = dict(said)
        if len(pairs) < len(said):
            raise InvalidInput(f"{key!r} says one argument twice")
        for field in pairs:
            if field not in known:
                raise unknown_name(f"argument of {name}", field, known)
        return kind(**{field: _read(field, text, switch) for field, text in pairs.items()})
    for field in (f for f in known if f not in NAMED):
        try:
            value = _read(field, told, switch)
            method = kind(**{field: value})
        except (InvalidInput, TypeError):
            continue
        if key_of(method, methods) in (key, name, f"{name}:{_plain(value)}", f"{name}:{field}={_plain(value)}"):
            return method
    raise InvalidInput(f"{key!r} is no method: no argument of {name} takes {told!r} ({', '.join(known)})")


def methods_of(text: str, methods: dict[str, type], switch: Callable[[str], Any]) -> dict[str, Any]:
    """Methods by their keys, from a list with commas: ``own_step,gd:tuned,fedavg:client_step=mean,local_steps=4``."""
    keys: list[str] = []
    for piece in text.split(","):
        if keys and "=" in piece and piece.partition(":")[0] not in methods:
            keys[-1] += "," + piece  # a further argument of the last method
        elif piece.strip():
            keys.append(piece.strip())
    if not keys:
        raise InvalidInput(f"name at least one method, got {text!r}")
    return {key: method_of(key, methods, switch) for key in keys}


def _read(field: str, text: str, switch: Callable[[str], Any]) -> Any:
    if field == "switch":
        return switch(text)
    if text in ("None", "True", "False"):
        return {"None": None, "True": True, "False": False}[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
