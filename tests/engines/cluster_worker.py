"""What the ranks of the tests do, forked or as ``python -m tests.engines.cluster_worker TASK FOLDER`` by torchrun."""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from ownstep import partition
from ownstep.cli import main
from ownstep.cli.options import TableOptions
from ownstep.engines import Bernoulli, cluster, compare, saving
from ownstep.engines.cluster.ranks import KEPT, Ranks
from ownstep.methods import (
    EXTRA,
    GD,
    LBFGS,
    NIDS,
    AdGD,
    At,
    DecentralisedGD,
    DeltaSGD,
    FedAdam,
    FedAvg,
    FedDyn,
    FedExP,
    FedLin,
    FedNova,
    FedSPS,
    GradientTracking,
    Nesterov,
    Newton,
    OwnCurvature,
    OwnStep,
    Scaffnew,
    Scaffold,
    Schedule,
)
from ownstep.methods import METHODS as EVERY
from ownstep.plan import Devices
from ownstep.problems import BinaryLogistic, Network, PerDevice, SquaredL2
from ownstep.support.errors import InvalidInput, OwnstepError
from tests.conftest import make_logistic

DEVICES, ROUNDS = 8, 15
RACE = {"Algorithm 1": OwnStep(), "GD 1/L": GD("true"), "Nesterov": Nesterov()}
METHODS = {
    "own_step": OwnStep(),
    "own_step_at": OwnStep(At(7)),
    "gd_true": GD("true"),
    "nesterov": Nesterov(),
    "own_nesterov": OwnStep(momentum="nesterov"),
    "schedule": Schedule(((1.2,), (0.9,), (1.4,))),
    "adgd": AdGD(),
    "adaptive": OwnStep(smoothness="adaptive"),
    "fedadam": FedAdam(),
    "fedavg": FedAvg(local_steps=3),
    "scaffold": Scaffold(),
    "fednova": FedNova(),
    "fedexp": FedExP(),
    "feddyn": FedDyn(),
    "fedsps": FedSPS(0.5, lower=tuple(0.01 * i for i in range(DEVICES))),
    "delta_sgd": DeltaSGD(),
    "scaffnew": Scaffnew(p=0.4),
    "fedlin": FedLin(local_steps=3),
    "lbfgs": LBFGS(),
    "newton": Newton(),
    "own_curvature": OwnCurvature(rank=2),
    "own_curvature_sum": OwnCurvature(rank=3, sketch="sum"),
    "extra": EXTRA(),
    "nids": NIDS(),
    "dgd_atc": DecentralisedGD(order="atc", graph="grid"),
    "tracking": GradientTracking(),
    "tracking_atc": GradientTracking(order="atc"),
}
ORDERED = {
    name: kind(local_steps=3) if getattr(kind, "local_steps", 5) == 1 else kind()
    for name, kind in EVERY.items()
    if "federated" in kind.__module__
}
"""Methods whose sums are of the devices' vectors, in their order: the same bits on one rank per device."""
RESUMED = {
    "own_curvature": OwnCurvature(rank=2),
    "own_step": OwnStep(),
    "extra": EXTRA(),
    "adaptive": OwnStep(smoothness="adaptive"),
}
ABSENCES = {
    "rescaled": (OwnStep(), Bernoulli(0.6, "rescale", seed=3)),
    "remembered": (OwnStep(), Bernoulli(0.6, "last", seed=3)),
    "adaptive_absent": (OwnStep(smoothness="adaptive"), Bernoulli(0.6, "rescale", seed=3)),
    "adaptive_remembered": (OwnStep(smoothness="adaptive"), Bernoulli(0.6, "last", seed=3)),
    "lbfgs_absent": (LBFGS(), Bernoulli(0.7, "rescale", seed=3)),
    "curvature_absent": (OwnCurvature(rank=2), Bernoulli(0.7, "rescale", seed=3)),
    "curvature_remembered": (OwnCurvature(rank=2), Bernoulli(0.7, "last", seed=3)),
    "fednova_absent": (FedNova(), Bernoulli(0.6, "rescale", seed=3)),
    "fedexp_absent": (FedExP(), Bernoulli(0.6, "rescale", seed=3)),
    "feddyn_absent": (FedDyn(), Bernoulli(0.6, "rescale", seed=3)),
    "dropped_links": (DecentralisedGD(), Bernoulli(0.6, "drop", seed=3)),
}
NETWORK_METHODS = {
    "network": OwnStep(At(6)),
    "network_extra": EXTRA(),
    "network_adaptive": OwnStep(smoothness="adaptive"),
    "network_fedavg": FedAvg(0.05, local_steps=2),
    "network_delta_sgd": DeltaSGD(local_steps=3),
    "network_fedsps": FedSPS(0.3, local_steps=2, c=2.0),
}


