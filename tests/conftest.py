"""Small problems whose answers are known, shared by all tests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from ownstep import partition
from ownstep.data import fetch
from ownstep.data.sources import SOURCES
from ownstep.problems import BinaryLogistic, LeastSquares

settings.register_profile(
    "ownstep", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("ownstep")


def make_least_squares(devices: int = 3, features: int = 4, seed: int = 0, mu: float = 0.1) -> LeastSquares:
    """Devices of different size and scale, so that their smoothness constants and minimisers differ."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(features + 1, features + 9, devices)
    rows = rng.standard_normal((counts.sum(), features))
    owner = np.repeat(np.arange(devices), counts)
    rows *= np.geomspace(0.5, 2, devices)[owner][:, None]
    targets = rows @ rng.standard_normal(features) + rng.standard_normal(len(rows)) + owner
    return LeastSquares(rows, targets, partition.given(owner), mu=mu)


def make_logistic(devices: int = 3, features: int = 4, seed: int = 0, samples: int = 60) -> BinaryLogistic:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((samples, features)) * rng.uniform(0.3, 2, (samples, 1))
    labels = np.where(rows @ rng.standard_normal(features) + 0.5 * rng.standard_normal(samples) > 0, 1, -1)
    return BinaryLogistic(rows, labels, partition.by_norm(rows, devices), mu=0.05)


@pytest.fixture
def least_squares() -> LeastSquares:
    return make_least_squares()


@pytest.fixture
def small_logistic() -> BinaryLogistic:
    return make_logistic()


def needs(name: str):
    """Skip unless the files of a dataset are on this machine."""
    here = all(fetch.locate(remote) for remote in SOURCES[name].files)
    return pytest.mark.skipif(not here, reason=f"{name} is not on this machine: set OWNSTEP_DATA (see the README)")
