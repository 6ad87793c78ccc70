"""Figures of three kinds of experiment: networks run by run, trends along a scale, and contests with rivals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from ownstep import plots
from ownstep.paper.machinery import contest, mnist_problem, neural, trend
from ownstep.paper.machinery.curves import diverged
from ownstep.paper.machinery.neural import MATCHED, NESTEROV, OURS, POOLED, STRATIFIED, STRATIFIED_MATCHED, TUNED
from ownstep.paper.machinery.pictures import ONE, against, band, capital, compared, spoken

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACCURACY = "test accuracy (%)"


def networks(arms: Mapping[str, Mapping[str, Any]], titles: Mapping[str, str], unit: str = "iteration") -> Figure:
    """One row per arm: the median training loss and test accuracy over the runs, with their range."""
    rows = 1.85 if len(arms) > 1 else 2.4
    drawn, axes = plots.new_figure(2, len(arms), width=3.45, height=rows)
    plots.headline(drawn, _networks_say(arms))
    for (left, right), (name, arm) in zip(axes, arms.items(), strict=True):
        losses, rights, lost = _lines(arm)
        left.set_yscale("log")
        count = len(arm["runs"])
        title = f"{titles.get(name, name)}: {count} run{'s' * (count > 1)}"
        title += f" ({', '.join(lost)})" if lost else ""
        for ax, lines in ((left, losses), (right, rights)):
            plots.curves(ax, lines, names=False)
            ax.set_xlim(0, max((line.x[-1] for line in lines.values()), default=1))
            ax.xaxis.set_major_locator(MaxNLocator(4))
            ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        plots.finish(left, title, unit, "training loss")
        plots.finish(right, "Lines: median, bands: range" if arm is next(iter(arms.values())) else "", unit, ACCURACY)
        for ax in (left, right):
            plots.name_lines(ax)
    return drawn


def _lines(arm: Mapping[str, Any]) -> tuple[dict[str, plots.Curve], dict[str, plots.Curve], list[str]]:
    """Losses and test accuracies by method, and who diverged how often; such runs are not drawn."""
    losses, rights, lost = {}, {}, []
    for label in (name for name in neural.labels(arm) if name != STRATIFIED_MATCHED):
        every = [run["methods"][label] for run in arm["runs"] if label in run["methods"]]
        whole = [one for one in every if not diverged(one["loss"])]
        if len(whole) < len(every):
            lost.append(f"{spoken(label)} diverged{_of(len(every) - len(whole), len(every))}")
        if not whole:
            continue
        losses[label] = band([(one["rounds"], one["loss"]) for one in whole])
        tests = [one["test_accuracy"] for one in whole if one.get("test_accuracy", {}).get("rounds")]
        if tests:
            rights[label] = band([(t["rounds"], [100 * v for v in t["values"]]) for t in tests])
    return losses, rights, lost


def _of(some: int, every: int) -> str:
    return "" if some == every else f" in {some} of {every}"


def _networks_say(arms: Mapping[str, Mapping[str, Any]]) -> str:
    """Own steps against GD at the common step, its fair form, and the fastest of the others; ranges over the arms."""
    means: dict[str, list[float]] = {}
    for arm in arms.values():
        for rival in neural.labels(arm):
            ratios = [r for r in (neural.speed_up(run, against=rival) for run in arm["runs"]) if r is not None]
            if ratios and rival not in (OURS, TUNED):
                means.setdefault(rival, []).append(float(np.mean(ratios)))
    return f"Own steps are {compared(means, POOLED, (STRATIFIED, MATCHED))}" if POOLED in means else "A method diverged"


def trends(result: Mapping[str, Any], symbol: str, axis: str) -> Figure:
    """Speed-ups of Algorithm 1 over its rivals along the scale, one panel per model."""
    parts = mnist_problem.parts(result)
    drawn, axes = plots.new_figure(len(parts), width=3.45 if len(parts) > 1 else plots.PAGE, height=2.7, share=True)
    plots.headline(drawn, _trend_says(result, symbol))
    for ax, (model, part) in zip(axes[0], parts.items(), strict=True):
        stride, arms = max(1, part["rounds"] // 100), part["arms"]
        rivals = {
            name: cells
            for name in (POOLED, MATCHED, TUNED, NESTEROV)
            if any(cells := [trend.speed_ups(arm, stride, name) for arm in arms])
        }
        ax.axhline(1, **ONE)
        against(ax, range(len(arms)), rivals)
        for i, cell in enumerate(rivals.get(POOLED, ())):
            if cell:
                ax.annotate(
                    f"{np.mean(cell):.2f}", (i, float(np.mean(cell))), (0, 5), textcoords="offset points", ha="center",
                    fontsize=plots.TEXT, color=plots.ink(plots.colour(POOLED)),
                )  # fmt: skip
        ax.set(yscale="log", ylim=(0.03, 2.2), xlim=(-0.25, len(arms) - 0.75))
        ax.set_xticks(range(len(arms)), [f"{arm['value']:g}" for arm in arms])
        count = max(len(arm["runs"]) for arm in arms)
        where = "speed-up: rival's rounds / ours" if ax is axes[0][0] else ""
        plots.finish(ax, f"{capital(model)} ({count} splits, 95 % intervals)", axis, where)
        plots.name_lines(ax)
    return drawn


def _trend_says(result: Mapping[str, Any], symbol: str) -> str:
    """The speed-up over GD at both ends of the scale, and what fair rivals leave of it; of the model that decides."""
    model, part = next(iter(mnist_problem.parts(result).items()))
    stride, arms = max(1, part["rounds"] // 100), part["arms"]
    means: dict[str, list[float]] = {}
    for name in (POOLED, MATCHED, TUNED, NESTEROV):
        found = [float(np.mean(s)) for arm in arms if (s := trend.speed_ups(arm, stride, name))]
        means |= {name: found} if found else {}
    if len(means.get(POOLED, ())) < len(arms):
        return f"Algorithm 1 against its rivals, by {symbol}"
    ends = [f"{means[POOLED][i]:.2f} at {symbol} = {arms[i]['value']:g}" for i in (0, -1)]
    text = f"Speed-up over GD at the common step: {', '.join(ends)} ({model})"
    others = {name: found for name, found in means.items() if name != POOLED}
    return text + (f". Own steps are {compared(others, MATCHED)}" if MATCHED in others else "")


def contests(
    result: Mapping[str, Any], claimed: Sequence[str], beside: Sequence[str], tuned: Sequence[str], who: str
) -> Figure:
    """One row per model: the methods as they were set, and after a search for their steps; range over the seeds.

    ``claimed`` are the rivals that the claim names, ``beside`` those drawn with them, ``tuned`` those after a search.
    """
    parts = mnist_problem.parts(result)
    drawn, axes = plots.new_figure(2, len(parts), width=3.45, height=2.2)
    first, decides = next(iter(parts.items()))
    (won, of), (won_tuned, of_tuned) = (contest_counts(decides["arms"], claimed, kind) for kind in (False, True))
    plots.headline(
        drawn,
        f"Against {who} Algorithm 1 is faster in {won} of {of} settings untuned, and in {won_tuned} of {of_tuned} when "
        f"every method is tuned ({first})",
    )
    for row, (model, part) in zip(axes, parts.items(), strict=True):
        group = next(iter(contest.firsts(part["arms"])))
        arms = [arm for name, arm in part["arms"].items() if arm.get("group", name) == group]
        names = {OURS: OURS} | {name: name for name in (*claimed, *beside)}
        searched = {contest.OURS_TUNED: OURS} | {f"{n} tuned": TUNED if n == "GD" else n for n in tuned}
        for ax, shown, kind in ((row[0], names, "untuned"), (row[1], searched, "every method tuned")):
            lines = {
                label: band(runs, contest.TOP)
                for name, label in shown.items()
                if (runs := [(s["round"], s["gap"]) for arm in arms if (s := arm["series"].get(name))])
            }
            ax.set(xscale="log", yscale="log")
            plots.curves(ax, lines, names=False)
            least = min((np.nanmin(line.y) for line in lines.values()), default=1e-4)
            last = max((line.x[-1] for line in lines.values()), default=10)
            ax.set(ylim=(max(1e-4, 0.7 * least), contest.TOP), xlim=(1, last))
            label = mnist_problem.gap_label(model) if ax is row[0] else ""
            plots.finish(ax, f"{capital(model)}, {kind}", "round", label)
            plots.name_lines(ax)
    return drawn


def contest_counts(arms: Mapping[str, Any], claimed: Sequence[str], tuned: bool) -> tuple[int, int]:
    """In how many settings (graph or split, rival, level) is Algorithm 1 faster, of how many; as the verdict counts."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for name, arm in arms.items():
        groups.setdefault(arm.get("group", name), []).append(arm)
    won = of = 0
    for repeats in groups.values():
        for row in repeats[0]["rows"]:
            rival, ours = row["method"], contest.OURS_TUNED if tuned else OURS
            if (row["search"] is not None) != tuned or rival.removesuffix(" tuned") not in claimed:
                continue
            floors = contest._floors(repeats, rival, ours)
            for level, ratios in contest._cells(repeats, rival, ours).items():
                of += bool(ratios)
                won += bool(ratios) and contest._ahead(ratios, neural.WORTHWHILE) and not floors[level][1]
    return won, of
