"""The fit between owners of data, on Flower's messages: the numbers of the pooled fit, and refusals by the sites."""

from __future__ import annotations

import json
import tomllib

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the federation needs the extra [flower]")

import pandas as pd
import scipy.sparse as sp
from flwr.app import Context, RecordDict

import ownstep
from ownstep.data import Dataset
from ownstep.engines.federation import Site, Terms, init, site_app
from ownstep.engines.federation.asking import questioned
from ownstep.glm import fit, fit_over, fit_site
from ownstep.glm.federated.common_columns import Columns, agree
from ownstep.problems import BinaryLogistic
from ownstep.support.errors import InvalidInput, OwnstepError
from ownstep.support.logs import RoundLog

from ..conftest import needs
from ..engines.federation_grid import DirectGrid
from .test_fit import categories, sample

TERMS = {"deadline": 20.0, "joining": 1.0}


def grid_of(owners, **options) -> DirectGrid:
    return DirectGrid([site_app(lambda context, owner=owner: owner) for owner in owners], **options)


def owners_of(data: Dataset, **options):
    return [fit_site(str(name), data.at(data.sites == name), **options) for name in sorted(set(data.sites))]


def over(data: Dataset, options=None, **asked):
    owners = owners_of(data, **(options or {}))
    return fit_over(grid_of(owners), Terms(sites=len(owners), **TERMS), **asked)


def same(there, here) -> None:
    for key in ("estimate", "standard_error", "p", "low"):
        mine, theirs = ([getattr(c, key) for c in f.coefficients] for f in (there, here))
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-12)
    assert [c.name for c in there.coefficients] == [c.name for c in here.coefficients]
    assert there.log_likelihood == pytest.approx(here.log_likelihood, abs=1e-7)
    assert dict(there.sites) == dict(here.sites)


@pytest.mark.parametrize("mu", [0.0, 0.3])
@pytest.mark.parametrize("family", ["logistic", "softmax", "linear", "poisson"])
def test_the_numbers_are_those_of_the_pooled_fit(family, mu):
    rows, labels, sites = sample(family)
    data = Dataset("mine", rows, labels, features=("a", "b", "c", "d"), sites=sites)
    there = over(data, family=family, mu=mu, holdout=0.25, seed=3)
    here = fit(rows, labels, sites, family=family, features=data.features, mu=mu, holdout=0.25, seed=3)
    same(there, here)
    assert there.exchanges == here.exchanges + 2  # names of the columns, and the task
    for site in "abc":
        assert there.held_out[site] == pytest.approx(here.held_out[site], rel=1e-6)
    whole, known = there.held_out["all sites"], here.held_out["all sites"]
    for key in {"rows", "accuracy", "observed", "predicted", "rmse"} & set(known):
        assert whole[key] == pytest.approx(known[key], rel=1e-6)
    assert whole.get("auc") is None  # nobody has two sites' rows


def test_sparse_rows_and_one_dense_site():
    rows, labels, sites = sample("logistic", seed=1)
    rows = rows * (np.random.default_rng(0).random(rows.shape) < 0.5)
    here = fit(rows, labels, sites)
    owners = [
        fit_site(name, Dataset(name, rows[at] if name == "b" else sp.csr_array(rows[at]), labels[at]))
        for name, at in ((n, sites == n) for n in "abc")
    ]
    same(fit_over(grid_of(owners), Terms(sites=3, **TERMS)), here)


