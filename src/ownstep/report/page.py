"""The page: results and templates in, one html file out."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup, escape

import ownstep
from ownstep.report import story, waterfalls
from ownstep.report.cards import Card, card
from ownstep.report.charts import Chart, Line, charts
from ownstep.report.drawing import Scale, ordered, picture, short
from ownstep.report.explorer import SCRIPTS as EXPLORER
from ownstep.report.explorer import asset, embedded, encoded, grid, templates
from ownstep.report.formatting import fixed, is_number, spell, typeset
from ownstep.report.palette import Palette
from ownstep.report.results import (
    BEYOND,
    IN_THE_PAPER,
    MISSING,
    OTHER,
    VERDICTS,
    WORST_CASE,
    Record,
    Results,
    read,
)
from ownstep.report.tables import tables
from ownstep.report.titles import SHORT, renamed, row_name
from ownstep.support.errors import InvalidInput, OwnstepError
from ownstep.support.files import write_atomically

PARTS = {
    WORST_CASE: (
        "The worst case",
        "Over all functions of the paper's classes: how large can the error still be after K rounds? Every number "
        "here is exact, enclosed between a function that attains it and a proof that none exceeds it.",
    ),
    IN_THE_PAPER: (
        "The experiments",
        "In the paper's order. Each one says what is claimed, what was measured here, and why the two differ where "
        "they do.",
    ),
    BEYOND: (
        "Beyond the paper",
        "Where the speed-ups come from, how far sampled constants can be trusted, and what measured curvature, "
        "momentum and own curvature are worth.",
    ),
}
SCRIPTS = ("charts.js", *EXPLORER, "page.js")
POINTS = 48
"""Points of a line on the page."""
MARKS = {VERDICTS[0]: "yes", VERDICTS[1]: "partly", VERDICTS[2]: "no", OTHER: "none", MISSING: "none"}
NUMBER = re.compile(
    r"(?P<name>Algorithm 1|Fig\. \d+\w?|Theorem \d|"
    r"[12]/\(?L[-\w+]*\)?|L_?[\d₁₂]|W8A|SST-2|CIFAR-10|\b[A-Za-z_]+[-_]?\d+\w*)"
    r"|(?P<number>(?<![\w.])[−-]?\d[\d,]*(?:\.\d+)?(?:e[-+−]?\d+)?%?)"
)

PACKED = re.compile(r"(?<![\w/.])(?:\d[\d.]*(?:e-?\d+)?|-)(?:/(?:\d[\d.]*(?:e-?\d+)?|-)){2,}(?![\w/])")
"""Three numbers or more with slashes between them."""


def write(results: Path, target: Path, quick: bool = False) -> Results:
    """Write the page of everything below ``results`` to ``target``, and return what was read.

    Parameters
    ----------
    results : Path
        Folder with one folder per experiment, as ``ownstep paper`` writes it.
    target : Path
        The html file. It names the json files relative to itself, and links them while it lies in this folder.
    quick : bool
        Read the small versions, ``NAME-quick``.
    """
    if not results.is_dir():
        raise InvalidInput(f"no folder of results at {str(results)!r}: run 'ownstep paper all --quick', or name one")
    link = quote(Path(os.path.relpath(results.resolve(), target.resolve().parent)).as_posix())
    found = read(results, link, quick)
    html = build(found, target.resolve().parent.name)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(target) as file:
            file.write(html.encode())
    except OSError as error:
        raise OwnstepError(f"cannot write the report to {str(target)!r}: {error}") from error
    return found


def build(results: Results, home: str = "") -> str:
    """The whole page as text; ``home`` is the name of its folder, from which the links to the json files lead."""
    palette = Palette()
    drawn: list[dict[str, Any]] = []
    sections = {}
    splits = waterfalls.splits(results)
    for part, (title, lead) in PARTS.items():
        records = results.part(part)
        if records:
            sections[part] = {
                "title": title,
                "lead": lead,
                "experiments": [_experiment(r, palette, drawn, splits) for r in records],
            }
    environment = templates()
    environment.filters |= {"spell": spell, "fixed": fixed, "linked": linked, "maths": maths, "headline": headline}
    environment.filters["word"] = _word
    return environment.get_template("page.html").render(
        sections=sections,
        rows=[row for part in sections.values() for row in part["experiments"]],
        finding=story.finding(results),
        advice=story.advice(results),
        facts=story.facts(results),
        own_count=sum(r.name in story.OWN_CLAIMS for r in results.records),
        judged=sum(r.word in VERDICTS for r in story.papers(results)),
        commits=_commits(results),
        version=ownstep.__version__,
        home=home,
        charts=embedded(drawn),
        worst_cases=grid(),
        style=Markup(asset("vendor/uplot.min.css") + asset("style.css")),
        fonts={name: encoded(f"vendor/{name}.woff2") for name in ("source-serif-4", "source-sans-3")},
        library=Markup(asset("vendor/uplot.min.js")),
        licence=asset("vendor/uplot-LICENSE.txt"),
        scripts=[Markup(asset(name)) for name in SCRIPTS],
    )  # fmt: skip


def _experiment(
    record: Record, palette: Palette, drawn: list[dict[str, Any]], splits: list[waterfalls.Split]
) -> dict[str, Any]:
    """Everything a section shows; its charts are added to ``drawn`` and known by their place there."""
    found, left_out = charts(record.module, record.result) if record.data else ([], 0)
    shown = card(record, found, splits)
    if shown.picture:
        found, left_out = [], 0  # the curves stand with the experiments they come from
    elif shown.chart is not None and all(shown.chart.title != f.title for f in found):
        found = [shown.chart, *found]
    figures = [renamed(record.name, f) for f in found]
    first, main = len(drawn), _picture(record, shown, palette)
    drawn.extend(plain(chart, palette) for chart in figures)
    where, title = heading(record)
    second = story.fair(record)
    falls = waterfalls.of(record.name, splits) if record.name != "attribution" else splits
    return {
        "name": record.name,
        "own": record.name in story.OWN_CLAIMS,
        "id": re.sub(r"[^a-z0-9-]", "-", record.name.lower()),
        "where": where,
        "title": title,
        "record": record,
        "short": record.said("SHORT") or SHORT.get(record.name, record.name),
        "mark": MARKS[record.word],
        "fair": second,
        "fair_mark": MARKS.get(second.word, "none"),
        "card": shown,
        "picture": main,
        "caption": shown.message or (_caption(shown.chart) if shown.chart is not None else ""),
        "waterfall": waterfalls.waterfall(shown.split) if shown.split else "",
        "falls": [(s, waterfalls.waterfall(s)) for s in falls if s is not shown.split],
        "says": record.said("SAYS"),
        "why": record.said("WHY"),
        "notice": record.said("NOTICE"),
        "figures": list(enumerate(figures, first)),
        "left_out": left_out,
        "tables": tables(record.result) if record.data else [],
        "numbers": Numbers(record),
        "seed": seed if isinstance(seed := record.provenance.get("seed"), int) else 0,
        "machine": _machine(record.provenance),
        "recorded": _recorded(record),
    }


def _picture(record: Record, shown: Card, palette: Palette) -> Markup:
    if shown.picture is not None or shown.chart is None:
        return shown.picture or Markup("")
    return picture(renamed(record.name, shown.chart), palette, shown.message, shown.lines)


def _word(verdict: str) -> str:
    """A verdict as the page writes it."""
    return verdict.removesuffix(" here")


def _caption(chart: Chart) -> str:
    """What a picture shows; a title of one word says too little."""
    return chart.title if len(chart.title) > 24 else f"{chart.views[0].label}, {chart.title}".removesuffix(", ")


def heading(record: Record) -> tuple[str, str]:
    """Where in the paper, and what: from the module's ``TITLE`` or the first line of its docstring."""
    line = record.said("TITLE") or (getattr(record.module, "__doc__", None) or record.name).strip().splitlines()[0]
    where, colon, what = line.rstrip(".").partition(": ")
    if not colon or len(where) > 40:
        where, what = "", line.rstrip(".")
    return where, what[:1].upper() + what[1:]


