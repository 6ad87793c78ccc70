"""Fig. 2: logistic regression on W8A, split by labels, norms and eigenvalues.

Runs the paper's setting on its 400-row subset, and a plainer one on all 49,749 rows: exact constants, start at the
origin, and the switch that needs no tuning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ownstep import partition as partitions
from ownstep import plots
from ownstep.data import load
from ownstep.engines import Comparison, baselines, compare
from ownstep.methods import At, Method, OwnStep, Plateau, Switch
from ownstep.paper.machinery import fairness
from ownstep.paper.machinery.bootstrap import number
from ownstep.paper.machinery.neural import WORTHWHILE
from ownstep.paper.machinery.pictures import spoken
from ownstep.paper.machinery.runner import Pieces
from ownstep.partition import squared_norms
from ownstep.problems import BinaryLogistic, optimum
from ownstep.smoothness import Smoothness, exact, trace

CLAIM = (
    "On W8A, splitting by label, norm or eigenvalue needs substantially fewer iterations than GD on the pooled data."
)

SAYS = (
    "At iteration 800 the logarithm of the loss is 3.57 for GD, 3.40 by labels and 3.33 by norms and eigenvalues; the "
    "constants are 1.0 and 3.76 by labels (Fig. 2)."
)
WHY = (
    "On the paper's subset the start is far from the solution. There own steps help. Near the solution they lead to "
    "another point. GD may also take the true step 1/L. It is several times longer than 1/L-bar, because L-bar is a "
    "mean over samples and far exceeds the smoothness of the pooled loss."
)

SETTINGS = (
    ("rows", "400: 200 of label -1 with squared norm < 10, 200 of label +1 with > 6", "the same, and all 49,749",
     "a subset chosen by norm and label is the most favourable case"),
    ("which rows", "not said", "drawn with the seed", "the first 200 have far smaller norms than the paper's L_1"),
    ("mu", "0.01", "0.01 on the subset, 0.001 on all rows", "0.001 leaves room for acceleration to show"),
    ("L_i", "mean over samples of ||a||^2/4 + mu", "the same on the subset, the largest eigenvalue on all rows",
     "the remark describes the eigenvalue, the figure shows the mean"),
    ("x0", "random, radius 100 (labels) or 10", "the same on the subset, the origin on all rows", "the usual start"),
    ("switch", "at iteration 400 of 800", "the same on the subset, Plateau on all rows", "nobody knows the round"),
    ("weights", "1/N", "samples and uniform", "1/N minimises another function when devices differ in size"),
    ("baselines", "GD with the mean of the L_i", "and GD at 1/L, matched, tuned; Nesterov", "see the README"),
)  # fmt: skip

RULES = ("by_label", "by_norm", "by_eigenvalue")
LEVELS = (1e-1, 1e-2, 1e-4)
UNIFORM = "Algorithm 1, uniform weights"


def run(
    quick: bool = False, seed: int = 0, progress: bool | None = None, pieces: Pieces | None = None
) -> dict[str, Any]:
    """All arms of the experiment as plain data; ``quick`` takes 1,500 rows in place of all, and fewer rounds."""
    data = load("w8a")
    rows, labels = data.rows.tocsr(), data.labels
    chosen = subset(rows, labels, seed)
    if quick:
        rows, labels = rows[:1500], labels[:1500]
    few_rows, few_labels = data.rows.tocsr()[chosen], data.labels[chosen]
    (fewer, rounds), kept, few, every = (200, 200) if quick else (800, 3000), pieces or Pieces(), {}, {}
    for rule in RULES:
        few[rule] = kept(f"subset {rule}", _subset_arm, few_rows, few_labels, rule, fewer, seed, progress)
    for rule in RULES:
        every[rule] = kept(f"all {rule}", _full_arm, rows, labels, rule, rounds, seed, progress)
    return {"subset": few, "all": every, "rows": {"subset": len(chosen), "all": int(rows.shape[0])}}


def subset(rows: Any, labels: NDArray[Any], seed: int) -> NDArray[np.intp]:
    """The paper's 400 rows: short ones of label -1 and long ones of label +1."""
    size, rng = squared_norms(rows), np.random.default_rng(seed)
    short = rng.choice(np.flatnonzero((labels < 0) & (size < 10)), 200, replace=False)
    long = rng.choice(np.flatnonzero((labels > 0) & (size > 6)), 200, replace=False)
    return np.concatenate([short, long])


