"""Parquet files, piece by piece, with columns of the types that the rest of the room knows."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Any

from ownstep.data.files.stream import Place, opened
from ownstep.support.errors import InvalidInput, plain_text, require_extra

_ROW_NUMBERS = re.compile(r"__index_level_\d+__")
"""How pandas calls an index without a name where it writes it as a column."""


def pieces(
    place: Place, words: Collection[str], rows_at_a_time: Callable[[int], int], progress: bool | None
) -> Iterator[tuple[Any, int]]:
    """(A frame with the next rows, how many rows there are in all); ``words`` are columns to be read as text."""
    try:
        import pyarrow.parquet as parquet
    except ModuleNotFoundError as error:
        raise require_extra("pyarrow", "files") from error
    from pyarrow import ArrowException

    try:
        with opened(place, progress) as file:
            source = parquet.ParquetFile(place.path if _in_place(place) else io.BytesIO(file.read()))
            for batch in source.iter_batches(batch_size=rows_at_a_time(len(source.schema_arrow))):
                # Without pandas' own notes a named index is a column as others are, and gaps are plain nan or None.
                frame = _plain_types(place, batch, words).to_pandas(ignore_metadata=True)
                yield frame, source.metadata.num_rows
    except InvalidInput:
        raise
    except (ArrowException, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{place.name!r} is no Parquet file, or damaged: {plain_text(str(error))}") from error


def _plain_types(place: Place, batch: Any, words: Collection[str]) -> Any:
    """Without the row numbers that pandas adds; columns of lists and the like are refused."""
    import pyarrow as pa

    kept = [name for name in batch.schema.names if not _ROW_NUMBERS.fullmatch(name)]
    batch = batch if len(kept) == batch.num_columns else batch.select(kept)
    for i, field in enumerate(batch.schema):
        if pa.types.is_nested(field.type):
            raise InvalidInput(
                f"{place.name!r}: column {field.name!r} holds {field.type} in every row, and one number or word is "
                "read: write it as several columns, or write the file without it"
            )
        column = batch.column(i)
        plain = _plain(column, field.name in words)
        if plain is not column:
            batch = batch.set_column(i, field.name, plain)
    return batch


def _plain(column: Any, as_words: bool) -> Any:
    """A column whose decimals are numbers and whose bytes are text; numbers are words where these are asked for."""
    import pyarrow as pa
    from pyarrow.compute import if_else

    kinds = pa.types
    if kinds.is_decimal(column.type):
        column = column.cast(pa.float64())
    if as_words and kinds.is_boolean(column.type):
        return if_else(column, "True", "False")
    if as_words and (kinds.is_integer(column.type) or kinds.is_floating(column.type)):
        return column.cast(pa.string())
    if kinds.is_binary(column.type) or kinds.is_large_binary(column.type):
        with suppress(pa.ArrowInvalid):  # bytes that are no text stay what they are
            return column.cast(pa.string())
    return column


def _in_place(place: Place) -> bool:
    """Can it be read piece by piece from where it is? A packed one has to be unpacked first."""
    with place.raw() as file:
        return place.path is not None and file.read(4) == b"PAR1"
