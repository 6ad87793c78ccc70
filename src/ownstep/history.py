"""What happened in each round, as plain data: save it, load it, tabulate it; drawing it reruns nothing."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.support.errors import InvalidInput, OwnstepError, require_extra
from ownstep.support.files import what_ails, write_atomically
from ownstep.support.versions import check_format, stamp

FORMAT = 2
"""Of the files written here. 1, by ownstep 0.1, kept the words in the json alone."""

COLUMNS = {
    "value": "f(x^k)",
    "gradient_norm": "||grad f(x^k)||, nan where it was not measured",
    "phase": "local, probe (common rounds tried before the switch), common, or end for the last iterate",
    "step": "mean step sum_i c_i of the round that left x^k",
    "participants": "devices that took part in that round",
    "bytes_up": "bytes the devices sent in that round",
    "bytes_down": "bytes the devices received in that round",
    "seconds": "wall-clock of that round: asking, evaluating and moving, not what was measured for the record",
}
"""One entry per iterate x^0, ..., x^K. What belongs to a round is stored with the iterate it left."""


@dataclass(frozen=True, eq=False)
class History:
    """A finished run.

    Parameters
    ----------
    name : the method's label.
    columns : one array for each of :data:`COLUMNS`, of length rounds + 1.
    x, best_x : the last iterate, and the one of lowest f.
    stopped : why the run ended.
    switched_at, switch_why : the round at which the local phase ended, and what the switch saw.
    took_part : (rounds, devices) booleans, or None when all devices always did.
    settings : what is needed to run it again.
    last : what the devices answered at the last iterate, where the engine had it; never saved.
    """

    name: str
    columns: Mapping[str, NDArray[Any]]
    x: NDArray[Any]
    best_x: NDArray[Any]
    stopped: str
    switched_at: int | None = None
    switch_why: str = ""
    took_part: NDArray[np.bool_] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    last: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if set(self.columns) != set(COLUMNS):
            raise InvalidInput(f"a history has the columns {sorted(COLUMNS)}, got {sorted(self.columns)}")
        lengths = {len(c) for c in self.columns.values()}
        if len(lengths) != 1 or lengths == {0}:
            raise InvalidInput(f"columns of a history are equally long and not empty, got lengths {sorted(lengths)}")

    def __repr__(self) -> str:
        return f"History({self.name!r}, rounds={self.rounds}, value={self.value[-1]:.6g}, stopped={self.stopped!r})"

    @property
    def rounds(self) -> int:
        """How many rounds were run."""
        return len(self.value) - 1

    @property
    def value(self) -> NDArray[np.float64]:
        """f(x^k) for k = 0, ..., rounds."""
        return self.columns["value"]

    @property
    def gradient_norm(self) -> NDArray[np.float64]:
        """||grad f(x^k)||."""
        return self.columns["gradient_norm"]

    @property
    def phase(self) -> NDArray[np.str_]:
        """The phase of the round that left x^k."""
        return self.columns["phase"]

    @property
    def failed(self) -> bool:
        """Whether the run ended because it diverged or met a number that is not finite."""
        return self.stopped.startswith(("diverged", "f(x) is"))

    @property
    def best_round(self) -> int:
        """The k of lowest f(x^k)."""
        return int(np.nanargmin(self.value)) if np.isfinite(self.value).any() else 0

    @property
    def best_value(self) -> float:
        """The lowest f(x^k)."""
        return float(self.value[self.best_round])

    def gap(self, optimum: float) -> NDArray[np.float64]:
        """(f(x^k) - f*) / (f(x^0) - f*): one at the start, zero at the optimum."""
        scale = self.value[0] - optimum
        if not scale > 0:
            raise InvalidInput(f"f* = {optimum!r} is not below f(x0) = {self.value[0]!r}")
        gap: NDArray[np.float64] = (self.value - optimum) / scale
        return gap

    def rounds_to(self, tolerance: float, optimum: float) -> int | None:
        """The first k whose relative gap is at most ``tolerance``; None if it was never reached."""
        reached = np.flatnonzero(self.gap(optimum) <= tolerance)
        return int(reached[0]) if len(reached) else None

    def seconds_to(self, tolerance: float, optimum: float) -> float | None:
        """Wall-clock until the first such k: of the rounds before it and of the evaluation that shows it."""
        k = self.rounds_to(tolerance, optimum)
        return None if k is None else float(self.columns["seconds"][: k + 1].sum())

    def bytes_per_device(self, k: int) -> float:
        """What a device sent and received in the rounds before x^k, on average."""
        traffic = self.columns["bytes_up"][:k].sum() + self.columns["bytes_down"][:k].sum()
        return float(traffic) / max(1, int(self.settings.get("devices", self.columns["participants"].max())))

    def to_frame(self) -> Any:
        """The columns as a pandas DataFrame, indexed by k."""
        try:
            import pandas as pd
        except ImportError as error:
            raise require_extra("pandas", "test") from error
        return pd.DataFrame({c: self.columns[c] for c in COLUMNS}).rename_axis("k")

    def to_dict(self, series: bool = True) -> dict[str, Any]:
        """Plain data for json; ``series=False`` leaves the columns out."""
        out: dict[str, Any] = {
            "name": self.name,
            "rounds": self.rounds,
            "final_value": finite(self.value[-1]),
            "best_value": finite(self.best_value),
            "best_round": self.best_round,
            "stopped": self.stopped,
            "switched_at": self.switched_at,
            "switch_why": self.switch_why,
            "settings": dict(self.settings),
        }
        if series:
            out["columns"] = {c: [finite(v) for v in self.columns[c].tolist()] for c in COLUMNS}
        return out

    def save(self, path: str | os.PathLike[str]) -> tuple[Path, Path]:
        """Write ``path.npz`` and, for people, ``path.json`` with everything but the columns; no pickle.

        ``"a"`` and ``"a.npz"`` are the same. Returns both paths.
        """
        npz, text = _both(path)
        about = stamp(FORMAT) | self.to_dict(series=False)
        arrays: dict[str, Any] = {f"column_{c}": v for c, v in self.columns.items()}
        arrays |= {"x": self.x, "best_x": self.best_x, "about": np.frombuffer(json.dumps(about).encode(), np.uint8)}
        if self.took_part is not None:
            arrays["took_part"] = self.took_part
        try:
            npz.parent.mkdir(parents=True, exist_ok=True)
            with write_atomically(npz) as file:
                np.savez_compressed(file, allow_pickle=False, **arrays)
            with write_atomically(text) as file:
                file.write(json.dumps(about, indent=1).encode())
        except OSError as error:
            raise OwnstepError(f"cannot write the history to {str(path)!r}: {error}") from error
        return npz, text

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> History:
        """Read back what :meth:`save` wrote under the same path; ``path.json`` is not needed for it."""
        npz, text = _both(path)
        try:
            with npz.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                arrays = dict(file)
            # ownstep 0.1 wrote the words into the json alone
            about = json.loads(bytes(arrays["about"]) if "about" in arrays else text.read_text("utf-8"))
            check_format(about, FORMAT, f"the history {str(npz)!r}")
            return cls(
                about["name"],
                {c: arrays[f"column_{c}"] for c in COLUMNS},
                arrays["x"],
                arrays["best_x"],
                about["stopped"],
                about["switched_at"],
                about["switch_why"],
                arrays.get("took_part"),
                dict(about["settings"]),
            )
        except Exception as error:  # a damaged file can make zip, npy, json and whatever reads them fail in any way
            if isinstance(error, OwnstepError) and not isinstance(error, InvalidInput):
                raise
            raise OwnstepError(f"no readable history at {str(path)!r}: {what_ails(error)}") from error


def _both(path: str | os.PathLike[str]) -> tuple[Path, Path]:
    if not isinstance(path, str | os.PathLike) or not Path(path).name or "\0" in str(path):
        raise InvalidInput(f"the path of a history must name a file, got {path!r}")
    base = Path(path)
    if base.suffix == ".npz":
        base = base.with_name(base.name[: -len(".npz")] or base.name)
    return base.with_name(base.name + ".npz"), base.with_name(base.name + ".json")


def finite(value: Any) -> Any:
    """NaN and infinities as None, because json cannot write them."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
