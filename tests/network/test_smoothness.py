"""Differences and Lanczos against dense Hessians and quadratics, where the answer is known."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from ownstep import GD, InvalidInput, partition, run  # noqa: E402
from ownstep.problems import Blocks, Network, SquaredL2, TensorNorms  # noqa: E402
from ownstep.problems.network.models import mlp  # noqa: E402
from ownstep.smoothness import Region, Snapshots, along, differences, measure, power  # noqa: E402
from ownstep.smoothness.hessian import extremes  # noqa: E402
from ownstep.smoothness.sampled import Sampled, untried  # noqa: E402

from .helpers import Conv, constants, data, problem  # noqa: E402


def quadratic(seed=0, devices=2):
    rng = np.random.default_rng(seed)
    rows = torch.as_tensor(rng.standard_normal((60, 3)) * rng.uniform(0.3, 3, 3))
    split = partition.iid(60, devices)
    made = Network(nn.Linear(3, 1, bias=False).double(), rows, rows.sum(1, keepdim=True), split, loss="squared")
    true = [
        torch.linalg.eigvalsh(a.T @ a / len(a))[-1].item() for a in (rows[split.indices(i)] for i in range(devices))
    ]
    return made, np.array(true), torch.linalg.eigvalsh(rows.T @ rows / 60)[-1].item()


def dense(made, device):
    at = torch.as_tensor(made.partition.indices(device))
    share = torch.full((len(at),), 1 / len(at), dtype=torch.float64)
    loss = lambda x: made.loss_on(x, (made.parts[0][0][at],), made.targets[at], share)  # noqa: E731
    return torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, made.x0())).numpy()


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("products", [False, True])
def test_on_a_quadratic_differences_never_exceed_and_come_within_a_percent(seed, products):
    made, true, pooled = quadratic(seed)
    found = differences(made, draws=3000, norm="euclidean", samples=None, products=products)
    assert (found.values <= true * (1 + 1e-7)).all()
    assert (found.values >= 0.99 * true).all()
    assert 0.99 * pooled <= found.pooled <= pooled * (1 + 1e-7)
    assert found.kind == "estimate"


def line(sizes, weights):
    """One parameter: f_i'' is the mean square of the device's inputs, whatever is drawn."""
    rng = np.random.default_rng(5)
    split = partition.given(rng.permutation(np.repeat(np.arange(len(sizes)), sizes)))
    a = rng.uniform(0.5, 2, (sum(sizes), 1)) * np.array([1.0, 2.0, 5.0])[split.device_of][:, None]
    made = Network(
        nn.Linear(1, 1, bias=False).double(), torch.as_tensor(a), torch.zeros(len(a), 1).double(), split,
        loss="squared", weights=weights,
    )  # fmt: skip
    return made, np.array([(a[split.indices(i)] ** 2).mean() for i in range(len(sizes))])


@pytest.mark.parametrize("products", [False, True])
def test_the_constant_of_f_weighs_the_devices_and_each_divides_by_its_own_samples(products):
    weights = [0.6, 0.3, 0.1]
    made, true = line([4, 9, 20], weights)
    found = differences(made, draws=3, samples=None, products=products, epsilon=1e-3)
    np.testing.assert_allclose(found.values, true, rtol=1e-9)
    assert found.pooled == pytest.approx(weights @ true, rel=1e-9)
    some = differences(made, draws=3, samples=6, products=products, epsilon=1e-3)  # the first holds fewer than six
    assert some.values[0] == pytest.approx(true[0], rel=1e-9)
    assert (np.abs(some.values[1:] / true[1:] - 1) > 1e-6).all()


def test_where_a_loss_curves_downwards_its_size_counts():
    """-(a^T x)^2 / 2: every Hessian is -A^T A / n, so the largest eigenvalue is not the constant."""
    rng, weights = np.random.default_rng(2), np.array([0.5, 0.2, 0.3])
    rows = rng.standard_normal((30, 3)) * [0.4, 1.0, 3.0]
    split = partition.given(np.repeat([0, 1, 2], [5, 9, 16]))
    made = Network(
        nn.Linear(3, 1, bias=False).double(), torch.as_tensor(rows), torch.zeros(30, 1).double(), split,
        loss=lambda z, _: -0.5 * z[:, 0] ** 2, weights=weights,
    )  # fmt: skip
    found = power(made, tolerance=1e-10)
    grams = np.stack([a.T @ a / len(a) for a in (rows[split.indices(i)] for i in range(3))])
    np.testing.assert_allclose(found.values, np.linalg.eigvalsh(grams)[:, -1], rtol=1e-8)
    np.testing.assert_allclose(found.lowest, -found.values)
    assert found.pooled == pytest.approx(np.linalg.eigvalsh(np.tensordot(weights, grams, 1))[-1], rel=1e-8)


def test_settled_is_what_the_second_half_of_the_draws_added():
    history = np.array([[1.0, 8.0], [2.0, 8.0], [4.0, 8.0], [5.0, 10.0], [6.0, 10.0], [10.0, 10.0]])
    for draws, half in ((6, 3), (5, 2), (4, 2), (2, 1), (1, 1)):
        made = Sampled(history[draws - 1], "estimate", "by hand", 1.0, history[:draws], history[:draws, 0])
        np.testing.assert_allclose(made.settled, history[draws - 1] / history[half - 1] - 1)


