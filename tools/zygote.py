"""Runs pytest again and again without importing the libraries again: a process that forks for every run.

Reads one JSON line a run, ``{"tests": [...], "limit": seconds}``, and answers with one, ``{"code": exit code or null,
"out": text}``; null means that there was no end within the limit. It never imports the package under test itself.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback

LIBRARIES = [
    "numpy",
    "scipy.sparse.linalg",
    "scipy.optimize",
    "scipy.special",
    "scipy.stats",
    "sklearn.datasets",
    "sklearn.linear_model",
    "pytest",
    "hypothesis.strategies",
    "matplotlib.figure",
    "clarabel",
    "pandas",
    "typer.testing",
    "rich.progress",
    "torch",
    "torch.func",
    "transformers",
]
QUIET = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
MEMORY = 12 << 30
"""Address space that a run may take beside what the libraries hold already: a torch with CUDA holds much."""


def held() -> int:
    """Bytes of address space that this process holds."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def run(tests: list[str], limit: float) -> tuple[int | None, str]:
    """Fork, run pytest in the child, and wait for it."""
    with tempfile.TemporaryFile() as out:
        child = os.fork()
        if child == 0:
            os.setsid()
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            space = held() + MEMORY
            resource.setrlimit(resource.RLIMIT_AS, (space, space))
            code = 3
            try:
                import pytest

                code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", *QUIET, *tests]))
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        end, code = time.monotonic() + limit, None
        while time.monotonic() < end:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                break
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what it started and left behind, too
        if code is None:
            os.waitpid(child, 0)
        out.seek(0)
        return code, out.read().decode(errors="replace")


def main() -> None:
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        asked = json.loads(line)
        code, out = run(asked["tests"], asked["limit"])
        print(json.dumps({"code": code, "out": out[-3000:]}), flush=True)


if __name__ == "__main__":
    main()
