"""Fits over sites against statsmodels on the pooled rows: coefficients, standard errors, likelihood."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import statsmodels.api as sm
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

import ownstep
from ownstep.cli import main
from ownstep.glm import Model, fit, load_model
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
        with pytest.raises(InvalidInput, match=r"'extra'.* separate.*--mu"):
            fit(bad, labels, features=names)
        assert np.isfinite(fit(bad, labels, features=names, mu=0.1).model.coefficients).all()


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

    seen = measure(fitted.model, rows, labels)
    assert seen["auc"] == pytest.approx(roc_auc_score(labels == "yes", fitted.model.predict(rows)[:, 1]))
    slope = sm.Logit((labels == "yes") * 1.0, sm.add_constant(fitted.model.scores(rows)[:, 0])).fit(disp=0).params[1]
    assert seen["calibration_slope"] == pytest.approx(slope, rel=1e-5)


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
    assert pd.read_csv(tmp_path / "p.csv").columns.tolist() == ["predicted", "p(no)", "p(yes)"]
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
    fitted = fit(data.rows, data.labels, data.sites, features=data.features, allow=["cleveland", "switzerland"])
    pooled = sm.Logit(data.labels, sm.add_constant(data.rows)).fit(disp=0, method="newton", maxiter=100, tol=1e-10)
    np.testing.assert_allclose([c.estimate for c in fitted.coefficients], pooled.params, atol=1e-6)
    np.testing.assert_allclose([c.standard_error for c in fitted.coefficients], pooled.bse, atol=1e-6)
    assert fitted.exchanges <= 8
    with pytest.raises(InvalidInput, match="switzerland .1 row of class 0"):
        fit(data.rows, data.labels, data.sites, features=data.features)
