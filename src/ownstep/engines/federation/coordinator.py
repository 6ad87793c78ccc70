"""The coordinator of a federation: any method with a server, run over Flower's messages.

    ask    becomes one message per site: (x, c_i)
    tell   takes the sum of what came back: each site sends c_i grad f_i(x) and f_i(x)

The method object, the stopping rules, the history and the checkpoints are those of the local engine. What is new is
that sites may be missing: the rule for their share is the caller's, and the history names them with their weight.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.serverapp import Grid
from numpy.typing import NDArray

from ownstep.engines.arguments import check_method
from ownstep.engines.compare import check_labels, slug
from ownstep.engines.federation import hessians
from ownstep.engines.federation.asking import Asking, Gathered, needs_rows, normed
from ownstep.engines.federation.nodes import Nodes, Roster, gather
from ownstep.engines.federation.wire import (
    Refused,
    Reply,
    coefficient,
    shifted,
)
from ownstep.engines.limits import Limits
from ownstep.engines.local.answering import wants_more
from ownstep.engines.local.loop import Loop
from ownstep.engines.local.secant import Memory
from ownstep.engines.participation import MISSING, Missing, Participation
from ownstep.engines.saving import go_on, keep
from ownstep.history import History
from ownstep.methods import Answer, Ask, Method, norm
from ownstep.methods.local_work import lengths
from ownstep.support.checks import whole_number
from ownstep.support.errors import InvalidInput, OwnstepError
from ownstep.support.files import hold
from ownstep.support.logs import RoundLog
from ownstep.support.progress import Bar

if TYPE_CHECKING:
    from ownstep.engines.federation.secure import SecurePlus

Array = NDArray[Any]

OUTSIZED = 1e6
"""How much longer than all others a vector must be before its sender is named for what followed."""

CARRIED = ("x", "mix", "local", "links", "also", "curvature", "base", "hessian", "sketch", "solve")
"""What a method may ask for here; more than that is refused before the first round."""


@dataclass(frozen=True)
class Terms:
    """What the coordinator requires of a run.

    Parameters
    ----------
    sites : how many sites there are; the run begins when all have joined once.
    deadline : seconds that a round waits for its replies.
    joining : seconds to wait for all sites at the start.
    missing : what becomes of the share of a site that does not answer, see :data:`~ownstep.engines.MISSING`.
    secure : parameters of secure aggregation (SecAgg+), or None for replies that the coordinator can read.
    participation : whom each round asks, such as ``Cohort(10, seed=1)``: drawn from the seed and the round alone, as
        every engine draws. Everyone by default. ``missing`` says what becomes of the share of those who are not asked.
    """

    sites: int
    deadline: float = 60.0
    joining: float = 300.0
    missing: Missing = "rescale"
    secure: SecurePlus | None = None
    participation: Participation | None = None

    def __post_init__(self) -> None:
        whole_number("sites", self.sites, 1)
        if self.secure is not None and self.participation is not None:
            raise InvalidInput("secure aggregation asks every site in every round: no participation with it")
        for name in ("deadline", "joining"):
            if not 0 < getattr(self, name) < np.inf:
                raise InvalidInput(f"{name} is a positive number of seconds, got {getattr(self, name)!r}")
        if self.missing not in MISSING:
            raise InvalidInput(f"missing must be {', '.join(map(repr, MISSING))}, got {self.missing!r}")
        if self.secure is not None and self.missing == "last":
            raise InvalidInput(
                "missing='last' keeps single gradients, which secure aggregation never shows: use another"
            )


def run(
    method: Method,
    grid: Grid,
    rounds: int,
    terms: Terms,
    *,
    folder: str | Path | None = None,
    name: str | None = None,
    **options: Any,
) -> History:
    """Run one method on the sites of a federation; see :func:`race` for the options."""
    label = name or repr(method)
    return race({label: method}, grid, rounds, terms, folder=folder, **options)[label]


def race(
    methods: Mapping[str, Method],
    grid: Grid,
    rounds: int,
    terms: Terms,
    *,
    folder: str | Path | None = None,
    x0: Any = None,
    L_pooled: float | None = None,
    target: float | None = None,
    gradient_tolerance: float | None = None,
    progress: bool | None = None,
    limits: Limits | None = None,
    task: Mapping[str, Any] | None = None,
    log: RoundLog | None = None,
) -> dict[str, History]:
    """Run several methods side by side; their questions share each round's message, so a race takes no longer.

    Parameters
    ----------
    methods : by label; each needs a server, so those that keep a point per device are refused.
    rounds, target, gradient_tolerance, x0, progress, limits : as for :func:`ownstep.engines.run`; x0 is the origin.
    folder : where checkpoints and the list of sites are kept, written after every round. If they exist the run goes on
        from them, even if some of its sites are away.
    L_pooled : smoothness of f, for methods that step by 1/L; no coordinator can measure it.
    task : sent along when the sites are asked who they are, for owners whose problem depends on it.
    log : records every round as it ends, see :class:`ownstep.support.logs.RoundLog`.

    Returns
    -------
    dict of History
        One a method. ``absences`` in its ``settings`` lists who was missing, when, with what weight and why.
    """
    whole_number("rounds", rounds, 0)
    if not methods:
        raise InvalidInput("a federation needs at least one method to run, got none")
    check_labels(methods)
    for method in methods.values():
        check_method(method)
    place = None if folder is None else Path(folder)
    with ExitStack() as held:
        if place is not None:
            try:
                place.mkdir(parents=True, exist_ok=True)
                # A coordinator whose SuperLink died may still be on its way out.
                held.enter_context(hold(place / "sites.json", patience=terms.deadline))
            except OSError as error:
                raise OwnstepError(f"cannot write to the folder {str(place)!r}: {error}") from error
        stops = (target, gradient_tolerance)
        return _race(methods, grid, rounds, terms, place, x0, L_pooled, stops, progress, limits, task, log)


def _race(
    methods: Mapping[str, Method], grid: Grid, rounds: int, terms: Terms, place: Path | None, x0: Any,
    L_pooled: float | None, stops: tuple[float | None, float | None], progress: bool | None, limits: Limits | None,
    task: Mapping[str, Any] | None, log: RoundLog | None,
) -> dict[str, History]:  # fmt: skip
    listed = None if place is None else place / "sites.json"
    known = Roster.load(listed) if listed is not None and listed.exists() else None
    met = gather(grid, terms.sites, terms.joining, known, task, terms.deadline)
    roster = met.roster
    if listed is not None:
        roster.save(listed)
    start = roster.x0() if x0 is None else np.asarray(x0, roster.dtype)
    if start.shape != (roster.dim,):
        raise InvalidInput(f"x0 must have shape ({roster.dim},), got {start.shape}")
    loops = [_Loop(m, roster, start, terms, label, L_pooled) for label, m in methods.items()]
    for loop in loops:
        loop.limits, loop.log = limits, log
    files = {loop: None if place is None else place / f"{slug(loop.name)}.ckpt.npz" for loop in loops}
    for loop, file in files.items():
        if file is not None:
            keep(file, go_on(file, loop.resume))
            if loop.k > rounds:
                raise InvalidInput(f"rounds={rounds}, but the checkpoint {str(file)!r} already has {loop.k}")
    asking = Asking(Nodes(grid, terms.deadline, met), roster, terms)
    active = list(loops)
    with Bar(f"{len(roster.names)} sites", rounds, progress) as bar:
        while active:
            began = time.perf_counter()
            seen = asking([loop.method.ask(loop.state) for loop in active], active)
            for loop, gathered in zip(list(active), seen, strict=True):
                if not gathered.present.any():
                    why = "; ".join(f"{roster.names[i]}: {w}" for i, w in gathered.why.items())
                    raise OwnstepError(
                        f"no site answered in round {loop.k} within {terms.deadline:g} s ({why}){loop.suspicion()}"
                    )
                loop.absorb(gathered, began)
                loop.tell_log()
                done = loop.verdict(rounds, *stops)
                file = files[loop]
                if file is not None:  # the point that was just evaluated, if it is sound: the next may not be
                    loop.save(file)
                if done:
                    active.remove(loop)
                else:
                    loop.advance()
            bar.update(max(loop.k for loop in loops), f"f = {loops[0].columns['value'][-1]:.6g}")
    return {loop.name: loop.history() for loop in loops}


class _Loop(Loop):
    """One method's run in progress; what it needs beyond the local engine's is the rule for those who are missing."""

    def __init__(
        self, method: Method, roster: Roster, x0: Array, terms: Terms, name: str, L_pooled: float | None
    ) -> None:
        if getattr(method, "step", None) == "tuned":
            raise InvalidInput("a step is not tuned through a federation: tune on a sample, and give the number")
        super().__init__(method, roster, roster.devices(L_pooled), x0, None, name, {}, False)  # type: ignore[arg-type]
        ask = self.method.ask(self.state)
        if ask.mix is None:
            raise InvalidInput(f"{method!r} has no server: a federation runs methods that ask for one sum")
        more = [f.name for f in fields(ask) if f.name not in CARRIED and getattr(ask, f.name) not in (None, False)]
        if more:
            wanted = ", ".join(more)
            raise InvalidInput(
                f"{method!r} asks for {wanted}, which a federation does not carry; OwnCurvature() and LBFGS() do run"
            )
        if terms.secure is not None and (needs_rows(ask) or hessians.own_rank(ask)):
            raise InvalidInput(f"{method!r} needs every site's own vector, which secure aggregation never shows")
        if ask.curvature and roster.sampled:
            raise InvalidInput(
                f"{method!r} compares gradients of two rounds, which mini-batches make different functions"
            )
        if terms.participation is not None and getattr(method, "needs_everyone", False):
            raise InvalidInput(f"{method!r} needs every device in every round: no partial participation")
        self.roster, self.rule, self.partial, self.sampling = roster, terms.missing, True, terms.participation
        drawn = {"participation": None if terms.participation is None else repr(terms.participation)}
        self.settings |= drawn
        self.fingerprint |= drawn
        self.answering.memory = Memory(roster, True)  # type: ignore[arg-type]
        self.settings |= {"engine": "federation", "missing": terms.missing, "deadline": terms.deadline}
        self.notes = {"absences": [], "missing": terms.missing}
        self.last_seen: dict[int, tuple[Array, float, float]] = {}  # by site: where it was asked, and what it said
        self.sizes: dict[str, float] = {}

    def plausible(self, i: int, ask: Ask, reply: Reply) -> None:
        """Refuse what cannot be true of a function as smooth as the site said its own is.

            ||grad f_i(x)|| <= ||g'|| + L_i ||x - x'||,     f_i(x) <= f' + ||g'|| ||x - x'|| + L_i/2 ||x - x'||^2

        with g', f' at x', where the site was last asked; of its first reply f_i(x) <= f_i(0) + ||grad f_i(x)|| ||x||:
        it told f_i(0) when it joined. Only what is beyond that by a factor of ten is refused: an error of transmission
        or of a unit, not a lie within bounds.
        """
        assert ask.mix is not None
        L, c = float(self.roster.L[i]), abs(float(ask.mix[i]))
        if self.roster.kind in ("exact", "upper bound"):
            hessians.check_solution(ask, reply.extra, c, float(self.roster.mu[i]))
            hessians.check_sketch(ask, reply.sketch, L)
        if ask.local is not None or not c or self.roster.sampled or self.roster.kind not in ("exact", "upper bound"):
            return
        length, tiny = norm(reply.vector) / c, float(np.sqrt(np.finfo(ask.x.dtype).eps))
        if i not in self.last_seen:
            f, far = self.roster.losses[i], norm(ask.x)
            if reply.loss > f + abs(f) + hessians.IMPLAUSIBLE * length * far + tiny * length:
                raise Refused(f"its loss is {reply.loss:.3g}, and was {f:.3g} at the start: not believed")
        else:
            x, g, f = self.last_seen[i]
            moved = norm(ask.x - x)
            spare = tiny * (L * norm(ask.x) + g)
            if length > hessians.IMPLAUSIBLE * (g + L * moved) + spare:
                raise Refused(
                    f"its gradient has length {length:.3g}, by its own L at most {g + L * moved:.3g}: not believed"
                )
            if reply.loss > f + hessians.IMPLAUSIBLE * (g * moved + L * moved**2 / 2) + abs(f) + spare:
                raise Refused(f"its loss rose from {f:.3g} to {reply.loss:.3g}, beyond its own L: not believed")
        self.last_seen[i] = (ask.x, length, reply.loss)

    def resume(self, path: Path, shown: Path | None = None) -> None:
        """As everywhere; the rule for those who are missing is part of a run, and of its iterates."""
        super().resume(path, shown)
        before = self.notes.setdefault("missing", self.rule)
        if before != self.rule:
            raise OwnstepError(
                f"the checkpoint {str(shown or path)!r} is of a run with missing={before!r}, and this one has "
                f"{self.rule!r}; it was left alone: give the rule it began with, or name another folder"
            )

    def suspicion(self) -> str:
        """Who sent by far the longest vector in the round before; nothing where nobody did."""
        sizes = sorted(((size, name) for name, size in self.sizes.items()), reverse=True)
        if len(sizes) < 2 or not sizes[0][0] > OUTSIZED * sizes[1][0]:
            return ""
        (longest, who), (next_, _) = sizes[:2]
        return f"; in the round before, {who} sent a vector of length {longest:.3g}, all others of at most {next_:.3g}"

    def _stop(self, why: str) -> None:
        super()._stop(why if self.sound else why + self.suspicion())

    @cached_property
    def signature(self) -> list[float]:
        """The sites' losses at their start, as they said when they joined."""
        return list(self.roster.losses)

    def absorb(self, seen: Gathered, began: float) -> None:
        """Apply the rule for those who are missing, and record the round."""
        ask, weights, present = self.method.ask(self.state), self.roster.weights, seen.present
        assert ask.mix is not None
        if ask.sketch is not None and ask.sketch.skip is not None and not present.all():
            gone = "; ".join(f"{self.roster.names[i]}: {why}" for i, why in seen.why.items())
            raise OwnstepError(f"{self.method!r} needs every site in every round, missing were {gone}")
        total, share = seen.total, float(weights[present].sum()) if self.rule == "rescale" else 1.0
        squares = seen.squares
        rows = self._rows(ask, seen) if needs_rows(ask) or self.rule == "last" else None
        if self.rule == "last":
            assert rows is not None
            if self.answering.last is not None:
                rows[~present] = self.answering.last[~present]
            self.answering.last, total = rows, total + ask.mix[~present] @ rows[~present]
            squares = float(ask.mix @ lengths(rows) ** 2)
        elif not present.all():
            total, squares = total / share, squares / share
        also, curvature, previous = None, None, np.nan
        if ask.also is not None:
            assert rows is not None
            also = (ask.also if self.rule == "last" else np.where(present, ask.also, 0.0) / share) @ rows
        if ask.curvature:
            curvature, previous = self.answering.memory.measure(ask.x, seen.losses, rows, present)
        self.lengths = {self.roster.names[i]: norm(row) for i, row in (seen.rows or {}).items()}
        for i, why in seen.why.items():
            self._note_absence(i, why)
        # Until somebody was missing once, methods may compare the sums of two rounds as sums over everyone.
        who = present if self.notes["absences"] or self.sampling is not None else None
        each = rows if shifted(ask) else None
        squares = squares if normed(ask) else np.nan
        self.answer = Answer(total, seen.value, each, who, also, curvature, previous, squares)
        if wants_more(ask):
            self.answer = hessians.told(self.answer, ask, seen, self.rule, share, rows)
        ratio = ask.mix / weights
        alike = ask.local is None and np.ptp(ratio) <= 1e-12 * abs(ratio[0]) and present.all()
        row = {
            "value": seen.value_at,
            "gradient_norm": norm(total) / abs(float(ratio[0])) if alike else np.nan,
            "bytes_up": seen.up,
            "bytes_down": seen.down,
        }
        self.record(row, self.method.point(self.state), present, time.perf_counter() - began)

    def advance(self) -> None:
        """As everywhere, and remember how long the vectors were: if the next point is bad, one of them was."""
        self.sizes = self.lengths
        super().advance()

    def _rows(self, ask: Ask, seen: Gathered) -> Array:
        """One row per site, grad f_i(x) or its move: what came back, divided by what the site multiplied it with."""
        if seen.rows is None:
            raise InvalidInput(f"{self.method!r} needs every site's own vector, which secure aggregation never shows")
        assert ask.mix is not None
        rows = np.zeros((len(ask.mix), len(seen.total)), seen.total.dtype)
        for i, vector in seen.rows.items():
            c = coefficient(ask, i)
            rows[i] = vector / c if c else 0.0
        return rows

    def _note_absence(self, i: int, why: str) -> None:
        site, absences = self.roster.names[i], self.notes["absences"]
        for entry in absences:
            if (entry["site"], entry["last"], entry["why"]) == (site, self.k - 1, why):
                entry["last"] = self.k
                return
        weight = float(self.roster.weights[i])
        absences.append({"site": site, "weight": weight, "first": self.k, "last": self.k, "why": why})

    def history(self) -> History:
        """What happened, with those who were missing by name."""
        self.settings["absences"] = self.notes["absences"]
        return super().history()
