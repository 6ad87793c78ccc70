"""The memory of quasi-Newton methods: the last differences of points and gradients, and the inverse they stand for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from ownstep.methods.base import Answer, Vector
from ownstep.methods.search.searched import Searched, SearchedState
from ownstep.support.checks import whole_number


@dataclass(frozen=True, eq=False)
class Pairs:
    """The pairs (s_j, y_j), oldest first, with <s_j, y_j> > 0.

    Parameters
    ----------
    s, y : (count, d) rows; placeholders of any shape while count is 0.
    count : how many there are.
    """

    s: Vector = field(repr=False)
    y: Vector = field(repr=False)
    count: int = 0

    @classmethod
    def none(cls, like: Vector) -> Pairs:
        """No pairs, for vectors like this one."""
        return cls(0.0 * like, 0.0 * like)

    def added(self, s: Vector, y: Vector, memory: int) -> Pairs:
        """With one pair more and at most ``memory`` in all; one without positive curvature is left out."""
        curved = float(s @ y)
        if not curved > np.finfo(float).eps * float(y @ y) ** 0.5 * float(s @ s) ** 0.5:
            return self
        if not self.count:
            return Pairs(s[None], y[None], 1)
        kept = slice(max(0, self.count + 1 - memory), None)
        return Pairs(stacked([self.s[kept], s[None]]), stacked([self.y[kept], y[None]]), min(memory, self.count + 1))

    @property
    def scale(self) -> float:
        """<s, y> / ||y||^2 of the last pair."""
        s, y = self.s[-1], self.y[-1]
        return float(s @ y) / float(y @ y)

    def inverse(self, v: Vector, first: Callable[[Vector], Vector]) -> Vector:
        """H v by the two loops of Nocedal (1980), where ``first`` multiplies by the matrix before any update."""
        alphas, rhos = [], []
        for j in range(self.count - 1, -1, -1):
            rhos.append(1 / float(self.s[j] @ self.y[j]))
            alphas.append(rhos[-1] * float(self.s[j] @ v))
            v = v - alphas[-1] * self.y[j]
        v = first(v)
        for j in range(self.count):
            alpha, rho = alphas.pop(), rhos.pop()
            v = v + (alpha - rho * float(self.y[j] @ v)) * self.s[j]
        return v


@dataclass(frozen=True, eq=False)
class PairsState(SearchedState):
    """A search, and the last pairs."""

    pairs: Pairs = field(kw_only=True, repr=False)


State = TypeVar("State", bound=PairsState)


class Remembering(Searched[State]):
    """A method with a line search that keeps the last ``memory`` pairs."""

    memory: int

    def __post_init__(self) -> None:
        whole_number("memory", self.memory, 1)

    def _learn(self, state: State, answer: Answer, gradient: Vector) -> State:
        pairs = state.pairs.added(state.x - state.base, answer.sum - gradient, self.memory)
        return replace(state, pairs=pairs)

    def _forget(self, state: State) -> State:
        return replace(state, pairs=Pairs.none(state.base))


def stacked(parts: Sequence[Vector]) -> Vector:
    """The rows of all parts, NumPy's or torch's."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    import torch

    return torch.cat(list(parts))
