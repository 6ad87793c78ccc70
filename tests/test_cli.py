from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import typer
from rich.console import Console
from rich.table import Table
from typer.testing import CliRunner

from ownstep.cli import app, main
from ownstep.cli.terminal import emit, show_table
from ownstep.engines import compare
from ownstep.history import History
from ownstep.methods import METHODS

from .conftest import needs


def call(capsys, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    out, err = capsys.readouterr()
    return caught.value.code, out, err


def call_json(capsys, *arguments: str):
    code, out, err = call(capsys, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


@pytest.fixture(autouse=True)
def a_short_demo(monkeypatch):
    """tests/test_release.py runs the whole of it."""
    monkeypatch.setattr("ownstep.cli.learn.demo.ROUNDS", 200)


def test_demo_prints_the_table_and_draws_the_figure(capsys, tmp_path):
    data = call_json(capsys, "demo", "--out", str(tmp_path / "demo"))
    assert len(data["results"]) == 2
    for result in data["results"].values():
        assert [row["method"] for row in result["rows"]] == [
            "Algorithm 1", "GD 1/L-bar", "GD 1/L", "GD matched step", "GD tuned", "Nesterov",
        ]  # fmt: skip
        assert all(list(row["rounds"]) == ["0.01", "0.0001", "1e-06"] for row in result["rows"])
        assert result["summary"].startswith("Algorithm 1 did not reach 0.0001")
    assert (tmp_path / "demo/demo.png").read_bytes().startswith(b"\x89PNG")
    assert History.load(tmp_path / "demo/breast_cancer/algorithm-1").rounds > 0


def test_plan_as_text_and_json(capsys):
    data = call_json(capsys, "plan", "breast_cancer", "--partition", "by_norm", "--devices", "3")
    assert len(data["devices"]) == 3
    L, w = (np.array([d[k] for d in data["devices"]]) for k in ("L", "weight"))
    assert data["gain"] == pytest.approx((w @ L) * (w @ (1 / L)))
    code, out, _ = call(capsys, "plan", "digits", "--partition", "dirichlet", "--alpha", "0.5", "--devices", "15")
    assert code == 0
    assert "predicted gain" in out
    assert "..." in out


def test_plan_from_numbers_alone(capsys):
    data = call_json(capsys, "plan", "--L", "1,3", "--weights", "2,1", "--mu", "0.1,0.2")
    assert [d["weight"] for d in data["devices"]] == pytest.approx([2 / 3, 1 / 3])
    assert data["L_bar"] == pytest.approx(5 / 3)
    assert data["gain"] == pytest.approx(5 / 3 * (2 / 3 + 1 / 9))
    assert data["L_true"] is None
    assert data["smoothness"]["kind"] == "given"
    code, out, _ = call(capsys, "plan", "--L", "1,3")
    assert code == 0
    assert "predicted gain 1.333" in out
    for wrong in (
        ("plan",), ("plan", "digits", "--L", "1,3"), ("plan", "--L", "1,x"), ("plan", "--L", "1,3", "--weights", "1"),
        ("plan", "--L", "1,3", "--weights", "1,0"), ("plan", "--L", "1,-3"), ("plan", "--L", "1,3", "--mu", "2"),
        ("plan", "digits", "--weights", "1,2"), ("plan", "--L", "1,3", "--mu", "0,0,0"),
    ):  # fmt: skip
        code, out, err = call(capsys, *wrong)
        assert (code, out, err.count("\n")) == (2, "", 1), wrong


@pytest.fixture
def patients(tmp_path):
    """A CSV file whose columns have very different units, with labels of every kind."""
    rng, n = np.random.default_rng(0), 90
    age, income = rng.normal(60, 9, n), rng.normal(5e5, 1e5, n)
    cost = 3 * age + income / 1000 + rng.normal(size=n)
    visits, kind, ill = rng.integers(0, 6, n), rng.choice(["a", "b", "c"], n), np.arange(n) % 3 == 0
    lines = zip(age, income, cost, visits, kind, ill.astype(int), strict=True)
    path = tmp_path / "mine.csv"
    path.write_text("age,income,cost,visits,kind,ill\n" + "".join(",".join(map(str, line)) + "\n" for line in lines))

    def asked(label, *more):
        return (str(path), "--label", label, "--ignore", ",".join({"cost", "visits", "kind", "ill"} - {label}), *more)

    return asked


LOSSES = {
    "cost": (2, "label 'cost': 90 different numbers, so least squares; --family softmax takes them as classes\n"),
    "visits": (12, "label 'visits': 6 classes, so softmax; --family linear takes it as a quantity\n"),
    "kind": (6, "label 'kind': 3 classes, so softmax\n"),
    "ill": (2, ""),
}


@pytest.mark.parametrize("label", LOSSES)
def test_the_loss_goes_by_the_label_and_is_said(capsys, patients, label, monkeypatch):
    dims, said = LOSSES[label]
    made = []
    monkeypatch.setattr(
        "ownstep.cli.learn.run.compare",
        lambda problem, *a, **k: (made.append(problem), compare(problem, *a, **k))[1],
    )
    small = ("--rounds", "2", "--mu", "1", "--json")
    code, _, err = call(capsys, "compare", *patients(label), *small, "--methods", "gd,newton")
    assert (code, err) == (0, said)
    assert made[0].dim == dims
    assert type(made[0]).__name__ == {"cost": "LeastSquares", "ill": "BinaryLogistic"}.get(label, "MultinomialLogistic")
    for command in ("plan", "run"):
        options = ("--rounds", "2", "--method", "newton") if command == "run" else ("--smoothness", "trace")
        code, _, err = call(capsys, command, *patients(label), *options, "--json")
        assert (code, err) == (0, said)


def test_the_family_can_be_given_and_wrong_ones_are_refused(capsys, patients):
    data = call_json(capsys, "run", *patients("visits", "--family", "linear"), "--method", "newton", "--rounds", "5")
    rows = np.loadtxt(patients("visits")[0], delimiter=",", skiprows=1, usecols=(0, 1, 3))
    A, y = rows[:, :2], rows[:, 2]
    x = np.linalg.solve(A.T @ A / len(y) + 1e-3 * np.eye(2), A.T @ y / len(y))
    assert data["final_value"] == pytest.approx(((A @ x - y) ** 2).mean() / 2 + 5e-4 * x @ x, rel=1e-9)
    for label, options, message in (
        ("visits", ("--family", "poisson"), "ownstep fit takes it"),
        ("kind", ("--family", "linear"), "--family linear needs a label that is a number, got"),
        ("cost", ("--family", "logistic"), "--family logistic needs two classes, the label has 90"),
        ("cost", ("--family", "logit"), "unknown family 'logit'"),
        ("cost", ("--partition", "by_label"), "--partition by_label needs classes, and the label 'cost' is a quantity"),
    ):
        code, out, err = call(capsys, "run", *patients(label, *options))
        assert (code, out) == (2, "")
        assert message in err.splitlines()[-1]
    code, out, err = call(capsys, "train", "--data", *patients("cost"), "--model", "mlp")
    assert (code, out) == (2, "")
    assert "train learns classes, and the label 'cost' has 90 different numbers" in err


def test_columns_are_standardised_on_request(capsys, patients):
    options = ("--rounds", "100", "--methods", "gd,nesterov,own_step", "--mu", "0.01")
    code, out, _ = call(capsys, "compare", *patients("ill"), *options)
    assert code == 0
    assert out.rstrip().endswith("try --standardise")
    code, out, err = call(capsys, "compare", *patients("ill"), *options, "--standardise")
    assert code == 0
    assert err == "columns scaled to mean 0 and variance 1 over all 90 rows\n"
    assert "never" not in out
    data = call_json(capsys, "run", *patients("cost"), "--standardise", "--method", "newton", "--rounds", "3")
    rows = np.loadtxt(patients("cost")[0], delimiter=",", skiprows=1, usecols=(0, 1, 2))
    A, y = (rows - rows.mean(axis=0))[:, :2] / rows.std(axis=0)[:2], rows[:, 2] - rows[:, 2].mean()
    x = np.linalg.solve(A.T @ A / len(y) + 1e-3 * np.eye(2), A.T @ y / len(y))
    assert data["final_value"] == pytest.approx(((A @ x - y) ** 2).mean() / 2 + 5e-4 * x @ x, rel=1e-9)


def test_shards_take_their_number(capsys):
    seen = [
        call_json(capsys, "plan", "digits", "--partition", "shards", "--devices", "5", "--per-device", n)["partition"]
        for n in ("1", "3")
    ]
    assert seen == ["shards(1)", "shards(3)"]


def test_run_saves_a_history_and_resumes(capsys, tmp_path):
    common = ("run", "breast_cancer", "--checkpoint", str(tmp_path / "c.npz"), "--out", str(tmp_path))
    call_json(capsys, *common, "--rounds", "20")
    data = call_json(capsys, *common, "--rounds", "40")
    whole = call_json(capsys, "run", "breast_cancer", "--rounds", "40")
    assert data["final_value"] == whole["final_value"]
    assert History.load(tmp_path / "own_step").rounds == 40
    assert (tmp_path / "own_step.png").exists()


@pytest.mark.parametrize(
    "options",
    [
        ("--method", "gd", "--step", "tuned"),
        ("--method", "gd", "--step", "0.1"),
        ("--method", "nesterov"),
        ("--mu", "0"),
        ("--switch", "at:5", "--weights", "uniform", "--partition", "by_label"),
        ("--participation", "0.7", "--missing", "drop", "--smoothness", "trace"),
        ("--participation", "cohort:1", "--missing", "last"),
        ("--method", "gd", "--participation", "bursts:0.1:0.4"),
        ("--method", "gd", "--participation", "returns:0:3:9"),
        ("--method", "gd", "--participation", "stragglers:1:2"),
        ("--method", "decentralised_gd", "--graph", "complete", "--order", "atc", "--step", "own"),
        ("--method", "gradient_tracking", "--step", "0.1", "--devices", "4", "--graph", "grid"),
        ("--method", "extra", "--weights", "uniform", "--tune", "4"),
        ("--method", "fedavg", "--local-steps", "3", "--client-step", "mean"),
        ("--method", "fedadam", "--client-step", "0.3", "--server-step", "0.01", "--tune", "3"),
        ("--method", "scaffold", "--local-steps", "2", "--participation", "dies:1:5"),
        ("--method", "own_curvature", "--rank", "5", "--sketch", "sum", "--memory", "4"),
        ("--method", "own_curvature", "--rank", "30", "--revealing", "--participation", "0.7"),
        ("--method", "lbfgs", "--memory", "4", "--mu", "0"),
    ],
)
def test_run_takes_every_option(capsys, options):
    data = call_json(capsys, "run", "breast_cancer", "--rounds", "30", "--rows", "200", *options)
    assert data["rounds"] == 30


def test_the_seed_draws_who_takes_part(capsys):
    """The split by label does not depend on it, nor does gradient descent."""
    small = ("breast_cancer", "--method", "gd", "--partition", "by_label", "--rounds", "20", "--participation", "0.5")
    ends = [call_json(capsys, "run", *small, "--seed", seed)["final_value"] for seed in ("1", "2", "1")]
    assert ends[0] == ends[2] != ends[1]


def test_compare_runs_again_as_often_as_it_is_told(capsys):
    small = ("breast_cancer", "--methods", "gd", "--rounds", "10", "--rows", "200", "--participation", "0.7")
    for times in (0, 2):
        rows = call_json(capsys, "compare", *small, "--tune", "2", "--reruns", str(times))["rows"]
        assert {len(found) for row in rows for found in row["rounds_of_reruns"].values()} == {times}


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"schedule"}))  # its steps are no words
def test_every_method_runs_by_name(capsys, method):
    small = ("breast_cancer", "--rounds", "20", "--rows", "200", "--devices", "3")
    data = call_json(capsys, "run", *small, "--method", method)
    assert data["rounds"] == 20
    assert data["optimum"] * (1 - 1e-12) < data["final_value"] < np.log(2)


