"""Check a worst case over networks or with local steps, with fractions alone: ``python check_network.py proof.json``.

A certificate holds a *statement* and multipliers; all else is derived here. The statement lists what the devices do, in
order: each step takes every device's gradient at a point, or averages vectors with the mixing matrix W, and its result
is one new vector per device, an *atom*. A vector of the devices is, kind by kind, numbers times a device's own atoms
plus numbers times the means of the atoms of kinds. With x* = 0, s_i = grad f_i(x*), v = gradient - mu x - s_i,

    phi_q - phi_p + <v_q, x_p - x_q> + ||v_p - v_q||^2 / (2 (L - mu)) <= 0          for points p, q of one device,
    mean Y = mean X,  X'Y = Y'X,  (Y - lo X)'(Y - hi X) <= 0                        for Y = W X, less their means.

Times numbers >= 0 (a matrix Z >= 0 for the last one) and added up they prove the bound, if the phi cancel and the forms
left are semidefinite: one over the means of the kinds, and one for each kind over its members' differences from it.
"""

import hashlib
import json
import math
import re
import sys
from fractions import Fraction
from typing import Any

FORMAT = "ownstep network certificate 2"
MOST_BYTES, MOST_DIGITS, MOST_STEPS, MOST_BITS = 50_000_000, 1_000, 200, 20_000  # beyond these a check takes too long
ONE = Fraction(1)
FIRST = {"value": "f(x) - f(x*)", "distance": "||x - x*||^2", "gradient": "||grad f(x)||^2"}
METRICS = {name: f"{what} at the mean x of the devices' last points" for name, what in FIRST.items()}
METRICS |= {f"{n}_average": f"{FIRST[n]} at the mean x of their points in all rounds" for n in ("value", "distance")}
METRICS |= {"distance_devices": "1/N sum_i ||x_i^K - x*||^2", "consensus": "1/N sum_i ||x_i^K - mean||^2"}
STARTS = {
    "same": "||x^0 - x*|| <= {r0} for one x^0 of all devices",
    "ball": "||x_i^0 - x*|| <= {r0} for every device i",
    "mean": "1/N sum_i ||x_i^0 - x*||^2 <= ({r0})^2",
}
Vector = dict[Any, Fraction]  # coefficients by unknown; a form has them by pairs of unknowns
Stack = list[tuple[Vector, Vector]]  # by kind: over the means, and over the differences


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


def together(data: Any, common: int = 1) -> None:
    """Refuse numbers whose common denominator is so long that sums of a few of them take hours."""
    for text in {*re.findall(r'"-?[0-9]+/([0-9]{1,1000})"', json.dumps(data))}:
        common = math.lcm(common, int(text) or 1)
        need(common.bit_length() <= MOST_BITS, "the numbers have too many different denominators to be checked")


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


