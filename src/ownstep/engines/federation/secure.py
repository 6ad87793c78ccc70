"""Rounds in which the coordinator learns the sum and nothing else: Flower's own SecAgg+.

Methods with a server only need sum_i c_i grad f_i(x) and f(x), so each site sends the one vector

    (c_i grad f_i(x), w_i f_i(x), w_i f_i(x_k), c_i ||d_i||^2 of local work where asked for),

masked by :func:`secaggplus_mod`, and :class:`SecAggPlusWorkflow` unmasks the sum. Both are Flower's; sites run theirs
unchanged. They belong to its older API (fit instructions, strategies): this module is the bridge. A round takes four
exchanges of messages in place of one. Entries are rounded at random to multiples of 2 clip / 2^bits, without bias, so a
sum over n sites is off by less than n times that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict

from ownstep.engines.federation import hessians
from ownstep.engines.federation.wire import Question, Refused, local_from_words, local_words
from ownstep.methods import Ask
from ownstep.support.checks import whole_number
from ownstep.support.errors import InvalidInput

if TYPE_CHECKING:
    from ownstep.engines.federation.asking import Gathered
    from ownstep.engines.federation.nodes import Nodes, Roster
    from ownstep.engines.federation.site import Site


@dataclass(frozen=True)
class SecurePlus:
    """Parameters of SecAgg+.

    Parameters
    ----------
    clip : every entry that a site sends lies in [-clip, clip]; a site with a larger one refuses, nothing is cut off.
    bits : an entry becomes one of 2^bits values; bits + log2(sites) may be at most 32.
    threshold : share of the sites that must stay until a round's end for its sum to be recovered, in (0, 1].
    """

    clip: float = 8.0
    bits: int = 22
    threshold: float = 0.6

    def __post_init__(self) -> None:
        if not 0 < self.clip < np.inf:
            raise InvalidInput(f"clip is positive and finite, got {self.clip!r}")
        if whole_number("bits", self.bits, 8) > 30:
            raise InvalidInput(f"bits is at most 30, got {self.bits!r}")
        if not 0 < self.threshold <= 1:
            raise InvalidInput(f"threshold is a share in (0, 1], got {self.threshold!r}")

    @property
    def resolution(self) -> float:
        """2 clip / 2^bits, what one site's entry may be off by."""
        return float(2 * self.clip / 2**self.bits)

    def gather(self, nodes: Nodes, roster: Roster, ask: Ask, point: Any, k: int) -> Gathered:
        """Run one round and return the sum over the sites that stayed to its end."""
        from flwr.common import ndarrays_to_parameters
        from flwr.server.compat.legacy_context import LegacyContext
        from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key

        from ownstep.engines.federation.asking import Gathered

        n = len(roster.names)
        if n < 2 or self.bits + np.log2(n) > 32:
            raise InvalidInput(f"secure aggregation with {self.bits} bits is for 2 to {2 ** (32 - self.bits)} sites")
        arrays = [np.asarray(ask.x)] + ([] if point is ask.x else [np.asarray(point)])
        arrays += [] if ask.base is None else [np.asarray(ask.base)]
        arrays += [] if ask.solve is None else [np.asarray(ask.solve.vector)]
        strategy = _Strategy(roster, ask, k, ndarrays_to_parameters(arrays), self.clip)
        context = LegacyContext(Context(0, 0, {}, RecordDict(), {}), strategy=strategy, client_manager=strategy)
        context.state[MAIN_CONFIGS_RECORD] = ConfigRecord({Key.CURRENT_ROUND: k})
        context.state[MAIN_PARAMS_RECORD] = _parameters(ask.x)
        workflow = _workflow()(
            1.0, self.threshold, max_weight=1.0, clipping_range=float(self.clip), quantization_range=2**self.bits,
            timeout=nodes.deadline,
        )  # fmt: skip
        exchange = _Grid(nodes)
        workflow(exchange, context)
        present = np.isin(roster.nodes, list(strategy.stayed))
        n_x, more = len(ask.x), hessians.extra_length(ask)
        silent = np.zeros(n_x + more + 4)
        total = silent if strategy.mean is None else len(strategy.stayed) * strategy.mean
        share = float(roster.weights[present].sum()) or np.nan
        gone = "did not stay to the end of the secure round"
        why = {i: exchange.why.get(roster.nodes[i], gone) for i in np.flatnonzero(~present).tolist()}
        vector, extra = total[:n_x].astype(ask.x.dtype), total[n_x : n_x + more].astype(ask.x.dtype)
        loss, loss_at, loss_base, *squares = total[n_x + more :]
        # what is sent masked is one 64-bit integer an entry; keys and shares are not counted
        up, down = int(present.sum()) * 8 * (len(total) + 1), n * sum(a.nbytes for a in arrays)
        return Gathered(
            present, vector, float(loss) / share, float(loss_at) / share, None, np.zeros(n), why, up, down,
            float(sum(squares)), extra if more else None, float(loss_base) / share,
        )  # fmt: skip


