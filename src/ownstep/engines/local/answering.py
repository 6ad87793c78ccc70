"""From what a method asks to what it is told, for devices that live in this process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.engines.local.secant import Memory, each
from ownstep.engines.local.sketching import Sketching
from ownstep.engines.local.solving import solved
from ownstep.engines.participation import Missing, effective_mix
from ownstep.methods import Answer, Ask, LocalWork, Sketch, SketchWork, alike, norm
from ownstep.methods.base import SolveWork, ordered_sum
from ownstep.methods.local_work import lengths
from ownstep.problems.base import Problem
from ownstep.smoothness.sketch import checked
from ownstep.support.errors import InvalidInput
from ownstep.support.vectors import to_numpy, upper

Present = NDArray[np.bool_]
MOST_COORDINATES = 4000
"""Newton's triangle has 8 million numbers then, and its factorisation takes seconds."""


@dataclass(frozen=True, eq=False)
class Answered:
    """An answer, and what was seen on the way to it.

    Parameters
    ----------
    losses : f_i at the point asked about, or None where they were not evaluated at one common point.
    gradient_norm : ||grad f|| there, nan where it was not asked for.
    up, down : bytes each device sent and received.
    """

    answer: Answer
    losses: NDArray[np.float64] | None
    gradient_norm: float
    up: NDArray[np.int64]
    down: NDArray[np.int64]