DRAWN = FedAvg(0.05, local_steps=2)
"""With mini-batches and absent devices: both are drawn from (seed, k)."""


def logistic() -> BinaryLogistic:
    return make_logistic(DEVICES, samples=200)


def network(batch=None, dtype=torch.float64) -> Network:
    rng = np.random.default_rng(5)
    inputs = torch.as_tensor(rng.standard_normal((120, 6)))
    labels = rng.integers(0, 3, 120)
    split = partition.dirichlet(labels, DEVICES, alpha=1.0, seed=2, min_samples=4)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).to(dtype)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=dtype) * 0.4)
    return Network(model, inputs.to(dtype), labels, split, penalty=SquaredL2(0.01), batch=batch, seed=4)


def constants(problem: Network) -> Devices:
    return Devices(problem.weights, np.linspace(2, 6, DEVICES), names=problem.names)


def check(folder: Path) -> None:
    """Everything that needs nothing but ranks in good health, in one start."""
    whole = logistic()
    shared = cluster.deal(whole, deadline=60)
    ranks = shared.ranks
    held = int(shared.problem.counts.sum())
    (folder / f"rows-{ranks.rank}.txt").write_text(f"{held} {os.getpid()}")

    def keep(name, history):
        if ranks.rank == 0:
            history.save(folder / name)

    for name, method in METHODS.items():
        keep(name, cluster.run(method, shared, ROUNDS, measure_gradient=name == "own_step"))
    for name, (method, absence) in ABSENCES.items():
        keep(name, cluster.run(method, shared, ROUNDS, participation=absence))
    keep("sparse", cluster.run(EXTRA(), shared, ROUNDS, measure_every=10))
    for name, method in NETWORK_METHODS.items():
        net = network()
        keep(name, cluster.run(method, cluster.deal(net), 12, devices=constants(net)))
    for name, net in {"network_batch": network(PerDevice(2)), "network_float32": network(dtype=torch.float32)}.items():
        keep(name, cluster.run(OwnStep(At(6)), cluster.deal(net), 12, devices=constants(net)))
    net = network(PerDevice(2))
    drawn = {"devices": constants(net), "participation": who_comes(DRAWN)}
    keep("network_drawn", cluster.run(DRAWN, cluster.deal(net), 12, **drawn))

    mine = own_data(ranks.rank, ranks.size)
    keep("own_data", cluster.run(OwnStep(At(5)), mine, 10))
    problem, _ = TableOptions(partition="by_norm", devices=4).build("breast_cancer", 1e-2)
    race = compare(cluster.deal(problem), RACE, rounds=20, engine=cluster.run)
    for name, history in race.histories.items():
        keep(f"race-{name.replace('/', '_')}", history)

    for name, method in RESUMED.items():
        cluster.run(method, shared, 6, checkpoint=folder / f"kept-{name}.npz")
        keep(f"resumed-{name}", cluster.run(method, shared, ROUNDS, checkpoint=folder / f"kept-{name}.npz"))
    absence = ABSENCES["adaptive_absent"][1]
    for rounds in (6, ROUNDS):
        path = folder / "kept-absent.npz"
        history = cluster.run(RESUMED["adaptive"], shared, rounds, participation=absence, checkpoint=path)
    keep("resumed-absent", history)
    keep("from_local", cluster.run(EXTRA(), shared, ROUNDS, checkpoint=folder / "kept-local.npz"))
    if ranks.size > 1:
        refuse(folder, shared, whole)
    if ranks.size == 2:
        pair = cluster.deal(make_logistic(2))
        for name, method in ORDERED.items():
            keep(f"ordered-{name}", cluster.run(method, pair, ROUNDS, participation=who_comes(method)))


