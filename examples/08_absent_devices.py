"""Absent devices cost accuracy.

Each of ten devices takes part in a round with probability 0.7. The weights of the others can be rescaled, the
missing share can be dropped, or the last known gradient can stand in. All three stall at the same gap here;
only full participation goes on.
"""

import ownstep
from ownstep import plots

rows, labels = ownstep.load("breast_cancer").table()
problem = ownstep.logistic_regression(
    rows, labels, ownstep.partition.by_norm(rows, devices=10), mu=1e-2
)
optimum = ownstep.run(ownstep.Newton(), problem, rounds=20).value[-1]
curves = {}
for name, present in {
    "all take part": None,
    "last gradient": ownstep.Bernoulli(0.7, seed=1, missing="last"),
    "rescale": ownstep.Bernoulli(0.7, seed=1, missing="rescale"),
    "drop": ownstep.Bernoulli(0.7, seed=1, missing="drop"),
}.items():
    history = ownstep.run(ownstep.OwnStep(), problem, rounds=300, participation=present)
    gap = history.gap(optimum)
    curves[name] = plots.Curve(range(len(gap)), gap)
    print(f"{name:14} relative gap after 300 rounds: {gap[-1]:.1e}")

figure, axes = plots.new_figure(1)
axes[0, 0].set_yscale("log")
plots.curves(axes[0, 0], curves)
plots.finish(
    axes[0, 0], "All three rules stall near 6e-3", "round", "relative gap of f"
)
plots.save(figure, "08_absent_devices.svg")
