"""Linear models on torch tensors against the NumPy models, on torch's CPU device."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit

torch = pytest.importorskip("torch")

from ownstep import GD, OwnStep, partition, run  # noqa: E402
from ownstep.engines import describe  # noqa: E402
from ownstep.problems import logistic_regression  # noqa: E402
from ownstep.problems.linear import tensor_rows, tensors  # noqa: E402
from ownstep.smoothness import spectrum_tensors  # noqa: E402
from ownstep.support.errors import InvalidInput, OwnstepError  # noqa: E402

from ..conftest import unequal_owner  # noqa: E402


def pair(classes=2, form="dense", devices=4, n=60, **options):
    """The same problem twice, devices of unequal size and weight: with NumPy, and with torch on the CPU."""
    rng = np.random.default_rng(classes)
    rows = rng.standard_normal((n, 5)) * (rng.random((n, 5)) < 0.6) * rng.uniform(0.3, 2, (n, 1))
    labels, owner = rng.permutation(np.arange(n) % classes), rng.permutation(unequal_owner(n, devices))
    given = {"dense": rows, "scipy": sp.csr_array(rows), "tensor": torch.as_tensor(rows)}
    given["csr"] = torch.as_tensor(rows).to_sparse_csr()
    there = sp.csr_array(rows) if form in ("scipy", "csr") else rows
    split, options = partition.given(owner), {"mu": 0.05, "weights": np.array([4, 2, 1, 3]) / 10} | options
    return (
        logistic_regression(there, labels, split, **options),
        logistic_regression(given[form], labels, split, device="cpu", **options),
    )


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
@pytest.mark.parametrize("form", ["dense", "scipy", "tensor", "csr"])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("intercept", [False, True])
def test_tensors_give_what_numpy_gives(classes, form, intercept, monkeypatch):
    monkeypatch.setattr(tensor_rows, "SPLIT", 8)
    plain, made = pair(classes, form, intercept=intercept)
    assert isinstance(made, tensors.TensorLogistic)
    rng = np.random.default_rng(0)
    x, v, c = rng.standard_normal(plain.dim), rng.standard_normal(plain.dim), rng.standard_normal((4, 2))
    points = rng.standard_normal((4, plain.dim))
    t = torch.as_tensor
    found = [
        (made.mix(t(x), c[:, 0]), plain.mix(x, c[:, 0])),
        (made.mix(t(x), c), plain.mix(x, c)),
        (made.each(t(x)), plain.each(x)),
        (made.each(t(points)), plain.each(points)),
        ([made.value(t(x)), made.hessian_product(t(x), t(v))], [plain.value(x), plain.hessian_product(x, v)]),
    ]
    for ours, theirs in found:
        for got, wanted in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(got, wanted, atol=1e-12)
    monkeypatch.setattr(tensors, "FEW", 0)
    np.testing.assert_allclose(made.mix(t(x), c)[0], plain.mix(x, c)[0], rtol=1e-12)
    there, here = describe(made), describe(plain)
    np.testing.assert_allclose(there.devices.L, here.devices.L, rtol=1e-9)
    assert there.devices.L_pooled == pytest.approx(here.devices.L_pooled, rel=1e-9)
    assert there.smoothness.kind == here.smoothness.kind
    assert made.strong_convexity == plain.strong_convexity == (0.0 if intercept else 0.05)
    np.testing.assert_array_equal(made.penalty, plain.penalty)


@pytest.mark.parametrize("method", [OwnStep(), GD(), OwnStep(smoothness="adaptive")])
def test_a_run_on_tensors(method):
    plain, made = pair()
    ours, theirs = run(method, made, 25), run(method, plain, 25)
    np.testing.assert_allclose(ours.value, theirs.value, rtol=1e-8)
    np.testing.assert_allclose(ours.x, theirs.x, atol=1e-6)
    assert ours.x.dtype == theirs.x.dtype == np.float64


def test_float32_is_kept():
    plain, made = pair(dtype=np.float32)
    assert made.x0().dtype == torch.float32
    assert run(OwnStep(), made, 5).x.dtype == np.float32
    x = np.linspace(-1, 1, 5, dtype=np.float32)
    np.testing.assert_allclose(made.mix(torch.as_tensor(x), made.weights)[1], plain.mix(x, plain.weights)[1], atol=1e-6)


def test_what_cannot_be_used_is_refused():
    rows, labels = np.eye(3), np.array([0, 1, 0])
    with pytest.raises(InvalidInput, match="features must be finite, got nan"):
        logistic_regression(np.array([[np.nan], [1.0]]), [0, 1], device="cpu")
    with pytest.raises(InvalidInput, match=r"3 rows need 3 labels, got shape \(2,\)"):
        logistic_regression(rows, [0, 1], device="cpu")
    with pytest.raises(InvalidInput, match="float32 or float64 on a device, got float16"):
        logistic_regression(rows, labels, dtype=np.float16, device="cpu")
    made = logistic_regression(rows, labels, device="cpu")
    with pytest.raises(InvalidInput, match=r"x must have shape \(3,\), got \(2,\)"):
        made.value(torch.zeros(2))
    with pytest.raises(InvalidInput, match=r"each of 1 devices, got \(2,\)"):
        made.mix(made.x0(), np.ones(2))


@pytest.mark.slow
def test_a_run_needs_neither_scipy_nor_scikit_learn():
    script = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("scipy", "sklearn", "threadpoolctl"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refuse())
import numpy as np, ownstep
from ownstep.problems import logistic_regression
rows = np.random.default_rng(0).standard_normal((40, 3))
made = logistic_regression(rows, np.arange(40) % 2, ownstep.partition.given(np.arange(40) % 3), device="cpu")
print(ownstep.run(ownstep.OwnStep(), made, 5).rounds)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=100)
    assert done.stdout == "5\n", done.stderr


@pytest.mark.parametrize("score", [-1e3, -45.0, -39.9, -30.0, 0.0, 30.0, 39.9, 40.1, 45.0, 1e3])
def test_losses_far_from_zero_to_the_last_digits(score):
    """In float64 against log(1 + exp(s z)) by logaddexp, and the slope s / (1 + exp(-s z))."""
    for label in (0, 1):
        made = logistic_regression(np.array([[score], [score]]), np.array([label, 1 - label]), mu=0.0, device="cpu")
        losses, slope = made.mix(torch.ones(1, dtype=torch.float64), np.ones(1))
        assert losses[0] == pytest.approx((np.logaddexp(0, -score) + np.logaddexp(0, score)) / 2, rel=1e-15)
        assert float(slope) == pytest.approx(score * (expit(score) - expit(-score)) / 2, rel=1e-14)


class Told:
    """Sparse rows that say how many entries they have; what is stored is small."""

    def __init__(self, entries: int) -> None:
        few = sp.csr_array(np.eye(3))
        self.indptr, self.indices, self.data, self.shape, self.nnz = few.indptr, few.indices, few.data, (3, 3), entries

    def tocsr(self):
        return self


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
@pytest.mark.parametrize(("entries", "kind"), [(2**31 - 1, torch.int32), (2**31, torch.int64)])
def test_places_of_entries_are_long_numbers_only_where_they_must_be(entries, kind):
    assert tensor_rows.place(Told(entries), None, False, torch.float64, torch.device("cpu")).columns.dtype == kind


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_one_number_that_is_not_finite_is_enough(bad):
    rows = np.eye(3)
    rows[1, 2] = bad
    with pytest.raises(InvalidInput, match=f"features must be finite, got {bad}"):
        logistic_regression(torch.as_tensor(rows), [0, 1, 0], device="cpu")


def test_constants_that_have_not_settled_are_refused(monkeypatch):
    """Lanczos without enough products: an error, never a constant that is too small."""
    _, made = pair(form="csr")
    monkeypatch.setattr(spectrum_tensors, "extremes", lambda *_: (2.0, 0.0, 1e-3, 500))
    with pytest.raises(OwnstepError, match="did not converge on the Hessian bound in 500 products"):
        spectrum_tensors._lanczos(made, [slice(0, 60)], np.ones(1), torch.zeros(5, dtype=torch.float64), 0)
