"""Fig. 1c: does the gain depend on how many devices there are?"""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from ownstep import pep, plots
from ownstep.methods import GD, At, OwnStep
from ownstep.paper.machinery.pictures import span
from ownstep.support.progress import Bar

RIVAL = True
"""The claim compares with a rival, GD at 1/L-bar; no fair one was run here."""
CLAIM = "The ratio of Algorithm 1's worst case to GD's stays the same whatever the number of devices."

SAYS = "The acceleration remains essentially unchanged regardless of the number of devices (Fig. 1c)."
WHY = (
    "They agree. With two or more devices of each kind the reason is exact: devices that are alike enter the worst "
    "case only through their shares."
)

SETTINGS = (
    ("devices", "N = 2, 4, ..., 16, half L=1/3, half L=3", "the same, and 100 and 1,000", "symmetry makes them free"),
    ("mu, R0, R*", "0.1, 10, 1", "the same", ""),
    ("rounds, switch", "K=10, switch 5", "the first 5 rounds local", ""),
    ("metric", "f(x^K)-f(x*), averaged over devices", "the same", ""),
)

COUNTS = (2, 4, 6, 8, 10, 12, 14, 16, 100, 1000)
MU, R0, RSTAR, ROUNDS, LOCAL = 0.1, 10.0, 1.0, 10, 5
SAME = 1e-4
"""Ratios that differ by less than this fraction count as the same."""


def run(quick: bool = False, seed: int = 0, progress: bool | None = None) -> dict[str, Any]:
    """Bounds for every N; ``quick`` leaves out those between 4 and 1,000. Nothing here is random."""
    counts = (2, 4, 1000) if quick else COUNTS
    rows = []
    with Bar("worst cases", len(counts), progress) as bar:
        for n in counts:
            devices = pep.repeated((1 / 3, 3.0), MU, (n // 2, n // 2))
            gd = pep.worst_case(GD(), devices, ROUNDS, R0, RSTAR)
            ours = pep.worst_case(OwnStep(At(LOCAL)), devices, ROUNDS, R0, RSTAR)
            rows.append({"devices": n, "gd": gd.to_dict(), "ours": ours.to_dict(), "ratio": ours.upper / gd.lower})
            bar.update(len(rows))
    return {"rows": rows}


def verdict(result: dict[str, Any]) -> dict[str, Any]:
    """Computed: the spread of the ratio over all N."""
    ratios = [row["ratio"] for row in result["rows"]]
    spread = max(ratios) / min(ratios) - 1
    word = "holds" if spread < SAME else "holds partly" if spread < 0.05 else "does not hold here"
    first, last = result["rows"][0], result["rows"][-1]
    return {
        "verdict": word,
        "rule": f"the ratio varies by a relative {spread:.1e} over N = {first['devices']}, ..., {last['devices']}; "
        f"'holds' below {SAME:g}",
        "findings": [
            f"ratio {first['ratio']:.6f} at N = {first['devices']}, {last['ratio']:.6f} at N = {last['devices']}",
            f"worst case {first['ours']['upper']:.6g} against GD's {first['gd']['upper']:.6g}",
            "from two devices of a kind on this is exact, not only numerical: the reduced problem no longer contains N",
        ],
    }


def figure(result: dict[str, Any]) -> Figure:
    """The ratio against N, as in Fig. 1c."""
    drawn, axes = plots.new_figure(1, width=plots.COLUMN, height=2.3)
    ax, rows = axes[0, 0], result["rows"]
    ratios, counts = [row["ratio"] for row in rows], [row["devices"] for row in rows]
    few, many = (f"{n:,}" for n in (counts[0], counts[-1]))
    plots.headline(drawn, f"From {few} to {many} devices Algorithm 1's worst case stays {span(ratios)} of that of GD")
    ax.plot(counts, ratios, "o-", color=plots.colour("Algorithm 1"), lw=2, ms=4, label="Algorithm 1")
    ax.plot([counts[0], counts[-1]], [1, 1], color=plots.colour("GD 1/L-bar"), label="GD 1/L-bar")
    ax.set(xscale="log", ylim=(0, 1.15))
    plots.finish(ax, f"K = {ROUNDS}, own steps in the first {LOCAL} rounds", "devices N", "worst case / GD's")
    plots.name_lines(ax)
    return drawn


def charts(result: dict[str, Any]) -> list[dict[str, Any]]:
    """For the report: the ratio against N."""
    count = range(len(result["rows"]))
    return [
        {"title": "Algorithm 1 over GD, K = 10, first 5 rounds local", "pointer": "result.rows", "x": "devices N",
         "ticks": [f"{row['devices']:,}" for row in result["rows"]], "kind": "points", "y": "ratio of worst cases",
         "lines": [{"name": "Algorithm 1", "x": count, "y": [row["ratio"] for row in result["rows"]]},
                   {"name": "GD itself", "x": count, "y": [1.0] * len(count)}]}
    ]  # fmt: skip
