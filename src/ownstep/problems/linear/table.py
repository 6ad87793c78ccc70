"""The rows of a linear model, and products with them on every core.

A pass computes A^T F(A x), where F works row by row. Blocks and the order of summation are fixed by the data alone:
the result does not depend on the number of threads, to the last bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.support.lazy import LazyModule
from ownstep.support.threads import one_blas_thread, share_out, thread_count

sp = LazyModule("scipy.sparse")
Array = NDArray[Any]
Pointwise = Callable[..., Any]
"""(A_b x for every x of the pass, the slice b) -> one row for each row of the block."""

CACHE_ROWS = 2**16
"""Rows in one block of a sparse pass: what is computed row by row then stays in the cache."""

GATHER_ROWS = 2**17
"""Rows behind one block of a sparse transposed product: it gathers from a vector that long, which fits the L2 cache."""

BLOCK_BYTES = 2**22
"""Of one block of dense rows: still in the L3 cache when the transposed product reads it again."""

ONE_BLOCK = 2**20
"""Stored numbers up to which a table is one block: threads would not pay."""

LANES = 32
"""Sums that a dense pass keeps apart, and parts of a sparse one's result: the most threads that a pass can use."""

LANE_SIZE = 2**18
"""Stored numbers behind one part of a sparse transposed product, at least: a call of SciPy costs some 10 us."""


class Table(ABC):
    """Rows a_1, ..., a_n in memory, dense or sparse.

    Parameters
    ----------
    A : (n, d), checked.
    threads : how many a pass may use; see :func:`~ownstep.support.threads.thread_count`.
    """

    blocks: list[slice]
    """Consecutive rows that are worked on together."""

    def __init__(self, A: Any, threads: int | None) -> None:
        self.A, self.threads = A, threads
        thread_count(threads)

    @property
    @abstractmethod
    def size(self) -> int:
        """Stored numbers."""

    @abstractmethod
    def rows(self, block: Any) -> Any:
        """Consecutive rows, without a copy."""

    @abstractmethod
    def transposed(self, F: Pointwise, *xs: Array, tail: tuple[int, ...] = ()) -> Array:
        """A^T F(A x_1, A x_2, ..., block), one pass over the rows; F gives rows of shape ``tail``."""

    @abstractmethod
    def each_block(self, F: Callable[..., object], *xs: Array) -> None:
        """F(A_b x_1, A_b x_2, ..., b) for every block b of rows."""

    def share_out(self, function: Callable[[Any], object], tasks: Sequence[Any]) -> None:
        """Call a function on every task, on the table's threads, with one BLAS thread each."""
        threads = thread_count(self.threads)
        with one_blas_thread() if threads > 1 and len(tasks) > 1 else nullcontext():
            share_out(function, tasks, threads)


