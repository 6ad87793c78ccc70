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
from ownstep.report import story
from ownstep.report.charts import Chart, Line, charts
from ownstep.report.drawing import picture, waterfall
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
        "What the paper does not ask: which part of the method earns the gain, how much hangs on the estimated "
        "constants, and what own steps with measured curvature or with momentum are worth.",
    ),
}
SHORT = {
    "pep-curves": "Lower worst case (Fig. 1a)",
    "pep-heterogeneity": "Ratio below one in every class (Fig. 1b)",
    "pep-devices": "Same ratio for any number of devices (Fig. 1c)",
    "theorem": "Theorem 1, certified",
    "w8a": "W8A: fewer iterations (Fig. 2)",
    "cifar10": "CIFAR-10: fewer iterations (Fig. 4)",
    "sst2": "SST-2: faster fine-tuning (Fig. 5)",
    "mnist": "MNIST: fewer iterations",
    "dirichlet": "More heterogeneous, more speed-up",
    "devices": "More devices, more speed-up",
    "gossip": "Faster than gossip methods",
    "fedopt": "Faster than FedOpt methods",
    "participation": "Robust to absent devices",
    "estimates": "Sampled constants are good estimates",
    "attribution": "The devices' geometry is the reason",
    "beyond": "Adaptive and accelerated own steps",
    "curvature": "Own curvature needs fewer exchanges",
    "which": "Fewer rounds than tuned federated rivals",
    "gossip-worst-case": "Lower worst case on every network",
}
"""A claim in a few words, for its card."""
SCRIPTS = ("charts.js", *EXPLORER, "page.js")
POINTS = 48
"""Points of a line on the page."""
MARKS = {VERDICTS[0]: "yes", VERDICTS[1]: "partly", VERDICTS[2]: "no", OTHER: "none", MISSING: "none"}
NUMBER = re.compile(
    r"(?P<name>Algorithm 1|Fig\. \d+\w?|Theorem \d|"
    r"[12]/\(?L[-\w+]*\)?|L_?[\d₁₂]|W8A|SST-2|CIFAR-10|\b[A-Za-z_]+[-_]?\d+\w*)"
    r"|(?P<number>(?<![\w.])[−-]?\d[\d,]*(?:\.\d+)?(?:e[-+−]?\d+)?%?)"
)


def write(results: Path, target: Path, quick: bool = False) -> Results:
    """Write the page of everything below ``results`` to ``target``, and return what was read.

    Parameters
    ----------
    results : Path
        Folder with one folder an experiment, as ``ownstep paper`` writes it.
    target : Path
        The html file; links to the json files are relative to it.
    quick : bool
        Read the small versions, ``NAME-quick``.
    """
    if not results.is_dir():
        raise InvalidInput(f"no folder of results at {str(results)!r}: run 'ownstep paper all --quick', or name one")
    link = quote(Path(os.path.relpath(results.resolve(), target.resolve().parent)).as_posix())
    found = read(results, link, quick)
    html = build(found)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(target) as file:
            file.write(html.encode())
    except OSError as error:
        raise OwnstepError(f"cannot write the report to {str(target)!r}: {error}") from error
    return found


def build(results: Results) -> str:
    """The whole page as text."""
    palette = Palette()
    drawn: list[dict[str, Any]] = []
    sections = {}
    splits = story.factors(results)
    for part, (title, lead) in PARTS.items():
        records = results.part(part)
        if records:
            sections[part] = {
                "title": title,
                "lead": lead,
                "experiments": [_experiment(r, palette, drawn, splits) for r in records],
            }
    environment = templates()
    environment.filters |= {"spell": spell, "fixed": fixed, "linked": linked, "maths": maths}
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
        charts=embedded(drawn),
        worst_cases=grid(),
        style=Markup(asset("vendor/uplot.min.css") + asset("style.css")),
        fonts={name: encoded(f"vendor/{name}.woff2") for name in ("source-serif-4", "source-sans-3")},
        library=Markup(asset("vendor/uplot.min.js")),
        licence=asset("vendor/uplot-LICENSE.txt"),
        scripts=[Markup(asset(name)) for name in SCRIPTS],
    )  # fmt: skip


