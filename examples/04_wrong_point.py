"""Own steps settle at the wrong point, and a switch repairs it.

Each device pulls with its own step, so the point of balance is that of another, reweighted loss. Common steps
then lead to the minimiser.
"""

import numpy as np

import ownstep
from ownstep import plots

rng = np.random.default_rng(1)
# two devices, curved along different axes
scales = np.repeat([[3.0, 0.5], [0.4, 1.2]], 50, axis=0)
rows = rng.standard_normal((100, 2)) * scales
targets = rows @ [1.0, 2.0] + np.where(np.arange(100) < 50, 1.5, -1.5) * rows[:, 1]
problem = ownstep.LeastSquares(
    rows, targets, ownstep.partition.given(np.repeat([0, 1], 50)), mu=0.01
)

names = {
    "Algorithm 1, never switches": ownstep.Never(),
    "Algorithm 1, switches after 8": ownstep.At(8),
}
figure, axes = plots.new_figure(1)
best = ownstep.run(ownstep.Newton(), problem, rounds=10).x
for name, switch in names.items():
    method = ownstep.OwnStep(switch)
    ends = [ownstep.run(method, problem, rounds=k).x for k in range(1, 31)]
    path = np.array([problem.x0(), *ends])
    away = np.linalg.norm(path - best, axis=1)
    print(f"{name:30} distance to the minimiser after 30 rounds: {away[-1]:.4f}")
    axes[0, 0].semilogy(
        away,
        label=name.split(", ")[1],
        lw=2,
        ls="--" if "never" in name else "-",
        color=plots.colour(name),
    )
axes[0, 0].set_xlim(0, 30)
plots.finish(
    axes[0, 0],
    "Without a switch own steps stay away",
    "round",
    "distance to the minimiser",
)
plots.name_lines(axes[0, 0])
plots.save(figure, "04_wrong_point.svg")
