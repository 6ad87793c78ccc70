"""A fixed computation recorded once as a CUDA graph and replayed: no launch overhead, the same numbers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

WARM_UP = 3


class Replay:
    """``function(*tensors) -> tensors`` of fixed shapes.

    On a GPU the first call records it and later calls copy their arguments in and replay; elsewhere, or where
    recording fails, every call is a plain one, and ``note`` says why. Results are overwritten by the next call.
    """

    def __init__(self, function: Callable[..., tuple[Tensor, ...]], enabled: bool = True) -> None:
        self.function, self.enabled = function, enabled
        self.note = "" if enabled else "plain calls"
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: tuple[Tensor, ...] = ()
        self._outputs: tuple[Tensor, ...] = ()

    def __call__(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        """The function's results; arguments that are already the recorded buffers are not copied."""
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
            self.enabled, self.note = False, "plain calls: not on a GPU"
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
            self._graph, self.note = graph, "CUDA graph"
        except RuntimeError as error:
            torch.cuda.synchronize()
            self.enabled, self.note = False, f"plain calls: {str(error).splitlines()[0]}"
