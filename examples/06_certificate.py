"""A worst case with a proof in exact fractions.

The solver works in floating point. `certify` turns its answer into fractions, and a checker of plain Python
verifies them.
"""

import json

import numpy as np

from ownstep import At, OwnStep, pep, plots
from ownstep.pep.proof.check import check

bound = pep.worst_case(
    OwnStep(At(3)), pep.repeated([1 / 3, 3], mu=0.1), rounds=6, r0=10, rstar=1
)
proved = bound.certify("proof.json")
print(f"the worst case is between {proved.lower:.9f} and {proved.upper:.9f}")
kind = type(proved.bound).__name__
print(f"proved bound: a {kind}, about {float(proved.bound):.5f}")
with open("proof.json") as file:
    certificate = json.load(file)
print(f"the checker finds the same bound: {check(certificate) == proved.bound}")

enclosures = []
for k in range(1, 9):
    found = pep.worst_case(
        OwnStep(At(k // 2)), pep.repeated([1 / 3, 3], mu=0.1), rounds=k, r0=10, rstar=1
    ).certify()
    enclosures.append(found.width)
figure, axes = plots.new_figure(1)
axes[0, 0].semilogy(
    np.arange(1, 9), enclosures, "o-", color=plots.COLOURS["Algorithm 1"]
)
axes[0, 0].set_ylim(1e-12, 1e-4)
plots.finish(
    axes[0, 0],
    "Proof and counterexample nearly meet",
    "rounds K",
    "relative width",
)
plots.save(figure, "06_certificate.svg")