class DenseTable(Table):
    """Rows of an array; each block is read once in a pass, and the transposed product finds it in the cache."""

    def __init__(self, A: Array, threads: int | None) -> None:
        super().__init__(A, threads)
        self.blocks = _cut(len(A), len(A) if A.size <= ONE_BLOCK else max(1, BLOCK_BYTES // A[0].nbytes))

    @property
    def size(self) -> int:
        """Stored numbers."""
        return int(self.A.size)

    def rows(self, block: slice | NDArray[np.intp]) -> Any:
        """Some rows; consecutive ones without a copy."""
        return self.A[block]

    def each_block(self, F: Callable[..., object], *xs: Array) -> None:
        """F(A_b x_1, A_b x_2, ..., b) for every block b of rows."""
        self.share_out(lambda b: F(*(self.A[b] @ x for x in xs), b), self.blocks)

    def transposed(self, F: Pointwise, *xs: Array, tail: tuple[int, ...] = ()) -> Array:
        """A^T F(A x_1, A x_2, ..., block), one pass over the rows; F gives rows of shape ``tail``."""
        if len(self.blocks) == 1:
            whole: Array = self.A.T @ F(*(self.A @ x for x in xs), self.blocks[0])
            return whole
        lanes = [lane for lane in np.array_split(np.arange(len(self.blocks)), LANES) if len(lane)]
        sums: list[Any] = [None] * len(lanes)

        def add(lane: int) -> None:
            total: Any = None
            for at in lanes[lane]:
                block = self.blocks[at]
                rows = self.A[block]
                part = rows.T @ F(*(rows @ x for x in xs), block)
                total = part if total is None else np.add(total, part, out=total)
            sums[lane] = total

        self.share_out(add, range(len(lanes)))
        out: Array = sums[0]
        for other in sums[1:]:
            out += other
        return out


class SparseTable(Table):
    """Rows of a CSR array, and their transpose in rows of its own.

    The product with A^T then gathers instead of scattering, which is up to twice as fast. It is cut by rows, so that
    what it gathers from fits the cache, and by features, so that every thread writes a part of the result.
    """

    def __init__(self, A: Any, threads: int | None) -> None:
        super().__init__(A, threads)
        n, d = A.shape
        small, per_row = A.nnz <= ONE_BLOCK, max(1.0, A.nnz / n)
        self.blocks = _cut(n, n if small else max(1, int(min(CACHE_ROWS, 2 * ONE_BLOCK / per_row))))
        self._parts = [self.rows(b) for b in self.blocks]
        groups = _cut(n, max(GATHER_ROWS, int(4 * d / per_row)))  # short rows of A^T are not worth a cut
        lanes = int(min(LANES, A.nnz / len(groups) / LANE_SIZE))
        self._features = [slice(0, d)] if small else _even(np.bincount(A.indices, minlength=d), max(2, lanes))
        turned: list[Any] = [None] * len(groups)

        def turn(at: int) -> None:
            whole = sp.csr_array(self.rows(groups[at]).T)
            turned[at] = [(groups[at], _view(whole, f)) for f in self._features]

        self.share_out(turn, range(len(groups)))
        self._turned = [[group[f] for group in turned] for f in range(len(self._features))]

    @property
    def size(self) -> int:
        """Stored numbers."""
        return int(self.A.nnz)

    def rows(self, block: Any) -> Any:
        """Consecutive rows, without a copy."""
        return _view(self.A, block)

    def each_block(self, F: Callable[..., object], *xs: Array) -> None:
        """F(A_b x_1, A_b x_2, ..., b) for every block b of rows."""
        self.share_out(lambda at: F(*(self._parts[at] @ x for x in xs), self.blocks[at]), range(len(self.blocks)))

    def transposed(self, F: Pointwise, *xs: Array, tail: tuple[int, ...] = ()) -> Array:
        """A^T F(A x_1, A x_2, ..., block), one pass over the rows and one over their transpose."""
        (n, d), dtype = self.A.shape, np.result_type(self.A.dtype, *xs)
        values, out = np.empty((n, *tail), dtype), np.empty((d, *tail), dtype)

        def fill(*given: Any) -> None:
            values[given[-1]] = F(*given)

        def add(at: int) -> None:
            (group, part), *others = self._turned[at]
            total = part @ values[group]
            for group, part in others:
                total += part @ values[group]
            out[self._features[at]] = total

        self.each_block(fill, *xs)
        self.share_out(add, range(len(self._features)))
        return out


def _cut(n: int, step: int) -> list[slice]:
    """0, ..., n - 1 in consecutive parts of ``step``."""
    return [slice(a, min(a + step, n)) for a in range(0, n, step)]


def _even(work: NDArray[np.intp], parts: int) -> list[slice]:
    """Consecutive parts of about the same work each."""
    done = np.cumsum(work)
    cuts = np.unique([0, *np.searchsorted(done, np.linspace(0, done[-1], parts + 1)[1:-1]), len(work)])
    return [slice(int(a), int(b)) for a, b in pairwise(cuts)]


def _view(A: Any, block: slice) -> Any:
    """Consecutive rows of a CSR array, whose numbers are not copied."""
    a, b, _ = block.indices(A.shape[0])
    at = slice(A.indptr[a], A.indptr[b])
    view = sp.csr_array((b - a, A.shape[1]), dtype=A.dtype)
    # set one by one, as the constructor copies what it finds to be a small part of something large
    view.data, view.indices, view.indptr = A.data[at], A.indices[at], A.indptr[a : b + 1] - A.indptr[a]
    return view
