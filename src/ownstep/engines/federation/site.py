"""The site's half of a federation: a Flower ClientApp that holds one device's problem.

It answers two messages. ``query.join``: who are you, how large, how curved; measured once and kept. ``train.plain``:
the gradient at x, already multiplied by the coefficient that came with it, and the loss. An owner who takes part in a
fit also answers ``query.ask``, see :mod:`ownstep.engines.federation.data_owner`. Nothing else leaves.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from ownstep.engines.federation import hessians
from ownstep.engines.federation.data_owner import Holder, answered
from ownstep.engines.federation.wire import (
    NPY_HEADER,
    Question,
    Refused,
    Reply,
    pack_replies,
    size,
    unpack_asks,
)
from ownstep.engines.local.answering import local_work
from ownstep.engines.local.engine import describe
from ownstep.engines.local.secant import each
from ownstep.engines.local.sketching import Sketching
from ownstep.methods.local_work import lengths
from ownstep.problems.base import Problem
from ownstep.smoothness import Smoothness
from ownstep.support.checks import whole_number
from ownstep.support.errors import InvalidInput, OwnstepError
from ownstep.support.vectors import like, to_numpy

KEPT = "ownstep.join"
"""Under this name the answer to ``query.join`` is kept in the node's state, so that nothing is measured twice."""
DATA = "ownstep.data"
"""Under this name a digest of the data is kept in the node's state, and never sent: it tells when the data changes."""
TASK = "ownstep.task"
"""Under this name a holder's task is kept in the node's state: every message may be a process of its own."""


@dataclass(frozen=True, eq=False)
class Site:
    """One owner's data and problem in a federation.

    Parameters
    ----------
    name : how the coordinator's history calls this site; unique in the federation.
    problem : the loss f_i on the data that stays here; a problem of one device.
    samples : how many samples it has, from which the weights w_i are made; those of the problem by default.
    smoothness : a measurement of L_i, or how to make one; ``"adaptive"`` for methods that need none.
    secure_only : answer only under secure aggregation, where the coordinator learns nothing but sums.
    """

    name: str
    problem: Problem
    samples: int | None = None
    smoothness: Smoothness | str = "auto"
    secure_only: bool = False

    def __post_init__(self) -> None:
        if len(self.problem.weights) != 1:
            raise InvalidInput(f"a site is one device, but its problem has {len(self.problem.weights)}")
        if not self.name or not isinstance(self.name, str):
            raise InvalidInput(f"a site needs a name, got {self.name!r}")
        whole_number("samples", self.count, 1)

    @property
    def count(self) -> int:
        """Number of samples."""
        if self.samples is not None:
            return self.samples
        counts = getattr(self.problem, "counts", None)
        if counts is None:
            raise InvalidInput(
                f"{type(self.problem).__name__} does not say how many samples it has: give Site samples="
            )
        return int(np.sum(counts))

    def describe(self) -> dict[str, Any]:
        """The answer to ``query.join``: plain numbers and words."""
        problem, plan = self.problem, describe(self.problem, self.smoothness)
        assert plan.smoothness is not None
        x0 = problem.x0()
        return {
            "name": self.name,
            "samples": self.count,
            "dim": problem.dim,
            "dtype": to_numpy(x0).dtype.name,
            "mu": float(problem.strong_convexity),
            "L": float(plan.devices.L[0]),
            "kind": plan.smoothness.kind,
            "how": plan.smoothness.how,
            "sampled": getattr(problem, "batch", None) is not None,
            "loss": float(problem.mix(x0, np.ones(1))[0][0]),
        }

    def answer(self, question: Question, sketching: Sketching | None = None) -> Reply:
        """c_i grad f_i(x), or c_i times the move of the local steps; with the loss at one or two points.

        ``sketching`` is what the site remembers of its last sketch; nothing by default.
        """
        problem = self.problem
        if question.x.shape != (problem.dim,):
            raise InvalidInput(f"asked about a point of shape {question.x.shape}, x has {problem.dim} entries here")
        begin: Any = getattr(problem, "begin_round", None)
        if begin is not None:
            begin(question.k)
        x, squares = like(question.x, problem.x0()), 0.0
        if question.local is None:
            losses, vector = problem.mix(x, np.array([question.c]))
        else:
            losses, rows = each(problem, x)
            move = local_work(problem, x, question.local, (losses, rows))
            vector = question.c * move[0]
            squares = question.c * float(lengths(move)[0] ** 2) if question.local.norms else 0.0
        elsewhere = losses if question.at is None else problem.mix(like(question.at, x), np.zeros(1))[0]
        out = to_numpy(vector)
        check_outgoing(out, question.x)
        extra, loss_base, sketch = hessians.answer(
            problem, x, question.base, question.c, question.more, sketching or Sketching(problem)
        )
        for part in (extra, sketch):
            if part is not None and not np.isfinite(part).all():
                raise Refused("the site's problem returned curvature that is not finite: not sent")
        return Reply(
            out.astype(question.x.dtype, copy=False), float(losses[0]), float(elsewhere[0]), squares, loss_base, extra,
            sketch,
        )  # fmt: skip


