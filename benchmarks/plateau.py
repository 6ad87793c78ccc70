"""Does the default switch need tuning? Its rounds to 1e-4 against the best fixed switch round, found afterwards.

The peer is Algorithm 1 with At(k), k searched over a grid of fractions of GD's rounds: an oracle nobody has. The
promise is a ratio of at most 1.5 everywhere. mu = 1e-3 is the default of the problems; the others are held out.
"""

from __future__ import annotations

import argparse

from ownstep import GD, At, OwnStep, load, optimum, partition, run
from ownstep.data import names
from ownstep.engines import describe
from ownstep.problems import logistic_regression

TOLERANCE = 1e-4
FRACTIONS = (0.0, 0.03, 0.06, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mu", type=float, nargs="+", default=[1e-2, 1e-3])
    parser.add_argument("--data", nargs="+", default=["breast_cancer", "w8a", "digits"], choices=names())
    asked = parser.parse_args()
    print(f"{'data':14} {'partition':9} {'mu':>7} {'gain':>5} {'GD':>6} {'best At(k)':>14} {'Plateau':>8} {'ratio':>6}")
    worst = 0.0
    for name in asked.data:
        rows, labels = load(name).table()
        for rule in ("by_label", "by_norm"):
            split = partition.make(rule, rows, labels)
            for mu in asked.mu:
                worst = max(worst, line(name, rule, mu, logistic_regression(rows, labels, split, mu=mu)))
    print(f"worst ratio {worst:.2f}")


def line(name: str, rule: str, mu: float, problem) -> float:
    devices = describe(problem).devices
    best = optimum(problem).value
    target = best + TOLERANCE * (problem.value(problem.x0()) - best)

    def rounds(method, limit: int = 60_000) -> int:
        history = run(method, problem, limit, devices=devices, target=target)
        return history.rounds if history.value[-1] <= target else limit

    descent = rounds(GD("mean"))
    oracle, at = min((rounds(OwnStep(At(int(f * descent))), 2 * descent), int(f * descent)) for f in FRACTIONS)
    ours = rounds(OwnStep())
    found = f"{oracle:,} (k={at})"
    print(
        f"{name:14} {rule:9} {mu:7g} {devices.gain:5.2f} {descent:6,} {found:>14} {ours:8,} {ours / oracle:6.2f}",
        flush=True,
    )
    return ours / oracle


if __name__ == "__main__":
    main()
