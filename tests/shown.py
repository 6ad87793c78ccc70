"""Runs a page's code as a reader would paste it, and holds what it prints against what the page says it prints.

Two ways to say it: a comment after a statement that begins with a number, a quote or a bracket, and a block fenced as
``text`` or ``output`` right after the code. Numbers agree if they do to the digits shown; ``...`` stands for the rest
of a number, and at the end of a line for the rest of that line. A line with ``...`` alone stands for any lines.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
from pathlib import Path

CODE = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\s*```(?:text|output)\n(?P<output>.*?)^```)?", re.M | re.S)
NOT_RUN = re.compile(r"^<!-- not run: .+ -->\n+```python\n.*?^```", re.M | re.S)
STATED = re.compile(r"#\s*([-+\d\[('\"].*)$")
NUMBER = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def blocks(page: Path) -> list[tuple[str, str | None]]:
    """(code, the output shown after it or None) for every block that is run."""
    text = NOT_RUN.sub("", page.read_text())
    return [(m["code"], m["output"]) for m in CODE.finditer(text)]


def run_page(page: Path) -> None:
    """Run the blocks one after the other, in one scope; raises AssertionError where the page says something else."""
    scope: dict[str, object] = {"__name__": "__main__"}
    for code, output in blocks(page):
        printed = "".join(run_block(code, str(page), scope))
        if output is not None:
            assert_shown(printed, output, f"{page.name}: the output after\n{code}")


def run_block(code: str, name: str, scope: dict[str, object]) -> list[str]:
    """What every statement prints; each is compared with the comment after it."""
    lines, out = code.splitlines(), []
    for statement in ast.parse(code, name).body:
        captured = io.StringIO()
        with contextlib.redirect_stdout(captured):
            exec(compile(ast.Module([statement], []), name, "exec"), scope)
        out.append(captured.getvalue())
        stated = STATED.search(lines[statement.end_lineno - 1])
        if stated and out[-1]:
            assert_shown(out[-1], stated[1], lines[statement.end_lineno - 1])
    return out


def assert_shown(printed: str, stated: str, where: str) -> None:
    """Is what was printed what is stated?"""
    seen, said = printed.strip().splitlines(), stated.strip().splitlines()
    while said:
        line = said.pop(0).strip()
        if line == "...":
            if not said:
                return
            while seen and not same(seen[0], said[0].strip()):
                seen.pop(0)
            continue
        assert seen, f"{where}\nsays {line!r}, and nothing more is printed"
        found = seen.pop(0)
        assert same(found, line), f"{where}\nsays {line!r}, printed is {found!r}"
    assert not seen, f"{where}\nsays nothing of {seen[0]!r}"


def same(found: str, line: str) -> bool:
    """Word by word, and numbers to the digits shown."""
    words, theirs = line.split(), found.split()
    if words and words[-1] == "...":
        words, theirs = words[:-1], theirs[: len(words) - 1]
    return len(words) == len(theirs) and all(_word(a, b) for a, b in zip(theirs, words, strict=True))


def _word(found: str, stated: str) -> bool:
    if found == stated:
        return True
    open_ended = stated.endswith("...")
    if open_ended:
        return found.startswith(stated[:-3])
    ours, theirs = NUMBER.findall(stated), NUMBER.findall(found)
    if not ours or len(ours) != len(theirs) or NUMBER.sub("#", stated) != NUMBER.sub("#", found):
        return False
    return all(_close(b, a) for a, b in zip(ours, theirs, strict=True))


def _close(found: str, stated: str) -> bool:
    """Equal once the number found is rounded as the one stated is."""
    mantissa, _, exponent = stated.lower().replace(",", "").partition("e")
    digits = len(mantissa.partition(".")[2]) - int(exponent or 0)
    return abs(float(found.replace(",", "")) - float(stated.replace(",", ""))) <= 0.5000001 * 10.0**-digits
