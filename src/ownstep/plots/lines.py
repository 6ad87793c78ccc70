"""Lines with their bands, each named at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import offset_copy

from ownstep.plots.looks import MOST, chosen, dash, ink, shades, typeset
from ownstep.plots.panels import TEXT, inches

BESIDE = ((1, 0.5), (0, 0.5), (1, 1.0), (0, 1.0), (0.8, -0.2), (0.5, -0.2), (0.2, -0.2), (0.5, -1.2))
"""Where a name may stand at its line: how much of it to the right of a point, and how far up, in lines of text."""


@dataclass(frozen=True)
class Curve:
    """One line of a picture, with a band where several runs differ."""

    x: Any
    y: Any
    low: Any = None
    high: Any = None


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
            curve.x, curve.y, label=name, color=tint, ls=dash(name), lw=2.2 if ours else 1.3,
            zorder=2 if ours else 3, marker="o" if markers else "", ms=3,
        )  # fmt: skip
    if names:
        name_lines(ax)
    return kept


def name_lines(ax: Axes, spread: float = 9.5) -> None:
    """Write every line's name at its right end, in its colour, at least ``spread`` points apart; call it last.

    The names of lines that end before the last tenth of the panel stand where these end.
    """
    ax.autoscale_view()
    figure = ax.get_figure(root=True)
    assert figure is not None
    tall = 72 * 0.85 * ax.get_position().height * figure.get_size_inches()[1]
    ends = sorted(_ends(ax), key=lambda end: end[1])
    margin = [end for end in ends if end[0] > 0.9]
    places = _apart([tall * end[1] for end in margin], spread, tall)
    beside = offset_copy(ax.transAxes, figure, x=9, y=0, units="points")
    for (right, up, line), place in zip(margin, places, strict=True):
        tint = line.get_color()
        ax.annotate(
            typeset(str(line.get_label())), (right, up), (1.0, up + (place - tall * up) / tall), fontsize=TEXT,
            xycoords="axes fraction", textcoords=beside, color=ink(tint), va="center", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": tint, "lw": 0.5, "shrinkA": 1, "shrinkB": 0, "relpos": (0, 0.5)},
        )  # fmt: skip
    _name_inside(ax, [line for right, _, line in ends if right <= 0.9], tall)


def _name_inside(ax: Axes, lines: Sequence[Any], tall: float) -> None:
    """Write names in the panel, each beside the end of its line, where the fewest lines and names are in the way."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    wide = 72 * 0.85 * ax.get_position().width * figure.get_size_inches()[0]
    points = {line: _dense(_places(ax, line)) for line in ax.get_lines()}
    boxes: list[tuple[float, float, float, float]] = []
    for line in sorted(lines, key=lambda line: -len(str(line.get_label()))):  # the widest has the least choice
        mine = points[line]
        others = np.concatenate([np.empty((0, 2)), *(found for one, found in points.items() if one is not line)])
        inside = mine[((mine >= -0.01) & (mine <= 1.01)).all(axis=1)][::-1]
        text = typeset(str(line.get_label()))
        width, height = (72 * inches(text, TEXT) + 4) / wide, 10 / tall
        found = []
        for far, at in enumerate(inside[:: max(1, len(inside) // 24)][:12]):
            for side, up in BESIDE:
                left, low = at[0] - (1 - side) * width + (4 / wide) * (2 * side - 1), at[1] - (1 - up) * height
                left = min(left, 1 - width) if up < 0 else left
                box = (left, left + width, low, low + height)
                if box[0] >= 0 and box[1] <= 1.02 and box[2] >= 0 and box[3] <= 1:
                    to = (min(box[0], at[0]), max(box[1], at[0])) if up > 0 else box[:2]  # no line between the two
                    cost = 1000 * sum(_overlap(box, other) for other in boxes) + 4 * _within((*to, *box[2:]), others)
                    found.append((cost + 4 * _within(box, mine) + 3 * far, box))
        if found:
            box = min(found, key=lambda one: one[0])[1]
            boxes.append(box)
            ax.text(
                box[0], (box[2] + box[3]) / 2, text, transform=ax.transAxes, va="center", fontsize=TEXT,
                color=ink(line.get_color()),
            )  # fmt: skip


def _overlap(a: Sequence[float], b: Sequence[float]) -> bool:
    return a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]


def _within(box: Sequence[float], points: Any) -> int:
    x, y = points[:, 0], points[:, 1]
    return int(((x > box[0]) & (x < box[1]) & (y > box[2]) & (y < box[3])).sum())


def _dense(places: Any) -> Any:
    """A line's points with seven more in every piece."""
    if len(places) < 2:
        return places
    shares = np.linspace(0, 1, 8, endpoint=False)[:, None]
    pieces = [a + shares * (b - a) for a, b in pairwise(places)]
    return np.concatenate([*pieces, places[-1:]])


def _ends(ax: Axes) -> list[tuple[float, float, Any]]:
    """Where every named line ends or leaves the panel, as shares of the panel, and the line."""
    out = []
    for line in ax.get_lines():
        if str(line.get_label()).startswith("_"):
            continue
        places = _places(ax, line)
        inside = places[((places >= -0.01) & (places <= 1.01)).all(axis=1)]
        if len(inside):
            out.append((float(min(inside[-1][0], 1.0)), float(np.clip(inside[-1][1], 0, 1)), line))
        elif len(places):
            out.append((1.0, float(np.clip(places[-1][1], 0, 1)), line))
    return out


def _places(ax: Axes, line: Any) -> Any:
    """The points of a line as shares of the panel, but for those that are no numbers there."""
    x, y = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
    seen = np.isfinite(x) & np.isfinite(y)
    seen &= ((x > 0) | (ax.get_xscale() != "log")) & ((y > 0) | (ax.get_yscale() != "log"))
    return (ax.transData + ax.transAxes.inverted()).transform(np.column_stack([x[seen], y[seen]]))


def _apart(wanted: Sequence[float], step: float, most: float) -> list[float]:
    """Rising places at least ``step`` apart, within 0 and ``most``, together as near as can be to those wanted."""
    blocks: list[tuple[float, int]] = []  # mean of (wanted - i * step), and how many
    for i, value in enumerate(wanted):
        mean, count = value - i * step, 1
        while blocks and blocks[-1][0] > mean:
            before, more = blocks.pop()
            mean, count = (mean * count + before * more) / (count + more), count + more
        blocks.append((mean, count))
    room = max(0.0, most - (len(wanted) - 1) * step)
    flat = [float(np.clip(mean, 0, room)) for mean, count in blocks for _ in range(count)]
    return [mean + i * step for i, mean in enumerate(flat)]