def test_categories_that_a_site_lacks_and_columns_in_another_order(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(60, 9, 600), "kind": rng.choice(["x", "y", "z"], 600)})
    frame["dose"], frame["hospital"] = rng.normal(size=600), rng.choice(["a", "b", "c"], 600)
    frame.loc[(frame.hospital == "b") & (frame.kind == "x"), "kind"] = "y"  # b's reference is another one
    frame.loc[frame.hospital == "c", "kind"] = "z"  # and c has one kind alone
    z = 0.02 * (frame.age - 60) + 0.7 * (frame.kind == "z") - 0.5 * frame.dose
    frame["ill"] = np.where(rng.random(600) < 1 / (1 + np.exp(-z)), "yes", "no")
    owners = []
    for name, part in frame.groupby("hospital"):
        columns = ["kind", "ill", "dose", "age"] if name == "a" else ["age", "kind", "dose", "ill"]
        part[columns].to_csv(tmp_path / f"{name}.csv", index=False)
        owners.append(fit_site(name, ownstep.load(tmp_path / f"{name}.csv", label="ill")))
    there = fit_over(grid_of(owners), Terms(sites=3, **TERMS))
    frame.to_csv(tmp_path / "all.csv", index=False)
    whole = ownstep.load(tmp_path / "all.csv", label="ill", site="hospital")
    here = fit(whole.rows, whole.labels, whole.sites, features=whole.features)
    estimates = [{c.name: c.estimate for c in f.coefficients} for f in (there, here)]
    assert estimates[0] == pytest.approx(estimates[1], rel=1e-6)
    assert there.model.levels == {"kind": ("x", "y", "z")}
    assert there.model.label == "ill"


def test_numbers_are_found_by_name_and_levels_that_are_numbers_go_by_size():
    rows, labels, sites = sample("logistic", seed=2)
    order = {"a": [0, 1, 2, 3], "b": [3, 1, 0, 2], "c": [2, 3, 1, 0]}
    names = ("u", "v", "w", "x")
    owners = [
        fit_site(n, Dataset(n, rows[sites == n][:, at], labels[sites == n], features=tuple(names[i] for i in at)))
        for n, at in order.items()
    ]
    same(fit_over(grid_of(owners), Terms(sites=3, **TERMS)), fit(rows, labels, sites, features=names))

    def agreed(*levels):
        return agree([Columns(v[0], "y", (), {"dose": v}, np.zeros(0), False) for v in levels], "linear")

    assert agreed(("2", "10"), ("9",)).levels == {"dose": ("2", "9", "10")}
    assert agreed(("2", "10"), ("9",)).features == ("dose=9", "dose=10")
    assert agreed(("low", "10"), ("9",)).levels == {"dose": ("10", "9", "low")}


def test_sites_that_write_the_classes_differently_are_told():
    """0/1 at one site and no/yes at another were four classes."""

    def agreed(*classes):
        every = [Columns(name, "y", ("age",), {}, np.array(c), False) for name, c in zip("abc", classes, strict=False)]
        return agree(every, "auto").classes.tolist()

    with pytest.raises(InvalidInput, match="^the label is 0, 1 at b and no, yes at a: write it alike$"):
        agreed(["no", "yes"], [0, 1])
    with pytest.raises(InvalidInput, match="^the label is 0, 1 at a and no, yes at c: write it alike$"):
        agreed([0, 1], ["1", "x"], ["no", "yes"])
    assert agreed([1, 2], ["1", "x"]) == ["1", "2", "x"]
    assert agreed(["no"], ["no", "yes"]) == ["no", "yes"]


def test_sites_refuse_by_name_and_do_not_say_how_few():
    rows, labels, sites = sample("logistic")
    data = Dataset("mine", rows, labels, features=("a", "b", "c", "d"), sites=sites)
    small = sites.astype(object)
    small[np.flatnonzero(sites == "a")[:8]] = "tiny"
    tiny = Dataset("mine", rows, labels, features=data.features, sites=small)
    with pytest.raises(InvalidInput, match=r"^tiny does not take part.*\(fewer than 15 rows: 3 per.*allow=True$"):
        over(tiny)
    assert over(tiny, {"allow": True}).sites["tiny"] == 8
    one_class = np.where(sites == "c", "yes", labels)
    with pytest.raises(InvalidInput, match="^c does not take part.*fewer than 5 rows of class no"):
        over(Dataset("mine", rows, one_class, sites=sites))
    group = np.where(sites == "b", np.arange(len(rows)) % 200 < 3, np.arange(len(rows)) % 2) * 1.0
    grouped = Dataset("mine", np.column_stack([rows, group]), labels, features=(*data.features, "smoker"), sites=sites)
    with pytest.raises(InvalidInput, match="^b does not take part.*fewer than 5 rows with smoker = 1"):
        over(grouped)
    with pytest.raises(InvalidInput, match="^c does not take part.*fewer than 5 rows held out"):
        over(data, holdout=0.05)
    owner = owners_of(tiny)[-1]
    with pytest.raises(InvalidInput, match="fewer than 15 rows"):
        owner.describe()  # what ownstep federate doctor looks at


