"""One web page out of everything under ``results/``: self-contained, and made from files alone.

:func:`write` reads the results of every registered experiment and writes the page; nothing is run again. The page
needs no server and no network: style, script, fonts, the chart library and the data of every chart are inside it.
"""

from __future__ import annotations

from ownstep.report.explorer import standalone
from ownstep.report.page import build, write
from ownstep.report.results import Record, Results, read

__all__ = ["Record", "Results", "build", "read", "standalone", "write"]
