"""What travels of second order, next to a site's gradient: a second point, a Hessian, a solution, a sketch.

Whatever the coordinator needs as a sum is one flat vector behind the gradient, so that it adds up, under secure
aggregation too:

    extra = [ c_i grad f_i(base) | triangle of c_i H_i | c_i p_i | c_i H_i Omega, by rows, and
              c_i (trace, penalty, free), r_i / d ]

with only the parts that were asked for; p_i solves a problem of the site's own, whose vector came with x. A trace that
is not known travels as -1. A site's own eigenpairs are no sum: they travel as (k, d + 1) numbers, every row an
eigenvector and its eigenvalue, followed by one row that holds the trace, the penalty, how many coordinates it leaves
free, and the span (:class:`~ownstep.smoothness.sketch.Sketch`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.engines.local.answering import triangle
from ownstep.engines.local.sketching import Sketching
from ownstep.engines.local.solving import solved
from ownstep.methods import Answer, Ask, SketchWork, norm
from ownstep.methods.base import SolveWork
from ownstep.smoothness.sketch import Sketch, span_of
from ownstep.smoothness.sketch import checked as checked_sketch
from ownstep.support.errors import InvalidInput
from ownstep.support.vectors import like, to_numpy

Array = NDArray[Any]
IMPLAUSIBLE = 10.0
"""How far a reply may be beyond what the site's own constants allow before it is refused."""
WORDS = ("hessian", "rank", "shared", "seed", "revealing", "skip", "solve", "near")
"""What a message says of second order, next to the second point and the vector of a problem to solve."""
NEWTON, WHOLE = "newton", "whole"
"""The problems that a site solves on its own."""


@dataclass(frozen=True)
class More:
    """What one method wants of second order of one site: a triangle, a sketch, the solution of a problem."""

    hessian: bool = False
    sketch: SketchWork | None = None
    solve: SolveWork | None = None


@dataclass(frozen=True, eq=False)
class Found:
    """The sums over those who answered, each None where it was not asked for."""

    base: Array | None = None
    hessian: Array | None = None
    solved: Array | None = None
    shared: Sketch | None = None


def words(ask: Ask) -> dict[str, Any]:
    """The second order of an ask as plain numbers and words; rank 0 for no sketch, skip -1 for the leading pairs."""
    work, solve = ask.sketch or SketchWork(0), ask.solve
    return {
        "hessian": bool(ask.hessian), "rank": int(work.rank), "shared": bool(work.shared), "seed": int(work.seed),
        "revealing": str(work.revealing), "skip": -1 if work.skip is None else int(work.skip),
        "solve": "" if solve is None else WHOLE if solve.whole else NEWTON,
        "near": 0.0 if solve is None else float(solve.prox),
    }  # fmt: skip


def from_words(said: Mapping[str, Any], vector: Array | None = None) -> More:
    """The inverse of :func:`words`; ``vector`` is that of the problem to solve."""
    work, solve = None, None
    if said["rank"]:
        skip = None if said["skip"] < 0 else int(said["skip"])
        work = SketchWork(int(said["rank"]), bool(said["shared"]), int(said["seed"]), str(said["revealing"]), skip)
    if said["solve"]:
        solve = SolveWork(vector, float(said["near"]), said["solve"] == WHOLE)
    return More(bool(said["hessian"]), work, solve)


