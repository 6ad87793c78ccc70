"""Logistic regression, for two classes and for more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ownstep.partition import as_labels, mixed_labels
from ownstep.problems.linear.model import LinearModel
from ownstep.support.errors import InvalidInput, require_extra
from ownstep.support.lazy import LazyModule

if TYPE_CHECKING:
    from ownstep.problems.linear.tensors import TensorLogistic

sp = LazyModule("scipy.sparse")
Array = NDArray[Any]


class Classifier(LinearModel):
    """A linear model of classes.

    Parameters are those of :class:`~ownstep.problems.linear.model.LinearModel`, and

    classes : all of them, in order, where these rows may not have every one: a site's part of the data.
    """

    def __init__(self, rows: Any, targets: ArrayLike, *args: Any, classes: ArrayLike | None = None, **kw: Any) -> None:
        self.classes = np.zeros(0) if classes is None else np.asarray(classes)
        super().__init__(rows, targets, *args, **kw)

    def _codes(self, y: Array) -> NDArray[np.intp]:
        """The place of every label among the classes."""
        if not len(self.classes):
            self.classes = classes_of(y)
        codes = np.minimum(np.searchsorted(self.classes, y), len(self.classes) - 1)
        if (self.classes[codes] != y).any():
            raise InvalidInput(
                f"labels must be one of {self.classes.tolist()!r}, got {y[self.classes[codes] != y].tolist()[0]!r}"
            )
        return codes


class BinaryLogistic(Classifier):
    """Two classes, b_j = -1 or +1.

        f_i(x) = (1/n_i) sum_j log(1 + exp(-b_j a_j^T x)) + mu/2 ||x||^2

    The smaller of the two labels counts as -1. Stable for any |z|: no exponential of a positive number is
    ever taken. Parameters are those of :class:`~ownstep.problems.linear.model.LinearModel`.
    """

    curvature = 0.25
    curvature_kind = "exact"  # reached at x = 0, by every row at once

    def _prepare(self, A: Any, y: Array) -> tuple[Any, Array]:
        codes = self._codes(y)
        if len(self.classes) != 2:
            raise InvalidInput(f"binary logistic regression needs two classes, got {len(self.classes)}")
        sign = np.where(codes == 1, 1.0, -1.0).astype(A.dtype)
        self._folded = sp.issparse(A)
        # b_j is folded into sparse rows: A x is then the margin itself. Dense rows are large, and stay where they are.
        return sp.csr_array(sp.diags_array(sign, dtype=A.dtype) @ A) if self._folded else A, sign

    def samples(self, device: int) -> tuple[Any, Array]:
        """(rows, labels -1 and +1) of a device, as a problem of its own is made from them."""
        sign, rows = self._y[self.block(device)], self.rows(device)
        return sp.csr_array(sp.diags_array(sign) @ rows) if self._folded else rows, sign

    def _pointwise(self, z: Array, block: Any) -> tuple[Array, Array]:
        sign = None if self._folded else self._y[block]
        margin = z if sign is None else z * sign
        e = np.abs(margin)
        np.exp(np.negative(e, out=e), out=e)
        loss = np.log1p(e)
        loss -= np.minimum(margin, 0)
        slope = np.maximum(e, margin < 0)  # e <= 1, so this is 1 where the margin is negative
        slope /= np.subtract(-1, e, out=e)
        return loss, slope if sign is None else slope * sign

    def _second(self, z: Array, u: Array) -> Array:
        e = np.exp(-np.abs(z))
        out: Array = e / (1 + e) ** 2 * u
        return out


class MultinomialLogistic(Classifier):
    """C classes with a softmax; x holds a (features, C) table row by row.

        f_i(x) = (1/n_i) sum_j [ log sum_c exp(a_j^T x_c) - a_j^T x_{y_j} ] + mu/2 ||x||^2

    Parameters are those of :class:`~ownstep.problems.linear.model.LinearModel`.
    """

    curvature = 0.5
    curvature_kind = "upper bound"  # diag(p) - p p^T <= I/2, with equality only for p = (1/2, 1/2, 0, ...)

    def _prepare(self, A: Any, y: Array) -> tuple[Any, Array]:
        codes = self._codes(y)
        self.outputs = len(self.classes)
        return A, codes

    def _pointwise(self, z: Array, block: Any) -> tuple[Array, Array]:
        y = self._y[block]
        at = np.arange(len(y))
        top = z.max(axis=1)
        p = np.exp(z - top[:, None])
        total = p.sum(axis=1)
        loss = np.log(total) + top - z[at, y]
        p /= total[:, None]
        p[at, y] -= 1
        return loss, p

    def _second(self, z: Array, u: Array) -> Array:
        p = self._chances(z)
        out: Array = p * (u - (p * u).sum(axis=1, keepdims=True))
        return out

    def _curved(self, z: Array) -> Array:
        p = self._chances(z)
        out: Array = p[:, :, None] * (np.eye(self.outputs, dtype=z.dtype) - p[:, None, :])
        return out

    def _chances(self, z: Array) -> Array:
        p: Array = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        return p


class ReferenceLogistic(Classifier):
    """C classes with a softmax, the first of them the reference whose coefficients are zero.

        f_i(x) = (1/n_i) sum_j [ log(1 + sum_{c > 0} exp(a_j^T x_c)) - a_j^T x_{y_j} ] + mu/2 ||x||^2,      x_0 = 0

    x holds a (features, C - 1) table row by row. Without an L2 term this has one minimiser where
    :class:`MultinomialLogistic` has a line of them; it is the multinomial logit of statistics.
    """

    curvature = 0.5
    curvature_kind = "upper bound"

    def _prepare(self, A: Any, y: Array) -> tuple[Any, Array]:
        codes = self._codes(y)
        self.outputs = len(self.classes) - 1
        return A, codes

    def _pointwise(self, z: Array, block: slice) -> tuple[Array, Array]:
        z, y = z.reshape(len(z), -1), self._y[block]
        p, log_total = _shares(z)
        at = np.flatnonzero(y)
        loss = log_total
        loss[at] -= z[at, y[at] - 1]
        p[at, y[at] - 1] -= 1
        return loss, p if self.outputs > 1 else p[:, 0]

    def _second(self, z: Array, u: Array) -> Array:
        p = _shares(z.reshape(len(z), -1))[0].reshape(z.shape)
        weighted = (p * u).sum(axis=1, keepdims=True) if z.ndim == 2 else p * u
        out: Array = p * (u - weighted)
        return out


def _shares(z: Array) -> tuple[Array, Array]:
    """(probability of every class but the reference, log of the sum that they are divided by)."""
    top = np.maximum(z.max(axis=1), 0)
    p = np.exp(z - top[:, None])
    total = p.sum(axis=1) + np.exp(-top)
    p /= total[:, None]
    return p, np.log(total) + top


@overload
def logistic_regression(
    rows: Any, labels: ArrayLike, *args: Any, device: None = None, **kwargs: Any
) -> BinaryLogistic | MultinomialLogistic: ...
@overload
def logistic_regression(rows: Any, labels: ArrayLike, *args: Any, device: Any, **kwargs: Any) -> TensorLogistic: ...
def logistic_regression(rows: Any, labels: ArrayLike, *args: Any, device: Any = None, **kwargs: Any) -> Any:
    """:class:`BinaryLogistic` for two classes, :class:`MultinomialLogistic` for more.

    With ``device``, such as ``"cuda"``, the rows and the arithmetic live there as torch tensors: the same objective and
    calls, as :class:`~ownstep.problems.linear.tensors.TensorLogistic`. Rows may then also be dense or CSR tensors.
    """
    if device is not None:
        try:
            from ownstep.problems.linear.tensors import TensorLogistic
        except ModuleNotFoundError as error:
            raise require_extra("torch", "torch") from error
        return TensorLogistic(rows, labels, *args, device=device, **kwargs)
    labels = as_labels(labels)
    model = BinaryLogistic if len(classes_of(labels)) == 2 else MultinomialLogistic
    return model(rows, labels, *args, **kwargs)


def classes_of(labels: Array) -> Array:
    """The different labels in order, at least two."""
    if labels.ndim != 1:
        got = repr(labels.tolist()) if labels.ndim == 0 else f"an array of shape {labels.shape}"
        raise InvalidInput(f"labels must be a list with one label per row, got {got}")
    if not len(labels):
        raise InvalidInput("the table is empty: logistic regression needs rows, each with a label; got 0 labels")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InvalidInput(f"labels must be finite, got {labels[~np.isfinite(labels)][0]}")
    try:
        classes = np.unique(labels)
    except TypeError:
        raise mixed_labels(labels) from None
    if len(classes) < 2:
        raise InvalidInput(f"classification needs at least two classes, all labels are {classes.tolist()[0]!r}")
    return classes
