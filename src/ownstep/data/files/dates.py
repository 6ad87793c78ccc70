"""Columns of dates: written as text, or as numbers such as 20240131."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.data.files.wording import option
from ownstep.support.errors import InvalidInput

_DATE = re.compile(
    r"\d{4}([-/.])\d{1,2}\1\d{1,2}([ T].*)?|\d{1,2}([-./])\d{1,2}\3\d{2,4}([ T].*)?|"
    r"\d{1,2}[-. ]+[^\W\d]{3,9}[-., ]+\d{2,4}([ T].*)?|[^\W\d]{3,9} \d{1,2},? \d{4}([ T].*)?"
)
ADVICE = "turn it into a number, such as days since a date, or leave it out with"


def is_date(text: str) -> bool:
    """Does this text read as a date?"""
    return bool(_DATE.fullmatch(text))


def are_dates(levels: NDArray[Any]) -> bool:
    """Are most of these words dates?"""
    return sum(map(is_date, levels)) > len(levels) / 2


def are_day_numbers(values: NDArray[np.float64]) -> bool:
    """Are all of these numbers days of 1900 to 2100 in eight digits, year first?

    Of numbers below a hundred million one in 1,300 is. The first value decides for nearly every other column.
    """
    return bool(_days(values[:1]).all() and np.isfinite(values).any() and _days(values).all())


def _days(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which of them are such days, or missing."""
    with np.errstate(invalid="ignore"):
        year, month, day = values // 10_000, values // 100 % 100, values % 100
        right = (year >= 1900) & (year <= 2100) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
        return np.asarray(right & (values == np.floor(values)) | np.isnan(values))


def refuse_day_numbers(where: Callable[[int], str], matrix: NDArray[np.float64], names: Sequence[str]) -> None:
    """Refuse columns of dates that would be taken for numbers: from January to February they jump by 70."""
    for i, name in enumerate(names):
        if are_day_numbers(matrix[:, i]):
            row = int(np.argmax(np.isfinite(matrix[:, i])))
            raise InvalidInput(
                f"{where(row)}: column {name!r} holds dates ({matrix[row, i]:.0f}): {ADVICE} {option('ignore', name)}"
            )


def refuse_label(where: Callable[[int], str], label: str, labels: NDArray[Any]) -> None:
    """Refuse dates as what is to be predicted."""
    words = labels.dtype.kind == "O" and are_dates(np.unique(labels.astype(str)))
    if words or (labels.dtype.kind == "f" and are_day_numbers(labels)):
        first = labels[0] if words else int(labels[0])
        raise InvalidInput(f"{where(0)}: the label {label!r} holds dates ({first!r}): name another column")
