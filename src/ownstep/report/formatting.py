"""Numbers as the page writes them."""

from __future__ import annotations

import math
from typing import Any, TypeGuard


def is_number(value: Any) -> TypeGuard[int | float]:
    """A number, and not a truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def spell(value: Any, digits: int = 4) -> str:
    """A value of the json as text: few digits, thousands apart, a real minus, a dash for what is missing.

    >>> spell(1234567), spell(0.000012345), spell(-1.5), spell(None), spell(True)
    ('1,234,567', '1.234e−5', '−1.5', '–', 'yes')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace("-", "−")
    if isinstance(value, float):
        if not math.isfinite(value):
            return "∞" if value > 0 else "−∞" if value < 0 else "–"
        text = f"{value:.{digits}g}"
        if "e" in text:
            mantissa, exponent = text.split("e")
            text = f"{mantissa}e{int(exponent)}"
        elif abs(value) >= 10_000:
            text = f"{value:,.0f}"
        return text.replace("-", "−")
    return str(value)


def typeset(text: str) -> str:
    """The mean smoothness and norms as they are printed, not as they are typed.

    >>> typeset("GD 1/L-bar"), typeset("||x^K||")
    ('GD 1/L̄', '‖x^K‖')
    """
    return text.replace("L-bar", "L\u0304").replace("L_bar", "L\u0304").replace("||", "‖")


def fixed(value: Any) -> str:
    """A ratio with two digits behind the point, so that a column of them lines up.

    >>> fixed(1), fixed(12.345), fixed(250.2), fixed(None)
    ('1.00', '12.35', '250', '–')
    """
    if not is_number(value) or not math.isfinite(value):
        return spell(value)
    return (f"{value:.2f}" if abs(value) < 100 else f"{value:,.0f}").replace("-", "−")
