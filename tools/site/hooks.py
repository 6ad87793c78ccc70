"""Pages may show files outside ``docs/``: those of ``results/`` and ``examples/`` are copied, other links are text."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
COPIED = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
"""Pages of the site that are files of the repository."""
SHIM = "https://unpkg.com/iframe-worker/shim"
"""What the theme would fetch from elsewhere; the site has a copy."""
SEARCH = '<div class="md-search" data-md-component="search" role="dialog"'
VERSION = "{VERSION}"
VERDICTS, OUR_VERDICTS = "<!-- verdicts -->", "<!-- our verdicts -->"
TYPESET = {
    "1/L-bar": r"$1/\bar L$",
    "||x^K - x*||^2": r"$\lVert x^K - x^* \rVert^2$",
    "[-lambda, lambda]": r"$[-\lambda, \lambda]$",
    "L_i": "$L_i$",
}
"""Formulas of the claims, which are plain text in code and terminals."""
WHICH = "<!-- which method -->"
RECOMMENDED, ON_NETWORK = "<!-- recommended -->", "<!-- rivals on the network -->"
CURVATURE = "<!-- own curvature -->"
NAMED = re.compile(r"^\| (\w+) ([\d.e-]+) \|", re.MULTILINE)
SAID = {"sst2_words": "SST-2 words", "mnist": "MNIST", "heart_scaled": "heart disease, scaled"}
CELL_CODE = re.compile(r"(?<=<code>)[^<]{12,}(?=</code>[^\n]*</t[dh]>)")
PART = re.compile(r"(?:_|::|/|\()(?=\w)|(?<=[a-z]{4})(?=[A-Z][a-z]|\.py)")
ONE = r"(?:</?strong>|[\d,–])+"
COUNTS = re.compile(rf"<td>{ONE}(?: / {ONE})+</td>")
OUTSIDE = re.compile(r"(?<=\]\()((?:\.\./)+)((?:results|examples/output|src|benchmarks|tests)/[^)#\s]+|[A-Z]+\.md)")


def on_files(files: Files, config: Any) -> Files:
    """Figures, results, the explorer, the changelog and how to contribute become files of the site."""
    for path in sorted((ROOT / "results").rglob("*")):
        if path.suffix in (".png", ".svg", ".json"):
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    for page, source in COPIED.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    from ownstep.report import standalone

    files.append(File.generated(config, "explorer.html", content=standalone()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links out of ``docs/`` are made for readers of the repository; here they point into the site, or become text."""
    here = posixpath.dirname(page.file.src_uri)

    def inside(match: re.Match[str]) -> str:
        target = match.group(2)
        if target.startswith("examples/output/"):
            return posixpath.relpath(target.replace("examples/output/", "gallery/"), here or ".")
        if target.startswith("results/") and Path(target).suffix:
            return posixpath.relpath(target, here or ".")
        return match.group(0)

    if VERSION in markdown:
        import ownstep

        markdown = markdown.replace(VERSION, "{" + ownstep.__version__ + "}")
    if VERDICTS in markdown:
        markdown = markdown.replace(VERDICTS, verdicts(here))
        markdown = markdown.replace(OUR_VERDICTS, verdicts(here, ours=True))
    if WHICH in markdown:
        markdown = markdown.replace(WHICH, which())
    if RECOMMENDED in markdown:
        from ownstep.paper.ours.which_method import recommended

        markdown = markdown.replace(RECOMMENDED, recommended(ROOT / "results"))
    if ON_NETWORK in markdown:
        from ownstep.paper.ours.which_method import on_network

        markdown = markdown.replace(ON_NETWORK, on_network(ROOT / "results"))
    if CURVATURE in markdown:
        from ownstep.paper.ours.curvature_findings import markdown as exchanges

        markdown = markdown.replace(CURVATURE, NAMED.sub(said, exchanges(ROOT / "results")))
    markdown = OUTSIDE.sub(inside, markdown)
    # what the site does not hold stays as text: [words](../src/x.py) -> words
    return re.sub(r"(?<!!)\[([^\]]+)\]\((?:\.\./)+(?:src|benchmarks|tests|[A-Z]+\.md)[^)]*\)", r"\1", markdown)


def which() -> str:
    """The decision table, from the result on disk; a column per case, as its cells are long."""
    from ownstep.paper.ours.which_method import markdown, read

    heads, _, *rest = markdown(read(ROOT / "results")).splitlines()
    lines = [line.strip("| ").split(" | ") for line in (heads, *rest)]
    first, *rows = [f"| {' | '.join(cells)} |" for cells in zip(*lines, strict=True)]
    return "\n".join([first, "|" + "---|" * len(lines), *rows])


def said(match: re.Match[str]) -> str:
    """A dataset and its mu as a reader would say it."""
    return f"| {SAID.get(match[1], match[1].replace('_', ' '))}, {float(match[2]):.0e} |".replace("e-0", "e-")


def verdicts(here: str, ours: bool = False) -> str:
    """The paper's claims in its order, or ours, with both verdicts, computed from the results on disk."""
    from ownstep.report import read, story

    lines = ["| experiment | claim | as stated | against fair rivals |", "|---|---|---|---|"]
    for record in read(ROOT / "results", "results").records:
        if record.data and (record.name in story.OWN_CLAIMS) == ours:
            link = posixpath.relpath(f"results/{record.name}/result.json", here or ".")
            words = [word.removesuffix(" here") for word in (record.word, story.fair(record).word)]
            lines.append(f"| [{record.name}]({link}) | {typeset(record.claim)} | {words[0]} | {words[1]} |")
    return "\n".join(lines)


def typeset(claim: str) -> str:
    """A claim as it stands in a table of a page."""
    for plain, formula in TYPESET.items():
        claim = claim.replace(plain, formula)
    return claim.replace("|", "\\|")


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Long names in tables break where a reader would break them; counts of one method stay on one line."""
    html = COUNTS.sub(lambda match: match[0].replace(" / ", "&nbsp;/&nbsp;"), html)
    return CELL_CODE.sub(lambda match: PART.sub(r"\g<0><wbr>", match[0]), html)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """The theme's search works from disk, and screen readers hear its name."""
    return _with_own_search(output, posixpath.dirname(page.file.dest_uri))


def on_post_template(output: str, template_name: str, **_: Any) -> str:
    """As for pages: ``404.html`` is made from a template and is no page."""
    return _with_own_search(output, posixpath.dirname(template_name))


def _with_own_search(output: str, here: str) -> str:
    output = output.replace(SHIM, posixpath.relpath("vendor/iframe-worker.js", here or "."))
    return output.replace(SEARCH, f'{SEARCH} aria-label="Search"')
