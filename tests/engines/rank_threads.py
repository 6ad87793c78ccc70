"""The ranks of a cluster run as threads of this process: all of its arithmetic, none of its sockets."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from ownstep.engines.cluster.ranks import Ranks
from ownstep.engines.local.engine import Loop


class Table:
    """Where the threads lay down what they say to each other."""

    def __init__(self, size: int) -> None:
        self.size, self.barrier, self.slots = size, threading.Barrier(size, timeout=20), [None] * size

    def all_say(self, rank: int, what: Any) -> list[Any]:
        """What every rank says, on every rank."""
        self.slots[rank] = what
        self.barrier.wait()
        said = list(self.slots)
        self.barrier.wait()
        return said


class ThreadRanks(Ranks):
    """One of them: sums, rows and words pass over the table."""

    def __init__(self, table: Table, rank: int) -> None:
        self.table, self.rank, self.size = table, rank, table.size
        self.deadline, self.device, self.backend = 60.0, torch.device("cpu"), "threads"
        self._kept, self._lent, self.names, self.bytes, self.round = {}, {}, {}, 0, 0
        self._stop_wanted, self.stop_agreed = False, False
        self.save_at, self.save_agreed = np.inf, False

    def reduce(self, buffer: torch.Tensor) -> None:
        self.bytes += buffer.nbytes
        buffer.copy_(sum(self.table.all_say(self.rank, buffer.clone())))

    def exchange(self, send: dict[int, torch.Tensor], receive: dict[int, torch.Tensor]) -> None:
        said = self.table.all_say(self.rank, {to: t.clone() for to, t in send.items()})
        for rank, into in receive.items():
            into.copy_(said[rank][self.rank])

    def gather(self, data: bytes) -> list[bytes]:
        return self.table.all_say(self.rank, data)

    def spread(self, data: bytes, source: int) -> bytes:
        return self.table.all_say(self.rank, data)[source]

    def who(self, rank: int) -> str:
        return f"rank {rank} (a thread)"


def _signature(loop: Loop) -> list[float]:
    """Kept without the lock of Python 3.11's cached_property, which all loops of a process share."""
    if "kept" not in vars(loop):
        vars(loop)["kept"] = _SIGNATURE(loop)
    return vars(loop)["kept"]


_SIGNATURE = Loop.__dict__["signature"].func


def on_ranks(size: int, work: Callable[[ThreadRanks], Any]) -> list[Any]:
    """What ``work`` returns on every rank; the first error of any is raised."""
    table, out, errors = Table(size), [None] * size, []

    def one(rank: int) -> None:
        try:
            out[rank] = work(ThreadRanks(table, rank))
        except Exception as error:
            errors.append(error)
            table.barrier.abort()

    with patch.object(Loop, "signature", property(_signature)):
        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    real = [e for e in errors if not isinstance(e, threading.BrokenBarrierError)]
    if errors:
        raise (real or errors)[0]
    return out
