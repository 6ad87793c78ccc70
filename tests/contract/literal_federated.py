"""Federated methods: every device's local loop, then the server's line."""

from __future__ import annotations

import numpy as np

from .world import named


def mean_move(method, world, x, prox=0.0):
    """Delta_t = sum_i w_i (y_i - x), with y_i after E local steps from x."""
    total = 0 * x
    for i in range(world.n):
        y, eta = x, 1 / world.L[i] if method.client_step == "own" else named(method.client_step, world)
        for _ in range(method.local_steps):
            y = y - eta * (world.gradient(i, y) + prox * (y - x))
        total = total + world.w[i] * (y - x)
    return total


def fedavg(method, world):
    """McMahan et al. (2017); eta = 1 is the plain average of the devices' points."""
    x = world.x0
    while True:
        x = x + method.server_step * mean_move(method, world, x)
        yield x


def fedprox(method, world):
    """Li et al. (2020): local steps on f_i(y) + mu/2 ||y - x||^2."""
    x = world.x0
    while True:
        x = x + method.server_step * mean_move(method, world, x, method.prox)
        yield x


def fedavgm(method, world):
    """Hsu, Qi and Brown (2019): v <- beta v + Delta, x <- x + eta v."""
    x, v = world.x0, 0 * world.x0
    while True:
        v = method.momentum * v + mean_move(method, world, x)
        x = x + method.server_step * v
        yield x


def adaptive(method, world, second, correction=lambda t: 1.0):
    """Reddi et al. (2021), Algorithm 2, with ``second`` its line for v_t."""
    x, m = world.x0, 0 * world.x0
    v = np.full_like(x, method.tau**2 if method.v0 is None else method.v0)
    t = 0
    while True:
        t += 1
        delta = mean_move(method, world, x)
        m = method.beta_1 * m + (1 - method.beta_1) * delta
        v = second(v, delta)
        x = x + method.server_step * correction(t) * m / (np.sqrt(v) + method.tau)
        yield x


def fedadagrad(method, world):
    return adaptive(method, world, lambda v, delta: v + delta**2)


def fedyogi(method, world):
    b = method.beta_2
    return adaptive(method, world, lambda v, delta: v - (1 - b) * delta**2 * np.sign(v - delta**2))


def fedadam(method, world):
    b1, b2 = method.beta_1, method.beta_2

    def correction(t):
        """None as printed; Adam's own; Flower counts its first round as the second."""
        if method.bias_correction == "none":
            return 1.0
        t = t + 1 if method.bias_correction == "flower" else t
        return np.sqrt(1 - b2**t) / (1 - b1**t)

    return adaptive(method, world, lambda v, delta: b2 * v + (1 - b2) * delta**2, correction)


def scaffold(method, world):
    """Karimireddy et al. (2020), Algorithm 1 with option II; c = sum_i w_i c_i."""
    E, x = method.local_steps, world.x0
    eta = 1 / (E * max(world.L)) if method.client_step is None else named(method.client_step, world)
    c_i = [0 * x for _ in range(world.n)]
    while True:
        c = sum(world.w[i] * c_i[i] for i in range(world.n))
        ends = []
        for i in range(world.n):
            y = x
            for _ in range(E):
                y = y - eta * (world.gradient(i, y) - c_i[i] + c)
            ends.append(y)
        c_i = [c_i[i] - c + (x - ends[i]) / (E * eta) for i in range(world.n)]
        x = x + method.server_step * sum(world.w[i] * (ends[i] - x) for i in range(world.n))
        yield x
