"""One model over three clinics, with standard errors.

The clinics send sums, never rows. The coefficients and their intervals are those of the pooled fit.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer

from ownstep import plots
from ownstep.glm import fit

table = load_breast_cancer(as_frame=True)
columns = ["mean texture", "mean smoothness", "mean compactness", "mean symmetry"]
rows = table.data[columns].to_numpy()
rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
clinics = np.array(["north", "south", "east"])[np.arange(len(rows)) % 3]
fitted = fit(rows, table.target.to_numpy(), clinics, features=columns)
for line in fitted.coefficients:
    interval = f"{line.low:7.3f} to {line.high:7.3f}"
    print(f"{line.name:18} {line.estimate:8.3f}   95 % interval {interval}")
print(f"{fitted.exchanges} exchanges, {fitted.bytes:,} bytes in all")

figure, axes = plots.new_figure(1)
for row, line in enumerate(fitted.coefficients[1:]):
    axes[0, 0].plot(
        [line.low, line.high], [row, row], color="#0072B2", lw=2, label="_interval"
    )
    axes[0, 0].plot(line.estimate, row, "o", color="#0072B2", ms=4, label="_estimate")
axes[0, 0].axvline(0, color="0.5", lw=0.8)
axes[0, 0].set_yticks(range(len(columns)), columns)
plots.finish(
    axes[0, 0],
    "Two of four coefficients differ from zero",
    "log odds per standard deviation",
    "",
)
plots.save(figure, "10_sites_with_standard_errors.svg")
