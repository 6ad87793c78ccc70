"""Does the speed-up over pooled GD grow along a scale? What the two experiments on splits share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ownstep.engines import run as run_method
from ownstep.history import History, finite
from ownstep.methods import GD, Method, Nesterov
from ownstep.paper.machinery import fairness, mnist_problem
from ownstep.paper.machinery.bootstrap import interval, number
from ownstep.paper.machinery.curves import diverged, on_one_grid, spread, to_common_level
from ownstep.paper.machinery.neural import MATCHED, NESTEROV, OURS, OURS_DEFAULT, POOLED, TRUE, TUNED, WORTHWHILE
from ownstep.paper.machinery.runner import Pieces

METHODS: dict[str, Method] = {POOLED: GD("mean"), MATCHED: GD("matched")}
BESIDE: dict[str, Method] = {TRUE: GD("true"), TUNED: GD("tuned"), NESTEROV: Nesterov("mean")}
"""Shown beside what is judged; GD is tuned to arrive first where Algorithm 1 ends."""
SETTINGS = (
    ("compared with", "GD at 1/L-bar", "and GD at the matched mean step", "separates step length from local geometry"),
    ("also run", "nothing", "GD at 1/L, GD tuned, Nesterov; the network: on the first split, without the search",
     "what else a user would try"),
)  # fmt: skip
SHOWN = (OURS, OURS_DEFAULT, *METHODS, *BESIDE)


def run(
    values: Sequence[float],
    split: Callable[[Any, int], mnist_problem.Splitter],
    quick: bool,
    seed: int,
    progress: bool | None,
    seeds: int | None,
    pieces: Pieces | None,
    axis: str,
) -> dict[str, Any]:
    """Speed-ups for every value of the scale, over several splits each; ``split(value, seed)`` makes one."""
    rounds, repeats = (60, 2) if quick else (1000, 8)
    kept, arms = pieces or Pieces(), []
    for value in values:
        runs = [
            kept(f"{value}, {s}", _one, quick, s, split(value, s), rounds, progress, s == seed)
            for s in range(seed, seed + (seeds or repeats))
        ]
        arms.append({"value": float(value), "runs": runs})
    return {"axis": axis, "rounds": rounds, "model": runs[0]["model"], "arms": arms}


def methods(model: str, rounds: int, first: bool) -> dict[str, Method]:
    """What is run: for the network no search, and beside what is judged the first split alone."""
    every = mnist_problem.ours(model, rounds, first) | METHODS | BESIDE
    if model != mnist_problem.NETWORK:
        return every
    left_out = {TUNED} if first else set(BESIDE)
    return {name: method for name, method in every.items() if name not in left_out}


def _one(
    quick: bool,
    seed: int,
    split: mnist_problem.Splitter,
    rounds: int,
    progress: bool | None,
    first: bool,
) -> dict[str, Any]:
    setting = mnist_problem.problem(quick, seed, split)
    devices = setting.plan.devices
    histories: dict[str, History] = {}
    for name, method in methods(setting.model, rounds, first).items():
        goal = histories[OURS].best_value if histories else None
        histories[name] = run_method(
            method,
            setting.problem,
            rounds,
            devices=devices,
            progress=progress,
            name=name,
            seed=seed,
            search_target=goal,
        )
    gaps = {name: [finite(float(g)) for g in h.gap(setting.optimum)] for name, h in histories.items()}
    return {
        "seed": seed,
        "model": setting.model,
        "gain": devices.gain,
        "gain_over_true_L": setting.plan.gain_over_true,
        "final_gap": {name: gap[-1] for name, gap in gaps.items()},
        "accuracy": {name: setting.accuracy(h.best_x) for name, h in histories.items()},
        "switched_at": {name: h.switched_at for name, h in histories.items() if h.switched_at is not None},
        "L": devices.L.tolist(),
        "series": {name: gap[:: max(1, rounds // 100)] for name, gap in gaps.items()},
    }


def speed_ups(arm: dict[str, Any], stride: int, against: str = POOLED) -> list[float]:
    """Rounds of a baseline over rounds of Algorithm 1, to the worse of the gaps they end at.

    Zero where Algorithm 1 alone diverged; a run in which the baseline did says nothing.
    """
    found = (_speed_up(one, stride, against) for one in arm["runs"])
    return [ratio for ratio in found if ratio is not None]


def _speed_up(one: Mapping[str, Any], stride: int, against: str) -> float | None:
    if against not in one["series"] or _wild(one, against):
        return None
    if _wild(one, OURS):
        return 0.0
    curves = {name: ([stride * k for k in range(len(gap))], gap) for name, gap in one["series"].items()}
    rounds = to_common_level(curves, [against, OURS])
    return None if rounds is None else rounds[against] / rounds[OURS]


def _least_rise(before: Mapping[str, Any], after: Mapping[str, Any], stride: int) -> float:
    """By how much the speed-up grows from one arm to another: the low end of the interval over seeds.

    Zero, which is no growth, where a seed is missing or says nothing.
    """
    a, b = ({one["seed"]: _speed_up(one, stride, POOLED) for one in arm["runs"]} for arm in (before, after))
    pairs = [(a.get(seed), b.get(seed)) for seed in a | b]
    ratios = [high / low for low, high in pairs if low and high]
    return interval(ratios).low if ratios and len(ratios) == len(pairs) else 0.0


def _wild(one: Mapping[str, Any], name: str) -> bool:
    """Did a method diverge in this run, be it after the last point that was kept?"""
    ends = one.get("final_gap", {})
    return diverged([*one["series"][name], *([ends[name]] if name in ends else [])])


def judge(result: Mapping[str, Any], more: str, rising: bool) -> dict[str, Any]:
    """Computed: the speed-up must grow at every step the claimed way, and by enough from one end to the other.

    Growth is a ratio of speed-ups on splits of the same seed; its whole bootstrap interval has to lie above the bound.
    Of two or three splits that interval is their range.
    """
    arms = result["arms"] if rising else result["arms"][::-1]
    stride = max(1, result["rounds"] // 100)
    means = [float(np.mean(s)) if (s := speed_ups(arm, stride)) else float("nan") for arm in arms]
    steps = [_least_rise(a, b, stride) > 1 for a, b in pairwise(arms)]
    calm = not any(_wild(one, OURS) for arm in arms for one in arm["runs"])
    apart = calm and _least_rise(arms[0], arms[-1], stride) > WORTHWHILE
    word = "holds" if all(steps) and apart else "holds partly" if apart else "does not hold here"
    findings = []
    for arm, mean in zip(arms, means, strict=True):
        found, matched = speed_ups(arm, stride), speed_ups(arm, stride, MATCHED)
        gains = [r["gain"] for r in arm["runs"]]
        findings.append(
            f"{more} = {arm['value']:g}: speed-up {mean:.3f} over {POOLED} and "
            f"{np.mean(matched) if matched else float('nan'):.3f} over GD at the matched mean step, mean of "
            f"{len(found)} splits{lost(found)}; predicted gain {np.mean(gains):.3f}{_others(arm, stride)}"
        )
    numbers = [
        number(f"{more} = {arm['value']:g}", found, f"rounds of {against} over those of {OURS}")
        for against in (POOLED, MATCHED)
        for arm in arms
        if (found := speed_ups(arm, stride, against))
    ]
    return {
        "verdict": word,
        "rule": f"the speed-up over {POOLED}, in rounds to the larger of the two final gaps, rises at every step "
        f"as {more} {'grows' if rising else 'falls'} (here in {sum(steps)} of {len(steps)}), and by more than "
        f"{WORTHWHILE:g}x from one end to the other (here from {means[0]:.3f} to {means[-1]:.3f} in the mean), each "
        "with the whole bootstrap interval over the splits, and Algorithm 1 diverges nowhere; partly if only the ends "
        "are so far apart",
        "findings": findings,
        "numbers": numbers,
    }


def _others(arm: dict[str, Any], stride: int) -> str:
    """The baselines that the claim does not name, where they were run."""
    beside = [name for name in SHOWN if name not in (OURS, *METHODS)]
    found = {name: speed_ups(arm, stride, name) for name in beside}
    told = [f"{np.mean(f):.3f} over {name}{_alone(arm, name)}" for name, f in found.items() if f]
    wild = [name for name in beside if any(name in one["series"] and _wild(one, name) for one in arm["runs"])]
    return (f"; speed-up {', '.join(told)}" if told else "") + "".join(f"; {name} diverged" for name in wild)


def _alone(arm: dict[str, Any], name: str) -> str:
    return " (first split)" if sum(name in one["series"] for one in arm["runs"]) < len(arm["runs"]) else ""


def lost(found: Sequence[float]) -> str:
    """How often Algorithm 1 diverged, if it did."""
    return f" (0 in {found.count(0.0)} in which Algorithm 1 diverged)" if 0.0 in found else ""


def verdict(result: dict[str, Any], more: str, rising: bool) -> dict[str, Any]:
    """See :func:`judge`; of the paper's network, where it was trained."""
    return mnist_problem.judged(result, lambda part: judge(part, more, rising))