def _experiment(
    record: Record, palette: Palette, drawn: list[dict[str, Any]], splits: Mapping[str, Any]
) -> dict[str, Any]:
    """Everything a section shows; its charts are added to ``drawn`` and known by their place there."""
    figures, left_out = charts(record.module, record.result) if record.data else ([], 0)
    first = len(drawn)
    drawn.extend(plain(chart, palette) for chart in figures)
    where, title = heading(record)
    second = story.fair(record)
    split, factors = story.own_factors(record.name, splits)
    shown = next((f for f in figures if f.kind != "bars"), figures[0] if figures else None)
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
        "measured": story.measured(record),
        "picture": "" if shown is None else picture(shown, palette),
        "caption": "" if shown is None else _caption(shown),
        "split": split,
        "waterfall": waterfall(factors) if factors else "",
        "says": record.said("SAYS"),
        "why": record.said("WHY"),
        "notice": record.said("NOTICE"),
        "figures": list(enumerate(figures, first)),
        "left_out": left_out,
        "tables": tables(record.result) if record.data else [],
        "numbers": [_number(n, i) for i, n in enumerate(record.numbers)],
        "seed": seed if isinstance(seed := record.provenance.get("seed"), int) else 0,
        "machine": _machine(record.provenance),
        "recorded": _recorded(record),
    }


def _caption(chart: Chart) -> str:
    """What a picture shows; a title of one word, such as the name of an arm, says too little."""
    return chart.title if len(chart.title) > 24 else f"{chart.views[0].label}, {chart.title}".removesuffix(", ")


def heading(record: Record) -> tuple[str, str]:
    """Where in the paper, and what: from the module's ``TITLE`` or the first line of its docstring."""
    line = record.said("TITLE") or (getattr(record.module, "__doc__", None) or record.name).strip().splitlines()[0]
    where, colon, what = line.rstrip(".").partition(": ")
    if not colon or len(where) > 40:
        where, what = "", line.rstrip(".")
    return where, what[:1].upper() + what[1:]


def _number(number: Mapping[str, Any], index: int) -> dict[str, Any]:
    """One number of a verdict, with the place of its interval on a common axis."""
    out = {k: number.get(k) for k in ("group", "what", "value", "low", "high", "runs", "note")}
    value = out["value"] if is_number(out["value"]) else 0.0
    low, high = (float(bound) if is_number(bound := out[k]) else value for k in ("low", "high"))
    drawn = (low, value, high) if 0 < low <= high else None  # on a logarithmic axis
    return out | {"drawn": drawn, "pointer": f"verdict.numbers[{index}]"}


def _recorded(record: Record) -> dict[str, str]:
    """Where results that were only read had been made, by file."""
    found = record.result.get("recorded") if isinstance(record.result, Mapping) else None
    if not isinstance(found, Mapping):
        return {}
    kept = ("device", "commit", "python", "torch", "cuda", "precision", "seeds", "note")
    return {
        str(name): " · ".join(f"{k} {spell(known[k])}" for k in kept if known.get(k) not in (None, ""))
        for name, known in found.items()
        if isinstance(known, Mapping)
    }


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
    """A chart as the script of the page reads it, numbers to four digits."""
    views = []
    for view in chart.views:
        looks = palette.looks([line.name for line in view.lines])
        lines = [
            {
                "name": typeset(line.name), "colour": colour, "dash": dash, "x": _short(line.x), "y": _short(line.y),
                **({"low": _short(line.low), "high": _short(line.high)} if line.low and line.high else {}),
            }
            for line, (colour, dash) in zip(map(thinned, view.lines), looks, strict=True)
        ]  # fmt: skip
        views.append({"label": view.label, "log": view.log, "lines": lines})
    return {
        "title": chart.title, "x": chart.x, "xLog": chart.x_log, "ticks": chart.ticks, "kind": chart.kind,
        "views": views,
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


def _short(values: Any) -> list[Any]:
    return [None if v is None else int(v) if float(v).is_integer() else float(f"{v:.4g}") for v in values]


def linked(text: str, link: str, pointer: str) -> Markup:
    """A sentence that links to the json it came from, with every number in it marked; the rest escaped.

    One link per sentence, not per number: a third of the page would be addresses. It is for the mouse: a keyboard's
    way through the page does not stop at a thousand numbers.
    """
    text, out, last = text[:1].upper() + text[1:], [], 0
    for match in NUMBER.finditer(text):
        out.append(maths(text[last : match.start()]))
        last = match.end()
        if match["name"]:
            out.append(maths(match["name"]))
        else:
            out.append(Markup("<b>{}</b>").format(match["number"]))
    whole = Markup("").join([*out, maths(text[last:])])
    return Markup('<a class="n" tabindex="-1" href="{}" title="{}">{}</a>').format(link, pointer, whole)


def maths(text: Any) -> Markup:
    """Escaped text in which L_i, x^K and the like have their indices and exponents set as such."""
    safe = str(escape(typeset(str(text))))
    safe = re.sub(r"\b([A-Za-z])_(\w)\b", r"\1<sub>\2</sub>", safe)
    return Markup(re.sub(r"\^(\w+)", r"<sup>\1</sup>", safe))
