"""What the three neural experiments share: methods, records, the recorded results of a GPU, judging."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ownstep.history import History, finite
from ownstep.methods import GD, At, Method, Nesterov, OwnStep
from ownstep.paper.machinery import fairness
from ownstep.paper.machinery.bootstrap import interval, number
from ownstep.plan import Devices
from ownstep.support.errors import OwnstepError, unknown_name

OURS, OURS_DEFAULT = "Algorithm 1", "Algorithm 1, default switch"
POOLED, MATCHED, STRATIFIED = "GD 1/L-bar", "GD matched step", "GD stratified"
STRATIFIED_MATCHED = "GD stratified, matched step"
TRUE, TUNED, NESTEROV = "GD 1/L", "GD tuned", "Nesterov 1/L-bar"
UNNAMED = (MATCHED, STRATIFIED, STRATIFIED_MATCHED, NESTEROV)
"""Baselines that the paper's claims do not name; shown beside them, not judged. Tuned GD, which is tuned for one loss,
is shown at that loss alone."""
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


def methods(switch: int, names: Sequence[str] | None = None) -> dict[str, Method]:
    """Algorithm 1 with the paper's switch, and what it is measured against on the full batch; all, or those named."""
    known: dict[str, Method] = {
        OURS: OwnStep(At(switch)), POOLED: GD("mean"), MATCHED: GD("matched"), TUNED: GD("tuned"),
        NESTEROV: Nesterov("mean"),
    }  # fmt: skip
    for name in names or ():
        if name not in known:
            raise unknown_name("method", name, known)
    return {name: known[name] for name in (known if names is None else names)}


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
    if "tuning" in history.settings:
        out["tuning"] = history.settings["tuning"]
    for name, series in (watch or {}).items():
        out[name] = {"rounds": list(series), "values": [finite(float(v)) for v in series.values()]}
    return out


def committed(experiment: str, *files: str, optional: Sequence[str] = (), seeds: int | None = None) -> dict[str, Any]:
    """What a GPU gave, from the files kept in the repository under ``results/``; they have the seeds they have."""
    if seeds is not None:
        raise OwnstepError(f"the full-size {experiment} experiment with {seeds} seeds of its own needs a CUDA GPU, and "
                           "there is none here; without --seeds its recorded result is read")  # fmt: skip
    folder = Path(__file__).resolve().parents[4] / "results" / experiment
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


def recorded(found: Mapping[str, Any]) -> dict[str, Any]:
    """Where recorded results were made, by file: device, versions, commit and seeds."""
    return {name: part["provenance"] for name, part in found.items() if "provenance" in part}


