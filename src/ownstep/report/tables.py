"""Tables out of a result: every list of records in it that is called ``rows``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ownstep.report.charts import HIDDEN, flatten, pointer_to, title_of, words

MOST = 60
"""Rows of one table that a page shows; the others are in the file it links to."""


@dataclass(frozen=True)
class Table:
    """Rows of a result, as they are; ``left_out`` more are not shown."""

    title: str
    pointer: str
    columns: list[str]
    rows: list[list[Any]]
    left_out: int = 0


def tables(result: Any) -> list[Table]:
    """Every list called ``rows`` whose rows are records, as a table."""
    return [t for t in _tables(result, ()) if t.rows]


def _tables(node: Any, path: tuple[str, ...]) -> Iterator[Table]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key == "rows" and isinstance(value, list) and value and all(isinstance(r, Mapping) for r in value):
                flat = [dict(flatten(row)) for row in value]
                names = [k for k in dict.fromkeys(k for row in flat for k in row) if k.split(".")[-1] not in HIDDEN]
                names = [k for k in names if any(row.get(k) is not None for row in flat)][:10]
                yield Table(
                    title_of(path), pointer_to((*path, key)), [words(k) for k in names],
                    [[row.get(k) for k in names] for row in flat[:MOST]], max(0, len(flat) - MOST),
                )  # fmt: skip
            else:
                yield from _tables(value, (*path, str(key)))
