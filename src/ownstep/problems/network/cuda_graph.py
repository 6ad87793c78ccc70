"""A fixed computation recorded once as a CUDA graph and replayed: no launch overhead, the same numbers.

What ``torch.compile`` has fused is trusted only after one comparison with the same operations unfused: a compiler can
be wrong. On an H200, torch 2.11 gave NaN in one gradient of an encoder, for some lengths of its sentences.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

WARM_UP = 3
TRUST, SMALL = 0.02, 0.01
"""How far, relatively, a fused result may lie from the unfused one (tf32 alone moves a gradient by up to 0.007); a
gradient smaller than this share of the largest is measured by that share."""

Function = Callable[..., tuple[Tensor, ...]]
Pieces = Callable[[tuple[Tensor, ...]], Sequence[Tensor]]


def unfused() -> AbstractContextManager[None]:
    """Inside it, whatever was compiled runs operation by operation."""
    plain: AbstractContextManager[None] = torch.compiler.set_stance("force_eager")
    return plain


def fault(function: Function, *arguments: Tensor, pieces: Pieces = tuple, trust: float = TRUST) -> str | None:
    """What is wrong with a compiled function's results at these arguments; empty if nothing is.

    None where that cannot be told, as all that follows the first result is zero. ``pieces`` are what is compared, one
    by one.
    """
    with unfused():
        plain = [t.double() for t in pieces(function(*arguments))]
    try:
        fused = [t.double() for t in pieces(function(*arguments))]
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # of the compiler or of what it needs, such as a C++ compiler that is not there
        return f"torch.compile failed: {' '.join(str(error).splitlines()[:2])}"
    sizes = [float(t.norm()) for t in plain]
    others = [size for size in sizes[1:] or sizes if math.isfinite(size)]  # the first, a loss, has another scale
    largest = max(others, default=0.0)
    for i, (mine, theirs, size) in enumerate(zip(fused, plain, sizes, strict=True)):
        floor = size if i == 0 else max(size, SMALL * largest)
        gap = float((mine - theirs).norm()) / max(floor, sys.float_info.min)
        if math.isfinite(size) and not gap <= trust:
            return f"fused by torch {torch.__version__} its results differ by {gap:.2g}"
    return "" if largest > 0 else None


class Replay:
    """``function(*tensors) -> tensors`` of fixed shapes.

    On a GPU the first call records it and later calls copy their arguments in and replay; elsewhere, or where
    recording fails, every call is a plain one, and ``note`` says why. Results are overwritten by the next call. A
    ``fused`` function is compared with itself unfused, ``pieces`` by piece, until that says something, and run unfused
    where the two differ.
    """

    def __init__(self, function: Function, enabled: bool = True, fused: bool = False, pieces: Pieces = tuple) -> None:
        self.function, self.enabled, self.pieces = function, enabled, pieces
        self.doubted, self.distrusted = fused, ""
        self.how = "" if enabled else "plain calls"
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: tuple[Tensor, ...] = ()
        self._outputs: tuple[Tensor, ...] = ()

    @property
    def note(self) -> str:
        """How it is run, and why not faster."""
        return f"{self.how}; not fused: {self.distrusted}" if self.distrusted else self.how

    @property
    def recorded(self) -> bool:
        """Are results buffers that the next call overwrites?"""
        return self._graph is not None

    def __call__(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        """The function's results; arguments that are already the recorded buffers are not copied."""
        if self.doubted:
            found = fault(self.function, *arguments, pieces=self.pieces)
            if found is None:
                with unfused():
                    return self.function(*arguments)
            self.doubted, self.distrusted = False, found
        with unfused() if self.distrusted else nullcontext():
            if self._graph is None and self.enabled:
                self._record(arguments)
            if self._graph is None:
                return self.function(*arguments)
        for mine, given in zip(self._inputs, arguments, strict=True):
            if mine is not given:
                mine.copy_(given)
        self._graph.replay()
        return self._outputs

    def _record(self, arguments: tuple[Tensor, ...]) -> None:
        if not arguments[0].is_cuda:
            self.enabled, self.how = False, "plain calls: not on a GPU"
            return
        try:
            self._inputs = tuple(a.detach().clone() for a in arguments)
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARM_UP):
                    self.function(*self._inputs)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._outputs = self.function(*self._inputs)
            self._graph, self.how = graph, "CUDA graph"
        except RuntimeError as error:
            torch.cuda.synchronize()
            self.enabled, self.how = False, f"plain calls: {str(error).splitlines()[0]}"