def check_outgoing(vector: Any, x: Any) -> None:
    """Nothing that the coordinator would refuse is sent in the first place, least of all gigabytes."""
    if vector.nbytes > 2 * x.nbytes + NPY_HEADER:
        raise Refused(f"the site's problem returned {size(vector.nbytes)} for a point of {size(x.nbytes)}: not sent")
    if vector.shape != x.shape:
        raise Refused(f"the site's problem returned shape {vector.shape} for a point of shape {x.shape}: not sent")
    if not np.isfinite(vector).all():
        raise Refused("the site's problem returned a gradient that is not finite: not sent")


def site_app(open_site: Callable[[Context], Site | Holder]) -> ClientApp:
    """A ClientApp for Flower's simulation and deployment.

    Parameters
    ----------
    open_site : makes the site from the node's context, or a :class:`~ownstep.engines.federation.data_owner.Holder`.
        It is called once in a process; in deployment Flower starts a process for every message, so reading the data
        should be quick.

    Notes
    -----
    A node started with ``--node-config 'site-file="/path/site.py"'`` uses the ``open_site`` of that file instead: what
    the owner wrote stays with the owner, and the coordinator's app never has to hold it.
    """
    from ownstep.engines.federation.secure import answer_masked, secaggplus_mod

    opened = _Opened(open_site)
    site, app = opened.site, ClientApp()

    @app.query("ask")
    def ask(message: Message, context: Context) -> Message:
        told = answered(opened.owner(context), dict(message.content.config_records["ask"]))
        return Message(RecordDict({"told": told}), reply_to=message)

    @app.query("join")
    def join(message: Message, context: Context) -> Message:
        if "task" in message.content.config_records:
            opened.begin(message.content.config_records["task"], context)
        if opened.changed(context):
            context.state.pop(KEPT, None)
            context.state.pop(DATA, None)
        opened.remember(context)
        if KEPT not in context.state.config_records:
            context.state[KEPT] = ConfigRecord(site(context).describe())
        return Message(RecordDict({"site": context.state.config_records[KEPT]}), reply_to=message)

    @app.train("plain")
    def plain(message: Message, context: Context) -> Message:
        here = opened.unchanged(context)
        if here.secure_only:
            raise Refused(f"site {here.name!r} answers under secure aggregation only")
        replies = [
            here.answer(question, _Remembered(here, context, m)) if question.more.sketch else here.answer(question)
            for m, question in enumerate(unpack_asks(message.content))
        ]
        return Message(pack_replies(replies), reply_to=message)

    @app.train(mods=[secaggplus_mod])
    def masked(message: Message, context: Context) -> Message:
        return answer_masked(opened.unchanged(context), message)

    return app