def who_comes(method) -> Bernoulli | None:
    """Some, or all where the method needs them."""
    return None if getattr(method, "needs_everyone", False) else Bernoulli(0.7, seed=9)


def refuse(folder: Path, shared, whole) -> None:
    """Ranks that were told different things say so, and who differs."""
    ranks = shared.ranks
    said = []
    for wrong in (
        lambda: cluster.run(OwnStep(), shared, 5, x0=np.full(4, float(ranks.rank == 1))),
        lambda: cluster.run(OwnStep() if ranks.rank else GD(), shared, 5),
        lambda: ranks.agree("the weather", bytes([ranks.rank == 1])),
        lambda: cluster.deal(make_logistic(1)),
        lambda: cluster.run(Nesterov(), shared, ROUNDS, checkpoint=folder / "kept-extra.npz"),
    ):
        try:
            wrong()
        except (InvalidInput, OwnstepError) as error:
            said.append(str(error))
    if ranks.rank == 0:
        (folder / "refused.txt").write_text("\n".join(said))


def own_data(rank: int, size: int) -> BinaryLogistic:
    """A rank's own problem, from its own rows alone; the ranks hold different numbers of devices."""
    whole = logistic()
    blocks = [range(0, 5), range(5, 8)] if size == 2 else np.array_split(np.arange(DEVICES), size)
    rows = [whole.rows(i) for i in blocks[rank]]
    labels = np.concatenate([whole._y[whole.block(i)] for i in blocks[rank]])
    owner = np.repeat(np.arange(len(rows)), [len(r) for r in rows])
    return BinaryLogistic(np.vstack(rows), labels, partition.given(owner), mu=0.05)


def die(folder: Path) -> None:
    """Rank 1 is killed in the first attempt, once there is a checkpoint; the second goes on from it."""
    saving.SECONDS, saving.SHARE = 0.02, 1.0
    path, first = folder / "run.npz", os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    shared = cluster.deal(logistic(), deadline=30)
    began = []

    def watch(k, x):
        began.append(k)
        if first and shared.ranks.rank == 1 and k >= 100 and path.exists():
            os.kill(os.getpid(), signal.SIGKILL)

    broken = cluster.run(OwnStep(At(150)), shared, 300, checkpoint=path, observe=watch)
    whole = cluster.run(OwnStep(At(150)), shared, 300)
    if shared.ranks.rank == 0:
        broken.save(folder / "broken")
        whole.save(folder / "whole")
        (folder / "began.txt").write_text(str(began[0]))


def hang(folder: Path) -> None:
    """Rank 1 stops in round 5 and never answers again."""
    shared = cluster.deal(logistic(), deadline=2)

    seen = []

    def watch(k, x):
        seen.append(time.monotonic())
        if shared.ranks.rank == 1 and k == 5:
            os.kill(os.getpid(), signal.SIGSTOP)

    try:
        cluster.run(OwnStep(), shared, 100, observe=watch)
    except OwnstepError as error:
        (folder / f"said-{shared.ranks.rank}").write_text(f"{error}\n{time.monotonic() - seen[-1]}")


def freeze_host(folder: Path) -> None:
    """Rank 0, which hosts the store when there is no torchrun, stops in round 5."""
    shared = cluster.deal(logistic(), deadline=2)

    seen = []

    def watch(k, x):
        seen.append(time.monotonic())
        if shared.ranks.rank == 0 and k == 5:
            os.kill(os.getpid(), signal.SIGSTOP)

    try:
        cluster.run(OwnStep(), shared, 100, observe=watch)
    except OwnstepError as error:
        (folder / f"said-{shared.ranks.rank}").write_text(f"{error}\n{time.monotonic() - seen[-1]}")