def semidefinite(form: Vector) -> bool:
    """Is a form positive semidefinite? Elimination without fractions (Bareiss); pivots are leading minors."""
    names, last = sorted({i for i, _ in form}, key=repr), 1
    common = math.lcm(*(value.denominator for value in form.values()))
    rows = [[int(form.get((i, j), 0) * common) for j in names] for i in names]
    while rows:
        (pivot, *top), rows = rows[0], rows[1:]
        if pivot < 0 or (pivot == 0 and any(top)):
            return False
        factor, last, before = pivot or last, pivot or last, last
        rows = [[(factor * a - head * b) // before for a, b in zip(row, top, strict=True)] for head, *row in rows]
    return True


class Case:
    """The devices of a statement, the vectors it makes of them, and the forms over both."""

    def __init__(self, s: Any) -> None:
        read = []
        for count, *numbers in (fields(kind, "count", "weight", "mu", "L") for kind in s["devices"]):
            weight, mu, L = map(exact, numbers)
            need(type(count) is int and count > 0 and weight > 0 and 0 <= mu <= L and L > 0, "the devices")
            read.append((Fraction(count), weight, mu, L))
        need(sum(count * weight for count, weight, _, _ in read) == 1, "the weights do not sum to one")
        need(type(s["any_number"]) is bool, "whether the number of devices is left open")
        ends: Any = None if s["network"] is None else tuple(map(exact, fields(s["network"], "lo", "hi")))
        need(ends is None or -1 < ends[0] <= ends[1] < 1, "the eigenvalues")
        self.ends = ends
        self.devices = sum(count for count, _, _, _ in read)
        self.share = [count / self.devices for count, _, _, _ in read]
        self.each, self.weight = [w for _, w, _, _ in read], [count * w for count, w, _, _ in read]
        self.mu, self.L = [mu for _, _, mu, _ in read], [L for _, _, _, L in read]
        self.every = range(len(read))
        self.twins = [c for c in self.every if read[c][0] > 1 or s["any_number"]]
        self.forms: dict[Any, Vector] = {"mean": {}, **{c: {} for c in self.twins}}

    def fresh(self, name: Any, free: Any = None, weights: Any = None, held: Vector | None = None) -> Stack:
        """One new vector per device; with ``weights``, such that sum_c weights_c mean_c is ``held``."""
        means: list[Vector] = [{(name, c): ONE} if free is None or free(c) else {} for c in self.every]
        if weights is not None:
            last = max(self.every, key=lambda c: weights[c])
            rest = [(-weights[c], means[c]) for c in self.every if c != last]
            means[last] = total(*((f / weights[last], v) for f, v in [(ONE, held or {}), *rest]))
        return [(means[c], {(name,): ONE} if free is None or free(c) else {}) for c in self.every]

    def combine(self, *terms: tuple[Any, Stack]) -> Stack:
        """Sum of stacks times a number, or one number per kind."""
        pick = [[(f[c] if isinstance(f, list) else f, stack[c]) for f, stack in terms] for c in self.every]
        return [(total(*((f, v[0]) for f, v in row)), total(*((f, v[1]) for f, v in row))) for row in pick]

    def mean(self, x: Stack) -> Vector:
        """The mean over all devices."""
        return total(*((self.share[c], x[c][0]) for c in self.every))

    def apart(self, x: Stack) -> Stack:
        """A stack less its mean."""
        middle = self.mean(x)
        return [(total((ONE, x[c][0]), (-ONE, middle)), x[c][1]) for c in self.every]

    def product(self, c: int, a: tuple[Vector, Vector], b: tuple[Vector, Vector], factor: Fraction) -> None:
        """Factor times the mean of <a_i, b_i> over the members of kind c, added to the forms."""
        add(self.forms["mean"], a[0], b[0], factor)
        if c in self.twins:
            add(self.forms[c], a[1], b[1], factor)

    def average(self, a: Stack, b: Stack, factor: Fraction, weights: list[Fraction]) -> None:
        """Factor times sum_c weights_c (mean of <a_i, b_i> over kind c), added to the forms."""
        for c in self.every:
            self.product(c, a[c], b[c], factor * weights[c])

    def vector(self, written: Any, atoms: list[Stack], shifts: list[Fraction]) -> tuple[Stack, Fraction]:
        """A vector by kind, "own" [atom, number] and "means" [kind, atom, number], and how far it moves with all."""
        need(len(written) == len(self.every), "a vector has one entry for each kind")
        out, moves = list[Any](), set[Fraction]()
        for c, entry in enumerate(written):
            own, means = fields(entry, "own", "means")
            mine = [(exact(t), place(a, atoms)) for a, t in own]
            shared = [(exact(t), place(a, atoms), place(k, self.share)) for k, a, t in means]
            moving = [*mine, *((t, a) for t, a, _ in shared)]
            mean = total(*((t, atoms[a][c][0]) for t, a in mine), *((t, atoms[a][k][0]) for t, a, k in shared))
            out.append((mean, total(*((t, atoms[a][c][1]) for t, a in mine))))
            moves.add(sum((t * shifts[a] for t, a in moving), Fraction(0)))
        need(len(moves) == 1, "a vector is tied to the origin in one kind of device and not in another")
        return out, moves.pop()


def place(index: Any, where: Any) -> int:
    """An index as it is meant: from 0 on."""
    need(type(index) is int and 0 <= index < len(where), f"there is nothing at {index!r}")
    return int(index)


def radius(text: Any) -> Fraction:
    """What a length is at most."""
    length = exact(text)
    need(length >= 0, "a radius is negative")
    return length


def run(case: Case, s: Any) -> tuple[dict[Any, tuple[Stack, Stack]], list[Any], Any, Stack, Stack, Stack | None]:
    """(triples by name, mixing steps, tilt, start, judged point, last stack), all derived from the statement."""
    rstar, same = s["start"]["rstar"], s["start"]["points"] == "same"
    tilted = rstar == "inf" or radius(rstar) > 0
    need(s["start"]["points"] in STARTS, "the start")
    start: Stack = [({"x0": ONE}, {}) for _ in case.every] if same else case.fresh("x")
    several = case.devices > 1 or s["any_number"]
    tilt = case.fresh("s", weights=case.weight) if tilted and several else None
    atoms, shifts = [start], [ONE]
    triples, mixed = dict[Any, tuple[Stack, Stack]](), list[Any]()

    def evaluate(name: Any, x: Stack) -> Stack:
        v = case.fresh(("v", name), free=lambda c: case.mu[c] < case.L[c])
        triples[name] = (x, v)
        return case.combine((ONE, v), (case.mu, x), *([(ONE, tilt)] if tilt is not None else []))

    def point_of(written: Any) -> Stack:
        x, move = case.vector(written, atoms, shifts)
        need(move == 1, "a point is tied to the origin")
        return x

    need(len(s["steps"]) <= MOST_STEPS, "the statement is too large to be checked")
    for j, step in enumerate(s["steps"]):
        do, of, group = fields(step, "do", "of", "group")
        if do == "gradient":
            need(group == 0, "a gradient has no mixing matrix")
            atoms.append(evaluate(j, point_of(of)))
            shifts.append(Fraction(0))
        else:
            need(do == "mix" and case.ends is not None, f"step {j} does neither")
            x, move = case.vector(of, atoms, shifts)
            y = case.fresh(("y", j), weights=case.share, held=case.mean(x))
            mixed.append((place(group, range(len(s["steps"]))), x, y))
            atoms.append(y)
            shifts.append(move)
    points = [point_of(point) for point in s["points"]]
    alike = all(not row[1] and row[0] == point[0][0] for point in points for row in point)
    need(alike, "a point is not one for all devices")
    stack = None if s["stack"] is None else point_of(s["stack"])
    last = points if s["metric"].endswith("_average") else [points[-1]]
    judged = case.combine(*((Fraction(1, len(last)), point) for point in last))
    if s["metric"].split("_")[0] in ("value", "gradient"):
        evaluate("K", judged)
    if tilt is not None and rstar != "inf":
        flat = [0 * m if m < L else -1 / m for m, L in zip(case.mu, case.L, strict=True)]  # mu z = -s where mu = L
        z = case.combine((ONE, case.fresh("z", free=lambda c: case.mu[c] < case.L[c])), (flat, tilt))
        triples["own"] = (z, case.combine((-ONE, tilt), ([-mu for mu in case.mu], z)))
    return triples, mixed, tilt, start, judged, stack


def radii(case: Case, s: Any, triples: Any, tilt: Any, start: Stack) -> list[tuple[Any, Fraction]]:
    """What is bounded at the start: (how to add it to the forms, bound squared)."""
    r0, found = exact(s["start"]["r0"]), []
    need(r0 > 0, "r0")

    def kind(c: int, x: Stack) -> Any:
        return lambda t: case.product(c, x[c], x[c], t)

    if s["start"]["points"] == "same":
        found.append((kind(0, start), r0**2))
    elif s["start"]["points"] == "mean":
        found.append((lambda t: case.average(start, start, t, case.share), r0**2))
    else:
        found += [(kind(c, start), r0**2) for c in case.every]
    if "own" in triples:
        found += [(kind(c, triples["own"][0]), radius(s["start"]["rstar"]) ** 2) for c in case.every]
    scale = [case.devices * w for w in case.each]
    slopes = None if s["start"]["gradients"] is None else radius(s["start"]["gradients"]) ** 2
    if slopes is not None and tilt is not None:  # without tilts these gradients are 0
        square = [share * f**2 for share, f in zip(case.share, scale, strict=True)]
        found.append((lambda t: case.average(tilt, tilt, t, square), slopes))
    if s["start"]["trackers"] is not None:
        x, v = triples.get(0, ([], []))
        need(x == start, "a bound on the first gradients needs them as the first step, at the start")
        slope = case.combine((scale, v), ([f * mu for f, mu in zip(scale, case.mu, strict=True)], x))
        slope = slope if tilt is None else case.combine((ONE, slope), (scale, tilt))
        off = case.apart(slope)
        found.append((lambda t: case.average(off, off, t, case.share), radius(s["start"]["trackers"]) ** 2))
    return found


def spectral(case: Case, mixed: list[Any], m: Any) -> None:
    """The conditions on the mixing steps, times Z and a."""
    groups = sorted({g for g, _, _ in mixed})
    need(len(m["Z"]) == len(m["a"]) == len(groups), "the multipliers of the mixing steps")
    for group, Z, a in zip(groups, m["Z"], m["a"], strict=True):
        lo, hi = case.ends
        steps = [(case.apart(x), case.apart(y)) for g, x, y in mixed if g == group]
        below = [case.combine((ONE, y), (-lo, x)) for x, y in steps]
        above = [case.combine((ONE, y), (-hi, x)) for x, y in steps]
        need([len(row) for row in Z] == list(range(1, len(steps) + 1)), "the shape of Z")
        need([len(row) for row in a] == list(range(len(steps))), "the shape of a")
        whole: Vector = {}
        for j in range(len(steps)):
            for i in range(j + 1):
                t = exact(Z[j][i])
                whole[i, j] = whole[j, i] = t
                case.average(below[i], above[j], t, case.share)
                if i < j:
                    case.average(below[j], above[i], t, case.share)
                    free = exact(a[j][i])
                    case.average(steps[i][0], steps[j][1], free, case.share)
                    case.average(steps[j][0], steps[i][1], -free, case.share)
        need(semidefinite(whole), "Z is not positive semidefinite")


def subtract_metric(case: Case, s: Any, triples: Any, judged: Stack, stack: Stack | None) -> Vector:
    """Take the metric from the forms, and return what it takes from the values."""
    kind = s["metric"].split("_")[0]
    if s["metric"] in ("distance_devices", "consensus"):
        devices = judged if stack is None else stack
        devices = case.apart(devices) if kind == "consensus" else devices
        case.average(devices, devices, -ONE, case.share)
        return {}
    need(s["metric"] in METRICS, "the metric")
    return subtract_point(case, kind, "K", judged, triples.get("K", (judged, judged))[1], ONE, {})


def subtract_point(case: Case, kind: str, name: Any, at: Stack, v: Stack, times: Fraction, values: Vector) -> Vector:
    """Take ``times`` the metric at one point of all devices from the forms and from the values."""
    x = at[0][0]
    curved = sum((w * mu for w, mu in zip(case.weight, case.mu, strict=True)), Fraction(0))
    slope = total((curved, x), *((case.weight[c], v[c][0]) for c in case.every)) if kind == "gradient" else x
    add(case.forms["mean"], slope, slope, -times * (curved / 2 if kind == "value" else 1))
    for c in case.every if kind == "value" else ():
        if case.mu[c] < case.L[c]:
            values[c, name] = values.get((c, name), 0) - times * case.weight[c]
    return values


def check(certificate: Any) -> Fraction:
    """The bound that the certificate proves; raises ValueError where it proves nothing."""
    form_of, s, text, m = fields(certificate, "format", "statement", "bound", "multipliers")
    need(form_of == FORMAT, f"the format must be {FORMAT!r}")
    together(certificate)
    fields(s, "devices", "method", "any_number", "network", "start", "metric", "steps", "points", "stack")
    fields(s["start"], "points", "r0", "rstar", "gradients", "trackers")
    fields(m, "start", "conditions", "Z", "a")
    bound, case = exact(text), Case(s)
    seen = run(case, s)
    values = subtract_metric(case, s, seen[0], seen[4], seen[5])
    need(proved_by(case, s, m, seen, values) <= bound, "the multipliers do not prove the bound stated")
    need(fields(s["method"], "name", "digest")[1] == digest(s), "the digest is not that of the steps")
    return bound


def proved_by(case: Case, s: Any, m: Any, seen: Any, values: Vector) -> Fraction:
    """What the multipliers prove of the metric that was taken from the forms and the values."""
    triples, mixed, tilt, start, *_ = seen
    known = {"*": ([({}, {})] * len(case.L),) * 2, **triples}
    for c, p, q, times in m["conditions"]:
        need(all(type(name) in (int, str) and name in known for name in (p, q)), f"there is no point {p!r} or {q!r}")
        t, (x_p, v_p), (x_q, v_q) = exact(times), known[p], known[q]
        span = case.L[place(c, case.L)] - case.mu[c]
        need(t >= 0 and span > 0 and p != q, f"the condition {c}, {p}, {q}, {times}")
        values[c, q], values[c, p] = values.get((c, q), 0) + t, values.get((c, p), 0) - t
        step, turn = case.combine((ONE, x_p), (-ONE, x_q)), case.combine((ONE, v_p), (-ONE, v_q))
        case.product(c, v_q[c], step[c], t)
        case.product(c, turn[c], turn[c], t / (2 * span))
    proved, bounded = Fraction(0), radii(case, s, triples, tilt, start)
    need(len(m["start"]) == len(bounded), "the multipliers of the start")
    for times, (put, square) in zip(m["start"], bounded, strict=True):
        t = exact(times)
        need(t >= 0, "a multiplier of the start is negative")
        put(t)
        proved += t * square
    spectral(case, mixed, m)
    need(not any(value for (_, point), value in values.items() if point != "*"), "the values do not cancel")
    need(all(map(semidefinite, case.forms.values())), "the slack is not positive semidefinite")
    return proved


def digest(s: Any, *names: str) -> str:
    """What a method is known by: the digest of all that its devices do, as it is written."""
    told = json.dumps([s[name] for name in names or ("steps", "points", "stack")], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()


def read(path: str) -> Any:
    """A certificate from its file: of a reasonable size, and no name twice, which could be read in two ways."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        need(len(dict(pairs)) == len(pairs), f"a name stands twice among {[name for name, _ in pairs]}")
        return dict(pairs)

    with open(path, "rb") as file:
        text = file.read(MOST_BYTES + 1)
    need(len(text) <= MOST_BYTES, f"the file is larger than {MOST_BYTES} bytes")
    return json.loads(text.decode("utf-8"), object_pairs_hook=once)


def rounded_up(number: Fraction) -> float:
    """The smallest double that is not below it."""
    return float(number) if Fraction(float(number)) >= number else math.nextafter(float(number), math.inf)


def of_what(s: Any, several: bool) -> str:
    """The method, the devices and the network of a statement; ``several``: there is more than one W."""
    kinds = [f"{d['count']} with weight {d['weight']} and f_i in F(mu={d['mu']}, L={d['L']})" for d in s["devices"]]
    number, where = ", or any number of them in these shares" if s["any_number"] else "", "without a network"
    if s["network"] is not None:
        which, ends = "a new one in each round" if several else "the same in all rounds", s["network"]
        where = f"for every symmetric W ({which}), W 1 = 1, with all other eigenvalues in [{ends['lo']}, {ends['hi']}]"
    name = f"the method with digest {s['method']['digest']} (called {s['method']['name']!r}, which is not checked)"
    return f"{name}, for f = sum_i w_i f_i over the devices [{'; '.join(kinds)}]{number}, {where}"


def describe(certificate: Any) -> str:
    """What a certificate that was checked proves, everything it depends on included."""
    s, start = certificate["statement"], certificate["statement"]["start"]
    limits = f"{STARTS[start['points']].format(**start)}, ||x_i* - x*|| <= {start['rstar']}"
    for name, what in (("gradients", "N w_i grad f_i(x*)"), ("trackers", "N w_i grad f_i(x_i^0) - mean")):
        limits += "" if start[name] is None else f", 1/N sum_i ||{what}||^2 <= ({start[name]})^2"
    method = of_what(s, len({step["group"] for step in s["steps"] if step["do"] == "mix"}) > 1)
    bound, rounds = rounded_up(Fraction(certificate["bound"])), len(s["points"]) - 1
    return f"{METRICS[s['metric']]} <= {bound!r} after K = {rounds} rounds of {method}, {limits}"


if __name__ == "__main__":
    data = read(sys.argv[1])
    print("proved: worst case <=", check(data))
    print(describe(data))
