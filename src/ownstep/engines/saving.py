"""When a run is written down, who may write it, and what happens when the process is told to end."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from ownstep.engines import checkpoint as ckpt
from ownstep.support.errors import OwnstepError
from ownstep.support.files import hold

SECONDS = 3.0
"""Between two checkpoints of a short run; the first is written in the first round."""
LONGEST = 300.0
"""Seconds between two checkpoints at most."""
SHARE = 0.02
"""Of the time, what writing may take."""
BYTES_PER_SECOND = 500_000.0
"""What is written per second at most, on average: a history grows with every round, and is written whole."""


class Terminated(KeyboardInterrupt):
    """SIGTERM: what Slurm, Kubernetes and ``kill`` send before they insist."""


def pause(took: float, size: int) -> float:
    """Seconds until the next checkpoint, after one of so many bytes that took so long to write."""
    return min(LONGEST, max(SECONDS, took / SHARE, size / BYTES_PER_SECOND))


class Saver:
    """One checkpoint file, held by this process while the run lasts.

    Parameters
    ----------
    path : the file; None saves nothing.
    """

    def __init__(self, path: str | Path | None) -> None:
        self.path = None if path is None else Path(path)
        self.next = 0.0
        self._held = contextlib.ExitStack()

    def __enter__(self) -> Saver:
        if self.path is not None:
            ckpt.refuse_folder(self.path)  # here, not when the first round is done
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._held.enter_context(hold(self.path))
            except OSError as error:
                raise OwnstepError(f"cannot write the checkpoint {str(self.path)!r}: {error}") from error
        return self

    def __exit__(self, *error: object) -> None:
        self._held.close()

    @property
    def due(self) -> bool:
        """Is it time for a checkpoint?"""
        return self.path is not None and time.monotonic() >= self.next

    def save(self, write: Callable[[Path], None]) -> None:
        """Write one now, and choose when the next is due."""
        if self.path is None:
            return
        began = time.monotonic()
        write(self.path)
        ended = time.monotonic()
        size = self.path.stat().st_size if self.path.exists() else 0
        self.next = ended + pause(ended - began, size)

    def resume(self, read: Callable[[Path, Path], None]) -> None:
        """Go on from the newest checkpoint that can be read, if there is one."""
        if self.path is not None:
            keep(self.path, go_on(self.path, read))


def keep(path: Path, read: Path | None) -> None:
    """Give the checkpoint that was read the newest one's place: the next rotation must not push the good one out."""
    if read is not None:
        try:
            read.replace(path)
        except OSError as error:
            raise OwnstepError(f"cannot write the checkpoint {str(path)!r}: {error}") from error


def go_on(path: Path, read: Callable[[Path, Path], None]) -> Path | None:
    """Read the newest checkpoint that is whole, and return it; a damaged one gives way to the one before it.

    Nothing is moved here: ranks on one file system read at the same time. Who writes calls :func:`keep` afterwards.
    """
    found = ckpt.there(path)
    for n, file in enumerate(found):
        try:
            read(file, path if n == 0 else file)
        except ckpt.Unreadable as error:
            if n + 1 == len(found):
                raise
            logging.getLogger("ownstep").warning("%s; going on from %s, the one before it", error, found[n + 1])
        else:
            return file
    return None


class Ending:
    """What SIGTERM does inside :func:`ends_well`: raise :class:`Terminated`, once, and only where that is caught."""

    def __init__(self) -> None:
        self.heard: list[FrameType | None] = []
        self._interruptible = False

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Inside, :class:`Terminated` is raised; at once where SIGTERM came before. The caller catches it."""
        try:
            self._interruptible = True
            if self.heard:
                raise Terminated
            yield
        finally:
            self._interruptible = False

    def hear(self, number: int, frame: FrameType | None) -> None:
        """SIGTERM: where nobody catches it, as in the last checkpoint, it is only remembered."""
        first, self.heard = not self.heard, self.heard or [frame]
        if first and self._interruptible:
            raise Terminated


@contextlib.contextmanager
def ends_well(active: bool) -> Iterator[Ending]:
    """Inside, SIGTERM ends what is interruptible; after the block the process ends as SIGTERM would end it.

    Somebody else's handler is called after the block, in place of that.
    """
    before: Any = signal.getsignal(signal.SIGTERM)
    here = threading.current_thread() is threading.main_thread()
    ending = Ending()
    if not active or not here or before is signal.SIG_IGN or before is None:
        yield ending
        return
    signal.signal(signal.SIGTERM, ending.hear)
    try:
        yield ending
    finally:
        signal.signal(signal.SIGTERM, before)
    if ending.heard and callable(before):
        before(signal.SIGTERM, ending.heard[0])
    elif ending.heard:
        print("ownstep: ended by SIGTERM; the checkpoint is written, start again to go on", file=sys.stderr)
        raise SystemExit(128 + signal.SIGTERM)
