"""From the Hessian at the optimum to a table: standard errors, z, p, intervals, ratios."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

Array = NDArray[np.float64]
TWO_SIDED = float(norm.ppf(0.975))


@dataclass(frozen=True)
class Coefficient:
    """One line of the table.

    Parameters
    ----------
    name : of the column, after the class and a colon where there are several classes.
    low, high : the 95 % interval, estimate -+ 1.96 standard errors.
    ratio : exp(estimate): odds or rate ratio; None where it means nothing.
    """

    name: str
    estimate: float
    standard_error: float
    z: float
    p: float
    low: float
    high: float
    ratio: float | None = None

    def to_dict(self, ratio: str = "") -> dict[str, Any]:
        """Plain data; the ratio under its own name."""
        out = {k: v for k, v in vars(self).items() if k != "ratio"}
        return out | ({ratio.replace(" ", "_"): self.ratio} if ratio else {})


def square(triangle: NDArray[Any], d: int) -> Array:
    """The symmetric matrix with this upper triangle."""
    H = np.zeros((d, d))
    H[np.triu_indices(d)] = triangle
    return H + np.triu(H, 1).T


def covariance(H: Array, penalty: Array, rows: float, dispersion: float) -> Array:
    """Of the standardised coefficients.

        dispersion / n  H^{-1},   and with a penalty   dispersion / n  (H + D)^{-1} H (H + D)^{-1}

    H is the Hessian of the mean loss without the penalty D.
    """
    whole = H + np.diag(penalty)
    inverse = np.linalg.inv(whole)
    spread = inverse @ H @ inverse if penalty.any() else inverse
    return np.asarray(dispersion / rows * (spread + spread.T) / 2)


def unscale(shift: Array, deviation: Array, outputs: int) -> Array:
    """T of beta = T gamma: from standardised coefficients to those of the columns as they are, constant last."""
    d = len(shift)
    T = np.zeros((d + 1, d + 1))
    T[np.arange(d), np.arange(d)] = 1 / deviation
    T[d, d] = 1
    T[d, :d] = -shift / deviation
    return np.asarray(np.kron(T, np.eye(outputs)))


def table(estimates: Array, spread: Array, names: list[str], ratio: bool) -> list[Coefficient]:
    """One line per coefficient."""
    errors = np.sqrt(np.maximum(spread.diagonal(), 0))
    out = []
    for name, b, se in zip(names, estimates.tolist(), errors.tolist(), strict=True):
        z = b / se if se > 0 else float("inf") if b else 0.0
        with np.errstate(over="ignore"):
            effect = float(np.exp(b)) if ratio else None
        p, reach = float(2 * norm.sf(abs(z))), TWO_SIDED * se
        out.append(Coefficient(name, b, se, z, p, b - reach, b + reach, effect))
    return out
