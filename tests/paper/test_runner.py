"""Experiments that can be stopped, taken up again, judged anew and run in one go."""

from __future__ import annotations

import json
import sys
from types import ModuleType

import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

from ownstep import InvalidInput, OwnstepError, paper
from ownstep.cli import app
from ownstep.paper.machinery import runner


class Study(ModuleType):
    """An experiment of three parts that can be told to stop before one of them."""

    def __init__(self, name: str) -> None:
        super().__init__(f"ownstep.paper.{name}", "Fig. 0: a study.")
        self.CLAIM, self.SETTINGS = "It counts.", (("what", "one", "two", "why not"),)
        self.made: list[str] = []
        self.stop: str | None = None
        self.error: type[BaseException] = KeyboardInterrupt
        self.word = "holds"

    def run(self, quick=False, seed=0, progress=None, pieces=None, seeds=None):
        kept = pieces or runner.Pieces()
        return {"parts": {name: kept(name, self.part, name, seed) for name in "abc"}, "seeds": seeds}

    def part(self, name: str, seed: int) -> dict:
        if name == self.stop:
            raise self.error("stopped")
        self.made.append(name)
        return {"name": name, "values": (seed, 0.1 + 0.2)}

    def verdict(self, result):
        return {"verdict": self.word, "rule": "always", "findings": [str(len(result["parts"]))]}

    def figure(self, result):
        return Figure()


@pytest.fixture
def study(monkeypatch):
    """Two experiments in place of the paper's."""
    made = {name: Study(name) for name in ("first", "second")}
    monkeypatch.setattr(paper, "EXPERIMENTS", {n: n for n in made})
    monkeypatch.setattr(runner, "EXPERIMENTS", paper.EXPERIMENTS)
    monkeypatch.setattr("ownstep.cli.show.paper.EXPERIMENTS", paper.EXPERIMENTS)
    for name, module in made.items():
        monkeypatch.setitem(sys.modules, f"ownstep.paper.{name}", module)
    return made["first"], made["second"]


def test_an_interrupted_run_goes_on_where_it_stopped(study, tmp_path):
    first, _ = study
    first.stop = "c"
    with pytest.raises(KeyboardInterrupt):
        paper.conduct("first", tmp_path)
    assert first.made == ["a", "b"]
    assert not (tmp_path / "first" / "result.json").exists()
    first.stop = None
    report = paper.conduct("first", tmp_path)
    assert first.made == ["a", "b", "c"]
    assert report["parts_found"] == 2
    saved = json.loads((tmp_path / "first/result.json").read_text())
    assert saved["result"]["parts"]["a"] == {"name": "a", "values": [0, 0.1 + 0.2]}  # as if never interrupted
    assert not (tmp_path / "first" / runner.PARTS).exists()
    assert paper.conduct("first", tmp_path)["parts_found"] == 0


def test_a_run_that_is_capped_says_what_is_missing_and_goes_on(study, tmp_path):
    first, _ = study

    def run(quick=False, seed=0, progress=None, pieces=None, minutes=None):
        names = "ab" if minutes else "abc"
        parts = {name: pieces(name, first.part, name, seed) for name in names}
        return {"parts": parts, "not_run": [n for n in "abc" if n not in parts]}

    first.run = run
    paper.conduct("first", tmp_path, minutes=5)
    assert json.loads((tmp_path / "first/result.json").read_text())["result"]["not_run"] == ["c"]
    report = paper.conduct("first", tmp_path)
    assert (first.made, report["parts_found"]) == (["a", "b", "c"], 2)
    assert not (tmp_path / "first" / runner.PARTS).exists()
    with pytest.raises(InvalidInput, match="--minutes must be above 0, got 0"):
        paper.conduct("first", tmp_path, minutes=0)
    with pytest.raises(InvalidInput, match="second does not take --minutes 5"):
        paper.conduct("second", tmp_path, minutes=5)


def test_parts_of_another_seed_or_other_code_are_not_taken(study, tmp_path, monkeypatch):
    first, _ = study
    first.stop = "c"
    for seed in (0, 1):
        with pytest.raises(KeyboardInterrupt):
            paper.conduct("first", tmp_path, seed=seed)
    assert first.made == ["a", "b"] * 2
    monkeypatch.setattr(runner, "_code", lambda: "changed")
    first.stop = None
    assert paper.conduct("first", tmp_path)["parts_found"] == 0


def test_a_damaged_part_is_made_again(tmp_path):
    pieces = runner.Pieces(tmp_path)
    assert pieces("x", lambda: (1, 2)) == [1, 2]
    (path,) = tmp_path.glob("*.json")
    path.write_text("{")
    assert pieces("x", lambda: (3,)) == [3]
    assert runner.Pieces(tmp_path)("x", lambda: 1 / 0) == [3]


