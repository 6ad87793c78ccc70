"""What the card of an experiment says: its number with its interval and what it is of, and the chart of that setting.

Every text is computed from the result. An experiment nobody here knows, or a result of another form, has the first of
its charts and no number. May import from the rest of the report and from the experiments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ownstep.report.cards import ours, proved, trained
from ownstep.report.cards.speeds import POOLED, Card, Maker, speeds
from ownstep.report.charts import Chart
from ownstep.report.results import Record
from ownstep.report.waterfalls import Split, of

MISSHAPEN = (KeyError, TypeError, ValueError, IndexError, StopIteration, AttributeError, ZeroDivisionError)
MAKERS: dict[str, Maker] = {
    "pep-curves": proved.curves, "pep-heterogeneity": proved.ratios, "pep-devices": proved.devices,
    "theorem": proved.theorem, "gossip-worst-case": proved.networks, "w8a": trained.w8a, "cifar10": trained.cifar10,
    "sst2": trained.sst2, "mnist": trained.mnist, "dirichlet": trained.trend, "devices": trained.trend,
    "gossip": trained.contest, "fedopt": trained.contest, "participation": trained.absent,
    "estimates": ours.estimates, "attribution": ours.attribution, "which": ours.which, "beyond": ours.beyond,
    "curvature": ours.curvature,
}  # fmt: skip


def card(record: Record, figures: Sequence[Chart], every: Sequence[Split]) -> Card:
    """The card of an experiment; ``every`` are the splits of the attribution."""
    mine = of(record.name, every)
    first = next((f for f in figures if f.kind != "bars"), figures[0] if figures else None)
    plain = Card(measured=_general(record), chart=first, split=mine[0] if mine else None)
    maker = MAKERS.get(record.name)
    if maker is None or record.data is None:
        return plain
    try:
        made = maker(record, figures, every if record.name == "attribution" else mine)
    except MISSHAPEN:
        return plain
    return made if made.chart is not None or made.picture is not None else replace(made, chart=first)


def _general(record: Record) -> str:
    """What the module itself says, or the last speed-up over the paper's baseline, where a verdict has one."""
    if said := record.said("MEASURED"):
        return said
    found = [s for s in speeds(record) if s.rival == POOLED]
    return f"{found[-1].text} times fewer rounds than GD at 1/L-bar" if found else ""


__all__ = ["Card", "card"]
