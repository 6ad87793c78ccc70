"""Fit a generalised linear model over sites: the same numbers as on pooled data, from sums alone.

First exchange: rows, sums and squares of every column, from which means and deviations over all sites follow. Then
Newton's method: every site's loss, gradient and Hessian at the present coefficients, usually 4 to 8 exchanges. The
Hessian that came with the last of them gives the standard errors, so these cost no exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from ownstep.glm import disclosure, held_out, identifiability, inference
from ownstep.glm.families import Family, choose
from ownstep.glm.prediction import Model
from ownstep.glm.result import Fitted
from ownstep.glm.sums import Sums, sums_of
from ownstep.glm.what_is_fitted import labels_of, split_of, table_of
from ownstep.history import History
from ownstep.methods import Newton
from ownstep.methods.base import Answer
from ownstep.partition import Partition
from ownstep.problems.linear import LinearModel
from ownstep.support.checks import number
from ownstep.support.errors import InvalidInput, OwnstepError, unknown_name
from ownstep.support.logs import RoundLog

TOLERANCE = 1e-8
"""Gradient norm at which Newton stops, for standardised columns and in units of the label; a last step is then free."""
MOST_ROUNDS = 60
EVALUATION = "mean loss, gradient and Hessian at the coefficients asked about"
MOST_COEFFICIENTS = 3000
EXACT = 1e-13
"""Residuals of a linear model relative to the label, below which they are rounding."""
ENGINES = ("local", "cluster")

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Recorded(Newton):
    """Newton that keeps where it was, and the Hessian at the start, against which a flat likelihood is told."""

    first: list[Any] = field(default_factory=list, repr=False, compare=False)
    path: list[Any] = field(default_factory=list, repr=False, compare=False)

    def tell(self, state: Any, answer: Answer) -> Any:
        """As Newton does."""
        if not self.first and answer.hessian is not None:
            self.first.append(np.array(answer.hessian, float))
        self.path.append(np.array(self.point(state), float))
        return super().tell(state, answer)


@dataclass(frozen=True)
class Place:
    """Who evaluates: how sums of all sites are formed, how a problem is shared, and how a method is run on it."""

    add: Callable[[Array], Array]
    share: Callable[[LinearModel], Any]
    run: Callable[..., History]
    mine: Callable[[int], Sequence[int]]


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be fitted, on which rows."""

    kind: Family
    classes: NDArray[Any]
    rows: Any
    labels: NDArray[Any]
    split: Partition
    names: tuple[str, ...]
    mu: float
    tested: NDArray[np.bool_]
    label: str = "label"
    levels: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def outputs(self) -> int:
        """Columns of coefficients: one per class but the reference."""
        return max(1, len(self.classes) - 1)

    @property
    def coefficients(self) -> int:
        """How many, intercepts included."""
        return (len(self.names) + 1) * self.outputs

    def check_size(self) -> None:
        """Refuse more coefficients than a Hessian is formed for."""
        if self.coefficients > MOST_COEFFICIENTS:
            raise InvalidInput(
                f"{self.coefficients:,} coefficients: a table with standard errors is made for at most "
                f"{MOST_COEFFICIENTS:,}; ownstep run learns larger models"
            )

    def title(self, feature: int, output: int) -> str:
        """The name of a coefficient."""
        name = "intercept" if feature == len(self.names) else self.names[feature]
        return name if self.outputs == 1 else f"{self.classes[output + 1]}:{name}"


