"""What the own-curvature experiment found, from its rows alone: trends draw by draw, attribution, bytes, seconds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ownstep.engines import WIRES
from ownstep.paper.machinery import fairness
from ownstep.paper.machinery.bootstrap import interval, number
from ownstep.paper.ours.curvature_runs import DEFAULT, MOST, SLOW, Row

RANKS = (0, 1, 5, 10, 20, 50)
COUNTS = (1, 2, 10, 50)
SPLITS = ("iid", "label", "by_norm", "dirichlet")
FAIR = {"gd:tuned": ("GD tuned", SLOW), "nesterov": ("Nesterov", SLOW), "lbfgs": ("L-BFGS", MOST)}
"""Fair rivals: their names there and in :mod:`fairness`, and the exchanges that each was given."""


def pick(result: dict[str, Any], **where: Any) -> list[Row]:
    """The rows with these entries, but for those that were refused."""
    return [r for r in result["rows"] if "refused" not in r and all(r[k] == v for k, v in where.items())]


def by_draw(rows: Sequence[Row], what: str = "exchanges") -> dict[int, float]:
    """One number per draw; infinite where the gap was not reached."""
    return {r["seed"]: np.inf if r[what] is None else float(r[what]) for r in rows}


def ratios(result: dict[str, Any], rows: Sequence[Row]) -> list[float]:
    """Exchanges over L-BFGS's on the same draw; infinite where the gap was not reached."""
    base = {(r["data"], r["seed"]): r["exchanges"] for r in pick(result, method="lbfgs")}
    return [(r["exchanges"] or np.inf) / base[r["data"], r["seed"]] for r in rows if base.get((r["data"], r["seed"]))]


def fair(result: dict[str, Any]) -> dict[str, Any]:
    """The verdict against fair rivals: default rank, one setting per dataset, split and number of devices."""
    cells: dict[str, list[list[float]]] = {}
    own = [r for r in pick(result, method="own_curvature", rank=DEFAULT) if r["devices"] > 1]
    for rival, (name, most) in FAIR.items():
        theirs = {(r["data"], r["seed"]): r["exchanges"] for r in pick(result, method=rival)}
        settings: dict[tuple[str, str, int], list[float]] = {}
        for row in own:
            if (row["data"], row["seed"]) in theirs:
                ratio = fairness.speed_up(row["exchanges"], theirs[row["data"], row["seed"]], most)
                runs = settings.setdefault((row["data"], row["split"], row["devices"]), [])
                runs += [] if ratio is None else [ratio]
        cells[name] = list(settings.values())
    return fairness.against(cells, "settings (data, split, devices)")


def names(result: dict[str, Any]) -> list[str]:
    """Datasets with their mu."""
    return list(dict.fromkeys(r["data"] for r in result["rows"]))


def cell(result: dict[str, Any], name: str, split: str, devices: int, rank: int) -> dict[int, float]:
    """Exchanges of own curvature by draw; with one device whatever the split."""
    split = "one" if devices == 1 else split
    return by_draw(pick(result, data=name, method="own_curvature", split=split, devices=devices, rank=rank))


def trends(result: dict[str, Any], rank: int = DEFAULT) -> tuple[list[str], list[dict[str, Any]]]:
    """More devices, and more different ones: judged draw by draw, with intervals."""
    findings, numbers = [], []
    for name in names(result):
        said = []
        for split in SPLITS:
            steps = [(n, c) for n in COUNTS if (c := cell(result, name, split, n, rank))]
            moves: Counter[str] = Counter()
            for (_, few), (_, many) in pairwise(steps):
                for draw in few.keys() & many.keys():
                    moves["fewer" if many[draw] < few[draw] else "same" if many[draw] == few[draw] else "more"] += 1
            if moves:
                means = ", ".join(f"{n}: {np.mean(list(c.values())):.1f}" for n, c in steps)
                said.append(f"{split} ({means}) fewer {moves['fewer']}, same {moves['same']}, more {moves['more']}")
            if len(steps) > 1:
                (least, one), (most, other) = steps[0], steps[-1]
                shares = [other[d] / one[d] for d in other.keys() & one.keys() if np.isfinite([other[d], one[d]]).all()]
                if shares:
                    group = f"{name}, rank {rank}: exchanges of the most devices over one device"
                    numbers.append(number(f"{split}, {most} / {least}", shares, group))
        if said:
            findings.append(f"{name}, rank {rank}, from one number of devices to the next: " + "; ".join(said))
        told, more = _unlike(result, name, rank)
        findings, numbers = findings + told, numbers + more
    return findings, numbers


