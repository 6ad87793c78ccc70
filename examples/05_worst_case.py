"""The exact worst case over a class of functions.

No function with these constants is worse than the curve, and one is as bad. The same method object that
trains is analysed here.
"""

from ownstep import GD, ITEM, At, Nesterov, OwnStep, pep, plots

devices = pep.repeated([1 / 3, 3], mu=0.1)
methods = {
    "Algorithm 1": lambda k: OwnStep(At(k // 2)),
    "GD 1/L-bar": lambda k: GD("mean"),
    "Nesterov": lambda k: Nesterov("mean"),
    "ITEM": lambda k: ITEM("mean"),
}
rounds = [1, 2, 4, 6, 8, 10, 12, 14]
curves = {}
for name, method in methods.items():
    found = [
        pep.worst_case(method(k), devices, k, r0=10, rstar=1).upper for k in rounds
    ]
    curves[name] = plots.Curve(rounds, found)
    print(f"{name:12}", " ".join(f"{v:8.3g}" for v in found))

figure, axes = plots.new_figure(1)
axes[0, 0].set_yscale("log")
axes[0, 0].set_xticks(rounds)
plots.curves(axes[0, 0], curves, markers=True)
plots.finish(
    axes[0, 0],
    "From 10 rounds on, ITEM guarantees most",
    "rounds K",
    "largest f(x) − f*",
)
plots.save(figure, "05_worst_case.svg")
