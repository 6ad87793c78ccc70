"""The mean error over all schedules of who takes part, exactly: a tree with one branch per set of devices and round.

Functions and start are the same on every branch, only who answers differs. So one semidefinite program holds the points
of all branches, and its metric is their mean, weighted by how probable each is. The tree grows as (sets of devices) to
the power of the rounds: this is for small cases.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ownstep.engines.participation import Bernoulli, Cohort
from ownstep.pep.networks.kind_vectors import Frame, Kinds, Shared
from ownstep.pep.networks.network_trace import Follower, Path, answer, own_minimisers
from ownstep.pep.networks.program import Blocks, combine, interpolate, triples, value_units
from ownstep.pep.networks.scaled import Program
from ownstep.pep.proof.certify import rational
from ownstep.pep.trace.symbolic import NotLinear, explain
from ownstep.support.errors import InvalidInput

if TYPE_CHECKING:
    from ownstep.pep.networks.instances.replay import NetworkInstance
    from ownstep.pep.networks.question import Question

MOST_ENDS = 300
"""Schedules at most; every one of them ends in points of its own."""

METRICS = ("value", "distance", "gradient")

Present = NDArray[np.bool_]


def sets(rule: Bernoulli | Cohort, devices: int) -> list[tuple[Present, Fraction]]:
    """Who may take part in a round, and how probable each such set is."""
    if isinstance(rule, Cohort):
        chosen = list(itertools.combinations(range(devices), rule.size))
        return [(np.isin(np.arange(devices), some), Fraction(1, len(chosen))) for some in chosen]
    found, p = [], rational(rule.p)
    for bits in itertools.product([True, False], repeat=devices):
        there = sum(bits)
        probability = p**there * (1 - p) ** (devices - there)
        if probability > 0:
            found.append((np.array(bits), probability))
    return found


def check_chance(rule: Bernoulli | Cohort, devices: int, rounds: int, metric: str) -> Bernoulli | Cohort:
    """Refuse what cannot be followed, before anything is solved."""
    if metric not in METRICS:
        raise InvalidInput(f"the mean over schedules has the metrics {', '.join(METRICS)}, got {metric!r}")
    if rule.missing == "last":
        raise InvalidInput("gradients that are remembered (missing='last') are not followed in a worst case")
    if isinstance(rule, Cohort) and rule.size > devices:
        raise InvalidInput(f"a cohort of {rule.size} is more than the {devices} devices there are")
    count = len(sets(rule, devices)) ** rounds if devices <= 10 else MOST_ENDS + 1
    if count > MOST_ENDS:
        raise InvalidInput(
            f"{rule!r} has more than {MOST_ENDS} schedules of {rounds} rounds with {devices} devices: take fewer of "
            "both, or one schedule as an array of booleans"
        )
    return rule


def _ends(asked: Question, gradient: Any, state: Any, rounds: int, name: str = "") -> list[tuple[Fraction, Any]]:
    """(probability, state) of every schedule; all sets of a round see the same gradients."""
    if not rounds:
        return [(Fraction(1), state)]
    assert asked.chance is not None
    ask, found = asked.method.ask(state), []
    seen: dict[str, Any] = {}

    def once(x: Any, at: str) -> Any:
        if at not in seen:
            seen[at] = gradient(x, at)
        return seen[at]

    for j, (present, probability) in enumerate(sets(asked.chance, len(asked.devices))):
        told = answer(ask, once, asked.devices.weights, present, asked.missing, f"{name}{asked.rounds - rounds}")
        after = asked.method.tell(state, told)
        ends = _ends(asked, gradient, after, rounds - 1, f"{name}{asked.rounds - rounds}:{j}/")
        found += [(probability * p, end) for p, end in ends]
    return found


def pose_mean(asked: Question) -> tuple[Program, Path]:
    """The program of the mean metric; every device is kept apart, as the schedules tell them apart."""
    from ownstep.pep.networks.network_enclosure import heads_of

    tilted = asked.rstar > 0 and asked.tilted
    kinds = apart(asked)
    frame = Frame(kinds)
    slope = asked.r0 * float(kinds.L.max())
    start = frame.shared(asked.r0)
    tilt = frame.balanced(slope, kinds.weights, np.zeros(0)) if tilted else None
    own = own_minimisers(frame, asked.r0, tilt) if tilt is not None and asked.own else None
    follower = Follower(frame, tilt, slope)
    points = ends_of(asked, follower, start)
    if asked.metric != "distance":
        for j, (_, point) in enumerate(points):
            follower.gradient(point, f"K{j}")
    stops = tuple(x for _, x in points)
    path = Path(frame, tuple(follower.evaluations), tilt, start.spread(), own, stops, (None,), (), follower)
    blocks = Blocks(frame)
    names, found = triples(blocks, follower.evaluations, own, tilt)
    inter = interpolate(blocks, names, found)
    heads, head_names = heads_of(asked, path, blocks)
    bend = float(kinds.weights @ kinds.mu)
    values = np.zeros(int(inter.value.max(initial=-1)) + 1)
    forms, factors = [], []
    for j, (p, point) in enumerate(points):
        if asked.metric == "gradient":
            last = follower.evaluations[j - len(points)]
            point = last.v.combined(kinds.weights) + bend * point
        forms.append(blocks.square(point))
        factors.append(float(p) * (bend / 2 if asked.metric == "value" else 1.0))
        if asked.metric == "value":
            at = len(follower.evaluations) - len(points) + j + 1
            for c in np.flatnonzero(inter.value[:, at] >= 0):
                values[inter.value[c, at]] += float(p) * kinds.weights[c]
    target = blocks.packed([combine(forms, factors)])[0]
    units = value_units(inter, kinds, slope * asked.r0)
    return Program(blocks, inter, (), blocks.packed(heads), head_names, target, values, units), path


def ends_of(asked: Question, follower: Follower, start: Shared) -> list[tuple[Fraction, Shared]]:
    """Where the method may be after the last round, each with its probability, which sum to one."""
    try:
        ends = _ends(asked, follower.gradient, asked.method.start(start, asked.told), asked.rounds)
        return _merged([(p, asked.method.point(state)) for p, state in ends])
    except NotLinear as error:
        raise NotLinear(explain(asked.method, str(error))) from None
    except TypeError as error:
        raise NotLinear(explain(asked.method, f"what it does to vectors ({error}) is not linear")) from error


def apart(asked: Question) -> Kinds:
    """Every device kept apart, as the schedules tell them apart."""
    marks = np.arange(len(asked.devices), dtype=float)[:, None]
    return Kinds.of(asked.devices, marks, unit=asked.units.curvature)


def _merged(points: list[tuple[Fraction, Shared]]) -> list[tuple[Fraction, Shared]]:
    """Schedules that end at the same point, as one."""
    width = max(len(x.mean_row) for _, x in points)
    found: dict[bytes, tuple[Fraction, Shared]] = {}
    for p, x in points:
        key = (np.round(np.pad(x.mean_row, (0, width - len(x.mean_row))), 13) + 0.0).tobytes()
        found[key] = (p + found[key][0] if key in found else p, x)
    return list(found.values())


def mean_error(asked: Question, instance: NetworkInstance) -> float:
    """The mean metric of the real method on an instance."""
    state, unit = asked.method.start(instance.x0[0], asked.told), asked.units.curvature
    total = 0.0
    for p, end in _ends(asked, lambda x, _: unit * instance.gradients(x), state, asked.rounds):
        x = np.asarray(asked.method.point(end))
        if asked.metric == "value":
            total += float(p) * instance.value(x)
            continue
        vector = asked.devices.weights @ instance.gradients(x) if asked.metric == "gradient" else x
        total += float(p) * float(vector @ vector)
    return total
