"""What every trial needs: problems, forked workers, and what must hold when the dust has settled."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ownstep import partition
from ownstep.engines import checkpoint as ckpt
from ownstep.engines import run, saving
from ownstep.history import History
from ownstep.methods import EXTRA, GD, At, Nesterov, OwnStep
from ownstep.problems import BinaryLogistic
from ownstep.support.errors import OwnstepError

MARK = f"OWNSTEP_TORTURE={uuid.uuid4().hex}"
METHODS = {
    "own_step": OwnStep(At(40)),
    "plateau": OwnStep(),
    "adaptive": OwnStep(smoothness="adaptive"),
    "gd": GD(),
    "nesterov": Nesterov(),
    "extra": EXTRA(),
}
ROUNDS = 120
PAUSE = 0.003
"""Seconds between two rounds, so that a fault finds the run at work."""
EXPECTED = {"run.npz", "run.1.npz", "history.npz", "history.json"}
BAD = {"nan": np.nan, "inf": np.inf, "1e200": 1e200}
NAMED, FAILED, RAW = 3, 4, 9


class Broken(AssertionError):
    """A promise that was not kept."""


@dataclass
class Trial:
    """One fault and what came of it."""

    engine: str
    fault: str
    seed: int
    method: str = ""
    outcome: str = ""
    seconds: float = 0.0
    ok: bool = False
    why: str = ""
    to_dict = asdict


def make_problem(seed: int, shift: float = 0.0) -> BinaryLogistic:
    """Unequal devices, other ones for every seed; with ``shift`` the data is other data."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(15, 60, 6)
    owner = np.repeat(np.arange(6), counts)
    rows = rng.standard_normal((len(owner), 5)) * np.geomspace(0.4, 2, 6)[owner][:, None] + shift
    labels = np.where(rows @ rng.standard_normal(5) + rng.standard_normal(len(rows)) > 0, 1, -1)
    return BinaryLogistic(rows, labels, partition.given(owner), mu=0.05)


@dataclass
class Fault:
    """What goes wrong inside a worker; signals come from outside."""

    bad: float | None = None
    bad_call: int = 0
    file_limit: int | None = None
    shift: float = 0.0
    extra: dict[str, Any] = field(default_factory=dict)


def spoil(problem: Any, fault: Fault) -> None:
    """Let one pass over the data return one wrong vector."""
    if fault.bad is None:
        return
    real, each, calls = problem.mix, problem.gradients, []

    def mix(x: Any, c: Any) -> Any:
        calls.append(1)
        losses, total = real(x, c)
        return losses, total * fault.bad if len(calls) == fault.bad_call else total

    def gradients(x: Any) -> Any:
        calls.append(1)
        rows = each(x)
        return rows * fault.bad if len(calls) == fault.bad_call else rows

    problem.mix, problem.gradients = mix, gradients


def limit_files(fault: Fault) -> None:
    """A disk that is full after so many bytes."""
    if fault.file_limit is not None:
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (fault.file_limit, resource.RLIM_INFINITY))


def worker(work: Callable[[], History], folder: Path) -> None:
    """Run in a process of its own, and say how it ended by the exit code and a line in ``said``."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as in a process that was started
    saving.SECONDS, saving.SHARE, saving.BYTES_PER_SECOND = 0.02, 1.0, 1e12
    log = (folder.parent / f"{folder.name}-said").open("a")
    os.dup2(log.fileno(), 2)
    code = RAW
    try:
        history = work()
        code = FAILED if history.failed else 0
        print("ended:", history.stopped, file=log)
    except OwnstepError as error:
        code = NAMED
        print("named:", error, file=log)
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException as error:
        if type(error) is KeyboardInterrupt:  # after the last round Ctrl-C is Python's own
            code = 130
        print(f"raw: {type(error).__name__}: {error}", file=log)
    log.flush()
    os._exit(code)


def fork(work: Callable[[], History], folder: Path, **environ: str) -> Any:
    """Start a worker; everything is imported already, so it begins at once."""
    name, _, value = MARK.partition("=")
    before = dict(os.environ)
    os.environ.update({name: value} | environ)
    process = multiprocessing.get_context("fork").Process(target=worker, args=(work, folder))
    process.start()
    os.environ.clear()
    os.environ.update(before)
    return process


def unbroken(method: str, seed: int, rounds: int = ROUNDS) -> History:
    """The run that nothing happened to."""
    return run(METHODS[method], make_problem(seed), rounds, progress=False)


def compare(found: History, seed: int, method: str, tolerance: float) -> None:
    """Is it the unbroken run? Steps that are quotients of differences carry rounding, which ranks add up otherwise."""
    whole = unbroken(method, seed, found.rounds)
    for column in ("value",) if method == "adaptive" and tolerance else ("value", "step"):
        if not np.allclose(
            found.columns[column], whole.columns[column], rtol=tolerance, atol=tolerance, equal_nan=True
        ):
            raise Broken(f"{column} is not that of the unbroken run")
    if not np.allclose(found.x, whole.x, rtol=tolerance, atol=tolerance):
        raise Broken("x is not that of the unbroken run")


def check_folder(folder: Path, allowed: set[str]) -> None:
    """Nothing is left but what was asked for."""
    stray = {p.name for p in folder.iterdir()} - allowed
    if stray:
        raise Broken(f"left behind: {sorted(stray)}")


def check_sound(path: Path) -> None:
    """No bad number has reached a checkpoint."""
    for file in ckpt.there(path):
        with contextlib.suppress(ckpt.Unreadable):
            arrays = ckpt._read(file)[1]
            if not all(np.isfinite(a).all() for a in arrays.values() if a.ndim and a.shape[-1] == 5):
                raise Broken(f"{file.name} holds a number that is not finite")


def orphans() -> list[int]:
    """Workers that are still alive (on Linux)."""
    out = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            alive = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
            if alive and int(entry.name) != os.getpid() and MARK.encode() in (entry / "environ").read_bytes():
                out.append(int(entry.name))
    return out


def wait(processes: list[Any], seconds: float, but: set[int] = frozenset()) -> None:  # type: ignore[assignment]
    """Until all have ended, except those that are frozen on purpose."""
    ends = time.monotonic() + seconds
    for n, process in enumerate(processes):
        if n not in but:
            process.join(max(0.1, ends - time.monotonic()))
    late = [n for n, p in enumerate(processes) if n not in but and p.is_alive()]
    for process in processes:
        if process.is_alive():
            process.kill()
            process.join(10)
    if late:
        raise Broken(f"process {late} did not end within {seconds:g} s")


def flip(path: Path, rng: np.random.Generator) -> None:
    """Flip one bit of a file, or cut it short."""
    data = bytearray(path.read_bytes())
    if rng.random() < 0.2:
        path.write_bytes(data[: int(rng.integers(len(data)))])
        return
    data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    path.write_bytes(data)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
