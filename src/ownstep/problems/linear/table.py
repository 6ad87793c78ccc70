"""The rows of a linear model, and products with them on every core.

A pass computes A^T F(A x), where F works row by row. Blocks and the order of summation are fixed by the data alone:
the result does not depend on the number of threads, to the last bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from hashlib import blake2b
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

BLOCK_BYTES = 2**22
"""Of one block of dense rows: still in the L3 cache when the transposed product reads it again."""

BLOCK_ENTRIES = 2**19
"""Of one block of sparse rows: still in the cache then, and few enough calls of SciPy."""

SHARED = 4
"""The number of sparse blocks is a multiple of it, so that few threads get equally many."""

ENTRIES_PER_FEATURE = 8
"""Of one block of sparse rows, at least: a block adds a vector as long as there are features."""

SCATTER = 2**16
"""Features up to which a sparse transposed product scatters: so many sums fit the L2 cache."""

ONE_BLOCK = 2**20
"""Stored numbers up to which a table is one block: threads would not pay."""

LANES = 32
"""Sums that a pass keeps apart: the most threads that it can use."""


class Table(ABC):
    """Rows a_1, ..., a_n in memory, dense or sparse, in blocks that are each read once in a pass.

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
        self.blocks = [slice(0, A.shape[0])] if self.size <= ONE_BLOCK else self._cut()
        self._parts: list[Any] = [None] * len(self.blocks)
        self.share_out(self._prepare, range(len(self.blocks)))
        self._lanes = [lane for lane in np.array_split(np.arange(len(self.blocks)), LANES) if len(lane)]

    @property
    def dtype(self) -> Any:
        """Of the rows."""
        return self.A.dtype

    def at(self, which: Any) -> Table:
        """Some of the rows."""
        return type(self)(self.A[which], self.threads)

    def digest(self) -> bytes:
        """Of all stored numbers: of every dense row the sum of its bits, as fast as memory is read."""
        return _digest(*((self.A.data, self.A.indices, self.A.indptr) if sp.issparse(self.A) else [_bit_sums(self.A)]))

    @property
    @abstractmethod
    def size(self) -> int:
        """Stored numbers."""

    @abstractmethod
    def rows(self, block: Any) -> Any:
        """Some rows; consecutive ones without a copy."""

    @abstractmethod
    def _cut(self) -> list[slice]:
        """The blocks of a large table."""

    def _prepare(self, at: int) -> None:
        """(rows, their transpose, where they are) of a block: SciPy takes 20 us to make a transpose of a view."""
        rows = self.rows(self.blocks[at])
        self._parts[at] = rows, self._turned(rows), self.blocks[at]

    def _turned(self, rows: Any) -> Any:
        return rows.T

    def each_block(self, F: Callable[..., object], *xs: Array) -> None:
        """F(A_b x_1, A_b x_2, ..., b) for every block b of rows."""
        self.share_out(lambda part: F(*(part[0] @ x for x in xs), part[2]), self._parts)

    def transposed(self, F: Pointwise, *xs: Array) -> Array:
        """A^T F(A x_1, A x_2, ..., block), one pass over the rows."""
        sums: list[Any] = [None] * len(self._lanes)

        def add(lane: int) -> None:
            for at in self._lanes[lane]:
                rows, columns, block = self._parts[at]
                part = columns @ F(*(rows @ x for x in xs), block)
                sums[lane] = part if sums[lane] is None else np.add(sums[lane], part, out=sums[lane])

        self.share_out(add, range(len(sums)))
        out: Array = sums[0]
        for other in sums[1:]:
            out += other
        return out

    def share_out(self, function: Callable[[Any], object], tasks: Sequence[Any]) -> None:
        """Call a function on every task, on the table's threads, with one BLAS thread each."""
        threads = thread_count(self.threads)
        with one_blas_thread() if threads > 1 and len(tasks) > 1 else nullcontext():
            share_out(function, tasks, threads)


