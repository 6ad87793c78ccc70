"""The cluster engine on a GPU, as far as one GPU allows: one rank over NCCL, and two ranks with CUDA tensors over gloo.

NCCL refuses two ranks on one GPU, so two ranks take gloo. Both are compared with the local engine on the same GPU.
Needs torch and numpy alone; prints one json document:  python benchmarks/gpu_cluster.py
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

PLACE = os.environ.get("OWNSTEP_DEVICE", "cuda:0")
"""Set it to cpu to try this file without a GPU."""
SAMPLES, FEATURES, HIDDEN, DEVICES, ROUNDS = 4000, 60, 40, 8, 60


def network() -> Any:
    """A small network whose devices differ in size and scale, on the GPU, in double precision."""
    import torch
    from torch import nn

    from ownstep import partition
    from ownstep.problems import Network

    rng = np.random.default_rng(0)
    owner = rng.integers(0, DEVICES, SAMPLES)
    inputs = rng.standard_normal((SAMPLES, FEATURES)) * np.linspace(0.5, 2, DEVICES)[owner][:, None]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 3)).double()
    labels = rng.integers(0, 3, SAMPLES)
    return Network(model, torch.as_tensor(inputs), labels, partition.given(owner), device=PLACE, dtype=torch.float64)


def devices() -> Any:
    from ownstep.plan import Devices

    weights = network().weights
    return Devices(weights, np.linspace(2, 6, DEVICES))


def worker(out: Path) -> None:
    """One rank: the run, and on rank 0 the same run by the local engine."""
    import torch

    from ownstep.engines import cluster, run
    from ownstep.methods import At, OwnStep

    problem, made = network(), devices()
    shared = cluster.deal(problem, deadline=60)
    began = time.perf_counter()
    history = cluster.run(OwnStep(At(ROUNDS // 2)), shared, ROUNDS, devices=made, progress=False)
    seconds = time.perf_counter() - began
    if shared.ranks.rank == 0:
        whole = run(OwnStep(At(ROUNDS // 2)), problem, ROUNDS, devices=made, progress=False)
        card = torch.cuda.get_device_name(0) if PLACE != "cpu" else "cpu"
        told = {
            "ranks": shared.ranks.size, "backend": shared.ranks.backend, "device": card,
            "torch": torch.__version__, "rounds": history.rounds, "stopped": history.stopped, "seconds": seconds,
            "ms_a_round": 1e3 * float(np.median(history.columns["seconds"])),
            "ms_a_round_local": 1e3 * float(np.median(whole.columns["seconds"])),
            "largest_difference": float(abs(history.x - whole.x).max()),
            "bytes_a_round": int(history.columns["bytes_up"][0]),
        }  # fmt: skip
        out.write_text(json.dumps(told))


def start(size: int, backend: str, out: Path) -> dict[str, Any]:
    """So many ranks of this file; what rank 0 found, or why there is nothing."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    place = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "WORLD_SIZE": str(size),
        "OWNSTEP_CLUSTER_BACKEND": backend,
    }
    command = [sys.executable, __file__, "--worker", str(out)]
    children = [
        subprocess.Popen(
            command, env=os.environ | place | {"RANK": str(r), "LOCAL_RANK": "0"}, stderr=subprocess.PIPE, text=True
        )
        for r in range(size)
    ]
    said = [child.communicate(timeout=300)[1] for child in children]
    if not out.exists():
        return {"ranks": size, "backend": backend, "failed": "\n".join(said)[-3000:]}
    found: dict[str, Any] = json.loads(out.read_text())
    out.unlink()
    return found


def main() -> None:
    if "--worker" in sys.argv:
        worker(Path(sys.argv[-1]))
        return
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        plans = [(1, "nccl"), (2, "gloo")] if PLACE != "cpu" else [(1, "gloo"), (2, "gloo")]
        print(json.dumps([start(size, backend, out) for size, backend in plans], indent=1))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
    main()
