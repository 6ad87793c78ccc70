"""What the public calls do with arguments they cannot use: one error of ours, which quotes the value."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import ownstep
from ownstep import partition
from ownstep.engines import Bernoulli, compare, describe, run
from ownstep.glm import fit
from ownstep.methods import GD, OwnStep
from ownstep.plan import Devices
from ownstep.sklearn import OwnStepClassifier
from ownstep.support.errors import InvalidInput, OwnstepError, plain_text

RNG = np.random.default_rng(0)
X = RNG.standard_normal((30, 3))
Y = (X[:, 0] > 0).astype(int)
MIXED = [1, "a", None] * 10


def logistic(*args, **kwargs):
    return ownstep.logistic_regression(*args, **kwargs)


def problem():
    return logistic(X, Y, partition.by_norm(X, devices=2), mu=0.1)


def test_bad_input_is_both_one_of_our_errors_and_a_value_error():
    assert issubclass(InvalidInput, OwnstepError)
    assert issubclass(InvalidInput, ValueError)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: logistic(np.zeros((0, 3)), np.zeros(0)), "the table is empty"),
        (lambda: partition.by_norm(np.zeros((0, 3))), r"non-empty table .* got shape \(0, 3\)"),
        (lambda: partition.by_norm(None), r"got shape \(\)"),
        (lambda: partition.by_norm(X, devices=True), "a whole number of at least 1, got True"),
        (lambda: run(GD(), problem(), True), "rounds must be a whole number of at least 0, got True"),
        (lambda: logistic(X, None), "one label per row, got None"),
        (lambda: logistic(X, np.array(MIXED, object)), "all numbers or all strings, got NoneType, int, str"),
        (lambda: partition.by_label(np.array(MIXED, object)), "all numbers or all strings"),
        (lambda: ownstep.LeastSquares(X, ["a"] * 30), "targets must be real numbers"),
        (lambda: logistic(X, Y, [[0, 1, 2], list(range(3, 30))]), "partition must be a Partition, got list"),
        (lambda: logistic(X, Y, np.zeros(30, int)), "partition must be a Partition, got ndarray"),
        (lambda: partition.given([[0, 1, 2], list(range(2, 30))]), "sample 2 is on two devices"),
        (lambda: run(OwnStep(), problem(), 3, devices=Devices.uniform([1.0, 2, 3])), "3 devices described"),
        (lambda: run(OwnStep(), problem(), 3, devices=[1.0, 2.0]), "must be an ownstep.Devices, got list"),
        (lambda: run("own_step", problem(), 3), r"got the name 'own_step': write OwnStep\(\)"),
        (lambda: run("own_stop", problem(), 3), "Did you mean 'own_step'"),
        (lambda: run(OwnStep, problem(), 3), r"got the class OwnStep: write OwnStep\(\)"),
        (lambda: run(3, problem(), 3), "method must have start, ask, tell"),
        (lambda: run(OwnStep(), None, 3), "NoneType has no weights"),
        (lambda: run(OwnStep(), problem(), 3, participation=0.5), r"such as Bernoulli\(0.5\), got 0.5"),
        (lambda: run(OwnStep(), problem(), 3, participation=Bernoulli(0.5, seed=-1)), "seed .* got -1"),
        (lambda: run(OwnStep(), problem(), 3, target="low"), "target must be a finite number, got 'low'"),
        (lambda: run(OwnStep(), problem(), 3, gradient_tolerance=np.nan), "gradient_tolerance .* got nan"),
        (lambda: run(OwnStep(), problem(), 3, x0=np.full(3, np.nan)), "x0 must be finite"),
        (lambda: run(GD("tuned"), problem(), 3, seed=-1), "seed must be a whole number of at least 0, got -1"),
        (lambda: compare(problem(), {"GD": GD()}, 40).rounds("DG"), "unknown method of this comparison 'DG'"),
        (lambda: compare(problem(), [GD()], 40), "takes methods by label"),
        (lambda: compare(problem(), {"GD": "gd"}, 40), r"write GD\(\)"),
        (lambda: logistic(X, Y, mu="a"), "mu must be a finite number >= 0, got 'a'"),
        (lambda: logistic(X, Y, mu=np.inf), "got inf"),
        (lambda: partition.iid(30, 2, seed=-1), "seed must be a whole number of at least 0, got -1"),
        (lambda: partition.dirichlet(Y, 2, seed="a"), "seed .* got 'a'"),
        (lambda: logistic(X + 1j, Y), "features must be real numbers"),
        (lambda: partition.by_norm(X + 1j), "features must be real numbers"),
        (lambda: logistic([["a", "b"]] * 30, Y), "features must be a table of numbers, got list"),
        (lambda: logistic([[1, 2], [3]] * 15, Y), "features must be a table of numbers, got list"),
        (lambda: describe(logistic(1e200 * X, Y)), "or their squares overflow float64; got"),
        (lambda: logistic(1e25 * X, Y, dtype=np.float32), "or their squares overflow float32; got"),
        (lambda: logistic(X, Y, partition.by_norm(X), weights=["a", "b"]), "weights must be one number"),
        (lambda: OwnStepClassifier(tol=np.nan).fit(X, Y), "tol must be a finite number >= 0, got nan"),
        (lambda: OwnStepClassifier(tol=-1).fit(X, Y), "got -1"),
        (lambda: OwnStepClassifier(C="a").fit(X, Y), "C must be a finite number > 0, got 'a'"),
        (lambda: OwnStepClassifier(devices="a").fit(X, Y), "devices must be a whole number"),
        (lambda: OwnStepClassifier(switch=None).fit(X, Y), "switch must be a word"),
        (lambda: OwnStepClassifier(random_state=-1).fit(X, Y), "random_state must be a whole number"),
        (lambda: OwnStepClassifier().fit(1e200 * X, Y), "overflow"),
        (lambda: Devices.uniform([1e-300, 1e300]), "within a factor of 1e"),
        (lambda: logistic(X, ["a", 1] * 15), "all numbers or all strings, got int, str"),
        (lambda: logistic(X.astype(str), Y), "got words"),
        (lambda: logistic(X, Y, mu=1e200), "mu must be at most"),
        (lambda: partition.dirichlet(Y, 2, alpha=np.inf), "alpha must be a finite number > 0, got inf"),
        (lambda: partition.dirichlet(Y, 2, alpha="a"), "alpha .* got 'a'"),
        (lambda: OwnStep(switch=3.5), r"switch must be a rule such as Plateau\(\) or At\(50\), got 3.5"),
        (lambda: OwnStep("never", smoothness="adaptive"), "switch must be a rule"),
        (lambda: compare(problem(), {"GD": GD()}, 40, tolerances=[]), "at least one tolerance"),
        (lambda: OwnStepClassifier(class_weight={0: -1}).fit(X, Y), "class_weight must be finite and at least 0"),
        (lambda: OwnStepClassifier().fit(X, Y, groups=[None] * 30), "say who holds each row, got None for row 0"),
        (lambda: OwnStepClassifier().fit(X, Y, groups=[1, np.nan] * 15), "got nan for row 1"),
        (lambda: OwnStepClassifier().fit(X, Y, groups=np.array([1, "a"] * 15, object)), "one word per row"),
        (lambda: OwnStepClassifier(fit_intercept="no").fit(X, Y), "fit_intercept must be True or False, got 'no'"),
        (lambda: OwnStepClassifier(warm_start="no").fit(X, Y), "warm_start must be True or False, got 'no'"),
        (
            lambda: OwnStepClassifier().fit(X, Y, sample_weight=np.full(30, 1e308)),
            "sample_weight must have a finite sum",
        ),
        (lambda: logistic(X, Y, intercept="no"), "intercept must be True or False, got 'no'"),
        (lambda: logistic(np.ma.masked_array(X, X > 1), Y), "features have masked entries"),
        (lambda: fit(np.ma.masked_array(X, X > 1), Y), "rows have masked entries"),
        (lambda: compare(problem(), {1: GD()}, 40), "labels of methods must be words, got 1"),
        (lambda: partition.shards(Y, None), "devices must be a whole number of at least 1, got None"),
        (lambda: partition.by_norm(pd.DataFrame({"a": ["x", "y"]})), "must be a table of numbers, got DataFrame"),
        (lambda: partition.given(pd.Series(["a", None], dtype="string")), "sample 1 has no device: <NA>"),
        (lambda: partition.given(np.array(["2020-01-01", "NaT"], "M8[D]")), "sample 1 has no device: NaT"),
        (lambda: fit(X, pd.Series(["a", None] * 15, dtype="string")), "row 2 has no label, got <NA>"),
        (lambda: fit(X, Y, holdout=0.001), "holdout=0.001 of 30 rows is not one row"),
        (lambda: fit(X, Y, holdout=0.99), "every row is held out"),
        (lambda: fit(X, np.arange(30) == 7, holdout=0.8), "every row of class True is held out"),
        (lambda: fit(X, X @ [1.0, 2, 3] + 4), "the label follows exactly from the columns"),
        (lambda: fit(X, np.full(30, 3.0), family="linear"), "the label follows exactly from the columns"),
        (lambda: ownstep.load(""), "there is no file ''"),
        (lambda: ownstep.load(None), "takes the name of a dataset or the path of a file, got None"),
        (lambda: fit(X, Y, ["a", "b"]), "30 rows need 30 sites, got 2"),
        (lambda: fit(X, Y, features=["a"]), "features must name the 3 columns of the rows, got 1"),
        (lambda: fit(X, Y, features=["a", "b", "a"]), "got 'a' twice"),
        (lambda: fit(None, Y), r"non-empty table of samples by features, got shape \(\)"),
        (lambda: ownstep.logistic_regression(X + 1j, Y), "^features must be real numbers, got complex ones"),
        (lambda: fit(X + 1j, Y), "rows must be real numbers, got dtype complex128"),
        (lambda: fit(X.astype(str), Y), "rows must be real numbers"),
        (lambda: fit(pd.DataFrame(X).assign(sex=["m", "f"] * 15), Y), "column 'sex' must hold numbers"),
        (lambda: fit(X, ["a", 1] * 15), "all numbers or all strings, got int, str"),
        (lambda: fit(X, np.array([1, None] * 15)), "row 2 has no label, got None"),
        (lambda: fit(X, np.where(Y, np.nan, 1.0)), r"row \d+ has no label, got nan"),
        (lambda: fit(np.where(X > 1, np.nan, X), Y), r"column 'x\d' has missing values"),
        (lambda: fit(X, Y, engine="clustr"), "unknown engine 'clustr'. Did you mean 'cluster'"),
    ],
)
def test_what_cannot_be_used_is_refused_and_quoted(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()


def test_the_largest_constants_give_no_warning():
    assert Devices.uniform([1e308, 1e308]).gain == pytest.approx(1)


@pytest.mark.parametrize("scale", [1e-100, 1e100])
def test_large_and_small_features_are_still_features(scale):
    assert np.isfinite(describe(ownstep.LeastSquares(scale * X, Y, mu=0.0), "trace").devices.L).all()


def test_loaders_are_no_tensors():
    torch = pytest.importorskip("torch")
    from ownstep.problems import Network

    data = torch.utils.data.TensorDataset(torch.ones(30, 3))
    loader, net = torch.utils.data.DataLoader(data, batch_size=4), torch.nn.Linear(3, 2)
    for call, message in (
        (lambda: Network(net, loader, Y), "inputs must be a tensor, got DataLoader"),
        (lambda: Network(net, data, Y), "inputs must be a tensor, got TensorDataset"),
        (lambda: Network(net, torch.ones(30, 3), loader), "targets must be a tensor, got DataLoader"),
        (lambda: Network(net, torch.ones(30, 3), None), "targets must be a tensor, got NoneType"),
        (lambda: Network(None, torch.ones(30, 3), Y), "must be a torch.nn.Module, got NoneType"),
        (lambda: Network(net, torch.ones(30, 3), Y, [[0], [1]]), "partition must be a Partition, got list"),
    ):
        with pytest.raises(InvalidInput, match=message):
            call()


def test_text_from_elsewhere_becomes_one_short_harmless_line():
    assert plain_text("\x1b[31mred\x1b[0m\nnext\tline") == "[31mred [0m next line"
    assert plain_text("a\u202eb\u2028c") == "a b c"
    long = plain_text("x" * 2_000_000)
    assert len(long) < 350
    assert "2,000,000 characters" in long
    assert plain_text("site-1 said: größer als erwartet") == "site-1 said: größer als erwartet"
