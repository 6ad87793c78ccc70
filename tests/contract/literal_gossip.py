"""Methods without a server, device by device: the recursions of their papers, for the shares N w_i f_i."""

from __future__ import annotations

import numpy as np


def neighbours(graph: str, n: int) -> list[set[int]]:
    """Who is linked with whom."""
    if graph == "complete":
        return [set(range(n)) - {i} for i in range(n)]
    if graph == "star":
        return [set(range(1, n)) if i == 0 else {0} for i in range(n)]
    near = [{j for j in (i - 1, i + 1) if 0 <= j < n} for i in range(n)]
    if graph == "ring":
        near[0].add(n - 1)
        near[n - 1].add(0)
    return [others - {i} for i, others in enumerate(near)]


def weights_of_links(method, n: int) -> np.ndarray:
    """Metropolis: W_ij = 1/(1 + max(degree_i, degree_j)); the rest of a row on its diagonal; lazy is (I + W)/2."""
    near, W = neighbours(method.graph, n), np.zeros((n, n))
    for i in range(n):
        for j in near[i]:
            W[i, j] = 1 / (1 + max(len(near[i]), len(near[j])))
        W[i, i] = 1 - sum(W[i])
    return (np.eye(n) + W) / 2 if method.rule == "lazy" else W


class Net:
    """W, the shares' gradients and the steps of a method."""

    def __init__(self, method, world, cut) -> None:
        n = world.n
        self.W = weights_of_links(method, n)
        w = np.full(n, 1 / n) if method.weights == "uniform" else world.w
        self.share = [n * w[i] for i in range(n)]
        self.world, self.x0 = world, [world.x0 for _ in range(n)]
        lowest = min(np.linalg.eigvalsh(self.W))
        if method.step == "largest":
            self.alpha = [cut(lowest) / max(self.share[i] * world.L[i] for i in range(n))] * n
        elif method.step == "mean":
            self.alpha = [1 / sum(w[i] * world.L[i] for i in range(n))] * n
        elif method.step == "own":
            self.alpha = [1 / L for L in world.L]
        else:
            self.alpha = [method.step] * n

    def grad(self, X):
        return [self.share[i] * self.world.gradient(i, x) for i, x in enumerate(X)]

    def mix(self, X):
        return [sum(self.W[i, j] * X[j] for j in range(len(X))) for i in range(len(X))]


def minus(X, alpha, Y):
    return [x - a * y for x, a, y in zip(X, alpha, Y, strict=True)]


def decentralised_gd(method, world):
    """Lian et al. (2017), Algorithm 1 ("cta"); and its adapt-then-combine form."""
    net = Net(method, world, lambda lowest: 1.0 if method.order == "atc" else (1 + lowest) / 2)
    X = net.x0
    while True:
        if method.order == "atc":
            X = net.mix(minus(X, net.alpha, net.grad(X)))
        else:
            X = minus(net.mix(X), net.alpha, net.grad(X))
        yield sum(X) / len(X)


def gradient_tracking(method, world):
    """DIGing (Nedic, Olshevsky and Shi 2017) from Y^0 = G^0, and its ATC form (Xu et al. 2015) from W G^0."""
    net = Net(method, world, lambda lowest: 0.5 if method.order == "atc" else (1 + lowest) ** 2 / 4)
    X, G = net.x0, net.grad(net.x0)
    Y = net.mix(G) if method.order == "atc" else G
    while True:
        X = net.mix(minus(X, net.alpha, Y)) if method.order == "atc" else minus(net.mix(X), net.alpha, Y)
        yield sum(X) / len(X)
        new = net.grad(X)
        change = [a - b for a, b in zip(new, G, strict=True)]
        if method.order == "atc":
            Y = net.mix([y + c for y, c in zip(Y, change, strict=True)])
        else:
            Y = [y + c for y, c in zip(net.mix(Y), change, strict=True)]
        G = new


def extra(method, world):
    """Shi et al. (2015), Algorithm 1: X^{k+2} = (I + W) X^{k+1} - (I + W)/2 X^k - alpha (G^{k+1} - G^k)."""
    net = Net(method, world, lambda lowest: (1 + lowest) / 2)
    old, X = net.x0, minus(net.mix(net.x0), net.alpha, net.grad(net.x0))
    while True:
        yield sum(X) / len(X)
        G, G_old, WX, W_old = net.grad(X), net.grad(old), net.mix(X), net.mix(old)
        new = [X[i] + WX[i] - (old[i] + W_old[i]) / 2 - net.alpha[i] * (G[i] - G_old[i]) for i in range(world.n)]
        old, X = X, new


def nids(method, world):
    """Li, Shi and Yan (2019): X^{k+2} = W~ (2 X^{k+1} - X^k + A (G^k - G^{k+1})), W~ = I - A (I - W)/(2 max alpha)."""
    net = Net(method, world, lambda lowest: 1.0)
    if method.step == "own":
        net.alpha = [1 / (net.share[i] * world.L[i]) for i in range(world.n)]
    top = max(net.alpha)

    def tilde(X):
        WX = net.mix(X)
        return [x - a / (2 * top) * (x - wx) for x, a, wx in zip(X, net.alpha, WX, strict=True)]

    old, X = net.x0, tilde(minus(net.x0, net.alpha, net.grad(net.x0)))
    while True:
        yield sum(X) / len(X)
        G, G_old = net.grad(X), net.grad(old)
        new = tilde([2 * X[i] - old[i] + net.alpha[i] * (G_old[i] - G[i]) for i in range(world.n)])
        old, X = X, new
