"""One round of messages: from what methods ask to what the sites answered."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from ownstep.engines.federation import hessians
from ownstep.engines.federation.data_owner import REFUSED
from ownstep.engines.federation.nodes import Nodes, Roster
from ownstep.engines.federation.wire import ASK, ROUND, Refused, Reply, pack_asks, pack_points, shifted, unpack_replies
from ownstep.engines.local.answering import sketch_bytes
from ownstep.methods import Ask, Sketch
from ownstep.support.errors import InvalidInput, OwnstepError, plain_text

if TYPE_CHECKING:
    from ownstep.engines.federation.coordinator import Terms

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Gathered:
    """What the sites answered one method.

    Parameters
    ----------
    present : who answered something that can be used.
    total : sum over them of c_i grad f_i(x).
    value, value_at : their mean loss, weighted, where the method looked and where it stands.
    rows : c_i grad f_i(x) by site, d_i where the method wants every one; None under secure aggregation.
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


class Asking:
    """From what methods ask to what the sites answered."""

    def __init__(self, nodes: Nodes, roster: Roster, terms: Terms) -> None:
        self.nodes, self.roster, self.terms = nodes, roster, terms

    def __call__(self, asks: list[Ask], loops: list[Any]) -> list[Gathered]:
        """One exchange of messages for all asks, or four for each under secure aggregation."""
        points = [loop.method.point(loop.state) for loop in loops]
        rounds = [loop.k for loop in loops]
        if self.terms.secure is not None:
            one = zip(asks, points, rounds, strict=True)
            return [self.terms.secure.gather(self.nodes, self.roster, *each) for each in one]
        shared, roster = pack_points(asks, points), self.roster
        wanted = [self._drawn(k) for k in rounds]
        asked = [i for i in range(len(roster.nodes)) if any(drawn[i] for drawn in wanted)]
        contents = {roster.nodes[i]: pack_asks(asks, shared, rounds, i) for i in asked}
        budget = sum(ask.x.nbytes + hessians.reply_bytes(ask) for ask in asks)
        replies = self.nodes.ask(contents, ROUND, str(max(rounds)), budget)
        usable: dict[int, list[Reply]] = {}
        why: dict[int, str] = {}
        for i in asked:
            reply = replies.get(roster.nodes[i])
            try:
                if reply is None:
                    raise self.nodes.no_reply()
                if isinstance(reply, Refused):
                    raise reply
                usable[i] = unpack_replies(reply, asks)
                for loop, ask, answered in zip(loops, asks, usable[i], strict=True):
                    _read_sketch(answered, ask, roster.names[i])
                    loop.plausible(i, ask, answered)
            except (Refused, InvalidInput) as refusal:
                usable.pop(i, None)
                why[i] = str(refusal)
        out = []
        for m, (ask, drawn) in enumerate(zip(asks, wanted, strict=True)):
            mine = {i: r[m] for i, r in usable.items() if drawn[i]}
            absent = {i: text for i, text in why.items() if drawn[i]}
            out.append(collect(mine, ask, roster.weights, absent, points[m] is not ask.x, int(drawn.sum())))
        return out

    def _drawn(self, k: int) -> NDArray[np.bool_]:
        """Whom round k asks."""
        count, rule = len(self.roster.nodes), self.terms.participation
        drawn = np.ones(count, bool) if rule is None else rule.present(k, count)
        if not drawn.any():
            raise OwnstepError(f"{rule!r} asks nobody in round {k}: Cohort(size) always asks somebody")
        return drawn


