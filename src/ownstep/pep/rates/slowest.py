"""How slow a method is on simple quadratics: a lower end for every rate, and whether it ends at x*."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.methods.base import Method
from ownstep.pep.networks.network_trace import answer, on_any_network
from ownstep.pep.networks.spectral import Spectral
from ownstep.pep.trace.units import measured, power
from ownstep.plan import Devices

Array = NDArray[np.float64]

EXACT = 1e-7
"""How far from x* a fixed point may lie, relative to its vectors, and still be x*."""


class Line:
    """The method on f_i(x) = q_i/2 x^2 + s_i x in one dimension, as a linear map of its state.

    Parameters
    ----------
    names : the fields of the state that matter.
    factor : lambda of W = lambda I + (1 - lambda) 11'/N.
    unit : what one unit of the devices' curvature stands for where the method counts.
    """

    def __init__(
        self, method: Method, devices: Devices, names: list[str], network: Spectral | None, factor: float, unit: float
    ) -> None:
        n = len(devices)
        if network is not None and n < 2:
            devices = Devices(np.tile(devices.weights / 2, 2), np.tile(devices.L, 2), np.tile(devices.mu, 2))
            n = 2 * n
        self.method: Any = method
        if network is not None:
            W = factor * np.eye(n) + (1 - factor) / n
            self.method = on_any_network(method, network, W, n)
        self.devices, self.names, self.unit = devices, names, unit
        self.told = measured(devices, unit)
        self.sizes = np.ones(1)
        self.rng = np.random.default_rng(0)

    def _round(self, state: Any, q: Array, s: Array) -> Any:
        def gradient(x: Array, _: str) -> Array:
            return np.asarray(self.unit * (q[:, None] * np.broadcast_to(x, (len(q), 1)) + s[:, None]))

        told = answer(self.method.ask(state), gradient, self.devices.weights)
        return self.method.tell(state, told)

    def _free(self, state: Any) -> Array:
        """The state's fields in one row, each in its own unit."""
        return np.asarray(np.concatenate([np.ravel(getattr(state, name)) for name in self.names]) / self.sizes)

    def _set(self, state: Any, flat: Array) -> Any:
        fresh, at, flat = {}, 0, self.sizes * flat
        for name in self.names:
            like = getattr(state, name)
            fresh[name] = flat[at : at + like.size].reshape(like.shape)
            at += like.size
        return replace(state, **fresh)

    def maps(self, q: Array, s: Array) -> tuple[Any, Array, Array, Array]:
        """A settled state, an orthonormal basis of the states that can be reached, and the affine map on them."""
        n = len(self.devices)
        samples = []
        state: Any = None
        for _ in range(2 * len(self.names) * n + 6):
            state = self.method.start(self.rng.standard_normal(1), self.told)
            for _ in range(6):
                state = self._round(state, np.zeros(n), self.rng.standard_normal(n))
            samples.append(self.sizes * self._free(state))
        self.sizes = self._usual(state, np.abs(samples).max(axis=0))
        samples = [sample / self.sizes for sample in samples]
        left, values, _ = np.linalg.svd(np.array(samples).T, full_matrices=False)
        basis = left[:, values > 1e-10 * values[0]]
        shift = self._free(self._round(self._set(state, 0 * samples[0]), q, s))
        columns = [self._free(self._round(self._set(state, column), q, 0 * s)) for column in basis.T]
        return state, basis, basis.T @ np.array(columns).T, basis.T @ shift

    def _usual(self, state: Any, largest: Array) -> Array:
        """How large the numbers of each field get, as a power of two."""
        out, at = [], 0
        for name in self.names:
            count = np.size(getattr(state, name))
            out.append(np.full(count, power(float(largest[at : at + count].max()) or 1.0)))
            at += count
        return np.concatenate(out)

    def radius(self, q: Array) -> float:
        """The spectral radius of the map."""
        _, _, A, _ = self.maps(q, np.zeros(len(q)))
        return float(np.abs(np.linalg.eigvals(A)).max(initial=0))

    def exact(self) -> bool:
        """Is x* a fixed point when the devices' losses have different minimisers?"""
        w, n = self.devices.weights, len(self.devices)
        q = self.devices.mu + 0.7 * (self.devices.L - self.devices.mu)
        s = self.devices.L.max() * self.rng.standard_normal(n)
        s -= w @ s
        state, basis, A, b = self.maps(q, s)
        rest = np.linalg.lstsq(np.eye(len(A)) - A, b, rcond=None)[0]
        if np.linalg.norm(rest - A @ rest - b) > EXACT * max(1.0, float(np.linalg.norm(b))):
            return False
        at = self._set(state, basis @ rest)
        size = EXACT * max(1.0, float(np.linalg.norm(rest)))
        return bool(
            np.abs(self.method.point(at)).max() <= size and np.abs(np.asarray(self.method.ask(at).x)).max() <= size
        )


def slowest(
    method: Method, devices: Devices, names: list[str], network: Spectral | None, unit: float = 1.0
) -> tuple[float, bool]:
    """The largest spectral radius over quadratics and matrices tried, and whether x* is a fixed point.

    ``unit`` is what one unit of the devices' curvature stands for where the method counts.
    """
    factors = [0.0] if network is None else np.linspace(network.lo, network.hi, 5).tolist()
    largest, exact = 0.0, True
    for factor in factors:
        line = Line(method, devices, names, network, factor, unit)
        d = line.devices
        kinds = np.unique(np.column_stack([d.L, d.mu, d.weights]), axis=0, return_inverse=True)[1].reshape(-1)
        shares = [np.full(len(d), t) for t in np.linspace(0, 1, 9)]
        shares += [np.where(kinds == c, t, 1 - t) for c in range(int(kinds.max()) + 1) for t in (0.0, 1.0)]
        shares.append(np.arange(len(d)) % 2 * 1.0)
        for share in shares:
            largest = max(largest, line.radius(d.mu + share * (d.L - d.mu)))
        exact = exact and line.exact()
    return largest, exact
