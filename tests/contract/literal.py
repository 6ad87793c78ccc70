"""Every method as its paper writes it: a loop of about ten lines, apart from the library's code.

A loop takes the method object, for its parameters alone, and a :class:`~tests.contract.world.World`; it yields
x^1, x^2, ... without end. ``LITERAL`` names one for every method of METHODS: a method without a loop fails the suite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from .literal_federated import fedadagrad, fedadam, fedavg, fedavgm, fedprox, fedyogi, scaffold
from .literal_gossip import decentralised_gd, extra, gradient_tracking, nids
from .literal_own import own_step, schedule
from .literal_rivals import delta_sgd, feddyn, fedexp, fedlin, fednova, fedsps, scaffnew
from .literal_secant import adgd, barzilai_borwein
from .literal_second import dane, giant, lbfgs, newton, own_curvature, shed
from .world import World, named

Loop = Callable[[object, World], Iterator[np.ndarray]]


def gd(method, world):
    """x <- x - alpha grad f(x)."""
    x, alpha = world.x0, named(method.step, world)
    while True:
        x = x - alpha * world.g(x)
        yield x


def heavy_ball(method, world):
    """Polyak (1964): x^{k+1} = x^k - alpha grad f(x^k) + beta (x^k - x^{k-1})."""
    alpha = named(method.step, world)
    beta = method.momentum if method.momentum is not None else (1 - math.sqrt(alpha * (world.w @ world.mu))) ** 2
    x = before = world.x0
    while True:
        x, before = x - alpha * world.g(x) + beta * (x - before), x
        yield x


def nesterov(method, world):
    """Nesterov (1983): y = x^k + beta_k (x^k - x^{k-1}), with (k - 1)/(k + 2) for k = 1, 2, ... where mu = 0."""
    alpha, mu = named(method.step, world), world.w @ world.mu
    x, before, k = world.x0, world.x0, 0
    while True:
        k += 1
        q = math.sqrt(alpha * mu)
        beta = method.momentum if method.momentum is not None else (1 - q) / (1 + q) if mu > 0 else (k - 1) / (k + 2)
        y = x + beta * (x - before)
        x, before = y - alpha * world.g(y), x
        yield x


def nesterov_restart(method, world):
    """O'Donoghue and Candes (2015), the gradient scheme: restart where <grad f(y), x^{k+1} - x^k> > 0."""
    alpha, x, before, j = named(method.step, world), world.x0, world.x0, 0
    while True:
        y = x + j / (j + 3) * (x - before)
        new = y - alpha * world.g(y)
        if world.g(y) @ (new - x) > 0:
            x, before, j = new, new, 0
        else:
            x, before, j = new, x, j + 1
        yield x


def ogm(method, world):
    """Kim and Fessler (2016), OGM1; the last factor of a horizon has an 8 for the 4. Its answer is y without one."""
    alpha, x, y, theta, k = named(method.step, world), world.x0, world.x0, 1.0, 0
    while True:
        k += 1
        last = method.horizon is not None and k % method.horizon == 0
        new_theta = (1 + math.sqrt(1 + (8 if last else 4) * theta**2)) / 2
        new_y = x - alpha * world.g(x)
        x = new_y + (theta - 1) / new_theta * (new_y - y) + theta / new_theta * (new_y - x)
        y, theta = new_y, new_theta
        if last:
            y, theta = x, 1.0
        yield y if method.horizon is None else x


def item(method, world):
    """Taylor and Drori (2023), Algorithm 1, with alpha for 1/L and q = alpha mu; x^k is the answer where mu = 0."""
    alpha = named(method.step, world)
    q = alpha * (world.w @ world.mu)
    x = z = world.x0
    A = 0.0
    while True:
        new_A = ((1 + q) * A + 2 * (1 + math.sqrt((1 + A) * (1 + q * A)))) / (1 - q) ** 2
        beta = A / ((1 - q) * new_A)
        delta = 1 / 2 * ((1 - q) ** 2 * new_A - (1 + q) * A) / (1 + q + q * A)
        y = (1 - beta) * z + beta * x
        x = y - alpha * world.g(y)
        z = (1 - q * delta) * z + q * delta * y - alpha * delta * world.g(y)
        A = new_A
        yield z if q > 0 else x


def triple_momentum(method, world):
    """Van Scoy, Freeman and Lynch (2018), equation (9); gradient descent where mu = 0."""
    alpha = named(method.step, world)
    q = alpha * (world.w @ world.mu)
    rho = 1 - math.sqrt(q) if q > 0 else 0.0
    beta, gamma, delta = rho**2 / (2 - rho), rho**2 / ((1 + rho) * (2 - rho)), rho**2 / (1 - rho**2)
    xi = before = world.x0
    while True:
        y = (1 + gamma) * xi - gamma * before
        xi, before = (1 + beta) * xi - beta * before - (1 + rho) * alpha * world.g(y), xi
        yield (1 + delta) * xi - delta * before


LITERAL: dict[str, Loop] = {
    "own_step": own_step,
    "own_curvature": own_curvature,
    "gd": gd,
    "heavy_ball": heavy_ball,
    "nesterov": nesterov,
    "nesterov_restart": nesterov_restart,
    "adgd": adgd,
    "barzilai_borwein": barzilai_borwein,
    "ogm": ogm,
    "item": item,
    "triple_momentum": triple_momentum,
    "lbfgs": lbfgs,
    "newton": newton,
    "giant": giant,
    "dane": dane,
    "shed": shed,
    "schedule": schedule,
    "decentralised_gd": decentralised_gd,
    "gradient_tracking": gradient_tracking,
    "extra": extra,
    "nids": nids,
    "fedavg": fedavg,
    "fedavgm": fedavgm,
    "fedadagrad": fedadagrad,
    "fedadam": fedadam,
    "fedyogi": fedyogi,
    "fedprox": fedprox,
    "scaffold": scaffold,
    "fednova": fednova,
    "fedexp": fedexp,
    "feddyn": feddyn,
    "fedsps": fedsps,
    "fedlin": fedlin,
    "delta_sgd": delta_sgd,
    "scaffnew": scaffnew,
}