def fit(
    rows: Any,
    labels: ArrayLike,
    sites: Any = None,
    *,
    family: str = "auto",
    features: Sequence[str] | None = (),
    mu: float = 0.0,
    holdout: float = 0.0,
    allow: Sequence[str] | None = (),
    engine: str = "local",
    label: str = "label",
    levels: Mapping[str, Sequence[str]] | None = None,
    seed: int = 0,
    log: RoundLog | None = None,
) -> Fitted:
    """Fit a generalised linear model, each site's rows staying where they are.

    Minimises (1/n) sum_j loss(a_j^T beta + b, y_j) + mu/2 ||gamma||^2. Here gamma are the coefficients of the
    columns standardised over all sites. The intercept b is never penalised, and mu = 0 is maximum likelihood.

    Parameters
    ----------
    rows : (n, d) dense or sparse features, finite; the columns of a data frame give their names.
    labels : classes or numbers.
    sites : who holds each row, in any form :func:`ownstep.partition.given` takes; None for data in one place, where
        nothing has to be kept from anybody.
    family : ``"logistic"``, ``"softmax"`` (the first class is the reference), ``"linear"``, ``"poisson"``, ``"auto"``.
    features : names of the columns.
    mu : weight of the penalty.
    holdout : share of every site's rows that is kept for measuring.
    allow : sites that take part although they have fewer rows, or rows in a group, than disclosure control asks for.
    engine : ``"local"`` or ``"cluster"``.
    label, levels : what the model file keeps about the columns.
    seed : of the choice of held-out rows.
    log : records every exchange of Newton's method, see :class:`ownstep.support.logs.RoundLog`.

    Returns
    -------
    Fitted

    Raises
    ------
    InvalidInput
        A site is refused, a column is constant or a combination of others, or the classes are separated.
    """
    if engine not in ENGINES:
        raise unknown_name("engine", engine, ENGINES)
    rows, names = table_of(rows, features)
    n = rows.shape[0]
    y, split = labels_of(labels, n), split_of(sites, n)
    allow = (allow,) if isinstance(allow, str) else allow or ()
    tested = _hold_out(split, holdout, seed)
    if holdout and not tested.any():
        raise InvalidInput(f"holdout={holdout:g} of {n} rows is not one row of any site: give a larger share, or none")
    task = Task(*choose(family, y), rows, y, split, names, number("mu", mu, 0), tested, label, levels or {})
    task.check_size()
    if sites is not None:
        limits = (names, task.classes, task.coefficients, allow, tested, task.levels)
        disclosure.check(rows, y, split.device_of, split.names, *limits)
    place, method = _place(engine), Recorded()
    mine = np.flatnonzero(~tested & np.isin(split.device_of, place.mine(len(split))))
    at = mine[np.argsort(split.device_of[mine], kind="stable")]
    here = sums_of(*((rows, y) if len(at) == n else (rows[at], y[at])), task.classes)
    total = Sums.from_flat(place.add(here.flat()), len(task.classes))
    total.check(names, label)
    total.scale.check(names)
    problem = _problem(task, at, total)
    start, unit = starting_point(task, total)
    history = place.run(
        method, place.share(problem), MOST_ROUNDS, x0=start, gradient_tolerance=TOLERANCE * unit, progress=False,
        name="Newton", log=log,
    )  # fmt: skip
    penalty = np.repeat(problem.penalty, task.outputs)
    found = solved(task, history, method, penalty)
    return told(task, found, penalty, total, history, _reveals(task, total, history), lambda m: _measured(task, m))


def _place(engine: str) -> Place:
    if engine == "local":
        from ownstep.engines.local import run

        return Place(lambda v: v, lambda problem: problem, run, lambda devices: range(devices))
    from ownstep.engines import cluster

    ranks = cluster.join()

    def mine(devices: int) -> Sequence[int]:
        if devices < ranks.size:
            raise InvalidInput(f"{ranks.size} ranks for {devices} sites: a rank holds at least one; start fewer ranks")
        return [int(i) for i in np.array_split(np.arange(devices), ranks.size)[ranks.rank]]

    return Place(lambda v: np.asarray(ranks.add(v, np.zeros(0))[0]), cluster.share, cluster.run, mine)


