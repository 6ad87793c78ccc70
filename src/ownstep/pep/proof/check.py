"""Check a certified worst case with Python's fractions and nothing else: ``python check.py certificate.json``.

A certificate holds a *statement* (devices by kind, what the method does, radii, metric) and multipliers; all else is
derived here. Unknown are x0; v, the gradient of h_i = f_i - f_i(x*) - <s_i, .> less mu x; the tilts s_i = grad f_i(x*),
with sum_i w_i s_i = 0; the minimisers z_i of f_i, where v = -s_i - mu z_i. Points are x0 plus sums of gradients, so let
x* = 0. With phi = h_i - mu/2 ||x||^2, ||x0|| <= r0, ||z_i|| <= rstar and, for points p and q (Taylor et al., 2017),

    phi_q - phi_p + <v_q, x_p - x_q> + ||v_p - v_q||^2 / (2 (L - mu)) <= 0.

Times numbers >= 0 and added up they prove the bound, if the phi cancel and the form left is semidefinite. Devices of a
kind enter by their mean inequalities: with u_i = u + d_i, sum_i d_i = 0, the mean of products is that of u plus that of
the d_i, one more form. Where tilts vanish (rstar = 0) or cancel (equal steps), those of equal steps act as their mean.
"""

import json
import math
import sys
from fractions import Fraction
from typing import Any

ONE, STAR, OWN = Fraction(1), "*", "own"  # the points x* and z_i; the others are the numbers of the rounds
Vector = dict[Any, Fraction]  # coefficients by unknown; a form has them by pairs of unknowns
Kind = tuple[Fraction, Fraction, Fraction, Fraction, tuple[Fraction, ...]]  # count, their weight, mu, L, steps by round


def need(condition: bool, why: str) -> None:
    """Refuse a certificate that does not prove what it states."""
    if not condition:
        raise ValueError(why)


def exact(text: Any) -> Fraction:
    """A number as it is written, "-1/3" or 2: no float, which is not what it reads as, and no power of ten."""
    need(type(text) in (int, str) and "e" not in str(text).lower(), f"{text!r} is no exact number")
    return Fraction(text)


def total(*terms: tuple[Any, Vector]) -> Vector:
    """Sum of factor times vector."""
    out: Vector = {}
    for name, term in ((name, factor * value) for factor, vector in terms for name, value in vector.items()):
        out[name] = out.get(name, 0) + term
    return {name: value for name, value in out.items() if value}


def add(form: Vector, a: Vector, b: Vector, factor: Fraction) -> None:
    """To a quadratic form, the symmetric part of factor a b^T."""
    for (i, p), (j, q) in ((one, other) for one in a.items() for other in b.items()):
        for at in ((i, j), (j, i)):
            form[at] = form.get(at, 0) + factor * p * q / 2


def expanded(form: Vector, rows: dict[Any, Vector]) -> Vector:
    """A form in symbols, each replaced by its row over the unknowns; none stands for zero."""
    out: Vector = {}
    for i in {i for i, _ in form}:
        add(out, rows.get(i, {}), total(*((t, rows.get(j, {})) for (a, j), t in form.items() if a == i)), ONE)
    return out


