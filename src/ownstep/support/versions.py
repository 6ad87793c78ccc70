"""Which version of ownstep wrote a file, and whether this one can read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ownstep.support.errors import OwnstepError


def stamp(number: int) -> dict[str, Any]:
    """What every file says of itself: the number of its format, and who wrote it."""
    import ownstep

    return {"format": number, "written_by": f"ownstep {ownstep.__version__}"}


def check_format(header: Mapping[str, Any], newest: int, what: str) -> None:
    """Refuse a file of a format that came after this version; formats before it are read."""
    number = header.get("format", 1)
    if not isinstance(number, int) or number > newest:
        who = header.get("written_by", "another version of ownstep")
        raise OwnstepError(
            f"{what} was written by {who} in format {number!r}; this version reads formats up to {newest}: "
            "use the version that wrote it"
        )
