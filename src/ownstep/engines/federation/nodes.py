"""The coordinator's view of the nodes: who they are, asking them all at once, and not waiting for the dead.

Flower's Grid has no call that returns when a reply arrives, so while a round is open, and only then, replies are asked
for after pauses that start short and double. A node that misses a deadline keeps being asked, so that it can come
back, but nobody waits for it again until it has answered something.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from numpy.typing import NDArray

from ownstep.engines.federation.wire import JOIN, Refused, Waiting, size
from ownstep.plan import Devices
from ownstep.smoothness.base import STRENGTH
from ownstep.support.errors import OwnstepError, plain_text
from ownstep.support.files import write_atomically
from ownstep.support.memory import limited_memory

FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.5
"""Seconds between two looks for replies: the first pause of a round, and the one that doubling stops at."""

UNREACHED = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE)
"""Errors by which the SuperLink answers in place of a node: no sign of life."""

EXPIRED = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)
"""Those that mean that a message has outlived its deadline."""

LONGEST_NAME = 80
"""Characters in the name of a site."""

SPARE_MEMORY = 2 << 30
"""Bytes that taking in one reply may need beyond its vectors; more is refused (where the system can limit it)."""


@dataclass(frozen=True)
class Roster:
    """The sites of a federation as they described themselves, in the order of their names.

    Parameters
    ----------
    names, nodes, samples, L, mu, losses : one entry per site: its name, Flower's node id, its size, its constants, and
        its loss at the start of its own problem, by which a resumed run knows the data again.
    dim, dtype : of x.
    kind : what the L_i are, the weakest of the sites' words, see :data:`~ownstep.smoothness.base.STRENGTH`.
    sampled : whether some site draws mini-batches.
    """

    names: tuple[str, ...]
    nodes: tuple[int, ...]
    samples: tuple[int, ...]
    L: tuple[float, ...]
    mu: tuple[float, ...]
    losses: tuple[float, ...]
    dim: int
    dtype: str
    kind: str
    sampled: bool = False

    @property
    def weights(self) -> NDArray[np.float64]:
        """w_i, the shares of the samples."""
        return np.asarray(self.samples, float) / sum(self.samples)

    @property
    def settings(self) -> dict[str, Any]:
        """For the history."""
        return {"sites": list(self.names), "samples": list(self.samples), "smoothness": self.kind}

    def x0(self) -> NDArray[Any]:
        """The origin."""
        return np.zeros(self.dim, self.dtype)

    def devices(self, L_pooled: float | None = None) -> Devices:
        """What methods are started with; the pooled smoothness is known only to someone who has seen all the data."""
        return Devices(self.weights, np.asarray(self.L), np.asarray(self.mu), self.names, L_pooled)

    def save(self, path: Path) -> None:
        """Write it as json, for a coordinator that is started again."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with write_atomically(path) as file:
                file.write(json.dumps(asdict(self), indent=1).encode())
        except OSError as error:
            raise OwnstepError(f"cannot write the list of sites {str(path)!r}: {error}") from error

    @classmethod
    def load(cls, path: Path) -> Roster:
        """Read what :meth:`save` wrote."""
        try:
            known: dict[str, Any] = json.loads(path.read_text())
            entries: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in known.items()}
            roster = cls(**entries)
            if not len({len(getattr(roster, key)) for key in ("names", "nodes", "samples", "L", "mu", "losses")}) == 1:
                raise ValueError("its columns differ in length")
            numbers = np.asarray([roster.nodes, roster.samples, roster.L, roster.mu, roster.losses], float)
            if not (np.isfinite(numbers).all() and np.isfinite(float(roster.dim))):
                raise ValueError("it has numbers that are not finite")
            return roster
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise OwnstepError(f"{str(path)!r} is not a readable list of sites: {plain_text(error)}") from error


