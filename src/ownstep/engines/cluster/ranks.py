"""The processes of a cluster run: who they are, what they add up, and who is missing when somebody does not answer.

Everything travels by ``torch.distributed``: gloo between CPUs, NCCL between GPUs. Every wait has a deadline, and when
one passes, the ranks that still live say so in the store of the launcher; who has not said it is the one that hangs.
"""

from __future__ import annotations

import atexit
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from ownstep.engines.cluster import torchrun
from ownstep.engines.cluster.store import Store, StoreSilent
from ownstep.support.errors import InvalidInput, OwnstepError, plain_text

DEADLINE = 120.0
"""Seconds the slowest rank may be behind the fastest in a round."""
MEETING = 600.0
"""Seconds all ranks may take to load their data and arrive at the first round."""
KEPT = 1 << 14
"""Numbers up to which a buffer is kept from round to round."""
BACKEND = "OWNSTEP_CLUSTER_BACKEND"
"""Environment variable by which gloo is chosen where NCCL would be."""
MOST_LENT = 4
"""Large buffers that are kept to be used again: a method may hold the sums of a few rounds."""
GRACE = 5.0
"""Seconds the ranks that live give each other to say so."""

NO_TLS = (
    "GLOO_DEVICE_TRANSPORT=TCP_TLS asks for encrypted connections, but torch {version} was built without gloo's TLS "
    "transport; nothing was sent. Put the machines on an encrypted network (WireGuard or a VPN) and unset the variable"
)


def _references() -> int:
    """How many references there are to an array that only a buffer's pair holds, counted as it will be counted."""
    made = np.empty(1)
    pairs = [(torch.from_numpy(made), made)]
    del made
    for pair in pairs:
        return sys.getrefcount(pair[1])
    raise AssertionError


ALONE = _references()


def _common_name(store: Store, rank: int, size: int) -> str:
    """A name for this start of the ranks alone, which all of them learn from rank 0.

    torchrun keeps one store over its restarts, so keys of ranks that died are still there, and their addresses with
    them (pytorch issue 135712); its count of restarts differs from machine to machine. So every rank says hello with a
    word of its own until rank 0, which first clears what it finds, has answered that very word.
    """
    word = secrets.token_hex(8)
    if rank == 0:
        keys = [f"hello/{r}" for r in range(1, size)]
        for key in keys:
            store.forget(key)
        if keys:
            _wait(store, keys, "did not start")
        for key in keys:
            store.set(f"welcome/{store.get(key)}", word)
        return word
    limit = time.monotonic() + MEETING
    while time.monotonic() < limit:
        store.set(f"hello/{rank}", word)
        if store.has(f"welcome/{word}"):  # a wait that runs out would print torch's warnings
            return store.get(f"welcome/{word}")
        time.sleep(0.05)
    raise OwnstepError(f"rank 0 did not answer within {MEETING:g} s")


def _wait(store: Store, keys: Sequence[str], failing: str) -> None:
    missing = [f"rank {key.rpartition('/')[2]}" for key in store.absent(keys, MEETING)]
    if missing:
        raise OwnstepError(f"{', '.join(missing)} {failing} within {MEETING:g} s")


