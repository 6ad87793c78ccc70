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

import hashlib
import json
import math
import re
import sys
from fractions import Fraction
from operator import mul
from typing import Any

FORMAT = "ownstep certificate 2"
MOST_BYTES, MOST_DIGITS, MOST_UNKNOWNS = 50_000_000, 1_000, 300  # beyond these a check would take too long; refused
MOST_BITS, MOST_WORK = 20_000, 5 * 10**11  # of all denominators together; of an elimination, some minutes
TINY = 2.0**-44  # what floats may get wrong in one step of a factorisation, with room to spare
ONE, STAR, OWN = Fraction(1), "*", "own"  # the points x* and z_i; the others are the numbers of the rounds
METRICS = {"value": "f(x_K) - f(x*)", "distance": "||x_K - x*||^2", "gradient": "||grad f(x_K)||^2"}
Vector = dict[Any, Fraction]  # coefficients by unknown; a form has them by pairs of unknowns
Kind = tuple[Fraction, Fraction, Fraction, Fraction, tuple[Fraction, ...]]  # count, their weight, mu, L, steps by round


def need(condition: bool, why: str) -> None:
    """Refuse a certificate that does not prove what it states."""
    if not condition:
        raise ValueError(why)


def fields(data: Any, *names: str) -> list[Any]:
    """The entries of an object that has these names and no others."""
    need(type(data) is dict and {*data} == {*names}, f"an object must have the fields {', '.join(names)} and no others")
    return [data[name] for name in names]


def exact(text: Any) -> Fraction:
    """A number as it is written, "-1/3" or "2": no float, which is not what it reads as, and no power of ten."""
    need(type(text) is str and len(text) <= MOST_DIGITS, "a number must be a text of a reasonable length")
    need(re.fullmatch(r"-?[0-9]+(/0*[1-9][0-9]*)?", text) is not None, f"{text!r} is no exact number")
    return Fraction(text)


