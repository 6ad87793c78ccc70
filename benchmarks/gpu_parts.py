"""The measurements behind ``gpu.py --what bench``: correctness first, then times against their floors."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

import network as peers
from ownstep import partition as partitions
from ownstep.engines.local.stacked import Job, Stack
from ownstep.methods import GD
from ownstep.plan import Devices
from ownstep.problems import Network, PerDevice, TensorNorms
from ownstep.problems.network.encoder import Encoder, Shape
from ownstep.problems.network.models import CropFlip, cifar_cnn, mnist_cnn
from ownstep.problems.network.stack import layouts
from ownstep.problems.network.text import text_classifier
from ownstep.smoothness import Region, differences


@contextmanager
def tf32(enabled: bool) -> Any:
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = enabled
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def median_ms(work: Callable[[], Any], device: str, rounds: int = 10, warm: int = 3) -> float:
    return 1e3 * statistics.median(peers.times(work, rounds, device, warm))


def images(n: int, channels: int, side: int, device: str, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    x = torch.as_tensor(rng.random((n, channels, side, side), np.float32)).to(device)
    return x, torch.as_tensor(rng.integers(0, 10, n)).to(device)


def gap(mine: torch.Tensor, reference: torch.Tensor) -> float:
    mine, reference = mine.double().cpu(), reference.double().cpu()
    return float((mine - reference).norm() / reference.norm())


def mnist_problem(x: torch.Tensor, y: torch.Tensor, count: int, device: str, **options: Any) -> Network:
    split = partitions.iid(len(y), count)
    return Network(mnist_cnn(), x, y, split, penalty=TensorNorms(0.01), device=device, **options)


def correctness(device: str, tiny: bool) -> dict[str, Any]:
    """Relative error of a mix against float64 on the CPU, for each way to compute it, at two fresh points."""
    x, y = images(40 if tiny else 300, 1, 28, device)
    exact = mnist_problem(x.cpu().double(), y.cpu(), 7, "cpu", dtype=torch.float64)
    rng = np.random.default_rng(1)
    points = [0.05 * torch.as_tensor(rng.standard_normal(exact.dim)) for _ in range(2)]
    c = rng.random(7)
    out: dict[str, Any] = {}
    ways: dict[str, tuple[bool, dict[str, Any]]] = {
        "fp32, plain": (False, {"graph": False}),
        "fp32, graph": (False, {}),
        "tf32, graph": (True, {}),
        "tf32, graph, channels last": (True, {"channels_last": True}),
        "bf16, graph, channels last": (True, {"channels_last": True, "autocast": torch.bfloat16}),
    }
    for name, (loose, options) in ways.items():
        with tf32(loose):
            problem = mnist_problem(x, y, 7, device, **options)
            errors = [gap(problem.mix(p, c)[1], exact.mix(p, c)[1]) for p in points]
            own = [gap(problem.each(p)[1], exact.each(p)[1]) for p in points]  # the second must not repeat the first
        out[name] = {"gradient": max(errors), "every device": max(own), "replay": problem.replay_note}
    x, y = images(40, 3, 32, device)
    for way, loose in (("fp32", False), ("tf32", True)):
        for layout in layouts(cifar_cnn()):
            with tf32(loose):
                stack, alone = cifar_stack(x, y, 3, device, layout)
                drawn = stack.table(0, 2)
                worst = 0.0
                for k in range(2):
                    _, sums = stack.evaluate(drawn[k].to(device))
                    for m, problem in enumerate(alone):
                        problem.begin_round(k)
                        worst = max(worst, gap(sums[m], problem.mix(stack.x[m].cpu().double(), problem.weights)[1]))
            out[f"stacked CIFAR-10, {layout}, {way}"] = {"gradient": worst, "replay": stack.replay.note}
    return out


def cifar_stack(
    x: torch.Tensor, y: torch.Tensor, models: int, device: str, layout: str, fused: bool = False
) -> tuple[Stack, list[Network]]:
    labels = y.cpu().numpy() % 10
    split = partitions.given(np.concatenate([np.arange(10), labels[10:]]))
    jobs, alone = [], []
    for m in range(models):
        options: dict[str, Any] = {
            "penalty": TensorNorms(1e-5), "batch": PerDevice(1), "augment": CropFlip(), "seed": m,
        }  # fmt: skip
        problem = Network(cifar_cnn(m), x, y, split, device=device, **options)
        jobs.append(Job(str(m), GD(0.001), problem, Devices(problem.weights, np.ones(10)), problem.x0()))
        if models <= 3:
            alone.append(Network(cifar_cnn(m), x.cpu().double(), y.cpu(), split, dtype=torch.float64, **options))
    stack = Stack(jobs, layout, fused=fused)
    stack.x.copy_(torch.stack([job.x0 for job in jobs]))
    stack.set_mixes([job.problem.weights for job in jobs])
    return stack, alone


def ceilings(device: str, tiny: bool) -> dict[str, float]:
    """What the machine can do: a large matrix product in each precision, and a copy."""
    n = 256 if tiny else 8192
    out = {}
    for name, dtype, loose in (
        ("fp64", torch.float64, False), ("fp32", torch.float32, False),
        ("tf32", torch.float32, True), ("bf16", torch.bfloat16, True),
    ):  # fmt: skip
        a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
        with tf32(loose):
            out[f"{name} TFLOP/s"] = 2e-9 * n**3 / median_ms(lambda a=a, b=b: a @ b, device, 5)
    big = torch.randn(n * n * 8, device=device)
    other = torch.empty_like(big)
    out["copy TB/s"] = 2e-9 * big.nbytes / median_ms(lambda: other.copy_(big), device, 5)
    return out


def flops(problem: Network) -> float:
    with FlopCounterMode(display=False) as counter:
        problem._whole(
            problem.x0(), torch.ones(len(problem.weights), device=problem.device), torch.ones((), device=problem.device)
        )
    return float(counter.get_total_flops())


def full_batch(device: str, tiny: bool) -> dict[str, Any]:
    """A full-batch MNIST iteration in each precision and layout, with its arithmetic floor."""
    n = 60 if tiny else 60000
    x, y = images(n, 1, 28, device)
    each = flops(mnist_problem(x[:50], y[:50], 5, device, graph=False)) / 50
    out: dict[str, Any] = {"samples": n, "FLOP": each * n}
    c = np.full(5, 0.002)
    for name, loose, options in (
        ("fp32", False, {}),
        ("fp32 plain calls", False, {"graph": False}),
        ("tf32", True, {}),
        ("tf32 channels last", True, {"channels_last": True}),
        ("bf16 channels last", True, {"channels_last": True, "autocast": torch.bfloat16}),
    ):
        with tf32(loose):
            problem = mnist_problem(x, y, 5, device, **options)
            point = problem.x0()
            out[name] = {"ms": median_ms(lambda p=problem, q=point: p.mix(q, c), device), "replay": problem.replay_note}
        out[name]["TFLOP/s"] = 1e-9 * each * n / out[name]["ms"]
    return out


def compiled(device: str, tiny: bool) -> dict[str, Any]:
    """The same iteration with the model fused by ``torch.compile``, inside a CUDA graph."""
    n = 60 if tiny else 60000
    x, y = images(n, 1, 28, device)
    out: dict[str, Any] = {}
    for name, options in (("tf32", {}), ("bf16", {"autocast": torch.bfloat16})):
        with tf32(True):
            problem = mnist_problem(x, y, 5, device, channels_last=True, fused=True, **options)
            began = time.perf_counter()
            point, c = problem.x0(), np.full(5, 0.002)
            problem.mix(point, c)
            seconds = time.perf_counter() - began
            ms = median_ms(lambda p=problem, q=point, c=c: p.mix(q, c), device)
        out[name] = {"ms": ms, "compile_seconds": seconds, "replay": problem.replay_note}
    return out


def every_device(device: str, tiny: bool) -> list[dict[str, Any]]:
    """Every device's own gradient, which methods without a server ask for: recorded as one graph, and plainly."""
    n = 60 if tiny else 5000
    rows = []
    x, y = images(n, 1, 28, device)
    for count in (5, 20):
        with tf32(True):
            found = {}
            for way, graph in (("plain", False), ("recorded", True)):
                problem = mnist_problem(x, y, count, device, graph=graph)
                point = problem.x0()
                found[way] = median_ms(lambda p=problem, q=point: p.each(q), device)
            c = np.ones(count)
            whole = median_ms(lambda p=problem, q=point, c=c: p.mix(q, c), device)
        rows.append({"devices": count, "ms": found, "one mix ms": whole, "saving": found["plain"] / found["recorded"]})
    return rows


