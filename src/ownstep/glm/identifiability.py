"""Reasons not to believe a table: columns that are combinations of others, and classes that a column separates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from ownstep.data.files.wording import in_one_word
from ownstep.support.errors import InvalidInput

Array = NDArray[np.float64]
DEPENDENT = 1e-10
"""Share of a column's variance that others leave unexplained, below which it is a combination of them."""
FLATTENED, FLAT = 1e-2, 1e-13
"""Curvature along a direction, relative to that at the start, below which the likelihood may have no maximum there, and
below which it has none."""
AS_LONG, NOTHING = 0.5, 1e-6
"""Newton's next step along such a direction, relative to the one before, above which the coefficients run away: towards
a maximum the steps get shorter quickly, without one each is as long as the one before. A step of this share of the
whole way is rounding."""
GROWING = 0.25
"""Growth of a coefficient, relative to the fastest one, from which its column is named."""
MOST_NAMED = 3


def ignoring(columns: Sequence[str]) -> str:
    """The option that leaves out these columns, or the categories that they come from."""
    return f"--ignore {in_one_word(tuple(dict.fromkeys(name.split('=')[0] for name in columns)))}"


def collinear(gram: Array, features: Sequence[str]) -> InvalidInput | None:
    """The error for the columns that those before them determine.

    Parameters
    ----------
    gram : (d + 1, d + 1) products of the standardised columns, the constant last, up to a factor.
    """
    order = [len(features), *range(len(features))]
    G = gram[np.ix_(order, order)]
    G = G / np.sqrt(np.outer(G.diagonal(), G.diagonal()))
    free, found = [0], list[tuple[str, list[str]]]()
    for j in range(1, len(G)):
        before, products = G[np.ix_(free, free)], G[free, j]
        coefficients = np.linalg.lstsq(before, products, rcond=None)[0]
        left = 1 - 2 * coefficients @ products + coefficients @ before @ coefficients
        if left >= DEPENDENT * (1 - G[0, j] ** 2):
            free.append(j)
            continue
        used = [features[i - 1] for i, c in zip(free[1:], coefficients[1:], strict=True) if abs(c) > 1e-6]
        found.append((features[j - 1], used))
    if not found:
        return None
    name, used = found[0]
    # a category is not given up for one of its levels
    alike = [name] if "=" in name else [other for other, _ in found if "=" not in other]
    more = f" (and {len(alike) - 1} more of others)" if len(alike) > 1 else ""
    return InvalidInput(
        f"column {name!r} is a combination of {', '.join(map(repr, used[:6]))}{' and others' if len(used) > 6 else ''}"
        f"{more}, so their coefficients are not determined; leave {'them' if more else 'one'} out with "
        f"{ignoring(alike)}, or give a penalty with --mu"
    )


def separated(
    first: Array, last: Array, gradient: Array, path: Array, names: Sequence[str], classes: bool
) -> InvalidInput | None:
    """The error for classes that some combination of columns tells apart without a mistake; or counts of 0.

    Along such a direction v the likelihood rises for ever, and its curvature v'Hv goes to zero while that at the start
    did not. A strong effect flattens it too, but Newton's method arrives there; where it does not, the maximum is out
    of reach, which is refused as well. Where all rows are told apart the curvature goes to zero along every direction,
    so the Hessian does not say which columns do it: they are those whose coefficients still grow.

    Parameters
    ----------
    first, last, gradient : Hessians at the start and at the end, and the gradient there.
    path : (steps, coefficients) the standardised coefficients on Newton's way.
    names : of the coefficients; those of a constant, which come last, may be left out.
    classes : does the model predict classes? Otherwise it predicts counts.
    """
    curvature, directions = eigh(last, first)
    flat = directions[:, curvature < FLATTENED]
    if not flat.shape[1]:
        return None
    if curvature[0] > FLAT:
        step = np.abs(flat.T @ gradient) / curvature[curvature < FLATTENED]
        way, before = (np.abs(flat.T @ first @ (path[-1] - path[at])) for at in (0, max(0, len(path) - 2)))
        if not ((step > AS_LONG * before) & (step > NOTHING * np.linalg.norm(way))).any():
            return None
    growth = np.abs(path[-1] - path[len(path) // 2])[: len(names)]
    if not growth.max() > 0:
        growth = np.abs(path[-1] - path[0])[: len(names)]
    chosen = [names[i] for i in np.argsort(-growth, kind="stable") if growth[i] >= GROWING * growth.max()]
    more = f" and {len(chosen) - MOST_NAMED} more" if len(chosen) > MOST_NAMED else ""
    together = "" if len(chosen) == 1 else " together"
    what = "the classes without a mistake, at least in some rows" if classes else "rows whose counts are all 0"
    return InvalidInput(
        f"{', '.join(map(repr, chosen[:MOST_NAMED]))}{more}{together} separate{'s' * (len(chosen) == 1)} {what}: "
        "the likelihood has no maximum and the coefficients grow for ever; "
        "give a penalty with --mu, or leave a column out with --ignore"
    )
