"""What a site refuses to take part in, because so few rows could be recognised in the sums.

The limits are those statisticians use (DataSHIELD's among them): enough rows, enough rows per coefficient, and no group
so small that a count of it points at people.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ownstep.data.files.wording import in_one_word
from ownstep.support.errors import InvalidInput

FEWEST_ROWS = 10
ROWS_PER_COEFFICIENT = 3
FEWEST_IN_A_GROUP = 5
MOST_SITES = 8
"""Sites whose reasons are listed."""


def check(
    rows: Any,
    labels: NDArray[Any],
    device_of: NDArray[np.intp],
    names: Sequence[str],
    features: Sequence[str],
    classes: NDArray[Any],
    coefficients: int,
    allow: Collection[str] = (),
    tested: NDArray[np.bool_] | None = None,
    levels: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Refuse sites by name, with every reason, unless they are allowed by name (or ``all`` of them)."""
    unknown = set(allow) - {*names, "all"}
    if unknown:
        raise InvalidInput(f"--allow {sorted(unknown)[0]}: there is no such site; there are {', '.join(names)}")
    refused: dict[str, list[str]] = {}
    for i, name in enumerate(names):
        if name in allow or "all" in allow:
            continue
        mine = device_of == i
        held = 0 if tested is None else int(tested[mine].sum())
        why = list(reasons(rows[mine], labels[mine], features, classes, coefficients, held, levels=levels))
        if why:
            refused[name] = why
    if refused:
        told = [f"{name} ({listed(why)})" for name, why in list(refused.items())[:MOST_SITES]]
        more = f"; and {len(refused) - MOST_SITES} more sites" if len(refused) > MOST_SITES else ""
        allowed = in_one_word(refused) if not more else "and their names"
        raise InvalidInput(
            f"refused, as so few could be recognised: {'; '.join(told)}{more}. Join small groups or leave columns out "
            f"with --ignore; or, where the owner agrees, --allow {allowed}"
        )


def listed(why: Sequence[str]) -> str:
    """The first reasons, and how many more there are."""
    return ", ".join(why[:4]) + (f" and {len(why) - 4} more" if len(why) > 4 else "")


def reasons(
    rows: Any,
    labels: NDArray[Any],
    features: Sequence[str],
    classes: NDArray[Any],
    coefficients: int,
    tested: int = 0,
    counted: bool = True,
    levels: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[str]:
    """Why a site with these rows would not take part.

    Parameters
    ----------
    tested : how many of the rows are kept for measuring.
    counted : say how few they are; where a coordinator reads it, that number is not for telling either.
    levels : of every category, its values, the reference first.
    """
    n = len(labels)
    limit = max(FEWEST_ROWS, ROWS_PER_COEFFICIENT * coefficients)
    if n < limit:
        few = f"{_rows(n)}, fewer than {limit}" if counted else f"fewer than {limit} rows"
        yield f"{few}: {ROWS_PER_COEFFICIENT} per coefficient and at least {FEWEST_ROWS}"
        return
    if 0 < tested < FEWEST_IN_A_GROUP:
        yield f"{_few(tested, counted)} held out"
    for c in classes:
        count = int((labels == c).sum())
        if count < FEWEST_IN_A_GROUP:
            yield f"{_few(count, counted)} of class {c}"
    for name, count in groups(rows, features, levels):
        if 0 < count < FEWEST_IN_A_GROUP:
            yield f"{_few(count, counted)} with {name}"


def _few(count: int, counted: bool) -> str:
    return _rows(count) if counted else f"fewer than {FEWEST_IN_A_GROUP} rows"


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def groups(
    rows: Any, features: Sequence[str], levels: Mapping[str, Sequence[str]] | None = None
) -> Iterator[tuple[str, int]]:
    """(group, its rows) for both sides of every column of two values, and every level of a category.

    The reference level has no column, but the number of rows less the sums of the others is its count.
    """
    known, n = levels or {}, rows.shape[0]
    referred: dict[str, NDArray[np.bool_]] = {}
    for i, name in enumerate(features):
        column = rows[:, [i]].toarray().ravel() if sp.issparse(rows) else rows[:, i]
        low, high = column.min(), column.max()
        lows, highs = int((column == low).sum()), int((column == high).sum())
        zero_one = {float(low), float(high)} <= {0.0, 1.0} and (low == high or lows + highs == n)
        of = category(name, known)
        if of is not None and (zero_one or of in known):  # a missing value may be filled in by the levels' shares
            yield name, int((column == 1).sum())
            referred[of] = referred.get(of, np.ones(n, bool)) & (column == 0)
        elif low != high and lows + highs == n:
            if zero_one:
                yield f"{name} = 1", highs
                yield f"{name} = 0", lows
            else:  # the value itself is not for telling
                yield f"the rarer value of {name}", min(lows, highs)
    for of, left in referred.items():
        yield _reference(of, features, known), int(left.sum())


def category(feature: str, levels: Mapping[str, Sequence[str]]) -> str | None:
    """The category that a 0/1 column was made of, None where it is a column of its own."""
    known = next((c for c in levels if feature.startswith(f"{c}=") and feature[len(c) + 1 :] in levels[c]), None)
    return known or (feature.partition("=")[0] if "=" in feature else None)


def _reference(of: str, features: Sequence[str], levels: Mapping[str, Sequence[str]]) -> str:
    if of in levels:
        return f"{of}={levels[of][0]}"
    return f"none of {', '.join(name for name in features if category(name, levels) == of)}"
