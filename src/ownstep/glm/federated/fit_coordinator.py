"""The coordinator's half of a fit: it asks, adds up, and runs Newton's method; it never has a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ownstep.glm import held_out
from ownstep.glm.families import FAMILIES
from ownstep.glm.federated.common_columns import Agreed, Columns, agree
from ownstep.glm.fitting import (
    EVALUATION,
    MOST_ROUNDS,
    TOLERANCE,
    Recorded,
    Task,
    evaluation,
    solved,
    starting_point,
    told,
)
from ownstep.glm.prediction import Model
from ownstep.glm.result import Fitted
from ownstep.glm.sums import Sums
from ownstep.methods.base import Answer
from ownstep.partition import Partition
from ownstep.support.checks import number, whole_number
from ownstep.support.errors import InvalidInput, OwnstepError, plain_text, unknown_name
from ownstep.support.logs import RoundLog

if TYPE_CHECKING:
    from ownstep.engines.federation import Terms

Array = NDArray[np.float64]
PATIENCE = 3
"""Exchanges in a row that may lack a site; a sum over some of the sites is never what a fit ends with."""


@dataclass(frozen=True)
class Complete(Recorded):
    """Newton that gives up on a site which stays away: its rows would be left out of the numbers."""

    away: list[int] = field(default_factory=list, repr=False, compare=False)

    def tell(self, state: Any, answer: Answer) -> Any:
        """As Newton does, and count who is missing."""
        here = answer.present
        if here is None or here.all():
            self.away.clear()
            return super().tell(state, answer)
        self.away.append(int((~here).sum()))
        if len(self.away) >= PATIENCE:
            raise OwnstepError(
                f"{self.away[-1]} of {len(here)} sites gave no answer of use {PATIENCE} times in a row, and a fit "
                "without their rows is another fit: start again when they are back"
            )
        return super().tell(state, answer)


def fit_over(
    grid: Any,
    terms: Terms,
    *,
    family: str = "auto",
    mu: float = 0.0,
    holdout: float = 0.0,
    seed: int = 0,
    log: RoundLog | None = None,
) -> Fitted:
    """Fit over the sites of a federation; called by a Flower ServerApp.

    The numbers are those of :func:`ownstep.glm.fit` on all rows in one place. Exchanges: the names of the columns; the
    sums; the task, with everybody's means and deviations; then Newton's method; one more for rows held out.

    Parameters
    ----------
    grid, terms : Flower's grid, and :class:`~ownstep.engines.federation.Terms`.
    family, mu, holdout, seed, log : as for :func:`ownstep.glm.fit`. Every site holds out rows of its own.

    Raises
    ------
    OwnstepError
        A site does not answer. As InvalidInput: sites refuse, by name; columns differ; or as :func:`ownstep.glm.fit`.
    """
    from ownstep.engines.federation import run
    from ownstep.engines.federation.asking import questioned

    if family != "auto" and family not in FAMILIES:
        raise unknown_name("family", family, ["auto", *FAMILIES])
    if terms.secure is not None:
        raise InvalidInput("a fit needs its sums to all digits, secure aggregation rounds them: run it without")
    chosen: dict[str, Any] = {"holdout": number("holdout", holdout, 0), "seed": whole_number("seed", seed, 0)}
    nodes, agreed = _agreement(grid, terms, {"family": family} | chosen)
    words = agreed.to_words() | chosen | {"mu": number("mu", mu, 0)}
    summed = questioned(grid, terms, {"question": "sums"} | words, nodes)
    sums = {nodes[node]: _vector(nodes[node], reply, agreed) for node, reply in summed.items()}
    order = sorted(sums)
    total = Sums.from_flat(np.sum([sums[name] for name in order], axis=0), len(agreed.classes))
    total.check(agreed.features, agreed.label)
    total.scale.check(agreed.features)
    task = _task(agreed, order, [round(sums[name][0]) for name in order], float(words["mu"]))
    start, unit = starting_point(task, total)
    method, mean = Complete(), total.scale.shift(sparse=not agreed.centred)
    history = run(
        method, grid, MOST_ROUNDS, replace(terms, missing="rescale", participation=None), x0=start, name="Newton",
        progress=False, log=log, gradient_tolerance=TOLERANCE * unit,
        task=words | {"mean": mean.tolist(), "deviation": total.scale.deviation.tolist()},
    )  # fmt: skip

    def measured(model: Model) -> dict[str, Any]:
        if not holdout:
            return {}
        about = {"coefficients": model.coefficients.ravel().tolist(), "intercepts": model.intercepts.tolist()}
        return _measured(nodes, questioned(grid, terms, {"question": "measure"} | words | about, nodes), model)

    penalty = np.repeat(np.append(np.full(len(agreed.features), task.mu), 0.0), task.outputs)
    found = solved(task, history, method, penalty)
    lines = _reveals(task, total, history.rounds + 1, bool(holdout))
    return told(task, found, penalty, total, history, lines, measured, agreed.centred)


def _agreement(grid: Any, terms: Terms, asked: Mapping[str, Any]) -> tuple[dict[int, str], Agreed]:
    """(The names of the nodes' sites, the columns that all of them have)."""
    from ownstep.engines.federation.asking import questioned

    first = questioned(grid, terms, {"question": "columns"} | dict(asked), {})
    every = {node: Columns.from_words(reply) for node, reply in first.items()}
    nodes = {node: columns.name for node, columns in every.items()}
    if len(set(nodes.values())) < len(nodes):
        raise OwnstepError(f"two sites call themselves by one name: {', '.join(sorted(nodes.values()))}")
    return nodes, agree([every[node] for node in sorted(nodes, key=lambda n: nodes[n])], str(asked["family"]))


def _task(agreed: Agreed, names: list[str], rows: list[int], mu: float) -> Task:
    split = Partition(np.repeat(np.arange(len(rows)), rows), "sites", tuple(names))
    task = Task(
        agreed.kind, agreed.classes, np.zeros((0, len(agreed.features))), np.zeros(0), split, agreed.features, mu,
        np.zeros(len(split.device_of), bool), agreed.label, agreed.levels,
    )  # fmt: skip
    task.check_size()
    return task


def _vector(name: str, reply: Mapping[str, Any], agreed: Agreed) -> Array:
    """A site's sums, if they can be true."""
    vector = np.asarray(reply.get("sums", []), float)
    length = 4 + len(agreed.classes) + 2 * len(agreed.features)
    if vector.shape != (length,) or not np.isfinite(vector).all():
        raise OwnstepError(f"{name} sent sums of shape {vector.shape}, asked for were {length} finite numbers")
    counts = vector[4 : 4 + len(agreed.classes)]
    if vector[0] < 1 or vector[0] != round(vector[0]) or (len(counts) and counts.sum() != vector[0]):
        raise OwnstepError(f"{name} sent sums over {vector[0]:g} rows: that cannot be")
    return vector


def _measured(nodes: Mapping[int, str], replies: Mapping[int, Any], model: Model) -> dict[str, dict[str, Any]]:
    """What every site says of its held-out rows, with None for what it could not tell."""
    keys = held_out.keys(model.family)
    out: dict[str, dict[str, Any]] = {}
    for node in sorted(nodes, key=lambda n: nodes[n]):
        reply = replies[node]
        wrong = [k for k in keys if not isinstance(reply.get(k, 0.0), int | float)]
        if wrong:
            raise OwnstepError(f"{nodes[node]} says its {wrong[0]} is {plain_text(reply[wrong[0]], 80)!r}")
        if reply.get("rows"):
            out[nodes[node]] = {k: reply.get(k) for k in keys}
    return out | ({held_out.ALL_SITES: held_out.joined(out)} if len(out) > 1 else {})


def _reveals(task: Task, total: Sums, evaluations: int, measured: bool) -> list[dict[str, Any]]:
    """What a site tells, and how many numbers it was asked with."""
    free = task.coefficients
    counts = "rows of each class" if task.kind.classes else "sum and squares of the label"
    sums = f"rows, {counts}, sum and sum of squares of every column"
    lines: list[dict[str, Any]] = [
        {"what": "names of the columns, categories and classes", "numbers": 0, "asked": 0, "exchanges": 1},
        {"what": sums, "numbers": len(total.flat()), "asked": 0, "exchanges": 1},
        {"what": "rows, mean loss at zero coefficients", "numbers": 2, "asked": 2 * len(task.names), "exchanges": 1},
        {"what": EVALUATION, "numbers": evaluation(free), "asked": free, "exchanges": evaluations},
    ]
    if measured:
        what, numbers = held_out.told(task.kind.name, together=False), len(held_out.keys(task.kind.name))
        lines.append({"what": what, "numbers": numbers, "asked": free, "exchanges": 1})
    return lines
