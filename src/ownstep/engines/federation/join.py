"""A site that joins a federation, and waits for its place where a crash has left it taken.

A SuperLink counts a site as present until it has missed two heartbeats, a minute. A SuperNode that crashed and is
started again before that is refused, and Flower's program ends. :func:`join` starts it again until it is let in.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from shutil import which
from typing import Any

from ownstep.support.errors import OwnstepError, require_extra

PATIENCE = 120.0
"""Seconds to try again after a refusal: the minute that the SuperLink takes, and then some."""
AT_ONCE = 30.0
"""A SuperNode that ends sooner than this after its start was not let in; later it has served."""
BETWEEN = 5.0
"""Seconds between two attempts."""


def join(arguments: Sequence[str], patience: float = PATIENCE) -> int:
    """Run ``flower-supernode`` with these arguments until it ends by itself; returns its exit code.

    Refusals within :data:`AT_ONCE` seconds of a start are tried again for ``patience`` seconds, and said so.
    """
    program = _program()
    ends = time.monotonic() + patience
    while True:
        began = time.monotonic()
        child = subprocess.Popen([program, *arguments])
        code = _wait(child)
        now = time.monotonic()
        if code == 0 or code < 0 or now - began > AT_ONCE:
            return code
        if now >= ends:
            raise OwnstepError(
                f"the SuperLink did not let this site in within {patience:g} s: its own words are above. Is its key "
                "registered, its certificate the right one, and no other site running with the same key?"
            )
        print(
            "ownstep: not let in. After a crash the SuperLink counts a site as present for a minute; trying again for "
            f"{ends - now:.0f} s",
            file=sys.stderr, flush=True,
        )  # fmt: skip
        time.sleep(min(BETWEEN, ends - now))


def _program() -> str:
    """Flower's own program: beside this Python, or wherever the shell finds it."""
    beside = Path(sys.executable).with_name("flower-supernode")
    program = str(beside) if beside.exists() else which("flower-supernode")
    if program is None:
        raise require_extra("flwr", "flower")
    return program


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Until the child ends; what would end this process ends the child first."""

    def pass_on(number: int, frame: Any) -> None:
        child.send_signal(number)

    before = {s: signal.signal(s, pass_on) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        return child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
