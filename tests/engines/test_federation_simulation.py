"""The generated app in Flower's simulation, where Ray is installed (the extra ``simulation``)."""

from __future__ import annotations

import sys

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("ray")

from ownstep import BinaryLogistic, History, OwnStep, load, partition, run
from ownstep.engines.federation.app import init
from ownstep.engines.federation.loopback import Loopback

pytestmark = [
    pytest.mark.xdist_group("processes"),
    pytest.mark.skipif(sys.platform != "linux", reason="finds its processes through /proc"),
]


def test_the_app_as_it_is_written_runs_in_simulation_with_the_local_engines_iterates(tmp_path):
    init(tmp_path / "hospitals", sites=3)
    with Loopback(tmp_path, simulation=True) as net:
        settings = f'rounds=20 out="{tmp_path / "out"}"'
        log = net.run(tmp_path / "hospitals", settings, "--federation-config", "num-supernodes=3", timeout=200)
        assert "all 20 rounds done" in log, log
    assert net.left() == []
    history = History.load(tmp_path / "out" / "history")
    rows, labels = load("breast_cancer").table()
    problem = BinaryLogistic(rows, labels, partition.by_norm(rows, devices=3), mu=1e-2)
    local = run(OwnStep(), problem, 20)
    np.testing.assert_allclose(history.x, local.x, atol=1e-12)
    np.testing.assert_allclose(history.value, local.value, atol=1e-12)
