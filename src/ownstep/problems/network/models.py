"""The paper's networks, and a small one for tables; the text classifier is in :mod:`ownstep.problems.network.text`.

Every activation used here is increasing, so max-pooling before it gives the same function as after it, at a quarter of
the activation's cost: pool(phi(z)) = phi(pool(z)).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from ownstep.support.errors import InvalidInput, unknown_name


class GlobalMean(nn.Module):
    """The mean over height and width."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((-2, -1))


def seeded(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A model with torch's usual random initial parameters, drawn from a seed; the global generator is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def mnist_cnn(seed: int = 0) -> nn.Module:
    """Conv 5x5 (16), ELU, pool 2, conv 5x5 (32), ELU, pool 2, linear 1568 -> 10: 28,938 numbers."""
    return seeded(
        lambda: nn.Sequential(
            nn.Conv2d(1, 16, 5, padding=2), nn.MaxPool2d(2), nn.ELU(),
            nn.Conv2d(16, 32, 5, padding=2), nn.MaxPool2d(2), nn.ELU(),
            nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
        ),
        seed,
    )  # fmt: skip


def cifar_cnn(seed: int = 0) -> nn.Module:
    """Four 3x3 convolutions (32, 64, 128, 128), each with GroupNorm(1) and LeakyReLU, pooled after two and four.

    Then the global mean and a linear layer: 242,826 numbers.
    """

    def build() -> nn.Module:
        layers: list[nn.Module] = []
        for i, (before, after) in enumerate([(3, 32), (32, 64), (64, 128), (128, 128)]):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(1, after)]
            layers += [nn.MaxPool2d(2)] if i % 2 else []
            layers += [nn.LeakyReLU()]
        return nn.Sequential(*layers, GlobalMean(), nn.Linear(128, 10))

    return seeded(build, seed)


def mlp(features: int, classes: int, hidden: int = 32, seed: int = 0) -> nn.Module:
    """One hidden layer of tanh units: smooth, and small enough to look at its whole Hessian."""
    return seeded(
        lambda: nn.Sequential(nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, classes)), seed
    )  # fmt: skip


@dataclass(frozen=True)
class CropFlip:
    """Random crops of the image padded with ``pad`` zeros, and random mirror images: the paper's augmentation."""

    pad: int = 4

    def draw(self, rng: np.random.Generator, samples: int) -> NDArray[np.int64]:
        """(top, left, mirrored) for every sample."""
        corner = rng.integers(0, 2 * self.pad + 1, (samples, 2))
        return np.column_stack([corner, rng.integers(0, 2, samples)])

    def apply(self, images: Tensor, drawn: Tensor) -> Tensor:
        """The cropped and mirrored images."""
        n, channels, height, width = images.shape
        padded = F.pad(images, (self.pad,) * 4)
        rows = drawn[:, 0, None] + torch.arange(height, device=images.device)
        along = torch.arange(width, device=images.device)
        columns = drawn[:, 1, None] + torch.where(drawn[:, 2, None] > 0, width - 1 - along, along)
        first = torch.arange(n, device=images.device)[:, None, None, None]
        channel = torch.arange(channels, device=images.device)[:, None, None]
        return padded[first, channel, rows[:, None, :, None], columns[:, None, None, :]]


def pixels(images: NDArray[np.uint8]) -> Tensor:
    """Images as a model takes them: (n, channels, height, width) in [0, 1]."""
    scaled = torch.from_numpy(np.array(images)).float() / 255
    return scaled[:, None] if scaled.ndim == 3 else scaled


def build(name: str, rows: Any, classes: int, seed: int = 0) -> tuple[nn.Module, Callable[[Any], Tensor]]:
    """A model by name for data of this kind, and what turns the data's rows into its inputs."""
    shape = getattr(rows, "shape", ())
    if name == "cnn":
        if shape[1:] == (28, 28):
            return mnist_cnn(seed), pixels
        if shape[1:] == (3, 32, 32):
            return cifar_cnn(seed), pixels
        raise InvalidInput(
            f"model 'cnn' is for mnist (28x28) and cifar10 (3x32x32) images, got rows of shape {shape[1:]}; "
            "tables take --model mlp, sentences --model encoder"
        )
    if name == "mlp":
        if len(shape) < 2 or not hasattr(rows, "dtype"):
            raise InvalidInput("model 'mlp' needs rows of numbers; for sentences use --model encoder")
        scale = 255.0 if rows.dtype == np.uint8 else 1.0
        features = int(np.prod(shape[1:]))

        def table(part: Any) -> Tensor:
            dense = np.asarray(part.toarray() if hasattr(part, "toarray") else part, np.float32)
            return torch.from_numpy(dense.reshape(len(dense), -1) / np.float32(scale))

        return mlp(features, classes, seed=seed), table
    raise unknown_name("model", name, ["cnn", "mlp", "encoder"])
