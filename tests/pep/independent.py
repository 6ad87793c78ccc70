"""Worst cases by another route: no trace, no reduction, no change of basis, and another solver (CVXOPT).

The method's coefficients are found from outside, by answering unit vectors to the real method. Unknown are x^0, every
device's gradients where they are taken, at x* = 0 and its own minimiser; *all* pairs of the interpolation condition
for F(mu, L) are used, as Taylor, Hendrickx and Glineur (2017) print it. What is solved is the dual, one linear matrix
inequality.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ownstep.methods.base import Answer
from ownstep.plan import Devices


@dataclass(frozen=True)
class Reference:
    """The value of the program, and how far apart its two objectives were where the solver stopped, relative to it."""

    value: float
    unsure: float


def probe(method, devices: Devices, rounds: int):
    """What each round asks for, and the last point, as rows over x^0 and everything told: unit vectors answer."""
    n = len(devices)
    width = 1 + rounds * n
    basis, fresh = np.eye(width), 1
    state = method.start(basis[0], devices)
    asks, told = [], []
    for _ in range(rounds):
        ask = method.ask(state)
        x = np.asarray(ask.x)
        asks.append(np.broadcast_to(np.atleast_2d(x), (n, width)) if x.ndim == 1 else x)
        if ask.mix is None:
            gradients = basis[fresh : fresh + n]
            told.append(np.eye(n))
            state = method.tell(state, Answer(gradients=gradients, value=0.0))
            fresh += n
        else:
            told.append(np.asarray(ask.mix, float)[None])
            state = method.tell(state, Answer(sum=basis[fresh], value=0.0))
            fresh += 1
    final = np.asarray(method.point(state))
    shared = final.ndim == 1
    return asks, told, np.broadcast_to(np.atleast_2d(final), (n, width)), shared


def worst_case(method, devices: Devices, rounds: int, r0: float, rstar: float, metric: str) -> Reference:
    """The largest error, in the units asked; the program itself is written for L_max = max(r0, rstar) = 1."""
    a, b = float(devices.L.max()), max(r0, rstar if np.isfinite(rstar) else 0.0)
    asks, told, final, shared = probe(method, devices, rounds)
    n, w, L, mu = len(devices), devices.weights, devices.L / a, devices.mu / a
    tilted, bounded = rstar > 0, 0 < rstar < np.inf
    names = [("x0",)] + [("g", i, k) for k in range(rounds + (metric != "distance")) for i in range(n)]
    names += [("s", i) for i in range(n - 1)] * tilted + [("z", i) for i in range(n)] * bounded
    column = {name: j for j, name in enumerate(names)}
    unit, zero = np.eye(len(names)), np.zeros(len(names))
    tilt = [unit[column["s", i]] if tilted else zero for i in range(n - 1)]
    tilt.append(-sum((w[i] * tilt[i] for i in range(n - 1)), zero) / w[-1])
    atoms = [unit[0]]
    points = [[("*", zero, tilt[i])] for i in range(n)]
    for k in range(rounds):
        for i in range(n):
            points[i].append((k, _row(asks[k][i], atoms), unit[column["g", i, k]]))
        atoms += [sum(c * a * unit[column["g", i, k]] for i, c in enumerate(mix)) for mix in told[k]]
    last = [_row(final[i], atoms) for i in range(n)]
    if metric != "distance":
        for i in range(n):
            points[i].append((rounds, last[i], unit[column["g", i, rounds]]))
    if bounded:
        for i in range(n):
            points[i].append(("own", unit[column["z", i]], zero))
    sizes = np.array([_size(name, L, w, r0 / b, rstar / b) for name in names])  # of what each column holds, roughly
    forms, values = [], []
    index = {(i, name): j for j, (i, name) in enumerate((i, p[0]) for i in range(n) for p in points[i] if p[0] != "*")}
    for i in range(n):
        for p in points[i]:
            for q in points[i]:
                if p is q:
                    continue
                dx, dg = p[1] - q[1], p[2] - q[2]
                rest = np.outer(dg, dg) / L[i] + mu[i] * np.outer(dx, dx) - 2 * mu[i] / L[i] * _sym(dg, dx)
                form = _sym(q[2], dx) + rest / (2 * (1 - mu[i] / L[i]))
                row = np.zeros(len(index))
                for name, sign in ((q[0], 1.0), (p[0], -1.0)):
                    if name != "*":
                        row[index[i, name]] += sign
                form = form * np.outer(sizes, sizes)
                scale = max(np.abs(form).max(), 1e-12)
                forms.append(form / scale)
                values.append(row / scale)
    count = len(forms)
    heads = [np.outer(unit[0], unit[0])] + [np.outer(unit[j], unit[j]) for n_, j in column.items() if n_[0] == "z"]
    target, goal = np.zeros((len(names),) * 2), np.zeros(len(index))
    if metric == "distance":
        target = sum(w[i] * np.outer(x, x) for i, x in enumerate(last)) if not shared else np.outer(last[0], last[0])
    elif metric == "gradient":
        slope = sum(w[i] * unit[column["g", i, rounds]] for i in range(n))
        target = np.outer(slope, slope)
    else:
        for i in range(n):
            goal[index[i, rounds]] = w[i]
    target = target * np.outer(sizes, sizes)
    value, unsure = _solve([*heads, *forms], len(heads), np.array(values).reshape(count, len(index)), target, goal)
    return Reference(value * {"value": a * b**2, "distance": b**2, "gradient": a**2 * b**2}[metric], unsure)


def _row(row, atoms):
    return sum((c * atom for c, atom in zip(row, atoms, strict=False) if c), 0 * atoms[0])


def _size(name, L, w, r0, rstar):
    if name[0] == "s":
        return min(w * L) / w[name[1]] * min(rstar, 1.0)
    return {"x0": r0, "g": L[name[1]] * r0 if len(name) > 1 else 0, "z": rstar}[name[0]]


def _sym(a, b):
    return (np.outer(a, b) + np.outer(b, a)) / 2


def _solve(forms, heads, values, target, goal):
    """min sum(heads) over y >= 0 with sum_r y_r form_r - target >= 0 and the values equal to the goal."""
    from cvxopt import matrix, solvers

    size = max(np.abs(target).max(initial=0), np.abs(goal).max(initial=0)) or 1.0
    total, n = len(forms), len(target)
    cost = matrix(np.concatenate([np.ones(heads), np.zeros(total - heads)]))
    below = np.vstack([-np.eye(total), -np.stack([f.ravel() for f in forms], axis=1)])
    right = np.concatenate([np.zeros(total), -target.ravel() / size])
    equal = np.hstack([np.zeros((values.shape[1], heads)), values.T])
    used = np.abs(equal).max(axis=1) > 0
    dims = {"l": total, "q": [], "s": [n]}
    arguments = [cost, matrix(below), matrix(right), dims]
    if used.any():
        arguments += [matrix(equal[used]), matrix(goal[used] / size)]
    for accuracy in (1e-9, 1e-8, 1e-7, 1e-6):
        options = {"show_progress": False, "abstol": 1e-14, "reltol": accuracy, "feastol": accuracy, "maxiters": 100}
        try:
            answer = solvers.conelp(*arguments, options=options)
        except (ArithmeticError, ValueError):  # it has come as far as it can
            continue
        if answer["status"] == "optimal":
            break
    else:
        return float("nan"), float("inf")
    first, second = answer["primal objective"], answer["dual objective"]
    if first is None or second is None:
        return float("nan"), float("inf")
    infeasible = max(answer["primal infeasibility"] or 0.0, answer["dual infeasibility"] or 0.0)
    middle = (first + second) / 2
    return size * middle, abs(first - second) / abs(middle) + infeasible if middle else float("inf")
