"""Steps that are measured on the way: Malitsky and Mishchenko's, Barzilai and Borwein's, and own ones."""

from __future__ import annotations

import math

import numpy as np

norm = np.linalg.norm


def first_step(world) -> float:
    """Move by a hundredth of |f| / ||g||, and of max(1, ||x^0||) at most."""
    g, far = norm(world.g(world.x0)), max(1, norm(world.x0))
    return 0.01 * min(max(abs(world.f(world.x0)) / g, 2**-26 * far), far) / g


def secant(s, y):
    return y @ y / (s @ y)


def adgd(method, world):
    """Malitsky and Mishchenko: Algorithm 1 of 2020 (version 1), Algorithm 1 of 2024 (version 2)."""
    before, step, theta = world.x0, first_step(world), math.inf
    x = before - step * world.g(before)
    while True:
        yield x
        L = norm(world.g(x) - world.g(before)) / norm(x - before)
        if method.version == 1:
            new = min(math.sqrt(1 + theta) * step, 1 / (2 * L))
        else:
            under = 2 * step**2 * L**2 - 1
            new = min(math.sqrt(2 / 3 + theta) * step, step / math.sqrt(under) if under > 0 else math.inf)
            if math.isinf(theta):
                new = 1 / (math.sqrt(2) * L)
        theta, step = new / step, new
        x, before = x - step * world.g(x), x


class Descended:
    """The test of Zhang and Hager (2004) with eta = 0.85: C_k, Q_k, and the largest ratio M of ||y|| to ||s||."""

    def __init__(self, f) -> None:
        self.C, self.Q, self.M = f, 1.0, 0.0

    def passes(self, f, t, g) -> bool:
        return f <= self.C - min(t, 1 / self.M) * g @ g / 2

    def keep(self, f) -> None:
        self.C, self.Q = (0.85 * self.Q * self.C + f) / (0.85 * self.Q + 1), 0.85 * self.Q + 1

    def retreat(self, t) -> float:
        if t * self.M <= 1:
            self.M = 2 / t
        return 1 / self.M


def barzilai_borwein(method, world):
    """Barzilai and Borwein (1988), with that test; a point that fails it is gone back from."""
    base, t, seen = world.x0, first_step(world), Descended(world.f(world.x0))
    x = base - t * world.g(base)
    while True:
        yield x
        s, y = x - base, world.g(x) - world.g(base)
        seen.M = max(seen.M, norm(y) / norm(s))
        if seen.passes(world.f(x), t, world.g(base)):
            seen.keep(world.f(x))
            L = {"short": secant(s, y), "long": s @ y / (s @ s), "mean": norm(y) / norm(s)}[method.secant]
            base, t = x, 1 / min(L, 2 * seen.M)
        else:
            t = seen.retreat(t)
        x = base - t * world.g(base)


def own_adaptive(method, world, w):
    """Own steps with measured L_i: both sums are known in local rounds, and the same test guards every point."""

    def rows(x):
        return np.array([world.gradient(i, x) for i in range(world.n)])

    base, t, seen = world.x0, first_step(world), Descended(world.f(world.x0))
    asked, L, c, first_share, own_before = base, None, None, None, None
    x, own, failed, over = base - t * (w @ rows(base)), False, 0, False
    while True:
        yield x
        measured = np.array([secant(x - asked, y) for y in rows(x) - rows(asked)])
        L = measured if L is None else np.maximum(measured, L / 2)
        g, g_base, s, asked = w @ rows(x), w @ rows(base), x - base, x
        seen.M = max(seen.M, norm(g - g_base) / norm(s))
        if not seen.passes(w @ [world.loss(i, x) for i in range(world.n)], t, g_base):
            if own:
                failed, own, c = failed + 1, False, None
                over = failed == 3
            else:
                t = seen.retreat(t)
            x = base - t * g_base
            continue
        seen.keep(w @ [world.loss(i, x) for i in range(world.n)])
        base, t, own = x, 1 / min(secant(s, g - g_base), 2 * seen.M), False
        x = base - t * g
        if over:
            continue
        if c is None:
            over = (w @ L) * (w @ (1 / L)) < 1.05
            c, first_share = w / L, None
            continue
        sum_now = c @ rows(base)
        share = norm(sum_now) / norm(g)
        if first_share is not None and share < first_share / 4:
            over = True
            continue
        alpha = 1 if first_share is None else max(1, 1 / secant(s, sum_now - own_before))
        first_share, own_before, own = first_share or share, sum_now, True
        x = base - alpha * sum_now
