"""Decentralised gradient descent and gradient tracking, on a graph of devices without a server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ownstep.methods.base import Vector
from ownstep.methods.gossip.mixing import Mixing
from ownstep.methods.gossip.peers import Peers, PeersState
from ownstep.support.errors import unknown_name

ORDERS = {"cta": "combine-then-adapt", "atc": "adapt-then-combine"}


def _check_order(order: str) -> None:
    if order not in ORDERS:
        raise unknown_name("order", order, ORDERS)


@dataclass(frozen=True)
class DecentralisedGD(Peers):
    """Decentralised gradient descent (Lian et al. 2017), G^k the gradients of the devices' shares at X^k.

        combine-then-adapt    X^{k+1} = W X^k - A G^k           ("cta", Algorithm 1 of Lian et al.)
        adapt-then-combine    X^{k+1} = W (X^k - A G^k)         ("atc")

    A is the diagonal of steps. A constant step leaves a bias that shrinks with it, in the devices' disagreement with
    one common step, and in their mean too with steps of their own. On the complete graph, adapt-then-combine with
    steps ``"own"`` *is* Algorithm 1 before its switch, the paper's grey "DGD" curve.

    Parameters
    ----------
    step : alpha; ``"own"`` is 1/L_i on device i. Combine-then-adapt needs alpha max_i N w_i L_i < 1 + lambda_N (Yuan,
        Ling and Yin 2016), so ``"largest"`` is half of that; adapt-then-combine is stable up to 2.
    order : ``"cta"`` or ``"atc"``.
    graph, rule, weights : see :class:`~ownstep.methods.gossip.peers.Peers`.
    """

    order: str = "cta"
    steps_allowed = ("largest", "mean", "own")

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_order(self.order)

    def _cut(self, mixer: Mixing) -> float:
        return 1.0 if self.order == "atc" else float(1 + mixer.eigenvalues[0]) / 2

    def _move(self, state: PeersState, W: Any, steps: Any, gradient: Vector) -> tuple[Vector, Vector]:
        if self.order == "atc":
            return W @ (state.x - steps * gradient), state.memory
        return W @ state.x - steps * gradient, state.memory


@dataclass(frozen=True)
class GradientTracking(Peers):
    """Gradient tracking: Y follows the mean gradient, so that a constant step has no bias.

        DIGing (Nedic, Olshevsky and Shi 2017)     Y^k     = W Y^{k-1} + G^k - G^{k-1}
                                                   X^{k+1} = W X^k - alpha Y^k                      ("cta")
        its ATC form (Xu et al. 2015)              Y^k     = W (Y^{k-1} + G^k - G^{k-1})
                                                   X^{k+1} = W (X^k - alpha Y^k)                    ("atc")

    Two vectors travel along every link. Y starts at rest and an absent device keeps its part of it, so the mean of
    the rows of Y is always that of the last gradients seen.

    Parameters
    ----------
    step : alpha. On equal quadratics DIGing needs alpha L < (1 + lambda_N)^2 / 2 and the ATC form alpha L < 2, so
        ``"largest"`` is half of DIGing's bound and a quarter of the other.
    order, graph, rule, weights : as for :class:`DecentralisedGD`.
    """

    order: str = "cta"
    vectors = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_order(self.order)

    def _cut(self, mixer: Mixing) -> float:
        return 0.5 if self.order == "atc" else float(1 + mixer.eigenvalues[0]) ** 2 / 4

    def _move(self, state: PeersState, W: Any, steps: Any, gradient: Vector) -> tuple[Vector, Vector]:
        change = gradient - state.gradient
        if self.order == "atc":
            y = W @ (state.memory + change)
            return W @ (state.x - steps * y), y
        y = W @ state.memory + change
        return W @ state.x - steps * y, y
