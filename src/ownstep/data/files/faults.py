"""Find the line that is wrong: slow and exact, and only used once something is known to be wrong."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from ownstep.data.files.stream import Place, opened
from ownstep.support.errors import InvalidInput


def undecodable(place: Place) -> InvalidInput:
    """The error for a text file that is not UTF-8: which line, which byte."""
    with opened(place, False) as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                byte = line[error.start]
                return InvalidInput(
                    f"{place.name!r}, line {number}: byte 0x{byte:02x} is not UTF-8; convert the file, "
                    "for example with iconv -f latin1 -t utf-8"
                )
    return InvalidInput(f"{place.name!r} is not UTF-8 text")


def records(place: Place, separator: str) -> Iterator[tuple[int, list[str]]]:
    """(line number, fields) of every line that is not blank, header included."""
    with opened(place, False) as file:
        reader = csv.reader(io.TextIOWrapper(file, "utf-8-sig", errors="replace", newline=""), delimiter=separator)
        for fields in reader:
            if fields:
                yield reader.line_num, fields


def ragged(place: Place, separator: str) -> InvalidInput | None:
    """The error for the first line that has not as many fields as the first; None if there is none."""
    width = 0
    for line, fields in records(place, separator):
        width = width or len(fields)
        if len(fields) != width:
            return InvalidInput(
                f"{place.name!r}, line {line}: {len(fields)} field{'s' * (len(fields) != 1)} where the first line has "
                f"{width}; {'complete' if len(fields) < width else 'shorten'} the line"
            )
    return None


def line_of(place: Place, separator: str, row: int, header: bool) -> int:
    """The line that the row of that index (from 0) stands in."""
    for at, (line, _) in enumerate(records(place, separator)):
        if at == row + header:
            return line
    return row + header + 1
