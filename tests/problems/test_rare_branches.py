"""Data, models and measurements where hardly anybody gets: empty, one class, one device, no curvature, not a number."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from ownstep import partition
from ownstep.engines import describe
from ownstep.partition import Partition, given
from ownstep.plan import Devices, Plan
from ownstep.problems import BinaryLogistic, LeastSquares, MultinomialLogistic, Poisson, optimum
from ownstep.problems.linear.logistic import classes_of
from ownstep.smoothness import Smoothness, measure
from ownstep.smoothness.sketch import Sketch, _whitening
from ownstep.support.errors import InvalidInput, OwnstepError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((12, 3))
Y = RNG.integers(0, 3, 12)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Partition(np.zeros(0, int)), r"got shape \(0,\)"),
        (lambda: Partition(np.zeros((2, 2), int)), r"got shape \(2, 2\)"),
        (lambda: given(np.zeros((2, 2))), r"got shape \(2, 2\)"),
        (lambda: given([]), r"got shape \(0,\)"),
        (lambda: given([[0, 1], [[2], [3]]]), "device 1 of 2 needs a list of sample indices"),
        (lambda: given([[0, 1], []]), "device 1 of 2 needs a list of sample indices"),
        (lambda: given([[0, 1], [0.5]]), "device 1 of 2 needs a list of sample indices"),
        (lambda: given([[0, 1], [-1]]), "each of 0 to 2 once; sample 2 is on none"),
        (lambda: given([[0, 1], [3]]), "each of 0 to 2 once; sample 2 is on none"),
        (lambda: partition.iid(12, True), "devices must be a whole number of at least 1, got True"),
        (lambda: partition.iid(12, 2.0), "devices must be a whole number of at least 1, got 2.0"),
        (lambda: partition.dirichlet(Y, 2, alpha=True), "alpha must be a finite number > 0, got True"),
        (lambda: partition.shards(Y, 2, 0), "per_device must be a whole number of at least 1, got 0"),
        (lambda: partition.dirichlet(Y, 2, min_samples=0), "min_samples must be a whole number of at least 1, got 0"),
        (lambda: partition.dirichlet(Y, 4, min_samples=4), "need more than 12 samples"),
        (lambda: partition.by_label(np.zeros((0,))), r"got shape \(0,\)"),
        (lambda: partition.by_label(np.zeros((3, 2))), r"got shape \(3, 2\)"),
        (lambda: partition.by_norm([["a", "b"]]), "features must be a table of numbers, got list"),
        (lambda: partition.by_norm(X * 1j), "features must be real numbers"),
        (lambda: Smoothness(np.array([1.0, np.inf]), "exact", ""), "positive and finite, got inf"),
        (lambda: Smoothness(np.array([1.0, np.nan]), "exact", ""), "positive and finite, got nan"),
        (lambda: Smoothness(np.array([1.0, 0.0]), "exact", ""), "positive and finite, got 0"),
        (lambda: classes_of(np.array(3)), "one label per row, got 3"),
        (lambda: classes_of(np.ones((2, 2))), r"got an array of shape \(2, 2\)"),
        (lambda: MultinomialLogistic(X, Y, classes=[0, 1]), r"labels must be one of \[0, 1\], got 2"),
        (lambda: MultinomialLogistic(X, Y, classes=[0, 2, 5]), r"labels must be one of \[0, 2, 5\], got 1"),
        (lambda: Poisson(X, np.array([*[1] * 11, -1])), "-1"),
        (lambda: LeastSquares(np.zeros((3, 0)), np.zeros(3)), r"non-empty table .* got shape \(3, 0\)"),
        (lambda: LeastSquares(X, np.zeros(12)).mix(np.zeros(3), np.ones((1, 1, 1))), "a mix needs one coefficient"),
        (lambda: LeastSquares(X, np.zeros(12)).mix(np.zeros(3), np.ones(2)), "a mix needs one coefficient"),
        (lambda: measure("guess", LeastSquares(X, np.zeros(12))), "unknown smoothness 'guess'"),
    ],
)
def test_what_is_refused(make, why):
    with pytest.raises(InvalidInput, match=why):
        make()


def test_what_is_just_allowed():
    assert given({"b": [0, 2], "a": [1]}).names == ("b", "a")
    assert given({"b": [0, 2], "a": [1]}, names=["x", "y"]).names == ("x", "y")
    words = given(["b", "a", "b"], names=["x", "y"])
    assert (words.names, words.device_of.tolist()) == (("x", "y"), [1, 0, 1])
    assert given(["b", "a", "b"]).names == ("a", "b")
    assert len(partition.shards(Y, 2, 1)) == 2
    assert partition.dirichlet(Y, 4, min_samples=3).counts.tolist() == [3, 3, 3, 3]
    assert MultinomialLogistic(X, Y, classes=[0, 1, 2, 3]).classes.tolist() == [0, 1, 2, 3]
    assert LeastSquares(X, np.zeros(12)).mix(np.zeros(3), np.ones((1, 2)))[1].shape == (3, 2)


def test_a_plan_says_where_nothing_was_measured():
    two = Devices(np.array([0.5, 0.5]), np.array([1.0, 9.0]), L_pooled=9.0)
    assert Plan(two).to_dict()["smoothness"] is None
    known = Smoothness(two.L, "exact", "by hand", 9.0)
    assert Plan(two, known).to_dict()["smoothness"] == known.to_dict()
    unknown = Smoothness(two.L, "unknown", "not measured")
    assert Plan(two, unknown).verdict == "No constants were measured, so nothing can be predicted."
    assert Plan(two, known).verdict.startswith("Worth trying")
    adaptive = describe(LeastSquares(X, np.zeros(12)), "adaptive")
    assert adaptive.verdict == "No constants were measured, so nothing can be predicted."


@pytest.mark.parametrize("classes", [2, 3])
def test_a_softmax_with_a_reference_is_the_binary_model_where_there_are_two_classes(classes):
    """Of K classes K - 1 columns; with K = 2 one number per sample, as vectors and not as a table of one column."""
    from ownstep.glm.families import FAMILIES

    labels = Y % classes
    problem = FAMILIES["softmax"].problem(X, labels, given([0, 1] * 6), mu=0.3)
    x = RNG.standard_normal(problem.dim)
    if classes == 2:
        binary = BinaryLogistic(X, labels, given([0, 1] * 6), mu=0.3)
        assert problem.value(x) == pytest.approx(binary.value(x), rel=1e-13)
        np.testing.assert_allclose(problem.mix(x, problem.weights)[1], binary.mix(x, binary.weights)[1], rtol=1e-12)
    for i in range(problem.dim):
        step = 1e-6 * np.eye(problem.dim)[i]
        slopes = [problem.mix(x + s * step, problem.weights)[1] for s in (1, -1)]
        found = problem.hessian_product(x, np.eye(problem.dim)[i])
        np.testing.assert_allclose(found, (slopes[0] - slopes[1]) / 2e-6, atol=1e-7)
        change = problem.value(x + step) - problem.value(x - step)
        assert change / 2e-6 == pytest.approx(problem.mix(x, problem.weights)[1][i], abs=1e-7)


def test_a_newton_step_that_goes_too_far_is_halved():
    """Poisson regression from far off: the full step overflows, and the optimum is found all the same."""
    rows = np.column_stack([np.linspace(-8, 8, 30), np.ones(30)])
    counts = np.round(np.exp(np.clip(rows @ [0.6, 0.5], -3, 6)))
    problem = Poisson(rows, counts, mu=1e-6)
    found = optimum(problem)
    assert found.gradient_norm < 1e-6
    for direction in np.vstack([np.eye(2), -np.eye(2)]):
        assert problem.value(found.x + 1e-3 * direction) > found.value


def test_what_a_sketch_leaves_where_the_trace_is_not_known():
    """Half of the smallest value in every direction that is left; nothing where nothing was sent."""
    vectors = np.eye(5)[:2]
    assert Sketch(vectors, np.array([8.0, 3.0]), np.nan).left == 1.5 * 3
    assert Sketch(vectors[:0], np.zeros(0), np.nan).left == 0.0
    assert Sketch(vectors, np.array([8.0, 3.0]), 12.0).left == 1.0
    assert Sketch(vectors, np.array([8.0, 3.0]), 10.0).left == 0.0  # rounding took more than there is
    assert Sketch(vectors, np.array([8.0, 3.0]), 14.0, span=4).rest == 1.5
    assert Sketch(vectors, np.array([8.0, 3.0]), 14.0, span=2).rest == 0.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns_that_are_close_are_not_whitened_and_single_precision_never(dtype):
    B = RNG.standard_normal((40, 3)).astype(dtype)
    T = _whitening(B.T @ B)
    if dtype == np.float32:
        assert T is None
        return
    np.testing.assert_allclose((B @ T).T @ (B @ T), np.eye(3), atol=1e-12)
    for ratio, accepted in ((1.1e-3, True), (0.9e-3, False)):
        assert (_whitening(np.diag([ratio, 1.0, 0.5])) is not None) is accepted


def test_sparse_rows_of_every_shape_have_their_constants():
    """Few and many devices, few and many features, all the same numbers as dense rows have."""
    for n, d, devices in ((40, 5, 1), (40, 5, 4), (30, 60, 3), (300, 4, 100)):
        rows = RNG.standard_normal((n, d)) * (RNG.random((n, d)) < 0.6)
        owner = given(np.arange(n) % devices)
        for model in (LeastSquares, BinaryLogistic):
            targets = (np.arange(n) % 2).astype(float)
            dense, sparse = (model(A, targets, owner, mu=0.1) for A in (rows, sp.csr_array(rows)))
            factor = 0.25 if model is BinaryLogistic else 1.0
            for problem in (dense, sparse):
                found = measure("exact", problem)
                for i in range(devices):
                    A = rows[owner.indices(i)]
                    top = np.linalg.eigvalsh(A.T @ A / len(A))[-1]
                    assert found.values[i] == pytest.approx(factor * top + 0.1, rel=1e-6)
                top = np.linalg.eigvalsh(
                    sum(
                        w * rows[owner.indices(i)].T @ rows[owner.indices(i)] / owner.counts[i]
                        for i, w in enumerate(problem.weights)
                    )
                )[-1]
                assert found.pooled == pytest.approx(factor * top + 0.1, rel=1e-6)


torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from ownstep.problems import Network  # noqa: E402
from ownstep.problems.linear.tensors import TensorLogistic  # noqa: E402
from ownstep.problems.network.models import mlp  # noqa: E402
from ownstep.problems.network.parameters import own_copy, resolve_device  # noqa: E402
from ownstep.problems.network.text import buckets  # noqa: E402
from ownstep.smoothness import differences, power  # noqa: E402

INPUTS, TARGETS = torch.as_tensor(X), torch.as_tensor(Y)


def network(model=None, loss="cross_entropy", targets=TARGETS, **options) -> Network:
    model = mlp(3, 3, 4).double() if model is None else model
    return Network(model, INPUTS, targets, given([0, 1, 1] * 4), loss=loss, **options)


def tensors() -> TensorLogistic:
    return TensorLogistic(INPUTS, TARGETS, device="cpu")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Network(mlp(3, 3, 4), INPUTS[:0], TARGETS[:0]), "0 samples need 0 targets and at least one, got 0"),
        (lambda: Network(mlp(3, 3, 4), INPUTS, TARGETS[:5]), "12 samples need 12 targets and at least one, got 5"),
        (lambda: own_copy(nn.BatchNorm1d(3), "cpu", torch.float64), "use GroupNorm, or call model.eval"),
        (lambda: own_copy(nn.BatchNorm1d(3, track_running_stats=False).eval(), "cpu", torch.float64), "use GroupNorm"),
        (lambda: resolve_device("moon"), "device 'moon' is not known to torch"),
        (lambda: buckets([]), "every text needs at least one token"),
        (lambda: buckets([np.ones(2, int), np.zeros(0, int)]), "every text needs at least one token"),
        (lambda: TensorLogistic(torch.zeros(3, 0), [0, 1, 0], device="cpu"), r"got shape \(3, 0\)"),
        (lambda: TensorLogistic(torch.zeros(3), [0, 1, 0], device="cpu"), r"non-empty table .* got shape \(3,\)"),
        (lambda: tensors().mix(torch.zeros(9), np.ones((1, 1, 1))), "a mix needs one coefficient"),
    ],
)  # fmt: skip
def test_what_a_network_or_tensors_refuse(make, why):
    with pytest.raises(InvalidInput, match=why):
        make()


def test_running_statistics_may_be_fixed():
    assert isinstance(own_copy(nn.BatchNorm1d(3).eval(), "cpu", torch.float64), nn.BatchNorm1d)


class Flat(nn.Module):
    """An output that is linear in the parameters, of which one does nothing."""

    def __init__(self):
        super().__init__()
        self.used, self.idle = nn.Parameter(torch.ones(3, dtype=torch.float64)), nn.Parameter(torch.ones(1).double())

    def forward(self, x):
        return (x * self.used).sum(1, keepdim=True) + 0 * self.idle


def first_column(out, targets):
    return out[:, 0] * targets


def test_a_loss_that_is_linear_has_no_curvature_but_its_penalty_s():
    from ownstep.problems.network.products import DeviceHessian

    penalty = lambda tensors: 0.5 * 0.7 * sum((t**2).sum() for t in tensors)  # noqa: E731
    for given_penalty, expected in ((None, 0.0), (penalty, 0.7)):
        problem = network(Flat(), first_column, TARGETS.double(), penalty=given_penalty)
        found = DeviceHessian(problem, problem.x0(), 0) @ torch.eye(4, dtype=torch.float64)
        np.testing.assert_allclose(found.numpy(), expected * np.eye(4), atol=1e-15)
        if given_penalty is not None:
            assert power(problem).values == pytest.approx([0.7, 0.7])


def test_measurements_that_are_no_numbers_say_so():
    broken = network(loss=lambda out, y: out[:, 0] * float("nan") * out[:, 1])
    with pytest.raises(OwnstepError, match="the Hessian at x is not finite"):
        power(broken)
    with pytest.raises(InvalidInput, match="a gradient is not finite within"):
        differences(broken, draws=2, samples=None)


def test_a_network_s_rows_are_its_device_s_in_any_chunks():
    whole, cut = network(), network(chunk=2)
    for i in range(2):
        for problem, most in ((whole, 12), (cut, 2)):
            pieces = list(problem.rows(i))
            assert max(len(targets) for _, targets in pieces) <= most
            np.testing.assert_array_equal(torch.cat([x for (x,), _ in pieces]), INPUTS[whole.partition.indices(i)])
            np.testing.assert_array_equal(torch.cat([y for _, y in pieces]), TARGETS[whole.partition.indices(i)])
    x = whole.x0()
    guesses = whole.outputs(x, INPUTS).argmax(1)
    assert whole.accuracy(x) == whole.accuracy(x, INPUTS, TARGETS) == float((guesses == TARGETS).double().mean())
    assert whole.accuracy(x, INPUTS[:5], guesses[:5]) == 1.0
