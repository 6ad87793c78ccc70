"""Many runs at once: every seed and method of a figure in one batched program.

Each run keeps its own method, driven by the same ask and tell as everywhere; only the evaluation of all their
mini-batches is one pass. Losses stay on the device and are fetched every ``every`` rounds, so nothing waits.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ownstep.engines import checkpoint as ckpt
from ownstep.engines.local.loop import DIVERGED, digest
from ownstep.history import History
from ownstep.methods import Answer, At, Method, Never, Watch
from ownstep.plan import Devices
from ownstep.problems.network.cuda_graph import Replay
from ownstep.problems.network.problem import Network
from ownstep.problems.network.stack import layouts, stacked_forward
from ownstep.support.checks import whole_number
from ownstep.support.errors import InvalidInput, OwnstepError
from ownstep.support.vectors import to_numpy

CHECKPOINT_SECONDS = 30.0


@dataclass(frozen=True, eq=False)
class Job:
    """One run of the stack: a method on a mini-batch problem, from its own start."""

    name: str
    method: Method
    problem: Network
    devices: Devices
    x0: Tensor


class Stack:
    """The joint evaluation of several jobs, whose problems share data, architecture and batch size."""

    def __init__(self, jobs: Sequence[Job], layout: str | None = None, graph: bool = True, fused: bool = False) -> None:
        first = jobs[0].problem
        for job in jobs:
            p = job.problem
            same = (
                p.layout == first.layout and p.parts[0][0] is first.parts[0][0] and p.penalty == first.penalty
                and p.augment == first.augment and p.dealer is not None and first.dealer is not None
                and p.dealer.size == first.dealer.size and len(p.weights) == len(first.weights)
            )  # fmt: skip
            if not same:
                raise InvalidInput(
                    f"stacked runs share data, architecture, penalty and batch size; {job.name!r} differs from "
                    f"{jobs[0].name!r} (make the problems from one tensor on the device, with mini-batches)"
                )
        self.jobs, self.first = tuple(jobs), first
        known = layouts(first.model)
        self.layout = ("patches" if fused and "patches" in known else known[0]) if layout is None else layout
        self._weighted = torch.compile(self._objective, dynamic=False) if fused else self._objective
        device, dtype = first.device, first.dtype
        self.owners_of = torch.stack([j.problem.device_of for j in jobs])
        self.divisors = np.stack([j.problem.divisor for j in jobs])
        self.shares = torch.as_tensor(
            np.stack([j.problem.weights for j in jobs]) / self.divisors, dtype=torch.float64, device=device
        )
        self.x = torch.zeros(len(jobs), first.dim, dtype=dtype, device=device)
        self.coefficients = torch.zeros(self.shares.shape, dtype=dtype, device=device)
        self.total = torch.zeros(len(jobs), dtype=dtype, device=device)
        self.replay = Replay(self._pass, graph, fused, lambda out: [out[0], *first.layout.split(out[1]).values()])
        self._mixes: list[NDArray[np.float64] | None] = [None] * len(jobs)

    def set_mixes(self, mixes: Sequence[NDArray[np.float64]]) -> None:
        """The coefficients c of every job's coming round; nothing is sent while they stay as they were."""
        for m, (old, new) in enumerate(zip(self._mixes, mixes, strict=True)):
            if old is None or old.tobytes() != new.tobytes():
                self.coefficients[m] = torch.as_tensor(new / self.divisors[m]).to(self.x)
                self.total[m] = float(new.sum())
                self._mixes[m] = new

    def table(self, start: int, stop: int) -> Tensor:
        """(rounds, jobs, batch, 1 + augmentation) whole numbers: which samples, and how each is changed."""
        dealt: dict[Any, NDArray[Any]] = {}
        changed: dict[Any, NDArray[Any]] = {}  # runs of one seed change their batches alike, whatever their samples
        columns = []
        for job in self.jobs:
            p, k = job.problem, range(start, stop)
            key = (p.batch, p.seed, p.partition.device_of.tobytes())
            if key not in dealt:
                assert p.dealer is not None
                dealt[key] = np.stack([p.dealer.indices(i) for i in k])[..., None]
            if p.augment is not None and p.seed not in changed:
                changed[p.seed] = np.stack([p.augmentation(i) for i in k])
            columns.append(np.concatenate([dealt[key], *([changed[p.seed]] if changed else [])], axis=-1))
        return torch.as_tensor(np.stack(columns, axis=1))

    def evaluate(self, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """(f of every job on its batch, its asked-for sum), at ``self.x``."""
        values, sums = self.replay(self.x, self.coefficients, self.total, drawn)
        return values, sums

    def outputs(self, inputs: Tensor, chunk: int = 250) -> Tensor:
        """(jobs, n, classes): every model on the same inputs, without a gradient."""
        known = layouts(self.first.model)
        with torch.no_grad():
            tensors = self.first.layout.split(self.x)
            parts = [
                stacked_forward(self.first.model, tensors, part.expand(len(self.jobs), *part.shape), known[0])
                for part in inputs.split(chunk)
            ]
        return torch.cat(parts, dim=1)

    def losses_and_accuracy(self, inputs: Tensor, targets: Tensor) -> tuple[NDArray[Any], NDArray[Any]]:
        """Mean loss without the penalty, and accuracy, of every model on given data."""
        out = self.outputs(inputs)
        losses = [float(self.first.loss(o, targets).double().mean()) for o in out]
        return np.array(losses), to_numpy((out.argmax(-1) == targets).double().mean(1))

    def _pass(self, x: Tensor, coefficients: Tensor, total: Tensor, drawn: Tensor) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            objective, values = self._weighted(x, coefficients, total, drawn)
            (sums,) = torch.autograd.grad(objective, x)
        return values.detach(), sums

    def _objective(self, x: Tensor, coefficients: Tensor, total: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """The number whose gradient is every job's asked-for sum, and f of every job on its batch."""
        p, M = self.first, len(self.jobs)
        at = drawn[..., 0]
        images = p.parts[0][0][at]
        if p.augment is not None:
            changed = p.augment.apply(images.flatten(0, 1), drawn[..., 1:].flatten(0, 1))
            images = changed.unflatten(0, (M, -1))
        owners, targets = self.owners_of.gather(1, at), p.targets[at]
        tensors = p.layout.split(x)
        with torch.autocast(p.device.type, p.autocast, enabled=p.autocast is not None):
            out = stacked_forward(p.model, tensors, images, self.layout).to(x.dtype)
        losses = p.loss(out.flatten(0, 1), targets.flatten()).view(M, -1)
        penalty = torch.zeros_like(total) if p.penalty is None else p.penalty(tensors.values(), 1)
        objective = (coefficients.gather(1, owners) * losses).sum() + (total * penalty).sum()
        return objective, (self.shares.gather(1, owners) * losses).sum(1) + penalty


def run_stacked(
    jobs: Sequence[Job],
    rounds: int,
    *,
    every: int = 500,
    layout: str | None = None,
    graph: bool = True,
    fused: bool = False,
    seconds: float | None = None,
    observe: Callable[[int, Stack], None] | None = None,
    checkpoint: str | Path | None = None,
    notes: dict[str, Any] | None = None,
) -> list[History]:
    """Run all jobs together; each history is the one :func:`ownstep.engines.run` would give, to rounding.

    Parameters
    ----------
    rounds : K, the same for all.
    every : rounds between two fetches of the losses, and two calls of ``observe(k, stack)``.
    layout : of the stacked layers, see :mod:`ownstep.problems.network.stack`.
    graph : on a GPU, record a round once and replay it.
    fused : let ``torch.compile`` fuse a round's small operations: half a minute once, then faster on a GPU.
    seconds : stop at the first fetch after this long, keeping what is there.
    checkpoint : a file written at a fetch, every half minute at most and at the end of the time. If it exists, the
        runs go on from it.
    notes : plain data of the caller's that a checkpoint carries along, filled in when the runs go on.
    """
    whole_number("rounds", rounds, 0)
    stack = Stack(jobs, layout, graph, fused)
    going = _Run(stack, jobs, None if checkpoint is None else Path(checkpoint), {} if notes is None else notes)
    return going.go(rounds, every, seconds, observe)


class _Run:
    def __init__(self, stack: Stack, jobs: Sequence[Job], checkpoint: Path | None, notes: dict[str, Any]) -> None:
        self.stack, self.jobs, self.checkpoint, self.notes = stack, jobs, checkpoint, notes
        self.states = [job.method.start(job.x0.to(stack.x), job.devices) for job in jobs]
        # A switch that looks at f or at a norm needs the numbers every round; the others never wait for them.
        blind = (At, Never, type(None))
        self.watched = any(not isinstance(getattr(job.method, "switch", None), blind) for job in jobs)
        self.values: list[NDArray[np.float64]] = []
        self.phases: list[list[int]] = [[] for _ in jobs]
        self.names: list[str] = []  # of the phases, by their numbers
        self.steps: list[list[float]] = [[] for _ in jobs]

    def go(
        self, rounds: int, every: int, seconds: float | None, observe: Callable[[int, Stack], None] | None
    ) -> list[History]:
        began, first, out_of_time = time.monotonic(), self._resume(rounds), False
        k, saved = first, began
        with ThreadPoolExecutor(1) as helper:  # deals the next batches while the device works
            coming = helper.submit(self.stack.table, k, min(k + every, rounds + 1))
            while k <= rounds and not out_of_time:
                table = coming.result().to(self.stack.x.device)
                stop = k + len(table)
                if stop <= rounds:
                    coming = helper.submit(self.stack.table, stop, min(stop + every, rounds + 1))
                block: list[Tensor] = []
                for drawn in table:
                    self._round(drawn, last=k == rounds, block=block)
                    k += 1
                self.values.append(to_numpy(torch.stack(block)))
                if observe is not None:
                    self._place()
                    observe(min(k, rounds), self.stack)
                out_of_time = seconds is not None and time.monotonic() - began > seconds
                if k <= rounds and (out_of_time or time.monotonic() - saved > CHECKPOINT_SECONDS):
                    self._save(k)
                    saved = time.monotonic()
        done = f"all {rounds} rounds done" if k > rounds else f"out of time after {k - 1} rounds"
        return self._histories(done, (time.monotonic() - began) / max(1, k - first))

    def _together(self) -> Any:
        """All states as one, for a checkpoint."""
        fields = {f"job{m}": state for m, state in enumerate(self.states)}
        return make_dataclass("States", fields, frozen=True)(**fields)

    def _number(self, phase: str) -> int:
        if phase not in self.names:
            self.names.append(phase)
        return self.names.index(phase)

    def _fingerprint(self) -> list[Any]:
        """What a checkpoint must agree with; constants to five digits, as a GPU may measure them anew with others."""
        first = self.jobs[0].problem
        data = digest(first.targets, first.parts[0][0][:1], self.stack.owners_of)
        return [data] + [
            [
                job.name, repr(job.method), job.problem.settings, digest(job.devices.weights, job.x0),
                [f"{L:.5g}" for L in job.devices.L],
            ]
            for job in self.jobs
        ]  # fmt: skip

    def _save(self, k: int) -> None:
        if self.checkpoint is None:
            return
        arrays: dict[str, NDArray[Any]] = {
            "values": np.concatenate(self.values),
            "phases": np.array(self.phases, np.uint8),
            "steps": np.array(self.steps),
        }
        about = {"k": k, "fingerprint": self._fingerprint(), "phases": self.names, "notes": self.notes}
        ckpt.save(self.checkpoint, self._together(), about, arrays)

    def _resume(self, rounds: int) -> int:
        """The round to go on with."""
        path = self.checkpoint
        if path is None or not path.exists():
            return 0
        told = ckpt.about(path)
        if told.get("fingerprint") != json.loads(json.dumps(self._fingerprint())) or told["k"] > rounds:
            raise OwnstepError(
                f"the checkpoint {str(path)!r} is of other runs, or of more rounds than {rounds}; it was left alone: "
                "name another file or remove it"
            )
        states, about, arrays = ckpt.load(path, self._together())
        self.states = [getattr(states, f"job{m}") for m in range(len(self.jobs))]
        self.values = [arrays["values"]]
        self.phases, self.names = arrays["phases"].tolist(), about["phases"]
        self.steps = arrays["steps"].tolist()
        self.notes.update(about["notes"])
        return int(about["k"])

    def _place(self) -> None:
        points = [job.method.point(s) for job, s in zip(self.jobs, self.states, strict=True)]
        torch.stack(points, out=self.stack.x)

    def _round(self, drawn: Tensor, last: bool, block: list[Tensor]) -> None:
        asks = [job.method.ask(s) for job, s in zip(self.jobs, self.states, strict=True)]
        for job, ask in zip(self.jobs, asks, strict=True):
            if ask.mix is None or ask.local is not None or ask.also is not None or ask.curvature:
                raise InvalidInput(f"stacked runs evaluate one sum per round, {job.method!r} asks for more; use run")
        torch.stack([a.x for a in asks], out=self.stack.x)
        self.stack.set_mixes([a.mix for a in asks if a.mix is not None])
        values, sums = self.stack.evaluate(drawn)
        block.append(values.clone())
        for m, (job, state) in enumerate(zip(self.jobs, self.states, strict=True)):
            progress = job.method.progress(state)
            self.phases[m].append(self._number("end" if last else progress.phase))
            self.steps[m].append(np.nan if last else progress.step)
        if last:
            return
        seen = to_numpy(values) if self.watched else np.full(len(self.jobs), np.nan)
        self.states = [
            job.method.tell(s, Answer(g, float(v)))
            for job, s, g, v in zip(self.jobs, self.states, sums, seen, strict=True)
        ]

    def _histories(self, done: str, pace: float) -> list[History]:
        everything = np.concatenate(self.values)
        out = []
        for m, (job, state) in enumerate(zip(self.jobs, self.states, strict=True)):
            value = everything[:, m].astype(float)
            stopped = done
            wrong = np.flatnonzero(~np.isfinite(value) | (value - value[0] > DIVERGED * max(1.0, abs(value[0]))))
            if len(wrong):
                value = value[: wrong[0] + 1]
                stopped = f"f(x) is {value[-1]:.4g} at round {wrong[0]}: the step is too long"
            n = len(value)
            watch = getattr(state, "watch", Watch())
            # each device sends one vector and its loss, and receives one vector and its coefficient
            traffic = len(job.devices) * (job.problem.dim * self.stack.x.element_size() + 8)
            x = to_numpy(job.method.point(state))
            columns = {
                "value": value,
                "gradient_norm": np.full(n, np.nan),
                "phase": np.array([*(self.names[i] for i in self.phases[m][: n - 1]), "end"], dtype="U6"),
                "step": np.array([*self.steps[m][: n - 1], np.nan]),
                "participants": np.array([len(job.devices)] * (n - 1) + [0]),
                "bytes_up": np.array([traffic] * (n - 1) + [0]),
                "bytes_down": np.array([traffic] * (n - 1) + [0]),
                "seconds": np.full(n, pace),
            }
            settings = {
                "method": repr(job.method), "problem": "Network", "devices": len(job.devices),
                "dim": job.problem.dim, "stacked": len(self.jobs), "stacked_layout": self.stack.layout,
                "replay": self.stack.replay.note,
            } | job.problem.settings  # fmt: skip
            out.append(History(job.name, columns, x, x, stopped, watch.fired, watch.why, None, settings))
        return out
