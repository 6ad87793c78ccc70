"""Designing steps: descent in steps and multipliers together beside searches that only see values or gradients.

    python benchmarks/tune.py [--rounds 6]

All from the same start (Algorithm 1 with the first half local), on the same worst cases, counted in semidefinite
programs solved: SciPy's Nelder-Mead sees values, SciPy's L-BFGS-B also the exact gradients from the dual. Prints
what each has reached, and its ratio to ours. Setting: mu = 0.1, L = (1/3, 3), R0 = 1, R* = 0.1, f(x^K) - f(x*).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import contextlib

import numpy as np
from scipy.optimize import minimize

from ownstep.methods import Schedule
from ownstep.pep.design.family import Design, descend
from ownstep.plan import Devices

DEVICES = Devices.uniform((1 / 3, 3.0), 0.1)


class OutOfBudget(Exception):
    """So many programs were allowed."""


class Counted:
    """Worst cases by parameter; remembers the best, and stops when the budget is spent."""

    def __init__(self, design: Design, budget: int) -> None:
        self.design, self.left, self.best = design, budget, np.inf

    def value(self, theta: np.ndarray) -> float:
        return self._point(theta).value

    def both(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        point = self._point(theta)
        return point.value, self.design.gradient(point)

    def _point(self, theta: np.ndarray):
        if self.left == 0:
            raise OutOfBudget
        self.left -= 1
        point = self.design.evaluate(theta)
        self.best = min(self.best, point.value)
        return point


def spend(search, design: Design, budget: int) -> float:
    counted = Counted(design, budget)
    with contextlib.suppress(OutOfBudget):
        search(counted)
    return counted.best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    K = parser.parse_args().rounds

    def family(theta: np.ndarray) -> Schedule:
        return Schedule(tuple(map(tuple, theta.reshape(K, 2))))

    design = Design(family, DEVICES, K, 1.0, 0.1, "value")
    start = np.ones((K, 2))
    start[K // 2 :] = DEVICES.L / DEVICES.L_bar
    theta = start.ravel()
    path = [design.evaluate(theta)]
    descend(design, path, 40, 1e-4, lambda value: True)
    ours, solves = path[-1].value, design.solves
    print(f"K = {K}, {2 * K} steps to choose; Algorithm 1, half local: {path[0].value:.6g}")
    print(f"ours: {ours:.6g} after {solves} programs")
    searches = {
        "SciPy Nelder-Mead, values": lambda c: minimize(
            c.value, theta, method="Nelder-Mead", options={"maxfev": 10**6}
        ),
        "SciPy L-BFGS-B, dual gradients": lambda c: minimize(c.both, theta, method="L-BFGS-B", jac=True),
    }
    for name, search in searches.items():
        for times in (1, 5):
            reached = spend(search, design, times * solves)
            print(f"{name}, {times * solves} programs at most: {reached:.6g}, {reached / ours:.3f} of ours")


if __name__ == "__main__":
    main()
