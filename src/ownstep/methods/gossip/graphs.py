"""Graphs by name, and the two usual ways to weigh their links."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ownstep.methods.gossip.mixing import Mixing
from ownstep.support.checks import whole_number
from ownstep.support.errors import InvalidInput, unknown_name

Array = NDArray[np.float64]
Links = NDArray[np.bool_]


def complete(devices: int) -> Links:
    """Link every device with every other."""
    return ~np.eye(devices, dtype=bool)


def ring(devices: int) -> Links:
    """Link every device with the one before and the one after, in a circle."""
    return path(devices) | _pairs(devices, [(0, devices - 1)])


def path(devices: int) -> Links:
    """Link the devices in a line: a ring without one link."""
    return _pairs(devices, [(i, i + 1) for i in range(devices - 1)])


def star(devices: int) -> Links:
    """Link every device with the first."""
    return _pairs(devices, [(0, i) for i in range(1, devices)])


def grid(devices: int) -> Links:
    """Link rows and columns, as square as the number of devices allows. The last row may be shorter."""
    width = int(np.ceil(np.sqrt(devices)))
    right = [(i, i + 1) for i in range(devices - 1) if (i + 1) % width]
    return _pairs(devices, right + [(i, i + width) for i in range(devices - width)])


def erdos_renyi(devices: int, p: float | None = None, seed: int = 0) -> Links:
    """Draw every link with probability p, until the graph is connected (at most a thousand times).

    By default p = 2 log(N) / N, twice the threshold above which such a graph is usually connected.
    """
    p = min(1.0, 2 * float(np.log(max(devices, 2))) / devices) if p is None else p
    if not 0 < p <= 1:
        raise InvalidInput(f"the probability of a link is in (0, 1], got {p!r}")
    rng = np.random.default_rng(seed)
    for _ in range(1000):
        upper = np.triu(rng.random((devices, devices)) < p, 1)
        if _connected(upper | upper.T):
            return upper | upper.T
    raise InvalidInput(f"no connected graph of {devices} devices in a thousand draws with p={p:g}; take a larger p")


GRAPHS: dict[str, Callable[..., Links]] = {
    "complete": complete,
    "ring": ring,
    "path": path,
    "star": star,
    "grid": grid,
    "erdos_renyi": erdos_renyi,
}
RULES = {
    "metropolis": "W_ij = 1 / (1 + max(degree_i, degree_j)) on links, the rest of the row on the diagonal",
    "lazy": "(I + W) / 2 of the Metropolis matrix, whose eigenvalues are at least 0",
}


def mixing_matrix(graph: str | Mixing, devices: int, rule: str = "metropolis", **options: float) -> Mixing:
    """The mixing matrix of a named graph; ``options`` are ``p`` and ``seed`` of ``erdos_renyi``.

    A given :class:`Mixing` is passed on once its size is checked.
    """
    whole_number("devices", devices, 1)
    if rule not in RULES:
        raise unknown_name("mixing rule", rule, RULES)
    if isinstance(graph, Mixing):
        if len(graph) != devices:
            raise InvalidInput(f"the mixing matrix is for {len(graph)} devices, there are {devices}")
        return graph
    if graph not in GRAPHS:
        raise unknown_name("graph", graph, GRAPHS)
    W = metropolis(GRAPHS[graph](devices, **options))
    return Mixing((np.eye(devices) + W) / 2 if rule == "lazy" else W, graph)


def metropolis(links: Links) -> Array:
    """Metropolis-Hastings weights of a graph: symmetric, and known from the degrees of both ends alone."""
    degree = links.sum(axis=1)
    W = np.where(links, 1 / (1 + np.maximum(degree[:, None], degree)), 0.0)
    out: Array = W + np.diag(1 - W.sum(axis=1))
    return out


def _pairs(devices: int, pairs: list[tuple[int, int]]) -> Links:
    links = np.zeros((devices, devices), bool)
    for i, j in pairs:
        if i != j:
            links[i, j] = links[j, i] = True
    return links


def _connected(links: Links) -> bool:
    reached = np.zeros(len(links), bool)
    reached[0] = True
    for _ in range(len(links)):
        reached = reached | links[reached].any(axis=0)
    return bool(reached.all())
