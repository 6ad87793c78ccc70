"""The code on every page runs, and prints what the page says it prints."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from .shown import assert_shown, blocks, run_block, run_page

ROOT = Path(__file__).parent.parent
PAGES = [p for p in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if blocks(p)]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_code_in_the_documentation_runs_and_prints_what_is_shown(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(page)


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_an_example_of_the_gallery_prints_and_draws_what_its_page_shows(script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")
    shown = script.parent / "output" / f"{script.stem}.txt"
    assert_shown(capsys.readouterr().out, shown.read_text(), script.name)
    drawn = (tmp_path / f"{script.stem}.svg").read_text()
    kept = shown.with_suffix(".svg").read_text()
    assert drawn.count("<path") == kept.count("<path")  # the picture has the parts of the one that is shown


@pytest.mark.parametrize(
    ("printed", "stated"),
    [
        ("0.8964712 0.8964734\n", "0.89647... ..."),
        ("0.8964712 0.8964734\n", "0.89647 0.89647"),
        ("(3, 0.25)\n", "(3, 0.2500)"),
        ("1234 rounds\n", "1,234 rounds"),
        ("2.99e-05\n", "2.99e-5"),
        ("a 1\nb 2\nc 3\n", "a 1\n...\nc 3"),
        ("a 1\nb 2\n", "a 1\n..."),
    ],
)
def test_what_agrees_with_the_documentation(printed, stated):
    assert_shown(printed, stated, "here")


@pytest.mark.parametrize(
    ("printed", "stated"),
    [
        ("0.8964712\n", "0.89646"),
        ("0.8964712\n", "0.89646..."),
        ("0.8964712 0.9\n", "0.89647"),
        ("3 rounds\n", "4 rounds"),
        ("3 rounds\n", "3 exchanges"),
        ("a 1\nb 2\n", "a 1"),
        ("a 1\n", "a 1\nb 2"),
        ("3.1e-05\n", "2.99e-5"),
        ("2.99e-04\n", "2.99e-5"),
    ],
)
def test_what_the_documentation_may_not_say(printed, stated):
    with pytest.raises(AssertionError, match="here"):
        assert_shown(printed, stated, "here")


def test_a_comment_with_a_number_in_the_documentation_is_a_claim():
    run_block("print(1 / 3)  # 0.333", "page", {})
    run_block("x = 3  # 3 devices\nprint(x)  # how many", "page", {})  # a statement that prints nothing claims nothing
    with pytest.raises(AssertionError, match="0.334"):
        run_block("print(1 / 3)  # 0.334", "page", {})
