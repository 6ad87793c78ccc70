"""What the page's first screen says: the question, the finding in one sentence, three numbers, one card per claim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ownstep.paper.machinery import fairness
from ownstep.report import waterfalls
from ownstep.report.results import MISSING, VERDICTS, Record, Results

OWN_CLAIMS = {"theorem", "beyond", "curvature", "which", "gossip-worst-case"}
"""Experiments whose claim is ours, or the theorem as we certify it: counted apart from the paper's."""


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
    """Rivals that were not run."""
    failed: tuple[str, ...] = ()
    """Rivals that were run and never got to the level at which rounds are counted, and in how many runs."""
    where: str = ""
    """Of which model the rivals are missing, where there are several."""


def fair(record: Record) -> Fair:
    """Against fair rivals, computed by the experiment's module; *not a comparison* where the claim has no rival."""
    judge = getattr(record.module, "fair", None)
    if record.data is None:
        return Fair(MISSING)
    if judge is None:
        if getattr(record.module, "RIVAL", False):
            return Fair(fairness.NOT_TESTED, "The comparison is with GD at 1/L-bar alone", tuple(fairness.RIVALS))
        return Fair(fairness.NO_RIVAL)
    try:
        found = judge(record.result)
        ran = _ran(record.result)
        names = {rival: next((n for n in fairness.RIVALS.get(rival, ()) if n in ran), "") for rival in found["missing"]}
        return Fair(
            str(found["verdict"]), str(found["rule"]), tuple(str(rival) for rival, name in names.items() if not name),
            tuple(f"{name} ({ran[name]} {'run' if ran[name] == 1 else 'runs'})" for name in names.values() if name),
            " with the paper's network" if "network" in record.result else "",
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError):
        return Fair(fairness.NOT_TESTED, "the result has another form than the experiment writes today")


def _ran(result: Any) -> dict[str, int]:
    """In how many runs every method of a network experiment was run."""
    arms = result.get("arms") if isinstance(result, Mapping) else None
    runs = [one for arm in arms.values() for one in arm.get("runs", ())] if isinstance(arms, Mapping) else []
    names = [name for one in runs for name in one.get("methods", ())]
    return {name: names.count(name) for name in names}


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
    if tested and not stands:
        text = f"Giving each device its own step does not. {_what_does(results)}{text}"
    if tested:
        count = "none" if not stands else str(stands)
        verb = "hold" if stands > 1 else "holds"
        text += f"Against fair rivals, {count} of the {len(tested)} that could be tested {verb}."
    return text


def _what_does(results: Results) -> str:
    """The other half of the answer to the page's question, where the verdict of own curvature allows it."""
    word = next((r.word for r in results.records if r.name == "curvature"), "")
    return {
        VERDICTS[0]: "Own curvature, a method of ours, does. ",
        VERDICTS[1]: "Own curvature, a method of ours, does in part. ",
    }.get(word, "")


def advice(results: Results) -> str:
    """Whether to use Algorithm 1: computed from the second verdicts, like the finding; and what helps besides."""
    tested = [f for f in map(fair, papers(results)) if f.word in VERDICTS]
    if not tested:
        return ""
    if any(f.word == VERDICTS[0] for f in tested):
        text = "Where the second verdict says holds. Elsewhere a fair rival needs as few rounds or fewer."
    else:
        text = "Not own steps alone: some fair rival, often just a longer common step, needs as few rounds."
    for record in results.records:
        if record.name == "curvature" and record.word in VERDICTS[:2] and (saved := record.said("MEASURED")):
            text += f" Where round trips to the devices (exchanges) are slow, use own curvature: {saved}."
    return text


def facts(results: Results) -> list[Fact]:
    """The three numbers."""
    claims = [r for r in papers(results) if r.word in VERDICTS]
    tested = [f for f in map(fair, claims) if f.word in VERDICTS]
    out = [
        Fact(f"{sum(r.word == VERDICTS[0] for r in claims)} of {len(claims)}", "claims hold as the paper states them"),
        Fact(f"{sum(f.word == VERDICTS[0] for f in tested)} of {len(tested)}", "hold against fair rivals"),
    ]
    counted = [split for split in waterfalls.splits(results) if split.counts]
    if counted:
        explained = sum(waterfalls.worthwhile(f) for split in counted for f in split.parts if f.what == "geometry")
        words = "speed-ups of own steps remain when step length and sampling are equal"
        out.append(Fact(f"{explained} of {len(counted)}", words))
    return out