UNLIKE = {"label": "by label", "by_norm": "by norm", "dirichlet": "Dirichlet 0.1"}


def _unlike(result: dict[str, Any], name: str, rank: int) -> tuple[list[str], list[dict[str, Any]]]:
    """Devices that differ against as many that are alike, draw by draw."""
    said, numbers = [], []
    for split, words in UNLIKE.items():
        for n in (10, 50):
            alike, apart = cell(result, name, "iid", n, rank), cell(result, name, split, n, rank)
            both = [d for d in alike.keys() & apart.keys() if np.isfinite([alike[d], apart[d]]).all()]
            if both:
                shares = [apart[d] / alike[d] for d in both]
                numbers.append(number(f"{n} devices", shares, f"{name}, rank {rank}: exchanges {words} over iid"))
                less, more = sum(v < 1 for v in shares), sum(v > 1 for v in shares)
                counts = f"fewer {less}, same {len(both) - less - more}, more {more}"
                said.append(f"{n} {words} ({np.mean(shares):.2f}) {counts}")
    head = f"{name}, rank {rank}, exchanges of unlike devices over iid ones: "
    return [head + "; ".join(said)] if said else [], numbers


CHAIN: dict[str, dict[str, Any]] = {
    "L-BFGS": {"method": "lbfgs"},
    "rank 20, one device": {"method": "own_curvature", "split": "one", "rank": 20},
    "rank 200, one device": {"method": "own_curvature", "split": "one", "rank": 200},
    "shared sums of 20": {"method": "sum", "rank": 20},
    "shared sums of 200": {"method": "sum", "rank": 200},
    "own rank 20, ten devices by label": {"method": "own_curvature", "split": "label", "devices": 10, "rank": 20},
    "Newton": {"method": "newton"},
}  # fmt: skip
"""From the best pooled method to own sketches, one thing at a time."""


def measured(result: dict[str, Any]) -> str:
    """The number of the claim: exchanges of ten devices by label at the default rank, beside L-BFGS's; first data."""
    name = names(result)[0]
    own = by_draw(pick(result, data=name, method="own_curvature", split="label", devices=10, rank=DEFAULT))
    theirs = by_draw(pick(result, data=name, method="lbfgs"))
    means = [float(np.mean(list(found.values()))) for found in (own, theirs)]
    setting = f"ten devices by label, {name.replace(' ', ', mu = ')}"
    return f"{means[0]:.0f} exchanges where L-BFGS needs {means[1]:.0f} ({setting})"


def attribution(result: dict[str, Any]) -> list[str]:
    """Mean exchanges along the chain, with intervals over the draws."""
    out = []
    for name in names(result):
        said = []
        for label, where in CHAIN.items():
            found = [v for v in by_draw(pick(result, data=name, **where)).values() if np.isfinite(v)]
            if found:
                spread = interval(found)
                said.append(f"{label} {spread.mean:.1f} [{spread.low:.1f}, {spread.high:.1f}]")
        if len(said) > 2:
            out.append(f"{name}, attribution, exchanges: " + ", ".join(said))
    return out


def curve(result: dict[str, Any], name: str, what: str, split: str = "by_norm") -> dict[int, float]:
    """Mean exchanges or bytes over the rank, ten devices."""
    out = {}
    for rank in RANKS:
        found = list(
            by_draw(pick(result, data=name, split=split, devices=10, rank=rank, method="own_curvature"), what).values()
        )
        if found and np.isfinite(found).all():
            out[rank] = float(np.mean(found))
    return out


