"""Federated methods whose devices choose their own steps, or whose server corrects what they did."""

from __future__ import annotations

import math

import numpy as np

from .world import named


def delta_sgd(method, world):
    """Kim et al. (2024), Algorithm 1; k counts the local steps, and every round begins with eta_0 and theta_0."""
    x = world.x0
    while True:
        ends = []
        for i in range(world.n):
            y, eta, theta = x, method.client_step, method.theta
            g = world.gradient(i, y)
            for k in range(1, method.local_steps + 1):
                y_k = y - eta * g
                if k < method.local_steps:
                    g_k = world.gradient(i, y_k)
                    bound = method.gamma * np.linalg.norm(y_k - y) / (2 * np.linalg.norm(g_k - g))
                    eta_k = min(bound, math.sqrt(1 + method.delta * theta) * eta)
                    theta, eta, g = eta_k / eta, eta_k, g_k
                y = y_k
            ends.append(y)
        x = x + method.server_step * sum(world.w[i] * (ends[i] - x) for i in range(world.n))
        yield x


def fedsps(method, world):
    """Mukherjee, Loizou and Stich (2024): gamma_t^i = min((F_i - l_i) / (c ||grad F_i||^2), gamma_b)."""
    x = world.x0
    while True:
        ends = []
        for i in range(world.n):
            y, bound = x, method.lower[i] if isinstance(method.lower, tuple) else method.lower
            for _ in range(method.local_steps):
                g = world.gradient(i, y)
                y = y - min((world.loss(i, y) - bound) / (method.c * (g @ g)), method.client_step) * g
            ends.append(y)
        x = x + method.server_step * sum(world.w[i] * (ends[i] - x) for i in range(world.n))
        yield x


def fedexp(method, world):
    """Jhunjhunwala, Wang and Joshi (2023), Algorithm 1, with w_i for 1/M."""
    eta, x = named(method.client_step, world), world.x0
    while True:
        deltas = []
        for i in range(world.n):
            y = x
            for _ in range(method.local_steps):
                y = y - eta * world.gradient(i, y)
            deltas.append(x - y)
        mean = sum(w * d for w, d in zip(world.w, deltas, strict=True))
        squares = sum(w * (d @ d) for w, d in zip(world.w, deltas, strict=True))
        eta_g = max(1, squares / (2 * (mean @ mean + method.epsilon)))
        x = x - method.server_step * eta_g * mean
        yield x


def fednova(method, world):
    """Wang et al. (2020): d_i = G_i a_i / ||a_i||_1 with a_i all ones, tau_eff = sum_i p_i tau_i."""
    eta, x = named(method.client_step, world), world.x0
    tau = method.local_steps
    if not isinstance(tau, tuple):
        tau = [max(1, int(tau * world.n * w + 0.5 + 1e-9)) for w in world.w]
    while True:
        normalised = []
        for i in range(world.n):
            y, gradients = x, []
            for _ in range(tau[i]):
                gradients.append(world.gradient(i, y))
                y = y - eta * gradients[-1]
            normalised.append(sum(gradients) / tau[i])
        tau_eff = sum(world.w[i] * tau[i] for i in range(world.n))
        x = x - method.server_step * tau_eff * sum(world.w[i] * eta * normalised[i] for i in range(world.n))
        yield x


def feddyn(method, world):
    """Acar et al. (2021), Algorithm 1, its arg min replaced by gradient steps; h is kept as the paper keeps it."""
    top = max(world.L)
    alpha = top if method.alpha is None else method.alpha
    eta = 1 / (top + alpha) if method.client_step is None else named(method.client_step, world)
    theta, h, gradient = world.x0, 0 * world.x0, [0 * world.x0 for _ in range(world.n)]
    while True:
        ends = []
        for k in range(world.n):
            y = theta
            for _ in range(method.local_steps):
                y = y - eta * (world.gradient(k, y) - gradient[k] + alpha * (y - theta))
            gradient[k] = gradient[k] - alpha * (y - theta)
            ends.append(y)
        h = h - alpha * sum(world.w[k] * (ends[k] - theta) for k in range(world.n))
        theta = sum(world.w[k] * ends[k] for k in range(world.n)) - h / alpha
        yield theta


def scaffnew(method, world):
    """Mishchenko et al. (2022), Algorithm 2, iteration by iteration; coins until the first 1 are geometric."""
    gamma, p, k = named(method.client_step, world), method.p, 0
    if p is None:
        p = math.sqrt(min(world.mu) / max(world.L))
    x = [world.x0 for _ in range(world.n)]
    h = [0 * world.x0 for _ in range(world.n)]
    while True:
        coins = [0] * (np.random.default_rng([method.seed, k]).geometric(p) - 1) + [1]
        k += 1
        for theta_t in coins:
            hat = [x[i] - gamma * (world.gradient(i, x[i]) - h[i]) for i in range(world.n)]
            if theta_t == 1:
                mean = sum(world.w[i] * (hat[i] - gamma / p * h[i]) for i in range(world.n))
                x = [mean for _ in range(world.n)]
            else:
                x = hat
            h = [h[i] + p / gamma * (x[i] - hat[i]) for i in range(world.n)]
        yield x[0]


def fedlin(method, world):
    """Mitra et al. (2021), Algorithm 1 with delta_c = delta_s = 1; its line 1 is an exchange in which x stays."""
    eta, x = named(method.client_step, world), world.x0
    tau = method.local_steps if isinstance(method.local_steps, tuple) else [method.local_steps] * world.n
    while True:
        yield x
        g, ends = world.g(x), []
        for i in range(world.n):
            y, own = x, world.gradient(i, x)
            for _ in range(tau[i]):
                y = y - eta / tau[i] * (world.gradient(i, y) - own + g)
            ends.append(y)
        x = sum(world.w[i] * ends[i] for i in range(world.n))
        yield x
