"""Fits over sites against statsmodels on the pooled rows: coefficients, standard errors, likelihood."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import statsmodels.api as sm
from scipy.stats import norm
from sklearn.metrics import mean_squared_error, r2_score, roc_auc_score

import ownstep
from ownstep.cli import main
from ownstep.glm import Model, disclosure, fit, held_out, load_model
from ownstep.support.errors import InvalidInput

from ..conftest import needs

SCALES, SHIFTS = np.array([1, 30, 0.01, 1e4]), np.array([0, 2000, 5, -1e3])


def sample(family: str, seed: int = 0, n: int = 400):
    """Columns of very different sizes, three unequal sites that differ in all means."""
    rng = np.random.default_rng(seed)
    sites = rng.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1])
    plain = rng.standard_normal((n, 4)) + (sites == "b")[:, None]
    z = plain @ [0.5, -0.3, 0.4, 0.2] - 0.2
    if family == "logistic":
        labels = np.where(rng.random(n) < 1 / (1 + np.exp(-z)), "yes", "no")
    elif family == "softmax":
        labels = np.argmax(np.column_stack([np.zeros(n), z, -z]) + rng.gumbel(size=(n, 3)), axis=1)
    elif family == "poisson":
        labels = rng.poisson(np.exp(z))
    else:
        labels = 100 * (z + rng.standard_normal(n))
    return plain * SCALES + SHIFTS, labels, sites


def theirs(family: str, rows, labels):
    design = sm.add_constant(rows)
    if family == "logistic":
        return sm.Logit((labels == "yes").astype(float), design).fit(disp=0, method="newton", maxiter=200, tol=1e-10)
    if family == "softmax":
        return sm.MNLogit(labels, design).fit(disp=0, method="newton", maxiter=200, tol=1e-10)
    if family == "poisson":
        return sm.GLM(labels, design, family=sm.families.Poisson()).fit(tol=1e-10)
    return sm.GLM(labels, design).fit()


@pytest.mark.parametrize("over_sites", [True, False])
@pytest.mark.parametrize("family", ["logistic", "softmax", "linear", "poisson"])
def test_the_table_is_that_of_statsmodels_on_pooled_rows(family, over_sites):
    rows, labels, sites = sample(family)
    ours = fit(rows, labels, sites if over_sites else None, family=family, features=["a", "b", "c", "d"])
    other = theirs(family, rows, labels)
    found = {k: np.array([getattr(c, k) for c in ours.coefficients]) for k in ("estimate", "standard_error", "z", "p")}
    for key, values in {
        "estimate": other.params,
        "standard_error": other.bse,
        "z": other.tvalues,
        "p": other.pvalues,
    }.items():
        np.testing.assert_allclose(found[key], np.asarray(values).T.ravel(), rtol=1e-6, atol=1e-12, err_msg=key)
    assert ours.log_likelihood == pytest.approx(other.llf, rel=1e-9)
    assert ours.aic == pytest.approx(other.aic, rel=1e-9)
    for c in ours.coefficients:
        assert (c.low, c.high) == pytest.approx(norm.interval(0.95, c.estimate, c.standard_error))
        assert c.ratio is None or c.ratio == pytest.approx(np.exp(c.estimate))
    assert ours.exchanges <= 9
    if family == "linear":
        assert ours.exchanges == 3  # the sums, the start, and the solution


def test_sparse_rows_and_units_change_nothing():
    rows, labels, sites = sample("logistic", seed=1)
    rows = (rows - SHIFTS) / SCALES * (np.random.default_rng(0).random(rows.shape) < 0.5)
    dense = fit(rows, labels, sites)
    sparse = fit(sp.csr_array(rows), labels, sites)
    moved = fit(rows * SCALES + SHIFTS, labels, sites)
    for other, scale in ((sparse, np.ones(4)), (moved, SCALES)):
        np.testing.assert_allclose(other.model.coefficients[:, 0] * scale, dense.model.coefficients[:, 0], rtol=1e-7)
        assert other.log_likelihood == pytest.approx(dense.log_likelihood, abs=1e-8)


def test_frames_and_small_integers_are_tables_too():
    rng = np.random.default_rng(7)
    small = rng.integers(-100, 101, (300, 3)).astype(np.int8)  # their squares are no int8
    labels = rng.random(300) < 1 / (1 + np.exp(-0.02 * small @ [1, -2, 1]))
    expected = fit(small.astype(float), labels).coefficients
    for rows in (small, sp.csr_array(small)):
        np.testing.assert_allclose(
            [c.estimate for c in fit(rows, labels).coefficients], [c.estimate for c in expected], rtol=1e-9
        )
    framed = fit(pd.DataFrame(small, columns=["age", "dose", "weight"]), pd.Series(labels))
    assert [c.name for c in framed.coefficients][1:] == ["age", "dose", "weight"]
    np.testing.assert_allclose(framed.model.predict(small.astype(float)), fit(small, labels).model.predict(small))


def test_a_penalty_shrinks_all_but_the_intercept_and_is_said():
    rows, labels, sites = sample("logistic")
    mu, n = 0.5, len(labels)
    fitted = fit(rows, labels, sites, mu=mu)
    standard = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    gamma = fitted.model.coefficients[:, 0] * rows.std(axis=0)
    b = fitted.model.intercepts[0] + fitted.model.coefficients[:, 0] @ rows.mean(axis=0)
    p = 1 / (1 + np.exp(-(standard @ gamma + b)))
    y = (labels == "yes").astype(float)
    np.testing.assert_allclose(standard.T @ (p - y) / n + mu * gamma, 0, atol=1e-10)  # stationary, as defined
    assert (p - y).sum() == pytest.approx(0, abs=1e-8)  # the intercept is free
    told = fitted.to_dict()
    assert told["penalised"]
    assert "shrunk" in told["note"]
    assert "note" not in fit(rows, labels, sites).to_dict()


def test_a_linear_model_says_how_much_wider_student_s_intervals_are():
    """Once more from statsmodels' OLS, which uses t where its GLM and we use z."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(30, 2))
    labels = rows @ [1.0, -2.0] + rng.normal(size=30)
    told = fit(rows, labels).to_dict()
    theirs = sm.OLS(labels, sm.add_constant(rows)).fit()
    ours = np.array([c["high"] - c["low"] for c in told["coefficients"]])
    wider = np.diff(theirs.conf_int(), axis=1).ravel() / ours
    assert "27 degrees of freedom" in told["normal"]
    assert f"{wider[0]:.3f} times as wide" in told["normal"]
    np.testing.assert_allclose([c["z"] for c in told["coefficients"]], theirs.tvalues, rtol=1e-8)
    assert "normal" not in fit(rows, labels > 0).to_dict()