def test_compare_counts_exchanges_and_bytes(capsys):
    named = ("lbfgs", "newton", "giant", "shed", "own_curvature", "own_curvature:3", "gd:matched")
    small = ("breast_cancer", "--rounds", "60", "--rows", "300", "--devices", "3", "--mu", "0.01")
    rows = call_json(capsys, "compare", *small, "--methods", ",".join(named))["rows"]
    assert tuple(row["key"] for row in rows) == named
    for row in rows[:-1]:
        assert row["exchanges"]["1e-06"] <= 60
        assert row["bytes"]["1e-06"] > row["bytes"]["0.01"] > 0
    assert rows[1]["bytes"]["0.01"] > rows[0]["bytes"]["0.01"]  # Hessians are more than gradients


def test_compare_prints_a_table_without_a_terminal(capsys, tmp_path):
    arguments = ("compare", "breast_cancer", "--rounds", "50", "--mu", "0.1", "--out", str(tmp_path))
    code, out, _ = call(capsys, *arguments)
    assert code == 0
    assert "GD matched step" in out
    assert (tmp_path / "comparison.png").exists()
    rows = {row["method"]: row for row in call_json(capsys, *arguments)["rows"]}
    assert rows["L-BFGS"]["seconds"]["0.01"] > 0
    assert "adaptive own steps" in rows