def semidefinite(form: Vector) -> bool:
    """Is a form positive semidefinite? Elimination without fractions (Bareiss); pivots are leading minors."""
    names, last, common = sorted({i for i, _ in form}), 1, math.lcm(*(value.denominator for value in form.values()))
    rows = [[int(form.get((i, j), 0) * common) for j in names] for i in names]
    while rows:
        (pivot, *top), rows = rows[0], rows[1:]
        if pivot < 0 or (pivot == 0 and any(top)):
            return False
        factor, last, before = pivot or last, pivot or last, last
        rows = [[(factor * a - head * b) // before for a, b in zip(row, top, strict=True)] for head, *row in rows]
    return True


def read_kinds(s: Any, rstar: Any) -> tuple[list[Kind], bool]:
    """The functions to reason about, and whether their tilts matter; where not, those of equal steps are pooled."""
    kinds: list[Kind] = []
    for i, d in enumerate(s["devices"]):
        n, w, mu, L = (exact(d[key]) for key in ("count", "weight", "mu", "L"))
        need(n >= 1 and n == int(n) and w > 0 and 0 <= mu <= L and L > 0, f"the devices of kind {i}")
        kinds.append((n, n * w, mu, L, tuple(exact(r["steps"][i]) for r in s["rounds"])))
    if rstar != 0 and len({kind[4] for kind in kinds}) > 1:
        return kinds, True
    pools: dict[Any, Vector] = {}
    for _, w, mu, L, steps in kinds:
        pools[steps] = total((1, pools.get(steps, {})), (w, {"w": ONE, "mu": mu, "L": L}))
    return [(ONE, p["w"], p.get("mu", 0) / p["w"], p["L"] / p["w"], steps) for steps, p in pools.items()], False


def run(s: Any, kinds: list[Kind], tilted: bool) -> tuple[dict[Any, Vector], dict[Any, Vector], Vector]:
    """The method run on the unknowns: x and v of each kind at each point, those of differences, and the last grad f."""
    every, atoms = range(len(kinds)), [{("x", 0): ONE}]
    rows: dict[Any, Vector] = {(name, c, STAR): {} for name in "xv" for c in every}
    tilt = [{("s", c): ONE} if tilted else {} for c in every[:-1]]
    tilt.append(total(*((-kinds[c][1] / kinds[-1][1], tilt[c]) for c in every[:-1])))
    for k, point in enumerate([r["ask"] for r in s["rounds"]] + [s["final"]]):
        need(1 <= len(point) <= len(atoms) and exact(point[0]) == 1, f"round {k} is not x0 plus sums told before it")
        x = total(*((exact(a), atom) for a, atom in zip(point, atoms, strict=False)))
        mix = [weight * steps[k] if steps[k:] else weight for _, weight, _, _, steps in kinds]
        solved, slopes = next((c for c in every if mix[c] and kinds[c][3] > kinds[c][2]), None), [Vector()] * len(every)
        for c in sorted(every, key=lambda c: c == solved):  # one v makes room for the sum u, so that numbers stay short
            mu, L, known = kinds[c][2], kinds[c][3], total((kinds[c][2], x), (1, tilt[c]))
            if c == solved:
                slopes[c] = total((1 / mix[c], {("u", k): ONE}), *((-mix[j] / mix[c], slopes[j]) for j in every))
            else:
                slopes[c] = total((1, known), (1, {("v", c, k): ONE} if mu < L else {}))
            rows["x", c, k], rows["v", c, k] = x, total((1, slopes[c]), (-1, known))
        atoms.append(total(*zip(mix, slopes, strict=True)))  # after the last point, with mix = weights, this is grad f
    apart: dict[Any, Vector] = {("v", c, k): {("v", c, k): ONE} for c in every for k in range(len(s["rounds"]) + 1)}
    for c, (_, _, mu, L, _) in enumerate(kinds if tilted else ()):
        for found, own in ((rows, tilt[c]), (apart, {("s", c): ONE})):
            found["x", c, OWN] = {("z", c): ONE} if mu < L else total((-1 / mu, own))
            found["v", c, OWN] = total((-1, own), (-mu, found["x", c, OWN]))
    return rows, apart, atoms[-1]


def check(certificate: Any) -> Fraction:
    """The bound that the certificate proves; raises ValueError where it proves nothing."""
    s, m, bound = certificate["statement"], certificate["multipliers"], exact(certificate["bound"])
    r0, rstar = exact(s["r0"]), math.inf if s["rstar"] == "inf" else exact(s["rstar"])
    tau, rho, end, form = exact(m["start"]), [exact(t) for t in m["own"]], len(s["rounds"]), Vector()
    kinds, tilted = read_kinds(s, rstar)
    need(r0 > 0 and rstar >= 0 and s["metric"] in ("value", "distance", "gradient"), "the radii, or the metric")
    need(min([tau, *rho]) >= 0 and len(rho) == tilted * len(kinds), "the multipliers of the radii")
    rows, apart, slope = run(s, kinds, tilted)
    values: Vector = {(c, end): -k[1] for c, k in enumerate(kinds) if s["metric"] == "value" and k[3] > k[2]}
    for c, p, q, text in m["conditions"]:  # the form is in symbols: ("x", c, p) and ("v", c, p) is kind c at point p
        t, span, turn = exact(text), kinds[c][3] - kinds[c][2], {("v", c, p): ONE, ("v", c, q): -ONE}
        need(t >= 0 and span > 0 and p != q and {*turn} <= {*rows}, f"the condition {c}, {p}, {q}, {text}")
        values[c, q], values[c, p] = values.get((c, q), 0) + t, values.get((c, p), 0) - t
        add(form, {("v", c, q): ONE}, {("x", c, p): ONE, ("x", c, q): -ONE}, t)
        add(form, turn, turn, t / (2 * span))
    for c, t in enumerate(rho):
        add(form, {("x", c, OWN): ONE}, {("x", c, OWN): ONE}, t)
    forms = [expanded(form, rows)]  # then differences: their points are shared, so x = 0, but at their own minimisers
    for twins in (c for c, kind in enumerate(kinds) if kind[0] > 1):
        forms.append(expanded({at: t for at, t in form.items() if at[0][1] == twins}, apart))
    add(forms[0], {("x", 0): ONE}, {("x", 0): ONE}, tau)
    error = slope if s["metric"] == "gradient" else rows["x", 0, end]
    add(forms[0], error, error, -sum((k[1] * k[2] for k in kinds), 0 * ONE) / 2 if s["metric"] == "value" else -ONE)
    need(not any(value for (_, point), value in values.items() if point != STAR), "the values do not cancel")
    need(all(map(semidefinite, forms)), "the slack is not positive semidefinite")
    need(tau * r0**2 + (sum(rho) * rstar**2 if tilted else 0) <= bound, "the multipliers do not prove the bound stated")
    return bound


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        data = json.load(file, object_pairs_hook=lambda p: dict(p) if len(dict(p)) == len(p) else sys.exit("twice"))
    print("proved: worst case <=", proved := check(data), "=", float(proved))