def collect(
    replies: Mapping[int, Reply],
    ask: Ask,
    weights: Array,
    why: dict[int, str],
    elsewhere: bool = False,
    asked: int | None = None,
) -> Gathered:
    """Add up, in the order of the sites; ``elsewhere`` when a second point was sent, to measure f there.

    ``asked`` is how many were sent a message; everyone by default.
    """
    present = np.zeros(len(weights), bool)
    present[list(replies)] = True
    share = float(weights[present].sum())
    rows, squares = {i: r.vector for i, r in replies.items()}, [r.squares for r in replies.values()]
    parts = rows
    if shifted(ask):  # the sites sent their moves as they are
        assert ask.mix is not None
        parts = {i: ask.mix[i].astype(row.dtype) * row for i, row in rows.items()}
        squares = [float(ask.mix[i]) * r.squares for i, r in replies.items()]
    total = np.zeros_like(ask.x)
    for part in parts.values():
        total = total + part
    value, value_at = (
        sum(weights[i] * loss for i, loss in each.items()) / share if share else np.nan
        for each in ({i: r.loss for i, r in replies.items()}, {i: r.loss_at for i, r in replies.items()})
    )
    vectors_down = 1 + elsewhere + shifted(ask) + (ask.base is not None) + (ask.solve is not None)
    up = len(replies) * (int(ask.x.nbytes) + 8 * (1 + elsewhere + normed(ask)))
    down = (len(weights) if asked is None else asked) * (vectors_down * int(ask.x.nbytes) + 8)
    losses = np.array([replies[i].loss if i in replies else 0.0 for i in range(len(weights))])
    extras = [reply.extra for reply in replies.values() if reply.extra is not None]
    base = sum(weights[i] * r.loss_base for i, r in replies.items()) / share if share else np.nan
    sketches = tuple(_read_sketch(replies[i], ask, "") if i in replies else None for i in range(len(weights)))
    up += sum(extra.nbytes for extra in extras) + 8 * len(replies) * (ask.base is not None)
    up += int(sketch_bytes(ask.x, sketches, present).sum())
    return Gathered(
        present, total, float(value), float(value_at), rows, losses, why, up, down, float(sum(squares)),
        np.sum(extras, axis=0) if extras else None, float(base), sketches,
    )  # fmt: skip


def _read_sketch(reply: Reply, ask: Ask, name: str) -> Sketch | None:
    return None if reply.sketch is None else hessians.unpack_sketch(reply.sketch, ask, name)


def needs_rows(ask: Ask) -> bool:
    """Is the sum not enough? Then gradients are divided by their coefficients; nothing more is sent."""
    return shifted(ask) or ask.curvature or ask.also is not None


def normed(ask: Ask) -> bool:
    return ask.local is not None and ask.local.norms


def questioned(grid: Grid, terms: Terms, question: Mapping[str, Any], nodes: Mapping[int, str]) -> dict[int, Any]:
    """Ask every site the same question and return the answers by node.

    Parameters
    ----------
    question : words, numbers and lists of them.
    nodes : names of the sites as far as they are known; empty for the first question, which waits for everybody.

    Raises
    ------
    InvalidInput
        Sites refuse, all of them named, with their reasons.
    OwnstepError
        Sites do not answer.
    """
    asked = list(nodes) or _everybody(grid, terms)
    content = RecordDict({"ask": ConfigRecord(dict(question))})
    replies = Nodes(grid, terms.deadline).ask(dict.fromkeys(asked, content), ASK, str(question.get("question", "")))
    out: dict[int, Any] = {}
    silent: dict[str, str] = {}
    refused: dict[str, str] = {}
    for node in asked:
        reply = replies.get(node, Refused(f"gave no reply within {terms.deadline:g} s"))
        name = nodes.get(node, f"node {node}")
        if isinstance(reply, Refused):
            silent[name] = str(reply)
        elif reply.has_error():
            silent[name] = f"failed: {plain_text(reply.error.reason)}"
        else:
            out[node] = dict(reply.content.config_records.get("told", {}))
            if REFUSED in out[node]:
                refused[plain_text(out[node].get("name", name), 80)] = plain_text(out[node][REFUSED], 600)
    for kind, found in ((InvalidInput, refused), (OwnstepError, silent)):
        if found:
            raise kind("; ".join(f"{name} {why}" for name, why in sorted(found.items())))
    return out


def _everybody(grid: Grid, terms: Terms) -> list[int]:
    ends = time.monotonic() + terms.joining
    while len(online := sorted(grid.get_node_ids())) < terms.sites:
        if time.monotonic() > ends:
            raise OwnstepError(f"{len(online)} of {terms.sites} sites joined within {terms.joining:g} s")
        time.sleep(min(1.0, terms.joining / 20))
    if len(online) > terms.sites:
        raise OwnstepError(f"{len(online)} sites are here, {terms.sites} were expected")
    return online
