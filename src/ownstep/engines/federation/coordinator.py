"""The coordinator of a federation: any method with a server, run over Flower's messages.

    ask    becomes one message a site: (x, c_i)
    tell   takes the sum of what came back: each site sends c_i grad f_i(x) and f_i(x)

The method object, the stopping rules, the history and the checkpoints are those of the local engine. What is new is
that sites may be missing: the rule for their share is the caller's, and the history names them with their weight.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.serverapp import Grid
from numpy.typing import NDArray

from ownstep.engines.compare import check_labels, slug
from ownstep.engines.federation import hessians
from ownstep.engines.federation.nodes import Nodes, Roster, gather
from ownstep.engines.federation.wire import (
    ROUND,
    Refused,
    Reply,
    pack_asks,
    pack_points,
    unpack_replies,
)
from ownstep.engines.limits import Limits
from ownstep.engines.local.answering import wants_more
from ownstep.engines.local.loop import Loop
from ownstep.engines.local.secant import Memory
from ownstep.engines.participation import MISSING, Missing
from ownstep.engines.saving import go_on
from ownstep.history import History
from ownstep.methods import Answer, Ask, Method, Sketch, norm
from ownstep.methods.local_work import lengths
from ownstep.support.checks import whole_number
from ownstep.support.errors import InvalidInput, OwnstepError
from ownstep.support.progress import Bar

if TYPE_CHECKING:
    from ownstep.engines.federation.secure import SecurePlus

Array = NDArray[Any]

CARRIED = ("x", "mix", "local", "links", "also", "curvature", "base", "hessian", "sketch")
"""What a method may ask for here; more than that is refused before the first round."""


@dataclass(frozen=True)
class Terms:
    """What the coordinator insists on.

    Parameters
    ----------
    sites : how many sites there are; the run begins when all have joined once.
    deadline : seconds a round waits for its replies.
    joining : seconds to wait for all sites at the start.
    missing : what becomes of the share of a site that does not answer, see :data:`~ownstep.engines.MISSING`.
    secure : parameters of secure aggregation (SecAgg+), or None for replies that the coordinator can read.
    """

    sites: int
    deadline: float = 60.0
    joining: float = 300.0
    missing: Missing = "rescale"
    secure: SecurePlus | None = None

    def __post_init__(self) -> None:
        whole_number("sites", self.sites, 1)
        for name in ("deadline", "joining"):
            if not 0 < getattr(self, name) < np.inf:
                raise InvalidInput(f"{name} is a positive number of seconds, got {getattr(self, name)!r}")
        if self.missing not in MISSING:
            raise InvalidInput(f"missing must be {', '.join(map(repr, MISSING))}, got {self.missing!r}")
        if self.secure is not None and self.missing == "last":
            raise InvalidInput(
                "missing='last' keeps single gradients, which secure aggregation never shows: use another"
            )


@dataclass(frozen=True, eq=False)
class Gathered:
    """What the sites answered one method.

    Parameters
    ----------
    present : who answered something that can be used.
    total : sum over them of c_i grad f_i(x).
    value, value_at : their mean loss, weighted, where the method looked and where it stands.
    rows : c_i grad f_i(x) by site, or None under secure aggregation.
    losses : f_i(x), zero for the absent; of no use under secure aggregation.
    squares : sum over them of c_i ||d_i||^2, where asked for.
    extra, value_base, sketches : what came of second order, see
        :mod:`ownstep.engines.federation.hessians`; the value is the mean loss at the second point.
    why : for everyone else, what happened.
    up, down : bytes of vectors and numbers, without what Flower and TLS put around them.
    """

    present: NDArray[np.bool_]
    total: Array
    value: float
    value_at: float
    rows: dict[int, Array] | None
    losses: Array
    why: dict[int, str]
    up: int
    down: int
    squares: float = 0.0
    extra: Array | None = None
    value_base: float = np.nan
    sketches: tuple[Sketch | None, ...] = ()


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
) -> dict[str, History]:
    """Run several methods side by side; their questions share each round's message, so a race takes no longer.

    Parameters
    ----------
    methods : by label; each needs a server, so those that keep a point per device are refused.
    rounds, target, gradient_tolerance, x0, progress, limits : as for :func:`ownstep.engines.run`; x0 is the origin.
    folder : where checkpoints and the list of sites are kept, written after every round. If they exist the run goes on
        from them, even if some of its sites are away.
    L_pooled : smoothness of f, for methods that step by 1/L; no coordinator can measure it.

    Returns
    -------
    One History a method. ``absences`` in its ``settings`` lists who was missing, when, with what weight and why.
    """
    whole_number("rounds", rounds, 0)
    if not methods:
        raise InvalidInput("a federation needs at least one method to run, got none")
    check_labels(methods)
    place = None if folder is None else Path(folder)
    listed = None if place is None else place / "sites.json"
    known = Roster.load(listed) if listed is not None and listed.exists() else None
    roster = gather(grid, terms.sites, terms.joining, known)
    if listed is not None:
        roster.save(listed)
    start = roster.x0() if x0 is None else np.asarray(x0, roster.dtype)
    if start.shape != (roster.dim,):
        raise InvalidInput(f"x0 must have shape ({roster.dim},), got {start.shape}")
    loops = [_Loop(m, roster, start, terms, label, L_pooled) for label, m in methods.items()]
    for loop in loops:
        loop.limits = limits
    files = {loop: None if place is None else place / f"{slug(loop.name)}.ckpt.npz" for loop in loops}
    for loop, file in files.items():
        if file is not None:
            go_on(file, loop.resume)
            if loop.k > rounds:
                raise InvalidInput(f"rounds={rounds}, but the checkpoint {str(file)!r} already has {loop.k}")
    asking = Asking(Nodes(grid, terms.deadline), roster, terms)
    active = list(loops)
    with Bar(f"{len(roster.names)} sites", rounds, progress) as bar:
        while active:
            began = time.perf_counter()
            seen = asking([loop.method.ask(loop.state) for loop in active], active)
            for loop, gathered in zip(list(active), seen, strict=True):
                if not gathered.present.any():
                    why = "; ".join(f"{roster.names[i]}: {w}" for i, w in gathered.why.items())
                    raise OwnstepError(f"no site answered in round {loop.k} within {terms.deadline:g} s ({why})")
                loop.absorb(gathered, began)
                done = loop.verdict(rounds, target, gradient_tolerance)
                file = files[loop]
                if file is not None:  # the point that was just evaluated, if it is sound: the next may not be
                    loop.save(file)
                if done:
                    active.remove(loop)
                else:
                    loop.advance()
            bar.update(max(loop.k for loop in loops), f"f = {loops[0].columns['value'][-1]:.6g}")
    return {loop.name: loop.history() for loop in loops}


class Asking:
    """From what methods ask to what the sites answered."""

    def __init__(self, nodes: Nodes, roster: Roster, terms: Terms) -> None:
        self.nodes, self.roster, self.terms = nodes, roster, terms

    def __call__(self, asks: list[Ask], loops: list[_Loop]) -> list[Gathered]:
        """One exchange of messages for all asks, or four for each under secure aggregation."""
        points = [loop.method.point(loop.state) for loop in loops]
        rounds = [loop.k for loop in loops]
        if self.terms.secure is not None:
            one = zip(asks, points, rounds, strict=True)
            return [self.terms.secure.gather(self.nodes, self.roster, *each) for each in one]
        shared, roster = pack_points(asks, points), self.roster
        contents = {node: pack_asks(asks, shared, rounds, i) for i, node in enumerate(roster.nodes)}
        budget = sum(ask.x.nbytes + hessians.reply_bytes(ask) for ask in asks)
        replies = self.nodes.ask(contents, ROUND, str(max(rounds)), budget)
        usable: dict[int, list[Reply]] = {}
        why: dict[int, str] = {}
        for i, node in enumerate(roster.nodes):
            reply = replies.get(node)
            try:
                if reply is None:
                    raise Refused(f"no reply within {self.nodes.deadline:g} s")
                if isinstance(reply, Refused):
                    raise reply
                usable[i] = unpack_replies(reply, asks)
                for ask, answered in zip(asks, usable[i], strict=True):
                    _read_sketch(answered, ask, roster.names[i])
            except (Refused, InvalidInput) as refusal:
                usable.pop(i, None)
                why[i] = str(refusal)
        return [
            collect({i: r[m] for i, r in usable.items()}, ask, roster.weights, why, points[m] is not ask.x)
            for m, ask in enumerate(asks)
        ]


def collect(
    replies: Mapping[int, Reply], ask: Ask, weights: Array, why: dict[int, str], elsewhere: bool = False
) -> Gathered:
    """Add up, in the order of the sites; ``elsewhere`` when a second point was sent, to measure f there."""
    present = np.zeros(len(weights), bool)
    present[list(replies)] = True
    share = float(weights[present].sum())
    total = np.zeros_like(ask.x)
    for reply in replies.values():
        total = total + reply.vector
    value, value_at = (
        sum(weights[i] * loss for i, loss in each.items()) / share if share else np.nan
        for each in ({i: r.loss for i, r in replies.items()}, {i: r.loss_at for i, r in replies.items()})
    )
    vectors_down = 1 + elsewhere + _shifted(ask)
    up = len(replies) * (int(ask.x.nbytes) + 8 * (1 + elsewhere + _normed(ask)))
    down = len(weights) * (vectors_down * int(ask.x.nbytes) + 8)
    rows = {i: r.vector for i, r in replies.items()}
    losses = np.array([replies[i].loss if i in replies else 0.0 for i in range(len(weights))])
    squares = float(sum(reply.squares for reply in replies.values()))
    extras = [reply.extra for reply in replies.values() if reply.extra is not None]
    base = sum(weights[i] * r.loss_base for i, r in replies.items()) / share if share else np.nan
    sketches = tuple(_read_sketch(replies[i], ask, "") if i in replies else None for i in range(len(weights)))
    return Gathered(
        present, total, float(value), float(value_at), rows, losses, why, up, down, squares,
        np.sum(extras, axis=0) if extras else None, float(base), sketches,
    )  # fmt: skip


def _read_sketch(reply: Reply, ask: Ask, name: str) -> Sketch | None:
    return None if reply.sketch is None else hessians.unpack_sketch(reply.sketch, ask, name)


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
            raise InvalidInput(f"{method!r} asks for {', '.join(more)}, which a federation does not carry yet")
        if terms.secure is not None and (_needs_rows(ask) or hessians.own_rank(ask)):
            raise InvalidInput(f"{method!r} needs every site's own vector, which secure aggregation never shows")
        if ask.curvature and roster.sampled:
            raise InvalidInput(
                f"{method!r} compares gradients of two rounds, which mini-batches make different functions"
            )
        self.roster, self.rule, self.partial = roster, terms.missing, True
        self.answering.memory = Memory(roster, True)  # type: ignore[arg-type]
        self.settings |= {"engine": "federation", "missing": terms.missing, "deadline": terms.deadline}
        self.notes = {"absences": []}

    @cached_property
    def signature(self) -> list[float]:
        """The sites' losses at their start, as they said when they joined."""
        return list(self.roster.losses)

    def absorb(self, seen: Gathered, began: float) -> None:
        """Apply the rule for those who are missing, and record the round."""
        ask, weights, present = self.method.ask(self.state), self.roster.weights, seen.present
        assert ask.mix is not None
        total, share = seen.total, float(weights[present].sum()) if self.rule == "rescale" else 1.0
        squares = seen.squares
        rows = self._rows(ask, seen) if _needs_rows(ask) or self.rule == "last" else None
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
        for i, why in seen.why.items():
            self._note_absence(i, why)
        # Until somebody was missing once, methods may compare the sums of two rounds as sums over everyone.
        who = present if self.notes["absences"] else None
        each = rows if _shifted(ask) else None
        squares = squares if _normed(ask) else np.nan
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

    def _rows(self, ask: Ask, seen: Gathered) -> Array:
        """One row a site, grad f_i(x) or its move: what came back divided by what it was multiplied with."""
        if seen.rows is None:
            raise InvalidInput(f"{self.method!r} needs every site's own vector, which secure aggregation never shows")
        assert ask.mix is not None
        rows = np.zeros((len(ask.mix), len(seen.total)), seen.total.dtype)
        for i, vector in seen.rows.items():
            rows[i] = vector / ask.mix[i] if ask.mix[i] else 0.0
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


def _needs_rows(ask: Ask) -> bool:
    """Is the sum not enough? Then the sites' vectors are divided by their coefficients; nothing more is sent."""
    return _shifted(ask) or ask.curvature or ask.also is not None


def _normed(ask: Ask) -> bool:
    return ask.local is not None and ask.local.norms


def _shifted(ask: Ask) -> bool:
    return ask.local is not None and ask.local.shift is not None
