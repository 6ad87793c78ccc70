r"""Many different devices as a few kinds: a small program that is never below their worst case, one never above it.

A method with one shared point sees its devices through sums only: sum_i m_i^k grad f_i(x^k) in round k, and f =
sum_i w_i f_i. Let r_i^k = m_i^k / w_i, x* = 0, and write each loss as

    f_i(x) = mu_i/2 ||x||^2 + a_i (h_i(x) + <s_i, x>),    a_i = L_i - mu_i,    h_i in F(0, 1),

with value and gradient of h_i zero at x*. Its own minimiser z_i minimises h_i + <s_i, .> + e_i/2 ||.||^2 with e_i =
mu_i / a_i. **Lemma.** The minimiser z(e) of a convex function plus e/2 ||.||^2 is the shorter the larger e is. Proof:
each of z(e), z(e') does best for its own e, e' > e. Add the two inequalities: (e' - e)(||z(e')||^2 - ||z(e)||^2) <= 0.

**From below.** Let all devices of a cluster share one h and one s. By the lemma they all keep to the radius when the
one of smallest e_i does. What the method and f see of them is a function of F(0, sum_i w_i a_i / sum_i w_i), its weight
in each sum, sum_i m_i^k a_i, and a multiple of x, sum_i m_i^k mu_i: as much as they see of one device. So every
instance of these B functions *is* an instance of the N devices, and the error on it a lower end.

**From above.** Let the ratios lie on a line, r_i = alpha + beta t_i. For Algorithm 1 they do: t_i = 1/L_i before the
switch, and after it all ratios are the same. Choose nodes tau_b that cover all t_i and write t_i = sum_b theta_ib
tau_b with theta_ib >= 0, sum_b theta_ib = 1, from the two nodes beside t_i. With rho_b = alpha + beta tau_b and
p_ib = w_i theta_ib,

    sum_i m_i^k grad f_i = sum_b rho_b^k sum_i p_ib grad f_i    and    f = sum_b sum_i p_ib f_i:

as if node b had a copy of every device beside it, all with the ratio rho_b. Let the copies of one device differ, and
ask of their minimisers only that those for e_b, at least every e_i beside node b, keep to the radius. (A copy may also
be put into a larger class, with a smaller mu_i and so a smaller e_i.) By the lemma that is less than was asked, so the
maximum can only rise. Now each condition on a copy reads the same for all copies at b, and
its mean is taken with weights p_ib a_i. Write u_i = u + d_i for a copy's vectors, where the mean of the d_i is zero.
The mean of <u_i, u_i'> is <u, u'> plus the mean of <d_i, d_i'>, an entry of a positive semidefinite matrix; points that
are shared have no d_i. What is left of node b is one mean vector for each point and one such matrix: the conditions of
two equal devices (see :mod:`ownstep.pep.trace.symmetry`) in F(mu_b, L_b), the means of mu_i and L_i with weights p_ib,
of weight sum_i p_ib together and ratio rho_b, whose minimisers count with e_b (L_b - mu_b) in the place of mu_b. The
bound of that program is an upper end. Where own minimisers do not matter, one function for each node is enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ownstep.pep.trace.symbolic import Trace
from ownstep.pep.trace.symmetry import SAME, Group, ratios_of
from ownstep.pep.trace.units import Setting
from ownstep.plan import Devices

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Line:
    """Ratios r_i^k = alpha_k + beta_k t_i, one t_i per device."""

    alpha: Array
    beta: Array
    t: Array

    def at(self, t: Array) -> Array:
        """The ratios at some positions, one row per round."""
        return np.asarray(self.alpha[:, None] + self.beta[:, None] * t)


def line(path: Trace, devices: Devices) -> Line | None:
    """The line that the ratios of all devices lie on, up to rounding; None where there is none."""
    if not path.shared or not path.rounds:
        return None
    ratios = ratios_of(path, devices)
    size = np.abs(ratios).max(axis=1)
    spread = np.ptp(ratios, axis=1) / np.where(size > 0, size, 1.0)
    t = ratios[int(np.argmax(spread))]
    low, high = int(np.argmin(t)), int(np.argmax(t))
    if t[high] == t[low]:
        return None
    beta = (ratios[:, high] - ratios[:, low]) / (t[high] - t[low])
    beta[spread <= SAME] = 0.0
    found = Line(ratios[:, low] - beta * t[low], beta, t)
    off = np.abs(found.at(t) - ratios).max(axis=1)
    return found if (off <= SAME * size).all() else None


def above(
    asked: Setting, on: Line, nodes: Array, *, local_optima: bool, cap: float = 0.5
) -> tuple[Setting, list[Group]]:
    """Devices at the nodes, in groups, whose program has at least the worst case of the devices asked about.

    ``cap`` between 0 and 1 says where e_b lies between the smallest and the largest e_i beside a node; a copy with a
    larger e_i goes into the larger class with the smaller mu_i that makes it e_b.
    """
    d = asked.devices
    theta = _between(on.t, nodes)
    used = theta.sum(axis=0) > 0
    theta, nodes = theta[:, used], nodes[used]
    p, beside = d.weights[:, None] * theta, theta > 0
    total, L = p.sum(axis=0), d.L @ p / p.sum(axis=0)
    kappa, e = np.repeat((d.mu / d.L)[:, None], len(nodes), axis=1), np.zeros(len(nodes))
    if local_optima:
        kappa = np.minimum(kappa, 0.5)
        low, high = np.where(beside, kappa, 1.0).min(axis=0), np.where(beside, kappa, 0.0).max(axis=0)
        most = low + cap * (high - low)
        kappa, e = np.minimum(kappa, most), most / (1 - most) * (1 + SMALL)
    mu = d.L @ (kappa * p) / total
    twins = local_optima & (beside.sum(axis=0) > 1)
    count = 1 + twins
    kinds = Devices(np.repeat(total / count, count), np.repeat(L, count), np.repeat(mu, count))
    mixes = np.repeat(on.at(nodes), count, axis=1) * kinds.weights
    groups = []
    for b, at in enumerate(np.cumsum(count) - count):
        members = list(range(at, at + count[b]))
        own = float(e[b] * (L[b] - mu[b])) if local_optima else None
        weight, mix = float(kinds.weights[members].sum()), mixes[:, members].sum(axis=1)
        groups.append(Group(tuple(members), float(mu[b]), float(L[b]), weight, mix, bool(twins[b]), own=own))
    path = Trace(asked.path.asks, tuple(mixes), asked.path.points)
    return Setting(path, kinds, asked.r0, asked.rstar, asked.metric), groups


def below(asked: Setting, label: Index, *, local_optima: bool) -> list[Group]:
    """Clusters of the devices asked about, each of one function."""
    d, mixes = asked.devices, np.stack([np.asarray(mix) for mix in asked.path.mixes])
    a = d.L - d.mu
    sizes = [(Fraction(mu), Fraction(L)) for mu, L in zip(d.mu.tolist(), d.L.tolist(), strict=True)]
    exact = [mu / (L - mu) for mu, L in sizes]
    groups = []
    for b in np.unique(label):
        index = np.flatnonzero(label == b)
        furthest = min(map(int, index), key=exact.__getitem__)
        index = np.concatenate([[furthest], index[index != furthest]])
        w = d.weights[index]
        total = float(w.sum())
        mu, L = float(w @ d.mu[index] / total), float(w @ d.L[index] / total)
        mix, pull = mixes[:, index] @ a[index] / (L - mu), mixes[:, index] @ d.mu[index]
        own = float(d.mu[furthest] / a[furthest] * (L - mu)) if local_optima else None
        groups.append(Group(tuple(map(int, index)), mu, L, total, mix, pull=pull, own=own))
    return groups


SMALL = 1e-14
"""The largest e_i of a node is rounded up by this much."""


def places(t: Array, weights: Array, kinds: int) -> tuple[Array, Index]:
    """Where to put nodes, and clusters, on a line: both near where the devices are, by dynamic programming.

    Nodes are some of the t_i, the smallest and the largest among them; a device between nodes tau and tau' adds
    w_i (t_i - tau)(tau' - t_i) / t_i^2, the mean square by which its copies' ratios are off. Clusters are runs of
    neighbours; a device adds w_i times the square of how far log t_i is from its cluster's mean.

    Returns
    -------
    tuple of two arrays
        The nodes, increasing, and the cluster of each device.
    """
    order = np.argsort(t, kind="stable")
    values, start = np.unique(t[order], return_index=True)
    if len(values) > CANDIDATES:
        kept = np.unique(np.linspace(0, len(values) - 1, CANDIDATES).round().astype(int))
        values, start = values[kept], start[kept]
    signed = values[0] * values[-1] > 0
    at, w = t[order], weights[order]
    unit = np.abs(at) if signed else np.full(len(at), np.abs(at).max())
    sums = [_running(w / unit**2 * at**power, start) for power in (0, 1, 2)]
    zero, one, two = (total[None, :-1] - total[:-1, None] for total in sums)
    cost = (values[:, None] + values) * one - values[:, None] * values * zero - two
    nodes = values[_runs(np.maximum(cost, 0.0), min(kinds, len(values)) - 1)]
    u = np.log(np.abs(at)) if signed else at
    zero, one, two = (_between_sums(_running(w * u**power, start)) for power in (0, 1, 2))
    spread = np.maximum(two - one**2 / np.where(zero > 0, zero, 1.0), 0.0)
    borders = start[_runs(spread, min(kinds, len(values)))[:-1] % len(start)] if len(values) > 1 else start[:1]
    label = np.empty(len(t), dtype=np.int64)
    label[order] = np.searchsorted(borders, np.arange(len(t)), side="right") - 1
    return np.asarray(nodes), label


CANDIDATES = 150
"""So many of the t_i are considered at most."""


def _running(terms: Array, start: Index) -> Array:
    """Sums of the terms before each start, and before the end."""
    return np.asarray(np.concatenate([[0.0], np.cumsum(terms)])[np.append(start, len(terms))])


def _between_sums(total: Array) -> Array:
    return np.asarray(total[None, :] - total[:, None])


def _runs(cost: Array, count: int) -> Index:
    """The cheapest way from the first index to the last in ``count`` strides: the indices it stops at."""
    size = len(cost)
    allowed = np.where(np.arange(size)[:, None] < np.arange(size), cost, np.inf)
    best, ways = np.where(np.arange(size) == 0, 0.0, np.inf), []
    for _ in range(count):
        through = best[:, None] + allowed
        ways.append(through.argmin(axis=0))
        best = through.min(axis=0)
    path = [size - 1]
    for way in reversed(ways):
        path.append(int(way[path[-1]]))
    return np.array(path[::-1])


def _between(t: Array, nodes: Array) -> Array:
    """Shares theta, one row per device: each t from the two nodes beside it."""
    right = np.clip(np.searchsorted(nodes, t, side="right"), 1, len(nodes) - 1)
    share = np.clip((t - nodes[right - 1]) / (nodes[right] - nodes[right - 1]), 0.0, 1.0)
    theta = np.zeros((len(t), len(nodes)))
    every = np.arange(len(t))
    theta[every, right - 1], theta[every, right] = 1 - share, share
    return theta
