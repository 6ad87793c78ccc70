"""What can go wrong, by kind: the command line turns :class:`InvalidInput` into exit code 2, all else into 1."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches


class OwnstepError(RuntimeError):
    """Every error that ownstep raises on purpose: catch this one to catch them all."""


class InvalidInput(OwnstepError, ValueError):
    """The caller passed something that cannot be used; the message quotes it and says what is allowed."""


class InternalError(RuntimeError):
    """Two results of this library contradict each other: a mistake of ours, not of the caller.

    It is no :class:`OwnstepError`, so that code which goes on after a failure does not go on after this.
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"this is a mistake in ownstep: {what}. Please report it, with the call that led here")


def unknown_name(kind: str, name: object, valid: Iterable[str], more: str = "") -> InvalidInput:
    """Error for a name nobody registered, with the nearest valid one; ``more`` is added at the end."""
    choices = sorted(valid)
    close = get_close_matches(str(name).replace("-", "_"), choices, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return InvalidInput(f"unknown {kind} {name!r}.{hint} Choose from: {', '.join(choices)}{more}")


def require_extra(module: str, extra: str) -> OwnstepError:
    """Error for an optional dependency that is not installed, naming the extra that brings it."""
    return OwnstepError(f"this needs {module!r}, which is not installed: pip install 'ownstep[{extra}]'")


def plain_text(text: object, limit: int = 300) -> str:
    """Text from elsewhere on one line of at most ``limit`` characters, without anything a terminal would act on.

    Control characters (escape sequences begin with one), line breaks and invisible format characters become spaces.
    """
    whole = str(text)
    start = whole[: 4 * limit]
    visible = "".join(c if unicodedata.category(c)[0] not in "CZ" else " " for c in start)
    line = " ".join(visible.split())
    cut = len(line) > limit or len(whole) > len(start)
    return f"{line[:limit].rstrip()} ... ({len(whole):,} characters)" if cut else line
