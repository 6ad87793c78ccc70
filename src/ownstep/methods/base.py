"""The interface of every method: ``ask`` says where to evaluate, ``tell`` takes the answer.

A linear method only adds and scales vectors. So the same object drives NumPy arrays, GPU tensors, machines of
a cluster, and the symbolic vectors of a performance-estimation problem. Norms, products and comparisons of
vectors are not linear.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ownstep.methods.local_work import LocalWork
from ownstep.plan import Devices
from ownstep.smoothness.sketch import Sketch

Vector = Any
"""A NumPy array, a torch tensor or a symbolic vector: whatever can be added and scaled."""


@dataclass(frozen=True)
class SketchWork:
    """What a device is to send of its curvature at x, answered with :class:`~ownstep.smoothness.sketch.Sketch`.

    Parameters
    ----------
    rank : k, how many eigenpairs of the Hessian of the data term; a device of fewer coordinates or rows sends fewer.
    shared : False asks every device for its own leading eigenpairs. True asks for one sum only: every device multiplies
        its Hessian by the same (d, k) matrix Omega, which :func:`ownstep.smoothness.sketch.shared_matrix` draws from
        (``seed``, d, k), and sum_i c_i H_i Omega travels, c being the ask's ``mix``: no device is seen alone.
    seed : of that matrix, and of the block in which a device begins to search its eigenpairs.
    revealing : what a device does about a rank above the share of its rows at which a sketch begins to show the span of
        those rows (:data:`ownstep.smoothness.sketch.REVEALING`): ``"refuse"``, ``"reduce"`` its rank, or ``"allow"``.
    skip : for SHED: the ``rank`` eigenpairs after the first ``skip`` of an exact eigendecomposition, made at x when
        ``skip`` is 0 and kept until it is 0 again; the trace is then the eigenvalue that follows. Not bound by
        ``revealing``: in the end all vectors are sent.
    """

    rank: int
    shared: bool = False
    seed: int = 0
    revealing: str = "refuse"
    skip: int | None = None


@dataclass(frozen=True, eq=False)
class SolveWork:
    """A small problem of its own that every device solves at x; the sum sum_i c_i p_i of the solutions travels.

        Newton's    (H_i + prox I) p_i = vector                                                          (GIANT)
        whole       p_i = x - argmin_y  f_i(y) - <grad f_i(x) - vector, y> + prox/2 ||y - x||^2          (DANE)

    The devices were asked about x before, so that the vector goes down and the sum comes up: one vector each way.

    Parameters
    ----------
    vector : the server's, as a rule grad f(x).
    prox : at least 0.
    whole : minimise the loss itself in place of its quadratic model.
    """

    vector: Vector
    prox: float = 0.0
    whole: bool = False


@dataclass(frozen=True, eq=False)
class Ask:
    """What a method wants evaluated, all in one exchange.

    Parameters
    ----------
    x : the point, or one row per device for methods that keep a point per device.
    mix : coefficients c_i of the one sum wanted, sum_i c_i grad f_i(x); None asks for every gradient.
    local : steps the devices take on their own before they answer; None asks for gradients at x.
    links : for methods without a server, how many vectors device i sends to device j in the round.
    also : coefficients of a second sum wanted at the same x; it costs one more vector up.
    curvature : every device also measures its own curvature. It keeps the point x' of the last question, its gradient
        there and its loss, and answers with one number more,

            L_i = ||y||^2 / <y, s>,      s = x - x',   y = grad f_i(x) - grad f_i(x'),

        (||y|| / ||s|| where f_i curves downwards, <y, s> <= 0), and its loss at x'. No second gradient is needed as
        long as f_i stays the same; with mini-batches f_i is the round's batch, so the device evaluates it at x' too,
        which doubles its work: the change between two batches would be noise. For convex f_i, L_i is at most the
        smoothness constant of f_i, and the mean sum_i w_i L_i is at least what the pooled gradient would show.
    base : a second point at which the same devices evaluate the same sum and their losses, so that two points can be
        compared although others answered last time: twice the vectors each way. Methods ask for it only once somebody
        was absent.
    hessian : the same sum of the Hessians at x, sum_i c_i H_i, penalty included: d(d+1)/2 numbers up.
    sketch : what else of its curvature every device is to send; k vectors of length d up, and k + 4 numbers.
    solve : a problem that every device solves at x, a point it was asked about before: the gradient is not sent again.
    """

    x: Vector
    mix: NDArray[np.float64] | None
    local: LocalWork | None = None
    links: NDArray[np.int64] | None = None
    also: NDArray[np.float64] | None = None
    curvature: bool = False
    base: Vector = None
    hessian: bool = False
    sketch: SketchWork | None = None
    solve: SolveWork | None = None


@dataclass(frozen=True, eq=False)
class Answer:
    """The devices' answer to an :class:`Ask`.

    Parameters
    ----------
    sum : sum_i c_i grad f_i(x) for the mix c that was asked for.
    value : f(x) = sum_i w_i f_i(x) over the devices that answered; one more number in the same sum.
    gradients : one row per device, only when the ask had ``mix=None`` or a shift; zero for those who did not answer.
    present : which devices answered, where some may be absent; None means all.
    also : the second sum, where one was asked for.
    squares : sum_i c_i ||d_i||^2 of the local work, where asked for.
    curvature : the measured L_i, where asked for; nan for a device that was absent, is asked for the first time,
        has not moved or saw no change.
    previous : the mean of the losses at the point last asked about, over the same devices and data as ``value``, so
        that the two can be compared. It is nan unless curvature was asked for and all that answer were there then, and
        with mini-batches, where the step between the two points followed another batch's gradient.
    base, base_value : the sum and the value at the second point, of the devices that answered, where asked for.
    hessian : the upper triangle of sum_i c_i H_i, row by row (``H[numpy.triu_indices(d)]``), where asked for.
    solved : sum_i c_i p_i, where devices were to solve a problem.
    sketches : one :class:`Sketch` per device, None for an absent one; a shared sketch is a tuple of one.
    """

    sum: Vector = None
    value: float = math.nan
    gradients: Vector = None
    present: NDArray[np.bool_] | None = None
    also: Vector = None
    curvature: NDArray[np.float64] | None = None
    previous: float = math.nan
    squares: float = math.nan
    base: Vector = None
    base_value: float = math.nan
    hessian: Vector = None
    sketches: tuple[Sketch | None, ...] = ()
    solved: Vector = None


@dataclass(frozen=True)
class Progress:
    """What the history records of a state: its phase, and the mean step of the next round."""

    phase: str
    step: float


@runtime_checkable
class Method(Protocol):
    """Every method implements these five calls; states are small frozen dataclasses."""

    def start(self, x0: Vector, devices: Devices) -> Any:
        """The state before the first round."""
        ...

    def ask(self, state: Any) -> Ask:
        """Where to evaluate and which sum of gradients to send back."""
        ...

    def tell(self, state: Any, answer: Answer) -> Any:
        """The next state, given the answer to ``ask(state)``."""
        ...

    def point(self, state: Any) -> Vector:
        """The method's present answer x^k."""
        ...

    def progress(self, state: Any) -> Progress:
        """The phase and mean step of the coming round, for the history."""
        ...


def alike(numbers: NDArray[Any], x: Vector) -> Any:
    """Numbers to multiply x with, in x's own precision and on its device, so that the product stays there."""
    if hasattr(x, "new_tensor"):
        return x.new_tensor(numbers)
    return numbers.astype(x.dtype, copy=False) if hasattr(x, "dtype") else numbers


def ordered_sum(c: NDArray[np.float64], rows: Vector) -> Vector:
    """sum_i c_i d_i, the products added one after the other in the order of the devices, as a server adds messages.

    So a run of local steps has the same bits in one process, in a federation, and on ranks with one device each.
    Tensors and symbols are left to their library, which promises no order; rows on several ranks are added by them.
    """
    if not isinstance(rows, np.ndarray) or rows.dtype == object:
        return alike(c, rows) @ rows
    return (alike(c, rows)[:, None] * rows).sum(axis=0)


def norm(v: Vector) -> float:
    """Euclidean norm of a flat vector; symbolic vectors refuse it, as it is not linear."""
    with np.errstate(over="ignore", invalid="ignore"):  # a vector beyond measure has an infinite norm, and no warning
        return math.sqrt(float(v @ v))
