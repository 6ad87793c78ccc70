"""Cards of the worst cases, whose numbers are enclosed between a proof and an example."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ownstep.report.cards.speeds import OURS, POOLED, Card
from ownstep.report.charts import Chart
from ownstep.report.results import Record
from ownstep.report.waterfalls import Split

FIXED = "GD best fixed step"


def curves(record: Record, figures: Sequence[Chart], every: Sequence[Split]) -> Card:
    """Fig. 1a: the best of the three switches, next to GD with both steps and Nesterov."""
    last = {name: bounds[-1] for name, bounds in record.result["curves"].items()}
    best = min((n for n in last if n.startswith(OURS)), key=lambda n: float(last[n]["upper"]))
    ours, pooled, fixed = (float(last[n]["upper"]) for n in (best, POOLED, FIXED))
    exact = max(float(last[n]["gap"]) for n in (best, POOLED, FIXED))
    return Card(
        f"{ours:.3f} after {last[best]['rounds']} rounds ({best.partition(', ')[2]}); GD at 1/L-bar {pooled:.3f}, at "
        f"its best fixed step {fixed:.4f}. Proof and example agree to a relative {exact:.0e}",
        f"Algorithm 1's worst case is {pooled / ours:.1f} times below that of GD at 1/L-bar and {ours / fixed:.1f} "
        "times above that of GD at its best fixed step",
        lines=(best, "own steps, no switch", POOLED, FIXED, "Nesterov"),
    )


def ratios(record: Record, figures: Sequence[Chart], every: Sequence[Split]) -> Card:
    """Fig. 1b: the ratio at both ends of the axis."""
    line, ticks = figures[0].views[0].lines[0], figures[0].ticks or []
    low, high = float(line.y[0] or 0), float(line.y[-1] or 0)
    return Card(
        f"Ratio of worst cases {low:.3f} at L = ({ticks[0]}), {high:.3f} at L = ({ticks[-1]}), for f(x) - f(x*) after "
        f"{record.result['rounds']} rounds",
        f"Algorithm 1's worst case is {'above' if high > 1 else 'below'} GD's where the devices are nearly alike",
    )


def devices(record: Record, figures: Sequence[Chart], every: Sequence[Split]) -> Card:
    """Fig. 1c: one ratio for every number of devices."""
    found = {int(r["devices"]): float(r["ratio"]) for r in record.result["rows"]}
    first, most = found[min(found)], max(found)
    return Card(
        f"Ratio of worst cases {first:.3f} for {min(found)} to {most:,} devices; it varies by a relative "
        f"{max(found.values()) / min(found.values()) - 1:.0e}",
        f"The ratio is {first:.3f} with {min(found)} devices"
        + (f" and with {most:,}" if f"{found[most]:.3f}" == f"{first:.3f}" else f", {found[most]:.3f} with {most:,}"),
    )


def theorem(record: Record, figures: Sequence[Chart], every: Sequence[Split]) -> Card:
    """In how many classes the inequality is certified, and in how many its opposite."""
    found = [row["ratio"] for row in record.result["table"]]
    below, above = sum(r[1] < 1 for r in found), sum(r[0] > 1 for r in found)
    true = "The inequality is true where the devices differ, and false where they are nearly alike"
    return Card(
        f"Certified below GD in {below} of {len(found)} classes and measures, certified above in {above}; ratios from "
        f"{min(r[1] for r in found):.2f} to {max(r[1] for r in found):.2f}",
        true if above else "Algorithm 1's worst case is below GD's in every class",
        chart=replace(figures[0], reference=1.0),
    )


def networks(record: Record, figures: Sequence[Chart], every: Sequence[Split]) -> Card:
    """Without a server: in how many settings, and up to which R*/R0 in the first chart."""
    cells, rivals = record.result["cells"], ("own steps / DGD", "own steps / gradient tracking")
    won = sum(all(c["compared"][rival]["word"] == "smaller" for rival in rivals) for c in cells)
    one = next(c for c in cells if (c["lambda"], c["radius"], c["rounds"]) == (0.5, 0.1, 3))["methods"]
    ours, theirs = (f"[{one[n]['lower']:.3f}, {one[n]['upper']:.3f}]" for n in ("own steps", "DGD"))
    lines = {line.name: dict(zip(line.x, line.y, strict=True)) for line in figures[0].views[0].lines}
    best = [x for x, y in lines["own steps"].items() if y is not None and all(y <= (o[x] or y) for o in lines.values())]
    return Card(
        f"Smaller than both rivals' in {won} of {len(cells)} settings. At L = (1/3, 3), R*/R0 = 0.1 it lies in {ours}, "
        f"that of decentralised GD in {theirs}",
        f"Own steps have the smallest worst case up to R*/R0 = {max(best):g}" if best else "Worst cases over R*/R0",
    )
