"""What a network learns from: inputs in blocks, random changes of a batch, losses by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ownstep.support.errors import InvalidInput

Loss = Callable[[Tensor, Tensor], Tensor]
PROBE = 3
"""Samples looked at when a problem is made, to see whether the loss is per sample."""


class Augment(Protocol):
    """A random change of a batch's inputs, drawn on the host and applied on the device."""

    def draw(self, rng: np.random.Generator, samples: int) -> NDArray[np.int64]:
        """A few whole numbers for every sample."""
        ...

    def apply(self, inputs: Tensor, drawn: Tensor) -> Tensor:
        """The changed inputs."""
        ...


LOSSES: dict[str, Loss] = {
    "cross_entropy": lambda z, y: F.cross_entropy(z, y, reduction="none"),
    "squared": lambda z, y: 0.5 * (z - y).flatten(1).square().sum(1),
}
"""Per-sample losses by name: a classifier's, and half the squared error."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """Inputs cut into consecutive parts of different shapes, such as sentences bucketed by length.

    Parameters
    ----------
    parts : one tuple of tensors a part, samples first; targets and partition follow their order.
    """

    parts: Sequence[tuple[Tensor, ...]]

    def __len__(self) -> int:
        return sum(len(part[0]) for part in self.parts)


def as_tensor(name: str, value: object) -> Tensor:
    """A tensor from whatever torch can make one of; a loader or a dataset is not that."""
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        hint = (
            ""
            if not hasattr(value, "__iter__") or isinstance(value, list | tuple)
            else (": give the samples themselves, such as torch.stack([x for x, _ in dataset])")
        )
        raise InvalidInput(f"{name} must be a tensor, got {type(value).__name__} ({error}){hint}") from None


def cut(part: tuple[Tensor, ...], size: int) -> Iterator[tuple[Tensor, ...]]:
    """The same samples in pieces of at most this many."""
    for start in range(0, len(part[0]), max(1, size)):
        yield tuple(t[start : start + size] for t in part)


def check_per_sample(
    losses: Callable[[tuple[Tensor, ...], Tensor], Tensor], inputs: tuple[Tensor, ...], targets: Tensor
) -> None:
    """Is the loss one number per sample, and does a sample's depend on that sample alone? Looks at the first few."""
    k = min(PROBE, len(inputs[0]))
    few, some = tuple(t[:k] for t in inputs), targets[:k]
    with torch.no_grad():
        together = losses(few, some)
        if together.shape != (k,):
            raise InvalidInput(
                f"the loss must give one number per sample: {k} samples gave shape {tuple(together.shape)}; "
                "torch losses do so with reduction='none'"
            )
        alone = losses(tuple(t[:1] for t in few), some[:1])
    if not torch.allclose(alone, together[:1], rtol=0.05, atol=1e-3, equal_nan=True):
        raise InvalidInput(
            f"a sample's loss depends on the others in its batch ({float(alone):.4g} alone, "
            f"{float(together[0]):.4g} with {k - 1} more), so f is no sum over samples"
        )