def fair(result: dict[str, Any]) -> dict[str, Any]:
    """The verdict against fair rivals, one setting per value on the axis; of the model that decides."""
    part = next(iter(mnist_problem.parts(result).values()))
    stride = max(1, part["rounds"] // 100)
    cells = {name: [speed_ups(arm, stride, name) for arm in part["arms"]] for name in SHOWN if name != OURS}
    return fairness.against(cells, f"settings ({part['axis']})")


def why(result: dict[str, Any]) -> str:
    """For the report: how much there is to gain by the devices' constants, which is what a split can change."""
    text = "A split changes who holds which images. Own steps gain only if the devices' losses then curve differently."
    for model, part in mnist_problem.parts(result).items():
        gains = [run["gain"] for arm in part["arms"] for run in arm["runs"]]
        middle = float(np.median(gains))
        text += (
            f" For {model} the gain predicted from their constants lies between {min(gains):.3f} and {max(gains):.3f} "
            f"over all splits. With a median of {middle:.3f} own steps have "
            f"{'next to nothing' if middle < WORTHWHILE else 'something'} to gain."
        )
    return text


def charts(result: dict[str, Any]) -> list[dict[str, Any]]:
    """For the report: one chart a value and model, the median of the splits and their range."""
    out = []
    for model, part in mnist_problem.parts(result).items():
        where, step = mnist_problem.pointer(result, part), max(1, part["rounds"] // 100)
        for arm in part["arms"]:
            lines = []
            for name in SHOWN:
                gaps = [one["series"][name] for one in arm["runs"] if name in one["series"]]
                if not gaps:
                    continue
                at, rows = on_one_grid([([step * k for k in range(len(gap))], gap) for gap in gaps], after=np.inf)
                middle, low, high = (curve.tolist() for curve in spread(rows))
                lines.append(
                    {"name": name + _alone(arm, name), "x": at.tolist(), "y": middle, "low": low, "high": high}
                )
            shown = {"title": f"{model}, {part['axis']} = {arm['value']:g}", "pointer": where, "log": True}
            note = f"lines: the median of {len(arm['runs'])} splits; shaded: their range"
            out.append(shown | {"y": mnist_problem.gap_label(model), "lines": lines, "note": note})
    return out
