"""Figures of a comparison: its curves, and where own steps win and where they do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ownstep.engines.compare import Comparison
from ownstep.plots.lines import Curve, curves, name_lines
from ownstep.plots.looks import chosen, colour, typeset
from ownstep.plots.panels import COLUMN, TEXT, finish, headline, new_figure, power

OURS, POOLED = "Algorithm 1", "GD 1/L-bar"


def gaps(comparison: Comparison) -> dict[str, Curve]:
    """The relative gap of every method, without what rounding took below the optimum."""
    out = {}
    for name, history in comparison.histories.items():
        gap = np.where(history.value > comparison.optimum, history.gap(comparison.optimum), np.nan)
        out[name] = Curve(np.arange(1, len(gap)), gap[1:])
    return out


def convergence(ax: Axes, comparison: Comparison, title: str = "", legend: Any = "outside") -> None:
    """Relative gap of every method against rounds, at most five of them, with Algorithm 1's switch marked."""
    drawn = gaps(comparison)
    ax.set_yscale("log")
    ax.set_xscale("log")
    kept = curves(ax, drawn, names=False)
    for name in kept:
        at = comparison.histories[name].switched_at
        if at is not None and 0 < at <= len(drawn[name].y):
            ax.plot(
                [at], [drawn[name].y[at - 1]], "o", color=colour(name), ms=5, mec="white", zorder=4, label="_switch"
            )
    finish(ax, title, "round", "relative gap of f")
    if legend:
        name_lines(ax)


def demo(results: Mapping[str, Comparison], gap: float = 1e-4) -> Figure:
    """Rounds of five methods to a relative gap, one panel per dataset: where own steps win, and by how much."""
    figure, axes = new_figure(1, len(results), width=COLUMN, height=1.75 if len(results) > 1 else 2.1)
    every = {
        title: {name: history.rounds_to(gap, race.optimum) for name, history in race.histories.items()}
        for title, race in results.items()
    }
    headline(figure, _message(every))
    for ax, (title, found) in zip(axes[:, 0], every.items(), strict=True):
        reached = {name: rounds for name, rounds in found.items() if rounds}
        names = sorted(chosen(list(reached)), key=lambda name: reached[name])
        for row, name in enumerate(names):
            ours = name == OURS
            ax.barh(row, reached[name], color=colour(name, row), height=0.7)
            ax.annotate(
                f" {reached[name]:,}" + ("" if ours or OURS not in reached else f" ({_times(found, name)})"),
                (reached[name], row), va="center", fontsize=TEXT, weight="bold" if ours else "normal",
            )  # fmt: skip
        ax.set_yticks(range(len(names)), [typeset(name) for name in names])
        ax.tick_params(axis="y", length=0)
        ax.invert_yaxis()
        ax.set_xlim(0, 1.7 * max((reached[name] for name in names), default=1))
        ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        ax.grid(axis="y", visible=False)
        finish(ax, title[:1].upper() + title[1:], f"rounds to a relative gap of {power(gap)}", "")
    return figure


def _times(found: Mapping[str, int | None], name: str) -> str:
    """How much faster or slower a method is than own steps."""
    ours, theirs = found[OURS], found[name]
    if not ours or not theirs:
        return "not reached"
    if max(ours, theirs) < 1.05 * min(ours, theirs):
        return "no difference"
    ratio = max(ours, theirs) / min(ours, theirs)
    return f"{ratio:.{0 if ratio >= 9.95 else 1}f}x {'faster' if theirs < ours else 'slower'}"


def _message(every: Mapping[str, Mapping[str, int | None]]) -> str:
    """Against GD at the common step on every dataset, and what the best rival does to own steps."""
    if not all(found.get(OURS) and found.get(POOLED) for found in every.values()):
        return "Own steps or GD did not reach this gap"
    said: list[str] = []
    for title, found in every.items():
        word = _times({OURS: found[POOLED], POOLED: found[OURS]}, POOLED).replace("no difference", "no faster")
        said.append(f"{word}{'' if said else ' than GD at the common step'}")
        said[-1] += f" on {title.split(',')[0]}" if len(every) > 1 else ""
    text = f"Own steps are {', '.join(said)}."
    losses: dict[str, list[float]] = {}
    for found in every.values():
        rivals = {name: k for name, k in found.items() if k and k < (found[OURS] or 0) and name not in (OURS, POOLED)}
        if rivals:
            best = min(rivals, key=lambda name: rivals[name])
            losses.setdefault(best, []).append((found[OURS] or 0) / rivals[best])
    for name, ratios in losses.items():
        low, high = f"{min(ratios):.2g}", f"{max(ratios):.2g}"
        text += f" {name} is {low if low == high else f'{low} to {high}'}x faster than own steps."
    return text