def test_collinear_constant_and_separating_columns_are_named():
    rows, labels, sites = sample("logistic")
    names = ["a", "b", "c", "d", "extra"]
    with pytest.raises(InvalidInput, match=r"column 'extra' is a combination of 'a', 'c'.*--ignore extra"):
        fit(np.column_stack([rows, 3 * rows[:, 0] - rows[:, 2] + 7]), labels, sites, features=names)
    with pytest.raises(InvalidInput, match=r"column 'extra' is constant over all sites"):
        fit(np.column_stack([rows, np.full(len(rows), 0.1)]), labels, sites, features=names)
    y = labels == "yes"
    perfect, partly = np.column_stack([rows, 5.0 * y]), np.column_stack([rows, 1.0 * (y & (rows[:, 0] > 0))])
    for bad in (perfect, partly):
        with pytest.raises(InvalidInput, match=r"^'extra' separates the classes.*--mu"):
            fit(bad, labels, features=names)
        assert np.isfinite(fit(bad, labels, features=names, mu=0.1).model.coefficients).all()


@pytest.mark.parametrize("family", ["logistic", "linear"])
def test_with_a_penalty_the_errors_are_those_of_the_shrunk_estimates(family):
    """(H + D)^-1 H (H + D)^-1 / n in standardised columns, worked out here; the likelihood is that of the data."""
    rows, labels, sites = sample(family)
    mu, n, deviation = 0.3, len(rows), rows.std(axis=0)
    ours = fit(rows, labels, sites, family=family, mu=mu)
    Z = np.column_stack([np.ones(n), (rows - rows.mean(axis=0)) / deviation])
    y = (labels == "yes").astype(float) if family == "logistic" else labels
    gamma, D = np.zeros(5), mu * np.diag([0.0, 1, 1, 1, 1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-Z @ gamma)) if family == "logistic" else Z @ gamma
        H = Z.T @ (Z * ((p * (1 - p)) if family == "logistic" else np.ones(n))[:, None]) / n
        gamma = gamma - np.linalg.solve(H + D, Z.T @ (p - y) / n + D @ gamma)
    squares = float(((y - Z @ gamma) ** 2).sum())
    dispersion = 1.0 if family == "logistic" else squares / (n - 5)
    spread = dispersion / n * np.linalg.inv(H + D) @ H @ np.linalg.inv(H + D)
    np.testing.assert_allclose([c.estimate for c in ours.coefficients[1:]], gamma[1:] / deviation, rtol=1e-7)
    errors = np.sqrt(np.diag(spread))[1:] / deviation
    np.testing.assert_allclose([c.standard_error for c in ours.coefficients[1:]], errors, rtol=1e-6)
    turn = np.r_[1, -rows.mean(axis=0) / deviation]  # the intercept where all columns are zero
    assert ours.coefficients[0].standard_error == pytest.approx(np.sqrt(turn @ spread @ turn), rel=1e-6)
    likelihood = np.log(np.where(y == 1, p, 1 - p)).sum() if family == "logistic" else (
        norm.logpdf(y, Z @ gamma, np.sqrt(squares / n)).sum()
    )  # fmt: skip
    assert ours.log_likelihood == pytest.approx(likelihood, rel=1e-9)
    assert ours.aic == pytest.approx(10 - 2 * likelihood, rel=1e-9)


