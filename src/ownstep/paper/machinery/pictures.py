"""What the experiments' figures share: bands over runs, words for ranges, maps, and rows of intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ownstep import plots
from ownstep.paper.machinery.bootstrap import interval
from ownstep.paper.machinery.curves import on_one_grid, spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OURS_SHADES = ("#7F2704", "#D55E00", "#F0A060")
"""Shades of Algorithm 1's colour for settings that stand in an order, the most different devices darkest."""
ONE = {"color": "#444444", "lw": 0.8, "ls": ":", "zorder": 1, "label": "_one"}
"""The line at which two methods are equally good."""


def span(values: Sequence[float], digits: str = ".2f") -> str:
    """A number, or the range of several.

    >>> span([1.2, 1.204]), span([0.5, 2])
    ('1.20', '0.50 to 2.00')
    """
    low, high = format(min(values), digits), format(max(values), digits)
    return low if low == high else f"{low} to {high}"


def capital(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


def listed(parts: Sequence[str]) -> str:
    """Several things in one sentence.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def spoken(name: str) -> str:
    """A method in a sentence.

    >>> spoken("GD 1/L-bar"), spoken("Nesterov 1/L-bar"), spoken("FedAdam tuned")
    ('GD at the common step', 'Nesterov', 'FedAdam tuned')
    """
    known = {
        "GD 1/L-bar": "GD at the common step", "GD matched step": "GD at the matched step", "GD tuned": "tuned GD",
        "GD stratified": "GD on stratified batches",
    }  # fmt: skip
    return known.get(name, name.removesuffix(" 1/L-bar"))


def compared(means: Mapping[str, Sequence[float]], first: str, fair: Sequence[str] = ()) -> str:
    """Speed-ups in words: over the first rival, over the first fair one that was run, and over the fastest of all.

    >>> compared({"GD 1/L-bar": [1.4], "GD matched step": [1.0, 1.01], "Nesterov": [0.125]}, "GD 1/L-bar")
    '1.40 times faster than GD at the common step, and 8.0 times slower than Nesterov'
    """
    told = [first, *[name for name in fair if name in means][:1]]
    fastest = min(means, key=lambda name: np.mean(means[name]))
    if fastest not in told and np.mean(means[fastest]) < 0.95:
        told.append(fastest)
    clauses = [_clause(means[name], spoken(name)) for name in told]
    return clauses[0] if len(clauses) == 1 else f"{', '.join(clauses[:-1])}, and {clauses[-1]}"


def _clause(ratios: Sequence[float], rival: str) -> str:
    if min(ratios) > 1.05:
        return f"{_times(ratios)} times faster than {rival}"
    if max(ratios) < 0.95:
        return f"{_times([1 / max(r, 1e-9) for r in ratios])} times slower than {rival}"
    if min(ratios) >= 0.95 and max(ratios) <= 1.05:
        return f"as fast as {rival} ({span(ratios)})"
    return f"{span(ratios)} times as fast as {rival}"


def _times(ratios: Sequence[float]) -> str:
    return span(ratios, ".2f" if max(ratios) < 2 else ".1f" if max(ratios) < 10 else ".0f")


def band(runs: Sequence[tuple[Sequence[float], Sequence[Any]]], top: float = np.inf) -> plots.Curve:
    """The median of several runs and their range; nothing above ``top``, where a run has diverged."""
    at, rows = on_one_grid(runs, after=np.inf)
    middle = np.where(spread(rows)[0] > top, np.nan, spread(rows)[0])
    if len(runs) == 1:
        return plots.Curve(at, middle)
    _, low, high = spread(np.where(rows > top, np.nan, rows))
    return plots.Curve(at, middle, low, high)


def against(ax: Axes, places: Sequence[float], rivals: Mapping[str, Sequence[Sequence[float]]]) -> None:
    """Speed-ups over every rival along a scale: means as a line, bootstrap intervals over the runs as a band."""
    for rival, cells in rivals.items():
        found = [(x, interval(cell)) for x, cell in zip(places, cells, strict=True) if cell]
        at, tint = [x for x, _ in found], plots.colour(rival)
        ax.fill_between(at, [f.low for _, f in found], [f.high for _, f in found], color=tint, alpha=0.16, lw=0)
        ax.plot(at, [f.mean for _, f in found], "o-", color=tint, ms=3.5, lw=1.6, label=rival)


def span_rows(ax: Axes, rows: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """One row per name, in it every method's median as a dot and its range as a bar; what is not finite is left out."""
    for i, found in enumerate(rows.values()):
        for k, (method, values) in enumerate(found.items()):
            known = [v for v in values if np.isfinite(v)]
            if known:
                y, tint = i + 0.22 * (k - (len(found) - 1) / 2), plots.colour(method, k)
                ends = [min(known), max(known)]
                ax.plot(ends, [y, y], color=tint, lw=2.5, alpha=0.4, solid_capstyle="butt", label="_range")
                ax.plot(float(np.median(known)), y, "o", color=tint, ms=4, label="_median")
    ax.set_yticks(range(len(rows)), [plots.typeset(name) for name in rows])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)


def key(ax: Axes, names: Mapping[str, str], columns: int = 5, title: str = "", bar: str = "") -> None:
    """Names of dots in their colours over the panel, under its title; ``bar`` is marked by a bar and not by a dot."""
    from matplotlib.lines import Line2D

    dots = [
        Line2D([], [], marker="|" if name == bar else "o", ls="", color=tint, ms=7 if name == bar else 4, mew=1.6)
        for name, tint in names.items()
    ]
    ax.legend(
        dots, [plots.typeset(name) for name in names], loc="lower left", bbox_to_anchor=(0, 1.0), ncols=columns,
        frameon=False, fontsize=plots.TEXT, handletextpad=0.1, columnspacing=1.2, borderaxespad=0.1, borderpad=0,
        title=title or None, title_fontsize=8, alignment="left",
    )  # fmt: skip


def ratio_map(ax: Axes, ratios: Sequence[Sequence[float]]) -> None:
    """A table of ratios of worst cases in the colour of who wins: Algorithm 1's below one, that of GD above."""
    from matplotlib.colors import LinearSegmentedColormap

    grid = np.asarray(ratios, float)
    sides = (plots.colour("Algorithm 1"), "#FFFFFF", plots.colour("GD 1/L-bar"))
    shades = LinearSegmentedColormap.from_list("winner", sides)
    ax.imshow(np.log10(grid), cmap=shades, vmin=-1.5, vmax=1.5, aspect="auto", origin="lower")
    for i, j in np.ndindex(grid.shape):
        dark = abs(np.log10(grid[i, j])) > 0.9
        text = f"{grid[i, j]:.2f}" if grid[i, j] < 10 else f"{grid[i, j]:.0f}"
        ax.text(j, i, text, ha="center", va="center", fontsize=plots.TEXT, color="white" if dark else "black")
    ax.grid(False)
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)
