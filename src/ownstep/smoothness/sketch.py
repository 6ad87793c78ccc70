"""A device's curvature in a few vectors: leading eigenpairs of the Hessian of its data term, and what is left.

    Hessian of f_i  ~  U (diag(values) - rest I) U^T + rest I + diag(penalty),    rest = (trace - sum values) / (r - k)

r = d, or fewer where the data term is flat in some directions whatever x is: n rows give at most n eigenvalues.

The pairs come from products with blocks of vectors. Cold, a random block Q_0 is multiplied, its image orthogonalised to
Q_1 and multiplied again; with K = [Q_0, Q_1] and a convex data term

    H  ~  (H K) (K^T H K)^{-1} (H K)^T        (Nystrom),

whose error is the square of the error of K. Warm, K is the last U and one product is enough. Where the data term is not
convex (networks), the eigenvalues of K^T H K are taken, by their size, with one block more in K.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.support.errors import InvalidInput
from ownstep.support.vectors import like, to_numpy

Array = NDArray[np.float64]
OVERSAMPLING = 4
"""Vectors in a random block beyond the rank."""
COLD, WARM = {True: 2, False: 3}, {True: 1, False: 2}
"""Blocks multiplied, the first one random or the last sketch, for a convex data term and for another. Nystrom looks at
the image of the last block, Ritz at the blocks alone: without a second one it would never leave the old span."""
MOST_NORMAL = 2**18
"""Numbers of a random block that are drawn from a normal distribution; a larger one has random signs."""
REVEALING = 0.5
"""Share of a device's rows: with a rank near the number of its rows, a sketch gives away the span of those rows."""


@dataclass(frozen=True, eq=False)
class Sketch:
    """The curvature of f_i at a point, or of a weighted sum of them.

    Parameters
    ----------
    vectors : (k, d) orthonormal rows, U^T; for a shared sketch the rows of (sum_i c_i H_i Omega)^T, not orthonormal.
    values : (k,) eigenvalues of the Hessian of the data term, or their sizes where it is not convex, largest first;
        empty for a shared sketch.
    trace : of the Hessian of the data term; nan where it is not known (networks).
    penalty, free : the diagonal of the penalty's Hessian: ``penalty`` in every coordinate but the last ``free``.
    span : r, at most so many eigenvalues of the data term are not 0; d by default.
    """

    vectors: Any = field(repr=False)
    values: Array
    trace: float
    penalty: float = 0.0
    free: int = 0
    span: int | None = None

    @property
    def left(self) -> float:
        """The trace of what is left: d - k times half the smallest value kept where the trace is not known."""
        k, d = self.vectors.shape
        if np.isnan(self.trace):
            return float(self.values[-1]) / 2 * int(d - k) if k else 0.0
        return max(0.0, float(self.trace) - float(self.values.sum()))

    @property
    def rest(self) -> float:
        """The mean curvature of what is left, of this device alone."""
        others = span_of(self) - len(self.values)
        return self.left / others if others > 0 else 0.0

    def resolved(self, seed: int) -> Sketch:
        """A shared sketch as the eigenpairs it stands for, by Nystrom's formula; any other as it is."""
        if len(self.values) or not len(self.vectors):
            return self
        k, d = self.vectors.shape
        vectors, values = nystrom(shared_matrix(seed, d, k, self.vectors[0]), self.vectors.T)
        return Sketch(vectors, values, self.trace, self.penalty, self.free, self.span)


def span_of(sketch: Sketch) -> int:
    """How many directions the data term may curve in."""
    d = int(sketch.vectors.shape[1])
    return d if sketch.span is None else min(d, sketch.span)


def rank_of(rank: int, dim: int, rows: int, revealing: str, name: str) -> int:
    """The rank a device sends: at most d and its rows, and by :data:`REVEALING` at most half of those."""
    most = int(REVEALING * rows)
    if revealing == "refuse" and min(rank, dim, rows) > most:
        raise InvalidInput(
            f"a sketch of rank {rank} would show the span of the {rows} rows of device {name!r}; at most "
            f"{most} are sent unless allowed by name: OwnCurvature(rank={rank}, revealing=True)"
        )
    return min(rank, dim, rows if revealing == "allow" else most)


