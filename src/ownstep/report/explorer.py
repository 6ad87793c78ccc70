"""The explorer as a page of its own, and how every page reads its templates and other parts."""

from __future__ import annotations

import base64
import json
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

SCRIPTS = ("gain.js", "race.js", "worst.js", "explorer.js")


def standalone() -> str:
    """The explorer alone, as one html file without a server: the race, the worst case and your devices."""
    return (
        templates()
        .get_template("standalone.html")
        .render(
            font=encoded("vendor/source-sans-3.woff2"),
            style=Markup(asset("style.css")),
            worst_cases=grid(),
            scripts=[Markup(asset(name)) for name in SCRIPTS],
        )
    )


def templates() -> Environment:
    """The templates of the report; they escape whatever a result file holds."""
    return Environment(
        loader=PackageLoader("ownstep.report", "assets"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip


def grid() -> Markup:
    """The precomputed worst cases (``benchmarks/worst_case_grid.py``), where they are part of the package."""
    try:
        return embedded(json.loads(asset("worst_cases.json")))
    except FileNotFoundError:
        return Markup("")


def embedded(data: Any) -> Markup:
    """Json that can stand inside a script element whatever its strings hold."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def asset(name: str) -> str:
    """The text of a file of ``assets/``."""
    return (files("ownstep.report") / "assets" / name).read_text(encoding="utf-8")


def encoded(name: str) -> str:
    """A file of ``assets/`` in base 64, for a data url."""
    return base64.b64encode((files("ownstep.report") / "assets" / name).read_bytes()).decode()
