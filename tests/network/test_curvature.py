"""Own curvature and L-BFGS on torch networks: Hessian products, curvature of both signs, descent."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ownstep import partition
from ownstep.engines import run
from ownstep.methods import LBFGS, OwnCurvature
from ownstep.plan import Devices
from ownstep.problems import Network, PerDevice, SquaredL2
from ownstep.smoothness.sketch import own_sketch
from ownstep.support.errors import InvalidInput


def make_network(seed=0, batch=None, dtype=torch.float64):
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((90, 4))
    labels = (rows[:, 0] * rows[:, 1] > 0).astype(np.int64) + (rows[:, 2] > 1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3)).to(dtype)
    split = partition.given(np.repeat([0, 1, 2], [20, 30, 40]))
    inputs = torch.as_tensor(rows, dtype=dtype)
    return Network(model, inputs, labels, split, penalty=SquaredL2(1e-3), batch=batch, chunk=16)


def test_products_are_differences_of_gradients():
    problem = make_network()
    x, V = problem.x0(), torch.as_tensor(np.random.default_rng(1).standard_normal((problem.dim, 3)))
    for i in range(3):
        H, h = problem.data_hessian(x, i), 1e-5
        found = H @ V
        for j in range(3):
            slope = (problem.gradients(x + h * V[:, j])[i] - problem.gradients(x - h * V[:, j])[i]) / (2 * h)
            np.testing.assert_allclose(found[:, j], slope, atol=1e-7)


def test_a_sketch_has_the_sizes_of_both_signs():
    problem = make_network()
    H = problem.data_hessian(problem.x0(), 1)
    values = np.linalg.eigvalsh((H @ torch.eye(problem.dim, dtype=torch.float64)).numpy())
    assert values[0] < -1e-3 < 1e-3 < values[-1]
    vectors, found = own_sketch(H, problem.dim, 0)
    np.testing.assert_allclose(found, np.sort(np.abs(values))[::-1], atol=1e-9)
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(problem.dim), atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_it_descends_where_the_loss_is_not_convex(dtype):
    problem = make_network(dtype=dtype)
    devices = Devices(problem.weights, np.ones(3))
    start = problem.value(problem.x0())
    for method in (LBFGS(), OwnCurvature(5), OwnCurvature(5, sketch="sum"), OwnCurvature()):
        history = run(method, problem, 60, devices=devices)
        assert history.best_value < 0.3 * start
        assert history.x.dtype == (np.float64 if dtype == torch.float64 else np.float32)


def test_a_stopped_run_goes_on(tmp_path):
    problem, devices = make_network(), Devices(make_network().weights, np.ones(3))
    run(OwnCurvature(4), problem, 12, devices=devices, checkpoint=tmp_path / "c.npz")
    resumed = run(OwnCurvature(4), problem, 25, devices=devices, checkpoint=tmp_path / "c.npz")
    np.testing.assert_array_equal(resumed.value, run(OwnCurvature(4), problem, 25, devices=devices).value)


def test_mini_batches_are_refused():
    problem = make_network(batch=PerDevice(5))
    with pytest.raises(InvalidInput, match="compares two points of one loss"):
        run(LBFGS(), problem, 3, devices=Devices(problem.weights, np.ones(3)))


def test_a_warm_start_leaves_the_span_of_the_last_sketch():
    """Where the data term is not convex, one block of products would only turn the old vectors among themselves."""
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.standard_normal((30, 30)))[0]
    values = np.concatenate([[9.0, -7.0, 5.0], 0.1 * rng.standard_normal(27)])

    class Operator:
        dim, convex, template = 30, False, np.zeros(30)

        def __matmul__(self, v):
            return (Q * values) @ (Q.T @ v)

    stale = np.linalg.qr(rng.standard_normal((30, 3)))[0].T
    vectors = stale
    for _ in range(4):
        vectors, sizes = own_sketch(Operator(), 3, 0, vectors)
    np.testing.assert_allclose(sizes, [9.0, 7.0, 5.0], rtol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(vectors @ Q[:, :3], axis=1), 1.0, rtol=1e-3)
