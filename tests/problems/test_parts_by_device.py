"""A problem cut into parts by device is the whole again when the parts are added up."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from ownstep import partition
from ownstep.problems import BinaryLogistic
from ownstep.support.errors import InvalidInput

from ..conftest import make_least_squares

PARTS = ([0, 3], [4, 1], [2])


def check(whole, x, c, exact):
    losses, total = whole.mix(x, c)
    parts = [whole.keep(devices) for devices in PARTS]
    for devices, part in zip(PARTS, parts, strict=True):
        assert part.names == tuple(whole.names[i] for i in devices)
        assert part.weights.sum() == pytest.approx(1)
        np.testing.assert_allclose(part.mix(x, c[devices])[0], losses[devices], rtol=1e-14)
        np.testing.assert_allclose(part.gradients(x), whole.gradients(x)[devices], rtol=exact, atol=exact)
    added = sum(part.mix(x, c[devices])[1] for devices, part in zip(PARTS, parts, strict=True))
    np.testing.assert_allclose(added, total, rtol=exact, atol=exact)


@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_a_linear_model(storage):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((40, 6)) * (rng.random((40, 6)) < 0.5)
    labels = np.where(rng.random(40) < 0.5, -1, 1)
    given = sp.csr_array(rows) if storage == "sparse" else rows
    whole = BinaryLogistic(given, labels, partition.given(np.arange(40) % 5), mu=0.1)
    check(whole, rng.standard_normal(6), rng.standard_normal(5), 1e-13)


def test_weights_of_some_devices_stay_in_proportion():
    whole = make_least_squares(devices=5)  # weights of their own, not the shares of the samples
    for devices in PARTS:
        expected = whole.weights[devices] / sum(whole.weights[i] for i in devices)
        np.testing.assert_allclose(whole.keep(devices).weights, expected, rtol=1e-15)
        assert len(devices) == 1 or not np.allclose(expected, whole.counts[devices] / whole.counts[devices].sum())


def test_only_is_keeping_one_device():
    whole = make_least_squares(devices=5)
    x = np.ones(4)
    assert whole.only(2).value(x) == pytest.approx(float(whole.mix(x, whole.weights)[0][2]), rel=1e-14)


def test_a_network_in_blocks():
    torch = pytest.importorskip("torch")
    from ownstep.problems import Blocks, Network

    rng = np.random.default_rng(2)
    inputs, labels = torch.as_tensor(rng.standard_normal((60, 3))), rng.integers(0, 2, 60)
    owners = np.concatenate([np.full(10, 2), rng.permutation(np.arange(50) % 5)])  # the first block is one device's
    blocks = Blocks([(inputs[:10],), (inputs[10:35],), (inputs[35:],)])
    whole = Network(torch.nn.Linear(3, 2).double(), blocks, labels, partition.given(owners))
    check(whole, whole.x0() + 0.3, rng.standard_normal(5), 1e-13)


@pytest.mark.parametrize("b", [None, 2])
def test_a_network_and_its_batches(b):
    torch = pytest.importorskip("torch")
    from ownstep.problems import Network, PerDevice, Pooled
    from ownstep.problems.network.models import CropFlip

    rng = np.random.default_rng(1)
    inputs, labels = torch.as_tensor(rng.standard_normal((60, 3))), rng.integers(0, 2, 60)
    split = partition.given(rng.permutation(np.arange(60) % 5))
    model = torch.nn.Linear(3, 2).double()
    whole = Network(model, inputs, labels, split, batch=None if b is None else PerDevice(b), seed=3)
    parts = [whole.keep(devices) for devices in PARTS]
    x, c = whole.x0() + 0.3, rng.standard_normal(5)
    for k in (0, 1, 9):
        for problem in (whole, *parts):
            problem.begin_round(k)
        losses, total = whole.mix(x, c)
        seen = [part.mix(x, c[devices]) for devices, part in zip(PARTS, parts, strict=True)]
        for devices, (own, _) in zip(PARTS, seen, strict=True):
            np.testing.assert_allclose(own, losses[devices], rtol=1e-14)
        np.testing.assert_allclose(sum(t for _, t in seen), total, rtol=1e-13, atol=1e-13)
    with pytest.raises(InvalidInput, match=r"Pooled\(b=4\) is drawn for all devices' data together"):
        Network(model, inputs, labels, split, batch=Pooled(4)).keep([0])
    with pytest.raises(InvalidInput, match=r"CropFlip\(.*is drawn for all devices' data together"):
        Network(model, inputs, labels, split, augment=CropFlip()).keep([0])
