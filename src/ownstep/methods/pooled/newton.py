"""Newton's method, for few coordinates: the devices send their Hessians, the server adds and solves."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.methods.base import Answer, Ask, Vector
from ownstep.methods.search.searched import Searched, SearchedState, begin
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput
from ownstep.support.vectors import like, to_numpy, upper

SHIFT = 1e-11
"""Added to the scaled diagonal, whose entries are near one, where some directions do not curve at all, as the
common intercept of a softmax: along them the gradient is zero too, so the step stays what it is."""

FLAT = 1e-12
"""Eigenvalues below this share of the largest are raised to it: nothing curves along them that arithmetic could see. No
pivot of the scaled matrix may be smaller."""


@dataclass(frozen=True, eq=False)
class NewtonState(SearchedState):
    """And the upper triangle of the Hessian at the base."""

    triangle: Vector = field(kw_only=True, repr=False)


@dataclass(frozen=True)
class Newton(Searched[NewtonState]):
    """x^{k+1} = x^k - t_k H(x^k)^{-1} grad f(x^k),        H = sum_i w_i H_i.

    Every device sends the upper triangle of its Hessian with its gradient, d(d+1)/2 numbers, and only their sum is
    needed. For generalised linear models with t_k = 1 it is iteratively reweighted least squares (IRLS). The step is
    damped by the line search of More and Thuente where t_k = 1 does not bring enough descent. An H with eigenvalues of
    both signs is replaced by the matrix of their sizes, |H|, so that the direction descends.
    """

    def start(self, x0: Vector, devices: Devices) -> NewtonState:
        """Nothing is known at x0."""
        return NewtonState(**begin(x0, devices), triangle=0.0 * x0)

    def ask(self, state: NewtonState) -> Ask:
        """Grad f and the Hessian at the trial."""
        return Ask(state.x, state.devices.weights, base=self._compared(state), hessian=True)

    def _keep(self, state: NewtonState, answer: Answer) -> NewtonState:
        if answer.hessian is None:
            raise InvalidInput("Newton needs devices that send their Hessians; LBFGS() needs gradients alone")
        return super()._keep(replace(state, triangle=answer.hessian), answer)

    def _set_out(self, state: NewtonState, gradient: Vector) -> NewtonState:
        step = newton_step(to_numpy(state.triangle), to_numpy(gradient))
        return self._along(state, gradient, like(step.astype(to_numpy(gradient).dtype), gradient), 1.0)


def newton_step(triangle: NDArray[Any], gradient: NDArray[Any]) -> NDArray[np.float64]:
    """-|H|^{-1} g for the symmetric H with this upper triangle; nan where H is 0, and there is no such step.

    H is scaled to a diagonal near one first, so that columns in other units (kilometres for millimetres) are no reason
    to think that H does not curve along them. The scales are powers of two: a step that needs none keeps every bit.
    """
    from scipy.linalg.lapack import dpotrf, dpotrs  # here, so that the folder needs numpy alone

    d = len(gradient)
    H = np.zeros((d, d))
    H[upper(d)] = triangle
    if not H.any():
        return np.full(d, np.nan)
    scale = _powers_of_two(H.diagonal())
    H *= scale * scale[:, None]
    scaled = scale * gradient.astype(float)
    for shift in (0.0, SHIFT):
        H.flat[:: d + 1] += shift
        factor, failed = dpotrf(H.T, lower=1)  # H.T is in Fortran's order, and its lower triangle is H's upper one
        if failed:
            continue  # not positive definite
        if factor.diagonal().min() ** 2 > FLAT:
            return np.asarray(-scale * dpotrs(factor, scaled, lower=1)[0])
    values, vectors = np.linalg.eigh(H / (scale * scale[:, None]), UPLO="U")
    sizes = np.maximum(np.abs(values), FLAT * np.abs(values).max())
    return np.asarray(-vectors @ ((vectors.T @ gradient) / sizes))


def _powers_of_two(diagonal: NDArray[Any]) -> NDArray[np.float64]:
    """Near 1 / sqrt(diagonal); one where nothing curves."""
    return np.asarray(np.ldexp(1.0, -(np.frexp(np.abs(diagonal))[1] // 2)))