class Numbers:
    """The numbers of a verdict, with their intervals on one logarithmic axis and the ticks of that axis."""

    def __init__(self, record: Record) -> None:
        self.rows = [_number(n, record.name) for n in record.numbers]
        ends = [v for row in self.rows if row["drawn"] for v in row["drawn"]]
        self.ticks: list[tuple[str, str]] = []
        if not ends:
            return
        scale = Scale(0.97 * min(0.8, *ends), 1.03 * max(1.25, *ends), 0, 100, log=True)
        self.ticks = [(f"{scale(t):.1f}%", short(t)) for t in scale.ticks()]
        for row in self.rows:
            if row["drawn"]:
                row["drawn"] = [f"{scale(v):.1f}%" for v in row["drawn"]]

    @property
    def grid(self) -> str:
        """Thin lines at the ticks, as the background of every row."""
        line = "linear-gradient({0},{0}) {1} 0/1px 100% no-repeat"
        return ",".join(line.format(f"var({'--faint' if text == '1' else '--line'})", at) for at, text in self.ticks)


def _number(number: Mapping[str, Any], name: str) -> dict[str, Any]:
    """One number of a verdict; drawn are low end, value and high end, where a logarithmic axis can show them."""
    out = {k: number.get(k) for k in ("group", "what", "value", "low", "high", "runs", "note")}
    out["what"] = row_name(name, str(out["what"]))
    value = out["value"] if is_number(out["value"]) else 0.0
    low, high = (float(bound) if is_number(bound := out[k]) else value for k in ("low", "high"))
    return out | {"drawn": (low, value, high) if 0 < low <= high else None}


