"""What the three neural experiments share: methods, records, the recorded results of a GPU, judging and drawing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ownstep.errors import OwnstepError
from ownstep.history import History, finite
from ownstep.methods import GD, At, Method, OwnStep
from ownstep.plan import Devices

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS, POOLED, MATCHED, STRATIFIED = "Algorithm 1", "GD 1/L-bar", "GD matched step", "GD stratified"
STRATIFIED_MATCHED = "GD stratified, matched step"
WORTHWHILE = 1.05
"""A speed-up below this counts as none."""

Say = Callable[[str], None]
Keep = Callable[[dict[str, Any]], None]


class Clock:
    """A time budget that is asked between runs."""

    def __init__(self, seconds: float | None = None) -> None:
        self.began, self.seconds = time.monotonic(), seconds

    @property
    def spent(self) -> float:
        return time.monotonic() - self.began

    @property
    def left(self) -> float | None:
        return None if self.seconds is None else self.seconds - self.spent

    def allows(self, seconds: float) -> bool:
        """Is there time for something of this length?"""
        return self.seconds is None or self.spent + seconds <= self.seconds


def methods(switch: int) -> dict[str, Method]:
    """Algorithm 1 with the paper's switch, and gradient descent at 1/L-bar and at Algorithm 1's mean step."""
    return {OURS: OwnStep(At(switch)), POOLED: GD("mean"), MATCHED: GD("matched")}


def describe(devices: Devices) -> dict[str, Any]:
    """The constants of one run, as plain data."""
    return {
        "names": list(devices.names),
        "weights": devices.weights.tolist(),
        "L": devices.L.tolist(),
        "L_bar": devices.L_bar,
        "mean_step": devices.mean_step,
        "gain": devices.gain,
    }


def record(
    history: History, watch: Mapping[str, Mapping[int, float]] | None = None, points: int = 200
) -> dict[str, Any]:
    """A history as plain data: about ``points`` losses, and whatever was measured along the way."""
    at = np.unique(np.linspace(0, history.rounds, min(points, history.rounds + 1)).round().astype(int))
    out = {
        "rounds": at.tolist(),
        "loss": [finite(float(v)) for v in history.value[at]],
        "final_loss": finite(float(history.value[-1])),
        "step": finite(float(history.columns["step"][0])) if history.rounds else None,
        "switched_at": history.switched_at,
        "stopped": history.stopped,
        "seconds": float(np.sum(history.columns["seconds"])),
    }
    for name, series in (watch or {}).items():
        out[name] = {"rounds": list(series), "values": [finite(float(v)) for v in series.values()]}
    return out


def committed(experiment: str, *files: str, optional: Sequence[str] = ()) -> dict[str, Any]:
    """What a GPU gave, from the files kept in the repository under ``results/``."""
    folder = Path(__file__).resolve().parents[3] / "results" / experiment
    found = {}
    for name in [*files, *(name for name in optional if (folder / name).exists())]:
        path = folder / name
        try:
            found[path.stem.removeprefix("gpu-")] = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise OwnstepError(
                f"the full-size {experiment} experiment runs on a CUDA GPU, and there is none here, nor its recorded "
                f"result {str(path)!r}: {error}. Use --quick, or run benchmarks/gpu.py on a GPU"
            ) from error
    return found


def speed_up(run: Mapping[str, Any], method: str = OURS, against: str = POOLED) -> float | None:
    """How many times fewer rounds ``method`` needs than ``against``, to the worse of their final losses.

    If ours reaches the other's final loss in round a of K, K/a; otherwise the other reached ours in round b, b/K.
    """
    ours, other = run["methods"].get(method), run["methods"].get(against)
    if ours is None or other is None:
        return None
    mine, theirs = ours["loss"][-1], other["loss"][-1]
    if mine is None or theirs is None:
        return None
    if mine <= theirs:
        return float(other["rounds"][-1]) / max(1, _first(ours, theirs))
    return _first(other, mine) / max(1.0, float(ours["rounds"][-1]))


def _first(series: Mapping[str, Any], level: float) -> int:
    at = [k for k, v in zip(series["rounds"], series["loss"], strict=True) if v is not None and v <= level]
    return int(at[0])


def interval(values: Sequence[float], seed: int = 0, times: int = 2000) -> tuple[float, float, float]:
    """Mean, and its 95 % bootstrap interval over the runs."""
    data = np.asarray(values, float)
    drawn = np.random.default_rng(seed).choice(data, (times, len(data))).mean(axis=1)
    return float(data.mean()), float(np.quantile(drawn, 0.025)), float(np.quantile(drawn, 0.975))


def judge(arms: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Does Algorithm 1 need fewer rounds than GD at 1/L-bar in every arm, beyond the spread of the runs?"""
    words: dict[str, str] = {}
    findings: list[str] = []
    for name, arm in arms.items():
        ratios = [r for r in (speed_up(run) for run in arm["runs"]) if r is not None]
        if not ratios:
            findings.append(f"{name}: a method diverged in every run, so nothing can be compared")
            words[name] = "does not hold here"
            continue
        if len(ratios) < 2:
            findings.append(f"{name}: one run, ratio {ratios[0]:.2f}; shown, but too little to judge by")
            continue
        mean, low, high = interval(ratios)
        words[name] = "holds" if low > WORTHWHILE else "does not hold here" if high <= WORTHWHILE else "holds partly"
        findings.append(_finding(name, arm, mean, low, high))
    whole = next(iter(words.values())) if len(set(words.values())) == 1 else "holds partly"
    return {
        "verdict": whole,
        "rule": f"rounds of GD at 1/L-bar over rounds of Algorithm 1 to the worse of their final training losses: "
        f"holds where the 95 % bootstrap interval over runs lies above {WORTHWHILE:g}, does not where it lies below; "
        f"arms of two runs or more: {', '.join(f'{n} {w}' for n, w in words.items())}",
        "findings": findings,
    }


