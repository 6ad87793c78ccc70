"""Own curvature: every device sends its leading eigenpairs now and then, and L-BFGS starts from their metric."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ownstep.methods.base import Answer, Ask, SketchWork, Vector
from ownstep.methods.own.sketch_bank import Bank
from ownstep.methods.search.pairs import Pairs, PairsState, Remembering
from ownstep.methods.search.searched import begin
from ownstep.plan import Devices
from ownstep.support.checks import truth, whole_number
from ownstep.support.errors import unknown_name

RANK, OFF, GROWTH = 10, 2.0, 2.0
"""The default rank; how far off M may be along a step; how many times as many exchanges as at the last sketch."""


@dataclass(frozen=True, eq=False)
class CurvatureState(PairsState):
    """State of L-BFGS with the devices' sketches, whether new ones are wanted, and when the last ones were sent."""

    bank: Bank = field(kw_only=True, repr=False)
    wanted: bool = field(default=True, repr=False)
    sketched: int = field(default=0, repr=False)


@dataclass(frozen=True)
class OwnCurvature(Remembering[CurvatureState]):
    """L-BFGS on the pooled gradient whose first matrix is the metric of the devices' own curvature.

        M = sum_i w_i (U_i (Lambda_i - rho_i I) U_i^T + rho_i I) + diag(penalty),   rho_i = tr(H_i - Lambda_i) / (d - k)

    (U_i, Lambda_i) are the k leading eigenpairs of the Hessian H_i of device i's data term. Of rho_i, up to half lies
    along the vectors of the others instead (:mod:`~ownstep.methods.own.filling`; few rows:
    :mod:`~ownstep.methods.own.sketch_bank`). The two loops start from M^{-1} times

        2 <s, y> / (<s, y> + <y, M^{-1} y>)       of the last pair,

    between 1, where M is right, and what one step says. The rest is :class:`LBFGS`, and so is all of it while no device
    has sent a vector. Sketches travel with a trial's gradient. **New ones are asked for** when M is off by more than a
    factor of 2 along the last step,

        <s, y> / <y, M^{-1} y> outside [1/2, 2]      or      <s, y>^2 < <s, M s> <y, M^{-1} y> / 2,

    and twice as many exchanges have passed as at the last sketch. Absent devices count with their last one.

    rank : k; 10 by default, on a device of few rows at most half of them. One given and above that is refused.
    sketch : ``"own"`` eigenpairs of every device, or ``"sum"``: all multiply one shared random matrix and only the sum
        of the products travels, as secure aggregation needs it. M is Nystrom's approximation of the pooled Hessian.
    revealing : allow a rank near the number of a device's rows: its sketch then shows the span of those rows.
    memory, seed : pairs kept; of the random matrices.
    """

    rank: int | None = None
    memory: int = 10
    sketch: str = "own"
    revealing: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("rank", RANK if self.rank is None else self.rank, 0)
        whole_number("seed", self.seed, 0)
        truth("revealing", self.revealing)
        if self.sketch not in ("own", "sum"):
            raise unknown_name("sketch", self.sketch, ["own", "sum"])

    def start(self, x0: Vector, devices: Devices) -> CurvatureState:
        """Begin at x0 without any curvature."""
        bank = Bank.empty(x0, devices.weights.tolist() if self.sketch == "own" else [1.0])
        return CurvatureState(**begin(x0, devices), pairs=Pairs.none(x0), bank=bank)

    def ask(self, state: CurvatureState) -> Ask:
        """Ask for grad f at the trial, and for sketches there when they are wanted."""
        revealing = "allow" if self.revealing else "reduce" if self.rank is None else "refuse"
        work = SketchWork(RANK if self.rank is None else self.rank, self.sketch == "sum", self.seed, revealing)
        return replace(super().ask(state), sketch=work if state.wanted else None)

    def tell(self, state: CurvatureState, answer: Answer) -> CurvatureState:
        """Do as L-BFGS does. Sketches are used whether the trial is kept or not."""
        if state.wanted and any(s is not None for s in answer.sketches):
            bank = state.bank.renewed([s and s.resolved(self.seed) for s in answer.sketches])
            state = replace(state, bank=bank, wanted=False, sketched=state.k + 1)
        return super().tell(state, answer)

    def _set_out(self, state: CurvatureState, gradient: Vector) -> CurvatureState:
        if not state.bank.owner:
            first, trial = (state.pairs.scale, 1.0) if state.pairs.count else (1.0, 0.0)
            return self._along(state, gradient, -1.0 * state.pairs.inverse(gradient, lambda v: first * v), trial)
        metric, scale = state.bank.filled, 1.0
        if state.pairs.count:
            s, y = state.pairs.s[-1], state.pairs.y[-1]
            curved, turned, bent = float(s @ y), float(y @ metric.inverse(y)), float(s @ metric.product(s))
            stale = not turned / OFF <= curved <= OFF * turned or curved * curved < turned * bent / OFF
            state = replace(state, wanted=state.wanted or (stale and state.k >= GROWTH * state.sketched))
            scale = 2 * curved / (curved + turned)  # a pair is kept only where <s, y> is positive
        p = -1.0 * state.pairs.inverse(gradient, lambda v: scale * metric.inverse(v))
        return self._along(state, gradient, p, 1.0)
