"""How the solver is called, one way after the other, until an answer proves something."""

from __future__ import annotations

from typing import NamedTuple


class Way(NamedTuple):
    """One way of calling the solver.

    Parameters
    ----------
    margin : how far inside their sets solutions are asked to be, in scaled units.
    other : is the usual choice of the solver's own scaling turned round?
    chordal : is a banded slack split into overlapping small ones? Whole, it takes seven times as long or more.
    """

    margin: float
    other: bool
    chordal: bool


WAYS = (
    Way(1e-9, False, True),
    Way(1e-9, True, True),
    Way(6e-9, False, True),
    Way(2e-8, True, True),
    Way(2e-9, True, False),
    Way(2e-8, True, False),
    Way(1e-7, False, True),
    Way(1e-7, True, False),
    Way(1e-6, False, True),
    Way(1e-6, True, False),
)
"""The next one where an answer proves nothing."""

INSIST = (*WAYS[:6], Way(1e-10, False, True), Way(1e-10, True, True), Way(1e-10, False, False))
"""What is tried on small problems whose enclosure stays wide."""

DENSE = 80
"""Columns up to which the slack may be left whole; beyond, that takes too long."""

WIDE, WIDE_ORDER = 48, (2, 3, 0, 1, 4)
"""Columns from which a program of more groups than rounds, and than a few, takes seconds to solve, and the order
of the first ways there: those come first that prove something as a rule, and last the one with a whole slack."""


def ways(wide: bool) -> tuple[Way, ...]:
    """All of them, in the order to try them in."""
    return (*(WAYS[number] for number in WIDE_ORDER), *WAYS[len(WIDE_ORDER) :]) if wide else WAYS
