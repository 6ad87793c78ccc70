"""Figures from histories; drawing never reruns anything.

Every function returns a matplotlib ``Figure`` built without pyplot, so nothing global changes; :func:`save` writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ownstep.engines.compare import Comparison
from ownstep.support.errors import OwnstepError

# Okabe and Ito's colours, told apart by every kind of colour vision.
COLOURS = {
    "Algorithm 1": "#D55E00",
    "GD 1/L-bar": "#0072B2",
    "GD 1/L": "#56B4E9",
    "GD matched step": "#009E73",
    "GD tuned": "#CC79A7",
    "Nesterov": "#444444",
    "Nesterov 1/L-bar": "#444444",
    "L-BFGS": "#E69F00",
    "own curvature": "#332288",
}
DASHES = {"GD 1/L": "--"}  # often on top of GD 1/L-bar
_SPARE = ("#E69F00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#444444", "#F0E442")
_MORE = ("#7A5195", "#8C564B")
STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
}


def colour(label: str, index: int = 0) -> str:
    """The colour a method always has; others take the next spare one."""
    return COLOURS.get(label, _SPARE[index % len(_SPARE)])


def shades(labels: Sequence[str]) -> dict[str, str]:
    """A colour for every label of one figure, no two alike while there are enough."""
    taken = {COLOURS[label] for label in labels if label in COLOURS}
    free = [shade for shade in (*_SPARE, *_MORE) if shade not in taken] or list(_SPARE)
    others = {label: free[i % len(free)] for i, label in enumerate(name for name in labels if name not in COLOURS)}
    return {label: COLOURS.get(label) or others[label] for label in labels}


def new_figure(
    columns: int,
    rows: int = 1,
    width: float = 4.2,
    height: float = 3.2,
    ratios: Sequence[float] | None = None,
) -> tuple[Figure, Any]:
    """A figure in the house style and its axes, as a (rows, columns) array; ``ratios`` of the columns' widths."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        return figure, figure.subplots(rows, columns, squeeze=False, width_ratios=ratios)


def finish(ax: Axes, title: str, x: str, y: str, legend: Any = None) -> None:
    """Title and axis labels in the house style; ``legend`` is a location, or ``outside`` for the right edge."""
    ax.set_title(title, loc="left", fontsize=10, fontweight="bold")
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    if legend == "outside":
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, frameon=False)
    elif legend:
        ax.legend(loc=legend, fontsize=8, frameon=False)


def convergence(ax: Axes, comparison: Comparison, title: str = "", legend: Any = "outside") -> None:
    """Relative gap of every method against rounds, with Algorithm 1's switch marked."""
    for i, (name, history) in enumerate(comparison.histories.items()):
        gap = np.where(history.value > comparison.optimum, history.gap(comparison.optimum), np.nan)
        bold = name.startswith("Algorithm 1")
        ax.plot(
            np.arange(1, len(gap)), gap[1:], label=name, color=colour(name, i), ls=DASHES.get(name, "-"),
            lw=2.6 if bold else 1.5, zorder=3 if bold else 2,
        )  # fmt: skip
        if history.switched_at is not None and history.switched_at < len(gap):
            k = history.switched_at
            ax.plot([k], [gap[k]], "o", color=colour(name, i), ms=7, mec="white", zorder=4, label="its switch")
    ax.set_yscale("log")
    ax.set_xscale("log")
    finish(ax, title, "round", "(f − f*) / (f(x⁰) − f*)", legend)


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


def demo(results: Mapping[str, Comparison]) -> Figure:
    """One row a dataset: its smoothness constants, and how every method converged."""
    figure, axes = new_figure(2, len(results), width=4.9, ratios=(1, 2.2))
    for row, (title, comparison) in zip(axes, results.items(), strict=True):
        devices = comparison.plan.devices
        marks = {"L-bar": devices.L_bar}
        if devices.L_pooled is not None:
            marks["true L"] = devices.L_pooled
        constants(row[0], devices.names, devices.L.tolist(), marks, f"predicted gain {devices.gain:.2f}")
        convergence(row[1], comparison, title)
    return figure


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure; the ending chooses the format."""
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        metadata: dict[str, Any] = {"Date": None} if target.suffix == ".svg" else {}
        with mpl.rc_context({"svg.hashsalt": "ownstep"}):  # the same figure gives the same file
            figure.savefig(target, dpi=160, metadata=metadata)
    except OSError as error:
        raise OwnstepError(f"cannot write the figure {str(target)!r}: {error}") from error
    return target
