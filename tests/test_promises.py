"""Every promise of docs/promises.md names a test, and that test is there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent


def test_every_promise_names_a_test_that_exists():
    page = (TESTS.parent / "docs" / "promises.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("|") and not re.match(r"\|[-| ]+$|\| fault", line)]
    assert len(lines) > 20
    for line in lines:
        named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", line)
        assert named, line
        for file, test in named:
            (found,) = TESTS.rglob(file)
            assert f"def {test}(" in found.read_text(), (file, test)
