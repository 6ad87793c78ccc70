"""Names in plain words: of claims on their cards, and of charts whose results only have identifiers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ownstep.report.charts import Chart

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

CONSTANTS = r"(?P<arm>.*): constants"
CHARTS: dict[str, tuple[tuple[str, str], ...]] = {
    "pep-heterogeneity": (
        (r"Ratio to GD, K = (\d+)", r"Worst case over that of GD after \1 rounds"),
        (r"L = (.*), K = (\d+)", r"L = \1, \2 rounds: the ratio depends on R*/R0 and on the switch"),
    ),
    "pep-devices": ((r"Algorithm 1 over GD, .*", "Worst case over that of GD after 10 rounds, 5 of them local"),),
    "gossip-worst-case": (
        (r"L = (.*), eigenvalues up to (.*), K = (\d+)", r"L = \1, eigenvalues up to \2, \3 rounds"),
    ),
    "w8a": (
        (r"subset, (.*)", r"The paper's subset of W8A, split \1"),
        (r"all, (.*)", r"All of W8A, split \1"),
    ),
    "cifar10": (
        (CONSTANTS, "Smoothness of the ten devices in the first run"),
        (r"paper", "CIFAR-10, the paper's constants"),
    ),
    "sst2": (
        (CONSTANTS, r"Smoothness of the five devices, \g<arm>"),
        (r"(.*)", r"Fine-tuning \1 on SST-2"),
    ),
    "mnist": (
        (CONSTANTS, r"Smoothness of the five devices, \g<arm>"),
        (r"(.*), differences", r"MNIST, \1, constants from gradient differences"),
        (r"(.*), paper", r"MNIST, \1, the paper's constants"),
    ),
    "estimates": (
        (r"(.*): running maximum", r"\1: the largest ratio grows with the draws"),
        (r"(.*): by eps", r"\1: the largest ratio depends on the difference eps"),
        (r"(.*): by scale of the region", r"\1: the largest ratio depends on the region"),
    ),
    "participation": (
        (r"(.*): p, share rescaled", r"\1: fewer present devices, their shares rescaled"),
        (r"(.*): p = 0.7, missing share", r"\1: what becomes of an absent device's share, p = 0.7"),
        (r"(.*): other absences", r"\1: other kinds of absence"),
    ),
    "curvature": (
        (r"(.*), rank (\d+): more devices need fewer exchanges", r"\1, rank \2: more devices need fewer exchanges"),
        (r"Default rank, ten devices.*", "Exchanges over those of L-BFGS, ten devices, default rank 10"),
        (r"(.*), ten devices: over the rank", r"\1, ten devices: a higher rank needs fewer exchanges"),
    ),
}
"""By experiment: patterns of titles and what stands on the page instead."""
LINES: dict[str, tuple[tuple[str, str], ...]] = {
    "theorem": ((r"distance", "‖x − x*‖²"), (r"value", "f(x) − f(x*)")),
    "curvature": ((r"label", "by label"), (r"dirichlet", "Dirichlet 0.1"), (r"iid", "devices alike (iid)")),
    "participation": (
        (r"(.*), rescale", r"\1, rescaled"),
        (r"(.*), drop", r"\1, dropped"),
        (r"(.*), last", r"\1, last gradient"),
    ),
}
"""The same for the names of lines that are no methods."""
DEALT = {"iid": "alike (iid)", "label": "by label", "by_norm": "by norm", "dirichlet": "Dirichlet 0.1"}
ROWS: dict[str, tuple[tuple[str, str], ...]] = {
    "curvature": (
        (r"1 one", "one device"),
        *((rf"(\d+) {split}", rf"\1 devices, {words}") for split, words in DEALT.items()),
        *((rf"{split}, (\d+) / (\d+)", rf"{words}: \1 over \2") for split, words in DEALT.items()),
    ),
}
"""The same for the rows of the numbers with their intervals."""


def renamed(name: str, chart: Chart) -> Chart:
    """A chart of an experiment with its title and its lines in plain words."""
    lines = LINES.get(name, ())
    views = [
        replace(view, lines=[replace(line, name=_first(lines, line.name)) for line in view.lines])
        for view in chart.views
    ]
    return replace(chart, title=_first(CHARTS.get(name, ()), chart.title), views=views)


def row_name(name: str, what: str) -> str:
    """What one number of an experiment is, in plain words."""
    return _first(ROWS.get(name, ()), what)


def _first(patterns: Sequence[tuple[str, str]], text: str) -> str:
    """The words of the first pattern that the whole text fits, or the text itself."""
    for pattern, words in patterns:
        if match := re.fullmatch(pattern, text):
            return match.expand(words)
    return text
