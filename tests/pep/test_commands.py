"""``ownstep pep`` and the experiments of Fig. 1."""

from __future__ import annotations

import json

import numpy as np
import pytest
from matplotlib.figure import Figure

from ownstep.cli import main
from ownstep.paper import load_experiment

SETTING = ["pep", "--L", "0.3333333333333333,3", "--mu", "0.1", "--r0", "10", "--rstar", "1"]


def call(capsys: pytest.CaptureFixture[str], *arguments: str, setting: list[str] = SETTING) -> str:
    with pytest.raises(SystemExit) as stopped:
        main([*setting, *arguments])
    out, err = capsys.readouterr()
    assert stopped.value.code == 0, err
    return out


def test_json(capsys) -> None:
    answer = json.loads(call(capsys, "--rounds", "10", "--switch", "5", "--json"))
    assert answer["upper"] == pytest.approx(0.896475, rel=2e-6)
    assert answer["gd"]["upper"] == pytest.approx(1.994405, rel=2e-6)
    assert answer["ratio"] == pytest.approx(0.896475 / 1.994405, rel=1e-5)
    assert answer["lower"] <= answer["upper"]


def test_counts_repeat_devices(capsys) -> None:
    answer = json.loads(call(capsys, "--rounds", "4", "--switch", "2", "--count", "500,500", "--json"))
    assert answer["devices"] == 1000


def test_curve(capsys, tmp_path) -> None:
    target = tmp_path / "curve.png"
    answer = json.loads(call(capsys, "--rounds", "3", "--switch", "2", "--curve", "--out", str(target), "--json"))
    assert [point["rounds"] for point in answer["curve"]] == [0, 1, 2, 3]
    assert target.stat().st_size > 1000
    table = call(capsys, "--rounds", "2", "--curve", "--out", str(target))
    assert "ratio" in table


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pep", "--L", "1,2", "--mu", "3"], "mu cannot exceed L"),
        (["pep", "--L", "1,2", "--mu", "-1"], "at least 0"),
        (["pep", "--L", "0,2"], "positive"),
        (["pep", "--L", "1,x"], "--L takes numbers"),
        (["pep", "--L", "1,2", "--r0", "0"], "r0"),
        (["pep", "--L", "1,2", "--rounds", "-1"], "rounds"),
        (["pep", "--L", "1,2", "--count", "5"], "1 counts for 2"),
        (["pep", "--L", "1,2", "--metric", "los"], "metric"),
        (["pep", "--L", "1,2", "--weights", "1,-1"], "weights must be positive and finite, got -1"),
        (["pep", "--L", "1,2", "--weights", "1,inf"], "weights must be positive and finite, got inf"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_bad_usage_exits_with_two(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_no_radius_is_null_in_json(capsys) -> None:
    answer = json.loads(call(capsys, "--L", "1,3", "--rstar", "inf", "--json", setting=["pep"]))
    assert answer["upper"] is None
    assert "unbounded" in answer["status"]


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("pep-curves", "holds"),
        ("pep-heterogeneity", "holds partly"),
        ("pep-devices", "holds"),
        ("theorem", "holds partly"),
    ],
)
def test_experiments(name: str, word: str) -> None:
    """Exact worst cases do not depend on luck: the verdict is known, and GD's distances are (1 - mu/L_bar)^2K r0^2."""
    experiment = load_experiment(name)
    result = json.loads(json.dumps(experiment.run(quick=True, progress=False)))
    verdict = experiment.verdict(result)
    assert verdict["verdict"] == word
    for row in [r for r in (*result.get("pairs", ()), *result.get("table", ())) if r["metric"] == "distance"]:
        known = 100 * (1 - 0.1 / np.mean(row["L"])) ** (2 * result["rounds"])
        assert row["gd"]["lower"] <= known * (1 + 1e-9)
        assert row["gd"]["upper"] == pytest.approx(known, rel=1e-6)
    for row in result.get("rows", ()):
        assert row["ratio"] == pytest.approx(row["ours"]["upper"] / row["gd"]["lower"], rel=1e-9)
    assert all(len(row) == 4 for row in experiment.SETTINGS)
    assert isinstance(experiment.figure(result), Figure)
