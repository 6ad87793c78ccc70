"""A fit on a real SuperLink with real SuperNodes, TLS and node keys; and the demo of four hospitals."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr", reason="the federation needs the extra [flower]")

import ownstep
from ownstep.cli import main
from ownstep.cli.learn import hospitals
from ownstep.data import Dataset
from ownstep.engines.federation import loopback
from ownstep.glm import Rehearsed, fit, rehearse
from ownstep.glm.hospitals import HOLDOUT
from ownstep.support.errors import InvalidInput, OwnstepError

from ..conftest import needs
from .test_fit import call, sample

QUICK = Path(__file__).parents[1] / "engines" / "quick_flower"
"""On the path of Flower's programs this makes their waits short."""


def same_table(there, here) -> None:
    assert [c["name"] for c in there["coefficients"]] == [c["name"] for c in here["coefficients"]]
    for mine, theirs in zip(there["coefficients"], here["coefficients"], strict=True):
        numbers = [{k: v for k, v in c.items() if k != "name"} for c in (mine, theirs)]
        assert numbers[0] == pytest.approx(numbers[1], rel=1e-6, abs=1e-12)


def two_hospitals(folder, family):
    """A file with numbers and a category, and two hospitals, one of which has a name that needs quoting."""
    rows, labels, sites = sample(family, n=300)
    frame = pd.DataFrame(rows, columns=["a", "b", "c", "d"])
    frame["colour"] = np.random.default_rng(0).choice(["red", "blue"], len(frame))
    frame["y"] = (labels == "yes").astype(int) if family == "logistic" else labels
    frame["hospital"] = np.where(sites == "a", 'St. Mary\'s "A"', "b")
    frame.to_csv(folder / "mine.csv", index=False)
    return folder / "mine.csv"


@pytest.mark.xdist_group("processes")
@pytest.mark.skipif(sys.platform != "linux", reason="finds its processes through /proc")
def test_the_demo_over_tls_gives_the_table_of_one_process(tmp_path, capsys, monkeypatch):
    """The demo as anybody runs it, but for its data: a SuperLink, a SuperNode per hospital, TLS and node keys."""
    data = ownstep.load(two_hospitals(tmp_path, "logistic"), label="y", site="hospital")
    logs = {"log_json": tmp_path / "log.jsonl", "metrics": tmp_path / "metrics.prom"}
    monkeypatch.setattr(hospitals, "load", lambda name: data)
    monkeypatch.setattr(hospitals, "rehearse", partial(rehearse, **logs))
    monkeypatch.syspath_prepend(QUICK)
    code, out, err = call(capsys, "demo", "--engine", "federation", "--out", str(tmp_path / "demo"), "--json")
    assert code == 0, err
    told = json.loads(out)
    there, here = told["fit"], in_this_process(data, holdout=HOLDOUT, allow=["all"], seed=0).told
    same_table(there, here)
    assert there["sites"] == here["sites"]
    for site in here["sites"]:
        assert there["held_out"][site] == pytest.approx(here["held_out"][site], rel=1e-6)
    assert there["exchanges"] == here["exchanges"] + 2
    lines = {line["title"]: line for line in told["comparison"]}
    assert lines["fit over the sites"]["distance"] < 1e-6 < lines["FedAvg, FLamby's step"]["distance"]
    assert lines["fit over the sites"]["accuracy"] == lines["all data in one place"]["accuracy"]
    assert told["difference"] < 1e-6
    assert 0 < min(told["settled"].values()) <= max(told["settled"].values()) <= 8
    assert told["fit"]["seconds_per_exchange"] > 0
    assert ownstep.glm.load_model(told["model"]).levels == {"colour": ("blue", "red")}
    assert len(logs["log_json"].read_text().splitlines()) == there["reveals"][3]["exchanges"]
    assert 'ownstep_sites{run="Newton"} 2.0' in logs["metrics"].read_text()


def test_all_that_is_said_to_fit_arrives_at_the_deployment(tmp_path, capsys, monkeypatch):
    """And what comes back from there is what is printed and written, as by the fit in this process."""
    seen = {}

    def instead(data, **options):
        rows, labels = data.table()
        seen.update(options)
        asked = {key: options[key] for key in ("family", "mu", "holdout", "allow", "seed")}
        made = fit(rows, labels, data.sites, features=data.features, label=data.label, levels=data.levels, **asked)
        return Rehearsed(made.to_dict(), made.model)

    monkeypatch.setattr("ownstep.cli.learn.fit.rehearse", instead)
    asked = ["fit", str(two_hospitals(tmp_path, "linear")), "--site", "hospital", "--mu", "0.2", "--holdout", "0.2"]
    asked += ["--seed", "3", "--family", "linear", "--allow", "b", "--json"]
    logs = ["--log-json", str(tmp_path / "log.jsonl"), "--metrics", str(tmp_path / "metrics.prom")]
    there = json.loads(call(capsys, *asked, "--engine", "federation", *logs, "--out", str(tmp_path / "there.json"))[1])
    assert seen == {
        "family": "linear", "mu": 0.2, "holdout": 0.2, "allow": ("b",), "seed": 3,
        "log_json": tmp_path / "log.jsonl", "metrics": tmp_path / "metrics.prom",
    }  # fmt: skip
    here = json.loads(call(capsys, *asked, "--out", str(tmp_path / "here.json"))[1])
    apart = {"model": None, "seconds_per_exchange": None}
    assert there | apart == here | apart
    assert (tmp_path / "there.json").read_bytes() == (tmp_path / "here.json").read_bytes()


