"""What the experiments left on disk, read the same way for every one; a damaged file becomes a note, not a crash."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ownstep.paper import EXPERIMENTS, load_experiment

VERDICTS = ("holds", "holds partly", "does not hold here")
"""What a verdict can say, from the best for the claim to the worst."""
OTHER = "not judged"
MISSING = "no result yet"

WORST_CASE, IN_THE_PAPER, BEYOND = "worst case", "in the paper", "beyond the paper"
PARTS = {"theorem": WORST_CASE} | dict.fromkeys(("beyond", "curvature", "which", "attribution", "estimates"), BEYOND)
"""Where an experiment stands on the page unless its module has a ``PART``; names with ``pep-`` are worst cases."""


@dataclass(frozen=True)
class Source:
    """A file a number can come from."""

    name: str
    link: str
    size: int


@dataclass(frozen=True)
class Record:
    """One experiment: what is claimed, and what its result file says, if there is one."""

    name: str
    claim: str
    module: Any
    part: str
    data: Mapping[str, Any] | None = None
    """The whole result file."""
    link: str = ""
    """Of the result file, from the page."""
    sources: tuple[Source, ...] = ()
    problem: str = ""
    """Why there is no data though there is a file."""

    @property
    def result(self) -> Any:
        return _mapping(self.data).get("result")

    @property
    def settings(self) -> list[dict[str, str]]:
        """Rows of what, the paper's value, ours and why."""
        rows = _mapping(self.data).get("settings") or []
        if not isinstance(rows, list):
            return []
        kept = [row for row in rows if isinstance(row, Mapping)]
        return [{k: _text(row.get(k, "")) for k in ("what", "paper", "ours", "why")} for row in kept]

    @property
    def provenance(self) -> Mapping[str, Any]:
        return _mapping(_mapping(self.data).get("provenance"))

    @property
    def verdict(self) -> Mapping[str, Any]:
        return _mapping(_mapping(self.data).get("verdict"))

    @property
    def word(self) -> str:
        """One of :data:`VERDICTS`, or that there is none."""
        if self.data is None:
            return MISSING
        word = _text(self.verdict.get("verdict", ""))
        return word if word in VERDICTS else OTHER

    @property
    def rule(self) -> str:
        return _text(self.verdict.get("rule", ""))

    @property
    def findings(self) -> list[str]:
        found = self.verdict.get("findings") or []
        return [_text(line) for line in found] if isinstance(found, list) else [_text(found)]

    @property
    def numbers(self) -> list[Mapping[str, Any]]:
        """The verdict's numbers with their intervals, where the experiment gives any."""
        found = self.verdict.get("numbers") or []
        return [n for n in found if isinstance(n, Mapping)] if isinstance(found, list) else []

    @property
    def quick(self) -> bool:
        return bool(_mapping(self.data).get("quick"))

    def said(self, attribute: str) -> str:
        """A sentence the module has for the page (``SAYS``, ``WHY``, ``NOTICE``, ...); empty if it has none.

        It may be a function of the result, for what depends on where the experiment was run.
        """
        found = getattr(self.module, attribute, "")
        if callable(found):
            try:
                found = found(self.result) if self.result is not None else ""
            except (KeyError, TypeError, ValueError, IndexError, StopIteration, AttributeError):
                found = ""  # a result of another shape than the module writes today
        return _text(found)


@dataclass(frozen=True)
class Results:
    """Everything on disk, in the paper's order, and how often each verdict was reached."""

    records: tuple[Record, ...]
    folder: str
    counts: dict[str, int] = field(default_factory=dict)

    def part(self, name: str) -> list[Record]:
        """The experiments of one part of the page."""
        return [r for r in self.records if r.part == name]


def read(folder: Path, link: str, quick: bool = False) -> Results:
    """Every registered experiment with what ``folder`` holds of it; ``link`` leads from the page to the folder.

    With ``quick`` the small versions (``NAME-quick``) are read instead.
    """
    records = tuple(read_one(name, folder, link, quick) for name in EXPERIMENTS)
    words = [r.word for r in records]
    counts = {word: words.count(word) for word in (*VERDICTS, OTHER, MISSING)}
    return Results(records, link, {w: n for w, n in counts.items() if n or w in VERDICTS})


def read_one(name: str, folder: Path, link: str, quick: bool = False) -> Record:
    """One experiment."""
    module = load_experiment(name)
    own = name + ("-quick" if quick else "")
    usual = PARTS.get(name, WORST_CASE if name.startswith("pep-") else IN_THE_PAPER)
    part = getattr(module, "PART", usual)
    part = part if part in (WORST_CASE, IN_THE_PAPER, BEYOND) else usual
    base = folder / own
    sources = tuple(
        Source(path.name, f"{link}/{own}/{quote(path.name)}", path.stat().st_size)
        for path in [*sorted(base.glob("*.json")), *sorted(base.glob("*.svg"))]
    )
    found: dict[str, Any] = {
        "name": name, "claim": module.CLAIM, "module": module, "part": part,
        "link": f"{link}/{own}/result.json", "sources": sources,
    }  # fmt: skip
    path = base / "result.json"
    if not path.exists():
        return Record(**found)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return Record(**found, problem=f"{own}/result.json cannot be read: {error}")
    if not isinstance(data, dict) or not isinstance(data.get("verdict"), dict) or "result" not in data:
        return Record(**found, problem=f"{own}/result.json is not the result of an experiment: no verdict, or no data")
    return Record(**(found | {"claim": _text(data.get("claim", module.CLAIM))}), data=data)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
