"""Linear models whose rows are torch tensors, on a GPU or a CPU: the same objective and calls as the NumPy models.

    f_i(x) = (1/n_i) sum_{j on device i} loss(a_j^T x, y_j) + mu/2 ||x||^2

A round reads the rows twice: z = A x, then A^T w with w the weighted slopes. Points and sums are tensors on the
device, losses per device NumPy arrays in float64. Nothing here needs SciPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ownstep.partition import Partition, as_partition
from ownstep.problems.linear.tensor_rows import TensorRows, place
from ownstep.support.checks import device_weights, number
from ownstep.support.errors import InvalidInput

FEW = 64
"""Devices up to which each one's losses are added up on their own; beyond, they are differences of running sums."""


def binary(z: Tensor, sign: Tensor) -> tuple[Tensor, Tensor]:
    """log(1 + exp(s z)) with the sign s = -y, and its slope, in four passes over z, which is overwritten."""
    margin = z.mul_(sign)
    loss = torch.nn.functional.softplus(margin, threshold=40.0)  # beyond, exp(-40) is less than rounding
    return loss, margin.sigmoid_().mul_(sign)


def multinomial(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Log sum_c exp(z_c) - z_y, and its slope: the softmax, less one at y."""
    log_p = torch.log_softmax(z, dim=1)
    slope = log_p.exp()
    slope.scatter_add_(1, y[:, None], slope.new_full((len(y), 1), -1.0))
    return -log_p.gather(1, y[:, None])[:, 0], slope


def _second_binary(z: Tensor, u: Tensor) -> Tensor:
    p = torch.sigmoid(z)
    return p * (1 - p) * u


def _second_multinomial(z: Tensor, u: Tensor) -> Tensor:
    p = torch.softmax(z, dim=1)
    return p * (u - (p * u).sum(dim=1, keepdim=True))


class TensorLogistic:
    """Logistic regression on torch tensors, for two classes or more; see :func:`~ownstep.problems.logistic_regression`.

    Parameters
    ----------
    rows : (n, d) NumPy array, SciPy sparse array, dense tensor or CSR tensor.
    labels, partition, mu, intercept, weights : as for :class:`~ownstep.problems.linear.model.LinearModel`.
    dtype : of the arithmetic, a NumPy or torch one; float64 by default.
    device : where torch computes, such as ``"cuda"``.
    """

    work = math.inf  # no BLAS threads to choose

    def __init__(
        self,
        rows: Any,
        labels: ArrayLike,
        partition: Partition | None = None,
        mu: float = 1e-3,
        intercept: bool = False,
        weights: ArrayLike | None = None,
        dtype: Any = np.float64,
        *,
        device: str | torch.device,
    ) -> None:
        self.device, self.dtype = torch.device(device), _torch_dtype(dtype)
        y = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
        n = int(rows.shape[0])
        if y.shape != (n,):
            raise InvalidInput(f"{n} rows need {n} labels, got shape {y.shape}")
        self.mu, self.intercept = float(number("mu", mu, 0)), intercept
        partition = as_partition(partition, n)
        self.names, self.counts = partition.names, partition.counts
        share = self.counts / n
        self.weights = share if weights is None else device_weights(weights, len(share))
        self.starts = np.concatenate([[0], np.cumsum(self.counts)])
        order = None
        if (np.diff(partition.device_of) < 0).any():
            order = np.argsort(partition.device_of, kind="stable")
            y = y[order]
        self.table: TensorRows = place(rows, order, intercept, self.dtype, self.device)
        self.features = self.table.shape[1]
        self._encode(y)
        self._owner = torch.as_tensor(np.repeat(np.arange(len(self.counts)), self.counts), device=self.device)
        self._penalty = torch.full((self.features,), self.mu, dtype=self.dtype, device=self.device)
        if intercept:
            self._penalty[-1] = 0

    def _encode(self, y: NDArray[Any]) -> None:
        from ownstep.problems.linear.logistic import classes_of

        self.classes = classes_of(y)
        two = len(self.classes) == 2
        self.outputs = 1 if two else len(self.classes)
        self.curvature, self.curvature_kind = (0.25, "exact") if two else (0.5, "upper bound")
        self._pointwise: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = binary if two else multinomial
        self._second = _second_binary if two else _second_multinomial
        code = np.searchsorted(self.classes, y)
        given = torch.as_tensor(code, device=self.device)
        self._y = (1 - 2 * given).to(self.dtype) if two else given  # what the pointwise loss needs of the label

    @property
    def dim(self) -> int:
        """Length of x: features times outputs."""
        return self.features * self.outputs

    @property
    def strong_convexity(self) -> float:
        """mu, or 0 when an unpenalised intercept leaves one direction free."""
        return 0.0 if self.intercept else self.mu

    @property
    def settings(self) -> dict[str, Any]:
        """What a checkpoint must agree with, as plain data."""
        return {"samples": int(self.starts[-1]), "mu": self.mu, "dtype": str(self.dtype)}

    @property
    def penalty(self) -> NDArray[np.float64]:
        """Diagonal of the L2 term's Hessian, for one output."""
        return np.asarray(self._penalty.cpu().numpy(), float)

    def x0(self) -> Tensor:
        """The origin."""
        return torch.zeros(self.dim, dtype=self.dtype, device=self.device)

    def value(self, x: Tensor) -> float:
        """f(x)."""
        point = self._point(x)
        sums = self._sums(self._pointwise(self.table.times(point), self._y)[0], 0.5 * (x @ self._ridge(x)))
        return float(self.weights @ self._losses(sums))

    def mix(self, x: Tensor, c: NDArray[np.float64]) -> tuple[NDArray[np.float64], Tensor]:
        """(f_i(x) for every device, sum_i c_i grad f_i(x)): one product with A, one with A^T."""
        c = np.asarray(c, float)
        if c.shape[0] != len(self.counts) or c.ndim > 2:
            raise InvalidInput(f"a mix needs one coefficient for each of {len(self.counts)} devices, got {c.shape}")
        z = self.table.times(self._point(x))  # all that follows is handed over while the device is busy with it
        scale, ridge = self._spread((c.T / self.counts).T), self._ridge(x)
        loss, slope = self._pointwise(z, self._y)
        sums = self._sums(loss, 0.5 * (x @ ridge))
        if c.ndim == 1:
            weighted = slope.mul_(scale if slope.ndim == 1 else scale[:, None])
            total = self.table.back(weighted).reshape(-1) + float(c.sum()) * ridge
        else:
            weighted = (slope.reshape(len(slope), -1, 1) * scale.reshape(-1, 1, c.shape[1])).flatten(1)
            total = self.table.back(weighted).reshape(self.dim, -1) + torch.outer(ridge, x.new_tensor(c.sum(axis=0)))
        return self._losses(sums), total

    def gradients(self, x: Tensor) -> Tensor:
        """One row per device: grad f_i(x), or grad f_i(x_i) when x has one row per device."""
        return self.each(x)[1]

    def each(self, x: Tensor) -> tuple[NDArray[np.float64], Tensor]:
        """(f_i for every device, one row per device: grad f_i), at x or at row i of x."""
        points = torch.as_tensor(x, dtype=self.dtype, device=self.device).expand(len(self.counts), self.dim)
        losses, out = [], torch.empty(points.shape, dtype=self.dtype, device=self.device)
        for i, point in enumerate(points):
            at = slice(int(self.starts[i]), int(self.starts[i + 1]))
            rows, ridge = self.table.part(at), self._ridge(point)
            loss, slope = self._pointwise(rows.times(self._point(point)), self._y[at])
            losses.append(loss.sum(dtype=torch.float64) / int(self.counts[i]) + 0.5 * (point @ ridge))
            out[i] = rows.back(slope).reshape(-1) / int(self.counts[i]) + ridge
        return torch.stack(losses).cpu().numpy(), out

    def hessian_product(self, x: Tensor, v: Tensor) -> Tensor:
        """(the Hessian of f at x) times v, without forming it."""
        scale = self._spread(self.weights / self.counts)
        curved = self._second(self.table.times(self._point(x)), self.table.times(self._point(v)))
        return self.table.back(curved * (scale if curved.ndim == 1 else scale[:, None])).reshape(-1) + self._ridge(v)

    def reweighted(self, weights: ArrayLike) -> TensorLogistic:
        """The same data with other weights, scaled to sum to one."""
        w, other = np.asarray(weights, float), copy(self)
        other.weights = device_weights(w / w.sum(), len(self.counts))
        return other

    def _point(self, x: Tensor) -> Tensor:
        if tuple(x.shape) != (self.dim,):
            raise InvalidInput(f"x must have shape ({self.dim},), got {tuple(x.shape)}")
        x = x.to(self.device, self.dtype)
        return x if self.outputs == 1 else x.view(self.features, self.outputs)

    def _spread(self, values: NDArray[np.float64]) -> Tensor:
        """One entry per device, for each of its rows."""
        given = torch.as_tensor(values, dtype=self.dtype).to(self.device, non_blocking=True)
        return given if len(given) == 1 else given[self._owner]

    def _ridge(self, x: Tensor) -> Tensor:
        return (x.view(self.features, self.outputs) * self._penalty[:, None]).reshape(-1)

    def _sums(self, loss: Tensor, ridge: Tensor) -> Tensor:
        """Every device's sum of losses, and the ridge term: still on the device, so that nothing waits for it."""
        if len(self.counts) <= FEW:
            sums = torch.stack([part.sum(dtype=torch.float64) for part in loss.split(self.counts.tolist())])
        else:
            running = loss.cumsum(0, dtype=torch.float64)[torch.as_tensor(self.starts[1:] - 1, device=self.device)]
            sums = running.diff(prepend=running.new_zeros(1))
        return torch.cat([sums, ridge.double()[None]])

    def _losses(self, sums: Tensor) -> NDArray[np.float64]:
        """f_i(x) for every device: the one wait of a round, once all of it has been handed to the device."""
        found = sums.cpu().numpy()
        return np.asarray(found[:-1] / self.counts + found[-1], float)


def _torch_dtype(dtype: Any) -> torch.dtype:
    if isinstance(dtype, torch.dtype):
        return dtype
    name = np.dtype(dtype).name
    if name not in ("float32", "float64"):
        raise InvalidInput(f"dtype must be float32 or float64 on a device, got {name}")
    return {"float32": torch.float32, "float64": torch.float64}[name]