def one_backward(device: str, tiny: bool) -> list[dict[str, Any]]:
    """Algorithm 1 against GD, plain PyTorch GD, and the loop over devices."""
    with tf32(True):
        if tiny:
            return peers.measure(40, 2, device, (5, 20))
        return [row for n in (5000, 60000) for row in peers.measure(n, 15, device, (5, 1000), channels_last=True)]


def draws(device: str, tiny: bool) -> dict[str, Any]:
    """Draws a second of ``differences`` (ten devices, float64, as many at once as fit) against one at a time."""
    out: dict[str, Any] = {}
    for samples in (2,) if tiny else (10, 100):
        x, y = images(10 * samples, 1, 28, device)
        split = partitions.given(np.arange(10 * samples) % 10)
        problem = Network(mnist_cnn(), x, y, split, penalty=TensorNorms(0.01), device=device)
        row: dict[str, Any] = {}
        ways = {"vmap": ("vmap", False), "grouped": ("grouped", False), "patches": ("patches", False)}
        ways |= {} if tiny else {"patches, fused": ("patches", True)}
        count = 2 if tiny else 20000 // samples
        for name, (layout, fused) in ways.items():
            options: dict[str, Any] = {"samples": samples, "layout": layout, "fused": fused}
            differences(problem, Region(0.05), 1, progress=False, **options)
            began = time.perf_counter()
            differences(problem, Region(0.05), count, progress=False, **options)
            peers.wait(device)
            row[name] = count / (time.perf_counter() - began)
        fastest = max(row.values())
        row["one at a time"] = one_at_a_time(x, y, split, 1 if tiny else 10, device)
        row["ratio"] = fastest / row["one at a time"]
        out[f"{samples} samples a device"] = row
    return out


