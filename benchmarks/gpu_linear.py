"""What does a round of a linear model cost on a GPU? Against the reads it needs, and against cuSPARSE's own products.

    python benchmarks/gpu_linear.py --out FOLDER [--device cuda] [--rows 10000000] [--bandwidth 4.2e12]

Writes FOLDER/gpu-linear.json: medians in seconds, ratios, the machine and versions. Needs torch and NumPy alone.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ownstep import OwnStep, partition, run
from ownstep.engines import describe
from ownstep.problems import logistic_regression


def interleaved(device: torch.device, repeats: int, calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Median seconds of each call, measured in turns, each until the device is done."""
    wait = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeats + 2):
        for name, call in calls.items():
            wait()
            began = time.perf_counter()
            call()
            wait()
            if turn >= 2:
                times[name].append(time.perf_counter() - began)
    return {name: float(np.median(t)) for name, t in times.items()}


def dense(device: torch.device, n: int, d: int, bandwidth: float, repeats: int) -> dict[str, Any]:
    generator = torch.Generator(device=device).manual_seed(0)
    rows = torch.randn(n, d, generator=generator, device=device, dtype=torch.float32)
    labels = (rows[:, 0] + torch.randn(n, generator=generator, device=device) > 0).cpu().numpy()
    out: dict[str, Any] = {"rows": n, "features": d, "dtype": "float32", "bytes": rows.nbytes}
    made = {
        count: logistic_regression(
            rows, labels, partition.given(np.arange(n) * count // n), dtype=np.float32, device=device
        )
        for count in (1, 10_000)
    }
    x = torch.randn(d, generator=generator, device=device) * 0.1
    w = torch.randn(n, generator=generator, device=device)
    table = made[1].table
    found = interleaved(
        device,
        repeats,
        {
            "round, 1 device": lambda: made[1].mix(x, made[1].weights),
            "round, 10,000 devices": lambda: made[10_000].mix(x, made[10_000].weights),
            "A x": lambda: table.times(x),
            "A^T w, as a round has it": lambda: table.back(w),
            "A^T w, one call of cuBLAS": lambda: rows.T @ w,
            "w^T A, one call of cuBLAS": lambda: w @ rows,
            "pointwise loss and slope": lambda: made[1]._pointwise(w, made[1]._y),
            "two plain sums over the rows": lambda: (rows.sum(), rows.sum()),
        },
    )
    floor = 2 * rows.nbytes / bandwidth
    out |= {"seconds": found, "two reads at the stated bandwidth": floor, "stated bandwidth": bandwidth}
    out["round / two reads at the stated bandwidth"] = found["round, 1 device"] / floor
    out["round / two plain sums"] = found["round, 1 device"] / found["two plain sums over the rows"]
    out["10,000 devices / 1 device"] = found["round, 10,000 devices"] / found["round, 1 device"]
    began = time.perf_counter()
    plan = describe(made[1])
    out["describe, in rounds"] = (time.perf_counter() - began) / found["round, 1 device"]
    history = run(OwnStep(), made[1], 20, devices=plan.devices)
    out["f after 0 and 20 rounds"] = [float(history.value[0]), float(history.value[-1])]
    return out


def sparse(device: torch.device, n: int, d: int, per_row: int, dtype: torch.dtype, repeats: int) -> dict[str, Any]:
    generator = torch.Generator(device=device).manual_seed(0)
    columns = torch.randint(d, (n, per_row), generator=generator, device=device).sort(dim=1).values
    values = torch.randn(n * per_row, generator=generator, device=device, dtype=dtype)
    starts = torch.arange(0, n * per_row + 1, per_row, device=device, dtype=torch.int32)
    A = torch.sparse_csr_tensor(starts, columns.flatten().to(torch.int32), values, size=(n, d))
    labels = np.random.default_rng(0).integers(0, 2, n)
    made = logistic_regression(A, labels, dtype=str(dtype).removeprefix("torch."), device=device)
    x = torch.randn(d, generator=generator, device=device, dtype=dtype) * 0.1
    w = torch.randn(n, generator=generator, device=device, dtype=dtype)
    At = made.table.At
    found = interleaved(
        device,
        repeats,
        {
            "round": lambda: made.mix(x, made.weights),
            "cuSPARSE: A x and A^T w": lambda: (A @ x, At @ w),
            "pointwise loss and slope": lambda: made._pointwise(w, made._y),
        },
    )
    return {
        "rows": n,
        "features": d,
        "non-zeros": n * per_row,
        "dtype": str(dtype),
        "seconds": found,
        "round / cuSPARSE's two products": found["round"] / found["cuSPARSE: A x and A^T w"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--bandwidth", type=float, default=4.2e12, help="bytes per second")
    parser.add_argument("--repeats", type=int, default=30)
    given = parser.parse_args()
    device = torch.device(given.device)
    about = {
        "machine": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "numpy": np.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "command": f"benchmarks/gpu_linear.py --device {given.device} --rows {given.rows}",
    }
    found: dict[str, Any] = {"about": about}
    found["dense"] = dense(device, given.rows, 100, given.bandwidth, given.repeats)
    for dtype in (torch.float32, torch.float64):
        name = str(dtype).removeprefix("torch.")
        found[f"sparse 400k x 5k, {name}"] = sparse(device, given.rows // 25, 5000, 50, dtype, given.repeats)
        found[f"sparse 2M x 10k, {name}"] = sparse(device, given.rows // 5, 10_000, 10, dtype, given.repeats)
    given.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found, indent=1)
    (given.out / "gpu-linear.json").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
