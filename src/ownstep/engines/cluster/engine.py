"""The cluster engine: every rank holds some devices and only their data; one all-reduce of one vector per round.

All ranks hold the same small state of the method, compute the same ``ask``, evaluate their own devices' share of the
mix and add the shares up; then all make the same ``tell``. There is no server. Methods that keep a point per device
keep each on its rank and exchange with neighbours only. Start one process per rank with ``torchrun``:

    torchrun --nproc-per-node 4 script.py
"""

from __future__ import annotations

import hashlib
import inspect
import json
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ownstep.engines import checkpoint as ckpt
from ownstep.engines.arguments import check_run
from ownstep.engines.cluster.answering import SharedAnswering
from ownstep.engines.cluster.ranks import DEADLINE, Ranks
from ownstep.engines.cluster.rows import Rows, gather, scatter
from ownstep.engines.cluster.shared import Shared
from ownstep.engines.local.answering import Answered
from ownstep.engines.local.engine import first_point, settle
from ownstep.engines.local.engine import run as local_run
from ownstep.engines.local.loop import Loop, digest
from ownstep.engines.saving import Saver, go_on, keep
from ownstep.history import History
from ownstep.methods import Ask, Method
from ownstep.problems.base import Problem
from ownstep.support.checks import whole_number
from ownstep.support.errors import InvalidInput, OwnstepError
from ownstep.support.progress import Bar
from ownstep.support.threads import calm_blas
from ownstep.support.vectors import like, small_enough, to_numpy

__all__ = ["Ranks", "Shared", "deal", "join", "run", "share"]

_joined: list[Ranks] = []


def _ranks(problem: Any, deadline: float | None) -> Ranks:
    """The processes of this run, met once."""
    if not _joined:
        _joined.append(Ranks(DEADLINE if deadline is None else deadline, getattr(problem, "device", "cpu")))
    return _joined[0]


def join(deadline: float | None = None) -> Ranks:
    """The processes of this run, for sums of one's own before there is a problem."""
    return _ranks(None, deadline)


def share(problem: Problem, weights: ArrayLike | None = None, *, deadline: float | None = None) -> Shared:
    """Bring this rank's own devices into the run; every rank calls it with its own.

    Parameters
    ----------
    problem : this rank's devices, made from their data alone.
    weights : w_i of the devices of all ranks, in the order of the ranks; the share of samples by default.
    deadline : seconds the slowest rank may be behind the fastest in a round before the run ends with an error that
        names it. 120 by default; set once, by the first call.
    """
    return Shared(problem, _ranks(problem, deadline), weights)


def deal(problem: Any, *, deadline: float | None = None) -> Shared:
    """Share a problem that every rank has made whole: each keeps the data of its devices and forgets the rest.

    Devices go to ranks in consecutive blocks, as equal in number as can be.
    """
    ranks, count = _ranks(problem, deadline), len(problem.weights)
    if count < ranks.size:
        raise InvalidInput(
            f"{ranks.size} ranks for {count} devices: a rank holds at least one; start at most {count} ranks, or split "
            "the data over more devices"
        )
    _check_same_data(problem, ranks)
    mine = np.array_split(np.arange(count), ranks.size)[ranks.rank]
    return Shared(problem.keep(mine.tolist()), ranks, problem.weights)


def _check_same_data(problem: Any, ranks: Ranks) -> None:
    """Every rank has made the whole problem: are they the same? f_i at a point that all choose alike tells."""
    if hasattr(problem, "begin_round"):
        problem.begin_round(0)
    start = problem.x0()
    x = like((0.1 * np.random.default_rng(0).standard_normal(problem.dim)).astype(to_numpy(start).dtype), start)
    seen = np.concatenate([problem.weights, np.asarray(problem.mix(x, problem.weights)[0], float)])
    everyone = [np.frombuffer(text) for text in ranks.gather(seen.tobytes())]
    first = everyone[0]
    others = [
        r for r, s in enumerate(everyone) if s.shape != first.shape or not np.allclose(s, first, rtol=1e-5, atol=0)
    ]
    if others:
        raise InvalidInput(
            f"all ranks must load the same data and split it alike, but {', '.join(map(ranks.who, others))} "
            f"differ from {ranks.who(0)}: use the same files, seed and partition, or share() where each has its own"
        )