def test_a_rare_reference_level_is_refused_by_the_site(tmp_path):
    for name, part in categories().groupby("hospital"):
        part.drop(columns="hospital").to_csv(tmp_path / f"{name}.csv", index=False)
    for ignored, why in ("stage", "sex=f"), ("sex", "stage=I"):
        every = [ownstep.load(tmp_path / f"{name}.csv", label="ill", ignore=[ignored]) for name in "ab"]
        owners = [fit_site(name, data) for name, data in zip("ab", every, strict=True)]
        with pytest.raises(InvalidInput, match=rf"^b does not take part.*\(fewer than 5 rows with {why}\)"):
            fit_over(grid_of(owners), Terms(sites=2, **TERMS))


def test_a_site_names_its_column_that_is_too_large():
    rows, labels, sites = sample("logistic")
    rows[sites == "b", 2] *= 1e200
    with pytest.raises(InvalidInput, match="^b cannot take part: column 'dose' has values so large"):
        over(Dataset("mine", rows, labels, features=("a", "b", "dose", "d"), sites=sites))


def test_rare_words_are_not_even_named():
    rows, labels, _ = sample("logistic")
    labels = labels.astype(object)
    labels[:2] = "leprosy"
    data = Dataset("mine", rows, labels.astype(str), sites=np.where(np.arange(len(rows)) < 200, "a", "b"))
    grid = grid_of(owners_of(data))
    with pytest.raises(InvalidInput, match="^a does not take part"):
        fit_over(grid, Terms(sites=2, **TERMS), family="softmax")
    assert set(grid.kinds) == {"query.ask"}
    assert grid.sent == {101: 1, 102: 1}  # no sums were asked for


def test_sites_that_differ_are_named():
    rows, labels, sites = sample("logistic")
    names = ("a", "b", "c", "d")

    def two(first=None, second=None):
        parts = []
        for name, change in (("a", first or {}), ("b", second or {})):
            at = sites == name
            parts.append(fit_site(name, Dataset(name, rows[at], labels[at], **({"features": names} | change))))
        return fit_over(grid_of(parts), Terms(sites=2, **TERMS))

    with pytest.raises(InvalidInput, match="b and a have different columns: b lacks 'd' and has 'e' more"):
        two(second={"features": ("a", "b", "c", "e")})
    with pytest.raises(InvalidInput, match="b predicts 'ill' and a predicts 'label'"):
        two(second={"label": "ill"})
    with pytest.raises(InvalidInput, match="'d' is a category at b and a number at a: read it there with categories="):
        two(second={"features": ("a", "b", "c", "d=2"), "levels": {"d": ("1", "2")}})
    at = sites == "a"
    twice = [fit_site("a", Dataset("a", rows[at], labels[at]))] * 2
    with pytest.raises(OwnstepError, match="two sites call themselves by one name: a, a"):
        fit_over(grid_of(twice), Terms(sites=2, **TERMS))


def test_who_is_silent_or_holds_a_problem_is_named():
    rows, labels, sites = sample("logistic")
    data = Dataset("mine", rows, labels, sites=sites)
    quick = Terms(sites=3, deadline=0.3, joining=0.3)
    with pytest.raises(OwnstepError, match="node 102 gave no reply within 0.3 s"):
        fit_over(grid_of(owners_of(data), silent=lambda node, sent: node == 102), quick)
    with pytest.raises(OwnstepError, match="b gave no reply"):
        fit_over(grid_of(owners_of(data), silent=lambda node, sent: node == 102 and sent == 1), quick)
    with pytest.raises(OwnstepError, match="1 of 3 sites gave no answer of use 3 times in a row"):
        fit_over(grid_of(owners_of(data), silent=lambda node, sent: node == 102 and sent > 3), quick)
    once = fit_over(grid_of(owners_of(data), silent=lambda node, sent: node == 102 and sent == 4), quick)
    same(once, fit(rows, labels, sites))  # late once: the numbers are those of everybody all the same
    with pytest.raises(OwnstepError, match="3 of 4 sites joined within 0.3 s"):
        fit_over(grid_of(owners_of(data)), Terms(sites=4, deadline=0.3, joining=0.3))
    problem = Site("b", BinaryLogistic(rows[:50], labels[:50]))
    with pytest.raises(InvalidInput, match=r"^b its open_site returns a problem.*fit_site"):
        fit_over(grid_of([owners_of(data)[0], problem]), Terms(sites=2, **TERMS))
    with pytest.raises(InvalidInput, match="is its ownstep older"):
        questioned(grid_of(owners_of(data)), Terms(sites=3, **TERMS), {"question": "rows"}, {})


