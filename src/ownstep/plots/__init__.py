"""Figures from histories; drawing never reruns anything.

Every function returns a matplotlib ``Figure`` built without pyplot, so nothing global changes; :func:`save` writes it.
Figures are as wide as one column or two of a paper, no text in them is smaller than 7 points, and at most five lines
stand in one picture, each named at its end. Nothing here knows an experiment; it may import from ``engines`` and
``support``.
"""

from ownstep.plots.comparisons import convergence, demo, gaps
from ownstep.plots.lines import Curve, curves, name_lines
from ownstep.plots.looks import COLOURS, DASHES, FIRST, MOST, chosen, colour, dash, ink, shades, typeset
from ownstep.plots.panels import (
    COLUMN,
    PAGE,
    SMALLEST,
    STYLE,
    TEXT,
    TITLE,
    finish,
    headline,
    new_figure,
    power,
    save,
    wrapped,
)

__all__ = [
    "COLOURS", "COLUMN", "DASHES", "FIRST", "MOST", "PAGE", "SMALLEST", "STYLE", "TEXT", "TITLE", "Curve", "chosen",
    "colour", "convergence", "curves", "dash", "demo", "finish", "gaps", "headline", "ink", "name_lines", "new_figure",
    "power", "save", "shades", "typeset", "wrapped",
]  # fmt: skip
