"""How far apart reruns of one method are, and what may therefore be called a difference between two.

A seed draws who takes part, which settings a search tries, and the coins of methods that toss some. The same method
with other seeds needs other numbers of rounds. The largest ratio among the reruns of either of two methods is the noise
floor of their comparison, and a difference below it is called none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

Counts = Sequence[int | None]
"""Rounds of every rerun to one tolerance; None where it was not reached."""


def reseeded(thing: Any, by: int) -> Any:
    """A method or a participation rule with ``by`` added to its seed, and to those it contains."""
    if not is_dataclass(thing) or isinstance(thing, type):
        return thing
    old = {f.name: getattr(thing, f.name) for f in fields(thing)}
    new = {name: value + by if name == "seed" else reseeded(value, by) for name, value in old.items()}
    changes = {name: value for name, value in new.items() if value is not old[name]}
    return replace(thing, **changes) if changes else thing


def middle(counts: Counts) -> float:
    """The median number of rounds, infinite where most reruns do not reach the tolerance."""
    return float(np.median([np.inf if c is None else c for c in counts]))


def floor(runs: Mapping[str, Counts]) -> float:
    """The largest ratio between reruns of one method, over methods that always reach the tolerance; at least 1."""
    ratios = [max(counts) / max(min(counts), 1) for counts in runs.values() if counts and None not in counts]  # type: ignore[type-var,operator]
    return float(max([1.0, *ratios]))


def judge(ours: Counts, theirs: Counts, level: float) -> tuple[float | None, str]:
    """(median rounds of theirs over ours, a word for it): ``faster`` or ``slower`` only beyond the noise floor.

    One round more or less is no difference either. Where one of the two arrives in just half of its reruns, there is no
    median to compare.
    """
    a, b = middle(ours), middle(theirs)
    if np.isinf(a) and np.isinf(b):
        return None, "neither arrives"
    if np.isinf(a) or np.isinf(b):
        late = ours if np.isinf(a) else theirs
        if 2 * sum(count is None for count in late) == len(late):
            return None, "in half of the runs"
        return None, "only theirs arrives" if np.isinf(a) else "only ours arrives"
    ratio = b / a if a else 1.0 if b == 0 else np.inf
    if abs(a - b) <= 1 or max(ratio, 1 / ratio if ratio else np.inf) <= level:
        return ratio, "no difference"
    return ratio, "faster" if ratio > 1 else "slower"
