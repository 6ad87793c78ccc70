"""Check a worst case of losses that are convex, with bounded subgradients: ``python check_subgradients.py proof.json``.

It stands on ``check_network.py`` beside it. Nothing is known of curvature: mu = 0, and 1 / L is 0. With s_i a
subgradient at x*, those at the points p, q of one device are v_p + s_i, v_q + s_i, and

    phi_q - phi_p + <v_q, x_p - x_q> <= 0,          ||v_p + s_i||^2 <= B_i^2  at every point, ||s_i||^2 <= B_i^2.

A method may be told any subgradient, at one point another one each time.
"""

import sys
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from ownstep.pep.proof import check_network as base
else:  # run as a file: the other checker lies beside it
    import check_network as base

FORMAT = "ownstep subgradient certificate 1"
need, fields, exact = base.need, base.fields, base.exact


class Endless:
    """A smoothness constant above all numbers, of which check_network uses L - mu > 0, mu < L and 1 / (2 (L - mu))."""

    def __sub__(self, _: Fraction) -> "Endless":
        return self

    def __rmul__(self, _: int) -> "Endless":
        return self

    def __rtruediv__(self, _: Fraction) -> Fraction:
        return Fraction(0)

    def __gt__(self, _: Any) -> bool:
        return True


def smooth(s: Any) -> Any:
    """The statement as check_network reads it, with an L that is not used."""
    read = [fields(device, "count", "weight", "subgradients") for device in s["devices"]]
    need(all(exact(bound) > 0 for _, _, bound in read), "a bound on subgradients is not positive")
    return s | {"devices": [{"count": n, "weight": weight, "mu": "0", "L": "1"} for n, weight, _ in read]}


def check(certificate: Any) -> Fraction:
    """The bound that the certificate proves; raises ValueError where it proves nothing."""
    form_of, given, text, m = fields(certificate, "format", "statement", "bound", "multipliers")
    need(form_of == FORMAT, f"the format must be {FORMAT!r}")
    base.together(certificate)
    fields(given, "devices", "method", "any_number", "network", "start", "metric", "steps", "points", "stack")
    fields(given["start"], "points", "r0", "rstar", "gradients", "trackers")
    fields(m, "start", "subgradients", "conditions", "Z", "a")
    s = smooth(given)
    bound, case = exact(text), base.Case(s)
    endless: Any = Endless()
    case.L = [endless for _ in case.L]
    seen = base.run(case, s)
    values = base.subtract_metric(case, s, seen[0], seen[4], seen[5])
    proved = steep(case, given, m["subgradients"], seen) + base.proved_by(case, s, m, seen, values)
    need(proved <= bound, "the multipliers do not prove the bound stated")
    need(fields(s["method"], "name", "digest")[1] == base.digest(s), "the digest is not that of the steps")
    return bound


def steep(case: base.Case, s: Any, multipliers: Any, seen: Any) -> Fraction:
    """What the bounds on subgradients, times their multipliers, add to the bound; their forms go to the case."""
    triples, _, tilt, *_ = seen
    nothing: base.Stack = [({}, {}) for _ in case.every]
    known = {"*": nothing} | {name: v for name, (_, v) in triples.items() if name != "own"}
    proved = Fraction(0)
    for kind, name, times in multipliers:
        c, t = base.place(kind, case.L), exact(times)
        need(type(name) in (int, str) and name in known, f"there is no subgradient at {name!r}")
        need(t >= 0, "a multiplier of a subgradient is negative")
        slope = case.combine((base.ONE, known[name]), *([(base.ONE, tilt)] if tilt is not None else []))
        case.product(c, slope[c], slope[c], t)
        proved += t * exact(s["devices"][c]["subgradients"]) ** 2
    return proved


def describe(certificate: Any) -> str:
    """What a certificate that was checked proves, everything it depends on included."""
    s = certificate["statement"]
    told = base.describe(certificate | {"statement": smooth(s)})
    for device in s["devices"]:
        told = told.replace("f_i in F(mu=0, L=1)", f"f_i convex, subgradients at most {device['subgradients']} long", 1)
    return told


if __name__ == "__main__":
    data = base.read(sys.argv[1])
    print("proved: worst case <=", check(data))
    print(describe(data))
