"""A progress bar on the terminal, for whatever takes more than a moment; silent everywhere else."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

APPEARS_AFTER = 1.0
"""Seconds before a bar is drawn: quick work stays quiet."""


class Bar:
    """Use as ``with Bar("GD", total) as bar: bar.update(done, "f = 0.1")``."""

    def __init__(self, label: str, total: int, enabled: bool | None = None) -> None:
        self.label, self.total = label, total
        self.enabled = sys.stderr.isatty() if enabled is None else enabled
        self._bar: Any = None
        self._began = time.monotonic()
        self._drawn = 0.0

    def __enter__(self) -> Bar:
        return self

    def update(self, done: int, note: str = "") -> None:
        """Show that ``done`` of the total are done; draws at most ten times per second."""
        now = time.monotonic()
        if not self.enabled or now - self._began < APPEARS_AFTER or now - self._drawn < 0.1:
            return
        if self._bar is None:
            self._open()
        self._drawn = now
        self._bar.update(self._task, completed=done, note=note)

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"), console=Console(stderr=True), transient=True,
        )  # fmt: skip
        self._bar.start()
        self._task = self._bar.add_task(self.label, total=self.total, note="")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()
