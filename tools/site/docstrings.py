"""Lets the reference read the library's docstrings: ``name : what it is``, as types stand in the signatures alone."""

from __future__ import annotations

import re
from typing import Any

import griffe

ENTRY = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*) : (.+)$")
TYPE = re.compile(r"^(?:int|float|str|bool|dict|list|tuple|Path|[A-Z]\w*)(?:[\[\]|,. \w]*)?(?:, optional)?$")


class OwnDocstrings(griffe.Extension):
    """Moves what follows the colon into the description, where it is no type."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = plain(obj.docstring.value)


def plain(text: str) -> str:
    """The docstring with ``name`` and, indented below it, what it is."""
    out, inside, lines = [], False, text.splitlines()
    for i, line in enumerate(lines):
        below = lines[i + 1] if i + 1 < len(lines) else ""
        if set(below.strip()) == {"-"}:
            inside = line.strip() in ("Parameters", "Attributes")
        entry = ENTRY.match(line) if inside else None
        if entry and not (TYPE.match(entry[2]) and below.startswith("    ")):
            out += [entry[1], f"    {entry[2]}"]
        else:
            out.append(line)
    return "\n".join(out)
