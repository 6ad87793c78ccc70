"""What the page's first screen says: the question, the finding in one sentence, three numbers, one card per claim."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ownstep.paper.machinery import fairness
from ownstep.report.formatting import is_number
from ownstep.report.results import MISSING, VERDICTS, Record, Results

OWN_CLAIMS = {"theorem", "beyond", "curvature", "which", "gossip-worst-case"}
"""Experiments whose claim is ours, or the theorem as we certify it: counted apart from the paper's."""

OVER = re.compile(r"rounds of (?P<rival>.+?) over those of Algorithm 1$")


@dataclass(frozen=True)
class Fact:
    """One of the three large numbers, and what it counts."""

    number: str
    words: str


@dataclass(frozen=True)
class Fair:
    """The second verdict of a claim."""

    word: str
    rule: str = ""
    missing: tuple[str, ...] = ()


def fair(record: Record) -> Fair:
    """Against fair rivals, computed by the experiment's module; *not a comparison* where the claim has no rival."""
    judge = getattr(record.module, "fair", None)
    if record.data is None:
        return Fair(MISSING)
    if judge is None:
        kind = fairness.NOT_TESTED if getattr(record.module, "RIVAL", False) else fairness.NO_RIVAL
        return Fair(kind)
    try:
        found = judge(record.result)
        return Fair(str(found["verdict"]), str(found["rule"]), tuple(map(str, found["missing"])))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError):
        return Fair(fairness.NOT_TESTED, "the result has another form than the experiment writes today")


def measured(record: Record) -> str:
    """Our number for a claim: the speed-up over the paper's baseline, with its interval over several runs."""
    said = record.said("MEASURED")
    if said:
        return said
    best: Mapping[str, Any] | None = None
    for number in record.numbers:
        match = OVER.search(str(number.get("group", "")))
        if match and match["rival"] == "GD 1/L-bar" and is_number(number.get("value")):
            best = number  # the last one is the final, hardest level
    if best is None:
        return ""
    low, high = best.get("low"), best.get("high")
    spread = f" [{low:.2f}, {high:.2f}]" if is_number(low) and is_number(high) else ""
    return f"{best['value']:.2f}{spread} times fewer rounds than GD at 1/L̄"


def papers(results: Results) -> list[Record]:
    """The claims that the paper makes."""
    return [r for r in results.records if r.name not in OWN_CLAIMS]


def finding(results: Results) -> str:
    """The whole page in one sentence or three, computed."""
    claims = [r for r in papers(results) if r.word in VERDICTS]
    if not claims:
        return "No result is on disk yet: run ownstep paper all --quick."
    held = [sum(r.word == word for r in claims) for word in VERDICTS]
    tested = [f for f in map(fair, claims) if f.word in VERDICTS]
    stands = sum(f.word == VERDICTS[0] for f in tested)
    text = f"As the paper states them, {held[0]} of its {len(claims)} claims hold and {held[1]} hold partly. "
    if tested:
        count = "none" if not stands else str(stands)
        verb = "hold" if stands > 1 else "holds"
        text += f"Against fair rivals, {count} of the {len(tested)} that could be tested {verb}."
    return text


def advice(results: Results) -> str:
    """Whether to use Algorithm 1: computed from the second verdicts, like the finding; and what helps besides."""
    tested = [f for f in map(fair, papers(results)) if f.word in VERDICTS]
    if not tested:
        return ""
    if any(f.word == VERDICTS[0] for f in tested):
        text = "Where the second verdict says holds. Elsewhere a fair rival needs as few rounds or fewer."
    else:
        text = "Own steps, not for speed alone: some fair rival, often just a longer common step, needs as few rounds."
    for record in results.records:
        if record.name == "curvature" and record.word in VERDICTS[:2] and (saved := measured(record)):
            text += f" What does help where exchanges are dear is own curvature: {saved}."
    return text


def facts(results: Results) -> list[Fact]:
    """The three numbers."""
    claims = [r for r in papers(results) if r.word in VERDICTS]
    tested = [f for f in map(fair, claims) if f.word in VERDICTS]
    out = [
        Fact(f"{sum(r.word == VERDICTS[0] for r in claims)} of {len(claims)}", "claims hold as the paper states them"),
        Fact(f"{sum(f.word == VERDICTS[0] for f in tested)} of {len(tested)}", "hold against fair rivals"),
    ]
    for record in results.records:
        if record.name == "attribution" and (found := explained(record)):
            out.append(Fact(f"{found[0]} of {found[1]}", "speed-ups come from the devices' own geometry"))
    return out


def explained(record: Record) -> tuple[int, int] | None:
    """(speed-ups in which geometry has a share, speed-ups) of the attribution."""
    match = re.search(r", (\d+) in number, geometry alone is above [\d.]+ in (\d+)", record.rule)
    return (int(match[2]), int(match[1])) if match else None


def factors(results: Results) -> dict[str, list[tuple[str, float]]]:
    """The parts of every speed-up that the attribution splits, by its name there."""
    out: dict[str, list[tuple[str, float]]] = {}
    for record in results.records:
        if record.name == "attribution":
            for number in record.numbers:
                if number.get("what") != "all" and is_number(number.get("value")):
                    out.setdefault(str(number["group"]), []).append((str(number["what"]), float(number["value"])))
    return {name: parts for name, parts in out.items() if all(f > 0 for _, f in parts)}


def own_factors(name: str, every: Mapping[str, Sequence[tuple[str, float]]]) -> tuple[str, list[tuple[str, float]]]:
    """The split that belongs to an experiment and what it is of: the paper's own setting first; empty if none is."""
    mine = [group for group in every if group == name or group.startswith((f"{name} ", f"{name},"))]
    mine.sort(key=lambda group: ("the paper's network" in group, "paper" in group), reverse=True)
    return (mine[0], list(every[mine[0]])) if mine else ("", [])
