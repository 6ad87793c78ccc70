"""The short form of ``make torture``: each fault on the local engine and on ranks, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from . import cluster, local


@pytest.mark.xdist_group("processes")
@pytest.mark.skipif(sys.platform != "linux", reason="finds its processes through /proc")
def test_random_faults_end_as_promised(tmp_path):
    out = tmp_path / "torture.json"
    several = {"--local": len(local.FAULTS), "--cluster": len(cluster.QUICK), "--federation": 0}
    command = [sys.executable, "-m", "tests.torture", *(str(word) for pair in several.items() for word in pair)]
    ended = subprocess.run(
        [*command, "--seed", "3", "--minutes", "3", "--out", str(out)], cwd=Path(__file__).parents[2], timeout=400,
        capture_output=True, text=True,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    told = json.loads(out.read_text())
    assert told["kept"] == {"local": len(local.FAULTS), "cluster": len(cluster.QUICK)}
    assert not any(told["broken"].values())
    assert {t["fault"] for t in told["trials"] if t["engine"] == "cluster"} == set(cluster.QUICK)
