"""Where does the speed-up come from? Each experiment's, split by ablation into step, sampling, geometry and weights.

From GD at 1/L-bar on pooled batches to Algorithm 1, one thing is changed at a time:

    longer step   GD at 1/L-bar      ->  GD at Algorithm 1's mean step
    sampling      pooled batches     ->  batches drawn device by device      (mini-batches alone)
    geometry      one common step    ->  every device its own, with the same mean

Each factor is the ratio of the rounds two neighbours need to one common level, so their product is the whole speed-up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ownstep import partition as partitions
from ownstep import pep
from ownstep.data import load
from ownstep.engines import run as run_method
from ownstep.history import finite
from ownstep.methods import GD, At, Method, Never, OwnStep
from ownstep.paper.fig1_worst_cases.pep_curves import best_step
from ownstep.paper.machinery import mnist_problem
from ownstep.paper.machinery.bootstrap import interval, number
from ownstep.paper.machinery.curves import to_common_level
from ownstep.paper.machinery.neural import MATCHED, OURS, POOLED, STRATIFIED_MATCHED, WORTHWHILE
from ownstep.plan import plan
from ownstep.problems import logistic_regression, optimum
from ownstep.smoothness import exact
from ownstep.support.errors import OwnstepError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLAIM = "The acceleration comes from decentralisation itself: every device steps by the geometry of its own loss."

SAYS = "The paper credits the devices' own steps, and compares with GD at 1/L-bar alone."
WHY = (
    "GD at 1/L-bar differs from Algorithm 1 in three ways at once. Its step is shorter, its batches are drawn "
    "otherwise, and its step is common to all devices. Changing one at a time shows which of them matters."
)

SETTINGS = (
    ("longer step", "not separated", "GD at Algorithm 1's mean step sum_i w_i / L_i", "the step alone"),
    ("sampling", "not separated", "on mini-batches, GD on batches drawn device by device", "the variance alone"),
    ("geometry", "credited with everything", "what is left: own steps against one common step of the same mean", ""),
    ("weights", "1/N for every device", "shares of the samples; 1/N too", "1/N minimises another function"),
    ("level", "none", "the worst of the best losses of the methods compared", "all of them reach it"),
    ("runs", "8", "those recorded; 8 on digits", "intervals are 95 % bootstrap"),
)  # fmt: skip

UNIFORM = "Algorithm 1, uniform weights"
CHAIN = (POOLED, MATCHED, STRATIFIED_MATCHED, OURS)
FACTORS = {MATCHED: "longer step", STRATIFIED_MATCHED: "sampling", OURS: "geometry"}
BEST = "GD at its best fixed step"
TINTS, WHOLE = {"longer step": "#009E73", "sampling": "#CC79A7", "geometry": "#D55E00"}, "#222222"
REPOSITORY = Path(__file__).resolve().parents[4] / "results"
RECORDED = ("w8a", "cifar10", "sst2", "mnist", "dirichlet", "devices")


def run(
    quick: bool = False,
    seed: int = 0,
    progress: bool | None = None,
    seeds: int | None = None,
    results: Path = REPOSITORY,
) -> dict[str, Any]:
    """From what is recorded below ``results``, and fresh runs on digits; quick: two short runs on digits alone."""
    experiments: dict[str, Any] = {}
    if not quick:
        for name in RECORDED:
            experiments |= {label: _split(runs) for label, runs in _recorded(name, results)}
    count = seeds or (2 if quick else 8)
    fresh = [_digits(s, 60 if quick else 1500, progress) for s in range(seed, seed + count)]
    experiments["digits, logistic, Dirichlet 0.1"] = _split(fresh)
    return {"experiments": experiments, "worst_case": _worst_case(4 if quick else 20)}


def _recorded(name: str, folder: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Arms of an experiment recorded in the folder, or else in the repository: runs of method -> (rounds, losses)."""
    path = folder / name / "result.json"
    path = path if path.exists() else REPOSITORY / name / "result.json"
    try:
        result = json.loads(path.read_text())["result"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OwnstepError(
            f"attribution reads recorded results, and {str(path)!r} is none: {error}; run 'ownstep paper {name}' first"
        ) from error
    if name == "w8a":
        for rows in ("subset", "all"):
            for split, arm in result[rows].items():
                series = {m: (s["round"], s["gap"]) for m, s in arm["series"].items()}
                yield f"w8a {rows}, {split}", [{"seed": 0, "gain": arm["plan"]["gain"], "series": series}]
    elif name in ("dirichlet", "devices"):
        parts = mnist_problem.parts(result)
        for (model, part), arm in ((item, arm) for item in parts.items() for arm in item[1]["arms"]):
            if name == "devices" and arm["value"] == 5:
                continue  # five devices, Dirichlet 0.1: the splits of the other experiment
            stride = max(1, part["rounds"] // 100)
            yield (
                f"{name}, {part['axis']} {arm['value']:g}" + (f", {model}" if len(parts) > 1 else ""),
                [
                    {
                        "seed": one["seed"],
                        "gain": one["gain"],
                        "series": {m: ([stride * i for i in range(len(s))], s) for m, s in one["series"].items()},
                    }
                    for one in arm["runs"]
                ],
            )
    else:
        for label, arm in result["arms"].items():
            yield (
                f"{name}, {label}",
                [
                    {
                        "seed": one["seed"],
                        "gain": one["devices"]["gain"],
                        "series": {m: (s["rounds"], s["loss"]) for m, s in one["methods"].items()},
                    }
                    for one in arm["runs"]
                ],
            )


def _digits(seed: int, rounds: int, progress: bool | None) -> dict[str, Any]:
    """One Dirichlet split of digits, full batch: Algorithm 1 with both kinds of weights, GD with both steps."""
    data: Any = load("digits")
    split = partitions.dirichlet(data.labels, 5, 0.1, seed)
    problem = logistic_regression(data.rows, data.labels, split, mu=1e-2)
    chosen = plan(problem.weights, exact(problem))
    best = optimum(problem).value
    methods: dict[str, Method] = {
        OURS: OwnStep(), UNIFORM: OwnStep(weights="uniform"), POOLED: GD("mean"), MATCHED: GD("matched"),
    }  # fmt: skip
    series = {}
    for name, method in methods.items():
        history = run_method(method, problem, rounds, devices=chosen.devices, progress=progress, name=name)
        series[name] = (list(range(history.rounds + 1)), [finite(float(v)) for v in history.gap(best)])
    return {"seed": seed, "gain": chosen.devices.gain, "series": series}


def _split(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The factors of every run, and the curves of the first."""
    found = []
    for one in runs:
        chain = [m for m in CHAIN if m in one["series"]]
        rounds = to_common_level(one["series"], chain)
        row: dict[str, Any] = {"seed": one["seed"], "gain": one["gain"], "rounds": rounds, "factors": {}}
        if rounds is not None:
            for before, after in pairwise(chain):
                row["factors"][FACTORS[after]] = rounds[before] / rounds[after]
            row["factors"]["all"] = rounds[chain[0]] / rounds[chain[-1]]
        if UNIFORM in one["series"]:
            weighed = to_common_level(one["series"], [UNIFORM, OURS])
            row["uniform_final"], row["samples_final"] = (_last(one["series"][m][1]) for m in (UNIFORM, OURS))
            row["factors"]["weights"] = None if weighed is None else weighed[UNIFORM] / weighed[OURS]
        found.append(row)
    first = {
        m: {"rounds": list(r), "loss": list(v)} for m, (r, v) in runs[0]["series"].items() if m in (*CHAIN, UNIFORM)
    }
    return {"runs": found, "first": {m: _thinned(s) for m, s in first.items()}}


def _last(values: Sequence[Any]) -> float | None:
    return None if values[-1] is None else float(values[-1])


def _thinned(series: Mapping[str, list[Any]], points: int = 100) -> dict[str, list[Any]]:
    at = np.unique(np.linspace(0, len(series["rounds"]) - 1, points).astype(int))
    return {key: [values[i] for i in at] for key, values in series.items()}


def _worst_case(rounds: int) -> dict[str, Any]:
    """The same ablation of the exact worst case, at the settings of Fig. 1a."""
    devices = pep.repeated([1 / 3, 3], mu=0.1)
    switch = 12 if rounds >= 12 else rounds // 2
    methods: dict[str, Method] = {
        POOLED: GD("mean"), MATCHED: GD("matched"), OURS: OwnStep(At(switch)), "never switching": OwnStep(Never()),
    }  # fmt: skip

    def worst(method: Method) -> float:
        return float(pep.worst_case(method, devices, rounds, r0=10, rstar=1).upper)

    values = {name: worst(method) for name, method in methods.items()}
    best = best_step(devices, rounds)
    return {
        "rounds": rounds, "switch": switch, "gain": devices.gain, "values": values | {BEST: best["upper"]},
        "best_scale": best["step"] * devices.L_bar,
    }  # fmt: skip


def verdict(result: dict[str, Any]) -> dict[str, Any]:
    """Holds where, of the experiments with a speed-up, geometry has a share in each."""
    words: dict[str, bool] = {}
    findings, numbers = [], []
    for name, experiment in result["experiments"].items():
        whole = _factors(experiment, "all")
        if not whole:
            findings.append(f"{name}: a method diverged, nothing to compare")
            continue
        count, lost = len(whole), len(experiment["runs"]) - len(whole)
        text = f"{name}, {count} run{'s' * (count > 1)}"
        text += f" ({lost} more in which a method diverged)" if lost else ""
        text += f": {_say(whole)} from"
        parts = [f for f in FACTORS.values() if _factors(experiment, f)]
        text += " x".join(f" {f} {_say(_factors(experiment, f))}" for f in parts)
        numbers += [number(f, _factors(experiment, f), name) for f in ("all", *parts)]
        if _above(whole):
            words[name] = _above(_factors(experiment, "geometry"))
        findings.append(text + _weights(experiment))
    findings.append(_worst(result["worst_case"]))
    helped = [name for name, yes in words.items() if yes]
    whole_word = "does not hold here" if not helped else "holds" if len(helped) == len(words) else "holds partly"
    return {
        "verdict": whole_word,
        "rule": f"of the experiments whose whole speed-up is above {WORTHWHILE:g} (its 95 % bootstrap interval where "
        f"there are several runs), {len(words)} in number, geometry alone is above {WORTHWHILE:g} in {len(helped)}"
        + (f": {'; '.join(helped)}" if helped else ""),
        "findings": findings,
        "numbers": numbers,
    }


def _factors(experiment: Mapping[str, Any], factor: str) -> list[float]:
    return [r["factors"][factor] for r in experiment["runs"] if r["factors"].get(factor) is not None]


def _above(values: Sequence[float]) -> bool:
    return (interval(values).low if len(values) > 1 else values[0]) > WORTHWHILE


def _say(values: Sequence[float]) -> str:
    return str(interval(values)) if len(values) > 1 else f"{values[0]:.2f}"


def _weights(experiment: Mapping[str, Any]) -> str:
    """What the paper's literal 1/N does, where it was run."""
    found = _factors(experiment, "weights")
    ends = [(r["uniform_final"], r["samples_final"]) for r in experiment["runs"] if r.get("uniform_final") is not None]
    if not ends:
        return ""
    worse = [u / max(s, 1e-16) for u, s in ends if s is not None]
    text = f"; with uniform weights the final gap is {np.median(worse):.3g} times as large (median)"
    return text + (f", rounds to the level both reach {_say(found)} times as many" if found else "")


def _worst(found: Mapping[str, Any]) -> str:
    values = found["values"]
    text = (
        f"worst case of Fig. 1a after {found['rounds']} rounds, switch {found['switch']} (gain {found['gain']:.2f}): "
    )
    text += ", ".join(f"{name} {value:.4g}" for name, value in values.items())
    if values[MATCHED] > values[POOLED] > values[OURS]:
        text += "; here the longer step alone does harm and own steps do not"
    return text + ("; GD at its best fixed step is better still" if values[BEST] < values[OURS] else "")


def figure(result: dict[str, Any]) -> Figure:
    """The factors of every speed-up on a logarithmic axis; their product is the whole, which is marked."""
    from ownstep import plots
    from ownstep.paper.machinery.pictures import ONE, key

    every = {n: e for n, e in result["experiments"].items() if _factors(e, "all")}
    sped = {n: e for n, e in every.items() if _above(_factors(e, "all"))}
    shown = sped or every
    drawn, axes = plots.new_figure(1, width=plots.PAGE, height=0.23 * len(shown) + 1.3)
    ax = axes[0, 0]
    helped = sum(_above(_factors(e, "geometry")) for e in sped.values())
    plots.headline(
        drawn,
        f"Own geometry explains {helped} of {len(sped)} speed-ups over GD at the common step; a longer step or the "
        "sampling explains the others",
    )
    ax.axvline(1, **ONE)
    for row, experiment in enumerate(shown.values()):
        for i, (factor, tint) in enumerate(TINTS.items()):
            values = _factors(experiment, factor)
            if values:
                found, y = interval(values), row + 0.2 * (i - 1)
                ax.plot([found.low, found.high], [y, y], color=tint, lw=2.5, alpha=0.4, label="_interval")
                ax.plot(found.mean, y, "o", color=tint, ms=4.5, label="_mean")
        whole = interval(_factors(experiment, "all")).mean
        ax.plot([whole] * 2, [row - 0.36, row + 0.36], color=WHOLE, lw=1.6, label="_whole")
        ax.annotate(
            f"{whole:.2f}", (1, row), (5, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
            va="center", fontsize=plots.TEXT, color=WHOLE,
        )  # fmt: skip
    ax.set_yticks(range(len(shown)), [_plain(name) for name in shown])
    ax.set(xscale="log", ylim=(len(shown) - 0.4, -0.6))
    ax.tick_params(axis="y", length=0)
    key(ax, TINTS | {"whole speed-up": WHOLE}, bar="whole speed-up")
    plots.finish(ax, "", "times fewer rounds (mean and 95 % interval over the runs)", "")
    return drawn


def _plain(name: str) -> str:
    """An experiment's name as a reader would say it."""
    words = {"_": " ", "differences": "our constants", ", paper": ", paper's constants", "subset": "400 rows"}
    words |= {"w8a all": "w8a all rows", "the paper's network": "network", "devices, N": "devices, N ="}
    words |= {"w8a": "W8A", "cifar10": "CIFAR-10", "sst2": "SST-2", "mnist": "MNIST", "dirichlet": "Dirichlet"}
    for typed, said in words.items():
        name = name.replace(typed, said)
    return name
