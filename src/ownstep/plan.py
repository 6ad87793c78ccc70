"""Step sizes and the predicted gain from (w_i, L_i), before anything is run.

With device weights w_i (summing to one) and smoothness constants L_i, let

    L_bar = sum_i w_i L_i,        gain = (sum_i w_i L_i) (sum_i w_i / L_i)  >= 1.

Gradient descent on the pooled loss steps by 1/L_bar (the paper's choice, an upper bound on the true
smoothness of f); in the local phase every device steps by 1/L_i, so the mean step is sum_i w_i / L_i:
``gain`` times longer. It equals one exactly when all L_i are equal, by the Cauchy-Schwarz inequality.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ownstep.smoothness.base import Smoothness
from ownstep.support.checks import device_weights, finite_row
from ownstep.support.errors import InvalidInput

Array = NDArray[np.float64]

WIDEST = 1e100
"""How far apart smoothness constants may lie, so that their products and quotients stay finite numbers."""


@dataclass(frozen=True, eq=False)
class Devices:
    """What a method may know of the devices, with one entry per device.

    Parameters
    ----------
    weights : array, the w_i of f = sum_i w_i f_i; positive, summing to one.
    L : array, smoothness constants L_i > 0.
    mu : array or float, strong convexity constants 0 <= mu_i <= L_i.
    names : labels for tables and figures; ``D1``, ``D2``, ... by default.
    L_pooled : smoothness of f itself, at most ``L_bar``; None when it was not measured.
    """

    weights: Array
    L: Array
    mu: Array = field(default_factory=lambda: np.zeros(1))
    names: tuple[str, ...] = ()
    L_pooled: float | None = None

    def __post_init__(self) -> None:
        L = finite_row("L", self.L)
        weights = device_weights(self.weights, len(L))
        mu = np.broadcast_to(np.asarray(self.mu, float), L.shape).copy()
        if not (L > 0).all():
            raise InvalidInput(f"every smoothness constant L must be positive, got {L.min():g}")
        if L.max() / WIDEST > L.min():
            raise InvalidInput(f"constants L must lie within a factor of {WIDEST:g}, got {L.min():g} and {L.max():g}")
        if not (mu >= 0).all():
            raise InvalidInput(f"strong convexity mu must be at least 0, got {mu.min():g}")
        if (mu > L).any():
            i = int(np.argmax(mu - L))
            raise InvalidInput(f"mu cannot exceed L, got mu={mu[i]:g} and L={L[i]:g} on device {i + 1}")
        names = tuple(self.names) or tuple(f"D{i + 1}" for i in range(len(L)))
        if len(names) != len(L):
            raise InvalidInput(f"{len(names)} names for {len(L)} devices")
        if self.L_pooled is not None and not (np.isfinite(self.L_pooled) and self.L_pooled > 0):
            raise InvalidInput(f"L_pooled must be positive, got {self.L_pooled!r}")
        for key, value in {"weights": weights, "L": L, "mu": mu, "names": names}.items():
            object.__setattr__(self, key, value)

    @classmethod
    def uniform(cls, L: ArrayLike, mu: ArrayLike = 0.0) -> Devices:
        """Devices of equal weight 1/N, the paper's setting for its worst-case analysis."""
        L = np.atleast_1d(np.asarray(L, float))
        return cls(np.full(len(L), 1 / len(L)), L, np.asarray(mu, float))

    def __len__(self) -> int:
        return len(self.L)

    @property
    def L_bar(self) -> float:
        """sum_i w_i L_i, the upper bound on the smoothness of f that the paper calls L."""
        return float(self.weights @ self.L)

    @property
    def mean_step(self) -> float:
        """sum_i w_i / L_i, the mean step of the local phase."""
        return float(self.weights @ (1 / self.L))

    @property
    def gain(self) -> float:
        """(sum_i w_i L_i)(sum_i w_i / L_i), how much longer the mean local step is than 1/L_bar."""
        return self.L_bar * self.mean_step

    def reweighted(self, rule: str) -> Devices:
        """These devices with weights by ``"samples"`` (unchanged) or ``"uniform"`` (1/N each)."""
        if rule == "samples":
            return self
        if rule == "uniform":
            return Devices(np.full(len(self), 1 / len(self)), self.L, self.mu, self.names, self.L_pooled)
        raise InvalidInput(f"weights must be 'samples' or 'uniform', got {rule!r}")


@dataclass(frozen=True, eq=False)
class Plan:
    """What the split promises: steps, constants, gain and a verdict in words."""

    devices: Devices
    smoothness: Smoothness | None = None

    @property
    def steps(self) -> Array:
        """The local steps 1/L_i."""
        return 1 / self.devices.L

    @property
    def gain_over_true(self) -> float | None:
        """Mean local step over 1/L with the true L of f: what is left against the fairer baseline."""
        L = self.devices.L_pooled
        return None if L is None else L * self.devices.mean_step

    @property
    def verdict(self) -> str:
        """Whether a split is worth it, in one sentence."""
        gain, over_true = self.devices.gain, self.gain_over_true
        if self.smoothness is not None and self.smoothness.kind == "unknown":
            return "No constants were measured, so nothing can be predicted."
        if len(self.devices) == 1:
            return "One device: this is plain gradient descent, nothing can be gained."
        if gain < 1.05:
            return (
                f"Not worth it: the devices curve alike (gain {gain:.2f}). Expect what gradient descent gives, "
                "or try a split that spreads the constants more."
            )
        if over_true is not None and over_true < 1.05:
            return (
                f"Doubtful: a gain of {gain:.2f} over steps of 1/L_bar, but gradient descent may step by the true "
                f"1/L, and against that the mean local step is only {over_true:.2f} times as long."
            )
        text = f"Worth trying: the mean local step is {gain:.2f} times 1/L_bar"
        text += f" and {over_true:.2f} times the true 1/L." if over_true is not None else "."
        return text + (
            " That bounds the rounds saved only while the start is far from the solution compared with the "
            "distance between the devices' own solutions; compare with gradient descent at the matched step."
        )

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data."""
        d = self.devices
        return {
            "devices": [
                {"name": n, "weight": float(w), "L": float(l), "step": float(1 / l)}
                for n, w, l in zip(d.names, d.weights, d.L, strict=True)
            ],
            "L_bar": d.L_bar,
            "L_true": d.L_pooled,
            "mean_step": d.mean_step,
            "gain": d.gain,
            "gain_over_true_L": self.gain_over_true,
            "smoothness": None if self.smoothness is None else self.smoothness.to_dict(),
            "verdict": self.verdict,
        }


def plan(weights: ArrayLike, smoothness: Smoothness, mu: ArrayLike = 0.0, names: Sequence[str] = ()) -> Plan:
    """The plan for devices of the given weights and measured smoothness."""
    devices = Devices(
        np.asarray(weights, float), smoothness.values, np.asarray(mu, float), tuple(names), smoothness.pooled
    )
    return Plan(devices, smoothness)
