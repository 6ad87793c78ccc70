"""Own steps without a server against decentralised GD and gradient tracking, over every network of a spectral class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ownstep import pep
from ownstep.methods import NIDS, DecentralisedGD, GradientTracking
from ownstep.methods.gossip.peers import Peers
from ownstep.paper.machinery import fairness
from ownstep.paper.machinery.runner import Pieces
from ownstep.plan import Devices
from ownstep.support.errors import OwnstepError
from ownstep.support.progress import Bar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLAIM = (
    "Over every network whose eigenvalues lie in [-lambda, lambda], own steps have a smaller worst case than "
    "decentralised GD and gradient tracking with step 1/L-bar."
)
PART = "worst case"

SETTINGS = (
    ("this experiment", "not in the paper; its appendix runs the methods on MNIST", "worst cases over networks",
     "a network in use is rarely the one that was tested"),
    ("methods", "Algorithm 1 on a server; DGD and gradient tracking", "own steps 1/L_i, DGD and gradient tracking at "
     "1/L-bar, all adapt-then-combine; NIDS with own steps", "without a server Algorithm 1 has no switch"),
    ("fair rivals", "", "DGD and gradient tracking with the step of the smallest worst case, in the settings with "
     "lambda = 0.5 and K = 3", "own steps are also shown after the same search, with one step per kind of device"),
    ("networks", "one graph", "all symmetric W, W 1 = 1, eigenvalues in [-lambda, lambda], any number of devices", ""),
    ("devices", "", "two kinds in equal shares, L = (1/3, 3), (0.5, 1.5) or (0.8, 1.2), mu = 0.1", "as in Theorem 1"),
    ("rounds, metric", "", "K = 3 (K = 8 in three settings of the second class); 1/N sum_i ||x_i^K - x*||^2 from one "
     "common x^0", ""),
    ("proof", "", "upper ends in rational arithmetic, lower ends by running the method on functions and a W", ""),
)  # fmt: skip

OURS, EXACT, TUNED = "own steps", "NIDS, own steps", "own steps, tuned"
RIVALS = ("DGD", "gradient tracking")
METHODS: dict[str, Peers] = {
    OURS: DecentralisedGD("own", order="atc"),
    EXACT: NIDS("own"),
    "DGD": DecentralisedGD("mean", order="atc"),
    "gradient tracking": GradientTracking("mean", order="atc"),
}
TUNED_RIVALS = tuple(f"{name}, tuned" for name in RIVALS)
PAIRS = (
    *((ours, rival) for ours in (OURS, EXACT) for rival in (*RIVALS, *TUNED_RIVALS)),
    *((TUNED, rival) for rival in TUNED_RIVALS),
)
"""Which worst cases are compared."""
Setting = tuple[Devices, int, float, float, str]
CLASSES = ((1 / 3, 3.0), (0.5, 1.5), (0.8, 1.2))
MU, METRIC = 0.1, "distance_devices"
LAMBDAS = (0.2, 0.5, 0.8)
RADII = (0.03, 0.1, 0.3, 1.0)
ROUNDS = 3
LONGER, LONGER_LAMBDA, LONGER_RADII = 8, 0.5, (0.03, 0.1, 0.3)
"""A second horizon, for the second class, one lambda and these radii."""
SEARCHED = 0.5
"""The lambda for which the best steps are looked for, with the first horizon."""
EFFORT = 0.1
"""Of that search."""


def run(
    quick: bool = False, seed: int = 0, progress: bool | None = None, pieces: Pieces | None = None
) -> dict[str, Any]:
    """Every setting (class, K, lambda, R*/R0) as plain data; ``quick`` has three of them with K = 2."""
    kept, cells = pieces or Pieces(), []
    asked = _settings(quick)
    with Bar("settings", len(asked), progress) as bar:
        for done, (L, rounds, bound, radius) in enumerate(asked):
            bar.update(done, f"L = {_pair(L)}, K = {rounds}, lambda = {bound:g}, R*/R0 = {radius:g}")
            name = f"{L} {rounds} {bound} {radius}"
            cells.append(kept(name, _cell, L, rounds, bound, radius))
        bar.update(len(asked))
    return {"cells": cells}


def _settings(quick: bool) -> list[tuple[tuple[float, float], int, float, float]]:
    if quick:
        return [(CLASSES[1], 2, 0.5, radius) for radius in (0.0, 0.1, 1.0)]
    asked = [(L, ROUNDS, bound, radius) for L in CLASSES for bound in LAMBDAS for radius in RADII]
    return asked + [(CLASSES[1], LONGER, LONGER_LAMBDA, radius) for radius in LONGER_RADII]


def _cell(L: tuple[float, float], rounds: int, bound: float, radius: float) -> dict[str, Any]:
    """All methods in one setting, and which of two has the smaller worst case."""
    devices, network = Devices.uniform(L, MU), pep.Spectral(-bound, bound, any_number=True)
    setting = (devices, rounds, 1.0, radius, METRIC)
    found: dict[str, Any] = {}
    for name, method in METHODS.items():
        found[name] = _worst(method, setting, network)
    for name in (OURS, *RIVALS) if bound == SEARCHED and rounds <= ROUNDS else ():
        found[f"{name}, tuned"] = _tuned(METHODS[name], setting, network, "own" if name == OURS else "step")
    there = [(ours, rival) for ours, rival in PAIRS if ours in found and rival in found]
    words = {f"{ours} / {rival}": _compared(found[ours], found[rival]) for ours, rival in there}
    plain = {name: {k: v for k, v in row.items() if k != "bound"} for name, row in found.items()}
    return {"L": list(L), "rounds": rounds, "lambda": bound, "radius": radius, "methods": plain, "compared": words}


def _worst(method: Peers, setting: Setting, network: pep.Spectral) -> dict[str, Any]:
    try:
        bound = pep.worst_case(method, *setting, network=network)
    except OwnstepError as error:
        return {"failed": str(error)}
    return {"lower": bound.lower, "upper": bound.upper, "bound": bound}


def _tuned(method: Peers, setting: Setting, network: pep.Spectral, what: str) -> dict[str, Any]:
    try:
        found = pep.tune_network(method, *setting, what, network=network, effort=EFFORT)
    except OwnstepError as error:
        return {"failed": str(error)}
    return {"lower": found.bound.lower, "upper": found.bound.upper, "step": found.method.step, "bound": found.bound}


def _compared(ours: dict[str, Any], rival: dict[str, Any]) -> dict[str, Any]:
    """Smaller, larger or undecided; the upper end that decides is proved in rational numbers."""
    if "failed" in ours or "failed" in rival:
        return {"word": "undecided", "ratio": None}
    ratio = [ours["lower"] / rival["upper"], ours["upper"] / rival["lower"] if rival["lower"] > 0 else None]
    if ours["upper"] < rival["lower"] and _proved(ours) < rival["lower"]:
        return {"word": "smaller", "ratio": ratio}
    if rival["upper"] < ours["lower"] and _proved(rival) < ours["lower"]:
        return {"word": "larger", "ratio": ratio}
    return {"word": "undecided", "ratio": ratio}


def _proved(row: dict[str, Any]) -> float:
    """The upper end in rational numbers, rounded up; infinite where there is no such proof."""
    if "certified" not in row:
        try:
            row["certified"] = row["bound"].certify().upper
        except OwnstepError as error:
            row["certified"], row["uncertified"] = None, str(error)
    return float("inf") if row["certified"] is None else float(row["certified"])


def tally(cells: Sequence[Mapping[str, Any]], ours: str, rival: str) -> dict[str, int]:
    """How often the worst case of one is proved smaller or larger than that of the other, where both were computed."""
    pair = f"{ours} / {rival}"
    words = [cell["compared"][pair]["word"] for cell in cells if pair in cell["compared"]]
    return {word: words.count(word) for word in ("smaller", "larger", "undecided")} | {"of": len(words)}


def verdict(result: Mapping[str, Any]) -> dict[str, Any]:
    """Computed: in how many settings is the worst case of own steps proved smaller than both rivals'?"""
    cells = result["cells"]
    both = [all(c["compared"][f"{OURS} / {r}"]["word"] == "smaller" for r in RIVALS) for c in cells]
    worse = [any(c["compared"][f"{OURS} / {r}"]["word"] == "larger" for r in RIVALS) for c in cells]
    findings = []
    for ours, rival in PAIRS:
        counts = tally(cells, ours, rival)
        findings.append(
            f"{ours} against {rival}: smaller in {counts['smaller']}, larger in {counts['larger']}, undecided in "
            f"{counts['undecided']} of {counts['of']} settings"
        )
    return {
        "verdict": "holds" if all(both) else "holds partly" if any(both) else "does not hold here",
        "rule": f"the certified worst case of own steps is below both rivals' replayed lower ends in {sum(both)} of "
        f"{len(cells)} settings; in {sum(worse)} a rival's certified worst case is below that of own steps",
        "findings": findings + _lines(cells),
    }