def test_a_strong_effect_is_not_taken_for_separated_classes():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((400, 2))
    labels = (rng.random(400) < 1 / (1 + np.exp(2 * rows[:, 1] - 9 * rows[:, 0]))).astype(int)
    other = sm.Logit(labels, sm.add_constant(rows)).fit(disp=0, method="newton", tol=1e-12)
    assert other.params[1] > 5
    found = fit(rows, labels).coefficients
    np.testing.assert_allclose([c.estimate for c in found], other.params, rtol=1e-6)
    np.testing.assert_allclose([c.standard_error for c in found], other.bse, rtol=1e-5)


def test_every_number_that_travels_is_counted():
    """Three sites, five coefficients: 14 sums; then a loss, a gradient and a triangle for five numbers asked with."""
    rows, labels, sites = sample("logistic")
    for share, more in ((0.0, 0), (0.2, 6 + 5)):
        fitted = fit(rows, labels, sites, holdout=share)
        asked = fitted.history.rounds + 1
        assert fitted.exchanges == 1 + asked + (share > 0)
        assert fitted.bytes == 3 * 8 * ((4 + 2 + 2 * 4) + asked * (1 + 5 + 15 + 5) + more)


def site(n=40, cases=20, smokers=20, ward=20):
    """Rows with an age, a 0/1 column and one of a category's; so many of each are ones."""
    ones = [np.arange(n) < count for count in (cases, smokers, ward)]
    rows = np.column_stack([np.linspace(20, 80, n), ones[1], ones[2]]).astype(float)
    return rows, ones[0].astype(int), ("age", "smoker", "ward=B"), np.array([0, 1])


