"""Estimated seconds: of a history over a network, and of moving the data to one place.

A round is as slow as the slowest device that took part in it,

    server      2 latency + down_i / bandwidth + E compute_i + up_i / bandwidth,
    gossip        latency + down_i / bandwidth +   compute_i + up_i / bandwidth,

with the bytes the history recorded. A model, not a measurement: no congestion, no overlap of sending and computing.
E counts a device's work in gradients: its local steps, and what :func:`extra_work` says of Hessians and sketches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ownstep.history import History
from ownstep.methods.base import Ask
from ownstep.smoothness.sketch import COLD, OVERSAMPLING, WARM
from ownstep.support.errors import InvalidInput

Array = NDArray[np.float64]
PerDevice = float | Sequence[float]

HESSIAN = 0.1
"""Gradients' time per coordinate for a Hessian: 0.05 to 0.11 on w8a, digits, breast cancer and heart disease."""
SOLVES = 5
"""Newton steps counted for a device that minimises its own loss."""


def extra_work(ask: Ask, dim: int, warm: bool) -> float:
    """What a device does for an ask beyond one gradient at x, in gradients.

    A second point costs one gradient more. A product of the Hessian with a vector costs one, and a sketch as many
    products as a linear model needs. A Hessian costs :data:`HESSIAN` d, and so do the eigenvectors that SHED asks for
    anew and a device's own Newton step (GIANT). A device that minimises its own loss (DANE) needs :data:`SOLVES` times
    that.

    Parameters
    ----------
    warm : the device sent a sketch of its own before, from which it starts.
    """
    work, whole = float(ask.base is not None), 1 + HESSIAN * dim
    work += HESSIAN * dim if ask.hessian else 0.0
    if ask.solve is not None:
        work += SOLVES * whole if ask.solve.whole else whole - 1
    if (wanted := ask.sketch) is None or not wanted.rank:
        return work
    if wanted.skip is not None:
        return work + (0.0 if wanted.skip else HESSIAN * dim)
    rank = min(wanted.rank, dim)
    if wanted.shared:
        return work + rank
    return work + (WARM[True] * rank if warm else min(COLD[True] * (rank + OVERSAMPLING), dim))


@dataclass(frozen=True)
class TimeModel:
    """The speed of the network and of the devices. Every entry is one number for all, or one per device.

    Parameters
    ----------
    latency : seconds for a message to arrive, however short.
    up, down : bytes per second a device can send and receive.
    compute : seconds for one gradient of a device's own loss.
    server : bytes per second the server can take in and give out in all; no limit by default.
    deadline : seconds a server waits for devices that do not come; by default it knows at once.
    """

    latency: PerDevice = 0.05
    up: PerDevice = 1e6
    down: PerDevice = 1e7
    compute: PerDevice = 0.1
    server: float = np.inf
    deadline: float = 0.0

    def __post_init__(self) -> None:
        for name in ("up", "down", "server"):
            if not (np.asarray(getattr(self, name), float) > 0).all():
                raise InvalidInput(f"{name} must be positive bytes per second, got {getattr(self, name)!r}")
        for name in ("latency", "compute", "deadline"):
            if not (np.asarray(getattr(self, name), float) >= 0).all():
                raise InvalidInput(f"{name} must be at least 0 seconds, got {getattr(self, name)!r}")

    def seconds(self, history: History) -> Array:
        """Estimated seconds until each iterate x^0, ..., x^K of a history."""
        told = history.settings
        here = np.ones((history.rounds, int(told["devices"])), bool) if history.took_part is None else history.took_part
        up, down = (history.columns[c][:-1] for c in ("bytes_up", "bytes_down"))
        steps: Any = told.get("local_steps", 1)
        if "local_steps_by_round" in told:
            steps = np.asarray(told["local_steps_by_round"], float).reshape(history.rounds, -1)
        if told.get("extra_work"):
            steps = np.asarray(steps, float) + np.zeros((history.rounds, 1))
            for k, work in told["extra_work"]:
                steps[k] += work
        return np.concatenate([[0.0], np.cumsum(self.rounds(up, down, here, steps, told.get("vectors_sent")))])

    def rounds(
        self,
        bytes_up: ArrayLike,
        bytes_down: ArrayLike,
        here: NDArray[np.bool_],
        local_steps: ArrayLike = 1,
        vectors_sent: ArrayLike | None = None,
    ) -> Array:
        """Estimated seconds of each round, given what all devices together sent and received in it.

        Parameters
        ----------
        here : who took part, a row per round.
        local_steps : E, for all; one per device; or one row per round.
        vectors_sent : by device, for methods without a server: who sends more takes longer.
        """
        n, gossip = here.shape[1], vectors_sent is not None
        part = here * (np.ones(n) if vectors_sent is None else np.asarray(vectors_sent, float))
        part = part / np.maximum(part.sum(axis=1, keepdims=True), 1e-300)
        up, down = (np.asarray(b, float)[:, None] * part for b in (bytes_up, bytes_down))
        own = (1 if gossip else 2) * self._row("latency", n) + np.asarray(local_steps) * self._row("compute", n)
        each = np.where(here, own + up / self._row("up", n) + down / self._row("down", n), 0.0)
        rounds = np.asarray(each.max(axis=1))
        if not gossip:
            rounds = np.maximum(rounds, (up + down).sum(axis=1) / self.server)
            rounds = np.where(here.all(axis=1), rounds, np.maximum(rounds, self.deadline))
        return rounds

    def moving(self, data_bytes: ArrayLike) -> float:
        """Seconds until the raw data of every device is in one place."""
        size = np.atleast_1d(np.asarray(data_bytes, float))
        if size.ndim != 1 or not (size >= 0).all():
            raise InvalidInput(f"data_bytes is one size of at least 0 for each device, got {data_bytes!r}")
        slowest = (self._row("latency", len(size)) + size / self._row("up", len(size))).max()
        return float(max(slowest, size.sum() / self.server))

    def _row(self, name: str, devices: int) -> Array:
        values = np.asarray(getattr(self, name), float)
        if values.ndim and values.shape != (devices,):
            raise InvalidInput(f"{name} has {values.size} entries for {devices} devices")
        return np.broadcast_to(values, (devices,))


def price(
    histories: Mapping[str, History],
    optimum: float,
    tolerance: float,
    model: TimeModel,
    data_bytes: ArrayLike,
    pooled: str,
    pooled_compute: float,
) -> list[dict[str, Any]]:
    """What each history costs to a relative gap, compared with moving the data and running ``pooled`` in one place.

    Parameters
    ----------
    data_bytes : size of every device's raw data.
    pooled : which of the histories is run in one place once the data is there; its rounds then send nothing.
    pooled_compute : seconds there for one gradient of f.

    Returns
    -------
    list of dict
        One row per method and a last one for moving the data: rounds, bytes and seconds, None where it is not reached.
    """
    out = []
    for name, history in histories.items():
        k = history.rounds_to(tolerance, optimum)
        sent = sum(int(history.columns[c][: k or 0].sum()) for c in ("bytes_up", "bytes_down"))
        seconds = None if k is None else float(model.seconds(history)[k])
        out.append({"name": name, "rounds": k, "bytes": None if k is None else sent, "seconds": seconds})
    k = histories[pooled].rounds_to(tolerance, optimum)
    took = None if k is None else model.moving(data_bytes) + k * pooled_compute
    total = int(np.sum(np.asarray(data_bytes, float)))
    return [*out, {"name": f"data moved, {pooled}", "rounds": k, "bytes": total, "seconds": took}]