def _lines(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each class and lambda the radii at which own steps are better than both."""
    lines = []
    for L, rounds, bound in dict.fromkeys((tuple(c["L"]), c["rounds"], c["lambda"]) for c in cells):
        row = [c for c in cells if (tuple(c["L"]), c["rounds"], c["lambda"]) == (L, rounds, bound)]
        parts = []
        for rival in RIVALS:
            said = ", ".join(f"{c['radius']:g} {c['compared'][f'{OURS} / {rival}']['word']}" for c in row)
            parts.append(f"{rival}: {said}")
        lines.append(f"L = {_pair(L)}, K = {rounds}, lambda = {bound:g}, by R*/R0, against {'; against '.join(parts)}")
    return lines


def fair(result: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict against DGD and gradient tracking with their best steps."""
    counts = {rival: tally(result["cells"], OURS, rival) for rival in TUNED_RIVALS}
    said = [f"in {one['smaller']} of {one['of']} settings against {rival}" for rival, one in counts.items()]
    won, of = [one["smaller"] for one in counts.values()], [one["of"] for one in counts.values()]
    if not all(of):
        return {"verdict": fairness.NOT_TESTED, "rule": "no fair rival was run", "missing": list(RIVALS)}
    word = "holds" if won == of else "holds partly" if min(won) else "does not hold here"
    return {"verdict": word, "rule": f"Smaller certified worst case: {'; '.join(said)}", "missing": []}


def _pair(L: Any) -> str:
    return f"({', '.join('1/3' if abs(x - 1 / 3) < 1e-12 else f'{x:g}' for x in L)})"


COLOURS = {"smaller": "#117733", "larger": "#AA4499", "undecided": "#BBBBBB"}
MARKS = {"smaller": "<1", "larger": ">1", "undecided": "?"}
KEY = {"own steps smaller": "#117733", "rival smaller": "#AA4499", "undecided": "#BBBBBB"}


def charts(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For the report: the methods' worst cases over R*, one chart per class of devices in the middle network."""
    out = []
    for L in dict.fromkeys(tuple(cell["L"]) for cell in result["cells"]):
        wanted = (list(L), ROUNDS, SEARCHED)
        cells = [c for c in result["cells"] if (list(c["L"]), c["rounds"], c["lambda"]) == wanted]
        lines = [
            {"name": name, "x": [c["radius"] for c in cells], "y": [c["methods"][name]["upper"] for c in cells]}
            for name in METHODS
            if cells and all(name in c["methods"] for c in cells)
        ]
        if lines:
            title = f"L = {_pair(L)}, eigenvalues up to {SEARCHED:g}, K = {ROUNDS}"
            y = "worst mean squared distance to x*"
            out.append(
                {"title": title, "x": "R* / R0", "x_log": True, "y": y, "lines": lines, "pointer": "result.cells"}
            )
    return out


def figure(result: Mapping[str, Any]) -> Figure:
    """The map: against every rival, which has the smaller worst case by class, lambda and R*/R0."""
    from ownstep import plots
    from ownstep.paper.machinery.pictures import key

    cells = [c for c in result["cells"] if c["rounds"] == result["cells"][0]["rounds"]]
    searched = [c for c in cells if f"{OURS} / {TUNED_RIVALS[0]}" in c["compared"]]
    wide = len({(tuple(c["L"]), c["lambda"]) for c in cells})
    narrow = len({(tuple(c["L"]), c["lambda"]) for c in searched})
    drawn, axes = plots.new_figure(2, len(RIVALS), width=3.45, height=2.2, ratios=(wide, max(1, narrow) + 0.8))
    told: list[str] = []
    for rivals, step in ((RIVALS, "common"), (TUNED_RIVALS, "best")):
        won = [tally(result["cells"], OURS, rival) for rival in rivals]
        if all(one["of"] for one in won):
            counts = " and ".join(f"{one['smaller']} of {one['of']}" for one in won)
            told.append(f"in {counts} settings{'' if told else f' against {_both()}'} at the {step} step")
    plots.headline(drawn, f"Own steps have the smaller worst case {', '.join(told)}")
    for (left, right), rival in zip(axes, RIVALS, strict=True):
        _map(left, cells, f"{OURS} / {rival}")
        plots.finish(left, "", "lambda, and below it L₁, L₂", "R* / R₀")
        key(left, KEY, title=plots.typeset(f"Worst case of own steps / that of {rival} at 1/L-bar"))
        if searched:
            _map(right, searched, f"{OURS} / {rival}, tuned")
            plots.finish(right, "rival at its best step", "lambda, and below it L₁, L₂", "")
        else:
            right.set_axis_off()
    return drawn


def _both() -> str:
    return " and ".join(RIVALS)


def _map(ax: Any, cells: Sequence[Mapping[str, Any]], pair: str) -> None:
    from matplotlib.patches import Rectangle

    from ownstep import plots

    across = list(dict.fromkeys((tuple(c["L"]), c["lambda"]) for c in cells))
    up = sorted({c["radius"] for c in cells})
    for c in cells:
        found = c["compared"][pair]
        x, y = across.index((tuple(c["L"]), c["lambda"])), up.index(c["radius"])
        ax.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=COLOURS[found["word"]], edgecolor="white", lw=1))
        ratio = (found.get("ratio") or [None, None])[1]
        text = MARKS[found["word"]] if ratio is None or found["word"] == "undecided" else f"{ratio:.2f}"
        ax.text(x, y, text, ha="center", va="center", fontsize=plots.TEXT, color="black" if text == "?" else "white")
    ax.set(xlim=(-0.5, len(across) - 0.5), ylim=(-0.5, len(up) - 0.5))
    labels = [f"{bound:g}" for _, bound in across]
    for L in dict.fromkeys(L for L, _ in across):
        at = [i for i, (one, _) in enumerate(across) if one == L]
        labels[at[len(at) // 2]] += f"\n{_pair(L).strip('()')}"
    ax.set_xticks(range(len(across)), labels)
    ax.set_yticks(range(len(up)), [f"{v:g}" for v in up])
    ax.grid(False)
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)
