"""Rows as torch tensors, and the two products a round needs: A x, and A^T w."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ownstep.support.errors import InvalidInput

SPLIT = 4096
"""Rows behind one partial sum of a dense A^T w: a tall product is cut into as many small ones as keep a GPU busy."""


class TensorRows(Protocol):
    """Dense or sparse rows on a torch device."""

    shape: tuple[int, int]

    def times(self, x: Tensor) -> Tensor:
        """A x, for a vector or for several as columns."""
        ...

    def back(self, w: Tensor) -> Tensor:
        """A^T w, for a vector or for several as columns."""
        ...

    def part(self, at: slice) -> TensorRows:
        """Consecutive rows."""
        ...


class DenseRows:
    """Rows of a dense tensor."""

    def __init__(self, A: Tensor) -> None:
        self.A, self.shape = A, (int(A.shape[0]), int(A.shape[1]))

    def times(self, x: Tensor) -> Tensor:
        """A x."""
        return self.A @ x

    def back(self, w: Tensor) -> Tensor:
        """A^T w; of several columns as a sum over groups of rows: one product per group, all in one call."""
        if w.ndim == 1:
            return w @ self.A
        n, d = self.shape
        whole = n - n % SPLIT
        columns = w.reshape(n, -1)
        total = self.A[whole:].T @ columns[whole:]
        if whole:
            groups = self.A[:whole].view(-1, SPLIT, d).transpose(1, 2)
            total = total + torch.bmm(groups, columns[:whole].reshape(len(groups), SPLIT, -1)).sum(dim=0)
        return total.reshape(d, *w.shape[1:])

    def part(self, at: slice) -> DenseRows:
        """Consecutive rows."""
        return DenseRows(self.A[at])


class SparseRows:
    """Rows of a CSR tensor, and their transpose in rows of its own."""

    def __init__(self, starts: Tensor, columns: Tensor, values: Tensor, features: int) -> None:
        self.starts, self.columns, self.values = starts, columns, values
        n = len(starts) - 1
        self.shape = (n, features)
        self.A = torch.sparse_csr_tensor(starts, columns, values, size=self.shape, check_invariants=False)
        row = torch.repeat_interleave(torch.arange(n, device=values.device), starts.diff())
        order = torch.argsort(columns, stable=True)
        ends = torch.zeros(features + 1, dtype=starts.dtype, device=values.device)
        ends[1:] = torch.bincount(columns, minlength=features).cumsum(0)
        self.At = torch.sparse_csr_tensor(
            ends, row[order].to(columns.dtype), values[order], size=(features, n), check_invariants=False
        )

    def times(self, x: Tensor) -> Tensor:
        """A x."""
        return self.A @ x

    def back(self, w: Tensor) -> Tensor:
        """A^T w."""
        return self.At @ w

    def part(self, at: slice) -> SparseRows:
        """Consecutive rows, with a transpose of their own."""
        starts = self.starts[at.start : at.stop + 1]
        inside = slice(int(starts[0]), int(starts[-1]))
        return SparseRows(starts - starts[0], self.columns[inside], self.values[inside], self.shape[1])


def place(
    rows: Any, order: NDArray[np.intp] | None, intercept: bool, dtype: torch.dtype, device: torch.device
) -> TensorRows:
    """Rows of any kind on a device, in the given order, with a constant feature last where one is asked for."""
    if hasattr(rows, "tocsr"):
        rows = rows.tocsr()
        kept = torch.int32 if max(rows.nnz, *rows.shape) < 2**31 else torch.int64
        parts = (rows.indptr, rows.indices)
        starts, columns = (torch.as_tensor(np.ascontiguousarray(p), device=device).to(kept) for p in parts)
        return _sparse(starts, columns, torch.as_tensor(rows.data), rows.shape, order, intercept, dtype, device)
    if isinstance(rows, Tensor) and rows.layout == torch.sparse_csr:
        starts, columns = rows.crow_indices().to(device), rows.col_indices().to(device)
        return _sparse(starts, columns, rows.values(), tuple(rows.shape), order, intercept, dtype, device)
    A = torch.as_tensor(np.ascontiguousarray(rows) if isinstance(rows, np.ndarray) else rows).to(device, dtype)
    if A.ndim != 2 or 0 in A.shape:
        raise InvalidInput(f"features must be a non-empty table of samples by features, got shape {tuple(A.shape)}")
    _finite(A)
    if order is not None:
        A = A[torch.as_tensor(order, device=device)]
    if intercept:
        A = torch.cat([A, A.new_ones(len(A), 1)], dim=1)
    return DenseRows(A.contiguous())


def _sparse(
    starts: Tensor,
    columns: Tensor,
    values: Tensor,
    shape: tuple[int, ...],
    order: NDArray[np.intp] | None,
    intercept: bool,
    dtype: torch.dtype,
    device: torch.device,
) -> SparseRows:
    values = values.to(device, dtype)
    _finite(values)
    n, d = int(shape[0]), int(shape[1])
    if order is not None or intercept:
        row = torch.repeat_interleave(torch.arange(n, device=device), starts.diff())
        if order is not None:
            place_of = torch.empty(n, dtype=torch.int64, device=device)
            place_of[torch.as_tensor(order, device=device)] = torch.arange(n, device=device)
            row = place_of[row]
        if intercept:
            row = torch.cat([row, torch.arange(n, device=device)])
            columns = torch.cat([columns, columns.new_full((n,), d)])
            values, d = torch.cat([values, values.new_ones(n)]), d + 1
        by_row = torch.argsort(row, stable=True)
        columns, values = columns[by_row], values[by_row]
        starts = torch.cat([row.new_zeros(1), torch.bincount(row, minlength=n).cumsum(0)]).to(starts.dtype)
    return SparseRows(starts, columns, values, d)


def _finite(values: Tensor) -> None:
    if values.numel() and not bool(torch.isfinite(values.abs().max())):
        raise InvalidInput(f"features must be finite, got {float(values[~torch.isfinite(values)][0])}")
