"""What a fit found, and what every site had to send for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import t as student

from ownstep.glm.families import FAMILIES
from ownstep.glm.inference import TWO_SIDED, Coefficient
from ownstep.glm.prediction import Model
from ownstep.history import History

PENALISED = (
    "estimates are shrunk by the penalty: standard errors, p-values and intervals describe the shrunk estimates, "
    "not those of maximum likelihood"
)


def normal_for_t(rows: int, coefficients: int) -> str:
    """What is said of z in a linear model, whose spread is estimated too."""
    free = rows - coefficients
    wider = float(student.ppf(0.975, free)) / TWO_SIDED
    return (
        f"z, p and intervals use the normal distribution, as a GLM does in statsmodels; least squares (OLS, R's lm) "
        f"takes Student's t with {free:,} degrees of freedom, whose intervals are {wider:.3f} times as wide"
    )


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fit: the table, the model, and what it took.

    Parameters
    ----------
    coefficients : one line each, the intercept first.
    log_likelihood, aic : of the rows it was fitted on; AIC counts the coefficients.
    mu : weight of the L2 term on the standardised coefficients, 0 for maximum likelihood.
    sites : rows of every site that were used.
    held_out : for every site, and for all together, how well the model predicts rows it has not seen.
    exchanges : how often the coordinator waited for the sites, in all.
    bytes : what travelled, both ways, over all sites.
    reveals : what a site sends, one line per kind of exchange.
    path : the coefficients, in the order of the table, before Newton's first exchange and after each of them.
    """

    model: Model
    coefficients: Sequence[Coefficient]
    log_likelihood: float
    aic: float
    rows: int
    mu: float
    sites: Mapping[str, int]
    exchanges: int
    bytes: int
    reveals: Sequence[Mapping[str, Any]]
    history: History = field(repr=False)
    held_out: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    covariance: Any = field(default=None, repr=False)
    path: Any = field(default=None, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        effect = FAMILIES[self.model.family].effect
        out: dict[str, Any] = {
            "family": self.model.family, "label": self.model.label, "classes": list(self.model.classes),
            "coefficients": [c.to_dict(effect) for c in self.coefficients],
            "log_likelihood": self.log_likelihood, "aic": self.aic, "rows": self.rows, "mu": self.mu,
            "penalised": self.mu > 0, "sites": dict(self.sites), "exchanges": self.exchanges, "bytes": self.bytes,
            "reveals": [dict(line) for line in self.reveals],
            "held_out": {name: dict(told) for name, told in self.held_out.items()},
            "seconds_per_exchange": float(np.mean(self.history.columns["seconds"])),
        }  # fmt: skip
        if self.model.family == "linear":
            out["normal"] = normal_for_t(self.rows, len(self.coefficients))
        return out | ({"note": PENALISED} if self.mu > 0 else {})
