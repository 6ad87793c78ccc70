"""Starting ranks on this machine, and knowing that one was started; torch is not needed for either."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from ownstep.support.errors import require_extra

HOW = (
    "the cluster engine runs one process per rank, and this process has no rank: start it with torchrun, such as\n"
    "  torchrun --nproc-per-node 2 -m ownstep run breast_cancer --devices 2 --rounds 500\n"
    "on one machine; docs/cluster.md has several machines, checkpoints and restarts"
)


def started() -> bool:
    """Did torchrun, or whoever speaks its language, start this process as one of several ranks?"""
    return {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= set(os.environ)


def first() -> bool:
    """Is this the process that speaks: rank 0, or the only one?"""
    return os.environ.get("RANK", "0") == "0"


def restarts() -> bool:
    """Would torchrun start the ranks again if one ended with an error?"""
    return started() and os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") not in ("", "0")


def command(ranks: int, module: str, arguments: Sequence[str], restarts: int = 0) -> list[str]:
    """The command that runs ``python -m module arguments`` as so many ranks on this machine."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    place = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"]
    return [*torchrun, *place, "--max-restarts", str(restarts), "-m", module, *arguments]


def environment() -> dict[str, str]:
    """The environment of this process, with the ranks' connections on the loopback device and one thread each."""
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None)
    quiet = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    return os.environ | quiet | ({} if loopback is None else {"GLOO_SOCKET_IFNAME": loopback})


def become(ranks: int, arguments: Sequence[str]) -> None:
    """Replace this process by so many ranks of ``ownstep arguments``; nothing is left behind when they end."""
    if find_spec("torch") is None:
        raise require_extra("torch", "torch")
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, command(ranks, "ownstep", arguments), environment())
