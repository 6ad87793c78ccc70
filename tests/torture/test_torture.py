"""The short form of ``make torture``: a few random faults on the local engine and on ranks, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")


@pytest.mark.xdist_group("processes")
@pytest.mark.skipif(sys.platform != "linux", reason="finds its processes through /proc")
def test_random_faults_end_as_promised(tmp_path):
    out = tmp_path / "torture.json"
    command = [sys.executable, "-m", "tests.torture", "--local", "11", "--cluster", "3", "--federation", "0"]
    ended = subprocess.run(
        [*command, "--seed", "3", "--minutes", "1", "--out", str(out)], cwd=Path(__file__).parents[2], timeout=400,
        capture_output=True, text=True,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    told = json.loads(out.read_text())
    assert told["kept"]["local"] == 11
    assert not any(told["broken"].values())
