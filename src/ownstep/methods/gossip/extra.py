"""Exact methods without a server that send one vector per link: EXTRA and NIDS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.methods.base import Vector, alike
from ownstep.methods.gossip.mixing import Mixing
from ownstep.methods.gossip.peers import Peers, PeersState
from ownstep.plan import Devices


@dataclass(frozen=True)
class EXTRA(Peers):
    """EXTRA (Shi, Ling, Wu and Yin 2015), with W~ = (I + W)/2.

        X^1     = W X^0 - alpha G^0
        X^{k+2} = (I + W) X^{k+1} - W~ X^k - alpha (G^{k+1} - G^k)

    Written here with the sum S of what the recursion adds up, S^{k+1} = S^k - (I - W)/2 X^k from S^0 = 0:

        X^{k+1} = W X^k - alpha G^k + S^k.

    Converges to the minimiser for alpha < (1 + lambda_N) / max_i N w_i L_i; steps of their own would move its limit.
    An absent device would break the recursion, so every device has to take part.

    Parameters
    ----------
    step : alpha; ``"largest"`` is half the bound above.
    graph, rule, weights : see :class:`~ownstep.methods.gossip.peers.Peers`.
    """

    needs_everyone = True

    def _cut(self, mixer: Mixing) -> float:
        return float(1 + mixer.eigenvalues[0]) / 2

    def _move(self, state: PeersState, W: Any, steps: Any, gradient: Vector) -> tuple[Vector, Vector]:
        mixed = W @ state.x
        return mixed - steps * gradient + state.memory, state.memory - 0.5 * (state.x - mixed)


@dataclass(frozen=True)
class NIDS(Peers):
    """NIDS (Li, Shi and Yan 2019): its steps need not know the network, and every device may have its own.

        psi^k   = X^k - A G^k
        X^{k+1} = W~ (psi^k + X^k - psi^{k-1}),      W~ = I - A (I - W) / (2 max_i alpha_i),   psi^{-1} = X^0.

    The limit is the minimiser whatever the steps alpha_i < 2 / (N w_i L_i) are. With one common step it is exact
    diffusion (Yuan, Ying, Zhao and Sayed 2019). Every device has to take part.

    Parameters
    ----------
    step : alpha; ``"own"`` is 1 / (N w_i L_i), the constant of the share device i works on.
    graph, rule, weights : see :class:`~ownstep.methods.gossip.peers.Peers`.
    """

    steps_allowed = ("largest", "mean", "own")
    needs_everyone = True

    def _at_rest(self, x: Vector) -> Vector:
        return x

    def _steps(self, devices: Devices, mixer: Mixing) -> NDArray[np.float64]:
        if self.step == "own":
            return 1 / (len(devices) * devices.weights * devices.L)
        return super()._steps(devices, mixer)

    def _move(self, state: PeersState, W: Any, steps: Any, gradient: Vector) -> tuple[Vector, Vector]:
        psi = state.x - steps * gradient
        ahead = psi + state.x - state.memory
        pull = alike(state.steps[:, None] / (2 * state.steps.max()), ahead)
        return ahead - pull * (ahead - W @ ahead), psi
