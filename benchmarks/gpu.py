"""Everything that is measured on a GPU, in pieces; needs torch, numpy and the files of pack_gpu_data.py alone.

    python benchmarks/gpu.py --what bench --out OUT
    python benchmarks/gpu.py --what mnist500 --seconds 240 --out OUT
    python benchmarks/gpu.py --what mnist | cifar10 | sst2 ...
    python benchmarks/gpu.py --what appendix --names dirichlet,gossip --seeds 3 --out OUT   (OWNSTEP_DATA holds MNIST)

Each piece writes OUT/gpu-*.json with device, versions, commit and settings, stops cleanly when its seconds are over,
and prints what it does. ``--device cpu --tiny`` rehearses a piece in a minute.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import numpy as np
import torch

from ownstep.paper import fig4_cifar10 as cifar_experiment
from ownstep.paper import fig5_sst2 as sst2_experiment
from ownstep.paper.appendix import mnist as mnist_experiment
from ownstep.paper.machinery import mnist_problem, neural
from ownstep.paper.machinery.runner import Pieces
from ownstep.paper.ours import estimates as estimates_experiment

BEGAN = time.monotonic()
WHAT = ("bench", "mnist500", "mnist", "cifar10", "sst2", "estimates", "appendix")


def say(text: str) -> None:
    print(f"[{time.monotonic() - BEGAN:6.1f} s] {text}", flush=True)


def seeds(asked: argparse.Namespace) -> range:
    return range(asked.first_seed, asked.first_seed + asked.seeds)


def provenance(asked: argparse.Namespace) -> dict[str, Any]:
    gpu = asked.device == "cuda"
    return {
        "device": torch.cuda.get_device_name() if gpu else platform.processor() or platform.machine(),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "cuda": torch.version.cuda if gpu else None,
        "cudnn": torch.backends.cudnn.version() if gpu else None,
        "numpy": np.__version__,
        "commit": asked.commit,
        "precision": asked.precision,
        "seeds": list(seeds(asked)),
        "arguments": {k: str(v) for k, v in vars(asked).items() if not isinstance(v, Path)},
    }


def write(asked: argparse.Namespace, name: str, result: dict[str, Any]) -> None:
    asked.out.mkdir(parents=True, exist_ok=True)
    path = asked.out / name
    part = path.with_suffix(".part")
    part.write_text(json.dumps(result | {"provenance": provenance(asked)}))
    part.replace(path)


def unfinished(asked: argparse.Namespace) -> Path:
    """Where work in progress is kept, apart for every commit and setting that its results depend on."""
    how = [asked.commit, asked.device, asked.precision, asked.layout, "fused" if asked.fused else None]
    how += ["tiny" if asked.tiny else None, f"from{asked.first_seed}"]
    folder: Path = asked.parts or asked.out / "parts"
    return folder / "-".join(str(h) for h in how if h)


def packed(asked: argparse.Namespace, pattern: str) -> dict[str, Any]:
    files = sorted(asked.data.glob(pattern))
    if not files:
        raise SystemExit(f"no {pattern} in {asked.data}: run benchmarks/pack_gpu_data.py and carry that folder along")
    out: dict[str, Any] = {}
    for path in files:
        with np.load(path) as file:
            out |= dict(file)
    return out


def mnist(asked: argparse.Namespace, per_class: int | None, name: str, constants: tuple[str, ...]) -> None:
    d = packed(asked, "mnist.npz")
    tiny = {"rounds": 6, "switch": 4, "draws": 2, "samples": 2, "test": 100, "looks": 2} if asked.tiny else {}
    options: dict[str, Any] = {"draws": asked.draws or 1000, "rounds": asked.rounds or 1000} | tiny
    result = mnist_experiment.experiment(
        d["images"], d["labels"], d["test_images"], d["test_labels"], seeds(asked),
        per_class=5 if asked.tiny else per_class, constants=constants, device=asked.device,
        clock=neural.Clock(asked.seconds), say=say, keep=lambda r: write(asked, name, r), fused=asked.fused,
        names=asked.methods, **options,
    )  # fmt: skip
    write(asked, name, result)


def cifar10(asked: argparse.Namespace) -> None:
    d = packed(asked, "cifar10.npz")
    if asked.tiny:
        at = mnist_experiment.choose(d["labels"], 2, 0)
        d |= {"images": d["images"][at], "labels": d["labels"][at]}
    options: dict[str, Any] = {"draws": asked.draws or 300, "samples": 10, "epochs": asked.rounds or 150}
    options |= {"draws": 1, "samples": 1, "epochs": 2, "evaluations": 1, "test": 20} if asked.tiny else {}
    also = {kind: 1 for kind in (asked.constants or "").split(",") if kind}
    result = cifar_experiment.experiment(
        d["images"], d["labels"], d["test_images"], d["test_labels"], seeds(asked), also=also, layout=asked.layout,
        fused=asked.fused, device=asked.device, clock=neural.Clock(asked.seconds), say=say,
        checkpoint=unfinished(asked) / "cifar10.npz", **options,
    )  # fmt: skip
    write(asked, "gpu-cifar10.json", result)
    if result["rounds"] == result["planned"]:
        (unfinished(asked) / "cifar10.npz").unlink(missing_ok=True)


def sst2(asked: argparse.Namespace) -> None:
    from ownstep.problems.network.encoder import Encoder, Shape

    d = packed(asked, f"sst2-{asked.encoder}-*.npz")
    encoder = Encoder(Shape(**json.loads(d["shape"].tobytes())))
    encoder.load_state_dict(
        {k.removeprefix("encoder/"): torch.from_numpy(v).float() for k, v in d.items() if k.startswith("encoder/")}
    )
    ids = np.split(d["ids"].astype(np.int32), np.cumsum(d["lengths"].astype(int))[:-1])
    test_ids = np.split(d["test_ids"].astype(np.int32), np.cumsum(d["test_lengths"].astype(int))[:-1])
    labels, test_labels = d["labels"].astype(np.int64), d["test_labels"].astype(np.int64)
    if asked.tiny:
        ids, labels, test_ids, test_labels = ids[:40], labels[:40], test_ids[:20], test_labels[:20]
    options: dict[str, Any] = {"rounds": asked.rounds or 300, "draws": asked.draws or 50}
    options |= {"rounds": 3, "draws": 2, "samples": 2} if asked.tiny else {}
    options |= {"names": asked.methods} if asked.methods else {}
    name = f"gpu-{asked.encoder}.json"
    result = sst2_experiment.experiment(
        encoder.eval(), ids, labels, test_ids, test_labels, seeds(asked),
        constants=tuple((asked.constants or "power").split(",")), device=asked.device,
        autocast=torch.bfloat16 if asked.precision == "bf16" else None, clock=neural.Clock(asked.seconds), say=say,
        keep=lambda r: write(asked, name, r), fused=asked.fused, **options,
    )  # fmt: skip
    result["storage"] = "embeddings and frozen layers stored in float16, the trained layer in float32"
    write(asked, name, result)


def estimates(asked: argparse.Namespace) -> None:
    m, c = packed(asked, "mnist.npz"), packed(asked, "cifar10.npz")
    sizes: dict[str, Any] = {"draws": 2, "long": 4, "samples": 2} if asked.tiny else {}
    result = estimates_experiment.measure(
        {"mnist": (m["images"], m["labels"]), "cifar10": (c["images"], c["labels"])}, device=asked.device,
        begun=json.loads(asked.begun.read_text()) if asked.begun else None, seed=asked.first_seed,
        clock=neural.Clock(asked.seconds), say=say,
        keep=lambda r: write(asked, "gpu-estimates.json", r), **sizes,
    )  # fmt: skip
    write(asked, "gpu-estimates.json", result)


def appendix(asked: argparse.Namespace) -> None:
    """The appendix's experiments on the paper's network, all of them with one seed, then with two, and so on.

    What is done is kept, and found again below ``--parts`` with the same settings and ``--commit``.
    """
    if asked.tiny:  # the network in the place of the quick runs' model, on a few images
        few = {"per_class": 4, "draws": 2, "test": 50, "device": asked.device}
        mnist_problem.problem = lambda quick, seed, split: mnist_problem.network(seed, split, **few)
        mnist_problem.on_gpu = lambda quick: True
    most = asked.seeds
    clock = neural.Clock(asked.seconds)
    pieces = {name: Told(unfinished(asked) / name, clock) for name in asked.names.split(",")}
    for asked.seeds in range(1, most + 1):  # what is written says how many
        for name, parts in pieces.items():
            experiment = importlib.import_module(f"ownstep.paper.{name}")
            options: dict[str, Any] = {"seed": asked.first_seed, "seeds": asked.seeds, "progress": False}
            try:
                write(asked, f"gpu-{name}.json", {"result": experiment.run(quick=asked.tiny, pieces=parts, **options)})
            except OutOfTime as late:
                say(f"{name}, {asked.seeds} seeds: {late}")
            else:
                say(f"{name}, {asked.seeds} seeds: written")


class OutOfTime(Exception):
    """What is left of the time is too short for the next part."""


class Told(Pieces):
    """Parts of an experiment that say when they are done, and are not begun when time is too short for them."""

    def __init__(self, folder: Path, clock: neural.Clock) -> None:
        super().__init__(folder)
        self.clock, self.longest = clock, 0.0

    def __call__(self, name: str, make: Callable[..., Any], *arguments: Any) -> Any:
        def timed(*given: Any) -> Any:
            if not self.clock.allows(self.longest):
                raise OutOfTime(f"no time for {name}: the longest part took {self.longest:.0f} s")
            began = time.monotonic()
            made = make(*given)
            took = time.monotonic() - began
            self.longest = max(self.longest, took)
            say(f"{self.folder.name if self.folder else ''}, {name}: {took:.1f} s")
            gc.collect()  # recorded graphs keep their memory until then
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            return made

        return super().__call__(name, timed, *arguments)


def bench(asked: argparse.Namespace) -> None:
    import gpu_parts

    clock = neural.Clock(asked.seconds)
    result: dict[str, Any] = {}
    chosen = asked.pieces.split(",") if asked.pieces else list(gpu_parts.PIECES)
    for name in chosen:
        piece = gpu_parts.PIECES[name]
        gc.collect()
        if asked.device == "cuda":  # the memory of recorded graphs goes back only when they are collected
            torch.cuda.empty_cache()
        if not clock.allows(0):
            say(f"out of time before {name}")
            break
        try:
            result[name] = piece(asked.device, asked.tiny)
        except Exception as error:  # a failed piece must not cost the others their results
            result[name] = {"failed": f"{type(error).__name__}: {error}"}
            if asked.tiny:
                raise
        say(f"{name}: {json.dumps(result[name])}")
        write(asked, "gpu-bench.json", result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--what", required=True, choices=WHAT)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path, default=Path("gpu-data"))
    parser.add_argument("--seconds", type=float, default=540.0)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, help="rounds, or epochs for cifar10")
    parser.add_argument("--draws", type=int, help="draws of the smoothness estimate")
    parser.add_argument(
        "--constants", help="which constants, comma-separated: differences, float32, products, paper, power"
    )
    parser.add_argument("--methods", type=lambda text: text.split(","), help="of the full batch, comma-separated")
    parser.add_argument("--names", default="dirichlet,devices,participation,gossip,fedopt", help="of the appendix")
    parser.add_argument("--parts", type=Path, help="where unfinished work is kept; below --out by default")
    parser.add_argument("--begun", type=Path, help="an earlier gpu-estimates.json, whose rows are kept")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--precision", choices=["fp32", "tf32", "bf16"], default="tf32")
    parser.add_argument("--pieces", help="which measurements of bench, comma-separated; all by default")
    parser.add_argument("--layout", help="of stacked models")
    parser.add_argument("--fused", action="store_true", help="let torch.compile fuse the small operations")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--commit", default=None)
    parser.add_argument("--tiny", action="store_true")
    asked = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = asked.precision != "fp32"
    torch.backends.cudnn.benchmark = True
    say(json.dumps(provenance(asked)))
    if asked.what == "mnist500":
        mnist(asked, 500, "gpu-500.json", tuple((asked.constants or "differences,paper").split(",")))
    elif asked.what == "mnist":
        mnist(asked, None, "gpu-60000.json", tuple((asked.constants or "differences").split(",")))
    else:
        run = {"bench": bench, "cifar10": cifar10, "sst2": sst2, "estimates": estimates, "appendix": appendix}
        run[asked.what](asked)
    say("done")


if __name__ == "__main__":
    main()
