"""Check a worst case of the worst device, of two devices, or of a mean: ``python check_worst.py proof.json``.

It stands on ``check_network.py`` beside it, or on ``check_subgradients.py``. All are made of what is checked there.

The worst device: one device is split off its kind here, and its own last point is judged. All devices of a kind do the
same, so one proof for each kind, all below the bound, is a proof for every device. With n members in kind c,

    mean over the kind  =  ((n - 1) (mean over the others) + (the device judged)) / n.

The devices' mean points, ``points``, are not judged: only that they are points is checked, and how many there are.

A mean over schedules: the statement lists where the method may end, each with its probability. Each end is a step of
the statement that takes the gradients there, so the same functions are judged at all ends, and

    sum_j p_j metric(x_j) <= bound,     p_j > 0,  sum_j p_j = 1.

Two devices: a symmetric W with W 1 = 1 has one other eigenvalue, so it is of one of the classes [lo, a], [a, b], ...,
[z, hi]. A proof for each of these, all below the bound, is a proof for [lo, hi].
"""

import sys
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from ownstep.pep.proof import check_network as base
    from ownstep.pep.proof import check_subgradients as steep
else:  # run as a file: the other checkers lie beside it
    import check_network as base
    import check_subgradients as steep

FORMAT = "ownstep worst-device certificate 1"
MEAN = "ownstep mean certificate 1"
TWO = "ownstep two-device certificate 1"
WORST = {"value_worst": "value", "distance_worst": "distance"}
need, fields, exact = base.need, base.fields, base.exact


def split(s: Any, c: int) -> Any:
    """The statement with one device of kind c as the last kind, judged at its own last point."""
    devices = [dict(device) for device in s["devices"]]
    members, alone = devices[c]["count"], c
    if members > 1:
        alone = len(devices)
        devices.append(devices[c] | {"count": 1})
        devices[c]["count"] = members - 1

    def mean(k: int, atom: int, times: str) -> list[Any]:
        if k != c or alone == c:
            return [[k, atom, times]]
        part = exact(times) / members
        return [[k, atom, str(part * (members - 1))], [alone, atom, str(part)]]

    def vector(written: Any) -> Any:
        need(len(written) == len(s["devices"]), "a vector has one entry for each kind")
        rows = []
        for own, means in (fields(entry, "own", "means") for entry in written):
            rows.append({"own": own, "means": [part for term in means for part in mean(*term)]})
        return rows + ([rows[c]] if alone != c else [])

    steps = [step | {"of": vector(step["of"])} for step in s["steps"]]
    points = [vector(point) for point in s["points"]]
    own, means = vector(s["stack"])[alone].values()
    points[-1] = [{"own": [], "means": [*([alone, atom, t] for atom, t in own), *means]}] * len(devices)
    does = {"steps": steps, "points": points, "stack": None}
    method = s["method"] | {"digest": base.digest(does)}
    return s | does | {"devices": devices, "metric": WORST[s["metric"]], "method": method}


def part_of(s: Any) -> Any:
    """The checker of a statement with one device judged, or of part of the spectrum."""
    return steep if any("subgradients" in device for device in s["devices"]) else base


def check_device(certificate: Any) -> Fraction:
    """The bound that a certificate of the worst device proves."""
    _, s, text, kinds = fields(certificate, "format", "statement", "bound", "multipliers")
    fields(s, "devices", "method", "any_number", "network", "start", "metric", "steps", "points", "stack")
    need(s["any_number"] is False, "the worst device depends on how many there are")
    need(s["metric"] in WORST, "the metric")
    need(s["stack"] is not None, "no device has a point of its own")
    checker = part_of(s)
    read = s if checker is base else steep.smooth(s)
    base.run(base.Case(read), read | {"metric": "distance", "stack": None})  # splitting replaces the last mean point
    need(len(kinds) == len(s["devices"]), "there is one proof for each kind")
    for c, multipliers in enumerate(kinds):
        part = {"format": checker.FORMAT, "statement": split(s, c), "bound": text, "multipliers": multipliers}
        try:
            checker.check(part)
        except ValueError as why:
            raise ValueError(f"kind {c}: {why}") from None
    need(fields(s["method"], "name", "digest")[1] == base.digest(s), "the digest is not that of the steps")
    return exact(text)