@pytest.mark.parametrize(
    "options",
    [
        ("--smoothness", "adaptive"),
        ("--momentum", "item"),
        ("--momentum", "nesterov", "--switch", "shrunk:0.2"),
        ("--method", "barzilai_borwein", "--secant", "long"),
        ("--method", "ogm", "--horizon", "25"),
        ("--method", "nesterov", "--momentum", "0.5"),
    ],
)
def test_run_takes_the_options_of_the_extensions(capsys, options):
    data = call_json(capsys, "run", "breast_cancer", "--rounds", "25", *options)
    assert data["final_value"] < np.log(2)


def test_data_commands(capsys, tmp_path, monkeypatch):
    listed = {row["name"]: row["here"] for row in call_json(capsys, "data", "list")}
    assert listed["digits"] is True
    monkeypatch.setenv("OWNSTEP_DATA", str(tmp_path))
    assert call_json(capsys, "data", "where")[0] == str(tmp_path)
    code, out, _ = call(capsys, "data", "fetch", "digits")
    assert (code, out) == (0, "digits: comes with scikit-learn\n")
    assert "w8a" in call(capsys, "data", "list")[1]


def test_paper_list(capsys):
    assert "w8a" in call_json(capsys, "paper", "list")


@needs("w8a")
def test_the_promised_plan_of_w8a(capsys):
    data = call_json(capsys, "plan", "w8a", "--partition", "by_norm", "--devices", "2")
    assert data["L_true"] == pytest.approx(0.66, abs=0.01)
    assert [d["L"] for d in data["devices"]] == pytest.approx([0.10, 1.25], abs=0.01)
    assert data["gain"] == pytest.approx(3.6, abs=0.2)
    assert call_json(capsys, "plan", "w8a", "--partition", "by_label")["gain"] == pytest.approx(1.01, abs=0.02)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("plan", "w9a"), 2, "Did you mean 'w8a'"),
        (("plan", "digits", "--partition", "bylabel"), 2, "Did you mean 'by_label'"),
        (("plan", "digits", "--devices", "9999"), 2, "devices=9999 is more than the 1797 samples"),
        (("plan", "digits", "--mu", "-1"), 2, "mu must be a finite number >= 0, got -1"),
        (("run", "digits", "--method", "sgd"), 2, "unknown method 'sgd'"),
        (("run", "digits", "--step", "0.1"), 2, "--step 0.1 does not apply"),
        (("run", "digits", "--method", "gd", "--step", "-3"), 2, "positive and finite, got -3"),
        (("run", "digits", "--method", "gd", "--step", "long"), 2, "unknown step 'long'"),
        (("run", "digits", "--method", "gd", "--switch", "never"), 2, "applies to own_step only"),
        (("run", "digits", "--method", "gd", "--graph", "ring"), 2, "--graph ring does not apply to gd"),
        (("run", "digits", "--method", "extra", "--graph", "rong"), 2, "Did you mean 'ring'"),
        (("run", "digits", "--method", "gd", "--local-steps", "4"), 2, "--local-steps 4 does not apply to gd"),
        (("run", "digits", "--method", "fedavg", "--local-steps", "0"), 2, "at least 1, got 0"),
        (("run", "digits", "--participation", "cohort:many"), 2, "'cohort:many' cannot be read"),
        (("run", "digits", "--participation", "sometimes:3"), 2, "unknown participation 'sometimes:3'"),
        (("run", "digits", "--method", "nids", "--participation", "0.5", "--devices", "3"), 2, "every device"),
        (("run", "digits", "--participation", "2"), 2, "got 2"),
        (("run", "digits", "--missing", "lose"), 2, "unknown rule for missing shares 'lose'"),
        (("run", "digits", "--rounds", "many"), 2, "--rounds"),
        (("run", "breast_cancer", "--seed", "-1"), 2, "--seed"),
        (("compare", "digits", "--mu", "0"), 2, "give a positive --mu"),
        (("paper", "w8b"), 2, "Did you mean 'w8a'"),
        (("data", "fetch", "imagenet"), 2, "unknown dataset 'imagenet'"),
        (("plan", "digits", "--mu", "inf"), 2, "mu must be a finite number >= 0, got inf"),
        (("run", "digits", "--method", "schedule"), 2, "schedule takes its steps as an object"),
        (("run", "digits", "--deadline", "-1"), 2, "--deadline must be a finite number > 0, got -1"),
        (("run", "digits", "--deadline", "3"), 2, "--deadline 3 is for --engine cluster"),
        (("pep", "--L", "1,2", "--rounds", "5", "--switch", "9"), 2, "--switch is between 0 and --rounds 5, got 9"),
        (("pep", "--L", "1e300,1e-300"), 2, "must lie within a factor of 1e+100"),
        (("pep", "--L", "1,2", "--rounds", "2", "--r0", "1e200"), 2, "r0 must lie between 1e-100 and 1e+100"),
        (("fit", "a b.csv", "--site", "ward", "--engine", "cluster"), 2, "-m ownstep fit 'a b.csv' --site ward\n"),
        (("run", "digits", "--engine", "cluster"), 2, "-m ownstep run breast_cancer --devices 2 --rounds 500\n"),
        (("nonsense",), 2, "nonsense"),
        (("demo", "--out", "/dev/null/here"), 1, "cannot write"),
    ],
)
def test_errors_are_one_line_with_the_right_exit_code(capsys, arguments, code, message):
    found, _, err = call(capsys, *arguments)
    assert found == code
    assert message in err
    assert "Traceback" not in err


