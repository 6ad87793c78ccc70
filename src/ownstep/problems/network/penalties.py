"""Penalties on a network's parameters; each is part of every f_i, so the weights need not know of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from ownstep.support.errors import InvalidInput


class Penalty(Protocol):
    """A function of the model's tensors, which may carry ``lead`` leading axes of independent models."""

    def __call__(self, tensors: Iterable[Any], lead: int = 0) -> Any:
        """The penalty, of the leading axes' shape."""
        ...


@dataclass(frozen=True)
class SquaredL2:
    """mu/2 sum_p ||p||^2, the usual weight decay."""

    mu: float

    def __post_init__(self) -> None:
        _check("SquaredL2", self.mu)

    def __call__(self, tensors: Iterable[Any], lead: int = 0) -> Any:
        return self.mu / 2 * sum(t.flatten(lead).square().sum(-1) for t in tensors)


@dataclass(frozen=True)
class TensorNorms:
    """mu sum_p ||p||_2 over the model's tensors p, not squared: what the paper's experiments add."""

    mu: float

    def __post_init__(self) -> None:
        _check("TensorNorms", self.mu)

    def __call__(self, tensors: Iterable[Any], lead: int = 0) -> Any:
        return self.mu * sum(t.flatten(lead).norm(dim=-1) for t in tensors)


def _check(name: str, mu: float) -> None:
    if not mu >= 0:
        raise InvalidInput(f"{name}(mu) takes a weight of at least 0, got {mu!r}")
