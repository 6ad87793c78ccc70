"""The largest Hessian eigenvalue at given parameters, from Hessian-vector products alone.

Lanczos iteration with full reorthogonalisation: after m products the extreme eigenvalues theta of a small
tridiagonal matrix approximate those of the Hessian, each with a computed error bar

    |theta - lambda| <= beta_m |s_m|,          s_m: last entry of theta's eigenvector,

for some eigenvalue lambda. The local smoothness at x is the larger of |theta_max| and |theta_min|.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ownstep.problems.network.problem import Network
from ownstep.smoothness.base import Smoothness
from ownstep.smoothness.sampled import Region, Sampled, _in_precision, _require_network, differences
from ownstep.support.checks import whole_number
from ownstep.support.errors import InvalidInput, OwnstepError, unknown_name

Product = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Curvature(Smoothness):
    """Extreme Hessian eigenvalues of every device's loss at one point, with error bars.

    Parameters
    ----------
    largest, lowest : the extreme eigenvalues of each Hessian; ``values`` is the larger of their sizes.
    residuals : the error bar of each ``values``.
    pooled_residual : that of ``pooled``.
    products : Hessian-vector products spent in all.
    """

    largest: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    lowest: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    residuals: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    pooled_residual: float = 0.0
    products: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain data for reports."""
        return super().to_dict() | {
            "largest": self.largest.tolist(),
            "lowest": self.lowest.tolist(),
            "residuals": self.residuals.tolist(),
            "pooled_residual": self.pooled_residual,
            "products": self.products,
        }


def power(
    problem: Network,
    x: Any = None,
    tolerance: float = 1e-4,
    most: int = 100,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> Curvature:
    """The curvature of every f_i, and of f, at x.

    Parameters
    ----------
    x : the parameters; ``problem.x0()`` by default.
    tolerance : stop once the error bar is at most this share of the eigenvalue.
    most : Hessian-vector products for each device at most.
    dtype : of the arithmetic; float64 by default.
    """
    _require_network(problem)
    whole_number("most", most, 1)
    if not tolerance > 0:
        raise InvalidInput(f"tolerance must be positive, got {tolerance!r}")
    exact = _in_precision(problem, dtype)
    point = torch.as_tensor(problem.x0() if x is None else x).to(problem.device, dtype)
    every = [_hessian(exact, point, {i: 1.0}) for i in range(len(problem.weights))]
    every.append(_hessian(exact, point, dict(enumerate(problem.weights.tolist()))))
    found = [extremes(product, point, tolerance, most, seed) for product in every]
    largest, lowest, residuals, products = (np.array(column) for column in zip(*found, strict=True))
    sizes = np.maximum(largest, -lowest)
    if not np.isfinite(sizes).all():
        raise OwnstepError("the Hessian at x is not finite")
    return Curvature(
        sizes[:-1], "estimate", f"largest Hessian eigenvalue at one point, Lanczos, {int(products.sum())} products",
        float(sizes[-1]), largest[:-1], lowest[:-1], residuals[:-1], float(residuals[-1]), int(products.sum()),
    )  # fmt: skip


def along(
    problem: Network, points: Mapping[int, Any], how: str = "power", **options: Any
) -> dict[int, Curvature | Sampled]:
    """The measurement at several iterates of a run, by round; collect them with ``run(..., observe=...)``.

    ``how`` is ``"power"``, or ``"differences"`` around each iterate in a region of ``scale`` (0.01 by default).
    """
    if how == "power":
        return {k: power(problem, x, **options) for k, x in points.items()}
    if how == "differences":
        scale = options.pop("scale", 0.01)
        return {k: differences(problem, Region(scale, x), **options) for k, x in points.items()}
    raise unknown_name("measurement", how, ["power", "differences"])


class Snapshots(dict[int, Any]):
    """Iterates kept at chosen rounds: pass it as ``observe`` to ``run``, then to :func:`along`."""

    def __init__(self, rounds: Iterable[int]) -> None:
        super().__init__()
        self.wanted = frozenset(rounds)

    def __call__(self, k: int, x: Any) -> None:
        if k in self.wanted:
            self[k] = x


def _hessian(problem: Network, x: Tensor, weights: dict[int, float]) -> Product:
    """V -> (sum_i weights_i Hessian of f_i at x) v, chunk by chunk: the derivative of <grad, v>."""
    penalised = sum(weights.values())

    def product(v: Tensor) -> Tensor:
        total = torch.zeros_like(v)
        point = x.detach().requires_grad_()
        with torch.enable_grad():
            for i, weight in weights.items():
                for inputs, targets in problem.rows(i):
                    given = tuple(t.to(x.dtype) if t.is_floating_point() else t for t in inputs)
                    aims = targets.to(x.dtype) if targets.is_floating_point() else targets
                    losses = problem.loss(problem._forward(problem.layout.split(point), given), aims)
                    total += _twice(losses.sum() * (weight / float(problem.counts[i])), point, v)
            if problem.penalty is not None:
                total += _twice(penalised * problem.penalty(problem.layout.split(point).values()), point, v)
        return total

    return product


def _twice(value: Tensor, x: Tensor, v: Tensor) -> Tensor:
    (slope,) = torch.autograd.grad(value, x, create_graph=True)
    if not slope.requires_grad:  # linear in x: no curvature
        return torch.zeros_like(v)
    (out,) = torch.autograd.grad(slope @ v, x, allow_unused=True)
    return torch.zeros_like(v) if out is None else out


def extremes(product: Product, like: Tensor, tolerance: float, most: int, seed: int) -> tuple[float, float, float, int]:
    """(largest, lowest eigenvalue, error bar of the larger in size, products) by Lanczos."""
    start = torch.as_tensor(np.random.default_rng(seed).standard_normal(len(like))).to(like)
    basis = [start / start.norm()]
    diagonal: list[float] = []
    side: list[float] = []
    while True:
        w = product(basis[-1])
        diagonal.append(float(w @ basis[-1]))
        V = torch.stack(basis)
        for _ in range(2):  # twice is enough
            w = w - V.T @ (V @ w)
        beta = float(w.norm())
        T = np.diag(diagonal) + np.diag(side, 1) + np.diag(side, -1)
        if not np.isfinite(T).all():
            return np.nan, np.nan, np.nan, len(diagonal)
        theta, s = np.linalg.eigh(T)
        top = -1 if theta[-1] >= -theta[0] else 0
        residual = beta * abs(float(s[-1, top]))
        size = max(abs(float(theta[top])), np.finfo(float).tiny)
        small = beta <= 1e-12 * max(1.0, size)  # an invariant subspace: exact
        if residual <= tolerance * size or small or len(diagonal) == min(most, len(like)):
            return float(theta[-1]), float(theta[0]), residual, len(diagonal)
        side.append(beta)
        basis.append(w / beta)