def own_sketch(operator: Any, rank: int, seed: int, start: Any = None) -> tuple[Any, Array]:
    """(U^T, values): the leading eigenpairs of an operator that knows ``@``, ``dim``, ``convex`` and ``template``.

    Parameters
    ----------
    rank : how many, at most ``operator.dim``.
    seed : of the random block.
    start : (k, d) rows of the last sketch, or None.
    """
    d = operator.dim
    if not rank:
        return operator.template[None][:0] + 0.0, np.zeros(0)
    warm, block = start is not None and len(start) >= rank, min(d, rank + OVERSAMPLING)
    blocks = (WARM if warm else COLD)[operator.convex]
    root = operator.root() if operator.convex and operator.count < d else None
    if root is not None and not warm and root.entries < d * block > MOST_NORMAL:  # even to draw a block takes longer
        drawn = _signs(seed, operator.count, block, operator.template)
        vectors, values = _from_rows(root, root @ root.back(drawn), blocks, rank)
    else:
        first = start.T if warm else like(_drawn(seed, d, block, operator.template), operator.template)
        if root is not None:
            vectors, values = _from_rows(root, root @ first, blocks, rank)
        else:
            vectors, values = _krylov(operator, first, blocks, rank)
    vectors = vectors[:rank]  # laid out as a checkpoint gives them back: products then round alike
    whole = np.ascontiguousarray(vectors) if isinstance(vectors, np.ndarray) else vectors.contiguous()
    return whole, values[:rank]


def _krylov(operator: Any, first: Any, blocks: int, rank: int) -> tuple[Any, Array]:
    """The pairs seen from the span of a block and its images."""
    d, loose = operator.dim, operator.convex and blocks == 2 and 4 * first.shape[1] <= operator.dim
    orthonormal = blocks == WARM[operator.convex]  # the last sketch
    newest = first if loose or orthonormal else qr(first)  # for Nystrom's formula any basis will do
    K, image = newest, operator @ newest
    last = image
    while (blocks := blocks - 1) > 0 and K.shape[1] < d:
        newest = qr(last) if loose else _without(last[:, : d - K.shape[1]], K)
        last = operator @ newest
        K, image = _beside(K, newest), _beside(image, last)
    return nystrom(K, image, rank) if operator.convex else ritz(K, image)


def _from_rows(root: Any, seen: Any, blocks: int, rank: int) -> tuple[Any, Array]:
    """The pairs of A^T A for a wide A, (n, d): whatever is made orthonormal has length n.

    With ``seen`` = A Omega and P the projection on the span of [A Omega, A A^T A Omega], A^T P A is what Nystrom's
    formula gives for [Omega, H Omega]. With few rows P is I. Where A has few entries, it is multiplied twice more in
    place of products of blocks of length d.
    """
    n, d = root.shape
    K = qr(seen) if n > blocks * seen.shape[1] else np.eye(n, dtype=seen.dtype)
    back, image = root.back(K), None
    if K.shape[1] < n and blocks > 1:
        image = root @ back
        more = _without(image, K)
        K = np.concatenate([K, more], axis=1)
    if root.entries < d * seen.shape[1]:
        image = root @ back if image is None else image
        image = image if K.shape[1] == image.shape[1] else np.concatenate([image, root @ root.back(more)], axis=1)
        core = (K.T @ image).astype(float)
        values, W = np.linalg.eigh((core + core.T) / 2)
        values, W = values[::-1][:rank], W[:, ::-1][:, :rank]
        if values[-1] > 1e5 * np.finfo(K.dtype).eps * values[0]:  # else the vectors would not be orthonormal
            return root.back(K @ (W / np.sqrt(values)).astype(K.dtype)).T, values
    whole = back if K.shape[1] == back.shape[1] else np.concatenate([back, root.back(K[:, back.shape[1] :])], axis=1)
    vectors, squares = _left_vectors(whole, rank)
    kept = squares > np.finfo(K.dtype).eps * squares[0]  # the others are rounding
    return vectors[kept], squares[kept]


def _without(block: Any, K: Any) -> Any:
    """An orthonormal basis of what a block adds to the orthonormal K."""
    more = block - K @ (K.T @ block)
    if (_squares(more) < 1e-4 * _squares(block)).any():  # much was taken away: rounding is left of K
        more = more - K @ (K.T @ more)
    return qr(more)


def nystrom(K: Any, image: Any, rank: int | None = None) -> tuple[Any, Array]:
    """(U^T, values) of (H K)(K^T H K)^{-1}(H K)^T, from K and H K, stable for a singular H (Tropp et al. 2017)."""
    size = float((image**2).sum()) ** 0.5
    if not size > 0:
        return qr(K).T, np.zeros(K.shape[1])
    shift = float(np.finfo(to_numpy(image[:1]).dtype).eps) * size
    moved = image + shift * K
    core = to_numpy(K.T @ moved).astype(float)
    values, W = np.linalg.eigh((core + core.T) / 2)
    kept = values > np.finfo(to_numpy(image[:1]).dtype).eps * values[-1]
    half = moved @ like((W[:, kept] / np.sqrt(values[kept])).astype(to_numpy(image[:1]).dtype), image)
    vectors, squares = _left_vectors(half, rank)
    sound = squares > shift  # what is below the shift was not there before it was added
    return vectors[sound], squares[sound] - shift