def _hold_out(split: Partition, share: float, seed: int) -> NDArray[np.bool_]:
    """The rows to measure on: a share of every site's, chosen by the seed."""
    tested = np.zeros(len(split.device_of), bool)
    for i, name in enumerate(split.names):
        at = split.indices(i)
        tested[at] = held_out.chosen(name, len(at), share, seed)
    return tested


def _problem(task: Task, at: NDArray[np.intp], total: Sums) -> LinearModel:
    """The loss on this process's rows, standardised with everybody's means and deviations."""
    here, codes = np.unique(task.split.device_of[at], return_inverse=True)
    part = Partition(codes, task.split.rule, tuple(task.split.names[i] for i in here))
    options: dict[str, Any] = {"classes": task.classes} if task.kind.classes else {}
    rows = total.scale.apply(task.rows, at)
    return task.kind.problem(rows, task.labels[at], part, mu=task.mu, intercept="last", **options)


def starting_point(task: Task, total: Sums) -> tuple[Array, float]:
    """(The best coefficients with an intercept alone, the size of a gradient)."""
    start, unit = np.zeros((len(task.names) + 1, task.outputs)), 1.0
    if task.kind.classes:
        if not total.classes.all():
            gone = task.classes.tolist()[int(np.argmin(total.classes))]
            raise InvalidInput(f"every row of class {gone} is held out: hold out fewer, or others with another --seed")
        start[-1] = np.log(total.classes[1:] / total.classes[0])
        return start.ravel(), unit
    mean = total.label / total.rows
    if task.kind.name == "poisson" and not mean > 0:
        raise InvalidInput("every count is 0: there is nothing to explain")
    spread = float(np.sqrt(max(total.label_squares / total.rows - mean**2, 0))) or unit
    if task.kind.name == "poisson":  # groups with small counts beside large ones are known as well as the others
        start[-1], spread = np.log(mean), min(spread, float(np.sqrt(mean)))
    else:
        start[-1] = mean
    return start.ravel(), spread


@dataclass(frozen=True, eq=False)
class Optimum:
    """The standardised coefficients, the Hessian of the data's part, and the mean loss without the penalty.

    ``path`` has the coefficients before the first exchange of Newton's method, after it, and so on.
    """

    gamma: Array
    hessian: Array
    loss: float
    path: Array


def solved(task: Task, history: History, method: Recorded, penalty: Array) -> Optimum:
    """The coefficients after one more Newton step, which costs no exchange; or why there are none."""
    d, outputs = task.coefficients, task.outputs
    last, gradient = inference.square(history.last.hessian, d), np.asarray(history.last.sum, float)
    if task.mu == 0:
        first = inference.square(method.first[0], d) if method.first else last
        titles = [task.title(f, c) for f in range(len(task.names)) for c in range(outputs)]
        path = np.array([*method.path, history.x], float)
        trouble = identifiability.collinear(first[::outputs, ::outputs], task.names)
        trouble = trouble or identifiability.separated(first, last, gradient, path, titles, task.kind.classes)
        if trouble is not None:
            raise trouble
    if not history.stopped.startswith("||grad"):
        raise OwnstepError(f"Newton's method did not reach the optimum: {history.stopped}")
    step = np.linalg.solve(last, gradient)
    gamma = np.asarray(history.x, float) - step
    value = float(history.value[-1]) - 0.5 * float(gradient @ step)
    path = np.array([*method.path, history.x, gamma])
    return Optimum(gamma, last - np.diag(penalty), value - 0.5 * float(gamma @ (penalty * gamma)), path)


