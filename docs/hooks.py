"""Pages may show files that lie outside ``docs/``: those of ``results/`` go into the site, other links become text."""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
VERDICTS = "<!-- verdicts -->"
WHICH = "<!-- which method -->"
OUTSIDE = re.compile(r"(?<=\]\()((?:\.\./)+)((?:results|src|benchmarks|tests)/[^)#\s]+|[A-Z]+\.md)")


def on_files(files: Files, config: Any) -> Files:
    """Every figure and result becomes a file of the site."""
    for path in sorted((ROOT / "results").rglob("*")):
        if path.suffix in (".png", ".svg", ".json"):
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links out of ``docs/`` are made for readers of the repository; here they point into the site, or become text."""
    here = posixpath.dirname(page.file.src_uri)

    def inside(match: re.Match[str]) -> str:
        target = match.group(2)
        if target.startswith("results/") and Path(target).suffix:
            return posixpath.relpath(target, here or ".")
        return match.group(0)

    if VERDICTS in markdown:
        markdown = markdown.replace(VERDICTS, verdicts(here))
    if WHICH in markdown:
        markdown = markdown.replace(WHICH, which())
    markdown = OUTSIDE.sub(inside, markdown)
    # what the site does not hold stays as text: [words](../src/x.py) -> words
    return re.sub(r"(?<!!)\[([^\]]+)\]\((?:\.\./)+(?:src|benchmarks|tests|[A-Z]+\.md)[^)]*\)", r"\1", markdown)


def which() -> str:
    """The decision table, from the result on disk."""
    from ownstep.paper.ours.which_method import markdown, read

    return markdown(read(ROOT / "results"))


def verdicts(here: str) -> str:
    """The table of verdicts, from the results as they are on disk."""
    lines = ["| experiment | claim | verdict |", "|---|---|---|"]
    for path in sorted((ROOT / "results").glob("*/result.json")):
        found = json.loads(path.read_text())
        link = posixpath.relpath(path.relative_to(ROOT).as_posix(), here or ".")
        claim = found["claim"].replace("|", "\\|")
        lines.append(f"| [{found['name']}]({link}) | {claim} | {found['verdict']['verdict']} |")
    return "\n".join(lines)
