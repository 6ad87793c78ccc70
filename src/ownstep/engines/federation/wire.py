"""What travels between the coordinator of a federation and its sites, as Flower's records.

    to a site       "points"  x of every method, one array object shared by all sites: it reaches the SuperLink once
                    "shifts"  the site's row of the control variates, for methods that have them
                    "ask"     its coefficient c_i and its local steps, a number each
    from a site     "answer"  c_i grad f_i(x), already multiplied, for every method
                    "numbers" f_i(x), and f_i where the method stands when that is another point

Several methods share one message, because on Flower it is the message that costs and not its length. Arrays are NumPy's
npy format, in which nothing can be executed; whatever is not exactly what was asked for is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from numpy.lib import format as npy
from numpy.typing import NDArray

from ownstep.engines.federation import hessians
from ownstep.methods import Ask, LocalWork
from ownstep.methods.local_work import rule_from_text, rule_to_text
from ownstep.support.errors import OwnstepError, plain_text
from ownstep.support.vectors import small_enough

JOIN = "query.join"
"""Message that asks a site who it is; its answer holds the smoothness, which is measured once."""

ASK = "query.ask"
"""Message that asks a site something else than a method does: words and numbers, before there is a problem."""

ROUND = "train.plain"
"""Message of a round whose replies the coordinator can read one by one."""

NPY_HEADER = 1024
"""Bytes beyond the numbers themselves that an array in npy format may have."""


class Refused(OwnstepError):
    """A reply that cannot be used; the message says what is wrong with it, on one line of bounded length."""

    def __init__(self, why: object) -> None:
        super().__init__(plain_text(why))


@dataclass(frozen=True, eq=False)
class Question:
    """What one method wants of one site in a round.

    Parameters
    ----------
    x : where to evaluate.
    at : where f is to be measured as well, or None when that is x.
    c : the site's coefficient.
    k : the round, from which mini-batches are drawn.
    local : steps the site takes on its own, its ``shift`` one row.
    base, more : a second point, and what is wanted of second order; see
        :mod:`ownstep.engines.federation.hessians`.
    """

    x: NDArray[Any]
    at: NDArray[Any] | None
    c: float
    k: int
    local: LocalWork | None = None
    base: NDArray[Any] | None = None
    more: hessians.More = field(default_factory=hessians.More)


@dataclass(frozen=True, eq=False)
class Reply:
    """What one site answered one method: c_i times its gradient (or move), and its loss at one or two points.

    ``squares`` is c_i times the squared norm of its move, ``loss_base`` its loss at a second point, ``extra`` and
    ``sketch`` what it sends of second order; all where they were asked for.
    """

    vector: NDArray[Any]
    loss: float
    loss_at: float
    squares: float = 0.0
    loss_base: float = 0.0
    extra: NDArray[Any] | None = None
    sketch: NDArray[Any] | None = None


def pack_points(asks: Sequence[Ask], points: Sequence[Any]) -> ArrayRecord:
    """The points of a round; made once, put into the message of every site."""
    arrays = {f"{m}.x": Array(np.asarray(ask.x)) for m, ask in enumerate(asks)}
    arrays |= {f"{m}.at": Array(np.asarray(p)) for m, p in enumerate(points) if p is not asks[m].x}
    arrays |= {f"{m}.base": Array(np.asarray(ask.base)) for m, ask in enumerate(asks) if ask.base is not None}
    arrays |= {f"{m}.vector": Array(np.asarray(a.solve.vector)) for m, a in enumerate(asks) if a.solve is not None}
    return ArrayRecord(arrays)


def pack_asks(asks: Sequence[Ask], points: ArrayRecord, rounds: Sequence[int], device: int) -> RecordDict:
    """The message of a round for one site."""
    work = [local_words(ask.local, device) for ask in asks]
    numbers: dict[str, Any] = {"c": [coefficient(ask, device) for ask in asks], "k": list(rounds)}
    numbers |= {name: [w[name] for w in work] for name in LOCAL}
    numbers |= {name: [hessians.words(ask)[name] for ask in asks] for name in hessians.WORDS}
    content = RecordDict({"points": points, "ask": ConfigRecord(numbers)})
    shifts = {
        str(m): Array(np.asarray(ask.local.shift[device]))
        for m, ask in enumerate(asks)
        if ask.local is not None and ask.local.shift is not None
    }
    if shifts:
        content["shifts"] = ArrayRecord(shifts)
    return content


def unpack_asks(content: RecordDict) -> list[Question]:
    """The inverse of :func:`pack_asks`, at the site."""
    points, numbers = content.array_records["points"], content.config_records["ask"]
    shifts: Mapping[str, Any] = content.array_records.get("shifts", {})
    out = []
    for m, (c, k, *words) in enumerate(zip(*(numbers[name] for name in ("c", "k", *LOCAL)), strict=True)):
        at = points[f"{m}.at"].numpy() if f"{m}.at" in points else None
        shift = shifts[str(m)].numpy()[None] if str(m) in shifts else None
        local = local_from_words(dict(zip(LOCAL, words, strict=True)), shift)
        base = points[f"{m}.base"].numpy() if f"{m}.base" in points else None
        vector = points[f"{m}.vector"].numpy() if f"{m}.vector" in points else None
        more = hessians.from_words({name: numbers[name][m] for name in hessians.WORDS}, vector)
        out.append(Question(points[f"{m}.x"].numpy(), at, c, k, local, base, more))
    return out


LOCAL = ("steps", "step", "prox", "rule", "norms")
"""What a message says of the local work of one site, next to its shift."""


def local_words(local: LocalWork | None, device: int) -> dict[str, Any]:
    """The local work of one site as plain numbers and words; 0 steps for none."""
    if local is None:
        return {"steps": 0, "step": 1.0, "prox": 0.0, "rule": "", "norms": False}
    mine = replace(local, shift=None).keep([device])
    steps, step = np.ravel(mine.steps)[0], np.ravel(mine.step)[0]
    return {
        "steps": int(steps), "step": float(step), "prox": float(mine.prox), "rule": rule_to_text(mine.rule),
        "norms": bool(mine.norms),
    }  # fmt: skip


def local_from_words(words: Mapping[str, Any], shift: NDArray[Any] | None = None) -> LocalWork | None:
    """The inverse of :func:`local_words`."""
    if not words["steps"]:
        return None
    rule = rule_from_text(words["rule"])
    return LocalWork(words["steps"], words["step"], words["prox"], shift, rule, words["norms"])


NUMBERS = ("loss", "loss_at", "squares", "loss_base")
"""What a site answers next to its vector."""


def pack_replies(replies: Sequence[Reply]) -> RecordDict:
    """What a site sends back."""
    arrays = {str(m): Array(reply.vector) for m, reply in enumerate(replies)}
    arrays |= {f"{m}.extra": Array(reply.extra) for m, reply in enumerate(replies) if reply.extra is not None}
    arrays |= {f"{m}.sketch": Array(reply.sketch) for m, reply in enumerate(replies) if reply.sketch is not None}
    answer = ArrayRecord(arrays)
    numbers = MetricRecord({name: [getattr(r, name) for r in replies] for name in NUMBERS})
    return RecordDict({"answer": answer, "numbers": numbers})


def unpack_replies(message: Message, asks: Sequence[Ask]) -> list[Reply]:
    """The replies of one site; :class:`Refused` unless each is finite and of the shape and type asked for."""
    if message.has_error():
        raise Refused(f"its ClientApp failed: {message.error.reason}")
    answer = message.content.array_records.get("answer")
    numbers = message.content.metric_records.get("numbers")
    if (
        answer is None
        or numbers is None
        or set(answer) != {name for m, ask in enumerate(asks) for name in _named(m, ask)}
    ):
        raise Refused(f"its reply has the records {sorted(message.content)}, not an answer to {len(asks)} questions")
    losses = {name: _losses(numbers, name, len(asks)) for name in NUMBERS}
    return [
        Reply(
            checked(answer[str(m)], np.asarray(ask.x)),
            **{name: losses[name][m] for name in NUMBERS},
            extra=_extra(answer, m, ask),
            sketch=_sketch(answer, m, ask),
        )
        for m, ask in enumerate(asks)
    ]


def _named(m: int, ask: Ask) -> list[str]:
    """The arrays that a site answers one ask with."""
    extra = [f"{m}.extra"] if hessians.extra_length(ask) else []
    return [str(m), *extra, *([f"{m}.sketch"] if hessians.own_rank(ask) else [])]


def _extra(answer: ArrayRecord, m: int, ask: Ask) -> NDArray[Any] | None:
    length = hessians.extra_length(ask)
    return checked(answer[f"{m}.extra"], np.empty(length, ask.x.dtype)) if length else None


def _sketch(answer: ArrayRecord, m: int, ask: Ask) -> NDArray[Any] | None:
    """A site's own eigenpairs: as many as it chose, at most the rank asked for."""
    rank, width = hessians.own_rank(ask), hessians.sketch_width(len(ask.x))
    if not rank:
        return None
    shape = tuple(answer[f"{m}.sketch"].shape)
    if len(shape) != 2 or not 1 <= shape[0] <= rank + 1 or shape[1] != width:
        raise Refused(f"its sketch has shape {shape}, at most {(rank + 1, width)} was asked for")
    return checked(answer[f"{m}.sketch"], np.empty(shape))