def _subset_arm(rows: Any, labels: Any, rule: str, rounds: int, seed: int, progress: bool | None) -> dict[str, Any]:
    problem = BinaryLogistic(rows, labels, partitions.make(rule, rows, labels, 2, seed), mu=0.01)
    mean = trace(problem)
    measured = Smoothness(mean.values, mean.kind, mean.how, exact(problem).pooled)
    direction = np.random.default_rng(seed + 1).standard_normal(problem.dim)
    x0 = (100 if rule == "by_label" else 10) * direction / np.linalg.norm(direction)
    return _arm(problem, measured, x0, At(rounds // 2), rounds, seed, True, progress)


def _full_arm(rows: Any, labels: Any, rule: str, rounds: int, seed: int, progress: bool | None) -> dict[str, Any]:
    problem = BinaryLogistic(rows, labels, partitions.make(rule, rows, labels, 2, seed), mu=0.001)
    return _arm(problem, exact(problem), problem.x0(), Plateau(), rounds, seed, False, progress)


def _arm(
    problem: BinaryLogistic, measured: Smoothness, x0: NDArray[Any], switch: Switch, rounds: int, seed: int,
    full: bool, progress: bool | None,
) -> dict[str, Any]:  # fmt: skip
    methods: dict[str, Method] = {"Algorithm 1": OwnStep(switch), UNIFORM: OwnStep(switch, weights="uniform")}
    methods |= {name: m for name, m in baselines().items() if name != "Algorithm 1"}
    comparison = compare(
        problem,
        methods,
        rounds,
        smoothness=measured,
        x0=x0,
        tolerances=LEVELS,
        full=full,
        seed=seed,
        progress=progress,
        measure_gradient=True,
    )
    return {
        "plan": comparison.plan.to_dict(),
        "samples": problem.counts.tolist(),
        "rows": comparison.rows(),
        "why": _distances(problem, measured, x0, comparison),
        "series": {name: _series(h, comparison.optimum) for name, h in comparison.histories.items()},
    }


def _distances(
    problem: BinaryLogistic, measured: Smoothness, x0: NDArray[Any], comparison: Comparison
) -> dict[str, float]:
    """What decides: how far the start is from x*, against how far the local phase ends from it."""
    best = optimum(problem).x
    own = [optimum(problem.only(i)).x for i in range(len(problem.counts))]
    drawn = optimum(problem.reweighted(problem.weights / measured.values)).x
    span = problem.value(x0) - comparison.optimum
    return {
        "start": float(np.linalg.norm(x0 - best)),
        "devices": float(max(np.linalg.norm(x - best) for x in own)),
        "local_phase_limit": float(np.linalg.norm(drawn - best)),
        "local_phase_gap": (problem.value(drawn) - comparison.optimum) / span,
    }


def _series(history: Any, best: float) -> dict[str, list[Any]]:
    """About a hundred rounds, evenly spaced on a log axis: enough to draw."""
    at = np.unique(np.round(np.geomspace(1, history.rounds + 1, 120)).astype(int)) - 1
    return {
        "round": at.tolist(),
        "gap": history.gap(best)[at].tolist(),
        "value": history.value[at].tolist(),
        "gradient_norm": history.gradient_norm[at].tolist(),
    }


def speed_ups(arm: dict[str, Any], against: str, method: str = "Algorithm 1") -> list[float | None]:
    """Rounds of a baseline over rounds of a method, at each level; None where either did not arrive."""
    rows = {row["method"]: list(row["rounds"].values()) for row in arm["rows"]}
    return [b / a if a and b else None for a, b in zip(rows[method], rows[against], strict=True)]


def judged(arm: dict[str, Any]) -> list[float]:
    """Speed-ups over GD at 1/L-bar at the levels which that reaches: 0 where Algorithm 1 does not."""
    rows = {row["method"]: list(row["rounds"].values()) for row in arm["rows"]}
    return [b / a if a else 0.0 for a, b in zip(rows["Algorithm 1"], rows["GD 1/L-bar"], strict=True) if b]


def verdict(result: dict[str, Any]) -> dict[str, Any]:
    """Computed: in how many (data, partition, level) cells is Algorithm 1 faster than GD at 1/L-bar?"""
    cells = [s for part in ("subset", "all") for arm in result[part].values() for s in judged(arm)]
    won = sum(s > WORTHWHILE for s in cells)
    word = "holds" if cells and won == len(cells) else "holds partly" if won else "does not hold here"
    findings = [_finding(part, rule, arm) for part in ("subset", "all") for rule, arm in result[part].items()]
    return {
        "verdict": word,
        "rule": f"faster than GD at 1/L-bar by more than {WORTHWHILE:g}x in {won} of {len(cells)} settings "
        f"(2 datasets x 3 partitions x gaps {', '.join(f'{t:g}' for t in LEVELS)}, where GD gets there)",
        "findings": findings,
        "numbers": _numbers(result),
    }


def _numbers(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Every cell that is judged: one run each, as nothing here is drawn but the subset and its start."""
    return [
        number(f"{rule}, to a gap of {level:g}", [ratio], f"{part}: rounds of GD 1/L-bar over those of Algorithm 1")
        for part in ("subset", "all")
        for rule, arm in result[part].items()
        for level, ratio in zip(LEVELS, speed_ups(arm, "GD 1/L-bar"), strict=True)
        if ratio
    ]


def _finding(part: str, rule: str, arm: dict[str, Any]) -> str:
    def text(values: Sequence[float | None]) -> str:
        return "/".join("-" if v is None else f"{v:.2f}" for v in values)

    why = arm["why"]
    return (
        f"{part}, {rule}: predicted gain {arm['plan']['gain']:.2f}; speed-up at {'/'.join(f'{t:g}' for t in LEVELS)} "
        f"over GD 1/L-bar {text(speed_ups(arm, 'GD 1/L-bar'))}, over the matched step "
        f"{text(speed_ups(arm, 'GD matched step'))}, over Nesterov {text(speed_ups(arm, 'Nesterov'))}. "
        f"Start {why['start']:.3g} from x*, the local phase ends {why['local_phase_limit']:.3g} from it, at a gap of "
        f"{why['local_phase_gap']:.1e}"
    )


def fair(result: dict[str, Any]) -> dict[str, Any]:
    """Against fair rivals, at every level that the rival reaches: 0 where Algorithm 1 does not."""
    cells: dict[str, list[list[float]]] = {}
    for arm in (arm for part in ("subset", "all") for arm in result[part].values()):
        rows = {row["method"]: list(row["rounds"].values()) for row in arm["rows"]}
        for name, rounds in rows.items():
            pairs = zip(rows["Algorithm 1"], rounds, strict=True)
            cells.setdefault(name, []).extend([b / a if a else 0.0] for a, b in pairs if b)
    return fairness.against(cells, "settings (data, split, gap)")


def figure(result: dict[str, Any]) -> Figure:
    """Relative gap against rounds on the subset and on all rows, split by norm; the message counts every split."""
    drawn, axes = plots.new_figure(2, width=3.45, height=2.7)
    cells = [s for part in ("subset", "all") for arm in result[part].values() for s in judged(arm)]
    rivals = fair(result)["rivals"].values()
    told = [f"than {spoken(one['name'])} in {one['won']} of {one['of']}" for one in rivals]
    plots.headline(
        drawn,
        f"Own steps are faster than GD at the common step in {sum(s > WORTHWHILE for s in cells)} of {len(cells)} "
        f"settings, {', '.join(told)}",
    )
    for ax, part in zip(axes[0], ("subset", "all"), strict=True):
        lines = {}
        for name in ("Algorithm 1", "GD 1/L-bar", "GD matched step", "GD tuned", "Nesterov"):
            series = result[part]["by_norm"]["series"][name]
            lines[name] = plots.Curve(series["round"][1:], series["gap"][1:])
        ax.set(xscale="log", yscale="log", ylim=(1e-5, 3))
        plots.curves(ax, lines, names=False)
        ax.set_xlim(1, max(line.x[-1] for line in lines.values()))
        rows = "the paper's choice" if part == "subset" else "all"
        title = f"{result['rows'][part]:,} rows ({rows}), split by norm"
        plots.finish(ax, title, "round", "(f − f*) / (f(x⁰) − f*)" if part == "subset" else "")
        plots.name_lines(ax)
    return drawn