def check_mean(certificate: Any) -> Fraction:
    """The bound that a certificate of a mean over schedules proves."""
    _, s, text, m = fields(certificate, "format", "statement", "bound", "multipliers")
    fields(s, "devices", "method", "any_number", "network", "start", "metric", "steps", "ends")
    fields(s["start"], "points", "r0", "rstar", "gradients", "trackers")
    fields(m, "start", "conditions", "Z", "a")
    need(s["network"] is None and s["any_number"] is False, "a mean over schedules is of a method with a server")
    need(s["metric"] in base.FIRST, "the metric")
    ends = [(exact(p), base.place(j, s["steps"])) for p, j in s["ends"]]
    need(all(p > 0 for p, _ in ends) and sum(p for p, _ in ends) == 1, "the probabilities")
    case, bound = base.Case(s), exact(text)
    points = [s["steps"][j]["of"] for _, j in ends]
    seen = base.run(case, s | {"metric": "distance", "points": points, "stack": None})
    values: base.Vector = {}
    for p, j in ends:
        base.subtract_point(case, s["metric"], j, *seen[0][j], p, values)
    need(base.proved_by(case, s, m, seen, values) <= bound, "the multipliers do not prove the bound stated")
    does = base.digest(s, "steps", "ends")
    need(fields(s["method"], "name", "digest")[1] == does, "the digest is not that of the steps")
    return bound


def check_two(certificate: Any) -> Fraction:
    """The bound that a certificate of two devices proves, part of the spectrum by part."""
    _, s, text, parts = fields(certificate, "format", "statement", "bound", "multipliers")
    need(s["any_number"] is False and sum(d["count"] for d in s["devices"]) == 2, "there are not two devices")
    need(len({step["group"] for step in s["steps"] if step["do"] == "mix"}) < 2, "there is more than one matrix")
    lo, hi = map(exact, fields(s["network"], "lo", "hi"))
    need(len(parts) > 0, "there is no part of the spectrum")  # where lo = hi, none would cover it
    for part in parts:
        a, b, multipliers = fields(part, "lo", "hi", "multipliers")
        need(exact(a) == lo, f"the part from {a} does not begin where the one before ends")
        form = FORMAT if s["metric"] in WORST else part_of(s).FORMAT
        own = {"statement": s | {"network": {"lo": a, "hi": b}}, "bound": text, "multipliers": multipliers}
        try:
            (check_device if s["metric"] in WORST else part_of(s).check)({"format": form} | own)
        except ValueError as why:
            raise ValueError(f"eigenvalues in [{a}, {b}]: {why}") from None
        lo = exact(b)
    need(lo == hi, "the parts do not end where the spectrum does")
    return exact(text)


CHECKS = {FORMAT: check_device, MEAN: check_mean, TWO: check_two}


def check(certificate: Any) -> Fraction:
    """The bound that the certificate proves; raises ValueError where it proves nothing."""
    need(certificate["format"] in CHECKS, f"the format must be one of {', '.join(CHECKS)}")
    base.together(certificate)
    return CHECKS[certificate["format"]](certificate)


def describe(certificate: Any) -> str:
    """What a certificate that was checked proves, everything it depends on included."""
    s = certificate["statement"]
    if certificate["format"] != MEAN and s["metric"] not in WORST:
        return str(part_of(s).describe(certificate))
    if certificate["format"] != MEAN:
        said = part_of(s).describe({"bound": certificate["bound"], "statement": s | {"metric": WORST[s["metric"]]}})
        return str(said).replace(
            "at the mean x of the devices' last points", "at the last point x = x_i^K of every device"
        )
    told = base.describe({"bound": certificate["bound"], "statement": s | {"points": [None]}})
    what, rest = told.split(" after K = 0 rounds of ", 1)
    number, where = len(s["ends"]), " at the mean x of the devices' last points"
    return f"the mean of {what.replace(where, ' at the last point x')} over {number} ends of {rest}"


if __name__ == "__main__":
    data = base.read(sys.argv[1])
    print("proved: worst case <=", check(data))
    print(describe(data))
