"""Many small models of one architecture evaluated at once, each on its own batch with its own parameters.

A batch of ten images leaves a GPU idle; thirty-two models on ten images each do not. The layers of a sequential model
are run on all models together in one of two layouts, whichever is faster on the machine at hand:

    grouped   activations (n, M C, h, w), convolutions in M groups
    unfold    activations (M n, C, h, w), convolutions as one batched matrix product of unfolded patches

Any other module is run through ``torch.func.vmap``.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ownstep.errors import unknown_name
from ownstep.problems.models import GlobalMean

LAYOUTS = ("grouped", "unfold", "vmap")
_POINTWISE = (nn.ELU, nn.LeakyReLU, nn.ReLU, nn.Tanh, nn.MaxPool2d, nn.AvgPool2d, nn.Identity)


def layouts(model: nn.Module) -> tuple[str, ...]:
    """The layouts this model can be run in."""
    known = isinstance(model, nn.Sequential) and all(_known(layer) for layer in model)
    return LAYOUTS if known else ("vmap",)


def _known(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Conv2d):
        return layer.groups == 1 and layer.dilation == (1, 1) and layer.padding_mode == "zeros" and layer.bias is not None
    if isinstance(layer, nn.GroupNorm):
        return layer.affine
    if isinstance(layer, nn.Flatten):
        return layer.start_dim == 1 and layer.end_dim == -1
    if isinstance(layer, nn.Linear):
        return layer.bias is not None
    return isinstance(layer, (*_POINTWISE, GlobalMean))


def stacked_forward(model: nn.Module, tensors: dict[str, Tensor], x: Tensor, layout: str) -> Tensor:
    """Outputs (M, n, ...) of M models on inputs (M, n, ...); ``tensors`` carry the models on their first axis."""
    if layout == "vmap":
        one = lambda t, inputs: torch.func.functional_call(model, t, (inputs,))  # noqa: E731
        out: Tensor = torch.func.vmap(one)(tensors, x)
        return out
    if layout not in LAYOUTS:
        raise unknown_name("layout", layout, LAYOUTS)
    grouped, (M, n) = layout == "grouped", x.shape[:2]
    h = x
    if x.ndim == 5:
        h = x.transpose(0, 1).flatten(1, 2) if grouped else x.flatten(0, 1)
    assert isinstance(model, nn.Sequential)
    for name, layer in model.named_children():
        parameters = {k: tensors[f"{name}.{k}"] for k, _ in layer.named_parameters()}
        if isinstance(layer, nn.Conv2d):
            h = _convolve(layer, parameters, h, M, grouped)
        elif isinstance(layer, nn.GroupNorm):
            h = _normalise(layer, parameters, h, M, grouped)
        elif isinstance(layer, nn.Linear):
            h = torch.baddbmm(parameters["bias"].unsqueeze(1), h, parameters["weight"].transpose(1, 2))
        elif isinstance(layer, GlobalMean | nn.Flatten):
            h = layer(h) if isinstance(layer, GlobalMean) else h
            if h.ndim > 3 or isinstance(layer, GlobalMean):
                h = h.reshape(n, M, -1).transpose(0, 1) if grouped else h.reshape(M, n, -1)
        else:
            h = layer(h)
    return h


def _convolve(layer: nn.Conv2d, p: dict[str, Tensor], h: Tensor, M: int, grouped: bool) -> Tensor:
    options: Any = {"stride": layer.stride, "padding": layer.padding}
    if grouped:
        return F.conv2d(h, p["weight"].flatten(0, 1), p["bias"].flatten(), groups=M, **options)
    height = (h.shape[2] + 2 * int(layer.padding[0]) - layer.kernel_size[0]) // layer.stride[0] + 1
    patches = F.unfold(h, layer.kernel_size, **options)  # (M n, C k k, positions)
    patches = patches.reshape(M, -1, *patches.shape[1:])
    out = p["weight"].flatten(2).unsqueeze(1) @ patches + p["bias"][:, None, :, None]
    return out.flatten(0, 1).unflatten(2, (height, -1))


def _normalise(layer: nn.GroupNorm, p: dict[str, Tensor], h: Tensor, M: int, grouped: bool) -> Tensor:
    if grouped:
        return F.group_norm(h, M * layer.num_groups, p["weight"].flatten(), p["bias"].flatten(), layer.eps)
    normal = F.group_norm(h, layer.num_groups, eps=layer.eps).unflatten(0, (M, -1))
    return (normal * p["weight"][:, None, :, None, None] + p["bias"][:, None, :, None, None]).flatten(0, 1)
