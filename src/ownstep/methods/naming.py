"""A short name for every configured method, and back: ``gd:matched``, ``lbfgs``, ``own_step:adaptive``."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

ALWAYS = {"gd": ("step",)}
"""Arguments that a key names even at their default."""


def key_of(method: Any, methods: dict[str, type]) -> str:
    """The method's name in METHODS, and after a colon every argument that is not its default.

    ``GD("matched")`` is ``gd:matched``; two arguments and more are written with their names,
    ``fedavg:client_step=mean,local_steps=4``.
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
        return f"{name}:{_plain(next(iter(told.values())))}"
    return name + ":" + ",".join(f"{k}={_plain(v)}" for k, v in told.items())


def _same(value: Any, default: Any) -> bool:
    return value is default or repr(value) == repr(default)


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