class DenseTable(Table):
    """Rows of an array, or of a file mapped into memory."""

    @property
    def size(self) -> int:
        """Stored numbers."""
        return int(self.A.size)

    def rows(self, block: slice | NDArray[np.intp]) -> Any:
        """Some rows; consecutive ones without a copy."""
        return self.A[block]

    def _cut(self) -> list[slice]:
        n, step = len(self.A), max(1, BLOCK_BYTES // self.A[0].nbytes)
        return [slice(a, min(a + step, n)) for a in range(0, n, step)]


class ConstantTable(DenseTable):
    """Rows of an array with a 1 after the last feature, which passes do without: a copy would double the memory.

    Whatever needs the rows themselves, such as a Hessian, makes that copy when it first asks for them.
    """

    _plain: Any
    _whole: Any = None

    @property
    def A(self) -> Any:
        """(n, d + 1), the constant last; made once."""
        if self._whole is None:
            self._whole = np.hstack([self._plain, np.ones((len(self._plain), 1), self._plain.dtype)])
        return self._whole

    @A.setter
    def A(self, rows: Any) -> None:
        self._plain = rows

    @property
    def size(self) -> int:
        """Numbers that a pass works on."""
        return int(self._plain.size) + len(self._plain)

    @property
    def dtype(self) -> Any:
        """Of the rows."""
        return self._plain.dtype

    def at(self, which: Any) -> Table:
        """Some of the rows."""
        return type(self)(self._plain[which], self.threads)

    def digest(self) -> bytes:
        """Of all stored numbers."""
        return _digest(_bit_sums(self._plain))

    def _prepare(self, at: int) -> None:
        rows = self._plain[self.blocks[at]]
        self._parts[at] = _Affine(rows), _Turned(rows.T), self.blocks[at]

    def _cut(self) -> list[slice]:
        n, step = len(self._plain), max(1, BLOCK_BYTES // self._plain[0].nbytes)
        return [slice(a, min(a + step, n)) for a in range(0, n, step)]


def _bit_sums(rows: Array) -> Array:
    """Every row's numbers, taken for whole ones and added up modulo 2^64: another number gives another sum."""
    return np.asarray(rows.view(f"u{rows.itemsize}").sum(axis=1, dtype=np.uint64))


def _digest(*arrays: Array) -> bytes:
    return blake2b(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays), digest_size=16).digest()


@dataclass(frozen=True, eq=False)
class _Affine:
    """[rows, 1] as far as products go."""

    rows: Array

    def __matmul__(self, x: Array) -> Array:
        out = self.rows @ x[:-1]
        out += x[-1]
        return out


@dataclass(frozen=True, eq=False)
class _Turned:
    """The transpose of [rows, 1] as far as products go."""

    columns: Array

    def __matmul__(self, u: Array) -> Array:
        return np.concatenate([self.columns @ u, u.sum(axis=0, keepdims=True)])


class SparseTable(Table):
    """Rows of a CSR array.

    The transposed product scatters from them into a vector in the cache. Where that vector is too long, the transpose
    of every block is stored in rows of its own: the product then gathers.
    """

    @property
    def size(self) -> int:
        """Stored numbers."""
        return int(self.A.nnz)

    def rows(self, block: Any) -> Any:
        """Some rows; consecutive ones without a copy."""
        if not isinstance(block, slice):
            return self.A[block]
        a, b, _ = block.indices(self.A.shape[0])
        A, at = self.A, slice(self.A.indptr[a], self.A.indptr[b])
        view = sp.csr_array((b - a, A.shape[1]), dtype=A.dtype)
        # set one by one, as the constructor copies what it finds to be a small part of something large
        view.data, view.indices, view.indptr = A.data[at], A.indices[at], A.indptr[a : b + 1] - A.indptr[a]
        return view

    def _turned(self, rows: Any) -> Any:
        return rows.T if self.A.shape[1] <= SCATTER else sp.csr_array(rows.T)

    def _cut(self) -> list[slice]:
        count = SHARED * max(1, round(self.size / SHARED / max(BLOCK_ENTRIES, ENTRIES_PER_FEATURE * self.A.shape[1])))
        cuts = np.searchsorted(self.A.indptr, np.linspace(0, self.size, count + 1)[1:-1])
        return [slice(int(a), int(b)) for a, b in pairwise(np.unique([0, *cuts, self.A.shape[0]]))]
