r"""The function classes, the measures of error, and the devices a worst case is taken over.

A finite set of triples (x_j, g_j, f_j) belongs to some mu-strongly convex and L-smooth function exactly when, for
every pair (Taylor, Hendrickx and Glineur, 2017),

    f_p >= f_q + <g_q, x_p - x_q>
           + [ ||g_p - g_q||^2 / L + mu ||x_p - x_q||^2 - 2 (mu/L) <g_p - g_q, x_p - x_q> ] / (2 (1 - mu/L)).

With the curvature mu taken out, v = g - mu x and phi = f - mu/2 ||x||^2, this is the condition for convex functions
of smoothness L - mu,

    phi_p >= phi_q + <v_q, x_p - x_q> + ||v_p - v_q||^2 / (2 (L - mu)),

which is the form used everywhere here. When mu = L it reads v = 0 and phi = 0: one function, no inequality.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ownstep.plan import WIDEST, Devices
from ownstep.support.errors import InvalidInput, OwnstepError, unknown_name
from ownstep.support.memory import free_memory

Array = NDArray[np.float64]

EACH = 100
"""Bytes that a device takes, with its constants, steps and what is made of them."""

METRICS = {
    "value": "f(x^K) - f(x*), with f = sum_i w_i f_i",
    "distance": "||x^K - x*||^2",
    "gradient": "||grad f(x^K)||^2",
}


@dataclass(frozen=True, eq=False)
class Lipschitz:
    """Devices whose losses are convex, with subgradients at most ``bounds`` long; nothing is known of their curvature.

    A method may be told any subgradient, and its steps must be numbers: there is no L to go by.

    Parameters
    ----------
    weights, bounds : w_i and B_i, one entry per device.
    """

    weights: Array
    bounds: Array

    def __len__(self) -> int:
        return len(self.bounds)

    def at_length(self, length: float) -> Devices:
        """Devices whose L = B_i / length says how large things are; as a smoothness constant it means nothing."""
        return Devices(self.weights, self.bounds / length)


def check_smooth(devices: Devices | Lipschitz, what: str) -> None:
    """Refuse losses without a smoothness constant."""
    if isinstance(devices, Lipschitz):
        raise InvalidInput(f"{what} needs smooth losses: give devices with L, not with bounds on subgradients")


def lipschitz(bounds: ArrayLike, counts: Sequence[int] | None = None, weights: ArrayLike | None = None) -> Lipschitz:
    """Devices given by kind: ``counts[j]`` with convex losses whose subgradients are at most ``bounds[j]`` long.

    Parameters
    ----------
    bounds : one entry per kind.
    counts, weights : as for :func:`repeated`.
    """
    given = np.atleast_1d(np.asarray(bounds, float))
    if not (np.isfinite(given) & (given > 0)).all():
        raise InvalidInput(f"bounds on subgradients must be positive and finite, got {given.tolist()}")
    devices = repeated(given, 0.0, counts, weights)
    return Lipschitz(devices.weights, devices.L)


def check(rounds: int, r0: float, rstar: float, metric: str) -> None:
    """Refuse values that make no sense, before anything is solved."""
    if isinstance(rounds, bool) or not math.isfinite(rounds) or rounds != int(rounds) or rounds < 0:
        raise InvalidInput(f"rounds must be a whole number of at least 0, got {rounds!r}")
    if not (math.isfinite(r0) and r0 > 0):
        raise InvalidInput(f"r0, the radius around x* that holds the start, must be positive and finite, got {r0!r}")
    if math.isnan(rstar) or rstar < 0:
        raise InvalidInput(f"rstar, the radius that holds the local minimisers, must be in [0, inf], got {rstar!r}")
    for name, radius in (("r0", r0), ("rstar", rstar)):
        if radius and math.isfinite(radius) and not 1 / WIDEST <= radius <= WIDEST:
            raise InvalidInput(
                f"{name} must lie between {1 / WIDEST:g} and {WIDEST:g}, or its square overflows, got {radius!r}"
            )
    if metric not in METRICS:
        raise unknown_name("metric", metric, METRICS)


def repeated(
    L: ArrayLike, mu: ArrayLike = 0.0, counts: Sequence[int] | None = None, weights: ArrayLike | None = None
) -> Devices:
    """Devices given by kind: ``counts[j]`` devices of smoothness ``L[j]`` and strong convexity ``mu[j]``.

    Parameters
    ----------
    L, mu : one entry per kind; a single mu serves all.
    counts : how many devices of each kind; one of each by default.
    weights : a single device's weight, by kind, up to a common factor; equal by default.
    """
    kinds = np.atleast_1d(np.asarray(L, float))
    if counts is None:
        counts = [1] * len(kinds)
    if len(counts) != len(kinds):
        raise InvalidInput(f"{len(counts)} counts for {len(kinds)} kinds of device: one count for each L")
    if any(isinstance(n, bool) or n != int(n) or n < 1 for n in counts):
        raise InvalidInput(f"counts must be whole numbers of at least 1, got {list(counts)}")
    mus = np.atleast_1d(np.asarray(mu, float))
    if len(mus) not in (1, len(kinds)):
        raise InvalidInput(f"{len(mus)} values of mu for {len(kinds)} kinds of device: give one, or one for each L")
    shares = np.ones(len(kinds)) if weights is None else np.atleast_1d(np.asarray(weights, float))
    if shares.shape != kinds.shape:
        raise InvalidInput(f"{len(shares)} weights for {len(kinds)} kinds of device: one for each L")
    good = np.isfinite(shares) & (shares > 0)
    if not good.all():
        raise InvalidInput(f"weights must be positive and finite, got {shares[~good][0]:g}")
    needed = EACH * float(sum(counts))
    if needed > free_memory():
        raise OwnstepError(
            f"{sum(counts):,} devices would need about {needed / 1e9:.0f} GB of memory, {free_memory() / 1e9:.0f} GB "
            "are free: ask about fewer of each kind"
        )
    times = np.asarray(counts, dtype=int)
    each = np.repeat(shares, times)
    return Devices(each / each.sum(), np.repeat(kinds, times), np.repeat(np.broadcast_to(mus, kinds.shape), times))


def interpolation_gaps(x: Array, g: Array, f: Array, mu: float, L: float) -> Array:
    """How far each pair of triples is from breaking the interpolation condition; all >= 0 when a function exists.

    Parameters
    ----------
    x, g, f : points and gradients as rows, and values.

    Returns
    -------
    array
        Its entry (p, q) is the left side minus the right side of the condition above.
    """
    if mu >= L:
        raise InvalidInput(f"the condition needs mu < L, got mu={mu:g} and L={L:g}")
    v = g - mu * x
    phi = f - mu / 2 * np.einsum("ij,ij->i", x, x)
    slope = x @ v.T - np.einsum("ij,ij->i", x, v)
    squares = np.einsum("ij,ij->i", v, v)
    distance = squares[:, None] + squares[None, :] - 2 * v @ v.T
    return np.asarray(phi[:, None] - phi[None, :] - slope - distance / (2 * (L - mu)))
