"""Figures from histories; drawing never reruns anything.

Every function returns a matplotlib ``Figure`` built without pyplot, so nothing global changes; :func:`save` writes it.
Figures are as wide as one column or two of a paper, no text in them is smaller than 7 points, and at most five lines
stand in one picture, each named at its end.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ownstep.engines.compare import Comparison
from ownstep.support.errors import OwnstepError

COLUMN, PAGE = 3.3, 6.9
"""Widths of a figure in inches: one column, or the whole page."""
SMALLEST = 7.0
"""Points of the smallest text."""
MOST = 5
"""Lines in one picture."""
# Okabe and Ito's colours, told apart by every kind of colour vision.
COLOURS = {
    "Algorithm 1": "#D55E00",
    "GD 1/L-bar": "#0072B2",
    "GD 1/L": "#56B4E9",
    "GD matched step": "#009E73",
    "GD tuned": "#CC79A7",
    "GD best fixed step": "#CC79A7",
    "GD stratified": "#CC79A7",
    "Nesterov": "#444444",
    "Nesterov 1/L-bar": "#444444",
    "L-BFGS": "#E69F00",
    "own curvature": "#332288",
}
FIRST = (
    "own curvature", "Algorithm 1", "L-BFGS", "GD 1/L-bar", "GD stratified", "GD matched step", "GD tuned", "GD best",
    "Nesterov",
)  # fmt: skip
"""Lines in the order in which a reader wants them; what is not listed comes after."""
DASHES = {"GD 1/L": "--", "GD stratified": "--"}
_SPARE = ("#E69F00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#444444", "#F0E442")
_MORE = ("#7A5195", "#8C564B")
STYLE: Any = {
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5,
    "lines.linewidth": 1.4,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "mathtext.default": "regular",
}


@dataclass(frozen=True)
class Curve:
    """One line of a picture, with a band where several runs differ."""

    x: Any
    y: Any
    low: Any = None
    high: Any = None


def colour(label: str, index: int = 0) -> str:
    """The colour a method always has, variants such as ``Algorithm 1, 7 local`` too; others take the next spare one."""
    return _known(label) or _SPARE[index % len(_SPARE)]


def _known(label: str) -> str | None:
    ends = ("", ",", " (", " tuned")
    names = sorted(COLOURS, key=len, reverse=True)
    return next((COLOURS[n] for n in names if label == n or any(e and label.startswith(n + e) for e in ends)), None)


def shades(labels: Sequence[str]) -> dict[str, str]:
    """A colour for every label of one figure, no two alike while there are enough."""
    known = {label: _known(label) for label in labels}
    free = [shade for shade in (*_SPARE, *_MORE) if shade not in known.values()] or list(_SPARE)
    others = {label: free[i % len(free)] for i, label in enumerate(name for name in labels if not known[name])}
    return {label: known[label] or others[label] for label in labels}


def chosen(names: Sequence[str], most: int = MOST) -> list[str]:
    """At most so many of these lines: one of each method first, ours before the others."""

    def rank(name: str) -> int:
        return next((i for i, known in enumerate(FIRST) if name.startswith(known)), len(FIRST))

    ordered = sorted(names, key=lambda name: (rank(name), len(name)))
    firsts = [n for i, n in enumerate(ordered) if i == 0 or rank(n) != rank(ordered[i - 1])]
    return sorted((firsts + [n for n in ordered if n not in firsts])[:most], key=rank)


def new_figure(
    columns: int,
    rows: int = 1,
    width: float = 3.4,
    height: float = 2.2,
    ratios: Sequence[float] | None = None,
) -> tuple[Figure, Any]:
    """A figure in the house style and its axes, as a (rows, columns) array.

    It is :data:`COLUMN` inches wide where ``width * columns`` is at most 4.5, and :data:`PAGE` inches otherwise.

    Parameters
    ----------
    width : of one column of axes, for choosing between the two widths.
    height : of one row of axes in inches, at most 2.4 where there are several rows.
    ratios : of the columns' widths.
    """
    wide = COLUMN if width * columns <= 4.5 else PAGE
    tall = height * rows if rows == 1 else min(height, 2.4) * rows
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(wide, tall), layout="constrained")
        return figure, figure.subplots(rows, columns, squeeze=False, width_ratios=ratios)


def finish(ax: Axes, title: str, x: str, y: str, legend: Any = None) -> None:
    """Title (broken to fit) and axis labels; ``legend`` is a location, or ``outside`` for the right edge."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    alone = len(figure.axes) == 1
    inches = figure.get_size_inches()[0] * (1 if alone else ax.get_position().width)
    text = "\n".join(textwrap.fill(line, max(18, int(inches * 72 / 5.2))) for line in title.splitlines())
    if alone:
        figure.suptitle(text, x=0.01, ha="left", fontweight="bold", fontsize=8.5)
    else:
        ax.set_title(text, loc="left", fontweight="bold", fontsize=8.5)
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    with mpl.rc_context(STYLE):
        if legend == "outside":
            ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
        elif legend:
            ax.legend(loc=legend, frameon=False)


