"""Who shows up in a round, as small seeded objects any engine can use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ownstep.errors import InvalidInput

Missing = Literal["rescale", "drop"]


class Participation(Protocol):
    """A rule for who takes part, and what happens to the share of those who do not."""

    @property
    def missing(self) -> Missing:
        """What happens to the share of the absent."""
        ...

    def present(self, k: int, devices: int) -> NDArray[np.bool_]:
        """Who takes part in round k; the same for the same k, so that a resumed run repeats it."""
        ...


@dataclass(frozen=True)
class Bernoulli:
    """Every device takes part with probability p, independently in every round.

    Parameters
    ----------
    p : probability in (0, 1].
    missing : ``"rescale"`` divides the sum by the weight that took part; ``"drop"`` leaves the absent
        devices' share out. The paper does not say which it used.
    seed : of the draws; round k always draws from (seed, k).
    """

    p: float
    missing: Missing = "rescale"
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.p <= 1:
            raise InvalidInput(f"a participation probability is in (0, 1], got {self.p!r}")
        if self.missing not in ("rescale", "drop"):
            raise InvalidInput(f"missing must be 'rescale' or 'drop', got {self.missing!r}")

    def present(self, k: int, devices: int) -> NDArray[np.bool_]:
        """Who takes part in round k."""
        return np.random.default_rng([self.seed, k]).random(devices) < self.p


def effective_mix(
    mix: NDArray[np.float64], weights: NDArray[np.float64], present: NDArray[np.bool_], missing: Missing
) -> NDArray[np.float64]:
    """The coefficients that remain when only some devices answer."""
    kept = np.where(present, mix, 0.0)
    share = float(weights[present].sum())
    return kept / share if missing == "rescale" and share > 0 else kept
