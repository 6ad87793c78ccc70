r"""The proof behind an upper bound: multipliers that anyone can add up.

For nonnegative lambda_r, tau, rho_c whose value terms cancel and whose slack S is positive semidefinite, every instance
satisfies

    metric = tau ||x^0 - x*||^2 + sum_c rho_c ||x_c* - x*||^2 + sum_r lambda_r (condition r, which is <= 0) - <S, G>
          <= tau r0^2 + sum_c rho_c rstar^2.

A solver only gives multipliers that nearly do. They are repaired here, not trusted: negative ones are cut to zero,
what is left over in the values is moved onto the conditions with x*, whose value is known, and the slack's smallest
eigenvalue is then computed afresh. Only if it is positive is there a bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ownstep.pep.conditions.assemble import Conditions, unpack
from ownstep.pep.conditions.gram import Gram
from ownstep.pep.solve.sdp import Limits, Objective, Solution, blocks
from ownstep.pep.trace.units import Units

Array = NDArray[np.float64]

ROUNDING = 2.0**-46
"""Sums of up to a hundred rounded terms are off by less than this fraction of what is added up."""

ENOUGH = 1.1
"""So much more of a sure proof is added to one that fails by a little than would just do."""


@dataclass(frozen=True, eq=False)
class Certificate:
    """A checked proof that the error is at most ``bound``.

    Parameters
    ----------
    bound : tau r0^2 + sum_c rho_c rstar^2.
    radii : what each radius contributes to the bound, by name.
    multipliers : lambda by name, ``"devices 1-500: f(2) >= f(3) + ..."``; those that are zero are left out.
    slack : smallest eigenvalue of S in scaled units, difference blocks included; positive.
    repaired : the largest amount by which the values failed to cancel before the repair.
    statement : the inequality, in words.
    """

    bound: float
    radii: dict[str, float]
    multipliers: dict[str, float]
    slack: float
    repaired: float
    statement: str

    def __str__(self) -> str:
        lines = [self.statement, *(f"  {value:.6g} from {name}" for name, value in self.radii.items())]
        return "\n".join([*lines, f"  {len(self.multipliers)} multipliers, smallest eigenvalue of S {self.slack:.2g}"])


@dataclass(frozen=True, eq=False)
class Proof:
    """Repaired multipliers in scaled units, and what they prove."""

    bound: float
    limits: Array
    multipliers: Array
    slack: float
    repaired: float


def repair(gram: Gram, rows: Conditions, target: Objective, radii: Limits, found: Solution) -> Proof:
    """Make the solver's multipliers exactly feasible, as far as that is arithmetic, and measure the slack."""
    limits, multipliers = np.maximum(found.limits, 0.0), np.maximum(found.multipliers, 0.0)
    left = target.values - rows.values.T @ multipliers
    multipliers = _cancel(gram, rows, multipliers, left)
    return _measured(gram, rows, target, radii, limits, multipliers, float(np.abs(left).max(initial=0)))


def between(gram: Gram, rows: Conditions, target: Objective, radii: Limits, sure: Proof, near: Proof) -> Proof:
    """The smaller of two bounds made into a proof: where it proves nothing by a little, a little of the other is added.

    A mean of two sets of multipliers has at least the mean of their smallest eigenvalues, as these are concave.

    Parameters
    ----------
    sure : multipliers whose slack is positive.
    near : multipliers of the same program whose slack is not.
    """
    part = ENOUGH * -near.slack / (sure.slack - near.slack)
    if not (near.bound < sure.bound and part < 1):
        return sure
    limits = part * sure.limits + (1 - part) * near.limits
    multipliers = part * sure.multipliers + (1 - part) * near.multipliers
    left = target.values - rows.values.T @ multipliers
    multipliers = _cancel(gram, rows, multipliers, left)
    found = _measured(gram, rows, target, radii, limits, multipliers, max(sure.repaired, near.repaired))
    return found if found.slack > 0 and found.bound < sure.bound else sure


