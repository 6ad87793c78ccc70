"""Cards of the experiments on data: speed-ups over GD at 1/L-bar, and who else is as fast."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ownstep.paper.appendix.mnist import lagging
from ownstep.paper.machinery.bootstrap import interval
from ownstep.report.cards.speeds import (
    MATCHED,
    NESTEROV,
    OURS,
    POOLED,
    STRATIFIED,
    WORTHWHILE,
    Card,
    Speed,
    early,
    speeds,
    split_of,
    standing,
    titled,
)
from ownstep.report.charts import Chart, Line, View
from ownstep.report.formatting import ranged
from ownstep.report.results import Record
from ownstep.report.waterfalls import Split

FINAL = "to the larger of the two final losses"
ENCODERS = {"mpnet, power": "all-mpnet-base-v2", "minilm, power": "all-MiniLM-L6-v2"}


def w8a(record: Record, figures: Sequence[Chart], every: Sequence[Split]) -> Card:
    """The paper's subset, split by label, is drawn; the other settings give the spread."""
    found = [s for s in speeds(record) if s.rival == POOLED]
    mine = [s for s in found if s.where == "subset" and s.what.startswith("by_label")][-1]
    level, values = mine.what.partition(", ")[2], [s.value for s in found]
    rows = record.result["subset"]["by_label"]["rows"]
    ahead = _ratios([rows], level.rpartition(" ")[2], (POOLED, MATCHED, "GD tuned", "Nesterov"))
    return Card(
        f"{mine.value:.2f} times fewer rounds than GD at 1/L-bar {level} (the paper's subset, split by label, drawn). "
        f"Mean over all {len(values)} settings {interval(values)}, from {min(values):.2f} to {max(values):.2f}",
        standing(ahead),
        chart=titled(figures, "subset, by label"),
        split=(split := split_of(every, "subset", "by_label")),
        level="Rounds to the lowest level that all methods in the product reach"
        + (f": {split.whole.value:.2f}. The measured {mine.value:.2f} is {level}." if split else "."),
    )


def cifar10(record: Record, figures: Sequence[Chart], every: Sequence[Split]) -> Card:
    """Over GD, and over GD whose batches are drawn as Algorithm 1's are."""
    found = {s.rival: s for s in speeds(record)}  # the last of each rival, to the final losses
    return Card(
        f"{found[POOLED].text} times fewer rounds than GD at 1/L-bar, {FINAL} ({found[POOLED].runs} runs); "
        f"{found[STRATIFIED].text} over GD on batches drawn class by class",
        standing({rival: found[rival].value for rival in (POOLED, STRATIFIED)}),
        split=every[0] if every else None,
        level=early(every[0] if every else None, found[POOLED].value),
    )


def sst2(record: Record, figures: Sequence[Chart], every: Sequence[Split]) -> Card:
    """Both encoders in numbers, the larger one drawn."""
    found = {(s.where, s.rival): s for s in speeds(record)}
    parts = [
        f"{found[arm, POOLED].text} with {name} ({found[arm, POOLED].runs} runs{', drawn' if i == 0 else ''})"
        for i, (arm, name) in enumerate(ENCODERS.items())
    ]
    arm = next(iter(ENCODERS))
    return Card(
        f"{' and '.join(parts)}: rounds of GD at 1/L-bar over Algorithm 1's, {FINAL}",
        standing({rival: found[arm, rival].value for rival in (POOLED, MATCHED)}),
        chart=titled(figures, arm),
        split=split_of(every, arm),
        level=early(split_of(every, arm), found[arm, POOLED].value),
    )


def mnist(record: Record, figures: Sequence[Chart], every: Sequence[Split]) -> Card:
    """5,000 images with the paper's constants, where every rival was run; and the test accuracy, which lags."""
    arm = "5,000 images, paper"
    mine = {s.rival: s for s in speeds(record) if s.where == arm}
    other = [s for s in speeds(record) if s.where == "60,000 images, paper" and s.rival == POOLED]
    text = f"{mine[POOLED].text} times fewer rounds than GD at 1/L-bar, {FINAL} (5,000 images, the paper's constants, "
    text += f"{mine[POOLED].runs} runs)" + (f"; {other[-1].text} with 60,000 images" if other else "")
    lag = re.search(r"in (\d+) of (\d+) measurements, .*?(\d+)\)", lagging({arm: record.result["arms"][arm]}))
    also = "Its test accuracy lags: the mean is below that of GD at 1/L-bar and at the matched step in {} of {} "
    also += "measurements, the last at round {}."
    return Card(
        text,
        standing({rival: found.value for rival, found in mine.items()}),
        chart=titled(figures, arm),
        also=also.format(*lag.groups()) if lag else "",
        split=split_of(every, arm),
        level=early(split_of(every, arm), mine[POOLED].value),
    )


