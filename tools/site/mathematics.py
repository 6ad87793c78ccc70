"""Typesets ``$...$`` and ``$$...$$`` of the pages as MathML when the site is built: no script, no network."""

from __future__ import annotations

import re
from typing import Any

from latex2mathml.converter import convert

CODE = re.compile(
    r"^(?P<fence> *(?:```+|~~~+)).*?^(?P=fence)[`~]*\s*$|(?P<ticks>`+)[^`].*?(?P=ticks)", re.DOTALL | re.MULTILINE
)
FORMULA = re.compile(r"\$\$(?P<block>.+?)\$\$|(?<![\\\w$])\$(?P<line>[^\s$](?:[^$\n]*[^\s$\\])?)\$(?!\w)", re.DOTALL)
PLACE = "mathsplace{}x"
_kept: dict[str, list[str]] = {}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Formulas leave the page before Markdown reads their stars and underscores; code stays as it is."""
    found = _kept[page.file.src_uri] = []

    def keep(match: re.Match[str]) -> str:
        block = match["block"] is not None
        found.append(convert((match["block"] or match["line"]).strip(), display="block" if block else "inline"))
        return PLACE.format(len(found) - 1)

    out, last = [], 0
    for code in CODE.finditer(markdown):
        out += [FORMULA.sub(keep, markdown[last : code.start()]), code[0]]
        last = code.end()
    return "".join([*out, FORMULA.sub(keep, markdown[last:])])


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """And come back typeset."""
    return _filled(html, page)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Headings in the contents are written once more by the theme."""
    return _filled(output, page)


def _filled(html: str, page: Any) -> str:
    found = _kept.get(page.file.src_uri, [])
    return re.sub(PLACE.format(r"(\d+)"), lambda match: found[int(match[1])], html)