def joined(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Results of the same experiment with other seeds as one: the runs of every arm behind each other."""
    out = json.loads(json.dumps(parts[0]))
    for part in parts[1:]:
        for kind, arm in part["arms"].items():
            for key, found in arm.items():
                out["arms"][kind].setdefault(key, []).extend(found)
        out["seconds"] += part["seconds"]
    return dict(out)


def completed(part: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """A result with the methods of another one, of the same seeds, beside its own."""
    out: dict[str, Any] = json.loads(json.dumps(part))
    for kind, arm in more["arms"].items():
        found = {run["seed"]: run["methods"] for run in arm["runs"]}
        for run in out["arms"][kind]["runs"]:
            run["methods"] |= found.get(run["seed"], {})
    return out


def speed_up(run: Mapping[str, Any], method: str = OURS, against: str = POOLED) -> float | None:
    """How many times fewer rounds ``method`` needs than ``against``, to the worse of their final losses.

    If ours reaches the other's final loss in round a of K, K/a; otherwise the other reached ours in round b, b/K. Zero
    where ours alone diverged, so that such runs count against it; None where the other did. Who ends above the start
    has diverged too.
    """
    ours, other = run["methods"].get(method), run["methods"].get(against)
    if ours is None or other is None:
        return None
    mine, theirs = _end(ours), _end(other)
    if theirs is None:
        return None
    if mine is None:
        return 0.0
    if mine <= theirs:
        return float(other["rounds"][-1]) / max(1, _first(ours, theirs))
    return _first(other, mine) / max(1.0, float(ours["rounds"][-1]))


def _end(series: Mapping[str, Any]) -> float | None:
    """The last loss; None of a run that diverged: that stopped for it, or ends above its start, if that was seen."""
    first, last = series["loss"][0], series["loss"][-1]
    stopped = any(words in str(series.get("stopped", "")) for words in ("diverged", "too long", "f(x) is"))
    risen = series["rounds"][0] == 0 and last is not None and last > first
    return None if last is None or stopped or risen else float(last)


def _first(series: Mapping[str, Any], level: float) -> int:
    at = [k for k, v in zip(series["rounds"], series["loss"], strict=True) if v is not None and v <= level]
    return int(at[0])


def rounds_to(series: Mapping[str, Any], loss: float) -> float | None:
    """The round in which a training loss is first reached, on straight lines between the looks; None if it never is."""
    looks = [(k, v) for k, v in zip(series["rounds"], series["loss"], strict=True) if v is not None]
    for i, (k, v) in enumerate(looks):
        if v <= loss:
            before = looks[i - 1] if i else None
            return float(k) if before is None else before[0] + (k - before[0]) * (before[1] - loss) / (before[1] - v)
    return None


def at_loss(run: Mapping[str, Any], loss: float, against: str = POOLED) -> tuple[float, float] | None:
    """Rounds of ``against`` and of Algorithm 1 to a training loss; None if neither arrives, or one was not run.

    One that does not arrive in time counts with all its rounds, so that the difference is rather too small.
    """
    ours, other = run["methods"].get(OURS), run["methods"].get(against)
    if ours is None or other is None:
        return None
    mine, theirs = rounds_to(ours, loss), rounds_to(other, loss)
    if mine is None and theirs is None:
        return None
    last = float(max(ours["rounds"][-1], other["rounds"][-1]))
    return (last if theirs is None else theirs), max(1.0, last if mine is None else mine)


def judge(arms: Mapping[str, Mapping[str, Any]], losses: Sequence[float] = ()) -> dict[str, Any]:
    """Does Algorithm 1 need fewer rounds than GD at 1/L-bar to the same training loss, beyond the spread of the runs?

    A cell is an arm and a loss: each of ``losses``, and in each run the worse of the two final losses.
    """
    words: dict[str, str] = {}
    findings: list[str] = []
    numbers: list[dict[str, Any]] = []
    for name, arm in arms.items():
        ratios = [r for r in (speed_up(run) for run in arm["runs"]) if r is not None]
        if not ratios:
            findings.append(f"{name}: a method diverged in every run, so nothing can be compared")
            words[name] = "does not hold here"
            continue
        cells = [cell for cell in (_cell(name, arm, loss) for loss in losses) if cell is not None]
        cells.append(number("to the larger of the two final losses", ratios, _group(name, POOLED)))
        numbers += cells + _others(name, arm, losses)
        if len(ratios) < 2:
            findings.append(f"{name}: one run, ratio {ratios[0]:.2f}; shown, but too little to judge by")
            continue
        won = sum(cell["low"] is not None and cell["low"] > WORTHWHILE for cell in cells)
        words[name] = "holds" if won == len(cells) else "holds partly" if won else "does not hold here"
        findings.append(_finding(name, arm, ratios, won, len(cells)) + _tuned_text(arm, losses))
    same = set(words.values())
    whole = same.pop() if len(same) == 1 else "holds partly" if same else "not judged"
    each = ", ".join(f"{name}: {word}" for name, word in words.items())
    stated = "".join(f"{loss:g}, " for loss in losses)
    return {
        "verdict": whole,
        "rule": f"rounds of GD at 1/L-bar over rounds of Algorithm 1 to training losses of {stated}and to the larger "
        f"of the two final losses. A setting holds where the 95 % bootstrap interval over runs lies above "
        f"{WORTHWHILE:g} at every loss, partly where at some. Settings of two runs or more: {each}",
        "findings": findings,
        "numbers": numbers,
    }


def fair(arms: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The verdict against fair rivals, one setting per arm; see :mod:`ownstep.paper.machinery.fairness`."""
    cells: dict[str, list[list[float]]] = {}
    for arm in arms.values():
        for rival in labels(arm):
            ratios = [r for r in (speed_up(run, against=rival) for run in arm["runs"]) if r is not None]
            cells.setdefault(rival, []).append(ratios)
    return fairness.against(cells, "settings")


def beside(arms: Mapping[str, Mapping[str, Any]], other: str) -> str:
    """For the report, computed: what is left of the speed-up against a baseline that the claim does not name."""
    parts, left = [], False
    for name, arm in arms.items():
        ratios = [r for r in (speed_up(run, against=other) for run in arm["runs"]) if r is not None]
        if len(ratios) > 1:
            found = interval(ratios)
            parts.append(f"{found} ({name})")
            left = left or found.low > WORTHWHILE
    if not parts:
        return ""
    ending = "" if left else ": none is left beyond the spread of the runs"
    return f" Against {other} the speed-up to the final losses is {', '.join(parts)}{ending}."


def _cell(name: str, arm: Mapping[str, Any], loss: float) -> dict[str, Any] | None:
    pairs = [p for p in (at_loss(run, loss) for run in arm["runs"]) if p is not None]
    if not pairs:
        return None
    saved = interval([theirs - ours for theirs, ours in pairs])
    mean, low, high = (
        f"{v:,.0f}" if abs(v) >= 10 else f"{round(v, 1) + 0.0:.1f}" for v in (saved.mean, saved.low, saved.high)
    )
    spread = f" [{low}, {high}]" if saved.runs > 1 else ""
    ratios = [theirs / ours for theirs, ours in pairs]
    return number(f"to a loss of {loss:g}", ratios, _group(name, POOLED), f"{mean}{spread} rounds saved")


def _group(name: str, against: str) -> str:
    return f"{name}: rounds of {against} over those of {OURS}"


def _tuned(arm: Mapping[str, Any], losses: Sequence[float]) -> list[float]:
    """Rounds of tuned GD over those of Algorithm 1 to the loss it was tuned for, in the runs in which both arrive."""
    runs = [run["methods"] for run in arm["runs"] if losses and TUNED in run["methods"]]
    pairs = [(rounds_to(run[TUNED], losses[-1]), rounds_to(run[OURS], losses[-1])) for run in runs]
    return [theirs / ours for theirs, ours in pairs if theirs is not None and ours]


def _tuned_text(arm: Mapping[str, Any], losses: Sequence[float]) -> str:
    having = [run for run in arm["runs"] if losses and TUNED in run["methods"]]
    if not having:
        return ""
    known = [(run["methods"][TUNED]["step"], run["devices"]["mean_step"]) for run in having]
    steps = [step / mean for step, mean in known if step is not None]
    text = f". {TUNED}" + (f", at {min(steps):.3g} to {max(steps):.3g} times Algorithm 1's mean step," if steps else "")
    arrived = sum(rounds_to(run["methods"][TUNED], losses[-1]) is not None for run in having)
    text += f" reaches a loss of {losses[-1]:g} in {arrived} of {len(having)} runs"
    ratios = _tuned(arm, losses)
    if ratios:
        return text + f", in {interval(ratios)} times Algorithm 1's rounds"
    return text + ("; Algorithm 1 in none of them" if arrived else "")


def _others(name: str, arm: Mapping[str, Any], losses: Sequence[float]) -> list[dict[str, Any]]:
    """The baselines the claim does not name, to the larger of the two final losses; shown, not judged."""
    out = []
    ratios = _tuned(arm, losses)
    if ratios:
        out.append(number(f"to a loss of {losses[-1]:g}", ratios, _group(name, TUNED), "not judged"))
    for other in UNNAMED:
        ratios = [r for r in (speed_up(run, against=other) for run in arm["runs"]) if r is not None]
        if ratios:
            out.append(number("to the larger of the two final losses", ratios, _group(name, other), "not judged"))
    return out


def labels(arm: Mapping[str, Any]) -> list[str]:
    """The methods of an arm, in the order in which they were first run; not every run need have all of them."""
    return list(dict.fromkeys(label for run in arm["runs"] for label in run["methods"]))


def _finding(name: str, arm: Mapping[str, Any], ratios: Sequence[float], won: int, cells: int) -> str:
    gains = [run["devices"]["gain"] for run in arm["runs"]]
    text = f"{name}, {len(gains)} runs: ahead at {won} of {cells} losses; predicted gain {np.mean(gains):.2f}, "
    text += f"speed-up to the final losses over GD 1/L-bar {interval(ratios)}"
    if lost := ratios.count(0.0):
        text += f" (0 in {lost} in which Algorithm 1 diverged)"
    for other in UNNAMED:
        more = [r for r in (speed_up(run, against=other) for run in arm["runs"]) if r is not None]
        if more:
            text += f", over {other} {interval(more)}"
        elif other in labels(arm):
            text += f"; {other} diverged"
    finals = {}
    for label in (name for name in labels(arm) if name != TUNED):
        ends = [_end(run["methods"][label]) for run in arm["runs"] if label in run["methods"]]
        known = [e for e in ends if e is not None]
        if known:
            partly = f" (in {len(known)} of {len(ends)} runs)" if len(known) < len(ends) else ""
            finals[label] = f"{np.mean(known):.3f}{partly}"
    return text + ". Final training loss: " + ", ".join(f"{k} {v}" for k, v in finals.items())
