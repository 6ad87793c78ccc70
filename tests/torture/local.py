"""Faults on the local engine."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from ownstep.engines import checkpoint as ckpt
from ownstep.engines import run
from ownstep.history import History
from tests.torture.common import (
    BAD,
    EXPECTED,
    FAILED,
    METHODS,
    NAMED,
    PAUSE,
    RAW,
    ROUNDS,
    Broken,
    Fault,
    Trial,
    check_folder,
    check_sound,
    compare,
    flip,
    fork,
    limit_files,
    make_problem,
    spoil,
    wait,
)  # fmt: skip

FAULTS = (
    "kill", "term", "interrupt", "freeze", "full disk", "flipped bit", "other data", "two writers", "two faults", *BAD,
)  # fmt: skip
LIMIT = 60.0


def work(folder: Path, method: str, seed: int, fault: Fault) -> History:
    """One run with checkpoints, slow enough to be hit."""
    limit_files(fault)
    problem: Any = make_problem(seed, fault.shift)
    spoil(problem, fault)
    history = run(
        METHODS[method], problem, ROUNDS, checkpoint=folder / "run.npz", progress=False,
        observe=lambda k, x: time.sleep(PAUSE),
    )  # fmt: skip
    if not history.stopped.startswith("interrupted") and not history.failed:
        history.save(folder / "history")
    return history


def trial(folder: Path, fault: str, seed: int) -> Trial:
    """One fault, then a healthy start that must end as the unbroken run does."""
    rng = np.random.default_rng(seed)
    method = str(rng.choice(list(METHODS)))
    done = Trial("local", fault, seed, method)
    inside, path = Fault(), folder / "run.npz"
    if fault in BAD:
        inside = Fault(bad=BAD[fault], bad_call=int(rng.integers(3, ROUNDS)))
    elif fault == "full disk":
        inside = Fault(file_limit=int(rng.integers(0, 6000)))
    process = fork(lambda: work(folder, method, seed, inside), folder)
    try:
        _disturb(fault, process, path, rng, folder, method, seed)
        wait([process], LIMIT)
        code = process.exitcode
        done.outcome = {0: "ended", NAMED: "named error", FAILED: "named stop"}.get(code, f"exit {code}")
        if code == RAW:
            raise Broken(f"raw error: {(folder.parent / f'{folder.name}-said').read_text()[-300:]}")
        check_sound(path)
        if fault == "flipped bit":
            for file in ckpt.there(path)[:1]:
                flip(file, rng)
        if fault == "two faults":
            _second(folder, method, seed, rng)
        if fault == "other data":
            other = fork(lambda: work(folder, method, seed, Fault(shift=0.5)), folder)
            wait([other], LIMIT)
            if other.exitcode != NAMED:
                raise Broken(f"other data were accepted: exit {other.exitcode}")
        again = fork(lambda: work(folder, method, seed, Fault()), folder)
        wait([again], LIMIT)
        if again.exitcode == NAMED and fault in ("flipped bit", "two faults"):
            done.outcome = "named error"  # both files were of the first round: nothing to go on from
            for file in ckpt.there(path):
                file.unlink()
            again = fork(lambda: work(folder, method, seed, Fault()), folder)
            wait([again], LIMIT)
        if again.exitcode:
            raise Broken(f"the resumed run ended with {again.exitcode}")
        compare(History.load(folder / "history"), seed, method, 0.0)
        check_folder(folder, EXPECTED)
        done.ok = True
    except Broken as broken:
        done.why = str(broken)
    finally:
        wait([process], 1.0, but={0})
    return done


def _disturb(
    fault: str, process: Any, path: Path, rng: np.random.Generator, folder: Path, method: str, seed: int
) -> None:
    """What comes from outside, at a random moment of the run."""
    numbers = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "interrupt": signal.SIGINT}
    if fault == "two faults":
        fault = str(rng.choice(["kill", "term", "flipped bit"]))
    if fault not in {*numbers, "freeze", "two writers", "flipped bit"}:
        return
    ends = time.monotonic() + LIMIT
    while not path.exists() and process.is_alive() and time.monotonic() < ends:
        time.sleep(0.005)
    time.sleep(float(rng.uniform(0, 0.5)))
    if not process.is_alive():
        return
    if fault == "flipped bit":
        os.kill(process.pid, signal.SIGKILL)
    elif fault == "freeze":
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(0.5)
        os.kill(process.pid, signal.SIGCONT)
    elif fault == "two writers":
        second = fork(lambda: work(folder, method, seed, Fault()), folder)
        wait([second], LIMIT)
        if process.is_alive() and second.exitcode != NAMED:
            raise Broken(f"a second writer was let in: exit {second.exitcode}")
    else:
        os.kill(process.pid, numbers[fault])


def _second(folder: Path, method: str, seed: int, rng: np.random.Generator) -> None:
    """While the run goes on after its first fault the disk is full, or it is killed; then its checkpoint is damaged."""
    limit = int(rng.integers(0, 6000)) if rng.random() < 0.5 else None
    process = fork(lambda: work(folder, method, seed, Fault(file_limit=limit)), folder)
    time.sleep(float(rng.uniform(0, 0.3)))
    if limit is None and process.is_alive():
        os.kill(process.pid, signal.SIGKILL)
    wait([process], LIMIT)
    if process.exitcode == RAW:
        raise Broken("raw error after the second fault")
    for file in ckpt.there(folder / "run.npz")[:1]:
        flip(file, rng)