def other_data(folder: Path) -> None:
    """Every rank splits the data its own way."""
    rank = int(os.environ["RANK"])
    rng = np.random.default_rng(0)
    rows, labels = rng.standard_normal((60, 4)), rng.integers(0, 2, 60)
    said = []
    for seed, factor in ((rank, 1.0), (0, 1.0 + rank)):
        problem = BinaryLogistic(factor * rows, labels, partition.iid(60, 4, seed=seed), mu=0.1)
        try:
            cluster.deal(problem, deadline=30)
        except OwnstepError as error:
            said.append(str(error))
    cluster.deal(BinaryLogistic(rows, labels, partition.iid(60, 4), mu=0.1), deadline=30)
    (folder / f"said-{rank}").write_text("\n".join(said))


def one_nan(folder: Path) -> None:
    """Rank 1 sends one bad share in the ninth round; then, started again, it does not."""
    shared = cluster.deal(logistic(), deadline=30)
    for number, bad in enumerate((np.nan, np.inf, 1e200, 1.0)):
        real, rounds = type(shared.problem).mix, []

        def mix(x, c, real=real, rounds=rounds, bad=bad):
            losses, total = real(shared.problem, x, c)
            rounds.append(1)
            return losses, total * bad if shared.ranks.rank == 1 and len(rounds) == 12 else total

        shared.problem.mix = mix
        method = Nesterov() if number == 0 else OwnStep(At(20))  # which is measured by a second sum
        history = cluster.run(method, shared, 40, checkpoint=folder / f"run-{number == 0}.npz")
        del shared.problem.mix
        if shared.ranks.rank == 0:
            history.save(folder / f"try-{number}")


def secret(folder: Path) -> None:
    """A short run, over whatever transport the environment asks for."""
    try:
        shared = cluster.deal(logistic(), deadline=20)
        cluster.run(OwnStep(), shared, 5).save(folder / f"secret-{shared.ranks.rank}")
    except OwnstepError as error:
        (folder / f"said-{os.environ['RANK']}").write_text(str(error))


def alone(folder: Path) -> None:
    """One rank: its runs, and that vectors which somebody holds are never overwritten."""
    shared = cluster.deal(logistic())
    for name in ("own_step", "extra"):
        cluster.run(METHODS[name], shared, ROUNDS).save(folder / name)
    ranks, none, size = Ranks(30), np.zeros(0), 2 * KEPT
    first, second = (ranks.add(np.full(size, value), none)[0] for value in (1.0, 2.0))
    assert (first == 1).all()
    assert (second == 2).all()
    held, place = first[3:9], second.ctypes.data
    del second
    third, _ = ranks.add(np.full(size, 3.0), none)
    assert third.ctypes.data == place, "memory that nobody holds is used again"
    del first
    fourth = ranks.add(np.full(size, 4.0), none)[0]
    assert (held == 1).all(), "what somebody holds is left alone"
    assert (third == 3).all()
    assert (fourth == 4).all()


def command_line(folder: Path) -> None:
    """``ownstep`` with the arguments in a file, as every rank of a torchrun would be called."""
    main(json.loads((folder / "arguments.json").read_text()))


def rank(task: str, folder: Path, place: dict[str, str]) -> None:
    """What a forked rank does: a task of this module, in an environment of its own, its words in files."""
    os.environ.update(place)
    for number, name in ((1, "stdout"), (2, "stderr")):
        with (folder / f"{name}-{place['RANK']}").open("w") as words:
            os.dup2(words.fileno(), number)
    torch.set_num_threads(1)
    try:
        globals()[task](folder)
    finally:
        atexit._run_exitfuncs()  # as a process of its own would: a rank takes leave of the others there


if __name__ == "__main__":
    torch.set_num_threads(1)
    globals()[sys.argv[1]](Path(sys.argv[2]))