@pytest.mark.slow
@pytest.mark.parametrize("penalty", [None, SquaredL2(0.5), TensorNorms(0.1)])
def test_power_matches_the_dense_hessian(penalty):
    made = problem(3, penalty=penalty)
    found = power(made, tolerance=1e-9)
    for i in range(3):
        eigenvalues = dense(made, i)
        assert found.largest[i] == pytest.approx(eigenvalues[-1], abs=1e-6)
        assert found.values[i] == pytest.approx(np.abs(eigenvalues).max(), rel=1e-6)
        assert abs(found.values[i] - np.abs(eigenvalues).max()) <= found.residuals[i] + 1e-9
    whole = Network(mlp(4, 3, 6).double(), *data(), penalty=penalty)
    assert found.pooled == pytest.approx(np.abs(dense(whole, 0)).max(), rel=1e-6)


def test_a_few_products_come_with_an_honest_error_bar():
    made = problem(2)
    rough = power(made, most=4)
    for i in range(2):
        nearest = np.abs(np.abs(dense(made, i)) - rough.values[i]).min()
        assert nearest <= rough.residuals[i]
    assert rough.products == 12
    assert power(quadratic()[0], tolerance=1e-10).values == pytest.approx(quadratic()[1], rel=1e-8)


def test_the_history_is_a_running_maximum_that_more_draws_continue():
    made = problem(3)
    few, many = differences(made, draws=20, samples=5), differences(made, draws=50, samples=5)
    assert few.history.shape == (20, 3)
    assert (np.diff(many.history, axis=0) >= 0).all()
    np.testing.assert_allclose(many.history[:20], few.history)
    assert (many.settled >= 0).all()
    plain = many.to_dict()
    assert plain["draws"] == 50
    assert plain["history"]["L"][-1] == pytest.approx(many.values)
    other = differences(made, draws=20, samples=5, seed=1)
    assert not np.allclose(other.values, few.values)


def test_what_is_reported_is_the_last_of_the_running_maxima():
    """Of any number of draws: the last one counts too, and each is what fewer draws had found before it."""
    made = problem(3)
    longest = differences(made, draws=7, samples=5)
    records = 0
    for n in range(1, 8):
        found = differences(made, draws=n, samples=5)
        np.testing.assert_array_equal(found.values, longest.history[n - 1])
        assert found.pooled == pytest.approx(longest.pooled_history[n - 1], rel=1e-12)
        np.testing.assert_array_equal(found.values, found.history[-1])
        assert found.pooled == found.pooled_history[-1]
        records += n > 1 and bool((found.history[-1] > found.history[-2]).any())
    assert records > 1


def test_targets_that_are_numbers_are_taken_to_the_precision_of_the_arithmetic():
    """Binary cross-entropy refuses a mixture; a model in float32, its Hessian in float64 against the formula."""
    x, y = data(n=20, classes=2)
    loss = lambda z, t: nn.functional.binary_cross_entropy(torch.sigmoid(z[:, 0]), t, reduction="none")  # noqa: E731
    made = Network(nn.Linear(4, 1, bias=False), x.float(), y.float(), partition.iid(20, 2), loss=loss)
    rows, at = x.float().double(), made.x0().double()
    curved = torch.sigmoid(rows @ at) * (1 - torch.sigmoid(rows @ at))
    found = power(made, tolerance=1e-9)
    for i in range(2):
        mine = made.partition.indices(i)
        H = rows[mine].T @ (curved[mine, None] * rows[mine]) / len(mine)
        assert found.values[i] == pytest.approx(float(torch.linalg.eigvalsh(H)[-1]), rel=1e-7)
    sampled = differences(made, Region(0.0, made.x0()), draws=40, products=True, norm="euclidean", dtype=torch.float64)
    assert (sampled.values <= found.values * (1 + 1e-9)).all()
    assert (sampled.values >= 0.5 * found.values).all()


@pytest.mark.parametrize("layout", ["vmap", "grouped", "patches"])
@pytest.mark.parametrize("chunk", [1, 3, None])
def test_neither_chunks_nor_layouts_matter(layout, chunk):
    rng = np.random.default_rng(0)
    images = torch.as_tensor(rng.random((24, 1, 6, 6)))
    made = Network(
        Conv().double(), images, torch.arange(24) % 3, partition.given(np.arange(24) % 4), penalty=TensorNorms(0.1)
    )
    for products in (False, True):
        options = {"samples": 4, "products": products}
        found = differences(made, Region(0.1, made.x0()), 5, layout=layout, chunk=chunk, **options)
        again = differences(made, Region(0.1, made.x0()), 5, layout="vmap", chunk=5, **options)
        np.testing.assert_allclose(found.history, again.history, rtol=1e-6)
        np.testing.assert_allclose(found.pooled_history, again.pooled_history, rtol=1e-6)