def test_the_generated_app_fits_and_logs(tmp_path, capsys):
    from ownstep.engines.federation.template import server, site

    init(tmp_path / "hospitals", sites=3)
    settings = tomllib.loads((tmp_path / "hospitals" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    settings |= {"task": "fit", "mu": 0.1, "out": str(tmp_path / "out"), "deadline": 20.0}
    settings |= {"log_json": str(tmp_path / "log" / "fit.jsonl"), "metrics": str(tmp_path / "fit.prom")}
    grid = grid_of([])
    grid.apps = {101 + i: site_app(site.open_site) for i in range(3)}
    grid.sent = dict.fromkeys(grid.apps, 0)
    nodes = {node: {"partition-id": i, "num-partitions": 3} for i, node in enumerate(grid.apps)}
    grid.contexts = {node: Context(1, node, config, RecordDict(), settings) for node, config in nodes.items()}
    server.main(grid, Context(1, 0, {}, RecordDict(), settings))
    told = json.loads((tmp_path / "out" / "fit.json").read_text())
    rows, labels = ownstep.load("breast_cancer").table()
    here = fit(rows, labels, ownstep.partition.by_norm(rows, devices=3).device_of, mu=0.1, allow=["all"])
    np.testing.assert_allclose(
        [c["estimate"] for c in told["coefficients"]], [c.estimate for c in here.coefficients], rtol=1e-6
    )
    assert "odds ratio" in capsys.readouterr().out
    assert ownstep.glm.load_model(tmp_path / "out" / "model.json").classes == ("0", "1")
    lines = [json.loads(line) for line in (tmp_path / "log" / "fit.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == list(range(told["reveals"][3]["exchanges"]))
    assert lines[0]["absent"] == {}
    metrics = (tmp_path / "fit.prom").read_text()
    assert f'ownstep_round{{run="Newton"}} {lines[-1]["round"]}.0\n' in metrics
    assert 'ownstep_absent_sites{run="Newton"} 0.0' in metrics
    settings["family"] = "logit"
    with pytest.raises(InvalidInput, match="unknown family 'logit'"):
        server.main(grid, Context(1, 0, {}, RecordDict(), settings))
    assert json.loads((tmp_path / "out" / "fit.json").read_text())["invalid"]


def test_the_log_names_who_was_absent(tmp_path):
    rows, labels, sites = sample("logistic")
    grid = grid_of(
        owners_of(Dataset("mine", rows, labels, sites=sites)), silent=lambda node, sent: (node, sent) == (102, 3)
    )
    log = RoundLog(tmp_path / "log.jsonl", tmp_path / "metrics")
    fit_over(grid, Terms(sites=3, deadline=0.3, joining=1.0), log=log)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["absent"] for line in lines if line["absent"]] == [{"b": "no reply within 0.3 s"}]
    assert lines[1]["gradient_norm"] is None  # of some of the sites: json has no nan
    assert 'ownstep_site_absent{run="Newton",site="b"} 0.0' in (tmp_path / "metrics").read_text()
    free = 5
    asked, answered = free + 1, free + 1 + free * (free + 1) // 2
    assert (lines[0]["bytes_down"], lines[0]["bytes_up"]) == (3 * 8 * asked, 3 * 8 * answered)


@pytest.mark.real_data
@needs("heart_disease")
def test_four_hospitals_in_eight_exchanges():
    data = ownstep.load("heart_disease")
    there = over(data, {"allow": True})
    here = fit(data.rows, data.labels, features=data.features)
    np.testing.assert_allclose(
        [c.estimate for c in there.coefficients], [c.estimate for c in here.coefficients], atol=1e-6
    )
    assert there.reveals[3]["exchanges"] <= 8  # of Newton's method, the last one for the standard errors as well
    assert there.exchanges <= 9