class Answering:
    """Evaluates asks on a problem, and keeps the last known gradients where the rule for the absent needs them."""

    def __init__(self, problem: Problem, missing: Missing | None, measure_gradient: bool = False) -> None:
        self.problem, self.missing, self.measure_gradient = problem, missing, measure_gradient
        self.last: Any = None
        self.memory = Memory(problem, missing is not None)
        self.sketching = Sketching(problem)

    def __call__(self, ask: Ask, present: Present) -> Answered:
        """The answer of the devices that are present."""
        seen = self._gradients(ask, present)
        return self._more(ask, present, seen) if wants_more(ask) else seen

    def _gradients(self, ask: Ask, present: Present) -> Answered:
        """The sums of gradients, and what is measured along with them."""
        if ask.mix is None:
            return self._each(ask, present)
        if ask.curvature or ask.also is not None:
            return self._measured(ask, ask.mix, present)
        if ask.local is not None or self.missing == "last":
            return self._row_by_row(ask, present)
        return self._one_sum(ask, ask.mix, present)

    def _one_sum(self, ask: Ask, asked: NDArray[np.float64], present: Present) -> Answered:
        """One pass over the data, whatever the number of devices."""
        weights = self.problem.weights
        mix = asked if self.missing is None else effective_mix(asked, weights, present, self.missing)
        if (factor := multiple(mix, weights)) is not None:  # the sum asked for is grad f itself, up to a factor
            losses, total = self.problem.mix(ask.x, mix)
            gradient_norm = norm(total) / abs(factor) if factor else np.nan
        elif self.measure_gradient:
            losses, both = self.problem.mix(ask.x, np.column_stack([mix, weights]))
            total, gradient_norm = both[:, 0].copy(), norm(both[:, 1])
        else:
            losses, total = self.problem.mix(ask.x, mix)
            gradient_norm = np.nan
        answer = Answer(total, self._value(losses, present), present=self._seen(present))
        return Answered(answer, losses, gradient_norm, *server_bytes(ask, present))

    def _more(self, ask: Ask, present: Present, seen: Answered) -> Answered:
        """The sum at a second point, the Hessian, the sketches: of those who are present."""
        if ask.mix is None or ask.local is not None:
            raise InvalidInput("a second point, a Hessian and sketches go with one sum of gradients at x")
        mix, found = ask.mix, dict[str, Any]()
        if self.missing is not None:
            mix = effective_mix(mix, self.problem.weights, present, "drop" if self.missing == "drop" else "rescale")
        if ask.base is not None:
            found |= self._at_base(ask.base, ask.mix, mix, present)
        if ask.hessian:
            found["hessian"] = triangle(self.problem, ask.x, mix)
        up = seen.up
        if ask.sketch is not None:
            sound = np.isfinite(seen.answer.value)  # a trial too far away has no curvature to speak of
            found["sketches"] = self._sketches(ask.x, ask.sketch, mix, present) if sound else ()
            up = up + sketch_bytes(ask.x, found["sketches"], present)
        if ask.solve is not None:
            found["solved"] = self._solved(ask.x, ask.solve, mix)
        return replace(seen, answer=replace(seen.answer, **found), up=up)

    def _sketches(
        self, x: Any, work: SketchWork, mix: NDArray[np.float64], present: Present
    ) -> tuple[Sketch | None, ...]:
        made: tuple[Sketch | None, ...]
        made = (self.sketching.shared(x, work, mix),) if work.shared else self.sketching.own(x, work, present)
        for i, sketch in enumerate(made):
            if sketch is not None:
                checked(sketch, len(x), work.rank, "the devices" if work.shared else self.problem.names[i])
        return made

    def _solved(self, x: Any, work: SolveWork, mix: NDArray[np.float64]) -> Any:
        return solved(self.problem, x, work, mix)

    def _at_base(
        self, base: Any, asked: NDArray[np.float64], mix: NDArray[np.float64], present: Present
    ) -> dict[str, Any]:
        if self.missing != "last":
            losses, total = self.problem.mix(base, mix)
        else:  # the absent count with what they sent last, here as at x
            losses, rows = each(self.problem, base)
            rows[~present] = self.last[~present]
            total = alike(asked, rows) @ rows
        return {"base": total, "base_value": self._value(losses, present)}

    def _measured(self, ask: Ask, asked: NDArray[np.float64], present: Present) -> Answered:
        """Every gradient on its own, so that curvatures and a second sum come from the same pass."""
        if ask.local is not None:
            raise InvalidInput("curvature and a second sum are of gradients at x; local steps have neither")
        weights = self.problem.weights
        losses, rows = each(self.problem, ask.x)
        curvature, previous = None, np.nan
        if ask.curvature:
            curvature, previous = self.memory.measure(ask.x, losses, rows, present)
        seen = rows
        if self.missing == "last":
            seen = rows + 0.0
            seen[~present] = 0 if self.last is None else self.last[~present]
            self.last = seen

        def total(mix: NDArray[np.float64]) -> Any:
            if self.missing in ("rescale", "drop"):
                mix = effective_mix(mix, weights, present, self.missing)
            return alike(mix, seen) @ seen

        answer = Answer(
            total(asked), self._value(losses, present), None, self._seen(present),
            None if ask.also is None else total(ask.also), curvature, previous,
        )  # fmt: skip
        gradient = alike(weights, rows) @ rows
        return Answered(answer, losses, norm(gradient), *server_bytes(ask, present))

    def _row_by_row(self, ask: Ask, present: Present) -> Answered:
        """Local steps, or gradients that are remembered: one pass over the data a local step."""
        assert ask.mix is not None
        weights, work = self.problem.weights, ask.local or LocalWork(1, 1.0)
        losses, gradient, rows = self._moves(ask.x, work)
        rows[~present] = 0 if self.missing != "last" or self.last is None else self.last[~present]
        mix, share = ask.mix, 1.0
        if self.missing == "last":
            self.last = rows
        elif self.missing is not None:
            mix = effective_mix(ask.mix, weights, present, "drop")
            share = (float(weights[present].sum()) or 1.0) if self.missing == "rescale" else 1.0
        total = ordered_sum(mix, rows)  # divided afterwards, as by a server that learns late who is missing
        squares = sum((mix * self._squares(rows)).tolist()) / share if work.norms else np.nan
        answer = Answer(
            total if share == 1.0 else total / share, self._value(losses, present),
            rows if work.shift is not None else None, self._seen(present), squares=squares,
        )  # fmt: skip
        return Answered(answer, losses, norm(gradient), *server_bytes(ask, present))

    def _moves(self, x: Any, work: LocalWork) -> tuple[NDArray[np.float64], Any, Any]:
        """(f_i at x, grad f there, every device's d_i after its local work)."""
        losses, rows = each(self.problem, x)
        return losses, alike(self.problem.weights, rows) @ rows, local_work(self.problem, x, work, (losses, rows))

    def _squares(self, rows: Any) -> NDArray[np.float64]:
        return np.asarray(lengths(rows) ** 2)

    def _each(self, ask: Ask, present: Present) -> Answered:
        """Every device's gradient at its own point: there is no server, so nobody knows f."""
        if self.missing == "last":
            raise InvalidInput("missing='last' needs a server that remembers; without one use 'drop'")
        gradients = self.problem.gradients(ask.x)
        gradients[~present] = 0
        links = np.zeros((len(present),) * 2, np.int64) if ask.links is None else ask.links
        links = links * np.outer(present, present)
        vector = ask.x.nbytes // len(ask.x)
        answer = Answer(gradients=gradients, present=self._seen(present))
        return Answered(answer, None, np.nan, vector * links.sum(axis=1), vector * links.sum(axis=0))

    def _value(self, losses: NDArray[np.float64], present: Present) -> float:
        weights = self.problem.weights
        if self.missing is not None:
            weights, losses = weights[present], losses[present]
        share = float(weights.sum())
        return float(weights @ losses) / share if share else np.nan

    def _seen(self, present: Present) -> Present | None:
        return None if self.missing is None else present


