"""Open a file, see through its compression, recognise its format, and show progress while it is read."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ownstep.data.files.wording import option
from ownstep.support.errors import InvalidInput, plain_text, unknown_name
from ownstep.support.progress import Bar

FORMATS = ("libsvm", "csv", "tsv", "parquet", "npz")
SUFFIXES = {
    ".svm": "libsvm", ".libsvm": "libsvm", ".svmlight": "libsvm", ".csv": "csv", ".tsv": "tsv", ".tab": "tsv",
    ".parquet": "parquet", ".pq": "parquet", ".npz": "npz",
}  # fmt: skip
PACKED: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
CHUNK = 1 << 20
_LIBSVM_LINE = re.compile(rb"[-+.\w]+(\s+qid:\d+)?(\s+\d+:\S+)*\s*(#.*)?")


@dataclass(frozen=True)
class Place:
    """Where bytes come from: a file, or the whole of standard input.

    Parameters
    ----------
    name : as the user wrote it, for messages.
    path : None for standard input.
    content : of standard input.
    """

    name: str
    path: Path | None
    content: bytes = b""

    @classmethod
    def of(cls, name: str) -> Place:
        """A file by its path, or standard input for ``-``."""
        return cls("standard input", None, sys.stdin.buffer.read()) if name == "-" else cls(name, Path(name))

    @property
    def size(self) -> int:
        """Bytes as they are stored."""
        return len(self.content) if self.path is None else self.path.stat().st_size

    def raw(self) -> IO[bytes]:
        """The bytes as they are stored."""
        return io.BytesIO(self.content) if self.path is None else self.path.open("rb")


class _Counted(io.RawIOBase):
    """Bytes of a file, and a bar that follows how many of them were read."""

    def __init__(self, file: IO[bytes], bar: Bar) -> None:
        self._file, self._bar, self._done = file, bar, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._file.seekable()

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: Any) -> int:
        count: int = self._file.readinto(buffer)  # type: ignore[attr-defined]
        self._done += count
        self._bar.update(min(self._done, self._bar.total))
        return count


@contextmanager
def opened(place: Place, progress: bool | None = None) -> Iterator[IO[bytes]]:
    """The uncompressed bytes of a file; what it is packed with is seen from its first bytes, not from its name."""
    try:
        with place.raw() as file, Bar(f"reading {place.name}", place.size, progress) as bar:
            head = file.read(6)
            file.seek(0)
            if not head:
                raise InvalidInput(f"{place.name!r} is empty (0 bytes)")
            counted = io.BufferedReader(_Counted(file, bar), CHUNK)
            kind = next((opener for magic, opener in PACKED.items() if head.startswith(magic)), None)
            if kind is None:
                yield counted
            else:
                with kind(counted) as unpacked:
                    yield unpacked
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        why = plain_text(str(error)) or "it ends too early"
        raise InvalidInput(f"{place.name!r} cannot be unpacked: {why}; it may be cut off, copy it again") from error
    except OSError as error:
        why = plain_text(error.strerror or str(error))
        raise InvalidInput(f"{place.name!r} cannot be read: {why}") from error


def recognise(place: Place, wanted: str | None = None) -> str:
    """The format of a file: as told, by its name, or by its first line."""
    if wanted is not None and wanted not in FORMATS:
        raise unknown_name("format", wanted, FORMATS)
    with opened(place, False) as file:
        head = file.read(1 << 16)
    _refuse_wide(place, head)
    if wanted is not None:
        return wanted
    if not head.strip():
        raise InvalidInput(f"{place.name!r} is empty: it has no line")
    suffixes = [s.lower() for s in place.path.suffixes] if place.path else []
    named = next((SUFFIXES[s] for s in reversed(suffixes) if s in SUFFIXES), None)
    if named is not None:
        return named
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"PK\x03\x04"):
        return "npz"
    line = next((line for line in head.splitlines() if line.strip() and not line.startswith(b"#")), b"")
    if _LIBSVM_LINE.fullmatch(line.strip()) and b":" in head:
        return "libsvm"
    if b"\t" in line or b"," in line or b";" in line:
        return "tsv" if line.count(b"\t") > line.count(b",") else "csv"
    raise InvalidInput(
        f"the format of {place.name!r} is not recognised; say which with {option('format')}: {', '.join(FORMATS)}"
    )


def _refuse_wide(place: Place, head: bytes) -> None:
    """Refuse text of two or four bytes per character, as spreadsheets write it."""
    marks = {"UTF-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE), "UTF-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)}
    found = next((name for name, marked in marks.items() if head.startswith(marked)), None)
    start = head[:200].rstrip(b"\0")
    if found is None and len(start) > 3 and b"\0" in start and not head.startswith((b"PAR1", b"PK\x03\x04")):
        found = "UTF-16" if start[1::2].count(0) >= len(start) // 2 or start[::2].count(0) >= len(start) // 2 else None
    if found is not None:
        raise InvalidInput(
            f"{place.name!r} is {found} text, and UTF-8 is read: save it as UTF-8, or convert it with "
            f"iconv -f {found.lower()} -t utf-8"
        )
