"""What a user would install: built, checked, and run in an environment of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import ownstep

ROOT = Path(__file__).parent.parent


def shell(*command: object, cwd: Path = ROOT, **more: str) -> str:
    """Run a command and return what it printed; its errors are shown when it fails."""
    done = subprocess.run(
        [str(c) for c in command], cwd=cwd, capture_output=True, text=True, timeout=600, env=os.environ | more
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_version_is_the_changelogs():
    newest = re.search(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert newest is not None
    assert cited is not None
    assert newest[1] == cited[1] == ownstep.__version__


def test_the_address_of_the_repository_stands_in_one_form():
    """It is not fixed yet: whoever changes it finds every place by these two files."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert urls["Homepage"] in (ROOT / "CITATION.cff").read_text()
    assert all(urls["Homepage"] in urls[name] for name in ("Changelog", "Issues"))


@pytest.mark.xdist_group("release")
def test_the_wheel_installs_and_its_demo_runs(tmp_path):
    pytest.importorskip("build", reason="building a release needs the extra [test]")
    shell(sys.executable, "-m", "build", "--outdir", tmp_path / "dist", ROOT)
    wheel, sdist = next(tmp_path.glob("dist/*.whl")), next(tmp_path.glob("dist/*.tar.gz"))
    shell(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    shell(Path(sys.executable).parent / "check-wheel-contents", wheel)
    inside = zipfile.ZipFile(wheel).namelist()
    for needed in ("py.typed", "__init__.pyi", "report/assets/page.html", "engines/federation/template/env.sh.txt"):
        assert f"ownstep/{needed}" in inside
    shell(sys.executable, "-m", "venv", "--without-pip", tmp_path / "clean")
    python = tmp_path / "clean" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python)
    shell(*pip, "install", "--quiet", "--no-compile", "-c", ROOT / "constraints.txt", wheel)
    place = tmp_path / "elsewhere"
    place.mkdir()
    told = shell(python, "-m", "ownstep", "demo", cwd=place, PYTHONPATH="")
    assert told.count("To 0.0001, Algorithm 1 needs") == 2
    assert list(place.rglob("*.png"))
