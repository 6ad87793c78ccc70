"""Smoothness of a network by gradient differences: the paper's Remark, vectorised over draws and devices.

    ratio = |grad f_i(x + eps v) - grad f_i(x)| / |eps v|,      x drawn from a region, v standard normal,

and L_i is estimated by the largest ratio of many draws. That is a lower bound of the smoothness over the region, and a
loose one in high dimension: a random direction rarely meets the steepest one. The history of the running
maximum shows whether it has settled. Everything is computed in float64: float32 cannot resolve a perturbation of 1e-6.

Where the gradient jumps, as it does when a max-pool or ReLU changes its mind, no smoothness constant exists: a draw
that straddles a jump gives a ratio of about jump/eps, however small eps is. Such draws are rare and large, so
they make the maximum; ``products=True`` measures the curvature between the jumps alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ownstep.problems.network.cuda_graph import fault
from ownstep.problems.network.problem import Network
from ownstep.problems.network.stack import layouts, stacked_forward
from ownstep.smoothness.base import Smoothness
from ownstep.support.checks import whole_number
from ownstep.support.errors import InvalidInput, unknown_name
from ownstep.support.progress import Bar

CPU_MEMORY = 2**28
"""Bytes of activations and gradients one vectorised pass may hold on a CPU, roughly; on a GPU half of what is free."""


@dataclass(frozen=True, eq=False)
class Region:
    """Where parameters are drawn: ``centre`` + ``scale`` times standard normal; the centre is 0 by default."""

    scale: float = 0.05
    centre: Any = None

    def __post_init__(self) -> None:
        if not self.scale >= 0:
            raise InvalidInput(f"Region(scale) must be at least 0, got {self.scale!r}")


@dataclass(frozen=True, eq=False)
class Sampled(Smoothness):
    """A sampled estimate that shows how it came to be.

    Parameters
    ----------
    history : (draws, devices) running maxima of the ratios; the last row is ``values``.
    pooled_history : (draws,) the same for f itself.
    seconds : how long the draws took.
    """

    history: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))
    pooled_history: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    seconds: float = 0.0

    @property
    def settled(self) -> NDArray[np.float64]:
        """How much each maximum grew over the last half of the draws, relative: 0 means it has settled."""
        half = self.history[max(0, len(self.history) // 2 - 1)]
        growth: NDArray[np.float64] = self.values / half - 1
        return growth

    def to_dict(self) -> dict[str, Any]:
        """Plain data; of the history, about 50 draws evenly spaced on a log axis."""
        at = np.unique(np.geomspace(1, len(self.history), 50).astype(int)) - 1
        return super().to_dict() | {
            "draws": len(self.history),
            "growth_over_last_half": self.settled.tolist(),
            "history": {
                "draws": (at + 1).tolist(), "L": self.history[at].tolist(), "pooled": self.pooled_history[at].tolist(),
            },
        }  # fmt: skip


def differences(
    problem: Network,
    region: Region | None = None,
    draws: int = 1000,
    epsilon: float = 1e-6,
    samples: int | None = 100,
    norm: str = "tensors",
    products: bool = False,
    dtype: torch.dtype = torch.float64,
    chunk: int | None = None,
    layout: str | None = None,
    fused: bool = False,
    seed: int = 0,
    progress: bool | None = None,
) -> Sampled:
    """Estimate every L_i, and the smoothness of f, by the largest of many gradient-difference ratios.

    Parameters
    ----------
    region : where the parameters are drawn; N(0, 0.05^2) by default, as the paper's code does for MNIST.
    draws : how many; draw j depends on (seed, j) alone, so more draws go on where fewer ended.
    epsilon : scale of the perturbation (the paper's: 1e-6 on MNIST, 1e-8 on CIFAR-10).
    samples : of every device that are looked at, drawn with the seed and fixed; None for all of them.
    norm : ``"tensors"`` sums the norms of the model's tensors, above and below, as the paper's code does;
        ``"euclidean"`` is the norm of the whole vector, to which the definition of smoothness refers.
    products : use exact Hessian-vector products, the limit epsilon -> 0, in place of differences.
    dtype : of the arithmetic.
    chunk : draws in one vectorised pass; chosen from the memory there is by default, and then without cuDNN's trials.
        Changes results by rounding alone.
    layout : how many models are run at once, see :mod:`ownstep.problems.network.stack`; on a GPU ``"grouped"`` where
        the model allows it, ``"vmap"`` elsewhere.
    fused : run differences in the ``"patches"`` layout with its small operations fused by ``torch.compile``, if that
        changes nothing.
    """
    _require_network(problem)
    whole_number("draws", draws, 1)
    if not epsilon > 0:
        raise InvalidInput(f"epsilon must be positive, got {epsilon!r}")
    if norm not in ("tensors", "euclidean"):
        raise unknown_name("norm", norm, ["tensors", "euclidean"])
    region = Region() if region is None else region
    inputs, targets, shares = _fixed_batch(problem, samples, dtype, seed)
    model = _in_precision(problem, dtype)
    weights = torch.as_tensor(problem.weights, dtype=dtype, device=problem.device)
    centre = 0 if region.centre is None else torch.as_tensor(region.centre).to(problem.device, dtype)
    if layout is None:
        stackable = problem.device.type == "cuda" and "grouped" in layouts(problem.model)
        layout = "patches" if stackable and fused else "grouped" if stackable else "vmap"
    forward: Any = torch.compile(stacked_forward, dynamic=False) if fused and not products else stacked_forward
    size = _chunk(problem, inputs, dtype, layout) if chunk is None else whole_number("chunk", chunk, 1)

    def device_gradients(x: Tensor) -> Tensor:
        """(devices, dim): grad f_i(x) on the fixed samples."""
        one = torch.func.grad(model.loss_on)
        return torch.func.vmap(one, in_dims=(None, 0, 0, 0))(x, inputs, targets, shares)

    def all_gradients(xs: Tensor) -> Tensor:
        """(draws, devices, dim)"""
        if layout == "vmap":
            return torch.func.vmap(device_gradients)(xs)
        return _stacked_gradients(forward, model, xs, inputs[0], targets, shares, layout)

    def device_products(x: Tensor, v: Tensor) -> Tensor:
        """(devices, dim): the Hessian of f_i at x, times v, which is the gradient of <grad f_i(x), v>."""
        along_v = torch.func.grad(lambda x, *data: torch.func.grad(model.loss_on)(x, *data) @ v)
        return torch.func.vmap(along_v, in_dims=(None, 0, 0, 0))(x, inputs, targets, shares)

    def change(xs: Tensor, vs: Tensor) -> Tensor:
        if products and layout == "vmap":
            return torch.func.vmap(device_products)(xs, vs)
        if products:
            return _stacked_gradients(forward, model, xs, inputs[0], targets, shares, layout, vs)
        return (all_gradients(xs + epsilon * vs) - all_gradients(xs)) / epsilon

    measure = _tensor_norms(problem) if norm == "tensors" else (lambda v: v.norm(dim=-1))
    generator = torch.Generator(device=problem.device)
    ratios, trouble = np.empty((draws, len(weights) + 1)), None
    began = time.perf_counter()
    with Bar("gradient differences", draws, progress) as bar, untried() if chunk is None else nullcontext():
        for start in range(0, draws, size):
            # a compiled pass is made for one number of draws, so the last one may look at more than are kept
            stop = start + size if fused else min(start + size, draws)
            xs, vs = _draw(generator, seed, range(start, stop), problem.dim, dtype)
            xs = centre + region.scale * xs
            if start == 0 and forward is not stacked_forward:
                trust = 1e-8 if dtype == torch.float64 else 1e-3  # what is compared will be divided by epsilon
                split = lambda out: list(problem.layout.split(out[0]).values())  # noqa: E731
                trouble = fault(lambda xs: (all_gradients(xs),), xs, pieces=split, trust=trust)
                forward = stacked_forward if trouble else forward
            changes = change(xs, vs)
            pooled = torch.einsum("i,kid->kd", weights, changes)
            found = torch.cat([measure(changes), measure(pooled)[:, None]], dim=1) / measure(vs)[:, None]
            ratios[start:stop] = found[: draws - start].cpu().numpy()
            bar.update(min(stop, draws))
    if not np.isfinite(ratios).all():
        raise InvalidInput(
            f"a gradient is not finite within {region.scale:g} of the region's centre; use a smaller scale"
        )
    maxima = np.maximum.accumulate(ratios)
    how = (
        f"largest of {draws} {'Hessian-vector' if products else 'gradient-difference'} ratios, {norm} norm, "
        f"{'' if products else f'eps {epsilon:g}, '}scale {region.scale:g}, {str(dtype).removeprefix('torch.')}"
        f"{f'; not fused: {trouble}' if trouble else ''}"
    )
    return Sampled(
        maxima[-1, :-1], "estimate", how, float(maxima[-1, -1]), maxima[:, :-1], maxima[:, -1],
        time.perf_counter() - began,
    )  # fmt: skip


@contextmanager
def untried() -> Iterator[None]:
    """Inside it cuDNN picks its algorithms without trying them out.

    On half the memory there is, trying takes longer than the draws: 200 of them on an H200 came at 16 a second with it,
    at 150 without.
    """
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def _fixed_batch(
    problem: Network, samples: int | None, dtype: torch.dtype, seed: int
) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
    """Inputs and targets (devices, m, ...) of equal m, and each sample's share of its device's mean.

    Devices with fewer samples are filled up with repeats of share zero.
    """
    m = int(problem.counts.max()) if samples is None else whole_number("samples", samples, 1)
    m = min(m, int(problem.counts.max()))
    index, share = np.zeros((len(problem.counts), m), np.intp), np.zeros((len(problem.counts), m))
    for i, count in enumerate(problem.counts):
        taken = min(m, int(count))
        index[i, :taken] = np.random.default_rng([seed, i]).choice(problem.partition.indices(i), taken, replace=False)
        share[i, :taken] = 1 / taken
    at = torch.as_tensor(index, device=problem.device)
    inputs = tuple(t.to(dtype) if t.is_floating_point() else t for t in _gather(problem, at))
    targets = problem.targets[at]
    targets = targets.to(dtype) if targets.is_floating_point() else targets
    return inputs, targets, torch.as_tensor(share, dtype=dtype, device=problem.device)


def _gather(problem: Network, at: Tensor) -> tuple[Tensor, ...]:
    """Inputs of the samples ``at`` (devices, m); blocks of different lengths are filled up with zeros."""
    if len(problem.parts) == 1:
        return tuple(t[at] for t in problem.parts[0])
    starts = np.cumsum([0] + [len(part[0]) for part in problem.parts])
    wide = [max(part[j].shape[1] for part in problem.parts) for j in range(len(problem.parts[0]))]
    out = tuple(
        t.new_zeros(at.numel(), w, *t.shape[2:]) for t, w in zip(problem.parts[0], wide, strict=True)
    )  # fmt: skip
    for row, sample in enumerate(at.ravel().tolist()):
        block = int(np.searchsorted(starts, sample, side="right")) - 1
        for whole, part in zip(out, problem.parts[block], strict=True):
            whole[row, : part.shape[1]] = part[sample - int(starts[block])]
    return tuple(t.unflatten(0, at.shape) for t in out)


def _in_precision(problem: Network, dtype: torch.dtype) -> Network:
    """The same problem with its model in another precision; the data stays as it is."""
    import copy

    other = copy.copy(problem)
    other.model = copy.deepcopy(problem.model).to(dtype)
    other.dtype, other.autocast = dtype, None
    return other


def _draw(generator: torch.Generator, seed: int, numbers: range, dim: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    both = torch.empty(2, len(numbers), dim, dtype=dtype, device=generator.device)
    for row, j in enumerate(numbers):
        generator.manual_seed(int(np.random.SeedSequence([seed, j]).generate_state(1, np.uint64)[0] >> 1))
        both[:, row] = torch.randn(2, dim, generator=generator, dtype=dtype, device=generator.device)
    return both[0], both[1]


def _tensor_norms(problem: Network) -> Any:
    return lambda v: sum(t.flatten(v.ndim - 1).norm(dim=-1) for t in problem.layout.split(v).values())


def _stacked_gradients(
    forward: Any,
    model: Network,
    xs: Tensor,
    inputs: Tensor,
    targets: Tensor,
    shares: Tensor,
    layout: str,
    vs: Tensor | None = None,
) -> Tensor:
    """The gradient of every device at every draw, or its Hessian times v: one pass over draws x devices models."""
    draws, devices = len(xs), len(shares)
    x = xs.repeat_interleave(devices, 0).requires_grad_()
    tensors = model.layout.split(x)
    data = inputs.expand(draws, *inputs.shape).flatten(0, 1)
    out = forward(model.model, tensors, data, layout)
    losses = model.loss(out.flatten(0, 1), targets.expand(draws, *targets.shape).flatten(0, 2))
    objective = (losses.view(draws, devices, -1) * shares).sum()
    if model.penalty is not None:
        objective = objective + model.penalty(tensors.values(), 1).sum()
    (found,) = torch.autograd.grad(objective, x, create_graph=vs is not None)
    if vs is not None:
        (found,) = torch.autograd.grad((found * vs.repeat_interleave(devices, 0)).sum(), x)
    return found.view(draws, devices, -1)


def _chunk(problem: Network, inputs: tuple[Tensor, ...], dtype: torch.dtype, layout: str) -> int:
    """Draws that fit: a guess of so many times the inputs, and six gradients per device, for each."""
    wide = torch.finfo(dtype).bits // 8
    each = (800 if layout == "patches" else 100) * sum(t.numel() for t in inputs) * wide + 6 * len(
        problem.counts
    ) * problem.dim * wide
    free = torch.cuda.mem_get_info(problem.device)[0] // 2 if problem.device.type == "cuda" else CPU_MEMORY
    return max(1, int(free // each))


def _require_network(problem: Any) -> None:
    if not isinstance(problem, Network):
        raise InvalidInput(f"this measures networks, got {type(problem).__name__}; linear models have 'exact'")