def run(
    method: Method,
    problem: Problem | Shared,
    rounds: int,
    *,
    measure_every: int = 1,
    **options: Any,
) -> History:
    """Run a method on the devices of all ranks; every rank calls this with the same arguments but its own problem.

    Parameters
    ----------
    problem : this rank's own devices, or what :func:`share` or :func:`deal` made of them.
    measure_every : rounds between two measurements of f(x^k), where they take more than the method itself asks for
        (Nesterov's method, and those without a server); in between, the history has nan.
    options : those of :func:`ownstep.engines.run`. A ``checkpoint`` is written by rank 0, in the same format as by the
        local engine: whole, and independent of the number of ranks. The newest one that any rank finds under this name
        is the one all go on from. ``limits`` of seconds need a wire here, as the ranks' clocks differ.

    Returns
    -------
    History
        On every rank the same but for ``seconds``. ``bytes_up`` and ``bytes_down`` are what all ranks together handed
        to and got from ``torch.distributed``, without the measurements.
    """
    whole_number("measure_every", measure_every, 1)
    shared = problem if isinstance(problem, Shared) else share(problem)
    bound = inspect.signature(local_run).bind(method, shared, rounds, **options)
    bound.apply_defaults()
    given = SimpleNamespace(**bound.arguments)
    check_run(**bound.arguments)
    limits, target, gradient_tolerance = given.limits, given.target, given.gradient_tolerance
    if limits is not None and limits.seconds is not None and limits.wire is None:
        raise InvalidInput(
            f"a budget of {limits.seconds:g} s on a cluster needs a wire: every rank's clock says something else"
        )
    ranks = shared.ranks
    progress = given.progress if ranks.rank == 0 else False
    with ranks.listening():
        method, devices, tuning = settle(
            method, shared, rounds, given.smoothness, given.devices, x0=given.x0,
            target=target if given.search_target is None else given.search_target,
            participation=given.participation, seed=given.seed, progress=progress,
        )  # fmt: skip
        extra = {"engine": "cluster", "ranks": ranks.size, "backend": ranks.backend} | tuning
        start = first_point(shared, given.x0)
        measured = given.measure_gradient or gradient_tolerance is not None
        loop = _Loop(method, shared, devices, start, given.participation, given.name or repr(method), extra, measured)
        loop.every, loop.last, loop.limits = measure_every, rounds, limits
        loop.log = given.log if ranks.rank == 0 else None
        loop.check_agreement(rounds, target, gradient_tolerance, repr(limits))
        path = None if given.checkpoint is None else Path(given.checkpoint)
        with ExitStack() as held:
            # Rank 0 alone writes, so it alone holds the file.
            saver = Saver(path if ranks.rank == 0 else None)
            ranks.together(lambda: held.enter_context(saver))
            if path is not None:
                loop.go_on_from(path)
                if loop.k > rounds:
                    raise InvalidInput(f"rounds={rounds}, but the checkpoint {str(path)!r} already has {loop.k}")
            with calm_blas(shared.work), Bar(loop.name, rounds, progress) as bar:
                loop.drive(path, saver, bar, target, gradient_tolerance, given.observe)
            loop.write(path, saver)
        return loop.history()