class _Opened:
    """The owners of a process's nodes, and the sites that they are or become."""

    def __init__(self, open_site: Callable[[Context], Site | Holder]) -> None:
        self.open_site = open_site
        self.owners: dict[int, Site | Holder] = {}
        self.sites: dict[int, Site] = {}
        self.digests: dict[int, str] = {}

    def owner(self, context: Context) -> Site | Holder:
        """Who holds the data of this node, by the owner's own file where the node names one."""
        if context.node_id not in self.owners:
            file = context.node_config.get("site-file")
            self.owners[context.node_id] = (self.open_site if file is None else load_open_site(str(file)))(context)
        return self.owners[context.node_id]

    def site(self, context: Context) -> Site:
        """The site of this node, for the task that it has been told."""
        if context.node_id not in self.sites:
            here = self.owner(context)
            if isinstance(here, Holder):
                if TASK not in context.state.config_records:
                    raise Refused(f"site {here.name!r} takes part in fits, not in runs of a method")
                here = here.site(dict(context.state.config_records[TASK]))
            self.sites[context.node_id] = here
        return self.sites[context.node_id]

    def begin(self, task: ConfigRecord, context: Context) -> None:
        """Keep a task, and forget what belonged to the one before."""
        context.state[TASK] = task
        context.state.pop(KEPT, None)
        context.state.pop(DATA, None)
        self.sites.pop(context.node_id, None)
        self.digests.pop(context.node_id, None)

    def digest(self, context: Context) -> str:
        """Of this node's data as it was read in this process; of its sizes alone where the problem has no digest."""
        if context.node_id not in self.digests:
            here = self.site(context)
            made: Any = getattr(here.problem, "data_digest", None)
            told = f"{here.count} {here.problem.dim} {float(here.problem.strong_convexity)!r}"
            self.digests[context.node_id] = told if made is None else f"{told} {made()}"
        return self.digests[context.node_id]

    def changed(self, context: Context) -> bool:
        """Is the data another than when this node was first asked in this run?"""
        kept = context.state.config_records.get(DATA)
        return kept is not None and kept["digest"] != self.digest(context)

    def remember(self, context: Context) -> None:
        """Keep the digest of the data."""
        if DATA not in context.state.config_records:
            context.state[DATA] = ConfigRecord({"digest": self.digest(context)})

    def unchanged(self, context: Context) -> Site:
        """The site of this node; refused where its data is not what it was in an earlier round of this run."""
        if self.changed(context):
            raise Refused(
                f"the data of site {self.site(context).name!r} changed during the run: bring it back, or begin again "
                "in another folder"
            )
        self.remember(context)
        return self.site(context)


class _Remembered(Sketching):
    """A site's last sketch, kept in the node's own state: in deployment every message is a process of its own."""

    def __init__(self, site: Site, context: Context, method: int) -> None:
        super().__init__(site.problem)
        self.kept, self.state = f"ownstep.sketch.{method}", context.state
        if self.kept in self.state.array_records:
            arrays = {name: array.numpy() for name, array in self.state.array_records[self.kept].items()}
            self.restore(arrays, site.problem.x0())

    def own(self, *arguments: Any) -> Any:
        """The sketch, which is then kept."""
        made = super().own(*arguments)
        self.state[self.kept] = ArrayRecord({name: Array(array) for name, array in self.arrays().items()})
        return made


def load_open_site(file: str | os.PathLike[str]) -> Callable[[Context], Site | Holder]:
    """The function ``open_site`` of a Python file on this machine."""
    path = Path(file).expanduser()
    spec = importlib.util.spec_from_file_location("ownstep_site_file", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise OwnstepError(f"site-file {str(file)!r} is not a Python file on this machine")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[Context], Site | Holder] | None = getattr(module, "open_site", None)
    if found is None:
        raise OwnstepError(f"site-file {str(file)!r} has no function open_site(context)")
    return found
