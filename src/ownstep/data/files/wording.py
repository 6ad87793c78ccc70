"""How an option is written for whoever reads a message: ``label=`` in Python, ``--label`` on the command line."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

LISTS = ("categories", "ignore")
"""Options that take several columns."""
_flags: ContextVar[bool] = ContextVar("flags", default=False)


@contextmanager
def flags() -> Iterator[None]:
    """Write options as the command line does, as long as this is open."""
    before = _flags.set(True)
    try:
        yield
    finally:
        _flags.reset(before)


def in_one_word(values: Iterable[str]) -> str:
    r"""Several names as the command line takes them: separated by commas, those with a comma in double quotes.

    >>> in_one_word(["age", "height, cm"])
    '\'age,"height, cm"\''
    """
    return shlex.quote(",".join(f'"{value}"' if "," in value else value for value in values))


def option(name: str, value: str | tuple[str, ...] | None = None) -> str:
    """An option of :func:`ownstep.load`, with its value where there is one.

    >>> option("label", "ill"), option("ignore", "age"), option("missing")
    ("label='ill'", "ignore=['age']", 'missing=')
    >>> with flags():
    ...     option("label", "ill"), option("ignore", ("age", "dose")), option("missing")
    ('--label ill', '--ignore age,dose', '--missing')
    """
    values = () if value is None else (value,) if isinstance(value, str) else value
    if _flags.get():
        return f"--{name}" + (f" {in_one_word(values) if name in LISTS else shlex.quote(values[0])}" if values else "")
    shown = f"{list(values)!r}" if name in LISTS else f"{values[0]!r}" if values else ""
    return f"{name}={shown if values else ''}"
