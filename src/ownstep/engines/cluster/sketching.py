"""Sketches of devices on many ranks: every rank makes those of its own devices, and all get all of them.

A shared sketch is a sum, so it is one all-reduce; own eigenpairs travel to every rank, as all hold the same state.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ownstep.engines.cluster.shared import Shared
from ownstep.engines.local.sketching import Sketching
from ownstep.methods import Sketch, SketchWork
from ownstep.smoothness.sketch import span_of
from ownstep.support.vectors import like, to_numpy


class SharedSketching(Sketching):
    """What this rank's devices remember of their last sketches; for a checkpoint, what all do."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared.problem)
        self.everyone = shared
        self.sent: dict[int, Sketch] = {}
        self.sent_fresh = np.zeros(len(shared.weights), bool)

    def own(self, x: Any, work: SketchWork, present: NDArray[np.bool_]) -> tuple[Sketch | None, ...]:
        """One sketch per device that is present, on whichever rank it lives."""
        same = self.point is not None and bool((to_numpy(self.point) == to_numpy(x)).all())
        made = super().own(x, work, present[self.everyone.mine])
        data = b"".join(_packed(sketch) for sketch in made if sketch is not None)
        arrived = iter(_unpacked(b"".join(self.everyone.ranks.gather(data)), x))
        found = tuple(next(arrived) if here else None for here in present)
        self.sent |= {i: sketch for i, sketch in enumerate(found) if sketch is not None}
        self.sent_fresh = (self.sent_fresh & same) | present
        return found

    def shared(self, x: Any, work: SketchWork, mix: NDArray[np.float64]) -> Sketch:
        """sum_i c_i H_i Omega over the devices of all ranks."""
        part, ranks = super().shared(x, work, mix[self.everyone.mine]), self.everyone.ranks
        numbers = np.zeros((3, ranks.size))
        numbers[:, ranks.rank] = part.trace, part.penalty, part.span or 0
        total, numbers = ranks.add(part.vectors, numbers.ravel())
        trace, penalty, span = numbers.reshape(3, -1).sum(axis=1).tolist()
        return Sketch(total, np.zeros(0), trace, penalty, part.free, round(span))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """For a checkpoint: of all devices, as the local engine writes them."""
        whole = Sketching(self.everyone)
        whole.point, whole.last, whole.fresh = self.point, self.sent, self.sent_fresh
        return whole.arrays()

    def restore(self, arrays: dict[str, NDArray[Any]], template: Any) -> None:
        """From a checkpoint: this rank's devices' part of it."""
        whole = Sketching(self.everyone)
        whole.restore(arrays, template)
        self.point, self.sent, self.sent_fresh = whole.point, whole.last, whole.fresh
        mine = self.everyone.mine
        self.last = {k: self.sent[i] for k, i in enumerate(mine.tolist()) if i in self.sent}
        self.fresh = self.sent_fresh[mine]


def _packed(sketch: Sketch) -> bytes:
    """Two whole numbers, five real ones and the values, then the vectors: nothing that could be executed."""
    vectors = np.ascontiguousarray(to_numpy(sketch.vectors))
    numbers = [*vectors.shape, vectors.itemsize, sketch.trace, sketch.penalty, sketch.free]
    numbers += [span_of(sketch), *sketch.values]
    return np.array([len(numbers), *numbers], float).tobytes() + vectors.tobytes()


def _unpacked(data: bytes, template: Any) -> list[Sketch]:
    found, at = [], 0
    while at < len(data):
        count = int(np.frombuffer(data, float, 1, at)[0])
        k, d, size, trace, penalty, free, span, *values = np.frombuffer(data, float, count, at + 8).tolist()
        at += 8 * (count + 1)
        kind = np.float64 if size == 8 else np.float32
        vectors = np.frombuffer(data, kind, int(k * d), at).reshape(int(k), int(d))
        at += int(k * d * size)
        found.append(Sketch(like(vectors.copy(), template), np.array(values), trace, penalty, int(free), int(span)))
    return found