class _Loop(Loop):
    """One run in progress, on all ranks in step."""

    problem: Shared
    answering: SharedAnswering
    every = 1
    last = 0
    measured = True

    def __init__(self, method: Method, problem: Shared, *arguments: Any) -> None:
        super().__init__(method, problem, *arguments)
        self.ranks, self.home = problem.ranks, problem.home
        self.answering = SharedAnswering(problem, self.answering.missing, self.answering.measure_gradient)
        self.state = scatter(self.state, self.home, self.x0)

    def drive(
        self,
        path: Path | None,
        saver: Saver,
        bar: Bar,
        target: float | None,
        gradient_tolerance: float | None,
        observe: Callable[[int, Any], None] | None,
    ) -> None:
        """Round after round, until all ranks are done or agree to stop."""
        ranks = self.ranks
        ranks.save_agreed, ranks.save_at = False, 0.0 if saver.path is not None else np.inf
        while True:
            ranks.round = self.k
            done = self.finished(self.last, target, gradient_tolerance)
            if observe is not None:
                observe(self.k, self.method.point(self.state))
            if done:
                return
            if ranks.save_agreed and path is not None and self.measured:  # of a point found sound
                self.write(path, saver)
            self.advance()
            if bar.enabled:
                bar.update(self.k, f"f = {self.columns['value'][-1]:.6g} ({self.columns['phase'][-1]})")
            if ranks.stop_agreed:
                self.interrupt()
                return

    def write(self, path: Path | None, saver: Saver) -> None:
        """Check that all ranks are at the same place, bring what they hold to rank 0, and let it write."""
        self.ranks.save_agreed = False
        self.check_states()
        if path is None or not self.sound:
            return
        state, last = self.state, self.answering.last
        whole, held = gather(state), last.gathered() if isinstance(last, Rows) else last
        self.answering.memory.gather()
        _ = self.signature  # evaluated by all ranks together
        try:
            self.state, self.answering.last = whole, held
            saver.save(self.save)
        finally:
            self.state, self.answering.last = state, last
        if saver.path is not None:
            self.ranks.save_at = saver.next
        self.ranks.save_agreed = False  # the sums above carried the wish for this very checkpoint once more

    def culprits(self) -> str:
        """Whose share of the sum is not finite: every rank looks at what it sent."""
        mine = not small_enough(*self.sent)
        bad = [rank for rank, said in enumerate(self.ranks.gather(bytes([mine]))) if said != b"\0"]
        held = [self.devices.names[i] for rank in bad for i in self.home.of(rank)]
        who = ", ".join(self.ranks.who(rank) for rank in bad) or "no single rank"
        return f"what {who} sent, for {', '.join(held[:5])}{' and others' * (len(held) > 5)}, is not finite"

    def evaluate(self) -> None:
        """As everywhere, and count what travels."""
        before, self.unbilled = self.ranks.bytes, 0
        super().evaluate()
        billed = self.ranks.size * (self.ranks.bytes - before - self.unbilled)
        ask = self.asked
        if isinstance(ask.x, Rows):  # they travel when the method mixes them, in tell
            assert ask.links is not None
            links = ask.links * np.outer(self.present, self.present)
            billed += self.home.crossings(links) * (ask.x.nbytes // len(ask.x))
        self.columns["bytes_up"][-1] = self.columns["bytes_down"][-1] = int(billed)

    def look(self, ask: Ask, seen: Answered) -> tuple[Any, float, float]:
        """Where the method stands; skipped between measurements where it would cost an all-reduce of its own."""
        self.asked, self.sent = ask, self.problem.sent  # what follows is measured for the record, and sends again
        free = seen.losses is not None and self.method.point(self.state) is ask.x
        due = self.k % self.every == 0 or self.k >= self.last or self.ranks.stop_agreed
        self.measured = free or due
        if not self.measured:
            return None, np.nan, np.nan
        before = self.ranks.bytes
        out = super().look(ask, seen)
        self.unbilled = self.ranks.bytes - before
        return out

    def verdict(self, rounds: int, target: float | None, gradient_tolerance: float | None) -> bool:
        """Is the iterate that was evaluated the last one? One that was not measured is not."""
        return self.measured and super().verdict(rounds, target, gradient_tolerance)

    def go_on_from(self, path: Path) -> None:
        """Resume from the newest checkpoint of this name that any rank finds; it travels to all others."""
        found: dict[str, Any] = {"k": -1, "data": b""}

        def read(file: Path, shown: Path) -> None:
            found["k"], found["data"] = int(ckpt.about(file, shown)["k"]), file.read_bytes()

        used: list[Path | None] = []
        self.ranks.together(lambda: used.append(go_on(path, read)))
        self.ranks.together(lambda: keep(path, used[0]) if self.ranks.rank == 0 else None)  # once all have read
        counts = [int(np.frombuffer(k, np.int64)[0]) for k in self.ranks.gather(np.int64(found["k"]).tobytes())]
        if max(counts) < 0:
            return
        data = self.ranks.spread(found["data"], int(np.argmax(counts)))
        _ = self.signature  # evaluated by all ranks together
        self.ranks.together(lambda: self._unpack(data, path))
        self.state = scatter(self.state, self.home, self.x0)
        if self.answering.last is not None:
            self.answering.last = Rows(like(to_numpy(self.answering.last)[self.home.mine], self.x0), self.home)

    def _unpack(self, data: bytes, path: Path) -> None:
        """Resume from the bytes of a checkpoint that another rank may have sent."""
        try:
            with tempfile.TemporaryDirectory() as folder:
                copy = Path(folder) / path.name
                copy.write_bytes(data)
                self.resume(copy, path)
        except OSError as error:
            raise OwnstepError(f"cannot unpack the checkpoint {str(path)!r} on this machine: {error}") from error

    def check_agreement(self, *arguments: Any) -> None:
        """The ranks must have been given the same start, method, devices and arguments."""
        mine = {"arguments": arguments, "smoothness": digest(self.devices.L)} | self.fingerprint
        seen = [json.loads(text) for text in self.ranks.gather(json.dumps(mine, default=str).encode())]
        for rank, other in enumerate(seen):
            differs = [key for key in seen[0] if other.get(key) != seen[0][key]]
            if differs:
                raise InvalidInput(
                    f"all ranks run the same method from the same start, but {self.ranks.who(rank)} differs from "
                    f"rank 0 in its {', '.join(differs)} (data: weights, smoothness or x0)"
                )

    def check_states(self) -> None:
        """Do all ranks hold the same, bit for bit? At checkpoints and at the end; other processors may round apart."""
        self.ranks.agree(f"the state after round {self.k}", self._state_digest())

    def _state_digest(self) -> bytes:
        """Of what all ranks hold alike: everything but the rows of their own devices."""
        sha = hashlib.sha256()
        arrays, plain = ckpt.flatten(self.state)
        for key in sorted(arrays):
            sha.update(np.ascontiguousarray(arrays[key]).tobytes())
        common = {key: value for key, value in plain.items() if not isinstance(value, Rows)}
        sha.update(json.dumps(common, sort_keys=True, default=str).encode())
        return sha.digest()