def bytes_over_ranks(result: dict[str, Any]) -> list[str]:
    """Where bytes per device are fewest, against L-BFGS's."""
    out = []
    for name in names(result):
        sent, base = (
            curve(result, name, "bytes"),
            list(by_draw(pick(result, data=name, method="lbfgs"), "bytes").values()),
        )
        if len(sent) < 3 or not np.isfinite(base).all():
            continue
        least = min(sent, key=lambda rank: sent[rank])
        ranks = ", ".join(f"{k}: {v / 1e3:.0f}" for k, v in sent.items())
        out.append(
            f"{name}, 10 by norm, kB per device by rank: {ranks}; L-BFGS {np.mean(base) / 1e3:.0f}; fewest at rank "
            f"{least}, {sent[least] / np.mean(base):.2f} of L-BFGS's"
        )
    return out


def seconds(result: dict[str, Any]) -> list[str]:
    """The fastest over every network in the mean, and own curvature beside it."""
    out = []
    for name in names(result):
        kinds: dict[str, dict[str, Any]] = {
            "L-BFGS": {"method": "lbfgs"},
            "Newton": {"method": "newton"},
            "shared sums": {"method": "sum", "rank": DEFAULT},
        }
        rows = {label: pick(result, data=name, **where) for label, where in kinds.items()}
        rows["own curvature"] = pick(
            result, data=name, method="own_curvature", rank=DEFAULT, split="by_norm", devices=10
        )
        said = []
        for wire in WIRES:
            took = {
                k: float(np.mean([r["seconds"][wire] for r in v]))
                for k, v in rows.items()
                if v and all(r["seconds"] for r in v)
            }
            if "own curvature" in took:
                order = sorted(took, key=lambda k: took[k])
                said.append(f"{wire} " + ", ".join(f"{k} {took[k]:.3g}" for k in order))
        if said:
            out.append(f"{name}, 10 by norm, mean seconds of the time model: " + "; ".join(said))
    return out


def slow(result: dict[str, Any]) -> list[str]:
    """First-order methods and rivals of this family on the first draw."""
    out = []
    draw = min((r["seed"] for r in result["rows"]), default=0)
    for name in names(result):
        for split in ("by_norm", "iid"):
            rows = pick(result, data=name, split=split, devices=10, seed=draw)
            if len({r["method"] for r in rows}) < 3:
                continue
            said = []
            for r in [*pick(result, data=name, method="lbfgs", seed=draw), *rows]:
                if r["method"] == "own_curvature" and r["rank"] not in (DEFAULT, 20):
                    continue
                label = r["method"] + (f" {r['rank']}" if r["rank"] is not None else "")
                said.append(f"{label} {r['exchanges'] or 'not in time'}")
            out.append(f"{name}, 10 {split}, first draw, exchanges: " + ", ".join(said))
    return out


def missing(result: dict[str, Any]) -> list[str]:
    """What was not run or refused, in words."""
    out = []
    if left := result.get("not_run"):
        stages: dict[str, list[str]] = {}
        for key in left:
            stage, _, rest = key.partition(": ")
            stages.setdefault(stage, []).append(rest)
        words = "; ".join(f"{stage} ({len(parts)}): {', '.join(parts[:60])}" for stage, parts in stages.items())
        out.append(f"NOT RUN, {len(left)} parts: {words}")
    refused = [r for r in result["rows"] if "refused" in r]
    if refused:
        kinds = Counter(f"{r['data']} {r['devices']} {r['split']} rank {r['rank']}" for r in refused)
        out.append(f"refused in {len(refused)} runs, as devices have too few rows: {', '.join(kinds)}")
    return out


