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
from functools import cache
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
APART = 1e-3
"""Least over largest eigenvalue of B^T B from which one division by its root makes the columns of B orthonormal."""
TAKEN = 1e-4
"""Share of a squared length below which what is left of a vector is made orthogonal once more."""
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
            f"a sketch of rank {rank} would show the span of the {rows} rows of device {name!r}, which sends at most "
            f"{most}; give a smaller rank, or allow it: OwnCurvature(rank={rank}, revealing=True), or --revealing"
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
    _keep_freed_memory()
    warm, block = start is not None and len(start) >= rank, min(d, rank + OVERSAMPLING)
    blocks = (WARM if warm else COLD)[operator.convex]
    root = operator.root() if operator.convex and operator.count < d else None
    if root is not None and not warm and root.entries < d * block > MOST_NORMAL:  # even to draw a block takes longer
        drawn = _signs(seed, operator.count, block, operator.template)
        vectors, values = _from_rows(root, root @ root.back(drawn), blocks, rank)
    else:
        first = start.T if warm else like(_drawn(seed, d, block, operator.template), operator.template)
        if root is not None:
            vectors, values = _from_rows(root, root @ root.narrow(first), blocks, rank)
        else:
            vectors, values = _krylov(operator, first, blocks, rank)
    vectors = vectors[:rank]  # laid out as a checkpoint gives them back: products then round alike
    whole = np.ascontiguousarray(vectors) if isinstance(vectors, np.ndarray) else vectors.contiguous()
    return whole, values[:rank]


@cache
def _keep_freed_memory() -> None:
    """Let the C library keep freed memory: else it gives back every block of megabytes, and maps it anew page by page.

    GNU's malloc maps blocks apart that are larger than any it has seen freed, up to 32 MB, and keeps twice as much at
    the end of its heap (mallopt(3)). One such block, never written to, is freed here. Elsewhere it does nothing.
    """
    np.empty(2**22 - 2**12)


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
    formula gives for [Omega, H Omega]. With few rows P is I. A basis is kept as B and a small T, B T orthonormal, so
    that no long product is spent on T. Its pairs are those of the small (A^T B T)^T (A^T B T).
    """
    few = len(seen) <= blocks * seen.shape[1]
    B, T = seen, None if few else _whitening(seen.T @ seen)
    if T is None:
        B = np.eye(len(seen), dtype=seen.dtype) if few else qr(seen)
        T = np.eye(B.shape[1], dtype=B.dtype)
    backs, turns = [root.back(B)], [T]
    if blocks > 1 and not few:
        image = root @ backs[0]
        inner = B.T @ image
        B, more, side = _beyond(image, B, T, inner)
        backs, turns = [*backs, root.back(B)], [T, more]
        own = more.T @ (backs[1].T @ backs[1]) @ more
        core = np.block([[T.T @ inner @ T, side], [side.T, own]])
    else:
        core = T.T @ (backs[0].T @ backs[0]) @ T
    values, W = np.linalg.eigh((core + core.T).astype(float) / 2)
    values, W = values[::-1][:rank], W[:, ::-1][:, :rank]
    if values[-1] > 1e5 * np.finfo(seen.dtype).eps * values[0]:  # else the vectors would not be orthonormal
        halves = np.split((W / np.sqrt(values)).astype(seen.dtype), [len(T)])
        vectors = (T @ halves[0]).T @ backs[0].T
        if len(turns) > 1:
            vectors += (turns[1] @ halves[1]).T @ backs[1].T
        return root.widen(vectors), values
    whole = np.concatenate([back @ turn for back, turn in zip(backs, turns, strict=True)], axis=1)
    vectors, squares = _left_vectors(whole, rank)
    kept = squares > np.finfo(seen.dtype).eps * squares[0]  # the others are rounding
    return root.widen(vectors[kept]), squares[kept]


def _whitening(gram: NDArray[Any]) -> NDArray[Any] | None:
    """T for which B T has orthonormal columns, from B^T B; None where the columns of B are close, or in float32."""
    if gram.dtype.itemsize <= 4:
        return None
    values, W = np.linalg.eigh((gram + gram.T) / 2)
    return np.asarray(W / np.sqrt(values)) if values[0] > APART * values[-1] else None


def _beyond(
    image: NDArray[Any], B: NDArray[Any], T: NDArray[Any], inner: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """(C, S, (B T)^T H C S) with C S an orthonormal basis of what an image H B adds to B T; ``inner`` is B^T H B."""
    along = T.T @ inner
    rest = _minus(image, B @ (T @ along))
    gram = rest.T @ rest
    left = gram.diagonal()
    S = _whitening(gram) if (left > TAKEN * (left + _squares(along))).all() else None
    if S is not None:
        return rest, S, T.T @ gram @ S  # the rest is orthogonal to B
    C = _without(image, B @ T)
    return C, np.eye(C.shape[1], dtype=C.dtype), T.T @ (image.T @ C)


def _without(block: Any, K: Any) -> Any:
    """An orthonormal basis of what a block adds to the orthonormal K, and of any other vectors where it adds fewer."""
    more = _minus(block, K @ (K.T @ block))
    if (_squares(more) < TAKEN * _squares(block)).any():  # much was taken away: rounding is left of K
        more = _minus(more, K @ (K.T @ more))
    basis = qr(more)
    for _ in range(3):  # what stands for nothing but rounding may lie along K
        along = K.T @ basis
        if float(abs(along).max()) < 1e-6:
            break
        basis = qr(_minus(basis, K @ along))
    return basis


def _minus(block: Any, other: Any) -> Any:
    """Subtract the other from the block, in the memory of the other."""
    if isinstance(block, np.ndarray):
        return np.subtract(block, other, out=other)
    return other.neg_().add_(block)


def nystrom(K: Any, image: Any, rank: int | None = None) -> tuple[Any, Array]:
    """(U^T, values) of (H K)(K^T H K)^{-1}(H K)^T, from K and H K, stable for a singular H (Tropp et al. 2017)."""
    size = float((image**2).sum()) ** 0.5
    if not np.isfinite(size):
        raise np.linalg.LinAlgError("the image is not finite")
    if not size:
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
    finite = all(np.isfinite(part).all() for part in (vectors, values, numbers))
    if not finite or np.isinf(sketch.trace):  # nan is a trace that is not known
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
        if values[0] > APART * values[-1]:
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
