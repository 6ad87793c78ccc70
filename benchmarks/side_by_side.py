"""Many runs on one softmax problem, side by side: what they ask for is evaluated together, on a GPU or on the CPU.

Every run is a thread of its own that does what :func:`ownstep.engines.run` always does. Only the problem is another
one: it waits until every run that still goes has asked for its devices' gradients, and then computes them all with
one product with the data and one with its transpose, in double precision. So a search of thirty settings reads the
data as often as one of them would. The iterates are those of the runs alone, but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Condition
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ownstep.problems import MultinomialLogistic

Array = NDArray[Any]
Evaluate = Callable[[Array], tuple[Array, Array]]


class Products:
    """(runs, devices, d * C) points -> (losses, gradients) of every device at its own point."""

    def __init__(self, problem: MultinomialLogistic, device: str) -> None:
        self.problem, self.device = problem, torch.device(device)
        count, most = len(problem.counts), int(problem.counts.max())
        rows, labels = np.zeros((count, most, problem.features)), np.zeros((count, most), np.int64)
        share = np.zeros((count, most))  # 1/n_i, and nothing for the rows that fill up smaller devices
        for i, n in enumerate(problem.counts):
            part = problem.rows(i)
            rows[i, :n] = part.toarray() if hasattr(part, "toarray") else part
            labels[i, :n], share[i, :n] = problem._y[problem.block(i)], 1 / n
        self.rows, self.share = self._put(rows), self._put(share)[:, :, None]
        self.labels = self._put(labels)[:, :, None, None]
        self.penalty = self._put(problem.penalty)[None, :, None, None]

    def _put(self, array: Array) -> Any:
        return torch.as_tensor(array, device=self.device)

    def __call__(self, points: Array) -> tuple[Array, Array]:
        runs, count, d, classes = *points.shape[:2], self.problem.features, self.problem.outputs
        x = self._put(points).view(runs, count, d, classes).permute(1, 2, 0, 3)  # (devices, d, runs, C)
        z = (self.rows @ x.reshape(count, d, -1)).view(count, -1, runs, classes)
        log_total = z.logsumexp(-1, keepdim=True)
        at = self.labels.expand(-1, -1, runs, 1)
        losses = (self.share * (log_total - z.gather(-1, at)).squeeze(-1)).sum(1)
        slope = (z - log_total).exp_()
        slope.scatter_add_(-1, at, torch.full_like(log_total, -1.0))
        slope *= self.share[..., None]
        gradients = (self.rows.mT @ slope.view(count, -1, runs * classes)).view(x.shape)
        ridge = self.penalty * x
        losses = losses + 0.5 * (x * ridge).sum((1, 3))
        found = (gradients + ridge).permute(2, 0, 1, 3).reshape(runs, count, -1)
        return losses.T.cpu().numpy(), found.cpu().numpy()


class Turns:
    """Collects what the runs ask for; the last of them evaluates for all."""

    def __init__(self, evaluate: Evaluate, runs: int) -> None:
        self.evaluate, self.going = evaluate, runs
        self.changed = Condition()
        self.asked: dict[int, Array] = {}
        self.answers: dict[int, tuple[Array, Array]] = {}
        self.failed: BaseException | None = None

    def ask(self, run: int, points: Array) -> tuple[Array, Array]:
        """(losses, gradients) at the points, once all runs that go have asked."""
        with self.changed:
            self.asked[run] = points
            self._evaluate_once_all_asked()
            self.changed.wait_for(lambda: run in self.answers or self.failed is not None)
            if self.failed is not None:
                raise RuntimeError("the evaluation for all runs failed") from self.failed
            return self.answers.pop(run)

    def leave(self) -> None:
        """A run has ended: the others no longer wait for it."""
        with self.changed:
            self.going -= 1
            self._evaluate_once_all_asked()

    def _evaluate_once_all_asked(self) -> None:
        if not self.asked or len(self.asked) < self.going:
            return
        order = list(self.asked)
        try:
            losses, gradients = self.evaluate(np.stack([self.asked[run] for run in order]))
        except BaseException as error:
            self.failed = error
            self.changed.notify_all()
            raise
        self.answers = {run: (losses[j], gradients[j]) for j, run in enumerate(order)}
        self.asked = {}
        self.changed.notify_all()


class OneOfMany(MultinomialLogistic):
    """A problem as one run sees it: its gradients come when all runs have asked."""

    def __init__(self, problem: MultinomialLogistic, turns: Turns, run: int) -> None:
        self.__dict__.update(problem.__dict__)
        self._turns, self._run = turns, run

    def each(self, x: Array) -> tuple[NDArray[np.float64], Array]:
        return self._turns.ask(self._run, np.broadcast_to(x, (len(self.counts), self.dim)))

    def mix(self, x: Array, c: NDArray[np.float64]) -> tuple[NDArray[np.float64], Array]:
        losses, gradients = self.each(x)
        return losses, np.asarray(c, float).T @ gradients if np.ndim(c) == 1 else gradients.T @ c


def side_by_side(
    problem: MultinomialLogistic, tasks: Sequence[Callable[[MultinomialLogistic], Any]], device: str
) -> list[Any]:
    """What each task gives for the problem, all of them run at the same time."""
    if not tasks:
        return []
    turns = Turns(Products(problem, device), len(tasks))

    def one(run: int) -> Any:
        try:
            return tasks[run](OneOfMany(problem, turns, run))
        finally:
            turns.leave()

    with ThreadPoolExecutor(len(tasks)) as pool:
        return list(pool.map(one, range(len(tasks))))
