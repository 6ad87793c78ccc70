"""Own curvature needs fewer exchanges than L-BFGS.

Ten devices send a few directions in which their own loss curves most. The server combines them with its
memory of past steps.
"""

import ownstep
from ownstep import plots

rows, labels = ownstep.load("breast_cancer").table()
split = ownstep.partition.by_norm(rows, devices=10)
problem = ownstep.logistic_regression(rows, labels, split, mu=1e-3)

methods = {
    "own curvature": ownstep.OwnCurvature(),
    "L-BFGS": ownstep.LBFGS(),
    "Nesterov": ownstep.Nesterov("mean"),
}
race = ownstep.compare(problem, methods, rounds=100)
for name in race.histories:
    # exchanges to relative gaps of 1e-2, 1e-4 and 1e-6
    print(f"{name:14}", race.rounds(name))

figure, axes = plots.new_figure(1)
axes[0, 0].set_yscale("log")
axes[0, 0].set_ylim(1e-7, 1)
axes[0, 0].set_xlim(0, 26)
plots.curves(axes[0, 0], plots.gaps(race))
plots.finish(
    axes[0, 0],
    "Own curvature needs 12 exchanges, L-BFGS 25",
    "exchange",
    "relative gap of f",
)
plots.save(figure, "01_own_curvature.svg")
