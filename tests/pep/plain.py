"""A second formulation, written plainly from the paper's appendix: no reduction, no tilt, no change of basis.

P = [x0, g^0 ... g^K, g_own, g*, x_own, x*], one column per device for each; G = P^T P; F one value per device for each.
All pairs are used. Written in cvxpy so that it shares no line with the library.

The appendix states that vectors vanish as <G, v v^T> = 0. No matrix with that property is positive definite, which
costs a solver half its digits (``literal=True``); otherwise the same vectors are set to zero where they are written.
``printed=True`` uses the matrix A as the appendix prints it, with (1 - mu/L)/2 where the interpolation condition has
1/(2(1 - mu/L)).
"""

from __future__ import annotations

import warnings

import numpy as np


def worst_case(L, mu, weights, mixes, r0, rstar, metric="value", printed=False, literal=False):
    """Worst case of x^{k+1} = x^k - sum_i mixes[k][i] g_i^k."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import cvxpy as cp

        N, K = len(L), len(mixes)
        labels = [*range(K + 1), "own", "*"]
        position = {}
        for name in ["x0", *(("g", k) for k in labels), "x_own", "x*"]:
            for i in range(N):
                position[name, i] = len(position)
        unit = np.eye(len(position))
        G = cp.Variable((len(position), len(position)), PSD=True)
        F = {(k, i): cp.Variable() for k in labels for i in range(N)}
        g = {(k, i): unit[position[("g", k), i]] for k in labels for i in range(N)}
        x = {("own", i): unit[position["x_own", i]] for i in range(N)}
        x |= {("*", i): unit[position["x*", i]] for i in range(N)}
        for i in range(N):
            x[0, i] = unit[position["x0", i]]
        if not literal:  # g_own = 0, one x0 and one x* for all, sum_i w_i g_i* = 0
            for i in range(N):
                g["own", i] = np.zeros(len(position))
                x[0, i], x["*", i] = x[0, 0], x["*", 0]
            g["*", N - 1] = -sum(weights[i] * g["*", i] for i in range(N - 1)) / weights[-1] + 0 * unit[0]
        for k in range(K):
            move = sum(mixes[k][j] * g[k, j] for j in range(N))
            for i in range(N):
                x[k + 1, i] = x[k, i] - move

        def inner(a, b):
            return cp.sum(cp.multiply(G, (np.outer(a, b) + np.outer(b, a)) / 2))

        rules = []
        for i in range(N):
            ratio = mu[i] / L[i]
            factor = (1 - ratio) / 2 if printed else 1 / (2 * (1 - ratio))
            for p in labels:
                for q in labels:
                    if p == q:
                        continue
                    dx, dg = x[p, i] - x[q, i], g[p, i] - g[q, i]
                    if printed:
                        rest = factor * (inner(dg, dg) / L[i] + mu[i] * inner(dx, dx)) - mu[i] * (L[i] - mu[i]) / L[
                            i
                        ] ** 2 * inner(dx, dg)
                    else:
                        rest = factor * (inner(dg, dg) / L[i] + mu[i] * inner(dx, dx) - 2 * ratio * inner(dg, dx))
                    rules.append(F[p, i] - F[q, i] >= inner(g[q, i], dx) + rest)
        if literal:
            total = sum(weights[i] * g["*", i] for i in range(N))
            rules.append(inner(total, total) == 0)
            for i in range(N):
                rules.append(inner(g["own", i], g["own", i]) == 0)
                rules.append(inner(x[0, 0] - x[0, i], x[0, 0] - x[0, i]) == 0)
                rules.append(inner(x["*", 0] - x["*", i], x["*", 0] - x["*", i]) == 0)
        for i in range(N):
            rules.append(inner(x[0, i] - x["*", i], x[0, i] - x["*", i]) <= r0**2)
            rules.append(inner(x["own", i] - x["*", i], x["own", i] - x["*", i]) <= rstar**2)
        if metric == "value":
            goal = sum(weights[i] * (F[K, i] - F["*", i]) for i in range(N))
        elif metric == "distance":
            goal = inner(x[K, 0] - x["*", 0], x[K, 0] - x["*", 0])
        else:
            final = sum(weights[i] * g[K, i] for i in range(N))
            goal = inner(final, final)
        problem = cp.Problem(cp.Maximize(goal), rules)
        problem.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
        return float(problem.value)