def trend(record: Record, figures: Sequence[Chart], every: Sequence[Split]) -> Card:
    """The speed-up over what is varied, with its interval: the claim itself."""
    found = speeds(record)
    model = found[0].where
    over = {rival: [s for s in found if s.where == model and s.rival == rival] for rival in (POOLED, MATCHED)}
    mine, fair = over[POOLED], over[MATCHED]
    axis = "alpha (smaller: devices differ more)" if record.name == "dirichlet" else "devices N"
    lines = [
        Line(f"over {rival}", [float(i) for i in range(len(row))], [s.value for s in row], [s.low for s in row],
             [s.high for s in row])
        for rival, row in over.items()
    ]  # fmt: skip
    drawn = Chart(
        f"Speed-up of Algorithm 1, {model}", "verdict.numbers", axis,
        [View("rounds of GD over Algorithm 1's", lines, False)],
        ticks=[s.what.rpartition(" ")[2] for s in mine], reference=1.0,
        note=f"Means of {mine[0].runs} splits. Shaded: 95 % bootstrap intervals",
    )  # fmt: skip
    none = max(s.value for s in fair) < WORTHWHILE
    return Card(
        f"{mine[0].text} times fewer rounds than GD at 1/L-bar at {mine[0].what}, {mine[-1].text} at {mine[-1].what} "
        f"({model}, {mine[0].runs} splits each)",
        f"The speed-up over GD at 1/L-bar goes from {mine[0].value:.2f} to {mine[-1].value:.2f}; over GD at the "
        f"matched step there is {'none' if none else 'less'}",
        chart=drawn,
        split=split_of(every, f" {mine[-1].what.replace(' = ', ' ')},") or (every[0] if every else None),
    )


def contest(record: Record, figures: Sequence[Chart], every: Sequence[Split]) -> Card:
    """Against gossip or FedOpt methods: the weakest and the strongest rival at the hardest level, first graph."""
    found = speeds(record)
    where = found[0].where
    what = [s.what for s in found if s.where == where][-1]
    at, level = [s for s in found if s.where == where and s.what == what], what.rpartition(" ")[2]
    part = record.result.get("network") or record.result
    tables = [arm["rows"] for arm in part["arms"].values() if where.endswith(arm["group"])]
    as_set, tuned = (sorted((s for s in at if s.who.endswith("tuned") is yes), key=_value) for yes in (False, True))
    names = (as_set[-1].rival, as_set[0].rival)
    return Card(
        f"As set, the rivals need {_extremes(as_set, tables, level)} times Algorithm 1's rounds to {level}; with both "
        f"sides tuned, {_extremes(tuned, tables, level)} ({where.replace(': ', ', ')}, {at[0].runs} runs)",
        "As set, " + standing({s.rival: s.value for s in as_set[::-1]} | _ratios(tables, level, (MATCHED, NESTEROV))),
        lines=(OURS, *names, MATCHED, NESTEROV),
    )


def _value(speed: Speed) -> float:
    return speed.value


def _extremes(found: Sequence[Speed], tables: Sequence[Any], level: str) -> str:
    """The smallest and the largest of some speed-ups; one whose rival never got there is a lower bound."""

    def text(speed: Speed) -> str:
        ends = [row["rounds"][level] for rows in tables for row in rows if row["method"] == speed.rival]
        return f"{'at least ' if None in ends else ''}{speed.text} ({speed.rival.removesuffix(' tuned')})"

    return f"{text(found[0])} to {text(found[-1])}"


def _ratios(tables: Sequence[Sequence[Mapping[str, Any]]], level: str, rivals: Sequence[str]) -> dict[str, float]:
    """Rounds of rivals over Algorithm 1's, the mean over runs where all of them got to the level."""
    rounds = [{row["method"]: row["rounds"][level] for row in rows} for rows in tables]
    out = {}
    for rival in rivals:
        if all(one.get(rival) and one.get(OURS) for one in rounds):
            out[rival] = float(np.mean([one[rival] / one[OURS] for one in rounds]))
    return out


def absent(record: Record, figures: Sequence[Chart], every: Sequence[Split]) -> Card:
    """The fewest devices present, at the hardest level."""
    model = str(record.numbers[0]["group"]).partition(": ")[0]
    mine = [n for n in record.numbers if str(n["group"]).startswith(model)]
    last = [n for n in mine if str(n["what"]).startswith("p = 0.7")][-1]
    text, level = ranged(last["value"], last["low"], last["high"]), str(last["what"]).partition(", ")[2]
    return Card(
        f"{text} times the rounds of full participation {level}, with each device present with probability 0.7 "
        f"({model}, {last['runs']} runs); up to {str(last['note']).rpartition(' ')[2]} counts as robust",
        f"With 30 % of the devices absent, Algorithm 1 needs {last['value']:.2f} times the rounds",
    )
