"""One look for every method in every figure: its colour, its dashes, and the order in which lines are kept."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb

MOST = 5
"""Lines in one picture."""
# Okabe and Ito's colours, told apart by every kind of colour vision.
COLOURS = {
    "Algorithm 1": "#D55E00",
    "own steps": "#D55E00",
    "adaptive own steps": "#D55E00",
    "own curvature": "#332288",
    "GD 1/L-bar": "#0072B2",
    "GD 1/L": "#0072B2",
    "GD matched step": "#009E73",
    "GD tuned": "#CC79A7",
    "GD best fixed step": "#CC79A7",
    "GD stratified": "#CC79A7",
    "Nesterov": "#444444",
    "ITEM": "#444444",
    "L-BFGS": "#E69F00",
    "decentralised GD": "#56B4E9",
    "DGD": "#56B4E9",
    "gradient tracking": "#56B4E9",
    "EXTRA": "#56B4E9",
    "NIDS": "#56B4E9",
    "FedAvgM": "#666666",
    "FedAdam": "#7A7A7A",
    "FedYogi": "#8E8E8E",
    "FedAdagrad": "#A0A0A0",
}
FIRST = (
    "own curvature", "Algorithm 1", "L-BFGS", "GD 1/L-bar", "GD stratified", "GD matched step", "GD tuned", "GD best",
    "Nesterov",
)  # fmt: skip
"""Lines in the order in which a reader wants them; what is not listed comes after."""
LONG: Any = (0, (7, 2))
DASHES: dict[str, Any] = {
    "GD 1/L": "--", "GD matched step": (0, (5, 1.5)), "GD stratified": "--",
    "GD stratified, matched step": ":", "own steps": "--", "own steps, ITEM": LONG, "ITEM": "--",
    "decentralised GD": "--", "DGD": "--", "gradient tracking": ":", "EXTRA": LONG, "NIDS": "-", "FedAvgM": LONG,
    "FedAdam": "--", "FedYogi": "-.", "FedAdagrad": ":",
}  # fmt: skip
_SPARE = ("#E69F00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#444444", "#F0E442")
_MORE = ("#7A5195", "#8C564B")


def colour(label: str, index: int = 0) -> str:
    """The colour a method always has, variants such as ``Algorithm 1, 7 local`` too; others take the next spare one."""
    name = _method(label)
    return COLOURS[name] if name else _SPARE[index % len(_SPARE)]


def dash(label: str) -> Any:
    """The dashes that tell methods of one colour apart."""
    return DASHES.get(label) or DASHES.get(_method(label) or "", "-")


def _method(label: str) -> str | None:
    """The method that a label names: itself, a variant of it, or a comparison ``over`` it."""
    label, ends = label.removeprefix("over "), ("", ",", " (", " tuned", " 1/L", ":")
    names = sorted(COLOURS, key=len, reverse=True)
    return next((n for n in names if label == n or any(e and label.startswith(n + e) for e in ends)), None)


def shades(labels: Sequence[str]) -> dict[str, str]:
    """A colour for every label of one figure, no two alike while there are enough."""
    known = {label: COLOURS.get(_method(label) or "") for label in labels}
    free = [shade for shade in (*_SPARE, *_MORE) if shade not in known.values()] or list(_SPARE)
    others = {label: free[i % len(free)] for i, label in enumerate(name for name in labels if not known[name])}
    return {label: known[label] or others[label] for label in labels}


@lru_cache(maxsize=64)
def ink(shade: str) -> str:
    """A colour dark enough to write with on white: contrast of at least 4.5 to 1."""
    parts = np.array(to_rgb(shade))
    while True:
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        if 1.05 / (float(linear @ [0.2126, 0.7152, 0.0722]) + 0.05) >= 4.5:
            return "#" + "".join(f"{round(255 * p):02X}" for p in parts)
        parts = 0.95 * parts


def typeset(text: str) -> str:
    """The mean smoothness as it is printed; only for text that is not bold, where the font can draw it.

    >>> typeset("GD 1/L-bar")
    'GD 1/L̄'
    """
    return text.replace("L-bar", "L\u0304")


def chosen(names: Sequence[str], most: int = MOST) -> list[str]:
    """At most so many of these lines: one of each method first, ours before the others."""

    def rank(name: str) -> int:
        return next((i for i, known in enumerate(FIRST) if name.startswith(known)), len(FIRST))

    ordered = sorted(names, key=lambda name: (rank(name), len(name)))
    firsts = [n for i, n in enumerate(ordered) if i == 0 or rank(n) != rank(ordered[i - 1])]
    return sorted((firsts + [n for n in ordered if n not in firsts])[:most], key=rank)
