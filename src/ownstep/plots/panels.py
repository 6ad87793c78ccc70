"""The sheet and its panels: widths, text that fits, ticks that can be read, files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from ownstep.plots.looks import typeset
from ownstep.support.errors import OwnstepError

COLUMN, PAGE = 3.3, 6.9
"""Widths of a figure in inches: one column, or the whole page."""
SMALLEST = 7.0
"""Points of the smallest text."""
TEXT, TITLE = 7.5, 9.0
"""Points of names and numbers, and of a figure's message."""
STYLE: Any = {
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "xtick.labelsize": TEXT,
    "ytick.labelsize": TEXT,
    "legend.fontsize": TEXT,
    "lines.linewidth": 1.4,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "mathtext.default": "regular",
}


def new_figure(
    columns: int,
    rows: int = 1,
    width: float = 3.4,
    height: float = 2.2,
    ratios: Sequence[float] | None = None,
    share: bool = False,
) -> tuple[Figure, Any]:
    """A figure in the house style and its axes, as a (rows, columns) array.

    It is :data:`COLUMN` inches wide where ``width * columns`` is at most 4.5, and :data:`PAGE` inches otherwise.

    Parameters
    ----------
    width : of one column of axes, for choosing between the two widths.
    height : of one row of axes in inches, at most 2.4 where there are several rows.
    ratios : of the columns' widths.
    share : one vertical axis for the panels of a row.
    """
    wide = COLUMN if width * columns <= 4.5 else PAGE
    tall = height * rows if rows == 1 else min(height, 2.4) * rows
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(wide, tall), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, width_ratios=ratios, sharey="row" if share else False)
    for ax in axes.flat:
        ax.tick_params(labelsize=TEXT)  # ticks made later would take the size of that time
    return figure, axes


def headline(figure: Figure, message: str) -> None:
    """Write what the figure shows over all of it; give it before the panels are finished."""
    text = wrapped(message, 0.95 * figure.get_size_inches()[0], TITLE, bold=True)
    figure.suptitle(text, x=0.01, ha="left", fontweight="bold", fontsize=TITLE)


def wrapped(text: str, width: float, points: float, bold: bool = False) -> str:
    """The text broken into lines of at most so many inches, about equally long."""
    lines = []
    for paragraph in text.splitlines():
        filled = _filled(paragraph, width, points, bold)
        for share in (0.5, 0.6, 0.7, 0.8, 0.9):  # no last line of one short word
            narrower = _filled(paragraph, share * width, points, bold)
            if len(narrower) == len(filled) and max(inches(one, points, bold) for one in narrower) <= width:
                filled = narrower
                break
        lines += filled
    return "\n".join(lines)


def _filled(paragraph: str, width: float, points: float, bold: bool) -> list[str]:
    """Lines that take as many words as fit."""
    lines, line = [], ""
    for word in paragraph.split():
        longer = f"{line} {word}".strip()
        if line and inches(longer, points, bold) > width:
            lines.append(line)
            line = word
        else:
            line = longer
    return [*lines, line]


@lru_cache(maxsize=4096)
def inches(text: str, points: float, bold: bool = False) -> float:
    """How wide a line of text is."""
    font = get_font(findfont(FontProperties(weight="bold" if bold else "normal")))
    font.set_size(points, 720)  # so fine that rounding to pixels does not matter
    font.set_text(text)
    return float(font.get_width_height()[0]) / 64 / 720


def finish(ax: Axes, title: str, x: str, y: str, legend: Any = None) -> None:
    """Title (broken to fit) and axis labels; ``legend`` is a location, or ``outside`` for the right edge."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    headed = figure.get_suptitle() != ""
    if len(figure.axes) == 1 and not headed:
        headline(figure, title)
    else:
        text = wrapped(typeset(title) if headed else title, _room(ax), 8 if headed else 8.5, not headed)
        ax.set_title(text, loc="left", fontweight="normal" if headed else "bold", fontsize=8 if headed else 8.5)
    ax.set_xlabel(typeset(x), fontsize=8)
    ax.set_ylabel(typeset(y), fontsize=8)
    for axis in (ax.xaxis, ax.yaxis):
        if axis.get_scale() == "log":
            _decades(ax, axis)
    with mpl.rc_context(STYLE):
        if legend == "outside":
            ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
        elif legend:
            ax.legend(loc=legend, frameon=False)


def _room(ax: Axes) -> float:
    """Inches that a panel's title may take: its column without the axis labels."""
    figure, place = ax.get_figure(root=True), ax.get_subplotspec()
    assert figure is not None
    if place is None:
        return float(figure.get_size_inches()[0]) * ax.get_position().width
    grid = place.get_gridspec()
    ratios = np.asarray(grid.get_width_ratios(), float)
    mine = ratios[place.colspan.start : place.colspan.stop].sum() / ratios.sum()
    return float(figure.get_size_inches()[0] * mine) - 0.4


def _decades(ax: Axes, axis: Any) -> None:
    """Ticks of a logarithmic axis as numbers that can be read: 0.01, 100, 10⁻⁶."""
    low, high = sorted(axis.get_view_interval())
    span = np.log10(high / low) if low > 0 else 9.0
    subs = (1.0,) if span > 2.2 else (1.0, 2.0, 5.0) if span > 0.6 else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
    figure = ax.get_figure(root=True)
    assert figure is not None
    wide, tall = figure.get_size_inches() * ax.get_position().size
    room = wide / 0.36 if axis is ax.xaxis else tall / 0.28
    axis.set_major_locator(LogLocator(subs=subs, numticks=max(3, int(room))))
    axis.set_major_formatter(FuncFormatter(lambda value, _: power(value)))
    axis.set_minor_formatter(NullFormatter())


def power(value: float) -> str:
    """A number of a logarithmic axis.

    >>> power(0.01), power(5000), power(1e-6)
    ('0.01', '5,000', '10⁻⁶')
    """
    if value <= 0 or 1e-3 <= value < 1e6:
        return f"{value:,g}"
    exponent = round(np.log10(value))
    if abs(value / 10.0**exponent - 1) > 1e-6:
        return f"{value:.0e}"
    return "10" + "".join("⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".index(c)] for c in str(exponent))


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
