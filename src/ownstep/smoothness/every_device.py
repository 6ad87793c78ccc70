"""The largest eigenvalue of every device's Hessian bound, for any number of devices.

    L_i = lambda_max( kappa A_i^T A_i / n_i + diag(penalty) )

Large devices go one by one, each on a thread, or in groups by products with their rows. Small ones go in batches:
without an intercept A_i A_i^T has the same largest eigenvalue, so a batch of dense devices is a stack of small Gram
matrices, and a batch of sparse devices is one block-diagonal matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ownstep.problems.linear.model import LinearModel
from ownstep.problems.linear.second_order import gram
from ownstep.problems.linear.table import BLOCK_BYTES
from ownstep.smoothness.lanczos import FEW, Blocks, Chosen, One, Stack, enclose, largest_eigenvalues, tops_of_stack
from ownstep.smoothness.sparse_blocks import by_features, by_rows, tiny_grams

Array = NDArray[np.float64]

DENSE_LIMIT = 128
"""Up to this size a Gram matrix is formed: it is faster than Lanczos and just as exact."""

GRAM_LIMIT = 1024
"""The same for many dense rows: forming it takes as long as some twenty products with them."""

GRAM_LIMITED = 256
"""The same where products are limited: it takes about 10 rounds there, and grows with the square of the features."""

FEW_ROWS = 6
"""Sparse rows up to which a device's Gram matrix is formed, by one product per row."""

TINY = 16
"""Size up to which LAPACK finds all eigenvalues of a stack of Gram matrices."""

LARGE = 2**17
"""Stored numbers from which a device is worked on alone."""

BATCH = 2**22
"""Stored numbers of small devices that are worked on together, at most; an eighth of them all where that is less."""

LEAST = 2**18
"""The same, at least: below it most of the time goes into calls."""

HIGH = 1024
"""Rows up to which devices that are known by products are worked on as one array: else each call is a short one."""

GROUPS, MEMBERS = 16, 64
"""Large devices that are known by products are searched in so many groups, for the threads, of at most so many each."""

SIMILAR = 1.26
"""Devices are worked on together where their numbers of rows differ by a factor of at most this."""


PRODUCTS, POOLED, EACH = 21, 7, 12
"""Products with all rows that a limited search may take: of one device; of several, for the L of f and for the L_i.
Each is as long as 0.7 to 1 rounds of logistic regression."""


class Search:
    """How largest eigenvalues are looked for: until they are known, or with a limited number of products.

    Parameters
    ----------
    seed : of the random start.
    limited : stop after some products, and give upper bounds.
    """

    def __init__(self, seed: int = 0, limited: bool = False) -> None:
        self.seed, self.limited, self.products = seed, limited, PRODUCTS
        self.gram_limit = GRAM_LIMITED if limited else GRAM_LIMIT
        self.gaps: list[float] = []  # how far a value may be above the truth, relative to it

    def __call__(self, H: Blocks) -> Array:
        if not self.limited:
            return largest_eigenvalues(H, self.seed)
        lower, upper = enclose(H, self.products, self.seed)
        self.gaps.append(float(np.max((upper - lower) / np.where(lower > 0, lower, 1))))
        return upper


def tops(problem: LinearModel, search: Search) -> tuple[Array, float]:
    """(L_i of every device, L of f itself)."""
    if len(problem.counts) == 1:
        alone = pooled_top(problem, search)
        return np.array([alone]), alone
    long = problem.counts.min() >= 8 * problem.features  # then all Gram matrices together take less than the rows
    if long and problem.features <= search.gram_limit and not sp.issparse(problem.table.A):
        return _from_grams(problem)
    if problem.counts.min() >= problem.features <= DENSE_LIMIT and not sp.issparse(problem.table.A):
        return _from_stacks(problem, search)
    values, pooled = np.empty(len(problem.counts)), np.empty(1)
    tasks = _tasks(problem, search)

    def measure(devices: NDArray[np.intp] | None) -> None:
        if devices is None:
            pooled[0] = pooled_top(problem, search)
        else:
            values[devices] = _batch(problem, devices, search)

    if len(problem.table.blocks) == 1:  # a pass takes one thread: another one has time
        search.products = EACH
        problem.table.share_out(measure, [None, *tasks])
    else:
        search.products = POOLED
        measure(None)
        search.products = EACH
        problem.table.share_out(measure, tasks)
    top = float(pooled[0])
    return values, min(top, float(problem.weights @ values)) if search.limited else top


