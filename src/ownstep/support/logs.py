"""What an operator's tools read while a run goes on: JSON lines, and a file of metrics in Prometheus' text format."""

from __future__ import annotations

import datetime
import errno
import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ownstep.support.errors import OwnstepError
from ownstep.support.files import write_atomically

HELP = {
    "round": ("gauge", "Rounds done."),
    "round_seconds": ("gauge", "Seconds of the last round."),
    "seconds_total": ("counter", "Seconds of all rounds."),
    "loss": ("gauge", "The objective in the last round."),
    "bytes_total": ("counter", "Bytes of vectors and numbers that travelled."),
    "sites": ("gauge", "Sites of the run."),
    "absent_sites": ("gauge", "Sites that gave no answer of use in the last round."),
    "site_absent": ("gauge", "1 for a site that gave no answer of use in the last round."),
    "last_round_timestamp_seconds": ("gauge", "When the last round ended, in seconds since 1970."),
}
"""Every metric: its type, and what it says. Names get ``ownstep_`` in front."""


class RoundLog:
    """Records every round as it ends.

    Parameters
    ----------
    lines : a file to which one JSON object per round is appended, each with one write; None for none.
    metrics : a file in Prometheus' text format, replaced as a whole after every round, as the textfile collector of
        its node exporter wants it; None for none.
    """

    def __init__(self, lines: str | Path | None = None, metrics: str | Path | None = None) -> None:
        self.lines = None if not lines else Path(lines)
        self.metrics = None if not metrics else Path(metrics)
        self._runs: dict[str, dict[tuple[str, str], float]] = {}
        for path in (self.lines, self.metrics):
            if path is not None:
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)
                except OSError as error:
                    raise OwnstepError(f"cannot write the log {str(path)!r}: {error}") from error
        if self.lines is not None:
            self._append(b"")  # what cannot be written is said before the first round, not after it

    def round(self, run: str, k: int, row: Mapping[str, Any], absent: Mapping[str, str], sites: int) -> None:
        """One round of a run: the columns of its history, and who was absent and why."""
        told = {
            "event": "round", "run": run, "round": k, "seconds": row["seconds"], "loss": row["value"],
            "gradient_norm": row["gradient_norm"], "bytes_up": row["bytes_up"], "bytes_down": row["bytes_down"],
            "sites": sites, "absent": dict(absent),
        }  # fmt: skip
        self.event(**told)
        if self.metrics is not None:
            self._count(run, told)

    def event(self, **told: Any) -> None:
        """One line, with the time in front; numbers that are not finite are null, as JSON has none."""
        if self.lines is None:
            return
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in told.items()}
        self._append(json.dumps({"time": now} | plain, default=float).encode() + b"\n")

    def _append(self, line: bytes) -> None:
        assert self.lines is not None
        try:
            descriptor = os.open(self.lines, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                before = os.fstat(descriptor).st_size
                if os.write(descriptor, line) < len(line):  # no room for the rest: half a line is none
                    os.ftruncate(descriptor, before)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            finally:
                os.close(descriptor)
        except OSError as error:
            raise OwnstepError(f"cannot write the log {str(self.lines)!r}: {error}") from error

    def _count(self, run: str, told: Mapping[str, Any]) -> None:
        values = self._runs.setdefault(run, {})
        absent = dict.fromkeys((key[1] for key in values if key[0] == "site_absent"), 0.0)
        absent |= dict.fromkeys(told["absent"], 1.0)
        for way in ("up", "down"):
            values["bytes_total", way] = values.get(("bytes_total", way), 0.0) + float(told[f"bytes_{way}"])
        values["round", ""], values["round_seconds", ""] = float(told["round"]), float(told["seconds"])
        values["seconds_total", ""] = values.get(("seconds_total", ""), 0.0) + float(told["seconds"])
        values["loss", ""], values["sites", ""] = float(told["loss"]), float(told["sites"])
        values["absent_sites", ""] = float(len(told["absent"]))
        values["last_round_timestamp_seconds", ""] = time.time()
        values |= {("site_absent", name): value for name, value in absent.items()}
        assert self.metrics is not None
        try:
            with write_atomically(self.metrics) as file:
                file.write(self._text().encode())
        except OSError as error:
            raise OwnstepError(f"cannot write the metrics {str(self.metrics)!r}: {error}") from error

    def _text(self) -> str:
        out = []
        for name, (kind, says) in HELP.items():
            lines = [
                f"ownstep_{name}{_labels(run, name, label)} {_number(value)}"
                for run, values in self._runs.items()
                for (metric, label), value in values.items()
                if metric == name
            ]
            if lines:
                out += [f"# HELP ownstep_{name} {says}", f"# TYPE ownstep_{name} {kind}", *lines]
        return "\n".join(out) + "\n"


def _labels(run: str, name: str, label: str) -> str:
    pairs = {"run": run} | ({{"bytes_total": "direction", "site_absent": "site"}[name]: label} if label else {})
    escaped = {k: v.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for k, v in pairs.items()}
    return "{" + ",".join(f'{k}="{v}"' for k, v in escaped.items()) + "}"


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else ("+Inf" if value > 0 else "-Inf")
