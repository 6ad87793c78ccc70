"""The one picture of an experiment's card, as svg in the page itself: at most five lines, each named at its end.

It needs no script, so it prints, works when the page is sent alone, and can be read by a screen reader: its description
says where every line starts and ends.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from ownstep.report.charts import Chart, Line, View
from ownstep.report.formatting import spell, typeset
from ownstep.report.palette import DASHES, Look, Palette

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 440, 268, 50, 30, 36
MOST = 5
POINTS = 60
LETTER, LINE = 6.6, 15.0
"""Width of a letter and height of a line of a name."""
FIRST = (
    "own curvature", "Algorithm 1", "L-BFGS", "GD 1/L-bar", "GD stratified", "GD matched step", "GD tuned", "GD best",
    "Nesterov",
)  # fmt: skip
"""Lines in the order in which a reader wants them; what is not listed comes after."""
DECADES = 7
"""Decades of a logarithmic axis at most: what lies deeper is rounding."""
SHAPES = ("circle", "square", "triangle", "diamond")
"""Dots in the order of the dashes."""


@dataclass(frozen=True)
class Scale:
    """From a value to a place on the page."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    def __call__(self, value: float) -> float:
        low, high = (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)
        at = ((math.log10(value) if self.log else value) - low) / ((high - low) or 1.0)
        return self.start + at * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Whole decades, the ones, twos and fives between them, or four to seven round numbers."""
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            if last - first >= 2:
                step = max(1, math.ceil((last - first) / 5))
                return [10.0**k for k in range(first, last + 1, step)]
            steps = [m * 10.0**k for k in range(first - 1, last + 1) for m in (1, 2, 5)]
            inside = [t for t in steps if self.low * (1 - 1e-9) <= t <= self.high * (1 + 1e-9)]
            if len(inside) >= 3:
                return inside
        span = (self.high - self.low) or 1.0
        step = 10 ** math.floor(math.log10(span / 4))
        step *= next(m for m in (1, 2, 2.5, 5, 10) if span / (step * m) <= 6)
        count = range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)
        return [t for t in (round(k * step, 12) for k in count) if not self.log or t > 0]


def ordered(view: View) -> list[Line]:
    """All lines: first one of each method, ours before the others, then their variants."""

    def rank(line: Line) -> int:
        return next((i for i, name in enumerate(FIRST) if line.name.startswith(name)), len(FIRST))

    by_rank = sorted(view.lines, key=lambda line: (rank(line), len(line.name)))
    firsts = [line for i, line in enumerate(by_rank) if i == 0 or rank(line) != rank(by_rank[i - 1])]
    firsts = sorted((firsts + [line for line in by_rank if line not in firsts])[:MOST], key=rank)
    return firsts + [line for line in by_rank if line not in firsts]


def chosen(view: View, names: Sequence[str] = ()) -> list[Line]:
    """The lines that are drawn: those named, or else the first five."""
    named = [line for name in names for line in view.lines if line.name == name]
    return named[:MOST] or ordered(view)[:MOST]


def picture(chart: Chart, palette: Palette, message: str = "", names: Sequence[str] = ()) -> Markup:
    """The first view of a chart, with the lines named or else the first five."""
    view = chart.views[0]
    lines = chosen(view, names)
    looks = palette.looks([line.name for line in lines])
    log = view.log and _mostly_positive(lines)
    seen = [(x, y) for line in lines for x, y in _kept(line, log, chart.x_log)]
    if not seen:
        return Markup("")
    dotted = bool(chart.ticks) and chart.kind == "points"
    labels = {line.name: folded(typeset(line.name), 17) for line in lines}
    beside = 22 + LETTER * max(len(part) for parts in labels.values() for part in parts)
    edge = 0.4 if dotted else 0.0
    x = Scale(min(a for a, _ in seen) - edge, max(a for a, _ in seen) + edge, LEFT, WIDTH - beside, chart.x_log)
    more = [chart.reference, *(v for line in lines if chart.ticks for v in (*(line.low or ()), *(line.high or ())))]
    values = [b for _, b in seen] + [v for v in more if v is not None and (not log or v > 0)]
    words = _tick_words(x, chart)
    y = _upright(values, log, HEIGHT - BOTTOM - 12 * max(len(lines) for _, lines in words))
    parts = [_axes(x, y, chart, view, words)]
    ends: list[tuple[float, float, list[str], Look]] = []
    for i, (line, look) in enumerate(zip(lines, looks, strict=True)):
        places = _places(line, x, y, log, chart.x_log)
        if not places:
            continue
        constant = len({line.y[i] for i in range(len(line.y))}) == 1 and len(line.y) > 1
        if dotted and not constant:  # no order in the ticks, so no line between them
            wide = min(10.0, 0.8 * (x.end - x.start) / len(chart.ticks or ()) / len(lines))
            aside = wide * (i - (len(lines) - 1) / 2)  # dots of one tick stand next to each other
            parts += [_whiskers(line, x, y, look[0], aside), *(dot(a + aside, b, look) for a, b in places)]
            ends.append((places[-1][1], math.nan, labels[line.name], look))
        else:
            parts += [_band(line, x, y, log, chart.x_log, look[0]), _stroke(places, line.name, look)]
            ends.append((places[-1][1], places[-1][0], labels[line.name], look))
    parts.append(_names(ends, WIDTH - beside + 18, y.start + 4))
    title = message or f"{view.label} over {chart.x}"
    return Markup(
        '<svg class="picture{}" viewBox="0 0 {} {}" role="img" aria-label="{}"><title>{}</title>{}</svg>'
    ).format(
        " crowded" if len(chart.ticks or ()) > 4 else "",
        WIDTH, HEIGHT, f"{typeset(title)}. {_spoken(lines)}", typeset(title), Markup("").join(parts),
    )  # fmt: skip


def _tick_words(x: Scale, chart: Chart) -> list[tuple[float, list[str]]]:
    """Ticks of the horizontal axis, their words in as many lines as their place asks for."""
    ticks = [float(i) for i in range(len(chart.ticks))] if chart.ticks else x.ticks()
    most = int((x.end - x.start) / max(1, len(ticks) - (0 if chart.kind == "points" else 1)) / 6.6)
    texts = {t: typeset(chart.ticks[int(t)]) if chart.ticks else short(t) for t in ticks if x.low <= t <= x.high}
    return [(t, textwrap.wrap(text, max(4, most), break_long_words=False)[:3]) for t, text in texts.items()] or [
        (0, [])
    ]


def _upright(values: Sequence[float], log: bool, bottom: float) -> Scale:
    low, high = min(values), max(values)
    if log:
        low = max(low, high * 10.0**-DECADES)
        if high / low > 30:
            low, high = 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high))
        else:
            low, high = low / 1.15, high * 1.15
    elif 0 <= low < 0.4 * high:
        low = 0.0
    else:
        low, high = low - 0.04 * (high - low), high + 0.04 * (high - low)
    return Scale(low, high, bottom, TOP, log)


def _spoken(lines: Sequence[Line]) -> str:
    """Every line in words: where it starts and where it ends."""
    said = []
    for line in lines:
        values = [v for v in line.y if v is not None]
        if values:
            said.append(f"{typeset(line.name)}: from {spell(values[0])} to {spell(values[-1])}")
    return "; ".join(said)


def _mostly_positive(lines: Sequence[Line]) -> bool:
    values = [v for line in lines for v in line.y if v is not None]
    return bool(values) and sum(v > 0 for v in values) >= 0.8 * len(values)


def _kept(line: Line, log: bool, x_log: bool) -> list[tuple[float, float]]:
    pairs = [(a, b) for a, b in zip(line.x, line.y, strict=True) if b is not None]
    return [(a, b) for a, b in pairs if (not log or b > 0) and (not x_log or a > 0)]


def _thin(pairs: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    if len(pairs) <= POINTS:
        return list(pairs)
    step = (len(pairs) - 1) / (POINTS - 1)
    return [pairs[round(i * step)] for i in range(POINTS)]


def _inside(value: float, y: Scale) -> float:
    return min(y.start, max(TOP, y(value)))


def _places(line: Line, x: Scale, y: Scale, log: bool, x_log: bool) -> list[tuple[float, float]]:
    return [(x(a), _inside(b, y)) for a, b in _thin(_kept(line, log, x_log))]


def path(places: Sequence[tuple[float, float]]) -> str:
    """A path through these places, each with no more digits than can be seen."""
    return "M" + "L".join(f"{a:.5g} {b:.4g}" for a, b in places)


def _stroke(places: Sequence[tuple[float, float]], name: str, look: Look) -> Markup:
    colour, dash = look
    ours = name.startswith(("Algorithm 1", "own curvature", "own steps"))
    dashes = Markup(' stroke-dasharray="{}"').format(" ".join(map(str, dash))) if dash else ""
    return Markup('<path class="line" d="{}" style="--l:{};--d:{}" stroke-width="{}"{}/>').format(
        path(places), *colour, 2.8 if ours else 1.7, dashes
    )


def dot(a: float, b: float, look: Look, size: float = 4.5) -> Markup:
    """A dot whose shape goes with the dash of its line, so that colour alone does not tell two apart."""
    colour, dash = look
    shape = SHAPES[DASHES.index(dash) if dash in DASHES else 0]
    drawn = {
        "circle": "M{l} {b}a{s} {s} 0 1 0 {w} 0a{s} {s} 0 1 0 -{w} 0",
        "square": "M{l} {t}h{w}v{w}h-{w}z",
        "triangle": "M{a} {t}l{s} {w}h-{w}z",
        "diamond": "M{a} {t}l{s} {s}l-{s} {s}l-{s} -{s}z",
    }[shape].format(
        l=f"{a - size:.4g}", t=f"{b - size:.4g}", a=f"{a:.4g}", b=f"{b:.4g}", s=f"{size:g}", w=f"{2 * size:g}"
    )
    return Markup('<path class="dot" d="{}" style="--l:{};--d:{}"/>').format(drawn, *colour)


def _whiskers(line: Line, x: Scale, y: Scale, colour: tuple[str, str], aside: float) -> Markup:
    """The range of every dot."""
    if not line.low or not line.high:
        return Markup("")
    rows = zip(line.x, line.low, line.high, strict=True)
    drawn = "".join(
        f"M{x(a) + aside:.4g} {_inside(lo, y):.4g}V{_inside(hi, y):.4g}"
        for a, lo, hi in rows
        if lo is not None and hi is not None
    )
    return Markup('<path class="line" d="{}" style="--l:{};--d:{}" stroke-width="1.4"/>').format(drawn, *colour)


def _band(line: Line, x: Scale, y: Scale, log: bool, x_log: bool, colour: tuple[str, str]) -> Markup:
    if not line.low or not line.high:
        return Markup("")
    rows = [
        (a, lo, hi)
        for a, lo, hi in zip(line.x, line.low, line.high, strict=True)
        if lo is not None and hi is not None and (not log or lo > 0) and (not x_log or a > 0)
    ]
    up, down = _thin([(a, hi) for a, _, hi in rows]), _thin([(a, lo) for a, lo, _ in rows])[::-1]
    places = [(x(a), _inside(b, y)) for a, b in [*up, *down]]
    if not places:
        return Markup("")
    return Markup('<path class="band" d="{}Z" style="--l:{};--d:{}"/>').format(path(places), *colour)


def spaced(wanted: Sequence[float], heights: Sequence[float], top: float, bottom: float) -> list[float]:
    """Middles of labels near where they are wanted, from top to bottom, none on another, all between the ends."""
    gaps = [(a + b) / 2 for a, b in pairwise(heights)]
    down, up = list(wanted), list(wanted)
    for i, gap in enumerate(gaps):
        down[i + 1] = max(down[i + 1], down[i] + gap)
    for i in range(len(gaps) - 1, -1, -1):
        up[i] = min(up[i], up[i + 1] - gaps[i])
    out = [(a + b) / 2 for a, b in zip(down, up, strict=True)]
    for i in range(len(out)):
        out[i] = max(out[i], top + heights[i] / 2 if i == 0 else out[i - 1] + gaps[i - 1])
    for i in range(len(out) - 1, -1, -1):
        out[i] = min(out[i], bottom - heights[i] / 2 if i == len(out) - 1 else out[i + 1] - gaps[i])
    return out


def _names(ends: Sequence[tuple[float, float, list[str], Look]], at: float, bottom: float) -> Markup:
    """The names at the lines' ends, moved apart where they would lie on each other, with a thin line to their end."""
    rows = sorted(ends, key=lambda row: row[0])
    middles = spaced([r[0] for r in rows], [LINE * len(r[2]) + (3 if len(r[2]) > 1 else 0) for r in rows], 8, bottom)
    out = []
    for (end, start, words, look), middle in zip(rows, middles, strict=True):
        if math.isnan(start):
            out.append(dot(at - 8, middle, look, 4))
        else:
            out.append(
                Markup('<path class="leader" d="M{:.4g} {:.4g}L{:.4g} {:.4g}h4" style="--l:{};--d:{}"/>').format(
                    start + 1, end, at - 6, middle, *look[0]
                )
            )
        first = middle + 4.5 - LINE / 2 * (len(words) - 1)
        for i, word in enumerate(words):
            out.append(Markup('<text x="{:.4g}" y="{:.4g}">{}</text>').format(at, first + LINE * i, word))
    return Markup("").join(out)


