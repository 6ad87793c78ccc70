"""What all linear models share: rows a_j, a pointwise loss of z_j = a_j^T x, and an L2 term.

    f_i(x) = (1/n_i) sum_{j on device i} loss(a_j^T x, y_j) + mu/2 ||x||^2

The coefficients of a mix become one factor per row, so one product with A and one with A^T serve any number of
devices. :mod:`.table` has the products. Rows are stored sorted by device, except that a large dense array, which may
be a file mapped into memory, is used where it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from hashlib import blake2b
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ownstep.partition import Partition, as_partition
from ownstep.problems.linear import by_device, second_order
from ownstep.problems.linear.table import ONE_BLOCK, ConstantTable, DenseTable, SparseTable, Table
from ownstep.support.checks import device_weights, number, truth
from ownstep.support.errors import InvalidInput
from ownstep.support.lazy import LazyModule

sp = LazyModule("scipy.sparse")
Array = NDArray[Any]

FEW = 128
"""Devices up to which the losses of a large table are added device by device."""
LARGEST_MU = 1e150

SHORT = 32
"""Rows per device, on average, below which the rows of a small sparse table are not kept together by device."""


class LinearModel(ABC):
    """Base of the linear models; see :class:`~ownstep.problems.linear.logistic.BinaryLogistic` for one to use.

    Parameters
    ----------
    rows : (n, d) dense or sparse features, finite. A dense array of the right dtype is not copied, nor is one that
        ``np.memmap`` or ``np.load(mmap_mode="r")`` opened, so a table may be larger than memory; ``intercept`` copies.
    targets : (n,) labels or responses.
    partition : who holds which row; everything on one device by default.
    mu : weight of the L2 term, at least 0.
    intercept : add an unpenalised constant feature as the last coordinate of x; ``"last"`` where the last column of the
        rows already is that constant.
    weights : w_i of the objective; the share of samples |D_i|/|D| by default.
    dtype : of the arithmetic, float64 unless told otherwise.
    threads : how many a pass over the rows may use; ``OMP_NUM_THREADS`` or every core by default. Results do not
        depend on it.
    """

    curvature: ClassVar[float]
    """Supremum of the pointwise second derivative (largest eigenvalue of it, for several outputs)."""

    curvature_kind: ClassVar[Literal["exact", "upper bound"]]
    """Whether that supremum is reached by the same x at every row, so that the smoothness is exact."""

    outputs: int = 1

    def __init__(
        self,
        rows: Any,
        targets: ArrayLike,
        partition: Partition | None = None,
        mu: float = 1e-3,
        intercept: bool | Literal["last"] = False,
        weights: ArrayLike | None = None,
        dtype: Any = np.float64,
        threads: int | None = None,
    ) -> None:
        A = _checked_rows(rows, dtype)
        y = np.asarray(targets)
        n = A.shape[0]
        if y.shape != (n,):
            raise InvalidInput(f"{n} rows need {n} targets, got shape {y.shape}")
        mu = _checked_mu(mu)
        intercept = intercept if intercept == "last" else truth("intercept", intercept)
        partition = as_partition(partition, n)
        unstored = intercept is True and not sp.issparse(A) and A.size > ONE_BLOCK
        if intercept is True and not unstored:
            ones = np.ones((n, 1), A.dtype)
            A = sp.csr_array(sp.hstack([A, ones])) if sp.issparse(A) else np.hstack([A, ones])
        device_of = partition.device_of
        # Within a device rows of equal length lie together: the sparse product then runs without mispredicted
        # branches, nearly twice as fast on rows of a dozen entries.
        length = np.diff(A.indptr) if sp.issparse(A) else None
        self._order: NDArray[np.intp] | None = None
        if length is not None or (np.diff(device_of) < 0).any():
            order = np.argsort(device_of, kind="stable") if length is None else np.lexsort((length, device_of))
            if length is None and A.size > ONE_BLOCK:
                self._order, self._device_of = order, device_of  # a large array stays where it is
            elif length is not None and A.nnz <= ONE_BLOCK and len(partition.counts) > max(FEW, n / SHORT):
                order = np.argsort(length, kind="stable")  # a device alone has too few rows of one length
                A, y, self._device_of = A[order], y[order], device_of[order]
                self._order = np.argsort(self._device_of, kind="stable")
            elif (np.diff(order) != 1).any():
                A, y = A[order], y[order]
        self.mu = float(mu)
        self.intercept = bool(intercept)
        self.names = partition.names
        self.counts = partition.counts
        share = self.counts / self.counts.sum()
        self.weights = share if weights is None else device_weights(weights, len(share))
        self.features = int(A.shape[1]) + unstored
        self.starts = np.concatenate([[0], np.cumsum(self.counts)])
        A, self._y = self._prepare(A, y)
        kind = SparseTable if sp.issparse(A) else ConstantTable if unstored else DenseTable
        self.table: Table = kind(A, threads)
        self._penalty = np.full(self.features, self.mu, A.dtype)
        if intercept:
            self._penalty[-1] = 0

    @abstractmethod
    def _prepare(self, A: Any, y: Array) -> tuple[Any, Array]:
        """Check and encode the targets; may fold a sign into the rows."""

    @abstractmethod
    def _pointwise(self, z: Array, block: Any) -> tuple[Array, Array]:
        """(loss, its derivative) for the rows of a block, at z = A x."""

    @abstractmethod
    def _second(self, z: Array, u: Array) -> Array:
        """The pointwise second derivative at z, applied to u."""

    def _curved(self, z: Array) -> Array:
        """(n, C, C) second derivatives at z, (n, C)."""
        units = np.eye(self.outputs, dtype=z.dtype)
        return np.stack([self._second(z, np.broadcast_to(unit, z.shape)) for unit in units], axis=2)

    @property
    def dim(self) -> int:
        """Length of x: features times outputs."""
        return self.features * self.outputs

    @property
    def work(self) -> float:
        """Multiplications in one product with A that BLAS does: none where rows are sparse.

        Its threads would only be in the way there: after a product of long vectors they wait in a busy loop.
        """
        return 0.0 if isinstance(self.table, SparseTable) else float(self.table.size) * self.outputs

    @property
    def dtype(self) -> Any:
        """Of the arithmetic."""
        return self.table.dtype

    def data_digest(self) -> str:
        """Sixteen bytes that another row, label or penalty would change; nobody can get the data back from them."""
        labels = np.ascontiguousarray(self._y).tobytes()
        return blake2b(self.table.digest() + labels + self._penalty.tobytes(), digest_size=16).hexdigest()

    @property
    def strong_convexity(self) -> float:
        """mu, or 0 when an unpenalised intercept leaves one direction free."""
        return 0.0 if self.intercept else self.mu

    def x0(self) -> Array:
        """The origin."""
        return np.zeros(self.dim, self.dtype)

    def value(self, x: Array) -> float:
        """f(x)."""
        loss = np.empty(self.starts[-1], np.result_type(self.dtype, x))

        def only_losses(z: Array, block: slice) -> None:
            loss[block] = self._pointwise(z, block)[0]

        self.table.each_block(only_losses, self._point(x))
        return float(self.weights @ self._losses(x, loss))

    def mix(self, x: Array, c: NDArray[np.float64]) -> tuple[NDArray[np.float64], Array]:
        """(f_i(x) for every device, sum_i c_i grad f_i(x)): one product with A, one with A^T."""
        c = np.asarray(c)
        if c.shape[0] != len(self.counts) or c.ndim > 2:
            raise InvalidInput(f"a mix needs one coefficient for each of {len(self.counts)} devices, got {c.shape}")
        point = self._point(x)
        loss = np.empty(self.starts[-1], np.result_type(self.dtype, x))
        scale = (c.T / self.counts).T.astype(self.dtype, copy=False)

        def weighted(z: Array, block: slice) -> Array:
            loss[block], slope = self._pointwise(z, block)
            factor = self.spread(scale, block)
            if c.ndim == 1:
                return slope * (factor if slope.ndim == 1 else factor[:, None])
            return (slope.reshape(len(slope), -1)[:, :, None] * factor[:, None, :]).reshape(len(slope), -1)

        if c.ndim == 1:
            total = self.table.transposed(weighted, point).ravel()
            return self._losses(x, loss), total + float(c.sum()) * self.ridge(x)
        totals = self.table.transposed(weighted, point)
        ridge = np.outer(self.ridge(x), c.sum(axis=0).astype(self.dtype))
        return self._losses(x, loss), totals.reshape(self.dim, c.shape[1]) + ridge

    def gradients(self, x: Array) -> Array:
        """One row per device: grad f_i(x), or grad f_i(x_i) when x has one row per device."""
        return self.each(x)[1]

    def each(self, x: Array) -> tuple[NDArray[np.float64], Array]:
        """(f_i for every device, one row per device: grad f_i), at x or at row i of x, in one pass."""
        return by_device.each(self, x)

    def hessian_product(self, x: Array, v: Array) -> Array:
        """(the Hessian of f at x) times v, without forming it."""
        scale = self.weights / self.counts

        def curved(z: Array, u: Array, block: slice) -> Array:
            out: Array = (self._second(z, u).T * self.spread(scale, block)).T
            return out

        out: Array = self.table.transposed(curved, self._point(x), self._shaped(v))
        return out.ravel() + self.ridge(v)

    def hessian(self, x: Array, c: NDArray[np.float64]) -> NDArray[np.float64]:
        """sum_i c_i (the Hessian of f_i at x), written out: for few coordinates."""
        return second_order.hessian(self, x, np.asarray(c, float))

    def data_hessian(self, x: Array, device: int) -> second_order.DataHessian:
        """The Hessian of a device's data term at x, by its products with vectors, and its trace."""
        return second_order.DataHessian(self, x, device)

    def reweighted(self, weights: ArrayLike) -> LinearModel:
        """The same data with other weights, scaled to sum to one.

        With weights w_i / L_i its minimiser is the point that the local phase converges to.
        """
        w = np.asarray(weights, float)
        other = copy(self)
        other.weights = device_weights(w / w.sum(), len(self.counts))
        return other

    def only(self, device: int) -> LinearModel:
        """The same problem with the data of one device alone: its minimiser is x_i*."""
        return self.keep([device])

    def keep(self, devices: Sequence[int]) -> LinearModel:
        """The same problem with the data of some devices alone, copied; weights are scaled to sum to one."""
        chosen = np.asarray(devices, int)
        some = self._taken([np.arange(self.starts[i], self.starts[i + 1]) for i in chosen])
        some.weights = self.weights[chosen] / self.weights[chosen].sum()
        some.names = tuple(self.names[i] for i in chosen)
        return some

    def sample(self, rows: int, per_device: int = 1, seed: int = 0) -> LinearModel:
        """The same problem on a random sample of the rows, every device with its share; names and weights stay.

        Parameters
        ----------
        rows : how many, unless there are fewer; more where a device would have less than ``per_device``.
        per_device : rows that a device keeps at least, where it has them.
        """
        if rows >= self.starts[-1]:
            return self
        rng, share = np.random.default_rng([seed, rows]), rows / float(self.starts[-1])
        kept = np.minimum(self.counts, np.maximum(per_device, np.ceil(share * self.counts))).astype(int)
        drawn = [rng.choice(n, k, replace=False) for n, k in zip(self.counts, kept, strict=True)]
        return self._taken([start + np.sort(at) for start, at in zip(self.starts[:-1], drawn, strict=True)])

    def _taken(self, blocks: Sequence[NDArray[np.intp]]) -> LinearModel:
        """A copy with these stored rows alone, one block per device."""
        some, at = copy(self), np.concatenate(blocks)
        at, some._order = at if self._order is None else self._order[at], None
        some._y, some.table = self._y[at], self.table.at(at)
        some.counts = np.array([len(block) for block in blocks])
        some.starts = np.concatenate([[0], np.cumsum(some.counts)])
        return some

    def block(self, device: int) -> slice | NDArray[np.intp]:
        """Where the rows of a device are stored."""
        at = slice(int(self.starts[device]), int(self.starts[device + 1]))
        return at if self._order is None else self._order[at]

    def rows(self, device: int) -> Any:
        """The stored rows of a device, constant feature included; sparse ones carry their label's sign."""
        return self.table.rows(self.block(device))

    def pieces(self, device: int) -> Iterator[tuple[slice | NDArray[np.intp], Any]]:
        """(where they are stored, rows) of a device: all at once, or in small copies where they are not in order."""
        at = self.block(device)
        step = max(1, ONE_BLOCK // self.features)
        for part in [at] if isinstance(at, slice) else [at[i : i + step] for i in range(0, len(at), step)]:
            yield part, self.table.rows(part)

    @property
    def penalty(self) -> NDArray[np.float64]:
        """Diagonal of the L2 term's Hessian, for one output: mu, and 0 for an intercept."""
        return self._penalty.astype(float)

    def _shaped(self, x: Array) -> Array:
        return x if self.outputs == 1 else x.reshape(self.features, self.outputs)

    def _point(self, x: Array) -> Array:
        """X, checked, as a product with A takes it."""
        if np.shape(x) != (self.dim,):
            raise InvalidInput(f"x must have shape ({self.dim},), got {np.shape(x)}")
        return self._shaped(x)

    def spread(self, values: Array, block: slice) -> Array:
        """One entry per device, repeated for each of its rows in a block; as it is where there is one device."""
        if len(values) == 1:
            return values
        if self._order is not None:
            return values[self._device_of[block]]
        start, stop, _ = block.indices(int(self.starts[-1]))
        first = int(np.searchsorted(self.starts, start, side="right")) - 1
        last = int(np.searchsorted(self.starts, stop))
        inside = np.diff(np.clip(self.starts[first : last + 1], start, stop))
        return np.repeat(values[first:last], inside, axis=0)

    def ridge(self, x: Array) -> Array:
        """The gradient of the L2 term at x."""
        out: Array = (self._shaped(x).T * self._penalty).T.ravel()
        return out

    def _losses(self, x: Array, loss: Array) -> NDArray[np.float64]:
        ridge = 0.5 * float(x @ self.ridge(x))
        return np.asarray(self.means(loss) + ridge, float)

    def means(self, values: Array) -> Array:
        """The mean over each device's rows of one number per row."""
        if self._order is not None:
            return np.bincount(self._device_of, values, minlength=len(self.counts)) / self.counts
        if len(self.counts) <= FEW and len(self.table.blocks) > 1:  # reduceat adds one number after the other
            return np.array([values[a:b].sum() for a, b in pairwise(self.starts)]) / self.counts
        return np.asarray(np.add.reduceat(values, self.starts[:-1]) / self.counts)


def _checked_mu(mu: object) -> float:
    weight = number("mu", mu, 0)
    if weight > LARGEST_MU:
        raise InvalidInput(f"mu must be at most {LARGEST_MU:g}, or its square overflows, got {mu!r}")
    return weight


def _checked_rows(rows: Any, dtype: Any) -> Any:
    """A table of finite real numbers whose squares can still be added up."""
    try:
        if np.iscomplexobj(rows):
            raise InvalidInput("features must be real numbers, got complex ones")
        if np.ma.is_masked(rows):
            raise InvalidInput("features have masked entries: complete them, or leave out their rows")
        if getattr(rows, "dtype", np.dtype(float)).kind in "SU":  # NumPy would read numbers out of the words
            raise InvalidInput(f"features must be a table of numbers, got words (dtype {rows.dtype})")
        A: Any = sp.csr_array(rows, dtype=dtype) if sp.issparse(rows) else np.ascontiguousarray(rows, dtype=dtype)
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"features must be a table of numbers, got {type(rows).__name__}: {error}") from None
    if sp.issparse(A) and A.nnz < np.iinfo(np.int32).max:  # half the index traffic of int64
        A.indices, A.indptr = A.indices.astype(np.int32, copy=False), A.indptr.astype(np.int32, copy=False)
    data = A.data if sp.issparse(A) else A
    if A.ndim != 2 or 0 in A.shape:
        raise InvalidInput(f"features must be a non-empty table of samples by features, got shape {A.shape}")
    with np.errstate(invalid="ignore"):
        largest = float(np.maximum(data.max(initial=0), -data.min(initial=0)))  # nan where there is one
    if not np.isfinite(largest):
        raise InvalidInput(f"features must be finite, got {data[~np.isfinite(data)].flat[0]}")
    limit = float(np.sqrt(np.finfo(A.dtype).max / A.shape[0] / A.shape[1])) / 4
    if largest > limit:
        raise InvalidInput(
            f"features must be at most {limit:.2g} in size, or their squares overflow {A.dtype}; got {largest:.3g}: "
            "scale them"
        )
    return A
