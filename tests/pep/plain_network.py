"""A second formulation of worst cases over networks: every device apart, all pairs, the methods written out again.

One Gram matrix of all devices' vectors in cvxpy; the recursions of the methods are literal copies from their papers. It
shares no line with the library: no kinds, no tilt, no means and differences.
"""

from __future__ import annotations

import itertools
import warnings

import numpy as np

DIGITS = (1e-9, 1e-8, 1e-7)
"""Tolerances of the solver, the next one where it fails."""
SOLVER = "CLARABEL"
"""Or SCS, which is slower and gives an answer where Clarabel, on long programs, gives none."""
LIMIT: float | None = None
"""Seconds of one solve."""
AVERAGES = False
"""Whether an average W X is an unknown itself, not what is unknown of it; SCS is faster then, on wide classes."""


class NoAnswer(Exception):
    """The solver stopped before its tolerance."""


class Space:
    """Names unit vectors as they are needed; vectors are dictionaries."""

    def __init__(self):
        self.count = 0

    def new(self):
        self.count += 1
        return {self.count - 1: 1.0}


def add(*terms):
    out = {}
    for factor, vector in terms:
        for key, value in vector.items():
            out[key] = out.get(key, 0.0) + factor * value
    return out


def mean(X):
    return add(*((1 / len(X), x) for x in X))