class Ranks:
    """All processes of a run.

    Parameters
    ----------
    deadline : seconds the slowest rank may be behind the fastest before it counts as hung.
    device : where the vectors live; a GPU makes the backend NCCL, everything else gloo, unless the environment variable
        :data:`BACKEND` says gloo, as for several ranks on one GPU, which NCCL refuses.
    """

    def __init__(self, deadline: float = DEADLINE, device: str | torch.device = "cpu") -> None:
        if not deadline > 0:
            raise InvalidInput(f"deadline must be a positive number of seconds, got {deadline!r}")
        if not (dist.is_initialized() or torchrun.started()):
            raise OwnstepError(torchrun.HOW)
        self.deadline, self.device = float(deadline), torch.device(device)
        gpu = self.device.type == "cuda"
        self.backend = os.environ.get(BACKEND) or ("nccl" if gpu else "gloo")
        if self.backend not in ("gloo", "nccl") or (self.backend == "nccl" and not gpu):
            raise InvalidInput(f"{BACKEND} is gloo, or nccl where the vectors live on a GPU; got {self.backend!r}")
        # gloo gathers from host memory alone; what is gathered is small
        self.gathering = self.device if self.backend == "nccl" else torch.device("cpu")
        limit = timedelta(seconds=deadline)
        if gpu:
            torch.cuda.set_device(self.device)
        if self.backend == "nccl":
            # Without this NCCL ends the process on a deadline; with it the wait raises, and the rank can be named.
            os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")
        if dist.is_initialized():  # the caller's own group; ours has our deadline
            self.group = dist.new_group(backend=self.backend, timeout=limit)
            self.store = Store(dist.PrefixStore("ownstep", dist.distributed_c10d._get_default_store()))
            self.rank, self.size = dist.get_rank(), dist.get_world_size()
        else:
            self._join(limit)
            self.group = dist.group.WORLD
        self._kept: dict[int, tuple[torch.Tensor, NDArray[np.float64]]] = {}
        self._lent: dict[int, list[tuple[torch.Tensor, NDArray[np.float64]]]] = {}
        self.bytes, self.store_lost = 0, False
        self.round = 0
        self._stop_wanted, self.stop_agreed = False, False
        self.save_at, self.save_agreed = np.inf, False
        self.names: dict[int, str] = {}
        self._say("who", f"{socket.gethostname()}, process {os.getpid()}")
        self.meet("start")
        # learned now: when somebody is missing the store may be, too
        self.names = {rank: self.store.get(f"who/{rank}") for rank in range(self.size)}

    def _join(self, limit: timedelta) -> None:
        from torch.distributed.rendezvous import rendezvous

        store, self.rank, self.size = next(iter(rendezvous("env://", timeout=timedelta(seconds=MEETING))))
        store = dist.PrefixStore(_common_name(Store(store), self.rank, self.size), store)
        self.store = Store(dist.PrefixStore("ownstep", store))
        try:
            dist.init_process_group(
                self.backend, store=store, rank=self.rank, world_size=self.size, timeout=limit
            )  # fmt: skip
        except RuntimeError as error:
            if "unsupported gloo device" in str(error) and os.environ.get("GLOO_DEVICE_TRANSPORT") == "TCP_TLS":
                raise OwnstepError(NO_TLS.format(version=torch.__version__)) from error
            raise OwnstepError(f"the ranks could not connect to each other: {error}") from error
        atexit.register(self._leave)

    def _leave(self) -> None:
        """End torch's threads before the interpreter ends: they do with the last reference to the group."""
        self.group = None
        if self.store_lost:  # taking the group down would ask the store again, and wait
            return
        if dist.is_initialized():
            dist.destroy_process_group()

    def meet(self, where: str) -> None:
        """Wait until every rank has come this far; loading data may take some much longer than others."""
        self._say(where, "")
        _wait(self.store, [f"{where}/{rank}" for rank in range(self.size)], "did not arrive")

    def add(self, total: Any, numbers: NDArray[np.float64]) -> tuple[Any, NDArray[np.float64]]:
        """(the sum over ranks of a vector, the sum of a few float64 numbers): one all-reduce of one vector.

        The numbers must be of one rank each, zero on all others, as every device's loss is. In a float32 vector they
        travel as two entries, hi + lo, and arrive with 48 bits. Two control words ride along: does anybody want to
        stop, and does rank 0 want to save? So all ranks do either after the same round.
        """
        words = (float(self._stop_wanted), float(time.monotonic() > self.save_at))
        if isinstance(total, np.ndarray) and total.dtype == np.float64:
            n = total.size
            buffer, joined = self._buffer(n + len(numbers) + 2)
            joined[:n] = total.ravel()
            joined[n:-2] = numbers
            joined[-2:] = words
            self.reduce(buffer)
            out = joined.copy() if len(joined) <= KEPT else joined.view()
            summed, ending = out[:n].reshape(total.shape), out[n:].copy()  # so that the sum alone holds the buffer
        else:
            summed, ending = self._add_tensor(total, np.concatenate([numbers, words]))
        self.stop_agreed |= bool(ending[-2] > 0)
        self.save_agreed |= bool(ending[-1] > 0)
        return summed, ending[:-2]

    def _buffer(self, size: int) -> tuple[torch.Tensor, NDArray[np.float64]]:
        """The same memory as torch and as NumPy see it.

        A small one is kept, and copied out of. A large one is handed out as it is, and used again once nobody holds a
        view of it any more: memory that is new to the process costs more than the all-reduce of it.
        """
        if size in self._kept:
            return self._kept[size]
        for pair in self._lent.get(size, ()):
            if sys.getrefcount(pair[1]) <= ALONE:
                return pair
        made = np.empty(size)
        pair = torch.from_numpy(made), made
        if size <= KEPT:
            self._kept[size] = pair
        elif len(lent := self._lent.setdefault(size, [])) < MOST_LENT:
            lent.append(pair)
        return pair

    def _add_tensor(self, total: Any, small: NDArray[np.float64]) -> tuple[Any, NDArray[np.float64]]:
        flat = torch.as_tensor(total).reshape(-1)
        n, wire = len(flat), flat.dtype if flat.dtype in (torch.float32, torch.float64) else torch.float32
        if wire is torch.float32:
            with np.errstate(over="ignore", invalid="ignore"):  # a loss beyond float32 is infinite: diverged
                high = small.astype(np.float32)
                small = np.concatenate([high, (small - high).astype(np.float32)])
        buffer = torch.cat([flat.to(wire), torch.as_tensor(small).to(flat.device)])
        self.reduce(buffer)
        ending = np.asarray(buffer[n:].cpu().numpy(), float)
        if wire is torch.float32:
            high, low = np.split(ending, 2)
            ending = np.where(np.isfinite(high), high + low, high)
        summed = buffer[:n].reshape(np.shape(total))
        return (summed.numpy() if isinstance(total, np.ndarray) else summed.to(flat.dtype)), ending

    def reduce(self, buffer: torch.Tensor) -> None:
        """Add up a tensor over all ranks, in place."""
        self.bytes += buffer.nbytes
        try:
            self.group.allreduce([buffer]).wait()  # what dist.all_reduce does, without its bookkeeping of 20 us
            if buffer.is_cuda:
                torch.cuda.current_stream().synchronize()  # so that a deadline passes here, where it is named
        except RuntimeError as error:
            raise self._lost(error) from error

    def exchange(self, send: dict[int, torch.Tensor], receive: dict[int, torch.Tensor]) -> None:
        """Send a tensor to some ranks while filling those that others send."""
        calls = [dist.P2POp(dist.isend, t, rank, self.group) for rank, t in sorted(send.items())]
        calls += [dist.P2POp(dist.irecv, t, rank, self.group) for rank, t in sorted(receive.items())]
        if not calls:
            return
        with self._named():
            for work in dist.batch_isend_irecv(calls):
                work.wait()

    def gather(self, data: bytes) -> list[bytes]:
        """What every rank has to say, on every rank."""
        lengths = self._all_gather(torch.tensor([len(data)]))
        widest = int(max(lengths))
        padded = torch.zeros(max(1, widest), dtype=torch.uint8)
        padded[: len(data)] = torch.frombuffer(bytearray(data) or bytearray(1), dtype=torch.uint8)[: len(data)]
        return [bytes(p[: int(n)].numpy()) for p, n in zip(self._all_gather(padded), lengths, strict=True)]

    def spread(self, data: bytes, source: int) -> bytes:
        """The bytes of one rank, on every rank."""
        size = torch.tensor([len(data)], device=self.gathering)
        with self._named():
            dist.broadcast(size, source, group=self.group)
            out = torch.zeros(int(size), dtype=torch.uint8, device=self.gathering)
            if self.rank == source:
                out.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
            dist.broadcast(out, source, group=self.group)
        return bytes(out.cpu().numpy())

    def agree(self, what: str, digest: bytes) -> None:
        """Do all ranks have the same? An error names those that differ from the first."""
        seen = self.gather(digest)
        others = [rank for rank, other in enumerate(seen) if other != seen[0]]
        if others:
            raise OwnstepError(
                f"the ranks do not agree on {what}: {', '.join(map(self.who, others))} differ from {self.who(0)}"
            )

    def together(self, act: Callable[[], Any]) -> None:
        """Act on every rank; an error of ours on any of them ends the run on all, and says where it happened."""
        trouble: OwnstepError | None = None
        try:
            act()
        except OwnstepError as error:
            trouble = error
        said = self.gather(b"" if trouble is None else plain_text(trouble).encode())
        if trouble is not None:
            raise trouble
        for rank, text in enumerate(said):
            if text:
                raise OwnstepError(f"{self.who(rank)}: {text.decode()}")

    def who(self, rank: int) -> str:
        """A rank with its machine and process, as it said at the start."""
        said = self.names.get(rank)
        return f"rank {rank}" if said is None else f"rank {rank} ({said})"

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While inside, Ctrl-C and SIGTERM ask all ranks to stop after the same round; the second Ctrl-C insists."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def hear(number: int, frame: Any) -> None:
            if self._stop_wanted and number == signal.SIGINT:
                raise KeyboardInterrupt
            self._stop_wanted = True

        before = {s: signal.signal(s, hear) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        mine = tensor.to(self.gathering)
        out = [torch.empty_like(mine) for _ in range(self.size)]
        with self._named():
            dist.all_gather(out, mine, group=self.group)
        return [t.cpu() for t in out]

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # torch raises it for a deadline and for a broken connection
            raise self._lost(error) from error

    def _lost(self, error: RuntimeError) -> OwnstepError:
        late = "imed out" in str(error) or "imeout" in str(error)
        where, within_ = f"round {self.round}", f"within {self.deadline:g} s"
        try:
            self._say("alive", "")
            keys = [f"alive/{rank}" for rank in range(self.size)]
            patience = (GRACE if late else 1.0) + (self.rank == 0)  # who may host the store leaves last
            missing = [keys.index(key) for key in self.store.absent(keys, patience)]
        except StoreSilent:
            self.store_lost = True
            return OwnstepError(
                f"{where}: no answer {within_}, and none from the launcher's store: the process that hosts it is "
                f"frozen or gone, which is the first machine's torchrun or {self.who(0)}"
            )
        except RuntimeError:
            self.store_lost = True
            return OwnstepError(f"{where}: neither a rank nor the launcher's store answers: {error}")
        names = ", ".join(self.who(rank) for rank in missing)
        if late and missing:
            return OwnstepError(f"{where}: no answer from {names} {within_}")
        if missing:
            return OwnstepError(f"{where}: lost the connection to {names}")
        return OwnstepError(f"{where}: a connection between the ranks broke: {error}")

    def _say(self, topic: str, text: str) -> None:
        self.store.set(f"{topic}/{self.rank}", text)
