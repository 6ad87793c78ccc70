"""Adaptive gradient descent of Malitsky and Mishchenko."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from ownstep.methods.base import Answer, Ask, Progress, Vector, norm
from ownstep.methods.pooled.safeguard import SecantState, begin, onward, seen, stay
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput


@dataclass(frozen=True)
class AdGD:
    """x^{k+1} = x^k - lambda_k grad f(x^k), with L_k = ||y|| / ||s|| between the last two points, and

        version 1    lambda_k = min( sqrt(1 + theta) lambda_{k-1},    1 / (2 L_k) )                        (2020)
        version 2    lambda_k = min( sqrt(2/3 + theta) lambda_{k-1},  lambda_{k-1} / sqrt(2 lambda_{k-1}^2 L_k^2 - 1) )

    where theta = lambda_{k-1} / lambda_{k-2} and the last root is of the positive part (2024). The first curvature
    measured sets lambda_1 at once, to 1/(2 L_1) and 1/(sqrt(2) L_1). Converges for convex f without any constant, and
    without looking at f.

    Parameters
    ----------
    version : 1 or 2.
    """

    version: int = 2
    constant_free: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.version not in (1, 2):
            raise InvalidInput(f"AdGD has version 1 (2020) and 2 (2024), got {self.version!r}")

    def start(self, x0: Vector, devices: Devices) -> SecantState:
        """Nothing is known at x0."""
        return SecantState(**begin(x0, devices), count=math.inf)

    def ask(self, state: SecantState) -> Ask:
        """Grad f at x."""
        return Ask(state.x, state.devices.weights)

    def tell(self, state: SecantState, answer: Answer) -> SecantState:
        """One gradient step; its length can only grow slowly, and follows the curvature down at once."""
        if (found := seen(state, answer)) is None:
            return stay(state, answer)
        s, y = found
        L, last, theta = norm(y) / norm(s), state.step, state.count
        if L == 0:
            step = math.sqrt(1 + min(theta, 1.0)) * last
        elif self.version == 1:
            step = min(math.sqrt(1 + theta) * last, 1 / (2 * L))
        elif math.isinf(theta):
            step = 1 / (math.sqrt(2) * L)
        else:
            excess = 2 * (last * L) ** 2 - 1
            step = min(math.sqrt(2 / 3 + theta) * last, last / math.sqrt(excess) if excess > 0 else math.inf)
        return onward(replace(state, count=step / last), answer.sum, step)

    def point(self, state: SecantState) -> Vector:
        """x^k."""
        return state.x

    def progress(self, state: SecantState) -> Progress:
        """One phase, and the step of the round before."""
        return Progress("common", state.step)
