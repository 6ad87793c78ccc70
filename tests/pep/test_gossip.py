"""Methods that keep one point a device: decentralised gradient descent with a given mixing matrix."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest

from ownstep import pep
from ownstep.methods.base import Ask
from ownstep.plan import Devices


@dataclass(frozen=True, eq=False)
class Mixing:
    """x_i^{k+1} = sum_j W_ij x_j^k - alpha g_i(x_i^k); reports each device's point, or their mean."""

    W: np.ndarray
    step: float
    mean: bool = True

    @dataclass(frozen=True, eq=False)
    class State:
        X: object

    def start(self, x0, devices):
        return self.State(np.ones((len(devices), 1)) * x0)

    def ask(self, state):
        return Ask(state.X, None)

    def tell(self, state, answer):
        return replace(state, X=self.W @ state.X - self.step * answer.gradients)

    def point(self, state):
        return state.X.mean(axis=0) if self.mean else state.X

    def progress(self, state):
        raise NotImplementedError


W = np.array([[0.7, 0.3], [0.3, 0.7]])
DEVICES = Devices.uniform([0.5, 2.0], 0.2)


def pepit(method: Mixing, rounds: int, r0: float, rstar: float, metric: str) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from PEPit import PEP
        from PEPit.functions import SmoothStronglyConvexFunction

        problem = PEP()
        losses = [
            problem.declare_function(SmoothStronglyConvexFunction, mu=float(m), L=float(L))
            for m, L in zip(DEVICES.mu, DEVICES.L, strict=True)
        ]
        f = (losses[0] + losses[1]) / 2
        best, x0 = f.stationary_point(), problem.set_initial_point()
        problem.set_initial_condition((x0 - best) ** 2 <= r0**2)
        for loss in losses:
            problem.add_constraint((loss.stationary_point() - best) ** 2 <= rstar**2)
        X = [x0, x0]
        for _ in range(rounds):
            g = [loss.gradient(x) for loss, x in zip(losses, X, strict=True)]
            X = [float(row[0]) * X[0] + float(row[1]) * X[1] - method.step * g[i] for i, row in enumerate(method.W)]
        mean = (X[0] + X[1]) / 2
        goal = {
            ("value", True): lambda: f(mean) - f(best),
            ("distance", True): lambda: (mean - best) ** 2,
            ("value", False): lambda: (losses[0](X[0]) + losses[1](X[1])) / 2 - f(best),
            ("distance", False): lambda: ((X[0] - best) ** 2 + (X[1] - best) ** 2) / 2,
        }[metric, method.mean]
        problem.set_performance_metric(goal())
        return float(
            problem.solve(
                wrapper="cvxpy", solver="CLARABEL", verbose=0, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10
            )
        )


@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("metric", ["value", "distance"])
@pytest.mark.parametrize("rounds", [1, 3])
def test_decentralised_gradient_descent(rounds: int, metric: str, mean: bool) -> None:
    pytest.importorskip("PEPit")
    method = Mixing(W, 0.4, mean)
    bound = pep.worst_case(method, DEVICES, rounds, 2.0, 0.5, metric)
    assert bound.gap <= 1e-5
    assert bound.upper == pytest.approx(pepit(method, rounds, 2.0, 0.5, metric), rel=1e-5)


def test_perfect_mixing_is_gradient_descent() -> None:
    """W = 11^T/N keeps all points but the last step's together: after the average, GD."""
    from ownstep.methods import GD

    method = Mixing(np.full((2, 2), 0.5), 0.4)
    mine = pep.worst_case(method, DEVICES, 1, 1.0, 0.3, "distance")
    gd = pep.worst_case(GD(0.4), DEVICES, 1, 1.0, 0.3, "distance")
    assert mine.upper == pytest.approx(gd.upper, rel=1e-5)