def checked(array: Array, like: NDArray[Any]) -> NDArray[Any]:
    """The array's numbers, if there are as many of the same type as in ``like`` and all are finite."""
    limit = like.nbytes + NPY_HEADER
    if len(array.data) > limit:
        raise Refused(f"its vector has {size(len(array.data))}, at most {size(limit)} were asked for")
    if tuple(array.shape) != like.shape or array.dtype != like.dtype.name:
        raise Refused(
            f"its vector has shape {tuple(array.shape)} of {array.dtype}, asked for was {like.shape} of {like.dtype}"
        )
    vector = _read(array.data, like)
    if not small_enough(vector):
        wrong = np.flatnonzero(~np.isfinite(vector))
        if not len(wrong):
            raise Refused(
                f"its vector has entries of up to {abs(vector).max():.3g}, whose squares overflow {like.dtype}"
            )
        raise Refused(f"its vector has {len(wrong)} entries that are not finite, the first at {wrong[0]}")
    return vector


def _read(data: bytes, like: NDArray[Any]) -> NDArray[Any]:
    """The numbers of an npy file whose header must say exactly what is expected: nothing is allocated on its word."""
    file = BytesIO(data)
    try:
        if npy.read_magic(file) != (1, 0):
            raise Refused("its vector is not in npy format 1.0")
        shape, _, dtype = npy.read_array_header_1_0(file, max_header_size=NPY_HEADER)
    except ValueError as error:
        raise Refused(f"its vector cannot be read: {error}") from None
    numbers = memoryview(data)[file.tell() :]
    if shape != like.shape or dtype != like.dtype or len(numbers) != like.nbytes:
        raise Refused(f"its vector is not the {like.shape} of {like.dtype} that it claims to be")
    return np.frombuffer(numbers, like.dtype).reshape(like.shape)


