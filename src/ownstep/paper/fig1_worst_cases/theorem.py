"""Theorem 1 as certified enclosures, and the line in (R*/R0, switch, K) beyond which its inequality is false."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ownstep import pep, plots
from ownstep.methods import GD, At, OwnStep
from ownstep.paper.machinery.pictures import OURS_SHADES
from ownstep.plan import Devices
from ownstep.support.progress import Bar

RIVAL = True
"""The claim compares with a rival, GD at 1/L-bar; no fair one was run here."""
CLAIM = (
    "Theorem 1: in every heterogeneous function class tested, Algorithm 1's worst-case ||x^K - x*||^2 is strictly "
    "below that of centralised gradient descent with step 1/L-bar."
)

SETTINGS = (
    ("classes", "(L1, L2) = (0.5,1.5) (0.6,1.4) (0.7,1.3) (0.8,1.2)", "the same, (1/3, 3) of Fig. 1a and (0.9,1.1)",
     "the theorem speaks of all considered classes; where does it end?"),
    ("mu, R0, R*", "0.1, 10, 1", "the same in the table; R*/R0 is what the map varies", "only their ratio matters"),
    ("rounds, switch", "K=20, switch 10", "the same in the table; K=5, 10, 20, every switch in the map", ""),
    ("metric", "||x^K-x*||^2 in Theorem 1, f(x^K)-f(x*) in Fig. 1b's code", "both in the table, the first in the map",
     "the theorem speaks of the distance"),
    ("proof", "output of a floating-point solver", "upper ends in rational arithmetic, lower ends by replay",
     "a strict inequality needs both"),
)  # fmt: skip

PAIRS = ((1 / 3, 3.0), (0.5, 1.5), (0.6, 1.4), (0.7, 1.3), (0.8, 1.2), (0.9, 1.1))
PAPER = PAIRS[1:5]
"""The classes of Fig. 1b, on which the theorem rests."""
MU, R0, RSTAR, ROUNDS = 0.1, 10.0, 1.0, 20
METRICS = ("distance", "value")
MAPPED = ((1 / 3, 3.0), (0.5, 1.5), (0.8, 1.2))
HORIZONS = (5, 10, 20)
SMALLEST, LARGEST, WITHIN = 1e-3, 10.0, 1.03
"""R*/R0 is searched between these, until true and false are within this factor of each other."""
SHOWN = (0.03, 2.0)  # of it, in the figure


def run(quick: bool = False, seed: int = 0, progress: bool | None = None) -> dict[str, Any]:
    """The table, and for every switch where the inequality ends; ``quick`` has K = 6 and one small map."""
    rounds = 6 if quick else ROUNDS
    horizons, mapped = (HORIZONS[:1], MAPPED[:1]) if quick else (HORIZONS, MAPPED)
    columns = [(L, K, k) for L in mapped for K in horizons for k in _switches(K)]
    with Bar("certificates", len(PAIRS) * len(METRICS) + len(columns), progress) as bar:
        table, ends = [], []
        for L in PAIRS:
            for metric in METRICS:
                table.append(_row(L, metric, rounds))
                bar.update(len(table))
        baseline = {(L, K): _enclosed(GD(), L, K, 1.0, 0.0, "distance", certify=True) for L in mapped for K in horizons}
        for L, K, k in columns:
            ends.append({"L": list(L), "rounds": K, "local": k} | _end(L, K, k, baseline[L, K]))
            bar.update(len(table) + len(ends))
    return {"rounds": rounds, "table": table, "ends": ends}


def _switches(rounds: int) -> list[int]:
    """Every switch of a short horizon, every second one of a long; the last never switches within it."""
    return list(range(1, rounds + 1)) if rounds <= 10 else list(range(2, rounds + 1, 2))


def _enclosed(
    method: Any, L: tuple[float, float], rounds: int, r0: float, rstar: float, metric: str, *, certify: bool
) -> dict[str, Any]:
    bound = pep.worst_case(method, Devices.uniform(L, MU), rounds, r0, rstar, metric)
    if not certify:
        return {"lower": bound.lower, "upper": bound.upper}
    return {name: value for name, value in bound.certify().to_dict().items() if name != "certificate"}


def _row(L: tuple[float, float], metric: str, rounds: int) -> dict[str, Any]:
    gd = _enclosed(GD(), L, rounds, R0, RSTAR, metric, certify=True)
    ours = _enclosed(OwnStep(At(rounds // 2)), L, rounds, R0, RSTAR, metric, certify=True)
    row = {"L": list(L), "metric": metric, "gain": Devices.uniform(L, MU).gain, "ours": ours, "gd": gd}
    return row | {"ratio": [ours["lower"] / gd["upper"], ours["upper"] / gd["lower"]]}


def _end(L: tuple[float, float], rounds: int, local: int, gd: dict[str, Any]) -> dict[str, Any]:
    """The largest R*/R0 found at which the inequality is true, the smallest at which it is false; both certified.

    A larger R* only admits more functions, and gradient descent does not notice them: true below stays true.
    """

    def at(radius: float, certify: bool = False) -> dict[str, Any]:
        found = _enclosed(OwnStep(At(local)), L, rounds, 1.0, radius, "distance", certify=certify)
        return {"radius": radius, "ratio": [found["lower"] / gd["upper"], found["upper"] / gd["lower"]]}

    if at(0.0)["ratio"][1] >= 1:
        return {"true": None, "false": at(0.0, certify=True)}
    low, high = SMALLEST, LARGEST
    while high / low > WITHIN:
        middle = math.sqrt(low * high)
        below, above = at(middle)["ratio"]
        if below < 1 <= above:  # the enclosure itself holds one: nearer than this there is no answer
            break
        low, high = (middle, high) if above < 1 else (low, middle)
    true, false = at(low, certify=True), at(high, certify=True)
    return {"true": true if true["ratio"][1] < 1 else None, "false": false if false["ratio"][0] > 1 else None}


def verdict(result: dict[str, Any]) -> dict[str, Any]:
    """Computed: in how many classes the strict inequality is proved, in how many it is refuted."""
    proved = [row for row in result["table"] if row["ratio"][1] < 1]
    refuted = [row for row in result["table"] if row["ratio"][0] > 1]
    total = len(result["table"])
    own = [row["ratio"][1] < 1 for row in result["table"] if tuple(row["L"]) in PAPER]
    word = "holds" if len(proved) == total else "holds partly" if proved else "does not hold here"
    widest = max(e["width"] for row in result["table"] for e in (row["ours"], row["gd"]))
    findings = [_words(row) for row in result["table"]]
    findings.append(f"the widest certified enclosure of the table is a relative {widest:.1e}")
    return {
        "verdict": word,
        "rule": f"the certified upper bound of Algorithm 1 is below GD's replayed lower bound in {len(proved)} of "
        f"{total} classes and metrics ({sum(own)} of {len(own)} in the paper's own four); in {len(refuted)} the "
        "reverse is certified",
        "findings": findings + _lines(result["ends"]),
    }


def _words(row: dict[str, Any]) -> str:
    low, high = row["ratio"]
    said = "true" if high < 1 else "false" if low > 1 else "undecided"
    ours, gd = row["ours"], row["gd"]
    return (
        f"L = {_pair(row['L'])}, {row['metric']}: {said}; Algorithm 1 in [{ours['lower']:.9g}, {ours['upper']:.9g}], "
        f"GD in [{gd['lower']:.9g}, {gd['upper']:.9g}], ratio {high:.6f}"
    )


def _lines(ends: list[dict[str, Any]]) -> list[str]:
    lines = []
    for L in dict.fromkeys(tuple(e["L"]) for e in ends):
        for K in dict.fromkeys(e["rounds"] for e in ends):
            row = [e for e in ends if tuple(e["L"]) == L and e["rounds"] == K]
            parts = [f"{e['local']}: {_threshold(e)}" for e in row]
            lines.append(f"L = {_pair(L)}, K = {K}: true up to R*/R0 = (by local rounds) {', '.join(parts)}")
    return lines


def _threshold(end: dict[str, Any]) -> str:
    if end["true"] is None:
        return "nowhere" if end["false"] and end["false"]["radius"] == 0 else f"below {SMALLEST:g}"
    return f"{end['true']['radius']:.3g}" if end["false"] else f"at least {end['true']['radius']:.3g}"


def _pair(L: Any) -> str:
    return f"({', '.join('1/3' if abs(x - 1 / 3) < 1e-12 else f'{x:g}' for x in L)})"


def charts(result: dict[str, Any]) -> list[dict[str, Any]]:
    """For the report: the certified ratio to GD in every class, and the radius at which the inequality ends."""
    at = [f"{_pair(row['L'])}" for row in result["table"] if row["metric"] == METRICS[0]]
    lines = [
        {
            "name": metric,
            "x": list(range(len(at))),
            "y": [row["ratio"][1] for row in result["table"] if row["metric"] == metric],
        }
        for metric in METRICS
    ]
    lines.append({"name": "GD itself", "x": list(range(len(at))), "y": [1.0] * len(at)})
    shown = {
        "title": "Worst case over that of GD at 1/L-bar, certified from above", "y": "ratio", "x": "L1, L2",
        "ticks": at, "lines": lines, "pointer": "result.table",
    }  # fmt: skip
    return [shown]


def figure(result: dict[str, Any]) -> Figure:
    """The map: below a class's line Theorem 1's inequality is true, above it is false."""
    drawn, axes = plots.new_figure(1, width=plots.PAGE, height=3.0)
    ax, ends = axes[0, 0], result["ends"]
    classes = list(dict.fromkeys(tuple(e["L"]) for e in ends))
    longest = max(e["rounds"] for e in ends)
    half = [
        next(_threshold(e) for e in ends if (tuple(e["L"]), e["rounds"]) == (L, longest) and e["local"] >= longest // 2)
        for L in classes
    ]
    plots.headline(
        drawn,
        f"With own steps in {longest // 2} of {longest} rounds, Theorem 1 is true up to R*/R₀ = {' or '.join(half)}, "
        "depending on the devices, and false beyond",
    )
    for L, shade in zip(classes, OURS_SHADES, strict=False):
        for rounds in dict.fromkeys(e["rounds"] for e in ends):
            row = [e for e in ends if tuple(e["L"]) == L and e["rounds"] == rounds]
            at, line = [e["local"] for e in row], [e["true"]["radius"] if e["true"] else SMALLEST for e in row]
            if rounds == longest:
                ax.fill_between(at, SHOWN[0], line, color=shade, alpha=0.12, lw=0)
                ax.plot(at, line, "-", color=shade, lw=2, label=f"L = {_pair(L)}")
            else:
                ax.plot(at, line, "o", mfc="none", mec=shade, ms=4, mew=0.8, label="_shorter")
    ax.plot([0.7, longest], [RSTAR / R0] * 2, color="#444444", lw=1, ls=":", label="the paper's R*/R₀")
    ax.set(yscale="log", ylim=SHOWN, xlim=(0.7, longest))
    for word, y in (("true below a line", 0.035), ("false above it", 1.3)):
        ax.text(1.0, y, word, fontsize=8, fontweight="bold")
    others = " and ".join(f"{K}" for K in dict.fromkeys(e["rounds"] for e in ends) if longest != K)
    title = f"Lines: K = {longest} rounds" + (f". Circles: K = {others}, nearly the same" if others else "")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    plots.finish(ax, title, "rounds with own steps", "largest R* / R₀ for which it is true")
    plots.name_lines(ax)
    return drawn