def test_missing_data_is_a_failure_not_bad_usage(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("OWNSTEP_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: (_ for _ in ()).throw(OSError("no network")))
    code, _, err = call(capsys, "plan", "w8a")
    assert code == 1
    assert "w8a is not here" in err


@pytest.mark.parametrize("command", ["demo", "data", "plan", "run", "compare", "paper", "data list"])
def test_help_has_an_example(capsys, command):
    code, out, _ = call(capsys, *command.split(), "--help")
    assert code == 0
    assert "Example: " in out or command == "data"


def test_help_is_plain_and_describes_every_argument(capsys):
    for command in ("run", "plan", "compare", "federate init", "data", "pep"):
        out = call(capsys, *command.split(), "--help")[1]
        assert "\\" not in out, command
    assert "[default: 0; x>=0]" in call(capsys, "run", "--help")[1]
    assert re.search(r"DATA +Dataset by name", call(capsys, "compare", "--help")[1])
    assert "--install-completion" in call(capsys, "--help")[1]
    assert "..." not in call(capsys, "--help")[1].partition("Commands:")[2]  # each command in one whole line


def every_command(group=None, path=()):
    group = group or typer.main.get_command(app)
    for name, command in group.commands.items():
        yield from every_command(command, (*path, name)) if hasattr(command, "commands") else [(*path, name)]


def test_help_lists_every_argument_once():
    assert {("fit",), ("data", "describe"), ("federate", "init")} <= set(every_command())
    for path in every_command():
        out = CliRunner().invoke(app, [*path, "--help"]).output
        listed = re.findall(r"^ *(?:positional )?arguments:?$", out, re.MULTILINE | re.IGNORECASE)
        words = re.search(r"Usage: .*\[OPTIONS\]((?: \S+)*)", out)
        expected = [w for w in words[1].split() if w.strip("[].") != "COMMAND"] if words else []
        assert len(listed) == bool(expected), path
        for word in expected:
            name = word.strip("[].")
            assert len(re.findall(rf"^ +\[?{name}\b", out, re.MULTILINE)) == 1, (path, name)


def test_divergence_has_a_name_and_an_exit_code(capsys):
    code, out, err = call(capsys, "run", "breast_cancer", "--method", "gd", "--step", "1000", "--rounds", "200")
    assert code == 1
    assert "diverged: all 200 rounds done, but f(x) rose from 0.6931 to" in out
    assert "the step is too long" in err
    swinging = call(capsys, "run", "breast_cancer", "--method", "nesterov", "--step", "300", "--rounds", "200")
    assert swinging[0] == 1  # f comes back to its start now and then, and is far above it in between
    far = call(capsys, "run", "breast_cancer", "--method", "gd", "--step", "1e308", "--rounds", "5")
    assert far[0] == 1
    assert far[2].count("\n") == 1
    good = call_json(capsys, "run", "breast_cancer", "--method", "gd", "--rounds", "20")
    assert good["stopped"] == "all 20 rounds done"


def test_a_narrow_terminal_costs_no_digit(capsys, monkeypatch):
    arguments = ("compare", "breast_cancer", "--rounds", "400")
    wide = call(capsys, *arguments)[1]
    monkeypatch.setenv("COLUMNS", "40")
    narrow = call(capsys, *arguments)[1]
    assert "…" not in narrow
    assert {w for w in wide.split() if w.replace(",", "").isdigit()} <= set(narrow.split())


@pytest.mark.parametrize("width", [100, 60, 34])
def test_what_does_not_fit_a_terminal_comes_below_beside_the_first_column_again(width):
    out = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=width)
    table = Table("name", *[f"head {i}" for i in range(7)], box=None)
    cells = [[f"{np.pi * (r + 1) * 10**i:.6g}" for i in range(7)] for r in range(3)]
    for r, row in enumerate(cells):
        table.add_row(f"row {r}", *row)
    show_table(table, out)
    lines = [line.rstrip() for line in out.file.getvalue().splitlines()]
    assert max(map(len, lines)) <= width
    blocks = [lines[k : k + 4] for k in range(0, len(lines), 4)]  # a head and three rows each
    assert len(blocks) == {100: 1, 60: 2, 34: 3}[width]
    for k, row in enumerate(cells):
        assert all(block[k + 1].split()[:2] == ["row", str(k)] for block in blocks)
        assert [cell for block in blocks for cell in block[k + 1].split()[2:]] == row


def test_compare_has_the_mu_of_the_table_in_the_readme(capsys):
    assert call_json(capsys, "compare", "breast_cancer", "--rounds", "20")["mu"] == 1e-2


def test_what_json_cannot_say_is_null(capsys):
    emit({"a": [float("nan"), (float("inf"), 1.0)]})
    assert json.loads(capsys.readouterr().out) == {"a": [None, [None, 1.0]]}


def test_version_and_bare_call(capsys):
    assert call(capsys, "--version")[1].startswith("ownstep 0.")
    code, out, err = call(capsys)
    assert "demo" in out + err
    assert code in (0, 2)


def test_ctrl_c_on_the_command_line_keeps_the_checkpoint(tmp_path):
    path = tmp_path / "run.npz"
    command = [sys.executable, "-m", "ownstep", "run", "digits", "--rounds", "1000000", "--checkpoint", str(path)]
    heard = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731  (background jobs start deaf to Ctrl-C)
    child = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=os.environ, text=True, preexec_fn=heard
    )
    deadline = time.monotonic() + 90
    while not path.exists() and time.monotonic() < deadline and child.poll() is None:
        time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    try:
        _, err = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode == 130
    assert "interrupted" in err
    with np.load(path) as file:
        assert len(file["column/value"]) > 0


