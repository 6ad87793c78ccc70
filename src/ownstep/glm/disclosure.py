"""What a site refuses to take part in, because so few rows could be recognised in the sums.

The limits are those statisticians use (DataSHIELD's among them): enough rows, enough rows per coefficient, and no group
so small that a count of it points at people.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ownstep.support.errors import InvalidInput

FEWEST_ROWS = 10
ROWS_PER_COEFFICIENT = 3
FEWEST_IN_A_GROUP = 5


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
        why = list(reasons(rows[mine], labels[mine], features, classes, coefficients, held))
        if why:
            refused[name] = why
    if refused:
        said = "; ".join(f"{name} ({listed(why)})" for name, why in refused.items())
        raise InvalidInput(
            f"refused, as so few could be recognised: {said}. Join small groups or leave columns out with --ignore; "
            f"or, where the owner agrees, --allow {','.join(refused)}"
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
) -> Iterator[str]:
    """Why a site with these rows would not take part.

    Parameters
    ----------
    tested : how many of the rows are kept for measuring.
    counted : say how few they are; where a coordinator reads it, that number is not for telling either.
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
    for name, count in groups(rows, features):
        if count < FEWEST_IN_A_GROUP:
            yield f"{_few(count, counted)} with {name}"


def _few(count: int, counted: bool) -> str:
    return _rows(count) if counted else f"fewer than {FEWEST_IN_A_GROUP} rows"


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def groups(rows: Any, features: Sequence[str]) -> Iterator[tuple[str, int]]:
    """(group, its rows) for both sides of every 0/1 column; a group that is not there at all is no risk."""
    n = rows.shape[0]
    for i, name in enumerate(features):
        column = rows[:, [i]].toarray().ravel() if sp.issparse(rows) else rows[:, i]
        ones = int((column == 1).sum())
        if ones + int((column == 0).sum()) == n:
            if ones > 0:
                yield (name if "=" in name else f"{name} = 1"), ones
            if n > ones and "=" not in name:
                yield f"{name} = 0", n - ones
