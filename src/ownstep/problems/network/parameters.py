"""A torch module's trainable parameters as one flat vector, in and out without loss."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ownstep.support.errors import InvalidInput, OwnstepError


@dataclass(frozen=True)
class Layout:
    """Where every trainable tensor lies in the flat vector: names in the model's order, their shapes and sizes."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]

    @classmethod
    def of(cls, model: nn.Module) -> Layout:
        """The layout of a model's parameters that require a gradient."""
        found = {name: p.shape for name, p in model.named_parameters() if p.requires_grad}
        if not found:
            raise InvalidInput(
                f"{type(model).__name__} has no trainable parameter: all of its "
                f"{sum(1 for _ in model.parameters())} tensors have requires_grad=False, or it has none"
            )
        return cls(tuple(found), tuple(found.values()))

    @property
    def sizes(self) -> list[int]:
        """Numbers in each tensor."""
        return [shape.numel() for shape in self.shapes]

    @property
    def dim(self) -> int:
        """Length of the flat vector."""
        return sum(self.sizes)

    @property
    def digest(self) -> str:
        """A short fingerprint: two models of equal digest have the same tensors in the same order."""
        text = ";".join(f"{n}{tuple(s)}" for n, s in zip(self.names, self.shapes, strict=True))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def join(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """One flat vector of the named tensors."""
        return torch.cat([tensors[name].detach().reshape(-1) for name in self.names])

    def split(self, x: Tensor) -> dict[str, Tensor]:
        """Views into the last axis of x, shaped as the model wants them; leading axes stay in front."""
        lead = x.shape[:-1]
        pieces = torch.split(x, self.sizes, dim=-1)
        return {
            n: p.view(*lead, *s) if p.is_contiguous() else p.reshape(*lead, *s)
            for n, p, s in zip(self.names, pieces, self.shapes, strict=True)
        }


def own_copy(model: nn.Module, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """The model as a fixed function of its parameters: a copy in evaluation mode, its samples independent.

    Batch normalisation in training mode is refused. It makes every sample's loss depend on the others in its batch, and
    its running statistics are no function of the parameters, so f would not be a sum over samples.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and (module.training or not module.track_running_stats):
            raise InvalidInput(
                f"{type(module).__name__} {name!r} mixes the samples of a batch and keeps running statistics, so the "
                "loss is no sum over the devices' samples; use GroupNorm, or call model.eval() to fix its statistics"
            )
    return copy.deepcopy(model).to(device=device, dtype=dtype).eval()


def resolve_device(name: str | torch.device | None) -> torch.device:
    """The torch device of that name; an error if it is a GPU that is not there."""
    try:
        device = torch.device("cpu" if name is None else name)
    except RuntimeError as error:
        raise InvalidInput(f"device {name!r} is not known to torch: {str(error).splitlines()[0]}") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise OwnstepError(f"device {str(name)!r} was asked for, but torch {torch.__version__} sees no CUDA GPU here")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise OwnstepError(f"device {str(name)!r} was asked for, but there are only {torch.cuda.device_count()} GPUs")
    return device


def load_into(model: nn.Module, state: Mapping[str, Any], where: str) -> None:
    """Fill a model from a state dict; a state of another model is an error that names the first difference."""
    mine = model.state_dict()
    missing, extra = [k for k in mine if k not in state], [k for k in state if k not in mine]
    shapes = [k for k in mine if k in state and tuple(mine[k].shape) != tuple(state[k].shape)]
    if missing or extra or shapes:
        first = (
            f"it lacks {missing[0]!r}" if missing
            else f"it has {extra[0]!r}" if extra
            else f"{shapes[0]!r} is {tuple(state[shapes[0]].shape)}, not {tuple(mine[shapes[0]].shape)}"
        )  # fmt: skip
        raise OwnstepError(f"{where} is of another model than {type(model).__name__}: {first}")
    model.load_state_dict({k: state[k] for k in mine})