def multiple(mix: NDArray[np.float64], weights: NDArray[np.float64]) -> float | None:
    """The factor by which one is the other, None where there is none: first and last mostly tell."""
    factor = float(mix[0] / weights[0])
    near = 1e-12 * abs(factor)
    if not abs(float(mix[-1] / weights[-1]) - factor) <= near:
        return None
    return factor if np.ptp(mix / weights) <= near else None


def local_work(problem: Problem, x: Any, work: LocalWork, known: tuple[NDArray[np.float64], Any] | None = None) -> Any:
    """d_i = (x - y_i) / eta_i after the local steps of :class:`LocalWork`, one row per device.

    ``known`` are the losses and gradients at x, where they are known already. y_i - x is kept as -eta_i times the sum
    of the steps so far.
    """
    losses, move = each(problem, x) if known is None else known
    count = len(problem.weights)
    step = work.step if np.ndim(work.step) == 0 else alike(np.asarray(work.step)[:, None], x)
    first = np.broadcast_to(np.asarray(work.step, float), (count,))
    choose = None if work.rule is None else work.rule.begin(first)
    uneven = np.ndim(work.steps) > 0
    y, total = x, 0.0
    for taken in range(work.longest):
        if taken:
            y = x - step * total
            losses, move = each(problem, y) if choose is not None else (losses, problem.gradients(y))
        if work.shift is not None:
            move = move + work.shift
        if taken and work.prox:
            move = move - work.prox * step * total
        if choose is not None:
            move = alike((choose(losses, y, move) / first)[:, None], x) * move
        if taken and uneven:
            move = alike((taken < np.asarray(work.steps))[:, None].astype(float), x) * move
        total = total + move if taken else move + 0.0
    return total


def server_bytes(ask: Ask, present: Present) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A vector each way and a number with it: the loss up, the device's coefficient down.

    Control variates are a vector more down: what becomes of them follows from the moves. A second sum is one vector
    more up and one coefficient more down; curvature is two numbers more up, L_i and the loss at the last point; a sum
    of squared norms is one. A second point is a vector more each way and a loss more up, a Hessian its triangle up, a
    sketch k vectors and k + 4 numbers up; what is asked for is one number down.
    """
    shifted, twice = ask.local is not None and ask.local.shift is not None, ask.also is not None
    numbers = 8 + 16 * ask.curvature + 8 * (ask.local is not None and ask.local.norms)
    up, down = (1 + twice) * ask.x.nbytes + numbers, (1 + shifted) * ask.x.nbytes + 8 + 8 * twice
    if ask.base is not None:
        up, down = up + ask.x.nbytes + 8, down + ask.x.nbytes
    if ask.hessian:
        d = len(ask.x)
        up += ask.x.nbytes // d * (d * (d + 1) // 2)
    return present * np.int64(up), present * np.int64(down)


def sketch_bytes(x: Any, sketches: tuple[Sketch | None, ...], present: Present) -> NDArray[np.int64]:
    """The bytes each device sends for its sketch: its vectors and values, the trace, the penalty and the span."""
    each = [0 if s is None else len(s.vectors) * x.nbytes + 8 * (len(s.values) + 4) for s in sketches]
    return np.where(present, np.asarray(each or [0], np.int64), 0)


def wants_more(ask: Ask) -> bool:
    """Does the ask want anything of another point or of second order?"""
    return ask.base is not None or ask.hessian or ask.sketch is not None or ask.solve is not None


def triangle(problem: Any, x: Any, mix: NDArray[np.float64]) -> NDArray[Any]:
    """The upper triangle of sum_i c_i H_i(x), refused where it is too large or not finite."""
    if not hasattr(problem, "hessian"):
        raise InvalidInput(
            f"{type(problem).__name__} has no Hessians to send, which Newton() needs; LBFGS() needs gradients alone"
        )
    d = problem.dim
    if d > MOST_COORDINATES:
        raise InvalidInput(
            f"a Hessian of {d} coordinates is {d * (d + 1) // 2:,} numbers; Newton() is for at most "
            f"{MOST_COORDINATES}, OwnCurvature() and LBFGS() for any"
        )
    return checked_triangle(np.asarray(problem.hessian(x, mix)[upper(d)], to_numpy(x).dtype), d)


def checked_triangle(numbers: NDArray[Any], d: int) -> NDArray[Any]:
    """A triangle that came from devices: of the shape asked for and finite."""
    if numbers.shape != (d * (d + 1) // 2,):
        raise InvalidInput(f"a Hessian's triangle has {d * (d + 1) // 2} numbers, got shape {numbers.shape}")
    if not np.isfinite(numbers).all():
        raise InvalidInput("a Hessian with entries that are not finite")
    return numbers
