r"""Devices that are alike cost nothing: which devices may be treated as one, exactly.

Two reductions, both exact, both read off what the method really asked for:

**Permutation symmetry** (Colla and Hendrickx, 2024). Devices with the same (mu_i, L_i, w_i) and the same mix in
every round form a group. The worst case is concave in the Gram matrix and unchanged when members swap, so an optimal
Gram matrix can be averaged over all permutations. Write a member's vectors as the group's mean plus a difference,
u_i = u + d_i with sum_i d_i = 0. Shared points only meet the means, and what is left of the differences is one
positive semidefinite matrix D = mean_i d_i d_i^T for each group. Any D >= 0 can be realised by two members already
(d, -d), so neither the size of the problem nor its value depends on how many members there are, once there are two.

**Pooling**. Where no constraint looks at a single device (all local minimisers at x*, or no weight on where they
are) devices whose mix is the same multiple of their weight in every round act as the one function
sum_i w_i f_i / sum_i w_i. Averages of functions in F(mu_i, L_i) are exactly F(mean mu_i, mean L_i): given f in the
latter, f_i = mu_i/2 ||x||^2 + (L_i - mu_i)/(L - mu) (f - mu/2 ||x||^2) splits it. So gradient descent, Nesterov and
heavy ball cost what they cost on one function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ownstep.pep.trace.symbolic import Trace
from ownstep.plan import Devices

Array = NDArray[np.float64]

SAME = 1e-11
"""Relative difference up to which two ratios count as equal: rounding, not modelling."""


@dataclass(frozen=True, eq=False)
class Group:
    """Devices that the worst case may treat as one.

    Parameters
    ----------
    members : indices of the devices.
    mu, L : the class of the function they stand for.
    weight : their total weight W.
    mix : their total mix, one entry per round (empty when every gradient is asked for).
    twins : members may differ from their mean, so a difference block is needed.
    pull : factor of x in the sum of a round, where members of different mu and mix share a function; mu times mix
        where None.
    own : the mu that counts at their own minimisers; mu where None (see :mod:`ownstep.pep.trace.kinds`).
    """

    members: tuple[int, ...]
    mu: float
    L: float
    weight: float
    mix: Array
    twins: bool = False
    pull: Array | None = None
    own: float | None = None

    @property
    def mu_own(self) -> float:
        """The mu that counts at their own minimisers."""
        return self.mu if self.own is None else self.own

    @property
    def quadratic(self) -> bool:
        """Mu = L: the class holds a single function, L/2 ||x - a||^2."""
        return self.L - self.mu <= 1e-12 * self.L


def follows_weights(trace: Trace, devices: Devices) -> bool:
    """Does every round ask for a multiple of sum_i w_i g_i, which vanishes at x*?

    Then where the devices' own minimisers lie cannot matter: tilting the losses by any sum_i w_i s_i = 0 changes
    nothing that the method sees.
    """
    if not trace.shared:
        return False
    ratios = ratios_of(trace, devices)
    return bool((np.ptp(ratios, axis=1) <= SAME * np.abs(ratios).max(axis=1)).all())


def groups(trace: Trace, devices: Devices, *, local_optima: bool, symmetry: bool = True) -> list[Group]:
    """The groups of devices, coarsest first.

    Parameters
    ----------
    local_optima : some constraint looks at single devices, so that pooling is not allowed.
    symmetry : False keeps every device apart, for checking.
    """
    n = len(devices)
    if not symmetry or not trace.shared:
        return [_group(trace, devices, (i,)) for i in range(n)]
    if local_optima:
        rows = np.column_stack([devices.mu, devices.L, devices.weights, _mixes(trace, devices).T])
    else:
        digits, exponents = np.frexp(ratios_of(trace, devices).T)
        rows = np.hstack([np.round(digits, 11), exponents])  # relative to each entry: own steps may differ by 1e12
    found: dict[bytes, list[int]] = {}
    for i, row in enumerate(np.ascontiguousarray(rows + 0.0)):
        found.setdefault(row.tobytes(), []).append(i)
    return [_group(trace, devices, tuple(m), local_optima and len(m) > 1) for m in found.values()]


def _group(trace: Trace, devices: Devices, members: tuple[int, ...], twins: bool = False) -> Group:
    index = list(members)
    w = devices.weights[index]
    total = float(w.sum())
    alike = np.ptp(devices.mu[index]) == np.ptp(devices.L[index]) == 0  # then no rounding from averaging
    mu = float(devices.mu[index[0]] if alike else w @ devices.mu[index] / total)
    L = float(devices.L[index[0]] if alike else w @ devices.L[index] / total)
    mix = _mixes(trace, devices)[:, index].sum(axis=1) if trace.shared else np.zeros(0)
    return Group(members, mu, L, total, mix, twins)


def _mixes(trace: Trace, devices: Devices) -> Array:
    mixes = [mix for mix in trace.mixes if mix is not None]
    return np.stack(mixes) if mixes else np.zeros((0, len(devices)))


def ratios_of(trace: Trace, devices: Devices) -> Array:
    """How many times its weight each device has in the sums, one row per round."""
    return np.asarray(_mixes(trace, devices) / devices.weights)
