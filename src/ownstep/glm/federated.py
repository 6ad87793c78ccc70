"""The same fit between owners of data, on Flower: the coordinator never has a row.

Sites hold their columns as they are, with a constant. The Hessian at zero coefficients is a multiple of their products,

    H(0) = k (1/n) sum_j (a_j, 1)(a_j, 1)^T,

so one exchange tells the coordinator all means and deviations. It then runs Newton's method in standardised coordinates
of its own, x = T gamma, and asks the sites about x: they need to know of no scaling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ownstep.glm import disclosure, inference
from ownstep.glm.families import FAMILIES
from ownstep.glm.fit import EVALUATION, MOST_ROUNDS, TOLERANCE, Recorded, Task, evaluation, solved, told
from ownstep.glm.result import Fitted
from ownstep.glm.sums import Sums
from ownstep.methods import Newton
from ownstep.methods.base import Answer, Ask, Progress
from ownstep.partition import Partition
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput, unknown_name
from ownstep.support.vectors import upper

Array = NDArray[np.float64]
SUPPORTED = ("logistic", "softmax", "linear")


@dataclass(frozen=True, eq=False)
class Rescaled:
    """A method that works on gamma while the devices are asked about x = T gamma."""

    T: Array
    inner: Newton

    constant_free = True
    searches = True

    def start(self, x0: Any, devices: Devices) -> Any:
        """The inner method's state, at the gamma of x0."""
        return self.inner.start(np.linalg.solve(self.T, x0), devices)

    def ask(self, state: Any) -> Ask:
        """What the inner method asks, about x."""
        ask = self.inner.ask(state)
        return replace(ask, x=self.T @ ask.x, base=None if ask.base is None else self.T @ ask.base)

    def tell(self, state: Any, answer: Answer) -> Any:
        """Gradients g become T^T g, the Hessian T^T H T."""
        return self.inner.tell(state, self.seen(answer))

    def seen(self, answer: Answer) -> Answer:
        """An answer about x as one about gamma."""
        d = len(self.T)
        H = self.T.T @ inference.square(answer.hessian, d) @ self.T
        base = None if answer.base is None else self.T.T @ answer.base
        return replace(answer, sum=self.T.T @ answer.sum, hessian=H[upper(d)], base=base)

    def point(self, state: Any) -> Any:
        """The present x."""
        return self.T @ self.inner.point(state)

    def progress(self, state: Any) -> Progress:
        """As the inner method."""
        return self.inner.progress(state)


def fit_site(
    name: str,
    rows: Any,
    labels: ArrayLike,
    *,
    features: Sequence[str],
    family: str = "logistic",
    classes: Sequence[Any] = (),
    allow: bool = False,
) -> Any:
    """A :class:`~ownstep.engines.federation.Site` that takes part in a fit, or refuses where it has too few rows.

    Parameters
    ----------
    features : names of the columns, the same at every site and in the same order.
    classes : of all sites, in the order of the coordinator; a site need not have rows of every one.
    allow : take part although the limits of disclosure control are not kept; the owner's decision.
    """
    from ownstep.engines.federation import Site

    y, every = np.asarray(labels), np.asarray(classes)
    if not allow:
        coefficients = (rows.shape[1] + 1) * max(1, len(every) - 1)
        why = list(disclosure.reasons(rows, y, features, every, coefficients))
        if why:
            raise InvalidInput(f"site {name!r} does not take part, as so few could be recognised: {', '.join(why)}")
    options: dict[str, Any] = {"classes": every} if len(every) else {}
    problem = FAMILIES[family].problem(rows, y, mu=0.0, intercept=True, **options)
    return Site(name, problem, smoothness="adaptive")


def fit_over(
    grid: Any,
    terms: Any,
    *,
    features: Sequence[str],
    family: str = "logistic",
    classes: Sequence[Any] = (),
    label: str = "label",
    levels: Mapping[str, Sequence[str]] | None = None,
) -> Fitted:
    """Fit over the sites of a federation; called by a Flower ServerApp.

    Parameters
    ----------
    grid, terms : Flower's grid, and :class:`~ownstep.engines.federation.Terms`.
    features, family, classes : as at the sites.
    """
    from ownstep.engines.federation import run

    if family not in SUPPORTED:
        raise unknown_name("family of a federated fit", family, SUPPORTED)
    outputs = max(1, len(classes) - 1)
    d = (len(features) + 1) * outputs
    first = run(Newton(), grid, 0, terms, name="sums")
    total = _sums(first, len(features), outputs, len(classes), family)
    total.scale.check(tuple(features))
    T = inference.unscale(total.scale, outputs, True)
    method = Recorded()
    scaled = Rescaled(T, method)
    size = min(1.0, float(total.scale.deviation.min()))
    floor = 1e-14 * float(np.sqrt(total.squares.max() / total.rows))  # what rounding leaves of a gradient
    unit = 1.0
    if family == "linear":
        unit = float(np.sqrt(max(total.label_squares / total.rows - (total.label / total.rows) ** 2, 0))) or 1.0
    history = run(
        scaled, grid, MOST_ROUNDS, terms, x0=T @ _start(total, len(features), outputs), name="Newton", progress=False,
        gradient_tolerance=unit * max(TOLERANCE * size, floor),
    )  # fmt: skip
    mapped = replace(history, x=np.linalg.solve(T, history.x), last=scaled.seen(history.last))
    samples = first.settings["samples"]
    split = Partition(np.repeat(np.arange(len(samples)), samples), "sites", tuple(first.settings["sites"]))
    nothing = np.zeros((0, len(features)))
    task = Task(
        FAMILIES[family], np.asarray(classes), nothing, np.zeros(0), split, tuple(features), 0.0,
        np.zeros(len(split.device_of), bool),
    )  # fmt: skip
    reveals = [
        {"what": "name, rows, loss at zero coefficients", "numbers": 3, "asked": 0, "exchanges": 1},
        {"what": EVALUATION, "numbers": evaluation(d), "asked": d, "exchanges": history.rounds + 2},
    ]
    none = np.zeros(d)
    return told(task, solved(task, mapped, method, none), none, total, mapped, reveals, label, levels)


def _sums(first: Any, features: int, outputs: int, classes: int, family: str) -> Sums:
    """Means, squares and label counts from the answer at zero coefficients."""
    n = float(sum(first.settings["samples"]))
    H = inference.square(first.last.hessian, (features + 1) * outputs)[::outputs, ::outputs]
    products = H / H[-1, -1]
    gradient = np.asarray(first.last.sum, float).reshape(features + 1, outputs)[-1]
    counts, label, squares = np.zeros(0), 0.0, 0.0
    if family == "linear":
        label, squares = -n * float(gradient[0]), 2 * n * float(first.value[-1])
    else:  # at zero every class is equally likely: the gradient of an intercept is 1/C - its class's share
        share = 1 / classes - gradient
        counts = n * np.concatenate([[1 - share.sum()], share])
    return Sums(n, n * products[-1, :-1], n * products.diagonal()[:-1], label, squares, 0.0, counts)


def _start(total: Sums, features: int, outputs: int) -> Array:
    """Only an intercept, in standardised coordinates."""
    start = np.zeros((features + 1, outputs))
    if len(total.classes):
        start[-1] = np.log(np.maximum(total.classes[1:], 0.5) / max(total.classes[0], 0.5))
    else:
        start[-1] = total.label / total.rows
    return start.ravel()
