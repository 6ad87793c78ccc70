"""Does a split help? Ask the plan.

The plan measures how each device's loss curves and predicts what own steps can gain. Nothing is trained for
it. A gain close to 1 means: do not bother.
"""

import ownstep
from ownstep import plots

rows, labels = ownstep.load("breast_cancer").table()
splits = {
    "by norm": ownstep.partition.by_norm(rows, devices=4),
    "by label": ownstep.partition.by_label(labels),
    "at random": ownstep.partition.iid(len(rows), devices=4),
}
gains = {}
for name, split in splits.items():
    plan = ownstep.engines.describe(
        ownstep.logistic_regression(rows, labels, split, mu=1e-2)
    )
    gains[name] = plan.devices.gain
    print(
        f"{name:10} gain {plan.devices.gain:.2f}   L_i =",
        " ".join(f"{L:.2f}" for L in plan.devices.L),
    )

figure, axes = plots.new_figure(1)
ax = axes[0, 0]
ax.barh(
    list(gains), list(gains.values()), color=plots.COLOURS["Algorithm 1"], height=0.6
)
for row, gain in enumerate(gains.values()):
    ax.text(gain, row, f" {gain:.2f}", va="center")
ax.axvline(1, color="0.3", lw=1)
ax.set_xlim(0, 1.2 * max(gains.values()))
ax.invert_yaxis()
plots.finish(
    ax,
    "Only the split by norm promises a gain",
    "predicted gain of own steps over GD at 1/L-bar",
    "",
)
plots.save(figure, "02_does_it_help_me.svg")
