"""Without a server: devices talk to their neighbours.

Eight devices form a ring. Each averages with its two neighbours and takes a step. NIDS allows longer steps
than EXTRA and plain gossip, and comes close to gradient descent with a server.
"""

import ownstep
from ownstep import plots

rows, labels = ownstep.load("breast_cancer").table()
problem = ownstep.logistic_regression(
    rows, labels, ownstep.partition.iid(len(rows), devices=8), mu=1e-2
)
optimum = ownstep.run(ownstep.Newton(), problem, rounds=20).value[-1]
curves = {}
for name, method in {
    "decentralised GD": ownstep.DecentralisedGD(graph="ring"),
    "EXTRA": ownstep.EXTRA(graph="ring"),
    "NIDS": ownstep.NIDS(graph="ring"),
    "GD 1/L-bar": ownstep.GD("mean"),
}.items():
    gap = ownstep.run(method, problem, rounds=600).gap(optimum)
    curves[name] = plots.Curve(range(1, len(gap)), abs(gap[1:]))
    print(f"{name:18} relative gap after 600 rounds: {gap[-1]:.1e}")

figure, axes = plots.new_figure(1)
axes[0, 0].set_xscale("log")
axes[0, 0].set_yscale("log")
plots.curves(axes[0, 0], curves)
plots.finish(
    axes[0, 0],
    "On a ring, NIDS nearly keeps up with a server",
    "round",
    "relative gap of f",
)
plots.save(figure, "09_without_a_server.svg")
