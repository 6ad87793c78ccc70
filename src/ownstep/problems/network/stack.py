"""Many small models of one architecture evaluated at once, each on its own batch with its own parameters.

A batch of ten images leaves a GPU idle; forty models on ten images each do not. The layers of a sequential model
are run on all models together in one of two layouts:

    grouped   activations (n, M C, h, w), convolutions in M groups: the faster one as it is
    patches   activations (M, n, h, w, C), convolutions as one batched matrix product of shifted copies: on a GPU the
              faster one once ``torch.compile`` has fused the copies

Any other module is run through ``torch.func.vmap``.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ownstep.problems.network.models import GlobalMean
from ownstep.support.errors import unknown_name

LAYOUTS = ("grouped", "patches", "vmap")
_POINTWISE = (nn.ELU, nn.LeakyReLU, nn.ReLU, nn.Tanh, nn.MaxPool2d, nn.AvgPool2d, nn.Identity)


def layouts(model: nn.Module) -> tuple[str, ...]:
    """The layouts this model can be run in."""
    known = isinstance(model, nn.Sequential) and all(_known(layer) for layer in model)
    return LAYOUTS if known else ("vmap",)


def _known(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Conv2d):
        return (
            layer.groups == 1 and layer.dilation == (1, 1) and layer.padding_mode == "zeros" and layer.bias is not None
        )
    if isinstance(layer, nn.GroupNorm):
        return bool(layer.affine)
    if isinstance(layer, nn.Flatten):
        return bool(layer.start_dim == 1 and layer.end_dim == -1)
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
        h = x.transpose(0, 1).flatten(1, 2) if grouped else x.permute(0, 1, 3, 4, 2)
    assert isinstance(model, nn.Sequential)
    for name, layer in model.named_children():
        parameters = {k: tensors[f"{name}.{k}"] for k, _ in layer.named_parameters()}
        if isinstance(layer, nn.Conv2d):
            h = _in_groups(layer, parameters, h, M) if grouped else _by_patches(layer, parameters, h)
        elif isinstance(layer, nn.GroupNorm):
            h = _normalise(layer, parameters, h, M, grouped)
        elif isinstance(layer, nn.Linear):
            h = torch.baddbmm(parameters["bias"].unsqueeze(1), h, parameters["weight"].transpose(1, 2))
        elif isinstance(layer, GlobalMean | nn.Flatten):
            h = _rows(layer, h, M, n, grouped)
        elif isinstance(layer, nn.MaxPool2d | nn.AvgPool2d) and not grouped:
            h = layer(h.flatten(0, 1).permute(0, 3, 1, 2)).permute(0, 2, 3, 1).unflatten(0, (M, n))
        else:
            h = layer(h)
    return h


def _in_groups(layer: nn.Conv2d, p: dict[str, Tensor], h: Tensor, M: int) -> Tensor:
    options: Any = {"stride": layer.stride, "padding": layer.padding}
    return F.conv2d(h, p["weight"].flatten(0, 1), p["bias"].flatten(), groups=M, **options)


def _by_patches(layer: nn.Conv2d, p: dict[str, Tensor], h: Tensor) -> Tensor:
    (high, wide), (down, across) = layer.kernel_size, layer.stride
    top, left = (int(size) for size in layer.padding)
    h = F.pad(h, (0, 0, left, left, top, top))
    rows, columns = (h.shape[2] - high) // down + 1, (h.shape[3] - wide) // across + 1
    moved = [
        h[:, :, i : i + down * (rows - 1) + 1 : down, j : j + across * (columns - 1) + 1 : across]
        for i in range(high)
        for j in range(wide)
    ]
    patches = torch.stack(moved, 4).flatten(4)  # (M, n, rows, columns, high wide C)
    weight = p["weight"].permute(0, 3, 4, 2, 1).flatten(1, 3)
    return torch.baddbmm(p["bias"].unsqueeze(1), patches.flatten(1, 3), weight).view(*patches.shape[:4], -1)


def _normalise(layer: nn.GroupNorm, p: dict[str, Tensor], h: Tensor, M: int, grouped: bool) -> Tensor:
    if grouped:
        return F.group_norm(h, M * layer.num_groups, p["weight"].flatten(), p["bias"].flatten(), layer.eps)
    parts = h.unflatten(-1, (layer.num_groups, -1))
    spread, mean = torch.var_mean(parts, (2, 3, 5), correction=0, keepdim=True)
    normal = ((parts - mean) * torch.rsqrt(spread + layer.eps)).flatten(-2)
    return normal * p["weight"][:, None, None, None] + p["bias"][:, None, None, None]


def _rows(layer: nn.Module, h: Tensor, M: int, n: int, grouped: bool) -> Tensor:
    """(M, n, features) from images, or from rows that already are."""
    if grouped:
        h = layer(h) if isinstance(layer, GlobalMean) else h
        return h.reshape(n, M, -1).transpose(0, 1) if h.ndim != 3 else h
    if h.ndim == 3:
        return h
    return h.mean((2, 3)) if isinstance(layer, GlobalMean) else h.permute(0, 1, 4, 2, 3).flatten(2)
