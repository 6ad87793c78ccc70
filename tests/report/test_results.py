from __future__ import annotations

import sys
from types import ModuleType

import pytest

from ownstep import paper
from ownstep.report import build, read
from ownstep.report.results import BEYOND, IN_THE_PAPER, MISSING, OTHER, WORST_CASE

from .conftest import envelope, verdict, write


def by_name(results):
    return {r.name: r for r in results.records}


def test_every_registered_experiment_is_there_in_order_and_counted(results):
    found = read(results, "../results")
    assert [r.name for r in found.records] == list(paper.EXPERIMENTS)
    there = {r.name for r in found.records if r.data is not None}
    assert there == {"mnist", "fedopt", "pep-curves"}
    assert found.counts["holds"] == 2
    assert found.counts["holds partly"] == 1
    assert found.counts["does not hold here"] == 0
    assert found.counts[MISSING] == len(paper.EXPERIMENTS) - 3
    assert sum(found.counts.values()) == len(found.records)
    assert by_name(found)["mnist"].link == "../results/mnist/result.json"
    assert by_name(found)["w8a"].claim == paper.load_experiment("w8a").CLAIM  # it has no file


@pytest.mark.parametrize("content", ["", "{", "[1, 2]", '{"verdict": "holds"}', '{"verdict": {}}', "\x00"])
def test_a_damaged_file_is_a_note_and_no_crash(results, content):
    write(results, "w8a", content)
    record = by_name(read(results, "r"))["w8a"]
    assert record.data is None
    assert "w8a/result.json" in record.problem
    assert record.problem in build(read(results, "r")).replace("&#39;", "'").replace("&#34;", '"')


def test_odd_values_in_a_file_are_shown_as_they_are(results):
    odd = {"verdict": "maybe", "rule": 3, "findings": "one", "numbers": [1, {"what": "x"}]}
    write(results, "w8a", envelope("w8a", None, settings="none", provenance=[1], verdict=odd))
    record = by_name(read(results, "r"))["w8a"]
    assert record.word == OTHER
    assert record.settings == []
    assert record.findings == ["one"]
    assert "maybe" not in {r.word for r in read(results, "r").records}
    assert "w8a" in build(read(results, "r"))


def test_quick_results_are_read_apart_and_say_so(results):
    write(results, "w8a-quick", envelope("w8a", {"a": 1}, quick=True))
    assert by_name(read(results, "r"))["w8a"].data is None
    record = by_name(read(results, "r", quick=True))["w8a"]
    assert record.quick
    assert record.link == "r/w8a-quick/result.json"
    assert "quick version of the experiment" in build(read(results, "r", quick=True))


def test_an_experiment_that_comes_later_needs_no_change_here(results, monkeypatch):
    module = ModuleType("ownstep.paper.later")
    module.__doc__ = "Fig. 9: a study nobody knew of."
    module.CLAIM, module.SETTINGS = "It is so.", ()
    module.SAYS, module.WHY = "Something.", lambda result: f"because of {result['x']}"
    monkeypatch.setitem(sys.modules, "ownstep.paper.later", module)
    monkeypatch.setitem(paper.EXPERIMENTS, "later", "later")
    data = {"x": 7, "study": {"draws": [1, 10, 100], "L": [1.0, 2.0, 2.5], "names": ["a", "b", "c"]}}
    write(results, "later", envelope("later", data, verdict=verdict("does not hold here")))
    html = build(read(results, "r"))
    assert "A study nobody knew of" in html
    assert "because of 7" in html
    assert "ownstep paper later" in html
    assert by_name(read(results, "r"))["later"].part == IN_THE_PAPER
    monkeypatch.setattr(module, "PART", BEYOND, raising=False)
    assert by_name(read(results, "r"))["later"].part == BEYOND
    assert by_name(read(results, "r"))["pep-curves"].part == WORST_CASE
    assert by_name(read(results, "r"))["beyond"].part == BEYOND  # most of its numbers are measured, not proved


def test_a_sentence_that_does_not_fit_the_result_is_left_out(results):
    write(results, "dirichlet", envelope("dirichlet", {"another": "shape"}))
    record = by_name(read(results, "r"))["dirichlet"]
    assert record.said("WHY") == ""
    assert record.said("NOTICE") == ""
    assert record.said("SAYS")