class Plain:
    """Collects the conditions of one worst case."""

    def __init__(self, L, mu, weights, rstar, lo, hi, each_round=False, gstar=None, steep=None):
        self.steep = steep
        self.L, self.mu, self.w, self.N = L, mu, weights, len(L)
        self.lo, self.hi, self.each_round = lo, hi, each_round
        self.space, self.gap = Space(), []
        self.triples = [[] for _ in L]  # (x, g, name of f)
        self.values = 0
        self.mixed = {}
        self.equal, self.round = [], 0
        slopes = [self.space.new() for _ in range(self.N - 1)]
        last = add(*((-weights[i] / weights[-1], s) for i, s in enumerate(slopes)))
        self.star = [*slopes, last]
        self.own = []
        for i in range(self.N):
            self.triples[i].append(({}, self.star[i], self.value()))
            if rstar > 0 and np.isfinite(rstar):
                z = self.space.new()
                self.own.append(z)
                self.triples[i].append((z, {}, self.value()))
        self.rstar, self.gstar = rstar, gstar

    def value(self):
        self.values += 1
        return self.values - 1

    def gradients(self, X):
        G = []
        for i, x in enumerate(X):
            g = self.space.new()
            self.triples[i].append((x, g, self.value()))
            G.append(g)
        return G

    def shares(self, X):
        """N w_i grad f_i(x_i)."""
        return [add((self.N * self.w[i], g)) for i, g in enumerate(self.gradients(X))]

    def W(self, X):
        """A new stack Y = mean + c (X - mean) + h E with c, h the middle and half the width of the spectrum.

        What is not known of W is E, whose size is that of X: with a narrow spectrum Y itself hardly differs from what
        is known, and a solver's tolerance would let it differ by more.
        """
        m, E = mean(X), []
        if self.lo < self.hi:
            E = [self.space.new() for _ in range(self.N - 1)]
            E.append(add(*((-1, e) for e in E)))
        c, h = (self.lo + self.hi) / 2, (self.hi - self.lo) / 2
        Y = [add((1 - c, m), (c, x), *([(h, E[i])] if E else [])) for i, x in enumerate(X)]
        if E and AVERAGES:
            Y = [add((1, m), (1, e)) for e in E]
        if E:
            self.mixed.setdefault(self.round if self.each_round else 0, []).append((X, Y))
        return Y

    def known(self, products):
        """(X, E) without their means, for each product: E'E <= X'X and X'E symmetric is what is known of them."""
        c, h, rows = (self.lo + self.hi) / 2, (self.hi - self.lo) / 2, []
        for X, Y in products:
            x = [add((1, a), (-1, mean(X))) for a in X]
            y = [add((1, b), (-1, mean(Y))) for b in Y]
            e = [add((1 / h, b), (-c / h, a)) for a, b in zip(x, y, strict=True)]
            rows.append((x, [{key: v for key, v in part.items() if abs(v) > 1e-12} for part in e]))
        return rows

    def solve(self, limits, goal, goal_values):
        """max of <goal> + goal_values, with limits [(list of (factor, vector) squares, bound)]."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import cvxpy as cp

            n = self.space.count
            G = cp.Variable((n, n), PSD=True)
            F = cp.Variable(self.values)

            def row(v):
                out = np.zeros(n)
                for key, value in v.items():
                    out[key] = value
                return out

            def inner(a, b):
                a, b = row(a), row(b)
                return cp.sum(cp.multiply(G, (np.outer(a, b) + np.outer(b, a)) / 2))

            rules = []
            for i, found in enumerate(self.triples):
                ratio = self.mu[i] / self.L[i]
                if self.steep is not None:  # convex, with subgradients at most so long
                    rules += [inner(g, g) <= self.steep[i] ** 2 for _, g, _ in found if g]
                    for (x, _, f), (y, h, e) in itertools.permutations(found, 2):
                        rules.append(F[f] - F[e] >= inner(h, add((1, x), (-1, y))))
                    continue
                for (x, g, f), (y, h, e) in itertools.permutations(found, 2):
                    dx, dg = add((1, x), (-1, y)), add((1, g), (-1, h))
                    square = inner(dg, dg) / self.L[i] + self.mu[i] * inner(dx, dx) - 2 * ratio * inner(dg, dx)
                    rules.append(F[f] - F[e] >= inner(h, dx) + square / (2 * (1 - ratio)))
            for z in self.own:
                rules.append(inner(z, z) <= self.rstar**2)
            if self.rstar == 0:
                for s in self.star:
                    rules.append(inner(s, s) == 0)
            if self.gstar is not None:
                total = sum(inner(s, s) * (self.N * w) ** 2 for s, w in zip(self.star, self.w, strict=True))
                rules.append(total / self.N <= self.gstar**2)
            for products in self.mixed.values():
                rows, t = self.known(products), len(products)

                def form(left, right):
                    return sum(inner(a, b) for a, b in zip(left, right, strict=True))

                matrix = cp.Variable((t, t), symmetric=True)
                for k in range(t):
                    for j in range(k, t):
                        (x, e), (y, d) = rows[k], rows[j]
                        rules.append(matrix[k, j] == form(x, y) - form(e, d))
                        if k < j:
                            rules.append(form(x, d) == form(y, e))
                rules.append(matrix >> 0)
            for squares, bound in limits:
                rules.append(sum(factor * inner(v, v) for factor, v in squares) <= bound)
            total = sum(factor * inner(v, v) for factor, v in goal)
            total = total + sum(factor * F[f] for factor, f in goal_values)
            problem = cp.Problem(cp.Maximize(total), rules)
            for digits in DIGITS:
                asked = {"eps": digits, "max_iters": 1_000_000}
                if SOLVER == "CLARABEL":  # relative to the answer, which may itself be 1e-4
                    asked = {"tol_gap_abs": 1e-5 * digits, "tol_gap_rel": digits, "tol_feas": digits}
                if LIMIT is not None:
                    asked["time_limit" if SOLVER == "CLARABEL" else "time_limit_secs"] = LIMIT
                try:
                    problem.solve(solver=SOLVER, **asked)
                except cp.error.SolverError:
                    continue
                if problem.status == "optimal":  # and not "optimal_inaccurate", which may be off in the fourth digit
                    return float(problem.value)
            raise NoAnswer(f"{SOLVER} reaches no tolerance of {DIGITS}: {problem.status}")


def rounds_of(name, order, p, X, steps, rounds):
    """The stacks X^0, ..., X^K of a method, in the letters of its paper."""
    N, stacks = p.N, [X]

    def minus(A, B):
        return [add((1, a), (-1, b)) for a, b in zip(A, B, strict=True)]

    def plus(A, B):
        return [add((1, a), (1, b)) for a, b in zip(A, B, strict=True)]

    def stepped(A, G):
        return [add((1, a), (-steps[i], g)) for i, (a, g) in enumerate(zip(A, G, strict=True))]

    def mixed(A):
        agree = all(not any(abs(v) > 1e-12 for v in add((1, a), (-1, A[0])).values()) for a in A)
        return A if agree else p.W(A)

    old = None
    for k in range(rounds):
        p.round = k
        G = p.shares(X)
        if name == "dgd":
            new = mixed(stepped(X, G)) if order == "atc" else stepped(mixed(X), G)
        elif name == "extra":
            WX = mixed(X)
            if k == 0:
                new = stepped(WX, G)
            else:  # (I + W) x^{k+1} - (I + W)/2 x^k - alpha (g^{k+1} - g^k)
                past, past_WX, past_G = old
                half = [add((0.5, a), (0.5, b)) for a, b in zip(past, past_WX, strict=True)]
                new = stepped(minus(plus(X, WX), half), minus(G, past_G))
            old = (X, WX, G)
        elif name == "nids":
            psi = stepped(X, G)
            ahead = psi if k == 0 else minus(plus(psi, X), old)
            WA, top = mixed(ahead), max(steps)
            new = [add((1 - steps[i] / (2 * top), ahead[i]), (steps[i] / (2 * top), WA[i])) for i in range(N)]
            old = psi
        else:
            if order == "cta":
                Y = G if k == 0 else plus(mixed(old[0]), minus(G, old[1]))
                new = stepped(mixed(X), Y)
            else:
                Y = mixed(G if k == 0 else plus(old[0], minus(G, old[1])))
                new = mixed(stepped(X, Y))
            old = (Y, G)
        X = new
        stacks.append(X)
    return stacks


def worst_case(
    name,
    order,
    L,
    mu,
    weights,
    steps,
    rounds,
    r0,
    rstar,
    metric,
    lo,
    hi,
    each_round=False,
    points="same",
    gstar=None,
    steep=None,
):
    """The worst case over the spectral class with every device kept apart."""
    p = Plain(L, mu, weights, rstar, lo, hi, each_round, gstar, steep)
    if points == "same":
        x0 = p.space.new()
        X = [x0] * p.N
        limits = [([(1.0, x0)], r0**2)]
    else:
        X = [p.space.new() for _ in range(p.N)]
        limits = [([(1.0, x)], r0**2) for x in X]
        if points == "mean":
            limits = [([(1 / p.N, x) for x in X], r0**2)]
    stacks = rounds_of(name, order, p, X, steps, rounds)
    final = stacks[-1]
    kind, _, where = metric.partition("_")
    if metric == "distance_devices":
        return p.solve(limits, [(1 / p.N, x) for x in final], [])
    if metric == "consensus":
        return p.solve(limits, [(1 / p.N, add((1, x), (-1, mean(final)))) for x in final], [])
    point = mean(final)
    if where == "average":
        point = mean([mean(X) for X in stacks])
    if where.startswith("worst"):
        point = final[int(where[5:])]
    if kind == "distance":
        return p.solve(limits, [(1.0, point)], [])
    G = p.gradients([point] * p.N)
    if kind == "gradient":
        return p.solve(limits, [(1.0, add(*((w, g) for w, g in zip(weights, G, strict=True))))], [])
    values = [(weights[i], p.triples[i][-1][2]) for i in range(p.N)]
    values += [(-weights[i], p.triples[i][0][2]) for i in range(p.N)]
    return p.solve(limits, [], values)