def folded(word: str, most: int) -> list[str]:
    """A long name in two lines, split at a comma, or else where its halves are most alike."""
    spaces = [i for i, c in enumerate(word) if c == " "]
    if len(word) <= most or not spaces:
        return [word]
    cut = min(spaces, key=lambda i: abs(i - len(word) / 2) - (6 if word[i - 1] == "," else 0))
    return [word[:cut], word[cut + 1 :]]


def _axes(x: Scale, y: Scale, chart: Chart, view: View, words: Sequence[tuple[float, list[str]]]) -> Markup:
    out = []
    for tick in y.ticks():
        at = y(tick)
        out.append(Markup('<path class="grid" d="M{:.0f} {:.4g}H{:.4g}"/>').format(LEFT, at, x.end))
        out.append(tick_text(LEFT - 6, at + 4, short(tick), "end"))
    if chart.reference is not None:
        out.append(Markup('<path class="equal" d="M{:.0f} {:.4g}H{:.4g}"/>').format(LEFT, y(chart.reference), x.end))
    for tick, lines in words:
        out += [tick_text(x(tick), y.start + 16 + 12 * i, line) for i, line in enumerate(lines)]
    out.append(tick_text((x.start + x.end) / 2, HEIGHT - 3, typeset(chart.x)))
    out.append(tick_text(0, 11, typeset(view.label), ""))
    return Markup("").join(out)


def tick_text(a: float, b: float, text: str, anchor: str = "middle") -> Markup:
    """A small word at an axis."""
    where = Markup(' text-anchor="{}"').format(anchor) if anchor else ""
    return Markup('<text class="tick" x="{:.4g}" y="{:.4g}"{}>{}</text>').format(a, b, where, text)


def short(value: float) -> str:
    """A tick as it is written: powers of ten as such where they are long."""
    power = math.log10(abs(value)) if value else 0.0
    if value and (power <= -3 or power >= 5) and abs(power - round(power)) < 1e-9:
        return "10" + "".join("⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".index(c)] for c in str(round(power)))
    return f"{value:,.6g}"
