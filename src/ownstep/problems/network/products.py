"""Products with the Hessian of one device's loss, for a torch model: the derivative of <grad, v>, chunk by chunk."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from ownstep.problems.network.problem import Network


class DeviceHessian:
    """The Hessian of f_i at x, penalty included: it need not be convex, and its trace is not known.

    Parameters
    ----------
    problem, x, device : whose, where, and of which device; the whole of its data, whatever the batch.
    """

    convex = False
    trace = math.nan
    penalty, free = 0.0, 0

    def __init__(self, problem: Network, x: Tensor, device: int) -> None:
        self.problem, self.device = problem, device
        self.template = x.detach().to(problem.device, problem.dtype)
        self.dim, self.span, self.count = problem.dim, problem.dim, int(problem.counts[device])

    def __matmul__(self, V: Tensor) -> Tensor:
        """H_i V, one column after the other, from one graph per chunk."""
        problem, out = self.problem, torch.zeros_like(V)
        for inputs, targets in problem.rows(self.device):
            out += self._twice(partial(self._loss, inputs, targets), V)
        if problem.penalty is not None:
            penalty = problem.penalty
            out += self._twice(lambda x: penalty(problem.layout.split(x).values()), V)
        return out

    def _loss(self, inputs: tuple[Tensor, ...], targets: Tensor, x: Tensor) -> Tensor:
        problem = self.problem
        return problem.loss(problem._forward(problem.layout.split(x), inputs), targets).sum() / self.count

    def _twice(self, value: Callable[[Tensor], Tensor], V: Tensor) -> Tensor:
        with torch.enable_grad():
            x = self.template.detach().requires_grad_()
            (slope,) = torch.autograd.grad(value(x), x, create_graph=True)
            if not slope.requires_grad:  # linear in x: no curvature
                return torch.zeros_like(V)
            columns = []
            for v in V.T:
                (column,) = torch.autograd.grad(slope @ v, x, retain_graph=True, allow_unused=True)
                columns.append(torch.zeros_like(v) if column is None else column)
        return torch.stack(columns, dim=1)
