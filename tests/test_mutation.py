"""``make mutate``: its table fits the source and the tests there are, and it knows which test turned red."""

from __future__ import annotations

import ast
import importlib
import io
import json
import shlex
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src/ownstep"


@pytest.fixture(scope="module")
def tool():
    if not (ROOT / "tools/mutate.py").exists():
        pytest.skip("the tools are not here")
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return importlib.import_module("mutate")
    finally:
        sys.path.remove(str(ROOT / "tools"))


def text(module: str) -> bytes:
    return (SOURCE / module).read_bytes()


@pytest.mark.slow
def test_every_mistake_by_hand_can_be_planted(tool):
    planted = tool.by_hand(text)
    assert len({mutant.key for mutant in planted}) == len(planted) == len(tool.CONFIG["mistakes"])
    for mutant in planted:
        assert mutant.was != mutant.now
        ast.parse(mutant.apply(text(mutant.module)))
        assert tool.relevant(mutant.module)


@pytest.mark.slow
def test_every_argued_survivor_is_one_mutant(tool):
    modules = {entry["module"] for entry in tool.CONFIG["equivalent"]}
    pool = [m for module in modules for m in tool.mutants(module, text(module).decode())]
    why, wrong = tool.equivalents(pool)
    assert wrong == []
    assert len(why) == sum(not entry.get("gone") for entry in tool.CONFIG["equivalent"])