class Nodes:
    """Asks nodes and collects what they answer within a deadline.

    Parameters
    ----------
    grid : Flower's Grid.
    deadline : seconds a round may take.
    returning : sites that have to say who they are before what they send counts.
    """

    def __init__(self, grid: Grid, deadline: float, returning: Returning | None = None) -> None:
        self.grid, self.deadline, self.returning = grid, deadline, returning
        self.suspects: set[int] = set()
        self.late: dict[str, tuple[int, float]] = {}

    def ask(
        self, contents: Mapping[int, RecordDict], kind: str, label: str, budget: int = 0, enough: int | None = None
    ) -> dict[int, Message | Refused]:
        """Send one message per node and return the replies that came in time, by node.

        Parameters
        ----------
        kind, label : Flower's message type, and the group under which its logs show the message.
        budget : bytes of vectors that a reply was asked for.
        enough : how many replies to wait for; those of all who are not suspected dead by default.
        """
        began = time.monotonic()
        ends = began + self.deadline
        messages = [Message(c, node, kind, ttl=self.deadline, group_id=label) for node, c in contents.items()]
        pushed = list(self.grid.push_messages(messages))
        if len(pushed) != len(messages):
            raise OwnstepError(
                f"the SuperLink took {len(pushed)} of {len(messages)} messages: are they too long for it?"
            )
        open_ = {identity: (node, ends) for identity, node in zip(pushed, contents, strict=True) if identity}
        waited = {node for node, _ in open_.values()} - self.suspects or {node for node, _ in open_.values()}
        self.late = {i: entry for i, entry in self.late.items() if entry[1] > began - self.deadline}
        replies: dict[int, Message | Refused] = {}
        pause = FIRST_PAUSE

        def complete() -> bool:
            return len(replies) >= enough if enough is not None else not waited - set(replies)

        while True:  # one look at least: sending alone may take longer than the deadline
            news = False
            found = self._pull([*open_, *self.late], budget)
            for identity, reply in found.items():
                node = (open_.get(identity) or self.late[identity])[0]
                news = True
                if isinstance(reply, Message) and reply.has_error() and reply.error.code in UNREACHED:
                    expired = reply.error.code in EXPIRED  # by then the deadline has passed, as its life is that long
                    reply = self.no_reply() if expired else Refused(f"not reached: {reply.error.reason}")
                    self._suspect(node)
                else:
                    self.suspects.discard(node)
                if open_.pop(identity, None) is not None:
                    replies[node] = reply
                else:
                    del self.late[identity]
            left = ends - time.monotonic()
            if complete() or left <= 0:
                break
            pause = FIRST_PAUSE if news else min(2 * pause, LONGEST_PAUSE)
            time.sleep(min(pause, left))
        self.late |= open_
        self._suspect(*(node for node, _ in open_.values()))
        if self.returning is not None and kind != JOIN:
            self._compare(replies, self.returning)
        return replies

    def _compare(self, replies: dict[int, Message | Refused], returning: Returning) -> None:
        """Ask those who are back who they are; a reply of one that is not what it was becomes a refusal."""
        back = [node for node, reply in replies.items() if node in returning.nodes and isinstance(reply, Message)]
        told = self.ask(dict.fromkeys(back, returning.question), JOIN, "join") if back else {}
        for node in back:
            try:
                returning.compare(node, told.get(node, self.no_reply()))
            except OwnstepError as error:
                replies[node] = Refused(str(error))

    def _suspect(self, *nodes: int) -> None:
        """Wait for these no longer; what they hold when they are back is to be compared."""
        self.suspects.update(nodes)
        if self.returning is not None:
            self.returning.nodes.update(nodes)

    def no_reply(self) -> Refused:
        """Why somebody is missing who did not answer in time."""
        return Refused(f"no reply within {self.deadline:g} s")

    def _pull(self, identities: list[str], budget: int) -> dict[str, Message | Refused]:
        """What has come in, after one look for all; each is taken in on its own, so that none takes others with it."""
        try:
            waiting = Waiting(self.grid, identities)
        except (AttributeError, TypeError):  # another kind of Grid: one look for each
            waiting = None
        out: dict[str, Message | Refused] = {}
        for identity in identities if waiting is None else waiting.there:
            try:
                with limited_memory(SPARE_MEMORY + 8 * budget):
                    found = list((self.grid if waiting is None else waiting).pull_messages([identity]))
            except MemoryError:
                out[identity] = Refused(f"its reply needs more than {size(SPARE_MEMORY + 8 * budget)} of memory")
                continue
            if found:
                out[identity] = found[0]
        return out


