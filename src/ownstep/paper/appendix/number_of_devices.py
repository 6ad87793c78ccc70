"""Appendix, Fig. 6: the speed-up with different numbers of devices."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ownstep.paper.machinery import mnist_problem, trend
from ownstep.paper.machinery.runner import Pieces

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLAIM = "More devices strengthen the advantage of Algorithm 1 over pooled GD (MNIST, Dirichlet 0.1)."

SAYS = "More devices strengthen the advantage over the centralised counterpart (Fig. 6 of the appendix)."
WHY = trend.why
NOTICE = mnist_problem.notice

SETTINGS = (
    *mnist_problem.SETTINGS,
    ("split", "Dirichlet 0.1 over 2, 5, 15, 25 devices", "the same, several draws each", "one draw proves little"),
    *trend.SETTINGS,
)  # fmt: skip

COUNTS = (2, 5, 15, 25)


def run(
    quick: bool = False,
    seed: int = 0,
    progress: bool | None = None,
    seeds: int | None = None,
    pieces: Pieces | None = None,
) -> dict[str, Any]:
    """One arm for each number of devices."""
    found = trend.run(
        COUNTS, lambda count, s: mnist_problem.dirichlet(count, 0.1, s), quick, seed, progress, seeds, pieces, "N"
    )  # fmt: skip
    return completed(found, quick)


completed = partial(mnist_problem.with_network, "devices")


def verdict(result: dict[str, Any]) -> dict[str, Any]:
    """See :func:`ownstep.paper.machinery.trend.verdict`: the speed-up has to rise with N."""
    return trend.verdict(result, "N", rising=True)


charts = trend.charts


def fair(result: dict[str, Any]) -> dict[str, Any]:
    """Against fair rivals, value by value; of the paper's network where it was trained."""
    return trend.fair(result)


def figure(result: dict[str, Any]) -> Figure:
    """Speed-ups over every rival, one panel per model."""
    from ownstep.paper.machinery.race_pictures import trends

    return trends(result, "N", "devices N")
