"""Algorithm 1 and what extends it."""

from __future__ import annotations

import math

import numpy as np

from ownstep.methods import AdaptiveOwnStep, At, Never, NormBelow, Plateau, Shrunk

from .literal_secant import own_adaptive


class Phase:
    """Is the coming round local? Told the sum and the loss of every round before the switch."""

    def __init__(self, switch, L) -> None:
        self.switch, self.k, self.sizes = switch, 0, []
        self.local, self.done = True, False
        self.spread = max(L) / min(L)
        self.stretch, self.seen, self.local_rate = 6, [], None
        if isinstance(switch, At) and switch.rounds == 0:
            self.local, self.done = False, True

    def look(self, move, value) -> None:
        self.k += 1
        self.sizes.append(math.sqrt(sum(move**2)))
        if self.done:
            return
        match self.switch:
            case At(rounds):
                self.done = self.k == rounds
            case NormBelow(eps):
                self.done = self.sizes[-1] <= eps
            case Shrunk(share):
                self.done = self.k > 1 and self.sizes[-1] <= share * self.sizes[0]
            case Plateau():
                self.plateau(value)
            case Never():
                pass
        if self.done:
            self.local = False

    def plateau(self, value) -> None:
        """Stretches of max(6, k/4) local rounds, probes of max(3, k/8) common ones, compared by their second halves."""
        self.seen.append(value)
        if len(self.seen) < self.stretch:
            return
        half = len(self.seen) // 2
        rate = (self.seen[half] - self.seen[-1]) / (len(self.seen) - 1 - half)
        if self.local:
            self.local, self.stretch, self.local_rate = False, max(3, self.k // 8), rate
        elif rate > 0 and rate > self.spread * self.local_rate:
            self.done = True
        else:
            self.local, self.stretch = True, max(6, self.k // 4)
        self.seen = []


def own_step(method, world):
    """Algorithm 1: x <- x - sum_i w_i grad f_i(x) / L_i, and / L_bar once the switch has fired."""
    w = np.full(world.n, 1 / world.n) if method.weights == "uniform" else world.w
    if isinstance(method, AdaptiveOwnStep):
        yield from own_adaptive(method, world, w)
    if method.momentum is not None:
        yield from own_momentum(method, world, w)
    L_bar = sum(w[i] * world.L[i] for i in range(world.n))
    x, phase = world.x0, Phase(method.switch, world.L)
    while True:
        move = sum(w[i] * world.gradient(i, x) / (world.L[i] if phase.local else L_bar) for i in range(world.n))
        phase.look(move, world.f(x))
        x = x - move
        yield x


def own_momentum(method, world, w):
    """An accelerated method for sum_i c_i f_i, of smoothness 1, in either phase, from rest at either start."""
    L_bar, x, phase = sum(w * world.L), world.x0, Phase(method.switch, world.L)
    while True:
        local = phase.local
        c = w / world.L if local else w / L_bar
        q = sum(c * world.mu)
        before, z, A, j = x, x, 0.0, 0
        while phase.local == local:
            if method.momentum == "nesterov":
                beta = (1 - math.sqrt(q)) / (1 + math.sqrt(q)) if q > 0 else j / (j + 3)
                y = x + beta * (x - before)
                move = sum(c[i] * world.gradient(i, y) for i in range(world.n))
                x, before, j, answer = y - move, x, j + 1, y - move
            else:
                new = ((1 + q) * A + 2 * (1 + math.sqrt((1 + A) * (1 + q * A)))) / (1 - q) ** 2
                beta = A / ((1 - q) * new)
                delta = ((1 - q) ** 2 * new - (1 + q) * A) / (2 * (1 + q + q * A))
                y = (1 - beta) * z + beta * x
                move = sum(c[i] * world.gradient(i, y) for i in range(world.n))
                x, z, A = y - move, (1 - q * delta) * z + q * delta * y - delta * move, new
                answer = z if q > 0 else x
            phase.look(move, world.f(y))
            yield answer
        x = answer


def schedule(method, world):
    """y^+ = x - sum_i w_i scales[k][i]/L_i grad f_i(x),  x^+ = y^+ + beta_k (y^+ - y) + gamma_k (y^+ - x)."""
    x = y = world.x0
    L_bar, k = sum(world.w * world.L), 0
    while True:
        inside = k < len(method.scales)
        row = method.scales[k] if inside else (method.after,)
        new = x
        for i in range(world.n):
            step = row[i % len(row)] / (world.L[i] if inside else L_bar)
            new = new - world.w[i] * step * world.gradient(i, x)
        beta, gamma = method.momentum[k] if inside and method.momentum else (0, 0)
        x, y, k = new + beta * (new - y) + gamma * (new - x), new, k + 1
        yield x
