"""Small problems whose answers are known, shared by all tests."""

from __future__ import annotations

import numpy as np
import pytest
import xdist.plugin
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadGroupScheduling

from ownstep import partition
from ownstep.data import fetch
from ownstep.data.sources import SOURCES
from ownstep.problems import BinaryLogistic, LeastSquares

settings.register_profile(
    "ownstep", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("ownstep")


def unequal_owner(samples: int, devices: int) -> np.ndarray:
    """Who holds which sample: every device half as many again as the one before, so that no two sizes are equal."""
    cuts = np.cumsum(1.5 ** np.arange(devices))
    return np.searchsorted(np.round(cuts / cuts[-1] * samples)[:-1], np.arange(samples), side="right")


SLOW = {
    "engines": ["cluster", "federation", "federation_deployment", "federation_simulation", "ranks", "second_order"],
    "glm": ["deployed"],
    "methods": ["gossip", "on_networks", "rivals"],
    "network": ["curvature", "fused", "text", "train"],
    "paper": ["figures", "rivals", "runner", "w8a"],
    "pep": [
        "agreement", "commands", "exact", "forgeries", "network_units", "networks", "polish", "random", "statements",
        "tune", "tune_networks", "units",
    ],
    "report": ["browser", "explorer"],
    "tests": ["cli", "documentation", "package", "release", "seeds"],
    "torture": ["torture"],
}  # fmt: skip
"""Test files, by folder, that take over six seconds and are not the first to notice a mistake: `make test-fast` leaves
them out, and single tests marked ``slow`` too; `make test` does not."""


LONGEST = ("test_the_types_are_sound", "test_the_wheel_installs_and_its_demo_runs", "test_the_site_builds_")
"""Tests that take half a minute alone: they come first, so that no worker waits for one of them in the end."""
DEAR = {"designs": "designs", "figures": "figures", "browser": "report", "own_results": "report"}
"""Fixtures that take seconds, and the group of the tests that use them: one worker makes them, not each of them."""


CHAIN = "processes"
"""The group of the tests that start Flower or torchrun: one after the other, and half their time is waiting."""


class BesideTheChain(LoadGroupScheduling):
    """Of three workers or more the chain is all that one does, so that there may be one more than there are cores."""

    def _reschedule(self, node):
        work = self.assigned_work[node]
        if set(work) != {CHAIN} or self.numnodes < 3:
            super()._reschedule(node)
        elif self._pending_of(work) <= 2 and not node.shutting_down:  # a worker runs its last test when told so
            node.shutdown()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return BesideTheChain(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """One per core, and one for the chain, which the fast tests leave out."""
    return xdist.plugin.pytest_xdist_auto_num_workers(config) + ("not slow" not in config.option.markexpr)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks for groups
def pytest_collection_modifyitems(items):
    def late(item):
        group = item.get_closest_marker("xdist_group")
        return group is None or CHAIN not in group.args, not item.name.startswith(LONGEST)

    items.sort(key=late)
    for item in items:
        dear = sorted(DEAR[name] for name in DEAR.keys() & set(getattr(item, "fixturenames", ())))
        if dear and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(dear[0]))
        if item.path.stem.removeprefix("test_") in SLOW.get(item.path.parent.name, ()):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish(session):
    """Tests of one group run one after the other, on one worker: some pytest-xdist and pytest do not go together."""
    if getattr(session.config.option, "loadgroup", False):
        grouped = [item.nodeid for item in session.items if item.get_closest_marker("xdist_group")]
        if not all("@" in name for name in grouped):
            raise pytest.UsageError("this pytest-xdist forgets its groups under this pytest: use constraints.txt")


def make_least_squares(
    devices: int = 3, features: int = 4, seed: int = 0, mu: float = 0.1, shares: bool = False
) -> LeastSquares:
    """Devices of different size, scale and minimiser, with weights of their own, or their ``shares`` of the samples."""
    rng = np.random.default_rng(seed)
    owner = unequal_owner(8 * devices + features, devices)
    rows = rng.standard_normal((len(owner), features)) * np.geomspace(0.5, 2, devices)[owner][:, None]
    targets = rows @ rng.standard_normal(features) + rng.standard_normal(len(rows)) + owner
    weights = 1.3 ** rng.permutation(devices)
    given = None if shares else weights / weights.sum()
    return LeastSquares(rows, targets, partition.given(owner), mu=mu, weights=given)


def make_logistic(devices: int = 3, features: int = 4, seed: int = 0, samples: int = 60) -> BinaryLogistic:
    """Devices of different size, the last of which hold the longest rows; weights are their shares of the samples."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((samples, features)) * rng.uniform(0.3, 2, (samples, 1))
    labels = np.where(rows @ rng.standard_normal(features) + 0.5 * rng.standard_normal(samples) > 0, 1, -1)
    owner = np.empty(samples, int)
    owner[np.argsort(np.linalg.norm(rows, axis=1))] = unequal_owner(samples, devices)
    return BinaryLogistic(rows, labels, partition.given(owner), mu=0.05)


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