def gather(
    grid: Grid,
    sites: int,
    deadline: float,
    known: Roster | None = None,
    task: Mapping[str, Any] | None = None,
    patience: float | None = None,
) -> Returning:
    """Wait until the expected number of sites has joined, and ask each once who it is.

    Parameters
    ----------
    known : the roster of an earlier start. Its sites need not be there again; those that are must hold the data they
        had then.
    task : for sites that become one when they are told what for.
    patience : seconds to wait for known sites, which may be away; as long as for new ones by default.

    Returns
    -------
    Returning
        The roster, with those of the known sites that did not answer: they are compared when they do.
    """
    ends = time.monotonic() + deadline
    answers: dict[int, dict[str, Any]] = {}
    settled = set() if known is None else set(known.nodes)
    nodes = Nodes(grid, deadline)
    question = RecordDict({"join": ConfigRecord({"wants": "name, samples, smoothness"})})
    if task is not None:
        question["task"] = ConfigRecord(dict(task))
    silent: set[int] = set()
    if known is not None:
        silent = _silent(known, question, Nodes(grid, deadline if patience is None else patience))
    while True:
        online = set(grid.get_node_ids())
        fresh = sorted(online - settled)
        if fresh:
            nodes.deadline = max(1.0, ends - time.monotonic())
            wanted = min(len(fresh), sites - len(answers)) if known is None else None
            for node, reply in nodes.ask(dict.fromkeys(fresh, question), JOIN, "join", enough=wanted).items():
                answers[node] = _description(node, reply)
            settled |= set(fresh)
        if known is not None:
            return Returning(_renamed(known, answers, online), question, silent)
        if len(answers) >= sites:
            return Returning(_roster(answers, sites), question, silent)
        if time.monotonic() > ends:
            here = ", ".join(sorted(repr(a["name"]) for a in answers.values())) or "none"
            raise OwnstepError(f"{len(answers)} of {sites} sites joined within {deadline:g} s: {here}")
        time.sleep(min(1.0, deadline / 20))


@dataclass(frozen=True)
class Returning:
    """The sites, and those of them that were silent: their data may have changed before they speak again.

    Parameters
    ----------
    roster : the sites as they were when the federation began.
    question : what asks a site who it is.
    nodes : of those that are to be compared with the roster as soon as they answer something.
    """

    roster: Roster
    question: RecordDict
    nodes: set[int]

    def compare(self, node: int, reply: Message | Refused) -> None:
        """Take a site back if it is what it was; an error says what differs."""
        about, name = _description(node, reply), self.roster.names[self.roster.nodes.index(node)]
        if about["name"] != name:
            raise OwnstepError(f"node {node} was {name!r}, and is {about['name']!r}")
        _same_site(self.roster, about)
        self.nodes.discard(node)


def _silent(known: Roster, question: RecordDict, nodes: Nodes) -> set[int]:
    """The nodes of an earlier start that do not answer now; one that does has to be what it was."""
    returning = Returning(known, question, set(known.nodes))
    back = sorted(returning.nodes & set(nodes.grid.get_node_ids()))
    for node, reply in nodes.ask(dict.fromkeys(back, question), JOIN, "join").items() if back else ():
        if isinstance(reply, Message) and not reply.has_error():
            returning.compare(node, reply)
    return returning.nodes