def test_every_module_and_test_of_the_table_is_there(tool):
    modules = [str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py")]
    named = [*tool.CONFIG["modules"], *tool.CONFIG["whole"], *tool.CONFIG["tests"], *tool.CONFIG["first"]]
    assert [prefix for prefix in named if not any(m.startswith(prefix) for m in modules)] == []
    listed = [*tool.CONFIG["first"].values(), *(line for lines in tool.CONFIG["tests"].values() for line in lines)]
    listed += tool.CONFIG["last"]["tests"]
    paths = {word for line in listed for word in shlex.split(line) if word.startswith("tests/")}
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_the_lines_by_which_methods_move_are_found(tool):
    module = "methods/pooled/gd.py"
    moves = tool.updates(tool.mutants(module, text(module).decode()))
    assert {mutant.function for mutant in moves} == {"ask", "tell"}
    assert tool.updates(tool.mutants("plan.py", text("plan.py").decode())) == []


@pytest.mark.parametrize(
    ("line", "test"),
    [
        ("FAILED tests/a.py::test_b - assert 1 - 2 == 3", "tests/a.py::test_b"),
        ("FAILED tests/a.py::test_b[one - two] - boom [3 - 4]", "tests/a.py::test_b[one - two]"),
        ("FAILED tests/a.py::test_b[one - two]", "tests/a.py::test_b[one - two]"),
        ("ERROR tests/a.py - ImportError: no", "tests/a.py"),
    ],
)
def test_a_red_test_is_known_by_its_whole_name(tool, line, test):
    assert tool.first_red(line) == (line.split()[0], test)


def test_mutants_that_read_alike_are_told_apart(tool):
    found = tool.mutants("some.py", "def f(x):\n    return 1 + x + 1\n")
    ones = [(m.nth, m.start, m.function) for m in found if m.was == "1"]
    assert [nth for nth, _, _ in ones] == [1, 2]
    assert [function for _, _, function in ones] == ["f", "f"]
    assert len({m.key for m in found}) == len(found)
    for mutant in found:
        assert mutant.apply(b"def f(x):\n    return 1 + x + 1\n") != b"def f(x):\n    return 1 + x + 1\n"


def test_what_is_imported_for_annotations_is_left_alone(tool):
    source = "if TYPE_CHECKING:\n    from a import b\n\nif READY:\n    c = 1\n"
    assert {m.line for m in tool.mutants("a.py", source)} == {4, 5}


TEXT = """def tell(x):
    return 2 * x + 1


def other(x):
    return x - 3 if x > 4 else 5
"""


class Small:
    """A commit with two modules."""

    def __init__(self, name: str, text: str = TEXT) -> None:
        self.name, self.text = name, text

    def source(self, module: str) -> bytes:
        return self.text.encode()

    def mutants(self):
        from mutants import mutants

        return [m for module in ("first.py", "second.py") for m in mutants(module, self.text)]


@pytest.fixture
def small(tool, monkeypatch, tmp_path):
    config = {"modules": ["first.py", "second.py"], "whole": ["second.py"], "equivalent": []}
    config["updates"] = {"under": "first.py", "functions": ["tell"]}
    config["mistakes"] = [{"module": "first.py", "was": "2 * x", "now": "3 * x"}]
    (tmp_path / "docs").mkdir()
    for name, value in {"CONFIG": config, "ROOT": tmp_path, "RECORD": tmp_path / "mutation.json"}.items():
        monkeypatch.setattr(tool, name, value)
    tried = []

    def go(record, commit, count, sees=lambda mutant: True):
        """Complete a record, but have time for so many mutants only; those that no test sees survive."""

        def some(_, chosen, why, options, done, reach):
            for mutant in chosen[:count]:
                tried.append(mutant.key)
                done(mutant, {"killed": sees(mutant), "by": None, "equivalent": why.get(mutant.key), "seconds": 1.0})

        monkeypatch.setattr(tool, "try_all", some)
        monkeypatch.setattr(tool, "git", lambda *words: b"")
        monkeypatch.setattr(tool, "measured", lambda files, folder, jobs: None)
        tool.complete(record, commit, options)
        return tool.Record.read(), json.loads(tool.RECORD.read_text())

    options = SimpleNamespace(sample=9, updates=2, seed=0, jobs=1)
    return tool, go, options, tried


def test_a_run_that_was_cut_short_goes_on_where_it_was(small, capsys):
    tool, go, options, tried = small
    commit = Small("abc")
    begun = tool.begun(commit, options)
    whole = len(tool.mutants("second.py", TEXT))
    assert [len(begun.of(part)) for part in tool.PARTS] == [1, whole, 2, 9]
    record, first = go(begun, commit, 4)
    assert (first["goes"], first["by hand"]["left"]) == (1, 1)
    assert (first["sample"]["mutants"], first["sample"]["left"]) == (4, 5)
    assert "first pass" not in first
    assert "1 of hand" in capsys.readouterr().out
    assert not (tool.ROOT / "docs/mutation.svg").exists()
    record.about["minutes"] = 17.0
    record, second = go(record, commit, 1000)
    assert len(tried) == len(set(tried)) == len(record.rows)  # none twice, though some are of two parts
    assert second["left"] == []
    assert (second["goes"], second["minutes"]) == (2, 17.0)
    assert second["sample"] == {"mutants": 9, "killed": 9, "equivalent": 0, "survived": 0, "share": 1.0, "left": 0}
    assert second["first pass"] == {
        "mutants": 9, "killed": 9, "missed": [], "equivalent": 0, "survived": 0, "share": 1.0,
    }  # fmt: skip
    assert "100 % of 9" in (tool.ROOT / "docs/mutation.svg").read_text()


def test_after_tests_were_mended_survivors_are_tried_once_more(small):
    tool, go, options, tried = small
    commit = Small("abc")
    record, before = go(tool.begun(commit, options), commit, 1000, lambda mutant: mutant.kind != "constant")
    lost = {key for key, row in record.rows.items() if not row["killed"]}
    assert lost
    del tried[:]
    changed = Small("def", TEXT.replace("x - 3", "x - 30"))  # these lines give way to others
    again, told = go(tool.carried(record, changed, options), changed, 1000)
    present = {mutant.key for mutant in changed.mutants()}
    assert lost & present <= set(tried)
    assert not {key for key, row in record.rows.items() if row["killed"] and "hand" not in row["of"]} & set(tried)
    assert set(again.rows) <= present | {mutant.key for mutant in tool.by_hand(changed.source)}
    assert [len(again.of(part)) for part in tool.PARTS] == [len(record.of(part)) for part in tool.PARTS]
    assert told["tried again at"] == ["def"]
    first = told["first pass"]
    assert first == before["first pass"]  # kept, whatever is mended after it
    assert {k: first[k] for k in ("killed", "share")} == {k: before["sample"][k] for k in ("killed", "share")}
    assert told["sample"]["share"] > first["share"]
    assert f"{100 * first['share']:.0f} % of 9" in (tool.ROOT / "docs/mutation.svg").read_text()
    assert (told["commit"], told["goes"], told["left"]) == ("abc", 2, [])


def test_what_is_argued_later_leaves_the_first_pass_but_what_is_mended_does_not(small):
    tool, go, options, _ = small
    commit = Small("abc")
    _, before = go(tool.begun(commit, options), commit, 1000, lambda mutant: mutant.kind == "arithmetic")
    first = before["first pass"]
    assert first["survived"] == len(first["missed"]) == 9 - first["killed"] > 2
    one, other = first["missed"][:2]
    for row, more in ((one, {}), (other, {"gone": True})):
        tool.CONFIG["equivalent"].append(
            {k: row[k] for k in ("module", "was", "now", "code", "nth")} | {"why": "nothing changes"} | more
        )
    tool.conclude(tool.Record.read(), commit)
    after = json.loads(tool.RECORD.read_text())["first pass"]
    assert (after["equivalent"], after["survived"]) == (2, first["survived"] - 2)
    assert after["share"] == round(first["killed"] / 7, 4) > first["share"]
    assert f"{100 * after['share']:.0f} % of 9" in (tool.ROOT / "docs/mutation.svg").read_text()
    again, _ = go(tool.carried(tool.Record.read(), commit, options), commit, 1000)  # all are noticed by now
    assert again.about["first pass"] == after


def test_an_argument_about_code_that_is_gone_fits_nothing(small):
    tool, _, _, _ = small
    commit = Small("abc")
    entry = {"module": "first.py", "was": "2", "now": "3", "code": "return 2 * x + 1", "why": "it changes nothing"}
    for gone, there in ((False, True), (True, False)):
        tool.CONFIG["equivalent"] = [entry | {"gone": gone, **({} if there else {"code": "return 7"})}]
        assert tool.equivalents(commit.mutants())[1] == []
    tool.CONFIG["equivalent"] = [entry | {"gone": True}]
    assert len(tool.equivalents(commit.mutants())[1]) == 1
    assert list(tool.gone().values()) == ["it changes nothing"]


@pytest.mark.parametrize("other", [False, True], ids=["green", "red"])
def test_what_only_unreadable_tests_could_notice_is_left(tool, monkeypatch, capsys, other):
    """Left out, as a test that is red anyway, they would let every mistake pass for unnoticed."""
    first, second = "tests/test_plan.py", "tests/test_refusals.py"

    class Broken:
        changed = False

        def __init__(self, files):
            pass

        def tests(self, names, limit):
            if first in names:
                return False, f"ERROR {first}", 0.1
            return (False, f"FAILED {second}::test_it", 0.1) if self.changed and other else (True, "1 passed", 0.1)

        def write(self, module, source):
            self.changed = source != TEXT.encode()

        def close(self):
            pass

    monkeypatch.setattr(tool, "Copy", Broken)
    monkeypatch.setattr(tool, "git", lambda *words: b"")
    monkeypatch.setattr(tool, "relevant", lambda module: [first, second])
    tried = []
    tool.try_all(
        SimpleNamespace(name="abc", source=lambda module: TEXT.encode()), tool.mutants("plan.py", TEXT), {},
        SimpleNamespace(minutes=1, jobs=1, quiet=True), lambda mutant, row: tried.append(row["by"]),
    )  # fmt: skip
    count = len(tool.mutants("plan.py", TEXT))
    assert tried == [f"FAILED {second}::test_it"] * count * other
    assert f"{first} cannot be read even without a mistake ({count} times)" in capsys.readouterr().err


SMALL = {
    "src/ownstep/__init__.py": "",
    "src/ownstep/sums.py": """LIMIT = 3


def twice(x):
    return (
        x
        + x
    )


def capped(x):
    if x > LIMIT:
        return LIMIT
    return x
""",
    "tests/test_sums.py": """import pytest
from ownstep import sums


@pytest.fixture(scope="module")
def four():
    return sums.twice(2)


@pytest.mark.parametrize("x", [1, 5])
def test_capped(x):
    assert sums.capped(x) == min(x, 3)


def test_first(four):
    assert four > 0


def test_second(four):
    assert four == 4


@pytest.mark.xdist_group("processes")
def test_apart():
    assert sums.capped(1) == 1
""",
}


@pytest.fixture(scope="module")
def reach(tool, tmp_path_factory):
    """What the tests of a small package run."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in SMALL.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content.encode()))
    folder = tmp_path_factory.mktemp("reach") / "abc"
    found = tool.measured(packed.getvalue(), folder, 2)
    assert sorted(tool.measured(b"not read again", folder, 2).seconds) == sorted(found.seconds)
    return found


def test_a_line_is_tried_with_the_tests_that_run_it(tool, reach, monkeypatch):
    named = {f"tests/test_sums.py::{name}" for name in ("test_capped[1]", "test_capped[5]")}
    assert reach.tests("sums.py", 13, 13) == {"tests/test_sums.py::test_capped[5]"}
    assert reach.tests("sums.py", 12, 12) == named  # not the one that is run apart
    both = {"tests/test_sums.py::test_first", "tests/test_sums.py::test_second"}
    assert reach.tests("sums.py", 7, 7) == both  # what their fixture runs, once, counts for each
    assert reach.tests("sums.py", 1, 1) == reach.tests("absent.py", 1, 1) == set()

    monkeypatch.setattr(tool, "relevant", lambda module: ["tests/test_other.py -k 'a b'"])
    mutant = next(m for m in tool.mutants("sums.py", SMALL["src/ownstep/sums.py"]) if m.was == "x > LIMIT")
    tried = [shlex.split(line) for line, _ in tool.trials(mutant, reach)]
    assert set(tried[0]) == named
    assert tried[1:] == [shlex.split(line) for line in tool.relevant("sums.py")]  # for what is run where none can see
    monkeypatch.setitem(tool.CONFIG, "apart", ["sums"])
    assert next(line for line, _ in tool.trials(mutant, reach)) == "tests/test_other.py -k 'a b'"
    for line, other in ((1, reach), (mutant.line, None)):  # run on import alone, or nothing is known
        asked = replace(mutant, line=line)
        assert next(name for name, _ in tool.trials(asked, other)) == "tests/test_other.py -k 'a b'"


def test_own_tests_and_one_case_of_each_come_first(tool):
    reach = tool.Reach(Path("/nowhere"))
    reach.seconds = {"b::x[1]": 2.0, "b::x[2]": 1.0, "a::y": 3.0, "a::z": 0.5, "c::w": 50.0}
    order = reach.order(set(reach.seconds), ("b",))
    assert order == ["b::x[2]", "a::z", "a::y", "c::w", "b::x[1]"]
    assert list(reach.batches(order, [2.0, 4.0], 9)) == [(["b::x[2]", "a::z"], 1.5), (["a::y"], 3.0)]
    assert next(reach.batches(["c::w", *order], [2.0, 4.0], 9)) == (["c::w"], 50.0)  # a long one goes alone
    assert list(reach.batches(order, [2.0, 4.0], 2)) == [(["b::x[2]", "a::z"], 1.5)]
