"""Which devices take part in a round, as small seeded objects that any method and engine can use.

Every rule answers for round k alone, from (seed, k): nothing is remembered between rounds, so a resumed run meets the
same devices as an unbroken one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ownstep.support.checks import whole_number
from ownstep.support.errors import InvalidInput, unknown_name

Missing = Literal["rescale", "drop", "last"]
MISSING: dict[Missing, str] = {
    "rescale": "divide the sum by the weight that took part",
    "drop": "leave the absent devices' share out",
    "last": "use the gradient each absent device sent last (zero before its first), which the server has to keep",
}
"""What becomes of the share of absent devices. The paper does not say which it used."""


@runtime_checkable
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
    missing : see :data:`MISSING`.
    seed : of the draws; round k always draws from (seed, k).
    """

    p: float
    missing: Missing = "rescale"
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.p <= 1:
            raise InvalidInput(f"a participation probability is in (0, 1], got {self.p!r}")
        _check_missing(self.missing)

    def present(self, k: int, devices: int) -> NDArray[np.bool_]:
        """Who takes part in round k."""
        return _draws(self.seed, k, devices) < self.p


@dataclass(frozen=True)
class Cohort:
    """A fixed number of devices, drawn without replacement in every round (client sampling).

    Parameters
    ----------
    size : how many take part, at least 1 and at most the number of devices.
    missing, seed : as for :class:`Bernoulli`.
    """

    size: int
    missing: Missing = "rescale"
    seed: int = 0

    def __post_init__(self) -> None:
        whole_number("a cohort's size", self.size, 1)
        _check_missing(self.missing)

    def present(self, k: int, devices: int) -> NDArray[np.bool_]:
        """Who takes part in round k."""
        if self.size > devices:
            raise InvalidInput(f"a cohort of {self.size} is more than the {devices} devices there are")
        order = np.argsort(_draws(self.seed, k, devices), kind="stable")
        chosen = np.zeros(devices, bool)
        chosen[order[: self.size]] = True
        return chosen


@dataclass(frozen=True)
class Bursts:
    """Devices that stay away for a while: the two-state chain of Gilbert (1960) and Elliott (1963).

    In every round a device that is present fails with probability ``fail``, and one that is away recovers with
    probability ``recover``. Absences last 1/recover rounds on average. A device misses the share fail/(fail + recover)
    of all rounds. All devices are present in round 0.

    Parameters
    ----------
    fail, recover : probabilities in (0, 1], at most 1 together, without which absences would not come in bursts.
    missing, seed : as for :class:`Bernoulli`.
    """

    fail: float
    recover: float
    missing: Missing = "rescale"
    seed: int = 0

    def __post_init__(self) -> None:
        for name, p in (("fail", self.fail), ("recover", self.recover)):
            if not 0 < p <= 1:
                raise InvalidInput(f"{name} is a probability in (0, 1], got {p!r}")
        if self.fail + self.recover > 1:
            raise InvalidInput(f"bursts need fail + recover <= 1, got {self.fail!r} + {self.recover!r}")
        _check_missing(self.missing)

    def present(self, k: int, devices: int) -> NDArray[np.bool_]:
        """Who takes part in round k.

        A draw below ``fail`` sends a device away and one above 1 - ``recover`` brings it back, whatever it did
        before; any other draw leaves it as it was. So its state is what the latest decisive draw made it, and
        looking back a few rounds replaces remembering the chain.
        """
        here, open_ = np.ones(devices, bool), np.ones(devices, bool)
        for j in range(k, 0, -1):
            draw = _draws(self.seed, j, devices)
            gone, back = draw < self.fail, draw >= 1 - self.recover
            here[open_ & gone] = False
            open_ &= ~(gone | back)
            if not open_.any():
                break
        return here


