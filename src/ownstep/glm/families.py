"""Which distribution the label has: its loss, its start, its log-likelihood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.problems.linear import BinaryLogistic, LeastSquares, LinearModel, Poisson, ReferenceLogistic
from ownstep.support.errors import InvalidInput, unknown_name

MOST_CLASSES = 10
"""Numbers with more different values than this are taken for quantities, not for classes."""
MOST_SOFTMAX = 100


@dataclass(frozen=True)
class Family:
    """A distribution of the label.

    Parameters
    ----------
    name : as on the command line.
    problem : the loss.
    classes : does it predict classes?
    effect : what exp(coefficient) is called; empty where it means nothing.
    """

    name: str
    problem: type[LinearModel]
    classes: bool
    effect: str = ""


FAMILIES = {
    family.name: family
    for family in (
        Family("logistic", BinaryLogistic, True, "odds ratio"),
        Family("softmax", ReferenceLogistic, True, "odds ratio"),
        Family("linear", LeastSquares, False),
        Family("poisson", Poisson, False, "rate ratio"),
    )
}


def choose(name: str, labels: NDArray[Any]) -> tuple[Family, NDArray[Any]]:
    """(the family, the classes in order); ``auto`` goes by the labels."""
    return settle(name, classes_of(name, labels))


def classes_of(name: str, labels: NDArray[Any]) -> NDArray[Any]:
    """The classes among these labels, in order; empty where a label is a quantity for the family of this name."""
    if name != "auto" and name not in FAMILIES:
        raise unknown_name("family", name, ["auto", *FAMILIES])
    if name in ("linear", "poisson"):
        if labels.dtype.kind not in "iufb":
            raise InvalidInput(f"--family {name} needs a label that is a number, got {labels.tolist()[0]!r}")
        return np.zeros(0)
    classes = np.unique(labels)
    fine = classes.dtype.kind == "f" or (classes.dtype.kind in "iu" and len(classes) > MOST_CLASSES)
    return np.zeros(0) if name == "auto" and fine and len(classes) > 2 else classes


def settle(name: str, classes: NDArray[Any]) -> tuple[Family, NDArray[Any]]:
    """(the family, the classes), or why these classes are not for the family of this name."""
    if name in ("linear", "poisson"):
        return FAMILIES[name], np.zeros(0)
    if name == "auto" and not len(classes):
        return FAMILIES["linear"], classes
    if len(classes) < 2:
        raise InvalidInput(
            f"every row has the label {classes.tolist()[0]!r}: there is nothing to tell apart; name another label"
        )
    if name == "auto":
        name = "logistic" if len(classes) == 2 else "softmax"
    if name == "logistic" and len(classes) != 2:
        raise InvalidInput(f"--family logistic needs two classes, the label has {len(classes)}; use softmax or linear")
    if len(classes) > MOST_SOFTMAX:
        raise InvalidInput(
            f"--family softmax: the label has {len(classes)} classes, at most {MOST_SOFTMAX} are possible"
        )
    return FAMILIES[name], classes