def markdown(results: str | Path) -> str:
    """Mean exchanges at the default rank over the draws of every dataset, as a table for a page."""
    found = json.loads((Path(results) / "curvature" / "result.json").read_text())["result"]
    shown: dict[str, dict[str, Any]] = {
        "L-BFGS": {"method": "lbfgs"}, "Newton": {"method": "newton"},
        "shared sums": {"method": "sum", "rank": DEFAULT},
        "1 device": {"method": "own_curvature", "split": "one", "rank": DEFAULT},
    }  # fmt: skip
    for n in (10, 50):
        for split, words in {"iid": "iid", **UNLIKE}.items():
            shown[f"{n} {words}"] = {"method": "own_curvature", "split": split, "devices": n, "rank": DEFAULT}
    shown["hospitals"] = {"method": "own_curvature", "split": "hospitals", "rank": DEFAULT}
    lines = [f"| data, mu | draws | {' | '.join(shown)} |", "|" + "---|" * (len(shown) + 2)]
    for name in names(found):
        cells = [list(by_draw(pick(found, data=name, **where)).values()) for where in shown.values()]
        told = ["" if not c else f"{np.mean(c):.1f}" if np.isfinite(c).all() else "not in 400" for c in cells]
        lines.append(f"| {name} | {len(cells[0])} | {' | '.join(told)} |")
    return "\n".join(lines)


def charts(result: dict[str, Any]) -> list[dict[str, Any]]:
    """For the report: exchanges over devices, ratios by dataset, exchanges and bytes over the rank."""
    every, out = names(result), []
    main = "w8a 1e-05" if "w8a 1e-05" in every else every[0]
    rank = 20 if pick(result, data=main, rank=20, devices=10) else DEFAULT

    def line(label: str, values: Mapping[int, Sequence[float]]) -> dict[str, Any]:
        found = [(x, v) for x, all_of in values.items() if (v := [y for y in all_of if np.isfinite(y)])]
        return {
            "name": label, "x": [x for x, _ in found], "y": [float(np.mean(v)) for _, v in found],
            "low": [min(v) for _, v in found], "high": [max(v) for _, v in found],
        }  # fmt: skip

    lines = [line(s, {n: list(cell(result, main, s, n, rank).values()) for n in COUNTS}) for s in SPLITS]
    base = list(by_draw(pick(result, data=main, method="lbfgs")).values())
    lines.append({"name": "L-BFGS", "x": list(COUNTS), "y": [float(np.mean(base))] * len(COUNTS)})
    out.append({"title": f"{main}, rank {rank}: more devices need fewer exchanges", "x": "devices", "y": "exchanges",
                "x_log": True, "lines": lines, "pointer": "result.rows"})  # fmt: skip
    own = pick(result, method="own_curvature", rank=DEFAULT, devices=10)
    ticks = {s: [ratios(result, [r for r in own if (r["data"], r["split"]) == (n, s)]) for n in every] for s in SPLITS}
    lines = [line(s, dict(enumerate(shares))) for s, shares in ticks.items()]
    out.append({"title": "Default rank, ten devices: exchanges over L-BFGS's", "x": "data", "y": "exchanges / L-BFGS's",
                "ticks": every, "kind": "points", "lines": lines, "pointer": "result.rows"})  # fmt: skip
    views: list[dict[str, Any]] = []
    for what, label, unit in (("exchanges", "exchanges", 1.0), ("bytes", "kB per device", 1e3)):
        lines = []
        for split in ("by_norm", "label", "iid"):
            found = curve(result, main, what, split)
            lines.append({"name": split, "x": list(found), "y": [v / unit for v in found.values()]})
        known = list(by_draw(pick(result, data=main, method="lbfgs"), what).values())
        lines.append({"name": "L-BFGS", "x": list(RANKS), "y": [float(np.mean(known)) / unit] * len(RANKS)})
        views.append({"y": label, "lines": lines})
    if any(len(line["x"]) > 2 for line in views[0]["lines"][:-1]):
        out.append(
            {"title": f"{main}, ten devices: over the rank", "x": "rank", "views": views, "pointer": "result.rows"}
        )
    return out