@dataclass(frozen=True)
class Stragglers:
    """A deadline: a device that takes longer than that does not count in the round.

    A device's time is its ``typical`` one times an exponential draw of mean 1, drawn anew in every round.

    Parameters
    ----------
    typical : mean seconds, one for all or one per device.
    deadline : seconds the server waits.
    missing, seed : as for :class:`Bernoulli`.
    """

    typical: float | Sequence[float]
    deadline: float
    missing: Missing = "rescale"
    seed: int = 0

    def __post_init__(self) -> None:
        typical = np.asarray(self.typical, float)
        if typical.ndim > 1 or not (np.isfinite(typical).all() and (typical > 0).all()):
            raise InvalidInput(f"typical times are positive, one for all or one per device, got {self.typical!r}")
        if not self.deadline > 0:
            raise InvalidInput(f"a deadline is positive, got {self.deadline!r}")
        _check_missing(self.missing)

    def times(self, k: int, devices: int) -> NDArray[np.float64]:
        """Seconds every device takes in round k."""
        typical = np.asarray(self.typical, float)
        if typical.ndim and len(typical) != devices:
            raise InvalidInput(f"{len(typical)} typical times for {devices} devices")
        return np.asarray(-np.log1p(-_draws(self.seed, k, devices)) * typical)

    def present(self, k: int, devices: int) -> NDArray[np.bool_]:
        """Who is back in time in round k."""
        return self.times(k, devices) <= self.deadline


@dataclass(frozen=True)
class Outages:
    """Devices that fail at a known round, for good or until a later one.

    Parameters
    ----------
    spans : (device, first round missed, round of return or None) for each outage; devices count from 0.
    otherwise : who takes part apart from that, everyone by default.
    missing : as for :class:`Bernoulli`.
    """

    spans: tuple[tuple[int, int, int | None], ...]
    otherwise: Participation | None = None
    missing: Missing = "rescale"

    def __post_init__(self) -> None:
        for device, dies, returns in self.spans:
            whole_number("an outage's device", device, 0)
            whole_number("the round in which a device dies", dies, 0)
            if returns is not None:
                whole_number("the round of return", returns, dies + 1)
        _check_missing(self.missing)

    def present(self, k: int, devices: int) -> NDArray[np.bool_]:
        """Who takes part in round k."""
        here = np.ones(devices, bool) if self.otherwise is None else self.otherwise.present(k, devices)
        for device, dies, returns in self.spans:
            if device >= devices:
                raise InvalidInput(f"an outage of device {device}, but there are only {devices}, from 0 on")
            here[device] &= not (k >= dies and (returns is None or k < returns))
        return here


FORMS = (
    "PROBABILITY", "cohort:SIZE", "bursts:FAIL:RECOVER", "stragglers:TYPICAL:DEADLINE", "dies:DEVICE:ROUND",
    "returns:DEVICE:ROUND:ROUND",
)  # fmt: skip
"""How a rule is written on the command line."""


def parse_participation(text: str, missing: Missing = "rescale", seed: int = 0) -> Participation | None:
    """A rule from its command-line form; None means that every device takes part.

    ``0.7`` (a probability), ``cohort:14``, ``bursts:FAIL:RECOVER``, ``stragglers:TYPICAL:DEADLINE``,
    ``dies:DEVICE:ROUND`` or ``returns:DEVICE:ROUND:ROUND``.
    """
    name, *numbers = text.split(":")
    try:
        if not numbers:
            return None if float(name) == 1 else Bernoulli(float(name), missing, seed)
        if name == "cohort":
            (size,) = map(int, numbers)
            return Cohort(size, missing, seed)
        if name == "bursts":
            fail, recover = map(float, numbers)
            return Bursts(fail, recover, missing, seed)
        if name == "stragglers":
            typical, deadline = map(float, numbers)
            return Stragglers(typical, deadline, missing, seed)
        if name == "dies":
            device, dies = map(int, numbers)
            return Outages(((device, dies, None),), missing=missing)
        if name == "returns":
            device, dies, back = map(int, numbers)
            return Outages(((device, dies, back),), missing=missing)
    except ValueError as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"participation {text!r} cannot be read: {error}") from None
    raise unknown_name("participation", text, FORMS)


def effective_mix(
    mix: NDArray[np.float64], weights: NDArray[np.float64], present: NDArray[np.bool_], missing: Missing
) -> NDArray[np.float64]:
    """The coefficients that remain when only some devices answer."""
    kept = np.where(present, mix, 0.0)
    share = float(weights[present].sum())
    return kept / share if missing == "rescale" and share > 0 else kept


def _draws(seed: int, k: int, devices: int) -> NDArray[np.float64]:
    return np.random.default_rng([whole_number("seed", seed, 0), k]).random(devices)


def _check_missing(missing: str) -> None:
    if missing not in MISSING:
        raise InvalidInput(f"missing must be {', '.join(map(repr, MISSING))}, got {missing!r}")