def one_at_a_time(x: torch.Tensor, y: torch.Tensor, split: partitions.Partition, count: int, device: str) -> float:
    """Draws a second of the plain float64 loop: for every draw and device two backward passes."""
    model = mnist_cnn().double().to(device)
    data = [(x[split.indices(i)].double(), y[split.indices(i)]) for i in range(len(split))]
    parameters = list(model.parameters())

    def gradients(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        loss = F.cross_entropy(model(a), b) + 0.01 * sum(p.norm() for p in parameters)
        return torch.autograd.grad(loss, parameters)

    def once() -> float:
        largest = 0.0
        with torch.no_grad():
            for p in parameters:
                p.copy_(0.05 * torch.randn_like(p))
        moves = [1e-6 * torch.randn_like(p) for p in parameters]
        for a, b in data:
            before = gradients(a, b)
            with torch.no_grad():
                torch._foreach_add_(parameters, moves)
            after = gradients(a, b)
            with torch.no_grad():
                torch._foreach_sub_(parameters, moves)
            above = sum(float((g - h).norm()) for g, h in zip(after, before, strict=True))
            largest = max(largest, above / sum(float(m.norm()) for m in moves))
        return largest

    once()
    peers.wait(device)
    began = time.perf_counter()
    for _ in range(count):
        once()
    peers.wait(device)
    return count / (time.perf_counter() - began)


def stacked_times(device: str, models: tuple[int, ...], rounds: int, fused: bool) -> list[dict[str, Any]]:
    """Milliseconds of one CIFAR-10 iteration (batch 10) of so many models at once, in each layout."""
    x, y = images(200, 3, 32, device)
    rows = []
    for count in models:
        for layout in ("grouped", "patches, fused" if fused else "patches"):
            try:
                stack, _ = cifar_stack(x, y, count, device, layout.split(",")[0], fused and "fused" in layout)
                table = stack.table(0, 4).to(device)
                ms = median_ms(lambda s=stack, t=table: s.evaluate(t[0]), device, rounds)
                rows.append({"models": count, "layout": layout, "ms": ms, "replay": stack.replay.note})
            except RuntimeError as error:
                rows.append({"models": count, "layout": layout, "failed": str(error).splitlines()[0]})
    return rows


def seeds_at_once(device: str, tiny: bool) -> dict[str, Any]:
    rows = stacked_times(device, (1, 4) if tiny else (1, 8, 40), 2 if tiny else 20, not tiny)
    x, y = images(20, 3, 32, device)
    split = partitions.given(np.arange(20) % 10)
    each = flops(Network(cifar_cnn(), x, y, split, device=device, graph=False)) / 20
    best = {n: min(r["ms"] for r in rows if r["models"] == n and "ms" in r) for n in {r["models"] for r in rows}}
    return {
        "rows": rows, "FLOP a model": 10 * each, "TFLOP/s": {n: 1e-9 * 10 * each * n / ms for n, ms in best.items()},
        "cost of all over one": {n: ms / best[1] for n, ms in best.items()},
    }  # fmt: skip


def frozen_once(device: str, tiny: bool) -> dict[str, Any]:
    """One iteration of a six-layer encoder's last layer: from cached activations, and through all layers."""
    shape = Shape(1000, 64, 32, 64, 2, 2, 1e-12) if tiny else Shape(1000, 64, 384, 1536, 6, 12, 1e-12)
    encoder = Encoder(shape).to(device).eval()
    n, T = (4, 6) if tiny else (4096, 16)
    ids, mask = torch.randint(0, 1000, (n, T), device=device), torch.ones(n, T, dtype=torch.bool, device=device)
    y = torch.randint(0, 2, (n,), device=device)
    model = text_classifier(encoder).to(device)
    parameters = list(model.parameters())
    with torch.no_grad():
        hidden = encoder(ids, mask, shape.layers - 1)

    def cached() -> None:
        torch.autograd.grad(F.cross_entropy(model(hidden, mask), y), parameters)

    def whole() -> None:
        with torch.no_grad():
            again = encoder(ids, mask, shape.layers - 1)
        torch.autograd.grad(F.cross_entropy(model(again, mask), y), parameters)

    with tf32(True):
        a, b = median_ms(cached, device), median_ms(whole, device)
    return {"tokens": n * T, "cached ms": a, "all layers ms": b, "saving": b / a}


PIECES: dict[str, Callable[[str, bool], Any]] = {
    "ceilings": ceilings,
    "correctness": correctness,
    "full batch MNIST": full_batch,
    "one backward pass": one_backward,
    "every device": every_device,
    "draws": draws,
    "seeds at once": seeds_at_once,
    "frozen layers once": frozen_once,
    "compiled": compiled,
}
