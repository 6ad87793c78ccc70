"""Numbers as the page writes them."""

from __future__ import annotations

import math
import re
from typing import Any, TypeGuard

DATA = {
    "w8a": "W8A", "mnist": "MNIST", "cifar10": "CIFAR-10", "sst2_words": "SST-2 words", "sst2": "SST-2",
    "heart_disease": "heart disease", "heart_scaled": "heart disease, scaled", "breast_cancer": "breast cancer",
}  # fmt: skip
"""Names of data sets as people write them."""
IDENTIFIERS: tuple[tuple[str, str], ...] = (
    (r"\bby_(norm|label|eigenvalue)\b", r"by \1"),
    (r"\bminilm, power\b", "all-MiniLM-L6-v2"),
    (r"\bmpnet, power\b", "all-mpnet-base-v2"),
    (rf"\b({'|'.join(DATA)}|digits) (1e-05|0\.0+1)\b", r"\1 at mu = \2"),
    (r"(?<=\d)e-0(?=\d\b)", "e-"),
    (r"\b(classes|images|samples|\d+) a (class|device)\b", r"\1 per \2"),
    (r"\bR0\b", "R₀"),
    (r"\bL1, L2\b", "L₁, L₂"),
    (r"\[-lambda, lambda\]", "[−λ, λ]"),
)


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
    """Names as they are printed, not as they are typed in a file: the mean smoothness, norms, data sets and splits.

    >>> typeset("GD 1/L-bar"), typeset("||x^K||"), typeset("w8a 1e-05, by_norm"), typeset("R*/R0")
    ('GD 1/L̄', '‖x^K‖', 'W8A at mu = 1e-5, by norm', 'R*/R₀')
    """
    for pattern, words in IDENTIFIERS:
        text = re.sub(pattern, words, text)
    text = re.sub(rf"(?<!paper )(?<![\w/.-])({'|'.join(DATA)})(?![\w/.-]*\w[/.])\b", lambda m: DATA[m[1]], text)
    text = text.replace(" - ", " − ")
    return text.replace("L-bar", "L\u0304").replace("L_bar", "L\u0304").replace("||", "‖")


def ranged(value: Any, low: Any = None, high: Any = None) -> str:
    """A number with its interval, where it has one.

    >>> ranged(1.396, 1.32, 1.47), ranged(2), ranged(28.6, 27.4, 30.2)
    ('1.40 [1.32, 1.47]', '2.00', '28.6 [27.4, 30.2]')
    """
    digits = 2 if abs(value) < 10 else 1

    def text(number: float) -> str:
        return f"{number:.{digits}f}".replace("-", "−")

    spread = f" [{text(low)}, {text(high)}]" if is_number(low) and is_number(high) else ""
    return text(value) + spread


def fixed(value: Any) -> str:
    """A ratio with two digits behind the point, so that a column of them lines up.

    >>> fixed(1), fixed(12.345), fixed(250.2), fixed(None)
    ('1.00', '12.35', '250', '–')
    """
    if not is_number(value) or not math.isfinite(value):
        return spell(value)
    return (f"{value:.2f}" if abs(value) < 100 else f"{value:,.0f}").replace("-", "−")
