"""The same worst cases by PEPit, and random settings to compare them on."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from ownstep.plan import Devices


@dataclass(frozen=True)
class Setting:
    """Devices, radii and the steps of the methods x^{k+1} = x^k - sum_i mixes[k][i] g_i(x^k)."""

    devices: Devices
    mixes: list
    r0: float
    rstar: float
    metric: str


def pepit(setting: Setting) -> float:
    """Worst case by PEPit, solved with Clarabel to the same tolerance."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from PEPit import PEP
        from PEPit.functions import SmoothConvexFunction, SmoothStronglyConvexFunction

        d, problem = setting.devices, PEP()
        losses = [
            problem.declare_function(SmoothStronglyConvexFunction, mu=float(m), L=float(L))
            if m > 0
            else problem.declare_function(SmoothConvexFunction, L=float(L))
            for m, L in zip(d.mu, d.L, strict=True)
        ]
        f = sum(
            (float(w) * loss for w, loss in zip(d.weights[1:], losses[1:], strict=True)),
            float(d.weights[0]) * losses[0],
        )
        best, x = f.stationary_point(), problem.set_initial_point()
        problem.set_initial_condition((x - best) ** 2 <= setting.r0**2)
        if np.isfinite(setting.rstar):
            for loss in losses:
                problem.add_constraint((loss.stationary_point() - best) ** 2 <= setting.rstar**2)
        for mix in setting.mixes:
            gradients = [float(c) * loss.gradient(x) for c, loss in zip(mix, losses, strict=True)]
            x = x - sum(gradients[1:], gradients[0])
        metric = {
            "value": lambda: f(x) - f(best),
            "distance": lambda: (x - best) ** 2,
            "gradient": lambda: f.gradient(x) ** 2,
        }[setting.metric]
        problem.set_performance_metric(metric())
        return float(
            problem.solve(
                wrapper="cvxpy", solver="CLARABEL", verbose=0, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10
            )
        )


def mixes(method, devices: Devices, rounds: int) -> list:
    """The coefficients of x^{k+1} = x^k - sum_i c_i g_i, seen from outside: how far an answer of 1 moves the point."""
    from ownstep.methods.base import Answer

    state, found = method.start(np.zeros(1), devices), []
    for _ in range(rounds):
        ask, before = method.ask(state), method.point(state)
        state = method.tell(state, Answer(sum=np.ones(1), value=0.0))
        found.append((before - method.point(state))[0] * np.array(ask.mix))
    return found


def random_devices(rng: np.random.Generator, count: int, convex: bool = False) -> Devices:
    L = np.exp(rng.uniform(-1, 1.2, count))
    mu = np.zeros(count) if convex else L * rng.uniform(0.02, 0.5, count)
    weights = rng.uniform(0.5, 2, count)
    return Devices(weights / weights.sum(), L, mu)
