"""In what the statements of two certificates over networks, or of two rates, differ."""

from __future__ import annotations

from typing import Any


def differences_of(proved: dict[str, Any], asked: dict[str, Any]) -> list[str]:
    """In what two statements over networks, or two of rates, differ, in words; what methods are called is no matter."""
    found = []
    parts = [(proved, asked), (proved.get("start", {}), asked.get("start", {}))]
    for one, other in parts:
        for name in ("metric", "network", "any_number", "each_round", "points", "r0", "rstar", "gradients", "trackers"):
            mine, theirs = one.get(name), other.get(name)
            if not isinstance(mine, list) and mine != theirs:
                found.append(f"{name} is {_plainly(mine)} in the proof, {_plainly(theirs)} was asked")
    rounds = [len(s["points"]) - 1 for s in (proved, asked) if "points" in s]
    if len({*rounds}) > 1:
        found.append(f"the proof has {rounds[0]} rounds, {rounds[1]} were asked")
    for name in ("L", "mu", "weight", "subgradients"):
        if (mine := _listed(proved, name)) != (theirs := _listed(asked, name)):
            found.append(f"{name} by number of devices is {mine} in the proof, {theirs} was asked")
    if not found and proved["method"]["digest"] != asked["method"]["digest"]:
        found.append("the method takes other steps, or its kinds of devices come in another order")
    return found


def _plainly(entry: Any) -> str:
    return "[{lo}, {hi}]".format(**entry) if isinstance(entry, dict) else str(entry)


def _listed(statement: dict[str, Any], name: str) -> dict[str, int]:
    """How many devices have this entry."""
    found: dict[str, int] = {}
    for device in statement["devices"]:
        found[device.get(name)] = found.get(device.get(name), 0) + device["count"]
    return dict(sorted(found.items()))