def test_report_writes_one_page(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = call(capsys, "report")
    assert code == 2
    assert err.startswith("ownstep: no folder of results at 'results'")
    (tmp_path / "results").mkdir()
    out = call_json(capsys, "report")
    assert out["file"] == "report/index.html"
    assert out["bytes"] == (tmp_path / "report/index.html").stat().st_size
    assert set(out["verdicts"].values()) == {"no result yet"}
    assert "open it in a browser" in call(capsys, "report", "--out", "page.html")[1]


def test_the_first_rows_keep_their_sites_and_numbers_come_from_files(tmp_path):
    from ownstep.cli.options import SplitOptions, numbers
    from ownstep.data import Dataset
    from ownstep.support.errors import InvalidInput

    rows, labels, sites = np.eye(6), np.arange(6), np.array(["b", "a", "b", "a", "c", "c"])
    data = Dataset("mine", rows, labels, sites=sites)
    assert SplitOptions().split(data, rows[:4], labels[:4]).names == ("a", "b")
    assert SplitOptions("site", 2).split(data, rows[:4], labels[:4]).counts.tolist() == [2, 2]
    with pytest.raises(InvalidInput, match="the data has 2 sites"):
        SplitOptions("site", 3).split(data, rows[:4], labels[:4])
    (tmp_path / "n.txt").write_text("1, 2 3\n4.5,6\n\n7\n")
    assert numbers("--L", f"@{tmp_path / 'n.txt'}") == [1, 2, 3, 4.5, 6, 7]
    assert numbers("--L", "1,2.5") == [1, 2.5]
