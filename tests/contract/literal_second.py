"""Methods of second order: SciPy's own L-BFGS-B and Newton's step."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.optimize._dcsrch import DCSRCH


def lbfgs(method, world):
    """Every point at which SciPy's L-BFGS-B evaluates f: Liu and Nocedal (1989), More and Thuente (1994)."""
    points = []

    def evaluate(x):
        points.append(x.copy())
        return world.f(x), world.g(x)

    options = {"maxcor": method.memory, "ftol": 0.0, "gtol": 0.0, "maxfun": 200, "maxiter": 200}
    minimize(evaluate, world.x0, jac=True, method="L-BFGS-B", options=options)
    yield from points[1:]


def searched(world, x, p):
    """The points that SciPy's own More and Thuente search tries along p, the last one kept."""
    tried = []

    def phi(t):
        tried.append(x + t * p)
        return world.f(tried[-1]) - 2**-50 * abs(world.f(x))

    search = DCSRCH(phi, lambda t: world.g(x + t * p) @ p, 1e-3, 0.9, 0.1, 0.0, 1e10)
    search(1.0, world.f(x), world.g(x) @ p, maxiter=20)
    return tried or [x]  # no descent is left


def own_curvature(method, world):
    """M from the devices' eigenpairs, written out; BFGS updates of the whole matrix.

    Hessians of least squares do not change, so that M is made once; the sum's is Nystrom's for the pooled Hessian.
    Without vectors it is L-BFGS.
    """
    if method.rank == 0:
        yield from lbfgs(method, world)
    d = len(world.x0)
    data = [world.hessian(i) - world.ridge * np.eye(d) for i in range(world.n)]
    assert sum(np.linalg.matrix_rank(H) for H in data) >= d  # else what is left is spread over fewer directions
    if method.sketch == "sum":
        H = sum(world.w[i] * data[i] for i in range(world.n))
        Q = np.linalg.qr(np.random.default_rng([method.seed, d, method.rank]).standard_normal((d, method.rank)))[0]
        low = H @ Q @ np.linalg.solve(Q.T @ H @ Q, Q.T @ H)
        values, U = np.linalg.eigh(low)
        data, weights, ranks = [H], [1.0], [method.rank]
        pairs = [(values[-method.rank :], U[:, -method.rank :])]
    else:
        weights, ranks = world.w, [min(method.rank if method.rank is not None else 10, d, len(b) // 2) for b in world.b]
        pairs = [
            (np.linalg.eigh(H)[0][d - k :], np.linalg.eigh(H)[1][:, d - k :]) for H, k in zip(data, ranks, strict=True)
        ]
    M, even, known = 0.0, 0.0, [U @ np.diag(values) @ U.T for values, U in pairs]
    for i, (w, H, k, (_, U)) in enumerate(zip(weights, data, ranks, pairs, strict=True)):
        left, rest, b = np.trace(H - known[i]), np.eye(d) - U @ U.T, 0.0
        sent = sum(v * S for v, S in zip(weights, known, strict=True))
        of_others = rest @ sent @ rest
        if sum(n > 0 for n in ranks) > 1 and k < d:  # what the others sent, where this device sent nothing
            foretold = np.trace(U.T @ (sent - w * known[i]) @ U) / (1 - w) / np.trace(known[i])
            b = min(1.0, foretold, left / 2 / np.trace(of_others))
        rho = (left - b * np.trace(of_others)) / (d - k) if k < d else 0.0
        M, even = M + w * (known[i] + b * of_others + rho * rest), even + w * rho
    values, U = np.linalg.eigh(M)  # nothing curves less than the rest
    M = U @ np.diag(np.maximum(values, even) + world.ridge) @ U.T
    x, kept = world.x0, []
    while True:
        g, H = world.g(x), np.linalg.inv(M)
        if kept:
            s, y = kept[-1]
            H = H * 2 * (s @ y) / (s @ y + y @ H @ y)
        for s, y in kept:
            V = np.eye(d) - np.outer(y, s) / (s @ y)
            H = V.T @ H @ V + np.outer(s, s) / (s @ y)
        tried = searched(world, x, -H @ g)
        yield from tried
        kept = [*kept, (tried[-1] - x, world.g(tried[-1]) - g)][-method.memory :]
        x = tried[-1]


def newton(method, world):
    """x <- x - H^{-1} grad f(x)."""
    x = world.x0
    while True:
        H = sum(world.w[i] * world.hessian(i) for i in range(world.n))
        x = x - np.linalg.solve(H, world.g(x))
        yield x


def giant(method, world):
    """Wang et al. (2018): one exchange for p = mean of H_i^{-1} g, which tries nothing, then trials along it."""
    x, d = world.x0, len(world.x0)
    while True:
        yield x
        H = [world.hessian(i) + method.prox * np.eye(d) for i in range(world.n)]
        p = sum(world.w[i] * np.linalg.solve(H[i], world.g(x)) for i in range(world.n))
        tried = searched(world, x, -p)
        yield from tried
        x = tried[-1]


def dane(method, world):
    """Shamir et al. (2014), (13): the devices' minimisers by their normal equations."""
    x, d = world.x0, len(world.x0)
    while True:
        yield x
        new = 0
        for i in range(world.n):
            H, zero = world.hessian(i) + method.prox * np.eye(d), world.gradient(i, np.zeros(d))
            right = world.gradient(i, x) - world.g(x) + method.prox * x - zero
            new = new + world.w[i] * np.linalg.solve(H, right)
        tried = searched(world, x, new - x)
        yield from tried
        x = tried[-1]


def shed(method, world):
    """Dal Fabbro et al. (2022): q grows by ``vectors`` an exchange, and starts again at Fibonacci distances."""
    d, x, q, k, renewal, near, far = len(world.x0), world.x0, 0, 0, 2, 1, 1
    spectra = [np.linalg.eigh(world.hessian(i) - world.ridge * np.eye(d)) for i in range(world.n)]
    q += method.vectors  # with x^0
    while True:
        k += 1
        H, p_q = world.ridge * np.eye(d), min(q, d)
        for w, (values, V) in zip(world.w, spectra, strict=True):
            values, V = values[::-1], V[:, ::-1]
            after = values[p_q] if p_q < d else 0.0
            H = H + w * (V[:, :p_q] @ np.diag(values[:p_q] - after) @ V[:, :p_q].T + after * np.eye(d))
        if k == renewal:
            q, renewal, near, far = 0, renewal + far, far, near + far
        tried = searched(world, x, -np.linalg.solve(H, world.g(x)))
        yield from tried
        q, x = q + method.vectors * len(tried), tried[-1]
