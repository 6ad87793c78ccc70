"""Small networks that many tests share."""

import numpy as np
import torch
from torch import nn

from ownstep import Devices, partition
from ownstep.problems import Network
from ownstep.problems.network.models import mlp

F64 = torch.float64


def data(n=60, features=4, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    return torch.as_tensor(rng.standard_normal((n, features))), torch.as_tensor(rng.integers(0, classes, n))


def problem(devices=4, seed=0, **options):
    x, y = data(seed=seed)
    return Network(mlp(4, 3, 6, seed).double(), x, y, partition.dirichlet(y.numpy(), devices, 0.5, seed), **options)


def constants(made, low=3.0, high=9.0):
    return Devices(made.weights, np.linspace(low, high, len(made.weights)))


class Conv(nn.Sequential):
    def __init__(self):
        from ownstep.problems.network.models import GlobalMean

        super().__init__(
            nn.Conv2d(1, 3, 3, padding=1), nn.GroupNorm(1, 3), nn.MaxPool2d(2), nn.LeakyReLU(),
            nn.Conv2d(3, 4, 3, padding=1), GlobalMean(), nn.Linear(4, 3),
        )  # fmt: skip
