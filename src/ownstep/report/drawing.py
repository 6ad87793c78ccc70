"""The one picture of an experiment's card, as svg in the page itself: at most five lines, each named at its end.

It needs no script, so it prints, works when the page is sent alone, and can be read by a screen reader: its description
says where every line starts and ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from ownstep.report.charts import Chart, Line, View
from ownstep.report.formatting import spell, typeset
from ownstep.report.palette import Palette

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 520, 276, 56, 26, 46
MOST = 5
POINTS = 80
FIRST = (
    "own curvature", "Algorithm 1", "L-BFGS", "GD 1/L-bar", "GD stratified", "GD matched step", "GD tuned", "GD best",
    "Nesterov",
)  # fmt: skip
"""Lines in the order in which a reader wants them; what is not listed comes after."""
DECADES = 7
"""Decades of a logarithmic axis at most: what lies deeper is rounding."""


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
        """Whole decades, or four to seven round numbers."""
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            if last - first >= 1:
                step = max(1, math.ceil((last - first) / 5))
                return [10.0**k for k in range(first, last + 1, step)]
        span = (self.high - self.low) or 1.0
        step = 10 ** math.floor(math.log10(span / 4))
        step *= next(m for m in (1, 2, 2.5, 5, 10) if span / (step * m) <= 6)
        count = range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)
        return [t for t in (round(k * step, 12) for k in count) if not self.log or t > 0]


def chosen(view: View) -> list[Line]:
    """The lines that are drawn, ours first."""

    def rank(line: Line) -> int:
        return next((i for i, name in enumerate(FIRST) if line.name.startswith(name)), len(FIRST))

    ordered = sorted(view.lines, key=lambda line: (rank(line), len(line.name)))
    firsts = [line for i, line in enumerate(ordered) if i == 0 or rank(line) != rank(ordered[i - 1])]
    rest = [line for line in ordered if line not in firsts]
    return sorted((firsts + rest)[:MOST], key=rank)


def picture(chart: Chart, palette: Palette, message: str = "") -> Markup:
    """The first view of a chart."""
    view = chart.views[0]
    lines = chosen(view)
    looks = palette.looks([line.name for line in lines])
    log = view.log and _mostly_positive(lines)
    seen = [(x, y) for line in lines for x, y in _kept(line, log, chart.x_log)]
    if not seen:
        return Markup("")
    room = 12 + 6.7 * max(len(line.name) for line in lines)
    aside = 0.4 if chart.ticks and chart.kind == "points" else 0.0
    x = Scale(min(a for a, _ in seen) - aside, max(a for a, _ in seen) + aside, LEFT, WIDTH - room, chart.x_log)
    low, high = min(b for _, b in seen), max(b for _, b in seen)
    if log:
        low, high = 10 ** math.floor(math.log10(max(low, high * 10.0**-DECADES))), 10 ** math.ceil(math.log10(high))
    elif 0 <= low < 0.4 * high:
        low = 0.0
    y = Scale(low, high, HEIGHT - BOTTOM, TOP, log)
    parts = [_axes(x, y, chart, view)]
    ends: list[tuple[float, str, tuple[str, str]]] = []
    for line, (colour, dash) in zip(lines, looks, strict=True):
        parts.append(_band(line, x, y, log, chart.x_log, colour))
        path, end = _path(line, x, y, log, chart.x_log)
        if path and chart.ticks and chart.kind == "points":  # no order in the ticks, so no line between them
            parts.append(_dots(path, colour))
            ends.append((end, typeset(line.name), colour))
        elif path:
            ours = line.name.startswith(("Algorithm 1", "own curvature"))
            parts.append(
                Markup(
                    '<path class="line" d="{}" style="--l:{};--d:{}" stroke-width="{}" stroke-dasharray="{}"/>'
                ).format(path, *colour, 2.8 if ours else 1.7, " ".join(map(str, dash)))
            )
            ends.append((end, typeset(line.name), colour))
    parts.append(_names(ends, WIDTH - room + 8))
    title = message or f"{view.label} over {chart.x}"
    return Markup(
        '<svg class="picture" viewBox="0 0 {} {}" role="img" aria-label="{}"><title>{}</title>{}</svg>'
    ).format(WIDTH, HEIGHT, f"{title}. {_told(lines)}", title, Markup("").join(parts))


def _told(lines: Sequence[Line]) -> str:
    """Every line in words: where it starts and where it ends."""
    told = []
    for line in lines:
        values = [v for v in line.y if v is not None]
        if values:
            told.append(f"{typeset(line.name)}: from {spell(values[0])} to {spell(values[-1])}")
    return "; ".join(told)


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


def _path(line: Line, x: Scale, y: Scale, log: bool, x_log: bool) -> tuple[str, float]:
    pairs = _thin(_kept(line, log, x_log))
    places = [(x(a), min(HEIGHT - BOTTOM, max(TOP, y(b)))) for a, b in pairs]
    if not places:
        return "", 0.0
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in places), places[-1][1]


def _dots(path: str, colour: tuple[str, str]) -> Markup:
    places = [place.split() for place in path.removeprefix("M").split("L")]
    return Markup("").join(
        Markup('<circle class="dot" cx="{}" cy="{}" r="4.5" style="--l:{};--d:{}"/>').format(*place, *colour)
        for place in places
    )


def _band(line: Line, x: Scale, y: Scale, log: bool, x_log: bool, colour: tuple[str, str]) -> Markup:
    if not line.low or not line.high:
        return Markup("")
    rows = [
        (a, lo, hi)
        for a, lo, hi in zip(line.x, line.low, line.high, strict=True)
        if lo is not None and hi is not None and (not log or lo > 0) and (not x_log or a > 0)
    ]
    up, down = _thin([(a, hi) for a, _, hi in rows]), _thin([(a, lo) for a, lo, _ in rows])[::-1]
    places = [(x(a), min(HEIGHT - BOTTOM, max(TOP, y(b)))) for a, b in [*up, *down]]
    path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in places) + "Z" if places else ""
    return Markup('<path class="band" d="{}" style="--l:{};--d:{}"/>').format(path, *colour)


def _names(ends: Sequence[tuple[float, str, tuple[str, str]]], at: float) -> Markup:
    """The names at the lines' ends, moved apart where they would lie on each other."""
    placed: list[float] = []
    out = []
    for end, name, colour in sorted(ends):
        where = max(end, placed[-1] + 15 if placed else TOP)
        placed.append(where)
        out.append((where, name, colour))
    over = max(0.0, (placed[-1] if placed else 0) - (HEIGHT - 6))
    return Markup("").join(
        Markup(
            '<path class="line" d="M{:.1f} {:.1f}h7" style="--l:{};--d:{}" stroke-width="3"/>'
            '<text x="{:.1f}" y="{:.1f}">{}</text>'
        ).format(at - 9, where - over, *colour, at, where - over + 4, name)
        for where, name, colour in out
    )


