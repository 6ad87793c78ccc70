"""The worst case over a class of networks, with local steps or absent devices, enclosed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.pep.networks.basis import on_class, rebased
from ownstep.pep.networks.dual import Hint, Proof, narrowly, prove
from ownstep.pep.networks.kind_vectors import Kinds, Shared
from ownstep.pep.networks.network_trace import Evaluation, Path, by_kind, follow
from ownstep.pep.networks.program import Blocks, Form, combine, in_time, interpolate, mixings, triples, value_units
from ownstep.pep.networks.question import Question, marks_of
from ownstep.pep.networks.scaled import Program
from ownstep.support.errors import InvalidInput, OwnstepError

Array = NDArray[np.float64]


def pose(
    asked: Question,
    factor: float | None = None,
    marked: int | None = None,
    deadline: float = math.inf,
    *,
    rebase: bool = True,
) -> tuple[Program, Path]:
    """The program of a question.

    Parameters
    ----------
    factor : lambda of the one matrix lambda I + (1 - lambda) 11'/N in place of the class.
    marked : the device judged, for the worst-device metrics.
    deadline : when to give up, in seconds of ``time.monotonic``.
    rebase : write it over columns in which it is sparse and narrow classes keep their digits, not over the trace's own.
    """
    in_time(deadline)
    marks, network = marks_of(asked), asked.network
    if network is not None and network.lo == network.hi:
        factor = network.hi  # one eigenvalue, one matrix
    unit = asked.units.curvature
    kinds = Kinds.of(asked.devices, marks, any_number=network is not None and network.any_number, unit=unit)
    kinds = replace(kinds if marked is None else kinds.alone(marked), smooth=asked.subgradients is None)
    tilted = asked.rstar > 0 and asked.tilted
    path = follow(
        asked.method,
        asked.devices,
        kinds,
        asked.rounds,
        network=network,
        factor=factor,
        apart=asked.start.points != "same",
        tilted=tilted,
        own=tilted and asked.own,
        length=asked.length,
        schedule=asked.schedule,
        missing=asked.missing,
    )
    final, judged = _judged(asked, path, marked)
    if asked.start.trackers is not None and not _begins_at_start(path):
        raise InvalidInput("a bound on the first gradients needs a first round that asks for them at the start")
    lo, hi = (0.0, 0.0) if network is None else (network.lo, network.hi)
    blocks = rebased(path, lo, hi) if rebase else Blocks(path.frame)
    names, found = triples(blocks, path.follower.evaluations, path.own, path.tilt)
    in_time(deadline)
    inter = interpolate(blocks, names, found)
    heads, head_names = heads_of(asked, path, blocks)
    target, target_values = _target(asked, path, blocks, inter.value, final, judged)
    program = Program(
        blocks,
        inter,
        tuple(mixings(blocks, path.steps, lo, hi, deadline)),
        blocks.packed(heads),
        head_names,
        blocks.packed([target])[0],
        target_values,
        value_units(inter, kinds, path.follower.slope * asked.length),
    )
    return program, path


def _begins_at_start(path: Path) -> bool:
    """Are the first gradients those at x_i^0?"""
    moved = None if not path.evaluations else path.evaluations[0].x - path.start
    return moved is not None and not (moved.mean_rows.any() or moved.difference.any())


def _judged(asked: Question, path: Path, marked: int | None) -> tuple[Evaluation | None, Shared]:
    """The point the metric looks at, and its evaluation where values or gradients are wanted."""
    kind, _, where = asked.metric.partition("_")
    point = path.points[-1]
    if where == "average":
        point = (1 / len(path.points)) * sum(path.points[1:], path.points[0])
    elif where == "worst":
        stack = path.stacks[-1]
        assert marked is not None
        if stack is not None:
            point = stack.member(int(path.frame.kinds.index[marked]))
    if kind not in ("value", "gradient"):
        return None, point
    path.follower.gradient(point, "K")
    return path.follower.evaluations[-1], point


def heads_of(asked: Question, path: Path, blocks: Blocks) -> tuple[list[Form], tuple[str, ...]]:
    """The bounds on the start, each divided by its right side."""
    kinds, heads, names = blocks.kinds, [], []

    def add(name: str, form: Form, bound: float) -> None:
        heads.append([block / bound**2 for block in form])
        names.append(name)

    if asked.start.points == "same":
        add("||x^0 - x*||^2 <= r0^2", blocks.product(path.start, path.start, 0), asked.r0)
    elif asked.start.points == "mean":
        add("1/N sum_i ||x_i^0 - x*||^2 <= r0^2", blocks.average(path.start, path.start, kinds.shares), asked.r0)
    else:
        for c in range(len(kinds)):
            add(f"kind {c}: ||x_i^0 - x*||^2 <= r0^2", blocks.product(path.start, path.start, c), asked.r0)
    if path.own is not None:
        for c in range(len(kinds)):
            add(f"kind {c}: ||x_i* - x*||^2 <= rstar^2", blocks.product(path.own, path.own, c), asked.rstar)
    scale = len(asked.devices) * kinds.weight
    if asked.start.gradients is not None and path.tilt is not None:
        form = blocks.average(path.tilt, path.tilt, kinds.shares * scale**2)
        add("1/N sum_i ||N w_i grad f_i(x*)||^2 <= G^2", form, asked.start.gradients)
    if asked.start.trackers is not None:
        first = path.evaluations[0]
        slope: Any = first.v + by_kind(kinds.mu, first.x)
        slope = slope if path.tilt is None else slope + path.tilt
        slope = by_kind(scale, slope)
        add("1/N sum_i ||N w_i grad f_i(x_i^0) - mean||^2 <= T^2", blocks.deviation(slope, slope), asked.start.trackers)
    if asked.subgradients is not None:
        points = [(e.name, e.v) for e in path.follower.evaluations]
        points += [] if path.tilt is None else [("*", 0.0 * path.tilt)]
        for (at, v), c in itertools.product(points, range(len(kinds))):
            v = v if path.tilt is None else v + path.tilt
            bound = float(asked.subgradients[int(np.argmax(kinds.index == c))])
            add(f"kind {c}: ||subgradient at {at}|| <= B", blocks.product(v, v, c), bound)
    return heads, tuple(names)


def _target(
    asked: Question, path: Path, blocks: Blocks, value: NDArray[np.int64], final: Evaluation | None, point: Shared
) -> tuple[Form, Array]:
    """The metric as a form over the blocks, and over the values."""
    kinds = blocks.kinds
    values = np.zeros(int(value.max(initial=-1)) + 1)
    name = asked.metric.partition("_")[0]
    if asked.metric in ("distance_devices", "consensus"):
        stack = path.stacks[-1]
        if stack is None:
            stack = path.points[-1].spread()
        if name == "consensus":
            return blocks.deviation(stack, stack), values
        return blocks.average(stack, stack, kinds.shares), values
    if name == "distance":
        return blocks.square(point), values
    assert final is not None
    if name == "gradient":
        slope = final.v.combined(kinds.weights) + float(kinds.weights @ kinds.mu) * point
        return blocks.square(slope), values
    at = path.follower.evaluations.index(final) + 1
    for c in range(len(kinds)):
        if value[c, at] >= 0:
            values[value[c, at]] = kinds.weights[c]
    return combine([blocks.square(point)], [float(kinds.weights @ kinds.mu) / 2]), values


USED, NEAR = 1e-5, 2e-6
"""A multiplier counts from here on, relative to the largest; a bound so little above a worst case found is enough."""

FEW = 100
"""Interpolation conditions up to which no instance is looked for before the program is solved."""


@dataclass(frozen=True, eq=False)
class Upper:
    """A proved upper end, with what it was proved from.

    Parameters
    ----------
    marked : the device judged, for the worst-device metrics.
    given : worst cases of single matrices found on the way, by their factor lambda; good enough for an instance.
    each : for the worst device, the upper end of each kind, of which this is the largest.
    pieces : for two devices, the upper ends over parts of the spectrum, of which this is the largest; none where it
        was not divided.
    """

    proof: Proof
    program: Program
    path: Path
    marked: int | None
    given: dict[float, Upper] = field(default_factory=dict)
    each: tuple[Upper, ...] = ()
    pieces: tuple[tuple[float, float, Upper], ...] = ()


INSIDE = (1e-8, 1e-7, 1e-6)
"""How far inside its conditions an instance is looked for: functions through its triples then take its values."""


def upper(
    asked: Question,
    factor: float | None = None,
    *,
    inside: float | None = None,
    deadline: float = math.inf,
    given: Mapping[float, Upper] = MappingProxyType({}),
    hasty: bool = False,
) -> Upper:
    """The proved worst case; for the worst device, the largest over the devices that differ.

    With ``factor``, that of one matrix; with ``inside`` an answer that is good enough to look for an instance. Worst
    cases of single matrices that are known can be ``given``. ``hasty`` takes what few conditions prove, for a class
    that will be divided.
    """
    if asked.chance is not None:
        from ownstep.pep.networks.expectation import pose_mean

        program, path = pose_mean(asked)
        return Upper(prove(program, inside=inside, deadline=deadline), program, path, None)
    if not asked.metric.endswith("_worst"):
        program, path = pose(asked, factor, deadline=deadline)
        known: dict[float, Upper] = {}
        if factor is None and inside is None:
            known = ends(asked, program, deadline, given, fresh=False)
            quick = _quickly(program, path, known, deadline)
            if quick is not None:
                return Upper(quick, program, path, None, known)
            known = ends(asked, program, deadline, given)
        hint = _hint(program, path, known)
        try:
            proof = prove(program, inside=inside, deadline=deadline, hint=hint, hasty=hasty)
        except OwnstepError:
            return _as_traced(asked, factor, None, inside, deadline)
        return Upper(proof, program, path, None, known)
    kinds = Kinds.of(asked.devices, marks_of(asked))
    found = []
    for c in range(len(kinds)):
        marked = int(np.argmax(kinds.index == c))
        program, path = pose(asked, factor, marked, deadline)
        try:
            found.append(Upper(prove(program, inside=inside, deadline=deadline), program, path, marked))
        except OwnstepError:
            found.append(_as_traced(asked, factor, marked, inside, deadline))
    return replace(max(found, key=lambda one: one.proof.bound), each=tuple(found))


def _as_traced(
    asked: Question, factor: float | None, marked: int | None, inside: float | None, deadline: float
) -> Upper:
    """The same over the trace's own columns, for the few programs that the solver fails at in the others."""
    program, path = pose(asked, factor, marked, deadline, rebase=False)
    return Upper(prove(program, inside=inside, deadline=deadline), program, path, marked)


