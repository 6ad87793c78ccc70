"""Smoothness of linear models that live in torch tensors, measured where they live.

L_i = lambda_max( kappa A_i^T A_i / n_i + diag(penalty) ),    by Lanczos in float64 with a computed error bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ownstep.problems.linear.tensors import TensorLogistic
from ownstep.smoothness.base import Smoothness
from ownstep.smoothness.hessian import extremes
from ownstep.support.errors import OwnstepError

GRAM_LIMIT = 1024
"""Features up to which the Gram matrix of dense rows is formed."""

CHUNK = 2**26
"""Numbers of dense rows that are taken to float64 at a time."""


def exact(problem: TensorLogistic, seed: int = 0) -> Smoothness:
    """L_i of every device and the true L of f."""
    spans = [slice(int(a), int(b)) for a, b in zip(problem.starts[:-1], problem.starts[1:], strict=True)]
    penalty = problem._penalty.double()
    if problem.features <= GRAM_LIMIT and hasattr(problem.table, "A") and problem.table.A.layout == torch.strided:
        values, pooled = _from_grams(problem, spans, penalty)
    else:
        values = np.array([_lanczos(problem, [s], np.array([1.0 / (s.stop - s.start)]), penalty, seed) for s in spans])
        pooled = _lanczos(problem, spans, problem.weights / problem.counts, penalty, seed)
    kind: Any = problem.curvature_kind
    return Smoothness(values, kind, "largest eigenvalue of the Hessian bound, on the rows' device", pooled)


def _from_grams(problem: TensorLogistic, spans: list[slice], penalty: Tensor) -> tuple[Any, float]:
    total, values, step = torch.diag(penalty), [], max(1, CHUNK // problem.features)
    A: Tensor = problem.table.A  # type: ignore[attr-defined]
    for span, weight in zip(spans, problem.weights, strict=True):
        gram = torch.zeros_like(total)
        for start in range(span.start, span.stop, step):
            rows = A[start : min(start + step, span.stop)].double()
            gram += rows.T @ rows
        gram *= problem.curvature / (span.stop - span.start)
        values.append(torch.linalg.eigvalsh(gram + torch.diag(penalty))[-1])
        total = total + float(weight) * gram
    return torch.stack(values).cpu().numpy(), float(torch.linalg.eigvalsh(total)[-1])


def _lanczos(problem: TensorLogistic, spans: list[slice], scales: Any, penalty: Tensor, seed: int) -> float:
    parts = [problem.table.part(span) for span in spans] if len(spans) == 1 else [problem.table]
    scale = np.repeat(scales, [s.stop - s.start for s in spans])
    factor = torch.as_tensor(problem.curvature * scale, device=penalty.device)

    def product(v: Tensor) -> Tensor:
        z = parts[0].times(v.to(problem.dtype)).double() * factor
        return parts[0].back(z.to(problem.dtype)).double() + penalty * v

    tolerance = 1e-8 if problem.dtype == torch.float64 else 1e-5
    largest, _, residual, products = extremes(product, penalty, tolerance, 500, seed)
    if not residual <= tolerance * largest:
        raise OwnstepError(f"Lanczos did not converge on the Hessian bound in {products} products")
    return largest
