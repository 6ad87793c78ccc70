"""An operator's logs: one whole line per round, and metrics that are never half written."""

from __future__ import annotations

import json
import math
import os

import pytest

from ownstep.support.errors import OwnstepError
from ownstep.support.logs import RoundLog

from ..test_cli import call

ROW = {"seconds": 0.5, "value": 2.0, "gradient_norm": math.nan, "bytes_up": 10, "bytes_down": 30}


def test_rounds_add_up_and_names_are_escaped(tmp_path):
    log = RoundLog(tmp_path / "new" / "log.jsonl", tmp_path / "m.prom")
    log.round("own_step", 0, ROW, {'B"\\x\n': "late"}, 3)
    log.round("own_step", 1, ROW | {"value": math.inf}, {}, 3)
    first, second = (json.loads(line) for line in (tmp_path / "new" / "log.jsonl").read_text().splitlines())
    assert first["absent"] == {'B"\\x\n': "late"}
    assert first["gradient_norm"] is None
    assert (second["round"], second["loss"], second["sites"]) == (1, None, 3)
    told = dict(line.rsplit(" ", 1) for line in (tmp_path / "m.prom").read_text().splitlines() if line[0] != "#")
    assert told['ownstep_bytes_total{run="own_step",direction="up"}'] == "20.0"
    assert told['ownstep_bytes_total{run="own_step",direction="down"}'] == "60.0"
    assert told['ownstep_seconds_total{run="own_step"}'] == "1.0"
    assert told['ownstep_loss{run="own_step"}'] == "+Inf"
    assert told['ownstep_site_absent{run="own_step",site="B\\"\\\\x\\n"}'] == "0.0"  # it is back
    assert told['ownstep_absent_sites{run="own_step"}'] == "0.0"
    assert not list(tmp_path.glob(".*part"))


def test_a_log_that_cannot_be_written_is_said_before_the_first_round(tmp_path):
    (tmp_path / "file").write_text("")
    for name in ("file/log", "."):
        with pytest.raises(OwnstepError, match="cannot write the log"):
            RoundLog(tmp_path / name)


def test_a_run_logs_every_round(tmp_path, capsys):
    files = ["--log-json", str(tmp_path / "log.jsonl"), "--metrics", str(tmp_path / "m.prom")]
    asked = ["--devices", "3", "--rounds", "4", "--participation", "0.7", "--json"]
    code, _, err = call(capsys, "run", "breast_cancer", *asked, *files)
    assert code == 0, err
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [0, 1, 2, 3, 4]
    assert any(line["absent"] for line in lines)
    assert 'ownstep_round{run="own_step"} 4.0' in (tmp_path / "m.prom").read_text()


def test_a_full_disk_leaves_whole_lines_alone(tmp_path, monkeypatch):
    file, real = tmp_path / "log.jsonl", os.write
    log = RoundLog(file)
    log.event(event="first")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, line: real(descriptor, line[:7]))
        with pytest.raises(OwnstepError, match="cannot write the log .*No space left"):
            log.event(event="second")
    log.event(event="third")
    assert [json.loads(line)["event"] for line in file.read_text().splitlines()] == ["first", "third"]