def _measured(
    gram: Gram,
    rows: Conditions,
    target: Objective,
    radii: Limits,
    limits: Array,
    multipliers: Array,
    left: float,
) -> Proof:
    """What multipliers that cancel the values prove."""
    made = slacks(gram, rows, target, radii, limits, multipliers)
    sizes = _sizes(gram, rows, target, radii, limits, multipliers)
    slack = min(float(np.linalg.eigvalsh(m)[0]) - ROUNDING * size for m, size in zip(made, sizes, strict=True))
    bound = float(limits.sum()) * target.size * (1 + ROUNDING)
    return Proof(bound, limits, multipliers, slack, left)


def _sizes(
    gram: Gram, rows: Conditions, target: Objective, radii: Limits, limits: Array, multipliers: Array
) -> list[float]:
    """Norms of the blocks had nothing cancelled in them: so much, times a rounding, may their sums be off."""
    mean = abs(rows.mean).T @ multipliers
    total = float(np.linalg.norm(mean)) + float(np.linalg.norm(target.matrix))
    total += sum(factor * float(np.linalg.norm(m)) for factor, m in zip(limits, radii.mean, strict=True))
    found = [total]
    for position, c in enumerate(blocks(gram)):
        size = float(np.linalg.norm(abs(rows.differences[position]).T @ multipliers))
        ends = zip(limits, (matrices[c] for matrices in radii.differences), strict=True)
        found.append(size + sum(factor * float(np.linalg.norm(m)) for factor, m in ends if m is not None))
    return found


def slacks(
    gram: Gram, rows: Conditions, target: Objective, radii: Limits, limits: Array, multipliers: Array
) -> list[Array]:
    """The slack of the mean block, then those of the difference blocks."""
    n = len(gram.columns)
    mean = unpack(rows.mean.T @ multipliers, n) - target.matrix
    mean = mean + np.tensordot(limits, np.stack(radii.mean), axes=1)
    found = [mean]
    for position, c in enumerate(blocks(gram)):
        width = len(gram.difference_scale[c])  # type: ignore[arg-type]
        block = unpack(rows.differences[position].T @ multipliers, width)
        for factor, matrices in zip(limits, radii.differences, strict=True):
            if (matrix := matrices[c]) is not None:
                block = block + factor * matrix
        found.append(block)
    return found


def certificate(
    gram: Gram, rows: Conditions, radii: Limits, proof: Proof, metric: str, size: float, units: Units
) -> Certificate:
    """The proof in the user's units and words."""
    named = {}
    whole = size * units.metric(metric)
    scale = whole / units.metric("value")
    for (c, p, q), factor in zip(rows.pairs, proof.multipliers * scale / rows.size, strict=True):
        if factor > 0:
            names = gram.triples[c].names
            named[f"{_who(gram, int(c))}: f({names[p]}) >= f({names[q]}) + ..."] = float(factor)
    contributions = dict(zip(radii.names, map(float, proof.limits * whole), strict=True))
    bound = proof.bound * units.metric(metric)
    statement = f"{metric} <= {' + '.join(f'{v:.6g}' for v in contributions.values() if v)} = {bound:.9g}"
    return Certificate(bound, contributions, named, proof.slack, proof.repaired, statement)


def _who(gram: Gram, c: int) -> str:
    members = gram.groups[c].members
    if len(members) == 1:
        return f"device {members[0] + 1}"
    together = members == tuple(range(members[0], members[-1] + 1))
    listed = f"{members[0] + 1}-{members[-1] + 1}" if together else ", ".join(str(i + 1) for i in members[:6])
    return f"devices {listed}" + ("" if together or len(members) <= 6 else ", ...")


def _cancel(gram: Gram, rows: Conditions, multipliers: Array, left: Array) -> Array:
    """Put what is left of each value onto its condition with x*: (q = value, p = *) adds it, the reverse takes it."""
    out = multipliers.copy()
    value = np.stack([t.value for t in gram.triples])
    group, p, q = rows.pairs.T
    adds, takes = np.flatnonzero(p == 0), np.flatnonzero(q == 0)
    for chosen, index, sign in ((adds, value[group[adds], q[adds]], 1.0), (takes, value[group[takes], p[takes]], -1.0)):
        unit = gram.value_scale[index] / rows.size[chosen]
        out[chosen] += np.maximum(sign * left[index], 0.0) / unit
    return out
