"""L-BFGS on the pooled gradient: the best pooled baseline."""

from __future__ import annotations

from dataclasses import dataclass

from ownstep.methods.base import Vector
from ownstep.methods.search.pairs import Pairs, PairsState, Remembering
from ownstep.methods.search.searched import begin
from ownstep.plan import Devices


@dataclass(frozen=True)
class LBFGS(Remembering[PairsState]):
    """x^{k+1} = x^k - t_k H_k grad f(x^k), with H_k from the last m differences of points and of gradients.

        s = x^{k+1} - x^k,      y = grad f(x^{k+1}) - grad f(x^k),      H_0 = <s, y> / ||y||^2 I   of the last pair,

    and one BFGS update of H for every pair kept (Liu and Nocedal 1989), with t_k from the line search of More and
    Thuente: first t = 1, and before any pair 1/||grad f||. These are the choices of L-BFGS-B (SciPy), whose
    evaluations it repeats one by one as long as rounding does not separate them.

    The server sees sums alone, and **every trial point is an exchange**: one ask, one round of the history.

    Parameters
    ----------
    memory : m, pairs kept.
    """

    memory: int = 10

    def start(self, x0: Vector, devices: Devices) -> PairsState:
        """Nothing is known at x0."""
        return PairsState(**begin(x0, devices), pairs=Pairs.none(x0))

    def _set_out(self, state: PairsState, gradient: Vector) -> PairsState:
        if not state.pairs.count:
            return self._along(state, gradient, -1.0 * gradient, 0.0)
        scale = state.pairs.scale
        return self._along(state, gradient, -1.0 * state.pairs.inverse(gradient, lambda v: scale * v), 1.0)