def together(data: Any, found: int = 1) -> int:
    """The common denominator of all numbers; where it is long, sums of a few of them take hours."""
    if type(data) is str and re.fullmatch(r"-?[0-9]+/[0-9]+", data):
        found = math.lcm(found, exact(data).denominator)
        need(found.bit_length() <= MOST_BITS, "the numbers have too many different denominators to be checked")
    for part in data.values() if type(data) is dict else data if type(data) is list else ():
        found = together(part, found)
    return found


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
    bits = max((abs(value).bit_length() for row in rows for value in row), default=0)
    need(len(rows) ** 4 * bits <= MOST_WORK, "the slack takes too long to be decided")
    while rows:
        (pivot, *top), rows = rows[0], rows[1:]
        if pivot < 0 or (pivot == 0 and any(top)):
            return False
        factor, last, before = pivot or last, pivot or last, last
        rows = [[(factor * a - head * b) // before for a, b in zip(row, top, strict=True)] for head, *row in rows]
    return True


def positive(form: Vector) -> bool:
    """Is a form S plainly positive? Seen fast, through floats that need not be trusted; elimination decides the rest.

    With D of powers of two, B is whole numbers at most 1 below 2^120 D S D, by rows up to the diagonal.
    """
    names = sorted({i for (i, _), value in form.items() if value})
    if any(form.get((i, i), 0) <= 0 for i in names):
        return False
    size = {i: (form[i, i].numerator.bit_length() - form[i, i].denominator.bit_length()) // 2 for i in names}
    rows, factor = [], list[list[float]]()
    for k, i in enumerate(names):
        entries = [(form.get((i, j), 0 * ONE), 120 - size[i] - size[j]) for j in names[: k + 1]]
        rows.append([(t.numerator << max(e, 0)) // (t.denominator << max(-e, 0)) for t, e in entries])
        factor.append([])  # of Cholesky, for a little less than B
        for row, entry in zip(factor, rows[-1], strict=True):
            own = row is factor[-1]
            if abs(entry) >> 124:  # the diagonal is less
                return False
            rest = entry / 2**120 - sum(map(mul, row, factor[-1])) - own * len(names) * TINY
            if own and not rest > 0:
                return False
            factor[-1].append(math.sqrt(rest) if own else rest / row[-1])
    return dominant(rows, [[int(r * 2.0**60) for r in row] for row in factor])


def dominant(rows: list[list[int]], factor: list[list[int]]) -> bool:
    """Are the diagonals of B - R R^T at least n plus the rest of their row? Then B plus 0 to 1 each is positive."""
    missing = [len(rows)] * len(rows)
    for i, row in enumerate(rows):
        for j, entry in enumerate(row):
            rest = entry - sum(map(mul, factor[i], factor[j]))
            missing[i] += abs(rest) if j < i else -rest
            missing[j] += abs(rest) if j < i else 0
    return max(missing, default=0) <= 0


def read_method(rounds: Any, final: Any, kinds: int) -> tuple[list[list[Fraction]], list[list[Fraction]], str]:
    """The points asked for and the last one, the steps of each round by kind, and the digest of both."""
    pairs = [fields(r, "ask", "steps") for r in rounds]
    points = [[exact(a) for a in point] for point in [*(ask for ask, _ in pairs), final]]
    steps = [[exact(t) for t in row] for _, row in pairs]
    for k, point in enumerate(points):  # x0 once: a method does not know where the origin is
        need(1 <= len(point) <= k + 1 and point[0] == 1, f"round {k} is not x0 plus sums told before it")
    need(all(len(row) == kinds for row in steps), "a round must have one step for each kind of device")
    told = json.dumps([[[str(a) for a in row] for row in table] for table in (points, steps)])
    return points, steps, hashlib.sha256(told.encode()).hexdigest()


def read_kinds(devices: Any, steps: list[list[Fraction]], rstar: Any) -> tuple[list[Kind], bool]:
    """The functions to reason about, and whether their tilts matter; where not, those of equal steps are pooled."""
    kinds: list[Kind] = []
    for i, (n, *numbers) in enumerate(fields(d, "count", "weight", "mu", "L") for d in devices):
        w, mu, L = map(exact, numbers)
        need(type(n) is int and n >= 1 and w > 0 and 0 <= mu <= L and L > 0, f"the devices of kind {i}")
        kinds.append((n * ONE, n * w, mu, L, tuple(row[i] for row in steps)))
    need(sum(kind[1] for kind in kinds) == 1, "the weights must sum to one")
    need(len(kinds) * (len(steps) + 3) <= MOST_UNKNOWNS, "the statement is too large to be checked")
    if rstar != 0 and len({kind[4] for kind in kinds}) > 1:
        return kinds, True
    pools: dict[Any, Vector] = {}
    for _, w, mu, L, row in kinds:
        pools[row] = total((1, pools.get(row, {})), (w, {"w": ONE, "mu": mu, "L": L}))
    return [(ONE, p["w"], p.get("mu", 0) / p["w"], p["L"] / p["w"], row) for row, p in pools.items()], False


def run(
    points: list[list[Fraction]], kinds: list[Kind], tilted: bool
) -> tuple[dict[Any, Vector], dict[Any, Vector], Vector]:
    """The method run on the unknowns: x and v of each kind at each point, those of differences, and the last grad f."""
    every, atoms = range(len(kinds)), [{("x", 0): ONE}]
    rows: dict[Any, Vector] = {(name, c, STAR): {} for name in "xv" for c in every}
    tilt = [{("s", c): ONE} if tilted else {} for c in every[:-1]]
    tilt.append(total(*((-kinds[c][1] / kinds[-1][1], tilt[c]) for c in every[:-1])))
    for k, point in enumerate(points):
        x = total(*zip(point, atoms, strict=False))
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
    apart: dict[Any, Vector] = {("v", c, k): {("v", c, k): ONE} for c in every for k in range(len(points))}
    for c, (_, _, mu, L, _) in enumerate(kinds if tilted else ()):
        for found, own in ((rows, tilt[c]), (apart, {("s", c): ONE})):
            found["x", c, OWN] = {("z", c): ONE} if mu < L else total((-1 / mu, own))
            found["v", c, OWN] = total((-1, own), (-mu, found["x", c, OWN]))
    return rows, apart, atoms[-1]


def check(certificate: Any) -> Fraction:
    """The bound that the certificate proves; raises ValueError where it proves nothing."""
    form_of, s, bound, m = fields(certificate, "format", "statement", "bound", "multipliers")
    need(form_of == FORMAT, f"the format must be {FORMAT!r}")
    devices, method, rounds, final, r0, rstar, metric = fields(
        s, "devices", "method", "rounds", "final", "r0", "rstar", "metric"
    )
    start, own, conditions = fields(m, "start", "own", "conditions")
    together([s, bound, m])
    bound, r0, rstar = exact(bound), exact(r0), math.inf if rstar == "inf" else exact(rstar)
    tau, rho, end, form = exact(start), [exact(t) for t in own], len(rounds), Vector()
    need(r0 > 0 and rstar >= 0 and metric in METRICS, "the radii, or the metric")
    points, steps, digest = read_method(rounds, final, len(devices))
    name, stated = fields(method, "name", "digest")
    need(type(name) is str and stated == digest, "the digest is not that of the steps, or the name is no text")
    kinds, tilted = read_kinds(devices, steps, rstar)
    need(min([tau, *rho]) >= 0 and len(rho) == tilted * len(kinds), "the multipliers of the radii")
    rows, apart, slope = run(points, kinds, tilted)
    values: Vector = {(c, end): -k[1] for c, k in enumerate(kinds) if metric == "value" and k[3] > k[2]}
    need(len(conditions) <= len(kinds) * (end + 3) ** 2, "there are more conditions than pairs of points")
    for c, p, q, text in conditions:  # the form is in symbols: ("x", c, p) and ("v", c, p) is kind c at point p
        need(type(c) is int and {type(p), type(q)} <= {int, str}, f"the condition {c}, {p}, {q} names no points")
        need(("v", c, p) in rows and ("v", c, q) in rows and p != q, f"the condition {c}, {p}, {q} names no points")
        t, span, turn = exact(text), kinds[c][3] - kinds[c][2], {("v", c, p): ONE, ("v", c, q): -ONE}
        need(t >= 0 and span > 0, f"the condition {c}, {p}, {q}, {text}")
        values[c, q], values[c, p] = values.get((c, q), 0) + t, values.get((c, p), 0) - t
        add(form, {("v", c, q): ONE}, {("x", c, p): ONE, ("x", c, q): -ONE}, t)
        add(form, turn, turn, t / (2 * span))
    for c, t in enumerate(rho):
        add(form, {("x", c, OWN): ONE}, {("x", c, OWN): ONE}, t)
    forms = [expanded(form, rows)]  # then differences: their points are shared, so x = 0, but at their own minimisers
    for twins in (c for c, kind in enumerate(kinds) if kind[0] > 1):
        forms.append(expanded({at: t for at, t in form.items() if at[0][1] == twins}, apart))
    add(forms[0], {("x", 0): ONE}, {("x", 0): ONE}, tau)
    error = slope if metric == "gradient" else rows["x", 0, end]
    add(forms[0], error, error, -sum((k[1] * k[2] for k in kinds), 0 * ONE) / 2 if metric == "value" else -ONE)
    need(not any(value for (_, point), value in values.items() if point != STAR), "the values do not cancel")
    need(all(positive(each) or semidefinite(each) for each in forms), "the slack is not positive semidefinite")
    need(tau * r0**2 + (sum(rho) * rstar**2 if tilted else 0) <= bound, "the multipliers do not prove the bound stated")
    return bound


def read(path: str) -> Any:
    """A certificate from its file: of a reasonable size, and no name twice, which could be read in two ways."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        need(len(dict(pairs)) == len(pairs), f"a name stands twice among {[name for name, _ in pairs]}")
        return dict(pairs)

    with open(path, "rb") as file:
        text = file.read(MOST_BYTES + 1)
    need(len(text) <= MOST_BYTES, f"the file is larger than {MOST_BYTES} bytes")
    return json.loads(text.decode("utf-8"), object_pairs_hook=once)


def describe(certificate: Any) -> str:
    """What a certificate that was checked proves, everything it depends on included."""
    s, bound = certificate["statement"], Fraction(certificate["bound"])
    number = float(bound) if Fraction(float(bound)) >= bound else math.nextafter(float(bound), math.inf)
    kinds = "; ".join(
        f"{d['count']} with weight {d['weight']} and f_i in F(mu={d['mu']}, L={d['L']})" for d in s["devices"]
    )
    return (
        f"{METRICS[s['metric']]} <= {number!r} after K = {len(s['rounds'])} rounds of the method with digest "
        f"{s['method']['digest']} (called {s['method']['name']!r}, which is not checked), for f = sum_i w_i f_i over "
        f"the devices [{kinds}], ||x_0 - x*|| <= {s['r0']}, ||x_i* - x*|| <= {s['rstar']}"
    )


if __name__ == "__main__":
    data = read(sys.argv[1])
    print("proved: worst case <=", check(data))
    print(describe(data))