def _tasks(problem: LinearModel, search: Search) -> list[NDArray[np.intp]]:
    """The devices that are worked on together."""
    sparse = sp.issparse(problem.table.A)
    sizes = problem.counts * problem.features
    if sparse:
        lengths = np.diff(problem.table.A.indptr)
        stored = lengths if problem._order is None else lengths[problem._order]
        sizes = np.diff(np.concatenate([[0], np.cumsum(stored)])[problem.starts])
    together = sizes < LARGE
    if not sparse and problem.features > DENSE_LIMIT:
        together &= (problem.counts <= DENSE_LIMIT) & (not problem.intercept)
    alone, grouped = np.flatnonzero(~together), list[NDArray[np.intp]]()
    if search.limited and not sparse and problem.features > DENSE_LIMIT:
        by_products = problem.features > np.minimum(search.gram_limit, problem.counts[alone])
        several, alone = alone[by_products], alone[~by_products]
        low = problem.counts[several] <= HIGH
        grouped = _batches(problem, sizes, several[low]) + _split(several[~low])
    return [np.array([i]) for i in alone] + grouped + _batches(problem, sizes, np.flatnonzero(together))


def _split(devices: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Groups of large devices."""
    if not len(devices):
        return []
    return np.array_split(devices, max(min(len(devices), GROUPS), -(-len(devices) // MEMBERS)))


def _batches(problem: LinearModel, sizes: NDArray[np.intp], devices: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Devices that are worked on together: about as many rows each, and not too many numbers in all."""
    if not len(devices):
        return []
    group = _groups(problem.counts[devices])
    order = np.argsort(group, kind="stable")
    devices, group = devices[order], group[order]
    total = int(sizes[devices].sum())
    most = min(BATCH, max(LEAST, total // 8))
    most = -(-total // max(1, round(total / most)))  # no small one is left over
    cut = (np.cumsum(sizes[devices]) - sizes[devices]) // most * 1024 + group
    return np.split(devices, np.flatnonzero(np.diff(cut)) + 1)


def _groups(counts: NDArray[np.intp]) -> NDArray[np.intp]:
    """The group of every device: in a group the largest number of rows is at most ``SIMILAR`` times the smallest."""
    found, group = np.unique(counts, return_inverse=True)
    of, first = np.zeros(len(found), int), found[0]
    for at, count in enumerate(found[1:], start=1):
        more = count > SIMILAR * first
        of[at], first = of[at - 1] + more, count if more else first
    return np.asarray(of[group.ravel()])


def _batch(problem: LinearModel, devices: NDArray[np.intp], search: Search) -> Array | float:
    if sp.issparse(problem.table.A):
        return _sparse_batch(problem, devices, search)
    if len(devices) == 1:
        return _alone(problem, int(devices[0]), search)
    if problem.features > DENSE_LIMIT and (problem.counts[devices].max() > DENSE_LIMIT or problem.intercept):
        low = problem.counts[devices].max() <= HIGH
        return search(Padded(problem, devices) if low else Apart(problem, devices))
    return _dense_batch(problem, devices, search)


def pooled_top(problem: LinearModel, search: Search) -> float:
    """L = lambda_max( kappa sum_i w_i A_i^T A_i / n_i + diag(penalty) ), of f itself."""
    scale, penalty, table = problem.curvature * problem.weights / problem.counts, problem.penalty, problem.table
    n, d = table.A.shape
    if d <= search.gram_limit and d <= n and not sp.issparse(table.A):
        cuts = np.unique(np.linspace(0, n, 33).astype(int))
        parts: list[Any] = [None] * (len(cuts) - 1)

        def part(at: int) -> None:
            block = slice(cuts[at], cuts[at + 1])
            parts[at] = gram(table.rows(block), np.broadcast_to(problem.spread(scale, block), cuts[at + 1] - cuts[at]))

        table.share_out(part, range(len(parts)))
        return float(np.linalg.eigvalsh(sum(parts) + np.diag(penalty))[-1])

    factors = {block.start: problem.spread(scale, block) for block in table.blocks}

    def product(v: Array) -> Array:
        return table.transposed(lambda z, block: z * factors[block.start], v) + penalty * v

    return float(search(One(product, problem.features))[0])


def _from_grams(problem: LinearModel) -> tuple[Array, float]:
    """Both from one pass over the rows of few large devices: the Gram matrices add up to that of f."""
    scale, penalty = problem.curvature / problem.counts, np.diag(problem.penalty)
    values, parts = np.empty(len(scale)), list(scale)

    def measure(i: int) -> None:
        total: Any = sum(gram(rows, np.full(rows.shape[0], scale[i])) for _, rows in problem.pieces(i))
        values[i], parts[i] = np.linalg.eigvalsh(total + penalty)[-1], problem.weights[i] * total

    problem.table.share_out(measure, range(len(scale)))
    return values, float(np.linalg.eigvalsh(sum(parts) + penalty)[-1])


def _from_stacks(problem: LinearModel, search: Search) -> tuple[Array, float]:
    """The same where devices are many and small: their Gram matrices are worked on in stacks."""
    values, tasks, penalty = np.empty(len(problem.counts)), _tasks(problem, search), np.diag(problem.penalty)
    search.products, parts = EACH, list(tasks)

    def measure(at: int) -> None:
        devices = tasks[at]
        grams = _feature_grams(problem, devices)
        parts[at] = np.tensordot(problem.weights[devices], grams, 1)
        values[devices] = _stack_tops(grams + penalty, np.full(len(devices), problem.features), search)

    problem.table.share_out(measure, range(len(tasks)))
    return values, float(np.linalg.eigvalsh(sum(parts) + penalty)[-1])


def _feature_grams(problem: LinearModel, devices: NDArray[np.intp]) -> Array:
    """Kappa A_i^T A_i / n_i of some devices, dense."""
    scale = problem.curvature / problem.counts[devices]
    if len(devices) == 1:
        parts = (gram(rows, np.full(rows.shape[0], scale[0])) for _, rows in problem.pieces(int(devices[0])))
        return np.asarray(sum(parts))[None]
    X = _dense_stack(problem, devices, problem.counts[devices])
    return np.asarray(X.transpose(0, 2, 1) @ X * scale[:, None, None])


def _alone(problem: LinearModel, device: int, search: Search) -> float:
    scale, penalty = problem.curvature / problem.counts[device], problem.penalty
    limit = DENSE_LIMIT if sp.issparse(problem.table.A) else min(search.gram_limit, int(problem.counts[device]))
    if problem.features <= max(limit, DENSE_LIMIT):
        parts = (gram(rows, np.full(rows.shape[0], scale)) for _, rows in problem.pieces(device))
        return float(np.linalg.eigvalsh(sum(parts) + np.diag(penalty))[-1])

    return float(search(Apart(problem, np.array([device])))[0])


class Apart(Blocks):
    """Kappa A_i^T A_i / n_i + diag(penalty) of some devices, each by two products with its own rows."""

    def __init__(self, problem: LinearModel, devices: NDArray[np.intp]) -> None:
        super().__init__(np.full(len(devices), problem.features))
        self.problem, self.devices = problem, devices
        self.penalty = problem.penalty

    def __matmul__(self, v: Array) -> Array:
        return np.array([self._of(int(i), x) for i, x in zip(self.devices, v, strict=True)])

    def _of(self, device: int, x: Array) -> Array:
        scale = self.problem.curvature / self.problem.counts[device]
        total: Any = sum(part.T @ (part @ x) for _, rows in self.problem.pieces(device) for part in _parts(rows))
        return np.asarray(scale * total + self.penalty * x, float)

    def only(self, chosen: Chosen) -> Blocks:
        """Some of the devices alone."""
        return Apart(self.problem, self.devices[chosen])


def _parts(rows: Any) -> Iterator[Any]:
    """The rows in parts that are still in the cache when they are read again; sparse ones as they are."""
    step = rows.shape[0] if sp.issparse(rows) else max(1, BLOCK_BYTES // rows[:1].nbytes)
    return (rows[a : a + step] for a in range(0, rows.shape[0], step))


class Padded(Blocks):
    """The same of devices with few rows each, all of them in two products."""

    def __init__(self, problem: LinearModel, devices: NDArray[np.intp], X: Array | None = None) -> None:
        super().__init__(np.full(len(devices), problem.features))
        self.problem, self.devices = problem, devices
        self.X = _dense_stack(problem, devices, problem.counts[devices]) if X is None else X
        self.scale = (problem.curvature / problem.counts[devices])[:, None]

    def __matmul__(self, v: Array) -> Array:
        both = self.X.transpose(0, 2, 1) @ (self.X @ v[:, :, None])
        return np.asarray(both[:, :, 0] * self.scale + self.problem.penalty * v)

    def only(self, chosen: Chosen) -> Blocks:
        """Some of the devices alone."""
        return Padded(self.problem, self.devices[chosen], self.X[chosen])


def _dense_batch(problem: LinearModel, devices: NDArray[np.intp], search: Search) -> Array:
    """Devices with few rows, or with few features, as a stack of Gram matrices."""
    counts, d = problem.counts[devices], problem.features
    if counts.max() <= d and not problem.intercept:
        X = _dense_stack(problem, devices, counts)
        return _stack_tops(X @ X.transpose(0, 2, 1), counts, search) * (problem.curvature / counts) + problem.mu
    grams = _feature_grams(problem, devices) + np.diag(problem.penalty)
    return _stack_tops(grams, np.full(len(devices), d), search)


def _dense_stack(problem: LinearModel, devices: NDArray[np.intp], counts: NDArray[np.intp]) -> Array:
    """The rows of every device, padded with zeros; where they already lie like that, no copy is made."""
    height, first = int(counts.max()), int(problem.starts[devices[0]])
    in_place = problem._order is None and (np.diff(devices) == 1).all() and problem.dtype == np.float64
    if in_place and (counts == height).all():
        rows = problem.table.rows(slice(first, first + len(devices) * height))
        return np.asarray(rows).reshape(len(devices), height, -1)
    X = np.zeros((len(devices), height, problem.features))
    for row, i in enumerate(devices):
        X[row, : counts[row]] = problem.rows(int(i))
    return X


def _stack_tops(G: Array, sizes: NDArray[np.intp], search: Search) -> Array:
    if G.shape[1] <= TINY or len(G) <= FEW:
        return np.asarray(np.linalg.eigvalsh(G)[:, -1])
    return search(Stack(G, sizes))


def _sparse_batch(problem: LinearModel, devices: NDArray[np.intp], search: Search) -> Array:
    """Some devices as one block-diagonal matrix: of their rows where they have fewer of them than features."""
    counts, scale = problem.counts[devices], problem.curvature / problem.counts[devices]
    rows = _rows(problem, devices)
    if not problem.intercept and counts.max() <= problem.features:
        tiny = counts.max() <= FEW_ROWS
        tops = tops_of_stack(tiny_grams(rows, counts)) if tiny else search(by_rows(rows, counts))
        return tops * scale + problem.mu
    found = by_features(rows, counts, scale, problem.penalty)
    # a feature that no row has curves by its penalty alone
    return np.maximum(search(found), np.where(found.sizes < problem.features, problem.mu, 0))


def _rows(problem: LinearModel, devices: NDArray[np.intp]) -> Any:
    """The rows of some devices, one after the other."""
    first, last = problem.starts[devices], problem.starts[devices + 1]
    if (first[1:] == last[:-1]).all():
        at: Any = slice(int(first[0]), int(last[-1]))
    else:
        counts = last - first
        at = np.arange(counts.sum()) + np.repeat(first - np.cumsum(counts) + counts, counts)
    return problem.table.rows(at if problem._order is None else problem._order[at])
