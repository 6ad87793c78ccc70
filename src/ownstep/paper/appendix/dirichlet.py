"""Appendix, Fig. 5: the speed-up under Dirichlet splits of different heterogeneity."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ownstep.paper.machinery import mnist_problem, trend
from ownstep.paper.machinery.runner import Pieces

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLAIM = "A smaller Dirichlet parameter, so more heterogeneous devices, gives more acceleration (MNIST, five devices)."

SAYS = "A smaller Dirichlet parameter leads to more acceleration (Fig. 5 of the appendix)."
WHY = trend.why
NOTICE = mnist_problem.notice

SETTINGS = (
    *mnist_problem.SETTINGS,
    ("split", "Dirichlet 0.1, 0.5, 1, 5 over five devices", "the same, several draws each", "one draw proves little"),
    *trend.SETTINGS,
)  # fmt: skip

ALPHAS = (0.1, 0.5, 1.0, 5.0)


def run(
    quick: bool = False,
    seed: int = 0,
    progress: bool | None = None,
    seeds: int | None = None,
    pieces: Pieces | None = None,
) -> dict[str, Any]:
    """One arm for each parameter."""
    found = trend.run(
        ALPHAS, lambda alpha, s: mnist_problem.dirichlet(5, alpha, s), quick, seed, progress, seeds, pieces, "alpha"
    )  # fmt: skip
    return completed(found, quick)


completed = partial(mnist_problem.with_network, "dirichlet")


def verdict(result: dict[str, Any]) -> dict[str, Any]:
    """See :func:`ownstep.paper.machinery.trend.verdict`: the speed-up has to rise as alpha falls."""
    return trend.verdict(result, "alpha", rising=False)


charts = trend.charts


def fair(result: dict[str, Any]) -> dict[str, Any]:
    """Against fair rivals, value by value; of the paper's network where it was trained."""
    return trend.fair(result)


def figure(result: dict[str, Any]) -> Figure:
    """Speed-ups over every rival, one panel per model."""
    from ownstep.paper.machinery.race_pictures import trends

    return trends(result, "α", "Dirichlet parameter α (small: devices differ more)")
