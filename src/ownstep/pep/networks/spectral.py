"""A class of networks: all symmetric mixing matrices of any size whose eigenvalues lie in an interval."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real

from ownstep.support.errors import InvalidInput


@dataclass(frozen=True)
class Spectral:
    """All symmetric W with W 1 = 1 whose eigenvalues, but for the one that belongs to 1, lie in [lo, hi].

    Entries of W may be negative, and W may be of any size that fits the devices. What is known of the rounds of
    averaging Y = W X is then (Colla and Hendrickx 2023), for the devices' deviations from their mean,

        mean(Y) = mean(X),    X'Y = Y'X,    (Y - lo X)'(Y - hi X) <= 0,

    where a prime means: sum over the devices, and inner products of vectors. These conditions are necessary. They are
    sufficient for a symmetric operator on all vectors of all devices at once, of which W is a special case; so a worst
    case over the class is an upper bound, and its lower end is an instance with a true W.

    Parameters
    ----------
    lo, hi : -1 < lo <= hi < 1.
    each_round : a new W of the class in every round; one W for all rounds by default.
    any_number : the worst over all numbers of devices, in the shares given. By default there are as many as given.
    """

    lo: float
    hi: float
    each_round: bool = False
    any_number: bool = False

    def __post_init__(self) -> None:
        for name in ("lo", "hi"):
            value = getattr(self, name)
            if not (isinstance(value, Real) and -1 < float(value) < 1):
                raise InvalidInput(f"eigenvalue bounds of a network must be in (-1, 1), got {name}={value!r}")
            object.__setattr__(self, name, float(value))
        if self.lo > self.hi:
            raise InvalidInput(f"the smallest eigenvalue cannot exceed the largest, got lo={self.lo:g}, hi={self.hi:g}")

    def lazier(self, theta: float) -> Spectral:
        """The class of all (1 - theta) I + theta W with W of this class, 0 < theta <= 1."""
        if not 0 < theta <= 1:
            raise InvalidInput(f"theta of (1 - theta) I + theta W must be in (0, 1], got {theta!r}")
        return replace(self, lo=1 - theta * (1 - self.lo), hi=1 - theta * (1 - self.hi))


def parse_network(text: str) -> Spectral:
    """A network from its command-line form, ``spectral:-0.5:0.5`` or ``spectral:-0.5:0.5:each_round``."""
    name, *parts = text.split(":")
    flags = {"each_round", "any_number"}
    if name != "spectral" or not 2 <= len(parts) <= 4 or not set(parts[2:]) <= flags:
        raise InvalidInput(f"a network is spectral:LO:HI, then :each_round or :any_number if wanted, got {text!r}")
    try:
        lo, hi = (float(part) for part in parts[:2])
    except ValueError:
        raise InvalidInput(f"the eigenvalue bounds in {text!r} must be numbers") from None
    return Spectral(lo, hi, each_round="each_round" in parts, any_number="any_number" in parts)