def _finding(name: str, arm: Mapping[str, Any], mean: float, low: float, high: float) -> str:
    gains = [run["devices"]["gain"] for run in arm["runs"]]
    text = f"{name}, {len(gains)} runs: predicted gain {np.mean(gains):.2f}, "
    text += f"speed-up over GD 1/L-bar {mean:.2f} [{low:.2f}, {high:.2f}]"
    for other in (MATCHED, STRATIFIED, STRATIFIED_MATCHED):
        ratios = [r for r in (speed_up(run, against=other) for run in arm["runs"]) if r is not None]
        if ratios:
            m, a, b = interval(ratios)
            text += f", over {other} {m:.2f} [{a:.2f}, {b:.2f}]"
    finals = {}
    for label in arm["runs"][0]["methods"]:
        ends = [run["methods"][label]["loss"][-1] for run in arm["runs"] if label in run["methods"]]
        if all(e is not None for e in ends):
            finals[label] = float(np.mean(ends))
    return text + ". Final training loss: " + ", ".join(f"{k} {v:.3f}" for k, v in finals.items())


def draw(arms: Mapping[str, Mapping[str, Any]], unit: str = "iteration") -> Figure:
    """One row an arm: mean training loss with the runs' range, test accuracy, constants, final losses by run."""
    from ownstep import plots

    figure, axes = plots.new_figure(4, len(arms), width=3.9, ratios=(1.3, 1.1, 0.8, 1.1))
    for row, (name, arm) in zip(axes, arms.items(), strict=True):
        runs = arm["runs"]
        for i, label in enumerate(runs[0]["methods"]):
            found = [run["methods"][label] for run in runs if label in run["methods"]]
            tint = plots.colour(label, i)
            rounds, loss = _common(found, "rounds", "loss")
            row[0].plot(rounds, loss.mean(0), color=tint, lw=2.2 if label == OURS else 1.4, label=label)
            row[0].fill_between(rounds, loss.min(0), loss.max(0), color=tint, alpha=0.15, lw=0)
            tests = [f["test_accuracy"] for f in found if "test_accuracy" in f]
            if tests:
                at, right = _common(tests, "rounds", "values")
                row[1].plot(at, 100 * right.mean(0), color=tint, lw=2.2 if label == OURS else 1.4)
            row[3].plot(range(1, len(found) + 1), [f["loss"][-1] for f in found], "o", color=tint, ms=5)
        start = max(series["loss"][0] for run in runs for series in run["methods"].values())
        for ax in (row[0], row[3]):  # what has diverged leaves through the top
            ax.set_ylim(top=min(ax.get_ylim()[1], 1.3 * start))
        row[3].set_xticks(range(1, len(runs) + 1))
        first = runs[0]["devices"]
        plots.constants(row[2], first["names"], first["L"], {"L-bar": first["L_bar"]}, f"gain {first['gain']:.2f}")
        plots.finish(row[0], name, unit, "training loss", "upper right")
        plots.finish(row[1], "test accuracy", unit, "%")
        plots.finish(row[3], "final training loss", "run", "")
    return figure


def _common(series: Sequence[Mapping[str, Any]], x: str, y: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """The x values all series share, and their y values, one row each."""
    shortest = min(series, key=lambda s: len(s[x]))
    n = len(shortest[x])
    values = [[np.nan if v is None else v for v in s[y][:n]] for s in series]
    return np.asarray(shortest[x]), np.asarray(values, float)