@pytest.mark.parametrize(
    ("changed", "tested", "why"),
    [
        ({}, 0, []),
        ({"n": 12, "cases": 6, "smokers": 6, "ward": 6}, 0, []),  # three for each of four coefficients
        (
            {"n": 11, "cases": 5, "smokers": 5, "ward": 5},
            0,
            ["11 rows, fewer than 12: 3 per coefficient and at least 10"],
        ),
        ({"cases": 5}, 0, []),
        ({"cases": 4}, 0, ["4 rows of class 1"]),
        ({"cases": 35}, 0, []),
        ({"cases": 36}, 0, ["4 rows of class 0"]),
        ({"smokers": 5}, 0, []),
        ({"smokers": 4}, 0, ["4 rows with smoker = 1"]),
        ({"smokers": 35}, 0, []),
        ({"smokers": 36}, 0, ["4 rows with smoker = 0"]),
        ({"smokers": 0}, 0, []),  # nobody is no group
        ({"ward": 5}, 0, []),
        ({"ward": 1}, 0, ["1 row with ward=B"]),
        ({"ward": 35}, 0, []),
        ({"ward": 36}, 0, ["4 rows with none of ward=B"]),
        ({}, 5, []),
        ({}, 4, ["4 rows held out"]),
        ({"cases": 4, "smokers": 36}, 1, ["1 row held out", "4 rows of class 1", "4 rows with smoker = 0"]),
    ],
)
def test_disclosure_limits_at_their_edges(changed, tested, why):
    rows, labels, features, classes = site(**changed)
    for held in (rows, sp.csr_array(rows)):
        assert list(disclosure.reasons(held, labels, features, classes, 4, tested)) == why
    quiet = list(disclosure.reasons(rows, labels, features, classes, 4, tested, counted=False))
    assert len(quiet) == len(why)
    assert all(text.startswith(("fewer than 5 rows", "fewer than 12 rows")) for text in quiet)


@pytest.mark.parametrize("over_sites", [True, False])
def test_the_columns_that_separate_are_named_and_no_others(over_sites):
    rng = np.random.default_rng(5)
    n, names = 240, ["age", "marker", "stage=III", "dose"]
    sites = np.arange(n) % 2 if over_sites else None
    noise = [rng.normal(60, 9, n), None, 1.0 * (rng.random(n) < 0.3), 0.01 * rng.standard_normal(n)]

    def named(y, marker, dose=noise[3]):
        with pytest.raises(InvalidInput, match="separate") as caught:
            fit(np.column_stack([noise[0], marker, noise[2], dose]), y, sites, features=names)
        return str(caught.value).split(" the classes")[0]

    ill = rng.random(n) < 0.4
    size = np.abs(rng.standard_normal(n)) + 0.1
    assert named(ill, 1000 * np.where(ill, size, -size) + 7) == "'marker' separates"
    assert named(ill, np.where(ill, 3.0, 2.0)) == "'marker' separates"
    a, b = rng.standard_normal((2, n))
    b[np.abs(a - b) < 0.2] += 1
    assert named(a > b, 30 * a, 0.01 * b) in (
        "'marker', 'dose' together separate",
        "'dose', 'marker' together separate",
    )
    three = np.where(ill, "c", np.where(rng.random(n) < 0.5, "a", "b"))
    assert named(three, 5.0 * (three == "c")) == "'c:marker' separates"


def test_small_sites_and_groups_are_refused_by_name_unless_allowed():
    rows, labels, sites = sample("logistic")
    group = (np.arange(len(rows)) % 2).astype(float)
    group[np.flatnonzero(sites == "c")] = 0
    group[np.flatnonzero(sites == "c")[:3]] = 1
    table, names = np.column_stack([rows, group]), ["a", "b", "c", "d", "smoker"]
    with pytest.raises(InvalidInput, match=r"refused.*c \(3 rows with smoker = 1\).*--allow c$"):
        fit(table, labels, sites, features=names)
    assert fit(table, labels, sites, features=names, allow=["c"]).sites["c"] == (sites == "c").sum()
    few = sites.astype(object)
    few[0] = "lonely"
    with pytest.raises(InvalidInput, match=r"lonely \(1 row, fewer than 15"):
        fit(rows, labels, few)
    with pytest.raises(InvalidInput, match="--allow nobody: there is no such site; there are a, b, c"):
        fit(rows, labels, sites, allow=["nobody"])
    one_class = labels.copy()
    one_class[sites == "c"] = "yes"
    with pytest.raises(InvalidInput, match=r"c \(0 rows of class no"):
        fit(rows, one_class, sites)
    assert fit(table, labels).rows == len(labels)  # in one place there is nobody to hide from


