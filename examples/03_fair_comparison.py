"""A fair comparison: own steps against five baselines.

Own steps beat gradient descent at the textbook step. Gradient descent with the same mean step, tuned gradient
descent and Nesterov's method need fewer rounds still.
"""

import ownstep
from ownstep import plots

rows, labels = ownstep.load("breast_cancer").table()
problem = ownstep.logistic_regression(
    rows, labels, ownstep.partition.by_norm(rows, devices=2), mu=1e-2
)
race = ownstep.compare(problem, rounds=1000)
for name in race.histories:
    # rounds to relative gaps of 1e-2, 1e-4 and 1e-6
    print(f"{name:16}", race.rounds(name))

plots.save(plots.demo({"Breast cancer": race}), "03_fair_comparison.svg")
