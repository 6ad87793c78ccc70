"""What the cards share: their parts, the speed-ups among a verdict's numbers, and who is ahead of whom."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from ownstep.report.charts import Chart
from ownstep.report.formatting import is_number, ranged
from ownstep.report.results import Record
from ownstep.report.waterfalls import Split

OURS, POOLED, MATCHED, STRATIFIED, NESTEROV = (
    "Algorithm 1", "GD 1/L-bar", "GD matched step", "GD stratified", "Nesterov 1/L-bar",
)  # fmt: skip
WORTHWHILE = 1.05
"""From here on a speed-up counts as one."""
OVER = re.compile(r"^(?:(?P<where>.*): )?rounds of (?P<rival>.+?) over those of (?P<who>Algorithm 1.*)$")
SPOKEN = {
    POOLED: "GD at 1/L-bar", MATCHED: "GD at the matched step", "GD tuned": "tuned GD", NESTEROV: "Nesterov",
    STRATIFIED: "GD on batches drawn class by class",
}  # fmt: skip
"""Methods as a sentence names them."""


@dataclass(frozen=True)
class Card:
    """The parts of a card that are computed from the result."""

    measured: str = ""
    message: str = ""
    """Title of the chart: what it shows, in one sentence."""
    chart: Chart | None = None
    lines: tuple[str, ...] = ()
    """Names of the lines drawn, where they are not simply the first five."""
    also: str = ""
    """What else has to be said where the number stands."""
    split: Split | None = None
    level: str = "Rounds to the lowest level that all methods in the product reach."
    """To which level the rounds of the split are counted, and why its whole is not the number measured."""
    picture: Markup | None = None
    """In place of a chart."""


Maker = Callable[[Record, Sequence[Chart], Sequence[Split]], Card]


@dataclass(frozen=True)
class Speed:
    """One speed-up of a verdict, over one rival in one setting."""

    where: str
    rival: str
    who: str
    what: str
    value: float
    low: float | None
    high: float | None
    runs: int

    @property
    def text(self) -> str:
        return ranged(self.value, self.low, self.high)


def speeds(record: Record) -> list[Speed]:
    """Every speed-up among the numbers of a verdict."""
    out = []
    for number in record.numbers:
        match = OVER.match(str(number.get("group", "")))
        value, runs = number.get("value"), number.get("runs")
        if match and is_number(value):
            low, high = (float(v) if is_number(v := number.get(key)) else None for key in ("low", "high"))
            what, count = str(number.get("what", "")), runs if isinstance(runs, int) else 1
            out.append(Speed(match["where"] or "", match["rival"], match["who"], what, float(value), low, high, count))
    return out


def early(split: Split | None, measured: float) -> str:
    """Why the whole of a network's split is another number than the speed-up to the final losses."""
    text = "Rounds to the largest of the best losses of all methods in the product"
    if split is None or f"{split.whole.value:.2f}" == f"{measured:.2f}":
        return f"{text}."
    return (
        f"{text}: {split.whole.value:.2f}. The measured {measured:.2f} is to the larger of two final losses, which "
        "comes later."
    )


def titled(figures: Sequence[Chart], title: str) -> Chart | None:
    """The chart of this title."""
    return next((f for f in figures if f.title == title), None)


def split_of(every: Sequence[Split], *words: str) -> Split | None:
    """The first split whose name has all these words."""
    return next((s for s in every if all(word in s.group for word in words)), None)


def standing(speed_ups: Mapping[str, float]) -> str:
    """One sentence on whom Algorithm 1 is ahead of, level with and behind, by its speed-ups over them.

    >>> standing({"GD 1/L-bar": 1.2, "GD tuned": 0.1, "GD stratified": 1.01})
    'Algorithm 1 is ahead of GD at 1/L-bar, level with GD on batches drawn class by class and behind tuned GD'
    """
    kinds: dict[str, list[str]] = {"ahead of": [], "level with": [], "behind": []}
    for name, ratio in speed_ups.items():
        kind = "ahead of" if ratio > WORTHWHILE else "behind" if ratio < 1 / WORTHWHILE else "level with"
        kinds[kind].append(SPOKEN.get(name, name))
    return "Algorithm 1 is " + joined([f"{kind} {joined(names)}" for kind, names in kinds.items() if names])


def joined(parts: Sequence[str]) -> str:
    """Words as a list in a sentence."""
    return ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]