def _workflow() -> Any:
    """Flower's workflow, which also survives sites that are away before the masks are agreed on.

    It asks for the key shares of everybody it began with. Who never sent any has put no mask on anything, so those who
    have sent theirs are all that the unmasking needs (flwr 1.41 ends such a round without a sum).
    """
    from flwr.server.workflow import SecAggPlusWorkflow

    class Workflow(SecAggPlusWorkflow):
        def share_keys_stage(self, grid: Any, context: Any, state: Any) -> bool:
            going = super().share_keys_stage(grid, context, state)
            state.sampled_node_ids = stayed = set(state.active_node_ids)
            state.nid_to_neighbours = {node: state.nid_to_neighbours[node] & stayed for node in stayed}
            return bool(going)

    return Workflow


class _Strategy:
    """What the workflow asks of a strategy and of a client manager: whom to ask for what, and where the mean goes."""

    def __init__(self, roster: Roster, ask: Ask, k: int, parameters: Any, clip: float) -> None:
        self.roster, self.ask, self.k, self.parameters, self.clip = roster, ask, k, parameters, clip
        self.mean: Any = None
        self.stayed: set[int] = set()

    def num_available(self) -> int:
        return len(self.roster.nodes)

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> list[tuple[Any, Any]]:
        from flwr.common import FitIns

        assert self.ask.mix is not None
        common = {"k": self.k, "clip": float(self.clip), "base": self.ask.base is not None}
        common |= hessians.words(self.ask)
        each = zip(self.roster.nodes, self.ask.mix, self.roster.weights, strict=True)
        return [
            (_Proxy(node), FitIns(self.parameters, common | own | {"c": float(c), "w": float(w)}))
            for i, (node, c, w) in enumerate(each)
            for own in [local_words(self.ask.local, i)]
        ]

    def aggregate_fit(self, server_round: int, results: list[tuple[Any, Any]], failures: Any) -> tuple[None, Any]:
        from flwr.common import parameters_to_ndarrays

        self.stayed = {proxy.node_id for proxy, _ in results}
        self.mean = parameters_to_ndarrays(results[0][1].parameters)[0] if results else None
        return None, {}


@dataclass(frozen=True)
class _Proxy:
    node_id: int


class _Grid:
    """Flower's exchange of messages with our deadlines: the workflow calls nothing else of a Grid."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.why: dict[int, str] = {}  # by node, what happened to its first reply that could not be used

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        sent = list(messages)
        contents = {message.metadata.dst_node_id: message.content for message in sent}
        first = sent[0].metadata
        replies = self.nodes.ask(contents, first.message_type, first.group_id)
        for node in contents:
            reply = replies.get(node, self.nodes.no_reply())
            if isinstance(reply, Refused):
                self.why.setdefault(node, str(reply))
            elif reply.has_error():
                self.why.setdefault(node, str(Refused(f"its ClientApp failed: {reply.error.reason}")))
        return [reply for reply in replies.values() if not isinstance(reply, Refused)]


def answer_masked(site: Site, message: Message) -> Message:
    """The site's vector before it is masked; :func:`secaggplus_mod` calls this in the third of the four exchanges."""
    from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.compat.common.recorddict_compat import fitres_to_recorddict, recorddict_to_fitins

    fit = recorddict_to_fitins(message.content, keep_input=True)
    x, *points = parameters_to_ndarrays(fit.parameters)
    ask: dict[str, Any] = dict(fit.config)
    vector = points.pop() if ask["solve"] else None
    base = points.pop() if ask["base"] else None
    more = hessians.from_words(ask, vector)
    if more.sketch is not None and not more.sketch.shared:
        raise Refused("its own eigenpairs are no sum, and are not sent under secure aggregation")
    question = Question(x, points[0] if points else None, ask["c"], ask["k"], local_from_words(ask), base, more)
    reply = site.answer(question)
    numbers = [ask["w"] * loss for loss in (reply.loss, reply.loss_at, reply.loss_base)]
    numbers += [reply.squares] if ask["norms"] else []
    extra = np.zeros(0) if reply.extra is None else reply.extra
    vector = np.concatenate([reply.vector.astype(float), extra.astype(float), numbers])
    if abs(vector).max() > ask["clip"]:
        raise Refused(f"an entry of {abs(vector).max():.3g} is beyond the clip of {ask['clip']:g}: not sent")
    status = Status(Code.OK, "")
    return Message(
        fitres_to_recorddict(FitRes(status, ndarrays_to_parameters([vector]), 1, {}), keep_input=False),
        reply_to=message,
    )


def secaggplus_mod(message: Message, context: Context, call_next: Any) -> Message:
    """Flower's SecAgg+ mod, imported only where a secure round needs it."""
    from flwr.client.mod import secaggplus_mod as flowers

    reply: Message = flowers(message, context, call_next)
    return reply


def _parameters(x: Any) -> Any:
    from flwr.app import Array, ArrayRecord

    return ArrayRecord({"x": Array(np.asarray(x))})