def _recorded(record: Record) -> dict[str, str]:
    """Where results that were only read had been made, by file."""
    found = record.result.get("recorded") if isinstance(record.result, Mapping) else None
    if not isinstance(found, Mapping):
        return {}
    kept = ("device", "commit", "python", "torch", "cuda", "precision", "seeds", "note")
    lines = {
        str(name): " · ".join(f"{k} {spell(known[k])}" for k in kept if known.get(k) not in (None, ""))
        for name, known in found.items()
        if isinstance(known, Mapping)
    }
    return {name: line for name, line in lines.items() if line}


def _machine(known: Mapping[str, Any]) -> str:
    """Seed, commit, machine and versions in one line."""
    versions = known.get("versions")
    parts = [f"seed {spell(known['seed'])}" if "seed" in known else ""]
    parts += [f"commit {known['commit']}" if known.get("commit") else "", str(known.get("machine") or "")]
    parts += [f"Python {known['python']}" if known.get("python") else ""]
    if isinstance(versions, Mapping):
        parts += [f"{name} {version}" for name, version in versions.items() if version]
    return " · ".join(p for p in parts if p)


def _commits(results: Results) -> list[str]:
    found = [r.provenance.get("commit") for r in results.records if r.data]
    return sorted({c for c in found if isinstance(c, str)})


def plain(chart: Chart, palette: Palette) -> dict[str, Any]:
    """A chart as the script of the page reads it: four digits, and rounds that lines share are written once."""
    views, shared = [], []
    for view in chart.views:
        lines = []
        every = view.lines if chart.kind == "bars" else ordered(view)
        for line, (colour, dash) in zip(map(thinned, every), palette.looks([e.name for e in every]), strict=True):
            x = _digits(line.x, 4)
            if x not in shared:
                shared.append(x)
            drawn: dict[str, Any] = {"name": typeset(line.name), "colour": colour, "x": shared.index(x)}
            drawn["y"] = _digits(line.y, 4)
            if dash:
                drawn["dash"] = dash
            if line.low and line.high:
                drawn |= {"low": _digits(line.low, 3), "high": _digits(line.high, 3)}
            lines.append(drawn)
        views.append({"label": typeset(view.label), "log": view.log, "lines": lines})
    ticks = None if chart.ticks is None else [typeset(t) for t in chart.ticks]
    return {
        "title": typeset(chart.title), "x": typeset(chart.x), "xs": shared, "xLog": chart.x_log, "ticks": ticks,
        "kind": chart.kind, "views": views,
    }  # fmt: skip


def thinned(line: Line) -> Line:
    """A line with at most :data:`POINTS` points, its ends among them: more cannot be seen, and the page is sent."""
    count = len(line.x)
    if count <= POINTS:
        return line
    kept = sorted({round(i * (count - 1) / (POINTS - 1)) for i in range(POINTS)})

    def pick(values: Any) -> Any:
        return None if values is None else [values[i] for i in kept]

    return Line(line.name, pick(line.x), pick(line.y), pick(line.low), pick(line.high))


def _digits(values: Any, count: int) -> list[Any]:
    return [None if v is None else int(v) if float(v).is_integer() else float(f"{v:.{count}g}") for v in values]


def linked(text: str, place: str, pointer: str) -> Markup:
    """A sentence that links to its data in this page, with every number in it marked; the rest escaped.

    One link per sentence, not per number: a third of the page would be addresses. It is for the mouse: a keyboard's
    way through the page does not stop at a thousand numbers.
    """
    text = typeset(text)
    text = PACKED.sub(_unpacked, text[:1].upper() + text[1:])
    out, last = [], 0
    for match in NUMBER.finditer(text):
        out.append(maths(text[last : match.start()]))
        last = match.end()
        if match["name"]:
            out.append(maths(match["name"]))
        else:
            out.append(Markup("<b>{}</b>").format(match["number"]))
    whole = Markup("").join([*out, maths(text[last:])])
    return Markup('<a class="n" tabindex="-1" href="#{}" title="{}">{}</a>').format(place, pointer, whole)


def _unpacked(match: re.Match[str]) -> str:
    """Numbers that a file packs with slashes, as a list in words."""
    *first, last = ("–" if part == "-" else part for part in match[0].split("/"))
    return f"{', '.join(first)} and {last}"


def maths(text: Any) -> Markup:
    """Escaped text in which L_i, x^K and the like have their indices and exponents set as such."""
    safe = str(escape(typeset(str(text))))
    safe = re.sub(r"\bsum_(\w)\b", r"Σ<sub>\1</sub>", safe)
    safe = re.sub(r"\b([A-Za-z])_(\w)\b", r"\1<sub>\2</sub>", safe)
    safe = safe.replace("L-BFGS", '<span class="nb">L-BFGS</span>')
    return Markup(re.sub(r"\^(\w+)", r"<sup>\1</sup>", safe))


def headline(text: Any) -> Markup:
    """The same for the few words of a heading, where a compound is kept on one line too."""
    return Markup(re.sub(r"\b(CIFAR-10|SST-2|speed-ups?)\b", r'<span class="nb">\1</span>', str(maths(text))))