def _quickly(program: Program, path: Path, known: dict[float, Upper], deadline: float) -> Proof | None:
    """A proof that is as good as the worst case known at one end of the spectrum; None where it is not."""
    hint = _hint(program, path, known)
    proof = None if hint is None else narrowly(program, hint, deadline)
    return proof if proof is not None and hint is not None and proof.bound <= hint.enough else None


def ends(
    asked: Question, program: Program, deadline: float, given: Mapping[float, Upper], *, fresh: bool = True
) -> dict[float, Upper]:
    """Of a long program: the worst cases on the matrices at both ends of the spectrum.

    The worst matrix is mostly one of these, and with the matrix given a program is small. Without ``fresh``, only those
    that are known.
    """
    network, pairs = asked.network, program.interpolation.pairs
    if network is None or network.lo == network.hi or len(pairs) <= FEW:
        return {}
    found = {}
    for factor in (network.lo, network.hi):
        if not fresh and factor not in given:
            continue
        try:
            one = given[factor] if factor in given else upper(asked, factor, inside=INSIDE[0], deadline=deadline)
        except OwnstepError:
            continue
        if np.array_equal(one.program.interpolation.pairs, pairs):
            found[factor] = one
    return found


def _hint(program: Program, path: Path, given: dict[float, Upper]) -> Hint | None:
    """Where to begin: the conditions that matter on single matrices, and the worst of their instances."""
    if not given:
        return None
    matter = np.zeros(len(program.interpolation.pairs), bool)
    for one in given.values():
        used = one.proof.multipliers.conditions
        matter |= used > USED * used.max(initial=0)
    factor, worst = max(given.items(), key=lambda entry: entry[1].proof.bound)
    grams = on_class(path, program.blocks, factor, worst.proof.grams)
    return Hint(matter, (1 + NEAR) * worst.proof.bound, grams, worst.proof.values)