def curves(
    ax: Axes, drawn: Mapping[str, Curve], names: bool = True, most: int = MOST, markers: bool = False
) -> list[str]:
    """Draw at most ``most`` of these lines with their bands, each named at its end; return the names drawn."""
    kept = chosen(list(drawn), most)
    tints = shades(kept)
    for name in kept:
        curve, tint = drawn[name], tints[name]
        ours = name.startswith(("Algorithm 1", "own curvature"))
        if curve.low is not None and curve.high is not None:
            ax.fill_between(curve.x, curve.low, curve.high, color=tint, alpha=0.16, lw=0)
        ax.plot(
            curve.x, curve.y, label=name, color=tint, ls=DASHES.get(name, "-"), lw=2.2 if ours else 1.3,
            zorder=3 if ours else 2, marker="o" if markers else "", ms=3,
        )  # fmt: skip
    if names:
        name_lines(ax)
    return kept


def name_lines(ax: Axes, spread: float = 9.0) -> None:
    """Write every line's name at its right end, in its colour, at least ``spread`` points apart; call it last."""
    ax.autoscale_view()
    to_axes, ends = ax.transData + ax.transAxes.inverted(), []
    for line in ax.get_lines():
        x, y = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
        seen = np.flatnonzero(np.isfinite(x) & np.isfinite(y) & ((y > 0) | (ax.get_yscale() != "log")))
        if str(line.get_label()).startswith("_") or not len(seen):
            continue
        inside = [i for i in seen if ax.get_xlim()[0] <= x[i] <= ax.get_xlim()[1]]
        at = to_axes.transform((x[inside[-1]], y[inside[-1]])) if inside else (1.0, 0.5)
        ends.append((float(np.clip(at[1], 0, 1)), float(min(at[0], 1.0)), line))
    figure = ax.get_figure(root=True)
    assert figure is not None
    step = spread / 72 / (ax.get_position().height * figure.get_size_inches()[1] * 0.95)
    places: list[float] = []
    ends.sort(key=lambda end: end[0])
    for end, _, _ in ends:
        places.append(max(end, places[-1] + step) if places else end)
    over = max(0.0, (places[-1] if places else 0.0) - 1.0)
    for (end, right, line), place in zip(ends, places, strict=True):
        ax.annotate(
            str(line.get_label()), (right, end), (1.04, place - over), xycoords="axes fraction",
            textcoords="axes fraction", color=line.get_color(), fontsize=7.5, va="center", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": line.get_color(), "lw": 0.5, "shrinkA": 0, "shrinkB": 0},
        )  # fmt: skip


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


def constants(ax: Axes, names: Sequence[str], L: Sequence[float], marks: Mapping[str, float], title: str = "") -> None:
    """Smoothness constants as bars, one a device, with horizontal marks such as L-bar and the true L."""
    at = np.arange(len(L))
    ax.bar(at, L, color="#E8A27A", width=0.6)
    for i, (label, value) in enumerate(marks.items()):
        ax.axhline(value, color=_SPARE[i + 1], lw=1.5, ls=("-", "--", ":")[i % 3], label=label)
    if len(L) <= 12:
        ax.set_xticks(at, names)
    else:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    finish(ax, title, "device", "smoothness", "upper left")


def demo(results: Mapping[str, Comparison], gap: float = 1e-4) -> Figure:
    """Rounds of every method to a relative gap, one picture per dataset: where own steps win, and by how much."""
    figure, axes = new_figure(len(results), width=4.0, height=2.5)
    for ax, (title, comparison) in zip(axes[0], results.items(), strict=True):
        found = {name: history.rounds_to(gap, comparison.optimum) for name, history in comparison.histories.items()}
        reached = {name: rounds for name, rounds in found.items() if rounds}
        names = sorted(reached, key=lambda name: reached[name])
        for row, name in enumerate(names):
            ax.barh(row, reached[name], color=colour(name, row), height=0.68)
            ax.annotate(f" {reached[name]:,}", (reached[name], row), va="center", fontsize=7.5)
        ax.set_yticks(range(len(names)), names)
        ax.invert_yaxis()
        ax.set_xscale("log")
        ax.set_xlim(1, 4 * max(reached.values(), default=1))
        ax.grid(axis="y", visible=False)
        finish(ax, f"{title}: {_says(found)}", f"rounds to a relative gap of {gap:g}", "")
    return figure


def _says(found: Mapping[str, int | None]) -> str:
    """What own steps save, in a few words."""
    ours, gd = found.get("Algorithm 1"), found.get("GD 1/L-bar")
    if not ours or not gd:
        return "not reached"
    saved = gd / ours
    words = "own steps save nothing" if saved < 1.05 else f"own steps need {saved:.1f}x fewer rounds than GD 1/L-bar"
    fair = [name for name in ("GD matched step", "GD tuned", "Nesterov") if (found.get(name) or ours) < ours]
    return words + (f", more than {len(fair)} fair rivals" if fair else "")


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure; the ending chooses the format."""
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        metadata: dict[str, Any] = {"Date": None} if target.suffix == ".svg" else {}
        with mpl.rc_context({"svg.hashsalt": "ownstep"}):  # the same figure gives the same file
            figure.savefig(target, dpi=300 if target.suffix == ".png" else None, metadata=metadata)
    except OSError as error:
        raise OwnstepError(f"cannot write the figure {str(target)!r}: {error}") from error
    return target