def _axes(x: Scale, y: Scale, chart: Chart, view: View) -> Markup:
    out = []
    for tick in y.ticks():
        at = y(tick)
        out.append(Markup('<path class="grid" d="M{:.0f} {:.1f}H{:.0f}"/>').format(LEFT, at, x.end))
        out.append(
            Markup('<text class="tick" x="{}" y="{:.1f}" text-anchor="end">{}</text>').format(
                LEFT - 6, at + 4, _tick(tick)
            )
        )
    ticks = [float(i) for i in range(len(chart.ticks))] if chart.ticks else x.ticks()
    for tick in ticks:
        if x.low <= tick <= x.high:
            word = chart.ticks[int(tick)] if chart.ticks else _tick(tick)
            out.append(
                Markup('<text class="tick" x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(
                    x(tick), HEIGHT - BOTTOM + 16, _folded(word, x.end - x.start, len(ticks), x(tick))
                )
            )
    out.append(
        Markup('<text class="tick" x="{:.0f}" y="{}" text-anchor="middle">{}</text>').format(
            (x.start + x.end) / 2, HEIGHT - 4, typeset(chart.x)
        )
    )
    out.append(Markup('<text class="tick" x="{}" y="10">{}</text>').format(0, typeset(view.label)))
    return Markup("").join(out)


def _folded(word: str, width: float, count: int, at: float) -> Markup:
    """A long name of a tick in two lines, split where its halves are most alike."""
    spaces = [i for i, c in enumerate(word) if c == " "]
    if 6.2 * len(word) <= width / max(1, count - 1) or not spaces:
        return Markup("{}").format(word)
    cut = min(spaces, key=lambda i: abs(i - len(word) / 2))
    return Markup('{}<tspan x="{:.1f}" dy="12">{}</tspan>').format(word[:cut], at, word[cut + 1 :])


def _tick(value: float) -> str:
    power = math.log10(abs(value)) if value else 0.0
    if value and (power <= -3 or power >= 5) and abs(power - round(power)) < 1e-9:
        return "10" + "".join("⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".index(c)] for c in str(round(power)))
    return f"{value:,.6g}"


def waterfall(factors: Sequence[tuple[str, float]]) -> Markup:
    """A speed-up as the product of its parts, on one logarithmic axis: each bar starts where the last one ended."""
    ends = [1.0]
    for _, factor in factors:
        ends.append(ends[-1] * factor)
    low, high = min(0.5, *ends) * 0.95, max(2.0, *ends) * 1.05
    scale = Scale(low, high, 110, WIDTH - 60, True)
    out = [
        Markup(
            '<path class="grid" d="M{0:.1f} 4V{1}"/>'
            '<text class="tick" x="{0:.1f}" y="{2}" text-anchor="middle">{3:g}×</text>'
        ).format(scale(tick), 24 * len(factors) + 30, 24 * len(factors) + 46, tick)
        for tick in (0.25, 0.5, 1, 2, 4, 8)
        if low <= tick <= high
    ]
    rows = [
        *[(name, a, a * f, f) for (name, f), a in zip(factors, ends, strict=False)],
        ("whole speed-up", 1.0, ends[-1], ends[-1]),
    ]
    for i, (name, start, end, factor) in enumerate(rows):
        left, right, top = sorted((scale(start), scale(end)))[0], sorted((scale(start), scale(end)))[1], 6 + 24 * i
        kind = "whole" if i == len(rows) - 1 else "more" if factor >= 1 else "less"
        out.append(
            Markup(
                '<text x="104" y="{}" text-anchor="end">{}</text>'
                '<rect class="{}" x="{:.1f}" y="{}" width="{:.1f}" height="16" rx="2"/>'
                '<text x="{:.1f}" y="{}">{:.2f}×</text>'
            ).format(top + 12, name, kind, left, top, max(2.0, right - left), right + 6, top + 12, factor)
        )
    told = ", ".join(f"{name} {factor:.2f}" for name, factor in factors)
    return Markup('<svg class="picture waterfall" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, 24 * len(rows) + 28, f"Where the speed-up of {ends[-1]:.2f} comes from: {told}", Markup("").join(out)
    )


__all__ = ["picture", "waterfall"]