def told(
    task: Task, found: Optimum, penalty: Array, total: Sums, history: History, reveals: list[dict[str, Any]],
    measured: Callable[[Model], Mapping[str, Mapping[str, Any]]], centred: bool | None = None,
) -> Fitted:  # fmt: skip
    """The table and everything that goes with it, in the columns' own units."""
    n, outputs, free = total.rows, task.outputs, task.coefficients
    likelihood, dispersion = log_likelihood(task.kind.name, found.loss, total, free)
    shift = total.scale.shift(sparse=sp.issparse(task.rows) if centred is None else not centred)
    T = inference.unscale(shift, total.scale.deviation, outputs)
    beta, spread = T @ found.gamma, T @ inference.covariance(found.hessian, penalty, n, dispersion) @ T.T
    order = [(f, c) for c in range(outputs) for f in (len(task.names), *range(len(task.names)))]
    at = np.array([f * outputs + c for f, c in order])
    titles = [task.title(f, c) for f, c in order]
    table = inference.table(beta[at], spread[np.ix_(at, at)], titles, bool(task.kind.effect))
    grid = beta.reshape(-1, outputs)
    model = Model(
        task.kind.name, task.names, grid[:-1].copy(), grid[-1].copy(), tuple(map(str, task.classes.tolist())),
        task.label, {k: tuple(v) for k, v in task.levels.items()},
        {"rows": int(n), "mu": task.mu, "log_likelihood": likelihood, "sites": list(task.split.names)},
    )  # fmt: skip
    used = np.bincount(task.split.device_of[~task.tested], minlength=len(task.split)).tolist()
    exchanges = sum(int(line["exchanges"]) for line in reveals)
    travelled = 8 * len(task.split) * sum(line["exchanges"] * (line["numbers"] + line["asked"]) for line in reveals)
    return Fitted(
        model, table, likelihood, 2 * free - 2 * likelihood, int(n), task.mu,
        dict(zip(task.split.names, used, strict=True)), exchanges, travelled, reveals, history, measured(model),
        spread[np.ix_(at, at)], (found.path @ T.T)[:, at],
    )  # fmt: skip


def log_likelihood(family: str, loss: float, total: Sums, coefficients: int) -> tuple[float, float]:
    """(The log-likelihood, the dispersion) from the mean loss at the optimum."""
    n = total.rows
    if family == "linear":
        squares = 2 * n * loss
        if n <= coefficients:
            raise InvalidInput(
                f"{int(n)} rows for {coefficients} coefficients: nothing is left to estimate a spread from"
            )
        if squares <= EXACT**2 * total.label_squares:
            raise InvalidInput("the label follows exactly from the columns: nothing is left to estimate a spread from")
        return float(-n / 2 * (np.log(2 * np.pi * squares / n) + 1)), squares / (n - coefficients)
    return float(-n * loss - (total.log_factorials if family == "poisson" else 0.0)), 1.0


def _reveals(task: Task, total: Sums, history: History) -> list[dict[str, Any]]:
    """What a site tells, and how many numbers it was asked with: the sums, then one evaluation more than rounds."""
    free = task.coefficients
    counts = "rows of each class" if task.kind.classes else "sum and squares of the label"
    first = f"rows, {counts}, sum and sum of squares of every column"
    lines: list[dict[str, Any]] = [
        {"what": first, "numbers": len(total.flat()), "asked": 0, "exchanges": 1},
        {"what": EVALUATION, "numbers": evaluation(free), "asked": free, "exchanges": history.rounds + 1},
    ]
    if task.tested.any():
        what = held_out.told(task.kind.name, together=len(task.split) > 1)
        lines.append({"what": what, "numbers": len(held_out.keys(task.kind.name)), "asked": free, "exchanges": 1})
    return lines


def evaluation(coefficients: int) -> int:
    """Numbers in a loss, a gradient and the triangle of a Hessian."""
    return 1 + coefficients + coefficients * (coefficients + 1) // 2


def _measured(task: Task, model: Model) -> dict[str, dict[str, Any]]:
    """How well the model predicts the held-out rows of every site, and of all."""
    out = {}
    for i, name in enumerate(task.split.names):
        at = task.tested & (task.split.device_of == i)
        if at.any():
            out[name] = held_out.measure(model, task.rows[at], task.labels[at])
    if len(out) > 1:
        out[held_out.ALL_SITES] = held_out.measure(model, task.rows[task.tested], task.labels[task.tested])
    return out
