"""Cards of what the paper does not ask: constants, reasons, extensions and own curvature."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ownstep.paper.machinery.bootstrap import interval
from ownstep.paper.ours import curvature_findings as found_in
from ownstep.paper.ours.curvature_runs import DEFAULT
from ownstep.report.cards.speeds import OURS, WORTHWHILE, Card
from ownstep.report.charts import Chart, Line, View
from ownstep.report.formatting import ranged
from ownstep.report.results import Record
from ownstep.report.waterfalls import Split, overview, worthwhile


def estimates(record: Record, figures: Sequence[Chart], every: Sequence[Split]) -> Card:
    """The paper's estimate of the MNIST network's constants, and the curvature it should be."""
    network = record.result["networks"]["mnist"]
    rows = network["rows"]
    exact = max(max(r["L"]) for r in rows if r["epsilon"] is None and r["scale"] == network["scale"])
    drawn = next(r for r in rows if r["own"] and r["precision"] == "float64" and r["epsilon"] is not None)
    largest, draws, view = max(drawn["L"]), int(drawn["draws"]), figures[0].views[0]
    ends = Line("exact Hessian products", [1.0, float(draws)], [exact, exact])
    return Card(
        f"{largest:.0f} by {draws:,} random ratios, {exact:.1f} by exact Hessian products (MNIST, float64)",
        f"The largest ratio grows with the draws, to {largest / exact:.0f} times the exact curvature (MNIST)",
        chart=replace(figures[0], views=[replace(view, lines=[*view.lines, ends])]),
    )


def attribution(record: Record, figures: Sequence[Chart], every: Sequence[Split]) -> Card:
    """The factors of every speed-up that is one."""
    counted = [s for s in every if s.counts]
    geometry = [f for s in counted for f in s.parts if f.what == "geometry"]
    most, least = max(geometry, key=lambda f: f.value), min(geometry, key=lambda f: f.value)
    alone = sum(map(worthwhile, geometry))
    values = [f.value for f in geometry]
    return Card(
        f"Geometry alone gives from {least.text} to {most.text} times fewer rounds, {interval(values)} in the mean, in "
        f"the {len(counted)} speed-ups above {WORTHWHILE}",
        f"Geometry alone explains {alone or 'none'} of {len(counted)} speed-ups; a longer step or the sampling does",
        picture=overview(counted),
    )


def which(record: Record, figures: Sequence[Chart], every: Sequence[Split]) -> Card:
    """In how many comparisons, and in how many cases with the fewest rounds of all."""
    won, total = re.findall(r"in (\d+) of (\d+)", record.rule)[0]
    slower = re.search(r"slower in (\d+)", record.rule)
    rounds = {line.name: line.y for line in figures[0].views[0].lines}
    cases = len(figures[0].ticks or [])
    reached = [{name: y[i] or math.inf for name, y in rounds.items()} for i in range(cases)]
    first = sum(math.isfinite(of[OURS]) and of[OURS] == min(of.values()) for of in reached)
    return Card(
        f"Faster in {won} of {total} comparisons (case, rival, level)" + (f", slower in {slower[1]}" if slower else ""),
        f"After the same search, Algorithm 1 needs the fewest rounds in {first} of {cases} cases (no dot: not reached)",
        lines=(OURS, "GD", "SCAFFOLD", "FedAvgM", "FedAdam"),
    )


def beyond(record: Record, figures: Sequence[Chart], every: Sequence[Split]) -> Card:
    """Own steps in two forms, next to the same forms on pooled data."""
    won, total = re.findall(r"in (\d+) of (\d+)", record.rule)[0]
    pairs = (("adaptive own steps", "Barzilai-Borwein"), ("own steps, ITEM", "ITEM 1/L-bar"))
    rounds = {line.name: line.y for line in figures[0].views[0].lines}
    ratios = [a / b for own, pooled in pairs for a, b in zip(rounds[own], rounds[pooled], strict=True) if a and b]
    return Card(
        f"More than {WORTHWHILE} times faster than the same idea on pooled data in {won} of {total} comparisons",
        f"Own steps of both kinds need {np.median(ratios):.2f} times the rounds of their pooled forms (median)",
        lines=(*pairs[0], *pairs[1], "L-BFGS"),
    )


def curvature(record: Record, figures: Sequence[Chart], every: Sequence[Split]) -> Card:
    """Ten devices by label at the default rank, and the chart at that rank."""
    result, rank = record.result, DEFAULT
    name = found_in.names(result)[0]

    def line(label: str, split: str) -> Line:
        found = {n: list(found_in.cell(result, name, split, n, rank).values()) for n in found_in.COUNTS}
        kept = {n: v for n, v in found.items() if v and np.isfinite(v).all()}
        low, middle, high = ([float(of(v)) for v in kept.values()] for of in (min, np.mean, max))
        return Line(label, [float(n) for n in kept], [*middle], [*low], [*high])

    wanted = ({"method": "own_curvature", "split": "label", "devices": 10, "rank": rank}, {"method": "lbfgs"})
    own, theirs = (interval(list(found_in.by_draw(found_in.pick(result, data=name, **w)).values())) for w in wanted)
    counts = [float(n) for n in found_in.COUNTS]
    lines = [
        line("own curvature, by label", "label"), line("own curvature, devices alike", "iid"),
        Line("L-BFGS", counts, [theirs.mean] * len(counts)),
    ]  # fmt: skip
    data, _, mu = name.partition(" ")
    drawn = Chart(
        f"{name}, default rank {rank}: exchanges over the number of devices", "result.rows", "devices",
        [View("exchanges", lines, False)], x_log=True, note=f"Means of {own.runs} draws. Shaded: their range",
    )  # fmt: skip
    return Card(
        f"{ranged(own.mean, own.low, own.high)} exchanges where L-BFGS needs "
        f"{ranged(theirs.mean, theirs.low, theirs.high)} ({data}, mu = {float(mu):g}, ten devices by label, default "
        f"rank {rank}, {own.runs} draws)",
        f"Ten devices need {own.mean:.0f} exchanges where L-BFGS needs {theirs.mean:.0f}; more devices need fewer",
        chart=drawn,
    )
