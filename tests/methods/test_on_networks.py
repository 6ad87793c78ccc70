"""Every method on a torch model: the same loop, tensors in place of arrays."""

from __future__ import annotations

import numpy as np
import pytest

from ownstep import partition
from ownstep.engines import Bernoulli, run
from ownstep.methods import METHODS, FedAvg
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput

torch = pytest.importorskip("torch")

UNABLE = ("newton", "giant", "dane")
"""Methods whose devices form Hessians or solve problems of their own, which networks do not."""
SET = {"scaffnew": {"p": 0.5}}  # its default needs strong convexity
METHODS_ON_TENSORS = [kind(**SET.get(name, {})) for name, kind in METHODS.items() if name not in UNABLE]
METHODS_ON_TENSORS.append(FedAvg(local_steps=3))


@pytest.fixture(scope="module")
def network():
    from ownstep.problems.network.problem import Network

    rng = np.random.default_rng(0)
    rows = torch.from_numpy(rng.standard_normal((60, 5)).astype(np.float32))
    labels = (rows[:, 0] > 0).long() + (rows[:, 1] > 0.5).long()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.ELU(), torch.nn.Linear(4, 3))
    return Network(model, rows, labels, partition.by_label(labels.numpy(), 3))


@pytest.mark.parametrize("method", METHODS_ON_TENSORS, ids=repr)
def test_it_descends_stays_in_single_precision_and_resumes(method, network, tmp_path):
    devices = Devices(network.weights, np.array([2.0, 3.0, 4.0]), L_pooled=3.0)
    rules = [None]
    if not getattr(method, "needs_everyone", False):
        rules += [Bernoulli(0.7, "drop")] + ([] if hasattr(method, "graph") else [Bernoulli(0.7, "last")])
    for i, rule in enumerate(rules):
        options = {"devices": devices, "participation": rule, "progress": False}
        whole = run(method, network, 8, **options)
        run(method, network, 4, checkpoint=tmp_path / f"{i}.npz", **options)
        resumed = run(method, network, 8, checkpoint=tmp_path / f"{i}.npz", **options)
        restless = getattr(method, "searches", False) or rule is not None  # the last point may be a trial, or a detour
        assert (np.nanmin(whole.value) if restless else whole.value[-1]) < whole.value[0]
        assert whole.x.dtype == np.float32
        assert (resumed.x == whole.x).all()


@pytest.mark.parametrize("name", UNABLE)
def test_what_a_network_cannot_do_is_said_with_a_method_that_needs_it_not(name, network):
    devices = Devices(network.weights, np.array([2.0, 3.0, 4.0]), L_pooled=3.0)
    with pytest.raises(InvalidInput, match=r"(LBFGS|OwnCurvature)\(\)"):
        run(METHODS[name](), network, 3, devices=devices, progress=False)
