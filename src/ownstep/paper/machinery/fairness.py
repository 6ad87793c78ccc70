"""The second verdict of every claim: does it stand against fair rivals, and not only against the one the paper chose?

Fair rivals of a speed-up are those that a practitioner would use in place of gradient descent at 1/L-bar: gradient
descent with a common step as long as the mean own step (or with the same stratified samples), with a tuned step,
Nesterov's method, and L-BFGS. An experiment's module hands over the speed-ups it has; what was not run is named as
missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ownstep.paper.machinery.bootstrap import interval

RIVALS: dict[str, tuple[str, ...]] = {
    "GD matched step": ("GD stratified, matched step", "GD stratified", "GD matched step"),
    "GD tuned": ("GD tuned", "GD best fixed step"),
    "Nesterov": ("Nesterov", "Nesterov 1/L-bar"),
    "L-BFGS": ("L-BFGS",),
}
"""Every fair rival, and the names under which experiments run it; of several the first that was run counts."""

BY = 1.05
"""Faster means: the low end of the interval over runs lies above this (of a single run, its ratio)."""

NOT_TESTED, NO_RIVAL = "not tested", "not a comparison"


def speed_up(ours: float | None, theirs: float | None, most: float) -> float | None:
    """The rival's rounds over ours, where None means that a method did not get there within ``most`` rounds.

    A rival that did not counts as if it had needed ``most``, which is too few: the ratio is at least this. Zero where
    only the rival got there, None where neither did.

    >>> speed_up(20, 30, 400), speed_up(20, None, 400), speed_up(None, 30, 400), speed_up(None, None, 400)
    (1.5, 20.0, 0.0, None)
    """
    if ours is None:
        return None if theirs is None else 0.0
    return (most if theirs is None else theirs) / ours


def against(cells: Mapping[str, Sequence[Sequence[float]]], what: str = "settings") -> dict[str, Any]:
    """The verdict against fair rivals.

    Parameters
    ----------
    cells : for every method that was run, its speed-ups: one list per setting, in it one ratio per run, the rival's
        rounds over ours. Only fair rivals count.
    what : how a setting is called.

    Returns
    -------
    dict
        ``verdict`` (*holds*, *holds partly*, *does not hold here* or *not tested*), ``rule``, ``missing`` and, for
        every rival that was run, ``rivals``: settings won and compared, and the mean speed-up with its interval.
    """
    found: dict[str, dict[str, Any]] = {}
    for rival, names in RIVALS.items():
        ran = next((name for name in names if any(cells.get(name, ()))), None)
        if ran is not None:
            compared = [list(cell) for cell in cells[ran] if cell]
            won = sum(interval(cell).low > BY for cell in compared)
            middle = interval([interval(cell).mean for cell in compared])
            spread = interval(compared[0]) if len(compared) == 1 else middle
            found[rival] = {
                "name": ran, "won": won, "of": len(compared), "speed_up": middle.mean, "low": spread.low,
                "high": spread.high,
            }  # fmt: skip
    missing = [rival for rival in RIVALS if rival not in found]
    if not found:
        return {"verdict": NOT_TESTED, "rule": "no fair rival was run", "missing": missing, "rivals": {}}
    lost = [rival for rival, one in found.items() if not one["won"]]
    every = all(one["won"] == one["of"] for one in found.values())
    word = "holds" if every else "does not hold here" if lost else "holds partly"
    rule = f"More than {BY:g} times faster " + ", ".join(
        f"than {one['name']} in {one['won']} of {one['of']}{f' {what}' if i == 0 else ''}"
        f" ({'mean speed-up ' if i == 0 else ''}{one['speed_up']:.2f})"
        for i, one in enumerate(found.values())
    )
    return {"verdict": word, "rule": rule, "missing": missing, "rivals": found}
