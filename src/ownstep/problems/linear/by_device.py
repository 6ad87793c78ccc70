"""Every device's own loss and gradient: a task per device, or batches of devices where they are many and small."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ownstep.support.lazy import LazyModule

if TYPE_CHECKING:
    from ownstep.problems.linear.model import LinearModel

sp = LazyModule("scipy.sparse")
Array = NDArray[Any]

FEW = 128
"""Devices up to which each is a task of its own."""

SMALL = 2**14
"""Stored numbers per device, on average, up to which many devices go in batches: a task costs more than the work."""

BATCH = 2**20
"""Numbers of a batch: of its rows, or of its gradients."""


def each(model: LinearModel, x: Array) -> tuple[NDArray[np.float64], Array]:
    """(f_i for every device, one row per device: grad f_i), at x or at row i of x."""
    count = len(model.counts)
    points = np.broadcast_to(x, (count, model.dim))
    losses, out = np.empty(count), np.empty(points.shape, model.dtype)

    def one(i: int) -> None:
        point = points[i]
        ridge = model.ridge(point)
        loss, total = 0.0, np.zeros((), model.dtype)
        for where, rows in model.pieces(i):
            losses_there, slope = model._pointwise(rows @ model._shaped(point), where)
            loss, total = loss + losses_there.sum(), total + rows.T @ slope
        losses[i] = loss / model.counts[i] + 0.5 * float(point @ ridge)
        out[i] = total.ravel() / model.counts[i] + ridge

    def several(cut: tuple[int, int]) -> None:
        at = slice(*cut)
        losses[at], out[at] = _batch(model, *cut, points[at], np.ndim(x) == 1)

    if count <= FEW or model.table.size > SMALL * count:
        model.table.share_out(one, range(count))
    else:
        step = max(1, int(BATCH / max(model.table.size / count, model.dim)))
        model.table.share_out(several, list(pairwise([*range(0, count, step), count])))
    return losses, out


def _batch(model: LinearModel, first: int, last: int, points: Array, common: bool) -> tuple[NDArray[np.float64], Array]:
    """The same for the devices first, ..., last - 1 at their points, without a loop over them."""
    block: Any = slice(int(model.starts[first]), int(model.starts[last]))
    counts, starts = model.counts[first:last], model.starts[first:last] - block.start
    block = block if model._order is None else model._order[block]
    rows = model.table.rows(block)
    device = np.repeat(np.arange(last - first), counts)
    shape = (last - first, model.features, model.outputs)
    own = points.reshape(shape)
    at = None
    if sp.issparse(rows):  # entry (j, k) of device i stands at i d + k of the devices' vectors, laid end to end
        at = np.repeat(device * model.features, np.diff(rows.indptr)) + rows.indices
    if common:
        z = rows @ model._shaped(points[0])
    elif at is not None:
        apart = sp.csr_array((rows.data, at, rows.indptr), shape=(rows.shape[0], shape[0] * shape[1]))
        z = apart @ own.reshape(-1, model.outputs)
    else:
        z = np.einsum("jf,jfc->jc", rows, own[device])
    loss, slope = model._pointwise(z.reshape(len(device), *([model.outputs] if model.outputs > 1 else [])), block)
    slope = slope.reshape(len(device), model.outputs) / counts[device, None]
    out = np.empty(shape, model.dtype)
    for c in range(model.outputs):
        if at is not None:
            entries = rows.data * np.repeat(slope[:, c], np.diff(rows.indptr))
            out[:, :, c] = np.bincount(at, entries, minlength=shape[0] * shape[1]).reshape(shape[:2])
        else:
            out[:, :, c] = np.add.reduceat(rows * slope[:, c, None], starts, axis=0)
    ridge = own * model.penalty.astype(model.dtype)[:, None]
    losses = np.add.reduceat(loss, starts) / counts + 0.5 * (own * ridge).sum(axis=(1, 2))
    return np.asarray(losses, float), (out + ridge).reshape(points.shape)