def _description(node: int, reply: Message | Refused) -> dict[str, Any]:
    if isinstance(reply, Refused) or reply.has_error():
        why = reply if isinstance(reply, Refused) else reply.error.reason
        raise OwnstepError(f"node {node} could not say who it is: {plain_text(why)}")
    about = dict(reply.content.config_records.get("site", {}))
    wanted = {
        "name": str,
        "samples": int,
        "dim": int,
        "dtype": str,
        "mu": float,
        "L": float,
        "kind": str,
        "loss": float,
    }
    wrong = [key for key, kind in wanted.items() if not isinstance(about.get(key), kind)]
    if wrong:
        raise OwnstepError(f"node {node} described itself without {', '.join(wrong)}")
    if not 0 < len(about["name"]) <= LONGEST_NAME or plain_text(about["name"]) != about["name"]:
        raise OwnstepError(
            f"node {node} calls itself {plain_text(about['name'], LONGEST_NAME)!r}: a name has at most {LONGEST_NAME} "
            "characters, all of them visible"
        )
    numbers = {key: about[key] for key in ("samples", "dim", "mu", "L", "loss")}
    sound = about["samples"] >= 1 and about["dim"] >= 1 and 0 <= about["mu"] <= about["L"] and about["L"] > 0
    if not sound or not np.isfinite(list(numbers.values())).all() or about["dtype"] not in ("float32", "float64"):
        raise OwnstepError(
            f"node {node}, {about['name'][:80]!r}, described itself by {numbers} of {about['dtype'][:20]!r}"
        )
    if about["kind"] not in STRENGTH:
        raise OwnstepError(f"node {node}, {about['name'][:80]!r}, has a smoothness of kind {about['kind'][:20]!r}")
    return about


def _roster(answers: Mapping[int, Mapping[str, Any]], sites: int) -> Roster:
    rows = sorted(answers.items(), key=lambda item: item[1]["name"])
    names = tuple(about["name"] for _, about in rows)
    if len(set(names)) < len(names):
        raise OwnstepError(f"two nodes call themselves by one name: {', '.join(names)}")
    if len(rows) > sites:
        raise OwnstepError(f"{len(rows)} sites are here, {sites} were expected: {', '.join(names)}")
    for key in ("dim", "dtype"):
        if len({about[key] for _, about in rows}) > 1:
            raise OwnstepError(f"sites differ in {key}: " + ", ".join(f"{a['name']}: {a[key]}" for _, a in rows))
    column = {key: tuple(about[key] for _, about in rows) for key in ("samples", "L", "mu", "loss", "dim", "dtype")}
    return Roster(
        names,
        tuple(node for node, _ in rows),
        column["samples"],
        column["L"],
        column["mu"],
        column["loss"],
        column["dim"][0],
        column["dtype"][0],
        min((about["kind"] for _, about in rows), key=STRENGTH.index),
        any(about.get("sampled") for _, about in rows),
    )


def _renamed(known: Roster, answers: Mapping[int, Mapping[str, Any]], online: set[int]) -> Roster:
    """The known roster, with the new node ids of sites that were started anew; nobody takes a place that is held."""
    nodes = dict(zip(known.names, known.nodes, strict=True))
    for node, about in answers.items():
        if about["name"] not in nodes:
            raise OwnstepError(f"site {about['name']!r} was not in this federation when it began: {known.names}")
        if nodes[about["name"]] in online:
            raise OwnstepError(f"two nodes call themselves {about['name']!r}: {nodes[about['name']]} and {node}")
        _same_site(known, about)
        nodes[about["name"]] = node
    return Roster(**asdict(known) | {"nodes": tuple(nodes[name] for name in known.names)})


def _same_site(known: Roster, about: Mapping[str, Any]) -> None:
    """A site that was set up anew must hold the data it had: sums over other data would be of another function."""
    i = known.names.index(about["name"])
    before = {"samples": known.samples[i], "dim": known.dim, "dtype": known.dtype, "mu": known.mu[i]}
    differs = [key for key, value in before.items() if about[key] != value]
    measured = {"L": known.L[i], "loss": known.losses[i]}
    differs += [key for key, value in measured.items() if not np.isclose(about[key], value, rtol=1e-5, atol=1e-9)]
    if differs:
        raise OwnstepError(
            f"site {about['name']!r} is not what it was when this federation began (its {', '.join(differs)} differs): "
            "bring its data back, or begin in another folder"
        )