def test_jumps_of_the_gradient_are_not_curvature():
    """|z| has slope -1 or 1 and no curvature: differences across 0 give about 2/eps, products give 0."""
    made = Network(nn.Linear(1, 1, bias=False).double(), torch.ones(4, 1).double(), torch.zeros(4, 1),
                   loss=lambda z, y: z.abs()[:, 0], penalty=SquaredL2(1.0))  # fmt: skip
    straddling = differences(made, Region(0.0), 20, epsilon=1e-3, norm="euclidean")
    assert straddling.values[0] > 100
    assert differences(made, Region(0.0), 20, products=True).values[0] == pytest.approx(1.0)


def test_blocks_of_different_lengths_are_measured_together():
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x, mask):
            return self.linear((x * mask.unsqueeze(-1)).sum(-2) / mask.sum(-1, keepdim=True))

    rng = np.random.default_rng(0)
    long, short = torch.as_tensor(rng.random((4, 5, 2))), torch.as_tensor(rng.random((6, 3, 2)))
    padded = torch.zeros(10, 5, 2).double()
    padded[:6, :3], padded[6:] = short, long
    mask = torch.zeros(10, 5, dtype=torch.bool)
    mask[:6, :3], mask[6:] = True, True
    split = partition.given(np.arange(10) % 2)
    y = torch.arange(10) % 2
    torch.manual_seed(0)
    model = Mean().double()
    parts = Blocks([(short, torch.ones(6, 3, dtype=torch.bool)), (long, torch.ones(4, 5, dtype=torch.bool))])
    cut, whole = Network(model, parts, y, split), Network(model, (padded, mask), y, split)
    one, two = (differences(p, Region(0.3), 6, samples=4) for p in (cut, whole))
    np.testing.assert_allclose(one.history, two.history, rtol=1e-12)
    np.testing.assert_allclose(power(cut).values, power(whole).values, rtol=1e-10)


def test_cudnn_tries_nothing_out_while_draws_fill_the_memory(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    with untried():
        assert not torch.backends.cudnn.benchmark
    assert torch.backends.cudnn.benchmark


def test_along_a_run():
    made = problem(2)
    kept = Snapshots([0, 5, 10])
    history = run(GD(0.5), made, 10, devices=constants(made), observe=kept)
    assert list(kept) == [0, 5, 10]
    np.testing.assert_array_equal(kept[10].numpy(), history.x)
    sharp = along(made, kept, "power", tolerance=1e-8)
    assert sharp[0].values == pytest.approx(power(made, tolerance=1e-8).values)
    assert not np.allclose(sharp[10].values, sharp[0].values)
    around = along(made, kept, "differences", draws=5, scale=1e-3)
    assert all((around[k].values <= sharp[k].values * 1.1).all() for k in kept)
    with pytest.raises(InvalidInput, match="unknown measurement"):
        along(made, kept, "guess")


def test_by_name_and_bad_input():
    made = problem(2)
    assert measure("power", made).values.shape == (2,)
    assert measure("differences", Network(mlp(4, 3, 2).double(), *data(6), partition.iid(6, 2))).values.shape == (2,)
    for wrong, text in (({"draws": 0}, "draws"), ({"epsilon": 0.0}, "epsilon"), ({"norm": "max"}, "unknown norm"),
                        ({"region": Region(1e200)}, "positive and finite")):  # fmt: skip
        with pytest.raises(InvalidInput, match=text):
            differences(made, **({"draws": 2} | wrong))
    with pytest.raises(InvalidInput, match="at least 0"):
        Region(-1.0)
    with pytest.raises(InvalidInput, match="tolerance"):
        power(made, tolerance=0.0)
    with pytest.raises(InvalidInput, match="measures networks, got str"):
        power("net")


def test_the_point_and_the_direction_of_a_draw_are_two_draws():
    from ownstep.smoothness.sampled import _draw

    points, directions = _draw(torch.Generator(), 3, range(40), 50, torch.float64)
    both = torch.stack([points.flatten(), directions.flatten()])
    assert abs(float(torch.corrcoef(both)[0, 1])) < 0.1
    again, _ = _draw(torch.Generator(), 3, range(20, 40), 50, torch.float64)
    assert torch.equal(again, points[20:])  # draw j is draw j in whatever chunk


def test_lanczos_stops_at_a_residual_relative_to_the_eigenvalue():
    """In any units the same number of products, and a residual below the tolerance times the largest eigenvalue."""
    rng = np.random.default_rng(4)
    A = torch.as_tensor(rng.standard_normal((30, 30)))
    A, like = A @ A.T, torch.zeros(30, dtype=torch.float64)
    found = {unit: extremes(lambda v, unit=unit: unit * (A @ v), like, 1e-3, 30, 0) for unit in (1e-6, 1.0, 1e6)}
    top = float(torch.linalg.eigvalsh(A)[-1])
    for unit, (largest, _, residual, products) in found.items():
        assert products == found[1.0][3] < 30
        assert residual <= 1e-3 * largest
        assert largest == pytest.approx(unit * top, rel=1e-5)
