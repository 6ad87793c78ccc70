"""Files that are either complete or not there."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import IO


class write_atomically:
    """A binary file that appears under its name only once it is whole and on disk."""

    def __init__(self, path: Path) -> None:
        self.path, self.part = path, path.with_name(f".{path.name}.{os.getpid()}.part")

    def __enter__(self) -> IO[bytes]:
        self.file = self.part.open("wb")
        return self.file

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self.file.flush()
            os.fsync(self.file.fileno())
        self.file.close()
        if kind is None:
            self.part.replace(self.path)
        else:
            self.part.unlink(missing_ok=True)


def what_ails(error: Exception) -> str:
    """NumPy takes whatever it does not know for a pickle and advises to load it unsafely; we do not."""
    return "it is no npz file" if "pickle" in str(error) else str(error)
