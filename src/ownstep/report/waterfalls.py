"""Where a speed-up comes from: longer step, sampling and geometry, as one waterfall each and all on one axis."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from ownstep.report.drawing import WIDTH, Scale, dot, tick_text
from ownstep.report.formatting import is_number, ranged, typeset
from ownstep.report.palette import DASHED, DOTTED, OLIVE, SOLID, TEAL, WINE, Look
from ownstep.report.results import Results

WORTHWHILE = 1.05
"""A speed-up counts from here on."""
LOOKS: dict[str, Look] = {"longer step": (TEAL, SOLID), "sampling": (OLIVE, DASHED), "geometry": (WINE, DOTTED)}
SHORTER = (
    (r"^w8a all\b", "all of w8a"), (r"^dirichlet, alpha ", "Dirichlet, alpha "), (r"^cifar10, paper$", "cifar10"),
    (r"^devices, N (\d+)", r"\1 devices"), (r"^sst2, ", ""), (r", paper$", ""),
    (r", 5,000 images, differences$", ", 5,000, differences"),
    (r", logistic regression$", " (logistic)"),
)  # fmt: skip
TICKS = (0.25, 0.5, 1, 2, 4, 8)


@dataclass(frozen=True)
class Factor:
    """A factor with its interval, which one run does not have."""

    what: str
    value: float
    low: float | None = None
    high: float | None = None
    runs: int = 1

    @property
    def text(self) -> str:
        return ranged(self.value, self.low, self.high)


@dataclass(frozen=True)
class Split:
    """A speed-up and the factors that make it up."""

    group: str
    whole: Factor
    parts: tuple[Factor, ...]

    @property
    def name(self) -> str:
        """In words that fit next to a bar."""
        text = self.group.removesuffix(", the paper's network")
        for pattern, words in SHORTER:
            text = re.sub(pattern, words, text)
        return typeset(text)

    @property
    def counts(self) -> bool:
        """Is the whole a speed-up at all?"""
        return worthwhile(self.whole)


def worthwhile(factor: Factor) -> bool:
    """Is a factor above 1.05, its whole interval where it has one?"""
    return (factor.value if factor.low is None else factor.low) > WORTHWHILE


def splits(results: Results) -> list[Split]:
    """Every speed-up that the attribution splits; of several runs these are means."""
    found: dict[str, list[Factor]] = {}
    for record in results.records:
        for number in record.numbers if record.name == "attribution" else ():
            value = number.get("value")
            if is_number(value) and value > 0:
                found.setdefault(str(number.get("group")), []).append(_factor(number, float(value)))
    out = []
    for group, factors in found.items():
        whole = [f for f in factors if f.what == "all"]
        parts = tuple(f for f in factors if f.what in LOOKS)
        if whole and parts:
            out.append(Split(group, whole[0], parts))
    return out


def _factor(number: Mapping[str, Any], value: float) -> Factor:
    low, high = (float(v) if is_number(v := number.get(key)) else None for key in ("low", "high"))
    runs = number.get("runs")
    return Factor(str(number.get("what")), value, low, high, runs if isinstance(runs, int) else 1)


def of(name: str, every: Sequence[Split]) -> list[Split]:
    """The splits of one experiment, those with the paper's own setting first."""
    mine = [s for s in every if s.group == name or s.group.startswith((f"{name} ", f"{name},"))]
    return sorted(mine, key=lambda s: ("logistic" in s.group, "paper" not in s.group))


def waterfall(split: Split) -> Markup:
    """A speed-up as the product of its parts, on one logarithmic axis: each bar starts where the last one ended."""
    ends = [1.0]
    for part in split.parts:
        ends.append(ends[-1] * part.value)
    scale = _scale([*ends, split.whole.value], 92, WIDTH - 118)
    rows = [(p.what, a, a * p.value, p.text) for p, a in zip(split.parts, ends, strict=False)]
    rows.append(("whole", 1.0, split.whole.value, split.whole.text))
    height = 23 * len(rows)
    out = _grid(scale, height)
    for i, (name, start, end, text) in enumerate(rows):
        (left, right), top = sorted((scale(start), scale(end))), 5 + 23 * i
        kind = "whole" if i == len(rows) - 1 else "up" if end >= start else "down"
        out.append(
            Markup(
                '<text x="86" y="{0}" text-anchor="end">{1}</text>'
                '<rect class="{2}" x="{3:.4g}" y="{4}" width="{5:.4g}" height="15" rx="2"/>'
                '<text x="{6:.4g}" y="{0}">{7}</text>'
            ).format(top + 12, name, kind, left, top, max(2.0, right - left), right + 6, text)
        )
    said = ", ".join(f"{p.what} {p.text}" for p in split.parts)
    label = f"{split.name}: the speed-up of {split.whole.text} comes from {said}"
    return Markup('<svg class="picture waterfall" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, height + 22, label, Markup("").join(out)
    )


def overview(every: Sequence[Split]) -> Markup:
    """The factors of many speed-ups as dots with their intervals, one row per speed-up."""
    values = [v for s in every for p in s.parts for v in (p.value, p.low, p.high) if v is not None]
    if not values:
        return Markup("")
    scale, top = _scale(values, 166, WIDTH - 12), 24
    height = top + 19 * len(every)
    out = _grid(scale, height, top)
    for i, (name, look) in enumerate(LOOKS.items()):
        out += [dot(172 + 94 * i, 9, look), Markup('<text x="{}" y="13">{}</text>').format(181 + 94 * i, name)]
    for i, split in enumerate(every):
        at = top + 10 + 19 * i
        out.append(Markup('<text x="160" y="{}" text-anchor="end">{}</text>').format(at + 4, split.name))
        for part in split.parts:
            look = LOOKS[part.what]
            if part.low is not None and part.high is not None:
                out.append(
                    Markup(
                        '<path class="line" d="M{:.4g} {}H{:.4g}" style="--l:{};--d:{}" stroke-width="1.6"/>'
                    ).format(scale(part.low), at, scale(part.high), *look[0])
                )
            out.append(dot(scale(part.value), at, look))
    said = "; ".join(f"{s.name}: " + ", ".join(f"{p.what} {p.text}" for p in s.parts) for s in every)
    return Markup('<svg class="picture" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, height + 22, f"Factors of {len(every)} speed-ups. {said}", Markup("").join(out)
    )


def _scale(values: Sequence[float], start: float, end: float) -> Scale:
    return Scale(min(0.5, *values) * 0.96, max(2.0, *values) * 1.04, start, end, True)


def _grid(scale: Scale, bottom: float, top: float = 2) -> list[Markup]:
    out = []
    for tick in TICKS:
        if scale.low <= tick <= scale.high:
            kind = "equal" if tick == 1 else "grid"
            out.append(Markup('<path class="{}" d="M{:.4g} {}V{}"/>').format(kind, scale(tick), top, bottom))
            out.append(tick_text(scale(tick), bottom + 14, f"{tick:g}"))
    return out