def test_every_result_says_where_it_came_from(study, tmp_path):
    paper.conduct("first", tmp_path, seed=3, seeds=2)
    saved = json.loads((tmp_path / "first/result.json").read_text())
    assert saved["settings"] == [{"what": "what", "paper": "one", "ours": "two", "why": "why not"}]
    known = saved["provenance"]
    assert (known["seed"], known["seeds"]) == (3, 2)
    assert {"commit", "machine", "python", "versions"} <= set(known)
    assert known["versions"]["numpy"]
    assert saved["result"]["seeds"] == 2
    with pytest.raises(InvalidInput, match="does not take --device cuda"):
        paper.conduct("first", tmp_path, device="cuda")
    with pytest.raises(InvalidInput, match="at least 1, got 0"):
        paper.conduct("first", tmp_path, seeds=0)


def test_all_runs_what_is_missing_and_says_what_is_there(study, tmp_path):
    first, second = study
    first.stop, first.error = "a", MemoryError
    second.stop, second.error = "a", OwnstepError
    assert [state for _, state, _ in paper.conduct_all(tmp_path)] == ["failed", "failed"]
    first.stop = None
    found = {n: state for n, state, _ in paper.conduct_all(tmp_path)}
    assert found == {"first": "done", "second": "failed"}  # one failure does not stop the others
    second.stop = None
    states = [(n, state) for n, state, _ in paper.conduct_all(tmp_path)]
    assert states == [("first", "there"), ("second", "done")]
    assert first.made == list("abc")
    assert [s for _, s, _ in paper.conduct_all(tmp_path, again=True)] == ["done", "done"]
    assert [s for _, s, _ in paper.conduct_all(tmp_path, quick=True)] == ["done", "done"]  # a folder of their own
    assert [s for _, s, _ in paper.conduct_all(tmp_path, seed=5)] == ["done", "done"]


def test_the_command_counts_verdicts_and_fails_when_one_failed(study, tmp_path):
    _, second = study
    second.word = "does not hold here"
    out = CliRunner().invoke(app, ["paper", "all", "--out", str(tmp_path)])
    assert "1 holds, 1 does not hold here" in out.stdout
    again = CliRunner().invoke(app, ["paper", "all", "--out", str(tmp_path)])
    assert again.stdout.count("already there") == 2
    data = json.loads(CliRunner().invoke(app, ["paper", "all", "--out", str(tmp_path), "--json"]).stdout)
    assert data["counts"] == {"holds": 1, "does not hold here": 1}
    assert data["experiments"]["first"]["state"] == "there"
    second.stop, second.error = "b", OwnstepError
    failed = CliRunner().invoke(app, ["paper", "all", "--out", str(tmp_path), "--again"])
    assert isinstance(failed.exception, OwnstepError)
    assert "1 of 2 failed: second" in str(failed.exception)


def test_what_is_on_disk_can_be_judged_anew(study, tmp_path):
    first, _ = study
    paper.conduct("first", tmp_path, seed=4)
    before = json.loads((tmp_path / "first/result.json").read_text())
    first.word, first.made = "holds partly", []
    assert CliRunner().invoke(app, ["paper", "first", "--judge", "--out", str(tmp_path)]).exit_code == 0
    after = json.loads((tmp_path / "first/result.json").read_text())
    assert after["verdict"]["verdict"] == "holds partly"
    assert (after["result"], after["provenance"]) == (before["result"], before["provenance"])
    assert first.made == []
    with pytest.raises(OwnstepError, match="no result of second to judge"):
        paper.judge_again("second", tmp_path)


@pytest.mark.parametrize("text", ["[]", "{", '{"result": []}', '{"result": {"parts": 1}}', "3"])
def test_a_result_of_another_shape_is_no_result_to_judge(study, tmp_path, text):
    (tmp_path / "first").mkdir()
    (tmp_path / "first/result.json").write_text(text)
    with pytest.raises(OwnstepError, match="no result of first to judge"):
        paper.judge_again("first", tmp_path)
    assert (tmp_path / "first/result.json").read_text() == text


def test_a_device_that_is_not_there_is_said_before_anything_is_read(tmp_path):
    pytest.importorskip("torch")
    with pytest.raises(InvalidInput, match="--device abacus cannot be used on this machine"):
        paper.conduct("cifar10", tmp_path, quick=True, device="abacus")


def test_the_same_seed_gives_the_same_result(tmp_path):
    """In full, byte for byte; only measured times differ. Test_rivals does the same with searches in it."""
    once, twice = (paper.conduct("pep-devices", tmp_path / str(i), quick=True, progress=False) for i in (0, 1))
    assert once["verdict"] == twice["verdict"]
    assert timeless(tmp_path / "0/pep-devices-quick") == timeless(tmp_path / "1/pep-devices-quick")


def timeless(folder):
    """A result as it was written, without what was measured with a clock."""

    def without(node):
        if isinstance(node, dict):
            return {k: without(v) for k, v in node.items() if k != "seconds"}
        return [without(v) for v in node] if isinstance(node, list) else node

    return without(json.loads((folder / "result.json").read_text()))
