"""Lets the reference read the library's docstrings: ``name : what it is``, and Sphinx roles as links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from typing import Any

import griffe

ENTRY = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*) : (.+)$")
TYPE = re.compile(r"^(?:int|float|str|bool|dict|list|tuple|Path|[A-Z]\w*)(?:[\[\]|,. \w]*)?(?:, optional)?$")
ROLE = re.compile(r":(?:py:)?(?:class|func|data|meth|mod|attr|exc|obj|const):`([^`]+)`")


class OwnDocstrings(griffe.Extension):
    """Rewrites every docstring of the package once all of it is read, as a link may point to any module."""

    def on_package(self, *, pkg: Any, **_: Any) -> None:
        """Rewrite the docstrings of a package."""
        for obj in below(pkg):
            if obj.docstring is not None:
                obj.docstring.value = linked(plain(obj.docstring.value), obj)


def below(obj: Any) -> Iterator[Any]:
    """An object and those it defines; what it imports is met where it is defined."""
    yield obj
    for member in obj.members.values():
        if not member.is_alias:
            yield from below(member)


def plain(text: str) -> str:
    """The docstring with ``name`` and, indented below it, what it is; types stand in the signatures alone.

    Names that share a description are written one by one: each has its own type in the signature.
    """
    out, inside, lines, at = [], False, text.splitlines(), 0
    while at < len(lines):
        line, below = lines[at], lines[at + 1] if at + 1 < len(lines) else ""
        at += 1
        if set(below.strip()) == {"-"}:
            inside = line.strip() in ("Parameters", "Attributes")
        entry = ENTRY.match(line) if inside else None
        if entry and not (TYPE.match(entry[2]) and below.startswith("    ")):
            more = []
            while at < len(lines) and lines[at].startswith("    "):
                more.append(lines[at])
                at += 1
            for name in entry[1].split(", "):
                out += [name, f"    {entry[2]}", *more]
        else:
            out.append(line)
    return "\n".join(out)


def linked(text: str, obj: Any) -> str:
    """The docstring with roles as code; it becomes a link where the reference shows the target."""

    def link(role: re.Match[str]) -> str:
        name = role[1].removeprefix("~").lstrip(".")
        shown = name.rpartition(".")[2] if role[1].startswith(("~", ".")) else name
        return f'<autoref optional identifier="{escape(target(name, obj))}"><code>{escape(shown)}</code></autoref>'

    return ROLE.sub(link, text)


def target(name: str, obj: Any) -> str:
    """Where a name of a docstring is defined: as the object's module sees it, or by its full path."""
    try:
        first, dot, rest = name.partition(".")
        path = name if first == "ownstep" else obj.resolve(first) + dot + rest
        found = obj.modules_collection.get_member(path)
        return str(found.target.path if found.is_alias else found.path)
    except (griffe.NameResolutionError, griffe.AliasResolutionError, griffe.CyclicAliasError, KeyError):
        return name
