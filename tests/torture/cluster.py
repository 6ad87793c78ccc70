"""Faults on ranks of torch.distributed, started without a launcher: rank 0 hosts the store, the harder case."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed

from ownstep.engines import checkpoint as ckpt
from ownstep.engines import cluster, run
from ownstep.engines.cluster import torchrun
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

QUICK = ("kill", "term", "full disk", "flipped bit", "other data", "other split", *BAD)
FAULTS = (*QUICK, "freeze", "freeze rank 0")
"""Deadlines make the last two fifteen seconds long: the short form has the others, and test_cluster has these."""
RANKS, DEADLINE = 3, 4.0
LIMIT = 60.0
"""Seconds until everybody has ended: the deadline, the store's and what a busy machine adds."""


def work(folder: Path, method: str, seed: int, fault: Fault) -> History:
    """What every rank does."""
    torch.set_num_threads(1)
    limit_files(fault)
    problem: Any = make_problem(seed + fault.extra.get("seed", 0), fault.shift)
    shared = cluster.deal(problem, deadline=DEADLINE)
    spoil(shared.problem, fault)
    history = cluster.run(
        METHODS[method], shared, ROUNDS, checkpoint=folder / "run.npz", progress=False,
        observe=lambda k, x: time.sleep(PAUSE),
    )  # fmt: skip
    return history


def start(folder: Path, method: str, seed: int, faults: dict[int, Fault], size: int = RANKS) -> list[Any]:
    """All ranks, each with its own fault."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(size), "OMP_NUM_THREADS": "1"}
    place |= {"GLOO_SOCKET_IFNAME": torchrun.environment().get("GLOO_SOCKET_IFNAME", "lo")}
    return [
        fork(
            lambda r=r: work(folder, method, seed, faults.get(r, Fault())),
            folder,
            RANK=str(r),
            LOCAL_RANK=str(r),
            **place,
        )
        for r in range(size)
    ]


def trial(folder: Path, fault: str, seed: int) -> Trial:
    """One fault on one rank; then ranks of another number or the local engine go on from the checkpoint."""
    rng = np.random.default_rng(seed)
    method = str(rng.choice(list(METHODS)))
    done = Trial("cluster", fault, seed, method)
    path, hit = folder / "run.npz", 0 if fault == "freeze rank 0" else int(rng.integers(RANKS))
    faults: dict[int, Fault] = {}
    if fault in BAD:
        method = done.method = str(rng.choice([m for m in METHODS if m != "extra"]))
        faults[hit] = Fault(bad=BAD[fault], bad_call=int(rng.integers(5, ROUNDS)))
    elif fault == "full disk":
        faults[0] = Fault(file_limit=int(rng.integers(0, 6000)))
    elif fault == "other data":
        hit = int(rng.integers(1, RANKS))
        faults[hit] = Fault(shift=0.3)
    elif fault == "other split":
        hit = int(rng.integers(1, RANKS))
        faults[hit] = Fault(extra={"seed": 1})
    processes = start(folder, method, seed, faults)
    frozen: set[int] = set()
    try:
        if fault in ("kill", "freeze", "freeze rank 0", "term", "flipped bit"):
            ends = time.monotonic() + LIMIT
            while not path.exists() and processes[hit].is_alive() and time.monotonic() < ends:
                time.sleep(0.01)
            time.sleep(float(rng.uniform(0, 0.6)))
            if processes[hit].is_alive():
                if fault.startswith("freeze"):
                    os.kill(processes[hit].pid, signal.SIGSTOP)
                    frozen = {hit}
                else:
                    os.kill(processes[hit].pid, signal.SIGTERM if fault == "term" else signal.SIGKILL)
        wait(processes, LIMIT, frozen)
        codes = [p.exitcode for n, p in enumerate(processes) if n not in frozen]
        done.outcome = "named error" if NAMED in codes else "named stop" if FAILED in codes else "ended"
        said = (folder.parent / f"{folder.name}-said").read_text()
        if RAW in codes:
            raise Broken(f"raw error: {said[-300:]}")
        if fault in ("other data", "other split") and codes != [NAMED] * RANKS:
            raise Broken(f"ranks with other data were accepted: {codes}")
        if fault in BAD and FAILED in codes and f"rank {hit} (" not in said:
            raise Broken(f"rank {hit} was not named: {said[-300:]}")
        check_sound(path)
        if fault == "flipped bit":
            for file in ckpt.there(path)[:1]:
                flip(file, rng)
        if rng.random() < 0.5:
            _go_on(folder, method, seed, int(rng.integers(2, 5)), fault)
        again = fork(lambda: _resumed(folder, method, seed), folder)
        wait([again], LIMIT)
        if again.exitcode == NAMED and fault == "flipped bit":
            for file in ckpt.there(path):
                file.unlink()
            again = fork(lambda: _resumed(folder, method, seed), folder)
            wait([again], LIMIT)
        if again.exitcode:
            raise Broken(f"the resumed run ended with {again.exitcode}: {said[-300:]}")
        compare(History.load(folder / "history"), seed, method, 1e-6 if method in ("adaptive",) else 1e-9)
        check_folder(folder, EXPECTED)
        done.ok = True
    except Broken as broken:
        done.why = str(broken)
    finally:
        wait(processes, 1.0, set(range(RANKS)))
    return done


def _go_on(folder: Path, method: str, seed: int, size: int, fault: str) -> None:
    """The ranks go on, of which all read the same files; only where both are damaged may that be refused."""
    processes = start(folder, method, seed, {}, size)
    wait(processes, LIMIT)
    codes, said = [p.exitcode for p in processes], (folder.parent / f"{folder.name}-said").read_text()
    refused = fault == "flipped bit" and codes == [NAMED] * size and "not a readable checkpoint" in said
    if codes != [0] * size and not refused:
        raise Broken(f"{size} ranks that went on ended with {codes}: {said[-300:]}")


def _resumed(folder: Path, method: str, seed: int) -> History:
    history = run(METHODS[method], make_problem(seed), ROUNDS, checkpoint=folder / "run.npz", progress=False)
    history.save(folder / "history")
    return history