@pytest.mark.xdist_group("processes")
def test_on_ranks_the_same_call_gives_the_same_table(tmp_path, capsys):
    pytest.importorskip("torch")
    from ..engines.test_cluster import call_ranks

    rows, labels, sites = sample("poisson")
    frame = pd.DataFrame(rows, columns=["a", "b", "c", "d"]).assign(label=labels, hospital=sites)
    frame.to_csv(tmp_path / "mine.csv", index=False)
    asked = [
        "fit",
        str(tmp_path / "mine.csv"),
        "--site",
        "hospital",
        "--family",
        "poisson",
        "--holdout",
        "0.2",
        "--json",
    ]
    out = call_ranks(2, tmp_path, *asked, "--log-json", str(tmp_path / "log.jsonl"))
    there, here = json.loads(out), json.loads(call(capsys, *asked)[1])
    same_table(there, here)
    assert there["held_out"] == {site: pytest.approx(told, rel=1e-6) for site, told in here["held_out"].items()}
    assert there["sites"] == here["sites"]
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == list(range(there["reveals"][1]["exchanges"]))  # one rank writes


def test_a_rehearsal_needs_sites_that_are_there(tmp_path, capsys):
    path = tmp_path / "mine.csv"
    pd.DataFrame({"a": np.arange(40.0), "label": np.arange(40) % 2, "site": ["x", "y"] * 20}).to_csv(path, index=False)
    code, out, err = call(capsys, "fit", str(path), "--engine", "federation", "--ignore", "site")
    assert (code, out) == (2, "")
    assert "name the column with --site" in err
    code, out, err = call(capsys, "fit", str(path), "--engine", "federation", "--site", "site", "--allow", "z")
    assert (code, out) == (2, "")
    assert "--allow z: there is no such site; there are x, y" in err


def test_a_rehearsal_that_is_told_to_end_leaves_nothing(tmp_path, monkeypatch):
    closed = []

    class Told(loopback.Loopback):
        def __init__(self, folder):
            self.folder = folder

        def __enter__(self):
            return self

        def register(self, *names):
            assert (self.folder / "site-1.npz").exists()
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)

        def close(self):
            closed.append(self.folder)

    monkeypatch.setattr(loopback, "Loopback", Told)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    data = Dataset("mine", np.eye(4), np.arange(4) % 2, sites=np.array(["a", "b", "a", "b"]))
    with pytest.raises(SystemExit) as ended:
        rehearse(data)
    assert ended.value.code == 128 + signal.SIGTERM
    assert len(closed) == 1
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def in_this_process(data, *, holdout, allow, seed):
    rows, labels = data.table()
    made = fit(rows, labels, data.sites, features=data.features, holdout=holdout, allow=allow, seed=seed)
    return Rehearsed(made.to_dict() | {"path": made.path.tolist()}, made.model)


@pytest.mark.real_data
@needs("heart_disease")
def test_the_demo_of_four_hospitals(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(hospitals, "rehearse", in_this_process)
    code, out, err = call(capsys, "demo", "--engine", "federation", "--out", str(tmp_path), "--json")
    assert code == 0, err
    told = json.loads(out)
    lines = {line["title"]: line for line in told["comparison"]}
    over, pooled = lines["fit over the sites"], lines["all data in one place"]
    assert over["accuracy"] == pooled["accuracy"]
    assert over["auc"] == pytest.approx(pooled["auc"])
    assert over["distance"] < 1e-6 < 1 <= lines["FedAvg, FLamby's step"]["distance"]
    assert told["difference"] < 1e-9
    assert max(told["settled"].values()) <= 8
    assert min(told["settled"].values()) > 0
    assert {lines[f"{m}, step 1/L"]["exchanges"] for m in ("FedAvg", "FedProx", "SCAFFOLD")} == {15}
    assert json.loads((tmp_path / "hospitals.json").read_text())["settled"] == told["settled"]
    code, out, err = call(capsys, "demo", "--engine", "federation", "--out", str(tmp_path))
    assert code == 0, err
    assert "FedProx, FLamby's step" in out
    assert "Penalised: by mu = 0.01" in " ".join(out.split())
    monkeypatch.setattr(hospitals, "settled", lambda told, pooled: {"age": 5, "sex": -1})
    assert "age 5, sex never. All of them: never." in " ".join(
        call(capsys, "demo", "--engine", "federation", "--out", str(tmp_path))[1].split()
    )


def test_without_its_data_the_demo_says_in_one_line_how_to_get_it(tmp_path, capsys, monkeypatch):
    def nothing(name):
        raise OwnstepError("several\nlines")

    monkeypatch.setattr(hospitals, "load", nothing)
    code, out, err = call(capsys, "demo", "--engine", "federation", "--out", str(tmp_path / "demo"))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "heart+disease.zip into DIR/heart-disease and set OWNSTEP_DATA=DIR" in err
    assert not (tmp_path / "demo").exists()


def test_what_the_coordinator_refused_is_the_commands_answer(tmp_path):
    from ownstep.glm.federated.rehearsal import _read

    (tmp_path / "fit.json").write_text(json.dumps({"error": "b does not take part", "invalid": True}))
    with pytest.raises(InvalidInput, match="b does not take part"):
        _read(tmp_path, "")
    with pytest.raises(OwnstepError, match=r"run failed:\nlast words"):
        _read(tmp_path / "nowhere", "last words")
    with pytest.raises(SystemExit):
        main(["demo", "--engine", "moon"])
