from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ownstep
from ownstep import data
from ownstep.support import lazy

ROOT = Path(__file__).parent.parent


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print('\\n'.join(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(found.stdout.split())


def test_importing_the_package_brings_in_next_to_nothing():
    modules = loaded_by("import ownstep")
    assert not modules & {"torch", "flwr", "numpy", "scipy", "sklearn", "matplotlib", "typer", "rich"}
    assert len({m for m in modules if m.startswith("ownstep")}) <= 4


def test_methods_and_engines_need_numpy_alone():
    modules = loaded_by("import ownstep.methods, ownstep.engines, ownstep.partition, ownstep.data")
    assert not modules & {"torch", "flwr", "scipy", "sklearn", "matplotlib", "typer", "rich", "platformdirs"}


def test_every_public_name_is_there():
    for name in ownstep.__all__:
        assert getattr(ownstep, name) is not None
    assert set(ownstep.__all__) <= set(dir(ownstep))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ownstep.nothing


@pytest.mark.parametrize("module", [ownstep, data, lazy])
def test_examples_in_docstrings(module):
    assert doctest.testmod(module).failed == 0


def test_the_types_are_sound():
    pytest.importorskip("mypy", reason="mypy comes with the extra [test]")
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_site_builds_and_its_links_lead_somewhere(tmp_path):
    pytest.importorskip("mkdocs", reason="the site needs the extra [docs]")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "experiments" / "index.html").read_text()
    for result in (ROOT / "results").glob("*/result.json"):
        assert f"{result.parent.name}/result.json" in page  # the table of verdicts has every result
    pages = {path.relative_to(tmp_path).as_posix(): path.read_text() for path in tmp_path.rglob("*.html")}
    for name, text in pages.items():
        assert not re.findall(r'(?:src|<link[^>]*href)="https?://[^"]+"', text), name  # it opens without a network
        assert "mathsplace" not in text, name
        prose = re.sub(r"<(pre|script|style)\b.*?</\1>", "", text, flags=re.DOTALL)
        assert not re.findall(r"\n- .*|<td>- .*", prose), name  # a list that the text or a table before it swallowed
    assert "<mover><mi>L</mi>" in pages["concepts.html"]  # formulas are typeset
    assert 'id="tab-race"' in pages["explorer.html"]
    commands = subprocess.run([sys.executable, "-m", "ownstep", "--help"], capture_output=True, text=True, check=True)
    for name in re.findall(r"^[^\w\n-]*([a-z]+) {2,}[A-Z]", commands.stdout, re.MULTILINE):
        assert f"ownstep {name}" in pages["reference/commands.html"]
    for example in (ROOT / "examples").glob("*.py"):
        assert f"{example.stem}.svg" in pages["gallery/index.html"]
