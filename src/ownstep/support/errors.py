"""What can go wrong, by kind: the command line turns the first into exit code 2 and the second into 1."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class InvalidInput(ValueError):
    """The caller passed something that cannot be used; the message quotes it and says what is allowed."""


class OwnstepError(RuntimeError):
    """Something outside the caller's arguments failed: a missing file, a damaged download, a failed solve."""


def unknown_name(kind: str, name: object, valid: Iterable[str], more: str = "") -> InvalidInput:
    """Error for a name nobody registered, with the nearest valid one; ``more`` is added at the end."""
    choices = sorted(valid)
    close = get_close_matches(str(name).replace("-", "_"), choices, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return InvalidInput(f"unknown {kind} {name!r}.{hint} Choose from: {', '.join(choices)}{more}")


def require_extra(module: str, extra: str) -> OwnstepError:
    """Error for an optional dependency that is not installed, naming the extra that brings it."""
    return OwnstepError(f"this needs {module!r}, which is not installed: pip install 'ownstep[{extra}]'")
