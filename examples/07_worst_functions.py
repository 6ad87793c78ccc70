"""The functions that make own steps slow.

A worst case is no abstract number: here are the two losses on which own steps are as bad as the bound says,
drawn along the method's path.
"""

import numpy as np

from ownstep import At, OwnStep, pep, plots

bound = pep.worst_case(
    OwnStep(At(2)), pep.repeated([1 / 3, 3], mu=0.1), rounds=4, r0=10, rstar=1
)
worst = bound.instance()
print(f"proved: no function is worse than {bound.upper:.5f}")
found, dimensions = worst.error, worst.dimension
print(f"found:  on these functions the error is {found:.5f}, in {dimensions} dimensions")

figure, axes = plots.new_figure(1)
start = worst.x0 / np.linalg.norm(worst.x0)
along = np.linspace(-3, 10, 200)
for device, shade in ((0, "#1F6F78"), (1, "#6B6B1E")):
    loss = worst.loss(device)
    axes[0, 0].plot(
        along,
        [loss(t * start) - loss(0 * start) for t in along],
        color=shade,
        label=f"device {device + 1}",
    )
axes[0, 0].axvline(0, color="0.5", lw=0.8)
plots.finish(
    axes[0, 0],
    "At the start, device 2 has 8 times the loss",
    "distance from the minimiser",
    "loss",
)
plots.name_lines(axes[0, 0])
plots.save(figure, "07_worst_functions.svg")
