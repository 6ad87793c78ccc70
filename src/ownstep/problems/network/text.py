"""A text classifier whose frozen layers are run once: an iteration costs one encoder layer, not six or twelve."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ownstep.problems.network.encoder import Encoder, EncoderLayer
from ownstep.problems.network.inputs import Blocks
from ownstep.problems.network.models import seeded
from ownstep.support.errors import InvalidInput, OwnstepError
from ownstep.support.files import write_atomically

BLOCK_TOKENS = 2**17
"""Tokens, padding included, in one block of sentences of similar length."""


class TextClassifier(nn.Module):
    """The encoder's last layer and a linear head on the mean token; its inputs are the frozen layers' outputs."""

    bias: Tensor | None

    def __init__(self, layer: EncoderLayer, classes: int, hidden: int, bias: Tensor | None = None) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(hidden, classes)
        self.register_buffer("bias", bias)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Hidden states (n, T, d) and which tokens are real (n, T)."""
        T = hidden.shape[-2]
        out = self.layer(hidden, mask, None if self.bias is None else self.bias[:, :T, :T])
        real = mask.unsqueeze(-1).to(out.dtype)
        logits: Tensor = self.head((out * real).sum(-2) / real.sum(-2))
        return logits


def text_classifier(encoder: Encoder, classes: int = 2, seed: int = 0, longest: int = 128) -> TextClassifier:
    """A classifier that starts from the encoder's own last layer and a random head."""
    bias = encoder.position_bias(longest)
    bias = None if bias is None else bias.detach()
    build = lambda: TextClassifier(copy.deepcopy(encoder.layers[-1]), classes, encoder.shape.hidden, bias)  # noqa: E731
    made = seeded(build, seed)
    assert isinstance(made, TextClassifier)
    made.eval()
    return made


def tokenise(tokenizer: Any, sentences: Sequence[str], longest: int = 128) -> list[NDArray[np.int32]]:
    """Token ids of every sentence, special tokens included, without padding."""
    found = tokenizer(list(sentences), truncation=True, max_length=longest)["input_ids"]
    return [np.asarray(ids, np.int32) for ids in found]


def buckets(ids: Sequence[NDArray[np.int32]], tokens: int = BLOCK_TOKENS) -> list[NDArray[np.intp]]:
    """Sentences in order of length, cut where a block would hold more than so many tokens with its padding."""
    lengths = np.array([len(i) for i in ids])
    if not len(lengths) or not lengths.all():
        raise InvalidInput("every text needs at least one token")
    order = np.argsort(lengths, kind="stable")
    blocks, start = [], 0
    for end in range(1, len(order) + 1):
        if end == len(order) or (end - start + 1) * lengths[order[end]] > tokens:
            blocks.append(order[start:end])
            start = end
    return blocks


def padded(ids: Sequence[NDArray[np.int32]]) -> tuple[Tensor, Tensor]:
    """(ids, which are real) of sentences padded to the longest."""
    longest = max(len(i) for i in ids)
    out, real = np.zeros((len(ids), longest), np.int64), np.zeros((len(ids), longest), bool)
    for row, sentence in enumerate(ids):
        out[row, : len(sentence)], real[row, : len(sentence)] = sentence, True
    return torch.from_numpy(out), torch.from_numpy(real)


@torch.no_grad()
def frozen_activations(
    encoder: Encoder,
    ids: Sequence[NDArray[np.int32]],
    device: torch.device | str = "cpu",
    folder: Path | None = None,
    tokens: int = BLOCK_TOKENS,
) -> tuple[Blocks, NDArray[np.intp]]:
    """(all layers but the last, run once, in blocks of similar length; the order in which sentences stand in them).

    On the given device, or memory-mapped from files below ``folder``, which are used again when they are there.
    """
    encoder = encoder.to(device)
    cut = buckets(ids, tokens)
    mark = "" if folder is None else _mark(encoder, ids)
    parts: list[tuple[Tensor, ...]] = []
    for b, at in enumerate(cut):
        words, real = padded([ids[i] for i in at])
        kept = None if folder is None else folder / f"{mark}-{b:04d}.npy"
        if kept is not None and kept.exists():
            hidden = _mapped(kept, (*words.shape, encoder.shape.hidden))
        else:
            hidden = encoder(words.to(device), real.to(device), encoder.shape.layers - 1)
            if kept is not None:
                kept.parent.mkdir(parents=True, exist_ok=True)
                with write_atomically(kept) as file:
                    np.save(file, hidden.cpu().numpy())
                hidden = _mapped(kept, tuple(hidden.shape))
        parts.append((hidden, real.to(hidden.device)))
    return Blocks(parts), np.concatenate(cut)


def _mark(encoder: Encoder, ids: Sequence[NDArray[np.int32]]) -> str:
    """A name that another encoder, or other sentences, would not have."""
    sha = hashlib.sha256()
    for tensor in encoder.state_dict().values():
        sha.update(tensor.detach().cpu().numpy().tobytes())
    for sentence in ids:
        sha.update(np.ascontiguousarray(sentence).tobytes() + b"|")
    return sha.hexdigest()[:16]


def _mapped(path: Path, shape: tuple[int, ...]) -> Tensor:
    try:
        mapped = np.load(path, mmap_mode="c")  # copy on write: torch wants a writable array, the file stays as it is
    except ValueError as error:
        raise OwnstepError(f"{str(path)!r} is damaged: {error}. Remove it, it will be made again") from error
    if mapped.shape != shape:
        raise OwnstepError(f"{str(path)!r} holds activations of shape {mapped.shape}, not {shape}: remove that folder")
    return torch.from_numpy(mapped)
