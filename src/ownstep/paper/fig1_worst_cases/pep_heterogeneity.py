"""Fig. 1b and Theorem 1: how the worst case's ratio to GD depends on the spread of the L_i, on R*/R0 and the switch."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ownstep import pep, plots
from ownstep.methods import GD, At, Never, OwnStep
from ownstep.paper.machinery.pictures import OURS_SHADES, ratio_map
from ownstep.paper.machinery.runner import Pieces
from ownstep.plan import Devices
from ownstep.support.progress import Bar

RIVAL = True
"""The claim compares with a rival, GD at 1/L-bar; no fair one was run here."""
CLAIM = (
    "The ratio of Algorithm 1's worst case to GD's is strictly below one in every heterogeneous class tested, and the "
    "smaller the more the L_i differ (Fig. 1b, Theorem 1)."
)

SAYS = (
    "The ratio to GD is strictly below one for every pair tested, and smaller the further L1 and L2 are apart. "
    "Theorem 1 concludes that Algorithm 1 is strictly faster."
)
WHY = (
    "The four pairs of the figure agree. For a fifth pair, where the constants are nearly alike, the ratio exceeds "
    "one. It also depends on R*/R0, on K and on the switch, as the map shows. So it is no property of the class alone."
)

SETTINGS = (
    ("(L1, L2)", "(0.5,1.5) (0.6,1.4) (0.7,1.3) (0.8,1.2)", "the same, and (0.9,1.1)", "where the gain vanishes"),
    ("mu, R0, R*", "0.1, 10, 1", "the same", ""),
    ("rounds, switch", "K=20, switch 10", "the first 10 rounds local, and 9", "switch 10 can be read as either"),
    ("metric", "f(x^K)-f(x*) in the code, ||x^K-x*||^2 in Theorem 1", "both", "the theorem speaks of the distance"),
    ("map", "not there", "L=(1/3, 3), R*/R0 from 0 to 1, K=5, 10, 20, switch from K/4 to never",
     "where the ratio is below one, and where it is not"),
)  # fmt: skip

PAIRS = ((0.5, 1.5), (0.6, 1.4), (0.7, 1.3), (0.8, 1.2), (0.9, 1.1))
MU, R0, RSTAR, ROUNDS = 0.1, 10.0, 1.0, 20
METRICS = ("value", "distance")
RADII = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
HORIZONS = (5, 10, 20)
SHARES = (0.25, 0.5, 0.75, 1.0)


def run(
    quick: bool = False, seed: int = 0, progress: bool | None = None, pieces: Pieces | None = None
) -> dict[str, Any]:
    """Ratios for every pair and metric, and the map; ``quick`` uses K = 6 and a smaller map. Nothing is random."""
    rounds = 6 if quick else ROUNDS
    horizons, radii = (HORIZONS[:1], RADII[::2]) if quick else (HORIZONS, RADII)
    jobs = len(PAIRS) * len(METRICS) + len(horizons) * len(radii)
    kept = pieces or Pieces()
    with Bar("worst cases", jobs, progress) as bar:
        pairs = []
        for n, (pair, metric) in enumerate((p, m) for p in PAIRS for m in METRICS):
            pairs.append(kept(f"{pair} {metric}", _pair, pair, metric, rounds))
            bar.update(n + 1)
        cells = []
        for n, (K, radius) in enumerate((K, r) for K in horizons for r in radii):
            cells += kept(f"K {K} radius {radius}", _cells, K, radius)
            bar.update(len(pairs) + n + 1)
    return {"rounds": rounds, "pairs": pairs, "map": cells}


def _pair(L: tuple[float, float], metric: str, rounds: int) -> dict[str, Any]:
    devices = Devices.uniform(L, MU)
    gd = pep.worst_case(GD(), devices, rounds, R0, RSTAR, metric)
    ours = {
        k: pep.worst_case(OwnStep(At(k)), devices, rounds, R0, RSTAR, metric) for k in (rounds // 2, rounds // 2 - 1)
    }
    return {
        "L": list(L),
        "gain": devices.gain,
        "metric": metric,
        "gd": gd.to_dict(),
        "ours": {str(k): b.to_dict() for k, b in ours.items()},
        "ratio": {str(k): b.upper / gd.lower for k, b in ours.items()},
    }


def _cells(rounds: int, radius: float) -> list[dict[str, Any]]:
    """One horizon and one R*/R0, every switch: R0 = 1, as only the ratio of the radii matters."""
    devices = Devices.uniform((1 / 3, 3.0), MU)
    gd = pep.worst_case(GD(), devices, rounds, 1.0, radius)
    cells = []
    for share in SHARES:
        local = max(round(share * rounds), 1)
        method = OwnStep(At(local)) if share < 1 else OwnStep(Never())
        bound = pep.worst_case(method, devices, rounds, 1.0, radius, tolerance=1e-4)
        cells.append(
            {"rounds": rounds, "radius": radius, "local": local, "share": share, "ratio": bound.upper / gd.lower,
             "lowest_ratio": bound.lower / gd.upper}
        )  # fmt: skip
    return cells


def verdict(result: dict[str, Any]) -> dict[str, Any]:
    """Computed: every ratio below one, for both metrics, and falling with the spread?"""
    half = str(result["rounds"] // 2)
    ratios = {m: [p["ratio"][half] for p in result["pairs"] if p["metric"] == m] for m in METRICS}
    below = sum(r < 1 for values in ratios.values() for r in values)
    falling = [bool((np.diff(values) > 0).all()) for values in ratios.values()]
    total = len(result["pairs"])
    word = "holds" if below == total and all(falling) else "holds partly" if below else "does not hold here"
    findings = [
        f"{m}: ratios {', '.join(f'{r:.4f}' for r in values)} for (L1, L2) = {', '.join(map(str, PAIRS))}"
        for m, values in ratios.items()
    ]
    return {
        "verdict": word,
        "rule": f"ratio of Algorithm 1's upper bound to GD's lower bound below one in {below} of {total} classes and "
        "metrics, and rising as L1 and L2 approach each other",
        "findings": findings + _where(result["map"]),
    }


def _where(cells: list[dict[str, Any]]) -> list[str]:
    """In words: for which R*/R0, K and switch the ratio is below one."""
    lines = []
    for K in dict.fromkeys(c["rounds"] for c in cells):
        for share in SHARES:
            row = [c for c in cells if c["rounds"] == K and c["share"] == share]
            won = [c["radius"] for c in row if c["ratio"] < 1]
            lost = [c["radius"] for c in row if c["lowest_ratio"] >= 1]
            switch = f"{row[0]['local']} of {K} rounds local" if share < 1 else f"all {K} rounds local"
            lines.append(
                f"{switch}: below one at R*/R0 = {', '.join(f'{r:g}' for r in won) or 'none tested'}"
                + (f"; not at {', '.join(f'{r:g}' for r in lost)}" if lost else "")
            )
    return lines


def figure(result: dict[str, Any]) -> Figure:
    """Ratios by pair, as in Fig. 1b, and the map of where Algorithm 1 wins."""
    horizons = list(dict.fromkeys(c["rounds"] for c in result["map"]))
    drawn, axes = plots.new_figure(2, -(-(1 + len(horizons)) // 2), width=3.45, height=2.3)
    flat, half = axes.ravel(), str(result["rounds"] // 2)
    won = [c["ratio"] < 1 for c in result["map"]]
    below = [max(p["ratio"][half] for p in result["pairs"] if tuple(p["L"]) == pair) < 1 for pair in PAIRS]
    plots.headline(
        drawn,
        f"Own steps have the smaller worst case in {sum(below)} of {len(PAIRS)} pairs of devices, less so the more "
        f"alike these are; over R*/R₀ and the switch they win {sum(won)} of {len(won)} settings",
    )
    for metric, shade, name in (("value", OURS_SHADES[1], "f(x) − f*"), ("distance", OURS_SHADES[0], "‖x − x*‖²")):
        chosen = [p["ratio"][half] for p in result["pairs"] if p["metric"] == metric]
        flat[0].plot(range(len(chosen)), chosen, "o-", color=shade, ms=4, label=name)
    flat[0].plot([0, len(PAIRS) - 1], [1, 1], color=plots.colour("GD 1/L-bar"), label="GD 1/L-bar")
    flat[0].set_xticks(range(len(PAIRS)), [f"{a:g},\n{b:g}" for a, b in PAIRS])
    flat[0].set_ylim(0.55, 1.1)
    plots.finish(flat[0], f"K = {result['rounds']}, R*/R₀ = {RSTAR / R0:g}", "L₁, L₂", "worst case / GD's")
    plots.name_lines(flat[0])
    for panel, K in zip(flat[1:], horizons, strict=False):
        _map(panel, [c for c in result["map"] if c["rounds"] == K], K)
    for panel in flat[1 + len(horizons) :]:
        panel.set_axis_off()
    return drawn


def _map(ax: Any, cells: list[dict[str, Any]], rounds: int) -> None:
    radii = list(dict.fromkeys(c["radius"] for c in cells))
    grid = [[next(c["ratio"] for c in cells if c["radius"] == r and c["share"] == s) for s in SHARES] for r in radii]
    ratio_map(ax, grid)
    ax.set_xticks(range(len(SHARES)), ["K/4", "K/2", "3K/4", "K"])
    ax.set_yticks(range(len(radii)), [f"{r:g}" for r in radii])
    plots.finish(ax, f"Worst case / GD's, L = (1/3, 3), K = {rounds}", "rounds with own steps", "R* / R₀")


def charts(result: dict[str, Any]) -> list[dict[str, Any]]:
    """For the report: ratios by pair, and the map as lines over R*/R0, one chart a horizon."""
    half, pairs = str(result["rounds"] // 2), result["pairs"]
    ratios = {m: [p["ratio"][half] for p in pairs if p["metric"] == m] for m in METRICS}
    labels = [f"{a:g}, {b:g}" for a, b in (p["L"] for p in pairs if p["metric"] == METRICS[0])]
    count = range(len(labels))
    lines = [{"name": "f(x) − f(x*)" if m == "value" else "‖x − x*‖²", "x": count, "y": r} for m, r in ratios.items()]
    lines.append({"name": "GD itself", "x": count, "y": [1.0] * len(labels)})
    out: list[dict[str, Any]] = [
        {"title": f"Ratio to GD, K = {result['rounds']}", "pointer": "result.pairs", "x": "L₁, L₂", "ticks": labels,
         "kind": "points", "y": "worst case / GD's", "lines": lines}
    ]  # fmt: skip
    for K in dict.fromkeys(c["rounds"] for c in result["map"]):
        cells = [c for c in result["map"] if c["rounds"] == K]
        radii = list(dict.fromkeys(c["radius"] for c in cells))
        rows = {f"{c['local']} of {K} rounds local": c["share"] for c in cells}
        lines = [
            {"name": name, "x": range(len(radii)), "y": [c["ratio"] for c in cells if c["share"] == share]}
            for name, share in rows.items()
        ]
        lines.append({"name": "GD itself", "x": range(len(radii)), "y": [1.0] * len(radii)})
        out.append(
            {"title": f"L = (1/3, 3), K = {K}", "pointer": "result.map", "x": "R* / R₀", "kind": "points", "log": True,
             "ticks": [f"{r:g}" for r in radii], "y": "worst case / GD's", "lines": lines}
        )  # fmt: skip
    return out
