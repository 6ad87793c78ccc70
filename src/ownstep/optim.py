"""Algorithm 1 as a torch optimizer, for people with their own training loop.

    optimizer = OwnStepOptimizer(model.parameters(), devices)
    losses = torch.stack([criterion(model(a), y) for a, y in batches])      # one number per device
    optimizer.zero_grad()
    optimizer.weigh(losses).backward()                                      # one backward pass for all devices
    optimizer.step()

The update is p <- p - lr * s * grad of sum_i (c_i / s) f_i with s = sum_i c_i, where c_i = w_i / L_i in the local phase
and w_i / L_bar in the common one. ``lr`` is 1 and there for schedulers: it multiplies every step. With one device this
is ``torch.optim.SGD(lr=1/L)``, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ownstep.methods import At, Never, OwnStep, Switch, Watch
from ownstep.methods.own.own_step import OwnStepState
from ownstep.plan import Devices
from ownstep.support.errors import InvalidInput

_KEY = "ownstep"


class OwnStepOptimizer(torch.optim.Optimizer):
    """Every device takes its own step 1/L_i until the switch fires, then all take 1/L_bar.

    Parameters
    ----------
    params : parameters or groups, as for any torch optimizer; a group may have its own ``lr``.
    devices : weights w_i and constants L_i.
    switch : when to leave the local phase; :class:`~ownstep.methods.Plateau` by default.
    weights : ``"samples"`` or ``"uniform"``, as for :class:`~ownstep.methods.OwnStep`.
    lr : multiplies every step; 1 is Algorithm 1.
    """

    def __init__(
        self,
        params: Iterable[Any],
        devices: Devices,
        switch: Switch | None = None,
        weights: str = "samples",
        lr: float = 1.0,
    ) -> None:
        if not (math.isfinite(lr) and lr >= 0):
            raise InvalidInput(f"lr multiplies every step and must be at least 0, got {lr!r}")
        self.method = OwnStep(weights=weights) if switch is None else OwnStep(switch, weights)
        self._start = self.method.start(None, devices)
        self.value = math.nan
        super().__init__(params, {"lr": lr})
        self.state[_KEY] = _plain(self._start)

    @property
    def phase(self) -> str:
        """``local``, ``probe`` or ``common``: which steps the coming round takes."""
        return self.method.progress(self._now()).phase

    @property
    def switched_at(self) -> int | None:
        """How many rounds came before the common phase; None while it has not begun."""
        return self._now().watch.fired

    @property
    def mix(self) -> NDArray[np.float64]:
        """c_i of the coming round: the sum of c_i grad f_i is what the round subtracts."""
        mix = self.method.ask(self._now()).mix
        assert mix is not None
        return mix

    def weigh(self, losses: Tensor) -> Tensor:
        """The one number to call ``backward`` on, from the devices' losses; remembers f(x) for the switch."""
        devices = self._start.devices
        if losses.shape != (len(devices),):
            raise InvalidInput(
                f"one loss for each of {len(devices)} devices is needed, got shape {tuple(losses.shape)}"
            )
        values = losses.detach().double().cpu().numpy()
        if np.isnan(values).any():
            i = int(np.argmax(np.isnan(values)))
            raise InvalidInput(
                f"the loss of device {devices.names[i]!r} is nan: its batch may be empty, or the steps too long "
                f"(round {self._now().k})"
            )
        self.value = float(devices.weights @ values)
        mix = self.mix
        return (losses * torch.as_tensor(mix / mix.sum()).to(losses)).sum()

    def step(self, losses: Tensor | Callable[[], Tensor] | None = None) -> Any:
        """One round.

        Parameters
        ----------
        losses : the devices' losses, or one loss that :meth:`weigh` has weighted: its gradient is then taken here,
            replacing the one that is there. None when ``backward`` was already called. A closure, as torch's own
            optimizers take, calls ``weigh`` and ``backward`` itself.
        """
        if callable(losses) and not isinstance(losses, Tensor):
            with torch.enable_grad():
                losses = losses()
        elif isinstance(losses, Tensor):
            self.zero_grad()
            (self.weigh(losses) if losses.ndim else losses).backward()
        state = self._now()
        step = float(self.mix.sum())
        self._descend(step)
        move: Any = _Move(self.param_groups, step)
        if state.watch.fired is None:
            needs_value = not isinstance(self.method.switch, At | Never) and not _looks_at_norms(self.method.switch)
            if needs_value and math.isnan(self.value):
                raise InvalidInput(
                    f"{self.method.switch!r} looks at f(x): give the devices' losses to weigh(losses) or step(losses)"
                )
            watch = self.method.switch.observe(state.watch, state.k + 1, move, self.value, state.devices)
            self.state[_KEY] = _plain(OwnStepState(None, state.k + 1, watch, state.devices))
        else:
            self.state[_KEY] = _plain(OwnStepState(None, state.k + 1, state.watch, state.devices))
        self.value = math.nan
        return losses

    @torch.no_grad()
    def _descend(self, step: float) -> None:
        for group in self.param_groups:
            pairs = [(p, p.grad) for p in group["params"] if p.grad is not None]
            if pairs:
                params, grads = (list(column) for column in zip(*pairs, strict=True))
                torch._foreach_add_(params, grads, alpha=-float(group["lr"]) * step)

    def _now(self) -> OwnStepState:
        known = self.state[_KEY]
        watch = Watch(known["fired"], known["why"], known["probing"], tuple(known["memory"]))
        return OwnStepState(None, known["k"], watch, self._start.devices)


class _Move:
    """The round's move as a vector whose norm is computed only if the switch asks for it."""

    def __init__(self, groups: list[dict[str, Any]], step: float) -> None:
        self.groups, self.step = groups, step

    def __matmul__(self, other: object) -> float:
        squares = sum(
            float(p.grad.double().square().sum()) for g in self.groups for p in g["params"] if p.grad is not None
        )
        return self.step**2 * squares


def _looks_at_norms(switch: Switch) -> bool:
    from ownstep.methods import NormBelow

    return isinstance(switch, NormBelow)


def _plain(state: OwnStepState) -> dict[str, Any]:
    known = asdict(state.watch)
    return {"k": state.k, **known, "memory": list(known["memory"])}
