"""The sketches that devices in this process make, and what each remembers of its last one.

A device starts the search for its eigenpairs where the last one ended. Asked about the same point again, as when a
stopped run goes on, it sends the same sketch again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.methods.base import SketchWork
from ownstep.smoothness.sketch import Sketch, own_sketch, rank_of, shared_matrix, span_of
from ownstep.support.errors import InvalidInput
from ownstep.support.vectors import like, to_numpy

MOST_KEPT = 2**27
"""Numbers that all devices of one process keep for a warm start; beyond, every search starts anew."""

MOST_DECOMPOSED = 2000
"""Coordinates of a Hessian that is decomposed whole: seconds per device."""


class Sketching:
    """Makes the sketches of a problem's devices."""

    def __init__(self, problem: Any) -> None:
        self.problem = problem
        self.point: Any = None
        self.last: dict[int, Sketch] = {}
        self.fresh = np.zeros(len(problem.weights), bool)
        self.anchor: Any = None
        self.spectra: dict[int, tuple[NDArray[np.float64], NDArray[Any]]] = {}

    @property
    def ranks(self) -> list[int]:
        """The ranks of the sketches sent so far, one per device that sent any."""
        return [len(sketch.values) for sketch in self.last.values()]

    def own(self, x: Any, work: SketchWork, present: NDArray[np.bool_]) -> tuple[Sketch | None, ...]:
        """One sketch per device that is present."""
        require_products(self.problem)
        if work.skip is not None:
            return self._following(x, work)
        same = self.point is not None and bool((to_numpy(self.point) == to_numpy(x)).all())
        self.fresh = self.fresh & same
        self.point = x
        return tuple(self._one(i, x, work) if here else None for i, here in enumerate(present))

    def _following(self, x: Any, work: SketchWork) -> tuple[Sketch, ...]:
        """The next eigenpairs of every device's Hessian at the point of the last renewal."""
        assert work.skip is not None
        if self.problem.dim > MOST_DECOMPOSED:
            raise InvalidInput(
                f"SHED() decomposes Hessians of at most {MOST_DECOMPOSED} coordinates, here are {self.problem.dim}; "
                "OwnCurvature() has no such limit"
            )
        if work.skip == 0 or self.anchor is None:  # a device that was started anew has none
            self.anchor, self.spectra = x, {}
        made, some = [], slice(work.skip, work.skip + work.rank)
        for i in range(len(self.problem.weights)):
            H = self.problem.data_hessian(self.anchor, i)
            if i not in self.spectra:
                whole = to_numpy(H @ like(np.eye(H.dim, dtype=to_numpy(x[:1]).dtype), x)).astype(float)
                values, V = np.linalg.eigh((whole + whole.T) / 2)
                order = np.argsort(-np.abs(values), kind="stable")
                self.spectra[i] = np.abs(values[order]), V[:, order].T.astype(to_numpy(x[:1]).dtype)
            values, V = self.spectra[i]
            after = float(values[some.stop]) if some.stop < len(values) else 0.0
            made.append(Sketch(like(V[some], x), values[some], after, H.penalty, H.free))
        return tuple(made)

    def _one(self, i: int, x: Any, work: SketchWork) -> Sketch:
        known, name = self.last.get(i), self.problem.names[i]
        if known is not None and self.fresh[i]:
            return known
        H = self.problem.data_hessian(x, i)
        rank = rank_of(work.rank, H.dim, H.count, work.revealing, name)
        start = None if known is None or len(known.values) != rank else known.vectors
        try:
            vectors, values = own_sketch(H, rank, work.seed, start)
        except np.linalg.LinAlgError:  # of numbers that are not finite
            values = np.array([np.nan])
        if not np.isfinite(values).all():
            raise InvalidInput(f"the Hessian products of device {name!r} are not finite; LBFGS() needs none")
        sketch = Sketch(vectors, values, H.trace, H.penalty, H.free, H.span)
        if len(self.fresh) * vectors.size <= MOST_KEPT if isinstance(vectors, np.ndarray) else True:
            self.last[i] = sketch
        self.fresh[i] = True
        return sketch

    def shared(self, x: Any, work: SketchWork, mix: NDArray[np.float64]) -> Sketch:
        """sum_i c_i H_i Omega, the sum of the traces and of the spans, and the penalty's share."""
        require_products(self.problem)
        first = self.problem.data_hessian(x, 0)
        omega, total, trace, span = shared_matrix(work.seed, first.dim, work.rank, x), None, 0.0, 0
        for i in np.flatnonzero(mix):
            H = first if i == 0 else self.problem.data_hessian(x, int(i))
            image = float(mix[i]) * (H @ omega)
            total, trace = image if total is None else total + image, trace + float(mix[i]) * H.trace
            span += H.span
        if total is None:
            total = 0.0 * omega
        if not np.isfinite(to_numpy(total)).all():
            raise InvalidInput("the devices' Hessian products are not finite; LBFGS() needs none")
        return Sketch(total.T, np.zeros(0), trace, float(mix.sum()) * first.penalty, first.free, span)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """For a checkpoint."""
        anchored = {} if self.anchor is None else {"sketch_anchor": to_numpy(self.anchor)}
        if not self.last:
            return anchored
        kept: dict[str, NDArray[Any]] = anchored | {"sketch_point": to_numpy(self.point), "sketch_fresh": self.fresh}
        for i, s in self.last.items():
            kept[f"sketch_vectors_{i}"] = to_numpy(s.vectors)
            kept[f"sketch_numbers_{i}"] = np.array([s.trace, s.penalty, s.free, span_of(s), *s.values])
        return kept

    def restore(self, arrays: dict[str, NDArray[Any]], template: Any) -> None:
        """From a checkpoint."""
        if "sketch_anchor" in arrays:
            self.anchor = like(arrays.pop("sketch_anchor"), template)
        if "sketch_point" not in arrays:
            return
        self.point, self.fresh = like(arrays.pop("sketch_point"), template), arrays.pop("sketch_fresh")
        for key in [key for key in arrays if key.startswith("sketch_vectors_")]:
            i = int(key.rsplit("_", 1)[1])
            numbers, vectors = arrays.pop(f"sketch_numbers_{i}"), like(arrays.pop(key), template)
            (trace, penalty, free, *span), values = np.split(numbers, [len(numbers) - len(vectors)])
            whole = int(span[0]) if span else None  # not among the numbers of checkpoints written by 0.1
            self.last[i] = Sketch(vectors, values, float(trace), float(penalty), int(free), whole)


def require_products(problem: Any) -> None:
    """Refuse a problem without Hessian products, naming a method that needs none."""
    if not hasattr(problem, "data_hessian"):
        raise InvalidInput(
            f"{type(problem).__name__} has no Hessian products, which methods with sketches need; LBFGS() needs none"
        )
