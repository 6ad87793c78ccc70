"""Files that are either complete or not there, and a lock that says who is writing them."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from ownstep.support.errors import OwnstepError, plain_text

fcntl: Any = import_module("fcntl") if find_spec("fcntl") else None  # not on Windows

ABANDONED = 3600.0
"""Seconds after which an unfinished file of another machine is taken for abandoned."""


class write_atomically:
    """A binary file that appears under its name only once it is whole and on disk.

    What a process that was killed left half written is removed by the next one that writes the same file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.part = path.with_name(f".{path.name}.{_host()}-{os.getpid()}.part")

    def __enter__(self) -> IO[bytes]:
        sweep(self.path)
        self.file = self.part.open("wb")
        return self.file

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        done = False
        try:
            if kind is None:
                self.file.flush()
                os.fsync(self.file.fileno())
                self.file.close()
                self.part.replace(self.path)
                done = True
        finally:
            if not done:
                with contextlib.suppress(OSError):  # closing flushes again, and a full disk is still full
                    self.file.close()
                self.part.unlink(missing_ok=True)


def write_json(path: Path, data: Any) -> None:
    """Write plain data, whole or not at all; the folder is made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(path) as file:
            file.write(json.dumps(data, indent=1).encode())
    except OSError as error:
        raise OwnstepError(f"cannot write {str(path)!r}: {error}") from error


def sweep(path: Path) -> None:
    """Remove what writers of this file have left half written: of dead processes here, of anyone after an hour."""
    for part in path.parent.glob(f".{_literal(path.name)}.*.part"):
        host, _, number = part.name[len(path.name) + 2 : -5].rpartition("-")
        with contextlib.suppress(OSError, ValueError):
            old = time.time() - part.stat().st_mtime > ABANDONED
            ours = host in ("", _host())  # without a host: written by ownstep 0.1
            if old or (ours and not _alive(int(number))):
                part.unlink()


class hold:
    """While inside, no other process can hold the same file; the error says who does.

    The lock belongs to the process and ends with it, however it ends. It is a file beside the one it guards. With
    ``patience``, so many seconds are waited for its holder to end before that is an error.
    """

    def __init__(self, path: Path, patience: float = 0.0) -> None:
        self.path, self.file, self.patience = path, path.with_name(f".{path.name}.lock"), patience
        self.descriptor: int | None = None

    def __enter__(self) -> hold:
        if fcntl is None:
            return self
        ends = time.monotonic() + self.patience
        while self.descriptor is None:
            descriptor = os.open(self.file, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(descriptor), os.stat(self.file)):
                    self.descriptor = descriptor  # else another process has made a new one meanwhile
            except FileNotFoundError:  # its holder has removed it meanwhile: make a new one
                continue
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    return self  # a file system without locks
                if time.monotonic() < ends:
                    time.sleep(0.2)
                    continue
                who = plain_text(os.pread(descriptor, 200, 0).decode(errors="replace")) or "another process"
                raise OwnstepError(
                    f"{str(self.path)!r} is in use by {who}: wait until it ends, or name another file"
                ) from None
            finally:
                if self.descriptor is None:
                    os.close(descriptor)
        with contextlib.suppress(OSError):  # a full disk: the lock is held all the same, and let go in the end
            os.ftruncate(self.descriptor, 0)
            os.pwrite(self.descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.descriptor is not None:
            self.file.unlink(missing_ok=True)
            os.close(self.descriptor)
            self.descriptor = None


def what_ails(error: Exception) -> str:
    """NumPy takes whatever it does not know for a pickle and advises to load it unsafely; we do not."""
    if str(error).startswith("Object arrays"):
        return "an array in it holds Python objects, which are not loaded; save words with dtype=str"
    return "it is no npz file" if "pickle" in str(error) else plain_text(f"{error}" or type(error).__name__)


def _host() -> str:
    return "".join(c if c.isalnum() else "_" for c in socket.gethostname())


def _literal(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
