"""Any torch model as a problem: one forward and one backward pass per round, whatever the number of devices.

    f_i(x) = (1/n_i) sum_{j on device i} loss(model(x; a_j), y_j) + penalty(x)

A mix sum_i c_i grad f_i is the gradient of one number, sum_j (c_{i(j)} / n_{i(j)}) loss_j: the per-sample losses are
weighted before a single backward pass. So 1,000 devices cost what plain gradient descent on the pooled data costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from ownstep.partition import Partition, as_partition
from ownstep.problems.network.batches import Batch
from ownstep.problems.network.cuda_graph import Replay
from ownstep.problems.network.inputs import LOSSES, Augment, Blocks, Loss, as_tensor, check_per_sample, cut
from ownstep.problems.network.parameters import Layout, own_copy, resolve_device
from ownstep.problems.network.penalties import Penalty
from ownstep.problems.network.products import DeviceHessian
from ownstep.support.checks import device_weights, whole_number
from ownstep.support.errors import InvalidInput, unknown_name

Call = Callable[[dict[str, Tensor], tuple[Tensor, ...]], Tensor]
CPU_CHUNK = 256
MOST_RECORDED = 100
"""Devices whose own passes are recorded as one graph; beyond, recording would take longer than it saves."""


class Network:
    """A problem from a module, a per-sample loss, tensors and a partition.

    Parameters
    ----------
    model : any ``nn.Module``, copied and put in evaluation mode; parameters with ``requires_grad=False`` stay frozen.
    inputs : a tensor, a tuple of tensors the model takes, or :class:`Blocks`; samples first.
    targets : one per sample.
    partition : who holds which sample; everything on one device by default.
    loss : (outputs, targets) -> one number per sample, or a name of :data:`LOSSES`.
    penalty : :class:`SquaredL2`, :class:`TensorNorms` or any function of the tensors; None for none.
    weights : w_i; the share of samples |D_i|/|D| by default.
    batch : :class:`PerDevice`, :class:`Pooled` or :class:`Stratified`; the full batch by default. With a batch,
        values and gradients are the batch's.
    augment : a random change of every batch, such as :class:`CropFlip`, drawn from (seed, round).
    chunk : samples in one pass; fewer save memory and change the result by rounding alone. By default everything
        on a GPU, and 256 on a CPU, whose cache they fit.
    device, dtype : where and in which precision; the CPU and the model's own by default.
    autocast : a lower precision such as ``torch.bfloat16`` for the model's matrix products alone.
    channels_last : convolution weights in channels-last order, faster on tensor cores.
    fused : let ``torch.compile`` fuse the model's small operations: some seconds once, then faster on a GPU. The first
        result is compared with the unfused one, and if they differ nothing is fused; ``replay_note`` says so.
    graph : on a GPU, record the pass once and replay it.
    seed : of batches and augmentation.
    """

    work = math.inf
    strong_convexity = 0.0

    def __init__(
        self,
        model: nn.Module,
        inputs: Tensor | tuple[Tensor, ...] | Blocks,
        targets: Tensor | ArrayLike,
        partition: Partition | None = None,
        *,
        loss: Loss | str = "cross_entropy",
        penalty: Penalty | None = None,
        weights: ArrayLike | None = None,
        batch: Batch | None = None,
        augment: Augment | None = None,
        chunk: int | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
        autocast: torch.dtype | None = None,
        channels_last: bool = False,
        fused: bool = False,
        graph: bool = True,
        seed: int = 0,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise InvalidInput(f"model must be a torch.nn.Module, got {type(model).__name__}")
        if isinstance(loss, str) and loss not in LOSSES:
            raise unknown_name("loss", loss, LOSSES)
        self.layout = Layout.of(model)
        self.device = resolve_device(device)
        self.dtype = next(p.dtype for p in model.parameters() if p.requires_grad) if dtype is None else dtype
        self.model = own_copy(model, self.device, self.dtype)
        self.loss: Loss = LOSSES[loss] if isinstance(loss, str) else loss
        self.penalty, self.augment, self.autocast, self.channels_last = penalty, augment, autocast, channels_last
        self.seed, self.round = seed, 0
        parts = inputs.parts if isinstance(inputs, Blocks) else [inputs if isinstance(inputs, tuple) else (inputs,)]
        self.parts = [tuple(self._placed(t) for t in part) for part in parts]
        self.targets = as_tensor("targets", targets).to(self.device)
        self.targets = self.targets.to(self.dtype) if self.targets.is_floating_point() else self.targets.long()
        n = sum(len(part[0]) for part in self.parts)
        if len(self.targets) != n or n == 0:
            raise InvalidInput(f"{n} samples need {n} targets and at least one, got {len(self.targets)}")
        partition = as_partition(partition, n)
        self.partition, self.names, self.counts = partition, partition.names, partition.counts
        share = self.counts / n
        self.weights = share if weights is None else device_weights(weights, len(share))
        self.batch = batch
        if batch is not None and len(self.parts) > 1:
            raise InvalidInput(f"{batch!r} needs inputs in one piece, got {len(self.parts)} blocks; use the full batch")
        self.dealer = None if batch is None else batch.deal(partition, seed)
        # A device's loss is the sum over its samples in the pass, over this many (expected) samples.
        self.divisor = np.asarray(self.counts, float)
        if self.dealer is not None:
            given = self.dealer.per_device
            self.divisor = self.dealer.size * share if given is None else np.asarray(given, float)
        self.chunk = (
            (CPU_CHUNK if self.device.type == "cpu" else None) if chunk is None else whole_number("chunk", chunk, 1)
        )
        self.fused, self.replayed = fused, graph and self.chunk is None
        self._arrange()
        tensors = self._tensors(self.x0())
        check_per_sample(lambda few, y: self.loss(self._forward(tensors, few), y), self.parts[0], self.targets)

    def _arrange(self) -> None:
        """What follows from the samples there are and who holds them; nothing of it is computed again in a pass."""
        owners, counts = self.partition.device_of, [len(part[0]) for part in self.parts]
        block = np.repeat(np.arange(len(counts)), counts)
        held = np.bincount(owners * len(counts) + block, minlength=len(self.counts) * len(counts))
        self._edges = [0, *np.cumsum(held).tolist()]  # of (device, block) in the order of devices
        self.device_of = torch.as_tensor(owners, device=self.device)
        self._by_device = torch.argsort(self.device_of, stable=True)
        self._lengths = torch.as_tensor(self.counts, dtype=torch.int64, device=self.device)
        self._inverse = torch.as_tensor(1 / self.divisor, dtype=self.dtype, device=self.device)
        self._drawn: int | None = None
        self._last_mix: tuple[NDArray[np.float64], float, Tensor, Tensor] | None = None
        once = self._whole if self.batch is None else self._weighted
        self._apply = torch.compile(self._call) if self.fused else self._call
        self._pass = Replay(once, self.replayed, self.fused, self._tensor_by_tensor)
        self._passes = Replay(self._alone, self.replayed and len(self.counts) <= MOST_RECORDED)

    @property
    def dim(self) -> int:
        """How many trainable numbers the model has."""
        return self.layout.dim

    @property
    def settings(self) -> dict[str, Any]:
        """What a checkpoint must agree with, as plain data."""
        return {
            "model": type(self.model).__name__,
            "layout": self.layout.digest,
            "samples": len(self.targets),
            "penalty": repr(self.penalty),
            "batch": repr(self.batch),
            "augment": repr(self.augment),
            "dtype": str(self.dtype),
            "autocast": None if self.autocast is None else str(self.autocast),
            "batch_seed": self.seed if self.batch is not None else None,
        }

    @property
    def replay_note(self) -> str:
        """Whether the pass, and that over every device alone, is replayed as a CUDA graph, and if not, why."""
        alone = self._passes.note
        return self._pass.note + (f"; every device alone: {alone}" if alone not in ("", self._pass.how) else "")

    def x0(self) -> Tensor:
        """The model's parameters as they were given."""
        return self.layout.join(dict(self.model.named_parameters()))

    def flat(self, state: dict[str, Tensor]) -> Tensor:
        """The flat vector of a state dict of the same model."""
        return self.layout.join({n: torch.as_tensor(state[n]) for n in self.layout.names}).to(self.device, self.dtype)

    def state_dict(self, x: Tensor) -> dict[str, Tensor]:
        """A state dict of the whole model, frozen parts included, with its trainable tensors from x."""
        mine = {name: t.detach().cpu().clone() for name, t in self.model.state_dict().items()}
        return mine | {n: t.detach().cpu().clone() for n, t in self.layout.split(self._vector(x)).items()}

    def begin_round(self, k: int) -> None:
        """Use the batch of round k from now on."""
        self.round = k

    def augmentation(self, k: int) -> NDArray[np.int64]:
        """What the augmentation of round k's batch was drawn to be."""
        assert self.augment is not None
        assert self.dealer is not None
        return self.augment.draw(np.random.default_rng([self.seed, k, 1]), self.dealer.size)

    def value(self, x: Tensor) -> float:
        """f(x), on the round's batch if there is one."""
        return float(self.weights @ self._evaluate(x, np.zeros(len(self.weights)))[0])

    def mix(self, x: Tensor, c: NDArray[np.float64]) -> tuple[NDArray[np.float64], Tensor]:
        """(f_i(x) for every device, sum_i c_i grad f_i(x)): one forward and one backward pass."""
        c = np.asarray(c, float)
        if c.ndim == 2:
            sums = [self.mix(x, column) for column in c.T]
            return sums[0][0], torch.stack([total for _, total in sums], dim=1)
        if c.shape != self.weights.shape:
            raise InvalidInput(f"a mix needs one coefficient for each of {len(self.weights)} devices, got {c.shape}")
        return self._evaluate(x, c)

    def gradients(self, x: Tensor) -> Tensor:
        """One row per device: grad f_i(x), or grad f_i(x_i) when x has one row per device."""
        return self.each(x)[1]

    def each(self, x: Tensor) -> tuple[NDArray[np.float64], Tensor]:
        """(f_i for every device, one row per device: grad f_i), at x or at row i of x, each on its own samples."""
        if self.dealer is not None:
            return self._each_of_batch(x)
        points = self._vector(x, len(self.weights))
        losses, rows = self._passes(points.expand(len(self.weights), -1))
        return losses.cpu().numpy(), rows.clone() if self._passes.recorded else rows

    def _each_of_batch(self, x: Tensor) -> tuple[NDArray[np.float64], Tensor]:
        present = torch.bincount(self.device_of[self._batch_indices()], minlength=len(self.weights)).cpu().numpy()
        if not present.all():
            raise InvalidInput(
                f"device {self.names[present.argmin()]!r} has no sample in the batch of round {self.round} "
                f"({self.batch!r}), so its gradient is unknown; use PerDevice batches"
            )
        points = self._vector(x, len(self.weights)).expand(len(self.weights), -1)
        found = [self.mix(point, c) for point, c in zip(points, np.eye(len(self.weights)), strict=True)]
        return np.array([each[i] for i, (each, _) in enumerate(found)]), torch.stack([row for _, row in found])

    def _alone(self, points: Tensor) -> tuple[Tensor, ...]:
        """(f_i, grad f_i) of every device at its own point, one pass over its samples after the other."""
        losses, rows = [], []
        for i, x in enumerate(points):
            penalty, row = self._penalised(x, x.new_ones(()))
            total = torch.zeros_like(penalty)
            for inputs, targets in self.rows(i):
                found, gradient = self._weigh(x, self._inverse[i], targets, inputs, self._call)
                total, row = total + found.sum(), row + gradient
            losses.append(total / self.divisor[i] + penalty)
            rows.append(row)
        return torch.stack(losses), torch.stack(rows)

    def data_hessian(self, x: Tensor, device: int) -> DeviceHessian:
        """The Hessian of f_i at x, penalty included, by its products with vectors."""
        return DeviceHessian(self, x, device)

    def outputs(self, x: Tensor, inputs: Tensor | tuple[Tensor, ...], chunk: int = 4096) -> Tensor:
        """The model's outputs on other inputs, without a gradient."""
        given = tuple(self._placed(t) for t in (inputs if isinstance(inputs, tuple) else (inputs,)))
        with torch.no_grad():
            tensors = self._tensors(self._vector(x))
            done = [self._forward(tensors, part) for part in cut(given, chunk)]
        return torch.cat(done)

    def accuracy(self, x: Tensor, inputs: Any = None, targets: Any = None) -> float:
        """Share of samples whose largest output is their label; of the training data by default."""
        parts = self.parts if inputs is None else inputs.parts if isinstance(inputs, Blocks) else [inputs]
        labels = self.targets if targets is None else torch.as_tensor(targets).to(self.device)
        guesses = torch.cat([self.outputs(x, part).argmax(1) for part in parts])
        return float((guesses == labels).double().mean())

    def loss_on(self, x: Tensor, inputs: tuple[Tensor, ...], targets: Tensor, coefficients: Tensor) -> Tensor:
        """The differentiable number sum_j coefficients_j loss_j + penalty(x), for measurements of curvature."""
        tensors = self.layout.split(x)  # as they are: vmap knows no channels-last copies
        total = (coefficients * self.loss(self._forward(tensors, inputs), targets)).sum()
        return total if self.penalty is None else total + self.penalty(tensors.values())

    def rows(self, device: int) -> Iterator[tuple[tuple[Tensor, ...], Tensor]]:
        """(inputs, targets) of one device, in chunks."""
        start, blocks = 0, len(self.parts)
        edges = self._edges[device * blocks : (device + 1) * blocks + 1]
        for part, (first, last) in zip(self.parts, pairwise(edges), strict=True):
            for at in self._by_device[first:last].split(self.chunk or max(1, last - first)):
                if len(at):
                    yield tuple(t[at - start] for t in part), self.targets[at]
            start += len(part[0])

    def keep(self, devices: Sequence[int]) -> Network:
        """The same problem with the data of some devices alone, copied; weights are scaled to sum to one."""
        from ownstep.problems.network.subset import keep

        return keep(self, devices)

    def _evaluate(self, x: Tensor, c: NDArray[np.float64]) -> tuple[NDArray[np.float64], Tensor]:
        scale, coefficients, share = self._scaled(c)
        arguments: tuple[Tensor, ...] = (self._vector(x), coefficients, share)
        if self.dealer is not None:
            at = self._batch_indices()
            inputs = tuple(t[at] for t in self.parts[0])
            if self.augment is not None:
                drawn = torch.as_tensor(self.augmentation(self.round)).to(self.device)
                inputs = (self.augment.apply(inputs[0], drawn), *inputs[1:])
            arguments += (self.device_of[at], self.targets[at], *inputs)
        sums, penalty, total = self._pass(*arguments)
        host = torch.cat([sums, penalty.reshape(1)]).cpu().numpy()
        return host[:-1] / self.divisor + host[-1], total * scale

    def _scaled(self, c: NDArray[np.float64]) -> tuple[float, Tensor, Tensor]:
        """The mix in the form a pass wants it; sent to the device only when it differs from the last one.

        The largest coefficient is taken out, so that what is summed has the size of an ordinary loss.
        """
        if self._last_mix is None or not np.array_equal(self._last_mix[0], c):
            scale = float(np.abs(c).max()) or 1.0
            coefficients = torch.as_tensor(c / scale / self.divisor, dtype=self.dtype, device=self.device)
            share = torch.as_tensor(c.sum() / scale, dtype=self.dtype, device=self.device)
            self._last_mix = (c.copy(), scale, coefficients, share)
        return self._last_mix[1:]

    def _whole(self, x: Tensor, coefficients: Tensor, share: Tensor) -> tuple[Tensor, ...]:
        """The pass over all data, block by block."""
        penalty, total = self._penalised(x, share)
        losses, start = [], 0
        for whole in self.parts:
            for part in cut(whole, self.chunk or len(whole[0])):
                rows = slice(start, start + len(part[0]))
                factors = coefficients[self.device_of[rows]]
                found, gradient = self._weigh(x, factors, self.targets[rows], part, self._apply)
                total = total + gradient
                losses.append(found)
                start = rows.stop
        # Sorted by device, as adding 60,000 losses into five cells one by one would take a tenth of the pass.
        sums = torch.segment_reduce(torch.cat(losses)[self._by_device], "sum", lengths=self._lengths, unsafe=True)
        return sums, penalty, total

    def _weighted(
        self, x: Tensor, coefficients: Tensor, share: Tensor, owners: Tensor, targets: Tensor, *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        """The pass over one batch."""
        penalty, total = self._penalised(x, share)
        losses, gradient = self._weigh(x, coefficients[owners], targets, inputs, self._apply)
        sums = torch.zeros(len(self.weights), dtype=torch.float64, device=self.device)
        return sums.index_add(0, owners, losses), penalty, total + gradient

    def _penalised(self, x: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        if self.penalty is None:
            return torch.zeros((), dtype=torch.float64, device=self.device), torch.zeros_like(x)
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            penalty = self.penalty(self._tensors(x).values())
            (gradient,) = torch.autograd.grad(penalty, x)
        return penalty.detach().double(), share * gradient

    def _weigh(
        self, x: Tensor, factors: Tensor, targets: Tensor, inputs: tuple[Tensor, ...], call: Call
    ) -> tuple[Tensor, Tensor]:
        """The samples' losses, and the gradient of their sum with these factors."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            losses = self.loss(self._forward(self._tensors(x), inputs, call), targets)
            (gradient,) = torch.autograd.grad((factors * losses).sum(), x)
        return losses.detach().double(), gradient

    def _call(self, tensors: dict[str, Tensor], inputs: tuple[Tensor, ...]) -> Tensor:
        out: Tensor = torch.func.functional_call(self.model, tensors, inputs)
        return out

    def _tensor_by_tensor(self, results: tuple[Tensor, ...]) -> list[Tensor]:
        return [results[0], *self.layout.split(results[-1]).values()]

    def _forward(self, tensors: dict[str, Tensor], inputs: tuple[Tensor, ...], call: Call | None = None) -> Tensor:
        with torch.autocast(self.device.type, self.autocast, enabled=self.autocast is not None):
            out = (self._call if call is None else call)(tensors, inputs)
        return out.to(tensors[self.layout.names[0]].dtype)

    def _tensors(self, x: Tensor) -> dict[str, Tensor]:
        tensors = self.layout.split(x)
        if self.channels_last:
            tensors = {
                n: t.contiguous(memory_format=torch.channels_last) if t.ndim == 4 else t for n, t in tensors.items()
            }
        return tensors

    def _batch_indices(self) -> Tensor:
        assert self.dealer is not None
        if self._drawn != self.round:
            self._at = torch.as_tensor(self.dealer.indices(self.round)).to(self.device, non_blocking=True)
            self._drawn = self.round
        return self._at

    def _vector(self, x: Any, rows: int | None = None) -> Tensor:
        x = torch.as_tensor(x).to(self.device, self.dtype)
        if x.shape != (self.dim,) and x.shape != (rows, self.dim):
            either = "" if rows is None else f" or ({rows}, {self.dim})"
            raise InvalidInput(f"x must have shape ({self.dim},){either}, got {tuple(x.shape)}")
        return x

    def _placed(self, tensor: Tensor) -> Tensor:
        tensor = as_tensor("inputs", tensor)
        return tensor.to(self.device, self.dtype) if tensor.is_floating_point() else tensor.to(self.device)