def _left_vectors(matrix: Any, rank: int | None = None) -> tuple[Any, Array]:
    """(U^T, the squared singular values, largest first) of a tall matrix; the first ``rank`` of them, or all.

    By the eigenvectors of its Gram matrix, which are orthonormal to eps sigma_1^2 / sigma_k^2; where that is more than
    1e-5, by a QR factorisation, whose vectors are orthonormal whatever the singular values are.
    """
    dtype = to_numpy(matrix[:1]).dtype
    gram = to_numpy(matrix.T @ matrix).astype(float)
    squares, turn = np.linalg.eigh((gram + gram.T) / 2)
    if squares[0] > 1e5 * np.finfo(dtype).eps * squares[-1]:
        squares, turn = squares[::-1][:rank], turn[:, ::-1][:, :rank]
        return (matrix @ like((turn / np.sqrt(squares)).astype(dtype), matrix)).T, squares
    basis = qr(matrix)
    turn, sizes, _ = np.linalg.svd(to_numpy(basis.T @ matrix).astype(float))
    return (basis @ like(turn[:, :rank].astype(dtype), matrix)).T, sizes[:rank] ** 2


def ritz(K: Any, image: Any) -> tuple[Any, Array]:
    """(U^T, |theta|) of K^T H K for orthonormal K, largest size first."""
    core = to_numpy(K.T @ image).astype(float)
    values, W = np.linalg.eigh((core + core.T) / 2)
    order = np.argsort(-np.abs(values), kind="stable")
    vectors = K @ like(W[:, order].astype(to_numpy(image[:1]).dtype), image)
    return vectors.T, np.abs(values[order])


def shared_matrix(seed: int, dim: int, rank: int, template: Any) -> Any:
    """Omega: (d, k) with orthonormal columns, the same on every device for the same (seed, d, k)."""
    return qr(like(_normal(seed, dim, min(rank, dim), template), template))


def checked(sketch: Sketch, dim: int, rank: int, name: str) -> Sketch:
    """A sketch that came from a device: finite, of at most the rank asked for, orthonormal."""
    shape, values = tuple(sketch.vectors.shape), np.asarray(sketch.values)
    if len(shape) != 2 or shape[1] != dim or shape[0] > rank or (values.shape != (shape[0],) and len(values)):
        raise InvalidInput(f"{name}: a sketch of rank {rank} has at most {rank} vectors of length {dim}, got {shape}")
    vectors = to_numpy(sketch.vectors).astype(float)
    numbers = (sketch.penalty, sketch.free, span_of(sketch))
    if not (np.isfinite(vectors).all() and np.isfinite(values).all() and np.isfinite(numbers).all()):
        raise InvalidInput(f"{name}: a sketch with entries that are not finite")
    if len(values):
        gram = vectors @ vectors.T
        if (values < 0).any() or np.abs(gram - np.eye(len(gram))).max() > 1e-3:
            raise InvalidInput(f"{name}: a sketch whose vectors are not orthonormal or whose values are negative")
    return sketch


def _squares(block: Any) -> Any:
    """The squared lengths of the columns."""
    return np.einsum("ij,ij->j", block, block) if isinstance(block, np.ndarray) else (block**2).sum(0)


def qr(matrix: Any) -> Any:
    """Orthonormal columns with the same span, NumPy's or torch's; by Cholesky twice where the columns are not close."""
    if not matrix.shape[1]:
        return matrix
    gram = to_numpy(matrix.T @ matrix).astype(float)
    values, W = np.linalg.eigh((gram + gram.T) / 2)
    if values[0] > 1e-6 * values[-1] and matrix.dtype.itemsize > 4:
        once = matrix @ like(W / np.sqrt(values), matrix)
        if values[0] > 1e-3 * values[-1]:
            return once
        again = np.linalg.cholesky(to_numpy(once.T @ once))
        return once @ like(np.linalg.inv(again).T, matrix)
    if isinstance(matrix, np.ndarray):
        return np.linalg.qr(matrix)[0]
    import torch

    return torch.linalg.qr(matrix)[0]


def _beside(first: Any, second: Any) -> Any:
    if isinstance(first, np.ndarray):
        return np.concatenate([first, second], axis=1)
    import torch

    return torch.cat([first, second], dim=1)


def _drawn(seed: int, dim: int, columns: int, template: Any) -> NDArray[Any]:
    """A random block: of normal numbers, or of signs where drawing those would take longer than multiplying them."""
    if dim * columns <= MOST_NORMAL:
        return _normal(seed, dim, columns, template)
    return _signs(seed, dim, columns, template)


def _signs(seed: int, dim: int, columns: int, template: Any) -> NDArray[Any]:
    bits = np.random.default_rng([seed, dim, columns]).bytes(-(-dim * columns // 8))
    signs = np.unpackbits(np.frombuffer(bits, np.uint8))[: dim * columns].astype(to_numpy(template[:1]).dtype)
    signs -= 0.5
    return signs.reshape(dim, columns)


def _normal(seed: int, dim: int, columns: int, template: Any) -> NDArray[Any]:
    drawn = np.random.default_rng([seed, dim, columns]).standard_normal((dim, columns))
    return drawn.astype(to_numpy(template[:1]).dtype)