def extra_length(ask: Ask) -> int:
    """Numbers of the flat vector behind the gradient."""
    d, work = len(ask.x), ask.sketch
    sketched = d * min(work.rank, d) + 4 if work is not None and work.shared else 0
    vectors = (ask.base is not None) + (ask.solve is not None)
    return d * vectors + (d * (d + 1) // 2 if ask.hessian else 0) + sketched


def own_rank(ask: Ask) -> int:
    """How many eigenpairs of its own a site was asked for."""
    return 0 if ask.sketch is None or ask.sketch.shared else ask.sketch.rank


def sketch_width(dim: int) -> int:
    """Numbers in a row of a site's own sketch."""
    return max(dim + 1, 4)


def reply_bytes(ask: Ask) -> int:
    """The most bytes of second order that a site may answer."""
    rank = own_rank(ask)
    return int(ask.x.itemsize * extra_length(ask) + 8 * (rank + 1) * sketch_width(len(ask.x)) * (rank > 0))


def answer(
    problem: Any, x: Any, base: Array | None, c: float, more: More, sketching: Sketching
) -> tuple[Array | None, float, Array | None]:
    """At the site: (the flat vector of sums, the loss at the second point, its own sketch)."""
    parts: list[Array] = []
    loss, mix, sketch = 0.0, np.array([c]), None
    if base is not None:
        losses, total = problem.mix(like(base, x), mix)
        loss = float(losses[0])
        parts.append(to_numpy(total))
    if more.hessian:
        parts.append(triangle(problem, x, mix))
    if more.solve is not None:
        parts.append(solved(problem, to_numpy(x), more.solve, mix))
    if more.sketch is not None and more.sketch.shared:
        made = sketching.shared(x, more.sketch, mix)
        trace = -c if np.isnan(made.trace) else made.trace
        parts += [
            to_numpy(made.vectors).ravel(),
            np.array([trace, made.penalty, c * made.free, span_of(made) / len(x)]),
        ]
    elif more.sketch is not None:
        (own,) = sketching.own(x, more.sketch, np.ones(1, bool))
        assert own is not None
        sketch = pack_sketch(own)
    extra = np.concatenate(parts).astype(to_numpy(x).dtype) if parts else None
    return extra, loss, sketch


def pack_sketch(sketch: Sketch) -> Array:
    """One array: a row per eigenpair, and a last row with the trace, the penalty, the free coordinates, the span."""
    vectors = to_numpy(sketch.vectors).astype(float)
    k, d = vectors.shape
    out = np.zeros((k + 1, sketch_width(d)))
    out[:k, :d], out[:k, d] = vectors, sketch.values
    trace = -1.0 if np.isnan(sketch.trace) else sketch.trace
    out[k, :4] = trace, sketch.penalty, sketch.free, span_of(sketch)
    return out


def unpack_sketch(numbers: Array, ask: Ask, name: str) -> Sketch:
    """The inverse; :class:`InvalidInput` unless it is what was asked for."""
    d, k = len(ask.x), len(numbers) - 1
    trace, penalty, free, span = numbers[k, :4].tolist()
    known = np.nan if trace < 0 else trace
    if not 0 <= free <= d or penalty < 0:
        raise InvalidInput(f"{name}: a penalty of {penalty!r} that leaves {free!r} of {d} coordinates free")
    if not 0 <= span <= d:
        raise InvalidInput(f"{name}: curvature in {span!r} of {d} directions")
    values = numbers[:k, d].astype(float)
    sketch = Sketch(numbers[:k, :d].astype(ask.x.dtype), values, known, penalty, int(free), int(span))
    return checked_sketch(sketch, d, own_rank(ask), name)


def split(ask: Ask, extra: Array | None, share: float) -> Found:
    """The parts of the flat vector, summed over sites whose coefficients sum to ``share``."""
    if extra is None:
        return Found()
    d, at, out = len(ask.x), 0, dict[str, Any]()
    if ask.base is not None:
        out["base"], at = extra[:d], d
    if ask.hessian:
        size = d * (d + 1) // 2
        out["hessian"], at = extra[at : at + size], at + size
    if ask.solve is not None:
        out["solved"], at = extra[at : at + d], at + d
    if ask.sketch is not None and ask.sketch.shared:
        trace, penalty, free, spans = extra[-4:].tolist()
        known = trace if trace >= 0 else float("nan")
        vectors = extra[at:-4].reshape(-1, d)
        span = round(spans * d)
        out["shared"] = Sketch(vectors, np.zeros(0), known, penalty, round(free / share) if share else 0, span)
    return Found(**out)


def told(answer: Answer, ask: Ask, seen: Any, rule: str, share: float, rows: Array | None) -> Answer:
    """The answer with what came of second order, by the same rule for those who are missing.

    ``seen`` is the coordinator's :class:`~ownstep.engines.federation.coordinator.Gathered`, ``share`` what sums are
    divided by, ``rows`` the gradients of all sites, last known ones included, under the rule ``"last"``.
    """
    assert ask.mix is not None
    present, there = seen.present, float(ask.mix[seen.present].sum())
    extra = seen.extra if present.all() or seen.extra is None else seen.extra / (share or 1.0)
    if rule == "last" and not present.all() and seen.extra is not None:
        extra = seen.extra / (there / float(ask.mix.sum()))  # what is remembered are gradients alone
    found = split(ask, extra, there / (share or 1.0))
    base = found.base
    if base is not None and rule == "last" and rows is not None:  # the absent count with what they sent last
        base = split(ask, seen.extra, there).base + ask.mix[~present] @ rows[~present]
    sketches = seen.sketches if own_rank(ask) else () if found.shared is None else (found.shared,)
    answer = replace(answer, base=base, base_value=seen.value_base, hessian=found.hessian)
    return replace(answer, solved=found.solved, sketches=sketches)


def check_sketch(ask: Ask, numbers: Array | None, L: float) -> None:
    """Refuse a sketch of more curvature than the site's L allows: no eigenvalue is above L, no trace above d L."""
    if numbers is None:
        return
    sketch = unpack_sketch(numbers, ask, "its sketch")
    largest, trace = float(sketch.values.max(initial=0.0)), float(np.nan_to_num(sketch.trace))
    if max(largest, trace / len(ask.x)) > IMPLAUSIBLE * L:
        raise InvalidInput(
            f"its sketch has an eigenvalue of {largest:.3g} and a trace of {trace:.3g}, by its own L at most {L:.3g} "
            f"and {len(ask.x) * L:.3g}: not believed"
        )


def check_solution(ask: Ask, extra: Array | None, c: float, mu: float) -> None:
    """Refuse a solution that a loss as curved as the site said its own is cannot have.

        ||p_i|| <= ||vector|| / (mu_i + prox),      for either problem

    beyond which by a factor of 10 it is an error of transmission or of a unit.
    """
    work = ask.solve
    if work is None or extra is None or not c or not mu + work.prox > 0:
        return
    p = split(ask, extra, 1.0).solved
    length, most = norm(p) / abs(c), norm(work.vector) / (mu + work.prox)
    if length > IMPLAUSIBLE * most:
        raise InvalidInput(f"its solution has length {length:.3g}, by its own mu at most {most:.3g}: not believed")