def size(count: int) -> str:
    """Bytes as people say them."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count} bytes"


def _losses(numbers: MetricRecord, name: str, count: int) -> list[float]:
    values = numbers.get(name)
    if not isinstance(values, list) or len(values) != count:
        raise Refused(f"its {name} is {values!r}, asked for were {count} numbers")
    wrong = [v for v in values if not np.isfinite(v)]
    if wrong:
        raise Refused(f"its {name} is {wrong[0]!r}")
    return [float(v) for v in values]


def coefficient(ask: Ask, device: int) -> float:
    """What a site multiplies its vector with: c_i, or 1 where the method wants every d_i, which then keeps its bits."""
    assert ask.mix is not None  # the coordinator refuses methods without a server before the first round
    return 1.0 if shifted(ask) else float(ask.mix[device])


def shifted(ask: Ask) -> bool:
    """Does every site's own move count, beside their sum?"""
    return ask.local is not None and ask.local.shift is not None


class Waiting:
    """The replies that one look at the SuperLink found, to be taken in one by one by Flower's own code.

    Flower's Grid looks for replies and takes all it finds in with one call. Here the look is made once, and the call
    then once for each reply, with a client that answers what was found. Another kind of Grid raises AttributeError.
    """

    def __init__(self, grid: Any, identities: list[str]) -> None:
        self.grid, self.client = grid, grid._runtime_client  # connects, if it has not yet
        if grid._client is not self.client:
            raise AttributeError("the client is kept elsewhere")
        from flwr.proto.runtime_pb2 import PullAppMessagesRequest

        self.answer = self.client.PullMessages(PullAppMessagesRequest(message_ids=identities))
        rows = zip(self.answer.messages_list, self.answer.message_object_trees, strict=True)
        self.there = {proto.metadata.reply_to_message_id: (proto, tree) for proto, tree in rows}

    def pull_messages(self, identities: list[str]) -> Any:
        """One reply."""
        proto, tree = self.there[identities[0]]
        one = type(self.answer)(messages_list=[proto], message_object_trees=[tree])
        self.grid._client = _Found(self.client, one)
        try:
            return self.grid.pull_messages(identities)
        finally:
            self.grid._client = self.client


class _Found:
    """Flower's client, but for the one answer that is known already."""

    def __init__(self, client: Any, answer: Any) -> None:
        self._client, self._answer = client, answer

    def PullMessages(self, request: Any) -> Any:
        """What was found."""
        return self._answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)