def categories(n: int = 300, seed: int = 0) -> pd.DataFrame:
    """Two sites; at 'b' one woman (f is the reference) and one patient of the reference stage I."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.normal(60, 9, n), "sex": rng.choice(["f", "m"], n)})
    frame["stage"], frame["hospital"] = rng.choice(["I", "II", "III"], n), np.where(np.arange(n) < n // 3, "b", "a")
    here = frame.hospital == "b"
    frame.loc[here, "sex"], frame.loc[here & (frame.stage == "I"), "stage"] = "m", "III"
    frame.loc[[3], "sex"], frame.loc[[7], "stage"] = "f", "I"
    frame["ill"] = np.where(rng.random(n) < 0.4, "yes", "no")
    return frame


def test_many_refused_sites_are_one_line_that_can_be_read():
    rng = np.random.default_rng(0)
    rows, labels = rng.standard_normal((400, 2)), rng.integers(0, 2, 400)
    with pytest.raises(InvalidInput, match=r"; and 92 more sites\. .* --allow and their names") as caught:
        fit(rows, labels, np.arange(400) % 100)
    assert len(str(caught.value)) < 1000
    with pytest.raises(InvalidInput, match="""--allow '"Basel, CH"'$"""):
        fit(rows, labels, np.where(np.arange(400) < 8, "Basel, CH", "Zurich"))


def test_the_reference_level_of_a_category_is_a_group_too(tmp_path):
    path = tmp_path / "mine.csv"
    categories().to_csv(path, index=False)
    for ignored, why in (["stage"], "1 row with sex=f"), (["sex"], "1 row with stage=I"):
        data = ownstep.load(path, label="ill", site="hospital", ignore=ignored)
        with pytest.raises(InvalidInput, match=rf"b \({why}\).*--allow b$"):
            fit(data.rows, data.labels, data.sites, features=data.features, levels=data.levels)
        with pytest.raises(InvalidInput, match=r"b \(1 row with none of (sex=m|stage=II, stage=III)\)"):
            fit(data.rows, data.labels, data.sites, features=data.features)  # the level's name is not known
    rows, labels, sites = sample("logistic")
    coded = np.where(sites == "c", 1.0, 1.0 + np.arange(len(rows)) % 2)
    coded[np.flatnonzero(sites == "c")[4]] = 2
    with pytest.raises(InvalidInput, match=r"c \(1 row with the rarer value of sex\)"):
        fit(np.column_stack([rows, coded]), labels, sites, features=["a", "b", "c", "d", "sex"])


def test_rows_are_held_out_by_the_site_s_name_and_the_seed():
    for rows, share, held in ((9, 0.3, 3), (9, 0.25, 2), (11, 0.5, 6), (7, 0.0, 0)):  # to the nearest row
        assert held_out.chosen("a", rows, share, 0).sum() == held
    first, same, name, seed = (held_out.chosen(who, 60, 0.3, k) for who, k in (("a", 0), ("a", 0), ("b", 0), ("a", 1)))
    np.testing.assert_array_equal(first, same)
    assert (first != name).any()
    assert (first != seed).any()


def test_held_out_rows_are_measured_site_by_site():
    rows, labels, sites = sample("logistic", n=900)
    fitted = fit(rows, labels, sites, holdout=0.3, seed=3)
    assert fitted.rows == 900 - sum(fitted.held_out[s]["rows"] for s in "abc")
    again = fit(rows, labels, sites, holdout=0.3, seed=3)
    assert again.held_out == fitted.held_out
    assert set(fitted.held_out) == {"a", "b", "c", "all sites"}
    told = fitted.held_out["all sites"]
    assert 0.55 < told["auc"] < 0.85
    assert 0.5 < told["calibration_slope"] < 1.6
    from ownstep.glm.held_out import measure

    line = fitted.reveals[-1]
    assert line["numbers"] == len(fitted.held_out["a"]) == 6
    assert "'all sites' is measured on the rows themselves" in line["what"]
    assert "no AUC and no calibration slope" in line["what"]
    quantity = fit(rows, rows[:, 0] + rows[:, 1], sites, holdout=0.3, features=["a", "b", "c", "d"], mu=0.1)
    assert quantity.reveals[-1]["numbers"] == len(quantity.held_out["a"]) == 5
    seen = measure(fitted.model, rows, labels)
    assert seen["auc"] == pytest.approx(roc_auc_score(labels == "yes", fitted.model.predict(rows)[:, 1]))
    slope = sm.Logit((labels == "yes") * 1.0, sm.add_constant(fitted.model.scores(rows)[:, 0])).fit(disp=0).params[1]
    assert seen["calibration_slope"] == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize("family", ["logistic", "softmax", "linear", "poisson"])
def test_what_is_measured_of_a_model_is_what_scikit_learn_measures(family):
    rows, labels, _ = sample(family, n=300)
    model = fit(rows[:200], labels[:200], family=family).model
    rows, labels = rows[200:], labels[200:]
    told, predicted = held_out.measure(model, rows, labels), model.predict(rows)
    assert told["rows"] == 100
    if family in ("linear", "poisson"):
        assert told["r2"] == pytest.approx(r2_score(labels, predicted))
        assert told["rmse"] == pytest.approx(mean_squared_error(labels, predicted) ** 0.5)
        assert (told["observed"], told["predicted"]) == pytest.approx((np.mean(labels), np.mean(predicted)))
        assert held_out.measure(model, rows[:1], labels[:1])["r2"] is None  # one row has no spread
        return
    codes = np.searchsorted(np.unique(labels), labels)
    assert told["accuracy"] == pytest.approx(np.mean(codes == predicted.argmax(axis=1)))
    if family == "softmax":
        assert told["auc"] == pytest.approx(roc_auc_score(codes, predicted, multi_class="ovr"))
        assert set(told) == {"rows", "accuracy", "auc"}
    else:
        assert (told["observed"], told["predicted"]) == pytest.approx((np.mean(codes), np.mean(predicted[:, 1])))
    alone = held_out.measure(model, rows[codes == 0], labels[codes == 0])  # one class alone has no curve
    assert alone["auc"] is None
    assert alone.get("calibration_slope") is None


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
@pytest.mark.parametrize("family", ["logistic", "softmax", "linear", "poisson"])
def test_a_model_comes_back_from_its_file(tmp_path, family, suffix):
    rows, labels, _ = sample(family)
    fitted = fit(rows, labels, family=family)
    back = load_model(fitted.model.save(tmp_path / f"model{suffix}"))
    np.testing.assert_array_equal(back.predict(rows), fitted.model.predict(rows))
    other = theirs(family, rows, labels)
    expected = np.asarray(other.predict(sm.add_constant(rows)))
    found = back.predict(rows)
    np.testing.assert_allclose(found[:, 1] if family == "logistic" else found, expected, rtol=1e-6)


def test_files_that_are_no_model_are_refused(tmp_path):
    for name, content in {
        "a.json": "{}",
        "b.json": "no",
        "c.safetensors": "xxxxxxxxxx",
        "d.json": '{"format": 1}',
    }.items():
        (tmp_path / name).write_text(content)
        with pytest.raises(InvalidInput, match="no model of ownstep"):
            load_model(tmp_path / name)
    good = Model("linear", ("a", "b"), np.ones((2, 1)), np.ones(1)).to_dict()
    for coefficients in ([[1.0]], [[1.0], [float("nan")]], [[1.0, 2.0], [3.0, 4.0]]):
        (tmp_path / "e.json").write_text(json.dumps(good | {"coefficients": coefficients}))
        with pytest.raises(InvalidInput, match="its coefficients do not fit its features"):
            load_model(tmp_path / "e.json")
    with pytest.raises(InvalidInput, match="cannot be read"):
        load_model(tmp_path / "nowhere.json")
    with pytest.raises(InvalidInput, match=r".json or .safetensors"):
        Model("linear", ("a",), np.ones((1, 1)), np.ones(1)).save(tmp_path / "model.pkl")


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    out, err = capsys.readouterr()
    return caught.value.code, out, err


def test_the_commands_from_a_csv_to_predictions(tmp_path, capsys):
    rows, labels, sites = sample("logistic")
    frame = pd.DataFrame(rows, columns=["a", "b", "c", "d"])
    frame["colour"] = np.random.default_rng(0).choice(["red", "blue", "green"], len(frame))
    frame["ill"], frame["hospital"] = labels, sites
    path, model = tmp_path / "mine.csv", tmp_path / "model.json"
    frame.to_csv(path, index=False)
    asked = ("fit", str(path), "--label", "ill", "--site", "hospital", "--out", str(model))
    code, out, err = call(capsys, *asked, "--json")
    assert code == 0, err
    told = json.loads(out)
    design = sm.add_constant(
        np.column_stack([frame[["a", "b", "c", "d"]], pd.get_dummies(frame.colour, drop_first=True)])
    )
    other = sm.Logit((labels == "yes") * 1.0, design.astype(float)).fit(disp=0, maxiter=200, method="newton", tol=1e-10)
    assert [c["name"] for c in told["coefficients"]] == ["intercept", "a", "b", "c", "d", "colour=green", "colour=red"]
    for key, values in {"estimate": other.params, "standard_error": other.bse, "p": other.pvalues}.items():
        np.testing.assert_allclose([c[key] for c in told["coefficients"]], values, rtol=1e-6)
    assert {"z", "low", "high", "odds_ratio"} <= set(told["coefficients"][0])
    assert {"exchanges", "bytes", "log_likelihood", "aic", "reveals"} <= set(told)
    new = tmp_path / "new.csv"
    frame.drop(columns=["ill", "hospital"])[["colour", "d", "c", "b", "a"]].to_csv(new, index=False)
    code, out, err = call(capsys, "predict", str(new), "--model", str(model), "--json")
    assert code == 0, err
    np.testing.assert_allclose(
        [p[2] for p in json.loads(out)["predictions"]], other.predict(design.astype(float)), rtol=1e-6
    )
    code, out, err = call(capsys, "predict", str(new), "--model", str(model), "--out", str(tmp_path / "p.csv"))
    assert code == 0, err
    written = pd.read_csv(tmp_path / "p.csv")
    assert written.columns.tolist() == ["predicted", "p(no)", "p(yes)"]
    assert (written.predicted == np.where(written["p(yes)"] > written["p(no)"], "yes", "no")).all()
    assert written.predicted.nunique() == 2
    frame.assign(colour="violet").to_csv(new, index=False)
    code, out, err = call(capsys, "predict", str(new), "--model", str(model))
    assert (code, out) == (2, "")
    assert "line 2: column 'colour' is 'violet', the model knows blue, green, red" in err
    frame.drop(columns="d").to_csv(new, index=False)
    assert "needs a column 'd'" in call(capsys, "predict", str(new), "--model", str(model))[2]
    code, out, err = call(capsys, *asked)
    assert code == 0, err
    assert "odds ratio" in out
    assert "exchanges" in out
    shown = {line.split()[0]: [float(cell) for cell in line.split()[1:]] for line in out.splitlines()[1:8]}
    for c in told["coefficients"]:
        cells = [c[key] for key in ("estimate", "standard_error", "z", "p", "low", "high", "odds_ratio")]
        np.testing.assert_allclose(shown[c["name"]], cells, rtol=1e-2, atol=1e-3)


def test_a_p_value_of_nothing_is_a_bound(tmp_path, capsys):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=80), "b": rng.normal(size=80)})
    frame.assign(y=frame.a + 1e-3 * rng.normal(size=80)).to_csv(tmp_path / "mine.csv", index=False)
    code, out, _ = call(capsys, "fit", str(tmp_path / "mine.csv"))
    assert code == 0
    assert re.search(r"^ a .* <2e-16 ", out, re.MULTILINE)
    assert "0.0e+00" not in out


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [1e200, 1e308])
def test_numbers_too_large_to_square_are_one_sentence(tmp_path, capsys, size):
    path, rng = tmp_path / "mine.csv", np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(60, 9, 80), "bp": size * rng.random(80), "ill": [0, 1] * 40})
    frame.to_csv(path, index=False)
    code, out, err = call(capsys, "fit", str(path), "--label", "ill")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "column 'bp' has values so large that the sum of their squares overflows" in err
    code, out, err = call(capsys, "fit", str(path), "--label", "bp")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "the label 'bp' has values so large" in err


def test_columns_are_never_matched_by_position_alone(tmp_path, capsys):
    rows, labels, _ = sample("logistic")
    names, model = ("a", "b", "c", "d"), str(tmp_path / "model.json")
    fitted = fit(rows, labels, features=names)
    fitted.model.save(model)
    (tmp_path / "new.svm").write_text("1 1:2 2:3 3:4 4:5\n")
    np.savez(tmp_path / "bare.npz", rows=rows, labels=labels)
    for file, kind in (("new.svm", "is a LIBSVM file"), ("bare.npz", "an npz file without the array 'features'")):
        code, out, err = call(capsys, "predict", str(tmp_path / file), "--model", model)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert kind in err
        assert "found by name: a, b, c, d; give a CSV" in err
    turned = [2, 0, 3, 1]
    np.savez(tmp_path / "named.npz", rows=rows[:, turned], labels=labels, features=[names[i] for i in turned])
    code, out, err = call(capsys, "predict", str(tmp_path / "named.npz"), "--model", model, "--json")
    assert code == 0, err
    np.testing.assert_allclose([p[2] for p in json.loads(out)["predictions"]], fitted.model.predict(rows)[:, 1])
    np.savez(tmp_path / "named.npz", rows=rows, labels=labels, features=["a", "b", "c", "e"])
    assert "needs a column 'd'" in call(capsys, "predict", str(tmp_path / "named.npz"), "--model", model)[2]
    fit(rows, labels).model.save(model)  # columns without names
    assert call(capsys, "predict", str(tmp_path / "new.svm"), "--model", model)[0] == 0


def test_nothing_is_written_where_nothing_was_fitted(tmp_path, capsys):
    path, model = tmp_path / "mine.csv", tmp_path / "model.json"
    pd.DataFrame({"a": [1, 2, 3, 4] * 5, "label": [0, 1] * 10, "site": ["x"] * 19 + ["y"]}).to_csv(path, index=False)
    code, out, err = call(capsys, "fit", str(path), "--site", "site", "--out", str(model))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "y (1 row" in err
    assert not model.exists()


@pytest.mark.real_data
@needs("heart_disease")
def test_four_hospitals_are_at_the_pooled_optimum_in_eight_exchanges():
    data = ownstep.load("heart_disease")
    about = {"features": data.features, "levels": data.levels}
    fitted = fit(data.rows, data.labels, data.sites, **about, allow=["cleveland", "switzerland", "va"])
    pooled = sm.Logit(data.labels, sm.add_constant(data.rows)).fit(disp=0, method="newton", maxiter=100, tol=1e-10)
    np.testing.assert_allclose([c.estimate for c in fitted.coefficients], pooled.params, atol=1e-6)
    np.testing.assert_allclose([c.standard_error for c in fitted.coefficients], pooled.bse, atol=1e-6)
    assert fitted.exchanges <= 8
    with pytest.raises(InvalidInput, match=r"switzerland .1 row of class 0.*va \(3 rows with cp=1\)"):
        fit(data.rows, data.labels, data.sites, **about)
